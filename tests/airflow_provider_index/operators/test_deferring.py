"""A deferrable operator with its trigger, a real ``spark-submit`` and a real table, without a scheduler: what passes
between the three, and what follows when the driver dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowFailException, TaskDeferred
from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators import CleanTableOperator, VerifyIndexOperator, WriteTableOperator
from airflow_provider_index.runners import spark_submit
from airflow_provider_index.sensors import IndexFreshnessSensor
from spark_apps.jobs.job import ErrorDocument, Outcome
from spark_apps.jobs.job_folder import BegunAttempt, JobFolder, list_jobs
from spark_apps.storage.errors import JobFailed
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import begin, resume
from tests.spark.local import JVM

try:
    from airflow.sdk.exceptions import TaskDeferralError
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import TaskDeferralError

pytestmark = [pytest.mark.slow, pytest.mark.by_turn(16)]

SECRET = "planted-c03a55"
SLOW = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint(${spark.slow.millis}))) AS note FROM range(1)"
TABLE = TableDefinition("t", (Field("id", "bigint"), Field("note", "string")), ("id",), ())


class Memory(dict[str, Any]):
    """Airflow's task state store, as far as the operators use it."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


class Instance:
    dag_id, run_id, task_id, map_index, max_tries = "dag", "run", "task", -1, 1

    def __init__(self, try_number: int) -> None:
        self.try_number = try_number

    def xcom_push(self, key: str, value: Any) -> None:
        pass


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM,
        "spark.hadoop.planted.password": SECRET,
    }
    spark = {"conn_type": "spark", "host": "local[1]", "extra": {"conf": conf, "driver-logs": str(tmp_path / "logs")}}
    lake = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path), "spark_conn_id": "spark_here"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps(spark))
    return create_table(Store(tmp_path / "t"), TABLE)[0]


def write(seconds: float = 0, **fields: Any) -> WriteTableOperator:
    conf = {"spark.slow.millis": str(int(1000 * seconds))}
    fields = {"table": "t", **fields}
    return WriteTableOperator(
        task_id="task",
        table_conn_id="lake",
        sql=SLOW,
        conf=conf,
        deferrable=True,
        poll_interval=0.2,
        **fields,
    )


def context(memory: Memory, try_number: int = 1) -> dict[str, Any]:
    return {"ti": Instance(try_number), "task_state_store": memory}


def at_work(submission: Mapping[str, Any]) -> bool:
    """Whether an attempt has begun and is noted: without a note the next try would end it, not who cancels the job."""
    return bool(JobFolder(Store(submission["jobs_at"]), submission["job_id"]).attempts())


def deferred(operator: WriteTableOperator, given: Mapping[str, Any]) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(given)
    return caught.value


def waited(task: TaskDeferred, meanwhile: Callable[[], object] = lambda: None) -> Any:
    """What the trigger fires, made anew from what Airflow would store of it."""
    _, kwargs = task.trigger.serialize()
    stored = type(task.trigger)(**json.loads(json.dumps(kwargs)))

    async def fire() -> Any:
        other = asyncio.create_task(asyncio.to_thread(meanwhile))
        async for event in stored.run():
            await other
            return event.payload

    return asyncio.run(asyncio.wait_for(fire(), 240))


def resumed(operator: WriteTableOperator, given: Mapping[str, Any], task: TaskDeferred, event: Any) -> Any:
    return getattr(operator, task.method_name)(given, event=event, **json.loads(json.dumps(task.kwargs)))


@pytest.mark.spark
def test_a_driver_that_was_killed_is_found_dead_its_attempt_ended_and_the_next_try_commits_once(
    timeline: Timeline, memory: Memory, tmp_path: Path
) -> None:
    made = {"table": "w", "create": {"schema": "id bigint, note string", "record_key": ["id"], "buckets": 1}}
    first = write(600, silent_seconds=12, **made)
    task = deferred(first, context(memory))
    txn_id = task.kwargs["txn_id"]
    group = json.loads(task.kwargs["submission"]["handle"])["pid"]
    assert SECRET not in json.dumps([task.trigger.serialize()[1], task.kwargs, memory])
    killed = []

    def kill_once_it_is_at_work() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not at_work(task.kwargs["submission"]):
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)
        killed.append(time.monotonic())

    event = waited(task, kill_once_it_is_at_work)

    assert event == {"status": "dead"}
    assert time.monotonic() - killed[0] < 12 + 5 + 3  # the silence, a beat before the kill, the machine
    with pytest.raises(JobFailed, match="no sign of life for 12 s"):
        resumed(first, context(memory), task, event)
    timeline = Timeline.load(Store(tmp_path / "w"))
    assert timeline.head.is_aborted(txn_id, 1)
    assert not spark_submit.members(group)

    second = write(0, **made)
    again = deferred(second, context(memory, 2))
    receipt = resumed(second, context(memory, 2), again, waited(again))

    assert (receipt["txn_id"], receipt["attempt"]) == (txn_id, 2)
    assert [
        commit.attempt for commit in timeline.commits(until=timeline.refresh().version) if commit.txn_id == txn_id
    ] == [2]
    assert write(0, **made).execute(context(memory, 3)) == receipt


def started(timeline: Timeline, job_id: str, memory: Memory) -> dict[str, Any]:
    """What the operator hands on when it defers, for a job that these tests play."""
    JobFolder(timeline.store, job_id).renew_lease()
    return {"submission": {"job_id": job_id, "jobs_at": timeline.store.uri, "table_conn_id": "lake"}, "txn_id": "x"}


