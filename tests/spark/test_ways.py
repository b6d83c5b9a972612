"""The same apps, unchanged, by every way to Spark: on a standalone cluster attached and detached, and over Spark
Connect. The ways have to agree on every answer."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_index.runners.connect import ConnectRunner
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner
from spark_apps.jobs.job import Job
from spark_apps.storage.errors import JobFailed
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.spark import jobs, life
from tests.spark.clusters import ConnectServer, Standalone

pytestmark = pytest.mark.by_turn(16)


def on_cluster(cluster: Standalone) -> SparkSettings:
    return SparkSettings(master=cluster.master, conf=cluster.conf, options={"driver-memory": "600m"})


def on_server(server: ConnectServer, token: str | None = None) -> SparkSettings:
    return SparkSettings(master=server.address, token=token or server.token, conf={"spark.sql.shuffle.partitions": "2"})


def lived(runner: Any, folder: Path) -> dict[str, Any]:
    (folder / "in").mkdir()
    arguments = {"steps": life.steps(folder / "in")}
    try:
        status = jobs.wait(
            runner, runner.submit(Job("scenario", str(folder / "table"), arguments, app_name="life")), 280
        )
    finally:
        runner.close()
    assert status.outcome is not None, status.detail
    answer: dict[str, Any] = jobs.answered(status.outcome)
    return answer


@pytest.fixture(scope="module")
def on_a_cluster(cluster: Standalone, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("classic")
    bundle = life.bundle_with_scenario(folder / "cache")
    return lived(SparkSubmitRunner(on_cluster(cluster), logging.getLogger("tests"), bundle), folder)


@pytest.mark.heavy
def test_given_a_standalone_cluster_then_a_tables_whole_life_runs_on_it(
    on_a_cluster: dict[str, Any], cluster: Standalone
) -> None:
    assert on_a_cluster["rows"] == life.expected_rows()
    assert on_a_cluster["found"] == [row[0] for row in life.expected_rows() if row[2] == "oslo"]
    assert "by_city" in on_a_cluster["considered"]
    step, reports = on_a_cluster["steps"][-1]
    assert step == "verify_index" and {name: report["ok"] for name, report in reports.items()} == {
        "by_city": True,
        "keys": True,
    }
    assert set(on_a_cluster["buckets"].values()) == {3}
    assert list(cluster.work.glob("app-*/0/stderr")), "no executor of the worker has run anything"


@pytest.mark.heavy
def test_given_executors_then_their_python_takes_the_apps_from_the_bundle(on_a_cluster: dict[str, Any]) -> None:
    assert on_a_cluster["workers"]
    assert all("spark_apps.zip/" in where for where in on_a_cluster["workers"])


@pytest.mark.heavy
def test_given_spark_connect_then_the_same_life_gives_the_same_answers(
    on_a_cluster: dict[str, Any], server: ConnectServer, tmp_path: Path
) -> None:
    bundle = life.bundle_with_scenario(tmp_path / "cache")

    over_connect = lived(ConnectRunner(on_server(server), logging.getLogger("tests"), bundle), tmp_path)

    assert over_connect["spark"].startswith("connect ")
    assert all("spark_apps.zip/" in where for where in over_connect["workers"])
    for part in ("steps", "rows", "found", "considered", "buckets"):
        assert over_connect[part] == on_a_cluster[part], part


def test_given_a_detached_driver_on_the_cluster_then_it_commits_after_its_task_has_left(
    cluster: Standalone, tmp_path: Path
) -> None:
    settings = SparkSettings(**{**vars(on_cluster(cluster)), "driver_logs": str(tmp_path / "logs")})
    source = jobs.write_rows(tmp_path / "rows.parquet", range(20), 1)

    receipt = jobs.run(settings, "write_table", tmp_path / "t", jobs.upsert(source, create=True), detached=True)

    assert receipt["metrics"]["rows"] == 20
    assert Timeline.load(Store(tmp_path / "t")).head.version == receipt["version"]


def test_given_a_server_then_small_work_attached_and_detached_needs_no_jvm_of_its_own(
    server: ConnectServer, tmp_path: Path
) -> None:
    settings = SparkSettings(**{**vars(on_server(server)), "driver_logs": str(tmp_path / "logs")})
    source = jobs.write_rows(tmp_path / "rows.parquet", range(20), 1)

    jobs.run(settings, "write_table", tmp_path / "t", jobs.upsert(source, create=True))
    receipt = jobs.run(settings, "build_index", tmp_path / "t", {"name": "keys", "kind": "record"}, detached=True)

    assert receipt["metrics"]["entries"] == 20
    assert Timeline.load(Store(tmp_path / "t")).head.version == receipt["version"]


def test_given_a_wrong_token_then_the_error_says_so_and_shows_no_token(server: ConnectServer, tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as caught:
        jobs.run(on_server(server, token="not-the-token"), "verify_index", tmp_path / "t", {})

    said = json.dumps([str(caught.value), caught.value.hint])
    assert server.address in said and "does not answer" in said and "token" in said
    assert "not-the-token" not in said


def test_given_a_cancelled_app_then_the_server_is_free_again_and_no_process_told_the_token(
    server: ConnectServer, tmp_path: Path
) -> None:
    runner = ConnectRunner(on_server(server), logging.getLogger("tests"))
    # As many tasks as the server has cores, each asleep for far longer than this test may take.
    slow = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint(900000))) AS city FROM range(0, 2, 1, 2)"
    create = {"schema": "id bigint, city string", "record_key": ["id"], "buckets": 1}
    arguments = {"batches": [{"operation": "upsert", "sql": slow}], "create": create}
    try:
        handle = runner.submit(Job("write_table", str(tmp_path / "slow"), arguments))
        wait_until(lambda: "of 2 tasks" in runner.status(handle).detail)
        process = psutil.Process(int(handle))
        assert server.token is not None and server.token not in " ".join(process.cmdline())
        assert server.token not in json.dumps(process.environ())
        runner.cancel(handle)
        jobs.wait(runner, handle, 10)
    finally:
        runner.close()
    source = jobs.write_rows(tmp_path / "rows.parquet", range(2), 1)
    assert jobs.run(on_server(server), "write_table", tmp_path / "t", jobs.upsert(source, create=True))["version"] == 1


def wait_until(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
