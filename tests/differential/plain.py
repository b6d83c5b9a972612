"""Puts random questions to a table in plain SQL and by DataFrames, with the rule of ``spark_apps.enable`` in place.

What is right is computed from the raw rows, of which the oracle tells those that satisfy a predicate: joins, unions and
counts of them are made here, in Python.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import spark_apps
from spark_apps.engine.spark_utils import OWN_SCAN
from spark_apps.optimizer import join_keys
from spark_apps.optimizer import session as sessions
from spark_apps.optimizer.session import ScanDecision
from spark_apps.storage.errors import LakeIndexError
from tests.differential.oracle import Row, rows_of, shown
from tests.differential.predicates import Predicate
from tests.differential.tally import Tally

_EQUAL_ALIKE = ("tinyint", "int", "bigint", "string", "date", "timestamp", "boolean", "decimal(10,2)", "decimal(20,0)")
"""Types whose values Python finds equal where Spark's join does."""

_SHAPES = ("filter", "filter", "count", "union", "join", "join", "left join", "semi join", "in", "not in", "exists",
           "null-safe join", "grouped", "window", "cached", "maximum")  # fmt: skip


@contextlib.contextmanager
def enabled(
    spark: Any, warehouse: str | Path, sources: Sequence[Path] = (), options: Mapping[str, str] | None = None
) -> Iterator[None]:
    """The rule in the session, as long as the block runs."""
    spark_apps.enable(spark, warehouse, sources, options)
    try:
        yield
    finally:
        spark_apps.disable(spark)


@dataclass(frozen=True)
class Way:
    """A way in which a table is named in a plain query.

    :param frame: makes the frame whose view is asked; ``None`` if ``name`` is known in SQL by itself.
    :param unruled: makes the same of files, for Spark alone.
    """

    kind: str
    name: str = "asked"
    frame: Callable[[], Any] | None = None
    unruled: Callable[[], Any] | None = None


def files_way(spark: Any, form: str, folder: Path, schema: str | None, options: Mapping[str, Any]) -> Way:
    """A folder of files, read as plain Spark reads it."""

    def read(more: Mapping[str, Any]) -> Any:
        reader = spark.read.format(form).options(**options, **more)
        return (reader.schema(schema) if schema is not None else reader).load(str(folder))

    return Way(f"{form} files", frame=lambda: read({}), unruled=lambda: read({OWN_SCAN: "true"}))


@dataclass(frozen=True)
class Half:
    """Rows that satisfy a predicate, as SQL and as raw rows."""

    predicate: Predicate
    rows: list[Row]


class PlainQueries:
    """Compares plain queries with raw rows."""

    def __init__(self, spark: Any, seed: object, tally: Tally) -> None:
        # Of its own, so that histories draw what they drew before there were such questions.
        self.spark, self.rng, self.tally = spark, random.Random(f"plain {seed}"), tally

    def ask(self, way: Way, names: list[str], kinds: dict[str, str], first: Half, second: Half, context: str) -> None:
        """One random query over both halves.

        :param second: one of a predicate that DuckDB reads too; so must ``first`` be for anything but a filter.
        """
        shape = self.rng.choice(_SHAPES)
        alike = [name for name in names if kinds[name] in _EQUAL_ALIKE]
        if first.predicate.duck is None or not alike:
            shape = self.rng.choice(["filter", "count", "cached"])
        query, expected = _Shaped(way.name, names, kinds, first, second, self.rng).draw(shape, alike)
        context = f"{context}, as {way.kind}: {query}"
        before = _newest(self.spark)
        try:
            if way.frame is not None:
                way.frame().createOrReplaceTempView(way.name)
            rows = self.spark.sql(query)
            with _kept(rows, shape == "cached"), _keys_at_any_cost(self.rng.random() < 0.5):
                actual = rows_of(rows)
        except (PySparkException, Py4JJavaError, LakeIndexError) as error:
            if not self._fails_alone(way, query):
                raise AssertionError(f"{context}: {error}") from error
            self.tally.add("plain queries", "refused by Spark alone")
            return
        decisions = _decisions(self.spark, before)
        wanted = shown(expected)
        if actual != wanted and way.unruled is not None:
            # Spark's own reader passes over rows that are there: of files by Arrow with zeros of either sign, for one.
            way.unruled().createOrReplaceTempView(way.name)
            wanted = rows_of(self.spark.sql(query))
            self.tally.add("plain queries", "as Spark alone, and not as DuckDB")
        assert actual == wanted, (
            f"{context}: {list((wanted - actual).elements())[:3]} missing, "
            f"{list((actual - wanted).elements())[:3]} too many\n{decisions}"
        )
        count_decisions(self.tally, decisions, way.kind, context)
        self.tally.add("plain queries", shape)
        if alike and self.rng.random() < 0.25:
            self._ask_first_rows(way, self.rng.choice(alike), context)

    def _fails_alone(self, way: Way, query: str) -> bool:
        """Whether a query of files fails by Spark alone: its filter of ORC compares no null."""
        if way.unruled is None:
            return False
        way.unruled().createOrReplaceTempView(way.name)
        try:
            rows_of(self.spark.sql(query))
        except (PySparkException, Py4JJavaError):
            return True
        return False

    def _ask_first_rows(self, way: Way, by: str, context: str) -> None:
        """The first rows of a table, its least and highest value, beside those of all its rows in order."""
        order = f"ORDER BY `{by}` {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"
        limit = self.rng.choice([1, 2, 5, 20])
        ends = f"SELECT string(min(`{by}`)), string(max(`{by}`)) FROM {way.name}"
        first = f"SELECT string(`{by}`) FROM (SELECT `{by}` FROM {way.name} {order} LIMIT {limit})"
        if way.frame is not None:
            way.frame().createOrReplaceTempView(way.name)
        whole = f"SELECT string(`{by}`) AS `its text` FROM {way.name} {order}"
        ordered = [row[0] for row in self.spark.sql(whole).collect()]
        before = _newest(self.spark)
        found = [row[0] for row in self.spark.sql(first).collect()]
        least, most = self.spark.sql(ends).collect()[0]
        assert found == ordered[:limit], f"{context}, first rows: {first}: {found}, not {ordered[:limit]}"
        filled = [text for text in ordered if text is not None]
        wanted = {filled[0], filled[-1]} if filled else {None}
        assert {least, most} == wanted, f"{context}, ends: {ends}: {least}, {most}, not {wanted}"
        decisions = _decisions(self.spark, before)
        count_decisions(self.tally, decisions, way.kind, context)
        pruned = any(one.replaced and one.plan is not None and one.plan.where for one in decisions)
        self.tally.add("plain queries", "first rows, by a bound" if pruned else "first rows, of all files")


