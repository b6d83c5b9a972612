"""Queries from a folder of SQL files: read by a parser library, and never run.

Each SELECT over a table counts as a query a day. The parts of a condition that name one table alone are its predicate.
A template (``{{ ds }}``) in quotation marks is a text like any other; a file that cannot be parsed because of others is
counted and left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import InvalidInput
from spark_apps.workload.asked import AskedQuery, Workload
from spark_apps.workload.limits import (
    MAX_ADDRESS_CHARACTERS,
    MAX_NAMES,
    MAX_PREDICATE_CHARACTERS,
    MAX_SQL_BYTES,
    MAX_SQL_FILE_BYTES,
    MAX_SQL_FILES,
    MAX_SQL_STATEMENTS,
)
from spark_apps.workload.shapes import UNPREPARED, shape_of


def read_sql_files(
    folder: str | Path, columns: Mapping[str, Collection[str]] | None = None, asked: Workload | None = None
) -> Workload:
    """Return the queries in all files ``*.sql`` below a folder, or of one file.

    What cannot be read is counted by :attr:`~spark_apps.workload.asked.Workload.refused`.

    :param columns: last part of a table's name -> its columns, by which a column is its where a query of several tables
        does not say whose it is. :param asked: what they are added to.
    :raises InvalidInput: if there is no such folder, or no such file in it.
    """
    workload = Workload() if asked is None else asked
    root = Path(folder)
    files = [root] if root.is_file() else sorted(root.rglob("*.sql")) if root.is_dir() else []
    files = [path for path in files if path.is_file() and not path.is_symlink()]
    if not files:
        raise InvalidInput(f"There is no SQL file in {folder}.", hint="Give a folder with files named *.sql.")
    known = {name.lower(): {column.lower() for column in names} for name, names in (columns or {}).items()}
    budget, statements = MAX_SQL_BYTES, 0
    for number, path in enumerate(files):
        size = path.stat().st_size
        if number >= MAX_SQL_FILES or size > budget or statements >= MAX_SQL_STATEMENTS:
            workload.refuse("SQL files beyond what is read", len(files) - number)
            break
        if size > MAX_SQL_FILE_BYTES:
            workload.refuse("a SQL file that is too long")
            continue
        budget -= size
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            workload.refuse("a SQL file that cannot be read")
            continue
        statements += _add(workload, text, known)
    return workload


def _add(workload: Workload, text: str, known: Mapping[str, Collection[str]]) -> int:
    """Add the queries of a text; return how many statements it has."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        statements = [one for one in sqlglot.parse(text, dialect="spark") if one is not None]
    except (SqlglotError, RecursionError, *UNPREPARED):
        workload.refuse("a SQL file that cannot be parsed")
        return 0
    now = datetime.now(UTC)
    for statement in statements:
        try:
            queries = list(_queries(statement, known, now))
        except (SqlglotError, RecursionError, *UNPREPARED):
            workload.refuse("a statement that cannot be understood")
            continue
        for query in queries:
            workload.add(query)
    return len(statements)


