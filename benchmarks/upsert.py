"""Targets 5 and 6: an upsert of 1 % with indexes kept in the same commit, beside Iceberg's MERGE without any.

Wide rows with unique keys of 36 characters, in 12 partitions. Each round upserts another 1 % into every table: rows
spread evenly over all partitions, whose amount and customer (the secondary key) change; or rows of the newest partition
alone, half of them new. Ours keeps keys unique over all partitions, so Iceberg and Delta are asked for the same by a
MERGE on the key; for newest rows they are also given the partition, which lets them leave the others alone.
"""

from __future__ import annotations

import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer, Timing, interleaved
from benchmarks.peers import Peer, PeerFailed, started
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.table import IndexedTable

BUCKETS = 4
NEWEST = data.MONTHS - 1
SHARE = 100
LEAST_ROWS = 300_000
"""With fewer an upsert is nothing but Spark's own time to plan and start jobs."""
OURS = {"record": None, "record + secondary, eager": "eager", "record + secondary, lazy": "lazy"}
"""Our tables by name: the tombstones of their secondary index, if they have one."""


def run(report: Report, arguments: Namespace) -> None:
    """One table a kind of batch, and the verdicts on the targets 5 and 6."""
    rows = max(arguments.rows, LEAST_ROWS)
    report.say(f"{rows:,} wide rows; each round upserts 1 % more, in turn into tables that hold the same rows.")
    with (
        workplace(memory="4g", spark__sql__parquet__compression__codec=data.CODEC) as (spark, folder),
        started(report, ["iceberg"]) as peers,
        ExitStack() as stack,
    ):
        try:
            peers["delta"] = stack.enter_context(Peer("delta", "benchmarks.peers.delta_writes"))
        except PeerFailed as failed:
            report.say(f"deltalake is missing here. {failed}")
        bench = _Bench(spark, folder, rows, peers)
        # A round over all tables takes half a minute and more.
        repeats = min(arguments.repeats, 3)
        for kind in ("uniform", "recent") if arguments.full or arguments.only else ("uniform",):
            bench.measure(report, kind, repeats)


