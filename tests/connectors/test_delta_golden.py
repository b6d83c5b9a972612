"""Delta tables as ``make golden`` reads those that others wrote, by every kind of index and in plain SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.reading import read_all

pytestmark = [pytest.mark.usefixtures("delta"), pytest.mark.by_turn(8)]


def test_given_delta_tables_then_every_kind_of_index_answers_as_their_connector(spark: Any, tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    rows = spark.range(40).selectExpr("id", "id % 3 AS p", "concat('r', id) AS `a name`", "date'2026-01-01' + 1 AS day")
    writer = rows.repartitionByRange(4, "id").write.format("delta").option("delta.columnMapping.mode", "name")
    writer.option("delta.enableDeletionVectors", "true").save(str(golden / "mapped"))
    spark.sql(f"DELETE FROM delta.`{golden / 'mapped'}` WHERE id = 7")
    rows.drop("a name").write.format("delta").partitionBy("p").save(str(golden / "below" / "parted"))

    counts = read_all(spark, golden, tmp_path)
    assert not counts.differ and all("in process" in why for why in counts.refused), str(counts)
    assert (counts.tables, counts.columns) == (2, 7), str(counts)
    assert counts.asked == counts.by_connector and 0 < counts.pruned < counts.asked, str(counts)
