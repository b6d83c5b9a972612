"""``python -m tests.spark.measure``: the time of a small refresh by ``spark-submit`` and over Spark Connect, from the
submission to the answer, each with a session of its own."""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_index.runners.settings import SparkSettings
from tests.spark import jobs
from tests.spark.clusters import connect_server

RUNS = 5
CONF = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"}


def refreshes(settings: SparkSettings, folder: Path, runs: int = RUNS) -> list[tuple[float, float]]:
    """Wall and processor seconds of this machine's own processes, for each of some refreshes after an upsert."""
    folder.mkdir()
    table = folder / "table"
    index = {"name": "by_city", "kind": "secondary", "columns": ["city"], "deferred": True}
    jobs.run(settings, "write_table", table, jobs.upsert(jobs.write_rows(folder / "0.parquet", range(1000), 1), True))
    jobs.run(settings, "build_index", table, index)
    jobs.run(settings, "refresh_index", table, {"name": "by_city"})
    timings = []
    for n in range(1, runs + 1):
        rows = jobs.write_rows(folder / f"{n}.parquet", range(n, 1000, 50), n + 1)
        jobs.run(settings, "write_table", table, jobs.upsert(rows))
        timings.append(timed(lambda: jobs.run(settings, "refresh_index", table, {"name": "by_city"})))
    return timings


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Wall seconds, and processor seconds of the processes that were started and have ended."""
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - wall, used


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        with connect_server(home / "server") as server:
            over = {
                "over Spark Connect": SparkSettings(master=server.address),
                "by spark-submit": SparkSettings(master="local[2]", conf=CONF),
            }
            for way, settings in over.items():
                timings = refreshes(settings, home / way.replace(" ", "-"))
                wall, used = (statistics.median(one[n] for one in timings) for n in (0, 1))
                seconds = " ".join(f"{one[0]:.1f}" for one in timings)
                sys.stdout.write(f"{way:<20} {wall:5.1f} s (runs: {seconds}), {used:.1f} s of processors\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
