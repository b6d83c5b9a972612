"""What queries read, in Spark's own figures; that they are right is compared with a full scan of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn
from spark_apps.timeline.model import DATA_TREE
from tests.spark.releases import since
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import scanned
from tests.spark_apps.small_tables import in_order

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16, together=4)]


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """20 partitions of 4 buckets; a city is in one partition only, a tail in all."""
    path = tmp_path_factory.mktemp("planning") / "table"
    made = IndexedTable.create(
        spark, path, "id bigint, day int, city string, tail string, v int", ["id"], partition_by=["day"], buckets=4
    )
    made.upsert(
        spark.sql(
            "select id, cast(id % 20 as int) day, concat('c', id % 40) city, concat('t', id % 300) tail, "
            "cast(id % 9 as int) v from range(8000)"
        )
    )
    made.create_index("rec", "record")
    made.create_index("city", "secondary", ["city"])
    made.create_index("tail", "secondary", ["tail"])
    return made


ASKED = [
    # where, indexes used, most file groups read (of 80)
    ("id = 4711", {"bucket layout", "rec"}, 1),
    ("id IN (1, 2, 3)", {"bucket layout", "rec"}, 3),
    ("city = 'c3'", {"city"}, 4),
    ("city IN ('c3', 'c4')", {"city"}, 8),
    ("city = 'c3' AND v > 4", {"city"}, 4),
    ("city = 'c3' AND tail = 't3'", {"city", "tail"}, 3),
    ("city = 'c3' OR id = 4711", {"city", "bucket layout", "rec"}, 5),
    ("(city = 'c3' OR city = 'c5') AND day = 3", {"city"}, 4),
    ("(city = 'c3' OR id = 5) AND v = 3", {"city", "bucket layout", "rec"}, 5),
    ("day BETWEEN 3 AND 4", set(), 8),
    ("day > 17 OR day IS NULL", set(), 8),
    ("city = 'nowhere'", {"city"}, 0),
    ("city = NULL", set(), 0),
    ("v = 3", set(), 80),
    ("city LIKE 'c3%'", set(), 80),
    ("city = 'c3' OR v = 3", set(), 80),
    ("NOT city = 'c3'", set(), 80),
]


@pytest.mark.parametrize(("where", "used", "most"), ASKED, ids=[asked[0] for asked in ASKED])
def test_given_a_predicate_then_only_its_file_groups_are_read_and_the_rows_are_those_of_a_scan(
    table: IndexedTable, where: str, used: set[str], most: int
) -> None:
    expected = in_order(table.read().where(where).collect())
    matching = table.read(where)

    assert in_order(matching.collect()) == expected
    read, plan = scanned(matching), table.explain(where)
    assert {use.name for use in plan.indexes} == used
    assert read.files <= most and plan.groups_read <= most
    # Without deltas a file group is one file, and explain says what Spark does.
    assert (read.files, read.bytes) == (plan.files_read, plan.bytes_read)
    assert plan.files_read + plan.files_skipped == len(table.snapshot.state.files(DATA_TREE))


def test_given_only_some_columns_then_they_come_in_the_order_asked_for_and_fewer_bytes_are_decoded(
    table: IndexedTable,
) -> None:
    matching = table.read("city = 'c3' AND v = 0", columns=["V", "id"])
    assert matching.columns == ["v", "id"]
    assert {row[0] for row in matching.collect()} == {0}


def test_given_an_index_that_is_no_use_then_explain_says_why(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plan = table.explain("v = 3 AND upper(city) = 'C3'")
    assert plan.index_used is None
    assert {name: why.code for name, why in plan.not_used.items()} == dict.fromkeys(("rec", "city", "tail"), "no_keys")
    assert any("UPPER(city)" in part.replace("upper", "UPPER") for part in plan.not_understood)
    assert [line.split()[:2] for line in str(plan).split("\n")[-3:]] == [[name, "no_keys"] for name in plan.not_used]
    assert table.explain("city = NULL").nothing_matches and not table.explain("city = 'nowhere'").nothing_matches


def test_given_deltas_then_a_file_group_is_read_whole_and_the_newest_row_counts(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int, city string", ["id"], buckets=4)
    ddl = "id int, city string"
    table.upsert(frame(spark, [(i, "sfo") for i in range(40)], ddl))
    table.create_index("city", "secondary", ["city"], properties={"tombstones": "lazy"})
    table.upsert(frame(spark, [(1, "aus"), (2, "aus")], ddl))
    table.upsert(frame(spark, [(2, "lax")], ddl))
    table.delete(frame(spark, [(1,)], "id int"))

    assert [tuple(row) for row in table.read("city = 'aus'").collect()] == []
    assert [tuple(row) for row in table.read("city = 'lax'").collect()] == [(2, "lax")]
    assert sorted(row[0] for row in table.read("city = 'sfo'").collect()) == [0, *range(3, 40)]
    assert scanned(table.read("city = 'lax'")).files < scanned(table.read()).files


def test_given_a_large_index_then_one_key_reads_a_small_part_of_it(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id string, v int", ["id"], buckets=2)
    table.upsert(spark.range(400_000).selectExpr("sha2(cast(id as string), 256) id", "cast(id as int) v"))
    table.create_index("rec", "record", properties={"shards": "1"})
    [file] = table.snapshot.state.files(table.indexes["rec"].definition.tree)

    [key] = [row[0] for row in table.read("v = 123456", columns=["id"]).collect()]
    [use] = [use for use in table.explain(f"id = '{key}'").indexes if use.name == "rec"]

    assert file.bytes > 8_000_000 and use.bytes < file.bytes / 8
    assert [row[0] for row in table.read(f"id = '{key}'", columns=["v"]).collect()] == [123456]
    assert table.read(f"id = '{key}x'").collect() == []


@since(4, 0, "the operator >>>")
def test_given_sql_that_only_spark_can_read_then_the_rows_are_scanned(table: IndexedTable) -> None:
    where = "id >>> 9 = 15"
    assert sorted(row[0] for row in table.read(where, columns=["id"]).collect()) == list(range(7680, 8000))
    plan = table.explain(where)
    assert (plan.index_used, plan.files_skipped) == (None, 0)
    assert plan.not_understood == (f"{where}: only Spark can read it",)
    with pytest.raises(UnknownColumn, match="nope"):
        table.read("nope >>> 9 = 15")


def test_given_nonsense_then_it_is_refused_with_its_place(table: IndexedTable) -> None:
    with pytest.raises(InvalidPredicate, match=r"line 1, column .*Nothing was changed"):
        table.read("id >>> ")
