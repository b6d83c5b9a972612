"""Small tables for tests, with defaults that most of them want."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable

DDL = "id bigint, dt string, city string, ts int"
"""The columns of a small table, partitioned by ``dt`` and ordered by ``ts``."""

Make = Callable[..., IndexedTable]


def found_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has rows, and many keys in a record index, found by Spark, as where files are not on the driver's disk."""
    for name in ("maintenance.searchable", "positions.searchable", "moves.countable"):
        monkeypatch.setattr(f"spark_apps.actions.{name}", lambda *given: False)


def maker(spark: Any, folder: Path) -> Make:
    """What makes small tables in a folder."""

    def build(ddl: str = DDL, key: list[str] | None = None, name: str = "table", **options: Any) -> IndexedTable:
        defaults: dict[str, Any] = {"buckets": 2} if ddl != DDL else {
            "partition_by": ["dt"], "ordering_column": "ts", "buckets": 2
        }  # fmt: skip
        return IndexedTable.create(spark, folder / name, ddl, key or ["id"], **{**defaults, **options})

    return build
