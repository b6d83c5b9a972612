"""The runner with a real ``spark-submit``: what reaches the app, what comes back, and that nothing outlives
its task."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_index.runners import JobStatus, SparkSettings, SparkSubmitRunner
from airflow_provider_index.runners.spark_submit import members
from spark_apps.jobs.bundle import Bundle, make_bundle
from spark_apps.jobs.job import Job, rebuild_error
from spark_apps.storage.errors import JobFailed, SparkMissing
from tests.spark.local import JVM

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.by_turn(16)]

SECRET = "planted-9f2c41"
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JVM,
}
SETTINGS = SparkSettings(master="local[1]", conf={**LOCAL, "spark.hadoop.fs.s3a.secret.key": SECRET})
GONE_WITHIN = 10.0
"""Seconds after which a driver whose task was killed by -9 must be gone (docs/airflow.md states it)."""

APP = '''
"""An app of the tests: does what its arguments say."""

import os, pathlib, time

from spark_apps.jobs.program import main
from spark_apps.timeline.model import Receipt


def work(spark, job):
    arguments = job.arguments
    if "pids" in arguments:
        jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        pathlib.Path(arguments["pids"]).write_text(f"{os.getpid()} {jvm}")
    if arguments.get("raise") == "spark":
        spark.sql("SELECT * FROM nowhere_to_be_found")
    if arguments.get("raise") == "exit":
        os._exit(0)
    time.sleep(arguments.get("sleep", 0))
    seen = {
        # Backwards: as they are they would be taken out of the answer.
        "storage": {key: value[::-1] for key, value in job.storage_options.items()},
        "conf": (spark.conf.get("spark.hadoop.fs.s3a.secret.key") or "")[::-1],
        "long": len(arguments.get("long", "")),
        "rows": spark.range(10).count(),
    }
    return Receipt(7, job.txn_id or "t", "test", seen)


if __name__ == "__main__":
    main(work)
'''


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    made = make_bundle(tmp_path_factory.mktemp("bundle") / "cache")
    (made.folder / "tested.py").write_text(APP)
    return made


def wait(runner: SparkSubmitRunner, handle: str, seconds: float = 150) -> JobStatus:
    deadline = time.monotonic() + seconds
    while (status := runner.status(handle)).running:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return status


def run(bundle: Bundle, arguments: dict[str, Any], **fields: Any) -> JobStatus:
    runner = SparkSubmitRunner(SETTINGS, logging.getLogger("test"), bundle)
    try:
        return wait(runner, runner.submit(Job("tested", "/table", arguments, **fields)))
    finally:
        runner.close()


def wait_for_file(path: Path, seconds: float = 150) -> list[int]:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return [int(word) for word in path.read_text().split()]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_an_app_gets_its_job_and_its_receipt_comes_back(bundle: Bundle) -> None:
    status = run(bundle, {"long": "x" * 300_000}, txn_id="a.b", storage_options={"aws_secret_access_key": SECRET})

    assert status.outcome is not None and status.outcome.kind == "receipt", status
    receipt = status.outcome.value
    assert (receipt["version"], receipt["txn_id"]) == (7, "a.b")
    assert receipt["metrics"] == {
        "storage": {"aws_secret_access_key": SECRET[::-1]},
        "conf": SECRET[::-1],
        "long": 300_000,
        "rows": 10,
    }


def test_an_error_of_sparks_comes_back_with_its_words(bundle: Bundle) -> None:
    status = run(bundle, {"raise": "spark"})

    assert status.outcome is not None and status.outcome.error is not None
    error = rebuild_error(status.outcome.error)
    assert isinstance(error, JobFailed)
    assert "nowhere_to_be_found" in str(error) and "AnalysisException" in str(error)


def test_an_app_that_ends_well_without_an_answer_has_not_answered(bundle: Bundle) -> None:
    status = run(bundle, {"raise": "exit"})

    assert status.outcome is None
    assert "ended with status 0" in status.detail


def test_secrets_stand_nowhere_while_an_app_runs_and_cancelled_it_is_gone_in_less_than_airflow_allows(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"aws://key:{SECRET}@")
    runner = SparkSubmitRunner(SETTINGS, logging.getLogger("test"), bundle)
    job = Job(
        "tested",
        "/table",
        {"sleep": 600, "pids": str(tmp_path / "pids")},
        storage_options={"aws_secret_access_key": SECRET},
    )
    handle = runner.submit(job)
    try:
        pids = wait_for_file(tmp_path / "pids")
        group = [psutil.Process(pid) for pid in members(int(handle))]
        assert len(group) >= 2
        for process in group:
            assert SECRET not in " ".join(process.cmdline())
            assert SECRET not in json.dumps(process.environ())
        assert runner._folder is not None
        assert [path.name for path in runner._folder.iterdir() if path.name in ("job", "outcome")] == []
        assert SECRET not in "".join(path.read_text() for path in runner._folder.rglob("*") if path.is_file())

        started = time.monotonic()
        runner.cancel(handle)
        took = time.monotonic() - started

        assert not runner.status(handle).running
        assert not alive(pids) and not alive([process.pid for process in group])
        assert took < 4
    finally:
        runner.close()


def test_when_the_task_is_killed_by_minus_nine_the_driver_is_gone_in_time(bundle: Bundle, tmp_path: Path) -> None:
    task = f"""
