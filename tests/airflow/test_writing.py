"""Writes by a real scheduler: what a retry does, what a refusal looks like, and where the secrets are not."""

from __future__ import annotations

import pytest

from airflow_provider_index.testing import DagRunReport
from tests.airflow.lake import SECRET, Lake

pytestmark = pytest.mark.by_turn(16, whole=True, first=6)


def begin_runs(lake: Lake) -> None:
    lake.begin("writing")


@pytest.fixture(scope="module")
def run(lake: Lake) -> DagRunReport:
    return lake.end_of("writing", expect="failed")


def test_every_write_is_one_commit_though_a_task_was_tried_twice(lake: Lake, run: DagRunReport) -> None:
    assert [task for task, state in run.tasks.items() if state != "success"] == ["refused"]
    operations = [commit.operation for commit in lake.timeline("db/rows").commits()]
    assert [name for name in operations if name != "abort"] == [
        "create", "upsert", "create_index", "upsert", "insert", "delete", "compact",
    ]  # fmt: skip


def test_a_retry_hands_on_the_receipt_of_the_commit_that_landed(lake: Lake, run: DagRunReport) -> None:
    receipt = lake.client.xcom("writing", run.run_id, "retried")

    assert receipt["version"] == 3
    assert receipt["txn_id"] == list(lake.timeline("db/rows").commits())[3].txn_id
    log = lake.client.log("writing", run.run_id, "retried", 2)
    assert "has committed already; nothing is written again" in log
    assert "Submitting" not in log


def test_several_writes_by_one_app_are_a_commit_each_and_nothing_to_do_is_said(lake: Lake, run: DagRunReport) -> None:
    receipts = lake.client.xcom("writing", run.run_id, "several")

    assert [receipt["version"] for receipt in receipts] == [4, 5, None]
    assert [receipt["operation"] for receipt in receipts] == ["insert", "delete", "delete"]


def test_an_index_that_was_built_is_kept_by_the_writes_after_and_agrees_with_the_rows(
    lake: Lake, run: DagRunReport
) -> None:
    built = lake.client.xcom("writing", run.run_id, "build")
    assert (built["version"], built["operation"], built["metrics"]["entries"]) == (2, "create_index", 1000)
    report = lake.client.xcom("writing", run.run_id, "verify")["by_city"]
    assert (report["ok"], report["rows"], report["entries"]) == (True, 1105, 1105)


def test_a_refusal_fails_the_task_at_once_with_the_tables_own_words(lake: Lake, run: DagRunReport) -> None:
    [row] = [row for row in lake.client.task_instances("writing", run.run_id) if row["task_id"] == "refused"]
    assert row["try_number"] == 1
    log = lake.client.log("writing", run.run_id, "refused")
    assert "KeysExist" in log and "500" in log and "Nothing was changed" in log


def test_a_planted_secret_stands_in_no_log_no_xcom_and_no_rendered_template(lake: Lake, run: DagRunReport) -> None:
    written = [path for path in lake.airflow.home.rglob("*") if path.is_file() and path.suffix != ".db"]
    logs = [path for path in written if path.suffix == ".log"]

    assert len(logs) >= 5
    for path in logs:
        assert SECRET not in path.read_text(errors="replace"), path
    rows = lake.database_rows()
    assert run.run_id in rows and SECRET not in rows
