"""Filters that other engines push down as Arrow expressions, as predicates of this package, for planning.

Arrow writes an expression in the format of Substrait (its specification, https://substrait.io) alone; this module reads
the few messages that comparisons are made of. What is not understood becomes ``Opaque``, which prunes nothing: Arrow
applies the expression itself to the rows as well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from spark_apps.layout.types import date_or_time, normalize, parse_type
from spark_apps.query.predicates import MIRRORED, And, Comparison, Fixed, In, IsNull, Not, Opaque, Or, Predicate
from spark_apps.storage.errors import InvalidSchema

_COMPARISONS = {"equal": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_NULL = 29


class _NotUnderstood(Exception):
    """A part of an expression that is no comparison of a column with literals; the message says why."""


def predicate_of_expression(expression: Any, schema: Any, types: Mapping[str, str]) -> Predicate:
    """Return what an Arrow expression says of rows.

    It holds for every row for which the expression is true, and perhaps for others.

    :param expression: a ``pyarrow.compute.Expression`` over ``schema``. :param types: the Spark types of the columns.
    """
    import pyarrow as pa

    try:
        message = bytes(expression.to_substrait(schema))
        return _Reader(message, schema.names, types).predicate()
    except (pa.ArrowException, _NotUnderstood, IndexError) as error:
        return _opaque(expression, schema.names, str(error))


def _opaque(text: object, columns: Sequence[str], reason: str) -> Opaque:
    return Opaque(str(text), frozenset(columns), reason)


class _Reader:
    """An expression of Substrait, read as a predicate."""

    def __init__(self, message: bytes, names: Sequence[str], types: Mapping[str, str]) -> None:
        self._names, self._types = names, types
        whole = _fields(message)
        self._functions: dict[int, str] = {}
        for declared in whole.get(2, ()):
            for function in _fields(declared).get(3, ()):
                parts = _fields(function)
                self._functions[_last(parts, 2, 0)] = _last(parts, 3, b"").decode()
        self._expression = _last(_fields(_last(whole, 3)), 1)

    def predicate(self) -> Predicate:
        return self._read(self._expression)

    def _read(self, message: bytes) -> Predicate:
        try:
            return self._node(_fields(message))
        except _NotUnderstood as reason:
            # Of which columns it speaks is not known, so of all.
            return _opaque("a part of the filter", self._names, str(reason))

    def _node(self, node: Mapping[int, list[Any]]) -> Predicate:
        if 3 in node:
            function = _fields(_last(node, 3))
            arguments = [_last(_fields(argument), 3) for argument in function.get(4, ())]
            return self._call(self._functions.get(_last(function, 1, 0), "?"), arguments)
        if 8 in node:
            return self._listed(_fields(_last(node, 8)))
        if 6 in node:
            return self._chosen(_fields(_last(node, 6)))
        if 2 in node:
            return Comparison(self._column(node), "=", True)
        value = self._literal(node)
        if value is None or isinstance(value, bool):
            return Fixed(value)
        raise _NotUnderstood("it is no condition")

    def _call(self, name: str, arguments: Sequence[bytes]) -> Predicate:
        if name in ("and", "or"):
            parts = tuple(map(self._read, arguments))
            return (And if name == "and" else Or)(parts) if len(parts) > 1 else parts[0]
        if name == "not":
            return Not(self._read(arguments[0]))
        if name in ("is_null", "is_not_null"):
            null = IsNull(self._column(_fields(arguments[0])))
            return null if name == "is_null" else Not(null)
        if name == "not_equal":
            return Not(self._compared("=", arguments))
        if name in _COMPARISONS:
            return self._compared(_COMPARISONS[name], arguments)
        raise _NotUnderstood(f"{name} is not looked into")

    def _compared(self, operator: str, arguments: Sequence[bytes]) -> Predicate:
        left, right = (_fields(argument) for argument in arguments)
        if 2 not in left:
            left, right, operator = right, left, MIRRORED.get(operator, operator)
        name = self._column(left)
        value = self._value(name, right)
        return Fixed(None, frozenset((name,))) if value is None else Comparison(name, operator, value)

    def _listed(self, parts: Mapping[int, list[Any]]) -> Predicate:
        name = self._column(_fields(_last(parts, 1)))
        values = [self._value(name, _fields(option)) for option in parts.get(2, ())]
        if None in values:
            raise _NotUnderstood("a null in a list means another thing to Arrow")
        # Of a null Arrow says false, and not null.
        return And((Not(IsNull(name)), In(name, frozenset(values))))

    def _chosen(self, parts: Mapping[int, list[Any]]) -> Predicate:
        """Read ``CASE WHEN c IS NOT NULL THEN c IN (…) ELSE NULL END``, by which DuckDB writes ``c IN (…)``."""
        [clause] = (_fields(one) for one in parts[1]) if len(parts.get(1, ())) == 1 else (None,)
        otherwise = _fields(_last(parts, 2))
        if clause is not None and _NULL in _fields(_last(otherwise, 1, b"")):
            condition, then = self._read(_last(clause, 1)), self._read(_last(clause, 2))
            match then:
                case And(parts=(valid, In() as listed)) if condition == valid:
                    return listed
        raise _NotUnderstood("a choice is not looked into")

    def _column(self, node: Mapping[int, list[Any]]) -> str:
        selection = _fields(_last(node, 2))
        segment = _fields(_last(_fields(_last(selection, 1)), 2))
        if 2 in segment:
            raise _NotUnderstood("a nested field is not looked into")
        return self._names[_last(segment, 1, 0)]

    def _value(self, name: str, node: Mapping[int, list[Any]]) -> Any:
        """Return a literal in the one form of the values of a column; ``None`` for null."""
        kind, value = parse_type(self._types[name]), self._literal(node)
        if kind.kind in ("float", "double", "other", "char"):
            raise _NotUnderstood(f"values of type {kind.text} are not compared")
        try:
            return normalize(value, kind)
        except InvalidSchema as error:
            raise _NotUnderstood(f"{value!r} is no value of type {kind.text}") from error

    def _literal(self, node: Mapping[int, list[Any]]) -> Any:
        literal = _fields(_last(node, 1))
        for field, [value, *_] in literal.items():
            match field:
                case 29:
                    return None
                case 1:
                    return bool(value)
                case 2 | 3 | 5 | 7:
                    return _signed(value)
                case 12:
                    return value.decode()
                case 13:
                    return value
                case 16:
                    return _date_or_time(value, "date")
                case 14:
                    return _date_or_time(value, "timestamp_ntz")
                case 27:
                    return _date_or_time(value, "timestamp")
                case 24:
                    parts = _fields(value)
                    digits = int.from_bytes(_last(parts, 1), "little", signed=True)
                    return Decimal(digits).scaleb(-_last(parts, 3, 0))
        raise _NotUnderstood("a literal of its type is not looked into")


def _date_or_time(value: int, kind: str) -> dt.date:
    try:
        return date_or_time(_signed(value), kind)
    except OverflowError as error:
        raise _NotUnderstood("it speaks of a year that Python does not know") from error


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_MISSING: Any = object()


def _last(fields: Mapping[int, list[Any]], number: int, default: Any = _MISSING) -> Any:
    """Return the value of a field of a message: of several the last, as the format says."""
    values = fields.get(number)
    if values:
        return values[-1]
    if default is _MISSING:
        raise _NotUnderstood("it is none of the expressions that are looked into")
    return default


def _fields(message: Any) -> dict[int, list[Any]]:
    """Return field number -> values of a message of protocol buffers: numbers, or bytes."""
    if not isinstance(message, bytes):
        raise _NotUnderstood("it is not of the form that is known")
    values: dict[int, list[Any]] = {}
    for number, value in _read_fields(message):
        values.setdefault(number, []).append(value)
    return values


def _read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire == 2:
            size, position = _varint(message, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _NotUnderstood("it is not of the form that is known")
        yield number, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
