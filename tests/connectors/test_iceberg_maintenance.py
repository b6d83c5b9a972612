"""Iceberg's own maintenance of registered tables, under a transaction of our log."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.native import iceberg
from spark_apps.native.interface import TRANSACTION
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, live_attempts_of
from tests.connectors.iceberg_tables import make, registered, warehouse
from tests.connectors.killed import OFTEN, POINTS, run_killed

pytestmark = pytest.mark.usefixtures("iceberg")

FILES, ROWS = 6, 240
_NUMBERS = count()
SMALL = {"options": {"min-input-files": "2", "rewrite-all": "true"}}


@pytest.fixture
def name() -> str:
    return f"prod.db.kept{next(_NUMBERS)}"


@pytest.fixture
def trips(spark: Any, name: str) -> IndexedTable:
    make(spark, name, FILES, ROWS)
    table = registered(spark, name)
    table.create_index("by_key", "secondary", ["key"])
    return table


def snapshots(spark: Any, name: str) -> list[Any]:
    """Return the table's snapshots, oldest first."""
    spark.sql(f"REFRESH TABLE {name}")
    return spark.sql(f"SELECT * FROM {name}.snapshots ORDER BY committed_at").collect()


def of(spark: Any, name: str, txn: str) -> list[Any]:
    return [one for one in snapshots(spark, name) if one.summary.get(TRANSACTION) == txn]


def rows_of(spark: Any, name: str) -> list[Any]:
    return sorted(spark.table(name).collect())


def loaded(spark: Any, table: IndexedTable) -> IndexedTable:
    return IndexedTable.load(spark, table.uri)


def retried(spark: Any, table: IndexedTable, call: str, arguments: dict[str, Any], txn: str) -> Any:
    """Do what a retry of an operator does: end what the killed one has left, and run the call again."""
    timeline = Timeline.load(Store(table.uri))
    for attempt in live_attempts_of(timeline, txn):
        abort(timeline, txn, attempt, "its driver was killed")
    return loaded(spark, table).maintain_source(call, arguments, txn_id=txn)


def test_given_small_files_and_deletes_then_they_are_rewritten_once_and_told_in_the_receipt(spark, trips, name):
    spark.sql(f"DELETE FROM {name} WHERE n = 5")
    spark.sql(f"DELETE FROM {name} WHERE n = 6")
    rows, before = rows_of(spark, name), len(snapshots(spark, name))
    plan = trips.maintain_source("rewrite_data_files", plan_only=True).to_dict()
    assert plan["small_files"] == FILES and plan["delete_files"] >= 2 and plan["commits"]
    assert len(snapshots(spark, name)) == before

    receipt = trips.maintain_source("rewrite_data_files", SMALL, txn_id="night")
    [rewritten] = of(spark, name, "night")
    said = receipt.metrics
    assert said["commit"] == said["version_after"] == str(rewritten.snapshot_id)
    assert (said["rewritten_files"], said["added_files"], said["files"], said["foreign_commits"]) == (FILES, 1, 1, 0)
    assert said["source.files_removed"] == FILES
    assert trips.maintain_source("rewrite_data_files", SMALL, txn_id="night").version == receipt.version
    assert len(of(spark, name, "night")) == 1 and rows_of(spark, name) == rows
    assert trips.indexes["by_key"].lagging
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


def test_given_deletes_and_manifests_then_each_call_commits_with_its_id(spark, trips, name):
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
    for n in (5, 6, 7):
        spark.sql(f"DELETE FROM {name} WHERE n = {n}")
    rows = rows_of(spark, name)
    deletes = trips.maintain_source("rewrite_position_delete_files", SMALL, txn_id="deletes")
    assert deletes.metrics["rewritten_delete_files"] > deletes.metrics["added_delete_files"]
    assert len(of(spark, name, "deletes")) == 1
    assert trips.maintain_source("rewrite_manifests", plan_only=True).figures["manifests"] > 1
    manifests = trips.maintain_source("rewrite_manifests", txn_id="manifests")
    assert manifests.version is not None and len(of(spark, name, "manifests")) == 1
    assert rows_of(spark, name) == rows


