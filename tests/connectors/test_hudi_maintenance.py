"""Hudi's own maintenance of registered tables, under a transaction of our log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.native.hudi_calls import HudiMaintenance
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, live_attempts_of
from tests.connectors.hudi_tables import make, rows_of, write
from tests.connectors.killed import OFTEN, run_killed

FILES, ROWS = 3, 120


@pytest.fixture
def trips(hudi: Any, tmp_path: Path) -> IndexedTable:
    """A merge-on-read table with log files in all of its groups."""
    path = str(tmp_path / "trips")
    make(hudi, path, "mor", FILES, ROWS)
    write(rows_of(hudi, 0, ROWS, ROWS).selectExpr("id", "key", "n + 1 AS n", "rider", "p"), path, "upsert")
    table = IndexedTable.register(hudi, path, "hudi")
    table.create_index("by_key", "secondary", ["key"])
    return table


def read(hudi: Any, table: IndexedTable) -> list[Any]:
    return sorted(hudi.read.format("hudi").load(table.definition.source.location).select("id", "key", "n").collect())


def instants(hudi: Any, table: IndexedTable, *actions: str) -> list[str]:
    """Return the instants that are completed of these actions, by the files of the timeline."""
    folder = Path(table.definition.source.location, ".hoodie", "timeline")
    return sorted(
        file.name.partition("_")[0]
        for file in folder.iterdir()
        if "_" in file.name and file.suffix.removeprefix(".") in actions
    )


def compactions(hudi: Any, table: IndexedTable) -> list[str]:
    """Return the compactions: what comes after the bulk insert by which the table was made."""
    return instants(hudi, table, "commit")[1:]


def retried(hudi: Any, table: IndexedTable, call: str, arguments: dict[str, Any], txn: str) -> Any:
    timeline = Timeline.load(Store(table.uri))
    for attempt in live_attempts_of(timeline, txn):
        abort(timeline, txn, attempt, "its driver was killed")
    return IndexedTable.load(hudi, table.uri).maintain_source(call, arguments, txn_id=txn)


def test_given_log_files_then_they_are_compacted_once_and_told_in_the_receipt(hudi, trips):
    rows = read(hudi, trips)
    plan = trips.maintain_source("run_compaction", plan_only=True)
    assert plan.figures["delta_commits"] >= 1 and "lock" in plan.notes[0]
    assert not compactions(hudi, trips)
    receipt = trips.maintain_source("run_compaction", txn_id="night")
    [compacted] = compactions(hudi, trips)
    assert receipt.metrics["commit"] == compacted and receipt.metrics["foreign_commits"] == 0
    assert trips.maintain_source("run_compaction", txn_id="night").version == receipt.version
    assert trips.maintain_source("run_compaction").version is None
    assert read(hudi, trips) == rows and len(compactions(hudi, trips)) == 1
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


@pytest.mark.parametrize("point", [one for one in OFTEN if not one.startswith("during")])
def test_given_a_driver_killed_at_any_point_then_a_retry_makes_no_second_compaction(hudi, trips, point):
    rows = read(hudi, trips)
    run_killed(hudi, trips, "run_compaction", {}, "night", point)
    receipt = retried(hudi, trips, "run_compaction", {}, "night")
    assert [receipt.metrics["commit"]] == compactions(hudi, trips)
    assert receipt.metrics.get("found", False) is (point == "after the call") and read(hudi, trips) == rows


def test_given_a_plan_that_was_made_and_not_executed_then_a_retry_executes_that(hudi, trips, monkeypatch):
    def dies(self: Any, settings: Any) -> Any:
        client = original(self, settings)
        entered = client.__enter__()
        entered.scheduleCompaction(self._extra("night"))
        raise KeyboardInterrupt

    original = HudiMaintenance._client
    with monkeypatch.context() as patch:
        patch.setattr(HudiMaintenance, "_client", dies)
        with pytest.raises(KeyboardInterrupt):
            trips.maintain_source("run_compaction", txn_id="night")
    receipt = retried(hudi, trips, "run_compaction", {}, "night")
    assert [receipt.metrics["commit"]] == compactions(hudi, trips)


def test_given_an_order_then_files_are_clustered_once(hudi, trips):
    rows = read(hudi, trips)
    trips.maintain_source("run_compaction")
    receipt = trips.maintain_source("run_clustering", {"order": ["key"]}, txn_id="cluster")
    assert receipt.metrics["commit"] in instants(hudi, trips, "replacecommit", "clustering")
    assert trips.maintain_source("run_clustering", {"order": ["key"]}, txn_id="cluster").version == receipt.version
    assert read(hudi, trips) == rows
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


def test_given_a_savepoint_then_it_is_made_once_kept_and_gone_back_to_once(hudi, trips):
    rows, location = read(hudi, trips), trips.definition.source.location
    [*_, last] = instants(hudi, trips, "deltacommit")
    at = {"instant": last}
    run_killed(hudi, trips, "create_savepoint", at, "save", "after the call")
    assert retried(hudi, trips, "create_savepoint", at, "save").metrics["found"]
    trips = IndexedTable.load(hudi, trips.uri)
    with pytest.raises(errors.InvalidInput, match="has a savepoint"):
        trips.maintain_source("rollback_to_instant", at)
    write(rows_of(hudi, 0, 5, ROWS).selectExpr("id", "key", "99 AS n", "rider", "p"), location, "upsert")
    assert read(hudi, trips) != rows
    plan = trips.maintain_source("rollback_to_savepoint", at, plan_only=True)
    assert plan.figures["commits_taken_back"] == 1
    run_killed(hudi, trips, "rollback_to_savepoint", at, "back", "after the call")
    write(rows_of(hudi, 5, 6, ROWS).selectExpr("id", "key", "98 AS n", "rider", "p"), location, "upsert")
    assert retried(hudi, trips, "rollback_to_savepoint", at, "back").metrics["found"]
    changed = [new for old, new in zip(rows, read(hudi, trips), strict=True) if old != new]
    assert [row.n for row in changed] == [98]  # what came after the rollback is not taken back
    trips = IndexedTable.load(hudi, trips.uri)
    assert trips.maintain_source("delete_savepoint", at).version is not None
    assert trips.maintain_source("run_clean").version is not None
    trips.refresh_index("by_key")
    assert trips.verify("by_key").ok


def test_given_the_newest_commit_then_it_is_rolled_back_once(hudi, trips):
    location = trips.definition.source.location
    rows = read(hudi, trips)
    write(rows_of(hudi, 0, 5, ROWS).selectExpr("id", "key", "99 AS n", "rider", "p"), location, "upsert")
    [*_, last] = instants(hudi, trips, "deltacommit")
    run_killed(hudi, trips, "rollback_to_instant", {"instant": last}, "back", "after the call")
    assert retried(hudi, trips, "rollback_to_instant", {"instant": last}, "back").metrics["found"]
    assert read(hudi, trips) == rows
