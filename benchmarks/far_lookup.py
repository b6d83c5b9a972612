"""Few and many keys among very many rows, read by Spark.

Whole rows are read by their keys: by the record index, by a scan of the same files with the same condition, and as
``read`` chooses between the two. The files are sorted by key, so that such a scan passes over pages by their
statistics; a full scan, for few keys, reads every row. Keys have 36 characters and lie at random among all rows. In
full there are 100 million rows, or as many as two fifths of the free disk hold; else 5 million, or the number given
where it is smaller than the default.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.keyed_table import SCHEMA, generate
from benchmarks.keys_or_scan import cases, full_scan
from benchmarks.measure import interleaved, timed, weight
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps import IndexedTable

COUNTS = (1, 10, 100, 10_000)
_FEW = {1: "1 key", 10: "10 keys"}
FULL, QUICK = 100_000_000, 5_000_000
_ROWS_A_BUCKET = 1_000_000
# A row of the table, its entry, and what a build keeps on disk meanwhile.
_BYTES_A_ROW = 250
_AFRESH = 300_000


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a number of keys."""
    with workplace() as (spark, folder):
        wanted_rows = FULL if arguments.full else QUICK if arguments.rows >= _AFRESH else arguments.rows
        rows = min(wanted_rows, int(0.4 * shutil.disk_usage(folder).free / _BYTES_A_ROW))
        if rows < wanted_rows:
            report.say(f"{rows:,} rows instead of {wanted_rows:,}: the disk holds no more.")
        _compare(report, _table(report, spark, folder, rows), rows, 3 if arguments.full else arguments.repeats)


def _table(report: Report, spark: SparkSession, folder: Path, rows: int) -> IndexedTable:
    from spark_apps import IndexedTable

    location = folder / "table"
    buckets = max(4, rows // 12 // _ROWS_A_BUCKET + 1)
    table = IndexedTable.create(spark, location, SCHEMA, ["id"], partition_by=["month"], buckets=buckets)
    loaded = timed(lambda: table.upsert(generate(spark, rows)))
    built = timed(lambda: table.create_index("by_id", "record"))
    index = weight(location / "_index")
    data = weight(location / "data")
    report.table(
        f"{rows:,} rows in 12 partitions of {buckets} buckets",
        ("of", "MB", "files", "seconds to make"),
        [
            ("rows", f"{data['bytes'] / 1e6:,.0f}", str(data["files"]), f"{loaded:.0f}"),
            ("record index", f"{index['bytes'] / 1e6:,.0f}", str(index["files"]), f"{built:.0f}"),
        ],
    )
    return table


def _compare(report: Report, table: IndexedTable, rows: int, repeats: int) -> None:
    numbers = random.Random(7).sample(range(rows), min(COUNTS[-1], rows))
    keys = [hashlib.sha256(str(n).encode()).hexdigest()[:36] for n in numbers]
    for count in COUNTS:
        where = f"id IN ({', '.join(map(repr, keys[:count]))})"
        used = table.explain(where).index_used or "none"
        ways = cases(table, where)
        if count in _FEW:
            ways["full scan"] = full_scan(table, where)
        timings = interleaved(ways, repeats)
        report.timings(f"{count:,} keys among {rows:,} rows; read uses: {used}", timings, "scan")
        index, scan, read, *full = (timing.median for timing in timings)
        if full:
            report.verdict(4, _FEW[count], read / full[0])
        report.verdict(4, f"sorted files: {count:,} keys", read / scan)
        report.verdict(4, f"planner: {count:,} keys", read / min(index, scan))
