"""Reading files of a registered source, which another writer owns: any format, the schema and the exact files given.

Columns that a file does not hold (partition columns, the id of its file group) are attached from what the log keeps of
the file, never from its path. A file is known by its size where no two of those read have the same: Spark gives that as
a number, which is compared in a moment, while its path is hashed and compared anew for each row. A file that Spark
would not read rightly by itself comes through the library that knows its format
(:class:`~spark_apps.mergetree.tree.ExternalFiles`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import PurePosixPath
from typing import Any

from spark_apps.engine.pyspark_names import Column, DataFrame, F, SparkSession, T, spark_errors
from spark_apps.engine.spark_utils import (
    READ_OPTIONS,
    escape_globs,
    inline,
    list_on_driver,
    load_files,
    with_columns,
)
from spark_apps.engine.spark_versions import from_arrow
from spark_apps.mergetree.reader_settings import reader_options, whole_record_condition
from spark_apps.mergetree.schema import column, column_share
from spark_apps.mergetree.tree import GROUP_ID, FilesOfScan, ReadByConnector, Snapshot, Tree
from spark_apps.storage.errors import gone_file
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE, SourceDefinition

logger = logging.getLogger(__name__)

# --- what the driver knows of the file of a row -----------------------------------------------------------------------


# What java.net.URI leaves as it is in a path, beside letters and digits.
_UNQUOTED = frozenset("_-!.~'()*:@&=+$,;/")
_FILE_COLUMN = "__index_file"
_FILE_MARK = "__index_known"

_CASE_LIMIT = 32
"""Files up to which they are distinguished by comparisons inside the generated code."""

FileColumns = Mapping[str, tuple[str, Sequence[Any]]]
"""Column -> its type, and its value in the rows of each file."""

Filter = Callable[[DataFrame], DataFrame]


def add_file_columns(
    snapshot: Snapshot,
    rows: DataFrame,
    stored_columns: Sequence[Column],
    files: Sequence[DataFile],
    file_columns: FileColumns,
    only: Filter,
) -> DataFrame:
    """Return rows of files with the columns ``stored_columns``, and with others that are constant in a file.

    :param rows: as read, so that they have Spark's ``_metadata``.
    :param files: all that rows can be of.
    :param only: drops rows by the columns ``stored_columns``, before more columns are added.
    """
    constant = {
        name: F.lit(values[0]).cast(kind) for name, (kind, values) in file_columns.items() if len(set(values)) == 1
    }
    differing = {name: typed_values for name, typed_values in file_columns.items() if name not in constant}
    if not differing:
        return with_columns(only(rows.select(*stored_columns)), constant)
    sizes = [file.bytes for file in files]
    if len(set(sizes)) < len(sizes):
        # The whole path: folders of a source may differ in their first parts alone.
        file_uris = [metadata_paths(snapshot.store.spark_path(file.path)) for file in files]
        marked = only(rows.select(*stored_columns, F.col("_metadata.file_path").alias(_FILE_MARK)))
        file_indexes = [index for index, uris in enumerate(file_uris) for _ in uris]
        repeated = {
            name: (kind, [typed_values[index] for index in file_indexes])
            for name, (kind, typed_values) in differing.items()
        }
        keys = [uri for uris in file_uris for uri in uris]
        return with_columns(_joined(snapshot.spark, marked, "string", keys, repeated), constant)
    marked = only(rows.select(*stored_columns, F.col("_metadata.file_size").alias(_FILE_MARK)))
    compares = len(sizes) <= _CASE_LIMIT
    joined = (
        _by_case(marked, sizes, differing) if compares else _joined(snapshot.spark, marked, "bigint", sizes, differing)
    )
    return with_columns(joined, constant)


def _joined(
    spark: SparkSession, rows: DataFrame, kind: str, keys: Sequence[Any], file_columns: FileColumns
) -> DataFrame:
    ddl = ", ".join([f"{_FILE} {kind}", *(f"{name} {typed_values[0]}" for name, typed_values in file_columns.items())])
    file_values = inline(spark, list(zip(keys, *(values for _, values in file_columns.values()), strict=True)), ddl)
    joined = rows.join(F.broadcast(file_values), F.col(_FILE_MARK) == F.col(_FILE_COLUMN), "left")
    # A file of which nothing is known would else be left out in silence.
    checked = F.when(F.col(_FILE_COLUMN).isNull(), _unexpected_file()).otherwise(F.col(next(iter(file_columns))))
    return joined.withColumn(next(iter(file_columns)), checked).drop(_FILE_MARK, _FILE_COLUMN)


def _by_case(rows: DataFrame, sizes: Sequence[int], file_columns: FileColumns) -> DataFrame:
    number = _unexpected_file().cast("int")
    for index, size in enumerate(sizes):
        number = F.when(F.col(_FILE_MARK) == size, index).otherwise(number)
    values = {
        name: F.get(F.array(*(F.lit(value).cast(kind) for value in column_values)), F.col(_FILE_MARK))
        for name, (kind, column_values) in file_columns.items()
    }
    return rows.withColumn(_FILE_MARK, number).withColumns(values).drop(_FILE_MARK)


def _unexpected_file() -> Column:
    return F.raise_error(F.concat(F.lit("a row of a file that was not asked for, with the mark "), F.col(_FILE_MARK)))


def metadata_paths(path: str) -> tuple[str, ...]:
    """Return a path as Spark shows it in ``_metadata.file_path``.

    Hadoop writes local ones with one slash or with three.
    """
    uri = quoted_uri(path)
    return tuple(dict.fromkeys([uri, uri.replace("://", ":", 1)]))


def quoted_uri(path: str) -> str:
    """Return a path quoted as ``java.net.URI`` does."""
    scheme, rest = path.split("://", 1)
    return f"{scheme}://" + "".join(_quoted(char) for char in rest)


def _quoted(char: str) -> str:
    if char.isascii():
        return char if char.isalnum() or char in _UNQUOTED else f"%{ord(char):02X}"
    if char.isspace() or char in "\u2007\u202f\xa0" or 0x80 <= ord(char) < 0xA0:
        return "".join(f"%{byte:02X}" for byte in char.encode())
    return char


# --- files of another writer ------------------------------------------------------------------------------------------


VALUES = "values"
"""In :attr:`AddFile.extra`: column -> value as text, of columns that the file does not hold."""

THROUGH = "through"
"""In :attr:`AddFile.extra`: the library that reads the file, where Spark would not read it rightly."""

WHY = "why"
"""In :attr:`AddFile.extra`: what Spark would not honour."""

_FILE = "__index_file"
_URI = "__index_uri"
_SPARK_FORMATS = {"delta": "parquet", "iceberg": "parquet"}
# Dictionaries and Bloom filters are searched bit by bit, so that 0.0 is not found where a file holds -0.0.
_BY_VALUE = {"parquet.filter.dictionary.enabled": "false", "parquet.filter.bloom.enabled": "false"}


def is_external(snapshot: Snapshot, tree: Tree) -> bool:
    """Test whether the files of a tree are a source's."""
    table = snapshot.state.definition
    return tree.name == DATA_TREE and table is not None and table.source is not None


