"""Spark types from their text without a Spark session, which workers do not have.

Reads what ``simpleString()`` gives. What it does not know is left to Spark's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import types as T

_SIMPLE: dict[str, T.DataType] = {
    "tinyint": T.ByteType(), "smallint": T.ShortType(), "int": T.IntegerType(), "bigint": T.LongType(),
    "float": T.FloatType(), "double": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(),
    "boolean": T.BooleanType(), "date": T.DateType(), "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAME = re.compile(r"\w+")


def type_of(text: str) -> T.DataType | None:
    """The type, or ``None`` if its text is not read here."""
    text = text.strip()
    if text in _SIMPLE:
        return _SIMPLE[text]
    if found := _DECIMAL.fullmatch(text):
        return T.DecimalType(int(found[1]), int(found[2]))
    outer, opened, inner = text.partition("<")
    if not opened or not inner.endswith(">"):
        return None
    parts = list(_parts(inner[:-1]))
    if outer == "struct":
        return _struct(parts)
    types = [type_of(part) for part in parts]
    if outer == "array" and len(types) == 1 and types[0] is not None:
        return T.ArrayType(types[0])
    if outer == "map" and len(types) == 2 and types[0] is not None and types[1] is not None:
        return T.MapType(types[0], types[1])
    return None


def _struct(parts: list[str]) -> T.StructType | None:
    fields = []
    for part in parts:
        name, colon, kind = part.partition(":")
        found = type_of(kind)
        if not colon or found is None or not _NAME.fullmatch(name.strip()):
            return None
        fields.append(T.StructField(name.strip(), found))
    return T.StructType(fields)


def _parts(text: str) -> Iterator[str]:
    """What commas part, outside of brackets."""
    depth = start = 0
    for place, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:].strip():
        yield text[start:]
