"""A record key stands in one partition while a record index is kept: whoever began before it, beside it or before
another one was made in its place; and what mends a table in which one stands in two."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.actions.indexing import CreateIndex
from spark_apps.actions.template import Action, run
from spark_apps.actions.write import Delete, Insert, InsertOverwrite, Upsert
from spark_apps.jobs.job import Job
from spark_apps.programs.write_table import write_table
from spark_apps.storage import errors
from tests.spark_apps.frames import frame
from tests.spark_apps.racing import go, racing
from tests.spark_apps.small_tables import Prepared, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id bigint, p string, n int"
Row = tuple[int, str, int]
Make = Callable[..., IndexedTable]


def build(spark: Any, folder: Path, batches: tuple[tuple[Row, ...], ...], indexed: bool, *options: Any) -> None:
    table = IndexedTable.create(spark, folder, DDL, ["id"], ["p"], buckets=1, **dict(options))
    for batch in batches:
        table.upsert(frame(spark, batch, DDL))
    if indexed:
        table.create_index("key", "record")


@pytest.fixture
def make(prepared: Prepared) -> Make:
    """Make a table of batches that are upserted, and with ``indexed`` a record index ``key``."""

    def made(*batches: list[Row], indexed: bool = False, **options: Any) -> IndexedTable:
        return prepared(build, tuple(map(tuple, batches)), indexed, *options.items())

    return made


def again(table: IndexedTable) -> IndexedTable:
    return IndexedTable.load(table._handle.spark, table.uri)


def rows(table: IndexedTable) -> list[Row]:
    return rows_of(again(table))


@pytest.mark.by_turn(4)
def test_an_insert_meets_a_write_from_before_the_index_that_it_asked(spark: Any, make: Make) -> None:
    table = make([(1, "a", 0)])
    old, begun, may_commit = again(table), Event(), Event()

    def late() -> Any:
        def wait() -> None:
            begun.set()
            assert may_commit.wait(300)

        return run(old._handle, racing(Upsert(frame(spark, [(77, "a", 1)], DDL)), wait))

    def meanwhile(_other: IndexedTable) -> None:
        may_commit.set()
        assert upsert.result(
            300
        ).committed  # key 77 was nowhere when it was looked for, and the index knows of no other

    with ThreadPoolExecutor(1) as pool:
        upsert: Future[Any] = pool.submit(late)
        assert begun.wait(300)
        table.create_index("key", "record")
        with pytest.raises(errors.ConcurrentWrite, match=r"id=77 in 'p=a'.*Nothing was changed"):
            go(table, Insert(frame(spark, [(77, "b", 2)], DDL)), meanwhile)

    with pytest.raises(errors.KeysExist):
        again(table).insert(frame(spark, [(77, "b", 2)], DDL))
    table = again(table)
    table.upsert(frame(spark, [(77, "b", 3)], DDL))
    assert rows(table) == [(1, "a", 0), (77, "b", 3)]
    table.refresh_index("key")
    assert table.verify("key").ok


@pytest.mark.by_turn(1)
def test_a_write_is_refused_if_the_index_that_it_asked_was_made_anew_over_its_keys(spark: Any, make: Make) -> None:
    table = make([(1, "a", 0)], indexed=True)

    def meanwhile(other: IndexedTable) -> None:
        other.drop_index("key")
        other.upsert(frame(spark, [(77, "b", 1)], DDL))
        other.create_index("key", "record")

    write: Action = Upsert(frame(spark, [(77, "a", 2), (5, "c", 2)], DDL))
    with pytest.raises(errors.ConcurrentWrite, match="id=77 in 'p=b'"):
        go(table, write, meanwhile)
    assert rows(table) == [(1, "a", 0), (77, "b", 1)]


RELYING: dict[str, Callable[[Any], Action]] = {
    "moves a row": lambda spark: Upsert(frame(spark, [(1, "b", 9)], DDL)),
    "keeps one of two rows of a key": lambda spark: Upsert(frame(spark, [(5, "a", 9), (5, "b", 9)], DDL)),
    "takes a row out of a partition beside those overwritten": lambda spark: InsertOverwrite(
        frame(spark, [(1, "b", 9)], DDL)
    ),
    "deletes in another partition than the one given": lambda spark: Delete(
        frame(spark, [(1, "b")], "id bigint, p string")
    ),
}


@pytest.mark.parametrize("what", RELYING)
@pytest.mark.by_turn(16)
def test_a_write_that_relied_on_keys_being_unique_is_refused_once_the_index_is_dropped(
    spark: Any, make: Make, what: str
) -> None:
    table = make([(1, "a", 0), (2, "b", 0)], indexed=True)

    with pytest.raises(errors.ConcurrentWrite, match=r"'key'.*dropped.*Nothing was changed"):
        go(table, RELYING[what](spark), lambda other: other.drop_index("key"))
    assert rows(table) == [(1, "a", 0), (2, "b", 0)]


def test_a_delete_by_a_predicate_does_not_rely_on_the_index(spark: Any, make: Make) -> None:
    table = make([(1, "a", 0), (2, "b", 0)], indexed=True)

    go(table, Delete("id = 1"), lambda other: other.drop_index("key"))
    assert rows(table) == [(2, "b", 0)]


@pytest.mark.by_turn(4)
def test_an_index_of_unique_keys_becomes_active_only_when_it_tells_of_all_rows(spark: Any, make: Make) -> None:
    table = make([(1, "a", 0), (2, "a", 0)])

    # What lands behind the last round, too, is looked at before the index becomes active.
    with pytest.raises(errors.VerificationFailed, match=r"id=1 in .*delete_repeated_keys"):
        go(table, CreateIndex("key", "record"), lambda other: other.upsert(frame(spark, [(1, "b", 9)], DDL)))
    assert again(table).indexes == {}

    again(table).delete("id = 1 AND p = 'b'")
    after = go(table, CreateIndex("key", "record"), lambda other: other.upsert(frame(spark, [(4, "c", 1)], DDL)))
    assert after.indexes["key"].lagging == 0 and after.verify("key").ok
    assert after.history()[-1].metrics["rounds"] == 2


KEPT = {"commit": [(1, "b", 3), (2, "a", 5), (3, "b", 0)], "ordering": [(1, "a", 7), (2, "a", 5), (3, "b", 0)]}


@pytest.mark.parametrize("merge_by", KEPT)
def test_of_a_key_in_two_partitions_the_row_is_kept_that_merging_would_have_kept(
    spark: Any, make: Make, merge_by: str
) -> None:
    first, second = [(1, "a", 7), (2, "b", 1)], [(1, "b", 3), (2, "a", 5), (3, "b", 0)]
    table = make(first, second, ordering_column="n", merge_by=merge_by)
    with pytest.raises(errors.VerificationFailed, match="delete_repeated_keys"):
        table.create_index("key", "record")
    table.create_index("by_n", "secondary", ["n"])

    assert table.delete_repeated_keys().metrics["tombstones"] == 2
    assert rows(table) == KEPT[merge_by]
    assert table.delete_repeated_keys().version is None
    table.create_index("key", "record")
    assert table.verify("key").ok and table.verify("by_n").ok


@pytest.mark.by_turn(4)
def test_an_index_over_keys_that_a_restore_brought_into_two_partitions_is_mended(spark: Any, make: Make) -> None:
    table = make([(1, "a", 7), (2, "a", 1)], [(1, "b", 3)], [(2, "c", 4)])
    before = table.version
    table.delete_repeated_keys()
    table.create_index("key", "record")
    table.restore(before)
    with pytest.raises(errors.VerificationFailed):
        table.refresh_index("key")

    # One row by hand: the other one of its key is found as before.
    table.delete("id = 2 AND p = 'c'")
    job = Job("write_table", table.uri, {"batches": [{"operation": "delete_repeated_keys"}]}, txn_id="mend")
    assert write_table(spark, job).metrics["tombstones"] == 1
    assert write_table(spark, job).txn_id == "mend"
    table = again(table)
    assert rows(table) == [(1, "b", 3), (2, "a", 1)]
    assert table.indexes["key"].lagging == 0 and table.verify("key").ok
    table.upsert(frame(spark, [(1, "c", 8), (2, "c", 8)], DDL))
    assert rows(table) == [(1, "c", 8), (2, "c", 8)]
