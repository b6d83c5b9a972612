"""Tasks that are killed in the middle of a write, by people and by -9: nobody lives on, and a retry works
once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psutil

from spark_apps.timeline.transactions import live_attempts_of, live_requests
from tests.airflow.lake import Lake

GONE_WITHIN = 10.0


def drivers(lake: Lake) -> list[psutil.Process]:
    """The Python drivers of write_table that tasks of this Airflow started; others may run on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        ours = (process.info["environ"] or {}).get("AIRFLOW_HOME") == str(lake.airflow.home)
        words = process.info["cmdline"] or []
        if ours and any(word.endswith("write_table.py") for word in words) and process.info["status"] != "zombie":
            found.append(process)
    return found


def wait_until(done: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def start_and_wait_for_the_attempt(lake: Lake, seconds: int) -> str:
    run_id = lake.client.trigger("killing", {"seconds": seconds})
    assert wait_until(lambda: (lake.warehouse / "db/killed").exists(), 120)
    assert lake.client.wait_for_task("killing", run_id, "load") == "success"
    assert wait_until(lambda: any("slow" in one.txn_id for one in live_requests(lake.timeline("db/killed"))), 120)
    assert len(drivers(lake)) >= 1
    return run_id


def test_a_task_marked_failed_leaves_no_process_and_its_attempt_is_ended_by_a_commit(lake: Lake) -> None:
    run_id = start_and_wait_for_the_attempt(lake, 600)
    [request] = live_requests(lake.timeline("db/killed"))

    lake.client.mark("killing", run_id, "slow", "failed")

    assert wait_until(lambda: not drivers(lake), 30)
    timeline = lake.timeline("db/killed")
    assert wait_until(lambda: timeline.refresh().is_aborted(request.txn_id, request.attempt), 10)
    assert request.txn_id not in timeline.head.committed
    assert lake.client.wait("killing", run_id).state == "failed"


def test_a_supervisor_killed_by_minus_nine_takes_its_driver_along_and_the_retry_writes_once(lake: Lake) -> None:
    run_id = start_and_wait_for_the_attempt(lake, 600)
    [request] = live_requests(lake.timeline("db/killed"))
    group = [process for driver in drivers(lake) for process in (driver, *driver.children(recursive=True))]
    submit = next(process for process in group if process.ppid() not in {one.pid for one in group})
    task = psutil.Process(submit.ppid())
    supervisor = task.parent()
    assert supervisor is not None and supervisor.pid != lake.airflow.pid

    supervisor.send_signal(signal.SIGKILL)

    assert wait_until(lambda: not drivers(lake), GONE_WITHIN)
    report = lake.client.wait("killing", run_id, timeout=300)
    assert report.tasks["slow"] == "success"
    timeline = lake.timeline("db/killed")
    assert timeline.head.is_aborted(request.txn_id, request.attempt)
    assert live_attempts_of(timeline, request.txn_id) == []
    commits = [commit for commit in timeline.commits() if commit.txn_id == request.txn_id]
    assert [commit.attempt for commit in commits] == [request.attempt + 1]
