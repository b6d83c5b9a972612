// The part of the index rule that looks for keys of a join's other side: which scans a join lets read fewer rows, where
// the keys come from, and how they are taken. It is compiled together with index_rule.java, in one package. Whether
// they are worth taking is decided in Python.

package lakeindex;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.catalyst.rules.RuleExecutor;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.unsafe.types.UTF8String;

/** One side of a join, as the other side's rows are found by it: expressions that must be equal to columns of those. */
class KeySource {
    final LogicalPlan side;
    final List keys = new ArrayList();
    final List nullSafe = new ArrayList();

    KeySource(LogicalPlan side) { this.side = side; }
}

/** The columns of scans that a query's joins compare with keys of another side, where rows without one do not count. */
class JoinKeys {
    private static final List LEFT_BY_RIGHT = Arrays.asList(new Object[] {"Inner", "Cross", "RightOuter", "LeftSemi"});
    private static final List RIGHT_BY_LEFT = Arrays.asList(new Object[] {"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin"});
    // Sides whose rows a join lets pass as they are, but for some that it leaves out.
    private static final List LEFT_PASSES = Arrays.asList(new Object[] {"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin"});
    private static final List RIGHT_PASSES = Arrays.asList(new Object[] {"Inner", "Cross", "RightOuter"});

    private final LogicalPlan plan;
    private final Connectors connectors;
    private IdentityHashMap byLeaf;

    JoinKeys(LogicalPlan plan, Connectors connectors) {
        this.plan = plan;
        this.connectors = connectors;
    }

    /** Id of a column of a leaf -> the keys that it must have, each a source and the position of the key in it. */
    Map of(LogicalPlan leaf) {
        if (byLeaf == null) {
            byLeaf = new IdentityHashMap();
            walk(plan, new HashMap());
        }
        Map found = (Map) byLeaf.get(leaf);
        return found == null ? new HashMap() : found;
    }

    private void walk(LogicalPlan node, Map asked) {
        List children = Scala.toList(node.children());
        if (children.isEmpty()) {
            // A leaf that occurs twice in a plan is replaced in both places at once.
            byLeaf.put(node, byLeaf.containsKey(node) ? new HashMap() : asked);
            return;
        }
        if (node instanceof Join) {
            join((Join) node, asked);
            return;
        }
        for (int n = 0; n < children.size(); n++) walk((LogicalPlan) children.get(n), below(node, (LogicalPlan) children.get(n), asked));
    }

    private void join(Join join, Map asked) {
        String type = type(join);
        Map left = LEFT_PASSES.contains(type) ? of(asked, join.left()) : new HashMap();
        Map right = RIGHT_PASSES.contains(type) ? of(asked, join.right()) : new HashMap();
        KeySource ofLeft = new KeySource(join.left());
        KeySource ofRight = new KeySource(join.right());
        List conditions = new ArrayList();
        if (join.condition().isDefined()) conjuncts((Expression) join.condition().get(), conditions);
        for (int n = 0; n < conditions.size(); n++) {
            Expression each = (Expression) conditions.get(n);
            if (!(each instanceof EqualTo || each instanceof EqualNullSafe) || !each.deterministic()) continue;
            Expression first = (Expression) each.children().apply(0);
            Expression second = (Expression) each.children().apply(1);
            if (isOf(second, join.left()) && isOf(first, join.right())) {
                Expression other = first;
                first = second;
                second = other;
            }
            if (!isOf(first, join.left()) || !isOf(second, join.right())) continue;
            boolean nullSafe = each instanceof EqualNullSafe;
            if (LEFT_BY_RIGHT.contains(type)) add(left, first, ofRight, second, nullSafe);
            if (RIGHT_BY_LEFT.contains(type)) add(right, second, ofLeft, first, nullSafe);
        }
        walk(join.left(), left);
        walk(join.right(), right);
    }

    static String type(Join join) {
        String type = join.joinType().toString();
        return type.startsWith("ExistenceJoin") ? "ExistenceJoin" : type;
    }

