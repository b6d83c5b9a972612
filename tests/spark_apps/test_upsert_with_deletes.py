"""One batch with rows to write and rows to delete, in one commit, indexes included."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidSchema, UnknownColumn
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]


def build(spark: SparkSession, folder: Path) -> None:
    made = IndexedTable.create(
        spark, folder, "id int, city string, part string", ["id"], partition_by=["part"], buckets=2
    )
    made.upsert(
        spark.sql("SELECT int(id) AS id, concat('c', id % 3) AS city, concat('p', id % 2) AS part FROM range(12)")
    )


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


def batch(spark: SparkSession):  # type: ignore[no-untyped-def]
    rows = [(0, "new", "p0", False), (1, "gone", "p1", True), (99, "never there", "p1", True), (50, "c9", "p0", None)]
    return frame(spark, rows, "id int, city string, part string, cancelled boolean")


@pytest.mark.parametrize(("indexed", "compacted"), [(False, True), (True, False)])
def test_rows_and_deletes_of_a_batch_take_effect_together(
    spark: SparkSession, table: IndexedTable, indexed: bool, compacted: bool
) -> None:
    if indexed:
        table.create_index("key", kind="record")
        table.create_index("by_city", kind="secondary", columns=["city"])
    before = {row.id: row.city for row in table.read().collect()}

    receipt = table.upsert(batch(spark), deleted="cancelled")
    if compacted:
        table.compact()

    expected = {**before, 0: "new", 50: "c9"}
    del expected[1]
    assert {row.id: row.city for row in table.read().collect()} == expected
    assert (receipt.metrics["rows"], receipt.metrics["tombstones"]) == (2, 2)
    assert table.history()[-1 - compacted].operation == "upsert"
    if indexed:
        assert table.verify("key").ok and table.verify("by_city").ok
        assert [row.id for row in table.read("city = 'new'").collect()] == [0]
        assert table.read("id = 1").count() == 0


def test_a_deleted_row_written_again_lives(spark: SparkSession, table: IndexedTable) -> None:
    table.create_index("key", kind="record")
    table.upsert(batch(spark), deleted="cancelled")

    table.upsert(batch(spark).drop("cancelled").where("id = 1"))

    assert [row.city for row in table.read("id = 1").collect()] == ["gone"]


def test_a_deleted_row_that_has_moved_is_gone_from_where_it_was(spark: SparkSession, table: IndexedTable) -> None:
    table.create_index("key", kind="record")

    table.upsert(batch(spark).selectExpr("id", "city", "'p0' AS part", "true AS cancelled"), deleted="cancelled")

    assert table.read("id IN (0, 1)").count() == 0
    assert table.read().count() == 10
    assert table.verify("key").ok


@pytest.mark.parametrize(
    ("deleted", "error"), [("missing", UnknownColumn), ("city", UnknownColumn), ("text", InvalidSchema)]
)
def test_a_mark_that_cannot_be_one_is_refused(
    spark: SparkSession, table: IndexedTable, deleted: str, error: type[Exception]
) -> None:
    rows = batch(spark).selectExpr("id", "city", "part", "city AS text")

    with pytest.raises(error, match="Nothing was changed"):
        table.upsert(rows if deleted == "text" else rows.drop("text"), deleted=deleted)
