"""Upserts that find where their keys live once their rows are staged: stays, moves, new keys and deletes, asked of the
index on the driver or by a Spark join, with and without an index that needs the rows as they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable
from spark_apps.mergetree import write
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import within

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id bigint, part string, city string"


# How the index is asked, and the tombstones of an index that needs the rows as they were; each beside two others.
WAYS = pytest.mark.parametrize(
    ("asked", "table"),
    [("few", None), ("few", "lazy"), ("many", "eager"), ("many", None), ("many, far", "eager"), ("many, far", "lazy")],
    indirect=True,
)


LIMITS: dict[str, dict[str, Any]] = {
    "few": {},
    "many": {"lookup_keys": 0},
    "many, far": {"lookup_keys": 0, "local_files": False},
}


@pytest.fixture
def asked(request: pytest.FixtureRequest) -> str:
    """How the index is asked: as for few keys, or as for many, of an index on the driver's disk or elsewhere."""
    return str(request.param)


def build(spark: SparkSession, folder: Path, tombstones: str | None) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], partition_by=["part"], buckets=2)
    made.upsert(frame(spark, [(n, f"p{n % 3}", f"c{n % 4}") for n in range(30)], DDL))
    made.create_index("key", kind="record")
    if tombstones is not None:
        made.create_index("city", kind="secondary", columns=["city"], properties={"tombstones": tombstones})


@pytest.fixture
def table(request: pytest.FixtureRequest, prepared: Callable[..., IndexedTable], asked: str) -> IndexedTable:
    return within(prepared(build, request.param), **LIMITS[asked])


@pytest.fixture
def written(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How rows are staged: by a task a core, or, where their keys are many too, by one a file group."""
    if asked != "few":
        monkeypatch.setattr(write, "ROWS_PER_TASK", 0.01)


def held(table: IndexedTable) -> dict[int, tuple[str, str]]:
    rows = [tuple(row) for row in table.read().collect()]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


def sound(table: IndexedTable) -> bool:
    return all(table.verify(name).ok for name in table.indexes)


def files(table: IndexedTable, name: str) -> int:
    return len(list(table.snapshot.state.files(table.indexes[name].definition.tree)))


@WAYS
@pytest.mark.by_turn(24)
@pytest.mark.usefixtures("written")
def test_given_rows_that_stay_move_come_and_go_then_rows_and_indexes_are_right(
    spark: SparkSession, table: IndexedTable, asked: str
) -> None:
    expected = held(table)
    first: list[Any] = [(0, "p0", "new", False), (1, "p2", "moved", False), (99, "p9", "new", False)]
    first += [(3, "p0", "", True), (4, "p2", "", True), (77, "p1", "never there", True), (5, None, "moved", False)]
    second = [(1, "p1", "back", False), (3, "p0", "again", False), (99, "p9", "c1", False), (5, "p2", "c2", False)]

    for batch in (first, second):
        table.upsert(frame(spark, batch, f"{DDL}, gone boolean"), deleted="gone")
        for key, part, city, gone in batch:
            expected.pop(key, None)
            if not gone:
                expected[key] = (part, city)

        assert held(table) == expected
        assert [row.id for row in table.read("city = 'moved'").orderBy("id").collect()] == sorted(
            key for key, (_, city) in expected.items() if city == "moved"
        )
    assert sound(table)


@WAYS
@pytest.mark.by_turn(24)
def test_given_keys_that_all_stay_then_the_record_index_gets_no_file(
    spark: SparkSession, table: IndexedTable, asked: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = files(table, "key")

    caplog.set_level("INFO", "spark_apps.actions.upsert_plan")
    receipt = table.upsert(frame(spark, [(n, f"p{n % 3}", "same") for n in range(12)], DDL))

    assert files(table, "key") == before
    [plan] = [record.getMessage() for record in caplog.records if record.name == "spark_apps.actions.upsert_plan"]
    assert f"{receipt.txn_id}: upsert of 12 rows: " in plan
    assert (receipt.metrics["index.key.entries"], receipt.metrics["index.key.tombstones"]) == (0, 0)
    assert table.read("city = 'same'").count() == 12
    assert sound(table)


@WAYS
@pytest.mark.by_turn(24)
def test_given_no_index_that_needs_the_old_rows_then_none_is_read(
    spark: SparkSession, table: IndexedTable, asked: str
) -> None:
    kinds = {info.definition.properties.get("tombstones") for info in table.indexes.values()}
    for path in Path(table.uri.removeprefix("file://"), "data").rglob("*.parquet"):
        path.write_bytes(b"no rows can be read from here")
    batch = frame(spark, [(0, "p0", "a"), (1, "p2", "b"), (99, "p0", "c")], DDL)

    if "eager" in kinds:
        with pytest.raises(Exception, match="is damaged"):
            table.upsert(batch)
    else:
        assert table.upsert(batch).metrics["index.key.entries"] == 2


@pytest.mark.parametrize("asked", ["few", "many, far"], indirect=True)
@pytest.mark.by_turn(24)
def test_given_partitions_of_odd_names_and_a_key_of_two_columns_then_rows_move_all_the_same(
    spark: SparkSession, tmp_path: Path, asked: str
) -> None:
    ddl = "day date, id binary, part string, number int, city string"
    table = IndexedTable.create(spark, tmp_path / "t", ddl, ["day", "id"], partition_by=["part", "number"], buckets=2)
    within(table, **LIMITS[asked])
    parts = ["a/b=c", "%2F ", "ü", None, "None"]

    def batch(count: int, shift: int, city: str) -> dict[Any, Any]:
        rows = [
            (date(1500, 1, 1 + n % 9), str(n).encode(), parts[(n + shift) % 5], n % 3 or None, city)
            for n in range(count)
        ]
        table.upsert(frame(spark, rows, ddl))
        return {row[:2]: row[2:] for row in rows}

    expected = batch(40, 0, "old")
    table.create_index("key", kind="record")
    expected |= batch(10, 0, "stays")
    expected |= batch(25, 1, "moved")
    expected |= batch(60, 1, "new")

    rows = [tuple(row) for row in table.read().collect()]
    assert len(rows) == len(expected)
    assert {(day, bytes(key)): tuple(others) for day, key, *others in rows} == expected
    assert sound(table)
