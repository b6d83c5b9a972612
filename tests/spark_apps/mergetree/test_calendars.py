"""Sessions that write days by an old calendar: a table's own files hold them by today's, so that whoever reads them
finds the same days."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable

pytestmark = pytest.mark.spark

MODE = "spark.sql.parquet.datetimeRebaseModeInWrite"


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
