"""Draws a query: a scan that keys prune, joined with a side of outer joins, sums and unions by computed keys.

Every relation of a side has the columns ``k``, ``x`` (numbers, null now and then) and ``s`` (text). A query is text, so
that both sessions are asked the same; what its names are there is the tables' matter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TARGETS = ("facts", "trips", "trips_frame")
SIDES = ("small_files", "kept", "facts", "trips", "trips_frame")
"""Relations that keys come from: files, a frame in memory, and tables that indexes narrow down first."""

OUTER = ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
ALWAYS = ("JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
ENDS = (
    "JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
    "IN",
    "EXISTS",
    "NOT EXISTS",
)


@dataclass(frozen=True)
class Drawn:
    """A query, and words for what is in it."""

    text: str
    words: tuple[str, ...]


class Drawing:
    """One query, by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.words: list[str] = []
        self._names = 0

    def query(self) -> Drawn:
        target, how = self.rng.choice(TARGETS), self.rng.choice(ENDS)
        self.words += [f"target {target}", f"end {how}"]
        # First a null-extended side, and then at times more upon it.
        side = self._joined(self._base(), self._base(), OUTER)
        for _ in range(self.rng.choice((0, 0, 1, 1, 1, 2))):
            side = self._more(side)
        condition = self._condition()
        if how == "IN":
            key = self._number("d")
            text = f"SELECT t.id, t.k FROM {target} t WHERE t.k IN (SELECT {key} FROM ({side}) d)"
        elif how.endswith("EXISTS"):
            text = f"SELECT t.id, t.k FROM {target} t WHERE {how} (SELECT 1 FROM ({side}) d WHERE {condition})"
        else:
            whole = "" if "SEMI" in how or "ANTI" in how else ", d.k AS dk, d.x AS dx, d.s AS ds"
            text = f"SELECT t.id, t.k{whole} FROM {target} t {how} ({side}) d ON {condition}"
            if whole and self.rng.random() < 0.4:
                text = f"SELECT t.id, t.k{whole} FROM ({side}) d {how} {target} t ON {condition}"
        return Drawn(text, tuple(self.words))

    # --- Conditions ---------------------------------------------------------------------------------------------------

    def _condition(self) -> str:
        equals = self.rng.choice(("=", "=", "=", "<=>"))
        kind = self.rng.choice(("k", "k", "s", "two", "two"))
        self.words += [f"compared by {equals}", f"column {kind}"]
        first = f"t.k {equals} {self._number('d')}"
        if kind == "s":
            return f"t.s {equals} {self._text('d')}"
        if kind == "two":
            return f"{first} AND t.n {self.rng.choice(('=', '<=>'))} {self._number('d')}"
        return first

    def _number(self, name: str) -> str:
        column, other = self.rng.sample((f"{name}.k", f"{name}.x"), 2)
        value = self.rng.randrange(24)
        shape, text = self.rng.choice((
            ("plain", column),
            ("null of null", f"{column} + {value % 3}"),
            ("coalesce", f"coalesce({column}, {value})"),
            ("nvl", f"nvl({column}, {value})"),
            ("ifnull", f"ifnull({column}, {value})"),
            ("nvl2", f"nvl2({column}, {column}, {value})"),
            ("case", f"CASE WHEN {column} IS NULL THEN {value} ELSE {column} END"),
            ("if of another", f"if({other} IS NULL, {value}, {column})"),
            ("coalesce of two", f"coalesce({column}, {other}, {value})"),
            ("null-safe", f"if({column} <=> NULL, {value}, {column})"),
            ("as a flag", f"cast({column} IS NULL AS int) * {value}"),
            ("greatest", f"greatest({column}, {value})"),
            ("length", f"length(concat_ws('', {name}.s)) + {value % 4}"),
            ("nullif", f"nullif({column}, {value})"),
            ("hash", f"pmod(hash({column}), 24)"),
            ("constant", f"{value} + 0 * coalesce({column}, 1)"),
        ))  # fmt: skip
        self.words.append(f"key {shape}")
        return text

    def _text(self, name: str) -> str:
        column = self.rng.choice((f"{name}.k", f"{name}.x", f"{name}.s"))
        value = self.rng.randrange(24)
        shape, text = self.rng.choice((
            ("plain text", f"{name}.s"),
            ("concat_ws", f"concat_ws('', 'c', {column})"),
            ("concat_ws of nulls", f"concat_ws('c', '', {column}, cast({value} AS string))"),
            ("coalesced text", f"coalesce({name}.s, 'c{value}')"),
            ("concat", f"concat('c', {column})"),
            ("case of text", f"CASE WHEN {column} IS NOT NULL THEN {name}.s ELSE 'c{value}' END"),
            ("array", f"concat_ws('', array('c', {column}))"),
        ))  # fmt: skip
        self.words.append(f"key {shape}")
        return text

    # --- Sides --------------------------------------------------------------------------------------------------------

    def _base(self) -> str:
        kind = self.rng.choice((*["values"] * 6, *SIDES))
        self.words.append(f"side {kind}")
        if kind == "values":
            rows = []
            for _ in range(self.rng.randrange(5)):
                k, x = (self.rng.choice(("NULL", *map(str, range(24)))) for _ in range(2))
                rows.append(f"({k}, {x}, {self.rng.choice(('NULL', repr(f'c{self.rng.randrange(24)}')))})")
            given = ", ".join([*rows, "(CAST(7 AS int), CAST(7 AS int), 'c7')"])
            return f"SELECT k, x, s FROM (VALUES {given}) v(k, x, s)"
        few = f" WHERE k IN ({self.rng.randrange(24)}, {self.rng.randrange(24)})" if self.rng.random() < 0.7 else ""
        return f"SELECT k, n AS x, s FROM {kind}{few}"

    def _joined(self, left: str, right: str, among: tuple[str, ...]) -> str:
        how = self.rng.choice(among)
        self.words.append(f"within {how}")
        a, b = self._name(), self._name()
        columns = [f"{a}.k", f"{b}.k" if self.rng.random() < 0.2 else f"{b}.x", f"{b}.s"]
        if "SEMI" in how or "ANTI" in how:
            columns = [f"{a}.k", f"{a}.x", f"{a}.s"]
        elif self.rng.random() < 0.3:
            columns = [f"{b}.k", f"{a}.x", f"{self.rng.choice((a, b))}.s"]
        on = self.rng.choice((f"{a}.k = {b}.k", f"{a}.k = {b}.k", f"{a}.x <=> {b}.k", f"{a}.k = {b}.k AND {b}.x > 5"))
        named = ", ".join(f"{column} AS {name}" for column, name in zip(columns, "kxs", strict=True))
        return f"SELECT {named} FROM ({left}) {a} {how} ({right}) {b} ON {on}"

    def _more(self, side: str) -> str:
        """Put one more operator upon a side."""
        name, value = self._name(), self.rng.randrange(24)
        what = self.rng.choice((
            "join", "join", "other side", "project", "project", "filter", "group", "distinct", "window", "rank",
            "union", "sum", "rollup", "explode", "constant", "limit", "floats", "scalar",
        ))  # fmt: skip
        self.words.append(f"operator {what}")
        match what:
            case "join":
                return self._joined(side, self._base(), (*OUTER, *OUTER, *ALWAYS))
            case "other side":
                return self._joined(self._base(), side, (*OUTER, *OUTER, *ALWAYS))
            case "union":
                return f"SELECT * FROM ({side}) {self._name()} UNION ALL {self._base()}"
        number = self._number(name)
        select = {
            "project": f"SELECT {number} AS k, {self._number(name)} AS x, {self._text(name)} AS s",
            "filter": "SELECT k, x, s",
            "group": f"SELECT {number} AS k, max(x) AS x, min(s) AS s",
            "distinct": "SELECT DISTINCT k, x, s",
            "window": "SELECT k, lag(x, 1, 3) OVER (PARTITION BY k ORDER BY x, s) AS x, s",
            "rank": "SELECT k, cast(rank() OVER (PARTITION BY x ORDER BY k) AS int) AS x, s",
            "sum": f"SELECT cast(count(x) AS int) AS k, coalesce(max(x), {value}) AS x, min(s) AS s",
            "rollup": "SELECT k, coalesce(x, 5) AS x, max(s) AS s",
            "explode": "SELECT k, coalesce(e, 4) AS x, s",
            "constant": f"SELECT {value} AS k, x, s",
            "limit": "SELECT k, x, s",
            "floats": "SELECT k, if(cast(z AS string) = '0.0', 7, 9) AS x, s",
            "scalar": f"SELECT k, (SELECT max(v.y) FROM (VALUES (3, 5)) v(j, y) WHERE v.j = {name}.k) AS x, s",
        }[what]
        source = f"({side}) {name}"
        ending = {
            "filter": f" WHERE {number} > 3",
            "group": f" GROUP BY {number}",
            "rollup": " GROUP BY ROLLUP(k, x)",
            "limit": " ORDER BY k, x, s LIMIT 3",
        }.get(what, "")
        if what == "explode":
            source += " LATERAL VIEW OUTER explode(IF(x > 5, array(x), array())) AS e"
        if what == "floats":
            source = (
                f"(SELECT k, double(concat(if(x > 9, '', '-'), '0.0')) AS z, s FROM ({side}) GROUP BY 1, 2, 3) {name}"
            )
        return f"{select} FROM {source}{ending}"

    def _name(self) -> str:
        self._names += 1
        return f"r{self._names}"
