"""The running of queries, and of the statements that change rows by a query, each in one commit.

Names of keyed tables and sources give way, in the text of a query, to frames; all else is Spark's. In a classic session
these are planned by the rule in Spark's optimizer, with all filters that Spark finds; over Spark Connect, where no rule
can run, each is read with the filters and columns that the text has for it.

INSERT, UPDATE, DELETE and MERGE become a query of the table at the version that their attempt works on, whose
expressions are those that were written, and an action that stages what the query gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.change_rows import (
    ACTION,
    OLD,
    DeleteRows,
    InsertQuery,
    MatchedIn,
    MergeRows,
    OverwriteQuery,
    RowChanges,
    UpdateRows,
    compared,
)
from spark_apps.actions.template import Action
from spark_apps.actions.upsert_plan import unique_index
from spark_apps.actions.write import Delete
from spark_apps.engine.spark_utils import over_connect, setting
from spark_apps.engine.spark_versions import message_of, try_cast
from spark_apps.mergetree.schema import quote
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.optimizer.session import indexes_in_use
from spark_apps.sources.other_formats import check_folder
from spark_apps.sources.registry import find_in_catalog
from spark_apps.sql import statements as s
from spark_apps.sql.results import Result, Session, partition_column, partition_texts, paths_with
from spark_apps.sql.row_parser import (
    Equalities,
    Equality,
    Reference,
    column_of,
    columns_named,
    equalities,
    is_plain,
    pushed_down,
    references,
    replaced,
)
from spark_apps.storage.errors import InvalidInput, InvalidName, InvalidStatement, TableNotFound, UnsupportedSource
from spark_apps.storage.parameters import bind
from spark_apps.storage.store import Store
from spark_apps.table import IndexedTable
from spark_apps.timeline.allowed_sources import PLAIN_FORMATS
from spark_apps.timeline.locations import Warehouse, locate
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# --- queries ----------------------------------------------------------------------------------------------------------


Given = Mapping[str, DataFrame | IndexedTable]
"""Names of one part that a statement's own text uses, and what they mean."""


