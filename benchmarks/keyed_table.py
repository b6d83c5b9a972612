"""What loading, upserting, looking up, scanning and compacting a keyed table costs, against plain Spark on its rows.

The rows have a unique 36-character key, spread evenly over 12 partitions of 4 buckets. The floor is what Spark itself
needs to shuffle the same rows, sort them and write them as Parquet with the same compression.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Timing, interleaved, timed
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, BUCKETS = 12, 4
SCHEMA = "id string, month int, customer string, amount double, note string"


def generate(spark: SparkSession, rows: int) -> DataFrame:
    """Rows with unique keys of 36 characters, some 50 to a customer."""
    from pyspark.sql import functions as F

    digest = F.sha2(F.col("n").cast("string"), 256)
    return spark.range(rows).withColumnRenamed("id", "n").select(
        F.substring(digest, 1, 36).alias("id"),
        (F.col("n") % PARTITIONS).cast("int").alias("month"),
        F.concat(F.lit("customer-"), F.col("n") % max(rows // 50, 1)).alias("customer"),
        (F.col("n") * 0.01).alias("amount"),
        F.substring(digest, 37, 20).alias("note"),
    )  # fmt: skip


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question."""
    with workplace() as (spark, folder):
        _Bench(report, spark, folder, arguments.rows, arguments.repeats).all()


class _Bench:
    def __init__(self, report: Report, spark: SparkSession, folder: Path, rows: int, repeats: int) -> None:
        self.report, self.spark, self.folder, self.rows, self.repeats = report, spark, folder, rows, repeats
        self.fresh = (str(folder / f"table{n}") for n in itertools.count())
        source = str(folder / "source")
        generate(spark, rows).write.parquet(source)
        self.source = spark.read.parquet(source)

    def all(self) -> None:
        self.load()
        self.upsert()
        self.lookup()
        self.merge_and_compact()

    def load(self) -> None:
        """Loading all rows / the floor."""
        cases = {"floor": self._floor, "load": lambda: self._table(self.source)}
        self.report.timings(f"Load of {self.rows:,} rows", interleaved(cases, repeats=3), "floor")

    def upsert(self) -> None:
        """An upsert of 1 % spread evenly, with no index, and with each kept in the same commit."""
        share = self._batch(100)
        count = share.count()
        timings = [
            Timing(
                "read key and customer of the table", (timed(lambda: self._noop(self.source.select("id", "customer"))),)
            )
        ]
        for name, kinds in (("no index", ()), ("record", ("record",)), ("record + secondary", ("record", "secondary"))):
            table = self._table(self.source)
            self._index(table, kinds)
            seconds = [timed(lambda table=table: table.upsert(share)) for _ in range(self.repeats + 1)]
            timings.append(Timing(name, tuple(seconds[1:])))
        self.report.timings(f"Upsert of {count:,} rows (1 %, spread evenly)", timings, "no index")

    def lookup(self) -> None:
        """Rows by key and by customer: through the indexes, and by Spark alone on the same rows, sorted."""
        table = self._table(self.source)
        self._index(table, ("record", "secondary"))
        plain = str(self.folder / "plain")
        self._floor(plain)
        raw = self.spark.read.parquet(plain)
        keys = [row.id for row in self.source.sample(fraction=min(1.0, 2000 / self.rows), seed=7).limit(1000).collect()]
        for many in (1, 10, 100, 1000):
            where = "id IN ({})".format(", ".join(f"'{key}'" for key in keys[:many]))
            cases = {
                "Spark scan": lambda where=where: raw.where(where).collect(),
                "index": lambda where=where: table.read(where=where).collect(),
            }
            self.report.timings(f"{many} keys of {self.rows:,}", interleaved(cases, self.repeats), "Spark scan")
        where = "customer = 'customer-77'"
        cases = {
            "Spark scan": lambda: raw.where(where).collect(),
            "index": lambda: table.read(where=where).collect(),
        }
        count = table.read(where=where).count()
        self.report.timings(f"{count} rows by a secondary key", interleaved(cases, self.repeats), "Spark scan")

    def merge_and_compact(self) -> None:
        """Scanning with deltas of 1 % and 10 % / compacted; compaction / the floor."""
        table = self._table(self.source)
        timings = interleaved({"compacted": lambda: self._noop(table.read())}, self.repeats)
        for name, step in (("1 % deltas", 100), ("10 % deltas", 10)):
            table.upsert(self._batch(step))
            timings += interleaved({name: lambda: self._noop(table.read())}, self.repeats)
        self.report.timings(f"Scan of {self.rows:,} rows, merge on read", timings, "compacted")
        floor = interleaved({"floor": self._floor}, repeats=3)
        compaction = Timing("compaction", (timed(table.compact),), "once: it leaves nothing to compact")
        self.report.timings(f"Compaction of {self.rows:,} rows with 11 % deltas", [*floor, compaction], "floor")

    # --- parts ------------------------------------------------------------------------------------------------

    def _batch(self, step: int) -> DataFrame:
        """Every ``step``-th row, changed."""
        from pyspark.sql import functions as F

        chosen = F.pmod(F.xxhash64("id", F.lit(step)), F.lit(step)) == 0
        changed = self.source.where(chosen).withColumns(
            {"amount": F.col("amount") + 1, "customer": F.lit("customer-new")}
        )
        path = str(self.folder / f"batch{step}")
        changed.write.parquet(path, mode="overwrite")
        return self.spark.read.parquet(path)

    def _table(self, rows: DataFrame):  # type: ignore[no-untyped-def]
        from spark_apps.table import IndexedTable

        table = IndexedTable.create(
            self.spark, next(self.fresh), SCHEMA, ["id"], partition_by=["month"], buckets=BUCKETS
        )
        table.upsert(rows)
        return table

    def _index(self, table, kinds) -> None:  # type: ignore[no-untyped-def]
        for kind in kinds:
            table.create_index(kind, kind=kind, columns=["id"] if kind == "record" else ["customer"])

    def _floor(self, path: str | None = None) -> None:
        (
            self.source.repartition("month")
            .sortWithinPartitions("month", "id")
            .write.partitionBy("month")
            .parquet(path or next(self.fresh))
        )

    def _noop(self, rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()
