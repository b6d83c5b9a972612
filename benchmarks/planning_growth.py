"""What planning a plain query costs as a registered source grows, beside Spark's own planning of the same text.

A folder of small Parquet files in 80 partitions is registered with a secondary and a skipping index. Texts that the
indexes prune to few files, that no index fits, and without a filter are planned in a session with the rule and, in
turn, in one of the same Spark without it: with the folder read anew for each query, as code that begins with
``spark.read.parquet`` does; over a view whose files are listed once; and over this view to the first task, that is with
the list of the scan's files and of the tasks that read them, before which no query begins. Then 64 plannings run in 16
threads.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import interleaved
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 80
FILES = (800, 8_000)
ROWS_PER_FILE = 20

QUERIES = {
    "pruned to few files": "SELECT * FROM {trips} WHERE rider = 'r777'",
    "pruned by ranges": "SELECT * FROM {trips} WHERE fare BETWEEN 2000 AND 2003",
    "no index fits": "SELECT * FROM {trips} WHERE city = 'c3'",
    "no filter": "SELECT day, count(*) AS n FROM {trips} GROUP BY day",
    "a self-join": "SELECT a.id FROM {trips} a JOIN {trips} b ON a.id = b.id "
    "WHERE a.rider = 'r777' AND b.rider = 'r777'",
}
THREADS, PLANNINGS = 16, 64


def run(report: Report, arguments: Namespace) -> None:
    """Prints what planning takes with the rule and without, one by one and in threads."""
    import spark_apps

    with workplace() as (spark, folder):
        for files in FILES:
            path = folder / f"trips-{files}"
            write(path, files)
            register(spark, path)
            spark_apps.enable(spark)
            plain = spark.newSession()
            for title, text in QUERIES.items():
                for how, cases in (
                    ("read anew", _anew(spark, plain, path, text)),
                    ("a view", _views(spark, plain, path, text, _plan)),
                    ("a view, to its tasks", _views(spark, plain, path, text, _tasks)),
                ):
                    timings = interleaved(cases, arguments.repeats, warm=2)
                    report.timings(f"{files:,} files, {how}: {title}", timings, "without")
            first = next(iter(QUERIES.values()))
            for how, plan in (("plannings", _plan), ("plannings to their tasks", _tasks)):
                cases = {
                    name: partial(_at_once, case) for name, case in _views(spark, plain, path, first, plan).items()
                }
                title = f"{files:,} files: {PLANNINGS} {how} in {THREADS} threads"
                report.timings(title, interleaved(cases, arguments.repeats, warm=2), "without")
            spark_apps.disable(spark)


def write(path: Path, files: int) -> None:
    """Write small files of trips, in partitions of days; each rider is in one file of a hundred."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(files):
        folder = path / f"day=d{number % PARTITIONS:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        rows = {
            "id": pa.array(ids, pa.int64()),
            "rider": [f"r{n // 40}" for n in ids],
            "fare": pa.array([n / 10 for n in ids], pa.float64()),
            "city": [f"c{n % 7}" for n in ids],
        }
        pq.write_table(pa.table(rows), folder / f"part-{number:05d}.parquet")


def register(spark: SparkSession, path: Path) -> None:
    """Register the folder, with a secondary and a skipping index."""
    from spark_apps import IndexedTable

    table = IndexedTable.register(spark, path)
    table.create_index("by_rider", "secondary", ["rider"])
    table.create_index("by_fare", "skipping", ["minmax(fare)"])


def _anew(spark: SparkSession, plain: SparkSession, path: Path, text: str) -> dict[str, Callable[[], object]]:
    asked = text.format(trips=f"parquet.`{path}`")
    return {"with the rule": partial(_plan, spark, asked), "without": partial(_plan, plain, asked)}


def _views(
    spark: SparkSession, plain: SparkSession, path: Path, text: str, plan: Callable[[SparkSession, str], None]
) -> dict[str, Callable[[], object]]:
    for session in (spark, plain):
        session.read.parquet(str(path)).createOrReplaceTempView("trips")
    asked = text.format(trips="trips")
    return {"with the rule": partial(plan, spark, asked), "without": partial(plan, plain, asked)}


def _plan(session: SparkSession, text: str) -> None:
    frame: Any = session.sql(text)
    frame._jdf.queryExecution().executedPlan()


def _tasks(session: SparkSession, text: str) -> None:
    frame: Any = session.sql(text)
    frame._jdf.queryExecution().toRdd().getNumPartitions()


def _at_once(plan: Callable[[], object]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: plan(), range(PLANNINGS)))
