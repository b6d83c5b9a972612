"""A driver on a standalone cluster that loses its worker, or its master: what is killed commits nothing, what goes on
commits once."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner, members
from spark_apps.jobs.job import Job
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, find_receipt, live_attempts_of
from tests.spark import jobs
from tests.spark.clusters import Standalone, standalone_cluster

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600), pytest.mark.by_turn(8)]

CREATE = {"schema": "id bigint, city string", "record_key": ["id"], "buckets": 1}
SLOW = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint({}))) AS city FROM range(0, 1, 1, 1)"


def begun(cluster: Standalone, table: Path, milliseconds: int) -> tuple[SparkSubmitRunner, str]:
    """A write in the middle of its attempt: its row takes that long."""
    settings = SparkSettings(master=cluster.master, conf=cluster.conf, options={"driver-memory": "600m"})
    runner = SparkSubmitRunner(settings, logging.getLogger("tests"))
    arguments = {"batches": [{"operation": "upsert", "sql": SLOW.format(milliseconds)}], "create": CREATE}
    handle = runner.submit(Job("write_table", str(table), arguments, txn_id="slow"))
    wait_until(lambda: list(cluster.work.glob("app-*/0/stderr")) and attempts(table))
    return runner, handle


def attempts(table: Path) -> list[Any]:
    try:
        return list(live_attempts_of(Timeline.load(Store(table)), "slow"))
    except Exception:  # noqa: BLE001 - the table is only being made
        return []


def wait_until(condition: Callable[[], Any], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_given_a_lost_worker_when_the_task_ends_then_the_driver_is_gone_and_nothing_is_committed(
    tmp_path: Path,
) -> None:
    with standalone_cluster(tmp_path) as cluster:
        runner, handle = begun(cluster, tmp_path / "t", 600_000)
        try:
            # The worker with its executors, as a machine is lost.
            os.killpg(cluster.worker_pid, signal.SIGKILL)
            time.sleep(2)
            assert runner.status(handle).running, "a driver waits for another worker"
            runner.cancel(handle)
            assert not members(int(handle))
        finally:
            runner.close()
        timeline = Timeline.load(Store(tmp_path / "t"))
        for attempt in live_attempts_of(timeline, "slow"):
            abort(timeline, "slow", attempt, "its worker was lost")
        assert find_receipt(Timeline.load(Store(tmp_path / "t")), "slow") is None


def test_given_a_master_that_is_killed_then_a_driver_with_its_executors_commits_once(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster:
        runner, handle = begun(cluster, tmp_path / "t", 5_000)
        try:
            os.kill(cluster.master_pid, signal.SIGKILL)
            status = jobs.wait(runner, handle, 200)
        finally:
            runner.close()
        timeline = Timeline.load(Store(tmp_path / "t"))
        receipt = find_receipt(timeline, "slow")
        assert receipt is not None and receipt.version == timeline.head.version, status
        assert jobs.answered(status.outcome)["version"] == receipt.version
