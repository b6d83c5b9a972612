"""Differences between the Sparks of the supported range, and a way round each where a Spark lacks something.

This module holds whatever is not asked of a Spark by its public DataFrame and SQL interfaces, with the release that
brought the interface: Arrow tables in and out came with 4.0, the layout of a union with 4.1. The range itself is in
:mod:`spark_apps.storage.supported`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import lru_cache
from typing import Any

from spark_apps.engine.pyspark_names import Column, DataFrame, F, SparkSession, T, spark_errors
from spark_apps.storage.supported import spark_release

UNION_PARTITIONING = "spark.sql.unionOutputPartitioning"
"""Spark's setting by which a union keeps the layout that its parts share; 4.1 brought it."""


_DRIVER_ROWS = "spark.sql.execution.arrow.localRelationThreshold"
"""Spark's setting of how many bytes of Arrow it makes rows of on the driver."""
_SETTING = threading.Lock()

# Before Spark 4.0 errors over a file have no class of their own; Hadoop or Parquet name one that cannot be opened.
_UNREADABLE_FILE = re.compile(
    r"(?:\[FAILED_READ_FILE[^\]]*\][^\n]*?|Encountered error while reading) file (\S[^\n]*?)\.(?:\s|$)"
    r"|Parquet column cannot be converted in file (\S[^\n]*?)\. Column: \["
    r"|ChecksumException: Checksum error: (\S[^\n]*?) at \d+ exp:"
    r"|RuntimeException: (\S[^\n]*?) is not a Parquet file"
)

_REFUSED_RECORD = re.compile(r"Malformed records are detected in (?:record|schema) (?:parsing|inference)")

# From Spark 4.0 on, the class of the SQL state says that a value cannot be computed; before, the name alone does.
_FAILED_EXPRESSION = re.compile(
    r"\[(?:(?P<known>CAST_INVALID_INPUT|CAST_OVERFLOW|(?:BINARY_|INTERVAL_)?ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO"
    r"|INVALID_ARRAY_INDEX|INVALID_ARRAY_INDEX_IN_ELEMENT_AT|NUMERIC_VALUE_OUT_OF_RANGE|CANNOT_PARSE_TIMESTAMP"
    r"|DATETIME_OVERFLOW)(?:\.\w+)?\] (?P<said>.*?)(?: SQLSTATE: \w{5}|\n|$)"
    r"|(?P<other>[A-Z][A-Z0-9_.]*)\] (?P<text>[^\n]*?) SQLSTATE: 22\w{3})"
)
_QUOTED_NAME = re.compile(r"`((?:[^`]|``)+)`")
_UNRESOLVED_COLUMN = re.compile(r"\[UNRESOLVED_COLUMN[.\w]*\] [^\n`]*(`.*?) cannot be resolved\b")
_EXISTING_NAMES = ("proposal", "fields")  # parameters of Spark's errors that list the columns there are

_ADVICE = re.compile(r"(?<=\.) (?:Correct|Use|If necessary|Please|To) .*| SQLSTATE: \w{5}.*")
"""What Spark says to do, which no index can: its expressions have no ``try_cast``."""
_MAX_MESSAGE = 300
"""Characters of a message of Spark's that an error of this package quotes."""


def release(spark: SparkSession) -> tuple[int, int]:
    """Return the major and minor release of the Spark that a session works with, such as ``(3, 5)``.

    Over Spark Connect that is the server's.
    """
    major, minor = spark_release(spark.version)[:2]
    return major, minor


def _takes_arrow() -> bool:
    """Test whether frames can be made of Arrow tables, and returned as such; some vendors' 3.5 have it too."""
    return hasattr(DataFrame, "toArrow")


def _has_repartition_by_id() -> bool:
    return hasattr(DataFrame, "repartitionById")  # 4.1


def _has_try_cast() -> bool:
    return hasattr(Column, "try_cast")  # 4.0


def union_keeps_buckets(spark: SparkSession) -> bool:
    """Test whether this Spark, if it is let to, gives a union the partitioning that its parts share."""
    return release(spark) >= (4, 1)


