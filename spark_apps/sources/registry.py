"""Opens the source of a registered table; looks one up that is to be registered, by address or in Spark's catalog.

Plain files are a folder of Parquet, ORC, JSON or CSV, Hive-style partitions below it, or a glob. Which files there are,
and which rows they give, is what Spark's own reading of the location would find, with one difference: partition columns
are all ``name=value`` folders below the part of the location without a pattern.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.pyspark_names import SparkSession, StructType, T, spark_errors
from spark_apps.engine.spark_utils import escape_globs, list_on_driver
from spark_apps.engine.spark_versions import message_of
from spark_apps.layout.partitions import (
    NULL_PARTITION,
    canonical_string,
    parse_partition_path,
    partition_path,
    unescape,
    value_of,
)
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.reader_settings import session_settings
from spark_apps.mergetree.schema import check_partition_types, parse_ddl, table_fields
from spark_apps.mergetree.tree import ExternalFiles
from spark_apps.sources import iceberg, iceberg_named
from spark_apps.sources.delta import DeltaTable
from spark_apps.sources.delta_spark import ConnectedDeltaTable, has_delta
from spark_apps.sources.hudi import HudiTable
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.iceberg_named import NamedIcebergTable
from spark_apps.sources.iceberg_tables import NamedTable, iceberg_of
from spark_apps.sources.listing import Folder, ListedFile, check_unchanged, list_folder
from spark_apps.sources.logs.commits import Gap
from spark_apps.sources.other_formats import check_above, check_folder
from spark_apps.sources.source_files import Changes, Listing, SourceFile, check_distinct
from spark_apps.storage.errors import (
    InvalidInput,
    InvalidName,
    InvalidSchema,
    OtherFormat,
    SourceNotAllowed,
    UnsupportedSource,
)
from spark_apps.storage.names import check_source_column_name, quote
from spark_apps.storage.store import SOURCE_ROOTS, Store
from spark_apps.timeline.allowed_sources import (
    CATALOG,
    IDENTIFIER,
    MERGE_SCHEMA,
    PLAIN_FORMATS,
    RECURSIVE,
    check_allowed,
    given_options,
    is_set,
)
from spark_apps.timeline.catalog_names import CatalogName, may_be_named, split
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.limits import MAX_NAME_PARTS
from spark_apps.timeline.locations import Location, locate
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

# --- plain files ------------------------------------------------------------------------------------------------------


def columns_of_files(
    spark: SparkSession,
    location: Location,
    form: str,
    schema: T.StructType | str | None,
    options: Mapping[str, str],
    storage_options: Mapping[str, Any] | None,
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Return the fields and the partition columns of files.

    Partition columns that a given schema does not name come last, of type int, bigint, date or string, whichever holds
    all their values.

    :raises InvalidSchema: if Spark cannot infer the columns, or there is none but partition columns.
    :raises InvalidInput: if there is nothing to infer them from, or folders contradict.
    """
    check_above(location, storage_options)
    recursive, folder = is_set(options, RECURSIVE), list_folder(location, storage_options)
    folder.check_plain(location, ())
    files = with_partition_texts(location, folder.files, recursive, None)
    folder.check_plain(location, (file for file, _ in files))
    if not files and schema is None:
        raise InvalidInput(
            f"There are no files at {location.uri}.", hint="Check the location, or give schema=… for files to come."
        )
    names = tuple(name for name, _ in files[0][1]) if files else ()
    given = None if schema is None else parse_ddl(schema) if isinstance(schema, str) else schema
    if given is None:
        inferred = _inferred(spark, form, options, [file for file, _ in files], storage_options)
        given = T.StructType(
            [field for field in inferred.fields if field.name.lower() not in {n.lower() for n in names}]
        )
        _check_not_both(form, inferred, names)
    spelled = {field.name.lower(): field.name for field in given.fields}
    partition_by = tuple(spelled.get(name.lower(), name) for name in names)
    added = [
        T.StructField(name, parse_ddl(inferred_type(_texts_of(files, name))))
        for name in partition_by
        if name.lower() not in spelled
    ]
    struct = T.StructType([*usable_columns(location.uri, form, given).fields, *added])
    fields = table_fields(struct, (), check_source_column_name)
    check_partition_types(struct, partition_by)
    if len(partition_by) == len(struct.fields):
        raise InvalidSchema(f"The files of {location.uri} hold no column.", hint="Give a schema.")
    return fields, partition_by


