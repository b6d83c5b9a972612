"""What operators do when Airflow runs their tasks again: retried, cleared, the run deleted and made again, a day by a
backfill, one mapped task of several; and what is advised for a transaction of which a part was cleared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_index.testing import DagRunReport
from spark_apps import open_table
from tests.airflow.lake import Lake
from tests.airflow.test_killing import wait_until

pytestmark = pytest.mark.by_turn(24, whole=True, first=20)


def land(lake: Lake, rows: str) -> None:
    sql = f"SELECT CAST(id AS bigint) AS id, note, p FROM VALUES {rows} AS t(id, note, p)"
    lake.run("clearing_base", {"rows": sql})


def rows(lake: Lake) -> dict[int, str]:
    return {row["id"]: row["note"] for row in open_table(lake.warehouse / "db/cleared").read().to_pylist()}


@dataclass
class Cleared:
    """A run whose tasks were each retried once, and cleared when others had written.

    ``tries`` are those of the first run; the others are of both: how many commits each task has, what it returned, and
    the rows of the table.
    """

    run: DagRunReport
    tries: dict[str, int]
    commits: list[dict[str, int]]
    returned: list[dict[str, Any]]
    rows: list[dict[int, str]]


@pytest.fixture(scope="module")
def cleared(lake: Lake) -> Cleared:
    land(lake, "(1, 'base', 'x'), (2, 'base', 'x')")
    run = lake.run("clearing", timeout=900)
    tries = {row["task_id"]: row["try_number"] for row in lake.client.task_instances("clearing", run.run_id)}
    seen = Cleared(run, tries, [], [], [])

    def look() -> None:
        ids = [one.txn_id for one in lake.timeline("db/cleared").commits() if one.operation != "abort"]
        seen.commits.append({task: sum(f".{task}." in one for one in ids) for task in tries})
        # A try that finds its window closed has no receipt.
        done = [task for task, state in seen.run.tasks.items() if state == "success" and task != "closed"]
        seen.returned.append({task: lake.client.xcom("clearing", run.run_id, task) for task in done})
        seen.rows.append(rows(lake))

    look()
    land(lake, "(1, 'back', 'x'), (5, 'extra', 'y'), (9, 'landed', 'x')")
    lake.client.clear("clearing", run.run_id)
    seen.run = lake.client.wait("clearing", run.run_id, timeout=900)
    look()
    return seen


def test_given_a_try_that_was_lost_behind_its_commit_when_retried_then_it_commits_nothing_more(
    cleared: Cleared,
) -> None:
    assert set(cleared.tries.values()) == {2}
    assert set(cleared.commits[0].values()) == {1}, cleared.commits


def test_given_others_who_wrote_since_when_cleared_then_each_task_works_again_on_what_there_is(
    cleared: Cleared,
) -> None:
    first, again = cleared.returned
    assert cleared.commits[1] == {task: 1 if task == "insert" else 2 for task in cleared.tries}
    assert again.keys() == cleared.tries.keys() - {"insert", "closed"} and all(
        again[task] != first[task] for task in again
    )
    assert (first["build"]["operation"], again["build"]["operation"]) == ("create_index", "refresh_index")
    assert cleared.rows[0] == {2: "base", 3: "new", 7: "seven"}
    assert cleared.rows[1] == {2: "base", 3: "new", 7: "seven", 9: "landed"}, "what came back is erased again"


def test_given_rows_that_it_inserted_when_an_insert_is_cleared_then_it_fails_at_once_and_names_its_commit(
    lake: Lake, cleared: Cleared
) -> None:
    receipt, run_id = cleared.returned[0]["insert"], cleared.run.run_id
    assert cleared.run.tasks["insert"] == "failed"
    assert f"in version {receipt['version']} (transaction {receipt['txn_id']})" in lake.client.log(
        "clearing", run_id, "insert", 3
    )


def test_given_a_part_of_a_transaction_that_was_cleared_when_the_advice_is_followed_then_all_of_it_is_published(
    lake: Lake, cleared: Cleared
) -> None:
    run_id = lake.run("clearing_stages").run_id
    lake.client.clear("clearing_stages", run_id, "load.v", include_downstream=True)
    report = lake.client.wait("clearing_stages", run_id)
    assert report.tasks["load.commit"] == "failed", report.tasks
    tries = {row["task_id"]: row["try_number"] for row in lake.client.task_instances("clearing_stages", run_id)}
    log = lake.client.log("clearing_stages", run_id, "load.commit", tries["load.commit"])
    assert (tries["load.begin"], tries["load.w"], tries["load.commit"]) == (2, 1, 2), "and it was not retried"
    assert "StageMismatch" in log and "clear the task that began the transaction with all that comes after it" in log

    lake.client.clear("clearing_stages", run_id, "load.begin", include_downstream=True)

    assert lake.client.wait("clearing_stages", run_id).state == "success"


def versions(lake: Lake, run_id: str) -> list[int]:
    """What the two mapped tasks of the daily DAG have committed in a run, once it has ended."""
    report = lake.client.wait("clearing_daily", run_id)
    assert report.state == "success", lake.client.describe(report)
    found = [lake.client.xcom("clearing_daily", run_id, "several", map_index=index) for index in (0, 1)]
    return [receipt["version"] for receipt in found]


def test_given_a_run_that_was_deleted_when_made_again_under_its_id_then_it_works_again(lake: Lake) -> None:
    lake.client.wait_for_dags("clearing_daily")
    run_id = lake.client.trigger("clearing_daily", run_id="again")
    first = versions(lake, run_id)
    lake.client.delete_run("clearing_daily", run_id)
    lake.client.trigger("clearing_daily", run_id=run_id)

    assert min(versions(lake, run_id)) > max(first)


def test_given_one_mapped_task_when_run_again_then_it_alone_works_again(lake: Lake) -> None:
    run_id = lake.client.trigger("clearing_daily")
    first = versions(lake, run_id)

    lake.client.clear("clearing_daily", run_id, ["several", 1])  # type: ignore[arg-type]

    second = versions(lake, run_id)
    assert second[0] == first[0] and second[1] > max(first)


def test_given_a_day_when_a_backfill_runs_it_again_then_its_tasks_work_again(lake: Lake) -> None:
    day = "2024-01-05T00:00:00Z"
    asked = {"dag_id": "clearing_daily", "from_date": day, "to_date": day, "reprocess_behavior": "completed"}

    def backfilled() -> list[int]:
        path = f"backfills/{lake.client.post('backfills', asked)['id']}"
        assert wait_until(lambda: lake.client.get(path)["completed_at"], 300)
        [run] = lake.client.get("dags/clearing_daily/dagRuns", run_type="backfill")["dag_runs"]
        return versions(lake, run["dag_run_id"])

    first = backfilled()
    assert min(backfilled()) > max(first)
