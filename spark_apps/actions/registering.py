"""Registers a source: writes the first version of its log, which stands beside it and never in it; and finds the log
again from the source's address."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spark_apps.actions.observing import best_fit, first_actions, observe, unobserved
from spark_apps.actions.template import TableHandle
from spark_apps.mergetree.schema import check_key_types, resolve, struct_type
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources import catalog
from spark_apps.sources.locations import Location, check_apart, locate
from spark_apps.sources.registry import discover, looks_like_name, open_source
from spark_apps.storage.errors import InvalidInput, LogVanished, TableNotFound
from spark_apps.storage.secrets import UNWRITTEN_HINT, check_unwritten
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import TIMELINE, Timeline
from spark_apps.timeline.model import TableDefinition
from spark_apps.timeline.sources import name_together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

REGISTERED_AS = "registered_as"
"""Property of a source that lies elsewhere than its name says: it is found where a folder of that name would be."""


def register(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    form: str,
    schema: StructType | str | None,
    options: Mapping[str, object] | None,
    index_root: str | os.PathLike[str] | None,
    record_key: Sequence[str],
    name: str | None,
    storage_options: Mapping[str, Any] | None,
    log_options: Mapping[str, Any] | None,
    properties: Mapping[str, str] | None,
    txn_id: str | None,
) -> TableHandle:
    """Writes version 0 of the log of a source, with its files as they are. The source is not touched.

    :raises InvalidInput: (or one of its kin) naming what cannot be registered. :raises TableExists: if it is.
    """
    if isinstance(record_key, str):
        raise InvalidInput(f"record_key is the text {record_key!r}.", hint=f"Give a list: [{record_key!r}].")
    check_unwritten("property", dict(properties or {}), UNWRITTEN_HINT)
    check_unwritten("location", {"uri": os.fspath(uri)}, UNWRITTEN_HINT)
    found = discover(spark, os.fspath(uri), form, schema, options, storage_options)
    names = [field.name for field in found.fields]
    key = resolve(record_key, names, "record_key")
    check_key_types(struct_type(found.fields), key, "record_key")
    log = found.location.default_log(None if index_root is None else os.fspath(index_root), name)
    check_apart(found.location, log)
    table = TableDefinition(
        table_id=secrets.token_hex(8),
        fields=found.fields,
        record_key=key,
        partition_by=found.partition_by,
        bucketed=False,
        properties=dict(properties or {}),
        source=found.source,
    )
    name_together(log, found.source)
    listing = open_source(table, storage_options, log).listing()
    if listing.fields is not None:
        table = replace(table, fields=listing.fields, partition_by=listing.partition_by or ())
    table = replace(table, source=replace(found.source, version=listing.version))
    timeline, _ = create_table(
        Store(log, storage_options if log_options is None else log_options),
        table,
        first_actions(table, listing, storage_options),
        txn_id=txn_id,
    )
    return TableHandle(spark, timeline, storage_options)


def open_log(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    options: Mapping[str, Any] | None,
    index_root: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Timeline:
    """The log of the table at an address: its own, or that of a source registered there.

    :raises TableNotFound: :raises LogVanished: :raises NewerFormat:
    """
    text = os.fspath(uri)
    source = _location(spark, text)
    if index_root is not None or name is not None or source.pattern is not None:
        return _of_source(source, options, None if index_root is None else os.fspath(index_root), name)
    named = looks_like_name(text) and source.uri != locate(text).uri
    if named or (source.is_local and not Path(source.base, TIMELINE).is_dir()):
        try:
            return _of_source(source, options, None, None)
        except TableNotFound:
            if named or Path(source.base).is_file():
                raise
    try:
        return Timeline.load(Store(text, options))
    except (TableNotFound, LogVanished):
        # A source may hold folders of the names that a table of ours has: data/ is Iceberg's too.
        if source.is_local:
            raise
        try:
            return _of_source(source, options, None, None)
        except TableNotFound:
            pass
        raise


def at_source_version(handle: TableHandle, source_version: str | int) -> Snapshot:
    """A registered source as of one of its own versions, with the version of the log whose indexes fit its files best.

    :raises InvalidInput: if it is no registered source, or one without versions. :raises VersionNotFound:
    """
    timeline = handle.timeline
    newest = Snapshot(handle.spark, timeline.store, timeline.head)
    if newest.table.source is None:
        raise InvalidInput(
            f"{timeline.store.uri} is no registered source, so it has no source_version.",
            hint="Use version= or as_of=.",
        )
    listing = open_source(newest.table, handle.source_options, timeline.store.uri).listing(source_version)
    best = Snapshot(handle.spark, timeline.store, best_fit(timeline, listing))
    return observe(best, handle.source_options, source_version=source_version).snapshot


def at_log_version(handle: TableHandle, version: int | None, as_of: Any) -> Snapshot:
    """An earlier version of the log; of a registered source with the files that it told of."""
    state = handle.timeline.at(version, as_of)
    return unobserved(Snapshot(handle.spark, handle.timeline.store, state), handle.source_options)


def _location(spark: SparkSession, uri: str) -> Location:
    named = catalog.resolve(spark, uri) if looks_like_name(uri) else None
    return locate(uri if named is None else named.location)


def _of_source(
    source: Location, options: Mapping[str, Any] | None, index_root: str | None, name: str | None
) -> Timeline:
    try:
        log = source.default_log(index_root, name)
    except InvalidInput as error:
        raise TableNotFound(f"There is no table at {source.uri}, and no log of a source there.") from error
    missing = TableNotFound(
        f"There is no table at {source.uri}, and no source of this address is registered: {log} holds no log.",
        hint="Check the address; a source that was registered with an index_root or a name is loaded with the same.",
    )
    # A look must not leave a folder behind.
    if "://" not in log and not Path(log, TIMELINE).is_dir():
        raise missing
    store = Store(log, options)
    try:
        timeline = Timeline.load(store)
    except TableNotFound as error:
        if not store.list(TIMELINE):
            raise missing from error
        raise  # it was dropped
    table = timeline.head.table
    there = table.source
    if there is None or (there.location != source.uri and table.properties.get(REGISTERED_AS) != source.name):
        raise InvalidInput(
            f"The log {log} is of {'a table' if there is None else there.location}, not of {source.uri}.",
            hint="Load it by the name that it was registered with.",
        )
    if there.location == source.uri:
        name_together(log, there.location)
    return timeline
