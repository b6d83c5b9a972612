"""A table opened to be read in this process: no Spark, no JVM, rows as Arrow.

Planning is that of :mod:`spark_apps.query.planning`, as far as it goes without a session, and rows are read and merged
by :mod:`spark_apps.query.arrow_rows`. A predicate means here what it means to Spark; what cannot be judged exactly
without Spark is refused by name and never guessed. Only what is asked for is read: of a table on an object store, the
footers and the row groups that can hold such rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark_apps.actions import register
from spark_apps.actions.template import TableHandle
from spark_apps.indexes.keyed.matching import keys_from_arrow, kinds_of, normalize_column
from spark_apps.layout.types import nested_arrow_type
from spark_apps.mergetree.blocks import access_options, block_format
from spark_apps.mergetree.external_files import THROUGH, attached_values
from spark_apps.mergetree.read import positions_of_keys
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import NO_SPARK, Snapshot, Tree
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.query.explain import (
    Explanation,
    HistoryEntry,
    IndexInfo,
    IndexStatus,
    PartitionInfo,
    explain_plan,
    history_of,
    indexes_of,
    partitions_of,
    status_of,
    view_table,
)
from spark_apps.query.planning import ReadPlan, plan_read
from spark_apps.query.predicates import And, Comparison, Fixed, In, Or, Predicate, reasons
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, UnsupportedSource
from spark_apps.storage.printing import Printed, ResultList, ResultMap, View
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import TableDefinition

_BY_SPARK = "Use IndexedTable.load(spark, …).read(where)."


def open_table(
    uri: str | os.PathLike[str],
    version: int | None = None,
    as_of: str | datetime | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    source_version: str | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    index_root: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> OpenTable:
    """Open a table to read it in this process, without Spark: at its newest version, or as of one or an instant.

    :param uri: of the table, or of a registered source: a local path or a URI.
    :param as_of: an instant, ISO 8601 (UTC without a time zone) or a ``datetime``.
    :param options: of the store; see :class:`~spark_apps.storage.store.Store`.
    :param source_version: of a registered Delta or Iceberg table its own version or snapshot id.
    :param storage_options: of the store that holds the source, if not ``options``.
    :param index_root: and ``name``: as given when the source was registered.
    :raises InvalidInput: if ``source_version`` is given together with one of the others.
    :raises TableNotFound: if there is no table.
    :raises VersionNotFound: if there is no such version.
    :raises SnapshotExpired: if the version has expired.
    """
    timeline = register.open_log(NO_SPARK, uri, options, index_root, name)
    handle = TableHandle(NO_SPARK, timeline, options if storage_options is None else storage_options)
    if source_version is not None:
        if version is not None or as_of is not None:
            raise InvalidInput("source_version was given with version or as_of.", hint="Give one of them.")
        return OpenTable(handle, register.at_source_version(handle, source_version))
    if version is not None or as_of is not None:
        return OpenTable(handle, register.at_log_version(handle, version, as_of))
    return OpenTable(handle, handle.snapshot())


class OpenTable(Printed):
    """A keyed table, or a registered source, at one version, to be read. Made by :func:`open_table`.

    Several threads may read one object.
    """

    def __init__(self, handle: TableHandle, snapshot: Snapshot) -> None:
        self._handle = handle
        self._snapshot = snapshot

    # --- the version shown --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"OpenTable({self.uri!r}, version={self.version})"

    def view(self) -> View:
        return view_table(self.uri, self._snapshot.state)

    @property
    def uri(self) -> str:
        return self._handle.timeline.store.uri

    @property
    def version(self) -> int:
        return self._snapshot.state.version

    @property
    def definition(self) -> TableDefinition:
        return self._snapshot.table

    @property
    def snapshot(self) -> Snapshot:
        """The version that the object shows, for the layers above."""
        return self._snapshot

    @property
    def schema(self) -> Any:
        """The columns as a ``pyarrow.Schema``; a timestamp with a zone is in UTC."""
        return arrow_schema(self._snapshot, self._snapshot.data.columns)

    @property
    def partitions(self) -> ResultMap[PartitionInfo]:
        """Partition path ("" without partition columns) -> bucket count and live files."""
        return partitions_of(self._snapshot.state)

    @property
    def indexes(self) -> ResultMap[IndexInfo]:
        """The indexes that were created by name."""
        return indexes_of(self._snapshot.state)

    def index_status(self, name: str) -> IndexStatus:
        """Return what an index covers, how large it is, and when it was brought up to date.

        :raises IndexNotFound: if there is none of that name.
        """
        return status_of(self._handle.timeline, self._snapshot.state, name)

    def history(self) -> ResultList[HistoryEntry]:
        """Return all commits up to this version, oldest first."""
        return history_of(self._handle.timeline, self.version)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def read(self, where: str | None = None, columns: Sequence[str] | None = None) -> Any:
        """Return the rows that satisfy a predicate as a ``pyarrow.Table``.

        :param where: what stands after WHERE in Spark's SQL; all rows without. :param columns: which, in their order.
        :raises InvalidPredicate: if the predicate cannot be judged exactly without Spark; it says why.
        :raises UnknownColumn: for a column that the table does not have.
        :raises StorageError: naming a file that is gone or damaged.
        :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
        """
        return self.batches(where, columns).read_all()

    def batches(self, where: str | None = None, columns: Sequence[str] | None = None) -> Any:
        """Return what :meth:`read` does as a ``pyarrow.RecordBatchReader``, which reads on as it is asked.

        Held in memory are some row groups, and the deltas of the file group that is read.

        :param where: and ``columns``: as of :meth:`read`.
        """
        import pyarrow as pa

        _check_readable(self._snapshot)
        query = self._query(where, columns)
        schema = arrow_schema(self._snapshot, query.names)
        return pa.RecordBatchReader.from_batches(schema, query_batches(query.plan(), query.names, query.predicate))

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of some record keys as a ``pyarrow.Table``, in no order; keys that are not there give none.

        :param keys: Python values, one each or tuples; an Arrow array (of a key of one column); or an Arrow table whose
            columns are those of the key.
        :param columns: which, in their order.
        :raises InvalidInput: if the table has no record key.
        :raises InvalidSchema: if a key is not one.
        """
        import pyarrow as pa

        from spark_apps.indexes.keyed.record import keys_of

        _check_readable(self._snapshot)
        tree = self._snapshot.data
        if not tree.key:
            raise InvalidInput("The table has no record key.", hint="Use read(where).")
        names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
        wanted = keys_of(tree, tree.key, keys)
        needed = tuple(dict.fromkeys([*names, *tree.key]))
        predicate = _predicate_of_keys(tree, wanted)
        plan = plan_read(self._snapshot, None if predicate is None else "record keys", predicate=predicate)
        parts = [arrow_schema(self._snapshot, needed).empty_table()]
        parts += _rows_with_keys(tree, query_batches(plan, needed, None), wanted)
        return pa.concat_tables(parts).select(list(names))

    def explain(self, where: str | None = None, columns: Sequence[str] | None = None) -> Explanation:
        """Return how :meth:`read` would answer: index used, files and bytes read and skipped, why not the others.

        :param where: and ``columns``: as of :meth:`read`.
        """
        query = self._query(where, columns)
        return explain_plan(query.plan(), query.names)

    def _query(self, where: str | None, columns: Sequence[str] | None) -> _Query:
        tree = self._snapshot.data
        names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
        return _Query(self._snapshot, where, exact_predicate(self._snapshot, where), names)


