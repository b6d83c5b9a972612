"""A table on the lake: rows written and read, indexes made and kept, all through one commit log.

It is thin on purpose: every method names an action of :mod:`spark_apps.actions` or a query of :mod:`spark_apps.query`
and hands on its receipt. A table object shows one version; it moves to the version that its own call committed, and
stays where it is while others commit, until it is loaded again.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from spark_apps.actions import hudi_indexing, hudi_rescale, register, take_over
from spark_apps.actions.bucket_rules import NewRules, Rollback, RuleChange, RuleVersion, rule_versions
from spark_apps.actions.compact_table import CompactTable
from spark_apps.actions.create import create, define
from spark_apps.actions.evolve_schema import (
    AddColumns,
    DropColumns,
    RenameColumn,
    SetProperties,
    SetPublished,
    WidenColumn,
)
from spark_apps.actions.rescale import Rescale, rescale
from spark_apps.actions.template import Action, Stage, TableHandle, run
from spark_apps.actions.write import (
    Delete,
    DropPartitions,
    DropTableAction,
    Insert,
    InsertOverwrite,
    Upsert,
    UpsertBatch,
)
from spark_apps.engine.hadoop_store import reach
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.spark_utils import over_connect
from spark_apps.layout.partitions import canonical
from spark_apps.layout.rules import BucketRules, Expressions
from spark_apps.mergetree.tree import ExternalFiles, Snapshot
from spark_apps.query.explain import (
    HistoryEntry,
    IndexInfo,
    IndexStatus,
    LocatedFile,
    PartitionInfo,
    history_of,
    indexes_of,
    locate_files,
    partitions_of,
    status_of,
    view_table,
)
from spark_apps.query.planning import filter_of
from spark_apps.query.predicates import translate_predicate_errors
from spark_apps.query.reading import read_rows
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.storage.parameters import Parameters, bind, bind_where
from spark_apps.storage.printing import Printed, ResultList, ResultMap, View
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning, restore, windows
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.delta.publishing import Published
from spark_apps.timeline.hudi_indexes import HudiIndexes, names_hudi
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS, WINDOW_SECONDS
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.model import Receipt, TableDefinition
from spark_apps.timeline.reader_roots import warehouse_root, with_warehouse
from spark_apps.timeline.state import State, Window
from spark_apps.workload.query_log import erased

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_apps.actions.erasure import ErasureReport
    from spark_apps.advisor.advice import Advice
    from spark_apps.indexes.handler import VerificationReport
    from spark_apps.indexes.included_columns import IncludedColumns
    from spark_apps.workload.asked import AskedQuery, Workload

logger = logging.getLogger(__name__)

DEFAULT_BUCKETS = 8


def _warehouse(
    spark: SparkSession, given: str | os.PathLike[str] | None, options: Mapping[str, Any] | None
) -> Warehouse | None:
    """Return the warehouse that a call names, else the one that its session is enabled with."""
    if given is not None:
        reach(spark, given)
        return Warehouse(os.fspath(given), dict(options or {}))
    if spark is NO_SPARK or over_connect(spark):
        return None
    from spark_apps.optimizer.session import enabled_warehouse

    enabled = enabled_warehouse(spark)
    return enabled if enabled is None or options is None else Warehouse(enabled.root, dict(options))


class IndexedTable(Printed):
    """A keyed table, or a registered source, with its indexes. Made by :meth:`create`, :meth:`register`, :meth:`load`.

    All writing methods take ``txn_id`` (a retry with the same id returns the first try's receipt and writes nothing)
    and ``window`` (the epoch of a stop-write window that the caller holds). They raise the subclasses of
    :class:`~spark_apps.storage.errors.CommitRefused`, and return a receipt whose ``version`` is ``None`` if there was
    nothing to do. The object shows one version, and moves on to the versions that its own calls commit.
    """

    def __init__(
        self, handle: TableHandle, state: State, pinned: bool = False, external: ExternalFiles | None = None
    ) -> None:
        self._handle = handle
        self._state = state
        self._pinned = pinned
        self._external = external

    # --- making and opening a table -----------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        schema: StructType | str | None = None,
        record_key: Sequence[str] = (),
        partition_by: Sequence[str] | None = None,
        ordering_column: str | None = None,
        merge_by: Literal["commit", "ordering"] = "commit",
        buckets: int | None = DEFAULT_BUCKETS,
        bucket_rule: str = "regex",
        bucket_expressions: Expressions | None = None,
        hash_fields: Sequence[str] | None = None,
        hash_function: str = "xxhash64",
        write_mode: Literal["merge_on_read", "copy_on_write"] = "merge_on_read",
        properties: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        txn_id: str | None = None,
        positions: bool = False,
        *,
        from_source: str | os.PathLike[str] | None = None,
        source_format: str | None = None,
        source_options: Mapping[str, object] | None = None,
        publish: Sequence[str] | None = None,
    ) -> IndexedTable:
        """Create a table, with ``from_source`` from the rows of another table, which is not changed.

        These rows are committed at once, after what was written has been compared with the source. If a run was
        killed, call it again with the same arguments: it starts over, and no row is written twice.

        ::

            trips = IndexedTable.create(
                spark, "s3://lake/trips", "id string, dt string, fare double", ["id"], partition_by=["dt"], buckets=16
            )

        :param schema: a StructType, or a DDL string as ``"id bigint, name string"``; with ``from_source`` the source's,
            if not given.
        :param record_key: columns that make a row unique: in its partition, or, with a ``record`` index, in the whole
            table.
        :param ordering_column: of two rows with the same key in a batch, the one with the higher value stays; with
            ``merge_by="ordering"``, also of an existing row and a later one.
        :param buckets: bucket count of a new partition that no rule matches. ``None``: no bucket layout. A ``record``
            index, which is created with the table, then finds the file groups, and each of them takes as many rows as
            the property ``group_rows`` says (1,000,000 by default).
        :param bucket_rule: the engine that reads the rules: "regex" (unanchored, against partition paths),
            "range" (``2024-11-01 <= dt < 2024-12-01``), or a user's.
        :param positions: writes record which rows they replace, so that readers need not compare keys
            (:mod:`spark_apps.mergetree.read`).
        :param bucket_expressions: ``expression,count;…``, or pairs of expression and count; the first match wins.
        :param options: options of the store; see :class:`~spark_apps.storage.store.Store`.
        :param uri: where the table is: a local path or a URI.
        :param partition_by: columns whose values divide the table into partitions, each with its own bucket count. By
            default those of ``from_source``, if given.
        :param from_source: a Delta or Iceberg table, a folder, file or glob, or a table of Spark's catalog.
        :param source_format: the format of the source, as :meth:`register` names it; by default it is detected for a
            folder: Delta, Iceberg, otherwise Parquet. ``options`` apply to the store of the source too.
        :param source_options: options of the format's reader, as :meth:`register` takes them.
        :param hash_fields: the part of the record key that assigns a row to a bucket; by default the whole key.
        :param hash_function: "xxhash64", "java", ``sql:…``, or a user's.
        :param write_mode: "merge_on_read" writes delta files, which readers merge; "copy_on_write" merges at once.
        :param properties: of the table, as text.
        :param publish: ``["delta"]``: each commit that changes rows is followed by a commit of a Delta log over the
            same files, which other engines can read.
        :param spark: the session.
        :raises InvalidInput: for arguments that cannot be used.
        :raises TableExists: if there is already a table.
        :raises VerificationFailed: if what was written differs from the source; nothing was committed.
        """
        rules = None if buckets is None else BucketRules(bucket_rule, bucket_expressions or "", buckets)
        if rules is None and (bucket_expressions or hash_fields):
            raise InvalidInput(
                "Bucket rules or hash fields were given for a table without buckets.",
                hint="Give buckets=…, or leave bucket_expressions and hash_fields out.",
            )
        reach(spark, uri)
        store, source = Store(uri, options), None
        if from_source is not None:
            source = take_over.open_rows(
                spark, os.fspath(from_source), source_format, source_options, options, store.uri
            )
            schema = source.schema if schema is None else schema
            partition_by = source.partition_by if partition_by is None else partition_by
        elif source_format is not None or source_options is not None:
            raise InvalidInput("The format or options of a source were given, and no source.", hint="Give from_source.")
        if schema is None:
            raise InvalidInput("The table has no columns.", hint="Give schema=…, or from_source=… to have a source's.")
        properties = {**dict(properties or {}), **publishing.check_formats(publish)}
        definition = define(
            schema, record_key,
            partition_by=partition_by or (), ordering_column=ordering_column, merge_by=merge_by,
            bucketed=rules is not None, hash_fields=hash_fields, hash_function=hash_function, write_mode=write_mode,
            properties=properties, positions=positions,
        )  # fmt: skip
        publishing.check_definition(definition)
        if source is None:
            handle, _ = create(spark, store, definition, rules, txn_id)
        else:
            handle = take_over.take_over(spark, store, source, definition, rules, txn_id)
        return cls(handle, handle.timeline.head)

    @classmethod
    def register(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        format: str = "parquet",
        schema: StructType | str | None = None,
        options: Mapping[str, object] | None = None,
        index_root: str | os.PathLike[str] | None = None,
        record_key: Sequence[str] = (),
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        log_options: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
        txn_id: str | None = None,
        warehouse: str | os.PathLike[str] | None = None,
    ) -> IndexedTable:
        """Register a table that another writer owns: it is indexed and read, never written to.

        ::

            events = IndexedTable.register(spark, "s3://raw/events", "csv", "city string", {"header": "true"})

        :param uri: a folder (Hive-style partitions below it), file or glob; the name of a table in the session's
            catalogs, of plain files, Delta or Iceberg (``catalog:`` may stand before it); the folder of a Delta or
            Iceberg table.
        :param format: "parquet", "orc", "json", "csv", "delta" or "iceberg".
        :param schema: the schema of plain files; by default Spark infers it once.
        :param options: options of the format's reader, by Spark's names ("header", "sep", "multiLine", …); for Iceberg
            "catalog" and "identifier". They are written to the log, so none may be a secret.
        :param index_root: the folder that contains the folder ``name`` with the log and the indexes; by default
            ``_indexes`` beside the source, and of a table whose place is a catalog's that of its name in the warehouse.
        :param warehouse: a folder of tables, which keeps the log of such a table and finds it by its name; by default
            the one that the session is enabled with.
        :param record_key: columns that identify a record, for an index of kind "record". Uniqueness is not checked.
        :param name: the name of the log's folder; by default the name of the source's folder.
        :param storage_options: options of the store with the source; ``log_options`` of the store with the log, if it
            is another one. They are never written down.
        :param properties: of the table, as text.
        :returns: the source as a table that is read and indexed.
        :raises InvalidInput: for arguments that cannot be used.
        :raises UnsupportedSource: naming what cannot be read correctly.
        :raises TableExists: if there is already a table.
        """
        handle = register.register(
            spark, uri, format,
            schema=schema, options=options, index_root=index_root, record_key=record_key, name=name,
            storage_options=storage_options, log_options=log_options, properties=properties, txn_id=txn_id,
            warehouse=_warehouse(spark, warehouse, storage_options if log_options is None else log_options),
        )  # fmt: skip
        if not over_connect(spark):
            from spark_apps.optimizer.session import know

            know(handle)
        return cls._showing(handle, handle.snapshot())

    @classmethod
    def load(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        version: int | None = None,
        as_of: str | datetime | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        source_version: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        index_root: str | os.PathLike[str] | None = None,
        name: str | None = None,
        warehouse: str | os.PathLike[str] | None = None,
    ) -> IndexedTable:
        """Load the table at its newest version, or read-only at a version or an instant (UTC by default).

        A registered source can be loaded by its own address, and shows its files as they are now.

        ::

            IndexedTable.load(spark, "s3://lake/trips", as_of="2026-11-11T06:00:00Z").read("fare > 100")

        :param source_version: the version or snapshot id of a registered Delta or Iceberg table, read-only; the
            version of the log whose indexes cover most of its files is used.
        :param storage_options: options of the store with the source, if they are not ``options``.
        :param index_root: and ``name``: as they were given to :meth:`register`.
        :param uri: the address of the table: a local path or a URI; or the name of a registered table of a catalog.
        :param warehouse: the folder that knows such names; by default the one that the session is enabled with.
        :param as_of: an instant, ISO 8601 or a ``datetime``.
        :param spark: the session.
        :raises InvalidInput: if ``source_version`` is given together with one of the others.
        :raises TableNotFound: if there is no table.
        :raises LogVanished: if there are files of a table, but no log.
        :raises NewerFormat: if a later version of this package wrote the log.
        :raises VersionNotFound: if there is no such version.
        :raises SnapshotExpired: if the version has expired.
        """
        known = _warehouse(spark, warehouse, options)
        timeline = register.open_log(spark, uri, options, index_root, name, known)
        read_with = options if storage_options is None else storage_options
        if known is not None and warehouse_root(read_with) is None:
            read_with = with_warehouse(read_with, known.root)
        handle = TableHandle(spark, timeline, read_with)
        if source_version is not None:
            if version is not None or as_of is not None:
                raise InvalidInput("source_version was given with version or as_of.", hint="Give one of them.")
            return cls._showing(handle, register.at_source_version(handle, source_version), pinned=True)
        if version is not None or as_of is not None:
            return cls._showing(handle, register.at_log_version(handle, version, as_of), pinned=True)
        return cls._showing(handle, handle.snapshot())

    @classmethod
    def _showing(cls, handle: TableHandle, snapshot: Snapshot, pinned: bool = False) -> IndexedTable:
        return cls(handle, snapshot.state, pinned, snapshot.external)

    # --- the version shown --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"IndexedTable({self.uri!r}, version={self.version})"

    def view(self) -> View:
        view = view_table(self.uri, self._state)
        return dataclasses.replace(view, facts=[*view.facts, *publishing.facts(self._handle.timeline)])

    @property
    def uri(self) -> str:
        return self._handle.timeline.store.uri

    @property
    def version(self) -> int:
        return self._state.version

    @property
    def definition(self) -> TableDefinition:
        return self._state.table

    @property
    def schema(self) -> StructType:
        """The Spark schema of the rows."""
        return self.snapshot.data.schema

    @property
    def snapshot(self) -> Snapshot:
        """The version that the object shows, for the layers below."""
        return Snapshot(self._handle.spark, self._handle.timeline.store, self._state, external=self._external)

    @property
    def partitions(self) -> ResultMap[PartitionInfo]:
        """Partition path ("" without partition columns) -> bucket count and live files."""
        return partitions_of(self._state)

    @property
    def indexes(self) -> ResultMap[IndexInfo]:
        """The indexes that were created by name; of a Hudi table also those that it has of its own."""
        return indexes_of(self._state, None if self._pinned else self._of_hudi())

    def _of_hudi(self) -> HudiIndexes | None:
        """Return what a Hudi table says of its own indexes; ``None`` of another table, and where it cannot be read."""
        return None if self._state.dropped else hudi_indexing.indexes_of_table(self._handle, self._state)

    def index_status(self, name: str) -> IndexStatus:
        """Return what an index covers, how large it is, and when it was last refreshed.

        :raises IndexNotFound: if there is no index of this name.
        """
        return status_of(self._handle.timeline, self._state, name)

    def history(self) -> ResultList[HistoryEntry]:
        """Return all commits up to this version, oldest first."""
        return history_of(self._handle.timeline, self.version)

    def in_stage(self, stage: Stage) -> Self:
        """Return the table so that its next action is staged for a transaction and committed with the other stages.

        :param stage: a stage of a transaction that :func:`spark_apps.timeline.transactions.begin` began.
        """
        other = copy.copy(self)
        other._handle = dataclasses.replace(self._handle, stage=stage)
        return other

    # --- rows ---------------------------------------------------------------------------------------------------------

    def upsert(
        self,
        rows: DataFrame,
        *,
        deleted: str | None = None,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Replace the rows that have the batch's keys, and add new keys; columns are matched by name.

        ::

            trips.upsert(changes, deleted="is_deleted")

        :param deleted: a boolean column of ``rows``, besides those of the table: if it is true, the row with this key
            is deleted.
        :raises InvalidSchema: if columns are missing, unknown or of another type, or a key is null.
        """
        return self._run(Upsert(rows, deleted), txn_id, window)

    def insert(self, rows: DataFrame, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Add rows with new keys.

        :raises KeysExist: naming examples of keys that the table already has.
        :raises InvalidSchema: if the columns do not fit.
        """
        return self._run(Insert(rows), txn_id, window)

    def delete(
        self,
        rows: DataFrame | str,
        *,
        until: Any = None,
        parameters: Parameters | None = None,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Delete rows by their record key, or those that a SQL predicate matches.

        A key that does not exist is not an error. Without a ``record`` index, a key is unique in its partition only:
        if ``rows`` has the partition columns, the key is deleted in that partition, otherwise wherever it is found.

        With ``merge_by="ordering"`` a delete has an ordering, and rows of its key that come later with an ordering that
        is not higher are not written. It is the value in the ordering column of ``rows``, if that is there, otherwise
        the highest of the rows that are deleted. All other columns of ``rows`` are ignored.

        ::

            trips.delete("city = :city", parameters={"city": "Oslo"})
            trips.delete(frame_with_keys)

        :param until: with ``merge_by="ordering"``, the ordering of the delete: rows with a higher one stay.
        :param parameters: of the predicate, as in :meth:`read`.
        :raises InvalidInput: for parameters that are missing, unknown, or given without a predicate.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        """
        if isinstance(rows, str):
            rows = bind(rows, parameters)
        elif parameters is not None:
            raise InvalidInput("Parameters are given without a predicate.", hint="Rows are deleted by their keys.")
        return self._run(Delete(rows, until), txn_id, window)

    def upsert_batch(self, name: str, *, deleted: str | None = None, query_id: str | None = None) -> UpsertBatch:
        """Return the function for ``foreachBatch`` of a streaming query: each micro-batch is upserted exactly once.

        The transaction of a batch is ``<name>.<query id>.<batch id>``, with the query id from the checkpoint.

        :param name: a name of the stream, for people.
        :param deleted: as in :meth:`upsert`.
        :param query_id: an id of the checkpoint, if Spark does not give the id of the query, as over Spark Connect.
        :raises InvalidName: if the name cannot begin the id of a transaction.
        """
        self._check_writable()
        options = getattr(self._handle.timeline.store, "options", None)
        return UpsertBatch(IndexedTable.load, self.uri, options, name, deleted, query_id)

    def delete_repeated_keys(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Keep one row of each record key that is in several partitions, and build the ``record`` index again.

        This keeps the row with the highest ordering column if ``merge_by`` is "ordering", otherwise the row written
        last. It is for tables that got a ``record`` index late, or will get one. If no key is repeated, nothing is
        done.

        :raises InvalidInput: if the partition columns are part of the record key.
        """
        from spark_apps.actions.write import DeleteRepeatedKeys

        return self._run(DeleteRepeatedKeys(), txn_id, window)

    def insert_overwrite(
        self,
        rows: DataFrame,
        partitions: Iterable[str] | None = None,
        *,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Replace whole partitions: those of the rows, or the given ones (which may become empty).

        ::

            trips.insert_overwrite(day, ["dt=2026-11-11"])

        :raises InvalidInput: if ``rows`` has a row of a partition that is not among the given ones.
        """
        return self._run(InsertOverwrite(rows, partitions), txn_id, window)

    def drop_partition(self, *paths: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop partitions with their rows and bucket counts; a partition that does not exist is ignored.

        :raises InvalidInput: if a path does not have the form of this table's partitions.
        """
        return self._run(DropPartitions(paths), txn_id, window)

    def drop(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop the table and its indexes; its files and its log are kept."""
        return self._run(DropTableAction(), txn_id, window)

    def read(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> DataFrame:
        """Return the rows of this version, with all columns in declared order or with the named ones.

        :param where: a SQL predicate; indexes and the bucket layout are used for the parts that they can decide.
        :param parameters: name -> value, bound to ``:name`` in the predicate and never read as SQL: text, numbers,
            booleans, dates, times, bytes, ``None``.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises InvalidInput: for a parameter that is missing or unknown.
        :raises UnknownColumn: for a column that the table does not have.
        """
        where = bind_where(where, parameters)
        if where is None:
            return read_rows(self.snapshot, None, columns)
        with translate_predicate_errors(self.snapshot, where):
            return read_rows(self.snapshot, where, columns)

    def lookup(self, keys: Any, index: str | None = None) -> Any:
        """Return where the rows with some record keys are, from a record index, without a Spark job.

        :param keys: an Arrow array (for a key of one column), an Arrow table with the columns of the key, or Python
            values (tuples for a key of several columns).
        :param index: name of a record index; by default the only one.
        :returns: an Arrow table of the keys that were found, each once, in no particular order: the key columns and
            ``__index_partition``, and also ``__index_group`` if the file group of a row does not follow from a hash of
            its key.
        :raises InvalidInput: if there is no such index, or it does not cover all rows.
        :raises InvalidSchema: if a value cannot be a key.
        :raises StorageError: if a file of the index is missing or damaged.
        """
        from spark_apps.indexes.keyed.record import look_up

        return look_up(self.snapshot, keys, index)

    def locate(
        self, where: str, count: bool = False, *, parameters: Parameters | None = None
    ) -> ResultList[LocatedFile]:
        """Return the files that can hold rows which satisfy a predicate, from the indexes.

        Every file with such a row is among them. Without ``count``, no rows are read.

        :param count: for a registered source, also read these files, count the matching rows in each, and leave out
            files without any.
        :param where: a SQL predicate.
        :param parameters: of the predicate, as in :meth:`read`.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        """
        return locate_files(self.snapshot, filter_of(self.snapshot, bind(where, parameters)), count)

    def verify_erasure(
        self,
        where: str | None = None,
        *,
        values: Iterable[str | bytes] = (),
        parameters: Parameters | None = None,
    ) -> ErasureReport:
        """Search every file below the table's folder for values of rows that were erased.

        It reads all bytes of the folder, older versions included, on the driver.

        :param where: the predicate by which the rows were deleted: the values that it compares columns with by ``=``
            or ``IN`` are looked for.
        :param parameters: of the predicate, as in :meth:`read`.
        :param values: further texts that only those rows held.
        :returns: the files that hold one, by place, and what removes a value from there; ``report.ok``.
        :raises InvalidPredicate: if neither names a value.
        """
        from spark_apps.actions.erasure import verify_erasure

        return verify_erasure(self.snapshot, bind_where(where, parameters), values)

    # --- columns ------------------------------------------------------------------------------------------------------

    def add_columns(
        self,
        columns: StructType | str,
        *,
        properties: Mapping[str, str] | None = None,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Add columns at the end, null in the rows that exist.

        :param columns: a DDL string as ``"fare double, tip double"``, or a StructType.
        :param properties: properties of the table to set with them, as ``{"comment.fare": "in cents"}``.
        :raises InvalidSchema: for a name that exists, or a column that cannot be null.
        """
        return self._run(AddColumns(columns, properties), txn_id, window)

    def widen_column(self, name: str, type: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Give a column a type that holds all its values: a longer integer, double for float, a longer decimal.

        :param name: the name of the column.
        :param type: the new type, as ``"bigint"``.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        :raises InvalidInput: for a column of the record key or of an index.
        """
        return self._run(WidenColumn(name, type), txn_id, window)

    def rename_column(self, name: str, to: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Give a column another name, also in the indexes over it.

        :param name: the name of the column.
        :param to: its new name.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        :raises InvalidInput: for a partition column, or a column of an index whose kind does not follow renames.
        """
        return self._run(RenameColumn(name, to), txn_id, window)

    def drop_column(self, *names: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop one or several columns in one commit; earlier versions still have them.

        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidInput: for a record key, partition or ordering column, or a column of an index.
        """
        return self._run(DropColumns(names), txn_id, window)

    # --- indexes ------------------------------------------------------------------------------------------------------

    def create_index(
        self,
        name: str,
        kind: str,
        columns: Sequence[str] = (),
        *,
        included: IncludedColumns | Sequence[str] | None = None,
        deferred: bool = False,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        comment: str | None = None,
        partition_by: Sequence[str] | None = None,
        index_table: str | None = None,
        location: str | None = None,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Build an index over the rows of the table, while writers go on, and make it active.

        ::

            trips.create_index("by_city", "secondary", ["city"])
            trips.create_index("fares", "covering", ["city"], included=["fare"], deferred=True)

        :param kind: the registered name of a handler: "record", "secondary", …
        :param included: columns that the index carries besides the indexed ones, for kinds that can; a list names
            them.
        :param deferred: the index is updated by refreshes only, not in every commit of rows.
        :param partition_by: partition columns by which entries are separated, for kinds that can; ``()``: none.
        :param index_table: a name for the stored index.
        :param location: where it is stored, for kinds that are stored outside the table.
        :param plan_only: return the plan of the build and do nothing.
        :param properties: properties of the kind, as text; unknown ones are refused.
        :param if_not_exists: leave an existing index of this name as it is.
        :param comment: a comment for people; it is kept and shown.
        :raises IndexExists: if the name is taken.
        :raises InvalidInput: for arguments that cannot be used.
        :raises UnknownColumn: for a column that the table does not have.
        """
        from spark_apps.actions.indexing import CreateIndex, IndexStorage

        if names_hudi(kind):
            given = {
                "included": included,
                "partition_by": partition_by,
                "index_table": index_table,
                "location": location,
            }
            hudi_indexing.check_not_given(kind, {**given, "deferred": deferred or None})
            own = hudi_indexing.BuildHudiIndex(
                name, kind, columns, properties, if_not_exists, comment, self._handle.source_options
            )
            return self._planned(own) if plan_only else self._run(own, txn_id, window)
        storage = IndexStorage(partition_by, index_table, location)
        action = CreateIndex(
            name, kind, columns, included, deferred, properties, if_not_exists, comment, storage=storage
        )
        return self._planned(action) if plan_only else self._run(action, txn_id, window)

    def refresh_index(
        self,
        name: str,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Iterable[str] | None = None,
        included: IncludedColumns | Sequence[str] | None = None,
        schema: str | None = None,
        *,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Bring an index up to date with this table.

        ::

            trips.refresh_index("fares", partitions=["dt=2026-11-11"])

        :param included: columns to include from now on (a list names them), and columns to leave out.
        :param schema: types of added columns, if the files lack them.
        :param mode: "incremental" reads what is not covered, "full" all rows; "quick" reads none and only records what
            has changed.
        :param partitions: only these partitions, as paths (``dt=2024-11-11``).
        :param plan_only: return the plan of the refresh and do nothing.
        :raises IndexNotFound: if there is no index of this name.
        :raises InvalidInput: for arguments that cannot be used.
        """
        from spark_apps.actions.indexing import RefreshIndex

        action: Any = RefreshIndex(name, mode, partitions, included, schema)
        if hudi_indexing.own_index(self._handle, name) is not None:
            hudi_indexing.check_not_given(name, {"partitions": partitions, "included": included, "schema": schema})
            action = hudi_indexing.RefreshHudiIndex(name, mode, self._handle.source_options)
        return self._planned(action) if plan_only else self._run(action, txn_id, window)

    def drop_index(
        self, name: str, if_exists: bool = False, *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Drop an index; its files are deleted when the table is cleaned.

        :param if_exists: an index that does not exist is not an error.
        :raises IndexNotFound: if there is no index of this name.
        """
        from spark_apps.actions.indexing import DropIndexAction

        action: Action = DropIndexAction(name, if_exists)
        if hudi_indexing.own_index(self._handle, name) is not None:
            action = hudi_indexing.DropHudiIndex(name, self._handle.source_options)
        return self._run(action, txn_id, window)

    def alter_index(
        self, name: str, properties: Mapping[str, str], *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Change properties of an index that concern later writes.

        :raises IndexNotFound: if there is no index of this name.
        :raises InvalidInput: for a property that is unknown or fixed.
        """
        from spark_apps.actions.indexing import AlterIndex

        return self._run(AlterIndex(name, properties), txn_id, window)

    def verify(
        self, name: str, *, repair: bool = False, txn_id: str | None = None, window: int | None = None
    ) -> VerificationReport:
        """Compare an index with a full scan of this version: ``report.ok``, ``report.differences``.

        ::

            report = trips.verify("by_city", repair=True)

        :param repair: rebuild the index in one commit if it is wrong (``report.repaired``).
        :raises IndexNotFound: if there is no index of this name.
        :raises InvalidInput: if its kind cannot be compared.
        :returns: what agrees and what differs.
        """
        from spark_apps.actions.indexing import verify

        if hudi_indexing.own_index(self._handle, name) is not None:
            report = hudi_indexing.verify(self.snapshot, name, self._handle.source_options)
        else:
            report = verify(self.snapshot, name)
        return self.repair_indexes([report], txn_id=txn_id, window=window)[0][0] if repair else report

    def repair_indexes(
        self, reports: Sequence[VerificationReport], *, txn_id: str | None = None, window: int | None = None
    ) -> tuple[list[VerificationReport], Receipt]:
        """Rebuild the indexes that :meth:`verify` finds wrong, all in one commit; the others are left alone.

        :returns: the reports, with ``repaired`` for a rebuilt index, and the receipt of the commit.
        :raises IndexNotFound: if there is no index of this name.
        """
        from spark_apps.actions.indexing import repair

        self._check_writable()
        mended, receipt = repair(self._handle, reports, txn_id=txn_id, window=window)
        return mended, self._moved_to(receipt)

    def explain(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        hypothetical: Sequence[Mapping[str, Any]] = (),
        *,
        parameters: Parameters | None = None,
    ) -> Any:
        """Return how :meth:`read` would answer: indexes used, files and bytes read and skipped, why not other indexes.

        ::

            print(trips.explain("city = 'Oslo'", hypothetical=[{"kind": "skipping", "columns": ["minmax(fare)"]}]))

        :param where: a SQL predicate.
        :param columns: the columns that are read; all by default.
        :param hypothetical: indexes that are planned with as if they existed, each with ``kind`` and ``columns``, and
            optionally ``included``, ``properties`` and ``name``, as in :meth:`create_index`. Their columns are read in
            a sample of file groups, and nothing is written.
        :param parameters: of the predicate, as in :meth:`read`.
        :raises InvalidInput: (or a subclass) for a hypothetical index that :meth:`create_index` would refuse.
        """
        from spark_apps.query.explain import explain

        where = bind_where(where, parameters)
        if hypothetical:
            from spark_apps.advisor.hypothetical import explain_hypothetical

            return explain_hypothetical(self.snapshot, where, columns, hypothetical)
        return explain(self.snapshot, where, columns)

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
    ) -> Advice:
        """Return which indexes the table should have for what is asked of it, with the figures and the statements.

        Reads some columns of a sample of file groups. Nothing is done.

        :param workload: what was asked; what the table's own log of queries has, if not given.
        :param budget: ``bytes`` that indexes may hold in all (``"5GB"``; a third of the table's if not given, without a
            limit if ``None``), and ``minutes`` of upkeep a day (without a limit if not given).
        :raises InvalidInput: for a budget or a workload that is none.
        :raises UnsupportedSource: naming what of a source only Spark's own reader reads rightly.
        :raises StorageError: naming a file that is gone or damaged.
        """
        from spark_apps.advisor.advice import advise

        return advise(self.snapshot, self._handle.timeline, workload, budget)

    # --- files and buckets --------------------------------------------------------------------------------------------

    def compact(
        self,
        name: str | None = None,
        mode: Literal["quick", "full"] = "full",
        partitions: Iterable[str] | None = None,
        *,
        where: str | None = None,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Compact the files of the index ``name``, or else the table's file groups; the rows stay the same.

        ::

            trips.compact(partitions=["dt=2026-11-11"])
            trips.compact(where="dt >= '2026-11-01'", plan_only=True)
            trips.compact("by_city")

        :param mode: ``full``: each file group into one base file; ``quick``: only deltas with deltas.
        :param partitions: compact only these partitions of the table, as paths.
        :param where: compact only partitions in which a row may satisfy this predicate.
        :param plan_only: return what of the table would be compacted, and do nothing.
        :raises IndexNotFound: if there is no index of this name.
        :raises InvalidInput: for arguments that cannot be used.
        """
        if name is None:
            action = CompactTable(mode, partitions, where)
            return self._planned(action) if plan_only else self._run(action, txn_id, window)
        if partitions is not None or where is not None or plan_only:
            raise InvalidInput(
                "An index is compacted as a whole, and without a plan.",
                hint="Leave partitions, where and plan_only out, or the index's name, to compact the table.",
            )
        from spark_apps.actions.indexing import CompactIndex

        if hudi_indexing.own_index(self._handle, name) is not None:
            return self._run(hudi_indexing.CompactHudiIndexes(name, self._handle.source_options), txn_id, window)
        return self._run(CompactIndex(name, mode), txn_id, window)

    def maintain_source(
        self,
        call: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Make a call of the own maintenance of a registered Delta, Iceberg or Hudi table, by its connector.

        ::

            trips.maintain_source("optimize", {"zorder_by": ["rider"]}, txn_id="nightly-2026-11-28")

        The call carries the transaction's id, and the receipt is a commit of the log of indexes. Indexes are behind
        afterwards, as after any commit of the table, until they are refreshed.

        :param call: ``optimize``, ``vacuum``, ``restore`` of Delta; ``rewrite_data_files``,
            ``rewrite_position_delete_files``, ``rewrite_manifests``, ``expire_snapshots``, ``remove_orphan_files``,
            ``rollback_to_snapshot`` of Iceberg; ``run_compaction``, ``run_clustering``, ``run_clean``,
            ``create_savepoint``, ``delete_savepoint``, ``rollback_to_savepoint``, ``rollback_to_instant`` of Hudi.
        :param arguments: of the call, as :mod:`spark_apps.maintenance.native_calls` lists them.
        :param plan_only: return what would be done, and do nothing.
        :returns: the receipt, whose metrics have the format's version and figures; or the plan.
        :raises InvalidInput: for a call that the format does not have, or arguments that the table cannot have.
        :raises ConcurrentWrite: if another writer's commit came in between, by the format's own check.
        """
        from spark_apps.actions.native_maintenance import NativePlan, maintain_source

        self._check_writable()
        done = maintain_source(self._handle, call, arguments, plan_only=plan_only, txn_id=txn_id, window=window)
        return done if isinstance(done, NativePlan) else self._moved_to(done)

    def rescale(
        self,
        buckets: int | None = None,
        bucket_rule: str | None = None,
        bucket_expressions: Expressions | None = None,
        partitions: Iterable[str] | None = None,
        *,
        add: Expressions | None = None,
        plan_only: bool = False,
        drain_seconds: float = 600.0,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Give the table new bucket rules, and every partition (or those named) its count by them.

        Only partitions whose count changes are rewritten; if there are none, no window is opened. Without arguments,
        the partitions get the counts of the current rules.

        ::

            trips.rescale(bucket_expressions="dt=2026-11-.*,64", plan_only=True)

        :param buckets: the count if no rule matches; by default it does not change.
        :param bucket_rule: name of the rule engine: "regex" (the default), "range", or a user's.
        :param bucket_expressions: rules as in :meth:`create` (``overwrite`` in Hudi's document). They come first; the
            rules of older configs still decide what they do not match, as in the document.
        :param add: rules that keep the default count (``add`` in Hudi's document), read by the engine of the newest
            rules if none is named.
        :param window: epoch of a stop-write window that the caller holds; without it, a window over the partitions is
            opened and closed again.
        :param plan_only: return the :class:`~spark_apps.actions.rescale.RescalePlan` and do nothing.
        :param drain_seconds: how long to wait for writers that began before the window.
        :returns: the receipt, or the plan.
        :raises InvalidRule: if a rule cannot be used.
        :raises WindowNotOpen: if the window has ended.
        :raises StopWriteWindowOpen: if another writer holds an overlapping window.
        :raises DrainTimeout: if earlier writers are still at work.
        """
        if hudi_indexing.is_hudi(self.definition):
            hudi_indexing.check_not_given("bucket", {"partitions": partitions})
            rules = hudi_rescale.HudiRules.of(buckets, bucket_rule, bucket_expressions, add)
            return self._rescale_hudi(rules, False, plan_only, drain_seconds, txn_id, window)
        change = NewRules(buckets, bucket_rule, bucket_expressions, add)
        return self._rescale(change, partitions, plan_only, drain_seconds, txn_id, window)

    def rollback_rescale(
        self,
        instant: str | None = None,
        *,
        plan_only: bool = False,
        drain_seconds: float = 600.0,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Roll back a change of the bucket rules, and give its partitions their earlier counts.

        Rows written since stay. Partitions created since get the counts of the remaining rules.

        :param instant: the instant of the change, as :meth:`bucket_rules` shows it; by default the newest.
        :param drain_seconds: as in :meth:`rescale`.
        :returns: the receipt; with ``plan_only`` the plan. The other arguments are those of :meth:`rescale`.
        :raises InvalidRule: if there is no such change, or if these are the rules with which the table was created.
        """
        if hudi_indexing.is_hudi(self.definition):
            rules = hudi_rescale.HudiRules(rollback=instant)
            return self._rescale_hudi(rules, instant is None, plan_only, drain_seconds, txn_id, window)
        change = Rollback(self._handle.timeline, instant)
        return self._rescale(change, None, plan_only, drain_seconds, txn_id, window)

    def bucket_rules(self) -> ResultList[RuleVersion]:
        """Return the bucket rules in force in this version, newest first, in the order in which they are tried.

        Of a Hudi table of the bucket index they are those that it has now; Hudi tries the newest alone.
        """
        if hudi_indexing.is_hudi(self.definition):
            return hudi_rescale.rules_of(self._handle, self.snapshot)
        return rule_versions(self._state)

    def _rescale_hudi(
        self,
        rules: hudi_rescale.HudiRules,
        newest: bool,
        plan_only: bool,
        drain_seconds: float,
        txn_id: str | None,
        window: int | None,
    ) -> Any:
        self._check_writable()
        if plan_only:
            return self._planned(hudi_rescale.settled(self._handle, rules, newest))
        return self._moved_to(
            hudi_rescale.rescale_hudi(
                self._handle, rules, newest=newest, txn_id=txn_id, window=window, drain_seconds=drain_seconds
            )
        )

    def _rescale(
        self,
        change: RuleChange,
        partitions: Iterable[str] | None,
        plan_only: bool,
        drain_seconds: float,
        txn_id: str | None,
        window: int | None,
    ) -> Any:
        self._check_writable()
        action = Rescale(change, partitions, self._handle.timeline)
        if plan_only:
            return self._planned(action)
        receipt = rescale(self._handle, action, txn_id=txn_id, window=window, drain_seconds=drain_seconds)
        return self._moved_to(receipt)

    # --- versions and stop-write windows ------------------------------------------------------------------------------

    def set_properties(
        self, properties: Mapping[str, str], *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Change properties of the table that concern what is done later.

        :param properties: ``query_log``: ``off``, ``on`` or ``sampled``; and ``query_log.sample``,
            ``query_log.literals``, ``query_log.retention_days``, ``query_log.max_bytes``; and ``tombstone_days``: for
            how many days the ordering of a delete is kept after a compaction.
        :raises InvalidInput: for another property, or a value that it cannot have.
        """
        return self._run(SetProperties(properties), txn_id, window)

    def restore(self, version: int, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Bring back the rows, bucket counts and indexes of an earlier version, as a new commit.

        :raises VersionNotFound: if there is no such version.
        :raises SnapshotExpired: if the version has expired.
        :raises InvalidInput: for a version of a table that was dropped since, or of a registered source.
        """
        self._check_writable()
        return self._moved_to(restore.restore(self._handle.timeline, version, txn_id=txn_id, window=window))

    def clean(
        self,
        retain_versions: int = RETAIN_VERSIONS,
        retain_seconds: float = RETAIN_SECONDS,
        *,
        published_log: bool = False,
        query_log: bool = False,
        tombstones: bool = False,
        plan_only: bool = False,
        txn_id: str | None = None,
    ) -> Any:
        """Expire old versions and delete the files that only they needed.

        A version expires when it is older than ``retain_seconds`` and not among the newest ``retain_versions``.

        ::

            trips.clean(retain_versions=20, retain_seconds=3 * 86400)

        :param published_log: also replace the Delta log of a published table by a checkpoint of its newest version.
            Older published versions, with what their log says of values that are gone, can then no longer be read.
        :param query_log: also delete all lines of the query log, whose predicates hold values.
        :raises PublishRefused: with ``published_log``, if another writer has written into that log.
        :param tombstones: with ``merge_by="ordering"``, also drop the orderings of deletes that compactions have kept,
            which hold keys; rows of those keys that come again are then written again.
        :returns: the receipt, or with ``plan_only`` the :class:`~spark_apps.timeline.cleaning.CleaningPlan`.
        """
        self._check_writable()
        keep: dict[str, Any] = {
            "retain_versions": retain_versions,
            "retain_seconds": retain_seconds,
            "tombstones": tombstones,
        }
        if plan_only:
            return cleaning.plan(self._handle.timeline, **keep, published_log=published_log)
        receipt = cleaning.clean(self._handle.timeline, **keep, published_log=published_log, txn_id=txn_id)
        return self._moved_to(erased(receipt, self._handle.timeline.store) if query_log else receipt)

    @property
    def published(self) -> Published | None:
        """The version that readers of another format see; ``None`` if the table is not published."""
        self._handle.timeline.refresh()
        return publishing.published(self._handle.timeline)

    def publish(self, formats: Sequence[str] | None = None) -> Published | None:
        """Publish the commits that are not yet published; with ``formats``, also change the formats.

        :param formats: ``["delta"]``, or an empty list to stop publishing.
        :raises PublishRefused: if another writer has written into the log.
        :raises InvalidInput: for a format that cannot be written, or a table that is not published.
        :returns: how far the table is published; ``None`` if it is no longer published.
        """
        self._check_writable()
        if formats is not None:
            self._run(SetPublished(formats), None, None)
            if not publishing.is_published(self._handle.timeline.refresh().definition):
                return None
        return publishing.publish(self._handle.timeline)

    def open_window(
        self,
        holder: str,
        partitions: Iterable[str] | None = None,
        seconds: float = WINDOW_SECONDS,
        at_most: float | None = None,
    ) -> Window:
        """Open a stop-write window over the table or some partitions; pass its ``epoch`` to your own calls.

        ::

            window = trips.open_window("backfill", ["dt=2026-11-11"])
            trips.insert_overwrite(day, window=window.epoch)

        :param seconds: seconds until its deadline.
        :param at_most: seconds until its last moment, which cannot be extended.
        :param holder: who holds it, for people.
        :raises StopWriteWindowOpen: if another window overlaps.
        """
        paths = None if partitions is None else [canonical(self.definition, path) for path in partitions]
        return windows.open_window(self._handle.timeline, holder, partitions=paths, seconds=seconds, at_most=at_most)

    def close_window(self, epoch: int) -> Receipt:
        """Close a window that the caller holds.

        :param epoch: the epoch of the window.
        :raises WindowNotOpen: if it has ended.
        """
        return windows.close(self._handle.timeline, epoch)

    # --- rows by name, in Spark's SQL ---------------------------------------------------------------------------------

    def create_view(
        self,
        name: str,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        parameters: Parameters | None = None,
    ) -> None:
        """Create (or replace) a temporary view of this version's rows in the session, for queries in SQL.

        The indexes prune by ``where`` once, now. The conditions of a query over the view are left to Spark, which
        reads only the columns that it needs.

        ::

            trips.create_view("oslo", "city = :city", ["id", "fare"], parameters={"city": "Oslo"})

        :param where: a SQL predicate, as in ``read``, with its ``parameters``.
        :param columns: the columns of the view, in this order.
        :param name: the name of the view.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        """
        read_rows(self.snapshot, bind_where(where, parameters), columns).createOrReplaceTempView(name)

    def frame(self) -> DataFrame:
        """Return this version's rows as a DataFrame that is planned with each query, by the query's filters.

        If plain queries of the session do not use indexes yet, this enables it (see :func:`spark_apps.enable`). For a
        registered source, the DataFrame has the files that exist when a query is planned.

        :raises EnvironmentMismatch: over Spark Connect.
        :raises InvalidInput: for a source at an earlier version; use :meth:`read`.
        """
        from spark_apps.optimizer.session import frame_of

        if self._pinned and self._external is not None:
            raise InvalidInput(
                "A frame of a registered source shows it as it is.", hint="Use read() for an earlier version."
            )
        return frame_of(self._handle, self._state)

    # --- how an action is run -----------------------------------------------------------------------------------------

    def showing(self, snapshot: Snapshot) -> Self:
        """Return the table at another version, for the layers above.

        :param snapshot: the version.
        """
        other = copy.copy(self)
        other._state, other._external = snapshot.state, snapshot.external
        return other

    def run_action(self, action: Action, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Run an action that has no method of its own, for the layers above."""
        return self._run(action, txn_id, window)

    def _run(self, action: Action, txn_id: str | None, window: int | None) -> Receipt:
        self._check_not_pinned()
        return self._moved_to(run(self._handle, action, txn_id=txn_id, window=window))

    def _moved_to(self, receipt: Receipt) -> Receipt:
        if receipt.version is not None and receipt.version > self.version:
            timeline = self._handle.timeline
            timeline.refresh()
            self._state = timeline.head if timeline.head.version == receipt.version else timeline.at(receipt.version)
            if self._external is not None and not self._state.dropped:
                shown = self._handle.snapshot(self._state)
                self._state, self._external = shown.state, shown.external
        return receipt

    def _check_writable(self) -> None:
        """Refuse what commits by itself, where that cannot be."""
        self._check_not_pinned()
        if self._handle.stage is not None:
            raise InvalidInput(
                f"This cannot be done in stage {self._handle.stage.name!r} of a transaction: it commits by itself.",
                hint="Do it before or after the transaction.",
            )

    def _check_not_pinned(self) -> None:
        if self._pinned:
            raise InvalidInput(
                f"This table was loaded as of version {self.version}, which can only be read.",
                hint="Load it without version or as_of to write.",
            )

    def _planned(self, action: Any) -> Any:
        self._check_writable()
        self._handle.timeline.refresh()
        snapshot = self._handle.snapshot()
        action.validate(snapshot)
        return action.plan(snapshot)


def register_data_source(spark: SparkSession, enable_pushdown: bool = False) -> None:
    """Make ``spark.read.format("indexed")`` and ``USING indexed`` known to a session.

    :param enable_pushdown: also turn on the session's ``spark.sql.python.filterPushdown.enabled``, which concerns all
        Python data sources; without it, and in Spark 4.1 and 4.2 with it too, only the option ``where`` prunes.
    :raises EnvironmentMismatch: if this Spark has no Python data sources (4.0 brought them).
    """
    from spark_apps.datasource import HAS_DATA_SOURCES, KEPT_WITH_SCAN, PUSHDOWN, IndexedDataSource

    if not HAS_DATA_SOURCES:
        raise EnvironmentMismatch(
            f"Spark {spark.version} has no Python data sources, which came with version 4.0.",
            hint="Use IndexedTable.read, or a view made with create_view.",
        )
    spark.dataSource.register(IndexedDataSource)
    if enable_pushdown:
        spark.conf.set(PUSHDOWN, "true")
    elif str(spark.conf.get(PUSHDOWN, "false")).lower() != "true":
        logger.warning(
            "%s is off: the data source %r reads whole tables, and no index is used, but for the option where. %s",
            PUSHDOWN, IndexedDataSource.name(),
            "Set it to true, or call register_data_source(spark, enable_pushdown=True)." if KEPT_WITH_SCAN
            else "In this Spark it would not help: what is pruned for one query would be kept for all of a frame.",
        )  # fmt: skip
