// The part of the index rule that is in Spark's optimizer. It is compiled once a session, by the compiler that Spark
// ships for its generated code (Janino), which knows neither generics nor lambdas. It finds the scans of a query that may
// be ours, asks Python what to read for each, and puts that in their place. Decisions are Python's.
//
// @SEQ@ is replaced by the type of Scala's sequences, which differs between Scala 2.12 and 2.13.

package lakeindex;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.rules.RuleExecutor;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType$;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What Scala's collections need of Java. */
class Scala {
    static List toList(Object sequence) {
        return new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) sequence));
    }

    static @SEQ@ toSeq(List list) {
        return (@SEQ@) ((scala.collection.Seq) scala.collection.JavaConverters.asScalaBuffer(list)).toSeq();
    }

    static Map toMap(Object map) {
        return new HashMap(scala.collection.JavaConverters.mapAsJavaMap((scala.collection.Map) map));
    }
}

/** What Spark learns of our own scans, as their option says: which index it is, its size, its rows, its buckets. */
class Described {
    /** A plan whose scans of ours tell Spark what they are. */
    static LogicalPlan in(LogicalPlan plan, String marker) {
        if (plan instanceof LogicalRelation) return relation((LogicalRelation) plan, marker);
        List children = Scala.toList(plan.children());
        List changed = new ArrayList();
        boolean same = true;
        for (int n = 0; n < children.size(); n++) {
            LogicalPlan child = in((LogicalPlan) children.get(n), marker);
            same = same && child == children.get(n);
            changed.add(child);
        }
        return same ? plan : (LogicalPlan) plan.withNewChildren(Scala.toSeq(changed));
    }

