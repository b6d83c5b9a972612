// Tables and scans of Iceberg's own connector: what a table of a session is, which files a snapshot has with which
// deletes, and how all but some files are taken out of a scan. It is compiled by Janino, which knows neither generics nor
// lambdas, in a session that has Iceberg's classes. What the connector keeps to itself is reached by reflection: where a
// name of another version is missing, the caller leaves the scan as it is.

package lakeindex.iceberg;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/** Members of Iceberg's classes that are not public, by name, wherever in the line of their class they are declared. */
class IcebergMembers {
    static Object call(Object of, String name) throws Exception {
        return method(of.getClass(), name, new Class[0]).invoke(of, new Object[0]);
    }

    /** What the first of several names gives that this version has. */
    static Object callFirst(Object of, String[] names) throws Exception {
        for (int n = 0; n + 1 < names.length; n++) {
            try {
                return call(of, names[n]);
            } catch (NoSuchMethodException missing) {
                // the name of another version
            }
        }
        return call(of, names[names.length - 1]);
    }

    static Method method(Class type, String name, Class[] parameters) throws NoSuchMethodException {
        for (Class each = type; each != null; each = each.getSuperclass()) {
            try {
                Method found = each.getDeclaredMethod(name, parameters);
                found.setAccessible(true);
                return found;
            } catch (NoSuchMethodException missing) {
                // its parent may have it
            }
        }
        throw new NoSuchMethodException(type.getName() + "." + name);
    }

    static List list(Object of, String[] names) throws Exception {
        for (Class each = of.getClass(); each != null; each = each.getSuperclass()) {
            for (int n = 0; n < names.length; n++) {
                try {
                    Field found = each.getDeclaredField(names[n]);
                    found.setAccessible(true);
                    return (List) found.get(of);
                } catch (NoSuchFieldException missing) {
                    // its parent may have it, or another version
                }
            }
        }
        throw new NoSuchFieldException(of.getClass().getName() + "." + names[0]);
    }
}

/** A scan of the connector, as long as no task of it has run: the files that it reads, and those that are left of them. */
class IcebergScan {
    private static final String PACKAGE = "org.apache.iceberg.spark.source.";
    private static final String[] RUNTIME_FILTERS = {"runtimeFilters", "runtimeFilterExpressions"};
    private static final String[] PROJECTION = {"projection", "expectedSchema"};
    private static final String MARK = "lakeindex:";

    final Object scan;
    final BaseTable table;
    final List tasks;

    private IcebergScan(Object scan, BaseTable table, List tasks) {
        this.scan = scan;
        this.table = table;
        this.tasks = tasks;
    }

    /** Whether a leaf reads a table by the class whose files can be chosen: not changes, staged tasks, pushed aggregates. */
    static boolean isRead(LogicalPlan leaf) { return isOf(leaf, "SparkBatchQueryScan"); }

    /** Whether it reads what was appended between two snapshots, which is a class of its own in later versions. */
    boolean isOfAppends() throws Exception {
        for (Class each = scan.getClass(); each != null; each = each.getSuperclass()) {
            try {
                Field start = each.getDeclaredField("startSnapshotId");
                start.setAccessible(true);
                return start.get(scan) != null;
            } catch (NoSuchFieldException missing) {
                // its parent may have it
            }
        }
        return false;
    }

    static boolean isCopyOnWrite(LogicalPlan leaf) { return isOf(leaf, "SparkCopyOnWriteScan"); }

