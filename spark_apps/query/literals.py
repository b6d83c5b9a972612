"""Literals of a predicate, and what they mean when Spark compares them with a column.

Spark may cast the literal, the column, or both, and does it differently with ANSI on and off. Here a literal
is taken only where the outcome is that of comparing exact values on the column's own type in *every* mode;
anything else is :class:`Unclear`, and then nothing is pruned.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_apps.layout.types import ColumnType
from spark_apps.query.tree import NAN

_INT32 = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_FLOAT_EXACT = 2**24
_MAX_DIGITS = 38
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(Z|UTC|[+-]\d\d:\d\d)?", re.ASCII
)
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# Summer time rules before 1970 differ between copies of the time zone database.
_FIRST_RULED_YEAR = 1970


class Unclear(Exception):
    """The comparison is not one of exact values on the column's type; the message says why."""


class _Nothing:
    """Stands for "no value of the column's type equals the literal"."""


NO_VALUE = _Nothing()


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as Spark types it: null, boolean, int (fits a bigint), decimal, float, double, string, date,
    timestamp, timestamp_ntz or binary. Dates and times still hold their text.
    """

    kind: str
    value: Any = None


def comparable(column: ColumnType, literals: Sequence[Literal], zone: str | None, in_list: bool = False) -> list[Any]:
    """The values, comparable with normalized values of the column; ``None`` for a null.

    :param literals: one for a comparison, all of the list for ``IN``, which Spark casts to one type together.
    :param zone: the session's time zone; ``None`` when unknown.
    :raises Unclear: when Spark's comparison may be another one.
    """
    given = [literal for literal in literals if literal.kind != "null"]
    convert = _CONVERT.get("integer" if column.is_integer else column.kind)
    if convert is None:
        raise Unclear(f"values of type {column.text} are not compared here")
    if in_list:
        _check_list(column, given)
    values = iter([convert(column, literal, zone) for literal in given])
    return [None if literal.kind == "null" else next(values) for literal in literals]


def as_key(value: Any, column: ColumnType) -> Any:
    """The column's own value that equals a comparable one, or ``NO_VALUE``."""
    if column.is_integer:
        low, high = column.limits
        integral = math.isfinite(value) and value == int(value)
        return int(value) if integral and low <= value <= high else NO_VALUE
    if column.kind == "decimal":
        scaled = decimal.Context(prec=100).scaleb(value, column.scale)
        if scaled != int(scaled) or abs(scaled) >= 10**column.precision:
            return NO_VALUE
        return Decimal(int(scaled)).scaleb(-column.scale, context=decimal.Context(prec=100))
    if column.kind == "float" and math.isfinite(value):
        return value if is_single(value) else NO_VALUE
    return value


def _check_list(column: ColumnType, given: Sequence[Literal]) -> None:
    """What only matters for ``IN``: Spark casts column and list to one common type, in some modes to string."""
    kinds = {literal.kind for literal in given}
    if "string" in kinds and column.kind != "string":
        canonical = {"date": re.compile(r"\d{4}-\d\d-\d\d"), "int": re.compile(r"0|-?[1-9]\d*")}
        pattern = canonical.get("int" if column.is_integer else column.kind)
        allowed = {"string", "int" if column.is_integer else column.kind}
        if (
            pattern is None
            or kinds - allowed
            or not all(pattern.fullmatch(literal.value) for literal in given if literal.kind == "string")
        ):
            raise Unclear(f"a string in a list is compared with a {column.kind} as strings in some modes")
    if column.is_integer and "double" in kinds and ("decimal" in kinds or column.kind == "bigint"):
        raise Unclear(f"the list makes Spark compare a {column.kind} as double")
    if column.kind in ("float", "double", "string"):
        return
    if "decimal" in kinds or column.kind == "decimal":
        _check_digits(column, given)


def _check_digits(column: ColumnType, given: Sequence[Literal]) -> None:
    """Refuse decimals whose common type with the column has more digits than Spark keeps."""
    precision = _INTEGER_DIGITS.get(column.kind, column.precision)
    whole, scale = precision - column.scale, max(column.scale, 0)
    for literal in given:
        if literal.kind == "int":
            whole = max(whole, 10 if _INT32[0] <= literal.value <= _INT32[1] else 20)
        elif literal.kind == "decimal":
            digits, places = _precision(literal.value)
            whole, scale = max(whole, digits - places), max(scale, places)
    if whole + scale > _MAX_DIGITS:
        raise Unclear(f"the decimals have no common type of {_MAX_DIGITS} digits")


def _precision(value: Decimal) -> tuple[int, int]:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # literals are finite
    places = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), places), places


def is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _refuse(column: ColumnType, literal: Literal) -> Unclear:
    return Unclear(f"a {column.kind} column and a {literal.kind} are cast before Spark compares them")


