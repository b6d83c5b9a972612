"""Conclusions from a comparison of a column to expressions of that column which never fall where the column rises.

An index may keep something about ``to_date(ts)`` alone: a row with ``ts >= x`` then has a day that is not before the
day of ``x``. Only functions are used of which that is proven: where one value of the column is not below another, the
value of the expression is not below the other's, and it is null for null alone. Nothing is concluded in the other
direction, nor from one expression about another.

The local time of a timestamp does not always rise with it: clocks are set back, in some zones over midnight. But no
zone is more than 18 hours from UTC, now or ever, as Java's ``ZoneOffset`` has it: the local time of ``ts >= x`` is not
before the time of ``x`` in UTC less 18 hours. So no rules of zones are needed, which this process may know in another
release than Spark; days are known within one, and in sessions of UTC exactly.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from spark_apps.indexes.expressions import key_of
from spark_apps.layout.types import INTEGER_BITS, ColumnType, parse_type
from spark_apps.query.limits import MAX_EXPRESSION_VALUES
from spark_apps.query.predicates import And, Comparison, Fixed, In, Not, Or, Predicate, Through
from spark_apps.storage.names import quote

_FURTHEST = dt.timedelta(hours=18)
_UTC = ("UTC", "Etc/UTC", "Z", "GMT")

_DATE = re.compile(r"CAST\((.+) AS date\)", re.DOTALL)
_YEAR = re.compile(r"year\((.+)\)", re.DOTALL)
_WIDER = re.compile(r"CAST\((.+) AS (smallint|int|bigint)\)", re.DOTALL)
_PREFIX = re.compile(r"(?:left\((.+), |substring\((.+), [01], )(\d{1,9})\)", re.DOTALL)
_WITH_YEARS = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class _Image:
    """The lowest and the highest value of an expression for one value of its column; ``kind`` is their type."""

    low: Any
    high: Any
    kind: ColumnType


def with_expressions(
    predicate: Predicate, types: Mapping[str, str], expressions: Iterable[str], zone: str | None
) -> Predicate:
    """Return a predicate whose comparisons of columns also say what they mean for expressions of these.

    :param types: the table's columns and their Spark types. :param expressions: canonical texts.
    :param zone: the session's, in which values of expressions are computed.
    """
    of_columns = [(name, text) for text in expressions for name in types if quote(name) in text]
    return _within(predicate, types, of_columns, zone in _UTC) if of_columns else predicate


def _within(node: Predicate, types: Mapping[str, str], expressions: list[tuple[str, str]], in_utc: bool) -> Predicate:
    match node:
        case Not(part=part):
            return Not(_within(part, types, expressions, in_utc))
        case And(parts=parts):
            return And(tuple(_within(part, types, expressions, in_utc) for part in parts))
        case Or(parts=parts):
            return Or(tuple(_within(part, types, expressions, in_utc) for part in parts))
        case Comparison() | In():
            conclusions = _conclusions(node, [text for name, text in expressions if name == node.column], types, in_utc)
            return replace(node, through=tuple(conclusions))
    return node


def _conclusions(node: Comparison | In, texts: list[str], types: Mapping[str, str], in_utc: bool) -> Iterator[Through]:
    values = [node.literal] if isinstance(node, Comparison) else list(node.values)
    for text in texts:
        images = [_image(text, node.column, types[node.column], value, in_utc) for value in values]
        known = [image for image in images if image is not None]
        if known and len(known) == len(images):
            yield _through(node, key_of(text), known)


def _through(node: Comparison | In, key: str, images: list[_Image]) -> Through:
    """Return what is true of an expression where a comparison is true, and where it is false."""
    low, high = min(image.low for image in images), max(image.high for image in images)
    not_below, not_above = Comparison(key, ">=", low), Comparison(key, "<=", high)
    if isinstance(node, Comparison) and node.op in (">", ">="):
        return Through(not_below, not_above)
    if isinstance(node, Comparison) and node.op in ("<", "<="):
        return Through(not_above, not_below)
    # Of the others much may be true where they are false.
    if len(images) <= MAX_EXPRESSION_VALUES and all(image.low == image.high for image in images):
        return Through(In(key, frozenset(image.low for image in images)), Fixed(True))
    return Through(And((not_below, not_above)), Fixed(True))


def _image(text: str, name: str, type_text: str, value: Any, in_utc: bool) -> _Image | None:
    try:
        return _stepped(text, name, _Image(value, value, parse_type(type_text)), in_utc)
    except OverflowError:  # a day before the year 1, or after 9999
        return None


def _stepped(text: str, name: str, of_column: _Image, in_utc: bool) -> _Image | None:
    """Return the bounds of an expression; ``None`` if it may fall where the column rises."""
    if text == quote(name):
        return of_column
    step, inner, argument = _peeled(text)
    before = _stepped(inner, name, of_column, in_utc) if step else None
    if before is None:
        return None
    match step:
        case "date" if before.kind.kind in _WITH_YEARS:
            return _days(before, in_utc)
        case "year" if before.kind.kind in _WITH_YEARS:
            days = _days(before, in_utc)
            return _Image(days.low.year, days.high.year, parse_type("int"))
        case "prefix" if before.kind.kind == "string":
            length = int(argument)
            return _Image(before.low[:length], before.high[:length], before.kind)
        case "wider" if before.kind.is_integer and INTEGER_BITS[argument] >= INTEGER_BITS[before.kind.kind]:
            return replace(before, kind=parse_type(argument))
    return None


@lru_cache(maxsize=256)
def _peeled(text: str) -> tuple[str, str, str]:
    """Return the outermost function of a canonical text, what it is called with, and its argument."""
    if found := _DATE.fullmatch(text):
        return "date", found[1], ""
    if found := _YEAR.fullmatch(text):
        return "year", found[1], ""
    if found := _WIDER.fullmatch(text):
        return "wider", found[1], found[2]
    if found := _PREFIX.fullmatch(text):
        return "prefix", found[1] or found[2], found[3]
    return "", "", ""


def _days(of: _Image, in_utc: bool) -> _Image:
    low, high = of.low, of.high
    if of.kind.kind == "timestamp":
        away = dt.timedelta(0) if in_utc else _FURTHEST
        low, high = (low.astimezone(dt.UTC) - away).date(), (high.astimezone(dt.UTC) + away).date()
    elif of.kind.kind == "timestamp_ntz":
        low, high = low.date(), high.date()
    return _Image(low, high, parse_type("date"))
