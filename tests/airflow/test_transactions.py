"""Transactions of several tasks on a real Airflow: all of one appears at once, nothing of one that fails, and others go
on meanwhile. Also the DAG that ends windows which were left open."""

from __future__ import annotations

import json
import time

import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps.storage.store import Store
from spark_apps.timeline import windows
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    TableDefinition,
)
from tests.airflow.lake import Lake

pytestmark = pytest.mark.by_turn(16, whole=True, first=12)

EXAMPLES = ("transactions", "windows")
DAG_ID, TABLE = "orders_by_region", "sales/regional_orders"


def make_table(lake: Lake) -> None:
    """The table and its index, empty; without Spark."""
    store = Store(lake.warehouse / TABLE)
    fields = (Field("id", "bigint", False), Field("region", "string"), Field("status", "string"))
    table = TableDefinition("regional_orders", fields, ("id",), ("region",))
    properties = {"tombstones": "eager", "shards": "1"}
    index = IndexDefinition("by_status", "secondary", ("status",), "a1", deferred=True, properties=properties)
    create_table(store, table, (PutHashingConfig(HashingConfig("", 2)), PutIndex(index, covered=True)))


def land(lake: Lake, region: str, ids: range) -> None:
    rows = [{"id": n, "region": region, "status": "open" if n % 3 else "paid"} for n in ids]
    (lake.landing / f"{region}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def begin_runs(lake: Lake) -> None:
    make_table(lake)
    land(lake, "north", range(100))
    land(lake, "east", range(100, 200))
    land(lake, "south", range(0))
    lake.begin(DAG_ID)


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    return lake.end_of(DAG_ID, expect="failed")


def regions(timeline: Timeline) -> dict[str, int]:
    rows_by_region: dict[str, int] = {}
    for file in timeline.head.files(DATA_TREE):
        rows_by_region[file.partition] = rows_by_region.get(file.partition, 0) + file.rows
    return rows_by_region


def test_rows_and_index_of_each_region_appear_in_one_commit_and_the_failed_region_not_at_all(
    lake: Lake, run: DagRunReport
) -> None:
    timeline = lake.timeline(TABLE)
    assert regions(timeline) == {"region=north": 100, "region=east": 100}
    commits = [commit for commit in timeline.commits() if commit.operation == "transaction"]
    assert len(commits) == 2
    for commit in commits:
        trees = {action.tree for action in commit.actions if hasattr(action, "rows")}
        assert trees == {DATA_TREE, "index/by_status@a1"}
        assert commit.metrics["by_status.entries"] == 100
    assert timeline.head.indexes["by_status"].lag == {}, "both refreshed one index, and it is in step"


def test_a_failed_stage_leads_to_a_roll_back_by_a_commit(lake: Lake, run: DagRunReport) -> None:
    tasks = run.tasks
    assert (tasks["south.write"], tasks["south.check"]) == ("success", "failed")
    assert tasks["south.commit"] == "upstream_failed" and tasks["south.roll_back"] == "success"
    txn = lake.client.xcom(DAG_ID, run.run_id, "south.begin")
    assert lake.timeline(TABLE).head.is_aborted(txn["txn_id"], txn["attempt"])
    receipt = lake.client.xcom(DAG_ID, run.run_id, "north.commit")
    assert receipt["operation"] == "transaction" and receipt["metrics"]["write.rows"] == 100


def test_given_the_missing_file_when_the_region_is_cleared_then_it_begins_anew_and_the_others_commit_nothing_twice(
    lake: Lake, run: DagRunReport
) -> None:
    land(lake, "south", range(200, 250))
    lake.client.clear(DAG_ID, run.run_id, "south.begin", include_downstream=True)
    report = lake.client.wait(DAG_ID, run.run_id, timeout=900)

    assert report.state == "success", report.tasks
    timeline = lake.timeline(TABLE)
    assert regions(timeline) == {"region=north": 100, "region=east": 100, "region=south": 50}
    assert sum(commit.operation == "transaction" for commit in timeline.commits()) == 3
    assert timeline.head.indexes["by_status"].lag == {}


def test_the_reaper_ends_a_window_that_was_left_open(lake: Lake, run: DagRunReport) -> None:
    epoch = windows.open_window(lake.timeline(TABLE), "somebody", seconds=0.1).epoch
    time.sleep(0.2)

    lake.run("window_reaper", timeout=300)

    ended = lake.timeline(TABLE).head.ended_windows[epoch]
    assert "somebody" in ended and "window_reaper" in ended
