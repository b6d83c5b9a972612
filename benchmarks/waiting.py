"""What waiting tasks cost the triggerer: 500 waiting triggers on 50 tables in one process, with the signs of life of
500 apps arriving meanwhile, on local disk. Once of jobs that have just begun, at which a trigger looks more often, and
once of the same jobs later."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.report import Report

TABLES = 50
JOBS = 500
POLL_SECONDS = 5.0
_VERBS = ("get", "list")
MEASURED_SECONDS = 55.0
BEGUN_SECONDS = {"just begun": 10.0, "later": 110.0}
"""When a measurement starts, by its name; a job of more than 100 seconds is looked at no more often than asked."""

ENDED = 100

# The apps: a process of its own, so that its work is not counted as the triggerer's.
_APPS = """
import sys, time
from spark_apps.jobs.job import Outcome
from spark_apps.storage.store import Store
from spark_apps.jobs.job_folder import JobHeartbeat, JobFolder
places = [line.split() for line in open(sys.argv[1])]
folders = [JobFolder(Store(place), job_id) for place, job_id in places]
every, ended_after, ended = float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
begun, step, number = time.time(), every / len(folders), 0
while time.time() - begun < ended_after:
    folder = folders[number % len(folders)]
    folder.write_heartbeat(JobHeartbeat(time.time(), "write the rows", number // len(folders), 1000, "tasks"))
    number += 1
    time.sleep(max(0.0, begun + number * step - time.time()))
for number in range(ended):
    folder = folders[number * len(folders) // ended]
    folder.finish(Outcome("report", {"at": time.time()}))
    time.sleep(0.05)
"""


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Prints CPU seconds a second, requests a second by kind, and the time from an app's end to the event."""
    place = Path(tempfile.mkdtemp(prefix="waiting-"))
    try:
        asyncio.run(_measure(report, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _measure(report: Report, place: Path) -> None:
    os.environ.setdefault(
        "AIRFLOW_CONN_WAITING", json.dumps({"conn_type": "index_table_store", "extra": {"warehouse": str(place)}})
    )
    from airflow_provider_index.submission import Submission
    from airflow_provider_index.triggers import JobTrigger
    from spark_apps.jobs.job import Outcome
    from spark_apps.jobs.job_folder import HEARTBEAT_SECONDS, JobFolder
    from spark_apps.storage.store import Store

    requests: Counter[str] = Counter()
    _count_requests(Store, requests)
    jobs = [(str(place / f"t{number % TABLES}"), f"job{number}.1.aa") for number in range(JOBS)]
    listing = place / "jobs"
    listing.write_text("\n".join(" ".join(job) for job in jobs))
    triggers = [
        JobTrigger(submission=Submission(job_id, where, "waiting").to_dict(), poll_interval=POLL_SECONDS)
        for where, job_id in jobs
    ]
    latencies: list[float] = []

    async def wait(trigger: Any, where: str, job_id: str) -> None:
        async for event in trigger.run():
            assert event.payload == {"status": "done"}, event.payload
            outcome = JobFolder(Store(where), job_id).outcome()
            assert isinstance(outcome, Outcome)
            latencies.append(time.time() - outcome.value["at"])

    seconds = max(BEGUN_SECONDS.values()) + MEASURED_SECONDS + POLL_SECONDS
    apps = subprocess.Popen(
        [sys.executable, "-c", _APPS, str(listing), str(HEARTBEAT_SECONDS), str(seconds), str(ENDED)]
    )
    tasks = [asyncio.create_task(wait(trigger, *job)) for trigger, job in zip(triggers, jobs, strict=True)]
    first = time.monotonic()
    costs = {}
    for name, age in BEGUN_SECONDS.items():
        await asyncio.sleep(first + age - time.monotonic())
        requests.clear()
        begun, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(MEASURED_SECONDS)
        costs[name] = _cost(time.monotonic() - begun, time.process_time() - cpu, requests)
    while len(latencies) < ENDED:
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(apps.wait)
    _print(report, costs, latencies)


def _count_requests(store: Any, requests: Counter[str]) -> None:
    whole = store._call

    def counted(self: Any, verb: str, key: str, call: Any) -> Any:
        requests[verb] += 1
        return whole(self, verb, key, call)

    store._call = counted


def _cost(seconds: float, used: float, requests: Counter[str]) -> tuple[str, ...]:
    asked = (f"{requests[verb] / seconds:.1f}" for verb in _VERBS)
    return (f"{100 * used / seconds:.1f} %", *asked)


def _print(report: Report, costs: dict[str, tuple[str, ...]], latencies: list[float]) -> None:
    title = f"{JOBS} waiting triggers on {TABLES} tables, a look every {POLL_SECONDS:g} s"
    asked = (f"{verb} requests a second" for verb in _VERBS)
    rows = [(name, *cost) for name, cost in costs.items()]
    report.table(title, ("jobs", "CPU of the process, of one core", *asked), rows)
    delays = (f"{statistics.median(latencies):.1f} s", f"{max(latencies):.1f} s")
    report.table("From an app's end to its event, later", ("median", "longest"), [delays])
