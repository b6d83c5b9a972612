"""Actions that race: another commit lands between the work of one and its own commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.actions.bucket_rules import NewRules
from spark_apps.actions.compact_table import CompactTable
from spark_apps.actions.indexing import RefreshIndex
from spark_apps.actions.rescale import Rescale
from spark_apps.actions.write import Delete, Insert, InsertOverwrite, Upsert
from spark_apps.jobs.job import Job
from spark_apps.programs.refresh_index import refresh_index
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.frames import frame
from tests.spark_apps.racing import go
from tests.spark_apps.small_tables import Prepared

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

DDL = "id bigint, p string, v string"


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], ["p"], buckets=1)
    made.upsert(batch(spark, range(10), "a", "old"))
    made.upsert(batch(spark, range(5), "a", "new"))


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


def batch(spark: Any, ids: Any, p: str, v: str) -> Any:
    return frame(spark, [(n, p, v) for n in ids], DDL)


def values(table: IndexedTable) -> dict[int, str]:
    return {row.id: row.v for row in table.read().collect()}


def test_rows_written_during_a_compaction_stay_on_top_of_it(spark: Any, table: IndexedTable) -> None:
    def meanwhile(other: IndexedTable) -> None:
        other.upsert(batch(spark, [1], "a", "newest"))
        other.delete("id = 2")

    after = go(table, CompactTable("full"), meanwhile)

    expected = {**dict.fromkeys(range(10), "old"), **dict.fromkeys(range(5), "new"), 1: "newest"}
    del expected[2]
    assert values(after) == expected
    base, *deltas = after._state.groups(DATA_TREE)["p=a", "0"]
    assert (base.kind, base.sequence_number, len(deltas)) == ("base", 2, 2)
    after.compact()
    assert values(after) == expected


def test_a_compaction_meeting_another_is_refused(table: IndexedTable) -> None:
    with pytest.raises(errors.ConcurrentWrite, match="Nothing was changed"):
        go(table, CompactTable("full"), lambda other: other.compact())


def test_two_upserts_of_one_key_both_commit_and_the_later_stands(spark: Any, table: IndexedTable) -> None:
    after = go(
        table,
        Upsert(batch(spark, [1], "a", "second")),
        lambda other: other.upsert(batch(spark, [1], "a", "first")),
    )

    assert values(after)[1] == "second"


@pytest.mark.by_turn(1)
def test_two_inserts_of_one_new_key_do_not_both_commit(spark: Any, table: IndexedTable) -> None:
    rows = batch(spark, [77], "a", "x")

    with pytest.raises(errors.ConcurrentWrite):
        go(table, Insert(rows), lambda other: other.insert(rows))


@pytest.mark.by_turn(1)
def test_a_delete_by_predicate_does_not_remove_a_row_that_no_longer_matches(spark: Any, table: IndexedTable) -> None:
    with pytest.raises(errors.ConcurrentWrite):
        go(table, Delete("v = 'old'"), lambda other: other.upsert(batch(spark, [7], "a", "changed")))


def test_an_overwrite_meeting_rows_of_its_partition_is_refused_and_of_another_is_not(
    spark: Any, table: IndexedTable
) -> None:
    rows = batch(spark, [1], "a", "over")

    with pytest.raises(errors.ConcurrentWrite):
        go(table, InsertOverwrite(rows), lambda other: other.upsert(batch(spark, [3], "a", "x")))
    after = go(table, InsertOverwrite(rows), lambda other: other.upsert(batch(spark, [3], "b", "x")))

    assert values(after) == {1: "over", 3: "x"}


def test_a_copy_on_write_meeting_another_of_the_same_group_is_refused(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "cow", DDL, ["id"], buckets=1, write_mode="copy_on_write")
    table.upsert(batch(spark, range(3), "a", "old"))

    with pytest.raises(errors.ConcurrentWrite):
        go(table, Upsert(batch(spark, [1], "a", "x")), lambda other: other.upsert(batch(spark, [2], "a", "y")))


def rescaled(table: IndexedTable, buckets: int) -> None:
    """Rescales in a window of the caller's, who does not wait for writers from before it."""
    window = table.open_window("impatient")
    table.rescale(buckets=buckets, window=window.epoch)
    table.close_window(window.epoch)


def test_a_writer_with_another_bucket_count_is_refused(spark: Any, table: IndexedTable) -> None:
    with pytest.raises(errors.ConcurrentWrite, match="Nothing was changed"):
        go(table, Upsert(batch(spark, [1], "a", "x")), lambda other: rescaled(other, 3))
    with pytest.raises(errors.ConcurrentWrite):
        go(table, Upsert(batch(spark, [1], "new", "x")), lambda other: rescaled(other, 4))

    assert {path: info.buckets for path, info in IndexedTable.load(spark, table.uri).partitions.items()} == {"p=a": 4}


