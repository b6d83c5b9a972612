"""The Python data source ``indexed``: tables for those who only write SQL, with filters pushed down to the indexes.

Spark runs it in Python workers which have no Spark session: planning is that of
:mod:`spark_apps.query.planning` as far as it goes without one, and rows are read by Arrow. Made by
:func:`spark_apps.register_data_source`; needs Spark 4.0, and 4.1 for filters.

Filters that Spark hands over become the tree of :mod:`spark_apps.query.predicates`. Spark has cast literals to the
column's type before; what is not one column against values of its type becomes ``Opaque``. Spark applies every filter
to the rows again, so one that is not understood costs reading only. Filters are known by the names of their classes,
for older Sparks lack the classes.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T

from spark_apps.arrow_table import exact_filter, open_table
from spark_apps.layout.types import ColumnType, normalize, parse_type
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.arrow_reading import ArrowPart, ArrowPlan, arrow_plan, check_readable
from spark_apps.query.logged import Asked, keeps_log, note_query
from spark_apps.query.planning import ReadPlan, plan_read
from spark_apps.query.predicates import (
    NAN,
    And,
    Comparison,
    Filter,
    Fixed,
    In,
    IsNull,
    Not,
    Opaque,
    Predicate,
)
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, InvalidSchema, UnsupportedSource
from spark_apps.timeline.locations import Warehouse
from spark_apps.workload.query_log import QUERY_LOG

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    HAS_DATA_SOURCES = True
except ImportError:  # Spark 3.5, where a table is planned and read by the same classes, but not from SQL
    HAS_DATA_SOURCES = False

    class DataSource:  # type: ignore[no-redef]
        """Holds the options that a data source was given."""

        def __init__(self, options: Mapping[str, str]) -> None:
            self.options = options

    class DataSourceReader:  # type: ignore[no-redef]
        """Reads the partitions of a data source."""

    class InputPartition:  # type: ignore[no-redef]
        """Is one piece of what a reader reads."""

        def __init__(self, value: Any) -> None:
            self.value = value


_STORAGE = "storage."
_KNOWN = ("path", "where", "version", "as_of", "source_version", "index_root", "name", "warehouse")


@dataclass(frozen=True)
class ReadOptions:
    """The options of the data source: a table's location, its version, and a predicate.

    ``storage`` may hold secrets and is never shown.

    :param where: a predicate; the table has no other rows then.
    """

    path: str
    where: str | None = None
    version: int | None = None
    as_of: str | None = None
    source_version: str | None = None
    index_root: str | None = None
    name: str | None = None
    warehouse: str | None = None
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of a data source; case does not matter.

        :raises InvalidInput: naming an option that is not known.
        """
        given = {name.lower(): text for name, text in options.items()}
        storage = {name.removeprefix(_STORAGE): text for name, text in given.items() if name.startswith(_STORAGE)}
        rest = {name: text for name, text in given.items() if not name.startswith(_STORAGE)}
        stray = sorted(rest.keys() - set(_KNOWN))
        if stray:
            raise InvalidInput(
                f"The option {stray[0]!r} is not one of the data source.",
                hint=f"Known are: {', '.join(_KNOWN)}, and {_STORAGE}<key> for options of the store.",
            )
        if not rest.get("path"):
            raise InvalidInput("No table was given.", hint='Give its address: load("s3://bucket/table").')
        version = rest.pop("version", None)
        if version is not None and not version.isdigit():
            raise InvalidInput(f"The option 'version' is {version!r}.", hint="Give the number of a version.")
        return cls(version=None if version is None else int(version), storage=storage, **rest)


def open_snapshot(options: ReadOptions, version: int | None = None) -> Snapshot:
    """Return the snapshot of a table, without a Spark session.

    :param version: read this version if the options name none.
    :raises InvalidName: if the name is not one of a table.
    :raises TableNotFound: if there is no table.
    :raises VersionNotFound: if there is no such version.
    :raises SnapshotExpired: if the files of the version were cleaned.
    """
    warehouse = Warehouse(options.warehouse, options.storage, "the option 'warehouse'")
    pinned = options.version is not None or options.as_of is not None or options.source_version is not None
    return open_table(
        warehouse.locate(options.path), options.version if pinned else version, options.as_of, options.storage,
        source_version=options.source_version, index_root=options.index_root, name=options.name,
    ).snapshot  # fmt: skip


# --- The Python data source ``indexed`` -----------------------------------------------------------------------------


logger = logging.getLogger(__name__)

