"""An app that reports and listens, as a process of its own, without Spark: it ends when it is told to, when nobody
waits, when its time is over, and when a commit has ended its attempt; and its answer holds no secret."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from spark_apps.jobs import heartbeat
from spark_apps.jobs.job import ErrorDocument, Job, Outcome, redact_outcome, secrets_of
from spark_apps.jobs.job_folder import JobFolder, end_job
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import abort, live_attempts_of

DEFINITION = TableDefinition("t", (Field("id", "bigint"),), ("id",), ())
SECRET = "planted-0d51fe"
GONE_WITHIN = 10.0

APP = """
import logging, os, sys, time
import msgspec
from spark_apps.jobs import heartbeat, program
from spark_apps.jobs.job import Job, Outcome
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import CURRENT
from spark_apps.timeline.transactions import begin

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
heartbeat.OBSERVE_SECONDS, heartbeat.LOG_OBSERVE_SECONDS = 0.2, 0.4
heartbeat.GRACE_SECONDS, heartbeat._LATE_SECONDS = 1.0, 0.5
job = msgspec.json.decode(sys.stdin.read(), type=Job)
with heartbeat.Reporting(msgspec.structs.replace(job, process_group=os.getpid())) as report:
    report.check_not_cancelled()
    transaction = begin(Timeline.load(Store(job.table)), operation="upsert", txn_id=job.txn_id)
    CURRENT.phase("sleep")
    CURRENT.hold(transaction)
    time.sleep(60)
    transaction.commit(())
"""


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return create_table(Store(tmp_path / "t"), DEFINITION)[0]


@contextmanager
def app(timeline: Timeline, **fields: object) -> Iterator[tuple[subprocess.Popen[str], JobFolder]]:
    """The app at work on an attempt, with a child of its own in its group."""
    folder = JobFolder(timeline.store, "x.1.aa")
    folder.renew_lease()
    job = Job("tested", timeline.store.uri, txn_id="x", detached=True, job_id=folder.job_id, jobs_at=timeline.store.uri)
    process = subprocess.Popen(
        [sys.executable, "-c", APP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(msgspec.structs.replace(job, **fields)).decode())
        process.stdin.close()
        until(lambda: folder.attempts() or process.poll() is not None, 30)
        yield process, folder
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(done: Callable[[], object], seconds: float = GONE_WITHIN) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def why(folder: JobFolder) -> str:
    outcome = folder.outcome()
    assert outcome is not None and outcome.error is not None and outcome.error.type == "AttemptAborted"
    return outcome.error.message


def test_given_an_app_at_work_when_its_job_is_cancelled_then_it_ends_and_says_so(timeline: Timeline) -> None:
    with app(timeline) as (process, folder):
        beat = folder.heartbeat()
        assert beat is not None and beat.pid == process.pid

        end_job(folder, Store, "the task was killed")

        until(lambda: process.poll() is not None)
    assert process.returncode == -signal.SIGKILL
    assert "the task was killed" in why(folder)
    timeline.refresh()
    assert live_attempts_of(timeline, "x") == []


def test_given_an_app_at_work_when_nobody_waits_beyond_the_grace_then_it_ends_its_attempt_and_itself(
    timeline: Timeline,
) -> None:
    with app(timeline) as (process, folder):
        folder.renew_lease(0.1)
        until(lambda: process.poll() is not None)
    assert "nobody waits" in why(folder)
    timeline.refresh()
    assert timeline.head.is_aborted("x", 1)


@pytest.mark.by_turn(8)
def test_given_a_deadline_when_it_has_passed_and_nobody_said_so_then_the_app_ends(timeline: Timeline) -> None:
    with app(timeline, deadline=time.time() + 3.0) as (process, folder):
        until(lambda: process.poll() is not None)
    assert "its time is over" in why(folder)
    assert timeline.refresh().is_aborted("x", 1)


def test_given_an_app_at_work_when_somebody_ends_its_attempt_by_a_commit_then_it_stops(timeline: Timeline) -> None:
    with app(timeline) as (process, folder):
        abort(timeline, "x", 1, "drained")
        until(lambda: process.poll() is not None)
    assert "a commit has ended its attempt 1" in why(folder)


def test_given_a_job_cancelled_before_it_began_when_it_is_started_then_it_begins_no_attempt(timeline: Timeline) -> None:
    JobFolder(timeline.store, "x.1.aa").cancel("replaced by a later try")
    with app(timeline) as (process, folder):
        process.wait(20)
    assert folder.attempts() == [] and live_attempts_of(timeline, "x") == []


def test_signs_go_on_after_one_that_failed_in_a_way_that_nobody_foresaw(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def show(_folder: JobFolder, _beat: object) -> None:
        tried.append(_beat)
        raise RuntimeError("the gateway is closed")

    monkeypatch.setattr(JobFolder, "write_heartbeat", show)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    uri = timeline.store.uri

    with heartbeat.Reporting(Job("tested", uri, detached=True, job_id="x.1.aa", jobs_at=uri)):
        until(lambda: len(tried) > 2)


def test_no_secret_of_the_job_stands_in_an_outcome() -> None:
    job = Job(
        "tested",
        "/t",
        storage_options={"aws_secret_access_key": SECRET, "region": "eu-central-1", "azure": {"sas_token": "sig=abcd"}},
        spark_conf={"spark.hadoop.fs.s3a.secret.key": SECRET + "x"},
    )
    error = ErrorDocument("JobFailed", f"403 for {SECRET}x at eu-central-1", trace=f"{SECRET} sig=abcd")

    outcome = redact_outcome(Outcome("error", {"conf": [SECRET]}, error), secrets_of(job))

    assert outcome.error is not None and outcome.error.message == "403 for *** at eu-central-1"
    assert outcome.error.trace == "*** ***" and outcome.value == {"conf": ["***"]}


def test_wherever_an_app_says_how_it_ended_no_secret_of_its_job_is_told(tmp_path: Path) -> None:
    uri, result = str(tmp_path / "t"), tmp_path / "answer.json"
    options = {"aws_secret_access_key": SECRET}
    job = Job("tested", uri, storage_options=options, result=str(result), detached=True, job_id="x.1.aa", jobs_at=uri)

    with heartbeat.Reporting(job) as report:
        assert report.finish(Outcome("error", error=ErrorDocument("JobFailed", f"403 for {SECRET}")))

    outcome = JobFolder(Store(uri), "x.1.aa").outcome()
    assert outcome is not None and outcome.error is not None and outcome.error.message == "403 for ***"
    assert SECRET not in result.read_text()
