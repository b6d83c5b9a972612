"""Columns that hold of a row what the driver knows of its file.

A file is known by its size where no two of those read have the same: Spark tells it as a number, which is compared in a
moment, while its path is hashed and compared anew for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_apps.mergetree.spark_utils import inline, with_columns
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile

# What java.net.URI leaves as it is in a path, beside letters and digits.
_UNQUOTED = frozenset("_-!.~'()*:@&=+$,;/")
_FILE = "__index_file"
_FILE_MARK = "__index_known"

_CASE_LIMIT = 32
"""Up to so many files are distinguished by comparisons inside the generated code."""

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
    joined = rows.join(F.broadcast(file_values), F.col(_FILE_MARK) == F.col(_FILE), "left")
    # A file of which nothing is known would else be left out in silence.
    checked = F.when(F.col(_FILE).isNull(), _unexpected_file()).otherwise(F.col(next(iter(file_columns))))
    return joined.withColumn(next(iter(file_columns)), checked).drop(_FILE_MARK, _FILE)


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
