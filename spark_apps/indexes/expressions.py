"""Expressions of one row that an index can hold values of, each in one canonical text.

Spark evaluates that text when the index is built. A query uses the index where a part of its predicate has the same
text: so it is made of the tree of the parser library by the rules below and by nothing else, which only know functions
that always give the same for a row. Whatever else an expression has is refused by its name.

What a function gives may depend on the session (its time zone, ANSI) and on the release of Spark and Java: so values of
such expressions are kept with a stamp of the session that made them, and another session does not use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlglot
from sqlglot import exp

from spark_apps.indexes.limits import MAX_EXPRESSION_CHARACTERS
from spark_apps.layout.types import parse_type
from spark_apps.storage.names import quote
from spark_apps.workload.shapes import UNPREPARED

UNREADABLE = (sqlglot.errors.SqlglotError, *UNPREPARED)
"""What the parser library raises of a text that it cannot read."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,18})?", re.ASCII)
_FUNCTIONS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Length: ("length", ("this",)),
    exp.Trim: ("trim", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Left: ("left", ("this", "expression")),
    exp.Year: ("year", ("this",)),
    exp.Month: ("month", ("this",)),
    exp.DayOfMonth: ("day", ("this",)),
    exp.Day: ("day", ("this",)),
    exp.Hour: ("hour", ("this",)),
}
"""Node of the parser library -> the function in Spark, and its arguments in their order."""

_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_OF_DATES = (exp.Year, exp.Month, exp.DayOfMonth, exp.Day)
_CASTS = {
    exp.DType.DATE: "date", exp.DType.TINYINT: "tinyint", exp.DType.SMALLINT: "smallint", exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint", exp.DType.DOUBLE: "double", exp.DType.TEXT: "string",
}  # fmt: skip

FUNCTIONS = (*dict.fromkeys(name for name, _ in _FUNCTIONS.values()), "to_date", "coalesce")
"""The functions that may be indexed, for messages and pages."""


class NotIndexable(Exception):
    """An expression is not one that an index can hold; the message says why, beginning with what it is about."""


@dataclass(frozen=True)
class Expression:
    """An expression in its canonical text.

    :param text: for Spark, with all names quoted; equal for equal expressions.
    :param shown: for people, and for the definition of an index.
    :param columns: the table's columns in it.
    :param column: the table's column that it is, where it is nothing else.
    :param stamped: whether its values may be others in another session.
    """

    text: str
    shown: str
    columns: tuple[str, ...]
    column: str | None = None
    stamped: bool = False

    @property
    def key(self) -> str:
        """The name of its values where predicates are held against them: that of the column, else no column's name."""
        return self.column if self.column is not None else key_of(self.text)


def key_of(text: str) -> str:
    """Return the name of an expression's values, which no column has."""
    return f"\x1f{text}"


def parse(sql: str, types: Mapping[str, str], case_sensitive: bool = False) -> Expression:
    """Return the expression that a text is.

    :param types: the table's columns and their Spark types.
    :raises NotIndexable: if it is none, or not one that an index can hold.
    """
    if len(sql) > MAX_EXPRESSION_CHARACTERS:
        raise NotIndexable(f"an expression of {len(sql):,} characters is longer than {MAX_EXPRESSION_CHARACTERS:,}")
    try:
        nodes = [node for node in sqlglot.parse(sql, dialect="spark") if node is not None]
    except (*UNREADABLE, RecursionError) as error:
        raise NotIndexable(f"{sql!r} cannot be read as an expression") from error
    if len(nodes) != 1 or "--" in sql or "/*" in sql:
        raise NotIndexable(f"{sql!r} is not one expression")
    expression = expression_of(nodes[0], finder(types, case_sensitive), types, case_sensitive)
    if len(expression.shown) > MAX_EXPRESSION_CHARACTERS:
        raise NotIndexable(f"as it is kept, it has more than {MAX_EXPRESSION_CHARACTERS:,} characters")
    return expression


