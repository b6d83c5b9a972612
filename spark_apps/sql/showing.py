"""``SHOW INDEXES`` and ``DESCRIBE INDEX``: what an index is, what it covers, how large it is, how fresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_apps.actions.altering import home_of
from spark_apps.indexes.registry import available
from spark_apps.table import IndexedTable
from spark_apps.timeline.model import IndexDefinition

COLUMNS = (
    "index", "table", "kind", "state", "columns", "included", "deferred",
    "covered_files", "covered_bytes", "lagging_files", "lagging_bytes", "index_files", "index_bytes",
    "created", "last_refresh", "refreshed_version",
    "properties", "partitioned_by", "index_table", "location", "comment",
)  # fmt: skip

Answer = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def show_indexes(table: IndexedTable, called: str, formatted: bool = False) -> Answer:
    """A row an index, by name. :param formatted: as text for people: units, no brackets."""
    rows = [_fields(table, called, name) for name in table.indexes]
    return COLUMNS, tuple(tuple(_worded(fields, formatted).values()) for fields in rows)


def describe_index(table: IndexedTable, called: str, name: str, formatted: bool = False) -> Answer:
    """A row a field of one index: its name and its value, as text."""
    fields = _worded(_fields(table, called, name), True) if formatted else _fields(table, called, name)
    return ("field", "value"), tuple((field, _text(value)) for field, value in fields.items())


def _fields(table: IndexedTable, called: str, name: str) -> dict[str, Any]:
    info, status = table.indexes[name], table.index_status(name)
    values = (
        name, called, info.kind, info.state, list(info.columns), list(info.included), info.deferred,
        status.covered_files, status.covered_bytes, status.lagging_files, status.lagging_bytes,
        status.files, status.bytes,
        instant_text(status.created_at), instant_text(status.refreshed_at), status.refreshed,
        dict(info.properties), _partitioned(info.definition),
        index_table_of(called, info.definition), _location(table, info.definition), info.definition.comment,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _partitioned(definition: IndexDefinition) -> list[str] | None:
    return None if definition.partition_by is None else list(definition.partition_by)


def index_table_of(called: str, definition: IndexDefinition) -> str | None:
    """The name of what stores an index: the one given, else the one that Hive would make of table and index."""
    if definition.index_table is not None:
        return definition.index_table
    handler = available(definition.kind)
    if handler is None or not handler.own_storage:
        return None
    *database, name = called.rstrip("/").rpartition("/")[2].split(".")
    return f"{'_'.join(database) or 'default'}__{name}_{definition.name}__"


def _location(table: IndexedTable, definition: IndexDefinition) -> str | None:
    return definition.location or home_of(table.snapshot, definition.name)


def instant_text(instant: str | None) -> str | None:
    """``20261121165000123`` as ``2026-11-21 16:50:00.123``, in UTC."""
    if instant is None:
        return None
    return (
        f"{instant[:4]}-{instant[4:6]}-{instant[6:8]} {instant[8:10]}:{instant[10:12]}:{instant[12:14]}.{instant[14:]}"
    )


def _worded(fields: dict[str, Any], formatted: bool) -> dict[str, Any]:
    if not formatted:
        return fields
    return {name: _bytes(value) if name.endswith("_bytes") else _text(value) for name, value in fields.items()}


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
