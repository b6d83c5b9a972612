"""How build, refresh, upsert, lookup, compaction and commit grow with the number of rows.

Three tables, each some times larger than the one before: up to 1 million rows, or as many as were asked for, in full
100 million. Built, upserted (1 %) and compacted (1 % deltas in every
group) is all of a table, so the time should grow as the rows do: exponent 1. A refresh takes in the same number of rows
whatever the table's size, a lookup finds one key, a commit publishes one row: exponent 0. The exponent is the slope of
the line through the logarithms of the larger two sizes, since the smallest is mostly the start of jobs.
"""

from __future__ import annotations

import math
import statistics
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import keys
from benchmarks.measure import timed
from benchmarks.report import Report
from benchmarks.wide_tables import create, every, stored, wide_frame, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICK, _FULL = 1_000_000, 100_000_000
_EXPECTED = {"build": 1, "refresh": 0, "upsert": 1, "lookup": 0, "compaction": 1, "commit": 0}
_KEYS = 5


def run(report: Report, arguments: Namespace) -> None:
    """Prints the curves, and their exponents."""
    largest = _FULL if arguments.full else max(_QUICK, arguments.rows)
    sizes = [largest // 100, largest // 10, largest] if arguments.full else [largest // 10, largest * 3 // 10, largest]
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in _EXPECTED}
    with workplace() as (spark, folder):
        _measure(spark, folder / "warm", sizes[0], sizes[0] // 100)
        for rows in sizes:
            for name, seconds in _measure(spark, folder / str(rows), rows, sizes[0] // 100).items():
                lines[name].append((rows, seconds))
    report.curves("Seconds by number of rows", lines, "rows", "seconds")
    exponents = []
    for name, points in lines.items():
        of_the_larger = exponent(points[-2:])
        exponents.append((name, f"{of_the_larger:.2f}", f"{exponent(points):.2f}", str(_EXPECTED[name])))
        report.verdict(13, f"growth: {name}", max(0.0, of_the_larger - _EXPECTED[name]))
    report.table("Exponents", ("what", "of the larger two", "of all three", "expected"), exponents)


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of the line that fits the logarithms best."""
    return statistics.linear_regression([math.log(x) for x, _ in points], [math.log(y) for _, y in points]).slope


def _measure(spark: SparkSession, folder: Path, rows: int, delta: int) -> dict[str, float]:
    """What each takes on a new table of so many rows."""
    table = wide_table(spark, folder, rows)
    durations: dict[str, float] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        durations[name] = timed(work)

    take("build", lambda: create(table, "by_id", "record", deferred=False))
    create(table, "later", "secondary", deferred=True)
    table.refresh_index("later", mode="full")
    table.insert(stored(spark, wide_frame(spark, delta, rows), folder.with_name("delta")))
    take("refresh", lambda: table.refresh_index("later"))
    lookup_keys = keys(range(0, rows, max(1, rows // _KEYS)))[:_KEYS]
    durations["lookup"] = statistics.median(
        timed(lambda key=key: table.read(f"id = '{key}'").collect()) for key in lookup_keys
    )  # type: ignore[misc]
    batch = stored(spark, every(wide_frame(spark, rows), 100), folder.with_name("batch"))
    take("upsert", lambda: table.upsert(batch))
    take("compaction", table.compact)
    single = stored(spark, wide_frame(spark, rows).limit(1), folder.with_name("single"))
    table.drop_index("by_id")
    table.drop_index("later")
    table.upsert(single)
    take("commit", lambda: table.upsert(single))
    return durations
