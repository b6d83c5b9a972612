"""Stages of a transaction by Spark: a write and the indexes made from it appear in one commit, and are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.actions.template import Stage
from spark_apps.storage.errors import ConcurrentWrite, InvalidInput, StageMismatch
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import partition_scope
from spark_apps.timeline.transactions import Transaction, begin, resume
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id bigint, p string, v string"


def batch(spark: Any, ids: Any, p: str, v: str) -> Any:
    return frame(spark, [(n, p, v) for n in ids], DDL)


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], ["p"], buckets=2)
    made.upsert(batch(spark, range(10), "a", "old"))
    made.upsert(batch(spark, range(10, 20), "b", "old"))
    made.create_index("kept", kind="secondary", columns=["v"])


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


def add_deferred(table: IndexedTable, *kinds: str) -> None:
    for kind in kinds:
        table.create_index(kind, kind=kind, columns=["v"], deferred=True)
        table.refresh_index(kind)


class Txn:
    """One transaction on a table, each stage by a table object of its own, as if by a process of its own."""

    def __init__(self, table: IndexedTable, *stages: str, **options: Any) -> None:
        self.table = table
        timeline = Timeline.load(table._handle.timeline.store)
        self.begun = begin(timeline, operation="transaction", stages=stages, **options)

    def stage(self, name: str, after: tuple[str, ...] = (), leave: tuple[str, ...] = ()) -> IndexedTable:
        loaded = IndexedTable.load(self.table._handle.spark, self.table.uri)
        return loaded.in_stage(Stage(self.begun.txn_id, self.begun.attempt, name, after, leave))

    @property
    def resumed(self) -> Transaction:
        timeline = Timeline.load(self.table._handle.timeline.store)
        return resume(timeline, self.begun.txn_id, self.begun.attempt)


def now(table: IndexedTable) -> IndexedTable:
    return IndexedTable.load(table._handle.spark, table.uri)


def values(table: IndexedTable) -> dict[int, str]:
    return {row.id: row.v for row in now(table).read().collect()}


def in_step(table: IndexedTable, *names: str) -> None:
    """Each index covers everything and agrees with a full scan."""
    loaded = now(table)
    for name in names:
        assert loaded._state.indexes[name].lag == {}, name
        report = loaded.verify(name)
        assert report.ok, (name, report)


def test_given_a_write_and_indexes_made_from_it_when_committed_then_all_appear_at_once_and_are_right(
    spark: Any, table: IndexedTable
) -> None:
    add_deferred(table, "secondary", "covering", "compact")
    before = values(table)
    txn = Txn(table, "write", "kept", "secondary", "covering", "compact", "fresh")
    receipt = txn.stage("write", leave=("kept",)).upsert(batch(spark, range(5, 25), "a", "new"))
    assert receipt.version is None and receipt.metrics["stage"] == "write"
    made_from = ("write",)
    txn.stage("kept", made_from).refresh_index("kept")
    txn.stage("secondary", made_from).refresh_index("secondary")
    txn.stage("covering", made_from).refresh_index("covering")
    txn.stage("compact", made_from).refresh_index("compact")
    txn.stage("fresh", made_from).create_index("fresh", kind="secondary", columns=["v"])
    assert values(table) == before

    # Another writer writes another partition meanwhile, and refreshes an index.
    now(table).upsert(batch(spark, [10, 30], "b", "other"))
    now(table).refresh_index("secondary")
    committed = txn.resumed.commit()

    assert committed.operation == "transaction"
    assert committed.metrics["write.rows"] == 20
    loaded = now(table)
    assert loaded.version == committed.version
    assert {row.id for row in loaded.read(where="v = 'new'").collect()} == set(range(5, 25))
    in_step(table, "kept", "secondary")
    by_name = {name: set(loaded._state.indexes[name].lag) for name in ("covering", "compact", "fresh")}
    for name, lag in by_name.items():
        assert {partition for partition, _ in lag} <= {"p=b"}, (name, lag)
    now(table).refresh_index("compact")
    now(table).refresh_index("fresh")
    in_step(table, "compact", "fresh")


def test_given_an_overwrite_that_leaves_an_index_when_its_refresh_is_staged_too_then_old_values_are_gone(
    spark: Any, table: IndexedTable
) -> None:
    add_deferred(table, "covering")
    txn = Txn(table, "write", "refresh", "covering")
    txn.stage("write", leave=("kept",)).insert_overwrite(batch(spark, [1, 100], "a", "over"))
    txn.stage("refresh", ("write",)).refresh_index("kept")
    txn.stage("covering", ("write",)).refresh_index("covering")
    txn.resumed.commit()

    in_step(table, "kept", "covering")
    assert [row.id for row in now(table).read(where="v = 'old' AND p = 'a'").collect()] == []


def test_given_an_index_that_lagged_before_when_staged_after_a_write_then_its_partitions_are_caught_up(
    spark: Any, table: IndexedTable
) -> None:
    add_deferred(table, "secondary")
    table.upsert(batch(spark, [1, 2], "a", "lagging"))
    table.upsert(batch(spark, [11], "b", "lagging"))
    txn = Txn(table, "write", "refresh")
    txn.stage("write").delete("id = 1")
    txn.stage("refresh", ("write",)).refresh_index("secondary")
    txn.resumed.commit()

    assert {group[0] for group in now(table)._state.indexes["secondary"].lag} == {"p=b"}
    now(table).refresh_index("secondary")
    in_step(table, "secondary", "kept")


def test_given_rows_of_the_staged_file_groups_changed_meanwhile_when_committed_then_it_is_refused(
    spark: Any, table: IndexedTable
) -> None:
    txn = Txn(table, "write", "refresh")
    txn.stage("write", leave=("kept",)).upsert(batch(spark, range(10), "a", "new"))
    txn.stage("refresh", ("write",)).refresh_index("kept")
    now(table).upsert(batch(spark, [3], "a", "raced"))

    with pytest.raises(ConcurrentWrite):
        txn.resumed.commit()
    assert values(table)[3] == "raced" and values(table)[4] == "old"
    in_step(table, "kept")


def test_given_a_stage_tried_again_when_committed_then_what_was_made_from_the_first_try_is_refused_until_made_again(
    spark: Any, table: IndexedTable
) -> None:
    txn = Txn(table, "write", "refresh")
    txn.stage("write", leave=("kept",)).upsert(batch(spark, range(3), "a", "first"))
    txn.stage("refresh", ("write",)).refresh_index("kept")
    txn.stage("write", leave=("kept",)).upsert(batch(spark, range(3), "a", "second"))
    with pytest.raises(StageMismatch, match=r"'refresh' .* another try of stage 'write'.*clear the task that began"):
        txn.resumed.commit()

    txn.stage("refresh", ("write",)).refresh_index("kept")
    txn.resumed.commit()

    assert values(table)[0] == "second"
    in_step(table, "kept")


def test_what_does_not_go_together_is_refused_with_both_stages_named(spark: Any, table: IndexedTable) -> None:
    txn = Txn(table, "one", "two")
    txn.stage("one").upsert(batch(spark, range(4), "a", "one"))
    txn.stage("two").upsert(batch(spark, range(4), "a", "two"))
    with pytest.raises(StageMismatch, match=r"'one' and 'two' .* both write bucket p=a/"):
        txn.resumed.commit()

    txn.stage("two", leave=("kept",)).upsert(batch(spark, range(10, 14), "b", "two"))
    with pytest.raises(StageMismatch, match=r"'one' and 'two' .* keeps the index 'kept' in step"):
        txn.resumed.commit()

    txn.stage("two").upsert(batch(spark, range(10, 14), "b", "two"))
    assert txn.resumed.commit().version is not None
    in_step(table, "kept")


def test_what_cannot_be_a_stage_is_refused_and_says_why(spark: Any, table: IndexedTable) -> None:
    txn = Txn(table, "one", "two", scopes=[partition_scope("p=a")])
    with pytest.raises(InvalidInput, match="commits by itself"):
        txn.stage("one").rescale(buckets=4)
    with pytest.raises(InvalidInput, match="drop_index cannot be a stage"):
        txn.stage("one").drop_index("kept")
    with pytest.raises(InvalidInput, match="cannot be a stage"):
        txn.stage("one").drop()
    with pytest.raises(InvalidInput, match="cannot be made from other stages"):
        txn.stage("one", ("two",)).upsert(batch(spark, [1], "a", "x"))
    with pytest.raises(StageMismatch, match="no stage 'three'"):
        txn.stage("three").upsert(batch(spark, [1], "a", "x"))
    txn.stage("one").upsert(batch(spark, [11], "b", "x"))
    txn.stage("two").compact(partitions=["p=a"])
    with pytest.raises(StageMismatch, match=r"'one' .* writes bucket p=b"):
        txn.resumed.commit()


def test_given_a_record_index_when_two_transactions_add_other_keys_then_both_commit_and_one_key_twice_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path / "unique", DDL, ["id"], ["p"], buckets=1)
    table.upsert(batch(spark, range(4), "a", "old"))
    table.create_index("keys", kind="record")
    first, second, third = (Txn(table, "write") for _ in range(3))
    with pytest.raises(InvalidInput, match="cannot be left"):
        first.stage("write", leave=("keys",)).upsert(batch(spark, [50], "a", "x"))
    first.stage("write").upsert(batch(spark, [100, 101], "b", "first"))
    second.stage("write").upsert(batch(spark, [200], "c", "second"))
    third.stage("write").upsert(batch(spark, [101], "d", "third"))
    first.resumed.commit()
    second.resumed.commit()
    with pytest.raises(ConcurrentWrite):
        third.resumed.commit()

    both = Txn(table, "one", "two")
    both.stage("one").upsert(batch(spark, [300], "e", "x"))
    both.stage("two").upsert(batch(spark, [300], "f", "y"))
    with pytest.raises(StageMismatch, match="one record key"):
        both.resumed.commit()
    in_step(table, "keys")


def test_given_a_source_with_new_files_when_two_indexes_are_refreshed_one_from_the_other_then_one_commit_has_both(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    batch(spark, range(10), "a", "old").write.parquet(str(folder / "p=a"))
    table = IndexedTable.register(spark, folder, format="parquet", index_root=tmp_path / "logs")
    for name in ("first", "second"):
        table.create_index(name, kind="secondary", columns=["v"], deferred=True)
        table.refresh_index(name)
    batch(spark, range(10, 20), "b", "new").write.parquet(str(folder / "p=b"))

    txn = Txn(table, "first", "second")
    txn.stage("first").refresh_index("first")
    txn.stage("second", ("first",)).refresh_index("second")
    txn.resumed.commit()

    state = Timeline.load(table._handle.timeline.store).head
    assert {name: entry.lag for name, entry in state.indexes.items()} == {"first": {}, "second": {}}
    assert now(table).verify("first").ok and now(table).verify("second").ok

    both = Txn(table, "first", "second")
    batch(spark, range(20, 30), "c", "newer").write.parquet(str(folder / "p=c"))
    for name in ("first", "second"):
        both.stage(name).refresh_index(name)
    with pytest.raises(StageMismatch, match=r"'first' and 'second' .* both write partition p=c"):
        both.resumed.commit()
