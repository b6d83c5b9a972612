"""What the check of a connection says: on a disk that both stacks reach, and on an S3 that Spark has no jars for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_index.__main__ import main
from airflow_provider_index.hooks.connection_check import check_spark, check_store
from airflow_provider_index.hooks.table_store import TableStoreHook
from spark_apps.jobs.environment import hadoop_version
from spark_apps.jobs.program import ON_ITS_PAGE
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark.clusters import ConnectServer
from tests.spark.local import set_environment

pytestmark = pytest.mark.by_turn(8)


def connect(monkeypatch: pytest.MonkeyPatch, server: ConnectServer, **extra: object) -> TableStoreHook:
    # The server writes an event log, in which the store's keys will stand.
    shown = {"conf": {ON_ITS_PAGE: "true"}}
    spark = {"conn_type": "index_runner", "host": server.address, "password": server.token, "extra": shown}
    lake = {"conn_type": "index_table_store", "extra": {"spark_conn_id": "sparks", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARKS", json.dumps(spark))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    return TableStoreHook("lake")


def test_given_a_disk_that_both_reach_then_every_step_is_done_and_nothing_is_left(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch, server, warehouse=str(tmp_path))

    status = main(["check", "lake"])

    said = capsys.readouterr().out
    assert status == 0, said
    installed, *lines = said.splitlines()
    assert installed.startswith("Installed, and of releases that fit: pyspark ")
    assert all(line.endswith(" ok") for line in lines[:-1]) and lines[-1].startswith("all 34 checks ok"), said
    assert sum(line.startswith("Spark") for line in lines) == 6
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_given_an_s3_without_jars_then_obstore_reaches_it_and_spark_says_what_it_lacks(
    server: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as s3:
        hook = connect(monkeypatch, server, warehouse=f"s3://{BUCKET}/wh", storage_options=s3)

        here, there = check_store(hook), check_spark(hook)

    assert all(one.ok for one in here) and len(here) == 14
    assert [one.ok for one in there if one.stack == "obstore"] == [True] * 14
    rows = [one for one in there if one.stack == "Spark"]
    assert [one.ok for one in rows] == [True, False]
    assert f"org.apache.hadoop:hadoop-aws:{hadoop_version()}" in rows[-1].hint


def test_given_a_warehouse_that_cannot_be_written_then_the_form_says_what_cannot_be_done(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    hook = connect(monkeypatch, server, warehouse=str(tmp_path / "file"))

    done, said = hook.test_connection()

    assert not done and "obstore cannot" in said


@pytest.mark.by_turn(16)
def test_given_a_folder_and_no_airflow_then_the_program_prints_a_table_and_leaves_nothing(tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text("{}")
    set_environment()
    command = [
        sys.executable,
        "-m",
        "spark_apps.programs.check_storage",
        "--at",
        str(tmp_path / "lake"),
        "--options",
        str(options),
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("all 20 checks ok")
    assert [path for path in (tmp_path / "lake").rglob("*") if path.is_file()] == []
