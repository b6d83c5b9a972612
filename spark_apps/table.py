"""The public face of a table on the lake: rows written and read, indexes made and kept, all through one commit log.

Its parts lie in :mod:`spark_apps.face`, thin on purpose: every method names an action of :mod:`spark_apps.actions` or a
query of :mod:`spark_apps.query` and hands on its receipt. A table object shows one version; it moves to the version
that its own call committed, and stays where it is while others commit, until it is loaded again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from spark_apps.actions import registering
from spark_apps.actions.create import create, define
from spark_apps.actions.template import TableHandle
from spark_apps.face.columns import ColumnsFace
from spark_apps.face.indexes import IndexesFace
from spark_apps.face.layout import LayoutFace
from spark_apps.face.rows import RowsFace
from spark_apps.face.upkeep import UpkeepFace
from spark_apps.face.views import ViewsFace
from spark_apps.layout.rules import BucketRules, Expressions
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


DEFAULT_BUCKETS = 8


class IndexedTable(RowsFace, IndexesFace, LayoutFace, UpkeepFace, ColumnsFace, ViewsFace):
    """A keyed table, or a registered source, with its indexes. Made by :meth:`create`, :meth:`register`, :meth:`load`.

    All writing methods take ``txn_id`` (a retry under the same id gets the first try's receipt and writes
    nothing) and
    ``window`` (the epoch of a stop-write window that the caller holds). They raise
    :class:`~spark_apps.storage.errors.CommitRefused` in its kinds, and return a receipt whose ``version`` is
        ``None`` if there
    was nothing to do.
    """

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        schema: StructType | str,
        record_key: Sequence[str],
        partition_by: Sequence[str] = (),
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
    ) -> IndexedTable:
        """Makes a table.

        :param schema: a StructType, or a DDL string as ``"id bigint, name string"``.
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
            (:mod:`spark_apps.mergetree.positions`).
        :param bucket_expressions: ``expression,count;…``, or pairs of expression and count; the first match wins.
        :param options: options of the store; see :class:`~spark_apps.storage.store.Store`.
        :raises InvalidInput: :raises TableExists:
        """
        rules = None if buckets is None else BucketRules(bucket_rule, bucket_expressions or "", buckets)
        if rules is None and (bucket_expressions or hash_fields):
            raise InvalidInput(
                "Bucket rules or hash fields were given for a table without buckets.",
                hint="Give buckets=…, or leave bucket_expressions and hash_fields out.",
            )
        definition = define(
            schema, record_key, partition_by, ordering_column, merge_by, rules is not None, hash_fields, hash_function,
            write_mode, properties, positions,
        )  # fmt: skip
        handle, _ = create(spark, Store(uri, options), definition, rules, txn_id)
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
        """A table over rows that somebody else writes: indexed and read, never written. The source is not touched.

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
        :raises InvalidInput: :raises UnsupportedSource: naming what cannot be honoured. :raises TableExists:
        """
        handle = registering.register(
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
        """The table at its newest version, or as of a version or an instant (UTC unless it says otherwise),
        read-only. A registered source is found by its own address too, and shows its files as they are now.

        :param source_version: of a registered Delta or Iceberg table its own version or snapshot id, read-only; the
            index state whose files fit it best is used.
        :param storage_options: of the store that holds the source, if not ``options``.
        :param index_root: and ``name``: as given when the source was registered.
        :raises TableNotFound: :raises LogVanished: :raises NewerFormat: :raises VersionNotFound: :raises
            SnapshotExpired:
        """
        timeline = registering.open_log(spark, uri, options, index_root, name)
        handle = TableHandle(spark, timeline, options if storage_options is None else storage_options)
        if source_version is not None:
            if version is not None or as_of is not None:
                raise InvalidInput("source_version was given with version or as_of.", hint="Give one of them.")
            return cls._showing(handle, registering.at_source_version(handle, source_version), pinned=True)
        if version is not None or as_of is not None:
            return cls._showing(handle, registering.at_log_version(handle, version, as_of), pinned=True)
        return cls._showing(handle, handle.snapshot())

    @classmethod
    def _showing(cls, handle: TableHandle, snapshot: Snapshot, pinned: bool = False) -> IndexedTable:
        return cls(handle, snapshot.state, pinned, snapshot.foreign)