def test_given_a_z_order_a_sort_and_a_filter_then_they_are_the_connectors_own(spark, trips, name):
    rows = rows_of(spark, name)
    assert trips.maintain_source("rewrite_data_files", {"zorder_by": ["key", "n"], **SMALL}).metrics["files"] == 1
    with pytest.raises(errors.StorageError, match="rewrite_data_files failed"):
        trips.maintain_source("rewrite_data_files", {"sort": True, **SMALL})  # the table has no sort order
    spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY key")
    assert trips.maintain_source("rewrite_data_files", {"sort": True, **SMALL}).version is not None
    nothing = trips.maintain_source("rewrite_data_files", {"where": "id > 1000000", **SMALL})
    assert nothing.version is None
    with pytest.raises(errors.StorageError):
        trips.maintain_source("rewrite_data_files", {"where": "id > 1) OR (1 = 1; DROP TABLE prod.db.x"})
    assert rows_of(spark, name) == rows


@pytest.mark.parametrize(
    ("call", "point"),
    [*(("rewrite_data_files", one) for one in POINTS), *(("rewrite_manifests", one) for one in OFTEN)],
)
def test_given_a_driver_killed_at_any_point_then_a_retry_makes_no_second_commit(spark, trips, name, call, point):
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id < 3")
    rows, arguments = rows_of(spark, name), SMALL if call == "rewrite_data_files" else {}
    run_killed(spark, trips, call, arguments, "night", point)
    receipt = retried(spark, trips, call, arguments, "night")
    assert len(of(spark, name, "night")) == 1 and receipt.metrics["commit"]
    if point != "during the call":
        assert receipt.metrics.get("found", False) is (point == "after the call")
    assert rows_of(spark, name) == rows


@pytest.mark.parametrize("call", ["expire_snapshots", "remove_orphan_files"])
@pytest.mark.parametrize("point", [one for one in OFTEN if not one.startswith("during")])
def test_given_a_driver_killed_at_a_cleaning_then_a_retry_makes_it_again_and_says_so(spark, trips, name, call, point):
    rows = rows_of(spark, name)
    run_killed(spark, trips, call, {}, "clean", point)
    receipt = retried(spark, trips, call, {}, "clean")
    assert receipt.metrics.get("made_again", False) is (point != "after the receipt") and receipt.version is not None
    assert rows_of(spark, name) == rows


@pytest.mark.parametrize("point", [one for one in OFTEN if not one.startswith("during")])
def test_given_a_driver_killed_at_a_rollback_then_a_commit_since_is_not_taken_back(spark, trips, name, point):
    [first] = snapshots(spark, name)
    spark.sql(f"DELETE FROM {name} WHERE n = 5")
    arguments = {"snapshot_id": first.snapshot_id}
    assert trips.maintain_source("rollback_to_snapshot", arguments, plan_only=True).figures["commits_taken_back"] == 1
    run_killed(spark, trips, "rollback_to_snapshot", arguments, "back", point)
    if point != "before the call":
        spark.sql(f"INSERT INTO {name} VALUES (1000, 1000, 1, 'r1')")
    receipt = retried(spark, trips, "rollback_to_snapshot", arguments, "back")
    assert receipt.operation == "restore_source"
    assert spark.table(name).count() == ROWS + (point != "before the call")
    trips = loaded(spark, trips)
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


def test_given_the_tables_own_rules_then_no_call_loosens_them(spark, trips, name):
    spark.sql(f"DELETE FROM {name} WHERE n = 5")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('history.expire.min-snapshots-to-keep' = '2')")
    for call, arguments, said in (
        ("expire_snapshots", {"retain_hours": 1}, "keeps them for 120"),
        ("expire_snapshots", {"retain_last": 1}, "keeps 2"),
        ("remove_orphan_files", {"retain_hours": 1}, "keeps them for 24 at least"),
        ("rollback_to_snapshot", {"snapshot_id": 17}, "no snapshot 17"),
    ):
        with pytest.raises(errors.InvalidInput) as raised:
            trips.maintain_source(call, arguments)
        assert said in str(raised.value)
    assert trips.maintain_source("expire_snapshots").version is not None
    assert len(snapshots(spark, name)) == 2  # none is five days old


