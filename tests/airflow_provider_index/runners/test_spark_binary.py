"""Which Spark a ``spark-submit`` runs that the connection names: the one it belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner


def spark(folder: Path) -> tuple[Path, Path]:
    """A Spark as it is unpacked: its ``spark-submit`` and its home."""
    (folder / "jars").mkdir(parents=True)
    return program(folder / "bin" / "spark-submit", "spark-class"), folder


def python_environment(folder: Path) -> tuple[Path, Path]:
    """A Python environment into which pip installed pyspark."""
    home = folder / "lib" / "python3.11" / "site-packages" / "pyspark"
    home.mkdir(parents=True)
    return program(folder / "bin" / "spark-submit", "spark-class", "find_spark_home.py"), home


def script_around_one(folder: Path) -> tuple[Path, None]:
    return program(folder / "bin" / "spark-submit"), None


def program(path: Path, *beside: str) -> Path:
    path.parent.mkdir(parents=True)
    for each in (path, *(path.with_name(name) for name in beside)):
        each.write_text("#!/bin/sh\n")
        each.chmod(0o755)
    return path


def run_with(binary: Path | str, **environment: str) -> tuple[str, str | None]:
    """The program that would be started, and the Spark home that it would be told."""
    settings = SparkSettings(master="local[1]", binary=str(binary), environment=environment)
    found, variables = SparkSubmitRunner(settings, logging.getLogger("test"))._surroundings()
    return found, variables.get("SPARK_HOME")


@pytest.mark.parametrize("made", [spark, python_environment])
@pytest.mark.parametrize("workers_own", [None, "/opt/another-spark"])
def test_given_a_path_then_its_own_spark_runs_whatever_the_worker_has(
    made: Callable[[Path], tuple[Path, Path]],
    workers_own: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    binary, home = made(tmp_path / "spark")
    link = tmp_path / "link"
    link.symlink_to(binary)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if workers_own:
        monkeypatch.setenv("SPARK_HOME", workers_own)

    assert run_with(binary) == (str(binary), str(home))
    assert run_with(link) == (str(link), str(home))


@pytest.mark.parametrize("workers_own", [None, "/opt/another-spark"])
def test_given_a_script_around_a_spark_then_the_workers_variables_stay(
    workers_own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, _ = script_around_one(tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if workers_own:
        monkeypatch.setenv("SPARK_HOME", workers_own)

    assert run_with(binary) == (str(binary), workers_own)


def test_given_a_name_then_the_workers_spark_home_holds_and_without_one_that_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, home = spark(tmp_path / "spark")
    monkeypatch.setenv("PATH", str(binary.parent))
    monkeypatch.setenv("SPARK_HOME", "/opt/another-spark")
    assert run_with("spark-submit") == (str(binary), "/opt/another-spark")

    monkeypatch.delenv("SPARK_HOME")
    assert run_with("spark-submit") == (str(binary), str(home))


def test_given_a_spark_home_in_the_connection_then_it_holds(tmp_path: Path) -> None:
    binary, _ = python_environment(tmp_path)

    assert run_with(binary, SPARK_HOME="/opt/spark") == (str(binary), "/opt/spark")
