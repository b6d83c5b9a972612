"""The state that the statements of a script share, and the answers to those that change something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_apps.layout.partitions import canonical_string, parse_partition_path, value_of
from spark_apps.layout.types import parse_type
from spark_apps.sources.registry import find_in_catalog
from spark_apps.sql.results import CHANGE_COLUMNS, Result
from spark_apps.sql.statements import PartitionSpec, Value
from spark_apps.storage.errors import InvalidInput, InvalidName
from spark_apps.table import IndexedTable
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ROWS = 1000
"""So many rows of a query's answer are handed on by default."""


@dataclass(frozen=True)
class Session:
    """The state that all statements of a script share."""

    spark: SparkSession
    warehouse: Warehouse
    window: int | None = None
    max_rows: int = MAX_ROWS
    output_path: str | None = None

    def load(self, table: str) -> IndexedTable:
        """Return a table by name or location.

        :raises TableNotFound: if there is no table.
        :raises InvalidName: if the name is not one of a table.
        """
        return IndexedTable.load(self.spark, self.locate(table), options=self.warehouse.options)

    def locate(self, table: str) -> str:
        """Return where a table is: below the warehouse, or else where Spark's catalog has one of that name.

        :raises InvalidName: if the name is not one of a table.
        """
        plain = "/" not in table
        try:
            location = self.warehouse.locate(table)
            if not plain or self.warehouse.log_of(location) is not None:
                return location
        except InvalidName:
            if not plain or self.warehouse.root is not None:
                raise
            location = None
        in_catalog = find_in_catalog(self.spark, table)
        if in_catalog is not None:
            return in_catalog.location
        return location if location is not None else self.warehouse.locate(table)

    def log_locations(self, table: str | None) -> list[str]:
        """Return where the log of a table may be; without a table, those of the whole warehouse."""
        if table is not None:
            return [self.locate(table)]
        return [table.location for table in self.warehouse.tables()]

    def commit_arguments(self, txn_id: str | None) -> dict[str, Any]:
        """Return the transaction and the window in which an action commits."""
        return {"txn_id": txn_id, "window": self.window}


def change_result(statement: Any, receipt: Receipt, location: str, note: str = "") -> Result:
    """Return the answer of a statement that changes something."""
    if not note and receipt.version is None:
        note = "nothing to do"
    name = getattr(statement, "index", None)
    row = (receipt.operation, statement.table or location, name, receipt.version, note or None)
    return Result(statement, CHANGE_COLUMNS, (row,), receipt, location)


def unchanged_result(statement: Any, location: str, operation: str, note: str, txn_id: str | None) -> Result:
    return change_result(statement, Receipt(None, txn_id or "", operation), location, note)


def partition_texts(table: IndexedTable, spec: PartitionSpec) -> dict[int, str | None]:
    """Return the values of a ``PARTITION (…)`` clause, as paths have them, by the position of their column in paths.

    :raises InvalidInput: if a column is none that the table is partitioned by, or a value is not of its type.
    """
    definition = table.definition
    types = {field.name: field.type for field in definition.fields}
    positions = {name.lower(): position for position, name in enumerate(definition.partition_by)}
    values: dict[int, str | None] = {}
    for name, value in spec:
        if name.lower() not in positions:
            known = ", ".join(definition.partition_by) or "no column"
            raise InvalidInput(f"The table is not partitioned by {name!r}.", hint=f"It is partitioned by {known}.")
        position = positions[name.lower()]
        column = definition.partition_by[position]
        values[position] = _text(value, types[column], column)
    return values


def _text(value: Value, type_name: str, column: str) -> str | None:
    """Return the canonical text of a value, as the log keeps those of a partition."""
    if value is None:
        return None
    kind = parse_type(type_name)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return canonical_string(value_of(text, kind, column), kind)


def paths_with(paths: Iterable[str], texts: Mapping[int, str | None]) -> list[str]:
    """Return the partitions whose columns, by their position, have these values."""
    found = []
    for path in paths:
        values = list(parse_partition_path(path).values())
        if all(values[position] == text for position, text in texts.items()):
            found.append(path)
    return found