    private static LogicalPlan relation(LogicalRelation leaf, String marker) {
        if (!(leaf.relation() instanceof HadoopFsRelation)) return leaf;
        HadoopFsRelation files = (HadoopFsRelation) leaf.relation();
        scala.Option said = files.options().get(marker);
        if (said.isEmpty() || !said.get().toString().startsWith("{")) return leaf;
        try {
            Map facts = (Map) new com.fasterxml.jackson.databind.ObjectMapper().readValue(said.get().toString(), Map.class);
            Object[] parts = Relations.parts(leaf);
            parts[0] = bucketed(files, facts);
            parts[2] = scala.Option.apply(table(files, facts));
            return Relations.of(parts);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static HadoopFsRelation bucketed(HadoopFsRelation files, Map facts) {
        if (facts.get("buckets") == null) return files;
        int buckets = ((Number) facts.get("buckets")).intValue();
        Object spec = new org.apache.spark.sql.catalyst.catalog.BucketSpec(buckets, Scala.toSeq((List) facts.get("by")), Scala.toSeq((List) facts.get("sorted")));
        return new HadoopFsRelation(files.location(), files.partitionSchema(), files.dataSchema(), scala.Option.apply(spec), files.fileFormat(), files.options(), files.sparkSession());
    }

    /** A table of no catalog, by which plans name the scan and know its size. */
    private static Object table(HadoopFsRelation files, Map facts) throws Exception {
        List name = (List) facts.get("name");
        Object database = name.size() > 1 ? name.get(0) : null;
        Object identifier = new org.apache.spark.sql.catalyst.TableIdentifier((String) name.get(name.size() - 1), scala.Option.apply(database));
        long bytes = (long) (files.sizeInBytes() * ((Number) facts.get("share")).doubleValue());
        Object rows = facts.get("rows") == null ? null : scala.math.BigInt.apply(((Number) facts.get("rows")).longValue());
        Object[] statistics = arguments(org.apache.spark.sql.catalyst.catalog.CatalogStatistics.class, 2);
        statistics[0] = scala.math.BigInt.apply(bytes);
        statistics[1] = scala.Option.apply(rows);
        Object[] table = arguments(org.apache.spark.sql.catalyst.catalog.CatalogTable.class, 4);
        table[0] = identifier;
        table[1] = org.apache.spark.sql.catalyst.catalog.CatalogTableType.EXTERNAL();
        table[2] = org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat.empty();
        table[3] = files.schema();
        table[STATISTICS] = scala.Option.apply(org.apache.spark.sql.catalyst.catalog.CatalogStatistics.class.getConstructors()[0].newInstance(statistics));
        return org.apache.spark.sql.catalyst.catalog.CatalogTable.class.getConstructors()[0].newInstance(table);
    }

    /** Which of a catalog table's arguments are its statistics; those behind it differ by version. */
    private static final int STATISTICS = 12;

    /** The arguments of a Scala class's constructor, those behind the first ones as they are by default. */
    private static Object[] arguments(Class made, int first) throws Exception {
        Object[] arguments = new Object[made.getConstructors()[0].getParameterTypes().length];
        for (int n = first; n < arguments.length; n++) {
            arguments[n] = made.getMethod("$lessinit$greater$default$" + (n + 1), new Class[0]).invoke(null, new Object[0]);
        }
        return arguments;
    }
}

/** A scan of ours as DataFrame.inputFiles tells of it: it names the files of the table, whatever is read in their place. */
class StandIn extends HadoopFsRelation {
    private final transient TableFiles files;

    private StandIn(HadoopFsRelation rows, TableFiles files) {
        super(rows.location(), rows.partitionSchema(), rows.dataSchema(), rows.bucketSpec(), rows.fileFormat(), rows.options(), rows.sparkSession());
        this.files = files;
    }

    public String[] inputFiles() { return files.names(); }

    // A relation that names its own files is another one: Spark keeps the plan that it has where a new one is equal.
    public boolean canEqual(Object other) { return other instanceof StandIn; }
    public boolean equals(Object other) { return other instanceof StandIn && super.equals(other); }
    public int hashCode() { return super.hashCode(); }

    /** A plan whose scans name these files. */
    static LogicalPlan in(LogicalPlan plan, TableFiles files) throws Exception {
        if (plan instanceof LogicalRelation) {
            if (!(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) return plan;
            LogicalRelation leaf = (LogicalRelation) plan;
            return Relations.with(leaf, new StandIn((HadoopFsRelation) leaf.relation(), files));
        }
        List children = Scala.toList(plan.children());
        List changed = new ArrayList();
        for (int n = 0; n < children.size(); n++) changed.add(in((LogicalPlan) children.get(n), files));
        return children.isEmpty() ? plan : (LogicalPlan) plan.withNewChildren(Scala.toSeq(changed));
    }
}

/** The files of what a scan was of: those that Spark listed for a source, those that Python knows of a version of a keyed table. */
class TableFiles {
    private final HadoopFsRelation source;
    private final Function find;
    private final String table;
    private final SessionState session;

    TableFiles(LogicalPlan leaf, Function find, SessionState session) {
        Object relation = leaf instanceof LogicalRelation ? (Object) ((LogicalRelation) leaf).relation() : ((DataSourceV2ScanRelation) leaf).relation().table();
        this.source = relation instanceof HadoopFsRelation ? (HadoopFsRelation) relation : null;
        if (relation instanceof KeyedRelation) table = ((KeyedRelation) relation).version + "@" + ((KeyedRelation) relation).uri;
        else table = relation instanceof LakeTable ? ((LakeTable) relation).version + "@" + ((LakeTable) relation).uri : null;  // a connector's, of which Spark tells none
        this.find = find;
        this.session = session;
    }

    String[] names() {
        if (source != null) return source.inputFiles();
        if (table == null) return new String[0];
        try {
            String[] paths = ((String) find.apply(table)).split("\0");
            List names = new ArrayList();
            for (int n = 0; n < paths.length; n++) {
                if (paths[n].isEmpty()) continue;
                org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(paths[n]);
                names.add(path.getFileSystem(session.newHadoopConf()).makeQualified(path).toUri().toString());
            }
            return (String[]) names.toArray(new String[0]);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }
}

/** The files of a scan as Spark has listed them, by whose places in this list Python names those that are read. */
class FileList {
    private final List files;
    private final Map folders;
    final String hash;

    private FileList(PartitioningAwareFileIndex index, boolean catalog) throws Exception {
        files = Scala.toList(index.allFiles());
        folders = catalog ? folders(index.partitionSpec()) : new HashMap();
        java.security.MessageDigest digest = java.security.MessageDigest.getInstance("SHA-256");
        for (int n = 0; n < files.size(); n++) digest.update(line((FileStatus) files.get(n)).getBytes("UTF-8"));
        digest.update(partitions().getBytes("UTF-8"));
        hash = new java.math.BigInteger(1, digest.digest()).toString(16);
    }

    /** What an index holds of files, which is another object once it was refreshed -> the list that was made of it. */
    private static final List KNOWN = new ArrayList();
    private static final int MOST = 32;

    /** Addresses of sources, whose lists are asked for whenever a scan is of one: their hashes are said with the scan. */
    static final ConcurrentHashMap ASKED = new ConcurrentHashMap();
    static final int MOST_ASKED = 10000;

    /** The list of a scan; one that was made of the same files of an index before is not made again. */
    static FileList of(LogicalRelation leaf) throws Exception {
        boolean catalog = leaf.catalogTable().isDefined();
        PartitioningAwareFileIndex index = Rules.listing((HadoopFsRelation) leaf.relation());
        Object held = index.leafDirToChildrenFiles();
        synchronized (KNOWN) {
            for (int n = KNOWN.size() - 1; n >= 0; n--) {
                Object[] known = (Object[]) KNOWN.get(n);
                Object of = ((java.lang.ref.WeakReference) known[0]).get();
                FileList list = (FileList) ((java.lang.ref.SoftReference) known[2]).get();
                if (of == null || list == null) KNOWN.remove(n);
                else if (of == held && known[1].equals(Boolean.valueOf(catalog))) return list;
            }
        }
        FileList list = new FileList(index, catalog);
        synchronized (KNOWN) {
            while (KNOWN.size() >= MOST) KNOWN.remove(0);
            KNOWN.add(new Object[] {new java.lang.ref.WeakReference(held), Boolean.valueOf(catalog), new java.lang.ref.SoftReference(list)});
        }
        return list;
    }

    private static String line(FileStatus file) {
        return file.getPath().toString() + '\t' + file.getLen() + '\t' + file.getModificationTime() + '\0';
    }

    /** Path, bytes, time of change in milliseconds of each, with tabs between and NUL behind. */
    String text() {
        StringBuilder lines = new StringBuilder();
        for (int n = 0; n < files.size(); n++) lines.append(line((FileStatus) files.get(n)));
        return lines.toString();
    }

    /** The partitions that Spark's catalog has of a table, as JSON: folder -> values as text, null if it is several. */
    String partitions() throws Exception { return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(folders); }

    private static Map folders(PartitionSpec spec) {
        Map folders = new java.util.TreeMap();
        StructType columns = spec.partitionColumns();
        List partitions = Scala.toList(spec.partitions());
        for (int n = 0; n < partitions.size(); n++) {
            PartitionPath partition = (PartitionPath) partitions.get(n);
            List values = new ArrayList();
            for (int m = 0; m < columns.fields().length; m++) {
                DataType type = columns.fields()[m].dataType();
                Object value = partition.values().isNullAt(m) ? null : partition.values().get(m, type);
                if (value != null && type == DateType$.MODULE$) value = java.time.LocalDate.ofEpochDay(((Integer) value).longValue());
                values.add(value == null ? null : value.toString());
            }
            String folder = partition.path().toString();
            folders.put(folder, folders.containsKey(folder) ? null : values);
        }
        return folders;
    }

    /** The files at some places: numbers, and pairs of the first and the last one with a dash between, with commas between. */
    List at(String places) {
        List some = new ArrayList();
        String[] parts = places.isEmpty() ? new String[0] : places.split(",");
        for (int n = 0; n < parts.length; n++) {
            int dash = parts[n].indexOf('-');
            int first = Integer.parseInt(dash < 0 ? parts[n] : parts[n].substring(0, dash));
            int last = dash < 0 ? first : Integer.parseInt(parts[n].substring(dash + 1));
            for (int m = first; m <= last; m++) some.add(files.get(m));
        }
        return some;
    }
}

/** Some of the files that Spark has listed for a scan, which are not listed again; partitions are pruned as Spark does. */
class ListedFiles implements FileIndex {
    private final FileIndex listed;
    private final java.util.HashSet paths = new java.util.HashSet();
    private final String hash;
    private final String places;
    private long bytes;

    ListedFiles(FileIndex listed, FileList list, String places) {
        this.listed = listed;
        this.hash = list.hash;
        this.places = places;
        List files = list.at(places);
        for (int n = 0; n < files.size(); n++) {
            paths.add(((FileStatus) files.get(n)).getPath());
            bytes += ((FileStatus) files.get(n)).getLen();
        }
    }

    public @SEQ@ rootPaths() { return listed.rootPaths(); }
    public StructType partitionSchema() { return listed.partitionSchema(); }
    public long sizeInBytes() { return bytes; }
    public void refresh() { listed.refresh(); }
    public scala.Option metadataOpsTimeNs() { return listed.metadataOpsTimeNs(); }
    public String toString() { return "ListedFiles(" + paths.size() + " of " + listed + ")"; }

    public @SEQ@ listFiles(@SEQ@ partitionFilters, @SEQ@ dataFilters) {
        List kept = new ArrayList();
        List folders = Scala.toList(listed.listFiles(partitionFilters, dataFilters));
        for (int n = 0; n < folders.size(); n++) {
            PartitionDirectory folder = (PartitionDirectory) folders.get(n);
            List files = Scala.toList(folder.files());
            List some = new ArrayList();
            for (int m = 0; m < files.size(); m++) if (paths.contains(((FileStatusWithMetadata) files.get(m)).getPath())) some.add(files.get(m));
            if (!some.isEmpty()) kept.add(new PartitionDirectory(folder.values(), Scala.toSeq(some)));
        }
        return Scala.toSeq(kept);
    }

    public String[] inputFiles() {
        List names = new ArrayList();
        Iterator each = paths.iterator();
        while (each.hasNext()) names.add(((org.apache.hadoop.fs.Path) each.next()).toUri().toString());
        return (String[]) names.toArray(new String[0]);
    }

    // A scan that was pruned is never equal to one that was pruned otherwise: exchanges and subqueries are reused by it.
    public boolean equals(Object other) { return other instanceof ListedFiles && ((ListedFiles) other).hash.equals(hash) && ((ListedFiles) other).places.equals(places) && ((ListedFiles) other).listed.equals(listed); }
    public int hashCode() { return hash.hashCode() * 31 + places.hashCode(); }
}

/** How a query shuffles rows: the columns by which its joins and sums need them together. */
class Shuffles {
    private final Map aliases = new HashMap();
    private final List keys = new ArrayList();
    private final List joins = new ArrayList();

    Shuffles(LogicalPlan plan) { walk(plan); }

    private void walk(LogicalPlan node) {
        if (node instanceof Project) alias(((Project) node).projectList());
        if (node instanceof Window) add(((Window) node).partitionSpec(), null);
        if (node instanceof Aggregate) {
            alias(((Aggregate) node).aggregateExpressions());
            add(((Aggregate) node).groupingExpressions(), null);
        }
        if (node instanceof Join) {
            scala.Option found = ExtractEquiJoinKeys$.MODULE$.unapply((Join) node);
            if (found.isDefined()) {
                add(((scala.Product) found.get()).productElement(1), node);
                add(((scala.Product) found.get()).productElement(2), node);
            }
        }
        List children = Scala.toList(node.children());
        for (int n = 0; n < children.size(); n++) walk((LogicalPlan) children.get(n));
    }

    private void alias(Object expressions) {
        List named = Scala.toList(expressions);
        for (int n = 0; n < named.size(); n++) {
            if (!(named.get(n) instanceof Alias) || !(((Alias) named.get(n)).child() instanceof Attribute)) continue;
            aliases.put(id((Attribute) ((Alias) named.get(n)).toAttribute()), id((Attribute) ((Alias) named.get(n)).child()));
        }
    }

    private void add(Object expressions, LogicalPlan join) {
        List ids = new ArrayList();
        List each = Scala.toList(expressions);
        for (int n = 0; n < each.size(); n++) {
            if (each.get(n) instanceof Attribute) ids.add(id((Attribute) each.get(n)));
            else if (join != null) return;
        }
        if (ids.isEmpty()) return;
        keys.add(ids);
        joins.add(join);
    }

    private static Long id(Attribute attribute) { return Long.valueOf(attribute.exprId().id()); }

    /** The shuffles that columns of a leaf take part in, but for joins of which Spark would broadcast a side. */
    List of(LogicalPlan leaf, IdentityHashMap replacements, boolean wholly) {
        Map names = new HashMap();
        List output = Scala.toList(leaf.output());
        for (int n = 0; n < output.size(); n++) names.put(id((Attribute) output.get(n)), ((Attribute) output.get(n)).name());
        List found = new ArrayList();
        for (int n = 0; n < keys.size(); n++) {
            List columns = new ArrayList();
            List ids = (List) keys.get(n);
            for (int m = 0; m < ids.size(); m++) {
                Object at = within(ids.get(m), names);
                if (names.containsKey(at)) columns.add(names.get(at));
            }
            Join join = (Join) joins.get(n);
            if (columns.isEmpty() || (join != null && (columns.size() < ids.size() || broadcasts(join, replacements)))) continue;
            Map said = new LinkedHashMap();
            said.put("columns", columns);
            said.put("whole", Boolean.valueOf(join != null && wholly));
            found.add(said);
        }
        return found;
    }

    /** Whether columns of a leaf are among those that the query shuffles by. */
    boolean concern(LogicalPlan leaf) {
        Map ours = new HashMap();
        List output = Scala.toList(leaf.output());
        for (int n = 0; n < output.size(); n++) ours.put(id((Attribute) output.get(n)), null);
        for (int n = 0; n < keys.size(); n++) {
            List ids = (List) keys.get(n);
            for (int m = 0; m < ids.size(); m++) if (ours.containsKey(within(ids.get(m), ours))) return true;
        }
        return false;
    }

    /** The attribute that one refers to, as far as names of a leaf. */
    private Object within(Object at, Map names) {
        while (!names.containsKey(at) && aliases.containsKey(at)) at = aliases.get(at);
        return at;
    }

    private static boolean broadcasts(Join join, IdentityHashMap replacements) {
        String type = join.joinType().toString();
        boolean left = type.equals("Inner") || type.equals("Cross") || type.equals("RightOuter");
        boolean right = !type.equals("RightOuter") && !type.equals("FullOuter");
        return (left && isSmall(join.left(), replacements)) || (right && isSmall(join.right(), replacements));
    }

    private static boolean isSmall(LogicalPlan side, IdentityHashMap replacements) {
        long most = SQLConf.get().autoBroadcastJoinThreshold();
        return most > 0 && IndexRule.substitute(side, replacements).stats().sizeInBytes().bigInteger().compareTo(java.math.BigInteger.valueOf(most)) <= 0;
    }
}

/** A keyed table at a version, as a relation that is planned when it is used; without the rule it cannot be read. */
class KeyedRelation extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final StructType columns;
    final String uri;
    final long version;
    private final String table;
    private final long bytes;

    public KeyedRelation(SQLContext context, StructType columns, String uri, long version, String table, long bytes) {
        this.context = context;
        this.columns = columns;
        this.uri = uri;
        this.version = version;
        this.table = table;
        this.bytes = bytes;
    }

    public SQLContext sqlContext() { return context; }
    public StructType schema() { return columns; }
    public long sizeInBytes() { return bytes; }
    public boolean needConversion() { return false; }

    public RDD buildScan() { throw notEnabled(uri); }

    static IllegalArgumentException notEnabled(String uri) {
        return new IllegalArgumentException("The rows of " + uri + " are merged by spark_apps, which is not enabled in this session any more. "
            + "Nothing was read. Call spark_apps.enable(spark), or read the table with IndexedTable.load(spark, uri).read().");
    }

    public boolean equals(Object other) {
        return other instanceof KeyedRelation && ((KeyedRelation) other).uri.equals(uri) && ((KeyedRelation) other).version == version && ((KeyedRelation) other).table.equals(table);
    }

    public int hashCode() { return uri.hashCode() * 31 + Long.hashCode(version); }
    public String toString() { return "lakeindex " + uri + " version " + version; }
}

/** A table of the warehouse as Spark's catalogs know tables; its scan is put in place by the rule, as a relation's is. */
class LakeTable implements Table, SupportsRead, ScanBuilder, org.apache.spark.sql.connector.read.Scan, SupportsReportStatistics, Statistics {
    private final String name;
    private final StructType columns;
    final String uri;
    final long version;
    private final String table;
    private final long bytes;

    LakeTable(String name, StructType columns, String uri, long version, String table, long bytes) {
        this.name = name;
        this.columns = columns;
        this.uri = uri;
        this.version = version;
        this.table = table;
        this.bytes = bytes;
    }

    public String name() { return name; }
    public StructType schema() { return columns; }
    public Set capabilities() { return java.util.EnumSet.of(TableCapability.BATCH_READ); }
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return this; }
    public org.apache.spark.sql.connector.read.Scan build() { return this; }
    public StructType readSchema() { return columns; }
    public Statistics estimateStatistics() { return this; }
    public OptionalLong sizeInBytes() { return OptionalLong.of(bytes); }
    public OptionalLong numRows() { return OptionalLong.empty(); }
    public String description() { return "lakeindex " + uri + " version " + version; }
    public Batch toBatch() { throw KeyedRelation.notEnabled(uri); }

    public boolean equals(Object other) {
        return other instanceof LakeTable && ((LakeTable) other).uri.equals(uri) && ((LakeTable) other).version == version && ((LakeTable) other).table.equals(table);
    }

    public int hashCode() { return uri.hashCode() * 31 + Long.hashCode(version); }
}

/** A table's name as Spark's catalogs have it. */
class NamedTable implements Identifier {
    private final String[] namespace;
    private final String name;

    NamedTable(String[] namespace, String name) {
        this.namespace = namespace;
        this.name = name;
    }

    public String[] namespace() { return namespace; }
    public String name() { return name; }
}

/** A folder of the warehouse as a catalog of Spark's, read only: Python finds its tables. */
public class LakeCatalog implements TableCatalog {
    private String name;
    private Function find;

    public void initialize(String name, CaseInsensitiveStringMap options) { this.name = name; }
    public String name() { return name; }
    /** Who finds the tables from now on; returns who did before. */
    public Function setFind(Function find) {
        Function before = this.find;
        this.find = find;
        return before;
    }

    public Table loadTable(Identifier table) throws NoSuchTableException { return load(table, null, null); }
    public Table loadTable(Identifier table, String version) throws NoSuchTableException { return load(table, version, null); }
    public Table loadTable(Identifier table, long microseconds) throws NoSuchTableException { return load(table, null, Long.valueOf(microseconds)); }

    private Table load(Identifier table, String version, Long microseconds) throws NoSuchTableException {
        Map found = (Map) ask("load", parts(table), version, microseconds);
        if (found == null) throw new NoSuchTableException(table);
        if (found.get("error") != null) throw new IllegalArgumentException((String) found.get("error"));
        StructType columns = (StructType) DataType.fromJson((String) found.get("schema"));
        long at = ((Number) found.get("version")).longValue();
        return new LakeTable(name + "." + table, columns, (String) found.get("uri"), at, (String) found.get("table"), ((Number) found.get("bytes")).longValue());
    }

    public Identifier[] listTables(String[] namespace) {
        Map found = (Map) ask("list", Arrays.asList(namespace), null, null);
        List names = found == null ? new ArrayList() : (List) found.get("names");
        Identifier[] tables = new Identifier[names.size()];
        for (int n = 0; n < tables.length; n++) tables[n] = new NamedTable(namespace, (String) names.get(n));
        return tables;
    }

    private static List parts(Identifier table) {
        List parts = new ArrayList(Arrays.asList(table.namespace()));
        parts.add(table.name());
        return parts;
    }

    private Object ask(String what, List parts, String version, Long microseconds) {
        if (find == null) return null;
        Map asked = new HashMap();
        asked.put("what", what);
        asked.put("catalog", name);
        asked.put("parts", parts);
        asked.put("version", version);
        asked.put("microseconds", microseconds);
        com.fasterxml.jackson.databind.ObjectMapper json = new com.fasterxml.jackson.databind.ObjectMapper();
        try {
            String answer = (String) find.apply(json.writeValueAsString(asked));
            return answer == null ? null : json.readValue(answer, Map.class);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static UnsupportedOperationException readOnly() {
        return new UnsupportedOperationException("Tables of the warehouse are changed by spark_apps.sql.run or IndexedTable, not by Spark's own statements. Nothing was changed.");
    }

    public Table createTable(Identifier table, StructType columns, Transform[] partitions, Map properties) { throw readOnly(); }
    public Table alterTable(Identifier table, TableChange[] changes) { throw readOnly(); }
    public boolean dropTable(Identifier table) { throw readOnly(); }
    public void renameTable(Identifier from, Identifier to) { throw readOnly(); }
}

/** The rows at the ends of columns that are all that a part of a plan takes from below: of a sort with a limit, of max and min. */
class FirstRows {
    private final Integer limit;
    private final List ends;

    private FirstRows(Integer limit, List ends) {
        this.limit = limit;
        this.ends = ends;
    }

    /** What a node takes from below it, as those above it take it of the node; null where that is any row. */
    static FirstRows below(LogicalPlan node, FirstRows above) {
        if (node instanceof GlobalLimit) return new FirstRows(null, null);
        if (above != null && above.ends == null) {
            if (node instanceof Offset) return new FirstRows(null, null);  // the limit under it counts the rows that it drops
            if (node instanceof LocalLimit && ((LocalLimit) node).limitExpr() instanceof Literal) return new FirstRows((Integer) ((Literal) ((LocalLimit) node).limitExpr()).value(), null);
            if (node instanceof Sort && above.limit != null && ((Sort) node).global()) return sorted((Sort) node, above.limit);
        }
        if (node instanceof Project) return above;
        return node instanceof Aggregate ? aggregated((Aggregate) node) : null;
    }

    private static FirstRows sorted(Sort sort, Integer limit) {
        SortOrder first = (SortOrder) sort.order().apply(0);
        List ends = new ArrayList();
        boolean known = add(ends, first.child(), first.direction() == Descending$.MODULE$, first.nullOrdering() == NullsFirst$.MODULE$, limit);
        return known ? new FirstRows(limit, ends) : null;
    }

    private static FirstRows aggregated(Aggregate aggregate) {
        if (!aggregate.groupingExpressions().isEmpty()) return null;
        List ends = new ArrayList();
        List computed = Scala.toList(aggregate.aggregateExpressions());
        for (int n = 0; n < computed.size(); n++) if (!collect((Expression) computed.get(n), ends)) return null;
        return ends.isEmpty() ? null : new FirstRows(Integer.valueOf(1), ends);
    }

    private static boolean collect(Expression expression, List ends) {
        if (expression instanceof AggregateExpression) {
            AggregateExpression whole = (AggregateExpression) expression;
            Expression function = whole.aggregateFunction();
            if (whole.filter().isDefined() || !(function instanceof Max || function instanceof Min)) return false;
            return add(ends, (Expression) function.children().apply(0), function instanceof Max, false, Integer.valueOf(1));
        }
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (!collect((Expression) children.get(n), ends)) return false;
        return true;
    }

    private static boolean add(List ends, Expression column, boolean descending, boolean nullsFirst, Integer rows) {
        if (!(column instanceof AttributeReference)) return false;
        Map end = new LinkedHashMap();
        end.put("id", Long.valueOf(((AttributeReference) column).exprId().id()));
        end.put("descending", Boolean.valueOf(descending));
        end.put("nulls_first", Boolean.valueOf(nullsFirst));
        end.put("rows", rows);
        return ends.add(end);
    }

    /** The ends by the names of a leaf's columns; none where one of them is computed above it. */
    static List of(FirstRows above, LogicalPlan leaf) {
        List named = new ArrayList();
        List output = Scala.toList(leaf.output());
        for (int n = 0; above != null && above.ends != null && n < above.ends.size(); n++) {
            Map end = new LinkedHashMap((Map) above.ends.get(n));
            for (int m = 0; m < output.size(); m++) if (end.get("id").equals(Long.valueOf(((Attribute) output.get(m)).exprId().id()))) end.put("column", ((Attribute) output.get(m)).name());
            if (!end.containsKey("column")) return new ArrayList();
            named.add(end);
        }
        return named;
    }
}

/** A scan that may be ours: the part of a plan that is replaced, and what it asks of the leaf. */
class ScanPart {
    final LogicalPlan node;
    final LogicalPlan leaf;
    final List projects;
    final List plain = new ArrayList();
    final List others = new ArrayList();
    final List needed = new ArrayList();
    final boolean united;
    List first = new ArrayList();
    LogicalPlan replacement;
    TableConnector connector;
    boolean held;
    boolean decided;
    boolean again;

    /** united: whether a union takes its rows as they come, and so the buckets that it would forget (SPARK-59141). */
    ScanPart(LogicalPlan node, LogicalPlan leaf, List projects, List filters, boolean united) {
        this.united = united;
        this.node = node;
        this.leaf = leaf;
        this.projects = projects;
        for (int n = 0; n < filters.size(); n++) {
            Expression filter = (Expression) filters.get(n);
            if (filter instanceof DynamicPruning) continue;  // it only prunes partitions, and was planned for the old scan
            if (hasPlan(filter)) others.add(filter); else plain.add(filter);
        }
        List used = new ArrayList();
        collect(projects, used);
        collect(plain, used);
        collect(others, used);
        List output = Scala.toList(leaf.output());
        for (int n = 0; n < output.size(); n++) {
            if (used.contains(Long.valueOf(((Attribute) output.get(n)).exprId().id()))) needed.add(output.get(n));
        }
    }

    /** Put another leaf in the place of the scan's own; all else stays. */
    void putLeaf(LogicalPlan changed) {
        IdentityHashMap leaves = new IdentityHashMap();
        leaves.put(leaf, changed);
        replacement = IndexRule.substitute(node, leaves);
    }

    static boolean hasPlan(Expression expression) {
        if (expression instanceof PlanExpression) return true;
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (hasPlan((Expression) children.get(n))) return true;
        return false;
    }

    /** The names of columns that are keys of a map by their ids. */
    List names(Map byId) {
        List names = new ArrayList();
        List output = byId.isEmpty() ? new ArrayList() : Scala.toList(leaf.output());
        for (int n = 0; n < output.size(); n++) if (byId.containsKey(JoinKeys.id((Attribute) output.get(n)))) names.add(((Attribute) output.get(n)).name());
        return names;
    }

    private static void collect(List expressions, List into) {
        for (int n = 0; n < expressions.size(); n++) {
            List attributes = Scala.toList(((Expression) expressions.get(n)).references());
            for (int m = 0; m < attributes.size(); m++) into.add(Long.valueOf(((Attribute) attributes.get(m)).exprId().id()));
        }
    }

    /** A filter as SQL over the leaf's own column names; null where it cannot be written as SQL. */
    String sql(Expression filter) {
        Map names = new HashMap();
        List output = Scala.toList(leaf.output());
        for (int n = 0; n < output.size(); n++) {
            Attribute attribute = (Attribute) output.get(n);
            names.put(Long.valueOf(attribute.exprId().id()), attribute.name());
        }
        try {
            List words = new ArrayList();
            String text = withPlaces(filter, names, (Attribute) output.get(0), words).sql();
            StringBuilder whole = new StringBuilder();
            java.util.regex.Matcher place = PLACE.matcher(text);
            int end = 0;
            int found = 0;
            for (; place.find(); found++) {
                whole.append(text.substring(end, place.start())).append((String) words.get(Integer.parseInt(place.group(1))));
                end = place.end();
            }
            return found == words.size() ? whole.append(text.substring(end)).toString() : null;  // a text may look like a place
        } catch (RuntimeException error) {
            return null;
        }
    }

    /** Begins a name that replaces a column or an instant until the filter is text. */
    private static final String WORD = "lakeindex word ";
    private static final java.util.regex.Pattern PLACE = java.util.regex.Pattern.compile("`" + WORD + "(\\d+)`");

    /** A filter with places for its columns, whose names Spark quotes only where it must, and for instants, for as text of a session's zone an hour a year is another's too. */
    private static Expression withPlaces(Expression expression, Map names, Attribute any, List words) {
        if (expression instanceof AttributeReference) {
            words.add("`" + ((String) names.get(Long.valueOf(((AttributeReference) expression).exprId().id()))).replace("`", "``") + "`");
            return place((AttributeReference) expression, words);
        }
        if (expression instanceof InSet) expression = listed((InSet) expression);
        if (expression instanceof Literal && expression.dataType() == TimestampType$.MODULE$ && ((Literal) expression).value() != null) {
            long micros = ((Long) ((Literal) expression).value()).longValue();
            java.time.Instant instant = java.time.Instant.EPOCH.plus(micros, java.time.temporal.ChronoUnit.MICROS);
            words.add("TIMESTAMP '" + instant.toString().replace('T', ' ') + "'");
            return place(any, words);
        }
        List children = Scala.toList(expression.children());
        if (children.isEmpty()) return expression;
        List changed = new ArrayList();
        for (int n = 0; n < children.size(); n++) changed.add(withPlaces((Expression) children.get(n), names, any, words));
        return (Expression) expression.withNewChildren(Scala.toSeq(changed));
    }

    private static Expression place(Attribute attribute, List words) {
        return (Expression) attribute.withName(WORD + (words.size() - 1)).withQualifier(Scala.toSeq(new ArrayList()));
    }

    /** A long list of instants as a short one is written; any other list as it is. */
    private static Expression listed(InSet set) {
        if (set.child().dataType() != TimestampType$.MODULE$) return set;
        List values = Scala.toList(set.hset());
        List literals = new ArrayList();
        for (int n = 0; n < values.size(); n++) literals.add(new Literal(values.get(n), set.child().dataType()));
        return new In(set.child(), Scala.toSeq(literals));
    }

    /** Whether a filter is one that SQL has other words for, or none: such a text would name columns that are none, or mean something else in the session. */
    private static boolean hasNoWords(Expression expression, SQLConf session) {
        if (WORDLESS.contains(expression.getClass().getSimpleName()) || isComputedOtherwise(expression, session)) return true;
        if (expression instanceof TimeZoneAwareExpression) {  // a view keeps the zone of the session that made it
            scala.Option own = ((TimeZoneAwareExpression) expression).timeZoneId();
            if (own.isDefined() && !own.get().equals(session.sessionLocalTimeZone())) return true;
        }
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (hasNoWords((Expression) children.get(n), session)) return true;
        return false;
    }

    /** Whether a cast or arithmetic means something else than its text: it gives null where it fails, or is a view's, which keeps the settings of the session that made it. */
    private static boolean isComputedOtherwise(Expression expression, SQLConf session) {
        if (!(expression instanceof BinaryArithmetic) && !(expression instanceof Cast)) return false;
        try {
            Object mode = asked(expression, "evalMode");
            if (mode != null && !mode.toString().equals(session.ansiEnabled() ? "ANSI" : "LEGACY")) return true;
            Object context = asked(expression, "evalContext");  // from Spark 4.1 on
            return context != null && !asked(context, "allowDecimalPrecisionLoss").equals(Boolean.valueOf(session.decimalOperationsAllowPrecisionLoss()));
        } catch (ReflectiveOperationException error) {
            return true;
        }
    }

    private static Object asked(Object of, String method) throws ReflectiveOperationException {
        try {
            return of.getClass().getMethod(method, new Class[0]).invoke(of, new Object[0]);
        } catch (NoSuchMethodException none) {
            return null;
        }
    }

    private static final List WORDLESS = Arrays.asList(new Object[] {"Collate", "StaticInvoke", "Invoke", "ScalaUDF", "PythonUDF"});

    /** What a column's metadata holds that makes Spark find other values in a file: a default, an id of Parquet's. */
    private static final String[] MARKS = {"EXISTS_DEFAULT", "parquet.field.id"};

    /** session: whose settings the texts are read by. */
    Map describe(SQLConf session) {
        Map said = new LinkedHashMap();
        List names = new ArrayList();
        List types = new ArrayList();
        List marked = new ArrayList();
        for (int n = 0; n < needed.size(); n++) {
            Attribute column = (Attribute) needed.get(n);
            names.add(column.name());
            for (int m = 0; m < MARKS.length; m++) if (column.metadata().contains(MARKS[m])) marked.add(column.name());
            types.add(((Attribute) needed.get(n)).dataType().simpleString());
        }
        List texts = new ArrayList();
        int unwritten = 0;
        for (int n = 0; n < plain.size(); n++) {
            String text = hasNoWords((Expression) plain.get(n), session) ? null : sql((Expression) plain.get(n));
            if (text == null) unwritten++; else texts.add(text);
        }
        said.put("columns", names);
        said.put("types", types);
        said.put("marked", marked);
        said.put("filters", texts);
        said.put("unwritten", Integer.valueOf(unwritten + others.size()));
        if (plain.isEmpty() && others.isEmpty()) said.put("first", first);
        if (connector != null) {
            said.put("kind", "connector");
            said.put("format", connector.format());
            said.put("address", connector.address(leaf));
            said.put("id", connector.id(leaf));
            said.put("purpose", connector.purpose(leaf));
            said.put("stored", connector.columns(leaf));
            if (connector instanceof NamingConnector) said.put("name", ((NamingConnector) connector).name(leaf));
            return said;
        }
        BaseRelation relation = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).relation() : null;
        if (relation == null) {
            LakeTable table = (LakeTable) ((DataSourceV2ScanRelation) leaf).relation().table();
            said.put("kind", "keyed");
            said.put("address", table.uri);
            said.put("version", Long.valueOf(table.version));
        } else if (relation instanceof KeyedRelation) {
            said.put("kind", "keyed");
            said.put("address", ((KeyedRelation) relation).uri);
            said.put("version", Long.valueOf(((KeyedRelation) relation).version));
        } else {
            HadoopFsRelation files = (HadoopFsRelation) relation;
            said.put("kind", "files");
            said.put("address", Rules.address((LogicalRelation) leaf));
            said.put("format", ((DataSourceRegister) files.fileFormat()).shortName());
            said.put("options", Scala.toMap(files.options()));
            List declared = new ArrayList();
            for (int n = 0; n < files.schema().fields().length; n++) {
                declared.add(Arrays.asList(new Object[] {files.schema().fields()[n].name(), files.schema().fields()[n].dataType().simpleString()}));
            }
            said.put("schema", declared);
        }
        return said;
    }
}

/** The scans of one plan, for Python to decide on. */
public class ScanRequest {
    private final List scans;
    private final RuleExecutor optimizer;
    private final long query;
    private final String marker;
    private final Shuffles shuffles;
    private final JoinKeys joinKeys;
    private final Properties properties;
    private final boolean explained;
    private final List sides = new ArrayList();
    private final Map lists = new HashMap();
    private final SessionState session;
    private final Function files;
    private final Connectors connectors;
    private final IdentityHashMap together = new IdentityHashMap();
    private final Map held = new HashMap();
    private final LogicalPlan root;
    private final LogicalPlan plan;
    private String refusal;

    ScanRequest(LogicalPlan root, LogicalPlan plan, Shuffles shuffles, JoinKeys joinKeys, List scans, RuleExecutor optimizer, SessionState session, Function files, Connectors connectors, long query, String marker) {
        this.root = root;
        this.plan = plan;
        this.files = files;
        this.connectors = connectors;
        this.shuffles = shuffles;
        this.joinKeys = joinKeys;
        this.session = session;
        this.explained = isExplained();
        this.properties = (Properties) org.apache.spark.SparkContext.getOrCreate().getLocalProperties().clone();
        this.marker = marker;
        this.scans = scans;
        this.optimizer = optimizer;
        this.query = query;
    }

    /** All scans as JSON, the number of the query that they belong to, and the values of settings. */
    public String json(String settings) throws Exception {
        Map said = new LinkedHashMap();
        List each = new ArrayList();
        for (int n = 0; n < scans.size(); n++) {
            ScanPart scan = (ScanPart) scans.get(n);
            Map described = scan.describe(session.conf());
            described.put("again", Boolean.valueOf(scan.again));
            described.put("joined", scan.names(joinKeys.of(scan.leaf)));
            if ("files".equals(described.get("kind")) && FileList.ASKED.containsKey(described.get("address"))) described.put("list", filesHash(n));
            each.add(described);
        }
        said.put("query", Long.valueOf(query));
        said.put("scans", each);
        said.put("settings", values(settings));
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(said);
    }

    /** The values of settings, as a session tells them; without those that it does not know. */
    private List values(String asked) throws Exception {
        List values = new ArrayList();
        Iterator each = ((List) new com.fasterxml.jackson.databind.ObjectMapper().readValue(asked, List.class)).iterator();
        while (each.hasNext()) {
            List setting = (List) each.next(); // its name and, if one was given, its default
            String name = (String) setting.get(0);
            List value = new ArrayList();
            try {
                value.add(setting.size() > 1
                    ? session.conf().getConfString(name, (String) setting.get(1))
                    : session.conf().getConfString(name));
            } catch (java.util.NoSuchElementException unknown) {
                // Asked again, it fails as it does there.
            }
            values.add(value);
        }
        return values;
    }

    /** How the query shuffles a scan's rows, by the sizes of the scans that were replaced so far; JSON. */
    public String shuffled(int number) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        IdentityHashMap replacements = new IdentityHashMap();
        for (int n = 0; n < scans.size(); n++) {
            ScanPart one = (ScanPart) scans.get(n);
            if (one.replacement != null) replacements.put(one.node, one.replacement);
        }
        boolean wholly = SQLConf.get().getConfString("spark.sql.requireAllClusterKeysForCoPartition", "true").equals("true");
        List found = scan.united ? new ArrayList() : shuffles.of(scan.leaf, replacements, wholly);
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(found);
    }

    /** The files of a log, which are named by their places from now on; see LoggedFiles. */
    public void logged(String hash, String lines) { LoggedFiles.put(hash, lines); }

    /**
     * Leave the files of a log out of a connector's scan, but for those at some places and those in another state.
     * Returns how many files the scan has, how many it keeps, and the bytes of both, as JSON; null where scans that are
     * changed together have not all been decided; "" where the list with this hash has not come.
     */
    public String keep(int number, String hash, String places) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        LoggedFiles files = LoggedFiles.of(hash);
        if (files == null) return "";
        LeftOut leftOut = files.but(places);
        try {
            Object identity = scan.connector.identity(scan.leaf);
            List others = new ArrayList();
            for (int n = 0; n < scans.size(); n++) {
                ScanPart one = (ScanPart) scans.get(n);
                if (one != scan && one.connector == scan.connector && one.connector.identity(one.leaf) == identity) others.add(one);
            }
            if (others.isEmpty()) {
                KeptFiles kept = new KeptFiles(scan.connector);
                kept.add(scan, leftOut);
                return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(kept.apply());
            }
            List said = (List) together.get(identity);
            if (said == null) {
                said = new ArrayList();
                together.put(identity, said);
            }
            said.add(new Object[] {scan, leftOut});
            if (said.size() > others.size()) {
                KeptFiles kept = new KeptFiles(scan.connector);
                for (int n = 0; n < said.size(); n++) kept.add((ScanPart) ((Object[]) said.get(n))[0], (LeftOut) ((Object[]) said.get(n))[1]);
                return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(kept.apply());
            }
            return null;
        } catch (LinkageError error) {
            connectors.failed(scan.connector, error);
            throw new IllegalStateException("the version of its connector is another than is known: " + error);
        }
    }

    /**
     * Which files of a log a connector's scan has with exactly the rows that were recorded: their places, and how many others
     * it reads, whose rows may count by those at some places; or why no copy of rows may be read in its place; JSON. "" where
     * the list with this hash has not come.
     */
    public String same(int number, String hash, String read) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        LoggedFiles files = LoggedFiles.of(hash);
        if (files == null) return "";
        Map said = new LinkedHashMap();
        try {
            String why = new NoCopy(root, plan, scan).why();
            if (why == null) {
                HeldFiles found = new HeldFiles(scan, files, read);
                held.put(Integer.valueOf(number), found);
                said.put("places", found.same());
                said.put("others", Integer.valueOf(found.others()));
            } else {
                said.put("why", why);
            }
        } catch (LinkageError error) {
            connectors.failed(scan.connector, error);
            throw new IllegalStateException("the version of its connector is another than is known: " + error);
        }
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(said);
    }