def reads_as(spark: SparkSession, stored: T.DataType, wanted: T.DataType) -> bool:
    """Test whether this Spark reads a column of Parquet files as a wider type than it has there."""
    return release(spark) >= (4, 0) or _parquet_type(stored) == _parquet_type(wanted)


def _parquet_type(kind: T.DataType) -> str:
    """Return what Spark has Parquet store a number as."""
    if isinstance(kind, T.DecimalType):
        return "int32" if kind.precision <= 9 else "int64" if kind.precision <= 18 else "bytes"
    return "int32" if isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType)) else kind.simpleString()


def message_of(error: BaseException) -> str:
    """Return the first line of what Spark says of an error; empty if it says nothing."""
    try:
        said = error.getMessage() if hasattr(error, "getMessage") else None
        if said is None and hasattr(error, "java_exception"):  # py4j's
            said = error.java_exception.getMessage()
    except spark_errors():  # a class of error that is a connector's own, which Spark has no words for
        said = None
    return ((said or str(error)).strip().splitlines() or [""])[0]


def missing_names(error: BaseException) -> frozenset[str]:
    """Return the names that an error is about: the key of a KeyError, or the columns that Spark cannot resolve.

    Spark's errors are judged by their parameters, not by their text, which also lists columns that exist. Over Connect
    those of Spark 3.5 have no parameters: then the text counts, up to that list.
    """
    parameters = error.getMessageParameters() if hasattr(error, "getMessageParameters") else None
    if parameters is None and isinstance(error, KeyError):
        return frozenset(map(str, error.args))
    if not parameters:
        found = _UNRESOLVED_COLUMN.search(str(error))
        parameters = {} if found is None else {"objectName": found[1]}
    missing = [str(value) for name, value in dict(parameters).items() if name not in _EXISTING_NAMES]
    quoted = (part.replace("``", "`") for value in missing for part in _QUOTED_NAME.findall(value))
    return frozenset([*missing, *quoted])


def unreadable_file(message: str) -> str | None:
    """Return the file that Spark could not read, by what it says of an error; None where that is of something else."""
    found = _UNREADABLE_FILE.search(message)
    return None if found is None else next(filter(None, found.groups()))


def refused_record(message: str) -> str | None:
    """Return what Spark says of a record at which it had to fail; None where an error is of something else."""
    found = _REFUSED_RECORD.search(message)
    return None if found is None else _one_line(message[found.start() :])


def failed_expression(message: str) -> tuple[str, str] | None:
    """Return Spark's name of an error over an expression that has no value for a row, and what Spark says of it.

    ``None`` where an error is of something else.
    """
    found = _FAILED_EXPRESSION.search(message)
    if found is None:
        return None
    return found["known"] or found["other"], _one_line(found["said"] or found["text"] or "")


def _one_line(text: str) -> str:
    line = _ADVICE.sub("", " ".join(text.partition("\n")[0].split()))
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"


def repartition_by_id(rows: DataFrame, count: int, number: str) -> DataFrame:
    """Return the rows with each in the partition that its column ``number`` names, from 0 to ``count`` - 1."""
    if _has_repartition_by_id():
        return rows.repartitionById(count, F.col(number))
    # By hash, of numbers that Spark's hash sends where they are to go.
    hashed = F.expr(f"array({', '.join(map(str, _numbers_by_slot(count)))})")
    return rows.repartition(count, F.get(hashed, F.col(number)))


@lru_cache(maxsize=64)
def _numbers_by_slot(count: int) -> tuple[int, ...]:
    """Return, for each of ``count`` partitions, an int that Spark's hash partitioning sends there."""
    import numpy as np

    by_slot: dict[int, int] = {}
    first = 0
    while len(by_slot) < count:
        numbers = np.arange(first, first + 4 * count + 64, dtype=np.uint32)
        slots, places = np.unique(_murmur3(numbers).view(np.int32).astype(np.int64) % count, return_index=True)
        for slot, place in zip(slots.tolist(), places.tolist(), strict=True):
            by_slot.setdefault(slot, first + place)
        first += len(numbers)
    return tuple(by_slot[slot] for slot in range(count))


