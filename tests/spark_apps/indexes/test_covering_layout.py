"""Covering indexes whose entries are laid by ranges: what a range reads of them, and the same rows as by hash."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.covering.definition import hash_of
from spark_apps.layout import hashing
from spark_apps.storage.errors import InvalidInput, StorageError
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id bigint, n int, at timestamp, note string"
LAID = {"layout": "ranges", "buckets": "8", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def _rows(ids: range) -> list[tuple[Any, ...]]:
    return [(i, (i * 37) % 1000 if i % 50 else None, BEGIN + dt.timedelta(hours=i), f"x{i}" * 30) for i in ids]


def _made(spark: Any, path: Path, ids: range = range(2000), column: str = "n", **more: Any) -> IndexedTable:
    table = IndexedTable.create(spark, path, DDL, ["id"], buckets=2)
    if ids:
        table.upsert(frame(spark, _rows(ids), DDL))
    included = IncludedColumns(include=["note"])
    table.create_index("cov", "covering", [column], included=included, properties=LAID, **more)
    return table


def _bounds(table: IndexedTable) -> tuple[Any, ...]:
    return hashing.range_bounds(hash_of(table.indexes["cov"].definition), "int")


def _check(table: IndexedTable, where: str, among: list[tuple[Any, ...]], most: int) -> None:
    """A query by some values of ``n``: the rows of a full scan, from so many files of the index at most."""
    explanation = table.explain(where, ["id", "n"])
    assert explanation.index_used == "cov" and explanation.indexes[0].files <= most, explanation
    answer = sorted((row[0], row[1]) for row in table.read(where, ["id", "n"]).collect())
    assert answer == sorted((row[0], row[1]) for row in among)


def test_given_a_range_then_only_files_that_it_meets_are_read(spark: Any, tmp_path: Path) -> None:
    table, rows = _made(spark, tmp_path / "t"), _rows(range(2000))
    sizes = [file.rows for file in index_files(table, "cov") if file.group != "coverage"]
    assert len(sizes) == 8 and sum(sizes) == 2000 and max(sizes) < 500
    _check(table, "n BETWEEN 400 AND 460", [row for row in rows if row[1] and 400 <= row[1] <= 460], 2)
    _check(table, "n = 407", [row for row in rows if row[1] == 407], 1)
    _check(table, "n IN (3, 407, 999)", [row for row in rows if row[1] in (3, 407, 999)], 3)
    _check(table, "n IS NULL", [row for row in rows if row[1] is None], 1)
    _check(table, "n > 5000", [], 0)
    assert table.verify("cov").ok


def test_given_writes_since_then_entries_keep_to_the_bounds_until_all_are_written_anew(
    spark: Any, tmp_path: Path
) -> None:
    table = _made(spark, tmp_path / "t")
    expected, before = {row[0]: row for row in _rows(range(2000))}, _bounds(table)
    table.upsert(frame(spark, [(i, 5000 + i, BEGIN, "new") for i in range(1990, 4000)], DDL))
    expected.update({i: (i, 5000 + i, BEGIN, "new") for i in range(1990, 4000)})
    table.delete("n < 100")
    expected = {i: row for i, row in expected.items() if row[1] is None or row[1] >= 100}
    table.compact()
    table.refresh_index("cov")
    assert _bounds(table) == before and table.verify("cov").ok
    table.compact("cov", mode="full")
    assert _bounds(table) == before and table.verify("cov").ok
    wanted = [row for row in expected.values() if row[1] and row[1] >= 8000]
    _check(table, "n >= 8000", wanted, 1)
    version = table.version
    table.refresh_index("cov", mode="full")
    assert max(_bounds(table)) > 5000 and table.verify("cov").ok
    _check(table, "n >= 8000", wanted, 3)
    _check(table, "n BETWEEN 150 AND 160", [r for r in expected.values() if r[1] and 150 <= r[1] <= 160], 2)
    table.restore(version)
    assert _bounds(table) == before and table.verify("cov").ok, "its files came back, and so did their bounds"
    _check(table, "n >= 8000", wanted, 1)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.by_turn(8)
def test_given_no_rows_yet_then_the_first_refresh_with_rows_finds_the_bounds(
    spark: Any, tmp_path: Path, deferred: bool
) -> None:
    table = _made(spark, tmp_path / "t", range(0), deferred=deferred)
    assert _bounds(table) == ()
    table.upsert(frame(spark, _rows(range(2000)), DDL))
    table.refresh_index("cov")
    assert len(_bounds(table)) == 7
    _check(table, "n < 100", [row for row in _rows(range(2000)) if row[1] is not None and row[1] < 100], 2)
    assert table.verify("cov").ok


def test_given_a_writer_while_it_is_built_then_what_it_writes_is_laid_by_the_same_bounds(
    spark: Any, tmp_path: Path
) -> None:
    from spark_apps.actions.indexing import CreateIndex
    from spark_apps.actions.template import run

    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=2)
    table.upsert(frame(spark, _rows(range(1000)), DDL))

    def write(number: int, _: int) -> None:
        if number == 1:
            IndexedTable.load(spark, tmp_path / "t").upsert(frame(spark, _rows(range(1000, 2000)), DDL))

    run(table._handle, CreateIndex("cov", "covering", ["n"], properties=LAID, after_round=write))
    table = IndexedTable.load(spark, tmp_path / "t")
    assert len(_bounds(table)) == 7 and table.verify("cov").ok
    _check(table, "n = 407", [row for row in _rows(range(2000)) if row[1] == 407], 2)


def test_given_another_session_time_zone_then_moments_are_found_all_the_same(spark: Any, tmp_path: Path) -> None:
    table, zone = _made(spark, tmp_path / "t", column="at"), spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        table.upsert(frame(spark, _rows(range(2000, 2100)), DDL))
        table.refresh_index("cov")
        assert table.verify("cov").ok
        for hour in range(0, 2100, 97):
            at = (BEGIN + dt.timedelta(hours=hour)).isoformat()
            assert [row[0] for row in table.read(f"at = TIMESTAMP '{at}'", ["id"]).collect()] == [hour]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("layout", ["hash", "ranges"])
@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.by_turn(12)
def test_given_years_that_python_does_not_know_then_they_are_laid_and_found_as_others(
    spark: Any, tmp_path: Path, kind: str, layout: str
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", f"id bigint, day {kind}, note string", ["id"], buckets=1)
    far = "WHEN 0 THEN '+10000-01-01' WHEN 1 THEN '0001-01-01' WHEN 2 THEN '-0007-01-01'"
    days = f"CAST(CASE id {far} ELSE string(date_add(DATE'2024-01-01', int(id))) END AS {kind})"
    table.upsert(spark.sql(f"SELECT id, {days} AS day, repeat(md5(string(id)), 90) AS note FROM range(100)"))
    table.create_index("cov", "covering", ["day"], properties={"layout": layout, "buckets": "4"})
    assert table.verify("cov").ok
    for where, wanted in (("> '2024-04-08'", {0, 99}), ("< '2024-01-01'", {1, 2}), ("= '2024-02-20'", {50})):
        asked = f"day {where[0]} {kind.upper()}{where[2:]}"
        assert table.explain(asked, ["id"]).index_used == "cov"
        assert {row[0] for row in table.read(asked, ["id"]).collect()} == wanted, asked


def test_given_a_damaged_file_then_the_error_names_it_and_nothing_is_changed(spark: Any, tmp_path: Path) -> None:
    spark.range(1000).repartition(3).write.parquet(str(tmp_path / "rows"))
    table = IndexedTable.register(spark, tmp_path / "rows", format="parquet")
    [file, *_] = sorted((tmp_path / "rows").glob("*.parquet"))
    os.truncate(file, 40)
    with pytest.raises(StorageError, match=f"(?s){file.name}.*Nothing was changed"):
        table.create_index("cov", "covering", ["id"], properties=LAID)
    assert not table.indexes


def test_given_what_ranges_cannot_be_of_or_what_is_fixed_then_it_is_refused(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id bigint, flag boolean", ["id"], buckets=1)
    with pytest.raises(InvalidInput, match=r"by ranges of 'flag', which is boolean.*Nothing was changed"):
        table.create_index("cov", "covering", ["flag"], properties={"layout": "ranges"})
    table.create_index("cov", "covering", ["id"])
    with pytest.raises(InvalidInput, match="'layout' of the index 'cov' is fixed"):
        table.alter_index("cov", {"layout": "ranges"})
    table.alter_index("cov", {"small_bytes": "1"})
