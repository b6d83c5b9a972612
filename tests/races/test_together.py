"""Upserts, compactions of two DAGs, a backfill and a rescale on one table at once: each gets in within a few tries,
and the rows are what they would be one after the other.

A plain run lets them race as threads of one session; ``make races`` (``RACES=full``) as processes, for longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from tests.races.together import JOBS, JobProgress, expected, make, table_of
from tests.spark.local import set_environment

pytestmark = [pytest.mark.spark, pytest.mark.heavy]

FULL = os.environ.get("RACES") == "full"
SHORT = {"upserts-0": 3, "upserts-1": 2, "compactions-a": 2, "compactions-b": 2, "backfills": 2, "rescales": 1}
LONG = {"upserts-0": 12, "upserts-1": 12, "compactions-a": 6, "compactions-b": 6, "backfills": 6, "rescales": 2}
ROUNDS = LONG if FULL else SHORT
MOST_TRIES = 8
"""Within so many tries every work is done: with Airflow's pauses (two minutes, doubled) that is a night."""


def by_threads(spark: Any, uri: str, rounds: dict[str, int]) -> list[JobProgress]:
    with ThreadPoolExecutor(len(rounds)) as pool:
        running = [pool.submit(JOBS[job], spark, uri, number) for job, number in rounds.items()]
        return [one.result() for one in running]


def by_processes(uri: str, rounds: dict[str, int]) -> list[JobProgress]:
    set_environment()
    root = Path(__file__).parents[2]
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.races.together", job, uri, str(number)],
            cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for job, number in rounds.items()
    ]  # fmt: skip
    try:
        progress = []
        for racer in racers:
            output, errors = racer.communicate(timeout=1500)
            assert racer.returncode == 0, errors[-3000:]
            progress.append(JobProgress(**json.loads(output.strip().splitlines()[-1])))
        return progress
    finally:
        for racer in racers:
            if racer.poll() is None:
                racer.kill()
                racer.wait()


@pytest.mark.timeout(1800)
def test_given_all_jobs_at_once_when_each_is_retried_then_all_get_in_and_the_rows_are_right(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = str(tmp_path / "table")
    make(spark, uri)
    progress = by_processes(uri, ROUNDS) if FULL else by_threads(spark, uri, ROUNDS)
    with capsys.disabled():
        sys.stdout.write(f"\n{table_of(progress)}\n")

    for one, (job, rounds) in zip(progress, ROUNDS.items(), strict=True):
        assert len(one.tries) == rounds, job
        assert one.most_tries <= MOST_TRIES, one
    table = IndexedTable.load(spark, uri)
    assert {row.id: (row.p, row.v) for row in table.read().collect()} == expected(ROUNDS)
    assert table.verify("by_v").ok and not table._state.windows
    assert table.partitions["p=hot"].buckets == (2 if ROUNDS["rescales"] % 2 == 0 else 3)


def test_given_steady_upserts_alone_when_compacted_beside_them_then_neither_is_ever_refused(
    spark: Any, tmp_path: Path
) -> None:
    uri = str(tmp_path / "table")
    make(spark, uri)
    rounds = {"upserts-0": 3, "compactions-a": 2}
    progress = by_threads(spark, uri, rounds)

    assert [one.refused for one in progress] == [{}, {}]
    assert [one.most_tries for one in progress] == [1, 1] and progress[1].commits >= 1
    rows = {row.id: (row.p, row.v) for row in IndexedTable.load(spark, uri).read().collect()}
    assert rows == expected(rounds)