    private static boolean isOf(Expression expression, LogicalPlan plan) {
        return !expression.references().isEmpty() && expression.references().subsetOf(plan.outputSet());
    }

    private static void add(Map asked, Expression column, KeySource source, Expression key, boolean nullSafe) {
        Attribute attribute = column(column);
        if (attribute == null) return;
        source.keys.add(key);
        source.nullSafe.add(Boolean.valueOf(nullSafe));
        put(asked, id(attribute), new Object[] {source, Integer.valueOf(source.keys.size() - 1)});
    }

    /** The column that an expression is, which may be a whole number that is made a longer one. */
    private static Attribute column(Expression expression) {
        if (expression instanceof Attribute) return (Attribute) expression;
        if (!(expression instanceof Cast)) return null;
        Expression child = (Expression) expression.children().apply(0);
        boolean longer = child.dataType() instanceof IntegralType && expression.dataType() instanceof IntegralType && child.dataType().defaultSize() <= expression.dataType().defaultSize();
        return longer && child instanceof Attribute ? (Attribute) child : null;
    }

    /** What is asked of a node's rows, as far as it is asked of those of its child. */
    private Map below(LogicalPlan node, LogicalPlan child, Map asked) {
        if (asked.isEmpty()) return asked;
        if (node instanceof Project) {
            Object computed = ((Project) node).projectList();
            return deterministic(computed) || (onlyMarks(Scala.toList(computed)) && isTarget(child)) ? renamed(asked, computed) : new HashMap();
        }
        if (node instanceof Filter) return ((Filter) node).condition().deterministic() ? asked : new HashMap();
        if (node instanceof Aggregate) return among(renamed(asked, ((Aggregate) node).aggregateExpressions()), ((Aggregate) node).groupingExpressions());
        if (node instanceof Window) return among(asked, ((Window) node).partitionSpec());
        if (node instanceof Union) {
            Map below = new HashMap();
            List output = Scala.toList(node.output());
            List there = Scala.toList(child.output());
            for (int n = 0; n < output.size(); n++) {
                List keys = (List) asked.get(id((Attribute) output.get(n)));
                for (int m = 0; keys != null && m < keys.size(); m++) put(below, id((Attribute) there.get(n)), keys.get(m));
            }
            return below;
        }
        return node instanceof Sort || node instanceof RepartitionOperation ? asked : new HashMap();
    }

    // What a command marks the rows of its target by: it asks whether two rows have the same mark, and never which one.
    private static final List MARKS = Arrays.asList(new Object[] {"MonotonicallyIncreasingID", "InputFileName"});

    private static boolean onlyMarks(List expressions) {
        for (int n = 0; n < expressions.size(); n++) {
            Expression each = (Expression) expressions.get(n);
            if (each.deterministic() || MARKS.contains(each.getClass().getSimpleName())) continue;
            if (!onlyMarks(Scala.toList(each.children())) || each.children().isEmpty()) return false;
        }
        return true;
    }

    /** Whether a plan is the target of a command, as it is read from its files. */
    private boolean isTarget(LogicalPlan plan) {
        while (plan instanceof Project || plan instanceof Filter) plan = (LogicalPlan) plan.children().apply(0);
        if (connectors.isEmpty()) return false;
        TableConnector connector = connectors.of(plan);
        return connector != null && !connector.purpose(plan).equals("read");
    }

    private static boolean deterministic(Object expressions) {
        List each = Scala.toList(expressions);
        for (int n = 0; n < each.size(); n++) if (!((Expression) each.get(n)).deterministic()) return false;
        return true;
    }

    private static Map renamed(Map asked, Object expressions) {
        Map below = new HashMap();
        List named = Scala.toList(expressions);
        for (int n = 0; n < named.size(); n++) {
            Expression each = (Expression) named.get(n);
            Attribute above = each instanceof Attribute ? (Attribute) each : each instanceof Alias ? (Attribute) ((Alias) each).toAttribute() : null;
            Attribute column = each instanceof Alias ? column(((Alias) each).child()) : above;
            List keys = above == null || column == null ? null : (List) asked.get(id(above));
            for (int m = 0; keys != null && m < keys.size(); m++) put(below, id(column), keys.get(m));
        }
        return below;
    }

