// Scans of Iceberg's own connector, as the index rule knows them. Compiled together with iceberg_tables.java of sources/,
// where the connector's classes are there.

package lakeindex.iceberg;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

import lakeindex.ExactConnector;
import lakeindex.NamingConnector;
import lakeindex.ScanFile;
import lakeindex.TableConnector;

import org.apache.iceberg.FileScanTask;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

public class IcebergConnector implements TableConnector, NamingConnector, ExactConnector {
    public String format() { return "iceberg"; }

    /**
     * A read, or the target of a command that writes which rows are deleted. A command that rewrites files has filters that
     * say which rows stay: its target is left alone, and Spark narrows it by the files of a read that finds its rows.
     */
    public boolean recognizes(LogicalPlan leaf) {
        if (!IcebergScan.isRead(leaf) || !(operation(leaf) == null || operation(leaf) instanceof SupportsDelta)) return false;
        IcebergScan scan = scan(leaf);
        try {
            return scan != null && !scan.isChosen() && !scan.isOfAppends();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** The command whose target a leaf is; null if it is none's. */
    private static RowLevelOperation operation(LogicalPlan leaf) {
        Object table = ((DataSourceV2ScanRelation) leaf).relation().table();
        return table instanceof RowLevelOperationTable ? ((RowLevelOperationTable) table).operation() : null;
    }

    private static IcebergScan scan(LogicalPlan leaf) {
        try {
            return IcebergScan.of(leaf);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Its tasks are planned when it is made. */
    public boolean isPinned(LogicalPlan leaf) { return IcebergScan.isRead(leaf) || IcebergScan.isCopyOnWrite(leaf); }

    public String address(LogicalPlan leaf) { return scan(leaf).table.location(); }

    public String id(LogicalPlan leaf) { return scan(leaf).table.uuid().toString(); }

    public String name(LogicalPlan leaf) { return scan(leaf).table.name(); }

    /** A read that asks for its rows' files may be what chooses those that a command rewrites. */
    public String purpose(LogicalPlan leaf) {
        if (operation(leaf) != null) return operation(leaf).command().toString().toLowerCase();
        List output = new ArrayList(scala.collection.JavaConverters.asJavaCollection((scala.collection.Iterable) leaf.output()));
        for (int n = 0; n < output.size(); n++) if (((Attribute) output.get(n)).name().equals("_file")) return "command";
        return "read";
    }

    /** One scan may be at several places of a plan, and is changed where it is: a command's writer holds it too. */
    public Object identity(LogicalPlan leaf) { return ((DataSourceV2ScanRelation) leaf).scan(); }

    public Map columns(LogicalPlan leaf) {
        try {
            return scan(leaf).columns();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Each with the locations of its deletes as its state, a line each. */
    public List files(LogicalPlan leaf) {
        List files = new ArrayList();
        List tasks = scan(leaf).tasks;
        for (int n = 0; n < tasks.size(); n++) {
            FileScanTask task = (FileScanTask) tasks.get(n);
            String location = IcebergScan.location(task);
            files.add(new ScanFile(location, location, IcebergScan.lines(IcebergScan.deletes(task)), task.length()));
        }
        return files;
    }

    /** Deletes of a file only come, and all that were there when it was recorded are there now. */
    public boolean holds(LogicalPlan leaf, String then, ScanFile now) { return deletes(now.state).containsAll(deletes(then)); }

    /** The deletes that a state names. Other lines are of columns, which are compared by themselves. */
    private static HashSet deletes(String state) {
        HashSet deletes = new HashSet();
        String[] lines = state.split("\n");
        for (int n = 0; n < lines.length; n++) if (!lines[n].isEmpty() && !lines[n].startsWith("'")) deletes.add(lines[n]);
        return deletes;
    }

    /** Its tasks are planned. */
    public String whyNoCopy(LogicalPlan leaf) { return null; }

    public boolean isSame(LogicalPlan leaf, String then, ScanFile now) { return deletes(then).equals(deletes(now.state)); }

    public LogicalPlan keepOnly(LogicalPlan leaf, List files) { return keep(leaf, files); }

    public LogicalPlan keep(LogicalPlan leaf, List files) {
        IcebergScan scan = scan(leaf);
        HashSet kept = new HashSet();
        for (int n = 0; n < files.size(); n++) kept.add(((ScanFile) files.get(n)).file);
        try {
            scan.keep(kept, IcebergScan.digest(scan.files(), kept));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return leaf;
    }
}
