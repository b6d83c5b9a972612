"""Sessions that mean something else by a day or a timestamp: a table's own files hold days by today's calendar, and its
types are what they were when it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.mergetree.schema import parse_stored_type

pytestmark = pytest.mark.spark

MODE = "spark.sql.parquet.datetimeRebaseModeInWrite"


@pytest.mark.by_turn(8)
def test_given_a_session_that_writes_by_the_old_calendar_then_old_days_are_found_by_every_index(
    spark: Any, tmp_path: Path
) -> None:
    days = ["0001-01-01", "1500-02-28", "1582-10-04", "2024-01-01"]
    before = spark.conf.get(MODE)
    spark.conf.set(MODE, "LEGACY")
    try:
        table = IndexedTable.create(spark, tmp_path / "t", "d date, n int, e date", ["d"], buckets=1)
        rows = ", ".join(f"(DATE '{day}', {n}, DATE '{day}')" for n, day in enumerate(days))
        table.upsert(spark.sql(f"SELECT * FROM VALUES {rows} AS t(d, n, e)"))
        table.create_index("rec", "record")
        table.create_index("sec", "secondary", ["e"])
        table.create_index("com", "compact", ["e"])
        assert spark.conf.get(MODE) == "LEGACY"
    finally:
        spark.conf.set(MODE, before)
    for n, day in enumerate(days):
        for name in ("d", "e"):
            where = f"{name} = DATE '{day}'"
            assert [row.n for row in table.read(where).collect()] == [n], where
            assert table.explain(where).index_used
    for path in Path(table.uri).rglob("*.parquet"):
        if "checkpoints" not in path.parts:
            assert b"org.apache.spark.legacyDateTime" not in (pq.read_metadata(path).metadata or {}), path


def test_given_a_session_whose_timestamps_have_no_zone_then_types_that_are_written_down_keep_theirs(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int, ts timestamp, `timestamp` int", ["id"], buckets=1)
    table.upsert(spark.sql("SELECT 1 AS id, TIMESTAMP '2024-01-01 05:00:00Z' AS ts, 2 AS `timestamp`"))
    setting = "spark.sql.timestampType"
    spark.conf.set(setting, "TIMESTAMP_NTZ")
    try:
        stored = "`timestamp` timestamp, b struct<timestamp:timestamp, c:array<timestamp>, d:timestamp_ntz>"
        kinds = parse_stored_type(stored).simpleString()
        table.create_index("cov", "covering", ["ts"], included=["timestamp"])
        other = IndexedTable.load(spark, table.uri)
        answer = other.read("ts = TIMESTAMP '2024-01-01 05:00:00Z'").collect()
    finally:
        spark.conf.unset(setting)
    assert kinds == "struct<timestamp:timestamp,b:struct<timestamp:timestamp,c:array<timestamp>,d:timestamp_ntz>>"
    assert [row.id for row in answer] == [1]
    assert table.verify("cov").ok
