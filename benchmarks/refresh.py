"""Incremental refresh after 1 % of the rows was appended / the build of the same index, the session being there.

Every index is deferred, so that a refresh is what brings it up to date. The rows come as an insert: into a partition
of their own, as a day's rows do; and, for kinds whose entries name keys, spread evenly over all file groups, as rows
with random keys do (not in little). Kinds that address files tell of a file once it lies alone in its group, so they
are asked about the first only. The same number of rows is also appended to a table of a tenth of the rows.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Timing
from benchmarks.report import Report
from benchmarks.wide_tables import KINDS, create, wide_frame, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.table import IndexedTable

_BY_KEY = ("record", "secondary", "lazy")
_LITTLE = 1_000_000
_EVERY = (*KINDS, "lazy")
"""``lazy``: a secondary index whose tombstones come at compaction."""


def run(report: Report, arguments: Namespace) -> None:
    """Prints a table a size and shape."""
    rows = arguments.rows
    repeats = 3
    with workplace() as (spark, folder):
        large = _Sized(spark, folder / "large", rows)
        small = _Sized(spark, folder / "small", rows // 10)
        shapes = (("a partition of its own", _EVERY), ("spread evenly", _BY_KEY))
        for shape, kinds in shapes if rows >= _LITTLE else shapes[:1]:
            # The rounds of the two tables take turns, as all that is compared does.
            for turn in range(repeats + 1):
                for table in (small, large):
                    table.append(shape, rows // 100)
                    table.refresh(shape, kinds, counted=turn > 0)
            for kind in kinds:
                _report(report, kind, shape, rows, small, large)


def _report(report: Report, kind: str, shape: str, rows: int, small: _Sized, large: _Sized) -> None:
    delta = f"{rows // 100:,} rows appended, {shape}"
    build = Timing(f"build, {rows:,} rows", (large.built[kind],))
    timings = [
        Timing(f"refresh, {rows:,} rows", tuple(large.durations[kind, shape])),
        Timing(f"refresh, {rows // 10:,} rows", tuple(small.durations[kind, shape])),
    ]
    report.timings(f"Refresh of the {kind} index: {delta}", [build, *timings], build.name)
    report.verdict(2, f"share: {kind}, {shape}", timings[0].median / build.median)
    report.verdict(2, f"growth: {kind}, {shape}", timings[0].median / timings[1].median)


class _Sized:
    """A table of so many rows with a deferred index of each kind, and what its builds and refreshes took."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark, self.rows, self.folder = spark, rows, folder
        self.table: IndexedTable = wide_table(spark, folder, rows)
        self.built: dict[str, float] = {}
        self.durations: dict[tuple[str, str], list[float]] = {}
        self._next = rows
        for kind in _EVERY:
            properties = {"tombstones": "lazy"} if kind == "lazy" else None
            create(self.table, kind, "secondary" if kind == "lazy" else kind, deferred=True, properties=properties)
        for kind in _EVERY * 2:  # what the first round takes is overwritten: it warms Spark up
            begun = time.perf_counter()
            self.table.refresh_index(kind, mode="full")
            self.built[kind] = time.perf_counter() - begun

    def append(self, shape: str, count: int) -> None:
        """Inserts rows that the table does not have."""
        self.table.insert(self._fresh(shape, count))

    def _fresh(self, shape: str, count: int) -> DataFrame:
        from pyspark.sql import functions as F

        rows = wide_frame(self.spark, count, self._next)
        month = 100 + self._next // count
        self._next += count
        return rows if shape == "spread evenly" else rows.withColumn("month", F.lit(month))

    def refresh(self, shape: str, kinds: Sequence[str], counted: bool) -> None:
        """Brings indexes up to date; of those that are not asked about, too, where the next shape is theirs."""
        for kind in kinds:
            begun = time.perf_counter()
            receipt = self.table.refresh_index(kind)
            seconds = time.perf_counter() - begun
            assert receipt.version is not None, f"the refresh of {kind} found nothing to do"
            if counted:
                self.durations.setdefault((kind, shape), []).append(seconds)