def columns_named(sql: str) -> tuple[str, ...]:
    """Return the columns that a text names, whatever a table has; itself if it cannot be read."""
    try:
        nodes = [node for node in sqlglot.parse(sql, dialect="spark") if node is not None]
    except (*UNREADABLE, RecursionError):
        return (sql,)
    columns = [column.parts[0].name for node in nodes for column in node.find_all(exp.Column)]
    return tuple(dict.fromkeys(columns)) or (sql,)


def expression_of(
    node: exp.Expr, find: Callable[[str], Sequence[str]], types: Mapping[str, str], case_sensitive: bool = False
) -> Expression:
    """Return the expression that a node of the parser library is.

    :param find: gives the table's columns of a name. :param types: their Spark types.
    :raises NotIndexable: if it is not one that an index can hold.
    """
    writer = _Writer(find, types, case_sensitive)
    try:
        text, shown = writer.write(node)
    except RecursionError as error:
        raise NotIndexable("the expression is nested too deeply") from error
    columns = tuple(dict.fromkeys(writer.columns))
    if not columns:
        raise NotIndexable(f"{shown!r} names no column")
    bare = node.unnest()
    plain = columns[0] if isinstance(bare, exp.Column) and len(bare.parts) == 1 else None
    return Expression(text, shown, columns, plain, stamped=writer.computes)


class _Writer:
    """Writes the canonical text of nodes, and a text for people beside it."""

    def __init__(self, find: Callable[[str], Sequence[str]], types: Mapping[str, str], case_sensitive: bool) -> None:
        self._find = find
        self._types = types
        self._case_sensitive = case_sensitive
        self.columns: list[str] = []
        self.computes = False

    def write(self, node: exp.Expr) -> tuple[str, str]:
        node = node.unnest()
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return self._number(node)
        self.computes = True
        if type(node) in _FUNCTIONS:
            return self._function(node)
        if type(node) in _OPERATORS:
            _refuse_arguments_beside(node, "this", "expression")
            (left, left_shown), (right, right_shown) = self.write(node.this), self.write(node.expression)
            sign = _OPERATORS[type(node)]
            return f"({left} {sign} {right})", f"({left_shown} {sign} {right_shown})"
        match node:
            case exp.Neg():
                _refuse_arguments_beside(node, "this")
                text, shown = self.write(node.this)
                return f"(- {text})", f"(- {shown})"
            case exp.Cast():  # "safe" marks Spark's try_cast
                _refuse_arguments_beside(node, "this", "to", "_type")
                plain = not node.to.expressions and not node.to.args.get("collate")
                return self._cast(node.this, _CASTS.get(node.to.this) if plain else None, node)
            case exp.TsOrDsToDate():
                _refuse_arguments_beside(node, "this", "safe")
                return self._cast(node.this, "date", node)
            case exp.Coalesce():
                _refuse_arguments_beside(node, "this", "expressions")
                return _call("coalesce", [self.write(part) for part in (node.this, *node.expressions)])
        raise NotIndexable(_refusal(node))

    def _function(self, node: exp.Expr) -> tuple[str, str]:
        name, names = _FUNCTIONS[type(node)]
        _refuse_arguments_beside(node, *names)
        values = [value for each in names if (value := node.args.get(each)) is not None]
        if isinstance(node, _OF_DATES) and isinstance(values[0], exp.TsOrDsToDate) and not values[0].args.get("safe"):
            _refuse_arguments_beside(values[0], "this")  # which the library puts in
            values = [values[0].this]
        return _call(name, [self.write(value) for value in values])

    def _cast(self, value: exp.Expr, kind: str | None, node: exp.Expr) -> tuple[str, str]:
        if kind is None:
            raise NotIndexable(f"{node.sql(dialect='spark')!r} is a cast that is not followed")
        text, shown = self.write(value)
        return f"CAST({text} AS {kind})", f"CAST({shown} AS {kind})"

    def _column(self, node: exp.Column) -> tuple[str, str]:
        first, *rest = [part.name for part in node.parts]
        if any(not isinstance(part, exp.Identifier) or not part.name for part in node.parts):
            raise NotIndexable(f"{node.sql(dialect='spark')!r} is no name of a column")
        names = list(self._find(first))
        if not names:
            raise NotIndexable(f"the table has no column {first!r}")
        if len(names) > 1:
            raise NotIndexable(f"the name {first!r} is ambiguous: it is that of {', '.join(names)}")
        self.columns.append(names[0])
        # What follows the name of a map is a key, whose case always matters.
        if not self._case_sensitive and "map<" not in self._types[names[0]]:
            rest = [name.lower() for name in rest]
        path = [names[0], *rest]
        return ".".join(map(quote, path)), ".".join(map(_spelled, path))

    def _number(self, node: exp.Literal) -> tuple[str, str]:
        if node.is_string or not _NUMBER.fullmatch(node.this):
            raise NotIndexable(f"the literal {node.this!r} is not a plain number")
        return node.this, node.this


