"""What can be said about an index by name: creating, showing, dropping, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.actions.indexing import CreateIndex
from spark_apps.actions.template import run
from spark_apps.storage import errors
from tests.spark_apps.indexes.support import entries, frame
from tests.spark_apps.small_tables import Prepared, check_like_scan

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "k1 string, k2 int, d date, price decimal(10,2), at timestamp, tags array<string>, x double"


def build(spark: Any, folder: Path) -> None:
    IndexedTable.create(spark, folder, DDL, ["k1", "k2"], buckets=2)


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((".x", "secondary", ["d"]), errors.InvalidName, "index"),
        (("a/b", "secondary", ["d"]), errors.InvalidName, "a/b"),
        (("i", "secondary", ["nope"]), errors.UnknownColumn, "nope"),
        (("i", "secondary", ["d", "D"]), errors.InvalidInput, "twice"),
        (("i", "secondary", []), errors.InvalidInput, "no columns"),
        (("i", "secondary", "d"), errors.InvalidInput, "list of names"),
        (("i", "secondary", ["tags"]), errors.InvalidSchema, "tags"),
        (("i", "secondary", ["x"]), errors.InvalidSchema, "double"),
        (("i", "record", ["k1"]), errors.InvalidInput, "k1, k2"),
        (("i", "no such kind", ["d"]), errors.InvalidInput, "record"),
        (("i", "os.path.Join", ["d"]), errors.InvalidInput, "allow"),
    ],
)
def test_given_a_bad_definition_then_it_is_refused_by_name_and_nothing_is_changed(
    table: IndexedTable, arguments: tuple[Any, ...], error: type[errors.LakeIndexError], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        table.create_index(*arguments)
    assert "Nothing was changed" in str(caught.value)
    assert table.indexes == {} and table.version == 0


@pytest.mark.parametrize(
    ("properties", "text"),
    [({"shards": "0"}, "shards"), ({"shards": "x"}, "shards"), ({"tombstones": "late"}, "eager"), ({"y": "1"}, "'y'")],
)
def test_given_bad_properties_then_they_are_named(table: IndexedTable, properties: dict[str, str], text: str) -> None:
    with pytest.raises(errors.InvalidInput, match=text):
        table.create_index("i", "secondary", ["d"], properties=properties)


def test_given_an_index_then_it_is_shown_cannot_be_made_twice_and_goes_only_when_dropped(
    spark: Any, table: IndexedTable
) -> None:
    table.create_index("by_day", "secondary", ["d", "PRICE"], properties={"shards": "3"}, comment="for reports")
    shown = table.indexes["by_day"]
    assert (shown.kind, shown.columns, shown.state, shown.included) == ("secondary", ("d", "price"), "active", ())
    assert shown.properties == {"shards": "3", "tombstones": "eager"}

    with pytest.raises(errors.IndexExists, match=r"by_day.*secondary"):
        table.create_index("by_day", "secondary", ["d"])
    version = table.version
    assert table.create_index("by_day", "secondary", ["d"], if_not_exists=True).version is None
    with pytest.raises(errors.InvalidInput, match="included"):
        table.create_index("i", "secondary", ["d"], included=IncludedColumns(include=["price"]))
    with pytest.raises(errors.IndexNotFound, match="by_day"):
        table.drop_index("other")
    assert table.drop_index("other", if_exists=True).version is None
    assert IndexedTable.load(spark, table.uri).version == version

    table.drop_index("by_day")
    assert table.indexes == {} and "by_day" in IndexedTable.load(spark, table.uri, version=version).indexes
    # A new one of that name starts from nothing.
    table.create_index("by_day", "secondary", ["d"], deferred=True)
    assert entries(table, "by_day") == [] and table.indexes["by_day"].deferred


def test_given_keys_of_many_types_and_nulls_then_each_is_found_by_its_index(spark: Any, table: IndexedTable) -> None:
    rows = spark.sql(
        "select concat('k', id % 3) k1, cast(id as int) k2, "
        "if(id % 4 = 0, null, date_add(date'2024-01-01', cast(id % 5 as int))) d, "
        "if(id % 5 = 0, null, cast(id % 6 as decimal(10,2))) price, "
        "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id % 7) at, "
        "array('t') tags, double(id) x from range(120)"
    )
    table.create_index("day", "secondary", ["d", "price"])
    table.create_index("at", "secondary", ["at"])
    table.create_index("k", "secondary", ["k2"])
    table.create_index("rec", "record")
    table.upsert(rows)
    table.upsert(rows.where("k2 % 10 = 0").withColumn("price", (rows.price + 1).cast("decimal(10,2)")))
    asked = {
        "day": "d = date'2024-01-03' AND price = 3",
        "at": "at = timestamp'2024-01-01 00:00:03'",
        "k": "k2 IN (7, 8)",
        "rec": "k1 = 'k1' AND k2 = 7",
    }
    for name, where in {
        **asked,
        "day ": "d IS NULL AND price IS NULL",
        "day  ": "d IS NULL AND price IN (1, 2)",
    }.items():
        assert check_like_scan(table, where), where
        assert name.strip() in (table.explain(where).index_used or ""), where
    assert all(table.verify(name).ok for name in ("day", "rec"))


def test_given_a_plan_only_build_then_it_says_what_would_be_read_and_changes_nothing(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int, c string", ["id"], buckets=2)
    table.upsert(frame(spark, [(i, "c") for i in range(20)], "id int, c string"))
    plan = table.create_index("i", "secondary", ["c"], plan_only=True)
    files = sum(partition.files for partition in table.partitions.values())
    assert (plan.index, plan.files, len(plan.groups)) == ("i", files, 2)
    assert plan.bytes == sum(partition.bytes for partition in table.partitions.values())
    assert table.indexes == {}


def test_given_a_retried_creation_or_drop_then_the_first_receipt_and_not_a_complaint_about_its_own_index(
    table: IndexedTable,
) -> None:
    made = table.create_index("i", kind="secondary", columns=["d"], txn_id="make-i")
    assert table.create_index("i", kind="secondary", columns=["d"], txn_id="make-i") == made
    dropped = table.drop_index("i", txn_id="drop-i")
    assert table.drop_index("i", txn_id="drop-i") == dropped
    assert table.version == dropped.version


def test_given_a_record_index_then_a_second_one_under_another_name_is_refused(spark: Any, table: IndexedTable) -> None:
    other = IndexedTable.load(spark, table.uri)
    table.create_index("rec", "record")
    for build in (table.create_index, other.create_index):
        with pytest.raises(errors.IndexExists, match=r"'rec'.*Nothing was changed.*drop it first"):
            build("again", "record", deferred=True)
    assert table.create_index("rec", "record", if_not_exists=True).version is None
    table.drop_index("rec")
    table.create_index("again", "record")
    assert set(table.indexes) == {"again"}


def test_given_two_record_indexes_made_at_once_then_the_second_is_refused(spark: Any, table: IndexedTable) -> None:
    other = IndexedTable.load(spark, table.uri)

    def overtake(_round: int, _version: int) -> None:
        if "first" not in other.indexes:
            other.create_index("first", "record")

    with pytest.raises(errors.IndexExists, match="'first'"):
        run(table._handle, CreateIndex("second", "record", after_round=overtake))
    assert set(IndexedTable.load(spark, table.uri).indexes) == {"first"}


def test_without_buckets_a_table_comes_with_the_index_that_finds_its_rows_and_keeps_it(
    spark: Any, tmp_path: Path
) -> None:
    for more in ({"bucket_expressions": "x,2"}, {"hash_fields": ["id"]}, {"properties": {"group_rows": "0"}}):
        with pytest.raises(errors.InvalidInput, match=r"without buckets|group_rows"):
            IndexedTable.create(spark, tmp_path / "bad", "id bigint, p string", ["id"], buckets=None, **more)
    table = IndexedTable.create(
        spark, tmp_path / "free", "id bigint, p string", ["id"], partition_by=["p"], buckets=None,
        properties={"group_rows": "10"},
    )  # fmt: skip
    assert list(table.indexes) == ["record"]

    for first in range(0, 40, 8):
        table.upsert(frame(spark, [(n, "a" if n % 2 else "b") for n in range(first, first + 8)], "id bigint, p string"))
    sizes = [sum(file.rows for file in files) for files in table.snapshot.groups().values()]

    assert sum(sizes) == 40 and max(sizes) <= 10
    assert table.explain("id = 17").groups_read == 1
    with pytest.raises(errors.InvalidInput, match="finds the file groups"):
        table.drop_index("record")
    with pytest.raises(errors.InvalidInput, match="no bucket layout"):
        table.rescale(buckets=4)
