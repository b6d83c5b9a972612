"""Literals as the parser library gives them, read as Spark types them: ``1`` is an int, ``1.0`` a decimal,
``1e0`` a double, and suffixes (``1L``, ``1.5BD``) and casts of literals come as casts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, localcontext

from sqlglot import exp

from spark_apps.layout.types import INTEGER_BITS
from spark_apps.query.literals import Literal, Unclear, is_single

_INTEGER = re.compile(r"\d{1,38}", re.ASCII)
_FRACTION = re.compile(r"\d*\.\d*", re.ASCII)
_NUMBER = re.compile(r"\d*(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_LONG_MAX = 2**63 - 1
_TIMES = {
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}
# What the session says that a timestamp is.
_PLAIN_TIMES = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
_ZONED = re.compile(r"(Z|UTC|[+-]\d\d:\d\d)\Z", re.ASCII)
_INTEGERS = {
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
}


def literal_of(node: exp.Expr, timestamps: str | None = None, *, casts: bool = True) -> Literal:
    """The literal of a node.

    :param timestamps: what ``TIMESTAMP`` means, ``timestamp`` or ``timestamp_ntz``; ``None`` when unknown.
    :param casts: whether a cast may be written as one; else it is a suffix that the library takes for one.
    :raises Unclear: when the node is none, or one that Spark may refuse or round.
    """
    match node:
        case exp.Null():
            return Literal("null")
        case exp.Boolean():
            return Literal("boolean", bool(node.this))
        case exp.HexString():
            digits = str(node.this)
            if len(digits) % 2 or not re.fullmatch(r"[0-9A-Fa-f]*", digits):
                raise Unclear("it is not a whole number of bytes")
            return Literal("binary", bytes.fromhex(digits))
        case exp.Literal():
            return Literal("string", node.this) if node.is_string else _number(node.this, negative=False)
        case exp.Neg():
            inner = node.this
            if isinstance(inner, exp.Literal) and not inner.is_string:
                return _number(inner.this, negative=True)
            if isinstance(inner, exp.Cast) and inner.this.is_number:
                # -128Y is one literal to Spark and a negated 128Y here; a negated cast of 128 is another thing.
                return _negated(_cast(inner, timestamps, bound=not casts))
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return _cast(node, timestamps)
    raise Unclear("its right side is not a plain literal")


def _number(text: str, negative: bool) -> Literal:
    sign = "-" if negative else ""
    if _INTEGER.fullmatch(text):
        value = int(sign + text)
        return Literal("int", value) if -_LONG_MAX - 1 <= value <= _LONG_MAX else Literal("decimal", Decimal(value))
    if _FRACTION.fullmatch(text) and len(text.replace(".", "").lstrip("0")) <= 38:
        return Literal("decimal", Decimal(sign + text))
    if _NUMBER.fullmatch(text) and not _FRACTION.fullmatch(text):
        return Literal("double", _finite(float(sign + text)))
    raise Unclear("the number is too long")


def _negated(literal: Literal) -> Literal:
    if literal.kind in ("int", "decimal", "double", "float"):
        with localcontext(prec=100):
            return Literal(literal.kind, -literal.value)
    raise Unclear("it is not a number")


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise Unclear("the number is out of range")
    return number


def _cast(node: exp.Cast, timestamps: str | None, bound: bool = False) -> Literal:
    literal, to = node.this, node.to
    if to.this in _PLAIN_TIMES and literal.is_string:
        return Literal(_timestamp_kind(node, timestamps), literal.this)
    if to.this in _TIMES and literal.is_string:
        return Literal(_TIMES[to.this], literal.this)
    if to.this in _INTEGERS and not literal.is_string:
        return _cast_integer(literal.this, (1 << (INTEGER_BITS[_INTEGERS[to.this]] - 1)) - (not bound))
    convert = _FRACTIONS.get(to.this)
    if convert is None:
        raise Unclear("the cast of the literal is not followed")
    return convert(literal, to)


def _timestamp_kind(node: exp.Cast, timestamps: str | None) -> str:
    """Which type ``TIMESTAMP`` stands for. Where that is the one without a zone, a cast drops a text's offset, and a
    literal with an offset is of the other type all the same."""
    literal = node.to.this == exp.DType.TIMESTAMPTZ and not isinstance(node, exp.TryCast)
    if literal and _ZONED.search(node.this.this):
        return "timestamp"
    if timestamps is None:
        raise Unclear("what TIMESTAMP means is the session's to say")
    return timestamps


def _cast_integer(text: str, most: int) -> Literal:
    if not _INTEGER.fullmatch(text) or int(text) > most:
        raise Unclear("the number does not fit its type")
    return Literal("int", int(text))


def _cast_double(literal: exp.Literal, to: exp.DataType) -> Literal:
    text = literal.this
    if text in ("NaN", "Infinity", "-Infinity"):
        return Literal("double", float(text))
    if not text or not _NUMBER.fullmatch(text) or text == ".":
        raise Unclear("the cast of the literal is not followed")
    return Literal("double", _finite(float(text)))


def _cast_float(literal: exp.Literal, to: exp.DataType) -> Literal:
    number = _cast_double(literal, to).value
    if math.isfinite(number) and not is_single(number):
        raise Unclear("the number is rounded to a float")
    return Literal("float", number)


def _cast_decimal(literal: exp.Literal, to: exp.DataType) -> Literal:
    sizes = [int(size.this.this) for size in to.expressions if isinstance(size.this, exp.Literal)]
    precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
    if not (_FRACTION.fullmatch(literal.this) or _INTEGER.fullmatch(literal.this)) or literal.this == ".":
        raise Unclear("the cast of the literal is not followed")
    number = Decimal(literal.this)
    with localcontext(prec=100):
        scaled = number.scaleb(scale)
        if precision > 38 or scaled != int(scaled) or abs(scaled) >= 10**precision:
            raise Unclear("the number is rounded to its type")
        return Literal("decimal", Decimal(int(scaled)).scaleb(-scale))


_FRACTIONS: dict[exp.DType, Callable[[exp.Literal, exp.DataType], Literal]] = {
    exp.DType.DOUBLE: _cast_double,
    exp.DType.FLOAT: _cast_float,
    exp.DType.DECIMAL: _cast_decimal,
}
