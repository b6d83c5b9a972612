"""Drivers on a real YARN: submitted, followed, failed, killed, their node and their master lost, taken up by another
process and killed. YARN's word for an application proves nothing of its driver: commits are fenced by attempt."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec.structs
import pytest

from airflow_provider_index.runners import by_provider
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.cluster_mode import ClusterModeRunner
from airflow_provider_index.submission import Submission, cancel
from spark_apps.jobs.job import Job
from spark_apps.jobs.job_folder import JobFolder
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.spark import jobs
from tests.spark.yarn import Yarn, start_node_manager, yarn_cluster

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900), pytest.mark.by_turn(8)]

LOG = logging.getLogger("tests.yarn")
SLEEP = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint({}))) AS city FROM range(0, 1, 1, 1)"
"""A batch of a row that takes its time, so that the driver is in the middle of its attempt."""
CREATE = {"schema": "id bigint, city string", "record_key": ["id"], "buckets": 1}


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with contextlib.ExitStack() as running:
        try:
            cluster = running.enter_context(yarn_cluster(tmp_path_factory.mktemp("yarn")))
        except ConnectionError as error:
            pytest.skip(f"YARN NOT TESTED: {error}")
        yield cluster


class Handed:
    """A job that was handed to YARN, as an operator does it."""

    def __init__(self, yarn: Yarn, table: Path, sql: str) -> None:
        self.yarn = yarn
        self.table = table
        self.settings = yarn.settings()
        self.runner = ClusterModeRunner(self.settings, LOG)
        self.job_id = f"job-{time.time_ns():x}"
        self.folder = JobFolder(Store(table), self.job_id)
        arguments = {"batches": [{"operation": "upsert", "sql": sql}], "create": CREATE}
        job = Job("write_table", str(table), arguments, app_name="tests", txn_id=self.job_id)
        self.app = self.runner.submit(
            msgspec.structs.replace(job, detached=True, job_id=self.job_id, jobs_at=str(table))
        )

    def status(self) -> JobStatus:
        """What a process that knows the handle alone is answered."""
        return ClusterModeRunner(self.settings, LOG).status(self.app)

    def cancel(self) -> None:
        """End it as a task does that is killed, or that finds the job of an earlier try."""
        submission = Submission(self.job_id, str(self.table), "lake", handle=self.app)
        cancel(submission, {}, self.settings, LOG, "the task was killed")

    def wait_for(self, condition: Callable[[], Any], seconds: float = 240) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{self.yarn.application(self.app)}\n{self.yarn.lines()}"
            time.sleep(0.3)
        return found

    def wait_until_at_work(self) -> None:
        """Wait until its attempt has begun, which is in the table's folder."""
        self.wait_for(lambda: list(self.table.glob("_index/transactions/*/*")))


def test_given_yarn_then_an_app_is_submitted_and_followed_to_its_commit(yarn: Yarn, tmp_path: Path) -> None:
    handed = Handed(yarn, tmp_path / "t", "SELECT id, 'oslo' AS city FROM range(9)")

    assert handed.app.startswith("application_")
    assert handed.status().running
    outcome = handed.wait_for(handed.folder.outcome)
    assert jobs.answered(outcome)["version"] == Timeline.load(Store(handed.table)).head.version
    if by_provider.follows(handed.settings):
        handed.wait_for(lambda: not handed.status().running)
        assert "SUCCEEDED" in handed.status().detail
    assert yarn.application(handed.app)["finalStatus"] in ("SUCCEEDED", "UNDEFINED")


def test_given_an_app_that_fails_then_its_words_come_back_and_yarn_calls_it_ended(yarn: Yarn, tmp_path: Path) -> None:
    handed = Handed(yarn, tmp_path / "t", "SELECT * FROM nowhere_to_be_found")

    outcome = handed.wait_for(handed.folder.outcome)
    assert "nowhere_to_be_found" in json.dumps(msgspec.to_builtins(outcome.error))
    handed.wait_for(lambda: yarn.application(handed.app)["state"] in ("FINISHED", "FAILED"))
    assert not by_provider.follows(handed.settings) or not handed.status().running


def test_given_a_task_that_is_lost_then_another_process_ends_its_app_and_nothing_is_committed(
    yarn: Yarn, tmp_path: Path
) -> None:
    handed = Handed(yarn, tmp_path / "t", SLEEP.format(20_000))
    handed.wait_until_at_work()

    on_kill_after_a_reconnect(yarn, handed.app)
    assert yarn.application(handed.app)["state"] == "RUNNING", "the provider ends it: our request may go"
    handed.cancel()

    handed.wait_for(lambda: yarn.application(handed.app)["state"] == "KILLED")
    handed.wait_for(lambda: not yarn.drivers(handed.app), 90)
    assert committed(handed) == []


def test_given_a_master_that_is_killed_then_no_second_driver_runs_under_its_id(yarn: Yarn, tmp_path: Path) -> None:
    handed = Handed(yarn, tmp_path / "t", SLEEP.format(20_000))
    handed.wait_until_at_work()

    for driver in yarn.drivers(handed.app):
        master = driver.parent()
        assert master is not None
        master.send_signal(signal.SIGKILL)
    handed.wait_for(lambda: yarn.application(handed.app)["state"] in ("FAILED", "KILLED", "FINISHED"))
    handed.cancel()

    handed.wait_for(lambda: not yarn.drivers(handed.app), 90)
    assert committed(handed) == []
    assert len(yarn.attempts(handed.app)) == 1


def test_given_a_node_manager_that_is_dead_then_a_driver_that_works_on_commits_nothing(
    yarn: Yarn, tmp_path: Path
) -> None:
    handed = Handed(yarn, tmp_path / "t", SLEEP.format(30_000))
    handed.wait_until_at_work()

    yarn.node_manager.kill()
    yarn.node_manager.wait()
    try:
        handed.cancel()
        handed.wait_for(lambda: yarn.application(handed.app)["state"] == "KILLED", 60)
        alive = yarn.drivers(handed.app)
        handed.wait_for(lambda: not yarn.drivers(handed.app), 120)
    finally:
        start_node_manager(yarn)
    assert alive, "the driver is dead: KILLED proves it, and the fence was not tried"
    assert committed(handed) == []


def committed(handed: Handed) -> list[str]:
    """What the table's log holds of the job, but for the end of its attempt."""
    timeline = handed.table / "_index" / "timeline"
    bodies = [json.loads(path.read_text()) for path in sorted(timeline.glob("0*.json"))]
    return [
        body.get("operation") for body in bodies if body.get("txn_id") == handed.job_id and "abort" not in str(body)
    ]


def on_kill_after_a_reconnect(yarn: Yarn, app: str) -> None:
    """What the provider's own operator does that has taken an app up again and is killed: nothing."""
    if by_provider.provider_release() < by_provider.FOLLOWS_CLUSTERS:
        return
    operator = by_provider.ClusterOperator(yarn.settings(), {})
    assert operator.status(app)[0]
    operator.on_kill()
