"""Links of a task: there from its beginning, and after it has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.links import DriverLogLink, SparkUILink, TablePageLink
from airflow_provider_index.operators import RefreshIndexOperator, VerifyIndexOperator
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.submission import Submission
from spark_apps.jobs.heartbeat import container_log
from spark_apps.jobs.job import HISTORY_SERVER, ErrorDocument, Outcome
from spark_apps.jobs.job_folder import JobFolder, JobHeartbeat
from spark_apps.timeline.log import Timeline
from tests.airflow_provider_index.operators.plain_table import context, make_table

UI, HISTORY, LOG = (
    "http://driver:4040",
    "http://history:18080/history/app-1/",
    "http://node:8042/node/containerlogs/c/u",
)
FAILED = Outcome("error", error=ErrorDocument("VerificationFailed", "by_city differs"))


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    return make_table(tmp_path / "t")


def test_given_a_task_that_fails_before_spark_then_it_has_the_link_of_its_table(table: Timeline) -> None:
    task, given = RefreshIndexOperator(task_id="r", table=table.store.uri, index="gone"), context("r")
    with pytest.raises(AirflowFailException, match="IndexNotFound"):
        task.execute(given)

    link = given["ti"].pushed["_link_TablePageLink"]
    assert "/lakeindex/tables?table=" in link and link == TablePageLink().get_link(task, ti_key=None)


class Reporter:
    """A runner of a third party whose app reports its pages, and fails."""

    detached, start_seconds = False, 1.0

    def __init__(self, *_: Any, **__: Any) -> None:
        self._left = [JobStatus(True, ui=UI), JobStatus(True, ui=UI, history=HISTORY, log=LOG)]

    def submit(self, job: Any) -> str:
        return "1"

    def status(self, handle: str) -> JobStatus:
        return self._left.pop(0) if self._left else JobStatus(False, "", FAILED, UI, HISTORY, LOG)

    def cancel(self, handle: str) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing was taken."""


def test_given_an_app_that_reports_its_pages_and_fails_then_spark_s_link_is_the_lasting_one_and_the_log_is_linked(
    table: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    task = VerifyIndexOperator(task_id="v", table=table.store.uri, runner=f"{__name__}.Reporter", poll_interval=0.01)
    given = context("v")
    with pytest.raises(AirflowFailException, match="by_city differs"):
        task.execute(given)

    assert given["ti"].pushed["_link_SparkUILink"] == UI, "while it works"
    assert given["ti"].pushed["_link_DriverLogLink"] == LOG
    assert SparkUILink().get_link(task, ti_key=None) == HISTORY
    assert DriverLogLink().get_link(task, ti_key=None) == LOG


def test_given_a_deferred_task_whose_app_has_failed_then_its_pages_are_those_of_the_last_heartbeat(
    table: Timeline,
) -> None:
    folder = JobFolder(table.store, "a-job-1")
    folder.write_heartbeat(JobHeartbeat(1.0, ui="http://user:secret@driver:4040", history=HISTORY))
    folder.finish(FAILED)
    submission = Submission("a-job-1", table.store.uri, "index_table_store_default")
    task, given = VerifyIndexOperator(task_id="v", table=table.store.uri, deferrable=True), context("v")
    with pytest.raises(AirflowFailException, match="by_city differs"):
        task.execute_complete(given, {"status": "done"}, submission.to_dict(), None)

    assert SparkUILink().get_link(task, ti_key=None) == HISTORY and task.spark_ui_url in (None, "")
    assert "lakeindex/tables" in TablePageLink().get_link(task, ti_key=None)


def test_given_a_resumption_without_what_was_handed_on_then_the_remembered_job_is_read_or_the_error_says_what_to_do(
    table: Timeline,
) -> None:
    folder = JobFolder(table.store, "a-job-1")
    folder.finish(FAILED)
    task, given = VerifyIndexOperator(task_id="v", table=table.store.uri, deferrable=True), context("v")
    with pytest.raises(AirflowFailException, match=r"dag\.test\(\).*deferrable=False"):
        task.execute_complete(given, {"status": "done"})

    task._remember(given, Submission("a-job-1", table.store.uri, "index_table_store_default"))
    with pytest.raises(AirflowFailException, match="by_city differs"):
        task.execute_complete(given, {"status": "done"})


def test_given_a_connection_with_a_history_server_then_apps_are_told_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.sdk import Connection

    made = Connection(
        conn_id="s", conn_type="spark", host="yarn", extra=json.dumps({"history-server": "http://history:18080"})
    )
    assert SparkSettings.from_connection(made).conf[HISTORY_SERVER] == "http://history:18080"

    assert container_log() == ""
    container = {"NM_HOST": "node", "NM_HTTP_PORT": "8042", "CONTAINER_ID": "c", "USER": "u"}
    for name, value in container.items():
        monkeypatch.setenv(name, value)
    assert container_log() == LOG
