"""Up to how many keys an index answers sooner than a scan, and whether the planner takes the sooner way.

Keys at random among all rows, in one ``IN``: of the record key, and of a column with a secondary index. Each once by
the index whatever it costs, once by a scan, once as ``read`` chooses.
"""

from __future__ import annotations

import hashlib
import random
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.keyed_table import BUCKETS, SCHEMA, generate
from benchmarks.measure import Case, interleaved
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = (1, 10, 100, 1_000, 10_000)
_ALWAYS = 1 << 60
_PUSHED = "spark.sql.parquet.filterPushdown"


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a column and number of keys."""
    with workplace() as (spark, folder):
        compare(report, spark, folder, arguments.rows, arguments.repeats)


def compare(report: Report, spark: SparkSession, folder: Path, rows: int, repeats: int) -> None:
    """All numbers of keys, one after the other."""
    from spark_apps.table import IndexedTable

    table = IndexedTable.create(spark, folder / "table", SCHEMA, ["id"], partition_by=["month"], buckets=BUCKETS)
    table.upsert(generate(spark, rows))
    table.create_index("by_id", "record")
    table.create_index("by_note", "secondary", ["note"])
    counts = [count for count in COUNTS if count <= rows]
    digests = [hashlib.sha256(str(n).encode()).hexdigest() for n in random.Random(7).sample(range(rows), counts[-1])]
    columns = {"id": [text[:36] for text in digests], "note": [text[36:56] for text in digests]}
    for count in counts:
        for name, values in columns.items():
            where = f"{name} IN ({', '.join(repr(value) for value in values[:count])})"
            index_used = table.explain(where).index_used or "none"
            timings = interleaved(cases(table, where), repeats if count < 10_000 else max(1, repeats // 2))
            report.timings(f"{count:,} values of {name} among {rows:,} rows; read uses: {index_used}", timings, "scan")


def cases(table: Any, where: str) -> dict[str, Case]:
    """Reading by the index whatever it costs, by a scan, and as ``read`` chooses."""
    from spark_apps.mergetree.read import scan

    snapshot = table.snapshot
    return {
        "index": lambda: _whatever_it_costs(lambda: table.read(where).collect()),
        "scan": lambda: scan(snapshot, snapshot.data, snapshot.groups()).where(where).collect(),
        "read": lambda: table.read(where).collect(),
    }


def full_scan(table: Any, where: str) -> Case:
    """A scan that reads every row: files are sorted by key, so that Spark would pass over most pages of them."""
    from spark_apps.mergetree.read import scan

    conf, snapshot = table.snapshot.spark.conf, table.snapshot

    def read() -> None:
        conf.set(_PUSHED, "false")
        try:
            scan(snapshot, snapshot.data, snapshot.groups()).where(where).collect()
        finally:
            conf.unset(_PUSHED)

    return read


def _whatever_it_costs(ask: Callable[[], Any]) -> Any:
    from spark_apps.query import planning

    before = planning.ALWAYS_KEYS, planning.ALWAYS_CHARACTERS
    planning.ALWAYS_KEYS = planning.ALWAYS_CHARACTERS = _ALWAYS
    try:
        return ask()
    finally:
        planning.ALWAYS_KEYS, planning.ALWAYS_CHARACTERS = before
