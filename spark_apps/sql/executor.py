"""The execution of statements, in calls of :class:`~spark_apps.table.IndexedTable` and nothing below it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from spark_apps.actions.evolve_schema import comment_of
from spark_apps.actions.register import REGISTERED_AS
from spark_apps.actions.rescale import RescalePlan
from spark_apps.actions.template import Action
from spark_apps.actions.write import drop_unfilled
from spark_apps.indexes.included_columns import IncludedColumns
from spark_apps.mergetree.schema import parse_ddl
from spark_apps.optimizer.session import indexes_in_use
from spark_apps.sources.registry import find_in_catalog, iceberg_by_name
from spark_apps.sql import queries
from spark_apps.sql import statements as s
from spark_apps.sql.parser import parse
from spark_apps.sql.queries import Tables, check_output, select
from spark_apps.sql.results import (
    MAX_ROWS,
    Result,
    Results,
    Session,
    change_result,
    describe_index,
    partition_texts,
    paths_with,
    show_indexes,
    unchanged_result,
)
from spark_apps.sql.statements import NEWEST, ManageBuckets, PartitionSpec, Statement, transaction_of
from spark_apps.storage.errors import (
    CommitStateUnknown,
    CommitUndone,
    IndexExists,
    IndexNotFound,
    InvalidInput,
    InvalidName,
    InvalidSchema,
    LakeIndexError,
    PartitionNotFound,
    TableExists,
    TableNotFound,
)
from spark_apps.storage.parameters import Parameters
from spark_apps.storage.store import Store
from spark_apps.table import IndexedTable
from spark_apps.timeline.commit import new_txn_id
from spark_apps.timeline.locations import LOGS_OF_SOURCES, Warehouse, WarehouseTable
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import find_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Columns = tuple[str, ...]
Rows = tuple[tuple[Any, ...], ...]
Commit = dict[str, Any]
"""The transaction and the window that an action commits in, as arguments of it."""

Executor = Callable[[Session, Any, str | None], Result]


@dataclass(frozen=True)
class Unchanged:
    """The outcome of a statement that had nothing to do: the operation that it would have been, and why it was not."""

    operation: str
    note: str


Outcome = Receipt | Unchanged


def live_tables(warehouse: Warehouse) -> Iterator[tuple[WarehouseTable, State]]:
    """Yield the tables of a warehouse that were not dropped, by their logs alone."""
    for table in warehouse.known_tables():
        state = table.state()
        if state is not None:
            yield table, state


def partitions_of(table: IndexedTable, spec: PartitionSpec, if_exists: bool = False) -> list[str]:
    """Return paths of the partitions whose columns have these values; columns that are not named may have any.

    :raises InvalidInput: if a column is none that the table is partitioned by, or a value is not of its type.
    :raises PartitionNotFound: if there is none, unless ``if_exists``.
    """
    paths = paths_with(table.partitions, partition_texts(table, spec))
    if paths or if_exists:
        return paths
    values = ", ".join(f"{name} = {value!r}" for name, value in spec)
    some = ", ".join(list(table.partitions)[:3]) or "none"
    raise PartitionNotFound(
        f"{table.uri} has no partition with {values}; of its {len(table.partitions)} there are: {some}.",
        hint="Check the values; a partition is there as soon as a row was written to it.",
    )


# --- ``CALL partition_bucket_index_manager(…)`` ---------------------------------------------------------------------


PLAN_COLUMNS = ("result", "operation", "partition", "from_buckets", "to_buckets", "files", "bytes", "estimated_seconds",
                "note")  # fmt: skip
CONFIG_COLUMNS = ("instant", "rule", "expressions", "default")


def show_config(table: IndexedTable) -> tuple[Columns, Rows]:
    """Return the configs in force, newest first: the order in which they are asked."""
    rules = table.bucket_rules()
    return CONFIG_COLUMNS, tuple(
        (version.instant, version.rule, version.expressions, version.default) for version in rules
    )


def change_rules(table: IndexedTable, statement: ManageBuckets, commit: Commit) -> RescalePlan | Receipt:
    """Overwrite, add to or roll back the rules; return a plan where nothing is to be done yet.

    :raises InvalidRule: if the rules cannot be read.
    :raises InvalidInput: if an argument cannot be honoured.
    :raises StopWriteWindowOpen: if another holder's window is open.
    :raises DrainTimeout: if commits in progress do not end in time.
    """
    more = {**commit, **_options(statement)}
    if statement.dry_run:
        more = {"plan_only": True}
    if statement.operation == "rollback":
        return table.rollback_rescale(None if statement.argument == NEWEST else statement.argument, **more)
    if statement.operation == "add":
        return table.rescale(add=statement.argument, **more)
    return table.rescale(statement.bucket_number, statement.rule, statement.argument, **more)


def show_plan(statement: ManageBuckets, plan: RescalePlan) -> tuple[Columns, Rows]:
    """Return a row for each partition that would be written anew; one without a partition where there is none."""
    head = ("DRY_RUN", statement.operation.upper())
    rules = (
        f"rules would be {plan.expressions or 'none'} ({plan.rule}), {plan.default} buckets where none matches"
        if plan.rules_change
        else "the rules would stay as they are"
    )
    note = f"nothing was changed; {rules}; dry_run => false does it"
    if not plan.partitions:
        return PLAN_COLUMNS, ((*head, None, None, None, 0, 0, 0.0, f"no partition changes its count; {note}"),)
    whole = plan.bytes or 1
    return PLAN_COLUMNS, tuple(
        (*head, change.partition, change.from_buckets, change.to_buckets, change.files, change.bytes,
         round(plan.estimated_seconds * change.bytes / whole, 1), note)
        for change in plan.partitions
    )  # fmt: skip


def _options(statement: ManageBuckets) -> dict[str, Any]:
    given = dict(statement.options)
    kinds = {"window": int, "drain_seconds": float}
    try:
        return {name: kind(given[name]) for name, kind in kinds.items() if name in given}
    except ValueError as error:
        raise InvalidInput(
            f"The options {given} of the call are not numbers.", hint="window is an epoch, drain_seconds are seconds."
        ) from error


# --- What the statements on indexes and bucket rules do -------------------------------------------------------------


def index_named(table: IndexedTable, name: str) -> str:
    """Return the index of that name, in any case where that is unambiguous.

    :raises IndexNotFound: if there is no index of that name.
    """
    alike = [other for other in table.indexes if other.lower() == name.lower()]
    if name in table.indexes or len(alike) != 1:
        table.snapshot.state.index(name)
        return name
    return alike[0]


def create_index(session: Session, statement: s.CreateIndex, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    existing = next((info for name, info in table.indexes.items() if name.lower() == statement.index.lower()), None)
    if existing is not None:
        what = f"kind {existing.kind!r}, columns ({', '.join(existing.columns)})"
        if not statement.if_not_exists:
            raise IndexExists(
                f"The table has an index {existing.name!r} already: {what}.",
                hint="Choose another name, drop that one first, or say IF NOT EXISTS.",
            )
        return unchanged_result(statement, table.uri, "create_index", f"the index exists: {what}", txn_id)
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
        **session.commit_arguments(txn_id),
    )
    return change_result(statement, receipt, table.uri)


def _check_index_table(session: Session, name: str) -> None:
    """Check that no table and no other index table of the warehouse has the name of an index table."""
    for other, state in live_tables(session.warehouse):
        if other.name.lower() == name.lower():
            raise InvalidInput(f"IN TABLE {name!r}: there is a table of that name.", hint="Choose another name.")
        for entry in state.indexes.values():
            if (entry.definition.index_table or "").lower() == name.lower():
                raise InvalidInput(
                    f"IN TABLE {name!r}: that is the index table of {entry.definition.name!r} on {other.name!r}.",
                    hint="Choose another name, or leave the clause out.",
                )


def drop_index(session: Session, statement: s.DropIndex, txn_id: str | None) -> Result:
    try:
        table = session.load(statement.table) if statement.table is not None else _owner(session, statement.index)
        name = index_named(table, statement.index)
    except (TableNotFound, IndexNotFound):
        # Of a table that is not there no index is there either.
        if not statement.if_exists:
            raise
        location = session.locate(statement.table) if statement.table is not None else ""
        return unchanged_result(statement, location, "drop_index", "there is no such index", txn_id)
    return change_result(statement, table.drop_index(name, **session.commit_arguments(txn_id)), table.uri)


def _owner(session: Session, index: str) -> IndexedTable:
    """Return the one table of the warehouse that has an index of that name."""
    if session.warehouse.root is None:
        raise InvalidInput(
            f"The index {index!r} is named without its table, and no warehouse is known to look for it in.",
            hint=f"Write DROP INDEX {index} ON the table.",
        )
    owners = [
        table.location
        for table, state in live_tables(session.warehouse)
        if index.lower() in map(str.lower, state.indexes)
    ]
    if not owners:
        raise IndexNotFound(f"No table of {session.warehouse.root} has an index {index!r}.", hint="Check the name.")
    if len(owners) > 1:
        raise InvalidInput(
            f"{len(owners)} tables have an index {index!r}: {', '.join(owners[:3])}.",
            hint=f"Write DROP INDEX {index} ON the one that is meant.",
        )
    return session.load(owners[0])


def _refresh(table: IndexedTable, statement: s.RebuildIndex | s.RefreshIndex, commit: Commit, **more: Any) -> Receipt:
    name = index_named(table, statement.index)
    paths = None if statement.partition is None else partitions_of(table, statement.partition)
    return table.refresh_index(name, partitions=paths, **more, **commit)


def refresh_index(table: IndexedTable, statement: s.RefreshIndex, commit: Commit) -> Receipt:
    included = _included(statement)
    return _refresh(table, statement, commit, mode=statement.mode, included=included, schema=statement.schema)


def _included(statement: s.CreateIndex | s.RefreshIndex) -> IncludedColumns | None:
    if statement.include is None and statement.exclude is None:
        return None
    return IncludedColumns(statement.include, statement.exclude)


def call(session: Session, statement: s.ManageBuckets, txn_id: str | None) -> Result:
    table = session.load(statement.table)
    if statement.operation == "show_config":
        return Result(statement, *show_config(table), location=table.uri)
    outcome = change_rules(table, statement, session.commit_arguments(txn_id))
    if isinstance(outcome, Receipt):
        return change_result(statement, outcome, table.uri)
    return Result(statement, *show_plan(statement, outcome), location=table.uri)


# --- What the statements on tables do -------------------------------------------------------------------------------


def create_table(session: Session, statement: s.CreateTable, txn_id: str | None) -> Result:
    location = _location_of(session, statement)
    txn_id = txn_id or new_txn_id("create")
    try:
        if statement.query is not None:
            return _create_as(session, statement, location, statement.query, txn_id)
        _create(session, statement, location, statement.columns, txn_id)
    except TableExists:
        if not statement.if_not_exists:
            raise
        return unchanged_result(statement, location, "create", "the table exists", txn_id)
    receipt = session.warehouse.receipt(location, txn_id)
    assert receipt is not None
    return change_result(statement, receipt, location)


def _create(
    session: Session, statement: s.CreateTable, location: str, columns: StructType | str, txn_id: str
) -> IndexedTable:
    comments = {} if isinstance(columns, StructType) else _column_comments(columns)
    properties = {**comments, **dict(statement.properties)}
    if statement.comment is not None:
        properties["comment"] = statement.comment
    _check_location_is_free(session, location, by_source=True)
    return IndexedTable.create(
        session.spark,
        location,
        columns,
        partition_by=statement.partition_by,
        properties=properties,
        options=session.warehouse.options,
        txn_id=txn_id,
        **dict(statement.arguments),  # type: ignore[arg-type]
    )


def _create_as(session: Session, statement: s.CreateTable, location: str, query: str, txn_id: str) -> Result:
    """Make a table of the columns of a query, and insert its rows; a table that gets no rows is dropped again."""
    with indexes_in_use(session.spark, session.warehouse.options):
        rows = Tables(session).taken_over(query)
        made = f"{txn_id}.table"
        try:
            table = _create(session, statement, location, rows.schema, made)
        except CommitUndone:  # an earlier try could not insert the rows
            made = new_txn_id("create")
            table = _create(session, statement, location, rows.schema, made)
        try:
            receipt = table.insert(rows, txn_id=txn_id)
        except CommitStateUnknown:
            raise
        except Exception as error:
            drop_unfilled(table.run_action, error)
            raise
    if receipt.version is None:
        receipt = session.warehouse.receipt(location, made) or receipt
    return change_result(statement, receipt, location)


def _column_comments(columns: str) -> dict[str, str]:
    """Return ``COMMENT`` of columns as properties of the table: ``comment.<column>``."""
    try:
        struct = parse_ddl(columns)
    except InvalidSchema:
        return {}  # said again where the columns are made
    fields = struct.fields if isinstance(struct, StructType) else []
    return {comment_of(field.name): field.metadata["comment"] for field in fields if "comment" in field.metadata}


def _location_of(session: Session, statement: s.CreateTable) -> str:
    """Return where the table is made.

    A LOCATION must be the one that the name means: no catalog keeps another.
    """
    if statement.location is None:
        return session.warehouse.locate(statement.table)
    location = session.warehouse.store(statement.location).uri
    try:
        by_name = session.warehouse.locate(statement.table)
    except InvalidName:
        by_name = None
    if by_name != location:
        raise InvalidInput(
            f"{statement.table!r} is to be made at {location!r}, and its name means "
            + ("no location." if by_name is None else f"{by_name!r}."),
            hint=f"There is no catalog that could keep the two together: CREATE TABLE `{location}` (…), and use that.",
        )
    return location


def drop_table(session: Session, statement: s.DropTable, txn_id: str | None) -> Result:
    location = session.locate(statement.table)
    try:
        table = session.load(statement.table)
    except TableNotFound as error:
        if not statement.if_exists:
            _refuse_index_table(session, statement.table, error)
            raise
        return unchanged_result(statement, location, "drop_table", "there is no such table", txn_id)
    return change_result(statement, table.drop(**session.commit_arguments(txn_id)), location)


def _refuse_index_table(session: Session, name: str, error: TableNotFound) -> None:
    """Refuse to drop what stores an index as if it were a table, with the statement that does it."""
    for table, state in live_tables(session.warehouse):
        for entry in state.indexes.values():
            called = entry.definition.index_table
            if called is not None and called.lower() == name.lower():
                raise InvalidInput(
                    f"{name!r} is the index table of the index {entry.definition.name!r} on {table.name!r}.",
                    hint=f"DROP INDEX `{entry.definition.name}` ON {table.name} drops both.",
                ) from error


def drop_partition(table: IndexedTable, statement: s.DropPartition, commit: Commit) -> Outcome:
    paths = [path for spec in statement.partitions for path in partitions_of(table, spec, statement.if_exists)]
    if not paths:
        return Unchanged("drop_partition", "there is no such partition")
    return table.drop_partition(*dict.fromkeys(paths), **commit)


def drop_columns(table: IndexedTable, statement: s.DropColumns, commit: Commit) -> Outcome:
    names = statement.columns
    if statement.if_exists:
        existing = {field.name.lower() for field in table.definition.fields}
        names = tuple(name for name in names if name.lower() in existing)
    if not names:
        return Unchanged("change_columns", "there is no such column")
    return table.drop_column(*names, **commit)


# --- tables of others -------------------------------------------------------------------------------------------


def register_source(session: Session, statement: s.RegisterSource, txn_id: str | None) -> Result:
    options, properties = dict(statement.options), dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    address, named_location = _address(session, statement)
    log_address: dict[str, Any] = {}
    if named_location is not None and address != named_location:
        # The log is where that of a folder of that name would be, so that the name finds it.
        root, _, name = named_location.rpartition("/")
        log_address = {"index_root": f"{root}/{LOGS_OF_SOURCES}", "name": name}
        properties[REGISTERED_AS] = name
    location = named_location or session.locate(statement.table)
    txn_id = txn_id or new_txn_id("create")
    try:
        if log_address:
            _check_location_is_free(session, location, by_source=False)
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
            warehouse=session.warehouse.root,
            **log_address,
        )
    except TableExists:
        if not statement.if_not_exists:
            raise
        return unchanged_result(statement, location, "create", "the table exists", txn_id)
    receipt = find_receipt(Timeline.load(Store(table.uri, session.warehouse.options)), txn_id)
    assert receipt is not None
    return change_result(statement, receipt, table.uri if session.warehouse.is_of_catalog(table.uri) else location)


def _address(session: Session, statement: s.RegisterSource) -> tuple[str, str | None]:
    """Return where the source is, and what its name means, if that is in the warehouse.

    A table in a catalog of Iceberg has no address of its own: its name in the catalog is taken.
    """
    if "/" in statement.table:
        if statement.location not in (None, statement.table):
            raise InvalidInput(
                f"The source is given by its location {statement.table!r}, and by LOCATION {statement.location!r} too.",
                hint="Keep one of them; give the table a name to keep them apart.",
            )
        return statement.table, None
    if statement.location is None and iceberg_by_name(session.spark, statement.table) is not None:
        if statement.format != "iceberg":
            raise InvalidInput(
                f"{statement.table!r} is an Iceberg table of a catalog, and not of the format {statement.format}.",
                hint="Write USING iceberg.",
            )
        return statement.table, None
    if statement.location is None and (in_catalog := find_in_catalog(session.spark, statement.table)) is not None:
        if in_catalog.format != statement.format:
            raise InvalidInput(
                f"{statement.table!r} is in Spark's catalog, as {in_catalog.format} and not as {statement.format}.",
                hint=f"Write USING {in_catalog.format}.",
            )
        return statement.table, None
    named_location = session.warehouse.locate(statement.table)
    if statement.location is not None:
        return statement.location, named_location
    options = {key.lower(): value for key, value in statement.options}
    if "catalog" in options:
        return options.get("identifier", statement.table), named_location
    return named_location, named_location


def _check_location_is_free(session: Session, location: str, by_source: bool) -> None:
    """Check that the name, or location, is not that of a source (else: of a keyed table).

    :raises TableExists: if the name, or location, is that of a source (else: of a table), which would be hidden by
        the other.
    """
    log = session.warehouse.log_of(location)
    if log is None or Timeline(log).refresh().dropped or (log.uri.rstrip("/") != location.rstrip("/")) != by_source:
        return
    what = f"a source is registered there, in {log.uri}" if by_source else "there is a table"
    raise TableExists(f"At {location} {what} already.", hint="Choose another name.")


# --- How statements are run ------------------------------------------------------------------------------------------


def _changes(change: Callable[[IndexedTable, Any, Commit], Outcome]) -> Executor:
    """Return how a statement is run that changes the table it names."""

    def execute_one(session: Session, statement: Any, txn_id: str | None) -> Result:
        table = session.load(statement.table)
        outcome = change(table, statement, session.commit_arguments(txn_id))
        if isinstance(outcome, Unchanged):
            return unchanged_result(statement, table.uri, outcome.operation, outcome.note, txn_id)
        return change_result(statement, outcome, table.uri)

    return execute_one


def _writes(write: Callable[[Session, Any, IndexedTable], Action]) -> Executor:
    """Return how a statement is run that changes rows."""

    def execute_one(session: Session, statement: Any, txn_id: str | None) -> Result:
        table = queries.target(session, statement)
        action = write(session, statement, table)
        return change_result(statement, table.run_action(action, **session.commit_arguments(txn_id)), table.uri)

    return execute_one


def _shows(show: Callable[[IndexedTable, Any], tuple[Columns, Rows]]) -> Executor:
    """Return how a statement is run that only reads about the table it names."""

    def execute_one(session: Session, statement: Any, _txn_id: str | None) -> Result:
        table = session.load(statement.table)
        return Result(statement, *show(table, statement), location=table.uri)

    return execute_one


# --- Runs one statement ---------------------------------------------------------------------------------------------


def execute(session: Session, statement: s.Statement, txn_id: str | None = None) -> Result:
    """Run one statement.

    :param txn_id: if it has its commit already, that commit's receipt is the answer.
    """
    if txn_id is not None and statement.commits:
        done = _committed(session, statement, txn_id)
        if done is not None:
            return done
    return _EXECUTORS[type(statement)](session, statement, txn_id)


def _committed(session: Session, statement: Any, txn_id: str) -> Result | None:
    """Return the answer of an earlier try.

    Looked for in the log itself: the table may be dropped, by this very statement.
    """
    for location in session.log_locations(statement.table):
        try:
            receipt = session.warehouse.receipt(location, txn_id)
        except CommitUndone as error:
            if error.by is None or not s.of_one_script(error.by, txn_id):
                raise
            receipt = error.receipt  # the script drops itself what it makes
        if receipt is not None:
            return change_result(statement, receipt, location, "had committed before")
    return None


_EXECUTORS: dict[type[s.Statement], Executor] = {
    s.CreateTable: create_table,
    s.RegisterSource: register_source,
    s.DropTable: drop_table,
    s.DropPartition: _changes(drop_partition),
    s.AddColumns: _changes(
        lambda table, one, commit: table.add_columns(one.columns, properties=_column_comments(one.columns), **commit)
    ),
    s.AlterColumnType: _changes(lambda table, one, commit: table.widen_column(one.column, one.type, **commit)),
    s.RenameColumn: _changes(lambda table, one, commit: table.rename_column(one.column, one.to, **commit)),
    s.SetTableProperties: _changes(lambda table, one, commit: table.set_properties(dict(one.properties), **commit)),
    s.DropColumns: _changes(drop_columns),
    s.CreateIndex: create_index,
    s.DropIndex: drop_index,
    s.RebuildIndex: _changes(lambda table, one, commit: _refresh(table, one, commit, mode="full")),
    s.RefreshIndex: _changes(refresh_index),
    s.SetIndexProperties: _changes(
        lambda table, one, commit: table.alter_index(index_named(table, one.index), dict(one.properties), **commit)
    ),
    s.ShowIndexes: _shows(lambda table, one: show_indexes(table, one.table, one.formatted)),
    s.DescribeIndex: _shows(
        lambda table, one: describe_index(table, one.table, index_named(table, one.index), one.formatted)
    ),
    s.ManageBuckets: call,
    s.Query: select,
    s.InsertInto: _writes(queries.insert),
    s.InsertOverwrite: _writes(queries.insert),
    s.Update: _writes(queries.update),
    s.DeleteFrom: _writes(queries.delete),
    s.Merge: _writes(queries.merge),
}
"""Kind of a statement -> how it is run."""


# --- Runs a script --------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


def run(
    spark: SparkSession,
    text: str,
    warehouse: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    txn_id: str | None = None,
    window: int | None = None,
    max_rows: int = MAX_ROWS,
    output_path: str | None = None,
    parameters: Parameters | None = None,
) -> Results:
    """Run the statements of a script; docs/sql.md describes each.

    ::

        sql.run(spark, "REFRESH INDEX by_city ON trips; SELECT count(*) FROM trips", warehouse="s3://lake").rows

    :param text: statements separated by ``;``.
    :param warehouse: URI or path below which tables have names; those given by location need none.
    :param options: of the store; see :class:`~spark_apps.storage.store.Store`.
    :param txn_id: names the script's intent: statement 1 commits as ``<txn_id>.001`` and so on, and what has committed
        already under these is not done again.
    :param window: epoch of the stop-write window that the caller holds.
    :param max_rows: rows that a query may answer with. With 0 none are collected: ``to_df()`` gives them.
    :param output_path: folder that the answer of the script's only query is written into, as Parquet, instead.
    :param parameters: name -> value, bound to ``:name`` in the text and never read as SQL: text, numbers, booleans,
        dates, times, bytes, ``None``.
    :param spark: the session.
    :returns: an answer a statement; ``.rows``, ``.columns`` and ``.to_df()`` are those of the last.
    :raises InvalidStatement: if the text cannot be read; nothing was run.
    :raises InvalidInput: for a parameter that is missing or unknown; nothing was run.
    :raises LakeIndexError: of a statement that failed; it says which, and what is committed.
    """
    statements = parse(text, parameters)
    check_output(statements, output_path)
    session = Session(spark, Warehouse(warehouse, dict(options or {})), window, max_rows, output_path)
    done: list[Result] = []
    for statement in statements:
        started = time.monotonic()
        statement_txn = None if txn_id is None else transaction_of(txn_id, statement)
        try:
            result = execute(session, statement, statement_txn)
        except Exception as error:
            _add_statement_context(error, statement, len(statements), done)
            raise
        logger.info(
            "Statement %s of %s, %s: %s, %.1f s",
            statement.source.number, len(statements), statement.words, _outcome_text(result),
            time.monotonic() - started,
        )  # fmt: skip
        done.append(result)
    return Results(done, spark)


def _outcome_text(result: Result) -> str:
    if result.receipt is None:
        return f"{len(result.rows)} rows"
    return "nothing to do" if result.receipt.version is None else f"version {result.receipt.version}"


def _add_statement_context(error: Exception, statement: Statement, total: int, done: list[Result]) -> None:
    """Make an error name its statement and what is committed.

    Its class, and so what a retry can do, stays.
    """
    source = statement.source
    where = f"Statement {source.number} of {total} (line {source.line}, {statement.words})"
    committed = [
        f"statement {result.statement.source.number} is committed as version {result.receipt.version} "
        f"of {result.location}"
        for result in done
        if result.receipt is not None and result.receipt.version is not None
    ]
    after = f"Before it, {'; '.join(committed)}." if committed else ""
    not_run = total - source.number
    if not_run:
        after += f" The {'statement' if not_run == 1 else f'{not_run} statements'} behind it {_was(not_run)} not run."
    if not isinstance(error, LakeIndexError):
        error.add_note(" ".join(part for part in (f"{where} failed.", after.strip()) if part))
        return
    outcome = error.outcome
    if committed and outcome == LakeIndexError.outcome and not isinstance(error, CommitStateUnknown):
        outcome = "This statement changed nothing."
    error.reword(f"{where}: {error.message}", " ".join(part for part in (outcome, after.strip()) if part))


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