def describe_scan(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], columns: Sequence[str]) -> dict[str, Any]:
    """Return the description of a scan for Spark: whose files it reads, and how much of them.

    :param columns: of the tree, which are read.
    """
    table = PurePosixPath(snapshot.store.uri.removesuffix("/_index")).name
    index = next((one for one, entry in snapshot.state.indexes.items() if entry.definition.tree == tree.name), None)
    rows = sum(file.rows for file in files) if all(file.rows >= 0 for file in files) else None
    return {
        "name": [table] if index is None else [table, index],
        "share": round(column_share(tree.fields, columns), 4),
        **({} if rows is None else {"rows": rows}),
    }


def read_external(snapshot: Snapshot, tree: Tree, files: Iterable[DataFile], columns: Sequence[str]) -> DataFrame:
    """Return the rows of files of a source.

    :param columns: of the tree, in this order; :data:`~spark_apps.mergetree.tree.GROUP_ID` names a row's file.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if one was rewritten since it was listed.
    """
    files = list(files)
    if isinstance(snapshot.external, FilesOfScan) and files and GROUP_ID not in columns:
        rows = snapshot.external.scan(files, columns)
        if set(columns) <= set(rows.columns):
            return _whole_records(snapshot, tree, rows, columns).select(*map(column, columns))
    if snapshot.external is not None:
        fresh = [file for file in files if file.path not in snapshot.intact]
        snapshot.external.check(fresh)
        snapshot.intact.update(file.path for file in fresh)
    if not files:
        fields = [T.StructField(name, _column_type(tree, name), True) for name in columns]
        return snapshot.spark.createDataFrame([], T.StructType(fields))
    plain = [file for file in files if THROUGH not in (file.extra or {})]
    parts = [_read(snapshot, tree, plain, columns)] if plain else []
    others = [file for file in files if THROUGH in (file.extra or {})]
    located = _read_by_connector(snapshot, tree, others, columns) if others else None
    if located is not None:
        parts.append(located)
    else:
        parts += [_read_through_library(snapshot, tree, file, columns) for file in others]
    return reduce(DataFrame.unionAll, parts)