def count_decisions(tally: Tally, decisions: Sequence[ScanDecision], way: str, context: str) -> None:
    """Counts which kinds of indexes plain queries used.

    :raises AssertionError: if something inside failed, which leaves rows right and is a defect all the same.
    """
    for decision in decisions:
        assert not decision.failed, f"{context}: {decision.reason}"
        tally.add("plain scans", f"{way}, {'by this package' if decision.replaced else 'left to Spark'}")
        if decision.reason:
            tally.add("plain scans left to Spark because", " ".join(decision.reason.split()[:6]))
        if decision.keys:
            taken = "not taken" not in decision.keys
            tally.add("keys of joins", "taken" if taken else " ".join(decision.keys.split(": ")[-1].split()[:6]))
            assert "Error" not in decision.keys, f"{context}: {decision.keys}"
        if not decision.replaced or decision.plan is None:
            continue
        indexes = decision.plan.snapshot.state.indexes
        for use in decision.plan.used:
            if use.name in indexes:
                tally.add("kinds used by plain queries", indexes[use.name].definition.kind)
            else:
                tally.add("kinds used by plain queries", use.name)


def decisions_of(spark: Any, ask: Callable[[], Any]) -> tuple[Any, list[ScanDecision]]:
    """What a call returned, and what was decided on the scans that it had planned."""
    before = _newest(spark)
    answer = ask()
    return answer, _decisions(spark, before)


def _newest(spark: Any) -> int:
    return sessions._ENABLED[sessions._key(spark)][0].newest_query()


def _decisions(spark: Any, before: int) -> list[ScanDecision]:
    rewriter = sessions._ENABLED[sessions._key(spark)][0]
    queries = [number for number in rewriter._queries if number > before]
    return [decision for number in queries for decision in rewriter.decisions(number)]


@contextlib.contextmanager
def _kept(rows: Any, cached: bool) -> Iterator[None]:
    if cached:
        rows.cache()
    try:
        yield
    finally:
        if cached:
            rows.unpersist()


@contextlib.contextmanager
def _keys_at_any_cost(always: bool) -> Iterator[None]:
    """Let keys of joins be taken also where a table is so small that they are not worth a job."""
    before = join_keys.plan_seconds
    if always:
        join_keys.plan_seconds = lambda plan: 60.0
    try:
        yield
    finally:
        join_keys.plan_seconds = before


