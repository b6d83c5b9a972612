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

from spark_apps.actions import register, take_over
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
from spark_apps.layout.partitions import canonical
from spark_apps.layout.rules import BucketRules, Expressions
from spark_apps.mergetree.hadoop_store import reach
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
from spark_apps.query.predicates import translate_predicate_errors
from spark_apps.query.reading import read_rows
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput
from spark_apps.storage.printing import Printed, ResultList, ResultMap, View
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning, open_tables, restore, windows
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS, WINDOW_SECONDS
from spark_apps.timeline.model import Receipt, TableDefinition
from spark_apps.timeline.open_tables import Published
from spark_apps.timeline.state import State, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_apps.advisor.advice import Advice
    from spark_apps.indexes.handler import VerificationReport
    from spark_apps.indexes.included_columns import IncludedColumns
    from spark_apps.workload.asked import AskedQuery, Workload

logger = logging.getLogger(__name__)

DEFAULT_BUCKETS = 8


class IndexedTable(Printed):
    """A keyed table, or a registered source, with its indexes. Made by :meth:`create`, :meth:`register`, :meth:`load`.

    All writing methods take ``txn_id`` (a retry under the same id gets the first try's receipt and writes nothing) and
    ``window`` (the epoch of a stop-write window that the caller holds). They raise
    :class:`~spark_apps.storage.errors.CommitRefused` in its kinds, and return a receipt whose ``version`` is ``None``
    if there was nothing to do. The object shows one version, and moves to those that its own calls commit.
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
        """Create a table; with ``from_source`` one that holds the rows of another, which stays as it is.

        Rows are taken over by one commit, after what was written was compared with the source. A run that was killed
        is called again, with the same arguments: it begins anew, and no row comes in twice.

        :param schema: a StructType, or a DDL string as ``"id bigint, name string"``; with ``from_source`` the source's,
            if not given.
        :param record_key: columns that make a row unique: in its partition, or with a ``record`` index in the
            table.
        :param ordering_column: of two rows with one key in a batch the higher wins; with
            ``merge_by="ordering"`` also of a row there and a later one.
        :param buckets: bucket count of a new partition that no rule matches. ``None``: no bucket layout; file groups
            are found through a ``record`` index, which is made with the table, and each takes some number of rows
            (the property ``group_rows``, 1,000,000 by default).
        :param bucket_rule: the engine that reads the rules: "regex" (unanchored, against partition paths),
            "range" (``2024-11-01 <= dt < 2024-12-01``), or a user's.
        :param positions: writes find out which rows they replace, so that readers need not look at keys
            (:mod:`spark_apps.mergetree.read`).
        :param bucket_expressions: ``expression,count;…``, or pairs of expression and count; the first match wins.
        :param options: options of the store; see :class:`~spark_apps.storage.store.Store`.
        :param uri: where the table lies: a local path or a URI.
        :param partition_by: columns whose values name folders; each partition has a bucket count of its own. Those of
            the source, if not given with one.
        :param from_source: a Delta or Iceberg table, a folder, file or glob, or a table of Spark's catalog.
        :param source_format: of the source, as :meth:`register` names it; ``options`` are those of its store too. If
            not given, it is found out for a folder: Delta, Iceberg, else Parquet.
        :param source_options: of the reader of the source's format, as :meth:`register` takes them.
        :param hash_fields: the part of the record key that places a row in a bucket; all of it by default.
        :param hash_function: "xxhash64", "java", ``sql:…``, or a user's.
        :param write_mode: "merge_on_read" writes delta files, which readers merge; "copy_on_write" merges at once.
        :param properties: of the table, as text.
        :param publish: ``["delta"]``: each commit that changes rows is followed by one of a Delta log over the same
            files, by which other engines read them.
        :param spark: the session.
        :raises InvalidInput: for arguments that cannot be used.
        :raises TableExists: if there is a table.
        :raises VerificationFailed: if what was written is not what the source holds; nothing was committed.
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
        properties = {**dict(properties or {}), **open_tables.check_formats(publish)}
        definition = define(
            schema, record_key, partition_by or (), ordering_column, merge_by, rules is not None, hash_fields,
            hash_function, write_mode, properties, positions,
        )  # fmt: skip
        open_tables.check_definition(definition)
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
    ) -> IndexedTable:
        """Register rows that another writer owns: they are indexed and read, never written.

        :param uri: a folder (Hive-style partitions below it), file or glob; the name of a table that Spark's catalog
            resolves to a folder of plain files; the folder of a Delta or Iceberg table.
        :param format: "parquet", "orc", "json", "csv", "delta" or "iceberg".
        :param schema: of plain files; inferred once, by Spark, if not given.
        :param options: of the format's reader, as Spark names them ("header", "sep", "multiLine", …); for Iceberg
            "catalog" and "identifier". They go into the log, so none may be a secret.
        :param index_root: the folder below which the log and the indexes lie, under ``name``; by default ``_indexes``
            beside the source.
        :param record_key: columns that name a record, for an index of kind "record". Nobody checks them for uniqueness.
        :param name: of the log's folder; by default that of the source's own.
        :param storage_options: of the store that holds the source, ``log_options`` of the one that holds the log where
            they differ. Never written down.
        :param properties: of the table, as text.
        :returns: the source as a table that is read and indexed.
        :raises InvalidInput: for arguments that cannot be used.
        :raises UnsupportedSource: naming what cannot be honoured.
        :raises TableExists: if there is a table.
        """
        handle = register.register(
            spark,
            uri,
            format,
            schema,
            options,
            index_root,
            record_key,
            name,
            storage_options,
            log_options,
            properties,
            txn_id,
        )
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
    ) -> IndexedTable:
        """Load the table at its newest version, or read-only as of a version or an instant (UTC without a time zone).

        A registered source is found by its own address too, and shows its files as they are now.

        :param source_version: of a registered Delta or Iceberg table its own version or snapshot id, read-only; the
            index state whose files fit it best is used.
        :param storage_options: of the store that holds the source, if not ``options``.
        :param index_root: and ``name``: as given when the source was registered.
        :param uri: of the table: a local path or a URI.
        :param as_of: an instant, ISO 8601 or a ``datetime``.
        :param spark: the session.
        :raises InvalidInput: if ``source_version`` is given together with one of the others.
        :raises TableNotFound: if there is no table.
        :raises LogVanished: if there are files of a table and no log.
        :raises NewerFormat: if a later version of this package wrote the log.
        :raises VersionNotFound: if there is no such version.
        :raises SnapshotExpired: if the version has expired.
        """
        timeline = register.open_log(spark, uri, options, index_root, name)
        handle = TableHandle(spark, timeline, options if storage_options is None else storage_options)
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
        return dataclasses.replace(view, facts=[*view.facts, *open_tables.facts(self._handle.timeline)])

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
        """The indexes that were created by name."""
        return indexes_of(self._state)

    def index_status(self, name: str) -> IndexStatus:
        """Return what an index covers, how large it is, and when it was brought up to date.

        :raises IndexNotFound: if there is none of that name.
        """
        return status_of(self._handle.timeline, self._state, name)

    def history(self) -> ResultList[HistoryEntry]:
        """Return all commits up to this version, oldest first."""
        return history_of(self._handle.timeline, self.version)

    def in_stage(self, stage: Stage) -> Self:
        """Return the table with its next action staged for a transaction, and committed with its other stages.

        :param stage: of a transaction that :func:`spark_apps.timeline.transactions.begin` began.
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
        """Replace the rows of the batch's keys and add new keys; columns are matched by name.

        :param deleted: a boolean column of ``rows`` beside the table's: where it is true, the row of that
            key is deleted.
        :raises InvalidSchema: if columns are missing, unknown or of another type, or a key is null.
        """
        return self._run(Upsert(rows, deleted), txn_id, window)

    def insert(self, rows: DataFrame, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Add rows of new keys.

        :raises KeysExist: naming examples of keys that the table holds.
        :raises InvalidSchema: if the columns do not fit.
        """
        return self._run(Insert(rows), txn_id, window)

    def delete(self, rows: DataFrame | str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Delete rows by their record key (other columns are ignored), or those that a SQL predicate matches.

        A key that is not there is no error. Without a ``record`` index a key is unique in its partition only:
        where ``rows`` has the partition columns the key is deleted there, else wherever it is found.

        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        """
        return self._run(Delete(rows), txn_id, window)

    def upsert_batch(self, name: str, *, deleted: str | None = None, query_id: str | None = None) -> UpsertBatch:
        """Return the function for ``foreachBatch`` of a streaming query: each micro-batch is upserted exactly once.

        The transaction of a batch is ``<name>.<query id>.<batch id>``, by the query id that the checkpoint keeps.

        :param name: of the stream, for people. :param deleted: as of :meth:`upsert`.
        :param query_id: what stands for the checkpoint, where Spark does not tell the query's id, as over Connect.
        :raises InvalidName: if the name cannot begin the id of a transaction.
        """
        self._check_writable()
        options = getattr(self._handle.timeline.store, "options", None)
        return UpsertBatch(IndexedTable.load, self.uri, options, name, deleted, query_id)

    def delete_repeated_keys(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Keep one row of each record key that stands in several partitions, and build the ``record`` index anew.

        Kept is the row with the highest ordering column where ``merge_by`` is "ordering", else the one written last.
        For tables that got a ``record`` index later, or are to get one; where every key stands once nothing is done.

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
        """Replace whole partitions: those of the rows, or the ones given (which may become empty).

        :raises InvalidInput: if ``rows`` has a row of a partition that is not among those given.
        """
        return self._run(InsertOverwrite(rows, partitions), txn_id, window)

    def drop_partition(self, *paths: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop partitions with their rows and bucket counts; one that does not exist is passed over.

        :raises InvalidInput: if a path is not one of this table's form.
        """
        return self._run(DropPartitions(paths), txn_id, window)

    def drop(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop the table and its indexes; its files and its log stay where they are."""
        return self._run(DropTableAction(), txn_id, window)

    def read(self, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the rows of this version, with the columns in declared order or those named in their order.

        :param where: a SQL predicate; indexes and bucket layout are used for what they can tell of it.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        """
        if where is None:
            return read_rows(self.snapshot, None, columns)
        with translate_predicate_errors(self.snapshot, where):
            return read_rows(self.snapshot, where, columns)

    def lookup(self, keys: Any, index: str | None = None) -> Any:
        """Return where the rows with some record keys live, found in a record index without a Spark job.

        :param keys: an Arrow array (of a key of one column), an Arrow table whose columns are those of the key, or
            Python values: one each, or tuples.
        :param index: name of a record index; the only one if not given.
        :returns: an Arrow table of the keys found, once each, in no order: the key columns and ``__index_partition``;
            ``__index_group`` too where a row's file group does not follow from a hash of its key.
        :raises InvalidInput: if there is no such index, or it does not cover all rows.
        :raises InvalidSchema: if a key is not one.
        :raises StorageError: if a file of the index is missing or damaged.
        """
        from spark_apps.indexes.keyed.record import look_up

        return look_up(self.snapshot, keys, index)

    def locate(self, where: str, count: bool = False) -> ResultList[LocatedFile]:
        """Return the files that can hold rows which satisfy a predicate, found by the indexes.

        Every file that holds such a row is among them. Without ``count`` no rows are read.

        :param count: of a registered source, read these files, count the matching rows of each, and leave out those
            without.
        :param where: a SQL predicate.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        """
        return locate_files(self.snapshot, where, count)

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
        :param properties: of the table, that come with them, as ``{"comment.fare": "in cents"}``.
        :raises InvalidSchema: for a name that there is, or a column that takes no null.
        """
        return self._run(AddColumns(columns, properties), txn_id, window)

    def widen_column(self, name: str, type: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Give a column a type that holds all its values: a longer integer, double for float, a longer decimal.

        :param name: of the column. :param type: the new one, as ``"bigint"``.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        :raises InvalidInput: for one of the record key or of an index.
        """
        return self._run(WidenColumn(name, type), txn_id, window)

    def rename_column(self, name: str, to: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Give a column another name, also in the indexes over it.

        :param name: of the column. :param to: its new name.
        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidSchema: for columns or types that do not fit.
        :raises InvalidInput: for a partition column, or one that an index holds whose kind does not follow renames.
        """
        return self._run(RenameColumn(name, to), txn_id, window)

    def drop_column(self, *names: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drop a column, or several in one commit; earlier versions still have them.

        :raises UnknownColumn: for a column that the table does not have.
        :raises InvalidInput: for one of the key, the partitioning, the ordering or an index.
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

        :param kind: the registered name of a handler: "record", "secondary", …
        :param included: columns that are carried beside those indexed, for kinds that can; a list names them.
        :param deferred: refreshed by a task of its own, instead of in every commit of rows.
        :param partition_by: partition columns that its entries are kept apart by, for kinds that can; ``()``: by none.
        :param index_table: a name for what stores it. :param location: where, for kinds stored outside of the table.
        :param plan_only: return the plan of the build and do nothing.
        :param properties: of the kind, as text; one that it does not know is refused.
        :param if_not_exists: leave an index of that name as it is.
        :param comment: for people; kept and shown.
        :raises IndexExists: if the name is taken.
        :raises InvalidInput: for arguments that cannot be used.
        :raises UnknownColumn: for a column that the table does not have.
        """
        from spark_apps.actions.indexing import CreateIndex, IndexStorage

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

        :param included: columns to include from now on, which a list names, and columns to leave out.
        :param schema: types of added columns where the files lack them.
        :param mode: "incremental" reads what is not covered, "full" all rows; "quick" only notes what there is.
        :param partitions: only these, as paths (``dt=2024-11-11``).
        :param plan_only: return the plan of the refresh and do nothing.
        :raises IndexNotFound: if there is none of that name.
        :raises InvalidInput: for arguments that cannot be used.
        """
        from spark_apps.actions.indexing import RefreshIndex

        action = RefreshIndex(name, mode, partitions, included, schema)
        return self._planned(action) if plan_only else self._run(action, txn_id, window)

    def drop_index(
        self, name: str, if_exists: bool = False, *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Drop an index; its files go when the table is cleaned.

        :param if_exists: an index that is not there is no error.
        :raises IndexNotFound: if there is none of that name.
        """
        from spark_apps.actions.indexing import DropIndexAction

        return self._run(DropIndexAction(name, if_exists), txn_id, window)

    def alter_index(
        self, name: str, properties: Mapping[str, str], *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Change properties of an index that only decide what is done from now on.

        :raises IndexNotFound: if there is none of that name.
        :raises InvalidInput: if one is unknown, or is fixed while the index stands.
        """
        from spark_apps.actions.indexing import AlterIndex

        return self._run(AlterIndex(name, properties), txn_id, window)

    def verify(
        self, name: str, *, repair: bool = False, txn_id: str | None = None, window: int | None = None
    ) -> VerificationReport:
        """Compare an index with a full scan of this version: ``report.ok``, ``report.differences``.

        :param repair: rebuild the index in one commit if it is wrong (``report.repaired``).
        :raises IndexNotFound: if there is none of that name.
        :raises InvalidInput: if its kind cannot be compared.
        :returns: what agrees and what differs.
        """
        from spark_apps.actions.indexing import verify

        report = verify(self.snapshot, name)
        return self.repair_indexes([report], txn_id=txn_id, window=window)[0][0] if repair else report

    def repair_indexes(
        self, reports: Sequence[VerificationReport], *, txn_id: str | None = None, window: int | None = None
    ) -> tuple[list[VerificationReport], Receipt]:
        """Rebuild the indexes that :meth:`verify` found wrong, all in one commit; those that agree are left alone.

        :returns: the reports, with ``repaired`` where an index was rebuilt; and the receipt of the commit.
        :raises IndexNotFound: if there is none of that name.
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
    ) -> Any:
        """Return how :meth:`read` would answer: index used, files and bytes read and skipped, why not the others.

        :param where: a SQL predicate. :param columns: the names that are asked for; all by default.
        :param hypothetical: indexes that are counted as if they were there, each with ``kind`` and ``columns``, and
            perhaps ``included``, ``properties`` and ``name``, as of :meth:`create_index`. Their columns are read in a
            sample of file groups, and nothing is written.
        :raises InvalidInput: (or its kin) for a hypothetical index that :meth:`create_index` would refuse.
        """
        from spark_apps.query.explain import explain

        if hypothetical:
            from spark_apps.advisor.hypothetical import explain_hypothetical

            return explain_hypothetical(self.snapshot, where, columns, hypothetical)
        return explain(self.snapshot, where, columns)

    def asked(self) -> Workload:
        """Return what was asked of the table, as far as its query log has it.

        It has shapes of predicates with their counts, indexes used, not used and why, and bytes that they spared. A
        log is kept where the property ``query_log`` says so; what this process asks is in it some seconds later.

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
        :param budget: ``bytes`` that indexes may hold in all (``"5GB"``), and ``minutes`` of upkeep a day.
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
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Fold files, of the index ``name`` or else of the table's own file groups; the rows stay the same.

        :param mode: ``full``: each group into one base file. ``quick``: only deltas with deltas.
        :param partitions: confine a compaction of the table to these paths.
        :raises IndexNotFound: if there is none of that name.
        :raises InvalidInput: for arguments that cannot be used.
        """
        if name is None:
            return self._run(CompactTable(mode, partitions), txn_id, window)
        from spark_apps.actions.indexing import CompactIndex

        return self._run(CompactIndex(name, mode), txn_id, window)

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

        Only partitions whose count changes are written anew; without any, no window is opened. Without arguments
        the partitions are brought in line with the rules there are.

        :param buckets: the count where no rule matches; as it is, if not given.
        :param bucket_rule: name of the rule engine: "regex" (the default), "range", or a user's.
        :param bucket_expressions: rules as in :meth:`create`, the document's ``overwrite``. They come first; what
            they do not match, the rules of older configs still decide, as in the document.
        :param add: the document's ``add``: the same, read by the engine of the newest rules if none is named.
        :param window: epoch of the caller's stop-write window; without it one is opened over the partitions
            and closed again.
        :param plan_only: return the :class:`~spark_apps.actions.rescale.RescalePlan` and do nothing.
        :param drain_seconds: how long to wait for writers that began before the window.
        :returns: the receipt, or the plan.
        :raises InvalidRule: if a rule cannot be used.
        :raises WindowNotOpen: if the window has ended.
        :raises StopWriteWindowOpen: if another holder has an overlapping window.
        :raises DrainTimeout: if earlier writers are still at work.
        """
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
        """Take a change of the bucket rules back, and give its partitions the counts from before it.

        Rows written since stay. Partitions made since get the counts that the remaining rules say.

        :param instant: of the change, as :meth:`bucket_rules` shows it; the newest if not given.
        :param drain_seconds: as of :meth:`rescale`.
        :returns: the receipt; with ``plan_only`` the plan. The other arguments are those of :meth:`rescale`.
        :raises InvalidRule: if there is no such change, or it is what the table was made with.
        """
        change = Rollback(self._handle.timeline, instant)
        return self._rescale(change, None, plan_only, drain_seconds, txn_id, window)

    def bucket_rules(self) -> ResultList[RuleVersion]:
        """Return the bucket rules in force in this version, newest first, in the order in which they are tried."""
        return rule_versions(self._state)

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
        """Change properties of the table that only decide what is done from now on: those of its query log.

        :param properties: ``query_log``: ``off``, ``on`` or ``sampled``; and ``query_log.sample``,
            ``query_log.literals``, ``query_log.retention_days``, ``query_log.max_bytes``.
        :raises InvalidInput: for another property, or a value that is none of it.
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
        plan_only: bool = False,
        txn_id: str | None = None,
    ) -> Any:
        """Expire old versions and delete the files that only they needed.

        A version expires when it is older than ``retain_seconds`` and not among the newest ``retain_versions``.

        :returns: the receipt, or with ``plan_only`` the :class:`~spark_apps.timeline.cleaning.CleaningPlan`.
        """
        self._check_writable()
        timeline = self._handle.timeline
        if plan_only:
            return cleaning.plan(timeline, retain_versions=retain_versions, retain_seconds=retain_seconds)
        receipt = cleaning.clean(
            timeline, retain_versions=retain_versions, retain_seconds=retain_seconds, txn_id=txn_id
        )
        return self._moved_to(receipt)

    @property
    def published(self) -> Published | None:
        """The version that readers of another format see; ``None`` of a table that is not published."""
        self._handle.timeline.refresh()
        return open_tables.published(self._handle.timeline)

    def publish(self, formats: Sequence[str] | None = None) -> Published | None:
        """Publish what a commit could not; with ``formats`` in others from now on than the table was created with.

        :param formats: ``["delta"]``, or none at all to publish no more.
        :raises PublishRefused: if another writer has written into the log.
        :raises InvalidInput: for a format that is not written here, or a table that is not published.
        :returns: how far it is published now; ``None`` if it is not any more.
        """
        self._check_writable()
        if formats is not None:
            self._run(SetPublished(formats), None, None)
            if not open_tables.is_published(self._handle.timeline.refresh().definition):
                return None
        return open_tables.publish_open(self._handle.timeline)

    def open_window(
        self,
        holder: str,
        partitions: Iterable[str] | None = None,
        seconds: float = WINDOW_SECONDS,
        at_most: float | None = None,
    ) -> Window:
        """Open a stop-write window over the table or some partitions; the holder's own calls are given its ``epoch``.

        :param seconds: until its deadline. :param at_most: until its last moment, which no renewal passes.
        :raises StopWriteWindowOpen: if one overlaps.
        """
        paths = None if partitions is None else [canonical(self.definition, path) for path in partitions]
        return windows.open_window(self._handle.timeline, holder, partitions=paths, seconds=seconds, at_most=at_most)

    def close_window(self, epoch: int) -> Receipt:
        """Close a window by its holder.

        :param epoch: of the window.
        :raises WindowNotOpen: if it has ended.
        """
        return windows.close(self._handle.timeline, epoch)

    # --- rows by name, in Spark's SQL ---------------------------------------------------------------------------------

    def create_view(self, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> None:
        """Create (or replace) a temporary view of this version's rows in the session, for queries in SQL.

        What ``where`` rules out is pruned by the indexes now, once; a query's own conditions are left to Spark, which
        reads only the columns that it needs.

        :param where: a SQL predicate, as in ``read``. :param columns: which columns, in their order.
        :param name: of the view.
        :raises InvalidPredicate: if the predicate cannot be used on this table.
        :raises UnknownColumn: for a column that the table does not have.
        """
        read_rows(self.snapshot, where, columns).createOrReplaceTempView(name)

    def frame(self) -> DataFrame:
        """Return this version's rows as a frame that is planned when it is used, by the filters of the query around it.

        The use of indexes by plain queries is turned on for the session, if it is not (see :func:`spark_apps.enable`).
        Of a registered source the frame has the files that are there when a query is planned.

        :raises EnvironmentMismatch: over Spark Connect.
        :raises InvalidInput: of a source as of an earlier version, which :meth:`read` reads.
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
