"""Filters that Spark hands to a Python data source, as the tree of :mod:`spark_apps.query.predicates`.

Spark has cast literals to the column's type before it hands a filter on; what is not one column against values of its
type becomes ``Opaque``. Spark applies every filter to the rows again, so one that is not understood costs reading only.
Filters are known by the names of their classes, for older Sparks lack the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from spark_apps.layout.types import ColumnType, normalize, parse_type
from spark_apps.query.predicates import NAN, And, Comparison, Fixed, In, IsNull, Not, Opaque, Predicate
from spark_apps.storage.errors import InvalidSchema

_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_WORDS = {"StringStartsWith": "starts with", "StringEndsWith": "ends with", "StringContains": "contains"}


class _UnsupportedFilter(Exception):
    """A filter that is not a column against values of its type; the message says why."""


def predicate_of(filters: Iterable[Any], schema: Mapping[str, str]) -> Predicate | None:
    """Return some filters as one predicate, ``None`` if there are none.

    :param filters: of ``pyspark.sql.datasource``.
    :param schema: the table's columns and their Spark types.
    """
    types = {name: parse_type(text) for name, text in schema.items()}
    parts = tuple(_predicate(pushed, types) for pushed in filters)
    return None if not parts else parts[0] if len(parts) == 1 else And(parts)


def text_of(pushed: Any) -> str:
    """Return a filter as text for people."""
    kind = type(pushed).__name__
    if kind == "Not":
        return f"NOT ({text_of(pushed.child)})"
    name = ".".join(getattr(pushed, "attribute", ("?",)))
    if kind in ("IsNull", "IsNotNull"):
        return f"{name} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL"
    if kind == "In":
        return f"{name} IN ({', '.join(map(repr, pushed.value))})"
    return f"{name} {_OPERATORS.get(kind) or _WORDS.get(kind, kind)} {getattr(pushed, 'value', '')!r}"


def _predicate(pushed: Any, types: Mapping[str, ColumnType]) -> Predicate:
    if type(pushed).__name__ == "Not":
        return Not(_predicate(pushed.child, types))
    try:
        return _atom(pushed, types)
    except _UnsupportedFilter as unsupported:
        names = frozenset(getattr(pushed, "attribute", ())[:1]) & types.keys()
        return Opaque(text_of(pushed), names or frozenset(types), str(unsupported))


def _atom(pushed: Any, types: Mapping[str, ColumnType]) -> Predicate:
    kind = type(pushed).__name__
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(path) != 1 or path[0] not in types:
        raise _UnsupportedFilter("a nested field is not looked into")
    name = path[0]
    if kind in ("IsNull", "IsNotNull"):
        return IsNull(name) if kind == "IsNull" else Not(IsNull(name))
    if kind == "In":
        values = [_value(value, types[name]) for value in pushed.value if value is not None]
        return In(name, frozenset(values), len(values) < len(pushed.value))
    if kind not in _OPERATORS:
        raise _UnsupportedFilter("it is not a comparison of a column with literals")
    if pushed.value is None:
        return IsNull(name) if kind == "EqualNullSafe" else Fixed(None, frozenset((name,)))
    return Comparison(name, _OPERATORS[kind], _value(pushed.value, types[name]))


def _value(value: Any, kind: ColumnType) -> Any:
    if kind.kind in ("other", "char"):
        raise _UnsupportedFilter(f"values of type {kind.text} are not compared here")
    try:
        normalized = normalize(value, kind)
    except InvalidSchema as error:
        raise _UnsupportedFilter(f"{value!r} is no value of type {kind.text}") from error
    return NAN if isinstance(normalized, float) and math.isnan(normalized) else normalized
