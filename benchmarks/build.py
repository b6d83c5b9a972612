"""Building an index of each kind / Spark's floor for the same rows.

Each build is of a fresh index over all rows; the floor reads the columns that the index holds from the table's own
files, shuffles and sorts them as the index is, and writes as many Parquet files with the same compression. The floor of
a compact index writes each row's file and number; the index itself writes a value once a block, so it writes less. A
build of few rows is mostly the start of its jobs, and of the commit: the target is one of millions.
"""

from __future__ import annotations

import itertools
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Answer, Case, interleaved
from benchmarks.report import Report
from benchmarks.wide_tables import KINDS, create, files_of, index_floor, paths_of, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a kind."""
    with workplace() as (spark, folder):
        rows = arguments.rows
        table = wide_table(spark, folder / "table", rows)
        repeats = 3 if arguments.full else arguments.repeats
        for kind in KINDS:
            _compare(report, spark, table, kind, folder, rows, repeats)


def _compare(
    report: Report, spark: SparkSession, table: IndexedTable, kind: str, folder: Path, rows: int, repeats: int
) -> None:
    names = (f"{kind}_{number}" for number in itertools.count())
    paths, made = paths_of(table, files_of(table)), dict[str, int]()

    def build() -> Answer:
        name = next(names)
        begun = time.perf_counter()
        create(table, name, kind)
        seconds = time.perf_counter() - begun
        files = files_of(table, name)
        made["files"] = len(files)
        table.drop_index(name)
        counts = {"files": len(files), "bytes": sum(file.bytes for file in files), "rows": sum(f.rows for f in files)}
        return Answer(counts, seconds)

    floor = partial(lambda: index_floor(spark, paths, kind, made["files"], folder / "floor"))
    cases: dict[str, Case] = {"build": build, "floor": floor}
    timings = interleaved(cases, repeats)
    report.timings(f"Build of a {kind} index over {rows:,} rows", timings, "floor")
    built, least = timings
    report.verdict(1, kind, built.median / least.median)
