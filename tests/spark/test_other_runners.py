"""Runners that are not of this package: one written by the public protocol alone, and operators that were wrapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.__main__ import publish
from spark_apps.storage.errors import InvalidInput, JobFailed
from tests.spark import jobs
from tests.spark.clusters import ConnectServer

pytestmark = pytest.mark.by_turn(16)

HERE = "tests.spark"


def test_given_a_runner_of_a_third_party_then_a_real_app_runs_by_it(server: ConnectServer, tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    settings = SparkSettings(
        master=server.address,
        token=server.token,
        runner=f"{HERE}.third_party_runner.QueueRunner",
        runner_options={"queue": str(tmp_path / "queue")},
    )
    source = jobs.write_rows(tmp_path / "rows.parquet", range(12), 1)

    receipt = jobs.run(settings, "write_table", tmp_path / "t", jobs.upsert(source, create=True))

    assert (receipt["operation"], receipt["metrics"]["rows"]) == ("upsert", 12)
    assert len(list((tmp_path / "queue").iterdir())) == 1


def test_given_a_wrapped_operator_then_the_jobs_folder_tells_how_its_app_ended(tmp_path: Path) -> None:
    at, _, _ = publish(str(tmp_path / "bundles"), {})
    settings = SparkSettings(bundle=at, runner=f"{HERE}.operators.by_shell")
    source = jobs.write_rows(tmp_path / "rows.parquet", range(12), 1)

    receipt = jobs.run(settings, "write_table", tmp_path / "t", jobs.upsert(source, create=True))

    assert receipt["metrics"]["rows"] == 12


def test_given_a_wrapped_operator_that_fails_then_its_own_words_are_told(tmp_path: Path) -> None:
    settings = SparkSettings(bundle=str(tmp_path), runner=f"{HERE}.operators.by_a_broken_one")

    with pytest.raises(JobFailed, match=r"BashOperator.*verify_index.*exit code 3"):
        jobs.run(settings, "verify_index", tmp_path / "t", {})


def test_given_no_bundle_or_a_secret_then_nothing_is_submitted(tmp_path: Path) -> None:
    settings = SparkSettings(runner=f"{HERE}.operators.by_shell")

    with pytest.raises(InvalidInput, match="python -m spark_apps bundle"):
        jobs.run(settings, "verify_index", tmp_path / "t", {})
    with pytest.raises(InvalidInput, match="storage option aws_secret_access_key"):
        jobs.run(settings, "verify_index", tmp_path / "t", {}, storage_options={"aws_secret_access_key": "x"})
