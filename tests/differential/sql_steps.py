"""Changes of rows in SQL: MERGE with ON of every shape, UPDATE, DELETE, INSERT, each with what it is to do.

What ON and the conditions find is asked of DuckDB over the model's rows, and what becomes of them follows the rules of
docs/sql.md.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from spark_apps import IndexedTable, sql
from spark_apps.storage import errors
from tests.differential.oracle import Oracle, connected
from tests.differential.predicates import Predicate, Predicates
from tests.differential.steps import Step, Steps
from tests.differential.values import KINDS, arrow, draw, literal
from tests.differential.walk_model import Identity, WalkRows
from tests.spark_apps.frames import of_arrow
from tests.spark_apps.table_model import Row

SOURCE = "walk_source"
"""The temporary view of what a statement reads."""

_LOSSY = {"tinyint": "double", "int": "double", "bigint": "double", "date": "timestamp"}
"""Types of a source's key whose values may differ and yet be stored as one."""


class Qualified(Predicates):
    """Predicates over the columns of one side of a MERGE."""

    alias = "t"

    def _name(self, name: str) -> tuple[str, str]:
        spark, duck = super()._name(name)
        return f"{self.alias}.{spark}", f"{self.alias}.{duck}"


@dataclass(frozen=True)
class Clause:
    """WHEN … THEN …; ``assignments`` name the column of the source, or the literal's value, that a column is given."""

    of: str
    action: str
    condition: Predicate | None
    assignments: Sequence[tuple[str, str, Any]] = ()
    star: bool = False

    def text(self, types: Mapping[str, str]) -> str:
        also = f" AND ({self.condition.spark})" if self.condition else ""
        return f"WHEN {self.of.upper()}{also} THEN {self._does(types)}"

    def _does(self, types: Mapping[str, str]) -> str:
        if self.action == "delete":
            return "DELETE"
        if self.star:
            return "UPDATE SET *" if self.action == "update" else "INSERT *"
        values = [(f"`{name}`", f"s.`{name}`" if how == "source" else literal(value, types[name])[0])
                  for name, how, value in self.assignments]  # fmt: skip
        if self.action == "update":
            return "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in values)
        return f"INSERT ({', '.join(name for name, _ in values)}) VALUES ({', '.join(value for _, value in values)})"


@dataclass
class Changes:
    """What a statement is to do, and whether it has to be refused."""

    deletes: list[Identity] = field(default_factory=list)
    updates: list[tuple[Identity, Row]] = field(default_factory=list)
    inserts: list[Row] = field(default_factory=list)
    must: bool = False
    may: bool = False

    def make(self, model: WalkRows) -> None:
        model.delete_rows(self.deletes)
        model.update(self.updates)
        model.upsert(self.inserts)


