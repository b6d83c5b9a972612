"""How much of a file a query reads that needs some of its columns: an estimate from the columns' types alone."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import types as T

_WIDTHS: dict[type[T.DataType], int] = {
    T.BooleanType: 1, T.ByteType: 1, T.ShortType: 2, T.IntegerType: 4, T.LongType: 8, T.FloatType: 4,
    T.DoubleType: 8, T.DateType: 4, T.TimestampType: 8, T.TimestampNTZType: 8, T.DecimalType: 8,
    T.StringType: 20, T.BinaryType: 40,
}  # fmt: skip
_NESTED = 60


def share(schema: T.StructType, columns: Collection[str]) -> float:
    """The part of a columnar file's bytes that some of its columns take, from 0 to 1. One column at least is read, be
    it to count rows."""
    widths = {field.name: _WIDTHS.get(type(field.dataType), _NESTED) for field in schema.fields}
    if not widths:
        return 1.0
    wanted = sum(width for name, width in widths.items() if name in columns) or min(widths.values())
    return wanted / sum(widths.values())
