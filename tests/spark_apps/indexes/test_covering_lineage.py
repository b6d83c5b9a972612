"""Which entries of a covering index a query filters: those of files that are gone, and no others."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from tests.differential.session import small

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ALWAYS = {"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1", "buckets": "3"}
LAYOUTS = ("hash", "buckets")


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: Any) -> Iterator[None]:
    with small(spark, compiled=False):
        yield


class Lake:
    """A source whose files come, go and come back just as they were, and its covering index."""

    def __init__(self, spark: Any, path: Path, layout: str) -> None:
        self.spark, self.source, self.away = spark, path / "rows", path / "away"
        self.away.mkdir(parents=True)
        self.rows: dict[str, list[tuple[int, int]]] = {}
        for name in ("p=a/f0", "p=b/f1"):
            self.add(name, len(self.rows))
        table = IndexedTable.register(spark, self.source)
        table.create_index("cov", "covering", ["v"], included=["id"], properties={"layout": layout, **ALWAYS})

    @property
    def table(self) -> IndexedTable:
        return IndexedTable.load(self.spark, self.source)

    def add(self, name: str, number: int, values: int = 7) -> None:
        """Rows of few files lie in all buckets, of others in one."""
        rows = [(number * 100 + n, n % values) for n in range(20)]
        self._path(name).parent.mkdir(parents=True, exist_ok=True)
        columns = {"id": [row[0] for row in rows], "v": [row[1] for row in rows]}
        # Wide beside them, so that the index is the less to read.
        pq.write_table(pa.table({**columns, "note": [os.urandom(600) for _ in rows]}), self._path(name))
        self.rows[name] = rows

    def remove(self, name: str) -> None:
        self._path(name).rename(self.away / name.replace("/", "-"))
        self.rows.pop(name)

    def bring_back(self, name: str, number: int, values: int = 7) -> None:
        (self.away / name.replace("/", "-")).rename(self._path(name))
        self.rows[name] = [(number * 100 + n, n % values) for n in range(20)]

    def _path(self, name: str) -> Path:
        return self.source / f"{name}.parquet"

    def check(self, filtered: bool | None = None) -> None:
        """The rows of the files that are there, once each; a scan of the index knows lineages if some are gone."""
        table = self.table
        assert table.explain("v >= 0", ["id", "v"]).index_used == "cov"
        query: Any = table.read("v >= 0", ["id", "v"])
        answer = sorted((row.id, row.v) for row in query.collect())
        assert answer == sorted(row for rows in self.rows.values() for row in rows)
        if filtered is not None:
            assert ("__index_lineage" in query._jdf.queryExecution().optimizedPlan().toString()) is filtered


@pytest.mark.by_turn(4)
def test_only_entries_of_files_that_are_gone_are_filtered_and_those_that_a_compaction_left_too(
    spark: Any, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, "hash")
    lake.check(filtered=False)
    lake.add("p=a/f2", 2, values=1)  # in one bucket, which has two files then
    lake.table.refresh_index("cov")
    lake.check(filtered=False)
    lake.remove("p=a/f0")
    lake.check(filtered=True)
    lake.table.compact("cov")  # drops the entries of f0 in that bucket, and leaves them in the others
    lake.check(filtered=True)
    lake.bring_back("p=a/f0", 0)
    lake.check(filtered=True)
    lake.table.refresh_index("cov")
    lake.check(filtered=False)
    for _ in range(2):
        lake.table.refresh_index("cov", mode="full", partitions=["p=a"])
        lake.check(filtered=False)
    lake.remove("p=b/f1")
    lake.table.compact("cov", mode="full")
    lake.table.refresh_index("cov")
    lake.check(filtered=False)
    lake.bring_back("p=b/f1", 1)
    lake.check(filtered=False)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_becomes_of_files_and_entries_each_row_is_read_once(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lake, numbers = Lake(spark, tmp_path, LAYOUTS[seed % 2]), {"p=a/f0": (0, 7), "p=b/f1": (1, 7)}
    for _ in range(14):
        match rng.choice(["add", "remove", "remove", "back", "refresh", "refresh", "again", "compact", "compact"]):
            case "add":
                name = f"p={rng.choice('ab')}/f{len(numbers)}"
                numbers[name] = (len(numbers), rng.choice([1, 2, 7]))
                lake.add(name, *numbers[name])
            case "remove" if len(lake.rows) > 1:
                lake.remove(rng.choice(sorted(lake.rows)))
            case "back" if numbers.keys() - lake.rows.keys():
                name = rng.choice(sorted(numbers.keys() - lake.rows.keys()))
                lake.bring_back(name, *numbers[name])
            case "refresh":
                lake.table.refresh_index("cov")
            case "again":
                lake.table.refresh_index("cov", mode="full", partitions=[rng.choice(["p=a", "p=b"])])
            case "compact":
                lake.table.compact("cov", mode=rng.choice(["quick", "full"]))
        if lake.table.explain("v >= 0", ["id", "v"]).index_used:
            lake.check()
    lake.table.refresh_index("cov")
    lake.check(filtered=False)
    assert lake.table.verify("cov").ok
