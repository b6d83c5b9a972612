"""Delta's own maintenance of registered tables: OPTIMIZE, VACUUM and RESTORE under a transaction of our log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark_apps import IndexedTable
from spark_apps.jobs.job import Job
from spark_apps.maintenance.plan import DueWork, due_works, plan_maintenance
from spark_apps.maintenance.policies import Budget
from spark_apps.native import delta
from spark_apps.programs.maintain_table import maintain_table
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Requested
from spark_apps.timeline.transactions import abort, live_attempts_of
from tests.connectors.killed import OFTEN, POINTS, run_killed
from tests.spark_apps.maintenance.lake import survey
from tests.spark_apps.small_tables import in_order

pytestmark = pytest.mark.usefixtures("delta")

FILES, ROWS = 8, 400


def made(spark: Any, path: Path, **properties: str) -> str:
    """Make a table of small files, whose keys are spread over all of them; return its address."""
    rows = spark.range(ROWS).selectExpr("id", f"id * 7919 % {ROWS} AS key", "cast(id % 7 AS int) AS n")
    writer = rows.repartitionByRange(FILES, "id").write.format("delta")
    for name, value in properties.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save(str(path))
    return str(path)


@pytest.fixture
def trips(spark: Any, tmp_path: Path) -> IndexedTable:
    table = IndexedTable.register(spark, made(spark, tmp_path / "trips"), "delta")
    table.create_index("by_key", "secondary", ["key"])
    return table


def commits(table: IndexedTable) -> list[dict[str, Any]]:
    """Return what each commit of the table's own log says of itself, oldest first."""
    log = Path(table.definition.source.location, "_delta_log")  # type: ignore[union-attr]
    found = []
    for file in sorted(log.glob("*.json")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found.append(next(line["commitInfo"] for line in lines if "commitInfo" in line))
    return found


def of(table: IndexedTable, operation: str) -> list[dict[str, Any]]:
    return [one for one in commits(table) if one["operation"] == operation]


def rows_of(spark: Any, table: IndexedTable) -> list[Any]:
    return in_order(spark.read.format("delta").load(table.definition.source.location).collect())  # type: ignore[union-attr]


def test_given_small_files_then_optimize_is_planned_made_once_and_told_in_the_receipt(spark, trips):
    rows, before = rows_of(spark, trips), len(commits(trips))
    plan = trips.maintain_source("optimize", plan_only=True).to_dict()
    assert (plan["files"], plan["partitions"], plan["commits"]) == (FILES, 1, True)
    assert len(commits(trips)) == before and len(trips.history()) == 2

    receipt = trips.maintain_source("optimize", txn_id="night")
    [optimized] = of(trips, "OPTIMIZE")
    assert json.loads(optimized["userMetadata"]) == {"lakeindex.transaction": "night"}
    said = receipt.metrics
    assert (said["version_before"], said["version_after"], said["commit"], said["files"]) == ("0", "1", "1", 1)
    assert (said["delta.numRemovedFiles"], said["delta.numAddedFiles"], said["foreign_commits"]) == (FILES, 1, 0)
    assert (said["source.files_removed"], said["source.files_added"]) == (FILES, 1)
    assert trips.history()[-1].operation == "maintain_source"

    again = trips.maintain_source("optimize", txn_id="night")
    assert again.version == receipt.version and len(of(trips, "OPTIMIZE")) == 1
    nothing = trips.maintain_source("optimize")
    assert nothing.version is None and len(of(trips, "OPTIMIZE")) == 1

    assert trips.indexes["by_key"].lagging
    trips.refresh_index("by_key")
    assert not trips.indexes["by_key"].lagging and trips.verify("by_key").ok
    assert rows_of(spark, trips) == rows


# --- a driver that dies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_given_a_driver_killed_at_any_point_then_a_retry_makes_no_second_optimize(spark, trips, point):
    rows = rows_of(spark, trips)
    run_killed(spark, trips, "optimize", {}, "night", point)
    # What the JVM was asked for goes on, beside the retry.
    receipt = retried(spark, trips, "optimize", {}, "night")
    [optimized] = of(trips, "OPTIMIZE")
    assert json.loads(optimized["userMetadata"]) == {"lakeindex.transaction": "night"}
    assert receipt.metrics["commit"] == "1" and receipt.metrics["files"] == 1
    if point != "during the call":
        assert receipt.metrics.get("found", False) is (point == "after the call")
    assert rows_of(spark, trips) == rows

    # Another round is another transaction: it makes the call again.
    spark.range(ROWS, ROWS + 9).selectExpr("id", "id AS key", "1 AS n").write.format("delta").mode("append").save(
        trips.definition.source.location
    )
    IndexedTable.load(spark, trips.uri).maintain_source("optimize", txn_id="cleared")
    assert len(of(trips, "OPTIMIZE")) == 2


@pytest.mark.parametrize("point", [one for one in OFTEN if one.startswith("after")])
def test_given_a_driver_killed_at_a_restore_then_a_commit_of_another_writer_since_is_not_taken_back(
    spark, trips, point
):
    before = rows_of(spark, trips)
    location = trips.definition.source.location
    spark.sql(f"DELETE FROM delta.`{location}` WHERE n = 3")
    run_killed(spark, trips, "restore", {"version": 0}, "back", point)
    spark.range(1000, 1001).selectExpr("id", "id AS key", "1 AS n").write.format("delta").mode("append").save(location)
    receipt = retried(spark, trips, "restore", {"version": 0}, "back")
    assert len(of(trips, "RESTORE")) == 1 and receipt.operation == "restore_source"
    assert len(rows_of(spark, trips)) == len(before) + 1
    refreshed = IndexedTable.load(spark, trips.uri)
    refreshed.refresh_index("by_key")
    assert refreshed.verify("by_key").ok


@pytest.mark.parametrize("point", [one for one in OFTEN if not one.startswith("during")])
def test_given_a_driver_killed_at_a_vacuum_then_a_retry_makes_it_again_and_says_so(spark, trips, point):
    run_killed(spark, trips, "vacuum", {}, "clean", point)
    receipt = retried(spark, trips, "vacuum", {}, "clean")
    assert receipt.metrics.get("made_again", False) is (point != "after the receipt")
    assert receipt.version is not None


def retried(spark: Any, table: IndexedTable, call: str, arguments: dict[str, Any], txn: str) -> Any:
    """Do what a retry of an operator does: end what the killed one has left, and run the call again."""
    timeline = Timeline.load(Store(table.uri))
    for attempt in live_attempts_of(timeline, txn):
        abort(timeline, txn, attempt, "its driver was killed")
    return IndexedTable.load(spark, table.uri).maintain_source(call, arguments, txn_id=txn)


def test_given_another_try_that_commits_first_then_its_commit_is_taken_over(spark, trips, monkeypatch):
    """A driver that was taken for dead goes on: of two calls under one id, Delta's own check lets one through."""
    make = delta.DeltaMaintenance.make

    def overtaken(self, call, arguments, txn_id):
        make(self, call, arguments, txn_id)
        raise_conflict(spark)

    def raise_conflict(spark):
        spark._jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser.parseDataType("no type at all")

    monkeypatch.setattr(delta.DeltaMaintenance, "make", overtaken)
    receipt = trips.maintain_source("optimize", txn_id="night")
    assert receipt.metrics["commit"] == "1" and len(of(trips, "OPTIMIZE")) == 1


# --- what is deleted --------------------------------------------------------------------------------------------------


def test_given_old_files_then_vacuum_takes_the_tables_own_retention_and_nothing_less(spark, tmp_path):
    rule = {"delta__deletedFileRetentionDuration": "interval 10 days"}
    table = IndexedTable.register(spark, made(spark, tmp_path / "t", **rule), "delta")
    table.maintain_source("optimize")
    files = set(tmp_path.glob("t/*.parquet"))
    age(tmp_path / "t", 9 * 86400)
    table.maintain_source("vacuum")
    assert set(tmp_path.glob("t/*.parquet")) == files  # nine days are not ten
    with pytest.raises(errors.InvalidInput, match=r"for 24 hours, and the table .* keeps them for 240"):
        table.maintain_source("vacuum", {"retain_hours": 24})
    assert set(tmp_path.glob("t/*.parquet")) == files

    # A session that has switched Delta's rule off does not loosen it here.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        with pytest.raises(errors.InvalidInput, match="keeps them for 240"):
            table.maintain_source("vacuum", {"retain_hours": 0})
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    age(tmp_path / "t", 11 * 86400)
    plan = table.maintain_source("vacuum", plan_only=True).to_dict()
    assert plan["retain_hours"] == 240 and plan["commits"] is False
    assert set(tmp_path.glob("t/*.parquet")) == files
    receipt = table.maintain_source("vacuum")
    assert len(set(tmp_path.glob("t/*.parquet"))) == 1
    assert receipt.version is not None and table.history()[-1].operation == "maintain_source"


def age(table: Path, seconds: float) -> None:
    """Let the files of a table look as if they were written long ago, as the time of a removal in its log does."""
    for file in table.rglob("*"):
        os.utime(file, (time.time() - seconds, time.time() - seconds))
    for commit in (table / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = int((time.time() - seconds) * 1000)
        commit.write_text("\n".join(map(json.dumps, lines)))
    for crc in (table / "_delta_log").glob("*.crc"):
        crc.unlink()


def test_given_a_cleaning_without_native_then_no_file_of_the_table_is_deleted(spark, trips, tmp_path):
    trips.maintain_source("optimize")
    age(tmp_path / "trips", 30 * 86400)
    files = set(tmp_path.glob("trips/*.parquet"))
    assert len(files) == FILES + 1
    trips.refresh_index("by_key")
    trips.clean(retain_versions=1, retain_seconds=0)
    assert set(tmp_path.glob("trips/*.parquet")) == files and not of(trips, "VACUUM START")


def test_given_an_attempt_that_began_before_the_files_would_go_then_vacuum_waits_and_says_for_what(
    spark, trips, tmp_path, monkeypatch
):
    timeline = Timeline.load(Store(trips.uri))
    old = msgspec.json.encode(
        Requested("build", 1, timeline.head.version, "create_index", ("work",), time.time() - 30 * 86400, "n")
    )
    Store(trips.uri).put("_index/transactions/build/000001/requested.json", old)
    Store(trips.uri).put(
        "_index/transactions/build/000001/heartbeat.json", msgspec.json.encode({"at": time.time(), "phase": "scan"})
    )
    [held] = trips.maintain_source("vacuum", plan_only=True).held_back
    assert "create_index (transaction build)" in held
    with pytest.raises(errors.ConcurrentWrite, match=r"create_index .transaction build. is at work"):
        trips.maintain_source("vacuum")
    abort(timeline, "build", 1, "given up")
    assert trips.maintain_source("vacuum").version is not None


# --- what is refused ----------------------------------------------------------------------------------------------


def test_given_a_log_below_the_tables_folder_then_it_is_refused(spark, tmp_path):
    path = made(spark, tmp_path / "t")
    for root in ("t/indexes", "t/_indexes"):
        with pytest.raises(errors.InvalidInput, match="one inside the other"):
            IndexedTable.register(spark, path, "delta", index_root=str(tmp_path / root))


def test_given_calls_that_cannot_be_meant_then_nothing_is_done(spark, trips, tmp_path):
    before = len(commits(trips))
    for call, arguments, said in (
        ("vacuume", {}, "Did you mean 'vacuum'"),
        ("optimize", {"zorder": ["key"]}, "Did you mean 'zorder_by'"),
        ("restore", {}, "Give one of version, timestamp"),
        ("restore", {"version": "1; DROP TABLE t"}, "whole number"),
        ("optimize", {"full": True}, "for tables with CLUSTER BY"),
    ):
        with pytest.raises(errors.InvalidInput) as raised:
            trips.maintain_source(call, arguments)
        assert said in str(raised.value)
    own = IndexedTable.create(spark, str(tmp_path / "own"), "id bigint", ["id"])
    with pytest.raises(errors.InvalidInput, match="no registered one"):
        own.maintain_source("optimize")
    # A text of SQL is an expression, and no more.
    with pytest.raises(errors.StorageError, match="optimize failed"):
        trips.maintain_source("optimize", {"where": "n = 1; DELETE FROM t"})
    assert len(commits(trips)) == before


def test_given_a_window_of_another_holder_then_nothing_is_called(spark, trips):
    window = trips.open_window("somebody else")
    with pytest.raises(errors.StopWriteWindowOpen):
        trips.maintain_source("optimize")
    assert not of(trips, "OPTIMIZE")
    receipt = trips.maintain_source("optimize", window=window.epoch)
    assert receipt.version is not None
    trips.close_window(window.epoch)


def test_given_a_foreign_commit_within_the_window_then_the_action_is_refused(spark, trips):
    window = trips.open_window("night")
    location = trips.definition.source.location
    spark.sql(f"UPDATE delta.`{location}` SET n = 9 WHERE id = 1")
    with pytest.raises(errors.ConcurrentWrite, match=r"committed version 1 .UPDATE. .* since the window"):
        trips.maintain_source("optimize", window=window.epoch)
    trips.close_window(window.epoch)
    assert not of(trips, "OPTIMIZE") and trips.maintain_source("optimize").metrics["foreign_commits"] == 0


# --- other writers ----------------------------------------------------------------------------------------------------


WRITER = """
import sys, time
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
path, many = sys.argv[1], int(sys.argv[2])
for at in range(many):
    rows = pa.table({"id": pa.array([10000 + at], pa.int64()), "key": pa.array([at], pa.int64()),
                     "n": pa.array([1], pa.int32())})
    write_deltalake(path, rows, mode="append")
    if at % 3 == 2:
        for _ in range(20):
            try:
                DeltaTable(path).delete(f"id = {at}")
                break
            except Exception as error:
                print("again", str(error)[:80], flush=True)
print("done", flush=True)
"""


def test_given_a_foreign_writer_at_the_same_time_then_nothing_is_lost(spark, trips):
    location, many = trips.definition.source.location, 12
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, location, str(many)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    tries = 0
    while writer.poll() is None or not tries:
        tries += 1
        with suppress(errors.ConcurrentWrite):
            trips.maintain_source("optimize")
    said = writer.communicate()[0]
    assert said.endswith("done\n"), said
    assert trips.maintain_source("optimize").version is not None  # whatever became of those before
    ids = {row[0] for row in rows_of(spark, trips)}
    assert ids == ({*range(ROWS)} | {10000 + at for at in range(many)}) - {at for at in range(many) if at % 3 == 2}
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


# --- what OPTIMIZE can do beside --------------------------------------------------------------------------------------


def test_given_a_z_order_and_a_clustered_table_then_optimize_does_both(spark, trips, tmp_path):
    receipt = trips.maintain_source("optimize", {"zorder_by": ["key", "n"]})
    assert "zOrderBy" in json.dumps(of(trips, "OPTIMIZE")) and receipt.metrics["zorder_by"] == ["key", "n"]

    path = tmp_path / "clustered"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, key BIGINT) USING delta CLUSTER BY (key)")
    for at in range(3):
        spark.range(at * 10, at * 10 + 10).selectExpr("id", "id AS key").write.format("delta").mode("append").save(
            str(path)
        )
    table = IndexedTable.register(spark, str(path), "delta")
    with pytest.raises(errors.InvalidInput, match="clustered by key, so Delta refuses a Z-order"):
        table.maintain_source("optimize", {"zorder_by": ["key"]})
    assert table.maintain_source("optimize").metrics["files"] == 1
    assert "clusterBy" in json.dumps(of(table, "OPTIMIZE"))
    if not spark.version.startswith("3."):
        table.maintain_source("optimize", {"full": True})


# --- by policy --------------------------------------------------------------------------------------------------------


def test_given_a_policy_that_names_calls_then_a_night_makes_them_and_the_next_one_has_nothing_to_do(
    spark, trips, tmp_path
):
    rows = rows_of(spark, trips)
    entry = {
        "table": trips.definition.source.location,
        "native": {"optimize": {"small_files": 4}, "vacuum": True},
        "clean": {"every": "0.001s", "retain_versions": 1},
        "verify": False,
        "compact_indexes": False,
    }
    [seen], missed = survey(tmp_path, [entry])
    assert not missed and seen.small["optimize"].files == FILES
    plan = plan_maintenance([seen], missed, Budget(), "nightly")
    [task] = plan.tables()
    # VACUUM is not due, and a clean is none.
    assert [step["kind"] for step in task["steps"]] == ["optimize", "refresh", "clean"]
    job = Job(program="maintain_table", table=task["table"], arguments={"steps": task["steps"]}, txn_id="night")
    receipts = maintain_table(spark, job)
    assert [one.operation for one in receipts] == ["maintain_source", "refresh_index", "clean"]
    assert [one["operation"] for one in commits(trips)] == ["WRITE", "OPTIMIZE"]
    assert json.loads(of(trips, "OPTIMIZE")[0]["userMetadata"])["lakeindex.transaction"] == "night.1"
    after = IndexedTable.load(spark, trips.uri)
    assert not after.indexes["by_key"].lagging and after.verify("by_key").ok and rows_of(spark, after) == rows

    assert [one.operation for one in maintain_table(spark, job)] == [one.operation for one in receipts]
    assert len(of(trips, "OPTIMIZE")) == 1
    [seen], _ = survey(tmp_path, [entry])
    assert {one.kind for one in due_works(seen) if isinstance(one, DueWork)} <= {"clean"}
