"""Random MERGE statements, and what they must leave: computed in plain Python, row by row, from the standard's words.

A row of the source that ON matches with no row of the table is inserted; it is refused if the table has its key, by
whatever keys are unique there. Nothing of the package is asked for what it would do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]
Test = Callable[[Row, Row], bool | None]
"""A condition on a row of the table and one of the source, by three-valued logic."""

TABLE = "id bigint, p string, v int, gone boolean"
ROWS = [
    {"id": 1, "p": "a", "v": 1, "gone": False}, {"id": 2, "p": "a", "v": 2, "gone": True},
    {"id": 3, "p": "b", "v": 3, "gone": None}, {"id": 4, "p": None, "v": 1, "gone": False},
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A table: what it is partitioned by, and what its keys are unique by.

    :param made: what stands behind its columns in CREATE TABLE. :param moves: whether a row can change its partition.
    """

    name: str
    made: str
    unique: tuple[str, ...]
    moves: bool = False
    index: str = ""


_KEY = "TBLPROPERTIES (primaryKey = 'id', buckets = 2)"
SHAPES = (
    Shape("plain", f"USING indexed {_KEY}", ("id",), moves=True),
    Shape("parts", f"USING indexed PARTITIONED BY (p) {_KEY}", ("p", "id")),
    Shape("recorded", f"USING indexed PARTITIONED BY (p) {_KEY}", ("id",), True,
          "CREATE INDEX keys ON {} USING record"),
    Shape("groups", "USING indexed PARTITIONED BY (p) TBLPROPERTIES (primaryKey = 'id', index.type = 'RECORD_INDEX')",
          ("id",), True),
)  # fmt: skip


# --- Conditions -------------------------------------------------------------------------------------------------------


