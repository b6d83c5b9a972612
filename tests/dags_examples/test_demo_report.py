"""The demo's comparison of its table with the raw data: it agrees where they do, and sees one row that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dags_examples.demo import data
from dags_examples.demo.report import _counted
from spark_apps import IndexedTable

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]


def test_given_a_table_of_raw_flights_then_it_agrees_until_one_of_them_changes(spark: Any, tmp_path: Path) -> None:
    raw = data.raw()
    flights = raw[(raw["month"] >= 11) & (raw["flight"] % 97 == 0)]
    (tmp_path / "raw").mkdir()
    flights.to_parquet(tmp_path / "raw/flights.parquet", index=False, coerce_timestamps="us")
    table = IndexedTable.create(
        spark, tmp_path / "table", record_key=data.KEY, from_source=str(tmp_path / "raw"), buckets=1
    )
    table.delete("month = 12 AND dep_time IS NULL")

    figures = _counted(table.read(), data.expected(flights), data.left(flights))
    assert all(here == there for here, there in figures.values()), figures
    assert figures["rows"][0] > 100

    [flight] = table.read().limit(1).collect()
    table.upsert(spark.createDataFrame([(*flight[:-1], flight.distance + 1)], table.read().schema))
    figures = _counted(table.read(), data.expected(flights), data.left(flights))
    assert [name for name, (here, there) in figures.items() if here != there] == [list(figures)[-1]]
