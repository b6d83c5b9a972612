"""Registration of a source, and finding its log again from the source's address.

The first version of the log is written beside the source and never into it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spark_apps.actions.source_diff import best_fit, first_actions, observe, unobserved
from spark_apps.actions.template import TableHandle
from spark_apps.engine.hadoop_store import reach
from spark_apps.mergetree.schema import check_key_types, parse_ddl, resolve, struct_type, table_fields
from spark_apps.mergetree.tree import Snapshot
from spark_apps.sources.iceberg import IcebergTable, name_of_catalog
from spark_apps.sources.iceberg_named import options_of
from spark_apps.sources.listing import check_apart
from spark_apps.sources.registry import (
    OWN_FORMATS,
    discover,
    find_in_catalog,
    full_name,
    iceberg_by_name,
    id_at,
    looks_like_name,
    open_source,
)
from spark_apps.storage.errors import InvalidInput, LogVanished, SourceNotAllowed, TableExists, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.storage.unwritten import UNWRITTEN_HINT, check_unwritten
from spark_apps.timeline.allowed_sources import CATALOG, IDENTIFIER, PLAIN_FORMATS, given_options, name_together
from spark_apps.timeline.catalog_names import (
    PREFIX,
    CatalogName,
    Registration,
    is_believed,
    log_address,
    may_be_named,
)
from spark_apps.timeline.catalog_names import find as find_registered
from spark_apps.timeline.catalog_names import write as write_name
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import Location, Warehouse, locate
from spark_apps.timeline.log import TIMELINE, Timeline, commit_key
from spark_apps.timeline.model import Field, PutTable, SourceDefinition, TableDefinition
from spark_apps.workload.query_log import log_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

REGISTERED_AS = "registered_as"
"""Property of a source whose files are not where its name says: the folder by whose location it is opened."""


def register(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    form: str,
    *,
    schema: StructType | str | None,
    options: Mapping[str, object] | None,
    index_root: str | os.PathLike[str] | None,
    record_key: Sequence[str],
    name: str | None,
    storage_options: Mapping[str, Any] | None,
    log_options: Mapping[str, Any] | None,
    properties: Mapping[str, str] | None,
    txn_id: str | None,
    warehouse: Warehouse | None = None,
) -> TableHandle:
    """Write version 0 of the log of a source, with its files as they are; the source is not touched.

    :param warehouse: where the log of a table is whose place is a catalog's, and a file that says so by its name.
    :raises InvalidInput: (or a subclass) naming what cannot be registered.
    :raises TableExists: if it is.
    """
    if isinstance(record_key, str):
        raise InvalidInput(f"record_key is the text {record_key!r}.", hint=f"Give a list: [{record_key!r}].")
    check_unwritten("property", dict(properties or {}), UNWRITTEN_HINT)
    log_settings(dict(properties or {}))
    check_unwritten("location", {"uri": os.fspath(uri)}, UNWRITTEN_HINT)
    discovered = discover(spark, os.fspath(uri).removeprefix(PREFIX), form, schema, options, storage_options)
    names = [field.name for field in discovered.fields]
    key = resolve(record_key, names, "record_key")
    check_key_types(struct_type(discovered.fields), key, "record_key")
    log = _log_of(discovered.location, discovered.source.format, discovered.named, index_root, name, warehouse)
    check_apart(discovered.location, log)
    table = TableDefinition(
        table_id=secrets.token_hex(8),
        fields=discovered.fields,
        record_key=key,
        partition_by=discovered.partition_by,
        bucketed=False,
        properties=dict(properties or {}),
        source=discovered.source,
    )
    source = _with_name(discovered.source, discovered.named, log, warehouse)
    table = replace(table, source=source)
    name_together(log, discovered.source)
    listing = open_source(table, storage_options, log, spark).listing()
    if listing.fields is not None:
        table = replace(table, fields=listing.fields, partition_by=listing.partition_by or ())
    source = replace(source, version=listing.version, identity=listing.identity, mark=listing.mark)
    table = replace(table, source=source)
    try:
        timeline, _ = create_table(
            Store(log, storage_options if log_options is None else log_options),
            table,
            first_actions(table, listing, storage_options),
            txn_id=txn_id,
        )
    except TableExists:
        _name(discovered.named, source.format, log, warehouse)
        raise
    _name(discovered.named, source.format, log, warehouse)
    return TableHandle(spark, timeline, storage_options)


def _log_of(
    location: Location,
    form: str,
    named: tuple[CatalogName, str] | None,
    index_root: str | os.PathLike[str] | None,
    name: str | None,
    warehouse: Warehouse | None,
) -> str:
    """Return the address of a source's log: where it is asked for, else in the warehouse, else beside the source.

    :raises InvalidInput: if only a warehouse could hold it, and none is known.
    """
    if index_root is None and name is None and named is not None:
        root = None if warehouse is None else warehouse.root_store()
        if root is not None:
            return log_address(root, *named)
        if form == "iceberg":
            raise InvalidInput(
                f"The place of {named[0]} is its catalog's, and no warehouse is named that could keep its log.",
                hint="Call spark_apps.enable(spark, warehouse=…) first; or give warehouse=…, or index_root=…, a folder "
                "of your own.",
            )
    return location.default_log(None if index_root is None else os.fspath(index_root), name)


def _with_name(
    source: SourceDefinition, named: tuple[CatalogName, str] | None, log: str, warehouse: Warehouse | None
) -> SourceDefinition:
    """Return a source with its name in a catalog, where its log is called after that."""
    if named is None or source.format == "iceberg" or warehouse is None or not warehouse.is_of_catalog(log):
        return source
    name = named[0]
    return replace(source, options={**source.options, CATALOG: name.parts[0], IDENTIFIER: name.identifier})


def _name(named: tuple[CatalogName, str] | None, form: str, log: str, warehouse: Warehouse | None) -> None:
    """Let a warehouse find the log of a catalog's table by its name, unless no reader would believe a log there.

    An earlier table of the name is told from this one by its id, and keeps its log.
    """
    root = None if warehouse is None else warehouse.root_store()
    if root is None or named is None:
        return
    registration = Registration(str(named[0]), form, named[1], log)
    if is_believed(root, registration) and find_registered(root, named[0]) != registration:
        write_name(root, registration)


def open_log(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    options: Mapping[str, Any] | None,
    index_root: str | os.PathLike[str] | None = None,
    name: str | None = None,
    warehouse: Warehouse | None = None,
) -> Timeline:
    """Return the log of the table at an address: its own, or that of a source registered there.

    :param warehouse: what knows the tables of catalogs by their names.
    :raises TableNotFound: if there is no table.
    :raises LogVanished: if there are files of a table and no log.
    :raises NewerFormat: if a later version of this package wrote the log.
    """
    text = os.fspath(uri)
    reach(spark, text)
    if index_root is None and name is None and warehouse is not None:
        named_log = _named_log(spark, text, warehouse)
        if named_log is not None:
            return named_log
    source = _location(spark, text.removeprefix(PREFIX))
    if index_root is not None or name is not None or source.pattern is not None:
        return _of_source(source, options, None if index_root is None else os.fspath(index_root), name)
    named = looks_like_name(text) and source.uri != locate(text).uri
    if named or (source.is_local and not Path(source.base, TIMELINE).is_dir()):
        try:
            return _of_source(source, options, None, None)
        except TableNotFound:
            # A store of a local folder would make it, and a look must not leave one behind.
            if named or not Path(source.base).is_dir():
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
    """Return a source as of one of its own versions, with the version of the log whose indexes fit its files best.

    :raises InvalidInput: if it is no registered source, or one without versions.
    :raises VersionNotFound: if there is no such version.
    """
    timeline = handle.timeline
    newest = Snapshot(handle.spark, timeline.store, timeline.head)
    if newest.table.source is None:
        raise InvalidInput(
            f"{timeline.store.uri} is no registered source, so it has no source_version.",
            hint="Use version= or as_of=.",
        )
    source = open_source(newest.table, handle.source_options, timeline.store.uri, handle.spark)
    listing = source.listing(source_version)
    best = Snapshot(handle.spark, timeline.store, best_fit(timeline, listing))
    return observe(best, handle.source_options, source_version=source_version).snapshot


def at_log_version(handle: TableHandle, version: int | None, as_of: Any) -> Snapshot:
    """Return an earlier version of the log; of a registered source, with the files that version lists."""
    state = handle.timeline.at(version, as_of)
    return unobserved(Snapshot(handle.spark, handle.timeline.store, state), handle.source_options)


def _named_log(spark: SparkSession, text: str, warehouse: Warehouse) -> Timeline | None:
    """Return the log that a warehouse has for the name of a catalog's table; ``None``: the text is no such name.

    :raises SourceNotAllowed: if the log is of another table than the name.
    """
    if "/" in text or Path(text).exists():
        return None
    name, plain = may_be_named(text), text.removeprefix(PREFIX)
    if looks_like_name(plain):
        name = full_name(spark, plain) or name
    if name is None:
        return None
    registered = warehouse.registered(name)
    if registered is None:
        return None
    timeline = Timeline.load(Store(registered.log, warehouse.options))
    source = timeline.head.table.source
    options = {} if source is None else source.options
    if (
        source is None
        or source.identity != registered.id
        or (CATALOG in options and CatalogName.of(options[CATALOG], options[IDENTIFIER]) != name)
    ):
        raise SourceNotAllowed(
            f"The log {registered.log} is registered by the name {name}, and is of another table.",
            hint="Find out who wrote to the warehouse; drop the registration and register the table again.",
        )
    return timeline


def _location(spark: SparkSession, uri: str) -> Location:
    by_name = iceberg_by_name(spark, uri)
    if by_name is not None:
        return locate(by_name.location)
    named = find_in_catalog(spark, uri) if looks_like_name(uri) else None
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
    registered = table.source
    if registered is None or (registered.location != source.uri and table.properties.get(REGISTERED_AS) != source.name):
        raise InvalidInput(
            f"The log {log} is of {'a table' if registered is None else registered.location}, not of {source.uri}.",
            hint="Load it by the name that it was registered with.",
        )
    if registered.location == source.uri:
        name_together(log, registered.location)
    return timeline


# --- A source that is registered once more --------------------------------------------------------------------------


def find_registration(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    form: str = "parquet",
    schema: StructType | str | None = None,
    options: Mapping[str, object] | None = None,
    index_root: str | os.PathLike[str] | None = None,
    record_key: Sequence[str] = (),
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    warehouse: Warehouse | None = None,
) -> Timeline | None:
    """Return the log of a registration that equals the one asked for; ``None`` if there is none at its location.

    A schema that is not given is not compared: it would be inferred from files that have changed since.

    :param storage_options: of the store of source and log.
    :raises TableExists: naming what differs.
    :raises InvalidInput: for arguments that nothing could be registered with.
    """
    if isinstance(record_key, str):
        raise InvalidInput(f"record_key is the text {record_key!r}.", hint=f"Give a list: [{record_key!r}].")
    text = os.fspath(uri).removeprefix(PREFIX)
    location, form, checked, named = _registration(spark, text, form, options, storage_options)
    log = _log_of(location, form, named, index_root, name, warehouse)
    above, _, folder = log.rpartition("/")
    # Asked from above: a look must not leave a folder behind.
    if Store(above, storage_options).head(f"{folder}/{commit_key(0)}") is None:
        return None
    try:
        timeline = Timeline.load(Store(log, storage_options))
    except TableNotFound:
        return None  # it was dropped
    table = timeline.head.table
    if named is not None and table.source is not None and form in OWN_FORMATS:
        checked = dict(_with_name(replace(table.source, options=checked), named, log, warehouse).options)
    differences = [*_other_source(table, location, form, checked), *_other_columns(timeline, table, schema, record_key)]
    if differences:
        raise TableExists(
            f"{location.uri} is registered already, in {log}, and not as asked: {'; '.join(differences)}.",
            hint="Give the arguments of the first time (a schema may be left out), or drop the registration and "
            "register again, or give another name: a source may be registered twice.",
        )
    _name(named, form, log, warehouse)
    return timeline


def _registration(
    spark: SparkSession,
    uri: str,
    form: str,
    options: Mapping[str, object] | None,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Location, str, dict[str, str], tuple[CatalogName, str] | None]:
    """Address, format, options and the name in a catalog as a registration would write them."""
    checked = given_options(form, options)
    by_name = None if CATALOG in checked else iceberg_by_name(spark, uri)
    if by_name is not None:
        return locate(by_name.location), "iceberg", options_of(by_name), (by_name.name, by_name.id)
    if form in PLAIN_FORMATS or form in OWN_FORMATS:
        named = find_in_catalog(spark, uri)
        if named is not None and named.format in OWN_FORMATS:
            location = locate(named.location)
            if named.name is None:
                return location, named.format, {}, None
            return location, named.format, {}, (named.name, id_at(spark, named.format, location, storage_options))
        if named is not None:
            given = given_options(named.format, {**named.options, **checked})
            return locate(named.location), named.format, given, None
    if form == "iceberg":
        checked = name_of_catalog(checked, uri)
        if CATALOG in checked:
            return IcebergTable("", checked, storage_options).location, form, checked, None
    return locate(uri), form, checked, None


def _other_source(table: TableDefinition, location: Location, form: str, options: Mapping[str, str]) -> Iterator[str]:
    registered = table.source
    if registered is None:
        yield "a table of this package's own is there, not a source"
        return
    if registered.location != location.uri:
        yield f"it is of the source {registered.location}"
    if registered.format != form:
        yield f"the format is {registered.format!r}, not {form!r}"
    before = {key.lower(): (key, value) for key, value in registered.options.items()}
    now = {key.lower(): (key, value) for key, value in options.items()}
    for key in sorted(before.keys() | now.keys()):
        if before.get(key, ("", None))[1] != now.get(key, ("", None))[1]:
            yield _option(before.get(key), now.get(key))


def _option(before: tuple[str, str] | None, now: tuple[str, str] | None) -> str:
    if before is None:
        assert now is not None
        return f"the option {now[0]!r} is not set, and would be {now[1]!r}"
    return f"the option {before[0]!r} is {before[1]!r}, " + (
        "and would not be set" if now is None else f"not {now[1]!r}"
    )


def _other_columns(
    timeline: Timeline, table: TableDefinition, schema: StructType | str | None, record_key: Sequence[str]
) -> Iterator[str]:
    if [name.lower() for name in record_key] != [name.lower() for name in table.record_key]:
        yield f"the record key is ({', '.join(table.record_key)}), not ({', '.join(record_key)})"
    if schema is None or table.source is None:
        return
    given_columns = {
        field.name.lower(): field
        for field in table_fields(parse_ddl(schema) if isinstance(schema, str) else schema, ())
    }
    first_columns = {field.name.lower(): field for field in _first_fields(timeline, table)}
    partitions = {name.lower() for name in table.partition_by}
    for key, field in given_columns.items():
        if key not in first_columns:
            yield f"there is no column {field.name!r}"
        elif first_columns[key].type != field.type:
            yield f"the column {first_columns[key].name!r} is {first_columns[key].type}, not {field.type}"
    for key, field in first_columns.items():
        if key not in given_columns and key not in partitions:  # only folders may hold these
            yield f"there is a column {field.name!r} too"


def _first_fields(timeline: Timeline, table: TableDefinition) -> tuple[Field, ...]:
    """Return the columns as they were registered, without those that a refresh has added since."""
    for commit in timeline.commits():
        for action in commit.actions:
            if isinstance(action, PutTable) and action.definition.table_id == table.table_id:
                return action.definition.fields
    return table.fields
