"""Tables of the wide rows, and Spark's floor for the same rows, for the questions that build, refresh and rewrite.

The table has 12 partitions of 4 buckets. The floor reads the same columns of the same Parquet files, shuffles them by
the same columns into as many files, sorts these and writes them with the same compression, in plain Spark.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.measure import Answer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_apps.table import IndexedTable
    from spark_apps.timeline.files import DataFile

BUCKETS = 4
KINDS = ("record", "secondary", "compact", "covering")
COLUMNS = {"record": ["id"], "secondary": ["customer"], "compact": ["customer"], "covering": ["customer"]}
INCLUDED = ["id", "amount", "created"]


def wide_frame(spark: SparkSession, rows: int, first: int = 0) -> DataFrame:
    """So many wide rows, numbered from ``first``."""
    return spark.read.schema(data.WIDE).parquet(str(data.wide(rows, first)))


def wide_table(spark: SparkSession, place: Path, rows: int, **options: Any) -> IndexedTable:
    """A table of so many wide rows, each file group one base file."""
    from spark_apps.table import IndexedTable

    table = IndexedTable.create(spark, place, data.WIDE, ["id"], partition_by=["month"], buckets=BUCKETS, **options)
    table.upsert(wide_frame(spark, rows))
    return table


def create(table: IndexedTable, name: str, kind: str, **more: Any) -> None:
    """An index of a kind, over the columns that all questions use."""
    from spark_apps.indexes.included_columns import IncludedColumns

    included = IncludedColumns(INCLUDED) if kind == "covering" else None
    table.create_index(name, kind, COLUMNS[kind], included=included, **more)


def files_of(table: IndexedTable, index: str | None = None) -> list[DataFile]:
    """The Parquet files of the table, or of one of its indexes."""
    state = table.snapshot.state
    tree = table.snapshot.data.name if index is None else state.index(index).definition.tree
    return [file for file in state.files(tree) if file.path.endswith(".parquet")]


def paths_of(table: IndexedTable, files: Sequence[DataFile]) -> list[str]:
    return [table.snapshot.store.spark_path(file.path) for file in files]


def index_floor(spark: SparkSession, paths: Sequence[str], kind: str, files: int, out: Path) -> Answer:
    """What Spark takes to shuffle, sort and write the columns that an index of a kind holds of each row."""
    from pyspark.sql import functions as F

    place = F.concat(F.lit("month="), F.col("month")).alias("place")
    file = F.xxhash64("_metadata.file_path").alias("file")
    held: dict[str, tuple[list[str | Column], list[str], list[str]]] = {
        "record": (["id", place], ["id"], ["id"]),
        "secondary": (["customer", "id", place], ["customer"], ["customer", "id"]),
        "compact": (["customer", file, F.col("_metadata.row_index").alias("row")], ["file"], ["customer", "file"]),
        "covering": (["customer", *INCLUDED, file], ["customer"], ["customer"]),
    }
    columns, shuffled, sorted_by = held[kind]
    rows = spark.read.schema(data.WIDE).parquet(*paths).select(*columns)
    return written(rows, files, shuffled, sorted_by, out)


def rows_floor(spark: SparkSession, paths: Sequence[str], files: int, out: Path) -> Answer:
    """What Spark takes to shuffle whole rows of plain files by their key, sort and write them."""
    rows = spark.read.schema(data.WIDE).parquet(*paths)
    return written(rows, files, ["month", "id"], ["month", "id"], out)


def written(rows: DataFrame, files: int, shuffled: Sequence[str], sorted_by: Sequence[str], out: Path) -> Answer:
    """Rows shuffled, sorted and written; what was written goes again, after the clock has stopped."""
    begun = time.perf_counter()
    rows.repartition(files, *shuffled).sortWithinPartitions(*sorted_by).write.parquet(str(out))
    seconds = time.perf_counter() - begun
    files = list(out.rglob("*.parquet"))
    written = {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}
    shutil.rmtree(out)
    return Answer(written, seconds)


def every(rows: DataFrame, share: int, of: int = 1) -> DataFrame:
    """``of`` in ``share`` of the rows, spread evenly, with an amount of their own."""
    from pyspark.sql import functions as F

    chosen = F.pmod(F.xxhash64("id", F.lit(share)), F.lit(share)) < of
    return rows.where(chosen).withColumn("amount", F.col("amount") + 1)


def stored(spark: SparkSession, rows: DataFrame, place: Path) -> DataFrame:
    """Rows written to plain files once, so that reading them costs every case the same."""
    rows.write.parquet(str(place), mode="overwrite")
    return spark.read.schema(data.WIDE).parquet(str(place))


def rewritten(table: IndexedTable, plain: Path) -> list[str]:
    """The table's rows in plain files of a file group each."""
    for file in files_of(table):
        plain.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(table.uri, file.path), plain / f"{file.partition}-{file.group}.parquet")
    return [str(path) for path in sorted(plain.glob("*.parquet"))]
