"""Partition paths: from typed values to the canonical Hive-escaped path, and back.

The path is the identity of a partition in the timeline, so equal values always give one path and different
values never share one. Characters are escaped as Hive and Spark do; where those lose a difference, the path
keeps it:

- a null is ``__HIVE_DEFAULT_PARTITION__``, as with Hive;
- the empty string, which Spark writes as a null, is nothing at all after the sign: ``city=``;
- the string ``__HIVE_DEFAULT_PARTITION__`` itself has its first character escaped (``%5F_HIVE_…``);
- a NUL character is escaped like the other control characters, for no file system takes it.

Whatever unescapes Hive's paths reads all of them right.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from spark_apps.layout.types import ColumnType, column_types, normalize, parse_type
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.timeline.model import TableDefinition

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Hive's list: control characters and what has a meaning in paths, globs or shells.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(0x20)}
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_ALLOWED = ("string", "boolean", "date", "timestamp", "timestamp_ntz", "decimal", "float", "double")


def partition_path(columns: Sequence[str], values: Sequence[Any], types: Sequence[str] | None = None) -> str:
    """Return the path of a partition, such as ``dt=2024-11-11/region=eu``; "" without partition columns.

    :param columns: the table's partition columns in order.
    :param values: a value for each; ``None`` is null.
    :param types: their Spark types; without them those of the values (an ``int`` is a bigint).
    :raises InvalidSchema: for a value that is not one of its type, or a type that cannot partition a table.
    """
    if len(columns) != len(values):
        raise InvalidInput(
            f"{len(values)} values were given for the partition columns {', '.join(columns)}.",
            hint="Give one value for each, None for null.",
        )
    kinds = [parse_type(name) for name in types] if types is not None else column_types(values, None)
    parts = zip(columns, values, kinds, strict=True)
    return "/".join(f"{escape(name)}={_escaped_value(canonical_string(value, kind))}" for name, value, kind in parts)


def parse_partition_path(path: str, types: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the columns and values of a path, in its order.

    :param path: from :func:`partition_path`, or a path of Hive's or Spark's.
    :param types: Spark types by column; a column without one stays the string of the path.
    :raises InvalidInput: if the path is not of the form ``column=value/…``, or a value is not one of its type.
    """
    values: dict[str, Any] = {}
    for part in path.split("/") if path else ():
        name, sign, text = part.partition("=")
        if not sign or not name or unescape(name) in values:
            raise InvalidInput(
                f"{path!r} is not a partition path: {part!r} is not one column=value.",
                hint="Write it like dt=2024-11-11/region=eu, each partition column once.",
            )
        column = unescape(name)
        values[column] = None if text == NULL_PARTITION else unescape(text)
        if types is not None and column in types and values[column] is not None:
            values[column] = value_of(values[column], parse_type(types[column]), column)
    return values


def canonical(table: TableDefinition, path: str) -> str:
    """Return the canonical form of a partition path that a user gave.

    :raises InvalidInput: if it does not name each of the table's partition columns once, in their order.
    """
    if not isinstance(path, str):
        raise InvalidInput(f"{path!r} is not a partition path.", hint="Write it like dt=2024-11-11.")
    types = dict(zip(table.partition_by, types_of(table), strict=True))
    values = parse_partition_path(path.strip("/"), types)
    if tuple(values) != table.partition_by:
        expected = "/".join(f"{name}=…" for name in table.partition_by) or "'' (the table has no partition columns)"
        raise InvalidInput(f"{path!r} is not a partition of this table.", hint=f"Write it as {expected}.")
    return partition_path(table.partition_by, list(values.values()), types_of(table))


def path_of_texts(table: TableDefinition, texts: Sequence[str | None], types: Sequence[str] | None = None) -> str:
    """Return the canonical path of a partition from its columns' values as text.

    :param types: of these columns, where the caller knows them already.
    """
    types = types or types_of(table)
    values = [None if text is None else value_of(text, parse_type(kind), name)
              for text, kind, name in zip(texts, types, table.partition_by, strict=True)]  # fmt: skip
    return partition_path(table.partition_by, values, types)


