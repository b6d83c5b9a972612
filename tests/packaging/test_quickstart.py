"""The quickstart: what it shows is so, and its exit status says when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.__main__ import main
from spark_apps.cli import quickstart

pytestmark = pytest.mark.by_turn(8)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plain_again(spark):
    yield spark
    spark_apps.disable(spark)
    spark.catalog.dropTempView("trips")


def test_given_fewer_rows_then_the_answer_comes_out_of_one_file_of_the_index(plain_again, tmp_path, capsys):
    assert quickstart.run(plain_again, tmp_path, rows=20_000)

    lines = {line[:10].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert [*lines] == ["A table", "The query", "Before", "An index", "After", "Verify", ""]
    assert "20,000 trips, written by Spark as 30 Parquet files" in lines["A table"]
    assert "out of 30 files" in lines["Before"]
    assert "out of 1 file " in lines["After"]
    assert "20,000 rows and 20,000 entries of the index agree" in lines["Verify"]


@pytest.mark.by_turn(16)
def test_given_an_index_that_differs_from_the_rows_then_it_has_failed(plain_again, tmp_path, capsys, monkeypatch):
    class Report:
        rows, entries, ok = 20_000, 19_999, False

    monkeypatch.setattr(IndexedTable, "verify", lambda *_: Report)

    assert not quickstart.run(plain_again, tmp_path, rows=20_000)

    assert "DIFFER" in capsys.readouterr().out


def test_given_a_folder_that_is_there_then_nothing_is_started(tmp_path, capsys):
    assert main(["quickstart", "--keep", str(tmp_path)]) == 1

    assert "is there already. Nothing was changed. Name another folder." in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.by_turn(24)
def test_from_a_shell_it_prints_a_few_lines_and_keeps_what_it_made(tmp_path):
    command = [sys.executable, "-m", "spark_apps", "quickstart", "--rows", "100000", "--keep", str(tmp_path / "lake")]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert len(done.stdout.splitlines()) == 8
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"trips", "_indexes"}
