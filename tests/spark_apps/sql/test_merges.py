"""MERGE against a model: rows that ON does not match, whose keys the table has all the same, are never replaced.

``MERGES`` says how many random statements are run on each shape of table, ``MERGES_FROM`` which is the first.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_apps.actions.change_rows import ChangeRows
from spark_apps.layout.hashing import bucket_id
from spark_apps.storage.errors import ConcurrentWrite, KeysExist, LakeIndexError
from tests.spark_apps.sql.desk import Desk
from tests.spark_apps.sql.merges import ROWS, SHAPES, TABLE, Shape, a_statement, literal, outcome
from tests.turns import commits

pytestmark = pytest.mark.by_turn(8)

MERGES = int(os.environ.get("MERGES", "4"))
FIRST = int(os.environ.get("MERGES_FROM", commits() * MERGES))


def rows_of(desk: Desk, table: str) -> list[dict[str, Any]]:
    found = [row.asDict() for row in desk.table(table.replace(".", "/")).read().collect()]
    return sorted(found, key=lambda row: (str(row["p"]), row["id"]))


def filled(shape: Shape, table: str, new: bool = True) -> str:
    kinds = dict(one.split() for one in TABLE.split(", "))
    rows = ", ".join(f"({', '.join(literal(row[name], kinds[name]) for name in kinds)})" for row in ROWS)
    if not new:
        return f"INSERT OVERWRITE {table} VALUES {rows}"
    index = f"; {shape.index.format(table)}" if shape.index else ""
    return f"CREATE TABLE {table} ({TABLE}) {shape.made}; INSERT INTO {table} VALUES {rows}{index}"


@pytest.mark.by_turn(4)
@pytest.mark.parametrize(
    ("shape", "on", "source"),
    [
        (SHAPES[0], "t.id = s.id AND t.v >= 2", "(1L, 'a', 100, true)"),
        (SHAPES[0], "t.id = s.id", "(1.5D, 'a', 100, true)"),
        (SHAPES[2], "t.id = s.id AND t.p = s.p", "(1L, 'b', 100, true)"),
    ],
    ids=["more than the key", "a value that a cast changes", "the partition too"],
)
def test_given_a_row_that_on_does_not_match_whose_key_is_there_then_it_is_not_replaced(
    spark: SparkSession, tmp_path: Path, shape: Shape, on: str, source: str
) -> None:
    desk = Desk(spark, tmp_path / "wh")
    desk(filled(shape, "lake.t"))

    with pytest.raises(KeysExist, match=r"has already, such as .*id=1"):
        desk(f"MERGE INTO lake.t t USING (VALUES {source}) AS s(id, p, v, gone) ON {on} WHEN NOT MATCHED THEN INSERT *")

    assert {row["id"]: row["v"] for row in rows_of(desk, "lake.t")} == {row["id"]: row["v"] for row in ROWS}


@pytest.mark.by_turn(16)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_given_random_merges_then_each_leaves_what_a_model_says_or_is_refused_and_leaves_all(
    spark: SparkSession, tmp_path: Path, shape: Shape
) -> None:
    desk, table = Desk(spark, tmp_path / "wh"), f"lake.{shape.name}"
    desk(filled(shape, table))
    rows = ROWS
    for seed in range(FIRST, FIRST + MERGES):
        statement = a_statement(random.Random(f"{shape.name} {seed}"), shape)
        if not 3 <= len(rows) <= 8:
            desk(filled(shape, table, new=False))
            rows = ROWS
        text, expected = statement.text(table), outcome(shape, rows, statement)
        said, counts = "", {}
        try:
            [result] = desk(text)
            counts = result.receipt.metrics if result.receipt is not None else {}
        except LakeIndexError as error:
            said = type(error).__name__
        context = (seed, text, rows)
        assert said in expected.refused if expected.refused else not said, (said, expected.refused, *context)
        if not said:
            rows = expected.rows
            changed = {name: expected.counts[name] for name in ("update", "delete", "insert")}
            if any(changed.values()):
                got = {"update": counts["updated"], "delete": counts["deleted"], "insert": counts["inserted"]}
                assert got == changed, context
        key = sorted(rows, key=lambda row: (str(row["p"]), row["id"]))
        assert rows_of(desk, table) == key, context
    if shape.index:
        assert desk.table(f"lake/{shape.name}").verify("keys").ok


# --- Beside another writer --------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have another writer do something between the work of the next statement and its commit."""
    whole = ChangeRows.check

    def plan(other: Callable[[], Any]) -> None:
        def check(self: Any, *given: Any) -> None:
            monkeypatch.setattr(ChangeRows, "check", whole)
            other()
            whole(self, *given)

        monkeypatch.setattr(ChangeRows, "check", check)

    return plan


