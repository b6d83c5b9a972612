"""Random histories of Iceberg tables: each step is done to twins, with indexes and without, and then both are asked.

``HISTORIES`` says how many, ``SEED`` where they begin.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import LakeIndexError
from tests.connectors.comparing import compared
from tests.connectors.iceberg_tables import make, registered

pytestmark = pytest.mark.usefixtures("iceberg")
FILES, ROWS, STEPS = 4, 200, 6
SEED = int(os.environ.get("SEED", "1"))


class History:
    """Twin tables and what was done to them: the snapshots of both after each step, and how columns are called."""

    def __init__(self, spark: Any, seed: int) -> None:
        self.spark, self.draw = spark, random.Random(seed)
        self.names = (f"prod.db.history_{seed}", f"prod.db.history_{seed}_twin")
        mode = self.draw.choice(["merge-on-read", "copy-on-write"])
        properties = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        properties["format-version"] = self.draw.choice(["2", "3"])
        for name in self.names:
            make(spark, name, FILES, ROWS, **properties)
        self.n, self.next = "n", ROWS
        self.log = registered(spark, self.names[0])._handle.timeline.store.uri
        table = IndexedTable.load(spark, self.log)
        for index, kind, columns in (
            ("by_key", "secondary", ["key"]),
            ("by_rider", "secondary", ["rider"]),
            ("by_n", "skipping", ["values(n)"]),
        ):
            table.create_index(index, kind, columns)
        self.said: list[str] = [f"{mode}, {properties['format-version']}"]
        self.snapshots = [self.newest()]

    def newest(self) -> tuple[int, ...]:
        found = (self.spark.sql(f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'") for name in self.names)
        return tuple(rows.first()[0] for rows in found)

    def both(self, statement: str) -> None:
        """Do a statement to both tables, to the first one with its indexes."""
        self.said.append(statement)
        for name in self.names:
            spark_apps.disable(self.spark)
            if name == self.names[0]:
                spark_apps.enable(self.spark, sources=[self.log])
            self.spark.sql(statement.replace("{t}", name).replace("{short}", name.removeprefix("prod.")))
        spark_apps.disable(self.spark)

    def keys(self, most: int = 3) -> str:
        return ", ".join(str(self.draw.randrange(ROWS + 40)) for _ in range(self.draw.randint(1, most)))

    def step(self) -> None:
        """Do something to both tables."""
        steps = [
            self.insert,
            self.insert,
            self.change,
            self.change,
            self.change,
            self.columns,
            self.layout,
            self.refresh,
        ]
        self.draw.choice([*steps, self.back] if len(self.snapshots) > 2 else steps)()
        self.snapshots.append(self.newest())

    def insert(self) -> None:
        first, self.next = self.next, self.next + 5
        n = self.draw.choice(["NULL", "3", "id % 97"])
        columns = f"(id, key, {self.n}, rider)"
        self.both(
            f"INSERT INTO {{t}} {columns} SELECT id, id * 7919 % {ROWS}, cast({n} AS int), concat('r', id % 40) "
            f"FROM range({first}, {first + 5})"
        )

    def change(self) -> None:
        source = f"(SELECT * FROM VALUES {', '.join(f'({key}L, 5)' for key in set(self.keys().split(', ')))} s(key, m))"
        matched = self.draw.choice([f"WHEN MATCHED THEN UPDATE SET {self.n} = s.m", "WHEN MATCHED THEN DELETE"])
        new = f"WHEN NOT MATCHED THEN INSERT (id, key, {self.n}, rider) VALUES (s.key, s.key, s.m, 'new')"
        statement = self.draw.choice(
            [
                f"DELETE FROM {{t}} WHERE key IN ({self.keys()})",
                f"DELETE FROM {{t}} WHERE rider = 'r{self.draw.randrange(40)}' AND {self.n} > 50",
                f"UPDATE {{t}} SET {self.n} = 7 WHERE key IN ({self.keys()})",
                f"UPDATE {{t}} SET key = key + 1 WHERE rider = 'r{self.draw.randrange(40)}'",
                f"UPDATE {{t}} SET rider = 'x' WHERE key IN (SELECT key FROM {source})",
                f"MERGE INTO {{t}} t USING {source} s ON t.key = s.key {matched}",
                f"MERGE INTO {{t}} t USING {source} s ON t.key = s.key {matched} WHEN NOT MATCHED BY SOURCE AND id = 3 "
                "THEN DELETE",
                f"MERGE INTO {{t}} t USING {source} s ON t.key = s.key AND t.id < 150 {matched} {new}",
            ]
        )
        self.spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
        self.both(statement)

    def columns(self) -> None:
        kind = self.draw.choice(["again", "renamed", "wider"])
        if kind == "again":
            self.both("ALTER TABLE {t} DROP COLUMN rider")
            self.both("ALTER TABLE {t} ADD COLUMN rider string")
        elif kind == "renamed":
            old, self.n = self.n, "m" if self.n == "n" else "n"
            self.both(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {self.n}")
        else:
            self.both(f"ALTER TABLE {{t}} ALTER COLUMN {self.n} TYPE bigint")

    def layout(self) -> None:
        field = self.draw.choice(["bucket(2, id)", "truncate(100, id)"])
        try:
            self.both(f"ALTER TABLE {{t}} ADD PARTITION FIELD {field}")
        except Exception as error:
            if "edundant" not in str(error) and "already" not in str(error):
                raise
            self.both("CALL prod.system.rewrite_data_files(table => '{short}', options => map('rewrite-all', 'true'))")

    def refresh(self) -> None:
        table = IndexedTable.load(self.spark, self.log)
        self.said.append("refresh")
        for name in list(table.indexes):
            try:
                table.refresh_index(name)
                assert table.verify(name).ok, (name, self.said)
            except LakeIndexError as error:
                self.said.append(str(error))  # of a column that is gone, or of another type

    def back(self) -> None:
        chosen = self.draw.choice(self.snapshots)
        self.said.append(f"back to {chosen}")
        for name, snapshot in zip(self.names, chosen, strict=True):
            self.spark.sql(f"CALL prod.system.set_current_snapshot('{name.removeprefix('prod.')}', {snapshot})")

    def ask(self) -> None:
        """Compare both tables, and queries of the first one with and without its indexes."""
        first, second = (sorted(map(repr, self.spark.table(name).collect())) for name in self.names)
        assert first == second, self.said
        where = [
            f"key IN ({self.keys()})",
            f"rider = 'r{self.draw.randrange(40)}'",
            "rider IS NULL",
            f"{self.n} = {self.draw.choice([3, 5, 7, self.draw.randrange(97)])}",
            f"{self.n} IS NULL",
            f"key IN ({self.keys()}) OR rider = 'new'",
        ]
        table = self.names[0]
        for condition in self.draw.sample(where, 2):
            self.compared(f"SELECT * FROM {table} WHERE {condition}")
        source = f"(VALUES {', '.join(f'({key}L)' for key in self.keys().split(', '))}) s(key)"
        self.compared(f"SELECT t.* FROM {table} t JOIN {source} ON t.key = s.key")
        old = self.draw.choice(self.snapshots)[0]
        self.compared(f"SELECT count(*), max(id) FROM {table} VERSION AS OF {old} WHERE key IN ({self.keys()})")

    def compared(self, query: str) -> None:
        self.said.append(query)
        try:
            compared(self.spark, query, self.log)
        except AssertionError as error:
            raise AssertionError("\n".join(self.said)) from error


@pytest.mark.parametrize("seed", range(SEED, SEED + int(os.environ.get("HISTORIES", "2"))))
def test_given_a_random_history_then_answers_and_commands_are_those_without_indexes(spark, seed):
    history = History(spark, seed)
    for _ in range(STEPS):
        history.step()
        history.ask()