import logging, time
from pathlib import Path
from airflow_provider_index.runners import SparkSettings, SparkSubmitRunner
from spark_apps.jobs.bundle import Bundle
from spark_apps.jobs.job import Job
runner = SparkSubmitRunner(SparkSettings(master="local[1]", conf={LOCAL!r}),
                           logging.getLogger(), Bundle(Path({str(bundle.folder)!r}), "x"))
handle = runner.submit(Job("tested", "/table", {{"sleep": 600, "pids": {str(tmp_path / "pids")!r}}}))
while runner.status(handle).running:
    time.sleep(0.5)
"""
    process = subprocess.Popen([sys.executable, "-c", task], cwd=Path(__file__).parents[3])
    pids = wait_for_file(tmp_path / "pids")
    assert len(alive(pids)) == 2

    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = time.monotonic()
    while alive(pids) and time.monotonic() - killed < GONE_WITHIN:
        time.sleep(0.1)

    assert not alive(pids)


def test_when_the_supervisor_alone_is_killed_the_task_ends_its_app(bundle: Bundle, tmp_path: Path) -> None:
    """Airflow's task process lives on when its supervisor is killed; it must not go on working unheard."""
    task = f"""
import logging, os, time
from pathlib import Path
from airflow_provider_index.runners import SparkSettings, SparkSubmitRunner
from spark_apps.jobs.bundle import Bundle
from spark_apps.jobs.job import Job
if os.fork():
    time.sleep(600)
runner = SparkSubmitRunner(SparkSettings(master="local[1]", conf={LOCAL!r}),
                           logging.getLogger(), Bundle(Path({str(bundle.folder)!r}), "x"))
handle = runner.submit(Job("tested", "/table", {{"sleep": 600, "pids": {str(tmp_path / "pids")!r}}}))
try:
    while runner.status(handle).running:
        time.sleep(0.5)
finally:
    Path({str(tmp_path / "ended")!r}).write_text(str(os.getpid()))
"""
    process = subprocess.Popen([sys.executable, "-c", task], cwd=Path(__file__).parents[3])
    pids = wait_for_file(tmp_path / "pids")

    process.send_signal(signal.SIGKILL)
    process.wait()

    wait_for_file(tmp_path / "ended", GONE_WITHIN)
    time.sleep(0.5)
    assert not alive(pids)


def test_a_spark_submit_that_is_not_there_is_a_clear_error(bundle: Bundle) -> None:
    settings = SparkSettings(master="local[1]", binary="no-such-spark-submit")
    runner = SparkSubmitRunner(settings, logging.getLogger("test"), bundle)

    with pytest.raises(SparkMissing, match=r"no-such-spark-submit.*Install Spark on the worker"):
        runner.submit(Job("tested", "/table"))