def types_of(table: TableDefinition) -> list[str]:
    """Return the Spark types of a table's partition columns, in their order."""
    by_name = {field.name: field.type for field in table.fields}
    return [by_name[name] for name in table.partition_by]


def check_partition_types(types: Mapping[str, str]) -> None:
    """Refuse partition columns of a type whose values have no canonical string.

    :raises InvalidSchema: if there is one, naming it.
    """
    for name, text in types.items():
        kind = parse_type(text)
        if not kind.is_integer and kind.kind not in _ALLOWED:
            raise InvalidSchema(
                f"Column {name!r} of type {text!r} cannot partition a table.",
                hint="Partition by string, integer, boolean, date, timestamp, decimal or floating columns.",
            )


def escape(text: str) -> str:
    """Return a column name or value in Hive's escaping: ``%`` and two capital hexadecimal digits."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """Return the inverse of :func:`escape`; a lone ``%`` stays, as Hive leaves it."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _escaped_value(text: str | None) -> str:
    if text is None:
        return NULL_PARTITION
    return "%5F" + text[1:] if text == NULL_PARTITION else escape(text)


# --- one value ----------------------------------------------------------------------------------------------


def canonical_string(value: Any, column: ColumnType) -> str | None:
    """Return the one string of a value, unescaped; ``None`` for null.

    Dates and timestamps as Spark casts them to strings, timestamps in UTC whatever the session; decimals with
    all digits of their scale; floats as Java prints them since version 19, with one zero.

    :raises InvalidSchema: for a value that is not one of the type.
    """
    check_partition_types({"": column.text} if column.kind != "other" else {})
    value = normalize(value, column)
    if value is None:
        return None
    match column.kind:
        case "boolean":
            return "true" if value else "false"
        case "date":
            return value.isoformat()
        case "timestamp" | "timestamp_ntz":
            fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
            return value.strftime("%m-%d %H:%M:%S").join((f"{value.year:04d}-", fraction))
        case "decimal":
            return f"{value:f}"
        case "float" | "double":
            return _java_float(value, column.kind)
    return str(value)


def value_of(text: str, column: ColumnType, name: str = "") -> Any:
    """Return the value whose canonical string is given.

    :raises InvalidInput: if it is that of none, naming the column.
    """
    try:
        return normalize(_parse(text, column), column)
    except (ValueError, ArithmeticError) as error:
        raise InvalidInput(
            f"{text!r} is not a value of the partition column {name!r} of type {column.text!r}.",
            hint="Check the path, or the type of the column.",
        ) from error


def _parse(text: str, column: ColumnType) -> Any:
    match column.kind:
        case "boolean":
            return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else text
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            moment = dt.datetime.fromisoformat(text)
            return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
        case "timestamp_ntz":
            return dt.datetime.fromisoformat(text)
        case "decimal":
            return decimal.Decimal(text)
        case "float" | "double":
            return float(text)
    return int(text) if column.is_integer else text


def _java_float(value: float, kind: str) -> str:
    """Return Java's ``toString``: the shortest digits that give the number back, plain from 0.001 to 10,000,000."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = decimal.Decimal(_shortest(value, kind)).normalize().as_tuple()
    assert isinstance(exponent, int)  # finite, so never one of the special letters
    text = "".join(map(str, digits))
    point = len(text) + exponent  # the place of the point, counted from the first digit
    minus = "-" if sign else ""
    if value == 0:
        return "0.0"
    if -3 < point <= 7:
        text = "0" * (1 - point) + text if point < 1 else text.ljust(point, "0")
        whole = max(point, 1)
        return f"{minus}{text[:whole]}.{text[whole:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _shortest(value: float, kind: str) -> str:
    if kind == "double":
        return repr(value)
    packed = struct.pack("<f", value)
    # Nine digits always give a float back; an overflow of the rounded text only means "not this short".
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack("<f", float(text)) == packed:
                return text
        except OverflowError:
            continue
    return f"{value:.9g}"
