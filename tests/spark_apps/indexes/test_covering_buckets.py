"""Covering indexes whose files Spark takes for buckets: where rows lie, and what a lookup reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.covering.definition import hash_of
from spark_apps.layout.hashing import SPARK_BUCKETS
from spark_apps.mergetree.write import bucket_of
from spark_apps.storage.errors import InvalidInput
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files, scanned

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id bigint, city string, n int, note string"
LAID = {"layout": "buckets", "buckets": "6", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}


def _rows(ids: range) -> list[tuple[Any, ...]]:
    return [(i, f"c{i % 20}" if i % 21 else None, i % 7, f"x{i}" * 20) for i in ids]


def _entry_files(table: IndexedTable) -> list[Any]:
    return [file for file in index_files(table, "cov") if file.group != "coverage"]


def _check(table: IndexedTable, rows: dict[int, tuple[Any, ...]], most: int) -> None:
    """Entries lie by Spark's own hash, a value is looked up in so many files at most, and all rows are right."""
    spark, definition = table._handle.spark, table.indexes["cov"].definition
    assert table.verify("cov").ok and hash_of(definition) == SPARK_BUCKETS
    for file in _entry_files(table):
        assert bucket_of(file.path) == file.group
        entries = spark.read.parquet(f"{table.uri}/{file.path}")
        cities = [row[0] for row in entries.select("city").collect()]
        assert cities == sorted(cities, key=lambda city: (city is not None, city))
        assert [row[0] for row in entries.select(F.expr("pmod(hash(city), 6)")).distinct().collect()] == [
            int(file.group)
        ]
    for where, city in (("city = 'c4'", "c4"), ("city IS NULL", None)):
        explanation = table.explain(where, ["city", "n"])
        assert explanation.index_used == "cov" and explanation.indexes[0].files <= most, explanation
        query = table.read(where, ["city", "n"])
        assert sorted(row[1] for row in query.collect()) == sorted(row[2] for row in rows.values() if row[1] == city)
        assert scanned(query).files <= most + explanation.files_read


@pytest.mark.by_turn(16)
def test_given_writes_refreshes_compactions_and_other_columns_then_rows_lie_in_their_buckets(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=2)
    rows = {row[0]: row for row in _rows(range(400))}
    table.upsert(frame(spark, list(rows.values()), DDL))
    table.create_index("cov", "covering", ["city"], included=["n"], properties=LAID)
    _check(table, rows, 1)
    new = {i: (i, "c4", -i, "new") for i in range(390, 500)}
    table.upsert(frame(spark, list(new.values()), DDL))
    table.delete("id < 30")
    rows = {i: row for i, row in {**rows, **new}.items() if i >= 30}
    table.compact()
    table.refresh_index("cov", included=IncludedColumns(include=["note"]))
    _check(table, rows, 2)
    table.compact("cov", mode="full")
    _check(table, rows, 1)
    table.refresh_index("cov", mode="full")
    _check(table, rows, 1)


def test_given_what_is_fixed_or_no_layout_then_it_is_refused(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=1)
    with pytest.raises(InvalidInput, match="hash, ranges, buckets"):
        table.create_index("cov", "covering", ["city"], properties={"layout": "bucket"})
    table.create_index("cov", "covering", ["city"], properties=LAID)
    assert not _entry_files(table)
    with pytest.raises(InvalidInput, match="'layout' of the index 'cov' is fixed"):
        table.alter_index("cov", {"layout": "hash"})
    with pytest.raises(ValueError, match="no bucket"):
        bucket_of("part-00000-abc-c000.snappy.parquet")
