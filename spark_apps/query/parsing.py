"""From the SQL text of a predicate, through a parser library, to the tree of :mod:`spark_apps.query.predicates`.

What the library and Spark might read differently (escapes, doubled quotes, variables) and whatever is not a comparison
of one column with literals becomes ``Opaque``: true, false or null for any row. Spark may cast the literal, the column,
or both, and does it differently with ANSI on and off. A literal is taken only where the outcome is that of
comparing exact values on the column's own type in *every* mode; anything else is :class:`Unclear`, and then nothing is
pruned.
"""

from __future__ import annotations

import datetime as dt
import decimal
import difflib
import math
import re
import struct
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from spark_apps.indexes.expressions import UNREADABLE, Expression, NotIndexable, expression_of, key_of
from spark_apps.layout.types import INTEGER_BITS, ColumnType, parse_type
from spark_apps.query.limits import MAX_REMEMBERED_CHARACTERS
from spark_apps.query.monotone import with_expressions
from spark_apps.query.predicates import (
    MIRRORED,
    NAN,
    And,
    Comparison,
    Fixed,
    Holds,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
)
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn
from spark_apps.storage.printing import printable

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "<!>",
}
_DENIED = {TokenType.GT: (TokenType.LTE, "<="), TokenType.LT: (TokenType.GTE, ">=")}
_OF_TEXTS = (exp.Like, exp.StartsWith, exp.EndsWith, exp.Contains)
_WILDCARDS = re.compile("[%_]+")
# Names that Spark takes for a function without parentheses when no column has them.
_NAMELESS_FUNCTIONS = frozenset(
    (
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "grouping__id",
        "localtimestamp",
        "session_user",
        "user",
    )
)
# Spark continues such a comment on the next line, and puts variables in before it parses; the library does
# neither.
_DIFFERENT = re.compile(r"--[^\n]*\\\r?\n|\$\{")


