"""Random histories of a table with indexes of every kind kept or deferred, against a model that is a dict."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from tests.spark_apps.indexes.support import CITIES, DDL, Model, Row, draw, entries, frame
from tests.spark_apps.small_tables import locating_by_spark, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STEPS = int(os.environ.get("INDEX_STEPS", "11"))
SEEDS = [int(text) for text in os.environ.get("INDEX_SEEDS", "3").split(",")]


class History:
    def __init__(self, spark: Any, path: Path, seed: int, buckets: int | None) -> None:
        self.spark, self.random, self.model = spark, random.Random(seed), Model()
        self.table = IndexedTable.create(
            spark, path, DDL, ["id"], partition_by=["p"], buckets=buckets, properties={"group_rows": "15"}
        )
        self.record = "record" if buckets is None else "rec"
        self.put(draw(self.random, range(60), 40))
        # Built over rows that are there already; the deferred one starts empty.
        if buckets is not None:
            self.table.create_index("rec", "record", properties={"shards": "2"})
        self.table.create_index("city", "secondary", ["city"], properties={"shards": "2"})
        self.table.create_index("both", "secondary", ["n", "city"], properties={"tombstones": "lazy"})
        self.table.create_index("later", "secondary", ["city"], deferred=True)
        self.done: list[str] = []
        self.first = self.table.version
        self.model.versions[self.first] = dict(self.model.rows)

    def put(self, rows: list[Row]) -> None:
        self.table.upsert(frame(self.spark, rows))
        self.model.rows.update({row[0]: row for row in rows})

    # --- steps --------------------------------------------------------------------------------------------

    def upsert(self) -> None:
        self.put(draw(self.random, range(80), 12))

    def move(self) -> None:
        chosen = self.random.sample(sorted(self.model.rows.values(), key=repr), min(5, len(self.model.rows)))
        self.put([(i, self.random.choice(["a", "new", ""]), city, n) for i, _, city, n in chosen])

    def delete(self) -> None:
        gone = self.random.sample(range(80), 8)
        self.table.delete(frame(self.spark, [(i,) for i in gone], "id bigint"))
        for i in gone:
            self.model.rows.pop(i, None)

    def delete_where(self) -> None:
        self.table.delete("n = 2 and city = 'sfo'")
        self.model.rows = {i: row for i, row in self.model.rows.items() if not (row[3] == 2 and row[2] == "sfo")}

    def overwrite(self) -> None:
        rows = [(i, "a", city, n) for i, _, city, n in draw(self.random, range(80), 5)]
        self.table.insert_overwrite(frame(self.spark, rows))
        self.model.rows = {i: row for i, row in self.model.rows.items() if row[1] != "a"}
        self.model.rows.update({row[0]: row for row in rows})

    def drop_partition(self) -> None:
        self.table.drop_partition("p=b%2Fc")
        self.model.rows = {i: row for i, row in self.model.rows.items() if row[1] != "b/c"}

    def compact(self) -> None:
        self.table.compact()

    def compact_indexes(self) -> None:
        self.table.compact(self.record, mode="full")
        self.table.compact("city", mode="quick")
        self.table.compact("both", mode="full")
        assert len(entries(self.table, "both")) == len(self.model.rows)  # no stale entry is left

    def rescale(self) -> None:
        if self.table.definition.bucketed:
            self.table.rescale(buckets=self.random.choice([1, 3]))

    def restore(self) -> None:
        version = self.random.choice(sorted(self.model.versions))
        self.table.restore(version)
        self.model.rows = dict(self.model.versions[version])

    def refresh(self) -> None:
        self.table.refresh_index("later")
        self.check_exact("later", "city")

    # --- checks -------------------------------------------------------------------------------------------

    def check(self, done: str) -> None:
        city, n = self.random.choice(CITIES), self.random.choice([1, 2, 3])
        some = self.random.sample(range(80), 3)
        is_city = "city IS NULL" if city is None else f"city = '{city}'"
        asked: list[tuple[str, Callable[[Row], bool]]] = [
            (is_city, lambda row: row[2] == city),
            (f"n = {n} AND {is_city}", lambda row: row[3] == n and row[2] == city),
            (f"id IN ({', '.join(map(str, some))})", lambda row: row[0] in some),
            (f"({is_city} AND n = {n}) OR id = {some[0]}", lambda r: (r[2] == city and r[3] == n) or r[0] == some[0]),
        ]
        for where, matches in self.random.sample(asked, 2):
            assert rows_of(self.table, where) == self.model.where(matches), (
                done,
                where,
                str(self.table.explain(where)),
            )

    def check_exact(self, name: str, *columns: str) -> None:
        held = entries(self.table, name)
        if not self.table.definition.bucketed:
            held = [entry[:-1] for entry in held]  # the file group, which verify compares
        assert len(held) == len(set(held))
        assert set(held) == self.model.entries(*columns), (name, self.done)
        assert self.table.indexes[name].lagging == 0

    def check_entries(self) -> None:
        self.check_exact(self.record)
        self.check_exact("city", "city")
        width = len(("n", "city", "id", "partition"))
        held = {entry[:width] for entry in entries(self.table, "both")}
        assert held >= self.model.entries("n", "city")


@pytest.mark.parametrize("buckets", [2, None])
@pytest.mark.by_turn(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_given_any_history_then_queries_and_entries_are_those_of_the_model(
    spark: Any, tmp_path: Path, seed: int, buckets: int | None
) -> None:
    history = History(spark, tmp_path / "table", seed, buckets)
    if (seed + (buckets is None)) % 2:
        locating_by_spark(history.table)
    steps = ["upsert", "move", "delete", "delete_where", "overwrite", "drop_partition", "compact", "compact_indexes",
             "rescale", "restore", "refresh"]  # fmt: skip
    history.random.shuffle(steps)
    steps = (steps * (STEPS // len(steps) + 1))[:STEPS]
    for number, step in enumerate(steps):
        getattr(history, step)()
        history.done.append(step)
        history.model.versions.setdefault(history.table.version, dict(history.model.rows))
        history.check(" > ".join(history.done))
        if number % 3 == 2:
            history.check_entries()
    history.check_entries()
    history.refresh()
    for name in (history.record, "both"):
        report = history.table.verify(name)
        assert report.ok and report.rows == len(history.model.rows), report
