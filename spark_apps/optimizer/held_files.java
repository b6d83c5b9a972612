// Files of a connector's scan whose rows an index holds, and what is read in their place: which ones have exactly the
// rows that were recorded, when a copy of them may be read, and the scan of all others beside it. Compiled with
// index_rule.java.

package lakeindex;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.IdentityHashMap;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNotNull;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** A connector that knows whether a file has exactly the rows that were recorded of it, so that a copy may be read. */
public interface ExactConnector {
    /** Why no copy may be read in place of a scan's files, in words; null where one may. */
    String whyNoCopy(LogicalPlan leaf);

    /** Whether a file has the very rows that were recorded of it in a state. */
    boolean isSame(LogicalPlan leaf, String then, ScanFile now);

    /** The scan with these of its files alone, and no others, whatever is written before it runs. */
    LogicalPlan keepOnly(LogicalPlan leaf, List files);
}

/** The files of one scan beside those of a log: in which places of the log's list are those that it has just so. */
class HeldFiles {
    private final ScanPart scan;
    private final LeftOut leftOut;
    private final List files;
    private final int[] places;
    private final BitSet same = new BitSet();

    /** read: the places of those that have rows which count; see LoggedFiles.but. */
    HeldFiles(ScanPart scan, LoggedFiles logged, String read) {
        this.scan = scan;
        this.leftOut = logged.but(read);
        this.files = KeptFiles.files(scan, true);
        this.places = new int[files.size()];
        BitSet twice = new BitSet();
        for (int n = 0; n < places.length; n++) {
            ScanFile file = (ScanFile) files.get(n);
            Integer place = logged.place(ScanFile.key(file.path));
            boolean isSame = place != null && ((ExactConnector) scan.connector).isSame(scan.leaf, logged.state(place.intValue()), file);
            places[n] = isSame ? place.intValue() : -1;
            if (!isSame) continue;
            if (same.get(places[n])) twice.set(places[n]);  // the rows of a file that a table has twice count twice
            same.set(places[n]);
        }
        same.andNot(twice);
    }

    /** The places of files with exactly the rows that were recorded, as runs. */
    String same() {
        StringBuilder runs = new StringBuilder();
        for (int first = same.nextSetBit(0); first >= 0;) {
            int end = same.nextClearBit(first);
            runs.append(runs.length() == 0 ? "" : ",").append(first);
            if (end > first + 1) runs.append('-').append(end - 1);
            first = same.nextSetBit(end);
        }
        return runs.toString();
    }

    /** How many others the scan reads in any case. */
    int others() { return rest(same, new long[5]).size(); }

    /** The files to be read where those at some places are not; counts: files and bytes of the scan and of these, and how many are not read for they are held. */
    List rest(BitSet held, long[] counts) {
        List rest = new ArrayList();
        for (int n = 0; n < places.length; n++) {
            ScanFile file = (ScanFile) files.get(n);
            counts[0]++;
            counts[2] += file.bytes;
            if (places[n] >= 0 && held.get(places[n])) {
                counts[4]++;
                continue;
            }
            if (!KeptFiles.isNeeded(scan.connector, scan.leaf, leftOut, file)) continue;
            rest.add(file);
            counts[1]++;
            counts[3] += file.bytes;
        }
        return rest;
    }

    /** The scan of the files that are not held, and the rows of those that are, under the names and ids of the scan's part of the plan. */
    void put(BitSet held, LogicalPlan rows, long[] counts) throws Exception {
        List rest = rest(held, counts);
        if (counts[4] != held.cardinality()) throw new IllegalStateException("files are held that the scan does not have");
        if (rest.isEmpty()) {
            scan.replacement = rows;
        } else {
            LogicalPlan copy = copied(rows, Scala.toList(scan.node.output()));
            LogicalPlan both = union(scan.node, copy);
            // Last, for a scan that is changed where it is: should anything before fail, it is whole.
            scan.putLeaf(((ExactConnector) scan.connector).keepOnly(scan.leaf, rest));
            scan.replacement = (LogicalPlan) both.withNewChildren(Scala.toSeq(Arrays.asList(new Object[] {scan.replacement, copy})));
        }
        scan.held = true;
    }

    /** A plan as the second side of a union, which has the ids of its first one. The columns of an index may be null, and where the scan's are not no row is. */
    private static LogicalPlan copied(LogicalPlan plan, List as) {
        List named = new ArrayList();
        List output = Scala.toList(plan.output());
        for (int n = 0; n < output.size(); n++) {
            Attribute column = (Attribute) output.get(n);
            boolean never = column.nullable() && !((Attribute) as.get(n)).nullable();
            named.add(alias(never ? (Expression) new KnownNotNull(column) : column, column));
        }
        return new Project(Scala.toSeq(named), plan);
    }

