"""Compaction and bucket rescale / Spark's floor for the rows touched, and what they read of other file groups.

Deltas of 10 % lie over the file groups of a quarter of the partitions; the other partitions are left alone. The floor
reads as many whole rows from plain files, shuffles them by key, sorts and writes them to as many files. In one round
more the files of all other groups are moved away, so that nothing of them can be read; then each is the same as before.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import MONTHS
from benchmarks.measure import Answer, Case, interleaved
from benchmarks.report import Report
from benchmarks.wide_tables import BUCKETS, every, files_of, paths_of, rows_floor, stored, wide_frame, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable
    from spark_apps.timeline.files import DataFile

_TOUCHED = MONTHS // 4


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table each for compaction and rescale."""
    rows = arguments.rows
    with workplace() as (spark, folder):
        bench = _Bench(spark, folder, rows)
        repeats = 3 if arguments.full else arguments.repeats
        cases: dict[str, dict[str, Case]] = {
            "compaction": {"floor": bench.floor, "compaction": bench.compact},
            "rescale": {"floor": bench.floor_of_rescale, "rescale": bench.rescale},
        }
        for name, both in cases.items():
            floor, rewritten = interleaved(both, repeats)
            report.timings(
                f"{name.capitalize()} of {bench.touched_rows:,} of {rows:,} rows", [floor, rewritten], "floor"
            )
            report.verdict(7, name, rewritten.median / floor.median)
        outside = sum(file.bytes for file in bench.outside())
        for name, work in (("compaction", bench.compact), ("rescale", bench.rescale)):
            report.verdict(7, f"outside: {name}", bench.read_outside(work))
        report.say(f"Outside lay {len(bench.outside()):,} files of {outside:,} bytes; they were away meanwhile.")


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark, self.folder = spark, folder
        self.table: IndexedTable = wide_table(spark, folder / "table", rows)
        touched = wide_frame(spark, rows).where(f"month < {_TOUCHED}")
        self.batch = stored(spark, every(touched, 10), folder / "batch")
        self._months = [f"month={month}" for month in range(_TOUCHED)]
        # The same rows in plain files of a file group each: what the floor reads, whatever the table is like by then.
        self.touched_rows = sum(file.rows for file in self.inside())
        self.plain = stored(spark, touched.repartition(len(self.inside()), "id"), folder / "plain").inputFiles()
        self._buckets = BUCKETS

    def inside(self) -> list[DataFile]:
        return [file for file in files_of(self.table) if file.partition in self._months]

    def outside(self) -> list[DataFile]:
        return [file for file in files_of(self.table) if file.partition not in self._months]

    def floor(self) -> Answer:
        return self._floor(BUCKETS * _TOUCHED)

    def floor_of_rescale(self) -> Answer:
        return self._floor(self._other() * _TOUCHED)

    def _floor(self, files: int) -> Answer:
        return rows_floor(self.spark, self.plain, files, self.folder / "floor")

    def compact(self) -> Answer:
        """Of fresh deltas: they are written before the clock starts."""
        self.table.upsert(self.batch)
        return self._timed(self.table.compact)

    def rescale(self) -> Answer:
        """To twice as many buckets, and back the next time."""
        self._buckets = self._other()
        return self._timed(lambda: self.table.rescale(bucket_expressions=self._rules(), partitions=self._months))

    def _other(self) -> int:
        return 3 * BUCKETS - self._buckets

    def _rules(self) -> Sequence[tuple[str, int]]:
        return [(f"^{month}$", self._buckets) for month in self._months]

    def _timed(self, work: Callable[[], object]) -> Answer:
        begun = time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        files = self.inside()
        counts = {"files": len(files), "bytes": sum(file.bytes for file in files), "rows": self.touched_rows}
        return Answer(counts, seconds)

    def read_outside(self, work: Case) -> int:
        """Bytes read of the other groups' files: none, if the work succeeds while these are somewhere else.

        :raises LakeIndexError: the work needed one of them.
        """
        before = {file.path: file.bytes for file in self.outside()}
        with _away(paths_of(self.table, self.outside()), self.folder / "away"):
            work()
        assert before == {file.path: file.bytes for file in self.outside()}
        return 0


@contextmanager
def _away(paths: Sequence[str], folder: Path) -> Iterator[None]:
    """Moves files away, and back afterwards."""
    folder.mkdir()
    moved = {Path(path.removeprefix("file://")): folder / str(number) for number, path in enumerate(paths)}
    for path, other in moved.items():
        path.rename(other)
    try:
        yield
    finally:
        for path, other in moved.items():
            other.rename(path)
        folder.rmdir()
