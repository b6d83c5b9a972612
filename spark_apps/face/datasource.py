"""The Python data source ``indexed``: tables for those who only write SQL, with filters pushed down to the indexes.

Spark runs it in Python workers which have no Spark session: planning is that of
:mod:`spark_apps.query.planning` as far as it goes without one, and rows are read by Arrow. Made by
:func:`spark_apps.register_data_source`; needs Spark 4.0, and 4.1 for filters.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_apps.face.opening import Place, open_table
from spark_apps.mergetree.blockfiles import block_format, store_options
from spark_apps.mergetree.foreign import THROUGH, values_of
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.type_text import type_of
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.query.filters import predicate_of, text_of
from spark_apps.query.planning import ReadPlan, plan_predicate, plan_read
from spark_apps.query.predicates import And, Predicate, parse_predicate, reasons
from spark_apps.storage.errors import InvalidPredicate, InvalidSchema, UnsupportedSource
from spark_apps.timeline.files import DataFile

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
        """The columns of the table, all of which take null, as with ``read``.

        :raises UnsupportedSource: naming what cannot be read this way. :raises TableNotFound:
        """
        snapshot = self._snapshot()
        _where(snapshot, Place.of(self.options).where)
        if snapshot.table.source is None:
            self._version = snapshot.state.version
        return T.StructType([T.StructField(field.name, field.dataType, True) for field in snapshot.data.schema])

    def reader(self, schema: T.StructType) -> IndexedReader:
        """Reads all columns of ``schema``: Spark does not tell which of them a query needs."""
        snapshot = self._snapshot()
        place = Place.of(self.options)
        return IndexedReader(snapshot, _checked(snapshot, schema), place.where)

    def _snapshot(self) -> Snapshot:
        snapshot = open_table(Place.of(self.options), self._version)
        _check_readable(snapshot)
        return snapshot


class _Part(InputPartition):
    """Some file groups, each with its files in merge order."""

    def __init__(self, groups: Sequence[Sequence[ArrowFile]]) -> None:
        super().__init__(None)
        self.groups = tuple(map(tuple, groups))

    def __repr__(self) -> str:
        return f"{len(self.groups)} file groups"


class _Pushing:
    """``pushFilters`` in a form that Spark takes also where filters are not pushed: there it refuses a reader that
    overrides the method, which it tells by ``__func__``."""

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
        self._exact = _where(snapshot, where)
        self._predicate, self._text = self._exact, where
        self._pushed = False
        self._options = store_options(snapshot)
        table = snapshot.table
        self._types = {field.name: field.type for field in table.fields}
        self._key = table.record_key if table.source is None else ()
        self._ordering = table.ordering_column if table.merge_by == "ordering" else None
        self._stored = dict(snapshot.data.stored_names)
        self._foreign = table.source is not None

    def __getstate__(self) -> dict[str, Any]:
        # Readers go to every task; the log's state stays where the query is planned.
        return {**self.__dict__, "_snapshot": None}

    @property
    def pushFilters(self) -> Any:
        """Called with the filters of a query if Spark pushes them."""
        return _Pushing(self)

    def push(self, filters: Sequence[Any]) -> Sequence[Any]:
        """Takes the filters of a query. All are handed back, for Spark to apply to the rows as well.

        Up to some version Spark hands the files that were found for one query to all others of the same frame or view,
        filtered otherwise or not at all, and a reader cannot tell; so there filters prune nothing.
        """
        self._pushed = True
        pushed = predicate_of(filters, self._types)
        if pushed is not None and KEPT_WITH_SCAN:
            self._predicate = pushed if self._exact is None else And((self._exact, pushed))
            self._text = " AND ".join([*([] if self._text is None else [self._text]), *map(text_of, filters)])
        return filters

    def partitions(self) -> list[InputPartition]:
        plan = self.plan()
        if plan.predicate is None:
            logger.warning("%s is read whole: %s", plan.snapshot.store.uri, self._why())
        snapshot = plan.snapshot
        groups = [[_described(snapshot, plan, file) for file in files] for files in plan.files().values()]
        if snapshot.foreign is not None:
            snapshot.foreign.check([one.file for files in groups for one in files])
        return list(_parts(groups)) or [_Part(())]

    def plan(self) -> ReadPlan:
        """What is read, by the filters that are known."""
        assert self._snapshot is not None
        if self._predicate is None or self._text is None:
            return plan_read(self._snapshot)
        return plan_predicate(self._snapshot, self._text, self._predicate)

    def _why(self) -> str:
        """Why nothing is pruned."""
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
        rows = ArrowRows(self._shape(), _arrow_schema(self._schema), self._options)
        for files in partition.groups:
            yield from rows.read(files)

    def _shape(self) -> ArrowShape:
        return ArrowShape(
            tuple(self._schema.names), self._types, self._key, self._ordering, self._stored, self._foreign,
            self._predicate, self._exact,
        )  # fmt: skip


def _described(snapshot: Snapshot, plan: ReadPlan, file: DataFile) -> ArrowFile:
    attached = {} if snapshot.table.source is None else values_of(snapshot, file)
    blocks = plan.blocks.get(file.lineage)
    form = block_format(snapshot, file)
    assert form is not None  # or it was declined
    return ArrowFile(file, snapshot.store.spark_path(file.path), form, attached, blocks)


def _parts(groups: Iterable[Sequence[ArrowFile]]) -> Iterator[_Part]:
    """Groups together so that no task is tiny."""
    taken: list[Sequence[ArrowFile]] = []
    size = 0
    for files in groups:
        taken.append(files)
        size += sum(one.file.bytes for one in files)
        if size >= _PART_BYTES:
            yield _Part(taken)
            taken, size = [], 0
    if taken:
        yield _Part(taken)


# --- what it takes ------------------------------------------------------------------------------------------------


def _check_readable(snapshot: Snapshot) -> None:
    """:raises UnsupportedSource: naming what only Spark can read."""
    table = snapshot.table
    for field in table.fields:
        if type_of(field.type) is None:
            raise UnsupportedSource(
                f"The column {field.name!r} of type {field.type} cannot be read by the data source {NAME!r}.",
                hint=_INSTEAD,
            )
    if table.source is None:
        return
    for file in snapshot.state.files(snapshot.data.name):
        if block_format(snapshot, file) is None:
            through = (file.extra or {}).get(THROUGH)
            why = f"{file.path} is read through {through}" if through else f"its files are {table.source.format}"
            raise UnsupportedSource(
                f"The source {table.source.location} cannot be read by the data source {NAME!r}: {why}.", hint=_INSTEAD
            )


def _where(snapshot: Snapshot, where: str | None) -> Predicate | None:
    """The predicate of the option ``where``.

    :raises InvalidPredicate: if it cannot be decided without Spark. :raises UnknownColumn:
    """
    if where is None:
        return None
    predicate = parse_predicate(where, {field.name: field.type for field in snapshot.table.fields})
    unclear = reasons(predicate)
    if unclear:
        raise InvalidPredicate(
            f"The option 'where' is {where!r}, of which only Spark can tell: {'; '.join(unclear[:3])}.", hint=_INSTEAD
        )
    return predicate


def _checked(snapshot: Snapshot, schema: T.StructType) -> T.StructType:
    """The columns wanted, by the table's own names and types.

    :raises UnknownColumn: :raises InvalidSchema: if a type is another one.
    """
    names = resolve(schema.names, snapshot.data.columns, "The schema")
    own = snapshot.data.schema
    for name, given in zip(names, schema, strict=True):
        if given.dataType.simpleString() != own[name].dataType.simpleString():
            raise InvalidSchema(
                f"The schema gives the column {name!r} the type {given.dataType.simpleString()}, and the table's is "
                f"{own[name].dataType.simpleString()}.",
                hint="Leave the schema out, or name some of the table's columns with their types.",
            )
    return T.StructType([T.StructField(name, own[name].dataType, True) for name in names])


def _arrow_schema(schema: T.StructType) -> Any:
    """The Arrow schema that Spark expects of a Python data source."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.1 the zone could not be given
        found = to_arrow_schema(schema)
        utc = pa.timestamp("us", "UTC")
        zoned = [field.with_type(utc) if getattr(field.type, "tz", None) else field for field in found]
        return pa.schema(zoned)


# --- what it says -------------------------------------------------------------------------------------------------


def _pushdown() -> bool | None:
    """Whether Spark pushes filters, where that can be told: planning without filters knows it in a variable of its
    own."""
    frame = sys._getframe()
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
        if "enable_pushdown" in frame.f_locals:
            return bool(frame.f_locals["enable_pushdown"])
    return None
