"""Drivers that stay when their task has left, with a real ``spark-submit``: they are found again by the handle, their
answer lies on storage, and no secret lies anywhere."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner, last_lines_of
from spark_apps.jobs.bundle import Bundle, make_bundle
from spark_apps.jobs.job import Job
from spark_apps.jobs.job_folder import JobFolder, new_job_id
from spark_apps.storage.errors import JobFailed
from spark_apps.storage.store import Store
from tests.airflow.test_killing import living
from tests.airflow_provider_index.runners.test_spark_submit import SECRET, SETTINGS, alive, wait_for_file

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.by_turn(8)]

APP = '''
"""An app of the tests: fails with a secret in its words, after a while."""

import os, pathlib, time

from spark_apps.jobs.program import main


def work(spark, job):
    pathlib.Path(job.arguments["pids"]).write_text(str(os.getpid()))
    print("the app is at work", flush=True)
    time.sleep(job.arguments["sleep"])
    raise RuntimeError("403 for " + job.storage_options["aws_secret_access_key"])


if __name__ == "__main__":
    main(work)
'''


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    made = make_bundle(tmp_path / "cache")
    (made.folder / "tested.py").write_text(APP)
    return made


def a_job(tmp_path: Path, sleep: float) -> tuple[Job, JobFolder]:
    folder = JobFolder(Store(tmp_path / "table"), new_job_id("a.b", 1))
    folder.renew_lease()
    arguments = {"sleep": sleep, "pids": str(tmp_path / "pids")}
    options = {"aws_secret_access_key": SECRET}
    return (
        Job(
            "tested",
            str(tmp_path / "table"),
            arguments,
            options,
            detached=True,
            job_id=folder.job_id,
            jobs_at=folder.store.uri,
        ),
        folder,
    )


def until_gone(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while alive(pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.by_turn(16)
def test_a_driver_outlives_who_submitted_it_and_its_answer_holds_no_secret(bundle: Bundle, tmp_path: Path) -> None:
    """The job is handed over by a process that ends at once."""
    job, folder = a_job(tmp_path, sleep=3)
    task = f"""
import logging, msgspec, sys
from pathlib import Path
from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner
from airflow_provider_index.runners import SparkSettings
from spark_apps.jobs.bundle import Bundle
from spark_apps.jobs.job import Job
settings = SparkSettings(master="local[1]", conf={dict(SETTINGS.conf)!r}, driver_logs={str(tmp_path / "logs")!r})
runner = DetachedSparkSubmitRunner(settings, logging.getLogger(), Bundle(Path({str(bundle.folder)!r}), "x"))
print(runner.submit(msgspec.json.decode(sys.stdin.read(), type=Job)))
runner.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", task],
        input=msgspec.json.encode(job).decode(),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    handle = done.stdout.splitlines()[-1]

    pids = wait_for_file(tmp_path / "pids")
    deadline = time.monotonic() + 60
    while (outcome := folder.outcome()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    until_gone(pids, 60)

    assert outcome.error is not None and outcome.error.message == "403 for ***"
    assert "the app is at work" in last_lines_of(handle)
    places = [path for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.parts]
    assert len(places) >= 3  # log, outcome, beat
    assert not [path for path in places if SECRET in path.read_text(errors="replace")]
    assert [path.suffix for path in (tmp_path / "logs").iterdir()] == [".log"]


@pytest.mark.by_turn(4)
def test_a_driver_is_found_and_ended_by_its_handle_and_shows_no_secret_meanwhile(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"aws://key:{SECRET}@")
    here = replace(SETTINGS, driver_logs=str(tmp_path / "logs"))
    job, folder = a_job(tmp_path, sleep=600)
    first = DetachedSparkSubmitRunner(here, logging.getLogger("test"), bundle)
    handle = first.submit(job)
    first.close()
    wait_for_file(tmp_path / "pids")
    group = living(json.loads(handle)["pid"])

    assert len(group) >= 2
    for process in group:
        assert SECRET not in " ".join(process.cmdline()) and SECRET not in json.dumps(process.environ())
    assert SECRET not in handle
    assert folder.heartbeat() is not None
    second = DetachedSparkSubmitRunner(here, logging.getLogger("test"), bundle)
    assert second.status(handle).running
    someone_else = json.dumps({**json.loads(handle), "started": "1"})
    second.cancel(someone_else)
    assert second.status(handle).running

    started = time.monotonic()
    second.cancel(handle)

    assert time.monotonic() - started < 5
    until_gone([process.pid for process in group], 5)
    status = second.status(handle)
    assert not status.running and "the app is at work" in status.detail
    assert [path.suffix for path in (tmp_path / "logs").iterdir()] == [".log"]


@pytest.mark.by_turn(8)
def test_a_spark_submit_that_fails_at_once_tells_its_last_lines(bundle: Bundle, tmp_path: Path) -> None:
    here = replace(SETTINGS, driver_logs=str(tmp_path / "logs"), options={"no-such-option": "x"})
    runner = DetachedSparkSubmitRunner(here, logging.getLogger("test"), bundle)

    with pytest.raises(JobFailed, match=r"(?s)ended with status 1; its last lines:.*QUEUE_NAME.*All of them are in"):
        runner.submit(a_job(tmp_path, 0)[0])