def _call(name: str, arguments: Sequence[tuple[str, str]]) -> tuple[str, str]:
    texts, shown = zip(*arguments, strict=True)
    return f"{name}({', '.join(texts)})", f"{name}({', '.join(shown)})"


def _refuse_arguments_beside(node: exp.Expr, *names: str) -> None:
    """Refuse a node that says more than what is written of it."""
    more = sorted(name for name, value in node.args.items() if value and name not in names)
    more += ["safe"] if isinstance(node, exp.Cast) and node.args.get("safe") else []
    if more:
        raise NotIndexable(f"{node.sql(dialect='spark')!r} has parts that cannot be indexed")


_UNSTABLE = {
    exp.Rand: "gives another value each time", exp.Randn: "gives another value each time",
    exp.Uuid: "gives another value each time", exp.CurrentDate: "depends on the time",
    exp.CurrentTimestamp: "depends on the time", exp.CurrentUser: "depends on who asks",
}  # fmt: skip
_UNSTABLE_NAMES = {"now": "depends on the time", "current_timestamp": "depends on the time",
                   "uuid": "gives another value each time", "random": "gives another value each time"}  # fmt: skip


def _refusal(node: exp.Expr) -> str:
    """Return why a node is not known."""
    if node.find(exp.Query) is not None:
        return f"{node.sql(dialect='spark')!r} holds a subquery"
    known = f"known are {', '.join(FUNCTIONS)}, CAST, the signs + - *, and nested fields"
    for kind, why in _UNSTABLE.items():
        if isinstance(node, kind):
            return f"{node.sql(dialect='spark')!r} {why}"
    name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql(dialect="spark")
    if name.lower() in _UNSTABLE_NAMES:
        return f"the function {name!r} {_UNSTABLE_NAMES[name.lower()]}"
    what = "the function" if isinstance(node, exp.Func) else "the expression"
    return f"{what} {name!r} is none of those that always give the same for a row ({known})"


@cache
def _spelled(name: str) -> str:
    """Return a name as people write it, quoted where it has to be."""
    if not _PLAIN_NAME.fullmatch(name):
        return quote(name)
    try:
        node: Any = sqlglot.parse_one(name, dialect="spark")
    except UNREADABLE:
        return quote(name)
    return name if isinstance(node, exp.Column) and len(node.parts) == 1 and node.name == name else quote(name)


def finder(names: Collection[str], case_sensitive: bool = False) -> Callable[[str], list[str]]:
    """Return what finds columns by their names as Spark does."""

    def find(name: str) -> list[str]:
        if case_sensitive:
            return [each for each in names if each == name]
        return [each for each in names if each.lower() == name.lower()]

    return find


def functions_in(text: str) -> list[str]:
    """Return the functions that a canonical text calls; perhaps others, after which a column is named."""
    return [name for name in FUNCTIONS if f"{name}(" in text]


def is_comparable(kind: str) -> bool:
    """Return whether an index compares values of a Spark type one by one."""
    return parse_type(kind).kind not in ("other", "char")