    /**
     * Read rows of an index in place of a scan's files at some places, which have exactly these rows, and leave those out
     * that have no row which counts; as keep does. Returns what keep does, and how many files are not read for they are held.
     */
    public String hold(int number, String places, LogicalPlan rows) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        long[] counts = new long[5];
        try {
            ((HeldFiles) held.get(Integer.valueOf(number))).put(HeldFiles.places(places), instead(scan, rows), counts);
        } catch (LinkageError error) {
            connectors.failed(scan.connector, error);
            throw new IllegalStateException("the version of its connector is another than is known: " + error);
        }
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(counts);
    }

    /** The list of a scan's files; Spark's own, which is looked at once a request. */
    private FileList listed(int number) throws Exception {
        Integer key = Integer.valueOf(number);
        FileList list = (FileList) lists.get(key);
        if (list == null) lists.put(key, list = FileList.of((LogicalRelation) ((ScanPart) scans.get(number)).leaf));
        return list;
    }

    /** A hash of what files and partitions tell, by which Python knows that it has seen these files. */
    public String filesHash(int number) throws Exception {
        String address = Rules.address((LogicalRelation) ((ScanPart) scans.get(number)).leaf);
        if (FileList.ASKED.size() < FileList.MOST_ASKED) FileList.ASKED.put(address, Boolean.TRUE);
        return listed(number).hash;
    }

    /** The files that Spark would read; see FileList. */
    public String files(int number) throws Exception { return listed(number).text(); }

    /** The partitions that Spark's catalog has of a table; see FileList. */
    public String partitions(int number) throws Exception { return listed(number).partitions(); }

    /** Leave a scan the files at some places of its list: in the same place of the plan, with its own columns and filters. */
    public void keepListed(int number, String places, String facts) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        LogicalPlan leaf = Described.in(Relations.with((LogicalRelation) scan.leaf, relation(number, places, facts)), marker);
        scan.putLeaf(StandIn.in(leaf, new TableFiles(scan.leaf, files, session)));
    }

    /** The relation of a scan with the files at some places of its list alone. facts: what Spark learns of it. */
    public HadoopFsRelation relation(int number, String places, String facts) throws Exception {
        HadoopFsRelation old = (HadoopFsRelation) ((LogicalRelation) ((ScanPart) scans.get(number)).leaf).relation();
        scala.collection.immutable.Map options = (scala.collection.immutable.Map) old.options().updated(marker, facts);
        ListedFiles kept = new ListedFiles(old.location(), listed(number), places);
        return new HadoopFsRelation(kept, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(), options, old.sparkSession());
    }

    /** A scan is decided on: it is as it will be read, for those that look for keys in it. */
    public void decided(int number) { ((ScanPart) scans.get(number)).decided = true; }

    /** The sides of joins that have keys for columns of a scan, each with its number; JSON. */
    public String sides(int number) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        List found = KeySide.of(scan, joinKeys.of(scan.leaf), scans, marker);
        List described = new ArrayList();
        for (int n = 0; n < found.size(); n++) {
            Map said = ((KeySide) found.get(n)).describe();
            said.put("number", Integer.valueOf(sides.size()));
            sides.add(found.get(n));
            described.add(said);
        }
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(described);
    }

    /** The keys of a side, of more than a number of them any; JSON. Those that a job has to find are waited for so long at most. */
    public String keys(int side, int limit, int milliseconds) throws Exception {
        return ((KeySide) sides.get(side)).take(limit, milliseconds, optimizer, jobs());
    }

    /** The keys of each row of a side, as a plan with the columns key0, key1 and so on. */
    public LogicalPlan keyRows(int side) throws Exception { return ((KeySide) sides.get(side)).rows(marker); }

    /** The rows of an analyzed plan, up to a number of them, as keys are given. */
    public String rows(LogicalPlan plan, int limit, int milliseconds) throws Exception {
        List types = new ArrayList();
        List output = Scala.toList(plan.output());
        for (int n = 0; n < output.size(); n++) types.add(((Attribute) output.get(n)).dataType());
        return jobs().run(plan, types, limit, milliseconds);
    }

    private KeyJobs jobs() { return new KeyJobs(marker, session, org.apache.spark.SparkContext.getOrCreate(), properties); }

    /** The bytes of the files that a connector's scan has by itself. */
    public long bytes(int number) {
        ScanPart scan = (ScanPart) scans.get(number);
        List files = scan.connector.files(scan.leaf);
        long bytes = 0;
        for (int n = 0; n < files.size(); n++) bytes += ((ScanFile) files.get(n)).bytes;
        return bytes;
    }

    /** Whether the plan is made to be shown, and not to be run. */
    public boolean explained() { return explained; }

    private static boolean isExplained() {
        StackTraceElement[] calls = Thread.currentThread().getStackTrace();
        boolean shown = false;
        boolean run = false;
        for (int n = 0; n < calls.length; n++) {
            if (calls[n].getClassName().endsWith(".ExplainCommand")) return true;
            // A query that is run is shown too, on Spark's pages.
            if (calls[n].getMethodName().equals("explainString")) shown = true;
            if (calls[n].getClassName().contains(".SQLExecution")) run = true;
        }
        return shown && !run;
    }

    /** Put rows in the place of a scan: an analyzed plan that has the needed columns by their names, among others. */
    public void replace(int number, LogicalPlan rows) throws Exception {
        ScanPart scan = (ScanPart) scans.get(number);
        scan.replacement = instead(scan, rows);
    }

    /** Rows under the names and ids of a scan's part of the plan, by its filters. */
    private LogicalPlan instead(ScanPart scan, LogicalPlan rows) throws Exception {
        rows = Described.in(rows, marker);
        Map byName = new HashMap();
        List output = Scala.toList(rows.output());
        for (int n = 0; n < output.size(); n++) byName.put(((Attribute) output.get(n)).name(), output.get(n));
        List columns = new ArrayList();
        for (int n = 0; n < scan.needed.size(); n++) {
            Object column = byName.get(((Attribute) scan.needed.get(n)).name());
            if (column == null) throw new IllegalStateException("no column " + ((Attribute) scan.needed.get(n)).name());
            columns.add(column);
        }
        LogicalPlan plan = new Project(Scala.toSeq(named(scan.needed, columns)), rows);
        Expression condition = conjunction(scan.plain);
        if (condition != null) plan = new Filter(condition, plan);
        plan = StandIn.in((LogicalPlan) optimizer.execute(plan), new TableFiles(scan.leaf, files, session));
        // The optimizer takes aliases away that only give an attribute another id, the one which the query knows.
        plan = new Project(Scala.toSeq(named(scan.needed, Scala.toList(plan.output()))), plan);
        Expression rest = conjunction(scan.others);
        if (rest != null) plan = new Filter(rest, plan);
        return new Project(Scala.toSeq(scan.projects), plan);
    }

    /** Let the query fail, with words for its author. */
    public void refuse(String message) { refusal = message; }

    String refusal() { return refusal; }

    /** Columns under the names and ids of the attributes that they refer to. */
    private static List named(List attributes, List columns) {
        List named = new ArrayList();
        for (int n = 0; n < attributes.size(); n++) {
            Attribute old = (Attribute) attributes.get(n);
            Attribute column = (Attribute) columns.get(n);
            if (!column.dataType().sameType(old.dataType())) throw new IllegalStateException("column " + old.name() + " of type " + column.dataType().simpleString() + ", not " + old.dataType().simpleString());
            if (column.exprId().equals(old.exprId())) named.add(column);
            else named.add(new Alias(column, old.name(), old.exprId(), old.qualifier(), scala.Option.apply(old.metadata()), Scala.toSeq(new ArrayList())));
        }
        return named;
    }

    private static Expression conjunction(List filters) {
        Expression all = null;
        for (int n = 0; n < filters.size(); n++) all = all == null ? (Expression) filters.get(n) : new And(all, (Expression) filters.get(n));
        return all;
    }
}