def _queries(statement: Any, known: Mapping[str, Collection[str]], now: datetime) -> Iterator[AskedQuery]:
    """Yield a query for each table that each SELECT of a statement reads."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    selects = [statement] if isinstance(statement, exp.Query) else list(statement.find_all(exp.Query))[:1]
    for select in selects:
        for scope in traverse_scope(select):
            if not isinstance(scope.expression, exp.Select):
                continue
            tables = {
                alias: source for alias, (_, source) in scope.selected_sources.items() if isinstance(source, exp.Table)
            }
            if tables:
                yield from _Reading(scope, tables, known).queries(now)


class _Reading:
    """The tables that one SELECT reads itself."""

    def __init__(self, scope: Any, tables: Mapping[str, Any], known: Mapping[str, Collection[str]]) -> None:
        self._scope, self._tables, self._known = scope, tables, known
        self._alone = len(scope.selected_sources) == 1

    def queries(self, now: datetime) -> Iterator[AskedQuery]:
        from sqlglot import exp

        select = self._scope.expression
        conditions = [
            (condition, everywhere, {self._owner(column) for column in condition.find_all(exp.Column)})
            for condition, everywhere in self._conditions(select)
        ]
        ordered = select.args.get("order")
        grouped = select.args.get("group")
        for alias, table in self._tables.items():
            own: list[str] = []
            joined: dict[str, None] = {}
            for condition, everywhere, owners in conditions:
                if everywhere and owners == {alias} and not condition.find(exp.Query, exp.AggFunc, exp.Window):
                    own.append(self._bare(condition))
                elif isinstance(condition, exp.EQ) and alias in owners and len(owners) == 2:
                    sides = [side for side in (condition.this, condition.expression) if isinstance(side, exp.Column)]
                    joined |= {side.name: None for side in sides if self._owner(side) == alias}
            where = " AND ".join(own) or None
            columns = self._columns(alias)
            if columns is not None:
                columns = tuple(dict.fromkeys([*columns, *joined]))[:MAX_NAMES]
            yield AskedQuery(
                table=".".join(part.name for part in table.parts)[:MAX_ADDRESS_CHARACTERS] or "?",
                asked=now, columns=columns,
                predicate=where if where is not None and len(where) <= MAX_PREDICATE_CHARACTERS else None,
                shape=None if where is None else shape_of(where), join_keys=tuple(joined)[:MAX_NAMES],
                group_keys=self._named(alias, grouped), order=self._named(alias, ordered),
            )  # fmt: skip

    def _conditions(self, select: Any) -> Iterator[tuple[Any, bool]]:
        """Yield conditions part by part, and whether each row has to satisfy them: what outer joins ask it has not."""
        from sqlglot import exp

        where = select.args.get("where")
        if where is not None:
            yield from ((part, True) for part in _parts(where.this))
        for join in select.args.get("joins") or ():
            condition = join.args.get("on")
            if condition is not None:
                inner = not join.side and join.kind not in ("ANTI", "OUTER")
                yield from ((part, inner) for part in _parts(condition))
            for column in join.args.get("using") or ():
                for alias in self._tables:
                    name = column.name
                    yield exp.EQ(this=exp.column(name, table=alias), expression=exp.column(name, table="?")), True

    def _owner(self, column: Any) -> str:
        """Return the alias of the table that a column is of; nothing if that is not known."""
        if column.table:
            return str(column.table)
        if self._alone:
            return next(iter(self._tables), "")
        owners = [
            alias
            for alias, table in self._tables.items()
            if column.name.lower() in self._known.get(table.name.lower(), ())
        ]
        return owners[0] if len(owners) == 1 else ""

    def _bare(self, condition: Any) -> str:
        """Return a condition without the names of tables before its columns."""
        from sqlglot import exp

        bare = condition.copy()
        for column in bare.find_all(exp.Column):
            for part in ("table", "db", "catalog"):
                column.set(part, None)
        text = bare.sql(dialect="spark", comments=False)
        return f"({text})" if isinstance(bare, exp.Or) else str(text)

    def _columns(self, alias: str) -> tuple[str, ...] | None:
        from sqlglot import exp

        select = self._scope.expression
        for star in select.expressions:
            whole = isinstance(star, exp.Star) or (isinstance(star, exp.Column) and isinstance(star.this, exp.Star))
            if whole and (isinstance(star, exp.Star) or star.table == alias):
                return None
        names = {column.name: None for column in self._scope.columns if self._owner(column) == alias}
        return tuple(name for name in names if name and name != "*")[:MAX_NAMES]

    def _named(self, alias: str, clause: Any) -> tuple[str, ...]:
        """Return the columns of a table that a clause lists as they are."""
        from sqlglot import exp

        listed = (
            [] if clause is None else [one.this if isinstance(one, exp.Ordered) else one for one in clause.expressions]
        )
        named = {one.name: None for one in listed if isinstance(one, exp.Column) and self._owner(one) == alias}
        return tuple(named)[:MAX_NAMES]


def _parts(condition: Any) -> Iterator[Any]:
    """Yield the parts of an AND."""
    from sqlglot import exp

    stack = [condition]
    while stack:
        node = stack.pop().unnest()
        if isinstance(node, exp.And):
            stack.extend((node.expression, node.this))
        else:
            yield node
