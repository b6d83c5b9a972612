"""What all statements of a script share: the session, where tables are, and how an answer is put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_apps.sources import catalog
from spark_apps.sql import statements as s
from spark_apps.sql.results import CHANGE_COLUMNS, Result
from spark_apps.storage.errors import InvalidName, PartitionNotFound
from spark_apps.table import IndexedTable
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.state import State
from spark_apps.timeline.warehouse import FoundTable, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Session:
    """What all statements of a script share."""

    spark: SparkSession
    warehouse: Warehouse
    window: int | None = None

    def load(self, table: str) -> IndexedTable:
        """A table by name or location. :raises TableNotFound: :raises InvalidName:"""
        return IndexedTable.load(self.spark, self.locate(table), options=self.warehouse.options)

    def locate(self, table: str) -> str:
        """Where a table is: below the warehouse, or else where Spark's catalog has one of that name.

        :raises InvalidName:
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
        found = catalog.resolve(self.spark, table)
        if found is not None:
            return found.location
        return location if location is not None else self.warehouse.locate(table)

    def places(self, table: str | None) -> list[str]:
        """Where the log of a table may be; without a table, those of the whole warehouse."""
        if table is not None:
            return [self.locate(table)]
        return [found.location for found in self.warehouse.tables()]

    def under(self, txn_id: str | None) -> dict[str, Any]:
        """Under which transaction, and in which window, an action commits."""
        return {"txn_id": txn_id, "window": self.window}


def changed(statement: Any, receipt: Receipt, location: str, note: str = "") -> Result:
    """The answer of a statement that changes something."""
    if not note and receipt.version is None:
        note = "nothing to do"
    name = getattr(statement, "index", None)
    row = (receipt.operation, statement.table or location, name, receipt.version, note or None)
    return Result(statement, CHANGE_COLUMNS, (row,), receipt, location)


def nothing(statement: Any, location: str, operation: str, note: str, txn_id: str | None) -> Result:
    return changed(statement, Receipt(None, txn_id or "", operation), location, note)


def live(warehouse: Warehouse) -> Iterator[tuple[FoundTable, State]]:
    """The tables of a warehouse that were not dropped, by their logs alone."""
    for found in warehouse.tables():
        state = found.state()
        if state is not None:
            yield found, state


def no_partition(table: IndexedTable, spec: s.PartitionSpec) -> PartitionNotFound:
    wanted = ", ".join(f"{name} = {value!r}" for name, value in spec)
    some = ", ".join(list(table.partitions)[:3]) or "none"
    return PartitionNotFound(
        f"{table.uri} has no partition with {wanted}; of its {len(table.partitions)} there are: {some}.",
        hint="Check the values; a partition is there as soon as a row was written to it.",
    )
