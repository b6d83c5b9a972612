"""Queries that a covering index answers.

TPC-H's lineitem, as its generator wrote it, is a registered source with a covering index on ``l_partkey``, laid by
ranges; the same index by hash is shown beside. Where all rows are read, of which no range spares any, an index in
Spark's own buckets is asked by plain SQL, whose sum needs no shuffle then. Spark answers the same questions from the
same rows sorted by that column, sorted with Parquet's bloom filters on it, and z-ordered by it and ``l_shipdate`` by
Delta, whose files Spark reads as Parquet. Engines that need no session are shown beside. Tables are loaded before; each
run plans its query anew and fetches its rows. In this process the index is read by ``open_table(…).read``, and Arrow
adds up. What is cold has its files taken out of the system's cache of files before each run.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, Case, Timing, cold, interleaved, timed, weight
from benchmarks.peers import Peer, PeerFailed, started
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.arrow_table import OpenTable

COVERING, HASHED = "covering index", "covering index, by hash"
IN_PROCESS = "covering index, in this process"
BUCKETED = "covering index, Spark's buckets, plain SQL"
BY, SECOND = "l_partkey", "l_shipdate"
COLUMNS = ("l_orderkey", "l_quantity", "l_extendedprice", "l_discount")
_ROWS_A_SCALE, _PARTS_A_SCALE = 6_000_000, 200_000
_LITTLE = 1
"""Below this scale nothing is measured cold."""
_NARROW = 4
"""So many rows of lineitem are measured for each row that other questions have."""

_ENGINES = {"sorted": "sorted Parquet", "bloom": "sorted Parquet with bloom filters", "zorder": "z-ordered"}
_BESIDE = {
    "duckdb": "DuckDB, sorted Parquet",
    "polars": "Polars, sorted Parquet",
    "delta": "deltalake, z-ordered",
    "delta by duckdb": "DuckDB, the z-ordered files of Delta",
}


@dataclass(frozen=True)
class PredicateProbe:
    """A query in two parts: which rows, and what is made of them; ``sums`` are what it adds up by part, if any."""

    key: str
    title: str
    where: str
    sums: tuple[str, ...] = ()

    def sql(self, rows: str) -> str:
        """The query in the words that all engines know."""
        if not self.sums:
            return f"SELECT {', '.join(COLUMNS)} FROM {rows} WHERE {self.where}"
        sums = ", ".join(f"sum({each}) AS s{number}" for number, each in enumerate(self.sums))
        return f"SELECT {BY}, {sums} FROM {rows} WHERE {self.where} GROUP BY {BY}"

    def applied_to(self, rows: DataFrame) -> DataFrame:
        """The same of a DataFrame, whose rows need not be chosen yet."""
        from pyspark.sql import functions as F

        if not self.sums:
            return rows.select(*COLUMNS)
        return rows.groupBy(BY).agg(*(F.expr(f"sum({each}) AS s{n}") for n, each in enumerate(self.sums)))

    def answered_from(self, table: OpenTable) -> pa.Table:
        """The same of a table that is read in this process."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = table.read(self.where, self.columns)
        if not self.sums:
            return rows
        price, discount, quantity = (rows[name].cast("double") for name in (*COLUMNS[2:], COLUMNS[1]))
        values = pa.table({BY: rows[BY], "s0": pc.multiply(price, pc.subtract(1.0, discount)), "s1": quantity})
        return values.group_by(BY).aggregate([("s0", "sum"), ("s1", "sum")])

    @property
    def columns(self) -> list[str]:
        return list(COLUMNS) if not self.sums else [BY, *COLUMNS[1:]]


