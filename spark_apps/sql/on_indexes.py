"""What the statements on indexes and bucket rules do, in calls of :class:`~spark_apps.table.IndexedTable`."""

from __future__ import annotations

from typing import Any

from spark_apps.indexes.columns import IncludedColumns
from spark_apps.sql import statements as s
from spark_apps.sql.bucketing import change_rules, show_config, show_plan
from spark_apps.sql.partitions import matching
from spark_apps.sql.results import Result
from spark_apps.sql.session import Session, changed, live, no_partition, nothing
from spark_apps.sql.showing import describe_index, show_indexes
from spark_apps.storage.errors import IndexExists, IndexNotFound, InvalidInput, TableNotFound
from spark_apps.table import IndexedTable
from spark_apps.timeline.model import Receipt


def named(table: IndexedTable, name: str) -> str:
    """The index of that name, in any case where that is unambiguous. :raises IndexNotFound:"""
    alike = [other for other in table.indexes if other.lower() == name.lower()]
    if name in table.indexes or len(alike) != 1:
        table.snapshot.state.index(name)
        return name
    return alike[0]


def create_index(session: Session, statement: s.CreateIndex, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    there = next((info for name, info in table.indexes.items() if name.lower() == statement.index.lower()), None)
    if there is not None:
        what = f"kind {there.kind!r}, columns ({', '.join(there.columns)})"
        if not statement.if_not_exists:
            raise IndexExists(
                f"The table has an index {there.name!r} already: {what}.",
                hint="Choose another name, drop that one first, or say IF NOT EXISTS.",
            )
        return nothing(statement, table.uri, "create_index", f"the index exists: {what}", txn_id)
    if statement.index_table is not None:
        _check_index_table(session, statement.index_table)
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


def _check_index_table(session: Session, name: str) -> None:
    """Names of index tables are unique among those of tables and index tables of the warehouse, as in the document."""
    for found, state in live(session.warehouse):
        if found.name.lower() == name.lower():
            raise InvalidInput(f"IN TABLE {name!r}: there is a table of that name.", hint="Choose another name.")
        for entry in state.indexes.values():
            if (entry.definition.index_table or "").lower() == name.lower():
                raise InvalidInput(
                    f"IN TABLE {name!r}: that is the index table of {entry.definition.name!r} on {found.name!r}.",
                    hint="Choose another name, or leave the clause out.",
                )


def drop_index(session: Session, statement: s.DropIndex, txn_id: str | None) -> Result:
    try:
        table = session.load(statement.table) if statement.table is not None else _owner(session, statement.index)
        name = named(table, statement.index)
    except (TableNotFound, IndexNotFound):
        # Of a table that is not there no index is there either.
        if not statement.if_exists:
            raise
        location = session.locate(statement.table) if statement.table is not None else ""
        return nothing(statement, location, "drop_index", "there is no such index", txn_id)
    return changed(statement, table.drop_index(name, **session.under(txn_id)), table.uri)


def _owner(session: Session, index: str) -> IndexedTable:
    """The one table of the warehouse that has an index of that name."""
    if session.warehouse.root is None:
        raise InvalidInput(
            f"The index {index!r} is named without its table, and no warehouse is known to look for it in.",
            hint=f"Write DROP INDEX {index} ON the table.",
        )
    owners = [
        found.location for found, state in live(session.warehouse) if index.lower() in map(str.lower, state.indexes)
    ]
    if not owners:
        raise IndexNotFound(f"No table of {session.warehouse.root} has an index {index!r}.", hint="Check the name.")
    if len(owners) > 1:
        raise InvalidInput(
            f"{len(owners)} tables have an index {index!r}: {', '.join(owners[:3])}.",
            hint=f"Write DROP INDEX {index} ON the one that is meant.",
        )
    return session.load(owners[0])


def rebuild_index(session: Session, statement: s.RebuildIndex, txn_id: str | None) -> Result:
    return _refresh(session, statement, "full", statement.partition, txn_id)


def refresh_index(session: Session, statement: s.RefreshIndex, txn_id: str | None) -> Result:
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
            raise no_partition(table, spec)
    receipt = table.refresh_index(name, mode, paths, **more, **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def set_properties(session: Session, statement: s.SetIndexProperties, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    name = named(table, statement.index)
    receipt = table.alter_index(name, dict(statement.properties), **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def show(session: Session, statement: s.ShowIndexes, _txn_id: str | None) -> Result:
    table = session.load(statement.table)
    columns, rows = show_indexes(table, statement.table, statement.formatted)
    return Result(statement, columns, rows, location=table.uri)


def describe(session: Session, statement: s.DescribeIndex, _txn_id: str | None) -> Result:
    table = session.load(statement.table)
    name = named(table, statement.index)
    columns, rows = describe_index(table, statement.table, name, statement.formatted)
    return Result(statement, columns, rows, location=table.uri)


def call(session: Session, statement: s.ManageBuckets, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    if statement.operation == "show_config":
        return Result(statement, *show_config(table), location=table.uri)
    outcome = change_rules(table, statement, session.window, txn_id)
    if isinstance(outcome, Receipt):
        return changed(statement, outcome, table.uri)
    return Result(statement, *show_plan(statement, outcome), location=table.uri)