def query_frame(
    spark: SparkSession, text: str, warehouse: str | None = None, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the answer of a query over tables of a warehouse and whatever the session knows.

    A text that only Spark itself can read is handed on to it as it is; what Spark then says is its own error.

    :param warehouse: and ``options``: as of :func:`spark_apps.sql.run`.
    """
    try:
        return Tables(Session(spark, Warehouse(warehouse, dict(options or {})))).query(text)
    except InvalidStatement as error:
        if isinstance(error.__cause__, PySparkException):
            raise error.__cause__ from None
        logger.warning("The query is left to Spark: %s", error.message)
        return spark.sql(text)


class Tables:
    """The tables of one statement, each of one version wherever the statement names it.

    :param shown: tables at the version that the statement works on, by their location.
    """

    def __init__(self, session: Session, shown: Sequence[IndexedTable] = ()) -> None:
        self._session = session
        self._by_location: dict[tuple[str, int | None, str | None], IndexedTable] = {
            (table.uri, None, None): table for table in shown
        }

    def query(self, text: str, given: Given | None = None) -> DataFrame:
        """Return the answer of a query, analyzed and not yet run.

        :raises InvalidStatement: if it cannot be read, or Spark refuses it.
        """
        spark, frames = self._session.spark, {}
        marks: list[tuple[Reference, str]] = []
        for number, reference in enumerate(references(text)):
            meant = (given or {}).get(reference.name) or self._table(reference)
            if meant is None:
                continue
            frames[f"f{number}"] = meant if isinstance(meant, DataFrame) else self._frame(meant, reference, text)
            # A mark that no text of SQL holds, until what looks like a format in it is escaped.
            marks.append((reference, f"\x00{number}\x00"))
        with refused_by_spark():
            if not frames:
                answer = spark.sql(text)
            else:
                parts = replaced(text, marks).replace("{", "{{").replace("}", "}}").split("\x00")
                parts[1::2] = [f"{{f{number}}}" for number in parts[1::2]]
                answer = spark.sql("".join(parts), **frames)
            answer.schema  # noqa: B018 - Connect analyzes no earlier
        return answer

    def taken_over(self, text: str) -> DataFrame:
        """Return the answer of a query whose rows a table is given; see :meth:`query`.

        :raises OtherFormat: if the text reads a table of another format as plain files, by its path.
        """
        for reference in references(text):
            if len(reference.parts) == 2 and reference.parts[0].lower() in PLAIN_FORMATS and "/" in reference.parts[1]:
                check_folder(locate(reference.parts[1]), self._session.warehouse.options)
        return self.query(text)

    def _frame(self, table: IndexedTable, reference: Reference, text: str) -> DataFrame:
        as_it_is = table.definition.source is not None and (reference.version, reference.as_of) != (None, None)
        if not over_connect(self._session.spark) and not as_it_is:
            return table.frame()
        columns = [field.name for field in table.definition.fields]
        where, named = pushed_down(text, reference, columns), columns_named(text, columns)
        logger.info("%s is read where %s, columns %s", table.uri, where or "true", ", ".join(named) or "none")
        return table.read(where, named or columns[:1])

    def _table(self, reference: Reference) -> IndexedTable | None:
        """Return the table that a reference means, ``None`` if it is not one of this package's."""
        location = self._locate(reference)
        if location is None:
            return None
        key = (location, reference.version, reference.as_of)
        if key not in self._by_location:
            try:
                options = self._session.warehouse.reader_options
                self._by_location[key] = IndexedTable.load(
                    self._session.spark, location, reference.version, reference.as_of, options
                )
            except TableNotFound:
                return None
        return self._by_location[key]

    def _locate(self, reference: Reference) -> str | None:
        warehouse, parts = self._session.warehouse, reference.parts
        if "/" in parts[-1]:
            ours = len(parts) == 1 or (len(parts) == 2 and parts[0].lower() == "indexed")
            return warehouse.locate(parts[-1]) if ours else None
        if len(parts) == 1 and _is_view(self._session.spark, parts[0]):
            return None
        try:
            location = warehouse.locate(reference.name)
            if warehouse.is_of_catalog(location) and not over_connect(self._session.spark):
                return None  # its own connector reads it
            if warehouse.log_of(location) is not None:
                return location
        except InvalidName:
            pass
        if not over_connect(self._session.spark):
            return None  # the rule knows tables of Spark's catalog by their location
        try:
            in_catalog = find_in_catalog(self._session.spark, reference.name)
        except UnsupportedSource:
            return None
        registered = in_catalog is not None and warehouse.log_of(in_catalog.location) is not None
        return in_catalog.location if in_catalog is not None and registered else None


def _is_view(spark: SparkSession, name: str) -> bool:
    """Return whether a name is that of a temporary view, which hides tables of that name as in Spark."""
    try:
        return bool(spark.catalog.tableExists(name)) and spark.catalog.getTable(name).isTemporary
    except PySparkException:
        return False


@contextmanager
def refused_by_spark() -> Iterator[None]:
    """Turn what Spark says of a text that it cannot use into an error of this package.

    :raises InvalidStatement: with Spark's own words.
    """
    try:
        yield
    except PySparkException as error:
        raise InvalidStatement(f"Spark refuses the statement: {message_of(error)}", hint="Correct it.") from error


# --- SELECT -----------------------------------------------------------------------------------------------------------


def check_output(statements: Sequence[s.Statement], output_path: str | None) -> None:
    """Check that an output is that of one query.

    :raises InvalidInput: if there is none, or there are several.
    """
    count = sum(isinstance(statement, s.Query) for statement in statements)
    if output_path is not None and count != 1:
        raise InvalidInput(
            f"An output_path is given, and the script holds {count} queries.", hint="Give a query a script of its own."
        )


def select(session: Session, statement: s.Query, _txn_id: str | None) -> Result:
    """Return a query's answer: its rows, or the folder that they were written into."""
    with indexes_in_use(session.spark, session.warehouse.options):
        frame = Tables(session).query(statement.query)
        columns = tuple(frame.columns)
        if session.output_path is not None:
            location = _write(session, frame, session.output_path)
            return Result(statement, columns, (), location=location, frame=session.spark.read.parquet(location))
        if session.max_rows <= 0:
            return Result(statement, columns, (), frame=frame)
        rows = frame.limit(session.max_rows + 1).collect()
    if len(rows) > session.max_rows:
        raise InvalidInput(
            f"The query answers with more than {session.max_rows:,} rows, which is what may be handed on (max_rows).",
            hint="Give it a LIMIT, or an output_path, a folder that the answer is written into.",
        )
    return Result(statement, columns, tuple(tuple(map(_plain, row)) for row in rows), frame=frame)


def _write(session: Session, frame: DataFrame, output: str) -> str:
    """Write an answer as Parquet, in the place of an earlier one.

    :raises InvalidInput: if the folder holds anything else.
    """
    store = Store(output, session.warehouse.options)
    others = [entry.key for entry in store.list("") if not _of_an_answer(entry.key)]
    if others:
        raise InvalidInput(
            f"The output {store.uri} holds {others[0]}, which is no part of an answer, so it is not replaced.",
            hint="Give a folder of its own.",
        )
    frame.write.mode("overwrite").parquet(store.spark_path(""))
    return store.uri


def _of_an_answer(key: str) -> bool:
    name = key.rpartition("/")[2].removeprefix(".")
    return key.startswith("_temporary/") or name.startswith(("part-", "_SUCCESS", "_committed_", "_started_"))


def _plain(value: Any) -> Any:
    """Return a value of a row in plain Python types."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value


# --- INSERT, UPDATE, DELETE, MERGE ------------------------------------------------------------------------------------


_TARGET = "lakeindex_target"
_SOURCE = "lakeindex_source"
_VALUE = "__lakeindex_value_"
_CLAUSE = "__lakeindex_clause"
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)


def target(session: Session, statement: Any) -> IndexedTable:
    """Return the keyed table that a statement writes to.

    :raises InvalidInput: if it is a source, or a table of Spark's own.
    """
    try:
        table = session.load(statement.table)
    except TableNotFound as error:
        try:
            plain = find_in_catalog(session.spark, statement.table) is not None
        except UnsupportedSource:
            plain = True
        if not plain:
            raise
        raise InvalidInput(
            f"{statement.table} is a table of Spark's catalog and no keyed table, so {statement.words} cannot be done.",
            hint="Write to it with spark.sql; here, CREATE TABLE … USING indexed makes tables that are written to.",
        ) from error
    source = table.definition.source
    if source is not None:
        raise InvalidInput(
            f"{statement.words} cannot be done: {statement.table} is a registered source, whose rows another writer "
            f"owns, in the {source.format} files of {source.location}.",
            hint="Write to the source with what owns it; a refresh of an index then finds what changed.",
        )
    return table


def _enabled(session: Session) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: indexes_in_use(session.spark, session.warehouse.options)


# --- INSERT -----------------------------------------------------------------------------------------------------------


def insert(session: Session, statement: s.InsertInto, table: IndexedTable) -> Action:
    compute, enabled = partial(_inserted, session, statement, table), _enabled(session)
    if isinstance(statement, s.InsertOverwrite):
        return OverwriteQuery(compute, enabled, _also(session, statement, table))
    return InsertQuery(compute, enabled)


def _inserted(session: Session, statement: s.InsertInto, table: IndexedTable, snapshot: Snapshot) -> DataFrame:
    return insert_rows(session, statement, table.showing(snapshot))


def _also(session: Session, statement: s.InsertInto, table: IndexedTable) -> Callable[[State], list[str]] | None:
    """Return which partitions are replaced beside those of the rows: as in Spark, unless the session says "dynamic"."""
    partitions = table.definition.partition_by
    dynamic = str(setting(session.spark, "spark.sql.sources.partitionOverwriteMode", "static")).lower() == "dynamic"
    if dynamic and partitions and len(statement.values) < len(partitions):
        return None
    texts = partition_texts(table, statement.values)

    return lambda state: paths_with(state.partitions, texts)


def insert_rows(session: Session, statement: s.InsertInto, table: IndexedTable) -> DataFrame:
    """Return the rows of an INSERT with the table's columns, in its types.

    :raises InvalidInput: if there are more or fewer columns than are named, or values that the types cannot hold.
    """
    fields = {field.name: field for field in table.schema.fields}
    static = {partition_column(table, name): value for name, value in statement.values}
    dynamic = [partition_column(table, name) for name in statement.dynamic]
    given = Tables(session, [table]).taken_over(statement.query)
    names = [_column(table, name) for name in statement.columns or ()]
    if statement.by_name:
        names = [_column(table, name) for name in given.columns]
    elif statement.columns is None:
        names = [*(name for name in fields if name not in static and name not in dynamic), *dynamic]
    twice = next((name for name in names if names.count(name) > 1 or name in static), None)
    if twice is not None:
        raise InvalidInput(f"The column {twice!r} is given twice.", hint="Give it once.")
    if len(given.columns) != len(names):
        raise InvalidInput(
            f"{statement.words} takes {len(names)} columns ({', '.join(names)}), and the query gives "
            f"{len(given.columns)}.",
            hint="Name the columns that it gives, or give as many.",
        )
    types = [field.dataType for field in given.schema.fields]
    numbered = given.toDF(*[f"{_VALUE}{number}" for number in range(len(names))])
    values = {
        name: stored(F.col(f"{_VALUE}{number}"), kind, fields[name])
        for number, (name, kind) in enumerate(zip(names, types, strict=True))
    }
    for name, value in static.items():
        values[name] = F.lit(value).cast(fields[name].dataType)
    return numbered.select(
        *(values.get(name, F.lit(None).cast(field.dataType)).alias(name) for name, field in fields.items())
    )


def _column(table: IndexedTable, name: str) -> str:
    """Return a column of the table by its name in any case. :raises InvalidInput: if there is none."""
    names = [field.name for field in table.definition.fields]
    if name in names:
        return name
    alike = [one for one in names if one.lower() == name.lower()]
    if len(alike) != 1:
        raise InvalidInput(f"The table has no column {name!r}.", hint=f"It has {', '.join(names)}.")
    return alike[0]


def stored(value: Column, kind: T.DataType, field: T.StructField) -> Column:
    """Return a value as a column takes it, by the rules of Spark's INSERT: what would lose its meaning is refused.

    :raises InvalidInput: if no value of the type can be stored.
    """
    if kind.simpleString() == field.dataType.simpleString():
        return value
    if not _can_store(kind, field.dataType):
        raise InvalidInput(
            f"The column {field.name!r} is {field.dataType.simpleString()}, and cannot take {kind.simpleString()}.",
            hint="Cast the value.",
        )
    cast = value.cast(field.dataType)
    if not isinstance(kind, T.NumericType):
        return cast
    # A number that does not fit would be another number, or null, in a session that is not strict.
    tried = try_cast(value, field.dataType)
    overflow = F.raise_error(
        F.lit(f"A value does not fit into the column {field.name}, which is {field.dataType.simpleString()}")
    )
    return F.coalesce(tried, F.when(value.isNotNull(), overflow.cast(field.dataType)))


def _can_store(kind: T.DataType, target: T.DataType) -> bool:
    if isinstance(kind, T.NullType) or kind.simpleString() == target.simpleString():
        return True
    if isinstance(kind, T.NumericType) and isinstance(target, T.NumericType):
        return True
    if isinstance(kind, _TIMES) and isinstance(target, _TIMES):
        return True
    if isinstance(kind, T.ArrayType) and isinstance(target, T.ArrayType):
        return _can_store(kind.elementType, target.elementType)
    if isinstance(kind, T.MapType) and isinstance(target, T.MapType):
        return _can_store(kind.keyType, target.keyType) and _can_store(kind.valueType, target.valueType)
    if isinstance(kind, T.StructType) and isinstance(target, T.StructType):
        pairs = zip(kind.fields, target.fields, strict=False)
        return len(kind) == len(target) and all(_can_store(one.dataType, other.dataType) for one, other in pairs)
    nested = (T.ArrayType, T.MapType, T.StructType, T.BinaryType)
    return isinstance(target, T.StringType) and not isinstance(kind, nested)


# --- DELETE and UPDATE ------------------------------------------------------------------------------------------------


def _called(statement: Any) -> str:
    """Return the name by which a statement's expressions call its table."""
    return quote(statement.alias or statement.table.rstrip("/").rpartition("/")[2].rpartition(".")[2])


def delete(session: Session, statement: s.DeleteFrom, table: IndexedTable) -> Action:
    where = statement.where or "true"
    if is_plain(where):
        return Delete(bind(where, None))

    def rows(snapshot: Snapshot) -> DataFrame:
        shown, called = table.showing(snapshot), _called(statement)
        names = ", ".join(f"{called}.{quote(name)}" for name in snapshot.data.identity)
        text = f"SELECT {names} FROM {_TARGET} AS {called} WHERE ({where}\n)"
        return Tables(session, [shown]).query(text, {_TARGET: shown})

    return DeleteRows(rows, _enabled(session))


def update(session: Session, statement: s.Update, table: IndexedTable) -> Action:
    return UpdateRows(partial(_updated, session, statement, table), _enabled(session))


def _updated(session: Session, statement: s.Update, table: IndexedTable, snapshot: Snapshot, _hold: Any) -> RowChanges:
    shown, called = table.showing(snapshot), _called(statement)
    clause = s.MergeClause("matched", None, "update", statement.assignments)
    text = f"SELECT {', '.join([*_old(shown, called), *_values(shown, [clause])])} FROM {_TARGET} AS {called}"
    if statement.where is not None:
        text += f" WHERE ({statement.where}\n)"
    rows = Tables(session, [shown]).query(text, {_TARGET: shown})
    return RowChanges(_changed(shown, rows, [clause]))


# --- MERGE ------------------------------------------------------------------------------------------------------------


def merge(session: Session, statement: s.Merge, table: IndexedTable) -> Action:
    return MergeRows(partial(_merged, session, statement, table), _enabled(session))


def _merged(
    session: Session,
    statement: s.Merge,
    table: IndexedTable,
    snapshot: Snapshot,
    hold: Callable[[DataFrame], DataFrame],
) -> RowChanges:
    shown, called = table.showing(snapshot), _called(statement)
    tables = Tables(session, [shown])
    # Once: what a source draws at random must be the same for all clauses.
    source = hold(tables.taken_over(f"SELECT * FROM {statement.using}"))
    from_source = quote(statement.source_alias or _SOURCE)
    given = {_TARGET: shown, _SOURCE: source}
    target_text, source_text = f"{_TARGET} AS {called}", f"{_SOURCE} AS {from_source}"
    clauses = {
        of: [_with_star(shown, clause, source, from_source) for clause in statement.clauses if clause.of == of]
        for of in ("matched", "not matched", "not matched by source")
    }
    matched, inserts = clauses["matched"], clauses["not matched"]
    only_deletes = len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
    sides = {
        # A row that is deleted whatever matches it goes once, however much of the source matches.
        "matched": f"{target_text} LEFT SEMI JOIN {source_text}"
        if only_deletes
        else f"{source_text} JOIN {target_text}",
        "not matched": f"{source_text} LEFT ANTI JOIN {target_text}",
        "not matched by source": f"{target_text} LEFT ANTI JOIN {source_text}",
    }
    parts = []
    for of, some in clauses.items():
        if not some:
            continue
        old = _old(shown, called) if of != "not matched" else []
        columns = [*old, _clause_number(some), *_values(shown, some)]
        text = f"SELECT {', '.join(columns)} FROM {sides[of]} ON ({statement.on}\n)"
        parts.append(_changed(shown, tables.query(text, given), some))
    held = _held_equal(
        session, snapshot.data, inserts, equalities(statement.on, called, from_source), from_source, source
    )
    return RowChanges(
        reduce(DataFrame.unionByName, parts),
        matched_once=bool(matched) and not only_deletes,
        new_unless_null=_new_unless_null(snapshot, held) if inserts else (),
        matched_in=_matched_in(snapshot, held) if inserts else "groups",
    )


def _with_star(table: IndexedTable, clause: s.MergeClause, source: DataFrame, called: str) -> s.MergeClause:
    """Return a clause whose ``*`` is written out. :raises InvalidInput: if the source lacks columns of the table."""
    if clause.assignments is not None or clause.action == "delete":
        return clause
    known = {name.lower(): name for name in source.columns}
    names = [field.name for field in table.definition.fields]
    missing = [name for name in names if name.lower() not in known]
    if missing:
        raise InvalidInput(
            f"{clause.action.upper()} * takes all columns of the table, and the source lacks {', '.join(missing)}.",
            hint="Name the columns and their values.",
        )
    values = tuple((name, f"{called}.{quote(known[name.lower()])}") for name in names)
    return s.MergeClause(clause.of, clause.condition, clause.action, values)


@dataclass(frozen=True)
class _HeldEqual:
    """The columns of a table that ON holds equal to the very values that rows are inserted with.

    :param null_safe: column -> whether null is equal to null, too.
    :param alone: whether ON is true wherever all of these are equal.
    """

    null_safe: Mapping[str, bool]
    alone: bool


def _held_equal(
    session: Session, tree: Tree, inserts: Sequence[s.MergeClause], on: Equalities, called: str, source: DataFrame
) -> _HeldEqual:
    """Return what ON holds equal to what every clause inserts, compared as it is stored.

    Neither a value that a cast changes (1.5, stored as 1) counts, nor one of another column than is inserted.

    :param called: the source's name, quoted.
    """
    exact = str(setting(session.spark, "spark.sql.caseSensitive", "false")).lower() == "true"

    def same(one: str, other: str | None) -> bool:
        return other is not None and (one == other if exact else one.lower() == other.lower())

    def inserted(part: Equality, name: str) -> bool:
        kinds = [field.dataType for field in source.schema.fields if same(part.value, field.name)]
        if len(kinds) != 1 or not _stored_as_compared(kinds[0], tree.field(name).dataType):
            return False
        values = [[column_of(text, called) for column, text in clause.assignments or () if same(name, column)]
                  for clause in inserts]  # fmt: skip
        return all(len(of_clause) == 1 and same(part.value, of_clause[0]) for of_clause in values)

    null_safe: dict[str, bool] = {}
    alone = on.alone
    for part in on.parts:
        names = [name for name in tree.columns if same(part.column, name)]
        if len(names) == 1 and inserted(part, names[0]):
            null_safe[names[0]] = null_safe.get(names[0], True) and part.null_safe
        else:
            alone = False
    return _HeldEqual(null_safe, alone)


def _stored_as_compared(kind: T.DataType, target: T.DataType) -> bool:
    """Return whether a value that is stored is equal to what was compared: whole numbers are, which fit or fail."""
    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    return kind.simpleString() == target.simpleString() or (isinstance(kind, whole) and isinstance(target, whole))


def _new_unless_null(snapshot: Snapshot, held: _HeldEqual) -> list[str] | None:
    """Return the columns by which a row without a match is known to have a new key, where none of them is null.

    That is so only where ON asks for nothing but the whole of what keys are unique by: where it asks for more, or for
    the partition too although keys are unique in the table, a row of the key may be there that it leaves out.

    :returns: ``None`` if a row without a match may have a key that is there.
    """
    tree = snapshot.data
    unique = tree.key if unique_index(snapshot.state) is not None else tree.identity
    if not held.alone or set(held.null_safe) != set(unique):
        return None
    return [name for name in unique if tree.field(name).nullable and not held.null_safe[name]]


def _matched_in(snapshot: Snapshot, held: _HeldEqual) -> MatchedIn:
    """Return where rows can be that match what is inserted: ON needs no more than be false elsewhere."""
    tree, equal = snapshot.data, set(held.null_safe)
    if unique_index(snapshot.state) is not None and equal >= set(tree.key):
        return "groups"
    if tree.by_id or not equal >= set(tree.hash_fields):
        return "table"
    return "groups" if equal >= set(tree.partition_by) else "buckets"


# --- Clauses as columns of a query ------------------------------------------------------------------------------------


def _old(table: IndexedTable, called: str) -> list[str]:
    """Return the table's columns, numbered."""
    return [f"{called}.{quote(field.name)} AS {OLD}c{number}" for number, field in enumerate(table.definition.fields)]


def _when(clauses: Sequence[s.MergeClause], number: int, value: str) -> str:
    """Return a value where a clause is the first whose condition holds, and null elsewhere."""
    before = "".join(f"WHEN ({clause.condition}\n) THEN NULL " for clause in clauses[:number])
    condition = clauses[number].condition
    return f"CASE {before}WHEN ({'true' if condition is None else condition}\n) THEN ({value}\n) END"


def _clause_number(clauses: Sequence[s.MergeClause]) -> str:
    branches = "".join(f"WHEN ({clause.condition or 'true'}\n) THEN {n} " for n, clause in enumerate(clauses))
    return f"CASE {branches}END AS {_CLAUSE}"


def _values(table: IndexedTable, clauses: Sequence[s.MergeClause]) -> list[str]:
    columns = []
    for number, clause in enumerate(clauses):
        names = [_column(table, name) for name, _value in clause.assignments or ()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidInput(f"The column {twice!r} is set twice.", hint="Set it once.")
        for position, (_name, value) in enumerate(clause.assignments or ()):
            text = "NULL" if value.strip().upper() == "DEFAULT" else value
            columns.append(f"{_when(clauses, number, text)} AS {_VALUE}{number}_{position}")
    return columns


def _changed(table: IndexedTable, rows: DataFrame, clauses: Sequence[s.MergeClause]) -> DataFrame:
    """Return the rows as they are to be, with what becomes of them, and the old values that are compared."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    numbers = {field.name: number for number, field in enumerate(table.schema.fields)}
    of_target = f"{OLD}c0" in types
    clause = F.col(_CLAUSE) if _CLAUSE in types else F.lit(0)
    action = F.lit(None).cast("string")
    for number, one in enumerate(clauses):
        action = F.when(clause == number, F.lit(one.action)).otherwise(action)
    columns = []
    for field in table.schema.fields:
        value = F.col(f"{OLD}c{numbers[field.name]}") if of_target else F.lit(None).cast(field.dataType)
        for number, one in enumerate(clauses):
            names = [_column(table, name) for name, _text in one.assignments or ()]
            if field.name in names:
                name = f"{_VALUE}{number}_{names.index(field.name)}"
                value = F.when(clause == number, stored(F.col(name), types[name], field)).otherwise(value)
        columns.append(value.alias(field.name))
    old = [
        (F.col(f"{OLD}c{numbers[name]}") if of_target else F.lit(None).cast(table.schema[name].dataType)).alias(
            OLD + name
        )
        for name in compared(table.snapshot.data)
    ]
    return rows.select(*columns, action.alias(ACTION), *old)
