// What the index rule asks of the connector of another format. A connector's own part knows its classes and is compiled
// by itself, where they are there; the rule knows this interface alone. Compiled with index_rule.java.

package lakeindex;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

/** A file of a connector's scan. */
public class ScanFile {
    public final Object file;
    public final String path;
    public final String state;
    public final long bytes;

    /**
     * file: as the connector knows it. path: decoded, with its scheme. state: what decides on its rows beside its bytes,
     * such as the id of a list of deleted rows; empty where nothing does.
     */
    public ScanFile(Object file, String path, String state, long bytes) {
        this.file = file;
        this.path = path;
        this.state = state;
        this.bytes = bytes;
    }

    /** A path as the log of indexes has it, whichever way a file system writes it. */
    public static String key(String path) {
        if (path.startsWith("file:")) {
            int start = 5;
            while (start < path.length() && path.charAt(start) == '/') start++;
            return "/" + path.substring(start);
        }
        if (path.startsWith("s3a://") || path.startsWith("s3n://")) return "s3" + path.substring(3);
        return path;
    }
}

/** Scans of one format, as its own connector puts them into a plan. */
public interface TableConnector {
    /** The format, as a registered source has it. */
    String format();

    /** Whether a leaf is a scan whose files may be chosen: a read, or the target of a command. Scans whose files were chosen are none. */
    boolean recognizes(LogicalPlan leaf);

    /** The folder of the table. */
    String address(LogicalPlan leaf);

    /** The format's own id of the table, which one that is made anew at the address does not have. */
    String id(LogicalPlan leaf);

    /** "read", or the command whose target it is; "command" where that is not said. */
    String purpose(LogicalPlan leaf);

    /** What scans are changed together by: the leaf where each is changed by itself. */
    Object identity(LogicalPlan leaf);

    /** Name of a column -> what the format knows it by in data files. */
    Map columns(LogicalPlan leaf);

    /** The scan's own files, as ScanFile. */
    List files(LogicalPlan leaf);

    /** Whether what was recorded of a file's rows in a state is no less than they are now. */
    boolean holds(LogicalPlan leaf, String then, ScanFile now);

    /** The scan with these of its files alone; never none. Scans of other files are not equal to it. */
    LogicalPlan keep(LogicalPlan leaf, List files);

    /** Whether a leaf reads the same rows each time, whatever is written meanwhile. */
    boolean isPinned(LogicalPlan leaf);
}

/** A connector whose scans know the name that a catalog has for their table. */
public interface NamingConnector {
    /** The name in full; anything else where there is none. */
    String name(LogicalPlan leaf);
}

/** Scans whose files only the filters around them tell: a table's list is long, and few of its partitions may be asked for. */
public interface FilteredConnector extends TableConnector {
    /** The scan's own files, without those of partitions that filters rule out. filters: expressions, each true of every row that counts. */
    List files(LogicalPlan leaf, List filters);
}

/** Scans of Spark's own relation over files. */
public class Relations {
    /** The same scan of other files: in its place of a plan, with its own columns, filters and tags. */
    public static LogicalPlan reading(LogicalPlan leaf, FileIndex files) {
        HadoopFsRelation of = (HadoopFsRelation) ((LogicalRelation) leaf).relation();
        LogicalPlan changed = with((LogicalRelation) leaf, new HadoopFsRelation(files, of.partitionSchema(), of.dataSchema(), of.bucketSpec(), of.fileFormat(), of.options(), of.sparkSession()));
        changed.copyTagsFrom(leaf);
        return changed;
    }