    private static boolean isOf(LogicalPlan leaf, String name) {
        return leaf instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) leaf).scan().getClass().getName().equals(PACKAGE + name);
    }

    /** The scan of such a leaf; null where it is of a metadata table, which the same class reads. */
    static IcebergScan of(LogicalPlan leaf) throws Exception {
        Object scan = ((DataSourceV2ScanRelation) leaf).scan();
        Object table = IcebergMembers.call(scan, "table");
        if (!(table instanceof BaseTable)) return null;
        List tasks = new ArrayList((List) IcebergMembers.call(scan, "tasks"));
        for (int n = 0; n < tasks.size(); n++) if (!(tasks.get(n) instanceof FileScanTask)) return null;
        return new IcebergScan(scan, (BaseTable) table, tasks);
    }

    /** Location of each data file -> the locations of its deletes, in order. */
    Map files() { return IcebergScan.files(tasks); }

    static Map files(List tasks) {
        Map files = new LinkedHashMap();
        for (int n = 0; n < tasks.size(); n++) files.put(location((FileScanTask) tasks.get(n)), deletes((FileScanTask) tasks.get(n)));
        return files;
    }

    static String location(FileScanTask task) { return ((ContentFile) task.file()).location(); }

    static List deletes(FileScanTask task) {
        List deletes = new ArrayList();
        for (int n = 0; n < task.deletes().size(); n++) deletes.add(((ContentFile) task.deletes().get(n)).location());
        java.util.Collections.sort(deletes);
        return deletes;
    }

    static String lines(List texts) {
        StringBuilder lines = new StringBuilder();
        for (int n = 0; n < texts.size(); n++) lines.append(n == 0 ? "" : "\n").append(texts.get(n));
        return lines.toString();
    }

    /** Name of each column that is read -> what it is known by; see IcebergTables.stored. */
    Map columns() throws Exception { return IcebergTables.stored(table, (Schema) IcebergMembers.callFirst(scan, PROJECTION)); }

    /** Whether files of this scan were chosen before. */
    boolean isChosen() throws Exception {
        List filters = IcebergMembers.list(scan, RUNTIME_FILTERS);
        for (int n = 0; n < filters.size(); n++) if (filters.get(n).toString().indexOf(MARK) >= 0) return true;
        return false;
    }

    /** Leave only these files of those that the scan has; by the digest it is unequal to a scan of which others are left. */
    void keep(Set locations, String digest) throws Exception {
        List kept = new ArrayList();
        for (int n = 0; n < tasks.size(); n++) if (locations.contains(location((FileScanTask) tasks.get(n)))) kept.add(tasks.get(n));
        Method reset = IcebergMembers.method(scan.getClass(), "resetTasks", new Class[] {List.class});
        List filters = IcebergMembers.list(scan, RUNTIME_FILTERS);
        // In this order: should the second fail, the scan is whole, and equal to no other.
        for (int n = filters.size() - 1; n >= 0; n--) if (filters.get(n).toString().indexOf(MARK) >= 0) filters.remove(n);
        filters.add(org.apache.iceberg.expressions.Expressions.equal("_file", MARK + digest));
        reset.invoke(scan, new Object[] {kept});
    }

    /** A digest of some files with their deletes, whatever their order. */
    static String digest(Map files, Set kept) throws Exception {
        List lines = new ArrayList();
        Iterator each = files.entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry file = (Map.Entry) each.next();
            if (kept.contains(file.getKey())) lines.add(file.getKey() + "\n" + file.getValue());
        }
        java.util.Collections.sort(lines);
        byte[] hash = java.security.MessageDigest.getInstance("SHA-256").digest(lines.toString().getBytes("UTF-8"));
        return new java.math.BigInteger(1, hash).toString(16);
    }
}

/** The tables that a session's connector knows, by their names or places. */
public class IcebergTables {
    private static final com.fasterxml.jackson.databind.ObjectMapper JSON = new com.fasterxml.jackson.databind.ObjectMapper();
    private final Object session;

    public IcebergTables(Object session) { this.session = session; }

    /** The table of a name; null where the name is of none, or of a table that another connector reads. */
    private Table load(String name) throws Exception {
        Method[] methods = org.apache.iceberg.spark.Spark3Util.class.getMethods();
        try {
            for (int n = 0; n < methods.length; n++) {
                if (!methods[n].getName().equals("loadIcebergTable")) continue;
                Table table = (Table) methods[n].invoke(null, new Object[] {session, name});
                table.refresh();
                return table;
            }
        } catch (java.lang.reflect.InvocationTargetException failed) {
            Throwable cause = failed.getCause();
            if (isNone(cause)) return null;
            throw cause instanceof Exception ? (Exception) cause : failed;
        }
        throw new NoSuchMethodException("Spark3Util.loadIcebergTable");
    }

    private static boolean isNone(Throwable cause) {
        if (cause instanceof ClassCastException || cause instanceof IllegalArgumentException) return true;
        return cause instanceof org.apache.spark.sql.AnalysisException || cause.getClass().getSimpleName().startsWith("CatalogNotFound");
    }

