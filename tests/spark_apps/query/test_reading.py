"""Rows looked for by their keys, whatever the keys are."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.mergetree.schema import parse_ddl
from spark_apps.query import planning, reading
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]


def test_given_keys_that_are_days_of_any_year_then_each_is_found_by_its_index(spark: Any, tmp_path: Path) -> None:
    days = [dt.date(1, 1, 1), dt.date(999, 12, 31), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]
    table = IndexedTable.create(spark, tmp_path / "table", "day date, n int", ["day"], buckets=1)
    table.upsert(frame(spark, [(day, number) for number, day in enumerate(days)], "day date, n int"))
    table.create_index("by_day", "record")
    for number, day in enumerate(days):
        where = f"day = DATE '{day.isoformat()}'"
        assert table.explain(where).record_keys == 1
        assert [tuple(row) for row in table.read(where).collect()] == [(day, number)]


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("more", ["", ", nested struct<a: int>, `${x} y` int"])
def test_given_no_rows_then_columns_are_of_the_types_of_the_table(spark: Any, tmp_path: Path, more: str) -> None:
    ddl = (
        "id bigint, b boolean, t tinyint, s smallint, i int, f float, d double, x decimal(10,2), bin binary, `my day`"
        f" date, ts timestamp, ntz timestamp_ntz, text string{more}"
    )
    table = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], buckets=1)
    with session_with(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        rows = table.read("id = 1")
        assert rows.collect() == []
        assert [(field.name, field.dataType) for field in rows.schema] == [
            (field.name, field.dataType) for field in parse_ddl(ddl.replace(" timestamp,", " timestamp_ltz,"))
        ]


def test_given_negative_zeros_then_they_are_found_as_the_zeros_that_they_equal(spark: Any, tmp_path: Path) -> None:
    ddl = "id bigint, x double, f float"
    table = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], buckets=1)
    table.upsert(frame(spark, [(n, (-0.0, 1.0)[n % 2], (1.0, -0.0)[n % 2]) for n in range(10)], ddl))
    for where in ("x = 0.0D", "x IN (0.0D, 7D)", "f = 0", "f <=> -0.0F"):
        assert table.read(where).count() == 5, where
    table.create_index("by_id", "covering", ["id"], included=IncludedColumns(include=["f"]))
    for columns in (["f"], None):
        assert table.read("f = 0.0D", columns).count() == 5


@pytest.mark.parametrize(
    ("count", "rows_a_page", "reads"), [(1, 1, 1), (5, 1, 1), (25, 1, 4), (170, 1, 9), (900, 1, 1), (25, 8192, 1)]
)
def test_given_many_keys_then_each_read_looks_for_few_of_them_where_that_spares_pages(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, rows_a_page: int, reads: int
) -> None:
    monkeypatch.setattr(planning, "ALWAYS_KEYS", 1 << 60)
    monkeypatch.setattr(planning, "ALWAYS_CHARACTERS", 1 << 60)
    monkeypatch.setattr(reading, "_ROWS_PER_PAGE", rows_a_page)
    monkeypatch.setattr(reading, "_PAGES_PER_READ", 3)
    rows = [(f"k{n:04}", f"p{n % 3}", n) for n in range(1000)]
    table = IndexedTable.create(
        spark, tmp_path / "t", "k string, p string, n int", ["k"], partition_by=["p"], buckets=4
    )
    table.upsert(frame(spark, rows, "k string, p string, n int"))
    table.create_index("by_k", "record")
    asked = sorted(rows, key=lambda row: row[2] * 7919 % 1000)[:count]

    answer = table.read(f"k IN ({', '.join(repr(key) for key, *_ in asked)})")

    assert in_order(answer.collect()) == sorted(asked)
    assert answer._jdf.queryExecution().executedPlan().toString().count("FileScan") == reads


@pytest.mark.parametrize("most", [32, 1])
@pytest.mark.by_turn(16)
def test_given_keys_of_several_partitions_then_each_file_is_asked_for_those_of_its_own(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(reading, "MAX_FILTER_PARTITIONS", most)
    monkeypatch.setattr(reading, "_TERMS_PER_PAGE", 1 << 30)
    monkeypatch.setattr(reading, "_ROWS_PER_PAGE", 0.001)
    monkeypatch.setattr(reading, "_PAGES_PER_READ", 1 << 30)
    ddl = "k string, p string, d date, b boolean, n int"
    texts, days = ["it's", "a\\b", "%x=/ ", None, ""], [dt.date(1, 1, 1), None, dt.date(2026, 1, 1)]
    rows = [(f"k{n:03}", texts[n % 5], days[n % 3], [True, False, None][n // 15 % 3], n) for n in range(90)]
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["k"], partition_by=["p", "d", "b"], buckets=2)
    table.upsert(frame(spark, rows, ddl))
    table.create_index("by_k", "record")
    table.upsert(frame(spark, [(*row[:4], -row[4]) for row in rows[::7]], ddl))
    expected = [(*row[:4], -row[4]) if n % 7 == 0 else row for n, row in enumerate(rows)]

    for asked in (expected[:1], expected[3:20:4], expected[::9], expected):
        where = f"k IN ({', '.join(repr(row[0]) for row in asked)})"
        answer = table.read(where)

        assert in_order(answer.collect()) == in_order(asked)
        assert sorted(row.n for row in table.read(where, ["n"]).collect()) == sorted(row[-1] for row in asked)
        plan = answer._jdf.queryExecution().executedPlan().toString()
        pushed = re.search(r"[pd]#\d+ = ", plan) is not None
        assert pushed == (1 < len(asked) <= most), plan