def _murmur3(numbers: Any) -> Any:
    """Return Spark's hash of ints: Murmur3 of 32 bits with the seed 42."""
    word = 0xFFFFFFFF
    mixed = numbers.astype("uint64") * 0xCC9E2D51 & word
    mixed = ((mixed << 15 | mixed >> 17) & word) * 0x1B873593 & word ^ 42
    mixed = (((mixed << 13 | mixed >> 19) & word) * 5 + 0xE6546B64 & word) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & word
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & word
    return (mixed ^ mixed >> 16).astype("uint32")


def type_of_ddl(text: str) -> T.DataType:
    """Return the type of a DDL text, by Spark's parser.

    :raises PySparkException: if Spark cannot parse it.
    """
    if hasattr(T.DataType, "fromDDL"):
        return T.DataType.fromDDL(text)
    parse: Callable[[str], T.DataType] = T._parse_datatype_string
    return parse(text)


def try_cast(value: Column, kind: T.DataType) -> Column:
    """Return a number as another type of number: null where it does not fit, whatever the session's settings."""
    if _has_try_cast():
        return value.try_cast(kind)
    widths = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
    bits = widths.get(type(kind))
    if bits is None:  # an overflow is null, infinite, or an error
        return value.cast(kind)
    beyond = Decimal(2 ** (bits - 1))
    # A fraction is cut off, if there can be one: doubles of that size have none.
    low = value >= F.lit(-beyond) if bits == 64 else value > F.lit(-beyond - 1)
    return F.when(low & (value < F.lit(beyond)), value.cast(kind))


def arrow_schema(schema: T.StructType) -> Any:
    """Return the Arrow schema in which Spark exchanges rows; timestamps with a zone are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.1 no other zone could be given
        return to_arrow_schema(schema)


def to_arrow(rows: DataFrame) -> Any:
    """Return the rows as an Arrow table, on the driver; times with a zone are in UTC."""
    frame: Any = rows
    if _takes_arrow():
        return frame.toArrow()
    import pyarrow as pa

    schema = arrow_schema(frame.schema)
    batches = frame._collect_as_arrow()
    # Their type has the session's time zone: the same times under another name.
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def from_arrow(spark: SparkSession, table: Any, schema: T.StructType) -> DataFrame:
    """Return an Arrow table as a DataFrame with the columns of ``schema``, whose types the table has.

    In one piece, for Spark takes an empty piece for the end of all of them.
    """
    table = table.combine_chunks()
    if _takes_arrow():
        return spark.createDataFrame(table, schema)
    return _from_batches(spark, table, schema)


def _from_batches(spark: Any, table: Any, schema: T.StructType) -> DataFrame:
    """Hand a table's batches to the JVM, which Spark 3.5 does for frames of pandas alone.

    By default it makes rows of all of them on the driver and hands these to tasks, one object a row. Where there are
    several batches, tasks are handed these instead, and make rows of them.
    """
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    most = spark._jconf.arrowMaxRecordsPerBatch()
    batches = table.cast(arrow_schema(schema)).to_batches(most if most > 0 else None)
    if not batches:
        return spark.createDataFrame([], schema)
    python = spark._jvm.org.apache.spark.sql.api.python
    utilities = python.PythonSQLUtils
    iterator = spark._sc._serialize_to_jvm(
        batches, ArrowStreamSerializer(), utilities.readArrowStreamFromFile, python.ArrowIteratorServer
    )
    with _setting(spark, _DRIVER_ROWS, "0") if len(batches) > 1 else nullcontext():
        return DataFrame(utilities.toDataFrame(iterator, schema.json(), spark._jsparkSession), spark)


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Give the session another setting for the block; other threads may see it, and must not mind."""
    with _SETTING:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            spark.conf.unset(name)
            if before is not None and spark.conf.get(name, None) != before:
                spark.conf.set(name, before)