    private static Map among(Map asked, Object expressions) {
        Map kept = new HashMap();
        List each = Scala.toList(expressions);
        for (int n = 0; n < each.size(); n++) {
            if (!(each.get(n) instanceof Attribute)) continue;
            Long id = id((Attribute) each.get(n));
            if (asked.containsKey(id)) kept.put(id, asked.get(id));
        }
        return kept;
    }

    private static Map of(Map asked, LogicalPlan plan) {
        return among(asked, plan.output());
    }

    private static void put(Map asked, Long id, Object key) {
        List keys = (List) asked.get(id);
        if (keys == null) {
            keys = new ArrayList();
            asked.put(id, keys);
        }
        keys.add(key);
    }

    static void conjuncts(Expression condition, List into) {
        if (condition instanceof And) {
            conjuncts((Expression) condition.children().apply(0), into);
            conjuncts((Expression) condition.children().apply(1), into);
        } else {
            into.add(condition);
        }
    }

    static Long id(Attribute attribute) { return Long.valueOf(attribute.exprId().id()); }
}

/**
 * How far down a plan an expression can be computed from: through a node whose rows each come from a row below it that
 * has the same value. A node that is not known stops it, as do those that make rows which nothing below them has: an
 * outer join's side without a match, a sum of no rows.
 */
