// Tables and scans of Hudi's own reader: the slices of files that a list of it has, and how all but some of them are left
// out of a scan. It is compiled by Janino, which knows neither generics nor lambdas, in a session that has Hudi's classes.

package lakeindex.hudi;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.hadoop.fs.Path;
import org.apache.hudi.HoodieFileIndex;
import org.apache.hudi.HoodiePartitionFileSliceMapping;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.FileSlice;
import org.apache.hudi.common.model.HoodieBaseFile;
import org.apache.hudi.common.model.HoodieLogFile;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.internal.schema.InternalSchema;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A base file with the log files that change its rows, as one list has them; or log files alone. */
class Slice {
    final String path;
    final String state;
    final long bytes;
    final boolean elsewhere;
    /** Where a list has it. */
    PartitionDirectory folder;
    FileStatusWithMetadata file;

    private Slice(String path, String state, long bytes, boolean elsewhere) {
        this.path = path;
        this.state = state;
        this.bytes = bytes;
        this.elsewhere = elsewhere;
    }

    /** path: as Spark names the rows' file, that of the base file if there is one. */
    String key() { return key(path); }

    static String key(String path) {
        if (path.startsWith("s3a://") || path.startsWith("s3n://")) return "s3" + path.substring(3);
        if (!path.startsWith("file:")) return path;
        int start = 5;
        while (start < path.length() && path.charAt(start) == '/') start++;
        return "/" + path.substring(start);
    }

    /** The slice that a file in a list is of. settings: of the reader, which are part of what its rows are. */
    static Slice of(PartitionDirectory folder, FileStatusWithMetadata file, ReaderSettings settings) {
        String path = file.getPath().toString();
        if (!(folder.values() instanceof HoodiePartitionFileSliceMapping)) return new Slice(path, settings.lines, file.getLen(), false);
        String name = file.getPath().getName();
        String id = FSUtils.isLogFile(name) ? FSUtils.getFileIdFromLogPath(new org.apache.hudi.storage.StoragePath(path)) : FSUtils.getFileId(name);
        scala.Option slice = ((HoodiePartitionFileSliceMapping) folder.values()).getSlice(id);
        return slice.isEmpty() ? new Slice(path, settings.lines, file.getLen(), false) : of((FileSlice) slice.get(), path, settings);
    }

    private static Slice of(FileSlice slice, String path, ReaderSettings settings) {
        List lines = new ArrayList();
        Iterator logs = slice.getLogFiles().iterator();
        while (logs.hasNext()) {
            HoodieLogFile log = (HoodieLogFile) logs.next();
            lines.add(log.getFileName() + " " + log.getFileSize());
        }
        Collections.sort(lines);
        // At an instant of before, logs of later ones are in the list too: the reader leaves out what they hold.
        if (!lines.isEmpty() && settings.instant != null) lines.add("as of " + settings.instant);
        StringBuilder state = new StringBuilder(settings.lines);
        for (int n = 0; n < lines.size(); n++) state.append(state.length() == 0 ? "" : "\n").append(lines.get(n));
        return new Slice(path, state.toString(), slice.getTotalFileSize(), slice.hasBootstrapBase());
    }

    /** Those of a list, by the partitions that filters leave. */
    static List all(HoodieFileIndex index, @SEQ@ partitions, ReaderSettings settings) {
        List slices = new ArrayList();
        List folders = list(index.listFiles(partitions, (@SEQ@) none()));
        for (int n = 0; n < folders.size(); n++) {
            PartitionDirectory folder = (PartitionDirectory) folders.get(n);
            List files = list(folder.files());
            for (int m = 0; m < files.size(); m++) {
                Slice slice = of(folder, (FileStatusWithMetadata) files.get(m), settings);
                slice.folder = folder;
                slice.file = (FileStatusWithMetadata) files.get(m);
                slices.add(slice);
            }
        }
        return slices;
    }

    static Object none() { return sequence(new ArrayList()); }

    static Object sequence(List items) { return ((scala.collection.Seq) scala.collection.JavaConverters.asScalaBuffer(items)).toSeq(); }

    static List list(Object items) { return new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) items)); }
}

