"""From the SQL text of a predicate, through a parser library, to the tree of ``tree.py``.

What the library and Spark might read differently (escapes, doubled quotes, variables) and whatever is not a
comparison of one column with literals becomes ``Opaque``: true, false or null for any row.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.query.literals import NO_VALUE, Literal, Unclear, as_key, comparable
from spark_apps.query.sql_literals import literal_of
from spark_apps.query.tree import And, Comparison, Fixed, In, IsNull, Not, Opaque, Or, Predicate
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn

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
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DENIED = {TokenType.GT: (TokenType.LTE, "<="), TokenType.LT: (TokenType.GTE, ">=")}
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
    ask_spark: Callable[[str], None] | None = None,
) -> Predicate:
    """Parse a predicate over a table.

    :param sql: what stands after ``WHERE``, in Spark's SQL.
    :param schema: the table's columns and their Spark types, as ``dict(df.dtypes)`` gives them.
    :param time_zone: the session's time zone (``spark.sql.session.timeZone``), for times written without one.
    :param timestamps: what ``TIMESTAMP`` means in the session, ``timestamp`` or ``timestamp_ntz``
        (``spark.sql.timestampType``); ``None`` when unknown.
    :param case_sensitive: as ``spark.sql.caseSensitive``.
    :param ask_spark: asked about a text that cannot be read here, and raises one of the errors below if Spark cannot
        read it either. What only Spark can read, only the rows can decide.
    :raises InvalidPredicate: when the text is not one predicate, with the place.
    :raises UnknownColumn: for a column that the table lacks, with its place and similar names.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidPredicate(f"The predicate is {sql!r}.", hint="Write what stands after WHERE, like city = 'sfo'.")
    try:
        return _parsed(sql, _Columns(schema, case_sensitive), time_zone, timestamps)
    except (InvalidPredicate, UnknownColumn) as error:
        if ask_spark is None:
            raise
        try:
            ask_spark(sql)
        except UnknownColumn:
            if isinstance(error, UnknownColumn):
                raise error from None  # it tells the place
            raise
        except InvalidPredicate:
            raise error from None
        return Opaque(sql, frozenset(schema), "only Spark can read it", whole="*" in sql)


def _parsed(sql: str, columns: _Columns, time_zone: str | None, timestamps: str | None) -> Predicate:
    try:
        node, strings = _read(sql)
        if isinstance(node.unnest(), exp.Null):
            raise InvalidPredicate(
                f"The predicate is {sql!r}, which is no condition.", hint="Write what is to be null."
            )
        unsure = frozenset(text for text, plain in strings if not plain or columns.find(text))
        reader = _Reader(columns, time_zone, timestamps, unsure, sql)
        if _DIFFERENT.search(sql):
            why = "it holds a variable or a comment that Spark reads in its own way"
            return Opaque(sql, columns.all, why, whole="*" in sql)
        return reader.predicate(node)
    except RecursionError as error:
        raise InvalidPredicate(
            "The predicate is nested too deeply to be read.", hint="Write long lists with IN, or in fewer parentheses."
        ) from error


def _read(sql: str) -> tuple[exp.Expr, frozenset[tuple[str, bool]]]:
    """The library's tree, and the string literals that ``_unsure_strings`` finds."""
    dialect = sqlglot.Dialect.get_or_raise("spark")
    try:
        tokens = _joined(dialect.tokenize(sql))
        found = dialect.parser().parse_into(exp.Condition, tokens, sql)
    except sqlglot.errors.TokenError as error:
        where = re.search(r"Missing (\S+) from (\d+):(\d+)", str(error.__cause__))
        opened = f"a {where[1]} is opened" if where else "a comment is opened"
        place = f"{opened} and not closed" + (f", up to line {where[2]}," if where else "")
        raise InvalidPredicate(f"The predicate cannot be read: {place} of {sql!r}.", hint="Close it.") from error
    except sqlglot.errors.ParseError as error:
        raise _syntax_error(sql, error) from error
    if len(found) != 1 or found[0] is None:
        raise InvalidPredicate(
            f"The predicate {sql!r} holds {len(list(filter(None, found)))} conditions.",
            hint="Give one condition, without a semicolon.",
        )
    return found[0], frozenset(_unsure_strings(sql, tokens))


def _joined(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, with ``!>`` and ``!<`` as what they are to Spark: one word each, for ``<=`` and ``>=``."""
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
    """Literals whose meaning depends on Spark's version or settings, and whether they are plain but for their quotes.

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
    """A name as Java's ``equalsIgnoreCase`` compares it: character by character, without changes of length."""
    upper = (char.upper() if len(char.upper()) == 1 else char for char in name)
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in upper)


