"""Random histories of Hudi tables: after each step, queries are asked with indexes and without.

``HISTORIES`` says how many, ``SEED`` where they begin.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from tests.connectors.comparing import compared, unlike_its_list
from tests.connectors.hudi_tables import TYPES, make, rows_of, write

FILES, ROWS, STEPS = 4, 200, 5
SEED = int(os.environ.get("SEED", "1"))


class History:
    """A table with indexes, and what was done to it."""

    def __init__(self, spark: Any, path: str, seed: int) -> None:
        self.spark, self.path, self.draw, self.next = spark, path, random.Random(seed), ROWS
        self.kind = self.draw.choice(sorted(TYPES))
        self.name = f"hudi_history_{seed}"
        make(spark, path, self.kind, FILES, ROWS)
        spark.sql(f"CREATE TABLE {self.name} USING hudi LOCATION '{path}'")
        table = IndexedTable.register(spark, path, "hudi", record_key=["id"])
        more: dict[str, Any] = {"included": ["id", "n", "rider", "p"]}
        for index, kind, columns, given in (
            ("by_key", "secondary", ["key"], {}),
            ("by_rider", "compact", ["rider"], {}),
            ("by_n", "skipping", ["values(n)"], {}),
            ("held", "covering", ["key"], more),
        ):
            table.create_index(index, kind, columns, **given)
        self.said = [self.kind]
        self.instants = [self.newest()]

    def newest(self) -> str:
        """Return the instant of the last commit of rows."""
        self.spark.sql(f"REFRESH TABLE {self.name}")
        rows = self.spark.sql(f"CALL show_commits(table => '{self.name}', limit => 1)").collect()
        return str(rows[0][0])

    def keys(self, most: int = 3) -> str:
        return ", ".join(str(self.draw.randrange(ROWS + 20)) for _ in range(self.draw.randint(1, most)))

    def step(self) -> None:
        """Do something to the table."""
        steps = [self.insert, self.upsert, self.update, self.delete, self.cluster, self.refresh]
        if self.kind == "mor":
            steps.append(self.compact)
        if len(self.instants) > 1:
            steps.append(self.roll_back)
        self.draw.choice(steps)()
        self.instants.append(self.newest())

    def sql(self, statement: str) -> None:
        """Run a statement with the indexes."""
        self.said.append(statement)
        spark_apps.enable(self.spark, sources=[self.path])
        try:
            self.spark.sql(statement).collect()
        finally:
            spark_apps.disable(self.spark)

    def insert(self) -> None:
        self.said.append("insert")
        first, self.next = self.next, self.next + 5
        write(rows_of(self.spark, first, self.next, ROWS), self.path, "insert", self.kind)

    def upsert(self) -> None:
        first = self.draw.randrange(ROWS)
        self.said.append(f"upsert {first}")
        rows = rows_of(self.spark, first, first + 3, ROWS).selectExpr(
            "id", "key + 1 AS key", "n + 100 AS n", "'x' AS rider", "p"
        )
        write(rows, self.path, "upsert", self.kind)

    def update(self) -> None:
        self.sql(f"UPDATE {self.name} SET key = key + 1, n = n + 1 WHERE key IN ({self.keys()})")

    def delete(self) -> None:
        condition = self.draw.choice([f"key IN ({self.keys()})", f"rider = 'r{self.draw.randrange(200)}'"])
        self.sql(f"DELETE FROM {self.name} WHERE {condition}")

    def cluster(self) -> None:
        self.sql(f"CALL run_clustering(table => '{self.name}', op => 'scheduleAndExecute', order => 'key')")

    def compact(self) -> None:
        option = "hoodie.compact.inline.max.delta.commits=1"
        self.sql(f"CALL run_compaction(op => 'scheduleAndExecute', table => '{self.name}', options => '{option}')")

    def roll_back(self) -> None:
        self.sql(f"CALL rollback_to_instant(table => '{self.name}', instant_time => '{self.instants.pop()}')")

    def refresh(self) -> None:
        self.said.append("refresh")
        table = IndexedTable.load(self.spark, self.path)
        for name in list(table.indexes):
            learned = table.refresh_index(name).metrics
            assert unlike_its_list(self.spark, self.path) == [], (learned, self.said)
            assert table.verify(name).ok, (name, self.said)

    def ask(self) -> None:
        """Compare queries with the indexes and without."""
        for condition in (
            f"key IN ({self.keys()})",
            f"rider = 'r{self.draw.randrange(200)}'",
            f"n = {self.draw.randrange(110)}",
        ):
            self.compared(f"SELECT * FROM {self.name} WHERE {condition}")
        self.compared(f"SELECT key, n, rider FROM {self.name} WHERE key IN ({self.keys()}) OR key < 9")
        source = f"(VALUES {', '.join(f'({key}L)' for key in self.keys().split(', '))}) s(key)"
        self.compared(f"SELECT t.* FROM {self.name} t JOIN {source} ON t.key = s.key")
        then, condition = self.draw.choice(self.instants), f"key IN ({self.keys()})"
        for options in ({"as.of.instant": then}, {"hoodie.datasource.query.type": "read_optimized"}):
            reader = self.spark.read.format("hudi").options(**options)
            self.compared(lambda reader=reader: reader.load(self.path).where(condition), str(options))

    def compared(self, query: Any, what: str = "") -> None:
        self.said.append(what or query)
        try:
            compared(self.spark, query, self.path)
        except AssertionError as error:
            raise AssertionError("\n".join(self.said)) from error


@pytest.mark.parametrize("seed", range(SEED, SEED + int(os.environ.get("HISTORIES", "2"))))
def test_given_a_random_history_then_answers_are_those_without_indexes(hudi, tmp_path, seed):
    history = History(hudi, str(tmp_path / "t"), seed)
    for _ in range(STEPS):
        history.step()
        history.ask()
    hudi.sql(f"DROP TABLE {history.name}")