def parse_predicate(
    sql: str,
    schema: Mapping[str, str],
    *,
    time_zone: str | None = None,
    timestamps: str | None = None,
    case_sensitive: bool = False,
    check_with_spark: Callable[[str], None] | None = None,
    expressions: Mapping[str, str] | None = None,
) -> Predicate:
    """Parse a predicate over a table.

    :param sql: what follows ``WHERE``, in Spark's SQL.
    :param schema: the table's columns and their Spark types, as ``dict(df.dtypes)`` gives them.
    :param time_zone: the session's time zone (``spark.sql.session.timeZone``), for times written without one.
    :param timestamps: what ``TIMESTAMP`` means in the session, ``timestamp`` or ``timestamp_ntz``
        (``spark.sql.timestampType``); ``None`` when unknown.
    :param case_sensitive: as ``spark.sql.caseSensitive``.
    :param check_with_spark: called with a text that the parser cannot read; raises one of the errors below if Spark
        cannot read it either. What only Spark can read, only the rows can decide.
    :param expressions: canonical texts of expressions that indexes hold values of, with their Spark types; what the
        predicate says of one is found in :attr:`~spark_apps.query.predicates.Opaque.same`. ``None`` if nothing is to be
        known of what is not a comparison of a column.
    :raises InvalidPredicate: when the text is not one predicate, with the position.
    :raises UnknownColumn: for a column that the table lacks, with its position and similar names.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidPredicate(f"The predicate is {sql!r}.", hint="Write what follows WHERE, like city = 'sfo'.")
    known = None if expressions is None else tuple(expressions.items())
    parsed = _remembered if len(sql) <= MAX_REMEMBERED_CHARACTERS else _parsed
    try:
        return parsed(sql, tuple(schema.items()), case_sensitive, time_zone, timestamps, known)
    except (InvalidPredicate, UnknownColumn) as error:
        if check_with_spark is None:
            raise
        try:
            check_with_spark(sql)
        except UnknownColumn:
            if isinstance(error, UnknownColumn):
                raise error from None  # it names the position
            raise
        except InvalidPredicate:
            raise error from None
        return Opaque(sql, frozenset(schema), "only Spark can read it", whole="*" in sql)


def _parsed(
    sql: str,
    schema: tuple[tuple[str, str], ...],
    case_sensitive: bool,
    time_zone: str | None,
    timestamps: str | None,
    known: tuple[tuple[str, str], ...] | None,
) -> Predicate:
    columns, expressions = _Columns(dict(schema), case_sensitive), None if known is None else dict(known)
    try:
        node, strings = _read(sql)
        if isinstance(node.unnest(), exp.Null):
            raise InvalidPredicate(
                f"The predicate is {sql!r}, which is no condition.", hint="Write what is to be null."
            )
        unsure = frozenset(text for text, plain in strings if not plain or columns.find(text))
        reader = _Reader(columns, time_zone, timestamps, unsure, sql, expressions)
        if _DIFFERENT.search(sql):
            why = "it holds a variable or a comment that Spark reads in its own way"
            return Opaque(sql, columns.all, why, whole="*" in sql)
        predicate = reader.predicate(node)
        # Its values are computed in the session's time zone, which the index holds with them.
        return with_expressions(predicate, dict(schema), expressions, time_zone) if expressions else predicate
    except RecursionError as error:
        raise InvalidPredicate(
            "The predicate is nested too deeply to be read.", hint="Write long lists with IN, or in fewer parentheses."
        ) from error


def check_no_comment(sql: str) -> None:
    """Check that a predicate holds no comment: what a person reads in one is not what rows are chosen by.

    :raises InvalidPredicate: if it holds one, or a variable that Spark puts in before it reads the text.
    """
    try:
        tokens = sqlglot.Dialect.get_or_raise("spark").tokenize(sql)
    except UNREADABLE as error:
        raise InvalidPredicate(f"The predicate {printable(sql)!r} cannot be read.", hint="Give it anew.") from error
    if _DIFFERENT.search(sql) or any(token.comments or token.token_type == TokenType.HINT for token in tokens):
        raise InvalidPredicate(
            f"The predicate {printable(sql)!r} holds a comment or a variable, which may be neither approved nor seen "
            "through.",
            hint="Give the condition alone.",
        )


def expressions_in(sql: str, schema: Mapping[str, str], case_sensitive: bool = False) -> tuple[Expression, ...]:
    """Return the expressions of columns that a predicate compares and that an index could hold, each once.

    :param schema: the table's columns and their Spark types.
    :raises InvalidPredicate: when the text is not one predicate.
    """
    columns = _Columns(dict(schema), case_sensitive)
    found: dict[str, Expression] = {}
    for node in _read(sql)[0].find_all(*_COMPARISONS, exp.In, exp.Between, exp.Is, *_OF_TEXTS):
        for side in (node.this, node.args.get("expression")):
            try:
                one = expression_of(side, columns.find, columns.texts, case_sensitive) if side is not None else None
            except NotIndexable:
                continue
            if one is not None and one.column is None:
                found.setdefault(one.text, one)
    return tuple(found.values())


# Nothing in a text is read by the time or by a state of the process, and a query is often asked again.
_remembered = lru_cache(maxsize=256)(_parsed)


def _read(sql: str) -> tuple[exp.Expr, frozenset[tuple[str, bool]]]:
    """Return the library's tree, and the string literals that ``_unsure_strings`` finds."""
    dialect = sqlglot.Dialect.get_or_raise("spark")
    try:
        tokens = _joined(dialect.tokenize(sql))
        conditions = dialect.parser().parse_into(exp.Condition, tokens, sql)
    except sqlglot.errors.TokenError as error:
        where = re.search(r"Missing (\S+) from (\d+):(\d+)", str(error.__cause__))
        opened = f"a {where[1]} is opened" if where else "a comment is opened"
        problem = f"{opened} and not closed" + (f", up to line {where[2]}," if where else "")
        raise InvalidPredicate(f"The predicate cannot be read: {problem} of {sql!r}.", hint="Close it.") from error
    except sqlglot.errors.ParseError as error:
        raise _syntax_error(sql, error) from error
    except UNREADABLE as error:
        raise InvalidPredicate(
            f"The predicate {sql!r} cannot be read.", hint="It is Spark SQL, as after WHERE."
        ) from error
    if len(conditions) != 1 or conditions[0] is None:
        raise InvalidPredicate(
            f"The predicate {sql!r} holds {len(list(filter(None, conditions)))} conditions.",
            hint="Give one condition, without a semicolon.",
        )
    return conditions[0], frozenset(_unsure_strings(sql, tokens))


