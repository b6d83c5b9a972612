"""Rows written by a task a file group, rows told apart by their file's size, and keys joined on by their hash: each
gives what the plain way gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from spark_apps.mergetree import write
from spark_apps.mergetree.buckets import Target
from spark_apps.mergetree.integrity import count_duplicates
from spark_apps.mergetree.read import read_files, with_keys
from spark_apps.mergetree.schema import table_fields
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import AddFile
from spark_apps.timeline.state import State
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order

DDL = "p string, k int, n string"
SCHEMA = T.StructType().add("p", "string").add("k", "integer").add("n", "string")
TREE = Tree("data", table_fields(SCHEMA, ()), ("k", "n"), ("k",), partition_by=("p",))
TARGETS = (Target("p=a", ("a",), 3), Target("p=__HIVE_DEFAULT_PARTITION__", (None,), 2), Target("p=c", ("c",), 4))
# Nothing is of p=a, so the first tasks have no rows.
ROWS: list[tuple[Any, ...]] = [(None if k % 2 else "c", k, None if k % 5 == 0 else f"n{k % 3}") for k in range(40)]


def staged(spark: Any, store: Store, folder: str, expected: int, rows: list[Any] = ROWS) -> list[AddFile]:
    return stage_rows(
        store, TREE, frame(spark, rows, DDL), folder, TARGETS, kind="base", one_per_key=False, expected=expected
    )


def held(store: Store, files: list[AddFile]) -> dict[tuple[str, str], list[Any]]:
    return {
        (f.partition, f.group): pq.read_table(Path(store.uri, f.path), partitioning=None).to_pylist() for f in files
    }


@pytest.mark.spark
def test_a_task_each_writes_the_same_files_as_all_tasks_together(spark: Any, tmp_path: Path) -> None:
    store = Store(tmp_path)

    together, apart = staged(spark, store, "data/t.1/few", 0), staged(spark, store, "data/t.1/many", 10**9)

    assert held(store, apart) == held(store, together)
    assert sum(file.rows for file in apart) == len(ROWS)
    there = [info.key for info in store.list("data/t.1/many") if info.key.endswith(".parquet")]
    assert sorted(there) == sorted(file.path for file in apart)  # no file of a task that had no rows
    assert all("__index_" in file.path for file in together)
    assert not any("__index_" in file.path for file in apart)
    with pytest.raises(InvalidInput, match="a partition that it did not hold"):
        staged(spark, store, "data/t.1/stray", 10**9, [*ROWS, ("z", 1, "n")])


@pytest.mark.spark
@pytest.mark.parametrize("expected", [0, 1, 10**9], ids=["not known", "few", "many"])
def test_a_row_of_no_target_is_refused_though_there_is_one_target_only(
    spark: Any, tmp_path: Path, expected: int
) -> None:
    rows = frame(spark, [("c", 1, "n"), ("z", 2, "n")], DDL).repartition(1)  # which the optimizer cannot look into
    with pytest.raises(InvalidInput, match="a partition that it did not hold"):
        stage_rows(
            Store(tmp_path),
            TREE,
            rows,
            "data/t.1/stray",
            TARGETS[2:],
            kind="base",
            one_per_key=False,
            expected=expected,
        )


@pytest.mark.spark
@pytest.mark.parametrize("alike", [False, True], ids=["sizes differ", "two of a size"])
@pytest.mark.parametrize("most", [0, 32], ids=["joined", "compared"])
def test_each_row_is_told_the_group_of_its_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: bool, most: int
) -> None:
    monkeypatch.setattr("spark_apps.mergetree.external_files._CASE_LIMIT", most)
    files = []
    for number in range(3):
        names = [f"{'n' * (1 if alike else 9**number)}{number}"]
        path = tmp_path / f"data/t.1/rows/part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"p": ["a"], "k": pa.array([number], pa.int32()), "n": names}), path)
        place, key = path.stat().st_size, str(path.relative_to(tmp_path))
        files.append(DataFile("data", "p=a", f"g{number}", key, "base", 1, place, number))
    assert (len({file.bytes for file in files}) < 3) == alike

    rows = read_files(Snapshot(spark, Store(tmp_path), State()), TREE, files, ["k", GROUP_ID], sequence_number=True)

    assert in_order(rows.collect()) == [(0, "g0", 0), (1, "g1", 1), (2, "g2", 2)]


@pytest.mark.spark
def test_keys_are_joined_by_hash_as_by_their_values(spark: Any) -> None:
    rows, keys = frame(spark, ROWS, DDL), frame(spark, [*ROWS[::3], ("c", 99, None)], DDL)
    tree = replace(TREE, key=("k", "n"))
    for without in (False, True):
        by_hash = with_keys(rows, keys, tree, tree.identity, 100, without=without)
        plain = with_keys(rows, keys, tree, tree.identity, None, without=without)
        assert sorted(map(repr, by_hash.collect())) == sorted(map(repr, plain.collect()))
        assert by_hash.count() == (26 if without else 14)
        assert "xxhash64" in by_hash._jdf.queryExecution().toString()


def test_keys_that_stand_twice_are_counted_across_the_pieces_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_apps.mergetree.integrity._BATCH_ROWS", 2)
    pq.write_table(pa.table({"k": [1, 1, 1, 2, 2, 3], "n": ["a", "a", "b", "b", "b", "c"]}), tmp_path / "f.parquet")
    file = AddFile("data", "", "0", "f.parquet", "base", 6, 1)

    assert count_duplicates(Store(tmp_path), TREE, [file]) == 2
    assert count_duplicates(Store(tmp_path), replace(TREE, key=("k",)), [file]) == 3


def test_few_rows_or_too_many_groups_take_no_task_each() -> None:
    assert write._slots(TARGETS, 9 * 50_000 - 1, {}) is None
    assert write._slots(TARGETS, 9 * 50_000, {}) == [
        *[(0, str(bucket)) for bucket in range(3)],
        *[(1, str(bucket)) for bucket in range(2)],
        *[(2, str(bucket)) for bucket in range(4)],
    ]
    assert write._slots(TARGETS[:2], 10**9, {("p=a", "1"): 3}) == [
        *[(0, "0"), (0, "1"), (0, "1"), (0, "1"), (0, "2")],
        *[(1, "0"), (1, "1")],
    ]
    assert write._slots([Target("", (), 2_000)], 10**12, {}) is None
    assert write._slots([Target("", (), None)], 10**12, {}) is None