def test_given_a_snapshot_that_is_due_then_its_expiry_is_planned_with_what_the_log_loses(spark, trips, name):
    properties = "'history.expire.max-snapshot-age-ms' = '1'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
    spark.sql(f"DELETE FROM {name} WHERE n = 5")
    time.sleep(0.1)
    plan = trips.maintain_source("expire_snapshots", plan_only=True)
    assert plan.figures["expired_snapshots"] == 1 and "would be expired: the next refresh" in plan.notes[0]
    assert len(snapshots(spark, name)) == 2
    trips.maintain_source("expire_snapshots")
    assert len(snapshots(spark, name)) == 1
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


def test_given_files_that_no_snapshot_names_then_only_old_ones_are_removed(spark, trips, name):
    import os

    folder = Path(trips.definition.source.location, "data")
    old, new = folder / "old.parquet", folder / "new.parquet"
    for file in (old, new):
        file.write_bytes(b"left by a writer that died")
    os.utime(old, (time.time() - 4 * 86400,) * 2)
    assert trips.maintain_source("remove_orphan_files", plan_only=True).figures["retain_hours"] == 72
    assert old.exists()
    receipt = trips.maintain_source("remove_orphan_files")
    assert (old.exists(), new.exists(), receipt.metrics["deleted_files"]) == (False, True, 1)


def test_given_a_log_below_the_tables_folder_then_it_is_refused(spark, name):
    make(spark, name, 2, 20)
    folder = f"{spark.conf.get('spark.sql.catalog.prod.warehouse')}/db/{name.rpartition('.')[2]}"
    with pytest.raises(errors.InvalidInput, match="one inside the other"):
        IndexedTable.register(spark, name, index_root=f"{folder}/indexes")


def test_given_a_cleaning_without_native_then_no_snapshot_is_expired(spark, trips, name):
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '1')")
    spark.sql(f"DELETE FROM {name} WHERE n = 5")
    files = set(Path(trips.definition.source.location).rglob("*"))
    trips.refresh_index("by_key")
    trips.clean(retain_versions=1, retain_seconds=0)
    assert len(snapshots(spark, name)) == 2 and set(Path(trips.definition.source.location).rglob("*")) == files


WRITER = """
import sys
import pyarrow as pa
from pyiceberg.catalog import load_catalog
catalog = load_catalog("lite", type="sql", uri="sqlite:///" + sys.argv[1])
many = int(sys.argv[3])
for at in range(many):
    for _ in range(30):
        table = catalog.load_table(sys.argv[2])
        rows = pa.table({"id": pa.array([10000 + at], pa.int64()), "key": pa.array([at], pa.int64()),
                         "n": pa.array([1], pa.int32()), "rider": ["r"]})
        try:
            table.append(rows)
            break
        except Exception as error:
            print("again", type(error).__name__, flush=True)
print("done", flush=True)
"""


def test_given_a_foreign_writer_at_the_same_time_then_nothing_is_lost(spark, tmp_path):
    name, many = f"lite.db.raced{next(_NUMBERS)}", 10
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lite.db")
    make(spark, name, FILES, ROWS)
    table = registered(spark, name)
    table.create_index("by_key", "secondary", ["key"])
    database = spark.conf.get("spark.sql.catalog.lite.uri").removeprefix("jdbc:sqlite:")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, database, name.removeprefix("lite."), str(many)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    outcomes = []
    while writer.poll() is None or not outcomes:
        try:
            outcomes.append(table.maintain_source("rewrite_data_files", SMALL).version is not None)
        except errors.ConcurrentWrite:
            outcomes.append(False)
    said = writer.communicate()[0]
    assert said.endswith("done\n"), said
    table.maintain_source("rewrite_data_files", SMALL)
    spark.sql(f"REFRESH TABLE {name}")
    assert {row.id for row in spark.table(name).collect()} == {*range(ROWS)} | {10000 + at for at in range(many)}
    table.refresh_index("by_key")
    assert table.verify("by_key").ok and any(outcomes)


def test_given_the_connectors_classes_then_a_table_of_no_snapshot_has_a_version_too(spark, name):
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    table = IndexedTable.register(spark, name, warehouse=warehouse(spark))
    assert table.maintain_source("expire_snapshots").metrics["version_after"] == iceberg._NONE