def questions(scale: float) -> list[PredicateProbe]:
    """Of one part, of a hundredth of the parts, and of all parts."""
    parts = max(int(_PARTS_A_SCALE * scale), 100)
    part = random.Random(7).randrange(1, parts // 2)
    # As doubles: else Spark spends nearly all of its time on adding decimals, whatever it read.
    sums = ("CAST(l_extendedprice AS DOUBLE) * (1 - CAST(l_discount AS DOUBLE))", "CAST(l_quantity AS DOUBLE)")
    share = f"{BY} BETWEEN {part} AND {part + parts // 100 - 1}"
    return [
        PredicateProbe("filter", "Rows of one part", f"{BY} = {part}"),
        PredicateProbe("aggregate", "Sums by part of a hundredth of the parts", share, sums),
        PredicateProbe("all", "Sums by part of all parts", f"{BY} >= 0", sums),
    ]


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question and state of the cache."""
    scale = 10.0 if arguments.full else max(0.01, round(_NARROW * arguments.rows / _ROWS_A_SCALE, 2))
    with workplace("4g") as (spark, folder), started(report, ["delta", "duckdb", "polars"]) as peers:
        _Bench(report, spark, folder, scale, arguments.repeats, peers).compare()


class _Bench:
    def __init__(
        self, report: Report, spark: SparkSession, folder: Path, scale: float, repeats: int, peers: Mapping[str, Peer]
    ) -> None:
        from spark_apps import open_table

        self.report, self.spark, self.folder, self.scale, self.repeats = report, spark, folder, scale, repeats
        self.source = folder / "ours" / "lineitem"
        self.made: list[tuple[str, ...]] = []
        self.tables = {COVERING: self._indexed("ours", "ranges"), HASHED: self._indexed("hashed", "hash")}
        self.opened = open_table(self.source)
        self.plain_sql = self._plain_sql()
        self.rows = spark.read.parquet(str(self.source)).count()
        self.spark_rows = self._spark_rows()
        self.peers = {name: peer for name, peer in peers.items() if self._copied(peer)}
        if "delta" in self.peers:
            self.spark_rows["zorder"] = spark.read.parquet(str(folder / "delta"))
        headings = ("what", "seconds to make", "MB", "files")
        report.table(f"{self.rows:,} rows of lineitem (scale {scale:g})", headings, self.made)

    # --- the copies -------------------------------------------------------------------------------------------

    def _indexed(self, name: str, layout: str) -> Any:
        from spark_apps import IncludedColumns, IndexedTable

        source = self.folder / name / "lineitem"
        source.mkdir(parents=True)
        (source / "lineitem.parquet").hardlink_to(data.tpch(self.scale) / "lineitem.parquet")
        table = IndexedTable.register(self.spark, source, format="parquet")
        more = {"included": IncludedColumns(include=list(COLUMNS)), "properties": {"layout": layout}}
        seconds = timed(lambda: table.create_index("by_part", "covering", [BY], **more))
        what = f"covering index, {len(COLUMNS) + 1} of 16 columns, by {layout}"
        self._note(what, seconds, weight(self.folder / name / "_indexes"))
        return table

    def _plain_sql(self) -> SparkSession:
        """A session whose rule finds an index in Spark's buckets; the others are asked in one without a rule."""
        import spark_apps

        self._indexed("bucketed", "buckets")
        session = self.spark.newSession()
        spark_apps.enable(session)
        session.read.parquet(str(self.folder / "bucketed" / "lineitem")).createOrReplaceTempView("lineitem")
        return session

    def _spark_rows(self) -> dict[str, DataFrame]:
        rows = self.spark.read.parquet(str(self.source))
        bloom = {
            f"parquet.enable.dictionary#{BY}": "false",  # Parquet's writer leaves the filter out beside a dictionary
            f"parquet.bloom.filter.enabled#{BY}": "true",
            f"parquet.bloom.filter.expected.ndv#{BY}": str(int(_PARTS_A_SCALE * self.scale)),
        }
        frames = {}
        for name, options in (("sorted", {}), ("bloom", bloom)):
            folder = self.folder / name
            write = rows.orderBy(BY).write.option("compression", "zstd").options(**options)
            seconds = timed(partial(write.parquet, str(folder)))
            self._note(f"Spark, {_ENGINES[name]}", seconds, weight(folder))
            frames[name] = self.spark.read.parquet(str(folder))
        return frames

    def _copied(self, peer: Peer) -> bool:
        folder = self.folder / peer.name
        files = str(self.source) if peer.name == "delta" else f"{self.source}/*.parquet"
        try:
            made = peer("copy", source=files, folder=str(folder), by=[BY, SECOND] if peer.name == "delta" else [BY])
        except PeerFailed as failed:
            self.report.say(f"{peer.name} is left out. {failed}")
            return False
        self._note(_BESIDE[peer.name], made.seconds, weight(folder))
        return True

    def _note(self, what: str, seconds: float, made: Mapping[str, int]) -> None:
        self.made.append((what, f"{seconds:.1f}", f"{made['bytes'] / 1e6:,.1f}", str(made["files"])))

    # --- the questions ----------------------------------------------------------------------------------------

    def compare(self) -> None:
        for question in questions(self.scale):
            plan = self.tables[COVERING].explain(question.where, question.columns)
            self.report.say(f"{question.sql('lineitem')} — answered from: {plan.index_used or 'the rows'}")
            cases = self._cases(question)
            warm = interleaved(cases, self.repeats)
            self.report.timings(f"{question.title}, warm", warm, COVERING)
            _check(warm)
            self._judge(question, warm)
            if question.key == "all" or self.scale < _LITTLE:
                continue
            chilled = {name: cold(case, self.folder) for name, case in cases.items()}
            self.report.timings(f"{question.title}, cold", interleaved(chilled, min(self.repeats, 3), 0), COVERING)

    def _cases(self, question: PredicateProbe) -> dict[str, Case]:
        cases: dict[str, Case] = {
            name: partial(self._through_index, table, question) for name, table in self.tables.items()
        }
        cases[IN_PROCESS] = partial(self._in_process, question)
        if question.key == "all":
            cases[BUCKETED] = lambda: _fetched(self.plain_sql.sql(question.sql("lineitem")))
        for name, rows in self.spark_rows.items():
            cases[f"Spark, {_ENGINES[name]}"] = partial(_of_spark, question, rows)
        for name, what in _BESIDE.items():
            if name.partition(" ")[0] in self.peers:
                cases[what] = partial(self._beside, name, question)
        return cases

    def _through_index(self, table: Any, question: PredicateProbe) -> Answer:
        return _fetched(question.applied_to(table.read(question.where, question.columns)))

    def _in_process(self, question: PredicateProbe) -> Answer:
        answers: list[Any] = []
        seconds = timed(lambda: answers.append(question.answered_from(self.opened)))
        return Answer({"rows": answers[0].num_rows}, seconds)

    def _beside(self, name: str, question: PredicateProbe) -> Answer:
        peer, _, by = name.partition(" by ")
        folder = str(self.folder / peer)
        if peer == "duckdb":
            return self.peers[peer]("query", sql=question.sql(f"'{folder}/rows.parquet'"))
        more = {"engine": by} if by else {}
        return self.peers[peer]("query", folder=folder, sql=question.sql("t"), **more)

    def _judge(self, question: PredicateProbe, timings: Sequence[Timing]) -> None:
        covering, hashed, in_process, *others = timings
        if question.key == "all":
            bucketed, *others = others
            in_order = next(other for other in others if other.name == f"Spark, {_ENGINES['sorted']}")
            self.report.verdict(18, f"all: {question.title}, plain SQL", bucketed.median / in_order.median)
            self.report.verdict(18, f"read: {question.title}, by ranges", covering.median / in_order.median)
        self.report.verdict(9, f"hash: {question.title}", covering.median / hashed.median)
        for other in others:
            if other.name not in _BESIDE.values():
                self.report.verdict(
                    9, f"{question.key}: {question.title}, {other.name}", covering.median / other.median
                )
            if other.name == _BESIDE["polars"] and question.key != "all":
                ratio = in_process.median / other.median
                self.report.verdict(9, f"in process: {question.title}, {other.name}", ratio)
        beside = [other for other in others if other.name in _BESIDE.values()]
        if beside:
            best = min(beside, key=lambda timing: timing.median)
            self.report.verdict(9, f"beside: {question.title}, {best.name}", covering.median / best.median)


def _of_spark(question: PredicateProbe, rows: DataFrame) -> Answer:
    return _fetched(question.applied_to(rows.where(question.where)))


def _fetched(rows: DataFrame) -> Answer:
    counted: list[int] = []
    seconds = timed(lambda: counted.append(len(rows.collect())))
    return Answer({"rows": counted[0]}, seconds)


def _check(timings: Sequence[Timing]) -> None:
    """:raises ValueError: two engines gave another number of rows."""
    counts = {timing.name: timing.counts["rows"] for timing in timings}
    if len(set(counts.values())) > 1:
        raise ValueError(f"the engines do not agree on the rows of one question: {counts}")
