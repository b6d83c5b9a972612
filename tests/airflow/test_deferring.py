"""Tasks that wait for Spark in the triggerer: the slot is free meanwhile, and whatever happens to the task, its driver
ends, nothing is published by it afterwards, and the work is done once."""

from __future__ import annotations

import signal

import psutil
import pytest

from spark_apps.jobs.job_folder import list_jobs
from spark_apps.storage.store import Store
from spark_apps.timeline.log import commit_key
from spark_apps.timeline.model import Requested
from spark_apps.timeline.transactions import live_requests
from tests.airflow.lake import Lake
from tests.airflow.test_killing import wait_until

DEFERRED = frozenset({"deferred", "failed"})


def drivers(job_id: str) -> list[psutil.Process]:
    """The processes of this machine that work for a job: what its driver's group is made of."""
    processes = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        here = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
        if process.info["status"] != "zombie" and any(job_id in word for word in here):
            processes.append(process)
    return processes


def jobs(lake: Lake, table: str) -> list[str]:
    return sorted(list_jobs(Store(lake.warehouse / "db" / table)))


def wait_for_the_attempt(lake: Lake, dag: str, run_id: str, table: str) -> str:
    """Waits until the run's task is deferred and its driver at work; returns the job's id."""
    state = lake.client.wait_for_task(dag, run_id, "write", DEFERRED, timeout=240)
    assert state == "deferred", lake.client.log(dag, run_id, "write")
    store = Store(lake.warehouse / "db" / table)
    assert wait_until(lambda: store.head(commit_key(0)), 120)
    assert wait_until(lambda: live_requests(lake.timeline(f"db/{table}")), 60)
    [job_id] = jobs(lake, table)
    assert len(drivers(job_id)) >= 1
    assert lake.client.task_states(dag, run_id)["write"] == "deferred"
    return job_id


@pytest.fixture(scope="module")
def late(lake: Lake) -> str:
    """The job of a task that may take 45 seconds."""
    lake.begin("deferring_in_time")
    state = lake.client.wait_for_task(*lake.begun["deferring_in_time"], "write", DEFERRED, timeout=240)
    assert state == "deferred", lake.client.log(*lake.begun["deferring_in_time"], "write")
    [job_id] = jobs(lake, "late")
    return job_id


@pytest.fixture(scope="module")
def cleared(lake: Lake) -> tuple[str, Requested]:
    """A deferred task that was cleared: the job that it had left, and what this had requested."""
    lake.begin("deferring_over_connect", "deferred_cleared", table="deferred_cleared", seconds=600)
    dag_id, run_id = lake.begun["deferred_cleared"]
    job_id = wait_for_the_attempt(lake, dag_id, run_id, "deferred_cleared")
    [request] = live_requests(lake.timeline("db/deferred_cleared"))
    lake.client.clear(dag_id, run_id, "write")
    return job_id, request


@pytest.mark.by_turn(16, first=0)
def test_a_deferred_task_marked_failed_leaves_no_process_and_an_attempt_ended_by_a_commit(lake: Lake) -> None:
    dag_id, run_id = "deferring", lake.trigger("deferring", {"table": "deferred_killed", "seconds": 600})
    job_id = wait_for_the_attempt(lake, dag_id, run_id, "deferred_killed")
    [request] = live_requests(lake.timeline("db/deferred_killed"))
    assert wait_until(lambda: "progress: fetch the rows" in lake.client.log(dag_id, run_id, "write"), 60)

    lake.client.mark(dag_id, run_id, "write", "failed")

    assert wait_until(lambda: not drivers(job_id), 30)
    timeline = lake.timeline("db/deferred_killed")
    assert wait_until(lambda: timeline.refresh().is_aborted(request.txn_id, request.attempt), 10)
    assert request.txn_id not in timeline.head.committed


@pytest.mark.by_turn(16, first=0)
def test_a_deferred_task_that_is_cleared_commits_once(lake: Lake, cleared: tuple[str, Requested]) -> None:
    job_id, request = cleared
    dag_id, run_id = lake.begun["deferred_cleared"]

    report = lake.client.wait(dag_id, run_id, timeout=240)
    assert report.tasks["write"] == "success", lake.client.describe(report) + lake.audit(dag_id, run_id)
    timeline = lake.timeline("db/deferred_cleared")
    [commit] = [commit for commit in timeline.commits() if commit.operation == "upsert"]
    assert commit.txn_id != request.txn_id, "a clear begins a round, whose transaction is another one"
    assert timeline.head.is_aborted(request.txn_id, request.attempt)
    assert wait_until(lambda: not drivers(job_id), 30)


@pytest.mark.by_turn(16, first=4)
def test_execution_timeout_holds_while_the_task_is_deferred(lake: Lake, late: str) -> None:
    _, run_id = lake.begun["deferring_in_time"]

    assert lake.client.wait("deferring_in_time", run_id, timeout=180).state == "failed"

    assert wait_until(lambda: not drivers(late), 10)
    log = lake.client.log("deferring_in_time", run_id, "write")
    # By this package's own clock, and not because the driver had failed.
    assert "execution_timeout is over" in log and "The last lines of the driver" in log
    [task] = [one for one in lake.client.task_instances("deferring_in_time", run_id) if one["task_id"] == "write"]
    assert (task["state"], task["try_number"]) == ("failed", 1)
    # It may have been ended before its driver had made the table; nothing but its making and its end is in the log.
    if (lake.warehouse / "db/late/_index/timeline").exists():
        timeline = lake.timeline("db/late")
        assert live_requests(timeline) == []
        assert {commit.operation for commit in timeline.commits()} <= {"create", "abort"}
    requests = [info.key for info in Store(lake.warehouse / "db/late").list("_index/transactions")]
    assert sum(key.endswith("/requested.json") for key in requests) <= 1


@pytest.mark.by_turn(16, first=4)
def test_a_killed_triggerer_is_started_anew_and_the_write_goes_on(lake: Lake) -> None:
    run_id = lake.trigger("deferring", {"table": "deferred", "seconds": 15})
    job_id = wait_for_the_attempt(lake, "deferring", run_id, "deferred")
    triggerer = lake.part("triggerer")
    for process in (*triggerer.children(recursive=True), triggerer):
        process.send_signal(signal.SIGKILL)
    lake.airflow.start_part("triggerer")

    report = lake.client.wait("deferring", run_id, timeout=240)

    assert report.tasks == {"write": "success", "seen": "success"}, lake.client.describe(report) + lake.audit(
        "deferring", run_id
    )
    receipt = lake.client.xcom("deferring", run_id, "write")
    assert receipt["operation"] == "upsert" and receipt["version"] == lake.timeline("db/deferred").head.version
    assert jobs(lake, "deferred") == []
    assert wait_until(lambda: not drivers(job_id), 30)