def _whole_records(snapshot: Snapshot, tree: Tree, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return rows that a scan of Spark's reads without those that depend on which columns are parsed."""
    stored = [field for field in tree.schema if field.name not in snapshot.table.partition_by]
    schema = T.StructType([T.StructField(field.name, field.dataType, True) for field in stored])
    keeps_all_records = whole_record_condition(snapshot, schema, columns)
    return rows if keeps_all_records is None else rows.where(keeps_all_records)


def external_reader_notes(files: Iterable[DataFile]) -> list[str]:
    """Return notes on files that Spark would not read rightly: how many, through what they are read, and why."""
    readers = Counter((extra[THROUGH], extra.get(WHY, "")) for file in files if THROUGH in (extra := file.extra or {}))
    return [f"{count:,} files are read through {name}: {why}" for (name, why), count in sorted(readers.items())]


def attached_values(snapshot: Snapshot, file: DataFile) -> dict[str, str | None]:
    """Return column -> value as text, of the columns that a file of the source does not hold."""
    partition = snapshot.state.partitions.get(file.partition)
    texts = () if partition is None else partition.values
    return {**dict(zip(snapshot.table.partition_by, texts, strict=False)), **(file.extra or {}).get(VALUES, {})}


def _read(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], columns: Sequence[str]) -> DataFrame:
    source = snapshot.table.source
    assert source is not None
    values_by_path = {file.path: attached_values(snapshot, file) for file in files}
    attached = values_by_path[files[0].path].keys()
    # All columns in their order, whatever is selected: a CSV line has no names, and an ORC file may have none.
    file_fields = [
        T.StructField(field.name, field.dataType, True) for field in tree.schema if field.name not in attached
    ]
    rows = _load(snapshot, source, files, T.StructType(file_fields), columns)
    if list(columns) == [field.name for field in file_fields]:
        # To select each column by name would take longer than all the rest of this.
        return rows
    values: dict[str, list[str | None]] = {
        name: [values_by_path[file.path][name] for file in files] for name in columns if name in attached
    }
    if GROUP_ID in columns:
        values[GROUP_ID] = [file.group for file in files]
    return _attach_values(snapshot, tree, rows, files, values).select(*map(column, columns))


def _load(
    snapshot: Snapshot,
    source: SourceDefinition,
    files: Sequence[DataFile],
    schema: T.StructType,
    columns: Sequence[str],
) -> DataFrame:
    """Load files in one reading of Spark.

    :param columns: those that are selected, and that a filter may be about.
    """
    paths = escape_globs(snapshot.store.spark_path(file.path) for file in files)
    registered_options = {} if source.format in _SPARK_FORMATS else source.options
    options = {**reader_options(source), **registered_options, **READ_OPTIONS}
    if any(isinstance(schema[name].dataType, (T.FloatType, T.DoubleType)) for name in columns if name in schema.names):
        options = {**options, **_BY_VALUE}
    form = _SPARK_FORMATS.get(source.format, source.format)
    try:
        with list_on_driver(snapshot.spark, paths):
            scan_options = describe_scan(
                snapshot, snapshot.data, files, [name for name in columns if name in schema.names]
            )
            rows = load_files(snapshot.spark, form, schema, options, paths, scan_options)
    except spark_errors() as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        missing = next(
            (path for path in paths if path.split("://", 1)[1].lstrip("/") in str(error)), "One of the files"
        )
        raise gone_file(missing, source.location) from error
    keeps_all_records = whole_record_condition(snapshot, schema, columns)
    return rows if keeps_all_records is None else rows.where(keeps_all_records)


