"""Triggers that wait for apps, on a real store and a real event loop: what they fire, how they tell slow from dead,
that they share their looks, and that killing one ends its own job only."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from asgiref.sync import async_to_sync

from airflow_provider_index.compat import ask_supervisor
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.submission import JobWatch, Submission
from airflow_provider_index.triggers import IndexStateTrigger, JobTrigger, TableCommitTrigger, TimelineTrigger, polling
from spark_apps.jobs.job import Outcome
from spark_apps.jobs.job_folder import BegunAttempt, JobFolder, JobHeartbeat, list_jobs
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, TableDefinition, Write, table_scope
from spark_apps.timeline.transactions import begin

SECRET = "planted-77aa01"
DEFINITION = TableDefinition("t", (Field("id", "bigint"),), ("id",), ())


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = {"conn_type": "index_table_store", "extra": {"storage_options": {}, "password": SECRET}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return create_table(Store(tmp_path / "t"), DEFINITION)[0]


def trigger(place: Path, job_id: str, interval: float = 0.05, **fields: Any) -> JobTrigger:
    made = Submission(job_id, str(place), "lake", **fields)
    return JobTrigger(submission=made.to_dict(), poll_interval=interval)


async def fired(one: JobTrigger | TimelineTrigger) -> Any:
    async for event in one.run():
        return event.payload
    return None


async def fires_after(one: JobTrigger, *steps: Callable[[], object], pause: float = 0.2) -> Any:
    task = asyncio.create_task(fired(one))
    for step in steps:
        await asyncio.sleep(pause)
        assert not task.done()
        await asyncio.to_thread(step)
    return await asyncio.wait_for(task, 10)


def test_given_an_app_that_ends_when_waited_for_then_done_and_its_progress_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = JobFolder(Store(tmp_path), "x.1.aa")
    caplog.set_level(logging.INFO)

    event = asyncio.run(
        fires_after(
            trigger(tmp_path, "x.1.aa"),
            lambda: folder.write_heartbeat(JobHeartbeat(1.0, "write the rows", 3, 9, "tasks")),
            lambda: folder.finish(Outcome("report", {})),
        )
    )

    assert event == {"status": "done"}
    # Airflow, where it is set up, writes to the output by itself.
    assert "progress: write the rows: 3 of 9 tasks" in caplog.text + capsys.readouterr().out
    assert (folder.leased_until() or 0) > time.time() + 60


def test_given_an_app_that_beats_slowly_when_waited_for_then_it_is_dead_only_after_the_silence(tmp_path: Path) -> None:
    folder = JobFolder(Store(tmp_path), "x.1.aa")
    one = trigger(tmp_path, "x.1.aa", silent_seconds=0.8, start_seconds=5.0)

    def beat() -> None:
        folder.write_heartbeat(JobHeartbeat(time.time()))

    started = time.monotonic()
    event = asyncio.run(fires_after(one, beat, beat, beat, pause=0.5))

    assert event == {"status": "dead"}
    assert 1.5 + 0.8 <= time.monotonic() - started < 1.5 + 0.8 + 1.0


def test_given_an_app_that_never_began_when_waited_for_then_it_is_dead_after_the_time_to_start(tmp_path: Path) -> None:
    one = trigger(tmp_path, "x.1.aa", silent_seconds=0.1, start_seconds=0.6)

    started = time.monotonic()
    assert asyncio.run(fired(one)) == {"status": "dead"}
    assert time.monotonic() - started >= 0.6


def test_given_a_deadline_when_it_passes_then_timeout_though_the_app_lives(tmp_path: Path) -> None:
    folder = JobFolder(Store(tmp_path), "x.1.aa")
    folder.write_heartbeat(JobHeartbeat(1.0))
    assert asyncio.run(fired(trigger(tmp_path, "x.1.aa", deadline=time.time() + 0.3))) == {"status": "timeout"}


def test_given_a_store_that_does_not_answer_when_watched_then_no_silence_is_held_against_the_app(
    tmp_path: Path,
) -> None:
    now = [100.0]
    watch = JobWatch(Submission("x.1.aa", str(tmp_path), "lake", silent_seconds=60), lambda: 0.0, lambda: now[0])
    folder = JobFolder(Store(tmp_path), "x.1.aa")
    folder.write_heartbeat(JobHeartbeat(1.0))
    seen = list_jobs(folder.store)["x.1.aa"]

    answers = []
    for seconds, objects in ((0, seen), (50, None), (50, None), (50, seen), (20, seen)):
        now[0] += seconds
        answers.append(watch.observe(objects))

    assert answers == [None, None, None, None, "dead"]


def test_given_a_triggerer_that_is_started_anew_when_it_takes_over_then_it_goes_on_from_what_is_stored(
    tmp_path: Path,
) -> None:
    folder = JobFolder(Store(tmp_path), "x.1.aa")

    async def killed_and_started_again() -> Any:
        path, kwargs = trigger(tmp_path, "x.1.aa").serialize()
        first = asyncio.create_task(fired(JobTrigger(**kwargs)))
        await asyncio.sleep(0.2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert path == "airflow_provider_index.triggers.jobs.JobTrigger"
        assert folder.cancelled() is None
        stored = json.loads(json.dumps(kwargs))
        assert SECRET not in json.dumps(stored)
        folder.finish(Outcome("report", {}))
        return await asyncio.wait_for(fired(JobTrigger(**stored)), 10)

    assert asyncio.run(killed_and_started_again()) == {"status": "done"}


def test_given_many_that_wait_on_one_table_when_they_look_then_it_is_listed_once_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    whole = Store.list
    monkeypatch.setattr(Store, "list", lambda self, *rest: (listed.append(rest), whole(self, *rest))[1])
    folders = [JobFolder(Store(tmp_path), f"x{number}.1.aa") for number in range(20)]

    async def wait_for_all() -> list[Any]:
        tasks = [asyncio.create_task(fired(trigger(tmp_path, folder.job_id, interval=0.2))) for folder in folders]
        await asyncio.sleep(1.1)
        for folder in folders:
            folder.finish(Outcome("report", {}))
        return await asyncio.gather(*tasks)

    assert asyncio.run(wait_for_all()) == [{"status": "done"}] * 20
    assert len(listed) <= 9


def airflow_is_busy() -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))


def test_given_a_connection_that_cannot_be_read_now_when_jobs_are_waited_for_then_they_are_waited_for_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failures = TableStoreHook.storage_options.fget, [airflow_is_busy(), OSError("cut off")]

    def options(self: TableStoreHook) -> Any:
        if failures:
            raise failures.pop()
        return whole(self)

    monkeypatch.setattr(TableStoreHook, "storage_options", property(options))
    folders = [JobFolder(Store(tmp_path), f"x{number}.1.aa") for number in range(2)]

    async def wait_for_both() -> list[Any]:
        tasks = [asyncio.create_task(fired(trigger(tmp_path, folder.job_id))) for folder in folders]
        await asyncio.sleep(0.3)
        for folder in folders:
            folder.finish(Outcome("report", {}))
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert asyncio.run(wait_for_both()) == [{"status": "done"}] * 2
    assert not failures


def test_given_a_connection_that_stays_unreadable_when_a_job_is_waited_for_then_its_task_is_handed_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(_: TableStoreHook) -> Any:
        raise airflow_is_busy()

    monkeypatch.setattr(TableStoreHook, "storage_options", property(options))
    monkeypatch.setattr(polling, "_PATIENCE_SECONDS", 0.2)

    event = asyncio.run(asyncio.wait_for(fired(trigger(tmp_path, "x.1.aa")), 10))

    assert event["status"] == "error"
    assert event["error"]["type"] == "JobFailed" and "AirflowRuntimeError" in event["error"]["message"]


def test_given_a_sign_of_life_that_is_cut_off_when_two_wait_then_neither_hears_of_it(tmp_path: Path) -> None:
    one, other = (JobFolder(Store(tmp_path), f"x.{number}.aa") for number in (1, 2))

    async def wait_for_both() -> list[Any]:
        tasks = [asyncio.create_task(fired(trigger(tmp_path, folder.job_id))) for folder in (one, other)]
        one.store.put(one.key("beat.json"), b'{"at": 1.0, "pha')
        await asyncio.sleep(0.4)
        assert not any(task.done() for task in tasks)
        for folder in (one, other):
            folder.finish(Outcome("report", {}))
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert asyncio.run(wait_for_both()) == [{"status": "done"}] * 2


def test_given_one_whose_look_fails_when_several_wait_on_a_table_then_the_others_go_on(
    timeline: Timeline, tmp_path: Path
) -> None:
    class Broken(TimelineTrigger):
        def evaluate(self, timeline: Timeline) -> Any:
            raise ZeroDivisionError("a mistake")

    shared = {"table": timeline.store.uri, "table_conn_id": "lake", "poll_interval": 0.05}
    shared["deadline"] = time.time() + 20

    async def wait_for_both() -> list[Any]:
        tasks = [asyncio.create_task(fired(one)) for one in (Broken(**shared), TableCommitTrigger(after=0, **shared))]
        await asyncio.sleep(0.3)
        begin(timeline, operation="upsert", txn_id="y").commit((), writes=[Write(table_scope(), "append")])
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    broken, commit = asyncio.run(wait_for_both())
    assert broken["status"] == "error" and "ZeroDivisionError: a mistake" in broken["error"]["message"]
    assert commit["status"] == "done"


def test_given_a_log_that_is_deleted_and_begun_anew_when_a_commit_is_waited_for_then_its_first_one_counts(
    timeline: Timeline, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        begin(timeline, operation="upsert", txn_id=name).commit((), writes=[Write(table_scope(), "append")])
    shared = {"table": timeline.store.uri, "table_conn_id": "lake", "poll_interval": 0.05}
    waits = TableCommitTrigger(after=3, log=timeline.identity, deadline=time.time() + 20, **shared)

    async def wait() -> Any:
        task = asyncio.create_task(fired(waits))
        await asyncio.sleep(0.3)
        shutil.rmtree(tmp_path / "t")
        create_table(Store(tmp_path / "t"), DEFINITION, txn_id="made-anew")
        return await asyncio.wait_for(task, 10)

    assert asyncio.run(wait())["value"]["txn_id"] == "made-anew"


def test_given_two_tries_at_work_when_the_first_ones_trigger_is_killed_then_only_its_own_job_ends(
    timeline: Timeline, tmp_path: Path
) -> None:
    first, second = (JobFolder(timeline.store, f"x.{number}.aa") for number in (1, 2))
    attempts = []
    for folder in (first, second):
        folder.renew_lease()
        attempts.append(begin(timeline, operation="upsert", txn_id="x"))
        folder.note_attempt(BegunAttempt(timeline.store.uri, "x", attempts[-1].attempt))

    asyncio.run(trigger(tmp_path / "t", first.job_id).on_kill())

    state = timeline.refresh()
    assert first.cancelled() is not None and second.cancelled() is None
    assert state.is_aborted("x", attempts[0].attempt) and not state.is_aborted("x", attempts[1].attempt)
    attempts[1].commit(())


def test_given_a_kill_that_is_broken_off_when_it_has_begun_then_the_job_is_ended_all_the_same(
    timeline: Timeline, tmp_path: Path
) -> None:
    """As a triggerer does that finds the trigger still there a second after it was told to go."""
    job = JobFolder(timeline.store, "x.1.aaaa")
    job.renew_lease()
    attempt = begin(timeline, operation="upsert", txn_id="x")
    job.note_attempt(BegunAttempt(timeline.store.uri, "x", attempt.attempt))

    async def broken_off() -> None:
        killing = asyncio.ensure_future(trigger(tmp_path / "t", job.job_id).on_kill())
        await asyncio.sleep(0)
        killing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killing
        for _ in range(200):
            if timeline.refresh().is_aborted("x", attempt.attempt):
                return
            await asyncio.sleep(0.05)

    asyncio.run(broken_off())
    assert job.cancelled() is not None and timeline.refresh().is_aborted("x", attempt.attempt)


@pytest.mark.parametrize(("state", "ended"), [("deferred", False), ("failed", True), (None, True), ("running", True)])
def test_given_an_airflow_that_tells_of_no_kills_when_a_trigger_is_cancelled_then_a_job_that_its_task_has_left_is_ended(
    timeline: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None, ended: bool
) -> None:
    """A triggerer that stops cancels its triggers as well; their tasks still wait."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("airflow_provider_index.triggers.jobs._TELLS_OF_KILLS", False)
    monkeypatch.setattr(
        RuntimeTaskInstance, "get_task_states", lambda **what: asked.append(what) or {"r": {"write": state}}
    )
    job = JobFolder(timeline.store, "x.1.aaaa")
    job.renew_lease()
    attempt = begin(timeline, operation="upsert", txn_id="x")
    job.note_attempt(BegunAttempt(timeline.store.uri, "x", attempt.attempt))
    waiting = trigger(tmp_path / "t", job.job_id)
    waiting.task_instance = SimpleNamespace(dag_id="d", task_id="write", run_id="r", map_index=-1)

    async def cancelled() -> None:
        task = asyncio.ensure_future(anext(waiting.run()))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert asked == [{"dag_id": "d", "task_ids": ["write"], "run_ids": ["r"], "map_index": -1}]
    assert (job.cancelled() is not None) is ended
    assert timeline.refresh().is_aborted("x", attempt.attempt) is ended


