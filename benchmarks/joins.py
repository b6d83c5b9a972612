"""Joins and sums over the buckets of covering indexes.

TPC-H's lineitem and orders, as its generator wrote them, are registered sources, each with a covering index by the
order's key in Spark's own buckets. The same SQL is asked in a session whose rule finds them, and in one without, where
Spark reads the same Parquet files. Nothing is broadcast, as at scale. Each run plans its query anew.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, Timing, interleaved, timed, weight
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS, PLAIN, SORTING = "with the rule", "plain Spark", "with the rule, buckets sorted again"
BUCKETS, MORE_BUCKETS = 8, 16
"""Up to TPC-H's scale 1, and above."""
INDEXES = {
    "lineitem": ("l_orderkey", ["l_extendedprice", "l_discount", "l_quantity"]),
    "orders": ("o_orderkey", ["o_custkey", "o_totalprice", "o_orderdate"]),
}
# As doubles: else Spark spends nearly all of its time on adding decimals, whatever it read.
_PRICE = "CAST(l_extendedprice AS DOUBLE) * (1 - CAST(l_discount AS DOUBLE))"
_LATE = "o_orderdate >= DATE'1995-01-01'"
QUESTIONS = {
    "join: inner": f"SELECT count(*), sum({_PRICE}) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    "join: left, with a condition": f"SELECT count(o_custkey), sum({_PRICE}) FROM lineitem LEFT JOIN orders "
    f"ON l_orderkey = o_orderkey AND {_LATE}",
    "join: semi": "SELECT count(*), sum(CAST(o_totalprice AS DOUBLE)) FROM orders WHERE EXISTS "
    "(SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_quantity > 45)",
    "sum: of lines by order": f"SELECT count(*), max(s) FROM (SELECT l_orderkey, sum({_PRICE}) AS s FROM lineitem "
    "GROUP BY l_orderkey)",
    "sum: distinct": "SELECT count(*) FROM (SELECT DISTINCT l_orderkey FROM lineitem)",
}
_ROWS_A_SCALE = 200_000
"""Of what other questions have, for each 1 of TPC-H's scale: so that a quick run is of scale 1."""


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question."""
    scale = 10.0 if arguments.full else max(0.01, round(arguments.rows / _ROWS_A_SCALE, 2))
    with workplace("4g", spark__sql__autoBroadcastJoinThreshold="-1") as (spark, folder):
        sessions = _sessions(report, spark, folder, scale)
        for title, query in QUESTIONS.items():
            report.say(f"{query} — shuffles: {_shuffles(sessions[OURS], query)}")
            cases = {name: partial(_answer, session, query) for name, session in sessions.items()}
            timings = interleaved(cases, arguments.repeats)
            report.timings(f"{title} (scale {scale:g})", timings, OURS)
            _judge(report, title, timings)


def _sessions(report: Report, spark: SparkSession, folder: Path, scale: float) -> dict[str, SparkSession]:
    """Index the sources, and return the sessions in which they are asked."""
    import spark_apps
    from spark_apps import IndexedTable

    made = []
    for name, (key, included) in INDEXES.items():
        source = folder / name
        source.mkdir(parents=True)
        (source / f"{name}.parquet").hardlink_to(data.tpch(scale) / f"{name}.parquet")
        table = IndexedTable.register(spark, source)
        properties = {"layout": "buckets", "buckets": str(BUCKETS if scale <= 1 else MORE_BUCKETS)}
        make = partial(table.create_index, "by_order", "covering", [key], included=included, properties=properties)
        seconds = timed(lambda make=make: make())
        size = weight(folder / "_indexes" / name)
        made.append((name, f"{seconds:.1f}", f"{weight(source)['bytes'] / 1e6:,.1f}", f"{size['bytes'] / 1e6:,.1f}"))
    report.table("The indexes", ("source", "seconds to make", "MB of the source", "MB of the index"), made)
    sessions = {OURS: spark, PLAIN: spark.newSession(), SORTING: spark.newSession()}
    sessions[SORTING].conf.set("spark.sql.legacy.bucketedTableScan.outputOrdering", "false")
    for name, session in sessions.items():
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        if name != PLAIN:
            spark_apps.enable(session)
        for source in INDEXES:
            session.read.parquet(str(folder / source)).createOrReplaceTempView(source)
    return sessions


def _shuffles(session: SparkSession, query: str) -> str:
    import spark_apps

    scans = [str(scan.shuffle or scan.reason or "none") for scan in spark_apps.explain(query, session).scans]
    return "; ".join(scans)


def _answer(session: Any, query: str) -> Answer:
    rows: list[Any] = []
    seconds = timed(lambda: rows.extend(session.sql(query).collect()))
    return Answer({"rows": int(rows[0][0])}, seconds)


def _judge(report: Report, title: str, timings: list[Timing]) -> None:
    ours, plain, sorting = timings
    if len({timing.counts["rows"] for timing in timings}) > 1:
        raise ValueError(f"the sessions do not agree on {title}: {[timing.counts for timing in timings]}")
    report.verdict(17, title, ours.median / plain.median)
    report.verdict(17, f"sorting: {title}", sorting.median / plain.median)