/** What of a reader's options and of a session's settings decides on the rows of a slice; each where it is not as by default. */
class ReaderSettings {
    private static final String[][] KNOWN = {
        {"hoodie.datasource.merge.type", "payload_combine"},
        {"hoodie.datasource.read.extract.partition.values.from.path", "false"},
        {"hoodie.schema.on.read.enable", "false"},
        {"hoodie.datasource.write.payload.class", ""},
        {"hoodie.compaction.payload.class", ""},
        {"hoodie.write.record.merge.mode", ""},
        {"hoodie.record.merge.mode", ""},
        {"hoodie.write.record.merge.strategy.id", ""},
        {"hoodie.datasource.write.record.merger.impls", ""},
        {"hoodie.write.record.merge.custom.implementation.classes", ""},
        {"hoodie.datasource.write.precombine.field", ""},
        {"hoodie.table.ordering.fields", ""},
        {"hoodie.file.group.reader.enabled", "true"},
    };

    /** A line each; what writers set is only one where the reader's own options have it. */
    final String lines;
    /** The instant of which the table is read; null for the newest. */
    final String instant;

    private ReaderSettings(String lines, String instant) {
        this.lines = lines;
        this.instant = instant;
    }

    static ReaderSettings of(HoodieFileIndex index) {
        scala.Option at = index.options().get("as.of.instant");
        return new ReaderSettings(lines(index), at.isDefined() ? (String) at.get() : null);
    }

    public boolean equals(Object other) {
        return other instanceof ReaderSettings && lines.equals(((ReaderSettings) other).lines) && java.util.Objects.equals(instant, ((ReaderSettings) other).instant);
    }

    public int hashCode() { return lines.hashCode(); }

    private static String lines(HoodieFileIndex index) {
        SQLConf session = index.spark().sessionState().conf();
        StringBuilder lines = new StringBuilder();
        for (int n = 0; n < KNOWN.length; n++) {
            String name = KNOWN[n][0];
            scala.Option given = index.options().get(name);
            String value = given.isDefined() ? (String) given.get() : session.contains(name) ? session.getConfString(name) : null;
            if (value == null || value.equalsIgnoreCase(KNOWN[n][1])) continue;
            lines.append(lines.length() == 0 ? "'" : "\n'").append(name).append('=').append(value.replace('\n', ' ').replace('\0', ' '));
        }
        return lines.toString();
    }

    boolean readsById() { return lines.toLowerCase().indexOf("hoodie.schema.on.read.enable=true") >= 0; }
}

/** What a table is known by. */
class Identity {
    private static final ConcurrentHashMap KNOWN = new ConcurrentHashMap();
    private static final int MOST = 10000;

    /**
     * The instant of the first commit of a table; null where there is none. Its archive is looked into once for each
     * first commit that its timeline still has.
     */
    static String of(HoodieTableMetaClient table) {
        HoodieTimeline commits = table.getCommitsTimeline().filterCompletedInstants();
        String first = commits.empty() ? "" : ((HoodieInstant) commits.firstInstant().get()).requestedTime();
        String key = first + " " + table.getBasePath();
        Object known = first.isEmpty() ? null : KNOWN.get(key);
        if (known != null) return (String) known;
        HoodieTimeline archived = table.getArchivedTimeline().getCommitsTimeline().filterCompletedInstants();
        if (!archived.empty()) first = ((HoodieInstant) archived.firstInstant().get()).requestedTime();
        if (first.isEmpty()) return null;
        if (KNOWN.size() < MOST) KNOWN.put(key, first);
        return first;
    }
}

/** How columns are known in files: by name, or by the ids that a table has given them where it is read by those. */
class Columns {
    static Map stored(HoodieFileIndex index, StructType columns) throws Exception {
        InternalSchema schema = ReaderSettings.of(index).readsById() ? schema(index) : null;
        Map stored = new LinkedHashMap();
        for (int n = 0; n < columns.fields().length; n++) {
            String name = columns.fields()[n].name();
            org.apache.hudi.internal.schema.Types.Field field = schema == null ? null : schema.findField(name);
            stored.put(name, field == null ? name : name + "#" + meaning(field));
        }
        return stored;
    }

    private static InternalSchema schema(HoodieFileIndex index) {
        TableSchemaResolver resolver = new TableSchemaResolver(index.metaClient());
        scala.Option at = index.options().get("as.of.instant");
        org.apache.hudi.common.util.Option found = at.isDefined() ? resolver.getTableInternalSchemaFromCommitMetadata(org.apache.spark.sql.hudi.HoodieSqlCommonUtils.formatQueryInstant((String) at.get())) : resolver.getTableInternalSchemaFromCommitMetadata();
        InternalSchema schema = found.isPresent() ? (InternalSchema) found.get() : null;
        return schema == null || schema.isEmptySchema() ? null : schema;
    }