    /** The name in full by which the session's own catalog knows the table of a scan; empty where the scan has none. */
    public static String name(LogicalPlan leaf) {
        scala.Option table = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).catalogTable() : scala.Option.empty();
        if (table.isEmpty()) return "";
        TableIdentifier name = ((CatalogTable) table.get()).identifier();
        if (name.database().isEmpty()) return "";
        return (name.catalog().isDefined() ? name.catalog().get() : "spark_catalog") + "." + name.database().get() + "." + name.table();
    }

    static LogicalPlan with(LogicalRelation leaf, HadoopFsRelation relation) {
        Object[] parts = parts(leaf);
        parts[0] = relation;
        return of(parts);
    }

    /** What a leaf is made of, in its constructor's order, which has more parts with each version of Spark. */
    static Object[] parts(LogicalRelation leaf) {
        Object[] parts = new Object[leaf.productArity()];
        for (int n = 0; n < parts.length; n++) parts[n] = leaf.productElement(n);
        return parts;
    }

    static LogicalPlan of(Object[] parts) {
        try {
            return (LogicalPlan) LogicalRelation.class.getConstructors()[0].newInstance(parts);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}

/** The connectors that a session has. One of another version than is known is asked no more. */
class Connectors {
    private final List connectors = new java.util.concurrent.CopyOnWriteArrayList();
    private volatile String warned = "";

    void add(TableConnector connector) { connectors.add(0, connector); }

    boolean isEmpty() { return connectors.isEmpty(); }

    /** The connector whose scan a leaf is; null if it is none's. */
    TableConnector of(LogicalPlan leaf) {
        Object[] each = connectors.toArray();
        for (int n = 0; n < each.length; n++) {
            TableConnector connector = (TableConnector) each[n];
            try {
                if (connector.recognizes(leaf)) return connector;
            } catch (Throwable error) {
                failed(connector, error);
            }
        }
        return null;
    }

    /** Warn once, and leave the scan to the connector; from now on all of its scans where its classes are others. */
    void failed(TableConnector connector, Throwable error) {
        if (error instanceof VirtualMachineError) throw (VirtualMachineError) error;
        boolean other = isOfAnotherVersion(error);
        if (other && !connectors.remove(connector)) return;
        // What a table's files or a cancelled query are the reason of, the query itself says.
        String why = other ? "Tables of the format " + connector.format() + " are read without indexes, for this version of its connector is another than is known: " + error : "A scan of the format " + connector.format() + " is planned without indexes: " + error;
        if (!why.equals(warned)) org.slf4j.LoggerFactory.getLogger("lakeindex").warn(why);
        warned = why;
    }

    private static boolean isOfAnotherVersion(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof java.lang.reflect.InvocationTargetException) return each.getCause() instanceof LinkageError;  // what was called failed
            if (each instanceof LinkageError || each instanceof ReflectiveOperationException || each instanceof ClassCastException) return true;
        }
        return false;
    }
}

/**
 * Scans that are changed where they are, and are read by more than one of a query's plans: by that of a subquery too, as a
 * common table expression is that Spark keeps. What one plan does without the others may need, so all files stay.
 */
class SharedScans {
    /** The whole query. */
    final LogicalPlan root;
    private final Connectors connectors;
    private final IdentityHashMap plans = new IdentityHashMap();
    private final IdentityHashMap shared = new IdentityHashMap();
    private final IdentityHashMap decided = new IdentityHashMap();

    SharedScans(LogicalPlan plan, Connectors connectors) {
        this.root = plan;
        this.connectors = connectors;
        if (!connectors.isEmpty()) walk(plan, plan);
    }

    boolean has(TableConnector connector, LogicalPlan leaf) { return !shared.isEmpty() && shared.containsKey(connector.identity(leaf)); }

    /** A subquery's plan with what is read in place of its scans. Filters that were copied have one plan, whose scans are changed once. */
    LogicalPlan decided(LogicalPlan plan, IndexRule rule) {
        LogicalPlan known = (LogicalPlan) decided.get(plan);
        if (known != null) return known;
        LogicalPlan changed = rule.hasScans(plan) ? rule.decided(plan, this) : plan;
        decided.put(plan, changed);
        return changed;
    }

    private void walk(LogicalPlan node, LogicalPlan of) {
        List children = Scala.toList(node.children());
        TableConnector connector = children.isEmpty() ? connectors.of(node) : null;
        Object identity = connector == null ? node : connector.identity(node);
        if (identity != node) {
            Object known = plans.put(identity, of);
            if (known != null && known != of) shared.put(identity, Boolean.TRUE);
        }
        for (int n = 0; n < children.size(); n++) walk((LogicalPlan) children.get(n), of);
        List expressions = Scala.toList(node.expressions());
        for (int n = 0; n < expressions.size(); n++) walk((Expression) expressions.get(n));
    }

    /** What only tells a join's side which rows the other has may be read as that one is. */
    private void walk(Expression expression) {
        if (expression instanceof DynamicPruning || expression.getClass().getSimpleName().equals("BloomFilterMightContain")) return;
        if (expression instanceof PlanExpression && ((PlanExpression) expression).plan() instanceof LogicalPlan) {
            LogicalPlan plan = (LogicalPlan) ((PlanExpression) expression).plan();
            walk(plan, plan);
        }
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) walk((Expression) children.get(n));
    }
}

/**
 * The files of a log as Python names them, by their places in a list, each with the state in which its rows were recorded.
 * The last lists are kept: each comes from Python once, and is known by its hash from then on.
 */
class LoggedFiles {
    private static final int MOST = 32;
    private static final LinkedHashMap KNOWN = new LinkedHashMap(16, 0.75f, true);
    private final Map places = new HashMap();
    private final List states = new ArrayList();