def _integer(column: ColumnType, literal: Literal, zone: str | None) -> Any:
    value = literal.value
    match literal.kind:
        case "int":
            return value
        case "decimal":
            _check_digits(column, [literal])
            if not _LONG[0] <= value <= _LONG[1]:
                raise Unclear("the decimal lies outside of bigint, where some versions do not compare at all")
            return value if value != int(value) else int(value)
        case "double" if column.kind != "bigint":
            return value
        case "string" if re.fullmatch(r"[+-]?\d{1,19}", value, re.ASCII):
            low, high = column.limits
            if low <= int(value) <= high:
                return int(value)
    raise _refuse(column, literal)


def _decimal(column: ColumnType, literal: Literal, zone: str | None) -> Any:
    if literal.kind not in ("int", "decimal"):
        raise _refuse(column, literal)
    _check_digits(column, [literal])
    return Decimal(literal.value)


def _floating(column: ColumnType, literal: Literal, zone: str | None) -> Any:
    value = literal.value
    match literal.kind:
        case "int" if column.kind == "double" or abs(value) <= _FLOAT_EXACT:
            number = float(value)
        case "decimal" | "double" | "float":
            number = float(value)
        case "string" if column.kind == "double" and _NUMBER.fullmatch(value):
            number = float(value)
        case "string" if value in ("NaN", "Infinity", "-Infinity"):
            number = float(value)
        case _:
            raise _refuse(column, literal)
    if math.isinf(number) and literal.kind in ("int", "decimal"):
        raise _refuse(column, literal)
    return NAN if math.isnan(number) else number + 0.0


def _same(kind: str) -> Callable[[ColumnType, Literal, str | None], Any]:
    def convert(column: ColumnType, literal: Literal, zone: str | None) -> Any:
        if literal.kind != kind:
            raise _refuse(column, literal)
        return literal.value

    return convert


def _date(column: ColumnType, literal: Literal, zone: str | None) -> dt.date:
    if literal.kind not in ("date", "string"):
        raise _refuse(column, literal)
    return parse_date(literal.value)


def _timestamp(column: ColumnType, literal: Literal, zone: str | None) -> dt.datetime:
    if literal.kind == "date":
        return _instant(dt.datetime.combine(parse_date(literal.value), dt.time()), None, zone)
    if literal.kind not in ("timestamp", "string"):
        raise _refuse(column, literal)
    return _instant(*_parse_moment(literal.value), zone)


def _timestamp_ntz(column: ColumnType, literal: Literal, zone: str | None) -> dt.datetime:
    if literal.kind == "date":
        return dt.datetime.combine(parse_date(literal.value), dt.time())
    if literal.kind not in ("timestamp_ntz", "string"):
        raise _refuse(column, literal)
    moment, offset = _parse_moment(literal.value)
    if offset is not None:
        raise Unclear("a time without a zone is compared with one that has a zone")
    return moment


def parse_date(text: str) -> dt.date:
    """:raises Unclear: unless it is a full date of the years 1 to 9999."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise Unclear(f"{text!r} is not a full date")
    try:
        return dt.date(*map(int, match.groups()))
    except ValueError as error:
        raise Unclear(f"{text!r} is not a date: {error}") from error


def _parse_moment(text: str) -> tuple[dt.datetime, str | None]:
    match = _MOMENT.fullmatch(text)
    if match is None or (match[8] and not match[4]):
        raise Unclear(f"{text!r} is not a full timestamp")
    try:
        year, month, day, hour, minute, second = (int(field or 0) for field in match.groups()[:6])
        micro = int((match[7] or "0").ljust(6, "0"))
        return dt.datetime(year, month, day, hour, minute, second, micro), match[8]
    except ValueError as error:
        raise Unclear(f"{text!r} is not a timestamp: {error}") from error


def _instant(moment: dt.datetime, offset: str | None, zone: str | None) -> dt.datetime:
    """The instant of a local time, with the earlier offset where the clock is set back, as Java takes it."""
    name = offset or zone
    known = None if name is None else _zone_named(name)
    if known is None:
        raise Unclear("the time has no zone of its own and the session's is not known")
    if isinstance(known, zoneinfo.ZoneInfo) and moment.year < _FIRST_RULED_YEAR:
        raise Unclear(f"the zone {name} has uncertain rules before {_FIRST_RULED_YEAR}")
    try:
        return moment.replace(tzinfo=known).astimezone(dt.UTC)
    except OverflowError as error:
        raise Unclear(f"the instant lies outside of the calendar: {error}") from error


def _zone_named(name: str) -> dt.tzinfo | None:
    if name in ("Z", "UTC", "GMT", "Etc/UTC"):
        return dt.UTC
    if match := _OFFSET.fullmatch(name):
        offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3]))
        if int(match[3]) > 59 or offset > dt.timedelta(hours=18):
            return None
        return dt.timezone(offset if match[1] == "+" else -offset)
    if "/" not in name:
        return None  # Java and the database differ about some of the short names
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return None


_CONVERT: dict[str, Callable[[ColumnType, Literal, str | None], Any]] = {
    "integer": _integer,
    "decimal": _decimal,
    "float": _floating,
    "double": _floating,
    "string": _same("string"),
    "boolean": _same("boolean"),
    "binary": _same("binary"),
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