def _joined(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens, with ``!>`` and ``!<`` as what they are to Spark: one word each, for ``<=`` and ``>=``."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if token.token_type in _DENIED and last is not None and last.text == "!" and last.end + 1 == token.start:
            kind, text = _DENIED[token.token_type]
            joined[-1] = Token(kind, text, token.line, token.col, last.start, token.end, token.comments)
        else:
            joined.append(token)
    return joined


def _unsure_strings(sql: str, tokens: Sequence[Any]) -> Iterator[tuple[str, bool]]:
    """Yield literals whose meaning depends on Spark's version or settings, and whether each is plain.

    Escapes depend on a setting, doubled quotes on the version, and "x" may be set to mean a column.
    """
    for token in tokens:
        if token.token_type == TokenType.STRING:
            raw = sql[token.start : token.end + 1]
            if raw != f"'{token.text}'" or "\\" in raw:
                yield token.text, raw == f'"{token.text}"' and "\\" not in raw


def _syntax_error(sql: str, error: sqlglot.errors.ParseError) -> InvalidPredicate:
    details = error.errors[0] if error.errors else {}
    word = details.get("highlight") or ""
    description = str(details.get("description") or error)
    if description.startswith("Required keyword"):
        description = "something is missing next to it"
    line, column = details.get("line"), details.get("col")
    # The library counts columns to the end of a word.
    start = max(column - len(word) + 1, 1) if isinstance(column, int) else "?"
    return InvalidPredicate(
        f"The predicate cannot be read at line {line}, column {start}, near {word!r} of {sql!r}: {description}.",
        hint="It is Spark SQL, as after WHERE.",
    )


def fold(name: str) -> str:
    """Return a name as Java's ``equalsIgnoreCase`` compares it: character by character, without changes of length."""
    upper = (char.upper() if len(char.upper()) == 1 else char for char in name)
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in upper)


class _Columns:
    """The columns of the table, found by name as Spark finds them."""

    def __init__(self, schema: Mapping[str, str], case_sensitive: bool) -> None:
        self.case_sensitive = case_sensitive
        self._fold: Callable[[str], str] = str if case_sensitive else fold
        self._names: dict[str, list[str]] = {}
        for name in schema:
            self._names.setdefault(self._fold(name), []).append(name)
        self.texts = schema
        self._types = {name: parse_type(text) for name, text in schema.items()}

    @property
    def all(self) -> frozenset[str]:
        return frozenset(self._types)

    def find(self, name: str) -> list[str]:
        return self._names.get(self._fold(name), [])

    def type_of(self, name: str) -> ColumnType:
        return self._types[name]

    def unknown(self, node: exp.Column) -> UnknownColumn:
        name = ".".join(part.name for part in node.parts)
        near = difflib.get_close_matches(self._fold(name), self._names, n=3)
        meta = node.parts[0].meta
        position = ""
        if "line" in meta:
            start = meta["col"] - (meta["end"] - meta["start"])
            position = f" (line {meta['line']}, column {start} of the predicate)"
        known = [known for similar in near for known in self._names[similar]]
        return UnknownColumn(
            f"The table has no column {name!r}{position}.",
            hint=f"Did you mean {' or '.join(map(repr, known))}?" if known else f"It has: {', '.join(self._types)}.",
        )


