"""Columns that change under a covering index: it never answers for one column with the values of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.storage import errors
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import rows_of

pytestmark = pytest.mark.spark

DDL = "id bigint, city string, n int, note string"


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> IndexedTable:
    made = IndexedTable.create(spark, tmp_path / "table", DDL, ["id"], buckets=1)
    made.upsert(frame(spark, [(i, f"c{i % 3}", i, f"note {i}" * 20) for i in range(60)], DDL))
    made.create_index("cov", "covering", ["city"], included=IncludedColumns(include=["n"]),
                      properties={"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"})  # fmt: skip
    return made


def test_given_a_key_that_entries_hold_then_it_is_not_renamed(table: IndexedTable) -> None:
    with pytest.raises(errors.InvalidInput, match="'cov'"):
        table.rename_column("id", "ride")
    assert table.rename_column("note", "remark").committed


def test_given_entries_with_a_column_left_out_since_then_no_other_column_takes_its_name(table: IndexedTable) -> None:
    table.refresh_index("cov", included=IncludedColumns(exclude=["n"]))
    assert table.indexes["cov"].included == ()
    with pytest.raises(errors.InvalidInput, match="'cov'"):
        table.drop_column("n")
    table.refresh_index("cov", mode="full")
    assert table.drop_column("n").committed
    table.add_columns("n int")
    assert {row[0] for row in table.read("city = 'c1'", ["n"]).collect()} == {None}


@pytest.mark.by_turn(8)
def test_given_columns_of_another_time_then_a_restore_brings_the_rows_and_leaves_the_index_to_a_refresh(
    spark: Any, table: IndexedTable
) -> None:
    version = table.version
    table.add_columns("tip int")
    table.restore(version)
    assert table.indexes["cov"].lagging == 0, "a column more is no reason"
    table.refresh_index("cov", mode="full", included=IncludedColumns(exclude=["n"]))
    table.drop_column("n")
    table.add_columns("n int")
    table.upsert(frame(spark, [(1, "c1", "", 7, 1)], "id bigint, city string, note string, n int, tip int"))
    table.restore(version)
    assert {row[0] for row in table.read("city = 'c1'", ["n"]).collect()} == {None}
    assert table.explain("city = 'c1'", ["city"]).not_used["cov"].code == "covers_nothing"
    assert table.verify("cov").ok
    table.refresh_index("cov")
    assert table.explain("city = 'c1'", ["city"]).index_used == "cov"
    assert len(rows_of(table, "city = 'c1'")) == 20 and table.verify("cov").ok


def test_given_a_list_of_names_then_these_are_included_and_a_string_is_refused(table: IndexedTable) -> None:
    table.create_index("listed", "covering", ["id"], included=["n"], deferred=True)
    assert table.indexes["listed"].included == ("n",)
    table.refresh_index("listed", included=["note"])
    assert table.indexes["listed"].included == ("n", "note")
    with pytest.raises(errors.InvalidInput, match="list of names"):
        table.create_index("as_text", "covering", ["id"], included="note")