/** What the rule keeps for a session: who decides, which addresses are nobody's, which query a plan belongs to. */
class Rules {
    static final TreeNodeTag SEEN = new TreeNodeTag("lakeindex");
    private static final Map QUERIES = new WeakHashMap();
    private static final AtomicLong NUMBERS = new AtomicLong();

    /** A number of the query that is being planned by this thread; all its parts have the same one. */
    static long query() {
        scala.Option tracker = QueryPlanningTracker.get();
        return tracker.isEmpty() ? NUMBERS.incrementAndGet() : number(tracker.get());
    }

    static long number(Object tracker) {
        synchronized (QUERIES) {
            Long number = (Long) QUERIES.get(tracker);
            if (number == null) {
                number = Long.valueOf(NUMBERS.incrementAndGet());
                QUERIES.put(tracker, number);
            }
            return number.longValue();
        }
    }

    /** The files of a relation, those of all partitions that a table of Spark's catalog has. */
    static PartitioningAwareFileIndex listing(HadoopFsRelation relation) {
        if (relation.location() instanceof CatalogFileIndex) return ((CatalogFileIndex) relation.location()).filterPartitions(Scala.toSeq(new ArrayList()));
        return (PartitioningAwareFileIndex) relation.location();
    }

    /** The one folder that a relation of plain files is read from, or the pattern by which several are; null if there is neither. */
    static String address(LogicalRelation leaf) {
        HadoopFsRelation relation = (HadoopFsRelation) leaf.relation();
        if (leaf.catalogTable().isDefined()) {
            org.apache.spark.sql.catalyst.catalog.CatalogTable table = (org.apache.spark.sql.catalyst.catalog.CatalogTable) leaf.catalogTable().get();
            if (table.storage().locationUri().isDefined()) return new org.apache.hadoop.fs.Path((java.net.URI) table.storage().locationUri().get()).toString();
        }
        List paths = Scala.toList(relation.location().rootPaths());
        if (paths.size() == 1) return paths.get(0).toString();
        scala.Option asked = relation.options().get("path");
        return asked.isDefined() ? (String) asked.get() : null;
    }

