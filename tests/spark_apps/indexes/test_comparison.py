"""Entries compared with rows in Spark: what the sums of their hashes tell apart, and that rows are paired only where
the sums differ."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes import comparison
from spark_apps.indexes.comparison import Comparison, Part
from tests.spark_apps.frames import frame

pytestmark = pytest.mark.spark

DDL = "k int, a int, b int, x double, s string, l array<int>, n decimal(38,2), t array<timestamp>"
TIMES = [dt.datetime(2024, 1, 1, 12, 0, 0, 123_456), dt.datetime(2024, 1, 1, 12, 0, 0, 123_457)]
ROWS = [(1, None, 5, 0.0, "ab", [1, 2], 1, TIMES[:1]), (2, 5, None, float("nan"), "c", None, 2, None),
        (3, 7, 7, 1.5, "", [], None, [])]  # fmt: skip

OTHERS = {
    "a value and a null change columns": [(1, 5, None, *ROWS[0][3:]), (2, None, 5, *ROWS[1][3:]), ROWS[2]],
    "a value is of another entry": [(2, *ROWS[0][1:]), (1, *ROWS[1][1:]), ROWS[2]],
    "zero has another sign": [(*ROWS[0][:3], -0.0, *ROWS[0][4:]), *ROWS[1:]],
    "a null is no empty text": [*ROWS[:2], (*ROWS[2][:4], None, *ROWS[2][5:])],
    "a null is no empty array": [ROWS[0], (*ROWS[1][:5], [], *ROWS[1][6:]), ROWS[2]],
    "one is there twice for another": [ROWS[0], ROWS[0], ROWS[2]],
    "two are there twice": [*ROWS, *ROWS[:2]],
    "one is missing": ROWS[1:],
    "a number is another": [*ROWS[:2], (*ROWS[2][:6], 3, ROWS[2][7])],
    "a nested time is a microsecond later": [(*ROWS[0][:7], TIMES[1:]), *ROWS[1:]],
    "there are none": [],
}


def compared(spark: Any, stored: list[Any]) -> Comparison:
    expected, entries = frame(spark, ROWS, DDL), frame(spark, stored, DDL)
    names = tuple(expected.columns)
    return Comparison([Part(names[:1], names[1:], expected, entries)], {}, lambda *_: "", "wrong values")


@pytest.mark.by_turn(4)
def test_given_entries_that_differ_in_any_way_then_their_sums_do(spark: Any) -> None:
    def agree(stored: list[Any]) -> bool:
        return comparison._sums_agree(compared(spark, stored), comparison._Found())

    assert agree(ROWS) and agree(ROWS[::-1])
    assert [what for what, entries in OTHERS.items() if agree(entries)] == []


UNCOUNTED = [(0.0,), (-0.0,), (float("nan"),), (float("nan"),), (None,), (1.5,), (1.5,), (1.5,)]
COUNTED = [(0.0, 2), (float("nan"), 2), (None, 1), (1.5, 3)]

MISCOUNTED = {
    "rows of two entries": [*COUNTED[:3], (1.5, 1), (1.5, 2)],
    "the same entry twice": [*COUNTED, COUNTED[3]],
    "rows of another entry": [(0.0, 3), *COUNTED[1:3], (1.5, 2)],
    "none, which would be in no sum": [*COUNTED, (2.5, 0)],
    "fewer than none": [*COUNTED, (2.5, -1), (3.5, 1)],
    "more than a number may be": [*COUNTED, (2.5, (1 << 63) - 1), (3.5, 2)],
    "another value": [*COUNTED[:3], (2.5, 3)],
    "one is missing": COUNTED[1:],
}


@pytest.mark.by_turn(4)
def test_given_rows_that_nothing_counted_then_entries_agree_that_say_how_many_there_are_of_each(spark: Any) -> None:
    def agree(stored: list[tuple[float | None, int]]) -> bool:
        found, ddl = comparison._Found(), "x double, n bigint"
        part = Part(("x",), ("n",), None, frame(spark, stored, ddl), uncounted=frame(spark, UNCOUNTED, "x double"))
        agreed = comparison._sums_agree(Comparison([part], {}, rows="n"), found)
        assert found.rows == len(UNCOUNTED) and found.entries == len(stored)
        return agreed

    assert agree(COUNTED) and agree(COUNTED[::-1])
    assert [what for what, entries in MISCOUNTED.items() if agree(entries)] == []


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("group", ["lags", "gone"])
def test_given_a_second_entry_in_a_group_that_lags_or_is_gone_then_what_it_says_is_wrong(
    spark: Any, group: str
) -> None:
    expected, stored = frame(spark, [(1, "a"), (2, "a")], "k int, g string"), [(1, "a"), (2, "a"), (3, group)]
    marks = comparison.F.when(comparison.F.col("g") == "a", "covered").when(comparison.F.col("g") == "lags", "lags")

    def found(stored: list[tuple[int, str]]) -> comparison._Found:
        part = Part(("k",), ("g",), expected, frame(spark, stored, "k int, g string"))
        return comparison._in_spark(
            Comparison(
                [part],
                {"k": "k"},
                other="wrong partition",
                uncovered=1,
                merged=True,
                marked=lambda entries: entries.withColumn(comparison.MARK, marks),
            )
        )

    assert found(stored).other == 0
    assert found([*stored, (1, group)]).other == 1


def test_given_so_many_entries_that_a_sum_of_hashes_would_overflow_then_the_pieces_are_added(spark: Any) -> None:
    """A session in which an overflow is an error adds up the highest pieces of as many entries as there may be."""
    most = spark.sql(f"SELECT {(1 << 22) - 1}L * {1 << 41}L AS low").collect()[0][0]
    pieces = spark.range(1).select(*comparison._pieces(comparison.F.lit(-1).cast("bigint"))).collect()[0]
    assert most < 1 << 63 and max(pieces) == (1 << 22) - 1
    assert sum(piece << shift for piece, shift in zip(pieces, (0, 22, 43), strict=True)) == (1 << 64) - 1


@pytest.mark.by_turn(8)
def test_given_indexes_that_agree_then_no_rows_are_paired(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl = "id bigint, p string, city string, n int"
    table = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], partition_by=["p"], buckets=1)
    table.upsert(frame(spark, [(i, "ab"[i % 2], f"c{i % 4}", i) for i in range(20)], ddl))
    table.create_index("rec", "record")
    table.create_index("eager", "secondary", ["city"], properties={"shards": "2"})
    table.create_index("blocks", "compact", ["city"])
    table.create_index("cov", "covering", ["city"], included=IncludedColumns(include=["n"]))

    def refuse(_: Comparison) -> Any:
        raise AssertionError("rows and entries are paired")

    monkeypatch.setattr(comparison, "_paired", refuse)
    for name in ("rec", "eager", "blocks", "cov"):
        report = table.verify(name)
        assert report.ok and report.rows == 20 and report.stale == report.uncovered == 0, report
    # Entries of file groups that lag behind, or are gone, are left out of the sums.
    table.drop_partition("p=b")
    report = table.verify("rec")
    assert report.ok and report.rows == 10 and report.stale + report.entries >= 10, report
