"""What the statements on tables do, in calls of :class:`~spark_apps.table.IndexedTable` and nothing below it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from spark_apps.actions.registering import REGISTERED_AS
from spark_apps.actions.schema import comment_of
from spark_apps.mergetree.schema import parse_type
from spark_apps.sources import catalog
from spark_apps.sql import statements as s
from spark_apps.sql.partitions import matching
from spark_apps.sql.results import Result
from spark_apps.sql.session import Session, changed, live, no_partition, nothing
from spark_apps.storage.errors import InvalidInput, InvalidName, InvalidSchema, TableExists, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.table import IndexedTable
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.publish import new_txn_id
from spark_apps.timeline.transactions import find_receipt
from spark_apps.timeline.warehouse import LOGS_OF_SOURCES


def create_table(session: Session, statement: s.CreateTable, txn_id: str | None) -> Result:
    location = _place(session, statement)
    properties = {**_column_comments(statement.columns), **dict(statement.properties)}
    if statement.comment is not None:
        properties["comment"] = statement.comment
    txn_id = txn_id or new_txn_id("create")
    try:
        _refuse_taken(session, location, by_source=True)
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
        return nothing(statement, location, "create", "the table exists", txn_id)
    receipt = session.warehouse.receipt(location, txn_id)
    assert receipt is not None
    return changed(statement, receipt, location)


def _column_comments(columns: str) -> dict[str, str]:
    """``COMMENT`` of columns, as properties of the table: ``comment.<column>``."""
    try:
        struct = parse_type(columns)
    except InvalidSchema:
        return {}  # said again where the columns are made
    fields = struct.fields if isinstance(struct, StructType) else []
    return {comment_of(field.name): field.metadata["comment"] for field in fields if "comment" in field.metadata}


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


def drop_table(session: Session, statement: s.DropTable, txn_id: str | None) -> Result:
    location = session.locate(statement.table)
    try:
        table = session.load(statement.table)
    except TableNotFound as error:
        if not statement.if_exists:
            _refuse_index_table(session, statement.table, error)
            raise
        return nothing(statement, location, "drop_table", "there is no such table", txn_id)
    return changed(statement, table.drop(**session.under(txn_id)), location)


def _refuse_index_table(session: Session, name: str, error: TableNotFound) -> None:
    """Dropping what stores an index, as if it were a table, is refused with the statement that does it."""
    for found, state in live(session.warehouse):
        for entry in state.indexes.values():
            called = entry.definition.index_table
            if called is not None and called.lower() == name.lower():
                raise InvalidInput(
                    f"{name!r} is the index table of the index {entry.definition.name!r} on {found.name!r}.",
                    hint=f"DROP INDEX `{entry.definition.name}` ON {found.name} drops both.",
                ) from error


def drop_partition(session: Session, statement: s.DropPartition, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    paths: list[str] = []
    for spec in statement.partitions:
        found = matching(table, spec)
        if not found and not statement.if_exists:
            raise no_partition(table, spec)
        paths.extend(found)
    if not paths:
        return nothing(statement, table.uri, "drop_partition", "there is no such partition", txn_id)
    receipt = table.drop_partition(*dict.fromkeys(paths), **session.under(txn_id))
    return changed(statement, receipt, table.uri)


# --- columns ----------------------------------------------------------------------------------------------------


def add_columns(session: Session, statement: s.AddColumns, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    comments = _column_comments(statement.columns)
    receipt = table.add_columns(statement.columns, properties=comments, **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def alter_column_type(session: Session, statement: s.AlterColumnType, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    receipt = table.widen_column(statement.column, statement.type, **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def rename_column(session: Session, statement: s.RenameColumn, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    receipt = table.rename_column(statement.column, statement.to, **session.under(txn_id))
    return changed(statement, receipt, table.uri)


def drop_columns(session: Session, statement: s.DropColumns, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    names = statement.columns
    if statement.if_exists:
        there = {field.name.lower() for field in table.definition.fields}
        names = tuple(name for name in names if name.lower() in there)
    if not names:
        return nothing(statement, table.uri, "change_columns", "there is no such column", txn_id)
    return changed(statement, table.drop_column(*names, **session.under(txn_id)), table.uri)


# --- tables of others -------------------------------------------------------------------------------------------


def register_source(session: Session, statement: s.RegisterSource, txn_id: str | None) -> Result:
    options, properties = dict(statement.options), dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    address, place = _address(session, statement)
    named: dict[str, Any] = {}
    if place is not None and address != place:
        # The log stands where it would for a folder of that name, so that the name finds it.
        root, _, name = place.rpartition("/")
        named = {"index_root": f"{root}/{LOGS_OF_SOURCES}", "name": name}
        properties[REGISTERED_AS] = name
    location = place or session.locate(statement.table)
    txn_id = txn_id or new_txn_id("create")
    try:
        if named:
            _refuse_taken(session, location, by_source=False)
        table = IndexedTable.register(
            session.spark,
            address,
            statement.format,
            statement.columns,
            options,
            record_key=statement.record_key,
            storage_options=session.warehouse.options,
            properties=properties,
            txn_id=txn_id,
            **named,
        )
    except TableExists:
        if not statement.if_not_exists:
            raise
        return nothing(statement, location, "create", "the table exists", txn_id)
    receipt = find_receipt(Timeline.load(Store(table.uri, session.warehouse.options)), txn_id)
    assert receipt is not None
    return changed(statement, receipt, location)


def _address(session: Session, statement: s.RegisterSource) -> tuple[str, str | None]:
    """Where the source is, and where its name stands for, if that is in the warehouse.

    A table in a catalog of Iceberg has no address that is known here: it is what the catalog calls it.
    """
    if "/" in statement.table:
        if statement.location not in (None, statement.table):
            raise InvalidInput(
                f"The source is given by its location {statement.table!r}, and by LOCATION {statement.location!r} too.",
                hint="Keep one of them; give the table a name to keep them apart.",
            )
        return statement.table, None
    if statement.location is None and (named := catalog.resolve(session.spark, statement.table)) is not None:
        if named.format != statement.format:
            raise InvalidInput(
                f"{statement.table!r} is in Spark's catalog, as {named.format} and not as {statement.format}.",
                hint=f"Write USING {named.format}.",
            )
        return statement.table, None
    place = session.warehouse.locate(statement.table)
    if statement.location is not None:
        return statement.location, place
    options = {key.lower(): value for key, value in statement.options}
    if "catalog" in options:
        return options.get("identifier", statement.table), place
    return place, place


def _refuse_taken(session: Session, location: str, by_source: bool) -> None:
    """:raises TableExists: if the name, or place, is that of a source (else: of a table of ours), which would be hidden
    by the other."""
    log = session.warehouse.log_of(location)
    if log is None or Timeline(log).refresh().dropped or (log.uri.rstrip("/") != location.rstrip("/")) != by_source:
        return
    what = f"a source is registered there, in {log.uri}" if by_source else "there is a table"
    raise TableExists(f"At {location} {what} already.", hint="Choose another name.")
