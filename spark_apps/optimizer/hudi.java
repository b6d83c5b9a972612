// Scans of Hudi's own reader, as the index rule knows them. Compiled together with hudi_tables.java of sources/, where
// Hudi's classes are there.

package lakeindex.hudi;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import lakeindex.ExactConnector;
import lakeindex.FilteredConnector;
import lakeindex.NamingConnector;
import lakeindex.Relations;
import lakeindex.ScanFile;

import org.apache.hudi.HoodieFileIndex;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;

public class HudiConnector implements FilteredConnector, ExactConnector, NamingConnector {
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

    public String name(LogicalPlan leaf) { return Relations.name(leaf); }

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

    /** A command of Hudi's reads its target as any query does: the rows that it writes anew are its own to read. */
    public String whyNoCopy(LogicalPlan leaf) {
        StackTraceElement[] calls = Thread.currentThread().getStackTrace();
        for (int n = 0; n < calls.length; n++) if (calls[n].getClassName().startsWith("org.apache.spark.sql.hudi.command.") || calls[n].getClassName().startsWith("org.apache.hudi.HoodieSparkSqlWriter")) return "it is read for a command of Hudi's";
        String[] partitions = index(leaf).partitionSchema().fieldNames();
        for (int n = 0; n < partitions.length; n++) if (partitions[n].indexOf('.') >= 0) return "it is partitioned by " + partitions[n] + ", which is in another column";
        return null;
    }

    /** With log files, only as of the newest commit: a relation that was made before it leaves out what these hold since. */
    public boolean isSame(LogicalPlan leaf, String then, ScanFile now) { return then.equals(now.state) && (now.state.isEmpty() || isNewest(leaf)); }

    private static boolean isNewest(LogicalPlan leaf) {
        HoodieTimeline commits = index(leaf).metaClient().getActiveTimeline().getCommitsTimeline().filterCompletedInstants();
        Object format = ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).fileFormat();
        try {
            java.lang.reflect.Field field = format.getClass().getDeclaredField("queryTimestamp");
            field.setAccessible(true);
            return !commits.empty() && ((HoodieInstant) commits.lastInstant().get()).requestedTime().equals(field.get(format));
        } catch (ReflectiveOperationException unknown) {
            return false;
        }
    }

    public LogicalPlan keepOnly(LogicalPlan leaf, List files) { return Relations.reading(leaf, new OnlySlices(index(leaf), files)); }
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

/**
 * Slices as they were listed, and no others whatever is written meanwhile: rows of those that are not among them are read
 * elsewhere. Partitions are left out by their values, as filters that only speak of those are not asked again.
 */
class OnlySlices implements FileIndex {
    private final HoodieFileIndex all;
    private final List slices = new ArrayList();
    private final Map states = new HashMap();
    private final ReaderSettings settings;
    private long bytes;

    OnlySlices(HoodieFileIndex all, List files) {
        this.all = all;
        this.settings = ReaderSettings.of(all);
        for (int n = 0; n < files.size(); n++) {
            Slice slice = ((Listed) ((ScanFile) files.get(n)).file).slice;
            slices.add(slice);
            states.put(slice.key(), slice.state);
            bytes += slice.bytes;
        }
    }

    public @SEQ@ rootPaths() { return (@SEQ@) all.rootPaths(); }

    public @SEQ@ listFiles(@SEQ@ partitions, @SEQ@ filters) {
        List asked = Slice.list(partitions);
        for (int n = 0; n < asked.size(); n++) asked.set(n, Predicate$.MODULE$.createInterpreted((Expression) ((Expression) asked.get(n)).transform(new PartitionValue(all.partitionSchema()))));
        List kept = new ArrayList();
        List files = new ArrayList();
        for (int n = 0; n < slices.size(); n++) {
            Slice slice = (Slice) slices.get(n);
            files.add(slice.file);
            boolean last = n + 1 == slices.size() || ((Slice) slices.get(n + 1)).folder != slice.folder;
            if (!last) continue;
            if (isAsked(slice.folder.values(), asked)) kept.add(new PartitionDirectory(slice.folder.values(), (@SEQ@) Slice.sequence(files)));
            files = new ArrayList();
        }
        return (@SEQ@) Slice.sequence(kept);
    }

    private static boolean isAsked(InternalRow values, List asked) {
        for (int n = 0; n < asked.size(); n++) if (!((org.apache.spark.sql.catalyst.expressions.BasePredicate) asked.get(n)).eval(values)) return false;
        return true;
    }

    public String[] inputFiles() {
        List names = new ArrayList();
        for (int n = 0; n < slices.size(); n++) names.add(((Slice) slices.get(n)).path);
        return (String[]) names.toArray(new String[0]);
    }

    public void refresh() {}
    public long sizeInBytes() { return bytes; }
    public StructType partitionSchema() { return all.partitionSchema(); }
    public scala.Option metadataOpsTimeNs() { return all.metadataOpsTimeNs(); }

    public boolean equals(Object other) {
        if (!(other instanceof OnlySlices)) return false;
        OnlySlices that = (OnlySlices) other;
        return all.equals(that.all) && settings.equals(that.settings) && states.equals(that.states);
    }

    public int hashCode() { return all.hashCode() * 31 + states.hashCode(); }

    public String toString() { return "slices of " + all.getBasePath(); }
}

/** Takes the columns of partitions from the values of one. */
class PartitionValue extends scala.runtime.AbstractPartialFunction {
    private final StructType columns;

    PartitionValue(StructType columns) { this.columns = columns; }

    public boolean isDefinedAt(Object expression) { return expression instanceof Attribute; }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
        if (!isDefinedAt(expression)) return otherwise.apply(expression);
        int place = columns.fieldIndex(((Attribute) expression).name());
        return new BoundReference(place, columns.fields()[place].dataType(), true);
    }
}