def _attach_values(
    snapshot: Snapshot,
    tree: Tree,
    rows: DataFrame,
    files: Sequence[DataFile],
    values: Mapping[str, Sequence[str | None]],
) -> DataFrame:
    """Add columns that are constant in all rows of a file."""
    names = {name: f"__index_v{n}" for n, name in enumerate(values) if len(set(values[name])) > 1}
    if names:
        file_uris = [metadata_paths(snapshot.store.spark_path(file.path)) for file in files]
        rows_by_file = zip(file_uris, *(values[name] for name in names), strict=True)
        uri_rows = [(uri, *row[1:]) for row in rows_by_file for uri in row[0]]
        ddl = ", ".join([f"{_URI} string", *(f"{short} string" for short in names.values())])
        uri_values = inline(snapshot.spark, uri_rows, ddl)
        rows = rows.select(*map(column, rows.columns), F.col("_metadata.file_path").alias(_FILE))
        unexpected_file = F.raise_error(F.concat(F.lit("a row of a file that was not asked for: "), F.col(_FILE)))
        rows = rows.join(F.broadcast(uri_values), F.col(_FILE) == F.col(_URI), "left")
        is_known = F.col(_URI).isNotNull()
        rows = rows.withColumns(
            {
                name: F.when(is_known, cast_text(tree, name, F.col(short))).otherwise(
                    unexpected_file.cast(_column_type(tree, name))
                )
                for name, short in names.items()
            }
        ).drop(_FILE, _URI, *names.values())
    constants = {name: cast_text(tree, name, F.lit(texts[0])) for name, texts in values.items() if name not in names}
    return with_columns(rows, constants)


def _read_by_connector(
    snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], columns: Sequence[str]
) -> DataFrame | None:
    """Return rows of files as the source's own connector of Spark reads them; ``None`` where the session has none."""
    if not isinstance(snapshot.external, ReadByConnector):
        return None
    named = [name for name in columns if name != GROUP_ID]
    # Without a column Spark could not know how many rows there are.
    found = snapshot.external.connector_rows(snapshot.spark, files, named or tree.columns[:1])
    if found is None:
        return None
    rows, location = found.frame, found.location
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    typed: dict[str, Column] = {
        name: column(name) if kinds[name] == tree.field(name).dataType else column(name).cast(tree.field(name).dataType)
        for name in named
    }
    if GROUP_ID in columns and len(files) > 1:
        groups = [(path, file.group) for file in files for path in found.spellings(file.path)]
        known = inline(snapshot.spark, groups, f"{_URI} string, {_FILE_MARK} string")
        rows = rows.join(F.broadcast(known), column(location) == F.col(_URI), "left")
        unexpected = F.raise_error(F.concat(F.lit("a row of a file that was not asked for: "), column(location)))
        typed[GROUP_ID] = F.when(F.col(_URI).isNotNull(), F.col(_FILE_MARK)).otherwise(unexpected.cast("string"))
    elif GROUP_ID in columns:
        typed[GROUP_ID] = F.lit(files[0].group)
    return rows.select(*(typed[name].alias(name) for name in columns))


def _read_through_library(snapshot: Snapshot, tree: Tree, file: DataFile, columns: Sequence[str]) -> DataFrame:
    extra = file.extra or {}
    logger.warning("%s is read through %s: %s", file.path, extra[THROUGH], extra.get(WHY, ""))
    assert snapshot.external is not None
    attached = attached_values(snapshot, file)
    file_columns = [name for name in tree.columns if name not in attached]
    # Without a column Spark could not know how many rows there are.
    selected = [name for name in columns if name in file_columns] or file_columns[:1]
    schema = T.StructType([T.StructField(name, tree.field(name).dataType, True) for name in selected])
    rows = from_arrow(snapshot.spark, snapshot.external.rows(file, schema), schema)
    rows = with_columns(rows, {name: cast_text(tree, name, F.lit(text)) for name, text in attached.items()})
    if GROUP_ID in columns:
        rows = rows.withColumn(GROUP_ID, F.lit(file.group))
    return rows.select(*map(column, columns))


def _column_type(tree: Tree, name: str) -> T.DataType:
    return T.StringType() if name == GROUP_ID else tree.field(name).dataType


def cast_text(tree: Tree, name: str, text: Column) -> Column:
    kind = _column_type(tree, name)
    if isinstance(kind, T.TimestampType):
        # The log's text of it is in UTC, whatever the session's time zone.
        text = F.concat(text, F.lit("Z"))
    return text.cast("string").cast(kind)
