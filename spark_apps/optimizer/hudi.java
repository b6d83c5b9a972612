// Scans of Hudi's own reader, as the index rule knows them. Compiled together with hudi_tables.java of sources/, where
// Hudi's classes are there.

package lakeindex.hudi;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import lakeindex.FilteredConnector;
import lakeindex.Relations;
import lakeindex.ScanFile;

import org.apache.hudi.HoodieFileIndex;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

public class HudiConnector implements FilteredConnector {
    private static final String[] RANGE = {"hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"};

    public String format() { return "hudi"; }

    /** Of the exact class: those of incremental reads and of change feeds are its children. */
    public boolean recognizes(LogicalPlan leaf) {
        HoodieFileIndex index = index(leaf);
        if (index == null || index.metaClient().isMetadataTable()) return false;
        for (int n = 0; n < RANGE.length; n++) if (index.options().contains(RANGE[n])) return false;
        return true;
    }

    private static HoodieFileIndex index(LogicalPlan leaf) {
        if (!(leaf instanceof LogicalRelation) || leaf.isStreaming()) return null;
        if (!(((LogicalRelation) leaf).relation() instanceof HadoopFsRelation)) return null;
        Object location = ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location();
        return location.getClass() == HoodieFileIndex.class ? (HoodieFileIndex) location : null;
    }

    public String address(LogicalPlan leaf) { return index(leaf).getBasePath().toString(); }

    public String id(LogicalPlan leaf) { return Identity.of(index(leaf).metaClient()); }

    /** What a command changes it writes by itself, of the rows that such a read has found. */
    public String purpose(LogicalPlan leaf) { return "read"; }

    public Object identity(LogicalPlan leaf) { return leaf; }

    /** A table of a catalog is listed anew whenever it is refreshed, in the midst of a query too. */
    public boolean isPinned(LogicalPlan leaf) { return false; }

    public Map columns(LogicalPlan leaf) {
        try {
            return Columns.stored(index(leaf), leaf.schema());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public List files(LogicalPlan leaf) { return files(leaf, new ArrayList()); }

    /** Each slice by its base file, with its log files as its state. Hudi's own skipping, by its metadata, comes later. */
    public List files(LogicalPlan leaf, List filters) {
        HoodieFileIndex index = index(leaf);
        List partitions = new ArrayList();
        for (int n = 0; n < filters.size(); n++) if (isOfPartitions((Expression) filters.get(n), index)) partitions.add(filters.get(n));
        List slices = Slice.all(index, (@SEQ@) Slice.sequence(partitions), ReaderSettings.of(index));
        Map states = new HashMap();
        List files = new ArrayList();
        for (int n = 0; n < slices.size(); n++) {
            Slice slice = (Slice) slices.get(n);
            states.put(slice.key(), slice.state);
            files.add(new ScanFile(new Listed(slice, states), slice.path, slice.state, slice.bytes));
        }
        return files;
    }

    private static boolean isOfPartitions(Expression filter, HoodieFileIndex index) {
        List columns = Slice.list(filter.references());
        if (columns.isEmpty() || !filter.deterministic()) return false;
        for (int n = 0; n < columns.size(); n++) if (!index.partitionSchema().getFieldIndex(((Attribute) columns.get(n)).name()).isDefined()) return false;
        return true;
    }

    /** A log file changes rows: what was recorded before it came may lack values that are there now. */
    public boolean holds(LogicalPlan leaf, String then, ScanFile now) { return then.equals(now.state); }

    /** What is left out is named, not what is kept: a slice that comes meanwhile is read. */
    public LogicalPlan keep(LogicalPlan leaf, List files) {
        Map without = new HashMap();
        long bytes = 0;
        for (int n = 0; n < files.size(); n++) {
            Listed kept = (Listed) ((ScanFile) files.get(n)).file;
            if (n == 0) without.putAll(kept.states);
            without.remove(kept.slice.key());
            bytes += kept.slice.bytes;
        }
        HoodieFileIndex index = index(leaf);
        return Relations.reading(leaf, new KeptSlices(index, ReaderSettings.of(index), without, true, bytes));
    }
}

/** A slice of one list, with the states of all that are in it. */
class Listed {
    final Slice slice;
    final Map states;

    Listed(Slice slice, Map states) {
        this.slice = slice;
        this.states = states;
    }
}
