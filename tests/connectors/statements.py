"""Draws MERGE, UPDATE and DELETE statements over the tables of the random histories.

``{t}`` stands for the table, ``{s}`` for a small table of the same format with the columns ``key``, ``m`` and ``r``;
the table's numbers are in a column whose name is given, since histories rename it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

NEW = "WHEN NOT MATCHED{and_} THEN INSERT (id, key, {n}, rider) VALUES (s.key, s.key, s.m, 'new')"


class Statements:
    """Statements by one source of chance.

    :param rows: keys are below this number, but for some that no row has. :param riders: how many riders there are.
    """

    def __init__(self, draw: random.Random, rows: int, riders: int) -> None:
        self.draw, self.rows, self.riders = draw, rows, riders

    def some_keys(self, most: int = 3) -> list[int]:
        return [self.draw.randrange(self.rows + 40) for _ in range(self.draw.randint(1, most))]

    def statement(self, n: str) -> tuple[str, str]:
        """Return what a statement is of, in words that are counted, and its text. :param n: the column of numbers."""
        draw = self.draw.random()
        if draw < 0.6:
            return self.merge(n)
        return self.update(n) if draw < 0.8 else self.delete(n)

    # --- MERGE --------------------------------------------------------------------------------------------------------

    def merge(self, n: str) -> tuple[str, str]:
        source, text = self.source(n)
        clauses = self.clauses(n)
        named = sorted({clause.split(" THEN ")[0].split(" AND ")[0].removeprefix("WHEN ") for clause in clauses})
        return f"merge by {source}: {', '.join(named)}".lower(), (
            f"MERGE INTO {{t}} t USING {text} s ON {self.on(n)} {' '.join(clauses)}"
        )

    def source(self, n: str) -> tuple[str, str]:
        """Return a source of keys, and what it is called."""
        rows = self.values(self.some_keys(5))
        sources = {
            "values": rows,
            "values with nulls": self.values([*self.some_keys(), None]),
            "values that repeat": self.values([7, 7, *self.some_keys()]),
            "no rows": "(SELECT key, m, r FROM {s} WHERE m < 0)",
            "a table": "{s}",
            "a part of a table": f"(SELECT key, m, r FROM {{s}} WHERE m < {self.draw.randrange(6)})",
            "a limit": "(SELECT key, m, r FROM {s} ORDER BY key, m LIMIT 3)",
            "chance": "(SELECT key, m, r FROM {s} WHERE rand() >= 0)",
            "uuids": "(SELECT key, m, r FROM {s} WHERE length(uuid()) = 36)",
            "a sum": "(SELECT key, cast(max(m) AS int) AS m, max(r) AS r FROM {s} GROUP BY key)",
            "the table itself": f"(SELECT key, cast({n} AS int) AS m, rider AS r FROM {{t}} WHERE id % 50 = 3)",
            "a join with the table": "(SELECT s.key, s.m, o.rider AS r FROM {s} s JOIN {t} o ON s.key = o.key)",
            "a union": f"(SELECT key, m, r FROM {{s}} UNION SELECT key, m, r FROM {rows})",
            "narrower keys": f"(SELECT cast(key AS int) AS key, m, r FROM {rows})",
        }
        name = self.draw.choice(list(sources))
        return name, sources[name]

    def values(self, keys: Sequence[int | None]) -> str:
        given = ", ".join(
            f"({'NULL' if key is None else key}, {place}, 'r{self.draw.randrange(self.riders)}')"
            for place, key in enumerate(keys)
        )
        return f"(SELECT cast(key AS bigint) AS key, m, r FROM VALUES {given} v(key, m, r))"

    def on(self, n: str) -> str:
        return self.draw.choice(
            ["t.key = s.key"] * 6
            + [
                "t.key <=> s.key",
                f"t.key = s.key AND t.{n} < 50",
                "t.key = s.key AND t.rider = s.r",
                "t.rider = s.r AND t.key = s.key",
                "t.key = s.key + 1",
                "t.key = s.key AND t.id < 150",
                "t.key = s.key OR t.id = s.key",
                "t.id = s.key",
                "t.key = s.key AND s.m < 3",
                f"t.key = s.key AND t.key IN ({', '.join(map(str, self.some_keys()))})",
            ]
        )

    def clauses(self, n: str) -> list[str]:
        """Return clauses as a MERGE may have them: of each kind only the last one is without a condition."""
        found: list[str] = []
        if self.draw.random() < 0.85:
            if self.draw.random() < 0.3:
                found.append(f"WHEN MATCHED AND {self.condition(n)} THEN DELETE")
            if self.draw.random() < 0.3:
                found.append(f"WHEN MATCHED AND {self.condition(n)} THEN UPDATE SET rider = s.r")
            last = self.draw.choice([f"UPDATE SET {n} = s.m", f"UPDATE SET {n} = s.m, rider = 'm'", "DELETE"])
            found.append(f"WHEN MATCHED THEN {last}")
        if not found or self.draw.random() < 0.5:
            found.append(NEW.format(n=n, and_=self.draw.choice(["", "", " AND s.m < 3"])))
        if self.draw.random() < 0.15:
            last = self.draw.choice(["DELETE", f"UPDATE SET {n} = 1"])
            found.append(f"WHEN NOT MATCHED BY SOURCE AND t.id % 40 = 3 THEN {last}")
        return found

    def condition(self, n: str) -> str:
        return self.draw.choice([f"t.{n} > 40", "s.m = 1", "t.rider = 'new'", f"t.{n} IS NULL", "t.id < 100"])

    # --- UPDATE and DELETE --------------------------------------------------------------------------------------------

    def update(self, n: str) -> tuple[str, str]:
        change = self.draw.choice([f"{n} = 7", f"{n} = {n} + 1", "rider = 'x'", "key = key + 1"])
        name, where = self.where(n)
        return f"update {name}", f"UPDATE {{t}} t SET {change} WHERE {where}"

    def delete(self, n: str) -> tuple[str, str]:
        name, where = self.where(n)
        return f"delete {name}", f"DELETE FROM {{t}} t WHERE {where}"

    def where(self, n: str) -> tuple[str, str]:
        keys = ", ".join(map(str, self.some_keys()))
        conditions = {
            "by keys": f"key IN ({keys})",
            "by a key": f"key = {self.some_keys()[0]}",
            "by a rider": f"rider = 'r{self.draw.randrange(self.riders)}'",
            "by a rider and more": f"rider = 'r{self.draw.randrange(self.riders)}' AND {n} > 50",
            "by keys or more": f"key IN ({keys}) OR {n} = 7",
            "by nulls": f"{n} IS NULL AND key IN ({keys})",
            "by a subquery": "key IN (SELECT key FROM {s} WHERE m < 3)",
            "by its own rows": f"key IN (SELECT key FROM {{t}} WHERE id = {self.draw.randrange(self.rows)})",
            "by what exists": "EXISTS (SELECT 1 FROM {s} s WHERE s.key = t.key)",
            "by a scalar": "key = (SELECT max(key) FROM {s})",
        }
        name = self.draw.choice(list(conditions))
        return name, conditions[name]