class _Shaped:
    """A query of some shape, and its rows."""

    def __init__(
        self, name: str, names: list[str], kinds: dict[str, str], first: Half, second: Half, rng: random.Random
    ) -> None:
        self.name, self.names, self.kinds, self.rng = name, names, kinds, rng
        self.p, self.q = first, second

    def draw(self, shape: str, alike: Sequence[str]) -> tuple[str, list[Row]]:
        """The text and the rows; ``alike``: columns by whose values rows may be joined."""
        columns = self.rng.sample(self.names, self.rng.randrange(1, len(self.names) + 1))
        if shape in ("filter", "cached"):
            return f"SELECT {_listed(columns)} FROM {self._rows(self.p)}", self._of(columns, self.p.rows)
        if shape == "count":
            return f"SELECT count(*) FROM {self._rows(self.p)}", [(len(self.p.rows),)]
        if shape == "union":
            one = f"SELECT {_listed(columns)} FROM {self._rows(self.p)}"
            two = f"SELECT {_listed(columns)} FROM {self._rows(self.q)}"
            return f"{one} UNION ALL {two}", self._of(columns, [*self.p.rows, *self.q.rows])
        by = self.rng.choice(list(alike))
        at = self.names.index(by)
        if shape in ("grouped", "window"):
            times = Counter(row[at] for row in self.p.rows)
            if shape == "grouped":
                return f"SELECT `{by}`, count(*) FROM {self._rows(self.p)} GROUP BY `{by}`", list(times.items())
            text = f"SELECT `{by}`, count(*) OVER (PARTITION BY `{by}`) FROM {self._rows(self.p)}"
            return text, [(row[at], times[row[at]]) for row in self.p.rows]
        if shape == "maximum":
            values = [row[at] for row in self.q.rows if row[at] is not None]
            most = max(values, key=_order) if values else None
            kept = [row for row in self.p.rows if row[at] is not None and row[at] == most]
            text = f"`{by}` = (SELECT max(`{by}`) FROM {self._rows(self.q)})"
            return f"SELECT {_listed(columns)} FROM {self._rows(self.p)} WHERE {text}", self._of(columns, kept)
        if shape in ("in", "not in", "exists"):
            return self._subquery(shape, columns, by, at)
        return self._join(shape, columns, by, at)

    def _subquery(self, shape: str, columns: list[str], by: str, at: int) -> tuple[str, list[Row]]:
        there = {row[at] for row in self.q.rows}
        inner = f"SELECT `{by}` FROM {self._rows(self.q)}"
        if shape == "in":
            kept = [row for row in self.p.rows if row[at] is not None and row[at] in there]
            text = f"`{by}` IN ({inner})"
        elif shape == "not in":
            kept = [
                row for row in self.p.rows
                if not there or (row[at] is not None and None not in there and row[at] not in there)
            ]  # fmt: skip
            text = f"`{by}` NOT IN ({inner})"
        else:
            kept = [row for row in self.p.rows if row[at] is not None and row[at] in there]
            text = (
                f"EXISTS (SELECT 1 FROM {self._rows(self.q, 'inner_rows')} WHERE inner_rows.`{by}` = outer_rows.`{by}`)"
            )
        return f"SELECT {_listed(columns)} FROM {self._rows(self.p, 'outer_rows')} WHERE {text}", self._of(
            columns, kept
        )

    def _join(self, shape: str, columns: list[str], by: str, at: int) -> tuple[str, list[Row]]:
        other = self.rng.choice(self.names)
        place = self.names.index(other)
        safe = shape == "null-safe join"
        partners: dict[Any, list[Row]] = {}
        for row in self.q.rows:
            if safe or row[at] is not None:
                partners.setdefault(row[at], []).append(row)
        kept: list[Row] = []
        for row, shown_row in zip(self.p.rows, self._of(columns, self.p.rows), strict=True):
            matches = partners.get(row[at], ())
            if shape == "semi join":
                kept += [shown_row] if matches else []
            else:
                kept += [(*shown_row, partner[place]) for partner in matches]
                kept += [(*shown_row, None)] if shape == "left join" and not matches else []
        words = {"join": "JOIN", "null-safe join": "JOIN", "left join": "LEFT JOIN", "semi join": "LEFT SEMI JOIN"}
        shown_columns = ", ".join(f"a.`{name}`" for name in columns)
        beside = "" if shape == "semi join" else f", b.`{other}` AS `more`"
        return (
            f"SELECT {shown_columns}{beside} FROM {self._rows(self.p, 'a')} {words[shape]} {self._rows(self.q, 'b')} "
            f"ON a.`{by}` {'<=>' if safe else '='} b.`{by}`",
            kept,
        )

    def _rows(self, half: Half, alias: str = "some_rows") -> str:
        return f"(SELECT * FROM {self.name} WHERE {half.predicate.spark}) {alias}"

    def _of(self, columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
        places = [self.names.index(name) for name in columns]
        return [tuple(row[at] for at in places) for row in rows]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
