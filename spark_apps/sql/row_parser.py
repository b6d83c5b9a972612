"""The parser of statements on rows: queries, INSERT, UPDATE, DELETE, MERGE, and the query of CREATE TABLE … AS.

Only the frame of a statement is read here: its tables, columns and clauses. Expressions and queries stay the text that
was written, for Spark to read; whether a text is a query at all is checked by ``sqlglot``, which reads Spark's dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from lark import Token

from spark_apps.sql import statements as s
from spark_apps.sql.references import check_is_query
from spark_apps.sql.syntax import Positioned, Refused, literal_of, refusal, table_name, unquoted
from spark_apps.storage.errors import InvalidStatement

_LEXEMES = re.compile(
    r"(?P<SKIPPED>[\s\ufeff]+|--[^\n]*|/\*[\s\S]*?\*/)"
    r"|(?P<RAW_QUOTED>[rR]'[^']*'|[rR]\"[^\"]*\")"
    r"|(?P<SINGLE_QUOTED>'(?:[^'\\]|\\[\s\S])*')|(?P<DOUBLE_QUOTED>\"(?:[^\"\\]|\\[\s\S])*\")"
    r"|(?P<BACKTICKED>`(?:[^`]|``)+`)|(?P<NAME>[^\W\d][\w$]*)"
    r"|(?P<NUMBER>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))|(?P<SIGN>[\s\S])"
)
_TEXTS = ("SINGLE_QUOTED", "DOUBLE_QUOTED", "RAW_QUOTED")
_UNCLOSED = {"'": "A quotation", '"': "A quotation", "`": "A quoted name"}
_OPENING, _CLOSING = "([{", ")]}"

_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
STATEMENTS = ("SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE")
_AFTER_A_TABLE = ("SET", "WHERE", "USING", "ON", "VERSION", "TIMESTAMP", "FOR", "SYSTEM_VERSION", "SYSTEM_TIME",
                  "TABLESAMPLE", "PARTITION", "WITH")  # fmt: skip


def lexemes(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the words, literals and signs of a text, without comments; their positions are those in the text."""
    for match in _LEXEMES.finditer(text, start, len(text) if end is None else end):
        if match.lastgroup != "SKIPPED":
            yield Token(match.lastgroup or "SIGN", match[0], match.start(), end_pos=match.end())


@dataclass(frozen=True)
class Segment:
    """A part of a script between semicolons, and where a query in it begins that ``CREATE TABLE … AS`` is made from."""

    start: int
    end: int
    tokens: tuple[Token, ...]
    query: int | None = None

    @property
    def of_rows(self) -> bool:
        """True if the statement is one of those that are read here."""
        first = self.tokens[0] if self.tokens else None
        return first is not None and (first == "(" or _is(first, *STATEMENTS))


def split(script: str) -> list[Segment]:
    """Return the statements of a script that are not empty."""
    segments: list[Segment] = []
    tokens: list[Token] = []
    start = 0
    for token in [*lexemes(script), Token("SIGN", ";", len(script))]:
        if token == ";" and token.type == "SIGN":
            if tokens:
                found = tuple(tokens)
                segments.append(Segment(start, token.start_pos or 0, found, _query_of_a_table(found)))
            tokens, start = [], (token.start_pos or 0) + 1
        else:
            tokens.append(token)
    return segments


def _query_of_a_table(tokens: Sequence[Token]) -> int | None:
    if not (len(tokens) > 2 and _is(tokens[0], "CREATE") and _is(tokens[1], "TABLE")):
        return None
    depth = 0
    for token, following in pairwise(tokens):
        depth += _turns(token)
        if depth == 0 and _is(token, "AS") and (following == "(" or _is(following, *_QUERY)):
            return following.start_pos
    return None


def _is(token: Token, *words: str) -> bool:
    return token.type == "NAME" and token.upper() in words


def _turns(token: Token) -> int:
    """Return by how much a token nests what follows it."""
    if token.type == "SIGN":
        return (token in _OPENING) - (token in _CLOSING)
    return _is(token, "CASE") - _is(token, "END")


def read_row_statement(script: str, segment: Segment) -> s.Statement:
    """Return the statement of a segment.

    :raises InvalidStatement: with its position, the text there and what was expected.
    """
    try:
        read = _RowReader(script, segment)
        statement = read.statement()
        read.end()
    except Refused as error:
        at = error.token
        raise refusal(script, at.start_pos or 0, max(1, len(at)), error.message, error.hint) from None
    return replace(statement, source=_source(script, segment))


