"""A stop-write window in a DAG: its holder works, others are refused, and its epoch is worth nothing
afterwards."""

from __future__ import annotations

import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from tests.airflow.lake import Lake
from tests.spark_apps.timeline.test_catalog_names import registered

pytestmark = pytest.mark.by_turn(16, whole=True, first=2)


def begin_runs(lake: Lake) -> None:
    registered(lake.warehouse, "prod.db.trips")
    lake.begin("windows")


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    return lake.end_of("windows", expect="failed")


def log(lake: Lake, run: DagRunReport, task: str) -> str:
    return lake.client.log("windows", run.run_id, task)


def test_a_table_is_found_by_the_name_that_a_catalog_has_for_it(lake: Lake, run: DagRunReport) -> None:
    assert run.tasks["named_open"] == run.tasks["named_close"] == "success"
    log = Store(Warehouse(str(lake.warehouse)).locate("prod.db.trips"))
    head = Timeline.load(log).head
    assert head.version == 2 and not head.windows, "a window was opened there, and closed"


def test_the_plan_tells_counts_and_changes_nothing(lake: Lake, run: DagRunReport) -> None:
    plan = lake.client.xcom("windows", run.run_id, "plan")

    assert {(one["partition"], one["from_buckets"], one["to_buckets"]) for one in plan["partitions"]} == {
        ("part=p0", 1, 3), ("part=p1", 1, 3),
    }  # fmt: skip


def test_the_holder_works_while_others_are_refused_with_holder_scope_and_deadline(
    lake: Lake, run: DagRunReport
) -> None:
    assert run.tasks["quiet.rescale"] == "success"
    assert run.tasks["quiet.writer"] == "failed"
    refusal = log(lake, run, "quiet.writer")
    assert "StopWriteWindowOpen" in refusal
    assert "Submitting" not in refusal, "it is refused before Spark starts"
    assert "windows.quiet.open" in refusal and "the whole table" in refusal and "UTC" in refusal


def test_after_the_window_the_same_write_succeeds_with_the_new_bucket_counts(lake: Lake, run: DagRunReport) -> None:
    assert run.tasks["quiet.close"] == "success"
    assert run.tasks["after"] == "success"
    state = lake.timeline("db/windowed").head
    assert {entry.buckets for entry in state.partitions.values()} == {3}
    assert not state.windows


def test_an_epoch_that_has_ended_is_refused_at_once(lake: Lake, run: DagRunReport) -> None:
    assert run.tasks["fenced"] == "failed"
    said = log(lake, run, "fenced")
    assert "WindowNotOpen" in said or "FencedOff" in said
    [row] = [one for one in lake.client.task_instances("windows", run.run_id) if one["task_id"] == "fenced"]
    assert row["try_number"] == 1


def test_closing_twice_is_told_and_no_error_but_closing_what_never_was_is(lake: Lake, run: DagRunReport) -> None:
    assert run.tasks["again"] == "success"
    assert "has ended" in log(lake, run, "again")
    assert run.tasks["never"] == "failed"
    assert "WindowNotOpen" in log(lake, run, "never") and "Nothing was changed" in log(lake, run, "never")