class SqlSteps(Steps):
    """Draws statements. ``name`` are the folders of the table below ``warehouse``."""

    model: WalkRows
    warehouse: str
    name: list[str]
    options: dict[str, str]

    def _run(self, text: str, source: Any, _table: IndexedTable, txn_id: str) -> None:
        if source is not None:
            of_arrow(self.spark, source).createOrReplaceTempView(SOURCE)
        sql.run(self.spark, text, warehouse=self.warehouse, options=self.options or None, txn_id=txn_id)

    def _statement(self, kind: str, text: str, changes: Changes, source: Any = None) -> Step | None:
        if any(self.model.is_vague(row) for row in changes.inserts):
            return None
        refusals = (errors.KeysExist, errors.InvalidInput) if changes.must or changes.may else ()
        return Step(f"sql {kind} {text}", partial(self._run, text, source), partial(changes.make, self.model),
                    refusals, changes.must, "{}.001")  # fmt: skip

    @property
    def _target(self) -> str:
        return ".".join(f"`{part}`" for part in self.name)

    def _predicates(self, alias: str, rows: Sequence[Row], types: Mapping[str, str]) -> Qualified:
        some = {name: kind for name, kind in types.items() if name in self.asked}
        raw = [dict(zip(types, row, strict=True)) for row in rows]
        drawn = Qualified(self.rng, some, raw, [self.model.key])
        drawn.alias = alias
        return drawn

    # --- UPDATE, DELETE, INSERT -----------------------------------------------------------------------------------

    def _matching(self) -> tuple[Predicate, list[Row]]:
        rows = list(self.model.rows.values())
        types = self.model.typed()
        drawn = Predicates(self.rng, {name: types[name] for name in self.asked}, self.model.dictionaries(),
                           [self.model.key])  # fmt: skip
        predicate = drawn.portable()
        if self.rng.random() < 0.7:
            predicate = predicate.joined("AND", drawn.portable())
        return predicate, [rows[at] for at in Oracle(self.spark, rows, types).matching(predicate) or ()]

    def sql_delete(self) -> Step | None:
        predicate, rows = self._matching()
        changes = Changes(deletes=[self.model.identity(row) for row in rows])
        text = f"DELETE FROM {self._target} WHERE {predicate.spark}"
        if self.rng.random() < 0.3:
            text = (f"DELETE FROM {self._target} AS t WHERE t.`{self.model.key[0]}` IN "
                    f"(SELECT `{self.model.key[0]}` FROM {SOURCE}) AND ({predicate.spark})")  # fmt: skip
            given = {self.model._pick(row, self.model.key)[0] for row in self._some()}
            source = arrow([(one,) for one in given], {self.model.key[0]: self.model.typed()[self.model.key[0]]})
            changes.deletes = [at for at in changes.deletes if at[1][0] in given]
            return self._statement("delete", text, changes, source)
        return self._statement("delete", text, changes)

    def sql_update(self) -> Step | None:
        predicate, rows = self._matching()
        types = self.model.typed()
        free = [name for name in self.model.names if name not in self.model.key and types[name] in KINDS]
        if self.rng.random() < 0.8:
            free = [name for name in free if name not in self.model.partition_by] or free
        if not free:
            return None
        names = self.rng.sample(free, min(len(free), self.rng.choice([1, 1, 2])))
        values = {name: self._value(name) for name in names}
        changes = Changes()
        for row in rows:
            fresh = tuple(values.get(name, value) for name, value in zip(self.model.names, row, strict=True))
            self._change(changes, row, fresh)
        sets = ", ".join(f"`{name}` = {literal(value, types[name])[0]}" for name, value in values.items())
        return self._statement("update", f"UPDATE {self._target} SET {sets} WHERE {predicate.spark}", changes)

    def _value(self, name: str) -> Any:
        return draw(self.rng, self.model.typed()[name], 0.15)

    def _change(self, changes: Changes, old: Row, new: Row) -> None:
        """Note that a row gets other values, or that this has to be refused."""
        model, before, after = self.model, self.model.identity(old), self.model.identity(new)
        moves = before[0] != after[0] and not model.unique
        lower = model.ordered and model._order(new) < model._order(old)
        changes.must |= before[1] != after[1] or moves or lower
        changes.updates.append((before, new))

    def sql_insert(self) -> Step | None:
        """Rows from a view, or given in the text."""
        rows, types = self._batch(4), self.model.typed()
        rows = rows if self.rng.random() < 0.3 else [row for row in rows if not self.model.holds_any([row])]
        if not rows:
            return None
        changes = Changes(inserts=rows, must=self.model.holds_any(rows))
        listed = ", ".join(f"`{name}`" for name in self.model.names)
        plain = set(types.values()) <= set(KINDS)
        if plain and self.rng.random() < 0.5:
            texts = [", ".join(literal(value, kind)[0] for value, kind in zip(row, types.values(), strict=True))
                     for row in rows]  # fmt: skip
            values = ", ".join(f"({text})" for text in texts)
            return self._statement("insert", f"INSERT INTO {self._target} ({listed}) VALUES {values}", changes)
        text = f"INSERT INTO {self._target} BY NAME SELECT {listed} FROM {SOURCE}"
        return self._statement("insert", text, changes, arrow(rows, types))

    # --- MERGE ----------------------------------------------------------------------------------------------------

    def sql_merge(self) -> Step | None:
        model = self.model
        types = model.typed()
        rows = self._batch(6)
        if self.rng.random() < 0.85:
            rows = list({model.identity(row)[1]: row for row in rows}.values())
        given, source_types = self._given(rows)
        theirs = self._predicates("s", given, source_types)
        ours = self._predicates("t", list(model.rows.values()), types)
        on = self._on(ours, theirs)
        clauses = self._clauses(ours, theirs)
        found = _Found(list(model.rows.values()), types, given, source_types, on)
        changes = self._changes(clauses, found, [self._stored(row, source_types) for row in given])
        text = " ".join([f"MERGE INTO {self._target} AS t USING {SOURCE} AS s ON {on.spark}",
                         *(clause.text(types) for clause in clauses)])  # fmt: skip
        return self._statement("merge", text, changes, arrow(given, source_types))

    def _given(self, rows: list[Row]) -> tuple[list[Row], dict[str, str]]:
        """The source's rows, whose key is sometimes of a type that loses something when it is stored."""
        types = self.model.typed()
        lossy = [name for name in self.model.key if types[name] in _LOSSY]
        small = all(abs(value) < 1000 for row in rows for name in lossy for value in self.model._pick(row, [name])
                    if isinstance(value, int))  # fmt: skip
        if not lossy or not small or self.rng.random() < 0.6:
            return rows, types
        name = self.rng.choice(lossy)
        at = self.model.names.index(name)
        given = [(*row[:at], self._shifted(row[at]), *row[at + 1 :]) for row in rows]
        return given, {**types, name: _LOSSY[types[name]]}

    def _shifted(self, value: Any) -> Any:
        if isinstance(value, dt.date):
            hours = self.rng.choice([0, 0, 5])
            return dt.datetime(value.year, value.month, value.day, hours, tzinfo=dt.UTC)
        return float(value) + (self.rng.choice([0.0, 0.0, 0.5]) if value >= 0 else 0.0)

    def _stored(self, row: Row, types: Mapping[str, str]) -> Row:
        """A row of the source as the table stores it."""
        wanted = self.model.typed()
        return tuple(
            value if types[name] == wanted[name] else value.date() if wanted[name] == "date" else int(value)
            for name, value in zip(types, row, strict=True)
        )

    def _on(self, ours: Qualified, theirs: Qualified) -> Predicate:
        """ON of any shape: the key, a part of it or none of it, with more beside it."""
        chance, key, types = self.rng.random(), self.model.key, self.model.typed()
        names = list(key)
        if chance < 0.3 and self.model.partition_by:
            names += self.model.partition_by
        elif chance < 0.36 and len(key) > 1:
            names = key[:1]
        elif chance < 0.42:
            names = [self.rng.choice([name for name in self.asked if types[name] not in ("float", "double")])]
        on = _all_of([self._equal(name) for name in names])
        if self.rng.random() < 0.45:
            more = self.rng.choice([ours, ours, theirs]).portable()
            on = on.joined(self.rng.choice(["AND", "AND", "AND", "OR"]), more)
        other = self.rng.choice(self.asked)
        if self.rng.random() < 0.12:
            on = on.joined("AND", self._equal(other))
        return on.joined("AND", Predicate("false", "false")) if self.rng.random() < 0.05 else on

    def _equal(self, name: str) -> Predicate:
        how = self.rng.random()
        if how < 0.1:
            return Predicate(f"t.`{name}` <=> s.`{name}`", f't."{name}" IS NOT DISTINCT FROM s."{name}"')
        if how < 0.2:
            return Predicate(f"t.`{name}` >= s.`{name}` AND t.`{name}` <= s.`{name}`", f't."{name}" = s."{name}"')
        sides = [("t", "s"), ("s", "t")][self.rng.random() < 0.3]
        return Predicate("{}.`{name}` = {}.`{name}`".format(*sides, name=name), f't."{name}" = s."{name}"')

    def _clauses(self, ours: Qualified, theirs: Qualified) -> list[Clause]:
        drawn: list[Clause] = []
        for number in range(self.rng.choice([0, 1, 1, 2])):
            condition = self.rng.choice([ours, theirs]).portable() if number == 0 and self.rng.random() < 0.5 else None
            drawn.append(self._clause("matched", condition))
            if condition is None:
                break
        if not drawn or self.rng.random() < 0.7:
            condition = theirs.portable() if self.rng.random() < 0.3 else None
            star = self.rng.random() < 0.7
            always = (*self.model.key, *self.model.partition_by)
            names = [name for name in self.model.names if star or name in always or self.rng.random() < 0.5]
            drawn.append(Clause("not matched", "insert", condition, [(one, "source", None) for one in names], star))
        if self.rng.random() < 0.2:
            drawn.append(self._clause("not matched by source", ours.portable()))
        return drawn

    def _clause(self, of: str, condition: Predicate | None) -> Clause:
        """One that changes or deletes rows of the table."""
        if self.rng.random() < 0.3:
            return Clause(of, "delete", condition)
        if of == "matched" and self.rng.random() < 0.6:
            names = self.model.names
            return Clause(of, "update", condition, [(name, "source", None) for name in names], star=True)
        types = self.model.typed()
        free = [name for name in self.model.names
                if name not in (*self.model.key, *self.model.partition_by) and types[name] in KINDS]  # fmt: skip
        names = self.rng.sample(free, min(len(free), 2))
        hows = ["source", "value"] if of == "matched" else ["value"]
        return Clause(of, "update", condition, [(name, self.rng.choice(hows), self._value(name)) for name in names])

    def _changes(self, clauses: Sequence[Clause], found: _Found, stored: Sequence[Row]) -> Changes:
        changes, rows = Changes(), found.rows
        by = {of: [one for one in clauses if one.of == of] for of in {one.of for one in clauses}}
        matched = by.get("matched", [])
        pairs = found.matched(matched) if matched else []
        only_deletes = len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
        times, acting = Counter(t for t, _, _ in pairs), Counter(t for t, _, at in pairs if at is not None)
        if not only_deletes:
            changes.must |= any(count > 1 for count in acting.values())
            changes.may |= any(count > 1 for count in times.values())
        for t, s, at in pairs:
            if at is not None:
                self._apply(changes, matched[at], rows[t], stored[s])
        for t, at in found.alone("t", by.get("not matched by source", [])):
            self._apply(changes, by["not matched by source"][at], rows[t], ())
        goes = {*changes.deletes, *(at for at, _ in changes.updates)}
        for s, at in found.alone("s", by.get("not matched", [])):
            row = self._of(by["not matched"][at], (None,) * len(self.model.names), stored[s])
            there = self.model._there(self.model.identity(row))
            changes.must |= any(old not in goes for old in there)
            changes.may |= bool(there)
            changes.inserts.append(row)
        scope = Counter(self.model.identity(row)[1] if self.model.unique else self.model.identity(row)
                        for row in changes.inserts)  # fmt: skip
        changes.must |= any(count > 1 for count in scope.values())
        changes.deletes = list(dict.fromkeys(changes.deletes))
        return changes

    def _apply(self, changes: Changes, clause: Clause, row: Row, source: Row) -> None:
        if clause.action == "delete":
            changes.deletes.append(self.model.identity(row))
        else:
            self._change(changes, row, self._of(clause, row, source))

    def _of(self, clause: Clause, row: Row, source: Row) -> Row:
        values = dict(zip(self.model.names, row, strict=True))
        for name, how, value in clause.assignments:
            values[name] = source[self.model.names.index(name)] if how == "source" else value
        return tuple(values.values())