@dataclass(frozen=True)
class _Reader:
    """Turns the nodes of the parser library into those of a predicate."""

    columns: _Columns
    zone: str | None
    timestamps: str | None
    unsure: frozenset[str]
    sql: str
    expressions: Mapping[str, str] | None = None
    of_expressions: bool = False
    """Whether the left side is an expression and not a column."""

    def predicate(self, node: exp.Expr) -> Predicate:
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            parts = tuple(self.predicate(part) for part in _operands(node))
            return And(parts) if isinstance(node, exp.And) else Or(parts)
        if isinstance(node, exp.Not):
            return Not(self.predicate(node.this))
        try:
            return self._atom(node)
        except Unclear as unclear:
            return self.opaque(node, str(unclear))

    def opaque(self, node: exp.Expr, reason: str) -> Opaque:
        text = node.sql(dialect="spark") if node.parent is not None else self.sql
        if any(map(_names_all, node.find_all(exp.Star))):
            return Opaque(text, self.columns.all, reason, whole=True)
        columns = self._columns_in(node)
        if self.expressions is None or not columns:
            return Opaque(text, columns, reason)
        return Opaque(text, columns, reason, same=self._same(node), implied=self._implied(node))

    def _same(self, node: exp.Expr) -> Predicate | None:
        """Return what a node says of an expression that an index holds values of."""
        if not self.expressions:
            return None
        try:
            return replace(self, of_expressions=True)._atom(node)
        except (Unclear, UnknownColumn):
            return None

    def _implied(self, node: exp.Expr) -> Holds | None:
        """Return the texts that a value has to hold where a node is true."""
        if type(node) not in _OF_TEXTS or {name for name, value in node.args.items() if value} != {
            "this",
            "expression",
        }:
            return None
        key = self._text_key(node.this)
        if key is None:
            return None
        try:
            literal = self._literal(node.expression)
        except Unclear:
            return None
        text = str(literal.value)
        if literal.kind != "string" or "\ufffd" in text:
            return None  # that sign replaces bytes that are no text, where Spark looks for a pattern
        if isinstance(node, exp.StartsWith):
            return Holds(key, (), text)
        if not isinstance(node, exp.Like):
            return Holds(key, (text,))
        first, *others = _WILDCARDS.split(text)
        return Holds(key, tuple(piece for piece in others if piece), first)

    def _text_key(self, node: exp.Expr) -> str | None:
        """Return the name of the values of a column or expression of strings."""
        for reader in (self, replace(self, of_expressions=True)):
            try:
                key = reader._column(node)
            except (Unclear, UnknownColumn):
                continue
            return key if reader._type_of(key).kind == "string" else None
        return None

    def _type_of(self, key: str) -> ColumnType:
        if not self.of_expressions:
            return self.columns.type_of(key)
        types = {key_of(text): kind for text, kind in (self.expressions or {}).items()}
        return parse_type(types[key])

    def _key(self, node: exp.Expr) -> str:
        """Return the name of the values of an expression that an index holds."""
        try:
            expression = expression_of(node, self.columns.find, self.columns.texts, self.columns.case_sensitive)
        except NotIndexable as error:
            raise Unclear(str(error)) from error
        if expression.text not in (self.expressions or {}):
            raise Unclear("no index holds values of it")
        if "char" in self._signs and " AS string)" in expression.text:
            raise Unclear("a cast to a text of some length may cut it, or fill it up")  # the library leaves that out
        return expression.key

    def _is_key(self, node: exp.Expr) -> bool:
        try:
            self._key(node)
        except Unclear:
            return False
        return True

    def _atom(self, node: exp.Expr) -> Predicate:
        if (op := _COMPARISONS.get(type(node))) is not None:
            return self._comparison(node, op)
        match node:
            case exp.Boolean():
                return Fixed(bool(node.this))
            case exp.Null():
                return Fixed(None)
            case exp.In() if not node.args.get("query") and node.expressions:
                return self._in_list(node)
            case exp.Between() if not node.args.get("symmetric"):
                low = self._compare(node.this, ">=", node.args["low"])
                return And((low, self._compare(node.this, "<=", node.args["high"])))
            case exp.Is():
                return self._is(node)
            case exp.Column():
                return self._compare(node, "=", exp.true())
        raise Unclear("it is not a comparison of a column with literals")

    def _comparison(self, node: exp.Expr, op: str) -> Predicate:
        left, right = node.this.unnest(), node.expression.unnest()
        mirrored = isinstance(right, exp.Column) and not isinstance(left, exp.Column)
        if self._is_key(right) if self.of_expressions else mirrored:
            left, right, op = right, left, MIRRORED.get(op, op)
        return self._compare(left, op, right)

    def _compare(self, left: exp.Expr, op: str, right: exp.Expr) -> Predicate:
        if op in ("<>", "<!>"):
            return Not(self._compare(left, "=" if op == "<>" else "<=>", right))
        name = self._column(left)
        column = self._type_of(name)
        literal = self._literal(right)
        if literal.kind == "null":
            return IsNull(name) if op == "<=>" else Fixed(None, frozenset((name,)))
        [value] = comparable(column, [literal], self.zone)
        if op in ("=", "<=>"):
            value = as_key(value, column)
            if value is NO_VALUE and op == "<=>" and self.of_expressions:
                raise Unclear("in another session the expression may be of a type that has such a value")
            if value is NO_VALUE:
                return Fixed(False, frozenset((name,))) if op == "<=>" else In(name, frozenset())
        return Comparison(name, op, value)

    def _in_list(self, node: exp.In) -> Predicate:
        name = self._column(node.this)
        column = self._type_of(name)
        values = comparable(column, [self._literal(item) for item in node.expressions], self.zone, in_list=True)
        keys = (as_key(value, column) for value in values if value is not None)
        return In(name, frozenset(key for key in keys if key is not NO_VALUE), None in values)

    def _is(self, node: exp.Is) -> Predicate:
        if isinstance(node.expression, exp.Null):
            return IsNull(self._column(node.this, of_any_type=True))
        if isinstance(node.expression, exp.Boolean):
            return self._compare(node.this, "<=>", node.expression)
        raise Unclear("it is not a comparison of a column with literals")

    def _column(self, node: exp.Expr, of_any_type: bool = False) -> str:
        node = node.unnest()
        if self.of_expressions:
            return self._key(node)
        if not isinstance(node, exp.Column):
            raise Unclear("its left side is not a plain column")
        names = self.columns.find(node.parts[0].name)
        if len(node.parts) > 1 and names:
            raise Unclear("a nested field is not looked into")
        if len(node.parts) > 1 or not names:
            if self._is_nameless_function(node):
                raise Unclear("its left side is not a plain column")
            raise self.columns.unknown(node)
        if len(names) > 1:
            raise Unclear(f"the name is that of several columns: {', '.join(names)}")
        return names[0]

    def _literal(self, node: exp.Expr) -> Literal:
        node = node.unnest()
        if self.unsure and any(t.this in self.unsure for t in node.find_all(exp.Literal) if t.is_string):
            raise Unclear("Spark's reading of the quoted text depends on its version and settings")
        if isinstance(node, exp.HexString) and "0x" in self._signs:
            raise Unclear("a hexadecimal number is not one in Spark")
        if "try_cast" in self._signs:
            raise Unclear("a cast that is tried gives null where another one fails")
        return literal_of(node, self.timestamps, casts="cast" in self._signs)

    @cached_property
    def _signs(self) -> frozenset[str]:
        """The signs in the whole text that change what casts and literals mean, of which there may be thousands."""
        text = self.sql.lower()
        casts = {"cast"} if "cast" in text or "::" in text else set()
        return frozenset({sign for sign in ("0x", "try_cast", "char") if sign in text} | casts)

    def _is_nameless_function(self, node: exp.Column) -> bool:
        identifier = node.parts[0]
        plain = len(node.parts) == 1 and not identifier.args.get("quoted")
        return plain and identifier.name.lower() in _NAMELESS_FUNCTIONS

    def _columns_in(self, node: exp.Expr) -> frozenset[str]:
        """Return the table's columns below a node.

        Inside a subquery a name may be another table's.
        """
        nested = node.find(exp.Query) is not None
        if any(str(called.this).lower() == "identifier" for called in node.find_all(exp.Anonymous)):
            return self.columns.all  # by a text, which names any of them
        # "x" may be set to mean a column.
        columns = {
            name
            for text in node.find_all(exp.Literal)
            if text.is_string and text.this in self.unsure
            for name in self.columns.find(text.this)
        }
        for column in node.find_all(exp.Column):
            names = self.columns.find(column.parts[0].name)
            if not names and not nested and not self._is_nameless_function(column):
                raise self.columns.unknown(column)
            columns.update(names)
        return frozenset(columns)