@dataclass(frozen=True)
class _Query:
    snapshot: Snapshot
    where: str | None
    predicate: Predicate | None
    names: tuple[str, ...]

    def plan(self) -> ReadPlan:
        return plan_read(self.snapshot, self.where, predicate=self.predicate)


def exact_predicate(snapshot: Snapshot, where: str | None, what: str = "The predicate") -> Predicate | None:
    """Return a predicate that is decided by the rows' values alone.

    :param what: who gave it, for the message.
    :raises InvalidPredicate: if it cannot be decided without Spark.
    :raises UnknownColumn: if a name is that of no column of the table.
    """
    if where is None:
        return None
    from spark_apps.query.parsing import parse_predicate

    predicate = parse_predicate(where, {field.name: field.type for field in snapshot.table.fields})
    unclear = reasons(predicate)
    if unclear:
        raise InvalidPredicate(
            f"{what} is {where!r}, of which only Spark can tell: {'; '.join(unclear[:3])}.", hint=_BY_SPARK
        )
    return predicate


def arrow_schema(snapshot: Snapshot, names: Sequence[str]) -> Any:
    """Return the Arrow schema of some columns, as Spark exchanges them; timestamps with a zone are in UTC."""
    import pyarrow as pa

    tree = snapshot.data
    return pa.schema([pa.field(name, nested_arrow_type(tree.type_of(name))) for name in names])


