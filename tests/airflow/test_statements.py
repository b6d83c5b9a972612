"""Index statements by a real scheduler: from a template, once though tried twice, and refused before Spark starts."""

from __future__ import annotations

import pytest

from airflow_provider_index.testing import DagRunReport
from tests.airflow.lake import Lake

# One run of a DAG serves all of them.
pytestmark = pytest.mark.by_turn(16, whole=True, first=2)


def begin_runs(lake: Lake) -> None:
    lake.begin("statements")


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    return lake.end_of("statements", expect="failed")


def test_a_script_from_a_file_is_done_once_though_its_task_was_tried_twice(lake: Lake, run: DagRunReport) -> None:
    operations = [commit.operation for commit in lake.timeline("db/towns").commits()]
    assert operations == ["create", "create_index", "upsert", "refresh_index"]

    made = lake.client.xcom("statements", run.run_id, "make")
    assert [answer["receipt"]["version"] for answer in made] == [0, 1]
    assert "committed already; nothing is written again" in lake.client.log("statements", run.run_id, "make", 2)


def test_the_answers_of_all_statements_are_handed_on(lake: Lake, run: DagRunReport) -> None:
    rebuilt, shown = lake.client.xcom("statements", run.run_id, "look")

    assert (rebuilt["statement"], rebuilt["receipt"]["version"]) == ("ALTER INDEX … REBUILD", 3)
    row = dict(zip(shown["columns"], shown["rows"][0], strict=True))
    assert (row["index"], row["covered_files"], row["lagging_files"]) == ("by_city", 1, 0)
    assert (row["deferred"], row["comment"]) == (True, "towns")


def test_a_mistake_fails_the_task_at_once_and_nothing_of_the_script_is_run(lake: Lake, run: DagRunReport) -> None:
    [row] = [row for row in lake.client.task_instances("statements", run.run_id) if row["task_id"] == "mistake"]
    assert row["try_number"] == 1
    log = lake.client.log("statements", run.run_id, "mistake")
    assert "Line 1, column 38: expected INDEX or TABLE, found 'INDX'" in log and "Submitting" not in log
    assert list(lake.timeline("db/towns").head.indexes) == ["by_city"]
