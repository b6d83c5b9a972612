"""Opens the source of a registered table; looks one up that is to be registered, by address or in Spark's catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_apps.layout.partitions import parse_partition_path
from spark_apps.mergetree.reader_settings import session_settings
from spark_apps.mergetree.tree import ExternalFiles
from spark_apps.sources import iceberg
from spark_apps.sources.delta import DeltaTable
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.plain import PlainFiles, columns_of_files
from spark_apps.sources.source_files import Listing
from spark_apps.storage.errors import InvalidInput, UnsupportedSource
from spark_apps.timeline.allowed_sources import CATALOG, PLAIN_FORMATS, check_allowed, given_options
from spark_apps.timeline.locations import Location, locate
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition


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
    checked = given_options(form, options)
    if form in PLAIN_FORMATS:
        named = find_in_catalog(spark, uri)
        if named is not None:
            uri, form, checked = named.location, named.format, given_options(named.format, {**named.options, **checked})
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
    table = IcebergTable("" if CATALOG in checked else _plain(uri).uri, checked, storage_options)
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


# --- Spark's catalog: where the folder behind a name is, its format, columns and options ------------------------------


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog."""

    location: str
    format: str
    schema: StructType
    options: dict[str, str]


def find_in_catalog(spark: SparkSession, name: str) -> CatalogTable | None:
    """Return the folder behind a name, or ``None`` if it is no name of a table (a path, or nothing in the catalog).

    :raises UnsupportedSource: for a view, a format that is not plain files, or partitions that lie elsewhere.
    """
    if not looks_like_name(name) or Path(name).exists() or not _exists(spark, name):
        return None
    quoted = ".".join(f"`{part}`" for part in name.split("."))
    details = _described(spark, quoted)
    form = details.get("Provider", "").lower()
    if details.get("Type", "").upper() == "VIEW" or form not in PLAIN_FORMATS or not details.get("Location"):
        what = "a view" if "VIEW" in details.get("Type", "").upper() else f"a table of the format {form or 'unknown'!r}"
        raise UnsupportedSource(
            f"{name} is {what} in Spark's catalog, not a folder of plain files.",
            hint=f"Names stand for {', '.join(PLAIN_FORMATS)}; give other tables by their address.",
        )
    location = _catalog_path(details["Location"])
    if details.get("Partition Provider", "").lower() == "catalog":
        _check_partitions(spark, name, quoted, location)
    options = _storage_properties(details.get("Storage Properties", ""))
    return CatalogTable(location, form, spark.table(quoted).schema, options)


def _exists(spark: SparkSession, name: str) -> bool:
    try:
        return bool(spark.catalog.tableExists(name))
    except PySparkException:
        return False  # no such catalog or database


def _described(spark: SparkSession, quoted: str) -> dict[str, str]:
    rows: list[Any] = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    start = next((n for n, row in enumerate(rows) if row[0].startswith("# Detailed Table")), len(rows))
    return {row[0].strip(): (row[1] or "").strip() for row in rows[start + 1 :]}


def _catalog_path(location: str) -> str:
    # A catalog shows local folders as file:/path, and nothing in it quoted.
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _storage_properties(text: str) -> dict[str, str]:
    pairs = dict(re.findall(r"([\w.]+)=([^,\]]*)", text.strip("[]")))
    return {name: value for name, value in pairs.items() if name not in ("serialization.format", "path")}


def _check_partitions(spark: SparkSession, name: str, quoted: str, location: str) -> None:
    """Check that all partitions lie in the table's folder.

    The catalog knows partitions that a listing of the folder might not find, or the other way round.
    """
    paths = {row[0] for row in spark.sql(f"SHOW PARTITIONS {quoted}").collect()}
    for path in paths:
        spec = ", ".join(f"`{k}`={json.dumps(v)}" for k, v in parse_partition_path(path).items())
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted} PARTITION ({spec})").collect()
        details = {row[0].strip(): (row[1] or "") for row in rows}
        if not _catalog_path(details.get("Location", location)).startswith(location):
            raise UnsupportedSource(
                f"The partition {path} of {name} lies outside of {location}.", hint="Register its folder by itself."
            )
