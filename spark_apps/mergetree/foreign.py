"""Reads files of a registered source, which somebody else writes: any format, the schema and the exact files given.

Columns that a file does not hold (partition columns, the id of its file group) are attached from what the log says of
the file, never from its path. A file that Spark would not read rightly by itself comes through the library that knows
its format (:class:`~spark_apps.mergetree.tree.ForeignFiles`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.mergetree.inline import inline, of_arrow
from spark_apps.mergetree.meanings import options_of, read_whole
from spark_apps.mergetree.opening import READ_OPTIONS, listed_here, literal
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.sessions import with_columns
from spark_apps.mergetree.telling import shown_as
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.storage.gone import gone_file
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE, SourceDefinition

logger = logging.getLogger(__name__)

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


def is_foreign(snapshot: Snapshot, tree: Tree) -> bool:
    """Whether the files of a tree are a source's."""
    table = snapshot.state.definition
    return tree.name == DATA_TREE and table is not None and table.source is not None


def read_foreign(snapshot: Snapshot, tree: Tree, files: Iterable[DataFile], columns: Sequence[str]) -> DataFrame:
    """The rows of files of a source.

    :param columns: of the tree, in this order; :data:`~spark_apps.mergetree.tree.GROUP_ID` tells a row's file.
    :raises ObjectNotFound: if a file is gone. :raises StorageError: if one was rewritten since it was listed.
    """
    files = list(files)
    if snapshot.foreign is not None:
        fresh = [file for file in files if file.path not in snapshot.intact]
        snapshot.foreign.check(fresh)
        snapshot.intact.update(file.path for file in fresh)
    if not files:
        told = [T.StructField(name, _type(tree, name), True) for name in columns]
        return snapshot.spark.createDataFrame([], T.StructType(told))
    plain = [file for file in files if THROUGH not in (file.extra or {})]
    parts = [_read(snapshot, tree, plain, columns)] if plain else []
    for file in files:
        if THROUGH in (file.extra or {}):
            parts.append(_read_through(snapshot, tree, file, columns))
    return reduce(DataFrame.unionAll, parts)


def not_as_it_stands(files: Iterable[DataFile]) -> list[str]:
    """What is said of files that Spark would not read rightly: how many, through what they are read, and why."""
    told = Counter((extra[THROUGH], extra.get(WHY, "")) for file in files if THROUGH in (extra := file.extra or {}))
    return [f"{count:,} files are read through {name}: {why}" for (name, why), count in sorted(told.items())]


def values_of(snapshot: Snapshot, file: DataFile) -> dict[str, str | None]:
    """Column -> value as text, of the columns that a file of the source does not hold."""
    partition = snapshot.state.partitions.get(file.partition)
    texts = () if partition is None else partition.values
    return {**dict(zip(snapshot.table.partition_by, texts, strict=False)), **(file.extra or {}).get(VALUES, {})}


def _read(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], columns: Sequence[str]) -> DataFrame:
    source = snapshot.table.source
    assert source is not None
    told = {file.path: values_of(snapshot, file) for file in files}
    attached = told[files[0].path].keys()
    # All columns in their order, whatever is wanted: a CSV line has no names, and an ORC file may have none.
    held = [T.StructField(field.name, field.dataType, True) for field in tree.schema if field.name not in attached]
    rows = _open(snapshot, source, files, T.StructType(held), columns)
    values: dict[str, list[str | None]] = {
        name: [told[file.path][name] for file in files] for name in columns if name in attached
    }
    if GROUP_ID in columns:
        values[GROUP_ID] = [file.group for file in files]
    return _attached(snapshot, tree, rows, files, values).select(*map(column, columns))


def _open(
    snapshot: Snapshot,
    source: SourceDefinition,
    files: Sequence[DataFile],
    schema: T.StructType,
    columns: Sequence[str],
) -> DataFrame:
    """:param columns: those that are wanted, and that a filter may be about."""
    paths = literal(snapshot.store.spark_path(file.path) for file in files)
    told = {} if source.format in _SPARK_FORMATS else source.options
    options = {**options_of(source), **told, **READ_OPTIONS}
    if any(isinstance(schema[name].dataType, (T.FloatType, T.DoubleType)) for name in columns if name in schema.names):
        options = {**options, **_BY_VALUE}
    reader = (
        snapshot.spark.read.schema(schema).options(**options).format(_SPARK_FORMATS.get(source.format, source.format))
    )
    try:
        with listed_here(snapshot.spark, paths):
            rows = reader.load(paths)
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        gone = next((path for path in paths if path.split("://", 1)[1].lstrip("/") in str(error)), "One of the files")
        raise gone_file(gone, source.location) from error
    whole = read_whole(source, snapshot.spark, schema)
    return rows if whole is None else rows.where(whole)


def _attached(
    snapshot: Snapshot,
    tree: Tree,
    rows: DataFrame,
    files: Sequence[DataFile],
    values: Mapping[str, Sequence[str | None]],
) -> DataFrame:
    """Rows with columns that say the same of all rows of a file."""
    names = {name: f"__index_v{n}" for n, name in enumerate(values) if len(set(values[name])) > 1}
    if names:
        shown = [shown_as(snapshot.store.spark_path(file.path)) for file in files]
        told = zip(shown, *(values[name] for name in names), strict=True)
        both = [(form, *row[1:]) for row in told for form in row[0]]
        ddl = ", ".join([f"{_URI} string", *(f"{short} string" for short in names.values())])
        known = inline(snapshot.spark, both, ddl)
        rows = rows.select(*map(column, rows.columns), F.col("_metadata.file_path").alias(_FILE))
        stray = F.raise_error(F.concat(F.lit("a row of a file that was not asked for: "), F.col(_FILE)))
        rows = rows.join(F.broadcast(known), F.col(_FILE) == F.col(_URI), "left")
        seen = F.col(_URI).isNotNull()
        rows = rows.withColumns(
            {
                name: F.when(seen, typed(tree, name, F.col(short))).otherwise(stray.cast(_type(tree, name)))
                for name, short in names.items()
            }
        ).drop(_FILE, _URI, *names.values())
    same = {name: typed(tree, name, F.lit(found[0])) for name, found in values.items() if name not in names}
    return with_columns(rows, same)


def _read_through(snapshot: Snapshot, tree: Tree, file: DataFile, columns: Sequence[str]) -> DataFrame:
    extra = file.extra or {}
    logger.warning("%s is read through %s: %s", file.path, extra[THROUGH], extra.get(WHY, ""))
    assert snapshot.foreign is not None
    told = values_of(snapshot, file)
    held = [name for name in tree.columns if name not in told]
    # Spark cannot tell how many rows there are without a column.
    wanted = [name for name in columns if name in held] or held[:1]
    schema = T.StructType([T.StructField(name, tree.field(name).dataType, True) for name in wanted])
    rows = of_arrow(snapshot.spark, snapshot.foreign.rows(file, schema), schema)
    rows = with_columns(rows, {name: typed(tree, name, F.lit(text)) for name, text in told.items()})
    if GROUP_ID in columns:
        rows = rows.withColumn(GROUP_ID, F.lit(file.group))
    return rows.select(*map(column, columns))


def _type(tree: Tree, name: str) -> T.DataType:
    return T.StringType() if name == GROUP_ID else tree.field(name).dataType


def typed(tree: Tree, name: str, text: Column) -> Column:
    kind = _type(tree, name)
    if isinstance(kind, T.TimestampType):
        # The log's text of it is in UTC, whatever the session's time zone.
        text = F.concat(text, F.lit("Z"))
    return text.cast("string").cast(kind)