    /** The parts of a name in full: the session adds the catalog and the namespace of its own. */
    private List parts(String name) throws Exception {
        Method[] methods = org.apache.iceberg.spark.Spark3Util.class.getMethods();
        for (int n = 0; n < methods.length; n++) {
            Class[] given = methods[n].getParameterTypes();
            if (!methods[n].getName().equals("catalogAndIdentifier") || given.length != 2 || given[1] != String.class) continue;
            Object found = methods[n].invoke(null, new Object[] {session, name});
            org.apache.spark.sql.connector.catalog.CatalogPlugin catalog = (org.apache.spark.sql.connector.catalog.CatalogPlugin) IcebergMembers.call(found, "catalog");
            org.apache.spark.sql.connector.catalog.Identifier identifier = (org.apache.spark.sql.connector.catalog.Identifier) IcebergMembers.call(found, "identifier");
            List parts = new ArrayList();
            parts.add(catalog.name());
            parts.addAll(Arrays.asList(identifier.namespace()));
            parts.add(identifier.name());
            return parts;
        }
        throw new NoSuchMethodException("Spark3Util.catalogAndIdentifier");
    }

    /** The id, the place and the full name of a named table as JSON; null where there is none. */
    public String describe(String name) throws Exception {
        Table table = load(name);
        if (!(table instanceof BaseTable)) return null;
        Map said = new LinkedHashMap();
        said.put("id", table.uuid().toString());
        said.put("location", table.location());
        said.put("parts", parts(name));
        said.put("encrypted", Boolean.valueOf(table.properties().containsKey("encryption.key-id")));
        said.put("given_out", givenOut(table));
        return JSON.writeValueAsString(said);
    }

    private static final String[] SECRETS = {"s3.session-token", "s3.remote-signing-enabled", "gcs.oauth2.token", "adls.sas-token", "adls.token"};

    /** By what the catalog lets this session read the files: names of properties that the session's own settings do not give. */
    private List givenOut(Table table) {
        List found = new ArrayList();
        try {
            if (!((List) IcebergMembers.call(table.io(), "credentials")).isEmpty()) found.add("credentials");
        } catch (Exception none) {
            // a way to files, or a version, that knows of none
        }
        Map properties;
        try {
            properties = table.io().properties();
        } catch (UnsupportedOperationException none) {
            return found;
        }
        String catalog = "spark.sql.catalog." + table.name().split("\\.")[0] + ".";
        for (Iterator keys = properties.keySet().iterator(); keys.hasNext();) {
            String key = (String) keys.next();
            boolean secret = false;
            for (int n = 0; n < SECRETS.length; n++) secret = secret || key.startsWith(SECRETS[n]);
            scala.Option given = ((org.apache.spark.sql.SparkSession) session).conf().getOption(catalog + key);
            boolean own = given.isDefined() && given.get().equals(properties.get(key));
            if (secret && !own && !"false".equals(properties.get(key))) found.add(key);
        }
        return found;
    }

    /** The files of a named table's snapshot, or of its current one, as JSON with its columns; null where there is no table. */
    public String listing(String name, String version) throws Exception {
        Table table = load(name);
        if (!(table instanceof BaseTable)) return null;
        Snapshot snapshot = snapshot(table, version);
        Map said = described(table, snapshot);
        said.put("files", snapshot == null ? new ArrayList() : files(table, snapshot));
        return JSON.writeValueAsString(said);
    }

    private static Map described(Table table, Snapshot snapshot) throws Exception {
        Map said = new LinkedHashMap();
        said.put("id", table.uuid().toString());
        said.put("location", table.location());
        Schema schema = schema(table, snapshot);
        said.put("version", snapshot == null ? null : Long.toString(snapshot.snapshotId()));
        said.put("schema", SparkSchemaUtil.convert(schema).json());
        said.put("schema_id", Integer.valueOf(schema.schemaId()));
        said.put("pinned", Boolean.valueOf(snapshot != null && Integer.valueOf(schema.schemaId()).equals(snapshot.schemaId())));
        said.put("stored", stored(table, schema));
        said.put("schemas", schemas(table));
        return said;
    }

