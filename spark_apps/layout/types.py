"""Spark's column types by name, and Python values brought into the one form that hashing and partition paths use.

This module knows which Python value is which value of a Spark type; it leaves to others what is then done with it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spark_apps.storage.errors import InvalidInput, InvalidSchema

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_SIMPLE = {
    *INTEGER_BITS,
    "float",
    "double",
    "string",
    "binary",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
}
_DECIMAL = re.compile(r"decimal(?:\(([0-9]{1,3})(?:,(-?[0-9]{1,3}))?\))?")
_FIELD_NAME = re.compile(r"\w+")
_SIZED = re.compile(r"(varchar|char)\(\d+\)")
# Products with quantize() and scaleb() must not be rounded: Spark's decimals have up to 38 digits.
_EXACT = decimal.Context(prec=100)
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A Spark type: ``kind`` is its short name, or "other" for what has no single comparable value.

    :param kind: tinyint, smallint, int, bigint, float, double, decimal, string, binary, boolean, date,
        timestamp, timestamp_ntz, char, or other. ``varchar(n)`` is a string.
    :param text: the type as it was given.
    """

    kind: str
    text: str
    precision: int = 0
    scale: int = 0

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGER_BITS

    @property
    def limits(self) -> tuple[int, int]:
        """Return the smallest and the largest value of an integer type."""
        half = 1 << (INTEGER_BITS[self.kind] - 1)
        return -half, half - 1


@lru_cache(maxsize=4096)
def parse_type(text: str) -> ColumnType:
    """Read a type as Spark prints it (``bigint``, ``decimal(10,2)``) or as DDL writes it (``LONG``).

    A type that this package does not compare by value (arrays, collated strings, intervals) comes back as
    "other".
    """
    name = text.strip().lower().replace(", ", ",")
    base = name.partition("(")[0]
    name = _ALIASES.get(base, base) + name[len(base) :]
    if name in _SIMPLE:
        return ColumnType(name, text)
    if match := _DECIMAL.fullmatch(name):
        return ColumnType("decimal", text, int(match[1] or 10), int(match[2] or 0))
    if match := _SIZED.fullmatch(name):
        return ColumnType("string" if match[1] == "varchar" else "char", text)
    return ColumnType("other", text)


@lru_cache(maxsize=1024)
def arrow_type(column: ColumnType) -> Any:
    """Return the Arrow type in which Spark exchanges values of a type; ``None`` for those that only Spark reads."""
    import pyarrow as pa

    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    simple = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
        "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
        "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return simple.get(column.kind)


def nested_arrow_type(text: str) -> Any:
    """Return the Arrow type in which Spark exchanges values of a type, of nested ones too; ``None`` as above."""
    import pyarrow as pa

    return build_type(
        text,
        lambda name: arrow_type(parse_type(name)),
        lambda element: pa.list_(pa.field("element", element)),
        lambda key, value: pa.map_(pa.field("key", key, nullable=False), pa.field("value", value)),
        lambda fields: pa.struct([pa.field(name, kind) for name, kind in fields]),
    )


def build_type(
    text: str,
    simple: Callable[[str], Any],
    array: Callable[[Any], Any],
    mapping: Callable[[Any, Any], Any],
    struct: Callable[[list[tuple[str, Any]]], Any],
) -> Any:
    """Return a type that Spark prints as ``text``, made by the functions given; ``None`` for a text that is left to it.

    :param simple: gives the type of a text without ``<``, or ``None``.
    :param array: of the type of its elements. :param mapping: of those of its keys and values.
    :param struct: of names and types.
    """
    text = text.strip()
    outer, opened, inner = text.partition("<")
    if not opened:
        return simple(text)
    if not inner.endswith(">"):
        return None
    parts = list(_split_at_commas(inner[:-1]))
    if outer == "struct":
        named = [part.partition(":") for part in parts]
        if any(not colon or not _FIELD_NAME.fullmatch(name.strip()) for name, colon, _ in named):
            return None
        names, parts = [name.strip() for name, _, _ in named], [part for _, _, part in named]
    types = [build_type(part, simple, array, mapping, struct) for part in parts]
    if any(kind is None for kind in types):
        return None
    if outer == "struct":
        return struct(list(zip(names, types, strict=True)))
    if outer == "array" and len(types) == 1:
        return array(*types)
    return mapping(*types) if outer == "map" and len(types) == 2 else None