class _Bench:
    """The tables of one kind of batch, and the batches."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, peers: Mapping[str, Peer]) -> None:
        self.spark, self.folder, self.rows, self.peers = spark, folder, rows, peers
        self.source = data.wide(rows)
        if "iceberg" in peers:
            peers["iceberg"]("start", warehouse=str(folder / "iceberg"))

    def measure(self, report: Report, kind: str, repeats: int) -> None:
        """All tables, one round after the other."""
        batches = [self._batch(kind, number) for number in range(repeats + 1)]
        tables = {name: self._table(f"{kind}-{name}", tombstones) for name, tombstones in OURS.items()}
        cases = {name: _each(batches, lambda path, t=table: self._upsert(t, path)) for name, table in tables.items()}
        secondary = tables["record + secondary, eager"]
        cases["one read of key and customer"] = lambda: self._read(secondary, kind)
        cases.update(self._peers(report, kind, batches))
        timings = {timing.name: timing for timing in interleaved(cases, repeats)}
        report.timings(
            f"Upsert of {self.rows // SHARE:,} rows, {kind}", list(timings.values()), "record + secondary, eager"
        )
        self._same_rows(report, kind, tables)
        self._verdicts(report, kind, timings)

    def _verdicts(self, report: Report, kind: str, timings: Mapping[str, Timing]) -> None:
        only, eager, lazy = (timings[name].median for name in OURS)
        for name, ours in (("eager", eager), ("lazy", lazy)):
            for key, peer in (("copy on write", "Iceberg, copy-on-write"), ("merge on read", "Iceberg, merge-on-read")):
                # Of a peer's ways to the same rows, the quickest.
                theirs = [timing.median for case, timing in timings.items() if case.startswith(peer)]
                if theirs:
                    report.verdict(5, f"{key}: {kind}, tombstones {name}", ours / min(theirs))
            if "deltalake" in timings:
                report.verdict(5, f"delta: {kind}, tombstones {name}", ours / timings["deltalake"].median)
        if kind == "uniform":
            report.verdict(6, "lazy", (lazy - only) / lazy)
            report.verdict(6, "eager", (eager - only) / timings["one read of key and customer"].median)

    def _same_rows(self, report: Report, kind: str, tables: Mapping[str, IndexedTable]) -> None:
        """Every table must hold the same rows in the end; else the figures say nothing."""
        where = "customer LIKE '%7'"
        counts = {name: (table.read().count(), table.read(where=where).count()) for name, table in tables.items()}
        for name, table, peer in self._their_tables(kind):
            counts[name] = (
                peer("count", table=table).value["rows"],
                peer("count", table=table, where=where).value["rows"],
            )
        if len(set(counts.values())) != 1:
            raise AssertionError(f"After the same batches the tables hold different rows: {counts}")
        report.say(f"All tables hold the same {next(iter(counts.values()))[0]:,} rows in the end.")

    # --- ours -------------------------------------------------------------------------------------------------

    def _table(self, name: str, tombstones: str | None) -> IndexedTable:
        from spark_apps.table import IndexedTable

        path = str(self.folder / "ours" / name.replace(" ", "-").replace(",", ""))
        table = IndexedTable.create(self.spark, path, data.WIDE, ["id"], partition_by=["month"], buckets=BUCKETS)
        table.upsert(self.spark.read.schema(data.WIDE).parquet(str(self.source)))
        table.create_index("record", kind="record")
        if tombstones is not None:
            table.create_index(
                "customer", kind="secondary", columns=["customer"], properties={"tombstones": tombstones}
            )
        return table

    def _upsert(self, table: IndexedTable, path: str) -> Answer:
        rows = self.spark.read.schema(data.WIDE).parquet(path)
        begun = time.perf_counter()
        receipt = table.upsert(rows)
        seconds = time.perf_counter() - begun
        return Answer({"rows": receipt.metrics["rows"], "bytes": receipt.metrics["bytes"]}, seconds)

    def _read(self, table: IndexedTable, kind: str) -> None:
        """Key and customer of the file groups that such a batch touches, from all their files as they lie."""
        partition = f"month={NEWEST}" if kind == "recent" else None
        snapshot = table.snapshot
        files = [snapshot.store.spark_path(file.path) for file in snapshot.state.files("data", partition)]
        _noop(self.spark.read.schema("id string, customer string").parquet(*files))

    # --- batches ----------------------------------------------------------------------------------------------

    def _batch(self, kind: str, number: int) -> str:
        """A folder with the rows of one round."""
        from pyspark.sql import functions as F

        source = self.spark.read.schema(data.WIDE).parquet(str(self.source))
        # Not the hash that chooses buckets: its remainder would leave most of them out.
        part = F.pmod(F.crc32("id"), F.lit(SHARE if kind == "uniform" else 2 * SHARE // data.MONTHS))
        chosen = source.where(part == number)
        if kind == "recent":
            chosen = chosen.where(F.col("month") == NEWEST).unionByName(self._new(number))
        other = F.pmod(F.xxhash64("customer", F.lit(number)), F.lit(data.customers(self.rows)))
        changed = chosen.withColumns(
            {"amount": F.col("amount") + 1, "customer": F.concat(F.lit("customer-"), other.cast("string"))}
        )
        path = self.folder / f"{kind}-batch{number}"
        changed.write.parquet(str(path))
        return str(path)

    def _new(self, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        count = self.rows // SHARE // 2
        rows = data.wide(count, first=self.rows + number * count)
        return self.spark.read.schema(data.WIDE).parquet(str(rows)).withColumn("month", F.lit(NEWEST))

    # --- peers ------------------------------------------------------------------------------------------------

    def _their_tables(self, kind: str) -> Iterator[tuple[str, str, Peer]]:
        """Name, table and peer of what is measured beside ours."""
        if "iceberg" in self.peers:
            for mode, (way, _) in itertools.product(("copy-on-write", "merge-on-read"), _ways(kind)):
                table = f"{kind}_{mode}{way}".replace("-", "_").replace(" ", "_").replace(",", "")
                yield f"Iceberg, {mode}{way}", table, self.peers["iceberg"]
        if "delta" in self.peers:
            yield "deltalake", str(self.folder / f"delta-{kind}"), self.peers["delta"]

    def _peers(self, report: Report, kind: str, batches: Sequence[str]) -> dict[str, Callable[[], Answer]]:
        cases = {}
        for name, table, peer in self._their_tables(kind):
            given: dict[str, Any] = {"table": table, "folder": str(self.source), "partition_by": ["month"]}
            if peer.name == "iceberg":
                given["mode"] = next(mode for mode in ("copy-on-write", "merge-on-read") if mode in name)
            on = next((on for way, on in _ways(kind) if way and name.endswith(way)), _ways(kind)[0][1])
            try:
                peer("make", **given)
            except PeerFailed as failed:
                report.say(f"{name} is missing here. {failed}")
                continue
            cases[name] = _each(batches, lambda path, p=peer, t=table, o=on: p("merge", table=t, changes=path, on=o))
        return cases


def _ways(kind: str) -> tuple[tuple[str, list[str]], ...]:
    """How the MERGE is written: what its name ends with, and the columns that must be equal."""
    by_key = ("", ["id"])
    return (by_key,) if kind == "uniform" else (by_key, (", partition given", ["month", "id"]))


def _each(batches: Sequence[str], upsert: Callable[[str], Answer]) -> Callable[[], Answer]:
    """A case that takes the next batch in each round."""
    left = iter(batches)
    return lambda: upsert(next(left))


def _noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
