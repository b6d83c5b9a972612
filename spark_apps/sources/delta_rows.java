// A version of a Delta table as delta-spark has it: what its log says, and the rows of some of its files. Compiled where
// the classes of delta-spark are in the session.

package lakeindex.sources;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeLogFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

public class DeltaRows {
    private final HadoopFsRelation relation;
    private final TahoeLogFileIndex index;
    private final Snapshot snapshot;
    private final String marker;
    private Map byPath;

    /** plan: of a frame that reads the table at a version. marker: an option that tells the scan from a query's own. */
    public DeltaRows(LogicalPlan plan, String marker) {
        relation = (HadoopFsRelation) ((LogicalRelation) plan.collectLeaves().head()).relation();
        index = (TahoeLogFileIndex) relation.location();
        snapshot = index.getSnapshot();
        this.marker = marker;
    }

    /** Version, id, columns, partition columns, mode of column mapping, features for readers, whether another service knows the commits; JSON. */
    public String describe() throws Exception {
        Map said = new LinkedHashMap();
        said.put("version", Long.valueOf(snapshot.version()));
        said.put("id", snapshot.metadata().id());
        said.put("schema", snapshot.metadata().schema().json());
        said.put("partition_by", list(snapshot.metadata().partitionColumns()));
        scala.Option mode = snapshot.metadata().configuration().get("delta.columnMapping.mode");
        said.put("mapping", mode.isDefined() ? mode.get() : "none");
        scala.Option features = snapshot.protocol().readerFeatures();
        said.put("features", features.isDefined() ? list(features.get()) : new ArrayList());
        said.put("coordinated", Boolean.valueOf(snapshot.metadata().configuration().get("delta.coordinatedCommits.commitCoordinator-preview").isDefined()));
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(said);
    }

    /** Each file: path, as the log quotes it, bytes, time of change in milliseconds, statistics, id and size of its list of deleted rows, partition values; JSON. */
    public String files() throws Exception {
        List said = new ArrayList();
        Object[] added = added();
        for (int n = 0; n < added.length; n++) {
            AddFile file = (AddFile) added[n];
            DeletionVectorDescriptor deleted = file.deletionVector();
            boolean none = deleted == null || deleted.isEmpty();
            Map each = new LinkedHashMap();
            each.put("path", file.path());
            each.put("bytes", Long.valueOf(file.size()));
            each.put("modified", Long.valueOf(file.modificationTime()));
            each.put("statistics", file.stats());
            each.put("deleted", none ? "" : deleted.uniqueId());
            each.put("deleted_rows", Long.valueOf(none ? 0 : deleted.cardinality()));
            each.put("partition", new HashMap(scala.collection.JavaConverters.mapAsJavaMap((scala.collection.Map) file.partitionValues())));
            said.add(each);
        }
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(said);
    }

    /** A relation of some files, by their addresses, not quoted, with NUL between. */
    public HadoopFsRelation read(String paths) {
        Set wanted = new HashSet();
        String[] each = paths.split("\0");
        for (int n = 0; n < each.length; n++) wanted.add(place(new Path(each[n])));
        List chosen = new ArrayList();
        Object[] added = added();
        for (int n = 0; n < added.length; n++) if (wanted.remove(place(index.absolutePath(((AddFile) added[n]).path())))) chosen.add(added[n]);
        if (!wanted.isEmpty()) throw new IllegalArgumentException("no file of version " + snapshot.version() + ": " + wanted.iterator().next());
        @SEQ@ files = (@SEQ@) ((scala.collection.Seq) scala.collection.JavaConverters.asScalaBuffer(chosen)).toSeq();
        TahoeBatchFileIndex kept = new TahoeBatchFileIndex(index.spark(), "batch", files, index.deltaLog(), index.path(), snapshot, false);
        scala.collection.immutable.Map options = (scala.collection.immutable.Map) relation.options().updated(marker, "true");
        return new HadoopFsRelation(kept, relation.partitionSchema(), relation.dataSchema(), relation.bucketSpec(), relation.fileFormat(), options, relation.sparkSession());
    }

    private Object[] added() { return (Object[]) snapshot.allFiles().collect(); }

    /** An address without its scheme, which a file system and a log may write in more than one way. */
    private static String place(Path path) { return path.toUri().getPath(); }

    private static List list(Object items) {
        return new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) items));
    }
}
