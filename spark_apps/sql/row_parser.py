"""The parser of statements on rows: queries, INSERT, UPDATE, DELETE, MERGE, and the query of CREATE TABLE … AS.

Only the frame of a statement is read: its tables, columns and clauses. Expressions and queries stay the text that
was written, for Spark to read. ``sqlglot``, which reads Spark's dialect, checks whether a text is a query at all, and
says where in it tables are named: only these names are replaced. No Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import sqlglot
from sqlglot import exp

from spark_apps.sql import statements as s
from spark_apps.sql.syntax import NAMES, TEXTS, Refused, Token, TokenReader, unquoted
from spark_apps.storage.errors import InvalidStatement
from spark_apps.storage.names import quote
from spark_apps.workload.shapes import UNPREPARED

# --- the tables that a query names ------------------------------------------------------------------------------------


_AFTER = re.compile(r"(?:[\s\ufeff]+|--[^\n]*|/\*[\s\S]*?\*/)*")
_VERSION = re.compile(
    r"(?i)(?:[\s\ufeff]+FOR)?[\s\ufeff]+(?P<what>SYSTEM_VERSION|VERSION|SYSTEM_TIME|TIMESTAMP)[\s\ufeff]+AS[\s\ufeff]+OF"
    r"[\s\ufeff]+(?P<value>\d+|'[^'\\]*')"
)
_SAMPLE = re.compile(r"(?i)TABLESAMPLE\s*\(")
_REPEATABLE = re.compile(r"(?i)REPEATABLE\s*\(")


@dataclass(frozen=True)
class Reference:
    """A place in a query that names a table.

    :param parts: of its name. :param start: offset in the text; ``end`` is that behind the name and its version.
    :param version: ``VERSION AS OF``. :param as_of: ``TIMESTAMP AS OF``.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    version: int | None = None
    as_of: str | None = None
    node: Any = None

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    @property
    def called(self) -> str:
        """The name by which the rest of the query calls the table."""
        return self.node.alias or self.parts[-1]


def check_is_query(text: str) -> None:
    """Check that a text is one query.

    :raises InvalidStatement: saying what is read instead, and where in the text.
    """
    _parsed(text)


def _parsed(text: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, dialect="spark")
    except sqlglot.errors.TokenError as error:
        raise InvalidStatement("The query cannot be read: a quotation or a comment in it is not closed.") from error
    except sqlglot.errors.ParseError as error:
        details = error.errors[0] if error.errors else {}
        raise InvalidStatement(
            f"The query cannot be read at its line {details.get('line', '?')}, near "
            f"{str(details.get('highlight') or '')[:60]!r}: {details.get('description') or 'unknown syntax'}.",
            hint="It is Spark's SQL. What only Spark itself can read goes to spark.sql after spark_apps.enable.",
        ) from error
    except RecursionError as error:
        raise InvalidStatement("The query is nested too deeply to be read.") from error
    except UNPREPARED as error:
        raise InvalidStatement("The query cannot be read.", hint="It is Spark's SQL.") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query | exp.Values):
        raise InvalidStatement("This is no query.", hint="Begin with SELECT, WITH or VALUES.")
    if (changing := tree.find(exp.DML, exp.DDL, exp.Command)) is not None and not isinstance(changing, exp.Query):
        raise InvalidStatement(f"The query holds {changing.key.upper()}.", hint="Make it a statement of its own.")
    return tree


def references(text: str) -> list[Reference]:
    """Return the tables that a query names, but for its own CTEs, in the order of the text.

    :raises InvalidStatement: if the text is no query.
    """
    by_offset: dict[int, Reference] = {}
    for node in _parsed(text).find_all(exp.Table):
        parts = node.parts
        if not parts or not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
            continue  # a function that gives a table
        start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
        if len(parts) == 1 and _is_cte(node):
            continue
        match = _VERSION.match(text, end) if node.args.get("version") is not None else None
        version, as_of = None, None
        if match is not None:
            end, value = match.end(), match["value"].strip("'")
            if match["what"].upper().endswith("VERSION") and value.isdigit():
                version = int(value)
            else:
                as_of = value
        by_offset[start] = Reference(tuple(part.name for part in parts), start, end, version, as_of, node)
    return [by_offset[start] for start in sorted(by_offset)]


