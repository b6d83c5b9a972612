"""What a build is estimated to cost, and the truth beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable


@pytest.mark.by_turn(4)
def test_given_a_plan_of_any_kind_then_it_estimates_and_the_receipt_tells_the_truth_beside(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id string, c string, note string", ["id"], buckets=2)
    rows = spark.range(40_000).selectExpr(
        "sha(string(id)) AS id", "concat('c', id % 50) AS c", "sha(string(-id)) AS note"
    )
    table.upsert(rows)
    for name, kind, columns, more in (
        ("rec", "record", [], {}),
        ("sec", "secondary", ["c"], {}),
        ("com", "compact", ["c"], {}),
        ("cov", "covering", ["c"], {"included": IncludedColumns(include=["note"])}),
    ):
        plan = table.create_index(name, kind, columns, plan_only=True, **more)
        assert plan.estimated_seconds > 0 and f"{plan.estimated_bytes:,} bytes" in plan.estimate, kind
        metrics = table.create_index(name, kind, columns, **more).metrics
        assert metrics["estimated_bytes"] == plan.estimated_bytes
        assert metrics["bytes"] == table.index_status(name).bytes and metrics["seconds"] > 0
        # Sorting and coding anew changes sizes; the order of magnitude must hold, and below some pages nothing counts.
        slack = 64 * 1024
        assert metrics["bytes"] / 3 - slack < plan.estimated_bytes < metrics["bytes"] * 3 + slack, (kind, metrics)
    assert table.create_index("late", "secondary", ["note"], deferred=True, plan_only=True).estimated_bytes == 0
