"""Columns that say of a row what the driver knows of its file.

A file is known by its size where no two of those read have the same: Spark tells it as a number, which is compared in a
moment, while its path is hashed and compared anew for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.sessions import with_columns
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile

# What java.net.URI leaves as it is in a path, beside letters and digits.
_UNQUOTED = frozenset("_-!.~'()*:@&=+$,;/")
_FILE = "__index_file"
_KNOWN = "__index_known"

_CASE_LIMIT = 32
"""Up to so many files are told apart by comparisons inside the generated code."""

Told = Mapping[str, tuple[str, Sequence[Any]]]
"""Column -> its type, and its value in the rows of each file."""

Filter = Callable[[DataFrame], DataFrame]


def told_of(
    snapshot: Snapshot, rows: DataFrame, named: Sequence[Column], files: Sequence[DataFile], told: Told, only: Filter
) -> DataFrame:
    """Rows of files with the columns ``named``, and with others, each of a type, that say the same of all rows of a
    file.

    :param rows: as read, so that they have Spark's ``_metadata``. :param files: all that rows can be of.
    :param only: drops rows by the columns ``named``, before more is found out about them.
    """
    constant = {name: F.lit(values[0]).cast(kind) for name, (kind, values) in told.items() if len(set(values)) == 1}
    differing = {name: said for name, said in told.items() if name not in constant}
    if not differing:
        return with_columns(only(rows.select(*named)), constant)
    sizes = [file.bytes for file in files]
    if len(set(sizes)) < len(sizes):
        # The whole path: folders of a source may differ in their first parts alone.
        shown = [shown_as(snapshot.store.spark_path(file.path)) for file in files]
        marked = only(rows.select(*named, F.col("_metadata.file_path").alias(_KNOWN)))
        places = [place for place, forms in enumerate(shown) for _ in forms]
        every = {name: (kind, [said[place] for place in places]) for name, (kind, said) in differing.items()}
        keys = [form for forms in shown for form in forms]
        return with_columns(_joined(snapshot.spark, marked, "string", keys, every), constant)
    marked = only(rows.select(*named, F.col("_metadata.file_size").alias(_KNOWN)))
    few = len(sizes) <= _CASE_LIMIT
    found = _by_case(marked, sizes, differing) if few else _joined(snapshot.spark, marked, "bigint", sizes, differing)
    return with_columns(found, constant)


def _joined(spark: SparkSession, rows: DataFrame, kind: str, keys: Sequence[Any], told: Told) -> DataFrame:
    ddl = ", ".join([f"{_FILE} {kind}", *(f"{name} {said[0]}" for name, said in told.items())])
    known = inline(spark, list(zip(keys, *(values for _, values in told.values()), strict=True)), ddl)
    found = rows.join(F.broadcast(known), F.col(_KNOWN) == F.col(_FILE), "left")
    # A file of which nothing is known would else be left out in silence.
    checked = F.when(F.col(_FILE).isNull(), _stray()).otherwise(F.col(next(iter(told))))
    return found.withColumn(next(iter(told)), checked).drop(_KNOWN, _FILE)


def _by_case(rows: DataFrame, sizes: Sequence[int], told: Told) -> DataFrame:
    number = _stray().cast("int")
    for place, size in enumerate(sizes):
        number = F.when(F.col(_KNOWN) == size, place).otherwise(number)
    values = {
        name: F.get(F.array(*(F.lit(value).cast(kind) for value in said)), F.col(_KNOWN))
        for name, (kind, said) in told.items()
    }
    return rows.withColumn(_KNOWN, number).withColumns(values).drop(_KNOWN)


def _stray() -> Column:
    return F.raise_error(F.concat(F.lit("a row of a file that was not asked for, with the mark "), F.col(_KNOWN)))


def shown_as(path: str) -> tuple[str, ...]:
    """A path as Spark shows it in ``_metadata.file_path``: Hadoop writes local ones with one slash or with three."""
    uri = uri_of(path)
    return tuple(dict.fromkeys([uri, uri.replace("://", ":", 1)]))


def uri_of(path: str) -> str:
    """A path quoted as ``java.net.URI`` does."""
    scheme, rest = path.split("://", 1)
    return f"{scheme}://" + "".join(_quoted(char) for char in rest)


def _quoted(char: str) -> str:
    if char.isascii():
        return char if char.isalnum() or char in _UNQUOTED else f"%{ord(char):02X}"
    if char.isspace() or char in "\u2007\u202f\xa0" or 0x80 <= ord(char) < 0xA0:
        return "".join(f"%{byte:02X}" for byte in char.encode())
    return char
