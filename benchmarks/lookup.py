"""Keys looked up in process.

Ours asks a record index for the partitions of the keys, with the snapshot of the table loaded, without a Spark job;
each call reads the pages of the index again, and keeps nothing of them but parsed footers. Peers hold the same keys and
partitions in files sorted by key, and give these rows. Keys are asked for at random, other ones in each round, and are
in memory in the form that each likes best. All files are in the system's cache. Parquet is written with Snappy, as the
index is.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, Case, Timing, forget_peak, interleaved, peak, timed, weight
from benchmarks.peers import Peer, PeerFailed, started
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark_apps import IndexedTable

ROWS, MANY, SETS = 1_000_000, 100_000, 3
RECORD_INDEX = "record index"
# Case: peer, and what tells it from the peer's defaults. DuckDB's cache holds contents of files, Lance's its index.
_WAYS: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "DuckDB": ("duckdb", {}),
    "DuckDB, cache on": ("duckdb", {"cache": True}),
    "Polars": ("polars", {}),
    "Lance B-tree": ("lance", {}),
    "Lance B-tree, cache on": ("lance", {"cache": True}),
    "Delta": ("delta", {}),
}
_CACHED = tuple(name for name, (_, more) in _WAYS.items() if more)
_ONE_BY = {
    "duckdb": "DuckDB, sorted Parquet",
    "polars": "Polars, sorted Parquet",
    "lance": "Lance, B-tree",
    "delta": "Delta, z-ordered",
}


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table for many keys and one for one."""
    rows = min(arguments.rows, ROWS) if arguments.rows < 100_000 else ROWS
    with workplace("3g") as (spark, folder), started(report, ["duckdb", "polars", "lance", "delta"]) as peers:
        _Bench(report, spark, folder, rows, arguments.repeats, peers).compare()


class _Bench:
    def __init__(
        self, report: Report, spark: SparkSession, folder: Path, rows: int, repeats: int, peers: dict[str, Peer]
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.report, self.folder, self.rows, self.repeats = report, folder, rows, repeats
        self.many = min(MANY, rows // 10)
        self.keys = data.keys(random.Random(7).sample(range(rows), SETS * self.many))
        source = data.wide(rows)
        self.table = _table(spark, source, folder)
        self.arrow = pa.array(self.keys)
        pq.write_table(pa.table({"id": self.arrow}), folder / "keys.parquet")
        self.peers: dict[str, Peer] = {}
        copies = [_copied("ours", "a record index; its files are those of the index alone", self._index_weight())]
        for name, peer in peers.items():
            try:
                copies.append(self._copy(peer, source))
                self.peers[name] = peer
            except PeerFailed as failed:
                report.say(f"{name} is left out. {failed}")
        report.table(f"Copies of {rows:,} keys and partitions", ("of", "how", "MB", "files"), copies)

    def _copy(self, peer: Peer, source: Path) -> tuple[str, ...]:
        files = f"{source}/*.parquet" if peer.name in ("duckdb", "polars") else str(source)
        made = peer(
            "copy",
            source=files,
            folder=str(self.folder / peer.name),
            by=["id"],
            columns=["id", "month"],
            codec="snappy",
        )
        peer("keys", path=str(self.folder / "keys.parquet"))
        return _copied(_ONE_BY[peer.name], "its own encodings" if peer.name == "lance" else "Parquet", made.value)

    def _index_weight(self) -> Mapping[str, int]:
        return weight(self.folder / "table" / "_index" / "indexes")

    def compare(self) -> None:
        many = interleaved(self._cases("many"), self.repeats * 4)
        title = f"{self.many:,} keys among {self.rows:,}"
        self.report.timings(title, with_p95(many), RECORD_INDEX)
        one = interleaved(self._cases("one"), self.repeats * 20, warm=3)
        self.report.timings(f"One key among {self.rows:,}", with_p95(one), RECORD_INDEX)
        self._judge("many", many, many[0].percentile(0.95))
        self._judge("one", one, one[0].median)

    def _cases(self, what: str) -> dict[str, Case]:
        lookup = self._many if what == "many" else self._one
        cases: dict[str, Case] = {RECORD_INDEX: partial(_next, lookup, count())}
        for name, (engine, more) in _WAYS.items():
            if engine in self.peers and not (what == "many" and name == "Lance B-tree, cache on"):
                cases[name] = partial(_next, partial(self._peer, self.peers[engine], what, more), count())
        return cases

    def _peer(self, peer: Peer, what: str, more: Mapping[str, bool], turn: int) -> Answer:
        folder = str(self.folder / peer.name)
        if what == "one":
            return checked(peer("one", folder=folder, number=turn % len(self.keys), **more), 1)
        first = turn % SETS * self.many
        return checked(peer("many", folder=folder, first=first, count=self.many, **more), self.many)

    def _many(self, turn: int) -> Answer:
        first = turn % SETS * self.many
        return _by_index(self.table, self.arrow[first : first + self.many])

    def _one(self, turn: int) -> Answer:
        return _by_index(self.table, self.arrow[turn % len(self.keys) :][:1])

    def _judge(self, what: str, timings: Sequence[Timing], seconds: float) -> None:
        record_index, *others = timings
        if record_index.counts["rows"] == (MANY if what == "many" else 1) and self.rows == ROWS:
            self.report.verdict(3, what, 1000 * seconds)
        if not others:
            return
        best = min(others, key=lambda timing: timing.median)
        self.report.verdict(3, f"{what} / best peer: {best.name}", record_index.median / best.median)
        bare = min((each for each in others if each.name not in _CACHED), key=lambda timing: timing.median)
        if bare is not best:
            self.report.verdict(3, f"{what} / best without a cache: {bare.name}", record_index.median / bare.median)


def _table(spark: SparkSession, source: Path, folder: Path) -> IndexedTable:
    from spark_apps import IndexedTable

    table = IndexedTable.create(
        spark, folder / "table", "id string, month int", ["id"], partition_by=["month"], buckets=4
    )
    table.upsert(spark.read.parquet(str(source)).select("id", "month"))
    table.create_index("by_id", "record")
    return table


def _by_index(table: IndexedTable, keys: pa.Array) -> Answer:
    """The partitions of keys, by the record index, as Arrow."""
    results: list[Any] = []
    forget_peak()
    seconds = timed(lambda: results.append(table.lookup(keys)))
    return checked(Answer({"rows": len(results[0])}, seconds, peak()), len(keys))


def _next(ask: Any, turns: Any) -> Answer:
    return ask(next(turns))  # type: ignore[no-any-return]


def checked(answer: Answer, rows: int) -> Answer:
    """:raises ValueError: rows are missing: what is not found costs nothing."""
    if answer.value["rows"] != rows:
        raise ValueError(f"{rows} keys were asked for, all of which exist, and {answer.value['rows']} were found")
    return answer


def with_p95(timings: Sequence[Timing]) -> list[Timing]:
    return [
        Timing(each.name, each.seconds, f"p95 {1000 * each.percentile(0.95):.1f} ms", each.peak, each.counts)
        for each in timings
    ]


def _copied(name: str, how: str, made: Mapping[str, int]) -> tuple[str, ...]:
    return (name, how, f"{made['bytes'] / 1e6:,.1f}", str(made["files"]))