def equal(one: Any, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    if isinstance(one, str) != isinstance(other, str):
        one, other = (int(value) if isinstance(value, str) else value for value in (one, other))
    return bool(one == other)


def same(one: Any, other: Any) -> bool:
    return one is None and other is None if one is None or other is None else bool(equal(one, other))


def both(*tests: Test) -> Test:
    def holds(t: Row, s: Row) -> bool | None:
        values = [test(t, s) for test in tests]
        return False if False in values else None if None in values else True

    return holds


def either(*tests: Test) -> Test:
    def holds(t: Row, s: Row) -> bool | None:
        values = [test(t, s) for test in tests]
        return True if True in values else None if None in values else False

    return holds


def negated(test: Test) -> Test:
    def holds(t: Row, s: Row) -> bool | None:
        value = test(t, s)
        return None if value is None else not value

    return holds


def above(value: Any, limit: int) -> bool | None:
    return None if value is None else bool(value > limit)


KEYS: list[tuple[str, Test]] = [
    ("t.id = s.id", lambda t, s: equal(t["id"], s["id"])),
    ("s.id <=> t.id", lambda t, s: same(t["id"], s["id"])),
    ("t.id = s.id + 0", lambda t, s: equal(t["id"], int(s["id"]) if isinstance(s["id"], str) else s["id"])),
    ("t.id = s.other", lambda t, s: equal(t["id"], s["other"])),
]  # fmt: skip
PARTS: list[tuple[str, Test]] = [
    ("t.p = s.p", lambda t, s: equal(t["p"], s["p"])),
    ("t.p <=> s.p", lambda t, s: same(t["p"], s["p"])),
]
MORE: list[tuple[str, Test]] = [
    ("t.v >= 2", lambda t, s: above(t["v"], 1)),
    ("NOT t.gone", negated(lambda t, s: t["gone"])),
    ("s.v > 5", lambda t, s: above(s["v"], 5)),
    ("false", lambda t, s: False),
    ("true", lambda t, s: True),
    ("t.v = s.v", lambda t, s: equal(t["v"], s["v"])),
    ("t.id = 3", lambda t, s: t["id"] == 3),
    ("t.id = s.other", lambda t, s: equal(t["id"], s["other"])),
]


def a_condition(draw: random.Random) -> tuple[str, Test]:
    """Return what may stand behind ON, and what it means."""
    kind = draw.random()
    parts = [draw.choice(KEYS[:2]) if kind < 0.75 else draw.choice(KEYS)]
    if draw.random() < 0.5:
        parts.append(draw.choice(PARTS))
    if draw.random() < 0.5:
        parts.append(draw.choice(MORE))
    if kind > 0.95:
        parts = parts[1:] or [draw.choice(MORE)]
    draw.shuffle(parts)
    if len(parts) > 1 and draw.random() < 0.1:
        return " OR ".join(text for text, _ in parts), either(*(test for _, test in parts))
    return " AND ".join(text for text, _ in parts), both(*(test for _, test in parts))


# --- Statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    """``WHEN … THEN …``; ``values``: the columns that it sets, and from what."""

    of: str
    action: str
    text: str
    test: Test = field(default=lambda t, s: True)
    values: Mapping[str, Callable[[Row, Row], Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    on: str
    matches: Test
    id_type: str
    source: Sequence[Row]
    clauses: Sequence[Clause]

    def text(self, table: str) -> str:
        """Return the statement."""
        rows = ", ".join(
            f"({literal(row['id'], self.id_type)}, {literal(row['p'], 'string')}, {literal(row['v'], 'int')}, "
            f"{literal(row['gone'], 'boolean')}, {literal(row['other'], 'bigint')})"
            for row in self.source
        )
        clauses = " ".join(clause.text for clause in self.clauses)
        return f"MERGE INTO {table} AS t USING (VALUES {rows}) AS s(id, p, v, gone, other) ON {self.on} {clauses}"


def literal(value: Any, kind: str) -> str:
    return f"CAST({'NULL' if value is None else repr(str(value))} AS {kind})"


_IDS: dict[str, Callable[[random.Random], Any]] = {
    "bigint": lambda draw: draw.randint(1, 7),
    "int": lambda draw: draw.randint(1, 7),
    "double": lambda draw: draw.choice([1.0, 1.5, 2.25, 3.0, 6.0, 6.5]),
    "decimal(4,1)": lambda draw: draw.choice([Decimal("1.0"), Decimal("1.5"), Decimal("4.0"), Decimal("6.5")]),
    "string": lambda draw: draw.choice(["1", "01", "3", "6", "007"]),
}


def a_statement(draw: random.Random, shape: Shape) -> Statement:
    """Return a statement for a table of a shape."""
    id_type = draw.choice(["bigint", "bigint", "bigint", *_IDS])
    nulls = draw.random() < 0.2
    source = [
        {
            "id": None if nulls and draw.random() < 0.2 else _IDS[id_type](draw),
            "p": draw.choice(["a", "b", "b", "c", None]), "v": draw.choice([1, 2, 9]), "gone": draw.random() < 0.5,
            "other": draw.randint(1, 7),
        }
        for _ in range(draw.randint(1, 3))
    ]  # fmt: skip
    on, matches = a_condition(draw)
    clauses = [*_when_matched(draw, shape), *_when_not_matched(draw, id_type), *_when_not_by_source(draw)]
    return Statement(on, matches, id_type, source, clauses or _when_not_matched(draw, id_type, always=True))


def _and(draw: random.Random, kind: str) -> tuple[str, Test]:
    conditions: dict[str, list[tuple[str, Test]]] = {
        "t": [("t.v > 1", lambda t, s: above(t["v"], 1))], "s": [("s.v > 1", lambda t, s: above(s["v"], 1))]
    }  # fmt: skip
    text, test = draw.choice(conditions[kind])
    return f" AND {text}", test


def _when_matched(draw: random.Random, shape: Shape) -> list[Clause]:
    kind, found = draw.random(), []
    if kind < 0.15:
        found.append(Clause("matched", "delete", "WHEN MATCHED THEN DELETE"))
    elif kind < 0.6:
        text, test = _and(draw, draw.choice("ts")) if draw.random() < 0.5 else ("", Clause("", "", "").test)
        sets: dict[str, Callable[[Row, Row], Any]] = {"v": lambda t, s: s["v"]}
        if shape.moves and draw.random() < 0.5:
            sets["p"] = lambda t, s: s["p"]
        assigned = ", ".join(f"{name} = s.{name}" for name in sets)
        found.append(Clause("matched", "update", f"WHEN MATCHED{text} THEN UPDATE SET {assigned}", test, sets))
        if text and draw.random() < 0.5:
            found.append(Clause("matched", "delete", "WHEN MATCHED THEN DELETE"))
    return found


def _when_not_matched(draw: random.Random, id_type: str, always: bool = False) -> list[Clause]:
    if not always and draw.random() < 0.1:
        return []
    # No text is stored as a number, so one is cast.
    key = f"CAST(s.id AS {'BIGINT' if id_type == 'string' else id_type})" if id_type == "string" else "s.id"
    values: dict[str, Callable[[Row, Row], Any]] = {
        "id": lambda t, s: None if s["id"] is None else int(s["id"]), "p": lambda t, s: s["p"],
        "v": lambda t, s: s["v"], "gone": lambda t, s: s["gone"],
    }  # fmt: skip
    how, listed = draw.random(), f"INSERT (id, p, v, gone) VALUES ({key}, s.p, s.v, s.gone)"
    if how < 0.4 and id_type != "string":
        listed = "INSERT *"
    elif how < 0.55:
        listed, values["id"] = listed.replace(key, "s.other"), lambda t, s: s["other"]
    elif how < 0.65:
        listed, values["p"] = listed.replace("s.p", "'b'"), lambda t, s: "b"
    found = []
    if draw.random() < 0.3:
        text, test = _and(draw, "s")
        found.append(Clause("not matched", "insert", f"WHEN NOT MATCHED{text} THEN {listed}", test, values))
        if draw.random() < 0.5:
            return found
        listed, values = listed.replace("s.v", "7"), {**values, "v": lambda t, s: 7}
        if listed == "INSERT *":
            listed = f"INSERT (id, p, v) VALUES ({key}, s.p, 7)"
            values["gone"] = lambda t, s: None
    return [*found, Clause("not matched", "insert", f"WHEN NOT MATCHED THEN {listed}", values=values)]


def _when_not_by_source(draw: random.Random) -> list[Clause]:
    kind = draw.random()
    if kind > 0.2:
        return []
    text, test = _and(draw, "t")
    if kind < 0.1:
        return [Clause("by source", "delete", f"WHEN NOT MATCHED BY SOURCE{text} THEN DELETE", test)]
    sets: dict[str, Callable[[Row, Row], Any]] = {"v": lambda t, s: -1}
    return [Clause("by source", "update", f"WHEN NOT MATCHED BY SOURCE{text} THEN UPDATE SET v = -1", test, sets)]


# --- What it leaves ---------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a statement leaves: the rows, and how many were changed; or why it is refused."""

    rows: list[dict[str, Any]]
    refused: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


def outcome(shape: Shape, rows: Sequence[Row], statement: Statement) -> Outcome:
    """Return what a statement leaves of rows."""
    by_kind = {
        kind: [one for one in statement.clauses if one.of == kind] for kind in ("matched", "not matched", "by source")
    }
    matches = [[s for s in statement.source if statement.matches(t, s)] for t in rows]
    unmatched = [s for s in statement.source if not any(any(s is one for one in some) for some in matches)]
    matched = by_kind["matched"]
    only_deletes = len(matched) == 1 and matched[0].text == "WHEN MATCHED THEN DELETE"
    after = Outcome([])
    if matched and not only_deletes and any(len(some) > 1 for some in matches):
        after.refused.add("InvalidInput")
    for t, some in zip(rows, matches, strict=True):
        clauses = matched if some else by_kind["by source"]
        s = some[0] if some else {}
        clause = next((one for one in clauses if one.test(t, s)), None)
        if clause is None or clause.action != "delete":
            after.rows.append(
                {**t, **({} if clause is None else {n: value(t, s) for n, value in clause.values.items()})}
            )
        if clause is not None:
            after.counts[clause.action] += 1
    inserted = []
    for s in unmatched:
        clause = next((one for one in by_kind["not matched"] if one.test({}, s)), None)
        if clause is not None:
            inserted.append({"gone": None, **{name: value({}, s) for name, value in clause.values.items()}})
    keys = Counter(tuple(row[name] for name in shape.unique) for row in [*rows, *inserted])
    if inserted and any(keys[tuple(row[name] for name in shape.unique)] > 1 for row in inserted):
        after.refused.add("KeysExist")
    if any(row["id"] is None for row in inserted):
        after.refused.add("InvalidSchema")
    after.counts["insert"] = len(inserted)
    after.rows.extend(inserted)
    return after
