"""Rows looked for by their keys, whatever the keys are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
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
