"""How many keys are better looked up on the driver, straight from the index files, and how many by a Spark job.

An index of one entry a row, unique 36-character keys in sorted files, keys asked for at random. Once for queries
(``MAX_DRIVER_KEYS``: from keys to file groups), once for writers (``UpsertLimits.lookup_keys``: from
record keys to partitions). Also what
was estimated for the indexes, beside the truth.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.keyed_table import BUCKETS, SCHEMA, generate
from benchmarks.measure import Case, interleaved
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question."""
    with workplace() as (spark, folder):
        _Bench(report, spark, folder, arguments.rows, arguments.repeats).lookups()


class _Bench:
    def __init__(self, report: Report, spark: SparkSession, folder: Path, rows: int, repeats: int) -> None:
        from spark_apps.table import IndexedTable

        self.report, self.spark, self.rows, self.repeats = report, spark, rows, repeats
        self.source = generate(spark, rows).persist()
        self.table = IndexedTable.create(
            spark, folder / "table", SCHEMA, ["id"], partition_by=["month"], buckets=BUCKETS
        )
        self.table.upsert(self.source)
        for name, kind, columns in (("by_id", "record", ["id"]), ("by_customer", "secondary", ["customer"])):
            metrics = self.table.create_index(name, kind, columns).metrics
            figures = {key: metrics[key] for key in ("estimated_bytes", "bytes", "estimated_seconds", "seconds")}
            report.say(f"{kind} over {rows:,} rows: {figures}")
        share = min(1.0, 1.2 * COUNTS[-1] / rows)
        self.keys = [(row.id,) for row in self.source.sample(fraction=share, seed=7).limit(COUNTS[-1]).collect()]

    def lookups(self) -> None:
        """Both ways, for ever more keys."""
        for count in COUNTS:
            if count <= len(self.keys):
                keys = self.keys[:count]
                repeats = self.repeats if count < 10_000 else max(2, self.repeats // 2)
                timings = interleaved(self._cases(keys), repeats)
                self.report.timings(f"{count:,} keys among {self.rows:,} entries", timings, "query: Spark")

    def _cases(self, keys: list[tuple[Any, ...]]) -> dict[str, Case]:
        from spark_apps.indexes.handler import IndexContext
        from spark_apps.indexes.keyed import lookup
        from spark_apps.indexes.keyed.matching import keys_to_arrow
        from spark_apps.indexes.keyed.record import RecordHandler

        snapshot, handler = self.table.snapshot, RecordHandler()
        definition = snapshot.state.index("by_id").definition
        context, tree = IndexContext(snapshot, definition, ""), handler.tree(snapshot.table, definition)
        arrow_keys = keys_to_arrow(tree, keys)
        frame = self.spark.createDataFrame(keys, "id string")
        return {
            "query: driver": lambda: lookup._group_entries(
                context, tree, lookup.lookup(snapshot, tree, keys, definition.shards)
            ),
            "query: Spark": lambda: lookup._find_by_spark(context, tree, keys),
            "writer: driver": lambda: handler.places(context, arrow_keys),
            "writer: Spark": lambda: handler.locate(context, frame).count(),
        }