    private static String meaning(org.apache.hudi.internal.schema.Types.Field field) throws Exception {
        if (!field.type().isNestedType()) return Integer.toString(field.fieldId());
        byte[] hash = java.security.MessageDigest.getInstance("SHA-256").digest((field.fieldId() + " " + field.type()).getBytes("UTF-8"));
        return new java.math.BigInteger(1, hash).toString(16).substring(0, 16);
    }
}

/** A list of Hudi's without some of its slices, or of some alone. Other slices make another list: exchanges are reused by equality. */
class KeptSlices implements FileIndex {
    private final HoodieFileIndex all;
    private final ReaderSettings settings;
    private final Map named;
    private final boolean without;
    private final long bytes;

    /** named: key of each slice -> its state. A slice in another state is none of those. */
    KeptSlices(HoodieFileIndex all, ReaderSettings settings, Map named, boolean without, long bytes) {
        this.all = all;
        this.settings = settings;
        this.named = named;
        this.without = without;
        this.bytes = bytes;
    }

    public @SEQ@ rootPaths() { return (@SEQ@) all.rootPaths(); }

    public @SEQ@ listFiles(@SEQ@ partitions, @SEQ@ filters) {
        List kept = new ArrayList();
        List folders = Slice.list(all.listFiles(partitions, filters));
        for (int n = 0; n < folders.size(); n++) {
            PartitionDirectory folder = (PartitionDirectory) folders.get(n);
            List files = Slice.list(folder.files());
            List left = new ArrayList();
            for (int m = 0; m < files.size(); m++) {
                Slice slice = Slice.of(folder, (FileStatusWithMetadata) files.get(m), settings);
                if (slice.state.equals(named.get(slice.key())) != without) left.add(files.get(m));
            }
            if (left.size() == files.size()) kept.add(folder);
            else if (!left.isEmpty()) kept.add(new PartitionDirectory(folder.values(), (@SEQ@) Slice.sequence(left)));
        }
        return (@SEQ@) Slice.sequence(kept);
    }

    public String[] inputFiles() {
        if (!without) return (String[]) new ArrayList(named.keySet()).toArray(new String[0]);
        List kept = new ArrayList();
        String[] files = all.inputFiles();
        for (int n = 0; n < files.length; n++) if (!named.containsKey(Slice.key(files[n]))) kept.add(files[n]);
        return (String[]) kept.toArray(new String[0]);
    }

    public void refresh() { all.refresh(); }
    public long sizeInBytes() { return Math.min(bytes, all.sizeInBytes()); }
    public StructType partitionSchema() { return all.partitionSchema(); }
    public scala.Option metadataOpsTimeNs() { return all.metadataOpsTimeNs(); }

    public boolean equals(Object other) {
        if (!(other instanceof KeptSlices)) return false;
        KeptSlices that = (KeptSlices) other;
        return without == that.without && all.equals(that.all) && settings.equals(that.settings) && named.equals(that.named);
    }

    public int hashCode() { return all.hashCode() * 31 + named.hashCode(); }

    public String toString() { return "slices of " + all.getBasePath(); }
}

/** A version of a table as Hudi's reader has it. */
public class HudiTable {
    private static final com.fasterxml.jackson.databind.ObjectMapper JSON = new com.fasterxml.jackson.databind.ObjectMapper();
    private final HadoopFsRelation relation;
    private final HoodieFileIndex index;
    private final ReaderSettings settings;
    private final String marker;

    /** plan: of a frame that reads the table. marker: an option that tells the scan from a query's own. */
    public HudiTable(LogicalPlan plan, String marker) {
        LogicalPlan leaf = (LogicalPlan) plan.collectLeaves().head();
        Object read = leaf instanceof LogicalRelation ? (Object) ((LogicalRelation) leaf).relation() : null;
        relation = read instanceof HadoopFsRelation ? (HadoopFsRelation) read : null;
        index = relation != null && relation.location() instanceof HoodieFileIndex ? (HoodieFileIndex) relation.location() : null;
        settings = index == null ? null : ReaderSettings.of(index);
        this.marker = marker;
    }