def _is_cte(node: exp.Table) -> bool:
    """Return whether a name of one part is that of a CTE that can be seen there."""
    name, inside, at = node.name.lower(), None, node.parent
    while at is not None:
        if isinstance(at, exp.CTE):
            inside = inside or at
        ctes = at.args.get("with_")
        if ctes is not None:
            for cte in ctes.expressions:
                # A CTE sees those before it; itself only where it is recursive.
                if cte is inside and not ctes.args.get("recursive"):
                    break
                if cte.alias.lower() == name:
                    return True
            inside = None
        at = at.parent
    return False


def replaced(text: str, replacements: Sequence[tuple[Reference, str]]) -> str:
    """Return the query with other names in the place of tables, by which the rest of the query need not know.

    :param replacements: a reference, and what replaces it, quoted.
    """
    edits: list[tuple[int, int, str]] = []
    for reference, name in replacements:
        edits.append((reference.start, reference.end, name))
        if not reference.node.alias:
            alias = quote(reference.parts[-1])
            at = _behind_sample(text, reference.end)
            edits.append((at, at, f" AS {alias}"))
            edits.extend(_shortened(text, reference))
    for start, end, new in sorted(set(edits), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _behind_sample(text: str, end: int) -> int:
    for sign in (_SAMPLE, _REPEATABLE):
        blank = _AFTER.match(text, end)
        match = sign.match(text, blank.end() if blank else end)
        if match is not None:
            close = text.find(")", match.end())
            end = len(text) if close < 0 else close + 1
    return end


def _shortened(text: str, reference: Reference) -> Iterator[tuple[int, int, str]]:
    """Yield the edits by which ``lake.trips.id`` becomes ``trips.id``."""
    whole = [part.lower() for part in reference.parts]
    for column in reference.node.root().find_all(exp.Column) if len(whole) > 1 else ():
        parts = [part for part in column.parts if isinstance(part, exp.Identifier) and "start" in part.meta]
        qualifiers = [part.name.lower() for part in parts[: len(whole)]]
        if qualifiers == whole and len(column.parts) == len(whole) + 1:
            yield parts[0].meta["start"], parts[len(whole) - 1].meta["start"], ""


# --- What the reader of one table needs -------------------------------------------------------------------------------


def pushed_down(text: str, reference: Reference, columns: Collection[str]) -> str | None:
    """Return a predicate that is true of every row of a table that the query can take from this place.

    Only what is plain beyond doubt is taken: comparisons of the table's columns with literals, joined by AND, OR, NOT,
    behind WHERE, or behind ON of a join that drops the row where they fail.
    """
    node = reference.node
    select = node.parent.parent if isinstance(node.parent, exp.From | exp.Join) else None
    if not isinstance(select, exp.Select) or node.args.get("sample") or node.args.get("pivots"):
        return None
    joins: list[exp.Join] = select.args.get("joins") or []
    own = next((number for number, join in enumerate(joins) if join is node.parent), None)
    if own is None and node.parent is not select.args.get("from_"):
        return None
    sides = [(join.side or "").upper() for join in joins]
    alone = not joins and not select.args.get("laterals")
    is_ours = _Ours({name.lower() for name in columns}, reference.called.lower(), alone, '"' in text)
    conjuncts: list[exp.Expr] = []
    kept_by_own = own is None or sides[own] not in ("LEFT", "FULL")
    later = sides if own is None else sides[own + 1 :]
    if kept_by_own and not any(side in ("RIGHT", "FULL") for side in later):
        where = select.args.get("where")
        conjuncts.extend(_conjuncts(where.this if where is not None else None))
        for join in joins[0 if own is None else own + 1 :]:
            conjuncts.extend(_conjuncts(join.args.get("on") if (join.kind or "").upper() == "SEMI" else None))
    if own is not None and sides[own] in ("", "LEFT"):
        conjuncts.extend(_conjuncts(joins[own].args.get("on")))
    texts = [is_ours.text(one) for one in conjuncts if is_ours.plain(one) and one.find(exp.Column) is not None]
    return " AND ".join(f"({text})" for text in texts) or None


def _conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    if condition is None:
        return
    if isinstance(condition, exp.And | exp.Paren):
        for part in (condition.this, condition.args.get("expression")):
            yield from _conjuncts(part) if isinstance(condition, exp.And) or isinstance(part, exp.And) else ()
        if isinstance(condition, exp.Paren) and not isinstance(condition.this, exp.And):
            yield condition
    else:
        yield condition


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True)
class _Ours:
    """The conditions that speak of one table alone, and mean the same wherever they are."""

    columns: Collection[str]
    called: str
    alone: bool
    double_quotes: bool

    def plain(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.And | exp.Or):
            return self.plain(node.left) and self.plain(node.right)
        if isinstance(node, exp.Not | exp.Paren):
            return self.plain(node.this)
        if isinstance(node, _COMPARISONS):
            return self._value(node.left) and self._value(node.right)
        if isinstance(node, exp.Is):
            return self._value(node.this) and isinstance(node.expression, exp.Null)
        if isinstance(node, exp.In):
            values = node.expressions
            return bool(values) and not node.args.get("query") and all(map(self._value, (node.this, *values)))
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            return all(self._value(node.args[name]) for name in ("this", "low", "high"))
        return False

    def _value(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.Neg):
            return self._value(node.this) and not isinstance(node.this, exp.Neg)
        if isinstance(node, exp.Cast) and node.to.is_type("date"):
            node = node.this
            return isinstance(node, exp.Literal) and node.is_string and self._value(node)
        if isinstance(node, exp.Literal):
            return not node.is_string or (not self.double_quotes and not re.search(r"[\\'\"\n]", node.name))
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or len(node.parts) > 2:
            return False
        qualified = node.table.lower() == self.called if node.table else self.alone
        return qualified and node.name.lower() in self.columns

    def text(self, node: exp.Expr) -> str:
        def unqualified(part: exp.Expr) -> exp.Expr:
            return exp.column(part.name, quoted=True) if isinstance(part, exp.Column) else part

        return node.transform(unqualified).sql(dialect="spark")


