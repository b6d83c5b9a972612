"""Hudi tables for the tests of its connector."""

from __future__ import annotations

from typing import Any

FILES = 8
ROWS = 800
SMALL = {
    # Their own metadata table takes a commit of its own for each of theirs.
    "hoodie.metadata.enable": "false",
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.embed.timeline.server": "false",
}
CATALOG = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
COUNTS = (
    "action", "total_files_added", "total_files_updated", "total_partitions_written", "total_records_written",
    "total_update_records_written", "total_errors",
)  # fmt: skip
"""What a commit says of files and rows."""


def session_of(spark: Any) -> Any:
    """Return a session whose own catalog is Hudi's, and whose tables are small."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", CATALOG)
    for name, value in SMALL.items():
        session.conf.set(name, value)
    return session


def key(row: int, rows: int = ROWS) -> int:
    """Return the key of a row: keys are unique, and those of each file from nearly all of the range."""
    return row * 7919 % rows


def rows_of(spark: Any, first: int, last: int, rows: int = ROWS) -> Any:
    """Return rows by id: a key, a number, a name, a folder."""
    return spark.range(first, last).selectExpr(
        "id", f"id * 7919 % {rows} AS key", "cast(id % 97 AS int) AS n", "concat('r', id % 200) AS rider",
        "concat('p', id div 400) AS p",
    )  # fmt: skip


def write(rows: Any, path: str, operation: str, kind: str = "mor", **more: str) -> None:
    """Write rows by their ids; a bulk insert writes a file for each partition of them."""
    options = {
        **SMALL,
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "n",
        "hoodie.datasource.write.table.type": TYPES[kind],
        "hoodie.datasource.write.operation": operation,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    rows.write.format("hudi").options(**options).mode("append").save(path)


def make(spark: Any, path: str, kind: str = "mor", files: int = FILES, rows: int = ROWS, **more: str) -> None:
    """Make a table of so many files by id."""
    written = rows_of(spark, 0, rows, rows).repartitionByRange(files, "id")
    write(written, path, "bulk_insert", kind, **{"hoodie__bulkinsert__shuffle__parallelism": str(files), **more})