    private static Alias alias(Expression expression, Attribute as) {
        return new Alias(expression, as.name(), NamedExpression$.MODULE$.newExprId(), as.qualifier(), scala.Option.apply(as.metadata()), Scala.toSeq(new ArrayList()));
    }

    private static LogicalPlan union(LogicalPlan first, LogicalPlan second) throws Exception {
        List children = new ArrayList();
        children.add(first);
        children.add(second);
        java.lang.reflect.Constructor made = Union.class.getConstructors()[0];
        Object[] parts = new Object[made.getParameterTypes().length];
        for (int n = 0; n < parts.length; n++) parts[n] = n == 0 ? (Object) Scala.toSeq(children) : Boolean.FALSE;
        return (LogicalPlan) made.newInstance(parts);
    }

    static BitSet places(String runs) {
        BitSet places = new BitSet();
        String[] parts = runs.isEmpty() ? new String[0] : runs.split(",");
        for (int n = 0; n < parts.length; n++) {
            int dash = parts[n].indexOf('-');
            int first = Integer.parseInt(dash < 0 ? parts[n] : parts[n].substring(0, dash));
            places.set(first, Integer.parseInt(parts[n].substring(dash + 1)) + 1);
        }
        return places;
    }
}

/** When the rows of a scan's files may not come from elsewhere, whatever is held of them. */
class NoCopy {
    private static final String METADATA_COLUMN = "__metadata_col";

    private final LogicalPlan root;
    private final LogicalPlan plan;
    private final ScanPart scan;
    private final Object identity;
    private final IdentityHashMap counted = new IdentityHashMap();

    /** root: the whole query's. plan: that one, or that of a subquery, which the scan is in. */
    NoCopy(LogicalPlan root, LogicalPlan plan, ScanPart scan) {
        this.root = root;
        this.plan = plan;
        this.scan = scan;
        this.identity = scan.connector.identity(scan.leaf);
    }

    /** Why, in words; null where they may. */
    String why() {
        if (!(scan.connector instanceof ExactConnector)) return "its connector does not tell which files have the rows that an index holds";
        for (int n = 0; n < scan.needed.size(); n++) {
            Attribute column = (Attribute) scan.needed.get(n);
            if (column.metadata().contains(METADATA_COLUMN)) return "the query asks where rows are, by " + column.name();
            if (isNested(column.dataType()) && !column.dataType().equals(column.dataType().asNullable())) return "parts of the column " + column.name() + " are never null, which no index says of them";
        }
        if (Rules.asksForFiles(plan)) return "the query asks for the files of its rows";
        if (isSampled(plan)) return "the query takes a sample, which depends on the order of rows";
        if (identity != scan.leaf && !isAlone()) return "its scan is at several places of the query";
        return ((ExactConnector) scan.connector).whyNoCopy(scan.leaf);
    }

    private static boolean isNested(DataType type) { return type instanceof StructType || type instanceof ArrayType || type instanceof MapType; }

    private static boolean isSampled(LogicalPlan node) {
        if (node instanceof Sample) return true;
        List children = Scala.toList(node.children());
        for (int n = 0; n < children.size(); n++) if (isSampled((LogicalPlan) children.get(n))) return true;
        return false;
    }

    /**
     * Whether the scan, which is changed where it is, is nowhere else in the whole query, such as in what makes the Bloom
     * filter of a join; but for dynamic pruning, which reads what this part of the plan does.
     */
    private boolean isAlone() { return count(root, root == plan ? HERE : BELOW) == 1; }

    private static final int HERE = 0;
    private static final int PRUNING = 1;
    private static final int BELOW = 2;

    /** How often the scan is read. where: in its own plan, in what dynamic pruning of that reads, or in another plan. */
    private int count(LogicalPlan node, int where) {
        if (where == PRUNING && node.equals(scan.node)) return 0;
        List children = Scala.toList(node.children());
        int found = children.isEmpty() && node.getClass() == scan.leaf.getClass() && scan.connector.identity(node) == identity ? 1 : 0;
        for (int n = 0; n < children.size(); n++) found += count((LogicalPlan) children.get(n), where);
        List expressions = Scala.toList(node.expressions());
        for (int n = 0; n < expressions.size(); n++) found += count((Expression) expressions.get(n), where);
        return found;
    }

    private int count(Expression expression, int where) {
        int found = 0;
        if (expression instanceof PlanExpression && ((PlanExpression) expression).plan() instanceof LogicalPlan) {
            LogicalPlan query = (LogicalPlan) ((PlanExpression) expression).plan();
            // Filters that Spark has copied have one plan.
            if (counted.put(query, Boolean.TRUE) == null) found += count(query, query == plan ? HERE : where == HERE && expression instanceof DynamicPruning ? PRUNING : BELOW);
        }
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) found += count((Expression) children.get(n), where);
        return found;
    }
}