    /** Newest commit, id, columns, how files know them, and the slices; JSON. Null where the table has no commit. */
    public String describe() throws Exception {
        if (index == null) return null;
        Map said = described();
        List files = new ArrayList();
        List slices = Slice.all(index, (@SEQ@) Slice.none(), settings);
        for (int n = 0; n < slices.size(); n++) {
            Slice slice = (Slice) slices.get(n);
            if (slice.elsewhere) throw new IllegalStateException("bootstrapped: " + slice.path);
            files.add(Arrays.asList(new Object[] {slice.path, Long.valueOf(slice.bytes), slice.state}));
        }
        said.put("files", files);
        return JSON.writeValueAsString(said);
    }

    /** As describe, without the slices. */
    public String describeColumns() throws Exception { return index == null ? null : JSON.writeValueAsString(described()); }

    /** Also how far the timeline is: the last completion, and what was requested before and may still be completed. */
    private Map described() throws Exception {
        Map said = new LinkedHashMap();
        HoodieTimeline commits = index.metaClient().getCommitsTimeline().filterCompletedInstants();
        String version = commits.empty() ? null : ((HoodieInstant) commits.lastInstant().get()).requestedTime();
        said.put("version", version);
        said.put("id", Identity.of(index.metaClient()));
        StructType columns = columns();
        said.put("schema", columns.json());
        said.put("stored", Columns.stored(index, columns));
        said.put("settings", settings.lines);
        said.put("table_version", Integer.valueOf(index.metaClient().getTableConfig().getTableVersion().versionCode()));
        List instants = index.metaClient().getActiveTimeline().getInstants();
        String latest = "", oldest = version;
        for (int n = 0; n < instants.size(); n++) {
            HoodieInstant instant = (HoodieInstant) instants.get(n);
            if (instant.isCompleted() && instant.getCompletionTime() != null && instant.getCompletionTime().compareTo(latest) > 0) latest = instant.getCompletionTime();
            if (!instant.isCompleted() && oldest != null && instant.requestedTime().compareTo(oldest) < 0) oldest = instant.requestedTime();
        }
        said.put("latest", latest);
        said.put("oldest", oldest);
        return said;
    }

    /**
     * As describe, but in place of the slices what each instant wrote that was completed since a moment, in that order, by
     * the commits' metadata alone. oldest: the first of those that may have been. "gap" says why it is not known.
     */
    public String changes(String since, String oldest, int most) throws Exception {
        if (index == null) return null;
        Map said = described();
        org.apache.hudi.common.table.timeline.HoodieActiveTimeline timeline = index.metaClient().getActiveTimeline();
        List instants = timeline.getInstants();
        java.util.TreeMap ordered = new java.util.TreeMap();
        Map completed = new LinkedHashMap();
        String gap = timeline.empty() || ((HoodieInstant) timeline.firstInstant().get()).requestedTime().compareTo(oldest) > 0 ? "instants since were archived" : null;
        for (int n = 0; n < instants.size(); n++) {
            HoodieInstant instant = (HoodieInstant) instants.get(n);
            if (!instant.isCompleted() || instant.getCompletionTime() == null) continue;
            completed.put(instant.requestedTime(), instant.getCompletionTime());
            if (instant.getCompletionTime().compareTo(since) > 0) ordered.put(instant.getCompletionTime() + " " + instant.requestedTime(), instant);
        }
        if (ordered.size() > most) gap = "there are more than " + most + " instants since";
        List commits = new ArrayList();
        Iterator each = ordered.values().iterator();
        while (gap == null && each.hasNext()) {
            HoodieInstant instant = (HoodieInstant) each.next();
            String action = instant.getAction();
            if (action.equals(HoodieTimeline.CLEAN_ACTION) || action.equals(HoodieTimeline.SAVEPOINT_ACTION) || action.equals(HoodieTimeline.INDEXING_ACTION)) continue;
            boolean writes = action.equals(HoodieTimeline.COMMIT_ACTION) || action.equals(HoodieTimeline.DELTA_COMMIT_ACTION) || action.equals(HoodieTimeline.REPLACE_COMMIT_ACTION);
            Map commit = writes ? commit(timeline, instant) : null;
            if (commit == null) gap = "an instant since was of the action " + action;
            else commits.add(commit);
        }
        said.put("gap", gap);
        said.put("commits", commits);
        said.put("completed", completed);
        return JSON.writeValueAsString(said);
    }