class _Columns:
    """The columns of the table, found by name as Spark finds them."""

    def __init__(self, schema: Mapping[str, str], case_sensitive: bool) -> None:
        self._fold: Callable[[str], str] = str if case_sensitive else fold
        self._names: dict[str, list[str]] = {}
        for name in schema:
            self._names.setdefault(self._fold(name), []).append(name)
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
        place = ""
        if "line" in meta:
            start = meta["col"] - (meta["end"] - meta["start"])
            place = f" (line {meta['line']}, column {start} of the predicate)"
        known = [known for similar in near for known in self._names[similar]]
        return UnknownColumn(
            f"The table has no column {name!r}{place}.",
            hint=f"Did you mean {' or '.join(map(repr, known))}?" if known else f"It has: {', '.join(self._types)}.",
        )


@dataclass(frozen=True)
class _Reader:
    """Turns the library's nodes into ours."""

    columns: _Columns
    zone: str | None
    timestamps: str | None
    unsure: frozenset[str]
    sql: str

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
        return Opaque(text, self._columns_in(node), reason)

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
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, op = right, left, _MIRRORED.get(op, op)
        return self._compare(left, op, right)

    def _compare(self, left: exp.Expr, op: str, right: exp.Expr) -> Predicate:
        if op in ("<>", "<!>"):
            return Not(self._compare(left, "=" if op == "<>" else "<=>", right))
        name = self._column(left)
        column = self.columns.type_of(name)
        literal = self._literal(right)
        if literal.kind == "null":
            return IsNull(name) if op == "<=>" else Fixed(None, frozenset((name,)))
        [value] = comparable(column, [literal], self.zone)
        if op in ("=", "<=>"):
            value = as_key(value, column)
            if value is NO_VALUE:
                return Fixed(False, frozenset((name,))) if op == "<=>" else In(name, frozenset())
        return Comparison(name, op, value)

    def _in_list(self, node: exp.In) -> Predicate:
        name = self._column(node.this)
        column = self.columns.type_of(name)
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
        if not isinstance(node, exp.Column):
            raise Unclear("its left side is not a plain column")
        found = self.columns.find(node.parts[0].name)
        if len(node.parts) > 1 and found:
            raise Unclear("a nested field is not looked into")
        if len(node.parts) > 1 or not found:
            if self._is_nameless_function(node):
                raise Unclear("its left side is not a plain column")
            raise self.columns.unknown(node)
        if len(found) > 1:
            raise Unclear(f"the name is that of several columns: {', '.join(found)}")
        return found[0]

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
        """What the whole text holds of what changes the meaning of its literals; looked for once, as there may be
        thousands of them."""
        text = self.sql.lower()
        casts = {"cast"} if "cast" in text or "::" in text else set()
        return frozenset({sign for sign in ("0x", "try_cast") if sign in text} | casts)

    def _meant(self, text: str) -> list[str]:
        return self.columns.find(text) if text in self.unsure else []

    def _is_nameless_function(self, node: exp.Column) -> bool:
        identifier = node.parts[0]
        plain = len(node.parts) == 1 and not identifier.args.get("quoted")
        return plain and identifier.name.lower() in _NAMELESS_FUNCTIONS

    def _columns_in(self, node: exp.Expr) -> frozenset[str]:
        """The table's columns below a node. Inside a subquery a name may be another table's."""
        nested = node.find(exp.Query) is not None
        if any(str(called.this).lower() == "identifier" for called in node.find_all(exp.Anonymous)):
            return self.columns.all  # by a text, which names any of them
        # "x" may be set to mean a column.
        found = {name for text in node.find_all(exp.Literal) if text.is_string for name in self._meant(text.this)}
        for column in node.find_all(exp.Column):
            names = self.columns.find(column.parts[0].name)
            if not names and not nested and not self._is_nameless_function(column):
                raise self.columns.unknown(column)
            found.update(names)
        return frozenset(found)


def _names_all(star: exp.Star) -> bool:
    """Whether a ``*`` stands for the columns of the table: not ``s.*``, nor one inside a subquery."""
    return not isinstance(star.parent, exp.Column) and star.find_ancestor(exp.Query) is None


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a chain of one connector, in order; a loop, for chains may be thousands long."""
    parts, stack = [], [node]
    while stack:
        part = stack.pop().unnest()
        if type(part) is type(node):
            stack += [part.expression, part.this]
        else:
            parts.append(part)
    return parts
