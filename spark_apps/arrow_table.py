"""A table opened to be read in this process: no Spark, no JVM, rows as Arrow.

Planning is that of :mod:`spark_apps.query.planning`, as far as it goes without a session, and rows are read and merged
by :mod:`spark_apps.query.arrow_reading`. A predicate means what it means to Spark; what cannot be judged exactly
without Spark is refused by name and never guessed. Only what is asked for is read: of a table on an object store, the
footers and the row groups that can hold such rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_apps.actions import register
from spark_apps.actions.template import TableHandle
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.indexes.handler import VerificationReport
from spark_apps.indexes.keyed.matching import keys_from_arrow, kinds_of, normalize_column
from spark_apps.mergetree.schema import quote, resolve
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.query.arrow_dataset import arrow_dataset
from spark_apps.query.arrow_reading import BY_SPARK, arrow_plan, arrow_schema
from spark_apps.query.arrow_verify import verify_entries
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
from spark_apps.query.limits import ALWAYS_KEYS, MAX_LOOKUP_KEYS, MIN_ROWS_PER_LOOKUP_KEY
from spark_apps.query.logged import Asked, note_query
from spark_apps.query.planning import ReadPlan, plan_read
from spark_apps.query.predicate_text import lines_of_predicate
from spark_apps.query.predicates import Filter, Fixed, Predicate, predicate_of_keys, reasons
from spark_apps.query.wanted_keys import WantedKeys, keys_by_group
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, InvalidPredicate
from spark_apps.storage.parameters import Parameters, bind_where
from spark_apps.storage.printing import Printed, ResultList, ResultMap, View
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import TableDefinition
from spark_apps.timeline.reader_roots import with_warehouse

if TYPE_CHECKING:
    from spark_apps.actions.erasure import ErasureReport
    from spark_apps.advisor.advice import Advice
    from spark_apps.workload.asked import AskedQuery, Workload


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
    time_zone: str | None = None,
    warehouse: str | os.PathLike[str] | None = None,
) -> OpenTable:
    """Open a table to read it in this process, without Spark, at its newest or an earlier version.

    ::

        rows = open_table("s3://lake/trips", version=7).read("city = 'Oslo'", ["id", "fare"])

    :param uri: the address of the table, or of a registered source: a local path or a URI; or the name of a registered
        table of a catalog. Its rows are then read by the catalog of that name in pyiceberg's configuration.
    :param warehouse: the folder that knows such names.
    :param as_of: an instant, ISO 8601 (UTC without a time zone) or a ``datetime``.
    :param options: of the store; see :class:`~spark_apps.storage.store.Store`.
    :param source_version: the version or snapshot id of a registered Delta or Iceberg table.
    :param storage_options: options of the store with the source, if they are not ``options``.
    :param index_root: and ``name``: as they were given when the source was registered.
    :param time_zone: the zone of times without one in predicates, as ``spark.sql.session.timeZone``:
        ``"Europe/Berlin"``, ``"+02:00"``; ``TIMESTAMP`` then is the type with a zone. Without ``time_zone``, such
        times are refused.
    :raises InvalidInput: for an unknown time zone; if ``source_version`` is given together with one of the others.
    :raises TableNotFound: if there is no table.
    :raises VersionNotFound: if there is no such version.
    :raises SnapshotExpired: if the version has expired.
    """
    if time_zone is not None:
        _check_time_zone(time_zone)
    known = None if warehouse is None else Warehouse(os.fspath(warehouse), dict(options or {}))
    timeline = register.open_log(NO_SPARK, uri, options, index_root, name, known)
    read_with = options if storage_options is None else storage_options
    handle = TableHandle(NO_SPARK, timeline, read_with if known is None else with_warehouse(read_with, known.root))
    if source_version is not None:
        if version is not None or as_of is not None:
            raise InvalidInput("source_version was given with version or as_of.", hint="Give one of them.")
        return OpenTable(handle, register.at_source_version(handle, source_version), time_zone)
    if version is not None or as_of is not None:
        return OpenTable(handle, register.at_log_version(handle, version, as_of), time_zone)
    return OpenTable(handle, handle.snapshot(), time_zone)


def opened_log(
    timeline: Timeline, storage_options: Mapping[str, Any] | None = None, time_zone: str | None = None
) -> OpenTable:
    """Return the table of a log that was read, at its newest version.

    :param storage_options: of the store that holds a registered source, if not those of the log's.
    :param time_zone: as of :func:`open_table`.
    :raises InvalidInput: if the time zone is not known.
    """
    if time_zone is not None:
        _check_time_zone(time_zone)
    options = getattr(timeline.store, "options", None) if storage_options is None else storage_options
    handle = TableHandle(NO_SPARK, timeline, options)
    return OpenTable(handle, handle.snapshot(), time_zone)


class OpenTable(Printed):
    """A keyed table or a registered source at one version, for reading. Made by :func:`open_table`.

    Several threads may use one object.
    """

    def __init__(self, handle: TableHandle, snapshot: Snapshot, time_zone: str | None = None) -> None:
        self._handle = handle
        self._snapshot = snapshot
        self._time_zone = time_zone

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
        """Return what an index covers, how large it is, and when it was last refreshed.

        :raises IndexNotFound: if there is no index of this name.
        """
        return status_of(self._handle.timeline, self._snapshot.state, name)

    def verify(self, name: str) -> VerificationReport:
        """Compare an index with all rows that it covers.

        All rows and entries are held in memory, so this is for tables of a few million rows.

        :param name: the name of the index.
        :returns: what agrees and what differs.
        :raises IndexNotFound: if there is no index of this name.
        :raises InvalidInput: for an index that only Spark can compare: over keys of a registered source or over
            expressions, placed by a hash function in SQL, or of a kind that is compared in Spark only.
        :raises UnsupportedSource: naming a file of a source that only Spark reads correctly.
        :raises StorageError: if a file of the table is missing or damaged.
        """
        return verify_entries(self._snapshot, name)

    def verify_erasure(
        self,
        where: str | None = None,
        *,
        values: Iterable[str | bytes] = (),
        parameters: Parameters | None = None,
    ) -> ErasureReport:
        """Search every file below the table's folder for values of rows that were erased.

        It reads all bytes of the folder, older versions included, in this process.

        :param where: the predicate by which the rows were deleted: the values that it compares columns with by ``=``
            or ``IN`` are looked for.
        :param parameters: of the predicate, as in :meth:`read`.
        :param values: further texts that only those rows held.
        :returns: the files that hold one, by place, and what removes a value from there; ``report.ok``.
        :raises InvalidPredicate: if neither names a value.
        """
        from spark_apps.actions.erasure import verify_erasure

        return verify_erasure(self._snapshot, bind_where(where, parameters), values)

    def history(self) -> ResultList[HistoryEntry]:
        """Return all commits up to this version, oldest first."""
        return history_of(self._handle.timeline, self.version)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def read(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> Any:
        """Return the rows that satisfy a predicate as a ``pyarrow.Table``.

        :param where: a predicate in Spark's SQL; by default all rows.
        :param columns: the columns to return, in this order.
        :param parameters: name -> value, bound to ``:name`` in the predicate and never read as SQL.
        :raises InvalidPredicate: if the predicate cannot be evaluated exactly without Spark, saying why.
        :raises InvalidInput: for a parameter that is missing or unknown.
        :raises UnknownColumn: for a column that the table does not have.
        :raises StorageError: naming a file that is missing or damaged.
        :raises UnsupportedSource: naming what only Spark's own reader reads correctly.
        """
        started = time.perf_counter()
        reader, plan, names = self._batches(bind_where(where, parameters), columns)
        rows = reader.read_all()
        note_query(plan, Asked(names), started)
        return rows

    def batches(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> Any:
        """Return the same as :meth:`read`, as a ``pyarrow.RecordBatchReader`` that reads more when asked for more.

        Only some row groups, and the deltas of the file group that is being read, are in memory.

        :param where: and ``columns``, ``parameters``: as in :meth:`read`.
        """
        started = time.perf_counter()
        reader, plan, names = self._batches(bind_where(where, parameters), columns)
        note_query(plan, Asked(names), started)
        return reader

    def preview(self, where: str) -> Preview:
        """Return what a delete by a predicate would take, for a person who decides on it.

        Nothing of it goes into the query log.

        :param where: a predicate in Spark's SQL, without comments.
        :raises InvalidPredicate: if it cannot be evaluated exactly without Spark, or holds a comment.
        :raises UnknownColumn: for a column that the table does not have.
        """
        from spark_apps.query.parsing import check_no_comment

        check_no_comment(where)
        names = self.definition.record_key or self._snapshot.data.columns[:1]
        reader, plan, _ = self._batches(where, names)
        assert plan.predicate is not None
        rows = sum(batch.num_rows for batch in reader)
        files = sum(len(files) for files in plan.files.values())
        return Preview(tuple(lines_of_predicate(plan.predicate)), rows, files if rows else 0, self.version)

    def _batches(self, where: str | None, columns: Sequence[str] | None) -> tuple[Any, ReadPlan, Sequence[str]]:
        import pyarrow as pa

        names = self._names(columns)
        plan = plan_read(self._snapshot, self._filter(where), names)
        found = arrow_plan(plan, names, plan.predicate)
        return pa.RecordBatchReader.from_batches(found.schema, found.batches()), plan, names

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> Any:
        """Return the rows with some record keys as a ``pyarrow.Table``, in no particular order.

        :param keys: Python values (tuples for a key of several columns), an Arrow array (for a key of one column), or
            an Arrow table with the columns of the key. Keys that do not exist give no rows.
        :param columns: the columns to return, in this order.
        :raises InvalidInput: if the table has no record key.
        :raises InvalidSchema: if a value cannot be a key.
        """
        import pyarrow as pa

        from spark_apps.indexes.keyed.record import keys_of

        tree = self._snapshot.data
        if not tree.key:
            raise InvalidInput("The table has no record key.", hint="Use read(where).")
        names = self._names(columns)
        given = keys_of(tree, tree.key, keys)
        needed = tuple(dict.fromkeys([*names, *tree.key]))
        predicate = _predicate_of_keys(self._snapshot, given)
        started = time.perf_counter()
        where = None if predicate is None else Filter(predicate, "record keys", sql=False)
        plan = plan_read(self._snapshot, where, needed)
        wanted = _as_compared(tree, given)
        found = arrow_plan(plan, needed, None, wanted, keys_by_group(plan, wanted))
        rows = pa.Table.from_batches(found.batches(), found.schema).select(list(names))
        shape = None if predicate is not None else " AND ".join(f"{quote(name)} IN (?)" for name in tree.key)
        note_query(plan, Asked(names, shape=shape), started)
        return rows

    def explain(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        hypothetical: Sequence[Mapping[str, Any]] = (),
        *,
        parameters: Parameters | None = None,
    ) -> Explanation:
        """Return how :meth:`read` would answer: indexes used, files and bytes read and skipped, why not other indexes.

        :param where: and ``columns``, ``parameters``: as in :meth:`read`.
        :param hypothetical: indexes that are counted as if they were there, each with ``kind`` and ``columns``, and
            perhaps ``included``, ``properties`` and ``name``, as of
            :meth:`IndexedTable.create_index <spark_apps.table.IndexedTable.create_index>`. Their columns are read in a
            sample of file groups.
        :raises InvalidInput: (or a subclass) for a hypothetical index that ``create_index`` would refuse.
        :raises EnvironmentMismatch: where definitions of indexes cannot be checked, for pyspark is not installed.
        """
        names, asked = self._names(columns), self._filter(bind_where(where, parameters))
        if not hypothetical:
            return explain_plan(plan_read(self._snapshot, asked, names), names)
        _library("pyspark", "explain(hypothetical=…)", "leave hypothetical out, for a plan with the indexes there are")
        from spark_apps.advisor.hypothetical import explain_hypothetical

        return explain_hypothetical(self._snapshot, asked, names, hypothetical)

    def asked(self) -> Workload:
        """Return what was asked of the table, as far as its query log has it.

        It has shapes of predicates with their counts, indexes used, not used and why, and bytes that they saved. A
        log is kept where the property ``query_log`` says so; what other processes ask is in it some seconds later.

        :raises StorageUnavailable: if the store does not answer.
        """
        from spark_apps.workload.query_log import read_log

        return read_log(self._handle.timeline.store)

    def advise(
        self,
        workload: Workload | Iterable[AskedQuery] | None = None,
        budget: Mapping[str, Any] | None = None,
        *,
        most_bytes: int | None = None,
    ) -> Advice:
        """Return which indexes the table should have for what is asked of it, with the figures and the statements.

        Reads some columns of a sample of file groups. Nothing is done.

        :param workload: what was asked; what the table's own log of queries has, if not given.
        :param budget: ``bytes`` that indexes may hold in all (``"5GB"``; a third of the table's if not given, without a
            limit if ``None``), and ``minutes`` of upkeep a day (without a limit if not given).
        :param most_bytes: that the sample takes, about; 128 MiB if not given.
        :raises InvalidInput: for a budget or a workload that is none.
        :raises EnvironmentMismatch: where definitions of indexes cannot be checked, for pyspark is not installed.
        :raises UnsupportedSource: naming what of a source only Spark's own reader reads rightly.
        :raises StorageError: naming a file that is missing or damaged.
        """
        _library("pyspark", "advise", "asked() shows what was asked without it")
        from spark_apps.advisor.advice import advise
        from spark_apps.advisor.limits import MAX_BYTES

        return advise(self._snapshot, self._handle.timeline, workload, budget, most_bytes or MAX_BYTES)

    def to_pandas(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> Any:
        """Return the same as :meth:`read`, as a ``pandas.DataFrame`` whose columns are backed by Arrow.

        :param where: and ``columns``, ``parameters``: as in :meth:`read`.
        :raises EnvironmentMismatch: if pandas is not installed.
        """
        pandas = _library("pandas", "to_pandas")
        return self.read(where, columns, parameters=parameters).to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> Any:
        """Return the same as :meth:`read`, as a ``polars.DataFrame``.

        :param where: and ``columns``, ``parameters``: as in :meth:`read`.
        :raises EnvironmentMismatch: if polars is not installed.
        """
        return _library("polars", "to_polars").from_arrow(self.read(where, columns, parameters=parameters))

    def duckdb(self, connection: Any, name: str) -> None:
        """Make the table known to a DuckDB connection, for SQL over it.

        DuckDB pushes down some filters of a query (comparisons of columns with values, IN, IS NULL, joined by AND and
        OR). They are planned as by :meth:`read`, so indexes find the rows, and only the columns of the query are read.
        The SQL is DuckDB's, with DuckDB's meaning.

        :param connection: a ``duckdb.DuckDBPyConnection``.
        :param name: the name of the table in queries.
        """
        connection.register(name, arrow_dataset(self._snapshot))

    def _names(self, columns: Sequence[str] | None) -> Sequence[str]:
        declared = self._snapshot.data.columns
        return declared if columns is None else resolve(columns, declared, "columns")

    def _filter(self, where: str | None) -> Filter | None:
        return exact_filter(self._snapshot, where, time_zone=self._time_zone)


@dataclass(frozen=True)
class Preview:
    """Rows and files that a predicate takes of a version of a table, and the predicate as it was read, in lines."""

    lines: tuple[str, ...]
    rows: int
    files: int
    version: int


def exact_filter(
    snapshot: Snapshot, where: str | None, what: str = "The predicate", time_zone: str | None = None
) -> Filter | None:
    """Return a predicate that is decided by the rows' values alone.

    :param what: who gave it, for the message.
    :param time_zone: of times without one, if it is known.
    :raises InvalidPredicate: if it cannot be decided without Spark.
    :raises UnknownColumn: if a name is that of no column of the table.
    """
    if where is None:
        return None
    from spark_apps.query.parsing import parse_predicate

    types, timestamps = snapshot.data.types, None if time_zone is None else "timestamp"
    predicate = parse_predicate(where, types, time_zone=time_zone, timestamps=timestamps)
    unclear = reasons(predicate)
    if unclear:
        raise InvalidPredicate(
            f"{what} is {where!r}, of which only Spark can tell: {'; '.join(unclear[:3])}.", hint=BY_SPARK
        )
    return Filter(predicate, where)


def _check_time_zone(name: str) -> None:
    from spark_apps.query.parsing import zone_named

    if not isinstance(name, str) or zone_named(name) is None:
        raise InvalidInput(
            f"The time zone {name!r} is not known.",
            hint="Give a region, as 'Europe/Berlin', or an offset, as '+02:00'.",
        )


def _library(name: str, method: str, instead: str = "use read, which gives a pyarrow.Table") -> Any:
    """Return a library that is needed for one method alone.

    :param instead: what can be done without it, for the hint.
    :raises EnvironmentMismatch: if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise EnvironmentMismatch(
            f"{method} needs {name}, which is not installed: {error}.",
            hint=f"pip install {name}; or {instead}.",
        ) from error


# --- record keys ------------------------------------------------------------------------------------------------------


def _predicate_of_keys(snapshot: Snapshot, keys: Any) -> Predicate | None:
    """Return a predicate that holds for all rows with one of these keys, and perhaps for others.

    ``None`` if they are too many, or hold values that Python does not know.
    """
    tree = snapshot.data
    if keys.num_rows > ALWAYS_KEYS:
        rows = sum(file.rows for file in snapshot.state.files(tree.name))
        if keys.num_rows > min(MAX_LOOKUP_KEYS, rows // MIN_ROWS_PER_LOOKUP_KEY):
            return None
    try:
        listed = [key for key in keys_from_arrow(keys, tree, tree.key) if None not in key]
    except (OverflowError, ValueError):
        return None
    if not listed:
        return Fixed(False)
    return predicate_of_keys(tree.key, set(listed))


def _as_compared(tree: Tree, keys: Any) -> WantedKeys:
    """Return the keys of an Arrow table in the form in which they are compared, each column in one piece."""
    kinds = kinds_of(tree, tree.key)
    columns = {name: normalize_column(keys.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)}
    return WantedKeys(columns, kinds)