    /** What an instant wrote: file groups with the file, its bytes, and its names where it is of log files; null where that is not known. */
    private Map commit(HoodieTimeline timeline, HoodieInstant instant) throws Exception {
        org.apache.hudi.common.model.HoodieCommitMetadata metadata = org.apache.hudi.common.table.timeline.TimelineUtils.getCommitMetadata(instant, timeline);
        if (metadata.getOperationType() == org.apache.hudi.common.model.WriteOperationType.LOG_COMPACT) return null;
        List written = new ArrayList();
        List stats = metadata.getWriteStats();
        for (int n = 0; n < stats.size(); n++) {
            org.apache.hudi.common.model.HoodieWriteStat stat = (org.apache.hudi.common.model.HoodieWriteStat) stats.get(n);
            if (stat.getCdcStats() != null && !stat.getCdcStats().isEmpty()) return null;
            if (stat.getPath() == null) continue;
            String path = new Path(index.getBasePath().toString(), stat.getPath()).toString();
            List logs = new ArrayList();
            if (FSUtils.isLogFile(new Path(path).getName())) {
                if (stat instanceof org.apache.hudi.common.model.HoodieDeltaWriteStat) logs.addAll(((org.apache.hudi.common.model.HoodieDeltaWriteStat) stat).getLogFiles());
                if (logs.isEmpty()) logs.add(new Path(path).getName());
            }
            written.add(Arrays.asList(new Object[] {stat.getFileId(), path, Long.valueOf(stat.getFileSizeInBytes()), logs}));
        }
        List replaced = new ArrayList();
        if (metadata instanceof org.apache.hudi.common.model.HoodieReplaceCommitMetadata) {
            Iterator ids = ((org.apache.hudi.common.model.HoodieReplaceCommitMetadata) metadata).getPartitionToReplaceFileIds().values().iterator();
            while (ids.hasNext()) replaced.addAll((List) ids.next());
        } else if (instant.getAction().equals(HoodieTimeline.REPLACE_COMMIT_ACTION)) return null;
        Map said = new LinkedHashMap();
        said.put("version", instant.requestedTime());
        said.put("operation", String.valueOf(metadata.getOperationType()).toLowerCase());
        said.put("written", written);
        said.put("replaced", replaced);
        return said;
    }

    /** Whether the timeline still has a commit. */
    public boolean has(String instant) { return index != null && index.metaClient().getCommitsTimeline().filterCompletedInstants().containsInstant(instant); }

    private StructType columns() {
        List kept = new ArrayList();
        StructField[] fields = relation.schema().fields();
        for (int n = 0; n < fields.length; n++) if (!HoodieRecord.HOODIE_META_COLUMNS_WITH_OPERATION.contains(fields[n].name())) kept.add(fields[n]);
        return new StructType((StructField[]) kept.toArray(new StructField[0]));
    }

    /** A relation of some slices alone; JSON of their paths -> their states. */
    public HadoopFsRelation read(String asked) throws Exception {
        Map wanted = new HashMap();
        Iterator each = ((Map) JSON.readValue(asked, Map.class)).entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry slice = (Map.Entry) each.next();
            wanted.put(Slice.key((String) slice.getKey()), slice.getValue());
        }
        Map missing = new HashMap(wanted);
        long bytes = 0;
        List slices = index == null ? new ArrayList() : Slice.all(index, (@SEQ@) Slice.none(), settings);
        for (int n = 0; n < slices.size(); n++) {
            Slice slice = (Slice) slices.get(n);
            if (!slice.state.equals(missing.get(slice.key()))) continue;
            missing.remove(slice.key());
            bytes += slice.bytes;
        }
        if (!missing.isEmpty()) throw new IllegalStateException("gone: " + missing.keySet().iterator().next());
        FileIndex kept = new KeptSlices(index, settings, wanted, false, bytes);
        scala.collection.immutable.Map options = (scala.collection.immutable.Map) relation.options().updated(marker, "true");
        return new HadoopFsRelation(kept, relation.partitionSchema(), relation.dataSchema(), relation.bucketSpec(), relation.fileFormat(), options, relation.sparkSession());
    }
}
