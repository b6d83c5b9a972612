"""Tasks that are killed in the middle of a write, by people and by -9: nobody lives on, and a retry works
once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from spark_apps.timeline.transactions import live_attempts_of, live_requests
from tests.airflow.lake import Lake

pytestmark = pytest.mark.by_turn(16, whole=True, first=8)

GONE_WITHIN = 30.0


def begin_runs(lake: Lake) -> None:
    for table in ("marked", "orphaned"):
        lake.begin("killing", table, table=table, seconds=600)


def living(group: int) -> list[psutil.Process]:
    """The processes of a group that have not ended."""
    processes = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def children_of(process: psutil.Process) -> set[int]:
    """The processes below one, without Spark's Python workers: their daemon leads a group, and ends with its JVM."""
    pids = set()
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" not in child.cmdline():
                pids.add(child.pid)
    return pids


def wait_until(done: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def wait_for_the_attempt(lake: Lake, table: str) -> tuple[str, psutil.Process, int]:
    """A run whose slow task has its driver at work: the run's id, the task's process, and the driver's group."""
    _, run_id = lake.begun[table]
    assert lake.client.wait_for_task("killing", run_id, "load", timeout=240) == "success"
    assert wait_until(lambda: any("slow" in one.txn_id for one in live_requests(lake.timeline(f"db/{table}"))), 240)
    # The task's own has started spark-submit. That of LocalExecutor which supervises it has its name, too.
    named = lake.processes_of("killing", run_id, "slow")
    [task] = [process for process in named if not set(process.children()) & set(named)]
    [submit] = task.children()
    group = os.getpgid(submit.pid)
    assert group == submit.pid
    # spark-submit's JVM and the Python driver, which it started.
    words = [" ".join(process.cmdline()) for process in living(group)]
    assert any("SparkSubmit" in line for line in words) and any("write_table.py " in line for line in words)
    # One that starts Java ends meanwhile, so both lists are taken again.
    assert wait_until(lambda: children_of(submit) <= {one.pid for one in living(group)}, 30)
    return run_id, task, group


def test_a_task_marked_failed_leaves_no_process_and_its_attempt_is_ended_by_a_commit(lake: Lake) -> None:
    run_id, _, group = wait_for_the_attempt(lake, "marked")
    [request] = live_requests(lake.timeline("db/marked"))

    lake.client.mark("killing", run_id, "slow", "failed")

    assert wait_until(lambda: not living(group), 30)
    timeline = lake.timeline("db/marked")
    assert wait_until(lambda: timeline.refresh().is_aborted(request.txn_id, request.attempt), 10)
    assert request.txn_id not in timeline.head.committed
    assert lake.client.wait("killing", run_id).state == "failed"


def test_a_supervisor_killed_by_minus_nine_takes_its_driver_along_and_the_retry_writes_once(lake: Lake) -> None:
    run_id, task, group = wait_for_the_attempt(lake, "orphaned")
    [request] = live_requests(lake.timeline("db/orphaned"))
    supervisor = task.parent()
    assert supervisor is not None and supervisor.pid != lake.airflow.pid

    supervisor.send_signal(signal.SIGKILL)

    assert wait_until(lambda: not living(group), GONE_WITHIN)
    lake.forget_heartbeats("killing", run_id, "slow")
    report = lake.client.wait("killing", run_id, timeout=300)
    assert report.tasks["slow"] == "success"
    timeline = lake.timeline("db/orphaned")
    assert timeline.head.is_aborted(request.txn_id, request.attempt)
    assert live_attempts_of(timeline, request.txn_id) == []
    commits = [commit for commit in timeline.commits() if commit.txn_id == request.txn_id]
    assert [commit.attempt for commit in commits] == [request.attempt + 1]