def _inferred(
    spark: SparkSession,
    form: str,
    options: Mapping[str, str],
    files: Sequence[ListedFile],
    storage_options: Mapping[str, Any] | None,
) -> T.StructType:
    merged = form in ("csv", "json") or is_set(options, MERGE_SCHEMA)
    # Of files that state their schema the newest, which has what was added since.
    chosen = files if merged else [max(files, key=lambda file: (file.modified, file.path))]
    paths = escape_globs(Store("/").spark_path(file.path) for file in chosen)
    try:
        with list_on_driver(spark, paths):
            return _schema_of(spark, form, options, paths)
    except spark_errors() as error:
        raise InvalidSchema(
            f"Spark cannot infer the columns of {chosen[0].path} as {form}: {message_of(error)}",
            hint="Check the format and its options, or give schema=….",
        ) from error


def _schema_of(spark: SparkSession, form: str, options: Mapping[str, str], paths: Sequence[str]) -> T.StructType:
    """Return the columns of files as Spark infers them, also of names that differ in case only."""
    given = {**options, RECURSIVE: "true"}
    try:
        return spark.read.format(form).options(**given).load(list(paths)).schema
    except spark_errors() as error:
        if "COLUMN_ALREADY_EXISTS" not in str(error) or not hasattr(spark, "newSession"):
            raise
        other = spark.newSession()  # whose settings nobody else sees
        other.conf.set("spark.sql.caseSensitive", "true")
        return other.read.format(form).options(**given).load(list(paths)).schema


def usable_columns(location: str, form: str, schema: T.StructType) -> T.StructType:
    """Return the columns of files that a table can have; the others are left out, and a warning names them.

    Those of CSV files are known by their places, so there a column that cannot be called by its name gets another one.
    """
    lower = Counter(field.name.lower() for field in schema.fields)
    reasons: dict[str, str] = {}
    for field in schema.fields:
        if lower[field.name.lower()] > 1:
            reasons[field.name] = "another name differs from it in case only"
        elif isinstance(field.dataType, T.NullType):
            reasons[field.name] = "it has no type, for it holds nothing but nulls"
        else:
            try:
                check_source_column_name(field.name)
            except InvalidName as error:
                reasons[field.name] = error.message
    if not reasons:
        return schema
    why = "; ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
    if form == "csv":
        taken = set(lower) - {name.lower() for name in reasons}
        fields = []
        for number, field in enumerate(schema.fields):
            name = field.name
            if name in reasons:
                name = next(n for n in (f"_c{number}", f"_column_{number}") if n not in taken)
            fields.append(
                T.StructField(name, T.StringType() if isinstance(field.dataType, T.NullType) else field.dataType)
            )
        renamed = ", ".join(f.name for f, g in zip(fields, schema.fields, strict=True) if f.name != g.name)
        logger.warning(
            "Columns of %s cannot have the names in the files and are called %s: %s.", location, renamed, why
        )
        return T.StructType(fields)
    logger.warning("Columns of %s are left out: %s.", location, why)
    return T.StructType([field for field in schema.fields if field.name not in reasons])


def _check_not_both(form: str, inferred: T.StructType, names: Sequence[str]) -> None:
    """Refuse CSV files that hold a column of their folders' names.

    Where columns are known by their position, one that is left out would shift the others.
    """
    folder_names = {name.lower() for name in names}
    both = [field.name for field in inferred.fields if field.name.lower() in folder_names]
    if both and form == "csv":
        raise InvalidSchema(
            f"The column {both[0]!r} is in the CSV files and in the names of their folders.",
            hint="Register the folder with recursiveFileLookup=true, which takes the column from the files.",
        )


