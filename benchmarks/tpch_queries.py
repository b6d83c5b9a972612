"""The 22 queries of TPC-H, with indexes and without.

The generator's tables as they are, one Parquet file each, are registered sources; five covering indexes suit some of
the queries. The same texts are asked in a session with the rule and, in turn, in one of the same Spark without it.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, interleaved, processor_seconds, timed
from benchmarks.report import Report
from benchmarks.tpch import INDEXES, QUERIES, TABLES, alike, query
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE, FULL_SCALE = 1.0, 10.0
_SERVED = 0.9
"""A scan of which at most so much is read, of the bytes that plain Spark reads, is served by an index."""


def run(report: Report, arguments: Namespace) -> None:
    """Prints for each query the index of each scan, the bytes that are read, and the time with and without."""
    import spark_apps

    scale = FULL_SCALE if arguments.full else SCALE
    with workplace("6g") as (spark, folder):
        _register(report, spark, folder, scale)
        plain = spark.newSession()
        spark_apps.enable(spark)
        for session in (spark, plain):
            for name in TABLES:
                session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        lines, ratios, served = [], [], []
        for number in QUERIES:
            text = query(number, scale)
            scans = spark_apps.explain(text, spark).scans
            used = [scan for scan in scans if scan.replaced]
            asked = [_Asked(spark, text), _Asked(plain, text)]
            cases = {"indexes": asked[0], "plain Spark": asked[1]}
            with_indexes, without = interleaved(cases, min(arguments.repeats, 5), warm=2)
            if not alike(asked[0].rows, asked[1].rows):
                raise ValueError(f"query {number} has another answer with indexes")
            ratio = with_indexes.median / without.median
            ratios.append((ratio, number))
            if used:
                served.append(ratio)
            names = ", ".join(f"{Path(scan.address).name}: {_index(scan)}" for scan in used) or "none"
            seconds = [with_indexes.median, without.median, ratio, *(one.processor_seconds for one in asked)]
            lines.append((str(number), names, *(f"{figure:.2f}" for figure in seconds)))
            report.console.print(f"query {number}: {names}: {ratio:.2f}")
        report.table(
            f"TPC-H at scale {scale:g}: seconds",
            ("query", "index used in each scan", "with", "without", "ratio", "processor, with", "without"),
            lines,
        )
        if served:
            report.verdict(16, f"served: {len(served)} queries", statistics.median(served))
        worst, number = max(ratios)
        report.verdict(16, f"worst: query {number}", worst)


def _register(report: Report, spark: SparkSession, folder: Path, scale: float) -> None:
    from spark_apps import IncludedColumns, IndexedTable

    for name in TABLES:
        (folder / name).mkdir()
        (folder / name / f"{name}.parquet").hardlink_to(data.whole_tpch(scale) / f"{name}.parquet")
    tables = {name: IndexedTable.register(spark, folder / name) for name in TABLES}
    for index in INDEXES:
        build = partial(
            tables[index.table].create_index,
            index.name,
            "covering",
            list(index.columns),
            included=IncludedColumns(include=list(index.included)),
            properties=index.properties(scale),
        )
        report.say(
            f"{index.table}, {index.name} with {len(index.included)} columns more: built in {timed(build):.0f} s"
        )


def _index(scan: Any) -> str:
    return (scan.explanation.index_used if scan.explanation is not None else None) or "none"


class _Asked:
    """A query of a session as a case, which keeps its rows, and the processors' seconds of each of its runs."""

    def __init__(self, session: SparkSession, text: str) -> None:
        self._session, self._text = session, text
        self.rows: list[Any] = []
        self._spent: list[float] = []

    def __call__(self) -> Answer:
        before = self._processors()
        seconds = timed(lambda: setattr(self, "rows", [tuple(row) for row in self._session.sql(self._text).collect()]))
        self._spent.append(self._processors() - before)
        return Answer({"rows": len(self.rows)}, seconds)

    @property
    def processor_seconds(self) -> float:
        """The median of the runs but for the first, which warms up."""
        return statistics.median(self._spent[1:])

    def _processors(self) -> float:
        """The seconds of Spark's threads and of this process, which other processes on the machine do not change."""
        jvm: Any = self._session.sparkContext._jvm
        return processor_seconds(jvm.java.lang.ProcessHandle.current().pid()) + time.process_time()