def _split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts between commas that are outside of brackets."""
    depth = start = 0
    for index, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    if text[start:].strip():
        yield text[start:]


def infer_type(value: object) -> ColumnType:
    """Return the type that PySpark gives a value when no schema is given: an ``int`` is a bigint.

    :raises InvalidInput: for a value without one right answer (a ``Decimal`` holds nothing of its column's scale).
    """
    for python_type, name in _INFERRED:
        if isinstance(value, python_type):
            return parse_type(name)
    raise InvalidInput(
        f"The value {value!r} alone does not determine its type.",
        hint="Give `types`, for instance types=['decimal(10,2)'].",
    )


# bool before int and datetime before date: each is a subclass of the other.
_INFERRED: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "string"),
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double"),
    (str, "string"),
    ((bytes, bytearray), "binary"),
    (dt.datetime, "timestamp"),
    (dt.date, "date"),
)


def column_types(values: Sequence[object], types: Sequence[str] | None) -> list[ColumnType]:
    """Return the types of some values: those given, or the type of each value.

    :raises InvalidInput: if there are not as many types as values.
    """
    if types is None:
        return [infer_type(value) for value in values]
    if len(types) != len(values):
        raise InvalidInput(
            f"{len(values)} values were given with {len(types)} types.", hint="Give one type for each value."
        )
    return [parse_type(name) for name in types]


def normalize(value: Any, column: ColumnType) -> Any:
    """Return a value of a column in its one form, with ``None`` kept.

    Integers are ``int`` within the type's limits; floats are rounded to the type, -0.0 becomes 0.0; decimals
    have exactly the column's scale; a timestamp is an aware ``datetime`` in UTC (a naive one is taken as the
    local time of this process, as PySpark takes it), a timestamp_ntz a naive one.

    :raises InvalidSchema: if the value is not one of the type, or would lose digits.
    """
    if value is None:
        return None
    convert = _CONVERT.get(column.kind)
    if convert is None:
        raise InvalidSchema(
            f"Values of type {column.text!r} have no place in a key or a partition.",
            hint="Use string, integer, boolean, date, timestamp, decimal, floating or binary columns.",
        )
    converted = convert(value, column)
    if converted is None:
        raise InvalidSchema(
            f"{value!r} is not a value of type {column.text!r}.",
            hint="Convert it, or check the column's type.",
        )
    return converted


def _integer(value: Any, column: ColumnType) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    low, high = column.limits
    return int(value) if low <= value <= high else None


def _floating(value: Any, column: ColumnType) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float(value)
    if column.kind == "float" and math.isfinite(number):
        try:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            return None
    return number + 0.0  # -0.0 + 0.0 is 0.0, which Spark takes for the same value


def _decimal(value: Any, column: ColumnType) -> decimal.Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        return None
    number = decimal.Decimal(value)
    if not number.is_finite():
        return None
    exact = number.quantize(decimal.Decimal(1).scaleb(-column.scale), context=_EXACT)
    if exact != number or abs(unscaled(exact, column)) >= 10**column.precision:
        return None
    return abs(exact) if exact == 0 else exact


def _string(value: Any, column: ColumnType) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return None  # half of a surrogate pair: Spark would store a question mark
    return value


def _date(value: Any, column: ColumnType) -> dt.date | None:
    return value if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _timestamp(value: Any, column: ColumnType) -> dt.datetime | None:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else None


def _timestamp_ntz(value: Any, column: ColumnType) -> dt.datetime | None:
    return value if isinstance(value, dt.datetime) and value.tzinfo is None else None


def _boolean(value: Any, column: ColumnType) -> bool | None:
    return value if isinstance(value, bool) else None


def _binary(value: Any, column: ColumnType) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None


_CONVERT: dict[str, Callable[[Any, ColumnType], Any]] = {
    **dict.fromkeys(INTEGER_BITS, _integer),
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "string": _string,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "boolean": _boolean,
    "binary": _binary,
}


def unscaled(value: decimal.Decimal, column: ColumnType) -> int:
    """Return the digits of a decimal of that column as one integer, as Spark stores it."""
    return int(value.scaleb(column.scale, context=_EXACT))


def micros(value: dt.datetime) -> int:
    """Return microseconds since 1970, of a normalized timestamp or timestamp_ntz."""
    since = value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)
    return since // dt.timedelta(microseconds=1)


def days(value: dt.date) -> int:
    """Return days since 1970-01-01."""
    return value.toordinal() - _EPOCH.toordinal()


def date_or_time(number: int, kind: str) -> dt.date:
    """Return the value of a number: the inverse of :func:`days` for a date, else of :func:`micros`.

    :raises OverflowError: outside of the years 1 to 9999.
    """
    if kind == "date":
        return (_EPOCH + dt.timedelta(days=number)).date()
    moment = _EPOCH + dt.timedelta(microseconds=number)
    return moment.replace(tzinfo=dt.UTC) if kind == "timestamp" else moment
