"""The tables that a query names: found in its text, replaced there, and what of the query can be told their reader.

``sqlglot`` reads the query, and only tells where things stand: the text that Spark is given is the one that was
written, but for the names of tables. No Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from spark_apps.storage.errors import InvalidStatement

_AFTER = re.compile(r"(?:[\s\ufeff]+|--[^\n]*|/\*[\s\S]*?\*/)*")
_VERSION = re.compile(
    r"(?i)(?:[\s\ufeff]+FOR)?[\s\ufeff]+(?P<what>SYSTEM_VERSION|VERSION|SYSTEM_TIME|TIMESTAMP)[\s\ufeff]+AS[\s\ufeff]+OF"
    r"[\s\ufeff]+(?P<value>\d+|'[^'\\]*')"
)
_SAMPLE = re.compile(r"(?i)TABLESAMPLE\s*\(")
_REPEATABLE = re.compile(r"(?i)REPEATABLE\s*\(")


@dataclass(frozen=True)
class Reference:
    """A place in a query where a table stands.

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
    found: dict[int, Reference] = {}
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
        found[start] = Reference(tuple(part.name for part in parts), start, end, version, as_of, node)
    return [found[start] for start in sorted(found)]


def _is_cte(node: exp.Table) -> bool:
    """Tell whether a name of one part is that of a CTE that can be seen there."""
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

    :param replacements: a reference, and what stands for it, quoted.
    """
    edits: list[tuple[int, int, str]] = []
    for reference, name in replacements:
        edits.append((reference.start, reference.end, name))
        if not reference.node.alias:
            alias = "`" + reference.parts[-1].replace("`", "``") + "`"
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


# --- What a reader of one table can be told ---------------------------------------------------------------------------


def pushed_down(text: str, reference: Reference, columns: Collection[str]) -> str | None:
    """Return a predicate that is true of every row of a table that the query can take from this place.

    Only what is plain beyond doubt is taken: comparisons of the table's columns with literals, joined by AND, OR, NOT,
    that stand behind WHERE, or behind ON of a join that drops the row where they fail.
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
    """The conditions that speak of one table alone, and mean the same wherever they stand."""

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
    """Return those columns that a query may read, wherever in it: all where a ``*`` stands."""
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
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    where = tree.args.get("where")
    return None if where is None else where.this.unnest()


def is_plain(condition: str) -> bool:
    """Tell whether a condition speaks of columns of one table by their plain names, and asks no other query."""
    tree = _condition(condition)
    if tree is None:
        return False
    return tree.find(exp.Query, exp.Subquery, exp.Table) is None and not any(
        one.table for one in tree.find_all(exp.Column)
    )


def equal_to(condition: str, column: str, called: str, value: str, source: str) -> bool:
    """Tell whether a condition only holds where a column of a table is equal to a column of a source.

    :param called: the table's name, quoted, as ``source`` is. :param value: the text of the source's column.
    """
    tree, other = _condition(condition), _condition(f"{value} IS NULL")
    wanted = other.this.unnest() if isinstance(other, exp.Is) else None
    if tree is None or not isinstance(wanted, exp.Column):
        return False

    def means(node: exp.Expr, name: str, qualifier: str) -> bool:
        return (
            isinstance(node, exp.Column)
            and node.name.lower() == name.lower()
            and node.table.lower() == qualifier.strip("`").lower()
        )

    for one in _conjuncts(tree):
        equal = one.unnest()
        if isinstance(equal, exp.EQ | exp.NullSafeEQ):
            for left, right in ((equal.left, equal.right), (equal.right, equal.left)):
                if (
                    means(left, column, called)
                    and means(right, wanted.name, source)
                    and wanted.table.lower()
                    in (
                        "",
                        source.strip("`").lower(),
                    )
                ):
                    return True
    return False
