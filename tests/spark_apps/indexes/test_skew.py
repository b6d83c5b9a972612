"""A value that most rows have: its shard's base is split into parts, and all else is as with any other shard."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.indexes.keyed import entries
from spark_apps.mergetree import write
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import check_like_scan

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

DDL = "id bigint, p string, city string"
SHARDS = 4
ROWS = [(n, f"p{n % 2}", "hot" if n % 10 else None if n % 50 else f"cold {n}") for n in range(400)]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MIN_ROWS_TO_SAMPLE", 0)
    monkeypatch.setattr(entries, "ROWS_PER_SAMPLE_STEP", 100)
    monkeypatch.setattr(entries, "ROWS_PER_SHARD", 1)
    monkeypatch.setattr(write, "ROWS_PER_TASK", 0.01)


def of_rows(spark: Any, folder: Path, tombstones: str) -> IndexedTable:
    table = IndexedTable.create(spark, folder / "t", DDL, ["id"], partition_by=["p"], buckets=3)
    table.upsert(frame(spark, ROWS, DDL))
    properties = {"shards": str(SHARDS), "tombstones": tombstones}
    table.create_index("by_city", "secondary", ["city"], properties=properties)
    return table


def files(table: IndexedTable, kind: str) -> list[Any]:
    tree = table.indexes["by_city"].definition.tree
    return [file for file in table.snapshot.state.files(tree) if file.kind == kind]


def parts(table: IndexedTable) -> list[int]:
    """How many base files the shards have that hold something, the fewest first."""
    return sorted(Counter(file.group for file in files(table, "base")).values())


def check(table: IndexedTable) -> None:
    assert table.verify("by_city").ok
    for city in ("hot", "cold 50", None):
        where = "city IS NULL" if city is None else f"city = '{city}'"
        assert table.explain(where).index_used == "by_city"
        check_like_scan(table, where)


@pytest.mark.parametrize("tombstones", ["eager", "lazy"])
@pytest.mark.by_turn(16)
def test_a_shard_of_very_many_entries_is_written_in_parts_with_no_key_in_common(
    spark: Any, tmp_path: Path, tombstones: str
) -> None:
    table = of_rows(spark, tmp_path, tombstones)
    assert parts(table)[-1] == SHARDS and parts(table)[-2] == 1
    held = [
        pq.read_table(Path(table.snapshot.store.uri, file.path), partitioning=None) for file in files(table, "base")
    ]
    assert sum(map(len, held)) == len(ROWS) == len({row["id"] for some in held for row in some.to_pylist()})
    check(table)

    changes = [(1, "p1", "cold"), (10, "p0", "hot"), (11, "p1", "hot"), (900, "p0", "hot")]
    table.upsert(frame(spark, changes, DDL))
    table.delete("id IN (2, 3, 20)")
    check(table)

    table.compact("by_city", mode="quick")
    assert files(table, "delta") and parts(table)[-1] == SHARDS
    check(table)

    table.compact("by_city", mode="full")
    assert not files(table, "delta")
    assert parts(table)[-1] == SHARDS and parts(table)[-2] == 1
    assert sum(file.rows for file in files(table, "base")) == len(ROWS) + 1 - 3
    check(table)
    version = table.snapshot.state.version
    assert table.compact("by_city", mode="full").version is None
    assert IndexedTable.load(spark, table.uri).version == table.version == version, "there was nothing to do"

    table.refresh_index("by_city", mode="full")
    assert parts(table)[-1] == SHARDS
    check(table)


def test_shards_alike_are_not_split(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], partition_by=["p"], buckets=3)
    table.upsert(frame(spark, [(n, f"p{n % 2}", f"city {n}") for n in range(400)], DDL))
    table.create_index("by_city", "secondary", ["city"], properties={"shards": str(SHARDS)})

    assert parts(table) == [1] * SHARDS