def read_query(script: str, segment: Segment) -> str:
    """Return the query of ``CREATE TABLE … AS``. :raises InvalidStatement: if it is none."""
    start = segment.query or segment.start
    return _RowReader(script, replace(segment, tokens=tuple(t for t in segment.tokens if _start(t) >= start))).query()


def _source(script: str, segment: Segment) -> s.Source:
    start, end = _start(segment.tokens[0]), segment.tokens[-1].end_pos or segment.end
    line, column = script.count("\n", 0, start) + 1, start - script.rfind("\n", 0, start)
    return s.Source(1, line, column, script[start:end])


def _start(token: Token) -> int:
    return token.start_pos or 0


class _RowReader:
    """Reads one statement, token by token."""

    def __init__(self, script: str, segment: Segment) -> None:
        self._script = script
        self._segment = segment
        self._tokens = segment.tokens
        self._next = 0
        for token in self._tokens:
            if token.type == "SIGN" and token in _UNCLOSED:
                raise self._error(token, f"{_UNCLOSED[token]} that begins here is not closed.")

    # --- Reading ------------------------------------------------------------------------------------------------------

    def statement(self) -> s.Statement:
        readers: dict[str, Callable[[], s.Statement]] = {
            "INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete, "MERGE": self._merge,
        }  # fmt: skip
        first = self._tokens[0]
        if _is(first, *readers):
            return readers[str(first).upper()]()
        # INSERT may come behind the CTEs of its query.
        if _is(first, "WITH") and (position := self._outside("INSERT")) is not None:
            ctes = self._text(0, position)
            self._next = position
            return self._insert(ctes)
        return s.Query(self.query())

    def query(self, begin: str = "") -> str:
        """Return the rest as the text of a query."""
        start = self._next
        if start >= len(self._tokens):
            raise self._expected("SELECT, VALUES or WITH")
        first = self._tokens[start]
        if not (first == "(" or _is(first, *_QUERY)):
            raise self._expected("SELECT, VALUES or WITH")
        if _is(first, "TABLE"):
            self._next += 1
            text = f"SELECT * FROM {self._text(start + 1, len(self._tokens))}"
        else:
            text = self._text(start, len(self._tokens))
        text = f"{begin} {text}" if begin else text
        try:
            check_is_query(text)
        except InvalidStatement as error:
            raise self._error(first, error.message, error.hint) from error
        self._next = len(self._tokens)
        return text

    def _insert(self, ctes: str = "") -> s.Statement:
        self._take("INSERT")
        overwrite = self._take("INTO", "OVERWRITE").upper() == "OVERWRITE"
        if self._at("DIRECTORY") or (self._at("LOCAL") and self._at("DIRECTORY", ahead=1)):
            raise self._refused("INSERT OVERWRITE DIRECTORY writes no table.", "Give the operator an output instead.")
        self._skip("TABLE")
        table = self._table()
        values, dynamic = self._partition() if self._at("PARTITION") else ((), ())
        if self._at("IF"):
            raise self._refused("IF NOT EXISTS of a partition cannot be given.", "Leave it out.")
        if self._at("REPLACE"):
            raise self._refused(
                "REPLACE is not taken.", "INSERT OVERWRITE replaces partitions; MERGE INTO, other rows."
            )
        by_name = False
        columns: tuple[str, ...] | None = None
        if self._at("BY"):
            self._take("BY")
            self._take("NAME")
            by_name = True
        elif self._at("(") and not self._at("(", *_QUERY, ahead=1):
            columns = self._names()
        query = self.query(ctes)
        kind = s.InsertOverwrite if overwrite else s.InsertInto
        return kind(table, query, columns, by_name, values, dynamic)

    def _update(self) -> s.Statement:
        self._take("UPDATE")
        table, alias = self._table(), self._alias()
        self._take("SET")
        assignments = self._assignments(alias, "WHERE")
        where = self._expression("a condition") if self._skip("WHERE") else None
        return s.Update(table, alias, assignments, where)

    def _delete(self) -> s.Statement:
        self._take("DELETE")
        self._take("FROM")
        table, alias = self._table(), self._alias()
        where = self._expression("a condition") if self._skip("WHERE") else None
        return s.DeleteFrom(table, alias, where)

    def _merge(self) -> s.Statement:
        self._take("MERGE")
        if self._at("WITH"):
            raise self._refused("WITH SCHEMA EVOLUTION is not taken.", "ALTER TABLE … ADD COLUMNS first.")
        self._take("INTO")
        table, alias = self._table(), self._alias()
        self._take("USING")
        begin = self._next
        source_alias = self._source_alias()
        source = self._text(begin, self._next)
        self._take("ON")
        condition = self._expression("a condition", "WHEN")
        clauses: list[s.MergeClause] = []
        while not clauses or self._at("WHEN"):
            clauses.append(self._clause(alias, clauses))
        return s.Merge(table, alias, source, source_alias, condition, tuple(clauses))

    def _clause(self, alias: str | None, before: Sequence[s.MergeClause]) -> s.MergeClause:
        begins = self._take("WHEN")
        of: Any = "matched"
        if self._skip("NOT"):
            self._take("MATCHED")
            of = "not matched"
            if self._skip("BY") and self._take("SOURCE", "TARGET").upper() == "SOURCE":
                of = "not matched by source"
        else:
            self._take("MATCHED")
        if any(clause.of == of and clause.condition is None for clause in before):
            raise Refused(
                begins,
                f"This clause can never be reached: a clause WHEN {of.upper()} without a condition stands before it.",
                "Give the earlier one a condition, or put it last.",
            )
        condition = self._expression("a condition", "THEN") if self._skip("AND") else None
        self._take("THEN")
        if of == "not matched":
            return self._insert_clause(condition)
        if self._take("UPDATE", "DELETE").upper() == "DELETE":
            return s.MergeClause(of, condition, "delete")
        self._take("SET")
        if self._at("*"):
            if of == "not matched by source":
                raise self._refused("There is no row of the source that SET * could take.", "Name columns and values.")
            self._next += 1
            return s.MergeClause(of, condition, "update")
        return s.MergeClause(of, condition, "update", self._assignments(alias, "WHEN"))

    def _insert_clause(self, condition: str | None) -> s.MergeClause:
        self._take("INSERT")
        if self._at("*"):
            self._next += 1
            return s.MergeClause("not matched", condition, "insert")
        at = self._here()
        names = self._names()
        self._take("VALUES")
        self._take("(")
        values = [self._expression("a value", ",", ")")]
        while self._skip(","):
            values.append(self._expression("a value", ",", ")"))
        self._take(")")
        if len(values) != len(names):
            raise Refused(at, f"INSERT names {len(names)} columns and gives {len(values)} values.", "Give as many.")
        return s.MergeClause("not matched", condition, "insert", tuple(zip(names, values, strict=True)))

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _table(self) -> str:
        parts = [self._table_part()]
        while self._at("."):
            self._next += 1
            parts.append(self._table_part())
        return table_name(parts)

    def _table_part(self) -> Positioned[str]:
        token = self._here()
        if token.type not in ("NAME", "BACKTICKED", *_TEXTS):
            raise self._expected("a table")
        self._next += 1
        return Positioned(unquoted(token), token)

    def _alias(self) -> str | None:
        if self._skip("AS"):
            return self._name()
        token = self._peek()
        if token is None or token.type not in ("NAME", "BACKTICKED") or _is(token, *_AFTER_A_TABLE):
            return None
        return self._name()

    def _source_alias(self) -> str | None:
        """Read a table or a query in parentheses, up to ON, and return the name by which its columns are called."""
        name = None
        if self._at("("):
            self._expression("a source", "AS", "ON", "NAME")
        else:
            name = self._table().rpartition(".")[2]
        while (token := self._peek()) is not None and _is(token, *_AFTER_A_TABLE) and not _is(token, "ON"):
            self._next += 1  # VERSION AS OF 3, TIMESTAMP AS OF '…'
            while self._at("AS", "OF") or (self._peek() is not None and self._here().type in (*_TEXTS, "NUMBER")):
                self._next += 1
        name = self._alias() or name
        if self._at("("):
            self._names()
        return name

    def _assignments(self, alias: str | None, *ends: str) -> tuple[tuple[str, str], ...]:
        assignments = [self._assignment(alias, ends)]
        while self._skip(","):
            assignments.append(self._assignment(alias, ends))
        return tuple(assignments)

    def _assignment(self, alias: str | None, ends: Sequence[str]) -> tuple[str, str]:
        at = self._here()
        parts = [self._name()]
        while self._skip("."):
            parts.append(self._name())
        if len(parts) > 1 and alias is not None and parts[0].lower() == alias.lower():
            parts = parts[1:]
        if len(parts) > 2 or (len(parts) == 2 and alias is not None):
            raise Refused(at, f"{'.'.join(parts)!r} is no column: fields of a struct are not set.", "Set the column.")
        self._take("=")
        return parts[-1], self._expression("a value", ",", *ends)

    def _partition(self) -> tuple[s.PartitionSpec, tuple[str, ...]]:
        """Return partition columns with their values, and those without."""
        self._take("PARTITION")
        self._take("(")
        values: list[tuple[str, s.Value]] = []
        dynamic: list[str] = []
        while True:
            name = self._name()
            if self._skip("="):
                if self._at("DATE", "TIMESTAMP"):
                    self._next += 1
                values.append((name, self._literal()))
            else:
                dynamic.append(name)
            if not self._skip(","):
                break
        self._take(")")
        return tuple(values), tuple(dynamic)

    def _literal(self) -> s.Value:
        token = self._here()
        if token.type == "NAME" and token.upper() in ("TRUE", "FALSE", "NULL"):
            token = Token(token.upper(), token, token.start_pos)
        elif token.type not in (*_TEXTS, "NUMBER"):
            raise self._expected("a literal")
        self._next += 1
        return literal_of(token)

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        names = [self._name()]
        while self._skip(","):
            names.append(self._name())
        self._take(")")
        return tuple(names)

    def _name(self) -> str:
        token = self._here()
        if token.type not in ("NAME", "BACKTICKED"):
            raise self._expected("a name")
        self._next += 1
        return unquoted(token)

    def _expression(self, what: str, *ends: str) -> str:
        """Return the text up to one of these words or signs, outside of parentheses and of CASE … END.

        :param ends: with ``NAME`` any name ends it.
        """
        begin, depth = self._next, 0
        while (token := self._peek()) is not None:
            ended = token in ends if token.type == "SIGN" else _is(token, *ends)
            if depth == 0 and (ended or ("NAME" in ends and token.type in ("NAME", "BACKTICKED"))):
                break
            if depth == 0 and token.type == "SIGN" and token in _CLOSING:
                break
            depth += _turns(token)
            self._next += 1
        if self._next == begin:
            raise self._expected(what)
        return self._text(begin, self._next)

    # --- Tokens -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Check that nothing is left. :raises Refused: if something is."""
        if self._next < len(self._tokens):
            raise self._expected("';' or the end")

    def _peek(self, ahead: int = 0) -> Token | None:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else None

    def _here(self) -> Token:
        token = self._peek()
        if token is None:
            return Token("SIGN", "", self._tokens[-1].end_pos or self._segment.end)
        return token

    def _at(self, *words: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and (token in words if token.type == "SIGN" else _is(token, *words))

    def _skip(self, word: str) -> bool:
        found = self._at(word)
        self._next += found
        return found

    def _take(self, *words: str) -> Token:
        if not self._at(*words):
            raise self._expected(" or ".join(f"'{word}'" if not word.isalpha() else word for word in words))
        self._next += 1
        return self._tokens[self._next - 1]

    def _outside(self, word: str) -> int | None:
        """Return where a word stands outside of parentheses."""
        depth = 0
        for position, token in enumerate(self._tokens):
            depth += _turns(token)
            if depth == 0 and _is(token, word):
                return position
        return None

    def _text(self, begin: int, end: int) -> str:
        if begin >= end:
            return ""
        return self._script[_start(self._tokens[begin]) : self._tokens[end - 1].end_pos]

    def _expected(self, what: str) -> Refused:
        token = self._peek()
        found = "the statement ends here" if token is None else f"found {str(token)[:60]!r}"
        return Refused(self._here(), f"expected {what}, {found}.")

    def _refused(self, message: str, hint: str = "") -> Refused:
        return Refused(self._here(), message, hint)

    def _error(self, token: Token, message: str, hint: str = "") -> InvalidStatement:
        return refusal(self._script, _start(token), len(token), message, hint)