def test_an_error_of_the_app_comes_back_as_its_own_and_fails_the_task_at_once_where_a_retry_is_no_help(
    timeline: Timeline, memory: Memory
) -> None:
    for name, expected in (("KeysExist", AirflowFailException), ("ConcurrentWrite", Exception)):
        handed = started(timeline, "x.1.aa", memory)
        folder = JobFolder(timeline.store, "x.1.aa")
        folder.finish(Outcome("error", error=ErrorDocument(name, "5 keys exist.", "Nothing was changed.")))
        with pytest.raises(expected, match=r"5 keys exist\. Nothing was changed\.") as caught:
            write().execute_complete(context(memory), event={"status": "done"}, **handed)
        assert (type(caught.value).__name__ == name) == (name == "ConcurrentWrite")
        assert list_jobs(timeline.store) == {}


def test_a_commit_counts_though_its_app_died_before_it_could_say_so(timeline: Timeline, memory: Memory) -> None:
    handed = started(timeline, "x.1.aa", memory)
    receipt = begin(timeline, operation="upsert", txn_id="x").commit(())

    returned = write().execute_complete(context(memory), event={"status": "dead"}, **handed)

    assert returned["version"] == receipt.version


@pytest.mark.by_turn(1)
def test_an_attempt_that_was_ended_is_retried_unless_a_later_try_has_taken_over(
    timeline: Timeline, memory: Memory
) -> None:
    for name, final in (("AttemptAborted", False), ("AttemptReplaced", True), ("TransactionEnded", True)):
        handed = started(timeline, "x.1.aa", memory)
        JobFolder(timeline.store, "x.1.aa").finish(Outcome("error", error=ErrorDocument(name, "Ended.", "")))
        with pytest.raises(Exception, match=r"Ended\.") as caught:
            write().execute_complete(context(memory), event={"status": "done"}, **handed)
        assert isinstance(caught.value, AirflowFailException) == final, name


def deferred_job(timeline: Timeline, operator: WriteTableOperator, memory: Memory) -> tuple[str, JobFolder]:
    """Transaction and job of a task that has deferred and whose app is at work, both played."""
    txn_id = transaction_id(context(memory), operator.inputs)
    job = JobFolder(timeline.store, f"{txn_id}.1.aa")
    job.renew_lease()
    attempt = begin(timeline, operation="upsert", txn_id=txn_id)
    job.note_attempt(BegunAttempt(timeline.store.uri, txn_id, attempt.attempt))
    return txn_id, job


def test_given_a_trigger_that_failed_when_the_task_comes_back_then_its_job_is_ended_and_cannot_commit_any_more(
    timeline: Timeline, memory: Memory
) -> None:
    operator = write()
    txn_id, job = deferred_job(timeline, operator, memory)

    with pytest.raises(TaskDeferralError):
        operator.resume_execution("__fail__", {"error": "Trigger failure"}, context(memory))

    assert job.cancelled() is not None
    assert timeline.refresh().is_aborted(txn_id, 1)


@pytest.mark.by_turn(1)
def test_given_a_trigger_that_failed_when_the_job_has_committed_all_the_same_then_the_commit_counts(
    timeline: Timeline, memory: Memory
) -> None:
    operator = write()
    txn_id, _ = deferred_job(timeline, operator, memory)
    receipt = resume(timeline, txn_id, 1).commit(())

    returned = operator.resume_execution("__fail__", {"error": "Trigger failure"}, context(memory))

    assert returned["version"] == receipt.version


def test_given_a_connection_that_is_gone_when_the_task_comes_back_then_what_runs_here_is_ended(
    timeline: Timeline, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    handle = {
        "host": spark_submit.this_host(),
        "pid": process.pid,
        "started": spark_submit.started_at(process.pid),
        "log": "",
    }
    handed = started(timeline, "x.1.aa", memory)
    handed["submission"] |= {
        "spark_conn_id": "spark_here",
        "handle": json.dumps({**handle, "log": str(Path("/nowhere/driver.log"))}),
    }
    monkeypatch.delenv("AIRFLOW_CONN_LAKE")
    operator = write(spark_conn_id="spark_here")
    try:
        with pytest.raises(AirflowFailException, match="no Airflow connection 'lake'"):
            operator.execute_complete(context(memory), event={"status": "error", "error": {}}, **handed)
        process.wait(10)
    finally:
        process.kill()


def test_a_report_of_work_that_commits_nothing_is_handed_on(timeline: Timeline, memory: Memory) -> None:
    handed = {**started(timeline, "x.1.aa", memory), "txn_id": None}
    JobFolder(timeline.store, "x.1.aa").finish(Outcome("report", {"by_city": {"ok": True}}))
    verify = VerifyIndexOperator(task_id="v", table="t", table_conn_id="lake", deferrable=True)

    report = verify.execute_complete(context(memory), event={"status": "done"}, **handed)

    assert report == {"by_city": {"ok": True}}


def test_airflows_default_makes_operators_and_sensors_deferrable(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[str, Any] = {"table": "t", "table_conn_id": "lake"}
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert WriteTableOperator(task_id="a", sql="SELECT 1", **shared).deferrable
    assert CleanTableOperator(task_id="b", **shared).deferrable
    assert IndexFreshnessSensor(task_id="c", index="x", **shared).deferrable
    assert not WriteTableOperator(task_id="d", sql="SELECT 1", deferrable=False, **shared).deferrable
