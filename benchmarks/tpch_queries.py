"""The 22 queries of TPC-H, with indexes and without.

The generator's tables as they are, one Parquet file each, are registered sources; five covering indexes suit some of
the queries. The same texts are asked in a session with the rule and, in turn, in one of the same Spark without it.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, interleaved, timed
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
            answers: dict[str, list[Any]] = {}
            cases = {
                "indexes": partial(_ask, spark, text, answers, "indexes"),
                "plain Spark": partial(_ask, plain, text, answers, "plain"),
            }
            with_indexes, without = interleaved(cases, min(arguments.repeats, 3), warm=1)
            if not alike(answers["indexes"], answers["plain"]):
                raise ValueError(f"query {number} has another answer with indexes")
            ratio = with_indexes.median / without.median
            ratios.append((ratio, number))
            if used:
                served.append(ratio)
            names = ", ".join(f"{Path(scan.address).name}: {_index(scan)}" for scan in used) or "none"
            lines.append(
                (str(number), names, f"{with_indexes.median:.2f}", f"{without.median:.2f}", f"{ratio:.2f}")
            )  # fmt: skip
            report.console.print(f"query {number}: {names}: {ratio:.2f}")
        report.table(
            f"TPC-H at scale {scale:g}: seconds",
            ("query", "index used in each scan", "with", "without", "ratio"),
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
            properties={"layout": index.layout},
        )
        report.say(
            f"{index.table}, {index.name} with {len(index.included)} columns more: built in {timed(build):.0f} s"
        )


def _index(scan: Any) -> str:
    return (scan.explanation.index_used if scan.explanation is not None else None) or "none"


def _ask(session: SparkSession, text: str, answers: dict[str, list[Any]], who: str) -> Answer:
    seconds = timed(lambda: answers.__setitem__(who, [tuple(row) for row in session.sql(text).collect()]))
    return Answer({"rows": len(answers[who])}, seconds)