def keys_of_bucket(bucket: int, count: int, first: int) -> list[int]:
    keys = (key for key in range(first, first + 1000) if bucket_id([key], 2, types=["bigint"]) == bucket)
    return list(itertools.islice(keys, count))


@pytest.mark.by_turn(4)
def test_given_a_merge_of_ten_keys_then_a_writer_of_their_bucket_stops_it_and_one_of_another_does_not(
    spark: SparkSession, tmp_path: Path, meanwhile: Any
) -> None:
    desk = Desk(spark, tmp_path / "wh")
    desk(filled(SHAPES[0], "lake.t"))
    [of_this, *ten], [of_other] = keys_of_bucket(0, 11, 100), keys_of_bucket(1, 1, 100)
    values = ", ".join(f"({key}L, 'a', 9, true)" for key in ten)
    merge = f"MERGE INTO lake.t t USING (VALUES {values}) AS s(id, p, v, gone) ON t.id = s.id AND t.v > 1 " \
            "WHEN NOT MATCHED THEN INSERT *"  # fmt: skip

    meanwhile(lambda: desk(f"INSERT INTO lake.t VALUES ({of_this}, 'a', 1, true)"))
    with pytest.raises(ConcurrentWrite):
        desk(merge)
    meanwhile(lambda: desk(f"INSERT INTO lake.t VALUES ({of_other}, 'a', 1, true)"))
    desk(merge)

    assert {row["id"] for row in rows_of(desk, "lake.t")} == {*(row["id"] for row in ROWS), of_this, of_other, *ten}


@pytest.mark.by_turn(8)
def test_given_rows_without_a_match_that_no_clause_inserts_then_they_are_not_taken_for_matches_of_one_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    desk = Desk(spark, tmp_path / "wh")
    desk(filled(SHAPES[0], "lake.t"))
    before = rows_of(desk, "lake.t")

    desk(
        "MERGE INTO lake.t t USING (VALUES (901L, 'a', 9, true), (902L, 'a', 9, true)) AS s(id, p, v, gone) "
        "ON t.id >= s.id AND t.id <= s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.id = 0 THEN INSERT *"
    )

    assert rows_of(desk, "lake.t") == before


@pytest.mark.by_turn(4)
@pytest.mark.parametrize(("bucket", "partition"), [(0, "b"), (1, "b"), (0, "new"), (1, "new")])
def test_given_a_merge_that_matches_keys_in_any_partition_then_their_bucket_is_read_in_all_of_them(
    spark: SparkSession, tmp_path: Path, meanwhile: Any, bucket: int, partition: str
) -> None:
    desk = Desk(spark, tmp_path / "wh")
    desk(filled(SHAPES[1], "lake.t"))
    [key] = keys_of_bucket(0, 1, 100)
    [other] = keys_of_bucket(bucket, 1, 200)
    merge = f"MERGE INTO lake.t t USING (VALUES ({key}L, 'a', 9, true)) AS s(id, p, v, gone) ON t.id = s.id " \
            "WHEN NOT MATCHED THEN INSERT *"  # fmt: skip

    meanwhile(lambda: desk(f"INSERT INTO lake.t VALUES ({other}, '{partition}', 1, true)"))
    with pytest.raises(ConcurrentWrite) if bucket == 0 else nullcontext():
        desk(merge)

    assert (key in {row["id"] for row in rows_of(desk, "lake.t")}) == (bucket == 1)
