"""What a try does with jobs that earlier tries left: it takes up its own, and ends all others. They are played."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowTaskTimeout, TaskDeferred
from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators import VerifyIndexOperator, WriteTableOperator
from spark_apps.jobs.job_folder import BegunAttempt, JobFolder, JobHeartbeat, list_jobs
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import begin, resume

TABLE = TableDefinition("t", (Field("id", "bigint"), Field("note", "string")), ("id",), ())


class Memory(dict[str, Any]):
    """Airflow's task state store, as far as the operators use it."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


class Instance:
    """A try of the task, which Airflow has in a state."""

    dag_id, run_id, task_id, map_index, max_tries = "dag", "run", "task", -1, 2

    def __init__(self, try_number: int, state: str = "running") -> None:
        self.try_number = try_number
        self._state = state

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep nothing: what is pushed are links."""

    def get_task_states(self, **asked: Any) -> dict[str, dict[str, str]]:
        return {self.run_id: {self.task_id: self._state}}


def context(memory: Memory | None, try_number: int = 1) -> dict[str, Any]:
    kept = {} if memory is None else {"task_state_store": memory}
    return {"ti": Instance(try_number), **kept}


@pytest.fixture
def timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    lake = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path), "spark_conn_id": "here"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return create_table(Store(tmp_path / "t"), TABLE)[0]


def write(sql: str = "SELECT 1 AS id, 'a' AS note", **more: Any) -> WriteTableOperator:
    return WriteTableOperator(
        task_id="task", table="t", table_conn_id="lake", sql=sql, deferrable=True, silent_seconds=60, **more
    )


def at_work(timeline: Timeline, operator: WriteTableOperator, given: Mapping[str, Any], silent: float = 0) -> JobFolder:
    """The job of a try whose app has given a sign of life, so many seconds ago, and has begun its attempt."""
    txn_id = transaction_id(given, operator.inputs)
    job = JobFolder(timeline.store, f"{operator._intent(given, txn_id)}.{given['ti'].try_number}.aa")
    job.renew_lease()
    job.write_heartbeat(JobHeartbeat(time.time()))
    attempt = begin(timeline, operation="upsert", txn_id=txn_id)
    job.note_attempt(BegunAttempt(timeline.store.uri, txn_id, attempt.attempt))
    beat = Path(timeline.store.uri, job.key("beat.json"))
    os.utime(beat, (time.time() - silent, time.time() - silent))
    return job


@pytest.mark.parametrize("remembers", [True, False], ids=["airflow-remembers", "airflow-before-3.3"])
def test_given_a_job_that_lives_when_its_task_is_tried_again_then_that_job_is_waited_for_and_its_commit_returned(
    timeline: Timeline, remembers: bool
) -> None:
    memory = Memory() if remembers else None
    job = at_work(timeline, write(), context(memory))
    again = write()

    with pytest.raises(TaskDeferred) as deferred:
        again.execute(context(memory, 2))

    waits_for = deferred.value.kwargs["submission"]
    assert waits_for["job_id"] == job.job_id
    assert list(list_jobs(timeline.store)) == [job.job_id]
    assert job.cancelled() is None
    receipt = resume(timeline, deferred.value.kwargs["txn_id"], 1).commit(())
    returned = again.execute_complete(context(memory, 2), event={"status": "done"}, **deferred.value.kwargs)
    assert (returned["version"], returned["attempt"]) == (receipt.version, 1)


def _other_inputs(job_of: Callable[..., JobFolder], memory: Memory) -> JobFolder:
    return job_of(write("SELECT 2 AS id, 'b' AS note"), context(Memory()))


def _changed_since(job_of: Callable[..., JobFolder], memory: Memory) -> JobFolder:
    """Airflow remembers the transaction of the first try, whatever the DAG says since."""
    return job_of(write("SELECT 2 AS id, 'b' AS note"), context(memory))


def _silent(job_of: Callable[..., JobFolder], memory: Memory) -> JobFolder:
    return job_of(write(), context(memory), silent=61)


@pytest.mark.parametrize("left", [_other_inputs, _changed_since, _silent], ids=lambda left: left.__name__.strip("_"))
def test_given_a_job_with_other_inputs_or_one_that_is_silent_when_tried_again_then_it_is_ended_by_a_commit(
    timeline: Timeline, left: Any
) -> None:
    memory = Memory()
    job = left(lambda *given, **more: at_work(timeline, *given, **more), memory)
    again = write()
    again.read_arguments()
    txn_id = transaction_id(context(memory, 2), again.inputs)

    assert again.end_earlier_jobs(context(memory, 2), again._intent(context(memory, 2), txn_id)) is None

    assert job.cancelled() is not None
    assert timeline.refresh().is_aborted(job.attempts()[0].txn_id, 1)


def test_given_another_task_s_job_when_tried_again_then_it_is_left_alone(timeline: Timeline) -> None:
    other = context(None)
    other["ti"].task_id = "other"
    job = at_work(timeline, write(), other)
    again = write()
    again.read_arguments()

    txn_id = transaction_id(context(None, 2), again.inputs)
    assert again.end_earlier_jobs(context(None, 2), again._intent(context(None, 2), txn_id)) is None

    assert job.cancelled() is None


def test_given_a_report_that_is_made_when_tried_again_then_it_is_waited_for_unless_another_is_asked(
    timeline: Timeline,
) -> None:
    shared: dict[str, Any] = {"task_id": "task", "table": "t", "table_conn_id": "lake", "deferrable": True}
    first = VerifyIndexOperator(**shared)
    first.read_arguments()
    job = JobFolder(timeline.store, f"{first._intent(context(None), None)}.1.aa")
    job.renew_lease()
    job.write_heartbeat(JobHeartbeat(time.time()))

    with pytest.raises(TaskDeferred) as deferred:
        VerifyIndexOperator(**shared).execute(context(None, 2))
    assert deferred.value.kwargs["submission"]["job_id"] == job.job_id

    other = VerifyIndexOperator(**shared, index="by_note")
    other.read_arguments()
    assert other.end_earlier_jobs(context(None, 3), other._intent(context(None, 3), None)) is None
    assert job.cancelled() is not None


@pytest.mark.parametrize(
    ("state", "try_number", "timed_out", "goes_on"),
    [
        ("running", 1, False, True),
        ("up_for_retry", 1, False, True),
        ("failed", 1, False, False),
        ("restarting", 1, False, False),
        ("running", 3, False, False),
        ("running", 1, True, False),
    ],
    ids=["worker-stops", "worker-taken-for-lost", "marked-failed", "cleared", "last-try", "out-of-time"],
)
def test_given_a_worker_that_is_stopped_when_another_try_follows_then_the_detached_job_goes_on_else_it_is_ended(
    timeline: Timeline, state: str, try_number: int, timed_out: bool, goes_on: bool
) -> None:
    given = {"ti": Instance(try_number, state), "task_state_store": Memory()}
    job = at_work(timeline, write(), given)
    operator = write()
    with pytest.raises(TaskDeferred):
        operator.execute(given)

    if timed_out:
        try:
            raise AirflowTaskTimeout
        except AirflowTaskTimeout:
            operator.on_kill()
    else:
        operator.on_kill()

    if operator._deciding is not None:
        operator._deciding.join()
    assert (job.cancelled() is None) == goes_on
    assert timeline.refresh().is_aborted(job.attempts()[0].txn_id, 1) != goes_on
    said = str(operator._was_killed())
    assert ("goes on" in said) == goes_on
    assert ("Nothing was changed." in said) != goes_on


def test_given_a_store_that_does_not_answer_when_a_marked_task_ends_its_job_then_the_task_says_that_it_could_not(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"ti": Instance(1, "failed"), "task_state_store": Memory()}
    at_work(timeline, write(), given)
    operator = write()
    with pytest.raises(TaskDeferred):
        operator.execute(given)

    def away(*_: Any) -> None:
        raise StorageUnavailable("The store does not answer.", outcome="The job may go on.")

    monkeypatch.setattr(JobFolder, "cancel", away)
    operator.on_kill()

    assert "The job may go on." in str(operator._was_killed())