    /** Whether rows of a plan are asked which file they came from, which an index would answer with its own. */
    static boolean asksForFiles(LogicalPlan plan) {
        List expressions = Scala.toList(plan.expressions());
        for (int n = 0; n < expressions.size(); n++) if (asksForFile((Expression) expressions.get(n))) return true;
        List children = Scala.toList(plan.children());
        for (int n = 0; n < children.size(); n++) if (asksForFiles((LogicalPlan) children.get(n))) return true;
        return false;
    }

    private static boolean asksForFile(Expression expression) {
        if (expression.getClass().getSimpleName().startsWith("InputFile")) return true;
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (asksForFile((Expression) children.get(n))) return true;
        return false;
    }
}

/** The rule, installed among the session's extra optimizations. */
public class IndexRule extends Rule {
    private final String marker;
    private final long forgetful;
    private final ConcurrentHashMap unrelated = new ConcurrentHashMap();
    private Function decide;
    private RuleExecutor optimizer;
    private SessionState session;
    private Function files;
    private final Connectors connectors = new Connectors();
    private volatile long warned;

    public IndexRule(String marker, long forgetful) {
        this.marker = marker;
        this.forgetful = forgetful;
    }

    public void setDecide(Function decide) { this.decide = decide; }
    public void setOptimizer(RuleExecutor optimizer) { this.optimizer = optimizer; }
    public void setSession(SessionState session) { this.session = session; }
    public void setFiles(Function files) { this.files = files; }
    /** Scans of another format's connector are asked about too. */
    public void addConnector(TableConnector connector) { connectors.add(connector); }

