"""Airflow on one side and Spark on another, of other versions: an Airflow without Spark (Python 3.12) hands jobs to a
standalone cluster of Spark 3.5 with a bare Python 3.11.

Run in the environment ``airflow-only``, by ``make matrix ONLY=airflow-only`` once the others that are named here are
made. What Airflow's machine has of Spark is the ``spark-submit`` of another environment, which the connection names by
its path, as with a client installed beside Airflow. Drivers on YARN and Kubernetes are not to be had here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs import environment
from spark_apps.storage.errors import InvalidInput
from tests.matrix.installing import HOME, ROOT
from tests.spark import jobs

CLUSTER = "spark-3.5"
NEWER = "3.12"

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(420)]


def python_of(environment: str) -> Path:
    python = HOME / environment / "bin" / "python"
    assert python.exists(), f"make matrix ONLY={environment} SETUP=1 makes it"
    return python


@contextlib.contextmanager
def served(environment: str, kind: str, home: Path) -> Iterator[Mapping[str, Any]]:
    """What clients need to know of a cluster of another environment's Spark."""
    process = subprocess.Popen(
        [python_of(environment), "-m", "tests.matrix.server", kind, home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")},
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.communicate(timeout=60)


def connection(host: str, **extra: Any) -> SparkSettings:
    """The settings of an Airflow connection as a user fills it in."""
    port = None
    if host.startswith("sc://"):
        host, _, number = host.rpartition(":")
        port = int(number)
    return SparkSettings.from_connection(
        SimpleNamespace(
            conn_id="spark", conn_type="spark", host=host, port=port, login=None, password=None, schema=None,
            extra_dejson=extra, extra=json.dumps(extra),
        )
    )  # fmt: skip


def python_without_libraries(folder: Path) -> str:
    """A Python of the cluster's version that has nothing installed, as a cluster's machines have it."""
    subprocess.run([python_of(CLUSTER), "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def packed(python: str, folder: Path) -> Path:
    """The archive that the recipe makes, from Airflow's machine, for the cluster's Python."""
    subprocess.run(
        [sys.executable, "-m", "spark_apps", "bundle", "--to", folder, "--environment", "--python", python],
        check=True,
        cwd=ROOT,
    )
    (archive,) = folder.glob("*/environment.zip")
    return archive


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the connection to the cluster holds, without the libraries of the apps."""
    bare = python_without_libraries(tmp_path_factory.mktemp("cluster-python"))
    with served(CLUSTER, "standalone", tmp_path_factory.mktemp("standalone")) as settings:
        yield {
            "host": settings["master"],
            "spark-binary": str(python_of(CLUSTER).with_name("spark-submit")),
            "conf": {**settings["conf"], "spark.pyspark.python": bare},
        }


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {python: packed(python, tmp_path_factory.mktemp("bundle")) for python in ("3.11", NEWER)}


def with_archive(cluster: dict[str, Any], archive: Path, folder: Path) -> SparkSettings:
    """As the recipe's output says; the driver, which runs here in client mode, reads a copy that is unpacked."""
    with zipfile.ZipFile(archive) as packed_libraries:
        packed_libraries.extractall(folder)
    conf = {**cluster["conf"], "spark.executorEnv.PYTHONPATH": "environment"}
    given = {**cluster, "conf": conf, "archives": f"{archive}#environment", "environment": {"PYTHONPATH": str(folder)}}
    return connection(**given)


def test_on_this_side_there_is_an_airflow_and_no_spark() -> None:
    assert sys.version_info[:2] == (3, 12)
    assert find_spec("airflow") is not None
    # Airflow's provider of Spark brings the client, which has neither a spark-submit nor a Java part.
    assert not environment.spark_versions().jars


def test_given_the_archive_when_jobs_are_submitted_in_client_mode_then_rows_and_indexes_are_written_and_agree(
    cluster: dict[str, Any], archives: dict[str, Path], tmp_path: Path
) -> None:
    settings, table = with_archive(cluster, archives["3.11"], tmp_path / "environment"), tmp_path / "t"
    rows = jobs.write_rows(tmp_path / "rows.parquet", range(100), 1)

    written = jobs.run(settings, "write_table", table, jobs.upsert(rows, create=True))
    # Executors read blocks in Python: these need the archive.
    for kind in ("secondary", "compact"):
        arguments = {"name": f"by_{kind}", "kind": kind, "columns": ["city"], "deferred": kind == "compact"}
        jobs.run(settings, "build_index", table, arguments)
    more = jobs.write_rows(tmp_path / "more.parquet", range(50, 150), 2)
    jobs.run(settings, "write_table", table, jobs.upsert(more))

    assert written["metrics"]["rows"] == 100
    reports = jobs.run(settings, "verify_index", table, {})
    assert {name: report["ok"] for name, report in reports.items()} == {"by_compact": True, "by_secondary": True}


def test_given_no_archive_when_a_job_is_submitted_then_the_missing_libraries_are_named(
    cluster: dict[str, Any], tmp_path: Path
) -> None:
    settings = connection(**cluster, environment={"PYTHONPATH": ""})

    with pytest.raises(AssertionError, match=r"EnvironmentMismatch: .*lacks fastavro, google-re2, .*pip install"):
        jobs.run(settings, "verify_index", tmp_path / "t", {})


def test_given_an_archive_for_another_python_when_a_job_is_submitted_then_both_are_named(
    cluster: dict[str, Any], archives: dict[str, Path], tmp_path: Path
) -> None:
    settings = with_archive(cluster, archives[NEWER], tmp_path / "environment")

    message = r"EnvironmentMismatch: The Spark app runs on Python 3\.11 .*another one: .*msgspec \(cpython-312\)"
    with pytest.raises(AssertionError, match=message):
        jobs.run(settings, "verify_index", tmp_path / "t", {})


def test_given_a_standalone_cluster_when_its_drivers_are_to_run_there_then_it_is_refused_before_anything(
    cluster: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput, match=r"deploy mode 'cluster' on spark://.*Python"):
        connection(**cluster, **{"deploy-mode": "cluster"})
