"""A delta staged from rows as they were and as they are to be holds what turns the former into the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from spark_apps.mergetree.buckets import single_target
from spark_apps.mergetree.schema import table_fields
from spark_apps.mergetree.tree import DELETED, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.storage.store import Store
from tests.spark_apps.frames import frame

SCHEMA = T.StructType().add("k", "integer").add("n", "string").add("v", "string")
DDL = "k int, n string, v string"


def staged(spark: Any, folder: Path, key: tuple[str, ...], old: list[Any], new: list[Any]) -> list[tuple[Any, ...]]:
    store, tree = Store(folder), Tree("data", table_fields(SCHEMA, ()), key, key[:1])
    files = stage_rows(
        store, tree, frame(spark, new, DDL), "data/t.1/rows", single_target(3), one_per_key=False,
        replaced=frame(spark, old, DDL),
    )  # fmt: skip
    tables = [pq.read_table(Path(folder, file.path), partitioning=None) for file in files]
    for table in tables:
        keys = [tuple(row[name] or "" for name in key) for row in table.to_pylist()]
        assert keys == sorted(keys)
    assert sum(file.tombstones for file in files) == sum(row[DELETED] is True for t in tables for row in t.to_pylist())
    return sorted((tuple(row.values()) for table in tables for row in table.to_pylist()), key=repr)


@pytest.mark.spark
def test_new_and_differing_rows_are_written_and_tombstones_for_those_gone(spark: Any, tmp_path: Path) -> None:
    old = [(1, "a", "same"), (2, "a", "old"), (3, None, None), (4, "a", None), (5, "a", "gone"), (6, "a", "x")]
    new = [(1, "a", "same"), (2, "a", "new"), (3, None, None), (4, "a", "v"), (6, "a", None), (7, "a", "came")]

    assert staged(spark, tmp_path, ("k",), old, new) == [
        (2, "a", "new", None), (4, "a", "v", None), (5, "a", "gone", True), (6, "a", None, None), (7, "a", "came", None)
    ]  # fmt: skip


@pytest.mark.spark
def test_rows_that_are_all_key_are_new_or_gone_and_told_once_each(spark: Any, tmp_path: Path) -> None:
    old = [(n % 4, None if n % 3 else "n", "v") for n in range(24)] + [(9, "n", "v")] * 3
    new = [(n % 4, None if n % 3 else "n", "v") for n in range(12, 36)] + [(8, None, None)] * 2

    assert staged(spark, tmp_path, ("k", "n", "v"), old, new) == [(8, None, None, None), (9, "n", "v", True)]
