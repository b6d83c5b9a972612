"""What each statement does, in calls of :class:`~spark_apps.table.IndexedTable` and nothing below it.

Every function takes the session, the statement and the transaction to commit under, and returns the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from spark_apps.indexes.columns import IncludedColumns
from spark_apps.sources import catalog
from spark_apps.sql import statements as s
from spark_apps.sql.bucketing import change_rules, show_config, show_plan
from spark_apps.sql.partitions import matching
from spark_apps.sql.results import CHANGE_COLUMNS, Result
from spark_apps.sql.showing import describe_index, show_indexes
from spark_apps.storage.errors import (
    IndexExists,
    IndexNotFound,
    InvalidInput,
    InvalidName,
    PartitionNotFound,
    TableExists,
    TableNotFound,
)
from spark_apps.table import IndexedTable
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.publish import new_txn_id
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


def execute(session: Session, statement: s.Statement, txn_id: str | None = None) -> Result:
    """Runs one statement.

    :param txn_id: if it has its commit already, that commit's receipt is the answer.
    """
    if txn_id is not None and statement.commits:
        done = _committed(session, statement, txn_id)
        if done is not None:
            return done
    return _EXECUTORS[type(statement)](session, statement, txn_id)


def _committed(session: Session, statement: Any, txn_id: str) -> Result | None:
    """The answer of an earlier try. Looked for in the log itself: the table may be dropped, by this very statement."""
    for location in session.places(statement.table):
        receipt = session.warehouse.receipt(location, txn_id)
        if receipt is not None:
            return changed(statement, receipt, location, "had committed before")
    return None


def changed(statement: Any, receipt: Receipt, location: str, note: str = "") -> Result:
    """The answer of a statement that changes something."""
    if not note and receipt.version is None:
        note = "nothing to do"
    name = getattr(statement, "index", None)
    row = (receipt.operation, statement.table or location, name, receipt.version, note or None)
    return Result(statement, CHANGE_COLUMNS, (row,), receipt, location)


def _nothing(statement: Any, location: str, operation: str, note: str, txn_id: str | None) -> Result:
    return changed(statement, Receipt(None, txn_id or "", operation), location, note)


# --- tables -----------------------------------------------------------------------------------------------------


def _create_table(session: Session, statement: s.CreateTable, txn_id: str | None) -> Result:
    location = _place(session, statement)
    properties = {**_column_comments(statement.columns), **dict(statement.properties)}
    if statement.comment is not None:
        properties["comment"] = statement.comment
    txn_id = txn_id or new_txn_id("create")
    try:
        IndexedTable.create(
            session.spark,
            location,
            statement.columns,
            partition_by=statement.partition_by,
            properties=properties,
            options=session.warehouse.options,
            txn_id=txn_id,
            **dict(statement.arguments),  # type: ignore[arg-type]
        )
    except TableExists:
        if not statement.if_not_exists:
            raise
        return _nothing(statement, location, "create", "the table exists", txn_id)
    receipt = session.warehouse.receipt(location, txn_id)
    assert receipt is not None
    return changed(statement, receipt, location)


def _column_comments(columns: str) -> dict[str, str]:
    """``COMMENT`` of columns, as properties of the table: ``comment.<column>``."""
    try:
        fields = StructType.fromDDL(columns).fields
    except PySparkException:
        return {}  # said in better words where the table is made
    return {f"comment.{field.name}": field.metadata["comment"] for field in fields if "comment" in field.metadata}


def _place(session: Session, statement: s.CreateTable) -> str:
    """Where the table is made. A LOCATION must be the place that the name stands for: no catalog keeps another."""
    if statement.location is None:
        return session.warehouse.locate(statement.table)
    wanted = session.warehouse.store(statement.location).uri
    try:
        named = session.warehouse.locate(statement.table)
    except InvalidName:
        named = None
    if named != wanted:
        raise InvalidInput(
            f"{statement.table!r} is to be made at {wanted!r}, and its name stands for "
            + ("no place." if named is None else f"{named!r}."),
            hint=f"There is no catalog that could keep the two together: CREATE TABLE `{wanted}` (…), and use that.",
        )
    return wanted


def _drop_table(session: Session, statement: s.DropTable, txn_id: str | None) -> Result:
    location = session.locate(statement.table)
    try:
        table = session.load(statement.table)
    except TableNotFound as error:
        if not statement.if_exists:
            _refuse_index_table(session, statement.table, error)
            raise
        return _nothing(statement, location, "drop_table", "there is no such table", txn_id)
    return changed(statement, table.drop(**session.under(txn_id)), location)


def _refuse_index_table(session: Session, name: str, error: TableNotFound) -> None:
    """Dropping what stores an index, as if it were a table, is refused with the statement that does it."""
    for found, state in _live(session.warehouse):
        for entry in state.indexes.values():
            called = entry.definition.index_table
            if called is not None and called.lower() == name.lower():
                raise InvalidInput(
                    f"{name!r} is the index table of the index {entry.definition.name!r} on {found.name!r}.",
                    hint=f"DROP INDEX `{entry.definition.name}` ON {found.name} drops both.",
                ) from error


def _live(warehouse: Warehouse) -> Iterator[tuple[FoundTable, State]]:
    """The tables of a warehouse that were not dropped, by their logs alone."""
    for found in warehouse.tables():
        state = found.state()
        if state is not None:
            yield found, state


def _drop_partition(session: Session, statement: s.DropPartition, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    paths: list[str] = []
    for spec in statement.partitions:
        found = matching(table, spec)
        if not found and not statement.if_exists:
            raise _no_partition(table, spec)
        paths.extend(found)
    if not paths:
        return _nothing(statement, table.uri, "drop_partition", "there is no such partition", txn_id)
    receipt = table.drop_partition(*dict.fromkeys(paths), **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def _no_partition(table: IndexedTable, spec: s.PartitionSpec) -> PartitionNotFound:
    wanted = ", ".join(f"{name} = {value!r}" for name, value in spec)
    some = ", ".join(list(table.partitions)[:3]) or "none"
    return PartitionNotFound(
        f"{table.uri} has no partition with {wanted}; of its {len(table.partitions)} there are: {some}.",
        hint="Check the values; a partition is there as soon as a row was written to it.",
    )


# --- indexes ----------------------------------------------------------------------------------------------------


def named(table: IndexedTable, name: str) -> str:
    """The index of that name, in any case where that is unambiguous. :raises IndexNotFound:"""
    alike = [other for other in table.indexes if other.lower() == name.lower()]
    if name in table.indexes or len(alike) != 1:
        table.snapshot.state.index(name)
        return name
    return alike[0]


def _create_index(session: Session, statement: s.CreateIndex, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    there = next((info for name, info in table.indexes.items() if name.lower() == statement.index.lower()), None)
    if there is not None:
        what = f"kind {there.kind!r}, columns ({', '.join(there.columns)})"
        if not statement.if_not_exists:
            raise IndexExists(
                f"The table has an index {there.name!r} already: {what}.",
                hint="Choose another name, drop that one first, or say IF NOT EXISTS.",
            )
        return _nothing(statement, table.uri, "create_index", f"the index exists: {what}", txn_id)
    receipt = table.create_index(
        statement.index,
        statement.kind,
        statement.columns,
        included=_included(statement),
        deferred=statement.deferred,
        properties=dict(statement.properties),
        if_not_exists=statement.if_not_exists,
        comment=statement.comment,
        partition_by=statement.partition_by,
        index_table=statement.index_table,
        location=statement.location,
        **session.under(txn_id),
    )
    return changed(statement, receipt, table.uri)


def _drop_index(session: Session, statement: s.DropIndex, txn_id: str | None) -> Result:
    try:
        table = session.load(statement.table) if statement.table is not None else _owner(session, statement.index)
        name = named(table, statement.index)
    except (TableNotFound, IndexNotFound):
        # Of a table that is not there no index is there either.
        if not statement.if_exists:
            raise
        location = session.locate(statement.table) if statement.table is not None else ""
        return _nothing(statement, location, "drop_index", "there is no such index", txn_id)
    return changed(statement, table.drop_index(name, **session.under(txn_id)), table.uri)


def _owner(session: Session, index: str) -> IndexedTable:
    """The one table of the warehouse that has an index of that name."""
    if session.warehouse.root is None:
        raise InvalidInput(
            f"The index {index!r} is named without its table, and no warehouse is known to look for it in.",
            hint=f"Write DROP INDEX {index} ON the table.",
        )
    owners = [
        found.location for found, state in _live(session.warehouse) if index.lower() in map(str.lower, state.indexes)
    ]
    if not owners:
        raise IndexNotFound(f"No table of {session.warehouse.root} has an index {index!r}.", hint="Check the name.")
    if len(owners) > 1:
        raise InvalidInput(
            f"{len(owners)} tables have an index {index!r}: {', '.join(owners[:3])}.",
            hint=f"Write DROP INDEX {index} ON the one that is meant.",
        )
    return session.load(owners[0])


def _rebuild_index(session: Session, statement: s.RebuildIndex, txn_id: str | None) -> Result:
    return _refresh(session, statement, "full", statement.partition, txn_id)


def _refresh_index(session: Session, statement: s.RefreshIndex, txn_id: str | None) -> Result:
    more = {"included": _included(statement), "schema": statement.schema}
    return _refresh(session, statement, statement.mode, statement.partition, txn_id, **more)


def _included(statement: s.CreateIndex | s.RefreshIndex) -> IncludedColumns | None:
    if statement.include is None and statement.exclude is None:
        return None
    return IncludedColumns(statement.include, statement.exclude)


def _refresh(
    session: Session, statement: Any, mode: Any, spec: s.PartitionSpec | None, txn_id: str | None, **more: Any
) -> Result:
    table = session.load(statement.table)
    name = named(table, statement.index)
    paths = None
    if spec is not None:
        paths = matching(table, spec)
        if not paths:
            raise _no_partition(table, spec)
    receipt = table.refresh_index(name, mode, paths, **more, **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def _set_properties(session: Session, statement: s.SetIndexProperties, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    name = named(table, statement.index)
    receipt = table.alter_index(name, dict(statement.properties), **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def _show(session: Session, statement: s.ShowIndexes, _txn_id: str | None) -> Result:
    table = session.load(statement.table)
    columns, rows = show_indexes(table, statement.table, statement.formatted)
    return Result(statement, columns, rows, location=table.uri)


def _describe(session: Session, statement: s.DescribeIndex, _txn_id: str | None) -> Result:
    table = session.load(statement.table)
    name = named(table, statement.index)
    columns, rows = describe_index(table, statement.table, name, statement.formatted)
    return Result(statement, columns, rows, location=table.uri)


def _call(session: Session, statement: s.ManageBuckets, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    if statement.operation == "show_config":
        return Result(statement, *show_config(table), location=table.uri)
    outcome = change_rules(table, statement, session.window, txn_id)
    if isinstance(outcome, Receipt):
        return changed(statement, outcome, table.uri)
    return Result(statement, *show_plan(statement, outcome), location=table.uri)


_EXECUTORS: dict[type[s.Statement], Callable[[Session, Any, str | None], Result]] = {
    s.CreateTable: _create_table,
    s.DropTable: _drop_table,
    s.DropPartition: _drop_partition,
    s.CreateIndex: _create_index,
    s.DropIndex: _drop_index,
    s.RebuildIndex: _rebuild_index,
    s.RefreshIndex: _refresh_index,
    s.SetIndexProperties: _set_properties,
    s.ShowIndexes: _show,
    s.DescribeIndex: _describe,
    s.ManageBuckets: _call,
}