    /** Not to ask about an address again for a while. */
    public void forgo(String address) { unrelated.put(address, Long.valueOf(System.currentTimeMillis() + forgetful)); }
    public void forget() { unrelated.clear(); }

    /** The number of the query whose plans are made under a tracker. */
    public long number(QueryPlanningTracker tracker) { return Rules.number(tracker); }

    public String ruleName() { return "lakeindex.IndexRule"; }

    public TreeNode apply(TreeNode tree) {
        LogicalPlan plan = (LogicalPlan) tree;
        return KeyJob.RUNNING.get() != null ? plan : decided(plan, null);
    }

    /** A plan with what is read in place of its scans. shared: of the query around it, null for one that is whole. */
    LogicalPlan decided(LogicalPlan plan, SharedScans shared) {
        List scans = new ArrayList();
        ScanRequest request = null;
        Shuffles shuffles = null;
        JoinKeys joinKeys = new JoinKeys(plan, connectors);
        try {
            if (shared == null) shared = new SharedScans(plan, connectors);
            shuffles = new Shuffles(plan);
            if (decide != null) collect(plan, shuffles, joinKeys, scans, shared, false, null);
            // A connector's scan keeps its own files, whose names it may be asked for.
            if (!scans.isEmpty() && Rules.asksForFiles(plan)) scans = ofConnectors(scans);
            if (!scans.isEmpty()) {
                request = new ScanRequest(shared.root, plan, shuffles, joinKeys, scans, optimizer, session, files, connectors, Rules.query(), marker);
                decide.apply(request);
            }
        } catch (Throwable error) {
            if (error instanceof VirtualMachineError) throw (VirtualMachineError) error;
            long query = Rules.query();
            if (query != warned) org.slf4j.LoggerFactory.getLogger("lakeindex").warn("A query is planned without indexes: " + error);
            warned = query;
        }
        if (scans.isEmpty()) return connectors.isEmpty() ? plan : inSubqueries(plan, scans, shared);
        if (request != null && request.refusal() != null) throw new IllegalArgumentException(request.refusal());
        IdentityHashMap replacements = new IdentityHashMap();
        for (int n = 0; n < scans.size(); n++) {
            ScanPart scan = (ScanPart) scans.get(n);
            // The plan of an EXISTS or IN is seen by itself before it becomes the side of a join.
            if (scan.replacement != null) replacements.put(scan.node, scan.replacement);
            else scan.leaf.setTagValue(Rules.SEEN, seen(scan.leaf, shuffles, joinKeys));
        }
        LogicalPlan changed = replacements.isEmpty() ? plan : substitute(plan, replacements);
        return connectors.isEmpty() ? changed : inSubqueries(changed, scans, shared);
    }