class KeyOrigin {
    // Nodes that let rows of their child pass as they are, once, more often or not at all; by name, for some are of later versions.
    private static final List PASSING = Arrays.asList(new Object[] {
        "Sort", "LocalLimit", "GlobalLimit", "Offset", "Sample", "Repartition", "RepartitionByExpression", "RebalancePartitions",
        "Window", "WindowGroupLimit", "Generate"});
    // Nodes that give the same rows each time, if what they compute does.
    private static final List STEADY = Arrays.asList(new Object[] {
        "Project", "Filter", "Join", "Union", "Aggregate", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions", "Generate", "Expand"});
    private static final List LEFT_WHOLE = Arrays.asList(new Object[] {"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin"});
    private static final List RIGHT_WHOLE = Arrays.asList(new Object[] {"Inner", "Cross", "RightOuter"});

    /** The child that has a row with the same value for each row of a node, by key[0], which is then in its words; null if there is none. */
    static LogicalPlan child(LogicalPlan node, Expression[] key) {
        if (node instanceof Project) {
            key[0] = inlined(key[0], ((Project) node).projectList());
            return ((Project) node).child();
        }
        if (node instanceof Aggregate) return ofGroups((Aggregate) node, key);
        if (node instanceof Join) return ofJoin((Join) node, key[0]);
        if (!(node instanceof Filter) && !PASSING.contains(node.getClass().getSimpleName())) return null;
        LogicalPlan child = (LogicalPlan) node.children().apply(0);
        return key[0].references().subsetOf(child.outputSet()) ? child : null;
    }

    private static LogicalPlan ofGroups(Aggregate node, Expression[] key) {
        List groups = Scala.toList(node.groupingExpressions());
        if (groups.isEmpty()) return null;  // no rows are a row of it too
        key[0] = inlined(key[0], node.aggregateExpressions());
        // A group's -0.0 is 0.0, and one NaN all of them, which text tells apart.
        return hasFloats(key[0]) ? null : node.child();
    }

    private static LogicalPlan ofJoin(Join join, Expression key) {
        String type = JoinKeys.type(join);
        if (key.references().subsetOf(join.left().outputSet()) && (LEFT_WHOLE.contains(type) || isNullOfNulls(key))) return join.left();
        if (key.references().subsetOf(join.right().outputSet()) && (RIGHT_WHOLE.contains(type) || isNullOfNulls(key))) return join.right();
        return null;
    }

    /** Whether an expression is null where a join made its columns null: such a row meets none, but where nulls meet, and there nulls are let pass. */
    private static boolean isNullOfNulls(Expression key) {
        try {
            return !key.references().isEmpty() && ofNulls(key).eval(null) == null;
        } catch (RuntimeException error) {
            return false;
        }
    }

    private static Expression ofNulls(Expression expression) {
        if (expression instanceof Attribute) return new Literal(null, expression.dataType());
        List children = Scala.toList(expression.children());
        List changed = new ArrayList();
        for (int n = 0; n < children.size(); n++) changed.add(ofNulls((Expression) children.get(n)));
        return children.isEmpty() ? expression : (Expression) expression.withNewChildren(Scala.toSeq(changed));
    }

    private static boolean hasFloats(Expression expression) {
        if (hasFloats(expression.dataType())) return true;
        return anyFloats(expression.children());
    }

    private static boolean anyFloats(Object expressions) {
        List each = Scala.toList(expressions);
        for (int n = 0; n < each.size(); n++) if (hasFloats((Expression) each.get(n))) return true;
        return false;
    }

    private static boolean hasFloats(DataType type) { return type.sql().matches("(?s).*(FLOAT|DOUBLE|VARIANT).*"); }

    /** Whether a plan gives the same rows each time it is run, in whatever order its parts come: no limit, sample or rank of equals is in it. */
    static boolean isSteady(LogicalPlan node) {
        List children = Scala.toList(node.children());
        if (children.isEmpty()) return true;
        if (!STEADY.contains(node.getClass().getSimpleName())) return false;
        // Below the groups that keys are taken by Spark leaves out others, and with them that their -0.0 is 0.0.
        if (node instanceof Aggregate && anyFloats(((Aggregate) node).groupingExpressions())) return false;
        List expressions = Scala.toList(node.expressions());
        for (int n = 0; n < expressions.size(); n++) if (!isSteady((Expression) expressions.get(n))) return false;
        for (int n = 0; n < children.size(); n++) if (!isSteady((LogicalPlan) children.get(n))) return false;
        return true;
    }

    private static boolean isSteady(Expression expression) {
        if (!expression.deterministic() || expression instanceof PlanExpression) return false;
        if (expression instanceof AggregateExpression) {
            String function = ((AggregateExpression) expression).aggregateFunction().getClass().getSimpleName();
            if (!function.matches("Max|Min|Count|Sum") || hasFloats(expression)) return false;
        }
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (!isSteady((Expression) children.get(n))) return false;
        return true;
    }

    /** An expression over what a node makes, in the words of what it is made from. */
    static Expression inlined(Expression expression, Object named) {
        Map values = new HashMap();
        List each = Scala.toList(named);
        for (int n = 0; n < each.size(); n++) {
            if (each.get(n) instanceof Alias) values.put(JoinKeys.id((Attribute) ((Alias) each.get(n)).toAttribute()), ((Alias) each.get(n)).child());
        }
        return values.isEmpty() ? expression : inlined(expression, values);
    }

    private static Expression inlined(Expression expression, Map values) {
        if (expression instanceof Attribute) {
            Object value = values.get(JoinKeys.id((Attribute) expression));
            return value == null ? expression : (Expression) value;
        }
        List children = Scala.toList(expression.children());
        if (children.isEmpty()) return expression;
        List changed = new ArrayList();
        for (int n = 0; n < children.size(); n++) changed.add(inlined((Expression) children.get(n), values));
        return (Expression) expression.withNewChildren(Scala.toSeq(changed));
    }
}

/** Where the keys of one or more columns of a scan can be taken from: one part of a join's other side, or more rows than it has. */
class KeySide {
    final LogicalPlan node;
    final List filters;
    final String kind;
    private final ScanPart part;
    final int scan;
    private KeySource source;
    final List keys = new ArrayList();
    final List columns = new ArrayList();
    final List types = new ArrayList();
    final List nullSafe = new ArrayList();

    private KeySide(LogicalPlan node, List filters, String kind, ScanPart part, int scan) {
        this.part = part;
        this.node = node;
        this.filters = filters;
        this.kind = kind;
        this.scan = scan;
    }

    /** The sides that have keys for a scan's columns. */
    static List of(ScanPart scan, Map asked, List scans, String marker) {
        List sides = new ArrayList();
        List output = Scala.toList(scan.leaf.output());
        for (int n = 0; n < output.size(); n++) {
            Attribute column = (Attribute) output.get(n);
            List keys = (List) asked.get(JoinKeys.id(column));
            for (int m = 0; keys != null && m < keys.size(); m++) {
                KeySource source = (KeySource) ((Object[]) keys.get(m))[0];
                int position = ((Integer) ((Object[]) keys.get(m))[1]).intValue();
                Expression key = (Expression) source.keys.get(position);
                if (!isComparable(key.dataType(), column)) continue;
                Expression[] found = {key};
                KeySide side = find(source.side, found, scans, marker, false, scan.connector);
                if (side == null) continue;
                side.source = source;
                KeySide known = null;
                for (int k = 0; k < sides.size(); k++) if (((KeySide) sides.get(k)).node == side.node && ((KeySide) sides.get(k)).source == source) known = (KeySide) sides.get(k);
                if (known == null || known.columns.contains(column.name())) sides.add(side); else side = known;
                side.keys.add(found[0]);
                side.columns.add(column.name());
                side.types.add(column.dataType().simpleString());
                side.nullSafe.add(source.nullSafe.get(position));
            }
        }
        return sides;
    }

    private static final List TYPES = Arrays.asList(new Object[] {"tinyint", "smallint", "int", "bigint", "string", "date", "boolean", "timestamp", "timestamp_ntz"});

    private static boolean isComparable(DataType key, Attribute column) {
        String type = column.dataType().simpleString();
        if (column.metadata().contains("__CHAR_VARCHAR_TYPE_STRING") && column.metadata().getString("__CHAR_VARCHAR_TYPE_STRING").startsWith("char")) return false;
        if (key instanceof IntegralType && column.dataType() instanceof IntegralType) return true;
        return key.sameType(column.dataType()) && (TYPES.contains(type) || type.startsWith("decimal"));
    }

    /**
     * Go down a plan to where an expression's values come from, which key[0] is then in the words of; null if that cannot be said.
     *
     * ours: whether the whole plan was put in the place of a scan, and so gives the same rows each time that it is run.
     */
    private static KeySide find(LogicalPlan node, Expression[] key, List scans, String marker, boolean ours, TableConnector connector) {
        if (node.isStreaming() || !isPlain(key[0])) return null;
        List filters = new ArrayList();
        while (true) {
            ScanPart part = null;
            int number = -1;
            for (int n = 0; n < scans.size(); n++) {
                if (((ScanPart) scans.get(n)).node == node) {
                    part = (ScanPart) scans.get(n);
                    number = n;
                }
            }
            // What is read in place of a connector's scan is as pinned as that: files of an index never change.
            if (part != null && part.held) return part.node.deterministic() && part.connector.isPinned(part.leaf) ? new KeySide(part.replacement, filters, "pinned", null, -1) : null;
            if (part != null && part.replacement != null) return find(part.replacement, key, new ArrayList(), marker, true, connector);
            if (part != null && !part.decided) return new KeySide(node, filters, "undecided", part, number);
            if (node instanceof LocalRelation) return new KeySide(node, filters, "local", null, -1);
            if (node instanceof InMemoryRelation) return new KeySide(node, filters, "cached", null, -1);
            if (node instanceof LogicalRDD && ((LogicalRDD) node).rdd().isCheckpointed()) return new KeySide(node, filters, "checkpoint", null, -1);
            if (connector != null && connector.isPinned(node)) return new KeySide(node, filters, "pinned", null, -1);
            if (node instanceof LogicalRelation) return ofFiles((LogicalRelation) node, filters, marker);
            Expression[] below = {key[0]};
            LogicalPlan child = KeyOrigin.child(node, below);
            if (child == null || !isPlain(below[0])) return isOurs(node, marker) && (ours || KeyOrigin.isSteady(node)) ? new KeySide(node, filters, "planned", null, -1) : null;
            key[0] = below[0];
            if (node instanceof Project) {
                for (int n = 0; n < filters.size(); n++) filters.set(n, KeyOrigin.inlined((Expression) filters.get(n), ((Project) node).projectList()));
            } else if (node instanceof Filter) {
                JoinKeys.conjuncts(((Filter) node).condition(), filters);
            } else {
                filters = new ArrayList();
            }
            node = child;
        }
    }

    private static KeySide ofFiles(LogicalRelation leaf, List filters, String marker) {
        if (leaf.isStreaming() || !(leaf.relation() instanceof HadoopFsRelation)) return null;
        return new KeySide(leaf, filters, isOurs(leaf, marker) ? "planned" : "files", null, -1);
    }

    /** Whether all that a plan reads was put there by the rule. */
    private static boolean isOurs(LogicalPlan plan, String marker) {
        List leaves = Scala.toList(plan.collectLeaves());
        for (int n = 0; n < leaves.size(); n++) {
            if (leaves.get(n) instanceof LocalRelation) continue;
            if (!(leaves.get(n) instanceof LogicalRelation) || !(((LogicalRelation) leaves.get(n)).relation() instanceof HadoopFsRelation)) return false;
            if (!((HadoopFsRelation) ((LogicalRelation) leaves.get(n)).relation()).options().contains(marker)) return false;
        }
        return true;
    }

    /** Whether an expression says the same of a row each time, without a query or a function of a user's in it. */
    private static boolean isPlain(Expression expression) {
        if (!expression.deterministic() || expression instanceof DynamicPruning) return false;
        return !has(expression);
    }

    private static boolean has(Expression expression) {
        if (expression instanceof PlanExpression || expression instanceof AggregateExpression || expression.getClass().getSimpleName().matches(".*UD[AT]?F.*")) return true;
        List children = Scala.toList(expression.children());
        for (int n = 0; n < children.size(); n++) if (has((Expression) children.get(n))) return true;
        return false;
    }

    /** What Python decides by. */
    Map describe() {
        Map said = new LinkedHashMap();
        List kept = plainFilters();
        said.put("columns", columns);
        said.put("types", types);
        said.put("null_safe", nullSafe);
        said.put("kind", kind);
        said.put("scan", Integer.valueOf(scan));
        said.put("filtered", Boolean.valueOf(!kept.isEmpty()));
        if (kind.equals("cached")) {
            InMemoryRelation cached = (InMemoryRelation) node;
            said.put("loaded", Boolean.valueOf(cached.cacheBuilder().isCachedColumnBuffersLoaded()));
            said.put("deterministic", Boolean.valueOf(isSameAnew(cached.cacheBuilder().cachedPlan())));
        }
        if (kind.equals("undecided")) {
            said.put("bytes", Long.valueOf(most(part.leaf.stats().sizeInBytes())));
            said.put("filtered", Boolean.valueOf(!part.plain.isEmpty()));
        } else if (kind.equals("checkpoint")) {
            // Its size is not known to Spark, and it is in the executors' memory.
            said.put("bytes", Long.valueOf(0));
            said.put("rows", Long.valueOf(0));
        } else {
            LogicalPlan read = new Project(Scala.toSeq(referenced(kept)), node);
            said.put("bytes", Long.valueOf(most(read.stats().sizeInBytes())));
            scala.Option rows = node.stats().rowCount();
            long width = Math.max(1, node.schema().defaultSize());
            said.put("rows", Long.valueOf(rows.isDefined() ? most((scala.math.BigInt) rows.get()) : most(node.stats().sizeInBytes()) / width));
        }
        return said;
    }

    /** Whether a plan gives the same rows each time it is run. */
    private static boolean isSameAnew(SparkPlan plan) {
        if (plan instanceof AdaptiveSparkPlanExec) return isSameAnew(((AdaptiveSparkPlanExec) plan).inputPlan());
        if (!plan.deterministic()) return false;
        if (plan instanceof InMemoryTableScanExec) return isSameAnew(((InMemoryTableScanExec) plan).relation().cacheBuilder().cachedPlan());
        List children = Scala.toList(plan.children());
        for (int n = 0; n < children.size(); n++) if (!isSameAnew((SparkPlan) children.get(n))) return false;
        return true;
    }

    private static long most(scala.math.BigInt number) {
        return number.bigInteger().bitLength() > 62 ? Long.MAX_VALUE : number.bigInteger().longValue();
    }

    private List referenced(List kept) {
        Set ids = new LinkedHashSet();
        List expressions = new ArrayList(keys);
        expressions.addAll(kept);
        for (int n = 0; n < expressions.size(); n++) {
            List attributes = Scala.toList(((Expression) expressions.get(n)).references());
            for (int m = 0; m < attributes.size(); m++) ids.add(JoinKeys.id((Attribute) attributes.get(m)));
        }
        List columns = new ArrayList();
        List output = Scala.toList(node.output());
        for (int n = 0; n < output.size(); n++) if (ids.contains(JoinKeys.id((Attribute) output.get(n)))) columns.add(output.get(n));
        return columns;
    }

    /** The filters of the side that need no other plan. Without the others it only has more keys. */
    private List plainFilters() {
        List kept = new ArrayList();
        for (int n = 0; n < filters.size(); n++) if (isPlain((Expression) filters.get(n))) kept.add(filters.get(n));
        return kept;
    }

    /** The keys of the side, each row of them once and as text or numbers, or why they cannot be had; JSON. Of more than the limit, any. */
    String take(int limit, long milliseconds, RuleExecutor optimizer, KeyJobs jobs) throws Exception {
        LogicalPlan plan = rows(jobs.marker);
        if (kind.equals("local")) {
            plan = (LogicalPlan) optimizer.execute(plan);
            if (!(plan instanceof LocalRelation)) return KeyJobs.said("unknown", "its rows are not values");
            List rows = Scala.toList(((LocalRelation) plan).data());
            if (rows.size() > limit) java.util.Collections.shuffle(rows, new java.util.Random(limit));
            return KeyJobs.json(rows, types(), limit);
        }
        Expression most = new Literal(Integer.valueOf(limit), org.apache.spark.sql.types.IntegerType$.MODULE$);
        return jobs.run(new GlobalLimit(most, new LocalLimit(most, anyOrder(new Distinct(plan)))), types(), limit, milliseconds);
    }

    /** Rows in the order of a hash, so that the first ones are any. */
    private static LogicalPlan anyOrder(LogicalPlan plan) throws Exception {
        Expression hash = new org.apache.spark.sql.catalyst.expressions.XxHash64((@SEQ@) plan.output(), 7L);
        Object order = new org.apache.spark.sql.catalyst.expressions.SortOrder(hash, org.apache.spark.sql.catalyst.expressions.Ascending$.MODULE$, org.apache.spark.sql.catalyst.expressions.NullsFirst$.MODULE$, Scala.toSeq(new ArrayList()));
        java.lang.reflect.Constructor made = Sort.class.getConstructors()[0];
        Object[] parts = new Object[made.getParameterTypes().length];
        Object[] known = {Scala.toSeq(new ArrayList(Arrays.asList(new Object[] {order}))), Boolean.TRUE, plan};
        for (int n = 0; n < parts.length; n++) parts[n] = n < known.length ? known[n] : scala.Option.empty();  // a hint, from Spark 4 on
        return (LogicalPlan) made.newInstance(parts);
    }

    private List types() {
        List types = new ArrayList();
        for (int n = 0; n < keys.size(); n++) types.add(((Expression) keys.get(n)).dataType());
        return types;
    }

    /** The keys of each row of the side, in columns key0, key1 and so on. */
    LogicalPlan rows(String marker) throws Exception {
        LogicalPlan plan = kind.equals("files") ? marked((LogicalRelation) node, marker) : node;
        List kept = plainFilters();
        for (int n = 0; n < kept.size(); n++) plan = new Filter((Expression) kept.get(n), plan);
        List named = new ArrayList();
        for (int n = 0; n < keys.size(); n++) {
            named.add(new Alias((Expression) keys.get(n), "key" + n, NamedExpression$.MODULE$.newExprId(), Scala.toSeq(new ArrayList()), scala.Option.empty(), Scala.toSeq(new ArrayList())));
        }
        return new Project(Scala.toSeq(named), plan);
    }

    private static LogicalPlan marked(LogicalRelation leaf, String marker) throws Exception {
        HadoopFsRelation files = (HadoopFsRelation) leaf.relation();
        scala.collection.immutable.Map options = (scala.collection.immutable.Map) files.options().updated(marker, "true");
        return Relations.with(leaf, new HadoopFsRelation(files.location(), files.partitionSchema(), files.dataSchema(), files.bucketSpec(), files.fileFormat(), options, files.sparkSession()));
    }
}

/** Runs plans that find keys, for a query that waits for them while it is planned. */
class KeyJobs {
    final String marker;
    private final SessionState session;
    private final SparkContext context;
    private final Properties properties;

    KeyJobs(String marker, SessionState session, SparkContext context, Properties properties) {
        this.marker = marker;
        this.session = session;
        this.context = context;
        this.properties = properties;
    }

    /** The rows of a plan, each once and as text or numbers, or why they cannot be had; JSON. */
    String run(LogicalPlan plan, List types, int limit, long milliseconds) throws Exception {
        String tag = "lakeindex-" + java.util.UUID.randomUUID();
        FutureTask task = new FutureTask(new KeyJob(plan, session, context, properties, tag));
        Thread thread = new Thread(task, "lakeindex-join-keys");
        thread.setDaemon(true);
        thread.start();
        try {
            return json(Arrays.asList((Object[]) task.get(milliseconds, TimeUnit.MILLISECONDS)), types, limit);
        } catch (TimeoutException late) {
            task.cancel(true);
            context.cancelJobsWithTag(tag);
            return said("unknown", "they were not there after " + milliseconds + " ms");
        }
    }

    static String json(List rows, List types, int limit) throws Exception {
        Set found = new LinkedHashSet();
        for (int n = 0; n < rows.size() && found.size() < limit; n++) {
            InternalRow row = (InternalRow) rows.get(n);
            List values = new ArrayList();
            for (int m = 0; m < types.size(); m++) {
                Object value = row.isNullAt(m) ? null : row.get(m, (DataType) types.get(m));
                if (value instanceof UTF8String) {
                    String text = value.toString();
                    if (!UTF8String.fromString(text).equals(value)) return said("unknown", "a key of them is no text");
                    value = text;
                }
                values.add(value == null || value instanceof Number || value instanceof Boolean ? value : value.toString());
            }
            found.add(values);
        }
        return said("keys", found);
    }

    static String said(String what, Object value) throws Exception {
        Map said = new HashMap();
        said.put(what, value);
        return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(said);
    }
}

/** Runs a plan in a thread of its own, as a query of the one whose plan is made. */
class KeyJob implements Callable {
    /** Set in a thread that finds keys: the query that waits for them is being decided on, and nothing else meanwhile. */
    static final ThreadLocal RUNNING = new ThreadLocal();
    private final LogicalPlan plan;
    private final SessionState session;
    private final SparkContext context;
    private final Properties properties;
    private final String tag;

    KeyJob(LogicalPlan plan, SessionState session, SparkContext context, Properties properties, String tag) {
        this.plan = plan;
        this.session = session;
        this.context = context;
        this.properties = properties;
        this.tag = tag;
    }

    public Object call() {
        RUNNING.set(Boolean.TRUE);  // in a thread of its own
        context.setLocalProperties(properties);
        context.addJobTag(tag);
        QueryExecution execution = session.executePlan(plan, CommandExecutionMode.SKIP());
        return SQLExecution.withNewExecutionId(execution, scala.Option.apply("keys of a join's side"), new KeyRows(execution));
    }
}

class KeyRows extends scala.runtime.AbstractFunction0 {
    private final QueryExecution execution;

    KeyRows(QueryExecution execution) { this.execution = execution; }

    public Object apply() { return execution.executedPlan().executeCollect(); }
}
