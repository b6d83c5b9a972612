"""Kinds of columns: values that are likely to be mistaken for one another, and how Spark and DuckDB write them."""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Literal = tuple[str, str | None]
"""A literal for Spark, and for DuckDB where that surely reads it alike."""

_SINGLE = struct.unpack("<f", struct.pack("<f", 0.1))[0]
_FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, _SINGLE, 3.0, float("nan"), float("inf"), float("-inf")]

STRINGS = ["", "a", "A", "b", "ä/ö", "a\u0308", "x\ny", "%2F", "100%", "emoji 🙂", "\uffff", "\U0010ffff", "=", "it's",
           '"q"', "a\\b", "__HIVE_DEFAULT_PARTITION__", "01", "1", " 1", "null", "NaN", "İ", "ß", "日本", "a,b;c", "\t",
           "{x}", "[y]", "\x7f", "\u200b"]  # fmt: skip


def _utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class Kind:
    """A column type with its values and with literals of other types that may stand beside it without an error."""

    type: str
    values: Sequence[Any]
    odd: Sequence[str] = ()


_NUMBERS = ["1.0", "1.5BD", "'1'", "'01'", "1e0", "CAST(2 AS BIGINT)", "2S", "-1", "0.5D", "CAST(NULL AS INT)", "+1",
            "-0.0D", "double('NaN')", "CAST('1' AS INT)", "9223372036854775807", "1.00000000000001"]  # fmt: skip
_FRACTIONS = [*_NUMBERS, "'1.5'", "0.1F", "0.1D", "CAST(1.005 AS DECIMAL(10,2))", "CAST('-Infinity' AS DOUBLE)"]
_DAYS = ["'2024-01-01'", "'2024-1-2'", "TIMESTAMP '2024-01-01 00:00:00'", "date('2024-01-02')",
         "CAST('2024-02-29' AS DATE)", "'2024-01-01 05:00:00'"]  # fmt: skip
_TIMES = ["'2024-01-01T05:00:00Z'", "DATE '2024-01-01'", "'2024-01-01'", "TIMESTAMP_NTZ '2024-01-01 00:00:00'",
          "TIMESTAMP '2024-01-01 00:00:00-05:00'", "CAST('1970-01-01 00:00:00.000001' AS TIMESTAMP)"]  # fmt: skip

KINDS = {
    kind.type: kind
    for kind in (
        Kind("tinyint", [-128, -1, 0, 1, 2, 127], _NUMBERS),
        Kind("int", [0, 1, 2, 3, 4, 5, -1, 2**31 - 1, -(2**31)], _NUMBERS),
        Kind("bigint", [0, 1, 2, 3, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)], _NUMBERS),
        Kind("decimal(10,2)", [*map(Decimal, ("0.00", "1.00", "1.50", "-0.01", "99999999.99", "2.00"))], _FRACTIONS),
        Kind("decimal(20,0)", [Decimal(t) for t in ("0", "1", "-1", "99999999999999999999", "2")], _FRACTIONS),
        Kind("float", _FLOATS, [*_FRACTIONS, "'NaN'"]),
        Kind("double", [*_FLOATS, 0.1, 2.0**53], [*_FRACTIONS, "'NaN'", "'Infinity'"]),
        Kind("string", STRINGS, [r"'it\'s'", '"a"', "'i' 'ts'", r"'a\\b'", "concat('a', '')", "CAST(1 AS STRING)"]),
        Kind("date", [dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 2, 29), dt.date(1, 1, 1),
                      dt.date(9999, 12, 31), dt.date(1969, 12, 31)], _DAYS),
        Kind("timestamp", [_utc("2024-01-01T00:00:00"), _utc("2024-01-01T05:00:00"), _utc("1969-12-31T23:59:59.999999"),
                           _utc("1970-01-01T00:00:00.000001"), _utc("2024-03-10T07:30:00")], _TIMES),
        Kind("boolean", [True, False], ["'true'", "CAST(1 AS BOOLEAN)", "NULL"]),
        Kind("binary", [b"", b"\x00", b"\x01", b"\x1f", b"\xff\x00", b"a"], []),
    )
}  # fmt: skip

_ARROW = {
    "tinyint": pa.int8(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "boolean": pa.bool_(),
    "binary": pa.binary(), "decimal(10,2)": pa.decimal128(10, 2), "decimal(14,2)": pa.decimal128(14, 2),
    "decimal(20,0)": pa.decimal128(20, 0), "struct<b:int>": pa.struct([("b", pa.int32())]),
}  # fmt: skip


def arrow(rows: Sequence[tuple[Any, ...]], types: Mapping[str, str]) -> pa.Table:
    """Rows as Arrow holds them, with columns of these names and types."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(v), f.type) for v, f in zip(columns, schema, strict=True)], schema=schema)


KEY_TYPES = ("int", "bigint", "string", "decimal(10,2)", "date", "timestamp", "binary", "tinyint")
PARTITION_TYPES = ("string", "string", "int", "date", "boolean", "tinyint")
ORDERING_TYPES = ("int", "bigint", "timestamp", "decimal(10,2)")
WIDER = {"tinyint": "int", "int": "bigint", "float": "double", "decimal(10,2)": "decimal(14,2)"}
KINDS["decimal(14,2)"] = Kind("decimal(14,2)", KINDS["decimal(10,2)"].values, _FRACTIONS)


def draw(rng: random.Random, type: str, nulls: float = 0.1) -> Any:
    """A value, often one of the few first ones, so that some are much more frequent than others."""
    if rng.random() < nulls:
        return None
    values = KINDS[type].values
    if type in ("int", "bigint") and rng.random() < 0.5:
        return rng.randrange(40)
    if type == "string" and rng.random() < 0.2:
        return f"s{rng.randrange(10)}"
    if rng.random() < 0.5:
        return values[min(int(rng.expovariate(0.7)), len(values) - 1)]
    return rng.choice(values)


def literal(value: Any, type: str) -> Literal:
    """A value as a literal of its own type."""
    if value is None:
        return "NULL", "NULL"
    if type == "string":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'", "'" + value.replace("'", "''") + "'"
    if type == "boolean":
        return (str(value).lower(),) * 2
    if type == "date":
        return (f"DATE '{value.isoformat()}'",) * 2
    if type == "timestamp":
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return f"TIMESTAMP '{text}'", f"TIMESTAMPTZ '{text}+00'"
    if type == "binary":
        return f"X'{value.hex()}'", "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if type in ("float", "double"):
        text = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
        return f"CAST('{text}' AS {type})", f"CAST('{text}' AS {type})"
    if type == "bigint" and value == -(2**63):
        return "-9223372036854775808", "(-9223372036854775808)"
    return str(value), str(value)
