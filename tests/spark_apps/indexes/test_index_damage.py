"""Index files that are gone, cut short or altered: a warning, a scan, the right rows; and how it is found and
mended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.indexes.keyed import lookup
from spark_apps.query import planning
from tests.spark_apps.indexes.support import frame, index_files, local
from tests.spark_apps.small_tables import rows_of

pytestmark = pytest.mark.spark


def _gone(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _altered(path: Path) -> None:
    """As long as before, with other bytes in the first page."""
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(byte ^ 0xFF for byte in data[40:60])
    path.write_bytes(bytes(data))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def test_given_a_damaged_index_file_then_queries_warn_and_scan_and_a_full_refresh_mends_it(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = IndexedTable.create(spark, tmp_path / "table", "id bigint, city string", ["id"], buckets=2)
    table.upsert(frame(spark, [(i, f"c{i % 5}") for i in range(200)], "id bigint, city string"))
    table.create_index("city", "secondary", ["city"])
    [file] = index_files(table, "city")
    path = local(table, file)
    whole = path.read_bytes()
    expected = [(i, "c3") for i in range(3, 200, 5)]
    damages: list[Callable[[Path], None]] = [_gone, _cut, _altered, _empty]
    for damage in damages:
        path.write_bytes(whole)
        assert table.explain("city = 'c3'").index_used == "city"
        damage(path)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            answer = rows_of(table, "city = 'c3'")
        assert answer == sorted(expected), damage.__name__
        assert "is not used, the rows are scanned instead" in caplog.text
        explained = table.explain("city = 'c3'")
        assert (explained.not_used["city"].code, explained.files_skipped) == ("unreadable", 0)
        assert explained.warnings

    report = table.verify("city")
    assert not report.ok and report.differences[0].fault == "unreadable"
    table.refresh_index("city", mode="full")
    assert table.verify("city").ok
    assert table.explain("city = 'c3'").index_used == "city"
    assert len(rows_of(table, "city = 'c3'")) == 40


@pytest.mark.by_turn(8)
def test_given_many_keys_and_a_damaged_file_then_the_join_that_looks_them_up_is_left_for_a_scan(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_DRIVER_KEYS", 100)
    monkeypatch.setattr(planning, "ALWAYS_KEYS", 10_000)
    monkeypatch.setattr(planning, "ALWAYS_CHARACTERS", 100_000)
    table = IndexedTable.create(spark, tmp_path / "table", "id bigint, city string", ["id"], buckets=2)
    table.upsert(spark.range(3000).selectExpr("id", "concat('c', id) as city"))
    table.create_index("city", "secondary", ["city"])
    many = "city IN (" + ", ".join(f"'c{i}'" for i in range(1500)) + ")"
    assert table.explain(many).index_used == "city"
    assert len(rows_of(table, many)) == 1500
    [file] = index_files(table, "city")
    _cut(local(table, file))

    assert len(rows_of(table, many)) == 1500
    assert table.explain(many).not_used["city"].code == "unreadable"