def columns_named(text: str, columns: Sequence[str]) -> list[str]:
    """Return those columns that a query may read, wherever in it: all where there is a ``*``."""
    tree = _parsed(text)
    stars = (star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    if any(True for _ in stars) or any(join.method for join in tree.find_all(exp.Join)):
        return list(columns)
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in columns if name.lower() in named]


# --- Conditions of statements that change rows ------------------------------------------------------------------------


def _condition(text: str) -> exp.Expr | None:
    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE ({text}\n)", dialect="spark")
    except (sqlglot.errors.SqlglotError, RecursionError, *UNPREPARED):
        return None
    where = tree.args.get("where")
    return None if where is None else where.this.unnest()


def is_plain(condition: str) -> bool:
    """Return whether a condition speaks of columns of one table by their plain names, and asks no other query."""
    tree = _condition(condition)
    if tree is None:
        return False
    return tree.find(exp.Query, exp.Subquery, exp.Table) is None and not any(
        one.table for one in tree.find_all(exp.Column)
    )


@dataclass(frozen=True)
class Equality:
    """A part of a condition that holds a column of a table equal to one of a source, as their names are written.

    :param null_safe: whether null is equal to null there (``<=>``).
    """

    column: str
    value: str
    null_safe: bool


@dataclass(frozen=True)
class Equalities:
    """The equalities that hold wherever a condition is true.

    :param alone: whether it is true wherever all of them hold: it asks nothing else.
    """

    parts: tuple[Equality, ...] = ()
    alone: bool = False


def equalities(condition: str, called: str, source: str) -> Equalities:
    """Return the columns of a table that a condition compares with columns of a source, for equality.

    :param called: the table's name, quoted, as ``source`` is.
    """
    tree = _condition(condition)
    if tree is None:
        return Equalities()
    parts, alone = [], True
    for one in _conjuncts(tree):
        equal = one.unnest()
        part = _equality(equal, called, source) if isinstance(equal, exp.EQ | exp.NullSafeEQ) else None
        if part is None:
            alone = False
        else:
            parts.append(part)
    return Equalities(tuple(parts), alone)


def _equality(node: exp.Binary, called: str, source: str) -> Equality | None:
    for left, right in ((node.left, node.right), (node.right, node.left)):
        column, value = _column_of(left, called), _column_of(right, source)
        if column is not None and value is not None:
            return Equality(column, value, isinstance(node, exp.NullSafeEQ))
    return None


