"""A table's promises one by one."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.frames import frame as frame_of
from tests.spark_apps.small_tables import DDL, Make, maker

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]


@pytest.fixture
def make(spark: Any, tmp_path: Path) -> Make:
    return maker(spark, tmp_path)


def rows(table: IndexedTable, *columns: str, where: str | None = None) -> list[tuple[Any, ...]]:
    collected = table.read(where=where, columns=columns or None).collect()
    return sorted((tuple(row) for row in collected), key=repr)


def frame(spark: Any, data: list[tuple[Any, ...]], ddl: str = DDL) -> Any:
    return frame_of(spark, data, ddl)


# --- what it promises -----------------------------------------------------------------------------------------


def test_given_an_empty_table_then_it_reads_as_no_rows_with_the_declared_columns(spark: Any, make: Make) -> None:
    table = make()

    assert (table.version, rows(table), table.partitions, table.indexes) == (0, [], {}, {})
    assert table.read().columns == ["id", "dt", "city", "ts"]
    assert [entry.operation for entry in table.history()] == ["create"]


def test_given_an_empty_batch_then_nothing_is_committed_and_the_receipt_says_so(spark: Any, make: Make) -> None:
    table = make()
    none = frame(spark, [])

    receipts = [
        table.upsert(none),
        table.insert(none),
        table.delete(none),
        table.insert_overwrite(none),
        table.compact(),
    ]

    assert {receipt.version for receipt in receipts} == {None}
    assert table.version == 0


def test_given_columns_in_other_order_case_and_narrower_types_then_they_are_matched_by_name(
    spark: Any, make: Make
) -> None:
    table = make()

    table.upsert(spark.sql("select 'sfo' CITY, cast(3 as smallint) Ts, 7 ID, 'x' dt"))

    assert rows(table) == [(7, "x", "sfo", 3)]


def test_given_ties_in_a_batch_then_the_result_does_not_depend_on_the_order_of_its_rows(spark: Any, make: Make) -> None:
    batch = [(1, "a", f"c{n}", 5) for n in range(20)] + [
        (1, "a", "later", None),
        (2, "a", "x", None),
        (2, "a", "y", None),
    ]
    forwards, backwards = make(name="forwards"), make(name="backwards")

    forwards.upsert(frame(spark, batch))
    backwards.upsert(frame(spark, batch[::-1]).repartition(3))

    assert rows(forwards) == rows(backwards)
    assert len(rows(forwards)) == 2


def test_given_a_deleted_key_when_written_again_then_it_lives(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "old", 9)]))
    table.delete(frame(spark, [(1, "a", None, None)]))
    table.upsert(frame(spark, [(1, "a", "new", 1)]))
    table.compact(mode="quick")

    assert rows(table, "id", "city") == [(1, "new")]


@pytest.mark.by_turn(4)
def test_given_late_rows_when_merged_by_ordering_then_the_highest_stands_across_commits(spark: Any, make: Make) -> None:
    table = make(merge_by="ordering")
    table.upsert(frame(spark, [(1, "a", "first", 5), (2, "a", "first", 5), (3, "a", "first", None)]))
    table.upsert(frame(spark, [(1, "a", "late", 4), (2, "a", "same", 5), (3, "a", "any", 0)]))
    expected = [(1, "first"), (2, "same"), (3, "any")]

    assert rows(table, "id", "city") == expected
    table.delete("id = 1")
    table.upsert(frame(spark, [(1, "a", "late again", 5)]))
    assert rows(table, "id", "city") == expected[1:]
    table.upsert(frame(spark, [(1, "a", "reborn", 6)]))
    table.compact(mode="quick")
    assert rows(table, "id", "city") == [(1, "reborn"), *expected[1:]]
    table.compact()
    assert rows(table, "id", "city") == [(1, "reborn"), *expected[1:]]


def test_given_partition_values_of_every_kind_then_each_is_a_partition_of_its_own(spark: Any, make: Make) -> None:
    table = make()
    values = [None, "", "a/b", "a%2Fb", "50%", "..", "x=y", "__HIVE_DEFAULT_PARTITION__", "ü\n'", "a b", "{x}[y]*?"]

    table.upsert(frame(spark, [(1, value, f"in {value}", 0) for value in values]))
    table.upsert(frame(spark, [(2, value, "second", 0) for value in values]))

    assert len(table.partitions) == len(values)
    assert rows(table, where="id = 1") == sorted([(1, value, f"in {value}", 0) for value in values], key=repr)
    table.drop_partition(next(path for path in table.partitions if path == "dt=a%2Fb"))
    assert len(rows(table, where="dt = 'a/b'")) == 0
    assert len(rows(table)) == 2 * (len(values) - 1)


def test_given_more_partitions_than_a_chain_of_cases_takes_then_rows_find_theirs(spark: Any, make: Make) -> None:
    table = make(buckets=1)
    batch = [(n, f"d{n % 20}" if n % 20 else None, "x", n) for n in range(60)]

    table.upsert(frame(spark, batch))
    table.delete(frame(spark, [(n, None) for n in range(0, 60, 3)], "id bigint, x string"))

    assert rows(table) == sorted((row for row in batch if row[0] % 3), key=repr)


def test_given_composite_keys_of_many_types_then_rows_are_found_by_them(spark: Any, make: Make) -> None:
    ddl = "s string, d date, n decimal(20,3), b boolean, t timestamp, x binary, v int"
    key = ["s", "d", "n", "b", "t", "x"]
    moment = dt.datetime(2024, 11, 3, 1, 30, 0, 250)
    one = ("k/1\n☂", dt.date(1969, 12, 31), decimal.Decimal("-12.345"), True, moment, bytearray(b"\x00\xff"))
    two = (*one[:3], False, *one[4:])
    table = make(ddl, key, buckets=4)

    table.upsert(frame(spark, [(*one, 1), (*two, 2)], ddl))
    table.upsert(frame(spark, [(*one, 3)], ddl))
    with pytest.raises(errors.KeysExist):
        table.insert(frame(spark, [(*two, 4)], ddl))
    table.delete(frame(spark, [two], ddl.removesuffix(", v int")))

    assert rows(table, "v") == [(3,)]


def test_given_rows_deleted_by_key_without_their_partition_then_they_go_wherever_they_are(
    spark: Any, make: Make
) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "x", 0), (1, "b", "x", 0), (2, "b", "x", 0)]))

    table.delete(frame(spark, [(1,)], "id bigint"))

    assert rows(table, "id", "dt") == [(2, "b")]


def test_given_rows_deleted_with_their_partition_then_the_same_key_elsewhere_stays(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "x", 0), (1, "b", "x", 0)]))

    receipt = table.delete(frame(spark, [(1, "a"), (5, "nowhere")], "id bigint, dt string"))

    assert rows(table, "id", "dt") == [(1, "b")]
    assert receipt.metrics["partitions"] == 1


def test_given_an_overwrite_of_named_partitions_then_just_these_are_replaced(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "old", 0), (2, "b", "old", 0), (3, "c", "old", 0)]))

    table.insert_overwrite(frame(spark, [(4, "a", "new", 0)]), partitions=["dt=a", "dt=b"])

    assert rows(table, "id", "dt") == [(3, "c"), (4, "a")]
    with pytest.raises(errors.InvalidInput, match="dt=c"):
        table.insert_overwrite(frame(spark, [(4, "c", "new", 0)]), partitions=["dt=a"])


def test_given_copy_on_write_then_every_file_group_is_one_file_without_tombstones(spark: Any, make: Make) -> None:
    table = make(write_mode="copy_on_write")
    table.upsert(frame(spark, [(n, "a", "x", 0) for n in range(50)]))
    table.upsert(frame(spark, [(n, "a", "y", 0) for n in range(10)]))
    table.delete("id >= 40")

    files = table._state.groups(DATA_TREE).values()
    assert [(len(group), group[0].tombstones) for group in files] == [(1, 0), (1, 0)]
    assert table.partitions["dt=a"].rows == 40
    assert sorted(rows(table, "city")) == [("x",)] * 30 + [("y",)] * 10


def test_given_a_write_of_one_key_then_only_its_file_group_is_touched(spark: Any, make: Make) -> None:
    table = make("id bigint, v string", buckets=8)
    table.upsert(spark.sql("select id, 'x' v from range(500)"))

    receipt = table.upsert(frame(spark, [(17, "y")], "id bigint, v string"))

    changed = [file for file in table._state.files(DATA_TREE) if file.sequence_number == receipt.version]
    assert receipt.metrics["files"] == len(changed) == 1
    group = table._state.files(DATA_TREE, "", changed[0].group)
    assert len(group) == 2
    assert table.compact().metrics["files_before"] == 2
    assert rows(table, where="id = 17") == [(17, "y")]


def test_given_a_session_that_splits_files_then_a_file_group_still_gets_one_file(spark: Any, make: Make) -> None:
    table = make("id bigint, v string", buckets=2)
    settings = {
        "spark.sql.files.maxRecordsPerFile": "10",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.parquet.mergeSchema": "true",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        table.upsert(spark.sql("select id, 'x' v from range(100)"))
        table.upsert(spark.sql("select id, 'y' v from range(50)"))
        table.compact()
        assert len(table._state.files(DATA_TREE)) == 2
        # Constant partition columns and hash fields: what the optimizer folds must not tear groups apart
        # either.
        ddl = "k string, n bigint, p string, v string"
        constant = make(ddl, ["k", "n"], name="constant", hash_fields=["k"], partition_by=["p"])
        constant.upsert(spark.sql("select 'k' k, id n, 'a' p, 'x' v from range(100)"))
        assert len(constant._state.files(DATA_TREE)) == 1
        assert table.read().groupBy("v").count().orderBy("v").collect() == [("x", 50), ("y", 50)]
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_given_a_location_with_what_hadoop_takes_for_a_pattern_then_the_rows_are_read_once(
    spark: Any, make: Make
) -> None:
    table = make("id bigint, v string", name="a [b] {c,d} *? %20 é")
    table.upsert(spark.sql("select id, 'x' v from range(20)"))
    table.upsert(spark.sql("select id, 'y' v from range(5)"))

    assert table.read().groupBy("v").count().orderBy("v").collect() == [("x", 15), ("y", 5)]


def test_given_other_writers_then_a_table_object_stays_at_its_version_until_it_writes(spark: Any, make: Make) -> None:
    mine = make()
    theirs = IndexedTable.load(spark, mine.uri)
    theirs.upsert(frame(spark, [(1, "a", "x", 0)]))

    assert (mine.version, rows(mine)) == (0, [])
    receipt = mine.upsert(frame(spark, [(2, "a", "x", 0)]))
    assert (mine.version, receipt.version) == (2, 2)
    assert rows(mine, "id") == [(1,), (2,)]


@pytest.mark.by_turn(1)
def test_given_earlier_versions_and_instants_then_they_read_as_they_were_and_cannot_be_written(
    spark: Any, make: Make
) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "x", 0)]))
    table.delete("true")
    instant = table.history()[1].instant

    for earlier in (IndexedTable.load(spark, table.uri, version=1), IndexedTable.load(spark, table.uri, as_of=instant)):
        assert (earlier.version, rows(earlier, "id")) == (1, [(1,)])
        with pytest.raises(errors.InvalidInput, match="only be read"):
            earlier.delete("true")
    with pytest.raises(errors.VersionNotFound):
        IndexedTable.load(spark, table.uri, version=9)


def test_given_a_retry_under_the_same_id_then_the_same_receipt_and_nothing_is_written(spark: Any, make: Make) -> None:
    table = make()
    batch = frame(spark, [(1, "a", "x", 0)])
    first = table.upsert(batch, txn_id="day-1")
    files = sorted(Path(table.uri).rglob("*"))

    again = IndexedTable.load(spark, table.uri).upsert(frame(spark, [(2, "b", "y", 0)]), txn_id="day-1")

    assert again == first
    assert sorted(Path(table.uri).rglob("*")) == files


def test_given_restored_and_cleaned_then_old_rows_are_back_and_old_versions_are_gone(spark: Any, make: Make) -> None:
    table = make()
    table.upsert(frame(spark, [(1, "a", "x", 0)]))
    table.upsert(frame(spark, [(1, "a", "y", 0)]))
    table.restore(1)
    assert rows(table, "city") == [("x",)]

    table.compact()
    assert table.clean(retain_versions=1, retain_seconds=0, plan_only=True).files
    table.clean(retain_versions=1, retain_seconds=0)

    assert rows(table, "city") == [("x",)]
    with pytest.raises(errors.SnapshotExpired):
        IndexedTable.load(spark, table.uri, version=1)


def test_given_a_dropped_table_then_it_is_not_there(spark: Any, make: Make) -> None:
    table = make()
    table.drop()

    with pytest.raises(errors.TableNotFound, match="dropped"):
        IndexedTable.load(spark, table.uri)