def _names_all(star: exp.Star) -> bool:
    """Return whether a ``*`` means the columns of the table: not ``s.*``, nor one inside a subquery."""
    return not isinstance(star.parent, exp.Column) and star.find_ancestor(exp.Query) is None


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a chain of one connector, in order.

    In a loop, for chains may be thousands long.
    """
    parts, stack = [], [node]
    while stack:
        part = stack.pop().unnest()
        if type(part) is type(node):
            stack += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


# --- Literals, and what they mean beside a column ---------------------------------------------------------------------


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
_DIGITS = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_NAMED_NUMBERS = ("NaN", "Infinity", "-Infinity")
# Summer time rules before 1970 differ between copies of the time zone database.
_FIRST_RULED_YEAR = 1970


class Unclear(Exception):
    """The comparison is not one of exact values on the column's type; the message says why."""


class _Nothing:
    """Means that no value of the column's type equals the literal."""


NO_VALUE = _Nothing()


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as Spark types it.

    The kind is null, boolean, int (fits a bigint), decimal, float, double, string, date, timestamp, timestamp_ntz or
    binary. Dates and times still hold their text.
    """

    kind: str
    value: Any = None


def comparable(column: ColumnType, literals: Sequence[Literal], zone: str | None, in_list: bool = False) -> list[Any]:
    """Return the values, comparable with normalized values of the column; ``None`` for a null.

    :param literals: one for a comparison, all of the list for ``IN``, which Spark casts to one type together.
    :param zone: the session's time zone; ``None`` when unknown.
    :raises Unclear: when Spark's comparison may be another one.
    """
    if column.kind in ("other", "char"):
        raise Unclear(f"values of type {column.text} are not compared")
    if in_list:
        _check_list(column, [literal for literal in literals if literal.kind != "null"])
    return [None if literal.kind == "null" else _compared(column, literal, zone) for literal in literals]


def as_key(value: Any, column: ColumnType) -> Any:
    """Return the column's own value that equals a comparable one, or ``NO_VALUE``."""
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
    """Check what only matters for ``IN``: Spark casts column and list to one common type, in some modes to string."""
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
            digits, decimals = _precision(literal.value)
            whole, scale = max(whole, digits - decimals), max(scale, decimals)
    if whole + scale > _MAX_DIGITS:
        raise Unclear(f"the decimals have no common type of {_MAX_DIGITS} digits")