    /**
     * As listing, of the current snapshot, but in place of its files what each snapshot since another did, newest first:
     * of the manifests that these wrote alone. "gap" says where that is not known: the other is no ancestor, those between
     * were expired, or they are too many.
     */
    public String changes(String name, String since, int most) throws Exception {
        Table table = load(name);
        if (!(table instanceof BaseTable)) return null;
        Snapshot current = table.currentSnapshot();
        Map said = described(table, current);
        List between = new ArrayList();
        String gap = null;
        Snapshot at = current;
        while (gap == null && !(at != null && since.equals(Long.toString(at.snapshotId())))) {
            if (at == null) { gap = "ancestor"; break; }
            if (between.size() >= most) { gap = "many"; break; }
            between.add(at);
            if (at.parentId() == null) { at = null; continue; }
            if (since.equals(at.parentId().toString())) break;
            at = table.snapshot(at.parentId().longValue());
            if (at == null) gap = "expired";
        }
        List commits = new ArrayList();
        for (int n = 0; gap == null && n < between.size(); n++) commits.add(commit(table, (Snapshot) between.get(n)));
        Snapshot start = since.matches("-?[0-9]{1,19}") ? table.snapshot(Long.parseLong(since)) : null;
        said.put("gap", gap);
        said.put("commits", commits);
        said.put("start", start == null ? null : Long.valueOf(start.sequenceNumber()));
        said.put("start_deletes", Boolean.valueOf(start == null || mayBeOfSeveral(deletes(start.addedDeleteFiles(table.io()).iterator()))));
        said.put("has_deletes", Boolean.valueOf(current != null && !"0".equals(summary(current, "total-delete-files", ""))));
        return JSON.writeValueAsString(said);
    }

    private static String summary(Snapshot snapshot, String name, String without) {
        String value = snapshot.summary() == null ? null : (String) snapshot.summary().get(name);
        return value == null ? without : value;
    }

    private static Map commit(Table table, Snapshot snapshot) throws Exception {
        Map said = new LinkedHashMap();
        said.put("version", Long.toString(snapshot.snapshotId()));
        said.put("time", Long.valueOf(snapshot.timestampMillis()));
        said.put("operation", snapshot.operation());
        said.put("sequence", Long.valueOf(snapshot.sequenceNumber()));
        List added = new ArrayList();
        Iterator each = snapshot.addedDataFiles(table.io()).iterator();
        while (each.hasNext()) {
            ContentFile file = (ContentFile) each.next();
            added.add(Arrays.asList(new Object[] {file.location(), Long.valueOf(file.fileSizeInBytes()), Long.valueOf(file.recordCount()), file.dataSequenceNumber()}));
        }
        said.put("added", added);
        List removed = new ArrayList();
        each = snapshot.removedDataFiles(table.io()).iterator();
        while (each.hasNext()) removed.add(((ContentFile) each.next()).location());
        said.put("removed", removed);
        said.put("deletes_added", deletes(snapshot.addedDeleteFiles(table.io()).iterator()));
        said.put("deletes_removed", deletes(snapshot.removedDeleteFiles(table.io()).iterator()));
        return said;
    }

    private static boolean mayBeOfSeveral(List deletes) {
        for (int n = 0; n < deletes.size(); n++) if (((List) deletes.get(n)).get(1) == null) return true;
        return false;
    }

    /** Each file of deletes: its location, the data file that it is of, null where that may be several, and whether it is a deletion vector. */
    private static List deletes(Iterator files) {
        List said = new ArrayList();
        while (files.hasNext()) {
            DeleteFile file = (DeleteFile) files.next();
            boolean byEquality = file.content() == org.apache.iceberg.FileContent.EQUALITY_DELETES;
            String of = byEquality ? null : org.apache.iceberg.util.ContentFileUtil.referencedDataFileLocation(file);
            said.add(Arrays.asList(new Object[] {file.location(), of, Boolean.valueOf(org.apache.iceberg.util.ContentFileUtil.isDV(file))}));
        }
        return said;
    }

    private static Snapshot snapshot(Table table, String version) {
        if (version == null) return table.currentSnapshot();
        if (table.refs().containsKey(version)) return table.snapshot(((org.apache.iceberg.SnapshotRef) table.refs().get(version)).snapshotId());
        Snapshot found = version.matches("[0-9]{1,19}") ? table.snapshot(Long.parseLong(version)) : null;
        if (found == null) throw new IllegalStateException("no snapshot " + version);
        return found;
    }

    /** The schema by which a snapshot is read: the table's own for the current one, else that of its time. */
    private static Schema schema(Table table, Snapshot snapshot) {
        boolean current = snapshot == null || snapshot.schemaId() == null || snapshot.snapshotId() == table.currentSnapshot().snapshotId();
        Schema found = current ? null : (Schema) table.schemas().get(snapshot.schemaId());
        return found == null ? table.schema() : found;
    }

    private static List files(Table table, Snapshot snapshot) throws Exception {
        List files = new ArrayList();
        CloseableIterable tasks = table.newScan().useSnapshot(snapshot.snapshotId()).planFiles();
        try {
            Iterator each = tasks.iterator();
            while (each.hasNext()) {
                FileScanTask task = (FileScanTask) each.next();
                ContentFile file = (ContentFile) task.file();
                files.add(Arrays.asList(new Object[] {file.location(), Long.valueOf(file.fileSizeInBytes()), Long.valueOf(file.recordCount()), IcebergScan.deletes(task)}));
            }
        } finally {
            tasks.close();
        }
        return files;
    }