def _column_of(node: exp.Expr, qualifier: str) -> str | None:
    """Return the name of a column that is called with the (quoted) name of its table, and is no field of a struct."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or len(node.parts) != 2:
        return None
    return node.name if node.table.lower() == qualifier.strip("`").lower() else None


def column_of(value: str, source: str) -> str | None:
    """Return the column of a source that a value is, by its name as written; ``None`` if it is an expression.

    :param source: the name by which the value may call the source, quoted.
    """
    tree = _condition(f"({value}\n) IS NULL")
    column = tree.this.unnest() if isinstance(tree, exp.Is) else None
    if isinstance(column, exp.Column) and isinstance(column.this, exp.Identifier) and not column.table:
        return column.name
    return None if column is None else _column_of(column, source)


# --- statements on rows -----------------------------------------------------------------------------------------------


_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_AFTER_A_TABLE = ("SET", "WHERE", "USING", "ON", "VERSION", "TIMESTAMP", "FOR", "SYSTEM_VERSION", "SYSTEM_TIME",
                  "TABLESAMPLE", "PARTITION", "WITH")  # fmt: skip


def _nests(token: Token) -> int:
    """Return by how much a token nests what follows it."""
    return (token.says in ("(", "[", "{", "CASE")) - (token.says in (")", "]", "}", "END"))


class RowReader(TokenReader):
    """Reads a statement on rows."""

    def row_statement(self) -> s.Statement:
        """Read a query, or a statement that changes rows."""
        readers: dict[str, Callable[[], s.Statement]] = {
            "INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete, "MERGE": self._merge,
        }  # fmt: skip
        if self.current.says in readers:
            return readers[self.advance().text.upper()]()
        # INSERT may come behind the CTEs of its query.
        if self.is_next("WITH") and (position := self._outside("INSERT")) is not None:
            ctes = self.text_between(0, position)
            self._next = position + 1
            return self._insert(ctes)
        return s.Query(self.query())

    def query(self, begin: str = "") -> str:
        """Read the rest as a query, and return its text.

        :param begin: its CTEs, if they come earlier.
        """
        first, start = self.current, self._next
        if first.says not in ("(", *_QUERY):
            self.fail("SELECT", "VALUES", "WITH")
        while self.current.type != "END":
            self.advance()
        end = self._next
        if first.says == "TABLE":
            text = f"SELECT * FROM {self.text_between(start + 1, end)}"
        else:
            text = self.text_between(start, end)
        text = f"{begin} {text}" if begin else text
        try:
            check_is_query(text)
        except InvalidStatement as error:
            raise Refused(first, error.message, error.hint) from error
        return text

    def _insert(self, ctes: str = "") -> s.Statement:
        overwrite = self.take("INTO", "OVERWRITE").says == "OVERWRITE"
        if self.is_next("DIRECTORY") or (self.is_next("LOCAL") and self.is_next("DIRECTORY", ahead=1)):
            self._refuse("INSERT OVERWRITE DIRECTORY writes no table.", "Give the operator an output instead.")
        self.skip("TABLE")
        table = self.table().value
        values, dynamic = self.partition(dynamic=True) if self.skip("PARTITION") else ((), ())
        if self.is_next("IF"):
            self._refuse("IF NOT EXISTS of a partition cannot be given.", "Leave it out.")
        if self.is_next("REPLACE"):
            self._refuse("REPLACE is not taken.", "INSERT OVERWRITE replaces partitions; MERGE INTO, other rows.")
        by_name = self.phrase("BY NAME") is not None
        columns: tuple[str, ...] | None = None
        if not by_name and self.at("(") and not self.is_next("(", *_QUERY, ahead=1):
            columns = tuple(self.listed(self._plain_name))
        query = self.query(ctes)
        kind = s.InsertOverwrite if overwrite else s.InsertInto
        return kind(table, query, columns, by_name, values, dynamic)

    def _update(self) -> s.Statement:
        table, alias = self.table().value, self._alias()
        self.take("SET")
        return s.Update(table, alias, self._assignments(alias, "WHERE"), self._where())

    def _delete(self) -> s.Statement:
        self.take("FROM")
        return s.DeleteFrom(self.table().value, self._alias(), self._where())

    def _where(self) -> str | None:
        return self._expression("a condition") if self.skip("WHERE") else None

    def _merge(self) -> s.Statement:
        if self.is_next("WITH"):
            self._refuse("WITH SCHEMA EVOLUTION is not taken.", "ALTER TABLE … ADD COLUMNS first.")
        self.take("INTO")
        table, alias = self.table().value, self._alias()
        self.take("USING")
        begin = self._next
        source_alias = self._source_alias()
        source = self.text_between(begin, self._next)
        self.take("ON")
        condition = self._expression("a condition", "WHEN")
        clauses: list[s.MergeClause] = []
        while not clauses or self.at("WHEN"):
            clauses.append(self._clause(alias, clauses))
        return s.Merge(table, alias, source, source_alias, condition, tuple(clauses))

    def _clause(self, alias: str | None, before: Sequence[s.MergeClause]) -> s.MergeClause:
        begins = self.take("WHEN")
        of: Any = "not matched" if self.skip("NOT") else "matched"
        self.take("MATCHED")
        if of == "not matched" and self.skip("BY") and self.take("SOURCE", "TARGET").says == "SOURCE":
            of = "not matched by source"
        if any(clause.of == of and clause.condition is None for clause in before):
            raise Refused(
                begins,
                f"This clause can never be reached: a clause WHEN {of.upper()} without a condition comes before it.",
                "Give the earlier one a condition, or put it last.",
            )
        condition = self._expression("a condition", "THEN") if self.skip("AND") else None
        self.take("THEN")
        if of == "not matched":
            return self._insert_clause(condition)
        if self.take("UPDATE", "DELETE").says == "DELETE":
            return s.MergeClause(of, condition, "delete")
        self.take("SET")
        if self.is_next("*") and of == "not matched by source":
            self._refuse("There is no row of the source that SET * could take.", "Name columns and values.")
        assignments = None if self.skip("*") else self._assignments(alias, "WHEN")
        return s.MergeClause(of, condition, "update", assignments)

    def _insert_clause(self, condition: str | None) -> s.MergeClause:
        self.take("INSERT")
        if self.skip("*"):
            return s.MergeClause("not matched", condition, "insert")
        at = self.current
        names = self.listed(self._plain_name)
        self.take("VALUES")
        values = self.listed(lambda: self._expression("a value", ",", ")"))
        if len(values) != len(names):
            raise Refused(at, f"INSERT names {len(names)} columns and gives {len(values)} values.", "Give as many.")
        return s.MergeClause("not matched", condition, "insert", tuple(zip(names, values, strict=True)))

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _plain_name(self) -> str:
        return unquoted(self.one_of(*NAMES))

    def _alias(self) -> str | None:
        if self.skip("AS") or (self.current.type in NAMES and self.current.says not in _AFTER_A_TABLE):
            return self._plain_name()
        return None

    def _source_alias(self) -> str | None:
        """Read a table or a query in parentheses, up to ON, and return the name by which its columns are called."""
        name = None
        if self.at("("):
            self._expression("a source", "AS", "ON", "NAME")
        else:
            name = self.table().value.rpartition(".")[2]
        while self.current.says in _AFTER_A_TABLE and not self.is_next("ON"):
            self.advance()  # VERSION AS OF 3, TIMESTAMP AS OF '…'
            while self.is_next("AS", "OF") or self.current.type in (*TEXTS, "NUMBER"):
                self.advance()
        name = self._alias() or name
        if self.at("("):
            self.listed(self._plain_name)
        return name

    def _assignments(self, alias: str | None, *ends: str) -> tuple[tuple[str, str], ...]:
        assignments = [self._assignment(alias, ends)]
        while self.skip(","):
            assignments.append(self._assignment(alias, ends))
        return tuple(assignments)

    def _assignment(self, alias: str | None, ends: Sequence[str]) -> tuple[str, str]:
        at = self.current
        parts = [self._plain_name()]
        while self.skip("."):
            parts.append(self._plain_name())
        if len(parts) > 1 and alias is not None and parts[0].lower() == alias.lower():
            parts = parts[1:]
        if len(parts) > 2 or (len(parts) == 2 and alias is not None):
            raise Refused(at, f"{'.'.join(parts)!r} is no column: fields of a struct are not set.", "Set the column.")
        self.take("=")
        return parts[-1], self._expression("a value", ",", *ends)

    def _expression(self, what: str, *ends: str) -> str:
        """Read up to one of these words and signs, outside of parentheses and of CASE … END, and return the text.

        :param ends: with ``NAME`` any name ends it.
        """
        begin, depth = self._next, 0
        while self.current.type != "END":
            ended = self.current.says in (*ends, ")", "]", "}") or ("NAME" in ends and self.current.type in NAMES)
            if depth == 0 and ended:
                break
            depth += _nests(self.advance())
        if self._next == begin:
            self.fail(what)
        return self.text_between(begin, self._next)

    def _outside(self, word: str) -> int | None:
        """Return the number of the token that is a word outside of parentheses."""
        depth = 0
        for position, token in enumerate(self._tokens):
            depth += _nests(token)
            if depth == 0 and token.says == word:
                return position
        return None

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise Refused(self.current, message, hint)


ROW_STATEMENTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE")
"""What statements on rows begin with, beside what a query may begin with, too."""
