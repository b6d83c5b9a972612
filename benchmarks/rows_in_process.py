"""Rows by their keys, read in process without Spark.

Ours opens a keyed table with a record index and looks whole rows up (``OpenTable.lookup``), with the table open before,
and for one key also from nothing: the log is read anew, then planned, then the row is read. The table lies as an upsert
of Spark has left it. Peers hold the same rows in one file sorted by key. Keys are asked for at random, other ones in
each round, and are in memory in the form that each likes best. All files are in the system's cache. Parquet is written
with Snappy.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.lookup import MANY, ROWS, SETS, checked, with_p95
from benchmarks.measure import Answer, Case, forget_peak, interleaved, peak, timed, weight
from benchmarks.peers import Peer, started
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS, ANEW = "lookup", "opened anew, lookup"
_PEERS = {"duckdb": "DuckDB", "polars": "Polars"}


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a number of keys."""
    rows = min(arguments.rows, ROWS) if arguments.rows < 100_000 else ROWS
    source = data.wide(rows)
    with workplace("3g") as (spark, folder):
        report.say(f"The table: {_make(spark, source, folder / 'table')}.")
        spark.stop()  # so that nothing but what is measured runs
        with started(report, list(_PEERS)) as peers:
            _Bench(report, folder, source, rows, arguments.repeats, peers).compare()


def _make(spark: SparkSession, source: Path, folder: Path) -> str:
    from pyspark.sql import functions as F

    from spark_apps import IndexedTable

    table = IndexedTable.create(spark, folder, data.WIDE, ["id"], partition_by=["month"], buckets=4)
    table.upsert(spark.read.parquet(str(source)).withColumn("created", F.col("created").cast("timestamp")))
    table.create_index("by_id", "record")
    made = weight(folder / "data")
    return f"{made['files']} files, {made['bytes'] / 1e6:,.0f} MB"


class _Bench:
    def __init__(
        self, report: Report, folder: Path, source: Path, rows: int, repeats: int, peers: dict[str, Peer]
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from spark_apps import open_table

        self.report, self.folder, self.rows, self.repeats, self.peers = report, folder, rows, repeats, peers
        self.many = min(MANY, rows // 10)
        self.arrow = pa.array(data.keys(random.Random(7).sample(range(rows), SETS * self.many)))
        self.table = open_table(folder / "table")
        pq.write_table(pa.table({"id": self.arrow}), folder / "keys.parquet")
        for name, peer in peers.items():
            peer("copy", source=f"{source}/*.parquet", folder=str(folder / name), by=["id"], codec="snappy")
            peer("keys", path=str(folder / "keys.parquet"))

    def compare(self) -> None:
        """Many keys, and one."""
        many = interleaved(self._cases({OURS: self._some}, "many"), self.repeats * 4, warm=2)
        self.report.timings(f"Rows of {self.many:,} keys among {self.rows:,}", with_p95(many), OURS)
        one = interleaved(self._cases({OURS: self._one, ANEW: self._anew}, "one"), self.repeats * 20, warm=3)
        self.report.timings(f"The row of one key among {self.rows:,}", with_p95(one), OURS)
        if self.rows != ROWS or many[0].counts["rows"] != MANY:
            return
        timings = {timing.name: timing for timing in many}
        self.report.verdict(20, "many", 1000 * many[0].percentile(0.95))
        if "DuckDB" in timings:
            self.report.verdict(20, "many / DuckDB", many[0].median / timings["DuckDB"].median)
        self.report.verdict(20, "one", 1000 * one[0].median)
        self.report.verdict(20, "anew", 1000 * one[1].median)

    def _cases(self, ours: dict[str, Callable[[int], Answer]], what: str) -> dict[str, Case]:
        cases: dict[str, Case] = {name: partial(_next, ask, count()) for name, ask in ours.items()}
        for name, peer in self.peers.items():
            cases[_PEERS[name]] = partial(_next, partial(self._peer, peer, what), count())
        return cases

    def _peer(self, peer: Peer, what: str, turn: int) -> Answer:
        folder = str(self.folder / peer.name)
        if what == "one":
            return checked(peer("one", folder=folder, number=turn % len(self.arrow)), 1)
        return checked(peer("many", folder=folder, first=turn % SETS * self.many, count=self.many), self.many)

    def _some(self, turn: int) -> Answer:
        return self._looked_up(self.table.lookup, self.arrow[turn % SETS * self.many :][: self.many])

    def _one(self, turn: int) -> Answer:
        return self._looked_up(self.table.lookup, self.arrow[turn % len(self.arrow) :][:1])

    def _anew(self, turn: int) -> Answer:
        from spark_apps import open_table

        return self._looked_up(
            lambda keys: open_table(self.folder / "table").lookup(keys), self.arrow[-1 - turn % len(self.arrow) :][:1]
        )

    def _looked_up(self, lookup: Callable[[Any], Any], keys: Any) -> Answer:
        results: list[Any] = []
        forget_peak()
        seconds = timed(lambda: results.append(lookup(keys)))
        return checked(Answer({"rows": results[0].num_rows}, seconds, peak()), len(keys))


def _next(ask: Callable[[int], Answer], turns: Any) -> Answer:
    return ask(next(turns))