def query_batches(plan: ReadPlan, names: Sequence[str], exact: Predicate | None) -> Iterator[Any]:
    """Yield the rows that a plan reads, as record batches.

    :param names: the columns to give. :param exact: rows that do not satisfy it are left out.
    """
    snapshot = plan.snapshot
    table = snapshot.table
    groups = [[_described(plan, file) for file in files] for files in plan.files.values()]
    if snapshot.external is not None:
        snapshot.external.check([file.file for files in groups for file in files])
    shape = ArrowShape(
        columns=tuple(names),
        types={field.name: field.type for field in table.fields},
        key=table.record_key if table.source is None else (),
        ordering=table.ordering_column if table.merge_by == "ordering" else None,
        stored=dict(snapshot.data.stored_names),
        external=table.source is not None,
        predicate=plan.predicate,
        exact=exact,
    )
    rows = ArrowRows(shape, arrow_schema(snapshot, names), access_options(snapshot))
    for files in groups:
        yield from rows.read(files)


def _described(plan: ReadPlan, file: DataFile) -> ArrowFile:
    snapshot = plan.snapshot
    attached = {} if snapshot.table.source is None else attached_values(snapshot, file)
    form = block_format(snapshot, file)
    assert form is not None  # or it was refused
    return ArrowFile(file, snapshot.store.spark_path(file.path), form, attached, plan.blocks.get(file.lineage))


def _check_readable(snapshot: Snapshot) -> None:
    """Check that nothing in a table needs Spark's own reader.

    :raises UnsupportedSource: naming what only Spark can read.
    """
    table = snapshot.table
    for field in table.fields:
        if nested_arrow_type(field.type) is None:
            raise UnsupportedSource(
                f"The column {field.name!r} of type {field.type} cannot be read without Spark.", hint=_BY_SPARK
            )
    if table.source is None:
        return
    for file in snapshot.state.files(snapshot.data.name):
        if block_format(snapshot, file) is None:
            through = (file.extra or {}).get(THROUGH)
            why = f"{file.path} is read through {through}" if through else f"its files are {table.source.format}"
            raise UnsupportedSource(
                f"The source {table.source.location} cannot be read without Spark: {why}.", hint=_BY_SPARK
            )


# --- record keys ------------------------------------------------------------------------------------------------------

_MOST_ALTERNATIVES = 1_000
"""Up to so many keys of several columns are told one by one in a predicate; of more, the values of each column."""
_MOST_VALUES = 100_000
"""So many values of a column are told in a predicate at most; of more keys all rows are compared."""
_ROWS_AT_ONCE = 1_000_000


def _predicate_of_keys(tree: Tree, keys: Any) -> Predicate | None:
    """Return a predicate that holds for all rows with one of these keys, and perhaps for others.

    ``None`` if they are too many, or hold values that Python does not know.
    """
    if keys.num_rows > _MOST_VALUES:
        return None
    try:
        listed = [key for key in keys_from_arrow(keys, tree, tree.key) if None not in key]
    except (OverflowError, ValueError):
        return None
    if not listed:
        return Fixed(False)
    if len(tree.key) > 1 and len(listed) <= _MOST_ALTERNATIVES:
        alternatives = tuple(
            And(tuple(Comparison(name, "=", value) for name, value in zip(tree.key, key, strict=True)))
            for key in dict.fromkeys(listed)
        )
        return alternatives[0] if len(alternatives) == 1 else Or(alternatives)
    parts = tuple(In(name, frozenset(values)) for name, values in zip(tree.key, zip(*listed, strict=True), strict=True))
    return parts[0] if len(parts) == 1 else And(parts)


def _rows_with_keys(tree: Tree, batches: Iterator[Any], keys: Any) -> Iterator[Any]:
    """Yield the rows whose key is among some, as tables."""
    import pyarrow as pa

    kinds = kinds_of(tree, tree.key)
    compared = pa.table(
        [normalize_column(keys.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)],
        names=list(tree.key),
    )
    waiting: list[Any] = []

    def matching() -> Any:
        rows = pa.Table.from_batches(waiting)
        columns = [normalize_column(rows.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)]
        return rows.take(positions_of_keys(pa.table(columns, names=list(tree.key)), compared, tree.key))

    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS_AT_ONCE:
            yield matching()
            waiting.clear()
    if waiting:
        yield matching()
