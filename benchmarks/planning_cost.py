"""What the rule of plain queries costs.

A table of wide rows is a registered source with a covering and a secondary index; another folder is no table of ours.
The same texts are planned in a session with the rule and, in turn, in one of the same Spark without it; the difference
of the medians is what the rule adds. Then the same questions are asked by the rule and by ``read``, and their rows
fetched.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import interleaved
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = {
    "one scan, covering": "SELECT id, amount FROM ours WHERE customer = 'customer-7'",
    "one scan, secondary": "SELECT * FROM ours WHERE note IN ('0123456789abcdef', 'fedcba9876543210')",
    "self-join, two scans": "SELECT a.id, b.amount FROM ours a JOIN ours b ON a.customer = b.customer "
    "WHERE a.customer = 'customer-7'",
}
OTHERS = {
    "one scan": "SELECT id, amount FROM others WHERE customer = 'customer-7'",
    "self-join, two scans": "SELECT a.id FROM others a JOIN others b ON a.id = b.id WHERE a.month = 3",
}
ASKED = {
    "covering": ("customer = 'customer-7'", ["id", "amount"]),
    "a tenth of the customers": ("customer BETWEEN 'customer-1' AND 'customer-19'", ["id", "amount"]),
    "secondary": ("note = '{note}'", ["id", "note"]),
    "secondary, a value that is nowhere": ("note = '0123456789abcdef'", ["id", "note"]),
}
_ROUNDS = 8
"""So many times the repeats: to plan takes hundredths of a second."""

_WARM = 15
"""Uncounted rounds before: until then Java still compiles what plans a query."""


def run(report: Report, arguments: Namespace) -> None:
    """Prints what planning takes with the rule and without, and queries by the rule and by ``read``."""
    import spark_apps

    with workplace() as (spark, folder):
        table = _source(spark, folder, arguments.rows)
        spark_apps.enable(spark)
        plain = spark.newSession()
        for session in (spark, plain):
            for name in ("ours", "others"):
                session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        for key, texts in (("ours", OURS), ("others", OTHERS)):
            for title, text in texts.items():
                cases = {"with the rule": partial(_plan, spark, text), "without": partial(_plan, plain, text)}
                timings = interleaved(cases, _ROUNDS * arguments.repeats, warm=_WARM)
                report.timings(f"Planning, {key}: {title}", timings, "without")
                added = (timings[0].median - timings[1].median) * 1000
                report.verdict(14, f"{key}: {title}", max(0.0, added))
        note = plain.table("ours").agg({"note": "min"}).first()[0]
        for title, (predicate, columns) in ASKED.items():
            where = predicate.format(note=note)
            view = spark.table("ours").where(where).select(*columns)
            used = table.explain(where, columns).index_used or "none"
            by_rule = spark.sql(f"SELECT {', '.join(columns)} FROM ours WHERE {where}")
            if sorted(by_rule.collect()) != sorted(table.read(where, columns).collect()):
                raise ValueError(f"the rule and read do not agree on {where}")
            text = f"SELECT {', '.join(columns)} FROM ours WHERE {where}"
            asked = {
                "by the rule": partial(_rows, spark, text),
                "by read": partial(_read, table, where, columns),
                "plain Spark": partial(_rows, plain, text),
            }
            timings = interleaved(asked, _ROUNDS * arguments.repeats, warm=_WARM)
            report.timings(f"Asked for {title}; index: {used}; {view.count():,} rows", timings, "by read")
            report.verdict(15, title, timings[0].median / timings[1].median)


def _source(spark: SparkSession, folder: Path, rows: int) -> Any:
    from spark_apps import IncludedColumns, IndexedTable

    source = spark.read.parquet(str(data.wide(rows)))
    for name in ("ours", "others"):
        source.repartition(8).write.parquet(str(folder / name))
    table = IndexedTable.register(spark, folder / "ours")
    table.create_index("by_customer", "covering", ["customer"], included=IncludedColumns(include=["id", "amount"]))
    table.create_index("by_note", "secondary", ["note"])
    return table


def _plan(session: SparkSession, text: str) -> None:
    frame: Any = session.sql(text)
    frame._jdf.queryExecution().executedPlan()


def _rows(session: SparkSession, text: str) -> None:
    session.sql(text).collect()


def _read(table: Any, where: str, columns: list[str]) -> None:
    table.read(where, columns).collect()