def _texts_of(files: Sequence[tuple[ListedFile, Texts]], name: str) -> list[str | None]:
    return [text for _, texts in files for other, text in texts if other.lower() == name.lower()]


# --- Plain files as a source ----------------------------------------------------------------------------------------


Texts = tuple[tuple[str, str | None], ...]
"""(column, value as text) of each folder of a path that is one."""

_INTEGER = re.compile(r"-?\d{1,19}\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


class PlainFiles:
    """A folder, file or glob.

    :param fields: columns, with the types of the partition columns among them.
    :param storage_options: of the store; never written down.
    """

    def __init__(
        self,
        location: str,
        options: Mapping[str, str],
        fields: Sequence[Field],
        partition_by: Sequence[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._location = locate(location)
        self._options = options
        self._types = {field.name: field.type for field in fields}
        self._partition_by = tuple(partition_by)
        self._storage_options = storage_options
        self._last: tuple[Folder, Listing] | None = None

    @classmethod
    def of(cls, table: TableDefinition, storage_options: Mapping[str, Any] | None) -> PlainFiles:
        """Return the source of a registered table."""
        assert table.source is not None
        source = table.source
        return cls(source.location, source.options, table.fields, table.partition_by, storage_options)

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the files of now; the same object as before if not one has changed.

        Folders above are looked at only on a local disk, where that costs no request.

        :raises InvalidInput: if a version is asked for; there are none.
        :raises OtherFormat: if the folder is a table of another format, or is in one.
        """
        if version is not None:
            raise InvalidInput(
                f"{self._location.uri} is a folder of plain files, which has no versions.",
                hint="Load the table with version= or as_of= for the files that the log listed then.",
            )
        folder = list_folder(self._location, self._storage_options)
        folder.check_plain(self._location, ())
        if self._location.is_local:
            check_above(self._location, None)
        listed = folder.files
        if self._last is not None and self._last[0] == folder:
            return self._last[1]
        with_texts = self._with_texts(listed)
        folder.check_plain(self._location, (file for file, _ in with_texts))
        files = [self._file(file, texts) for file, texts in with_texts]
        check_distinct(self._location.uri, files)
        listing = Listing(tuple(files))
        self._last = folder, listing
        return listing

    def source_files(self, listed: Sequence[ListedFile]) -> list[SourceFile]:
        """Return listed files with their partitions, without those that are not read.

        :raises InvalidInput: if folders are of other partition columns.
        """
        return [self._file(file, texts) for file, texts in self._with_texts(listed)]

    def check(self, files: Sequence[DataFile]) -> None:
        """Check that files are still as they were listed.

        :raises ObjectNotFound: if a file is gone.
        :raises StorageError: if a file is gone or was rewritten since it was listed.
        """
        known = [
            (file.path, file.bytes, (file.extra or {}).get("modified"), (file.extra or {}).get("etag"))
            for file in files
        ]
        check_unchanged(self._location, known, self._storage_options)

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Refuse: Spark reads plain files itself."""
        raise InvalidInput(f"{file.path} is read by Spark.")

    def _with_texts(self, listed: Sequence[ListedFile]) -> list[tuple[ListedFile, Texts]]:
        recursive = is_set(self._options, RECURSIVE)
        return with_partition_texts(self._location, listed, recursive, self._partition_by)

    def _file(self, listed: ListedFile, texts: Texts) -> SourceFile:
        values: tuple[str | None, ...] = ()
        partition = ""
        if self._partition_by:
            by_name = {name.lower(): text for name, text in texts}
            typed = [self._value(name, by_name[name.lower()]) for name in self._partition_by]
            types = [self._types[name] for name in self._partition_by]
            partition = partition_path(self._partition_by, typed, types)
            values = tuple(canonical_string(v, parse_type(t)) for v, t in zip(typed, types, strict=True))
        return SourceFile(
            listed.path, listed.bytes, listed.modified, listed.etag, partition=partition, partition_values=values
        )

    def _value(self, name: str, text: str | None) -> Any:
        return None if text is None else value_of(text, parse_type(self._types[name]), name)


def with_partition_texts(
    location: Location, files: Sequence[ListedFile], recursive: bool, names: Sequence[str] | None
) -> list[tuple[ListedFile, Texts]]:
    """Return files with the partition values in their paths, without those that Spark passes over too.

    Passed over are files beside the partitions, and files in folders below where there are no partitions.

    :param names: the partition columns; ``None`` to find out.
    :raises InvalidInput: if folders are of other partition columns.
    """
    with_texts = [(file, () if recursive else _texts(file)) for file in files]
    if names is None:
        names = next((tuple(name for name, _ in texts) for _, texts in with_texts if texts), ())
    expected = tuple(name.lower() for name in names)
    kept = []
    for file, texts in with_texts:
        folder_names = tuple(name.lower() for name, _ in texts)
        if texts and folder_names != expected and not (expected and set(folder_names) == set(expected)):
            raise InvalidInput(
                f"{file.path} is of the partition columns ({', '.join(name for name, _ in texts)}), other files of "
                f"{location.uri} are of ({', '.join(names)}).",
                hint="Register the part of the location in which all folders are alike.",
            )
        if expected and not texts:
            logger.warning("%s is outside of the partitions of %s and is not read.", file.path, location.uri)
        elif not expected and location.pattern is None and not recursive and "/" in file.relative:
            logger.warning("%s is in a folder of %s that is no partition and is not read.", file.path, location.uri)
        else:
            kept.append((file, texts))
    return kept


def _texts(file: ListedFile) -> Texts:
    texts: list[tuple[str, str | None]] = []
    for folder in file.relative.split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if not sign or not name:
            continue
        if not text:
            raise InvalidInput(
                f"The folder {folder!r} of {file.path} has no partition value.", hint="Rename or remove it."
            )
        texts.append((unescape(name), None if text == NULL_PARTITION else unescape(text)))
    return tuple(texts)


def inferred_type(texts: Sequence[str | None]) -> str:
    """Return the type of a partition column from its values: int, bigint, date, else string."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.match(text) for text in known):
        numbers = [int(text) for text in known]
        if all(-(2**31) <= number < 2**31 for number in numbers):
            return "int"
        return "bigint" if all(-(2**63) <= number < 2**63 for number in numbers) else "string"
    if known and all(_is_date(text) for text in known):
        return "date"
    return "string"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.match(text)) and bool(dt.date.fromisoformat(text))
    except ValueError:
        return False


# --- opening a source -------------------------------------------------------------------------------------------------


class Refused:
    """The files of a source that may not be read: what is known of the table is shown, and its rows are not.

    :param error: raised whenever they are asked for.
    """

    def __init__(self, error: OtherFormat) -> None:
        self.error = error

    def check(self, files: Sequence[DataFile]) -> None:
        """Raise the error. :raises OtherFormat: always."""
        raise self.error

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Raise the error. :raises OtherFormat: always."""
        raise self.error


def check_surroundings(table: TableDefinition, storage_options: Mapping[str, Any] | None) -> None:
    """Check that a source of plain files is in no table of another format, by calls to its store.

    :raises OtherFormat: naming the folder and the format.
    """
    assert table.source is not None
    if table.source.format in PLAIN_FORMATS:
        check_above(locate(table.source.location), storage_options)


def check_unlisted(table: TableDefinition, storage_options: Mapping[str, Any] | None) -> None:
    """Check that a source of plain files whose listing is not asked for is no table of another format.

    :raises OtherFormat: naming the folder and the format.
    """
    assert table.source is not None
    if table.source.format in PLAIN_FORMATS:
        check_folder(locate(table.source.location), storage_options)


class Source(ExternalFiles, Protocol):
    """The interface of a kind of source."""

    def listing(self, version: str | int | None = None) -> Listing:
        """Return the files of the source now, or as of a version of its own.

        :raises VersionNotFound: if there is no such version.
        :raises UnsupportedSource: if it cannot be read.
        :raises StorageError: if the source cannot be listed.
        """


@runtime_checkable
class LoggedSource(Source, Protocol):
    """A source with a log of its own, which says what came since a version."""

    def changes(self, state: State) -> Changes | Gap:
        """Return what came and went since the version, with its mark, that a state of a log of indexes names.

        :return: a gap where the source's log cannot tell: a listing does.
        :raises TableNotFound: if the table is gone.
        """


@dataclass(frozen=True)
class Discovery:
    """A source that is to be registered: where it is, what it is, and its columns.

    :param named: of a table whose place is a catalog's, the name and the format's own id.
    """

    location: Location
    source: SourceDefinition
    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    named: tuple[CatalogName, str] | None = None


def open_source(
    table: TableDefinition, storage_options: Mapping[str, Any] | None, log: str, spark: SparkSession | None = None
) -> Source:
    """Return the source of a registered table.

    :param storage_options: of the store that holds it, with the reader's ``source_roots``; never written down.
    :param log: address of the table's log. :param spark: a session, whose own connector of the format is used.
    :raises SourceNotAllowed: if the reader has not allowed the log to name it.
    :raises InvalidInput: if the log names an unknown format or option.
    """
    assert table.source is not None
    by_name = check_allowed(log, table.source, storage_options)
    form = table.source.format
    if by_name and form in OWN_FORMATS:
        _check_place(table.source, log, spark)
    if form == "delta":
        if has_delta(spark):
            assert spark is not None
            return ConnectedDeltaTable.of_session(table, storage_options, spark)
        return DeltaTable.of(table, storage_options)
    if form == "iceberg":
        if spark is not None and iceberg_named.is_named(table.source.options) and iceberg_of(spark) is not None:
            return NamedIcebergTable.of(table, spark)
        return IcebergTable.of(table, storage_options, log)
    if form == "hudi":
        return HudiTable.of(table, storage_options, spark)
    return PlainFiles.of(table, storage_options)


def _check_place(source: SourceDefinition, log: str, spark: SparkSession | None) -> None:
    """Check that a session's catalog has a table where its log says: whoever may write a log names any other place.

    :raises SourceNotAllowed: if it has it elsewhere, or there is no session.
    """
    name = CatalogName.of(source.options[CATALOG], source.options[IDENTIFIER])
    if spark is None or spark is NO_SPARK:
        raise SourceNotAllowed(
            f"The log {log} is of the table {name}, and says that it is at {source.location}; where it is, only the "
            "catalog of a Spark session knows.",
            outcome="Nothing was read of it, and nothing was changed.",
            hint=f'Read it in Spark; or add "{source.location}" to {SOURCE_ROOTS} of the table connection, or of the '
            "storage options.",
        )
    found = find_in_catalog(spark, str(name))
    if found is None or locate(found.location).uri != source.location:
        raise SourceNotAllowed(
            f"The log {log} is of the table {name} at {source.location}, which the session's catalog has "
            + ("not." if found is None else f"at {locate(found.location).uri}."),
            outcome="Nothing was read of it, and nothing was changed.",
            hint="If the table was moved, drop the registration, which leaves the table alone, and register it again; "
            "else find out who wrote to the log.",
        )


def discover(
    spark: SparkSession,
    uri: str,
    form: str,
    schema: StructType | str | None,
    options: Mapping[str, object] | None,
    storage_options: Mapping[str, Any] | None,
) -> Discovery:
    """Find out where a source is, its format, and its columns.

    ::

        discover(spark, "s3://lake/raw/trips/*.csv", "csv", "id bigint, fare double", {"header": "true"}, None)

    :param uri: an address, a glob, or for plain files the name of a table in Spark's catalog.
    :raises InvalidInput: (or one of its kin) if it cannot be registered.
    :raises TableNotFound: if there is no table.
    """
    checked = given_options(form, options)
    full: CatalogName | None = None
    by_name = None if CATALOG in checked else iceberg_by_name(spark, uri)
    if by_name is not None:
        return _discovered_by_name(spark, by_name)
    if form in PLAIN_FORMATS or form in OWN_FORMATS:
        named = find_in_catalog(spark, uri)
        if named is not None and named.format in OWN_FORMATS:
            uri, form, checked, full = named.location, named.format, {}, named.name
        elif named is not None:
            uri, form, checked = named.location, named.format, given_options(named.format, {**named.options, **checked})
            schema = named.schema if schema is None else schema
    if form in PLAIN_FORMATS:
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
        delta = delta_at(spark, location, storage_options)
        fields, partition_by = delta.columns()
        source = SourceDefinition(form, location.uri, session=session_settings(spark, form))
        return Discovery(location, source, fields, partition_by, None if full is None else (full, delta.table_id()))
    if form == "hudi":
        location = _plain(uri)
        hudi = HudiTable(location.uri, storage_options, spark, None)
        source = SourceDefinition(form, location.uri, session=session_settings(spark, form))
        return Discovery(location, source, hudi.columns(), (), None if full is None else (full, hudi.table_id()))
    checked = iceberg.name_of_catalog(checked, uri)
    table = IcebergTable("" if CATALOG in checked else _plain(uri).uri, checked, storage_options)
    fields, partition_by = table.columns()
    source = SourceDefinition(form, table.location.uri, checked, session=session_settings(spark, form))
    return Discovery(table.location, source, fields, partition_by)


def delta_at(spark: SparkSession, location: Location, storage_options: Mapping[str, Any] | None) -> DeltaTable:
    """Return the Delta table at an address, by the session's connector where it has one."""
    if has_delta(spark):
        return ConnectedDeltaTable(location.uri, storage_options, spark)
    return DeltaTable(location.uri, storage_options)


def id_at(spark: SparkSession, form: str, location: Location, storage_options: Mapping[str, Any] | None) -> str:
    """Return the id by which a Delta or Hudi table at an address is told from one that is made anew there."""
    if form == "delta":
        return delta_at(spark, location, storage_options).table_id()
    return HudiTable(location.uri, storage_options, spark, None).table_id()


def iceberg_by_name(spark: SparkSession, name: str) -> NamedTable | None:
    """Return the Iceberg table that a session's catalogs know by a name; ``None``: the name is another's, or a path."""
    if not looks_like_name(name) or Path(name).exists():
        return None
    session = iceberg_of(spark)
    return None if session is None else session.find(name)


def place_in_catalogs(spark: SparkSession, name: str) -> str | None:
    """Return where a session's catalogs have the table of a name, ``None`` if they have none that can be registered."""
    of_iceberg = iceberg_by_name(spark, name)
    if of_iceberg is not None:
        return locate(of_iceberg.location).uri
    try:
        found = find_in_catalog(spark, name)
    except UnsupportedSource:
        return None
    return None if found is None else locate(found.location).uri


def full_name(spark: SparkSession, name: str) -> CatalogName | None:
    """Return the name in full of a table that a session's catalogs know, ``None`` if they do not say it."""
    if spark is NO_SPARK:
        return None
    of_iceberg = iceberg_by_name(spark, name)
    if of_iceberg is not None:
        return of_iceberg.name
    try:
        found = find_in_catalog(spark, name)
    except UnsupportedSource:
        return None
    return None if found is None else found.name


def _discovered_by_name(spark: SparkSession, found: NamedTable) -> Discovery:
    location = locate(found.location)
    options = given_options("iceberg", iceberg_named.options_of(found))
    source = SourceDefinition("iceberg", location.uri, options, session=session_settings(spark, "iceberg"))
    listing = NamedIcebergTable(spark, location.uri, options, None).listing()
    return Discovery(location, source, listing.fields or (), (), (found.name, found.id))


def looks_like_name(uri: str) -> bool:
    """Return whether an address may be the name of a table in a catalog: dots between words, and no slash.

    Words of other characters are in back-ticks.
    """
    if "`" in uri:
        return may_be_named(uri) is not None
    return re.fullmatch(rf"[A-Za-z_]\w*(\.[A-Za-z_]\w*){{0,{MAX_NAME_PARTS - 1}}}", uri) is not None


def _plain(uri: str) -> Location:
    location = locate(uri)
    if location.pattern is not None:
        raise InvalidInput(f"{uri!r} is a glob, and a table has one address.", hint="Give the folder of the table.")
    return location


# --- Spark's catalog: where the folder behind a name is, its format, columns and options ------------------------------


OWN_FORMATS = ("delta", "hudi")
"""Formats whose tables Spark's own catalog names too, and whose folders say what they are."""


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog."""

    location: str
    format: str
    schema: StructType
    options: dict[str, str]
    name: CatalogName | None = None


def find_in_catalog(spark: SparkSession, name: str) -> CatalogTable | None:
    """Return the folder behind a name, or ``None`` if it is no name of a table (a path, or nothing in the catalog).

    :raises UnsupportedSource: for a view, a format that is not plain files, or partitions that are elsewhere.
    """
    if not looks_like_name(name) or Path(name).exists() or not _exists(spark, name):
        return None
    quoted = ".".join(map(quote, split(name) if "`" in name else name.split(".")))
    details = _described(spark, quoted)
    form = details.get("Provider", "").lower()
    known = form in PLAIN_FORMATS or form in OWN_FORMATS
    if details.get("Type", "").upper() == "VIEW" or not known or not details.get("Location"):
        what = "a view" if "VIEW" in details.get("Type", "").upper() else f"a table of the format {form or 'unknown'!r}"
        raise UnsupportedSource(
            f"{name} is {what} in Spark's catalog, neither a folder of plain files nor a Delta or Hudi table.",
            hint=f"By name only {', '.join((*PLAIN_FORMATS, *OWN_FORMATS))} can be given; give other tables by their "
            "address.",
        )
    location = _catalog_path(details["Location"])
    if form in OWN_FORMATS:
        return CatalogTable(location, form, spark.table(quoted).schema, {}, _name_in_full(details))
    if details.get("Partition Provider", "").lower() == "catalog":
        _check_partitions(spark, name, quoted, location)
    options = _storage_properties(details.get("Storage Properties", ""))
    return CatalogTable(location, form, spark.table(quoted).schema, options)


def _exists(spark: SparkSession, name: str) -> bool:
    try:
        return bool(spark.catalog.tableExists(name))
    except spark_errors():
        return False  # no such catalog or database


def _described(spark: SparkSession, quoted: str) -> dict[str, str]:
    rows: list[Any] = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    start = next((n for n, row in enumerate(rows) if row[0].startswith("# Detailed Table")), len(rows))
    return {row[0].strip(): (row[1] or "").strip() for row in rows[start + 1 :]}


def _name_in_full(details: Mapping[str, str]) -> CatalogName | None:
    """Return the name of a table as its catalog describes it; ``None`` where that does not say the whole of it."""
    try:
        if "Name" in details:
            return CatalogName(split(details["Name"]))
        return CatalogName((details["Catalog"], details["Database"], details["Table"]))
    except (InvalidName, KeyError):
        return None


def _catalog_path(location: str) -> str:
    # A catalog shows local folders as file:/path, and nothing in it quoted.
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _storage_properties(text: str) -> dict[str, str]:
    pairs = dict(re.findall(r"([\w.]+)=([^,\]]*)", text.strip("[]")))
    return {name: value for name, value in pairs.items() if name not in ("serialization.format", "path")}


def _check_partitions(spark: SparkSession, name: str, quoted: str, location: str) -> None:
    """Check that all partitions are in the table's folder.

    The catalog knows partitions that a listing of the folder might not find, or the other way round.
    """
    paths = {row[0] for row in spark.sql(f"SHOW PARTITIONS {quoted}").collect()}
    for path in paths:
        spec = ", ".join(f"`{k}`={json.dumps(v)}" for k, v in parse_partition_path(path).items())
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted} PARTITION ({spec})").collect()
        details = {row[0].strip(): (row[1] or "") for row in rows}
        if not _catalog_path(details.get("Location", location)).startswith(location):
            raise UnsupportedSource(
                f"The partition {path} of {name} is outside of {location}.", hint="Register its folder by itself."
            )