    /** lines: path and state, with a tab between, and NUL behind each file. */
    private LoggedFiles(String lines) {
        int start = 0;
        for (int end = lines.indexOf('\0'); end >= 0; end = lines.indexOf('\0', start)) {
            int tab = lines.indexOf('\t', start);
            places.put(lines.substring(start, tab), Integer.valueOf(states.size()));
            states.add(lines.substring(tab + 1, end));
            start = end + 1;
        }
    }

    static void put(String hash, String lines) {
        LoggedFiles files = new LoggedFiles(lines);
        synchronized (KNOWN) {
            KNOWN.put(hash, files);
            while (KNOWN.size() > MOST) KNOWN.remove(KNOWN.keySet().iterator().next());
        }
    }

    /** The list with a hash; null where it has not come yet, or was forgotten. */
    static LoggedFiles of(String hash) {
        synchronized (KNOWN) {
            return (LoggedFiles) KNOWN.get(hash);
        }
    }

    /** The files at some places, such as "0,4-7", have rows that count. */
    LeftOut but(String kept) {
        return new LeftOut(this, HeldFiles.places(kept));
    }

    Integer place(String path) { return (Integer) places.get(path); }
    String state(int place) { return (String) states.get(place); }
}

/** The files of a log that have no row which counts for a scan. */
class LeftOut {
    private final LoggedFiles files;
    private final java.util.BitSet read;

    LeftOut(LoggedFiles files, java.util.BitSet read) {
        this.files = files;
        this.read = read;
    }

    /** The state in which it was recorded that a file has no row which counts; null where it may have one. */
    String then(String path) {
        Integer place = files.place(path);
        return place == null || read.get(place.intValue()) ? null : files.state(place.intValue());
    }
}

/** What is left of scans that one object of a connector reads: the files that all of them can do without are left out. */
class KeptFiles {
    private final TableConnector connector;
    private final List scans = new ArrayList();
    private final List leftOut = new ArrayList();

    KeptFiles(TableConnector connector) { this.connector = connector; }

    void add(ScanPart scan, LeftOut leftOut) {
        scans.add(scan);
        this.leftOut.add(leftOut);
    }

    /** Put what is kept in the place of the scans; returns how many files the scan has and keeps, and their bytes. */
    long[] apply() {
        LogicalPlan leaf = ((ScanPart) scans.get(0)).leaf;
        List files = files((ScanPart) scans.get(0), scans.size() == 1);
        List kept = new ArrayList();
        long[] counts = new long[4];
        ScanFile smallest = null;
        for (int n = 0; n < files.size(); n++) {
            ScanFile file = (ScanFile) files.get(n);
            counts[0]++;
            counts[2] += file.bytes;
            if (smallest == null || file.bytes < smallest.bytes) smallest = file;
            if (!isNeeded(leaf, file)) continue;
            kept.add(file);
            counts[1]++;
            counts[3] += file.bytes;
        }
        // A command that reads no file at all loses its counts.
        if (kept.isEmpty() && smallest != null) {
            kept.add(smallest);
            counts[1] = 1;
            counts[3] = smallest.bytes;
        }
        if (kept.size() == files.size()) return counts;
        LogicalPlan changed = connector.keep(leaf, kept);
        for (int n = 0; n < scans.size(); n++) ((ScanPart) scans.get(n)).putLeaf(changed);
        return counts;
    }

    /** A scan's files. A connector may find them by queries of its own, on which nothing is decided meanwhile. */
    static List files(ScanPart scan, boolean alone) {
        Object before = KeyJob.RUNNING.get();
        KeyJob.RUNNING.set(Boolean.TRUE);
        try {
            // One scan object at several places has the filters of each.
            if (alone && scan.connector instanceof FilteredConnector) return ((FilteredConnector) scan.connector).files(scan.leaf, scan.plain);
            return scan.connector.files(scan.leaf);
        } finally {
            KeyJob.RUNNING.set(before);
        }
    }

    private boolean isNeeded(LogicalPlan leaf, ScanFile file) {
        for (int n = 0; n < leftOut.size(); n++) if (isNeeded(connector, leaf, (LeftOut) leftOut.get(n), file)) return true;
        return false;
    }

    /** Whether a file may have a row that counts. */
    static boolean isNeeded(TableConnector connector, LogicalPlan leaf, LeftOut leftOut, ScanFile file) {
        String then = leftOut.then(ScanFile.key(file.path));
        return then == null || !connector.holds(leaf, then, file);
    }
}