def _all_of(predicates: Iterable[Predicate]) -> Predicate:
    first, *others = predicates
    for other in others:
        first = first.joined("AND", other)
    return first


class _Found:
    """What ON and conditions find in rows of the table and of a source, by DuckDB."""

    def __init__(
        self, rows: list[Row], types: Mapping[str, str], given: list[Row], given_types: Mapping[str, str], on: Predicate
    ) -> None:
        self.rows, self.on = rows, on
        self._sides = {"t": _numbered(rows, types), "s": _numbered(given, given_types)}

    def matched(self, clauses: Sequence[Clause]) -> list[tuple[int, int, int | None]]:
        """Pairs of places, with the number of the first clause that holds."""
        text = f"SELECT t.__row, s.__row, {_first(clauses)} FROM t JOIN s ON ({self.on.duck})"
        return [(t, s, at) for t, s, at in self._ask(text)]

    def alone(self, side: str, clauses: Sequence[Clause]) -> list[tuple[int, int]]:
        """Places of one side that match nothing and for which a clause holds, with its number."""
        if not clauses:
            return []
        other = "s" if side == "t" else "t"
        text = (f"SELECT {side}.__row, {_first(clauses)} FROM {side} "
                f"WHERE NOT EXISTS (SELECT 1 FROM {other} WHERE {self.on.duck})")  # fmt: skip
        return [(row, at) for row, at in self._ask(text) if at is not None]

    def _ask(self, text: str) -> list[tuple[Any, ...]]:
        with connected() as connection:
            for name, side in self._sides.items():
                connection.register(name, side)
            return connection.execute(text).fetchall()


def _numbered(rows: list[Row], types: Mapping[str, str]) -> pa.Table:
    return arrow([(number, *row) for number, row in enumerate(rows)], {"__row": "bigint", **types})


def _first(clauses: Sequence[Clause]) -> str:
    branches = [f"WHEN {one.condition.duck if one.condition else 'true'} THEN {n}" for n, one in enumerate(clauses)]
    return f"CASE {' '.join(branches)} END"