def test_new_rules_while_a_partition_is_made_by_the_old_ones_are_refused(spark: Any, table: IndexedTable) -> None:
    with pytest.raises(errors.CommitRefused):
        go(
            table,
            Rescale(NewRules(buckets=1, expressions="p=z,7")),
            lambda other: other.rescale(buckets=1, bucket_expressions="p=z,5"),
        )


def test_a_compaction_of_several_partitions_leaves_out_the_one_that_was_replaced_meanwhile(
    spark: Any, table: IndexedTable
) -> None:
    for value in ("old", "new"):
        table.upsert(batch(spark, range(20, 25), "b", value))

    after = go(table, CompactTable("full"), lambda other: other.insert_overwrite(batch(spark, [1], "a", "over")))

    assert values(after) == {1: "over", **dict.fromkeys(range(20, 25), "new")}
    [compacted] = [entry for entry in after.history() if entry.operation == "compact"]
    assert (compacted.metrics["groups"], compacted.metrics["groups_left"]) == (1, 1)
    assert {key: len(files) for key, files in after._state.groups(DATA_TREE).items()} == {
        ("p=a", "0"): 1, ("p=b", "0"): 1,
    }  # fmt: skip


def test_a_compaction_that_meets_a_window_over_a_partition_folds_the_others(spark: Any, table: IndexedTable) -> None:
    for value in ("old", "new"):
        table.upsert(batch(spark, range(20, 25), "b", value))

    after = go(table, CompactTable("full"), lambda other: other.open_window("somebody", ["p=a"]))

    assert {key: len(files) for key, files in after._state.groups(DATA_TREE).items()} == {
        ("p=a", "0"): 2, ("p=b", "0"): 1,
    }  # fmt: skip


KINDS = {
    "secondary": {"columns": ["v"]},
    "compact": {"columns": ["v"]},
    "covering": {"columns": ["v"], "included": ["id"]},
    "skipping": {"columns": ["minmax(id)"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_refreshes_of_one_index_over_other_partitions_both_commit_and_the_index_agrees(
    spark: Any, table: IndexedTable, kind: str
) -> None:
    table.create_index("i", kind=kind, deferred=True, **KINDS[kind])
    table.refresh_index("i")
    for path in "abc":
        table.upsert(batch(spark, range(20, 25), path, path))

    after = go(
        table,
        RefreshIndex("i", partitions=["p=a", "p=b"]),
        lambda other: other.refresh_index("i", partitions=["p=c"]),
    )

    assert not after._state.index("i").lag
    assert after.verify("i").ok
    assert {row.id for row in after.read(where="v = 'b'").collect()} == set(range(20, 25))


def test_refreshes_that_share_a_partition_or_take_entries_away_do_not_go_together(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_index("i", kind="secondary", columns=["v"], deferred=True)
    table.refresh_index("i")
    table.upsert(batch(spark, range(20, 25), "b", "b"))
    table.delete("id = 1")
    for path, other in (("p=b", "p=b"), ("p=a", "p=b"), ("p=b", None)):
        with pytest.raises(errors.ConcurrentWrite):
            go(
                IndexedTable.load(spark, table.uri),
                RefreshIndex("i", mode="full", partitions=[path]),
                lambda meanwhile, other=other: meanwhile.refresh_index(
                    "i", mode="full", partitions=None if other is None else [other, "p=a"]
                ),
            )

    # A task begins again on what the other has committed.
    table.delete("id = 2")
    work, met = RefreshIndex.work, []

    def overtaken(self: RefreshIndex, attempt: Any) -> Any:
        done = work(self, attempt)
        if not met:
            met.append(True)
            IndexedTable.load(spark, table.uri).refresh_index("i", mode="full")
        return done

    monkeypatch.setattr(RefreshIndex, "work", overtaken)
    job = Job("refresh_index", table.uri, {"name": "i", "mode": "full", "partitions": ["p=a"]}, txn_id="task")
    assert refresh_index(spark, job).version is not None and met
    assert IndexedTable.load(spark, table.uri).verify("i").ok


def test_a_compaction_of_some_partitions_leaves_the_others_and_its_plan_says_what_it_would_read(
    spark: Any, table: IndexedTable
) -> None:
    for _ in range(2):
        table.upsert(batch(spark, [1, 2], "b", "b"))
    version = table.version

    plan = table.compact(where="p >= 'b' AND id = 1", plan_only=True)
    assert [(one.partition, one.files) for one in plan.partitions] == [("p=b", 2)] and plan.bytes > 0
    assert plan.to_dict()["files"] == 2 and IndexedTable.load(spark, table.uri).version == version
    assert table.compact(where="p = 'c'").version is None
    table.compact(where="p >= 'b'")
    groups = table._state.groups(DATA_TREE)
    assert len(groups["p=b", "0"]) == 1 and len(groups["p=a", "0"]) == 2
    with pytest.raises(errors.InvalidInput, match="nope"):
        table.compact(where="nope = 1")
    with pytest.raises(errors.InvalidInput, match="as a whole"):
        table.compact("i", plan_only=True)
