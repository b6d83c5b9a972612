// Delta tables as delta-spark reads them. Compiled by itself, where its classes are there.

package lakeindex.delta;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

import lakeindex.ExactConnector;
import lakeindex.NamingConnector;
import lakeindex.Relations;
import lakeindex.ScanFile;
import lakeindex.TableConnector;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.SnapshotDescriptor;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndexWithSnapshotDescriptor;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Some files of a scan. Another set of files is another index: exchanges and subqueries are reused by equality. */
class KeptFileIndex extends TahoeBatchFileIndex {
    private final HashSet kept = new HashSet();
    private final String action;

    KeptFileIndex(SparkSession session, String action, @SEQ@ files, DeltaLog log, Path path, SnapshotDescriptor snapshot, List added) {
        super(session, action, files, log, path, snapshot, false);
        this.action = action;
        for (int n = 0; n < added.size(); n++) kept.add(added.get(n));
    }

    public boolean equals(Object other) {
        if (!(other instanceof KeptFileIndex)) return false;
        KeptFileIndex that = (KeptFileIndex) other;
        return action.equals(that.action) && path().equals(that.path()) && version() == that.version() && kept.equals(that.kept);
    }

    public int hashCode() { return path().hashCode() * 31 + kept.hashCode(); }
}

public class DeltaConnector implements TableConnector, NamingConnector, ExactConnector {
    public String format() { return "delta"; }

    private static FileIndex index(LogicalPlan leaf) {
        if (!(leaf instanceof LogicalRelation) || leaf.isStreaming()) return null;
        if (!(((LogicalRelation) leaf).relation() instanceof HadoopFsRelation)) return null;
        return ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location();
    }

    /** Of the exact classes: those of change feeds are their children. */
    public boolean recognizes(LogicalPlan leaf) {
        FileIndex index = index(leaf);
        if (index == null) return false;
        // With a limit pushed down, the scan has just enough files for it.
        if (index.getClass() == PreparedDeltaFileIndex.class) return !isLimited((PreparedDeltaFileIndex) index);
        return index.getClass() == TahoeBatchFileIndex.class && purpose((TahoeBatchFileIndex) index) != null;
    }

    private static boolean isLimited(PreparedDeltaFileIndex index) {
        return index.preparedScan().dataSkippingType().toString().toLowerCase().indexOf("limit") >= 0;
    }

    /** What a command reads: a query's own scans are prepared ones. Some of its passes do not say which command it is. */
    private static String purpose(TahoeBatchFileIndex index) {
        String action = index.actionType().toLowerCase();
        if (action.equals("batch")) return "command";
        return action.equals("merge") || action.equals("update") || action.equals("delete") ? action : null;
    }

    public boolean isPinned(LogicalPlan leaf) {
        FileIndex index = index(leaf);
        return index != null && (index.getClass() == PreparedDeltaFileIndex.class || index.getClass() == TahoeBatchFileIndex.class || index instanceof KeptFileIndex);
    }

    private static TahoeFileIndexWithSnapshotDescriptor scan(LogicalPlan leaf) { return (TahoeFileIndexWithSnapshotDescriptor) index(leaf); }

    public String address(LogicalPlan leaf) { return scan(leaf).deltaLog().dataPath().toString(); }

    public String id(LogicalPlan leaf) { return scan(leaf).metadata().id(); }

    public String name(LogicalPlan leaf) { return Relations.name(leaf); }

    public String purpose(LogicalPlan leaf) {
        FileIndex index = index(leaf);
        return index instanceof TahoeBatchFileIndex ? purpose((TahoeBatchFileIndex) index) : "read";
    }

    public Object identity(LogicalPlan leaf) { return leaf; }

    private static final String PHYSICAL = "delta.columnMapping.physicalName";

    public Map columns(LogicalPlan leaf) {
        Map names = new HashMap();
        StructType columns = scan(leaf).metadata().schema();
        for (int n = 0; n < columns.fields().length; n++) {
            StructField column = columns.fields()[n];
            boolean mapped = column.metadata().contains(PHYSICAL);
            boolean nested = column.dataType() instanceof StructType || column.dataType() instanceof ArrayType || column.dataType() instanceof MapType;
            // Fields within a column are mapped too: one that was made anew has the name and type of the old one.
            names.put(column.name(), mapped ? column.metadata().getString(PHYSICAL) + (nested ? " and fields in it" : "") : column.name());
        }
        return names;
    }

    private static List added(LogicalPlan leaf) {
        FileIndex index = index(leaf);
        Object files = index instanceof PreparedDeltaFileIndex ? (Object) ((PreparedDeltaFileIndex) index).preparedScan().files() : (Object) ((TahoeBatchFileIndex) index).addFiles();
        return new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) files));
    }

    public List files(LogicalPlan leaf) {
        List files = new ArrayList();
        List added = added(leaf);
        TahoeFileIndexWithSnapshotDescriptor scan = scan(leaf);
        for (int n = 0; n < added.size(); n++) {
            AddFile file = (AddFile) added.get(n);
            DeletionVectorDescriptor deleted = file.deletionVector();
            files.add(new ScanFile(file, scan.absolutePath(file.path()).toString(), deleted == null || deleted.isEmpty() ? "" : deleted.uniqueId(), file.size()));
        }
        return files;
    }

    /** Deletes only take rows away; of two lists of them only the log would say whether one has grown from the other. */
    public boolean holds(LogicalPlan leaf, String then, ScanFile now) { return then.isEmpty() || then.equals(now.state); }

    /** Its snapshot does not change. */
    public String whyNoCopy(LogicalPlan leaf) { return null; }

    public boolean isSame(LogicalPlan leaf, String then, ScanFile now) { return then.equals(now.state); }

    public LogicalPlan keepOnly(LogicalPlan leaf, List files) { return keep(leaf, files); }

    public LogicalPlan keep(LogicalPlan leaf, List files) {
        FileIndex index = index(leaf);
        TahoeFileIndexWithSnapshotDescriptor scan = scan(leaf);
        SnapshotDescriptor snapshot = index instanceof PreparedDeltaFileIndex ? (SnapshotDescriptor) ((PreparedDeltaFileIndex) index).preparedScan().scannedSnapshot() : ((TahoeBatchFileIndex) index).snapshot();
        String action = index instanceof TahoeBatchFileIndex ? ((TahoeBatchFileIndex) index).actionType() : "batch";
        List added = new ArrayList();
        for (int n = 0; n < files.size(); n++) added.add(((ScanFile) files.get(n)).file);
        @SEQ@ kept = (@SEQ@) ((scala.collection.Seq) scala.collection.JavaConverters.asScalaBuffer(added)).toSeq();
        return Relations.reading(leaf, new KeptFileIndex(scan.spark(), action, kept, scan.deltaLog(), scan.path(), snapshot, added));
    }
}
