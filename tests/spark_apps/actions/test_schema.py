"""Columns that come, go and change: rows, indexes and older versions stay right, or the change is refused."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.mergetree import spark_versions
from spark_apps.storage import errors
from tests.spark.releases import since
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id int, p string, city string, n int, f float, d decimal(5,2), note string"


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], partition_by=["p"], ordering_column="n", buckets=2)
    made.upsert(frame(spark, [row(n) for n in range(8)], DDL))
    made.create_index("key", "record")
    made.create_index("city", "secondary", ["city"])


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


def row(n: int, city: str | None = None) -> tuple[Any, ...]:
    return (n, "ab"[n % 2], city or f"c{n % 3}", n, n / 2, decimal.Decimal(n), f"note {n}")


def test_a_column_that_is_added_is_null_before_and_holds_what_is_written_after(spark: Any, table: IndexedTable) -> None:
    table.add_columns("fare double, `odd name` string")
    wide = f"{DDL}, fare double, `odd name` string"
    table.upsert(frame(spark, [(*row(1), 1.5, "x"), (*row(9), None, "y")], wide))

    assert table.schema.names[-2:] == ["fare", "odd name"]
    assert rows_of(table, "id IN (1, 2, 9)") == [
        (*row(1), 1.5, "x"), (*row(2), None, None), (*row(9), None, "y"),
    ]  # fmt: skip
    table.compact()
    assert rows_of(table, "fare = 1.5") == [(*row(1), 1.5, "x")]
    old = IndexedTable.load(spark, table.uri, version=3)
    assert rows_of(old) == [row(n) for n in range(8)]


def test_a_renamed_column_is_found_by_its_index_in_old_and_new_files(spark: Any, table: IndexedTable) -> None:
    table.rename_column("city", "town")
    table.rename_column("id", "ride")
    renamed = DDL.replace("city", "town").replace("id int", "ride int")
    table.upsert(frame(spark, [row(0, "new"), row(3, "c1"), (20, "a", "new", 1, 0.0, None, "moved in")], renamed))

    for state in ("merged", "compacted"):
        assert [r[0] for r in rows_of(table, "town = 'new'")] == [0, 20], state
        assert "city" in str(table.explain("town = 'c1'").index_used), state
        assert [r[0] for r in rows_of(table, "town = 'c1'")] == [1, 3, 4, 7], state
        assert [r[0] for r in rows_of(table, "ride = 3")] == [3], state
        assert table.verify("city").ok and table.verify("key").ok, state
        table.compact()
        table.compact("city", mode="full")
        table.compact("key", mode="full")
    table.refresh_index("city", mode="full")
    assert table.verify("city").ok
    table.upsert(frame(spark, [(20, "b", "new", 2, 0.0, None, "moved on")], renamed))
    assert [r[1] for r in rows_of(table, "ride = 20")] == ["b"]
    assert [r[0] for r in rows_of(IndexedTable.load(spark, table.uri, version=3), "city = 'c1'")] == [1, 4, 7]


def test_a_dropped_name_can_be_used_again_and_does_not_bring_the_old_values_back(
    spark: Any, table: IndexedTable
) -> None:
    table.drop_column("note")
    table.add_columns("note string")
    table.upsert(frame(spark, [(*row(5)[:-1], "again")], DDL))

    assert [r[-1] for r in rows_of(table)] == [None] * 5 + ["again"] + [None] * 2
    assert [r[-1] for r in rows_of(IndexedTable.load(spark, table.uri, version=3))] == [f"note {n}" for n in range(8)]
    table.restore(3)
    assert [r[-1] for r in rows_of(table)] == [None] * 8  # rows come back, columns do not


@since(4, 0, "reading a column of Parquet as a type of more bytes")
def test_a_widened_column_holds_old_and_larger_values(spark: Any, table: IndexedTable) -> None:
    for name, kind in (("n", "bigint"), ("f", "double"), ("d", "decimal(20,2)")):
        table.widen_column(name, kind)
    wide = DDL.replace("n int", "n bigint").replace("f float", "f double").replace("(5,2)", "(20,2)")
    large = (1, "b", "c1", 2**40, 0.1, decimal.Decimal("123456789.25"), "large")
    table.upsert(frame(spark, [large], wide))

    expected = [row(0), large, *(row(n) for n in range(2, 8))]
    assert rows_of(table) == expected
    assert rows_of(table, "n > 5") == [large, row(6), row(7)]
    table.compact()
    assert rows_of(table) == expected


def test_given_a_spark_that_could_not_read_the_files_then_a_column_is_not_widened(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_versions, "release", lambda spark: (3, 5))
    before = table.version
    for name, kind in (("n", "bigint"), ("f", "double"), ("d", "decimal(20,2)")):
        with pytest.raises(errors.EnvironmentMismatch, match=rf"{name}.*4\.0 brought that.*Nothing was changed"):
            table.widen_column(name, kind)
    assert table.version == before
    assert table.widen_column("d", "decimal(9,2)").version == before + 1
    assert rows_of(table) == [row(n) for n in range(8)]


REFUSED: list[tuple[Callable[[IndexedTable], Any], type[errors.LakeIndexError], str]] = [
    (lambda t: t.add_columns("City string"), errors.InvalidSchema, "City"),
    (lambda t: t.add_columns("x int NOT NULL"), errors.InvalidSchema, "NOT NULL"),
    (lambda t: t.add_columns("a/b"), errors.InvalidSchema, "a/b"),
    (lambda t: t.widen_column("n", "string"), errors.InvalidSchema, "string"),
    (lambda t: t.widen_column("n", "smallint"), errors.InvalidSchema, "smallint"),
    (lambda t: t.widen_column("id", "bigint"), errors.InvalidInput, "record key"),
    (lambda t: t.widen_column("nope", "bigint"), errors.UnknownColumn, "nope"),
    (lambda t: t.rename_column("p", "q"), errors.InvalidInput, "partition"),
    (lambda t: t.rename_column("n", "F"), errors.InvalidSchema, "F"),
    (lambda t: t.rename_column("n", "__index_x"), errors.InvalidName, "__index_x"),
    (lambda t: t.drop_column("city"), errors.InvalidInput, "'city'"),
    (lambda t: t.drop_column("n"), errors.InvalidInput, "ordering"),
    (lambda t: t.drop_column("id"), errors.InvalidInput, "record key"),
]


def test_a_change_that_rows_or_indexes_do_not_bear_is_refused_with_the_reason(table: IndexedTable) -> None:
    before = table.version
    for change, error, text in REFUSED:
        with pytest.raises(error, match=text):
            change(table)
    assert table.widen_column("n", "int").version is None
    assert IndexedTable.load(table.snapshot.spark, table.uri).version == before