    /**
     * The plans of subqueries within a plan. A connector may prepare its scans there only with the query around them; that
     * of dynamic pruning is a side of a join, and reads what this side does.
     */
    private LogicalPlan inSubqueries(LogicalPlan plan, List scans, SharedScans shared) {
        IdentityHashMap leaves = new IdentityHashMap();
        List held = new ArrayList();
        for (int n = 0; n < scans.size(); n++) {
            ScanPart scan = (ScanPart) scans.get(n);
            if (scan.held) held.add(scan);
            else if (scan.connector != null && scan.replacement != null) leaves.put(scan.leaf, SubqueryPlans.leaf(scan.replacement));
        }
        return (LogicalPlan) plan.transformAllExpressions(new SubqueryPlans(this, shared, leaves, held));
    }

    /** Whether a plan has a scan of a connector's that was not decided on. */
    boolean hasScans(LogicalPlan plan) {
        List found = Scala.toList(plan.collectLeaves());
        for (int n = 0; n < found.size(); n++) if (connectorOf((LogicalPlan) found.get(n)) != null) return true;
        return false;
    }

    /** The query that is planned: a view's own nodes are in the plans of subqueries, and are seen by the next query too. */
    private static String now() { return QueryPlanningTracker.get().isEmpty() ? "" : Long.toString(Rules.query()); }

