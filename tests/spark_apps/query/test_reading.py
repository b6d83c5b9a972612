"""Rows looked for by their keys, whatever the keys are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from tests.spark_apps.frames import frame

pytestmark = pytest.mark.spark


def test_given_keys_that_are_days_of_any_year_then_each_is_found_by_its_index(spark: Any, tmp_path: Path) -> None:
    days = [dt.date(1, 1, 1), dt.date(999, 12, 31), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]
    table = IndexedTable.create(spark, tmp_path / "table", "day date, n int", ["day"], buckets=1)
    table.upsert(frame(spark, [(day, number) for number, day in enumerate(days)], "day date, n int"))
    table.create_index("by_day", "record")
    for number, day in enumerate(days):
        where = f"day = DATE '{day.isoformat()}'"
        assert table.explain(where).record_keys == 1
        assert [tuple(row) for row in table.read(where).collect()] == [(day, number)]


def test_given_negative_zeros_then_they_are_found_as_the_zeros_that_they_equal(spark: Any, tmp_path: Path) -> None:
    ddl = "id bigint, x double, f float"
    table = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], buckets=1)
    table.upsert(frame(spark, [(n, (-0.0, 1.0)[n % 2], (1.0, -0.0)[n % 2]) for n in range(10)], ddl))
    for where in ("x = 0.0D", "x IN (0.0D, 7D)", "f = 0", "f <=> -0.0F"):
        assert table.read(where).count() == 5, where
    table.create_index("by_id", "covering", ["id"], included=IncludedColumns(include=["f"]))
    for columns in (["f"], None):
        assert table.read("f = 0.0D", columns).count() == 5