NAME = "indexed"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting for filters of Python data sources; off by default."""

KEPT_WITH_SCAN = hasattr(DataSourceReader, "pushLimit")
"""Whether Spark keeps what was pruned with the scan that it was pruned for; limits came to readers with that."""

_PART_BYTES = 32 * 1024 * 1024
_INSTEAD = "Use IndexedTable.load(spark, …).read(where), or a view made with create_view."


class IndexedDataSource(DataSource):
    """``spark.read.format("indexed").load(uri)``, or ``USING indexed OPTIONS (path …)`` in SQL.

    Options: ``path`` (an absolute path, a URI, or a name with ``warehouse``), ``where`` (a predicate: the frame has no
    other rows), ``version`` or ``as_of``, ``source_version``, ``index_root`` and ``name`` as in
    :meth:`~spark_apps.table.IndexedTable.load`, and ``storage.<key>`` for each key of the storage options. A DataFrame
    keeps the version that it was made at; that of a registered source shows the files that there were when Spark
    planned its reading.
    """

    _version: int | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> T.StructType:
        """Return the columns of the table, all of which take null, as with ``read``.

        :raises UnsupportedSource: naming what cannot be read this way.
        :raises TableNotFound: if there is no table.
        """
        snapshot = self._snapshot()
        _where(snapshot, ReadOptions.of(self.options).where)
        if snapshot.table.source is None:
            self._version = snapshot.state.version
        return T.StructType([T.StructField(field.name, field.dataType, True) for field in snapshot.data.schema])

    def reader(self, schema: T.StructType) -> IndexedReader:
        """Return what reads all columns of ``schema``: Spark does not say which of them a query needs."""
        snapshot = self._snapshot()
        options = ReadOptions.of(self.options)
        return IndexedReader(snapshot, _checked(snapshot, schema), options.where)

    def _snapshot(self) -> Snapshot:
        snapshot = open_snapshot(ReadOptions.of(self.options), self._version)
        with _hinting_at_a_session():
            check_readable(snapshot)
        return snapshot


class _Part(InputPartition):
    """Some parts of what is read.

    Spark hands the reader to its tasks as it was before it planned, so what is read is kept in the part.
    """

    def __init__(self, plan: ArrowPlan) -> None:
        super().__init__(None)
        self.plan = plan

    def __repr__(self) -> str:
        return f"{len(self.plan.parts)} parts"


class _Pushing:
    """``pushFilters`` in a form that Spark takes also where filters are not pushed.

    There it refuses a reader that overrides the method, which it knows by ``__func__``.
    """

    def __init__(self, reader: IndexedReader) -> None:
        self._reader = reader
        # An attribute of the object, not of the class: that would give a bound method.
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push(filters)


class IndexedReader(DataSourceReader):
    """Plans one query and reads its rows."""

    def __init__(self, snapshot: Snapshot, schema: T.StructType, where: str | None) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._schema = schema
        self._filter = self._exact = _where(snapshot, where)
        self._pushed = False
        self._types = snapshot.data.types

    def __getstate__(self) -> dict[str, Any]:
        # Readers go to every task; the log's state stays where the query is planned.
        return {**self.__dict__, "_snapshot": None}

    @property
    def pushFilters(self) -> Any:
        """Called with the filters of a query if Spark pushes them."""
        return _Pushing(self)

    def push(self, filters: Sequence[Any]) -> Sequence[Any]:
        """Take the filters of a query, and hand all back for Spark to apply to the rows as well.

        Up to some version Spark hands the files that were found for one query to all others of the same frame or view,
        filtered otherwise or not at all, which a reader cannot know; with these versions filters prune nothing.
        """
        self._pushed = True
        predicate = predicate_of(filters, self._types)
        if predicate is not None and KEPT_WITH_SCAN:
            pushed = Filter(predicate, " AND ".join(map(text_of, filters)), sql=False)
            self._filter = pushed if self._exact is None else self._exact & pushed
        return filters

    def partitions(self) -> list[InputPartition]:
        started = time.perf_counter()
        plan = self.plan()
        if keeps_log(plan.snapshot.table):
            note_query(plan, Asked(self._schema.names), started)
            QUERY_LOG.flush()  # this process is ended without a farewell
        if plan.where is None:
            logger.warning("%s is read whole: %s", plan.snapshot.store.uri, self._why_not_pruned())
        whole = arrow_plan(plan, self._schema.names, None if self._exact is None else self._exact.predicate)
        return [_Part(replace(whole, parts=parts)) for parts in _grouped(whole.parts)] or [_Part(whole)]

    def plan(self) -> ReadPlan:
        """Return what is read, by the filters that are known."""
        assert self._snapshot is not None
        return plan_read(self._snapshot, self._filter, self._schema.names)

    def _why_not_pruned(self) -> str:
        """Return why nothing is pruned."""
        if self._pushed:
            return (
                "this Spark would hand what is pruned for one query to all queries of the same frame, so a query's own "
                "filters prune nothing. Give the option where."
            )
        pushdown = _pushdown()
        if pushdown is False:
            instead = "Set it to true, or give the option where." if KEPT_WITH_SCAN else "Give the option where."
            return f"{PUSHDOWN} is off, so no index is used. {instead}"
        return "the query has no filter that Spark pushes down" + ("." if pushdown else f", or {PUSHDOWN} is off.")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, _Part):
            return
        for part in partition.plan.parts:
            yield from partition.plan.read(part)


def _grouped(parts: Iterable[ArrowPart]) -> Iterator[tuple[ArrowPart, ...]]:
    """Yield groups of what is read, so that no task is tiny."""
    together: list[ArrowPart] = []
    for part in parts:
        together.append(part)
        if sum(one.bytes for one in together) >= _PART_BYTES:
            yield tuple(together)
            together = []
    if together:
        yield tuple(together)


# --- what it takes ------------------------------------------------------------------------------------------------


def _where(snapshot: Snapshot, where: str | None) -> Filter | None:
    with _hinting_at_a_session():
        return exact_filter(snapshot, where, "The option 'where'")


@contextmanager
def _hinting_at_a_session() -> Iterator[None]:
    """Give errors over what only Spark can read the hint to use the table in a session.

    :raises InvalidPredicate: if a predicate cannot be decided without Spark.
    :raises UnsupportedSource: naming what only Spark can read.
    """
    try:
        yield
    except (InvalidPredicate, UnsupportedSource) as error:
        if type(error) not in (InvalidPredicate, UnsupportedSource):
            raise
        raise type(error)(error.message, hint=_INSTEAD) from error


def _checked(snapshot: Snapshot, schema: T.StructType) -> T.StructType:
    """Return the columns wanted, by the table's own names and types.

    :raises UnknownColumn: if a name is that of no column of the table.
    :raises InvalidSchema: if a type is another one.
    """
    names = resolve(schema.names, snapshot.data.columns, "The schema")
    declared = snapshot.data.schema
    for name, given in zip(names, schema, strict=True):
        if given.dataType.simpleString() != declared[name].dataType.simpleString():
            raise InvalidSchema(
                f"The schema gives the column {name!r} the type {given.dataType.simpleString()}, and the table's is "
                f"{declared[name].dataType.simpleString()}.",
                hint="Leave the schema out, or name some of the table's columns with their types.",
            )
    return T.StructType([T.StructField(name, declared[name].dataType, True) for name in names])


# --- what it says -------------------------------------------------------------------------------------------------


def _pushdown() -> bool | None:
    """Return whether Spark pushes filters, ``None`` where that is not known.

    Planning without filters knows it in a variable of its own.
    """
    frame = sys._getframe()
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
        if "enable_pushdown" in frame.f_locals:
            return bool(frame.f_locals["enable_pushdown"])
    return None


# --- Spark's filters --------------------------------------------------------------------------------------------------


_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_WORDS = {"StringStartsWith": "starts with", "StringEndsWith": "ends with", "StringContains": "contains"}


class _UnsupportedFilter(Exception):
    """A filter that is not a column against values of its type; the message says why."""


def predicate_of(filters: Iterable[Any], schema: Mapping[str, str]) -> Predicate | None:
    """Return some filters as one predicate, ``None`` if there are none.

    :param filters: of ``pyspark.sql.datasource``.
    :param schema: the table's columns and their Spark types.
    """
    types = {name: parse_type(text) for name, text in schema.items()}
    parts = tuple(_predicate(pushed, types) for pushed in filters)
    return None if not parts else parts[0] if len(parts) == 1 else And(parts)


def text_of(pushed: Any) -> str:
    """Return a filter as text for people."""
    kind = type(pushed).__name__
    if kind == "Not":
        return f"NOT ({text_of(pushed.child)})"
    name = ".".join(getattr(pushed, "attribute", ("?",)))
    if kind in ("IsNull", "IsNotNull"):
        return f"{name} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL"
    if kind == "In":
        return f"{name} IN ({', '.join(map(repr, pushed.value))})"
    return f"{name} {_OPERATORS.get(kind) or _WORDS.get(kind, kind)} {getattr(pushed, 'value', '')!r}"


def _predicate(pushed: Any, types: Mapping[str, ColumnType]) -> Predicate:
    if type(pushed).__name__ == "Not":
        return Not(_predicate(pushed.child, types))
    try:
        return _atom(pushed, types)
    except _UnsupportedFilter as unsupported:
        names = frozenset(getattr(pushed, "attribute", ())[:1]) & types.keys()
        return Opaque(text_of(pushed), names or frozenset(types), str(unsupported))


def _atom(pushed: Any, types: Mapping[str, ColumnType]) -> Predicate:
    kind = type(pushed).__name__
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(path) != 1 or path[0] not in types:
        raise _UnsupportedFilter("a nested field is not looked into")
    name = path[0]
    if kind in ("IsNull", "IsNotNull"):
        return IsNull(name) if kind == "IsNull" else Not(IsNull(name))
    if kind == "In":
        values = [_value(value, types[name]) for value in pushed.value if value is not None]
        return In(name, frozenset(values), len(values) < len(pushed.value))
    if kind not in _OPERATORS:
        raise _UnsupportedFilter("it is not a comparison of a column with literals")
    if pushed.value is None:
        return IsNull(name) if kind == "EqualNullSafe" else Fixed(None, frozenset((name,)))
    return Comparison(name, _OPERATORS[kind], _value(pushed.value, types[name]))


def _value(value: Any, kind: ColumnType) -> Any:
    if kind.kind in ("other", "char"):
        raise _UnsupportedFilter(f"values of type {kind.text} are not compared")
    try:
        normalized = normalize(value, kind)
    except InvalidSchema as error:
        raise _UnsupportedFilter(f"{value!r} is no value of type {kind.text}") from error
    return NAN if isinstance(normalized, float) and math.isnan(normalized) else normalized
