"""Small tables for tests, with defaults that most of them want."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_apps import IndexedTable
from spark_apps.actions.limits import UpsertLimits

DDL = "id bigint, dt string, city string, ts int"
"""The columns of a small table, partitioned by ``dt`` and ordered by ``ts``."""

Rows = list[tuple[Any, ...]]
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


def rows_of(
    table: IndexedTable, where: str | None = None, columns: Sequence[str] | None = None
) -> list[tuple[Any, ...]]:
    """Rows of a table, read by its indexes, in the order of their values."""
    return in_order(table.read(where, columns).collect())


def check_like_scan(table: IndexedTable, where: str, columns: Sequence[str] | None = None) -> Rows:
    """Check that indexes find the rows that a scan of the whole table does, and give them."""
    scanned = table.read().where(where)
    found = rows_of(table, where, columns)
    assert found == in_order((scanned.select(*columns) if columns else scanned).collect()), where
    return found


def in_order(rows: Iterable[Sequence[Any]]) -> Rows:
    """Rows in the order of their values: nulls first, numbers that are none last."""
    return sorted(map(tuple, rows), key=lambda row: [_rank(value) for value in row])


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, (dict, list, tuple)):
        return (1, repr(value))
    return (1, value) if value == value else (2,)