def _precision(value: Decimal) -> tuple[int, int]:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # literals are finite
    decimals = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), decimals), decimals


def is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _compared(column: ColumnType, literal: Literal, zone: str | None) -> Any:
    """Return the value that values of a column are compared with, by the kinds of both."""
    value = literal.value
    match "integer" if column.is_integer else column.kind, literal.kind:
        case ("integer", "int") | ("string", "string") | ("boolean", "boolean") | ("binary", "binary"):
            return value
        case "integer", "decimal":
            _check_digits(column, [literal])
            if not _LONG[0] <= value <= _LONG[1]:
                raise Unclear("the decimal is outside of bigint, where some versions do not compare at all")
            return value if value != int(value) else int(value)
        case "integer", "double" if column.kind != "bigint":
            return value
        case "integer", "string" if _DIGITS.fullmatch(value) and column.limits[0] <= int(value) <= column.limits[1]:
            return int(value)
        case "decimal", "int" | "decimal":
            _check_digits(column, [literal])
            return Decimal(value)
        case "float", "int" if abs(value) <= _FLOAT_EXACT:
            return float(value)
        case ("double", "int") | ("float" | "double", "decimal") if math.isfinite(float(value)):
            return float(value) + 0.0
        case "float" | "double", "float" | "double":
            return _one_nan(value)
        case "float" | "double", "string" if value in _NAMED_NUMBERS or (
            column.kind == "double" and _NUMBER.fullmatch(value)
        ):
            return _one_nan(float(value))
        case "date", "date" | "string":
            return parse_date(value)
        case "timestamp", "date":
            return _instant(dt.datetime.combine(parse_date(value), dt.time()), None, zone)
        case "timestamp", "timestamp" | "string":
            return _instant(*_parse_moment(value), zone)
        case "timestamp_ntz", "date":
            return dt.datetime.combine(parse_date(value), dt.time())
        case "timestamp_ntz", "timestamp_ntz" | "string":
            moment, offset = _parse_moment(value)
            if offset is not None:
                raise Unclear("a time without a zone is compared with one that has a zone")
            return moment
    raise Unclear(f"a {column.kind} column and a {literal.kind} are cast before Spark compares them")


def _one_nan(value: float) -> float:
    return NAN if math.isnan(value) else value + 0.0


def parse_date(text: str) -> dt.date:
    """Parse a full date.

    :raises Unclear: unless it is a full date of the years 1 to 9999.
    """
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
    """Return the instant of a local time, with the earlier offset where the clock is set back, as Java takes it."""
    name = offset or zone
    known = None if name is None else zone_named(name)
    if known is None:
        raise Unclear("the time has no zone of its own and the session's is not known")
    if isinstance(known, zoneinfo.ZoneInfo) and moment.year < _FIRST_RULED_YEAR:
        raise Unclear(f"the zone {name} has uncertain rules before {_FIRST_RULED_YEAR}")
    try:
        return moment.replace(tzinfo=known).astimezone(dt.UTC)
    except OverflowError as error:
        raise Unclear(f"the instant is outside of the calendar: {error}") from error


