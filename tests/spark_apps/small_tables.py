"""Small tables for tests, with defaults that most of them want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_apps import IndexedTable
from spark_apps.actions.limits import UpsertLimits

DDL = "id bigint, dt string, city string, ts int"
"""The columns of a small table, partitioned by ``dt`` and ordered by ``ts``."""

Make = Callable[..., IndexedTable]
Prepared = Callable[..., IndexedTable]
"""The fixture ``prepared`` (conftest.py): a copy of the table that a function builds."""


def within(table: IndexedTable, **limits: Any) -> IndexedTable:
    """Give the table, whose writes keep to these limits of their plan from now on."""
    table._handle = replace(table._handle, limits=UpsertLimits(**limits))
    return table


def locating_by_spark(table: IndexedTable) -> IndexedTable:
    """Give the table, whose writes leave rows and many keys to Spark, as where files are not on the driver's disk."""
    return within(table, local_files=False)


def maker(spark: Any, folder: Path) -> Make:
    """What makes small tables in a folder."""

    def build(ddl: str = DDL, key: list[str] | None = None, name: str = "table", **options: Any) -> IndexedTable:
        defaults: dict[str, Any] = {"buckets": 2} if ddl != DDL else {
            "partition_by": ["dt"], "ordering_column": "ts", "buckets": 2
        }  # fmt: skip
        return IndexedTable.create(spark, folder / name, ddl, key or ["id"], **{**defaults, **options})

    return build