    /** Each schema that the table had: its id, and its columns. */
    static List schemas(Table table) {
        List schemas = new ArrayList();
        Iterator each = table.schemas().values().iterator();
        while (each.hasNext()) {
            Schema schema = (Schema) each.next();
            schemas.add(Arrays.asList(new Object[] {Integer.valueOf(schema.schemaId()), columns(schema)}));
        }
        return schemas;
    }

    /**
     * Name of each column of a schema -> the name, where no other column of the table ever went by it; else with what tells
     * it from those: its field's id, or a hash of its type where fields are in it. Where schemas of before were removed from
     * the table's metadata, nobody knows, and all are told apart.
     */
    static Map stored(Table table, Schema schema) throws Exception {
        Map known = new HashMap();
        boolean complete = true;
        for (int n = 0; n < table.schemas().size(); n++) complete = complete && table.schemas().containsKey(Integer.valueOf(n));
        Iterator each = table.schemas().values().iterator();
        while (each.hasNext()) {
            List fields = ((Schema) each.next()).columns();
            for (int n = 0; n < fields.size(); n++) {
                Types.NestedField field = (Types.NestedField) fields.get(n);
                Set meanings = (Set) known.get(field.name());
                if (meanings == null) known.put(field.name(), meanings = new HashSet());
                meanings.add(meaning(field));
            }
        }
        Map stored = new LinkedHashMap();
        for (int n = 0; n < schema.columns().size(); n++) {
            Types.NestedField field = (Types.NestedField) schema.columns().get(n);
            Set meanings = (Set) known.get(field.name());
            boolean only = complete && meanings != null && meanings.size() == 1 && meanings.contains(meaning(field));
            stored.put(field.name(), only ? field.name() : field.name() + "#" + meaning(field));
        }
        return stored;
    }

    private static String meaning(Types.NestedField field) throws Exception {
        if (field.type().isPrimitiveType()) return Integer.toString(field.fieldId());
        byte[] hash = java.security.MessageDigest.getInstance("SHA-256").digest((field.fieldId() + " " + field.type()).getBytes("UTF-8"));
        return new java.math.BigInteger(1, hash).toString(16).substring(0, 16);
    }

    /** Name of each column of a schema, also of those in others -> its field's id and type. */
    static Map columns(Schema schema) {
        Map columns = new LinkedHashMap();
        Iterator each = TypeUtil.indexByName(schema.asStruct()).entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry column = (Map.Entry) each.next();
            Type type = schema.findType(((Integer) column.getValue()).intValue());
            columns.put(column.getKey(), column.getValue() + ", " + (type.isPrimitiveType() ? type.toString() : type.getClass().getSimpleName()));
        }
        return columns;
    }

    /** The optimized plan of a frame over one table, of which only some files are read; JSON of their paths as a log has them -> their deletes. */
    public LogicalPlan only(LogicalPlan plan, String asked) throws Exception {
        LogicalPlan leaf = leaf(plan);
        IcebergScan scan = leaf == null ? null : IcebergScan.of(leaf);
        if (scan == null) throw new IllegalStateException("no scan of a table");
        Map wanted = (Map) JSON.readValue(asked, Map.class);
        Map files = scan.files();
        Set kept = new HashSet();
        Iterator each = files.entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry file = (Map.Entry) each.next();
            Object deletes = wanted.remove(absolute((String) file.getKey()));
            if (deletes == null) continue;
            if (!deletes.equals(file.getValue())) throw new IllegalStateException("gone: " + file.getKey());
            kept.add(file.getKey());
        }
        if (!wanted.isEmpty()) throw new IllegalStateException("gone: " + wanted.keySet().iterator().next());
        scan.keep(kept, "own " + IcebergScan.digest(files, kept));
        return plan;
    }

    /** A location as a log has it. */
    private static String absolute(String location) {
        if (location.startsWith("file:")) location = location.substring(5).replaceFirst("^/+", "/");
        return location.indexOf("://") >= 0 ? location : "file://" + location;
    }

    private static LogicalPlan leaf(LogicalPlan plan) {
        if (IcebergScan.isRead(plan)) return plan;
        List children = new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) plan.children()));
        return children.size() == 1 ? leaf((LogicalPlan) children.get(0)) : null;
    }
}