    /** What a scan is marked with that was looked at: it is looked at again where other joins or sums concern it than its subquery's own. */
    private static String seen(LogicalPlan leaf, Shuffles shuffles, JoinKeys joinKeys) {
        return now() + " seen " + shuffles.concern(leaf) + " " + joinKeys.of(leaf).size();
    }

    private static List ofConnectors(List scans) {
        List found = new ArrayList();
        for (int n = 0; n < scans.size(); n++) if (((ScanPart) scans.get(n)).connector != null) found.add(scans.get(n));
        return found;
    }

    private void collect(LogicalPlan node, Shuffles shuffles, JoinKeys joinKeys, List scans, SharedScans shared, boolean united, FirstRows first) {
        if (node instanceof Project || node instanceof Filter || node instanceof LogicalRelation || node instanceof DataSourceV2ScanRelation) {
            scala.Option operation = PhysicalOperation$.MODULE$.unapply(node);
            if (operation.isDefined()) {
                scala.Tuple3 parts = (scala.Tuple3) operation.get();
                LogicalPlan leaf = (LogicalPlan) parts._3();
                TableConnector connector = connectorOf(leaf);
                if (connector != null && shared.has(connector, leaf)) return;
                if (connector == null ? isCandidate(leaf, shuffles, joinKeys) : isAsked(leaf, connector, shuffles, joinKeys)) {
                    ScanPart scan = new ScanPart(node, leaf, Scala.toList(parts._1()), Scala.toList(parts._2()), united);
                    scan.connector = connector;
                    scan.again = !now().isEmpty() && leaf.getTagValue(Rules.SEEN).isDefined() && leaf.getTagValue(Rules.SEEN).get().toString().startsWith(now() + " seen ");
                    scan.first = FirstRows.of(first, leaf);
                    scans.add(scan);
                    return;
                }
            }
        }
        List children = Scala.toList(node.children());
        boolean below = node instanceof Union || (united && (node instanceof Project || node instanceof Filter));
        for (int n = 0; n < children.size(); n++) collect((LogicalPlan) children.get(n), shuffles, joinKeys, scans, shared, below, FirstRows.below(node, first));
    }

    /** The connector whose scan a leaf is; null if it is none's, or rows are read for an index. */
    private TableConnector connectorOf(LogicalPlan leaf) {
        if (connectors.isEmpty()) return null;
        BaseRelation relation = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).relation() : null;
        if (relation instanceof HadoopFsRelation && ((HadoopFsRelation) relation).options().contains(marker)) return null;
        return connectors.of(leaf);
    }

    private boolean isAsked(LogicalPlan leaf, TableConnector connector, Shuffles shuffles, JoinKeys joinKeys) {
        scala.Option seen = leaf.getTagValue(Rules.SEEN);
        return (seen.isEmpty() || !seen.get().equals(seen(leaf, shuffles, joinKeys))) && isKnown(connector.address(leaf));
    }

    private boolean isCandidate(LogicalPlan leaf, Shuffles shuffles, JoinKeys joinKeys) {
        scala.Option seen = leaf.getTagValue(Rules.SEEN);
        if (seen.isDefined() && seen.get().equals(seen(leaf, shuffles, joinKeys))) return false;
        if (leaf instanceof DataSourceV2ScanRelation) return ((DataSourceV2ScanRelation) leaf).relation().table() instanceof LakeTable;
        if (!(leaf instanceof LogicalRelation) || leaf.isStreaming()) return false;
        BaseRelation relation = ((LogicalRelation) leaf).relation();
        if (relation instanceof KeyedRelation) return true;
        if (!(relation instanceof HadoopFsRelation)) return false;
        HadoopFsRelation files = (HadoopFsRelation) relation;
        if (!(files.location() instanceof PartitioningAwareFileIndex || files.location() instanceof CatalogFileIndex) || !(files.fileFormat() instanceof DataSourceRegister)) return false;
        if (files.options().contains(marker)) return false;
        String address = Rules.address((LogicalRelation) leaf);
        return address != null && isKnown(address);
    }

    private boolean isKnown(String address) {
        Long until = (Long) unrelated.get(address);
        return until == null || until.longValue() < System.currentTimeMillis();
    }

    static LogicalPlan substitute(LogicalPlan node, IdentityHashMap replacements) {
        LogicalPlan replacement = (LogicalPlan) replacements.get(node);
        if (replacement != null) return replacement;
        List children = Scala.toList(node.children());
        List changed = new ArrayList();
        boolean same = true;
        for (int n = 0; n < children.size(); n++) {
            LogicalPlan child = substitute((LogicalPlan) children.get(n), replacements);
            same = same && child == children.get(n);
            changed.add(child);
        }
        return same ? node : (LogicalPlan) node.withNewChildren(Scala.toSeq(changed));
    }
}

/** Decides on the scans of subqueries' plans. */
class SubqueryPlans extends scala.runtime.AbstractPartialFunction {
    private final IndexRule rule;
    private final SharedScans shared;
    private final IdentityHashMap leaves;
    private final List held;

    /** leaves: those that were changed. held: scans in whose place something else is read too. */
    SubqueryPlans(IndexRule rule, SharedScans shared, IdentityHashMap leaves, List held) {
        this.rule = rule;
        this.shared = shared;
        this.leaves = leaves;
        this.held = held;
    }

    public boolean isDefinedAt(Object expression) { return expression instanceof PlanExpression && ((PlanExpression) expression).plan() instanceof LogicalPlan; }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
        if (!isDefinedAt(expression)) return otherwise.apply(expression);
        PlanExpression query = (PlanExpression) expression;
        LogicalPlan plan = (LogicalPlan) query.plan();
        LogicalPlan changed = plan;
        if (expression instanceof DynamicPruning) changed = withHeld(leaves.isEmpty() ? plan : IndexRule.substitute(plan, leaves));
        else changed = shared.decided(plan, rule);
        return changed == plan ? expression : query.withNewPlan(changed);
    }

    /** A plan that reads what the parts of the query do that are equal to its own: so it is the same side of a join. */
    private LogicalPlan withHeld(LogicalPlan plan) {
        if (held.isEmpty()) return plan;
        IdentityHashMap replacements = new IdentityHashMap();
        find(plan, replacements);
        return replacements.isEmpty() ? plan : IndexRule.substitute(plan, replacements);
    }

    private void find(LogicalPlan node, IdentityHashMap replacements) {
        for (int n = 0; n < held.size(); n++) {
            ScanPart scan = (ScanPart) held.get(n);
            if (!node.equals(scan.node)) continue;
            replacements.put(node, scan.replacement);
            return;
        }
        List children = Scala.toList(node.children());
        for (int n = 0; n < children.size(); n++) find((LogicalPlan) children.get(n), replacements);
    }

    /** The leaf of a scan's part of a plan. */
    static LogicalPlan leaf(LogicalPlan node) {
        while (!Scala.toList(node.children()).isEmpty()) node = (LogicalPlan) node.children().apply(0);
        return node;
    }
}