def zone_named(name: str) -> dt.tzinfo | None:
    """Return a time zone by the name that Spark knows it by; ``None`` if it is none, or not the same one everywhere."""
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


# --- Literals as the parser library gives them ---------------------------------------------------------------------


_INTEGER = re.compile(r"\d{1,38}", re.ASCII)
_FRACTION = re.compile(r"\d*\.\d*", re.ASCII)
_SQL_NUMBER = re.compile(r"\d*(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
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
    """Return the literal of a node.

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
                # -128Y is one literal to Spark, a negated 128Y to the library; a negated cast of 128 is another thing.
                return _negated(_cast(inner, timestamps, bound=not casts))
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return _cast(node, timestamps)
        case exp.Cast() if isinstance(node.this, exp.HexString) and node.to.this == exp.DType.TEXT:
            # A text that was bound (spark_apps.storage.parameters).
            try:
                return Literal("string", literal_of(node.this).value.decode())
            except UnicodeDecodeError as error:
                raise Unclear("its bytes are no text") from error
    raise Unclear("its right side is not a plain literal")


def _number(text: str, negative: bool) -> Literal:
    sign = "-" if negative else ""
    if _INTEGER.fullmatch(text):
        value = int(sign + text)
        return Literal("int", value) if _LONG[0] <= value <= _LONG[1] else Literal("decimal", Decimal(value))
    if _FRACTION.fullmatch(text) and len(text.replace(".", "").lstrip("0")) <= 38:
        return Literal("decimal", Decimal(sign + text))
    if _SQL_NUMBER.fullmatch(text) and not _FRACTION.fullmatch(text):
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
    text, is_text, to = node.this.this, node.this.is_string, node.to.this
    if is_text and to in _PLAIN_TIMES:
        return Literal(_timestamp_kind(node, timestamps), text)
    if is_text and to in _TIMES:
        return Literal(_TIMES[to], text)
    if not is_text and to in _INTEGERS:
        most = (1 << (INTEGER_BITS[_INTEGERS[to]] - 1)) - (not bound)
        if not _INTEGER.fullmatch(text) or int(text) > most:
            raise Unclear("the number does not fit its type")
        return Literal("int", int(text))
    match to:
        case exp.DType.DOUBLE:
            return Literal("double", _double(text))
        case exp.DType.FLOAT:
            number = _double(text)
            if math.isfinite(number) and not is_single(number):
                raise Unclear("the number is rounded to a float")
            return Literal("float", number)
        case exp.DType.DECIMAL:
            return Literal("decimal", _fitting_decimal(text, node.to))
    raise _not_followed()


def _timestamp_kind(node: exp.Cast, timestamps: str | None) -> str:
    """Return which type ``TIMESTAMP`` means.

    Where that is the one without a zone, a cast drops a text's offset, and a literal with an offset is of the other
    type all the same.
    """
    literal = node.to.this == exp.DType.TIMESTAMPTZ and not isinstance(node, exp.TryCast)
    if literal and _ZONED.search(node.this.this):
        return "timestamp"
    if timestamps is None:
        raise Unclear("what TIMESTAMP means is the session's to say")
    return timestamps


def _double(text: str) -> float:
    if text in _NAMED_NUMBERS:
        return float(text)
    if not text or not _SQL_NUMBER.fullmatch(text) or text == ".":
        raise _not_followed()
    return _finite(float(text))


def _fitting_decimal(text: str, to: exp.DataType) -> Decimal:
    sizes = [int(size.this.this) for size in to.expressions if isinstance(size.this, exp.Literal)]
    precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
    if not (_FRACTION.fullmatch(text) or _INTEGER.fullmatch(text)) or text == ".":
        raise _not_followed()
    with localcontext(prec=100):
        scaled = Decimal(text).scaleb(scale)
        if precision > 38 or scaled != int(scaled) or abs(scaled) >= 10**precision:
            raise Unclear("the number is rounded to its type")
        return Decimal(int(scaled)).scaleb(-scale)


def _not_followed() -> Unclear:
    return Unclear("the cast of the literal is not followed")