def test_given_sensors_on_one_table_when_they_wait_together_then_each_hears_what_it_waits_for(
    timeline: Timeline, tmp_path: Path
) -> None:
    shared = {
        "table": str(tmp_path / "t"),
        "table_conn_id": "lake",
        "poll_interval": 0.05,
        "deadline": time.time() + 20,
    }

    async def wait_for_both() -> list[Any]:
        tasks = [
            asyncio.create_task(
                fired(TableCommitTrigger(after=timeline.head.version, operations=["upsert"], **shared))
            ),
            asyncio.create_task(fired(IndexStateTrigger(index="by_city", states=["absent"], **shared))),
            asyncio.create_task(fired(TableCommitTrigger(after=0, **{**shared, "deadline": time.time() + 0.3}))),
        ]
        await asyncio.sleep(0.6)
        begin(timeline, operation="upsert", txn_id="y").commit(())
        return await asyncio.wait_for(asyncio.gather(*tasks), 10)

    commit, state, in_vain = asyncio.run(wait_for_both())

    assert commit["status"] == "done" and commit["value"]["txn_id"] == "y"
    assert state == {"status": "done", "value": {"index": "by_city", "version": 0, "state": "absent"}}
    assert in_vain == {"status": "timeout"}


def test_given_no_table_when_a_sensor_waits_then_the_error_is_its_event(tmp_path: Path) -> None:
    lost = TableCommitTrigger(
        after=0, table=str(tmp_path / "nowhere"), table_conn_id="lake", poll_interval=0.05, deadline=time.time() + 5
    )
    event = asyncio.run(fired(lost))
    assert event["status"] == "error" and event["error"]["type"] == "TableNotFound"


def test_given_a_trigger_that_is_cancelled_while_it_asks_then_the_answer_is_still_waited_for() -> None:
    answered = []

    async def answer() -> None:
        await asyncio.sleep(0.1)
        answered.append("the connection")

    async def cancelled() -> None:
        asking = asyncio.create_task(ask_supervisor(async_to_sync(answer)))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.2)

    asyncio.run(cancelled())

    assert answered == ["the connection"]
