"""Random predicates, as Spark reads them and, where DuckDB surely reads them alike, as DuckDB does."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.values import KINDS, Literal, draw, literal

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_TEXTS = (
    "{} LIKE 'a%'", "upper({}) = 'A'", "length({}) = 1", "{} LIKE '%00%'", "{} NOT LIKE '%b%'", "lower({}) = 'a'",
    "lower({}) IN ('nan', 'ss')", "contains({}, 'HIVE')", "startswith({}, 'null')", "{} LIKE '%emoji _'",
    "upper({}) > 'N'", "left({}, 1) = 'a'", "length({}) IN (0, 3)",
)  # fmt: skip
_OF_TIMES = {
    "date": ("year({}) = 2024", "year({}) < 1970", "{0} = DATE'2024-01-02' OR year({0}) IN (1, 9999)"),
    "timestamp": ("to_date({}) = DATE'2024-01-01'", "CAST({} AS DATE) < DATE'1970-01-01'"),
}
_OPERATORS = ["=", "=", "=", "=", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True)
class Predicate:
    """``duck`` is ``None`` where DuckDB might read it otherwise than Spark: it is then put to plain Spark."""

    spark: str
    duck: str | None

    def joined(self, word: str, other: Predicate) -> Predicate:
        duck = None if self.duck is None or other.duck is None else f"({self.duck}) {word} ({other.duck})"
        return Predicate(f"({self.spark}) {word} ({other.spark})", duck)

    def negated(self) -> Predicate:
        return Predicate(f"NOT ({self.spark})", None if self.duck is None else f"NOT ({self.duck})")


class Predicates:
    """Draws predicates over columns (name -> type), mostly with values that some row has.

    :param favoured: groups of columns, such as those of an index, that are often compared together.
    :param careful: without what Spark's own reader of ORC fails at or gets wrong: nulls in a list (its filter raises a
        NullPointerException), zeros of either sign (its filter takes them for different), and texts that UTF-16 sorts
        otherwise than UTF-8 does (it passes over rows that hold them).
    """

    def __init__(
        self,
        rng: random.Random,
        types: Mapping[str, str],
        rows: Sequence[Mapping[str, Any]],
        favoured: Sequence[Sequence[str]],
        careful: bool = False,
    ) -> None:
        self.rng, self.types, self.rows, self.favoured = rng, types, rows, favoured
        self.careful = careful

    def draw(self) -> Predicate:
        chance = self.rng.random()
        if chance < 0.5 and self.favoured:
            return self._point(self.rng.choice(self.favoured))
        if chance < 0.6:
            return self._point(self.rng.sample(list(self.types), min(2, len(self.types))))
        if chance < 0.63:
            return Predicate(*self.rng.choice([("1 = 1", "1 = 1"), ("false", "false"), ("NULL", None)]))
        return self._tree(2)

    def portable(self) -> Predicate:
        """One that DuckDB reads too."""
        while (predicate := self.draw()).duck is None:
            pass
        return predicate

    def _tree(self, depth: int) -> Predicate:
        chance = self.rng.random()
        if depth == 0 or chance < 0.35:
            return self._atom(self.rng.choice(list(self.types)))
        if chance < 0.5:
            return self._tree(depth - 1).negated()
        return self._tree(depth - 1).joined(self.rng.choice(["AND", "OR", "and"]), self._tree(depth - 1))

    def _point(self, columns: Sequence[str]) -> Predicate:
        """What an index over these columns can answer: one value of each, or a few, perhaps with something else."""
        row = self.rng.choice(self.rows) if self.rows and self.rng.random() < 0.8 else None
        point: Predicate | None = None
        for name in columns:
            value = draw(self.rng, self.types[name]) if row is None else row[name]
            one = self.one(name, value) if self.rng.random() < 0.6 else self._in(name, value)
            if self.rng.random() < 0.15:
                one = self._of_expression(name) or one
            point = one if point is None else point.joined("AND", one)
        assert point is not None
        chance = self.rng.random()
        if chance < 0.25:
            return point.joined("AND", self._tree(1))
        if chance < 0.4:
            return point.joined("OR", self._point(self.rng.choice(self.favoured or [columns])))
        return point

    def _name(self, name: str) -> tuple[str, str]:
        shown = self.rng.choice([name, name.upper(), name.capitalize()])
        return self.rng.choice([f"`{shown}`", shown] if _PLAIN.fullmatch(shown) else [f"`{shown}`"]), f'"{name}"'

    def one(self, name: str, value: Any) -> Predicate:
        """That a column has a value."""
        spark, duck = self._name(name)
        if value is None:
            return Predicate(f"{spark} IS NULL", f"{duck} IS NULL")
        a, b = self._written(name, value)
        return Predicate(f"{spark} = {a}", f"{duck} = {b}")

    def _in(self, name: str, *values: Any) -> Predicate:
        spark, duck = self._name(name)
        more = [self._value(name) for _ in range(self.rng.choice([1, 2, 3, 12]))]
        return self._listed(spark, duck, "IN", [*(self._written(name, v) for v in values), *more])

    def _listed(self, spark: str, duck: str, word: str, items: Sequence[Literal]) -> Predicate:
        if self.careful:
            items = [item for item in items if "NULL" not in item[0].upper()]
            if not items:
                return Predicate(f"{spark} IS NULL", f"{duck} IS NULL")
        known = [b for _, b in items if b is not None]
        theirs = f"{duck} {word} ({', '.join(known)})" if len(known) == len(items) else None
        return Predicate(f"{spark} {word} ({', '.join(a for a, _ in items)})", theirs)

    def _of_expression(self, name: str) -> Predicate | None:
        """One over an expression of a column, for which an index may be there."""
        written = {"string": _OF_TEXTS, **_OF_TIMES}.get(self.types[name])
        return written and Predicate(self.rng.choice(written).format(self._name(name)[0]), None)

    def _value(self, name: str) -> Literal:
        if self.rows and self.rng.random() < 0.6:
            return self._written(name, self.rng.choice(self.rows)[name])
        return self._written(name, draw(self.rng, self.types[name]))

    def _written(self, name: str, value: Any) -> Literal:
        if self.careful and isinstance(value, float) and value == 0:
            value = 0.0
        if self.careful and isinstance(value, str) and max(value, default="") >= "\ue000":
            value = "a"
        return literal(value, self.types[name])

    def _literal(self, name: str) -> Literal:
        odd = KINDS[self.types[name]].odd
        if self.careful and self.types[name] in ("double", "float"):
            odd = ()
        return (self.rng.choice(odd), None) if odd and self.rng.random() < 0.3 else self._value(name)

    def _atom(self, name: str) -> Predicate:
        spark, duck = self._name(name)
        negated = self.rng.choice(["", "NOT "])
        chance = self.rng.random()
        if chance < 0.12:
            return Predicate(f"{spark} IS {negated}NULL", f"{duck} IS {negated}NULL")
        if chance < 0.3:
            items = [self._literal(name) for _ in range(self.rng.choice([1, 2, 4, 12]))]
            return self._listed(spark, duck, f"{negated}IN", items)
        if chance < 0.42:
            (a, b), (c, d) = self._literal(name), self._literal(name)
            theirs = None if b is None or d is None else f"{duck} {negated}BETWEEN {b} AND {d}"
            return Predicate(f"{spark} {negated}BETWEEN {a} AND {c}", theirs)
        if chance < 0.47 and (predicate := self._of_expression(name)) is not None:
            return predicate
        if chance < 0.5:
            return Predicate(f"coalesce({spark}, {self._value(name)[0]}) IS NOT NULL", None)
        op = self.rng.choice(_OPERATORS)
        a, b = self._literal(name)
        theirs = None if b is None else f"{duck} {'IS NOT DISTINCT FROM' if op == '<=>' else op} {b}"
        if b is not None and self.rng.random() < 0.15 and op in ("=", "<>", "!="):
            return Predicate(f"{a} {op} {spark}", f"{b} {op} {duck}")
        return Predicate(f"{spark} {op} {a}", theirs)
