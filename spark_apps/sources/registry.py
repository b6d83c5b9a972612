"""Opens the source of a registered table, and looks one up that is to be registered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from spark_apps.mergetree.reader_settings import session_settings
from spark_apps.mergetree.tree import ExternalFiles
from spark_apps.sources import catalog, iceberg
from spark_apps.sources.delta import DeltaTable
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.listing import Location, locate
from spark_apps.sources.options import PLAIN_FORMATS, check_options
from spark_apps.sources.plain import PlainFiles, columns_of_files
from spark_apps.sources.source_files import Listing
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.allowed_sources import check_allowed
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Source(ExternalFiles, Protocol):
    """The interface of a kind of source."""

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the files of the source now, or as of a version of its own.

        :raises VersionNotFound: if there is no such version.
        :raises UnsupportedSource: if it cannot be read here.
        :raises StorageError: if the source cannot be listed.
        """


@dataclass(frozen=True)
class Discovery:
    """A source that is to be registered: where it is, what it is, and its columns."""

    location: Location
    source: SourceDefinition
    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]


def open_source(table: TableDefinition, storage_options: Mapping[str, Any] | None, log: str) -> Source:
    """Return the source of a registered table.

    :param storage_options: of the store that holds it, with the reader's ``source_roots``; never written down.
    :param log: address of the table's log.
    :raises SourceNotAllowed: if the reader has not allowed the log to name it.
    :raises InvalidInput: if the log names a format or an option that is not known here.
    """
    assert table.source is not None
    check_allowed(log, table.source, storage_options)
    form = table.source.format
    if form == "delta":
        return DeltaTable.of(table, storage_options)
    if form == "iceberg":
        return IcebergTable.of(table, storage_options, log)
    return PlainFiles.of(table, storage_options)


def discover(
    spark: SparkSession,
    uri: str,
    form: str,
    schema: StructType | str | None,
    options: Mapping[str, object] | None,
    storage_options: Mapping[str, Any] | None,
) -> Discovery:
    """Find out where a source is, its format, and its columns.

    :param uri: an address, a glob, or for plain files the name of a table in Spark's catalog.
    :raises InvalidInput: (or one of its kin) if it cannot be registered.
    :raises TableNotFound: if there is no table.
    """
    checked = check_options(form, options)
    if form in PLAIN_FORMATS:
        named = catalog.resolve(spark, uri)
        if named is not None:
            uri, form, checked = named.location, named.format, check_options(named.format, {**named.options, **checked})
            schema = named.schema if schema is None else schema
        location = locate(uri)
        fields, partition_by = columns_of_files(spark, location, form, schema, checked, storage_options)
        source = SourceDefinition(form, location.uri, checked, session=session_settings(spark, form))
        return Discovery(location, source, fields, partition_by)
    if schema is not None:
        raise InvalidInput(
            f"A schema was given for a source of format {form!r}, which has its own.", hint="Leave it out."
        )
    if form == "delta":
        location = _plain(uri)
        fields, partition_by = DeltaTable(location.uri, storage_options).columns()
        source = SourceDefinition(form, location.uri, session=session_settings(spark, form))
        return Discovery(location, source, fields, partition_by)
    checked = iceberg.name_of_catalog(checked, uri)
    table = IcebergTable("" if iceberg.CATALOG in checked else _plain(uri).uri, checked, storage_options)
    fields, partition_by = table.columns()
    source = SourceDefinition(form, table.location.uri, checked, session=session_settings(spark, form))
    return Discovery(table.location, source, fields, partition_by)


def looks_like_name(uri: str) -> bool:
    """Return whether an address may be the name of a table in a catalog: dots between plain words, and no slash."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}", uri) is not None


def _plain(uri: str) -> Location:
    location = locate(uri)
    if location.pattern is not None:
        raise InvalidInput(f"{uri!r} is a glob, and a table has one address.", hint="Give the folder of the table.")
    return location
