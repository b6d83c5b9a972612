"""Refreshing, dropping, restoring and cleaning by a real scheduler, each seen in the table's log and on disk."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps.storage.errors import SnapshotExpired
from spark_apps.timeline.model import DATA_TREE
from tests.airflow.lake import Lake

# One run of a DAG serves all of them.
pytestmark = pytest.mark.by_turn(16, whole=True, first=10)


def begin_runs(lake: Lake) -> None:
    lake.begin("upkeep")


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    return lake.end_of("upkeep")


def xcom_of(lake: Lake, run: DagRunReport, task: str) -> dict[str, Any]:
    return lake.client.xcom("upkeep", run.run_id, task)


def test_every_step_is_one_commit_under_the_receipt_that_its_task_handed_on(lake: Lake, run: DagRunReport) -> None:
    steps = ["load", "build", "write", "refresh", "mend", "drop", "restore", "clean"]
    receipts = [xcom_of(lake, run, step) for step in steps]
    commits = {commit.txn_id: commit for commit in lake.timeline("db/kept").commits()}

    assert [commits[receipt["txn_id"]].operation for receipt in receipts] == [
        "upsert", "create_index", "upsert", "refresh_index", "repair_index", "drop_index", "restore", "expire",
    ]  # fmt: skip
    assert [receipt["version"] for receipt in receipts] == list(range(1, 9))


def test_a_deferred_index_is_empty_until_its_refresh_and_then_agrees_with_the_rows(
    lake: Lake, run: DagRunReport
) -> None:
    timeline = lake.timeline("db/kept")
    lag = {
        step: timeline.rebuild(xcom_of(lake, run, step)["version"]).index("by_city").lag
        for step in ("write", "refresh")
    }
    assert len(lag["write"]) == 2 and not lag["refresh"]
    refreshed = xcom_of(lake, run, "refresh")["metrics"]
    assert (refreshed["mode"], refreshed["entries"]) == ("incremental", 150)
    report = xcom_of(lake, run, "verify")["by_city"]
    assert (report["ok"], report["rows"], report["entries"]) == (True, 150, 150)


def test_a_damaged_index_is_rebuilt_in_one_commit_whose_receipt_tells_what_was_wrong(
    lake: Lake, run: DagRunReport
) -> None:
    metrics = xcom_of(lake, run, "mend")["metrics"]

    assert metrics["repaired"] == ["by_city"]
    assert metrics["by_city.unreadable"] == 1


def test_a_restore_brings_the_rows_back_and_leaves_a_dropped_index_dropped(lake: Lake, run: DagRunReport) -> None:
    head = lake.timeline("db/kept").head

    assert head.indexes == {}
    assert sum(file.rows for file in head.files(DATA_TREE)) == 100


def test_cleaning_deletes_what_the_plan_said_and_nothing_that_is_needed(lake: Lake, run: DagRunReport) -> None:
    plan, cleaned = xcom_of(lake, run, "plan"), xcom_of(lake, run, "clean")["metrics"]
    timeline, root = lake.timeline("db/kept"), lake.warehouse / "db" / "kept"

    assert plan["files"] == cleaned["files_deleted"] > 0
    assert plan["bytes"] == cleaned["bytes_deleted"]
    assert not [path for path in (root / "_index" / "indexes").rglob("*") if path.is_file()]
    stored = {path for path in (root / "data").rglob("*") if path.is_file()}
    needed = {root / file.path for file in timeline.head.files(DATA_TREE)}
    # With the checksums that Hadoop keeps beside files on local disk.
    assert stored == needed | {path.with_name(f".{path.name}.crc") for path in needed}
    with pytest.raises(SnapshotExpired):
        timeline.at(1)
