"""Builds while others write, what lands too late for a build, and the gates that an index passes before it is
active."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps import IndexedTable
from spark_apps.actions import indexing
from spark_apps.actions.indexing import CreateIndex
from spark_apps.actions.template import Attempt, StagedChanges, run
from spark_apps.actions.write import Insert, Upsert
from spark_apps.indexes import registry
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.keyed.secondary import SecondaryHandler
from spark_apps.storage.errors import ConcurrentWrite, IndexExists, KeysExist, VerificationFailed
from tests.spark_apps.indexes.support import DDL, Model, Row, entries, frame
from tests.spark_apps.small_tables import Prepared, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

COMMITS = 9
Make = Callable[..., IndexedTable]


def build(spark: Any, folder: Path, rows: tuple[Row, ...]) -> None:
    table = IndexedTable.create(spark, folder, DDL, ["id"], partition_by=["p"], buckets=1)
    table.upsert(frame(spark, list(rows)))


@pytest.fixture
def make(prepared: Prepared) -> Make:
    return lambda rows: prepared(build, tuple(rows))


class Writer(threading.Thread):
    """Another writer: loads the table for itself and commits, one upsert after another, until told to stop."""

    def __init__(self, spark: Any, uri: str, model: Model) -> None:
        super().__init__(daemon=True)
        self.spark, self.uri, self.model = spark, uri, model
        self.committed = threading.Semaphore(0)
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            table = IndexedTable.load(self.spark, self.uri)
            for number in range(COMMITS):
                # A row that is indexed already gets another value, and a new row comes.
                rows = [(number, "a", f"new {number}", number), (1000 + number, "b", "sfo", None)]
                if number % 7 == 6:
                    table.delete(frame(self.spark, [(50 + number,)], "id bigint"))
                    self.model.rows.pop(50 + number, None)
                else:
                    table.upsert(frame(self.spark, rows))
                    self.model.rows.update({row[0]: row for row in rows})
                self.committed.release()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test
            self.errors.append(error)
            for _ in range(COMMITS):
                self.committed.release()


@pytest.mark.slow
def test_given_commits_all_through_a_build_then_none_is_refused_and_the_index_agrees(spark: Any, make: Make) -> None:
    rows: list[Row] = [(i, "a", "aus" if i % 2 else None, i) for i in range(100)]
    table, model = make(rows), Model({row[0]: row for row in rows})
    writer = Writer(spark, table.uri, model)
    covered = []

    def wait(number: int, version: int) -> None:
        covered.append(version)
        for _ in range({1: 5, 2: 4}.get(number, 0)):
            writer.committed.acquire()

    writer.start()
    receipt = run(table._handle, CreateIndex("city", "secondary", ["city"], after_round=wait))
    writer.join(timeout=120)

    assert not writer.errors and not writer.is_alive()
    between = [
        entry.operation for entry in IndexedTable.load(spark, table.uri).history()[covered[0] + 1 : receipt.version]
    ]
    assert len(between) >= COMMITS - 1 and receipt.metrics["rounds"] >= 3
    table = IndexedTable.load(spark, table.uri)
    assert table.indexes["city"].lagging == 0
    assert sorted(entries(table, "city"), key=repr) == sorted(model.entries("city"), key=repr)
    assert rows_of(table, "city = 'new 3'") == model.where(lambda row: row[2] == "new 3")
    assert rows_of(table, "city = 'sfo' OR city IS NULL") == model.where(lambda row: row[2] in ("sfo", None))


@pytest.mark.by_turn(4)
def test_given_a_commit_after_the_last_round_then_it_is_scanned_until_a_refresh(
    spark: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make([(i, "a" if i < 5 else "b", "aus", i) for i in range(10)])
    other = IndexedTable.load(spark, table.uri)
    monkeypatch.setattr(indexing, "MAX_ROUNDS", 1)

    def write(_number: int, _version: int) -> None:
        other.upsert(frame(spark, [(1, "a", "sfo", 1), (2, "a", None, 2)]))

    run(table._handle, CreateIndex("city", "secondary", ["city"], after_round=write))

    table = IndexedTable.load(spark, table.uri)
    assert table.indexes["city"].lagging == 1
    assert [row[0] for row in rows_of(table, "city = 'sfo'")] == [1]
    assert [row[0] for row in rows_of(table, "city = 'aus'")] == [0, 3, 4, 5, 6, 7, 8, 9]
    assert table.explain("city = 'sfo'").groups_read == 1  # the lagging one; the other is pruned
    assert table.refresh_index("city", mode="quick").version is None
    table.refresh_index("city")
    assert table.indexes["city"].lagging == 0
    assert {row[:2] for row in entries(table, "city")} == {
        ("sfo", 1),
        (None, 2),
        *(("aus", i) for i in (0, *range(3, 10))),
    }
    assert table.verify("city").ok
    assert table.refresh_index("city").version is None


def test_given_a_restore_while_an_index_is_built_then_it_is_refused_and_may_be_built_again(
    spark: Any, make: Make
) -> None:
    table = make([(i, "a", "aus", i) for i in range(4)])
    before = table.version
    table.upsert(frame(spark, [(1, "a", "sfo", 1), (9, "a", "sfo", 9)]))

    def restore(number: int, _version: int) -> None:
        if number == 1:
            IndexedTable.load(spark, table.uri).restore(before)

    with pytest.raises(ConcurrentWrite, match=f"restored version {before} while index city was built"):
        run(table._handle, CreateIndex("city", "secondary", ["city"], after_round=restore))

    table = IndexedTable.load(spark, table.uri)
    assert not table.indexes
    table.create_index("city", "secondary", ["city"])
    assert table.verify("city").ok and {row[:2] for row in entries(table, "city")} == {("aus", i) for i in range(4)}


class Lossy(SecondaryHandler):
    """Loses entries without noticing, as a broken kind might."""

    kind: ClassVar[str] = "lossy"

    def _entries_of(self, context: IndexContext, groups: Any) -> DataFrame:
        return super()._entries_of(context, groups).where(F.col("id") % 4 != 0)


def test_given_a_build_that_loses_rows_then_the_index_is_refused_with_both_figures(
    spark: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make([(i, "a", "aus", i) for i in range(10)])
    monkeypatch.setattr(registry._KINDS, "_loaded", {})
    registry.register(Lossy())

    with pytest.raises(VerificationFailed, match=r"7 entries for 10 rows.*Nothing was changed"):
        table.create_index("city", "lossy", ["city"])

    assert IndexedTable.load(spark, table.uri).indexes == {}


def test_given_a_key_in_two_partitions_then_a_record_index_is_refused_with_examples(spark: Any, make: Make) -> None:
    table = make([(1, "a", None, 0), (2, "a", None, 0), (2, "b", None, 0)])

    with pytest.raises(VerificationFailed, match=r"such as id=2 in 'p=a' and 'p=b'.*Nothing was changed"):
        table.create_index("rec", "record")

    assert table.indexes == {}
    table.delete(frame(spark, [(2, "b")], "id bigint, p string"))
    assert table.create_index("rec", "record").metrics["entries"] == 2


class _Overtaken(Upsert):
    """A write that others overtake: they commit after it has staged its work, and before it commits."""

    def __init__(self, rows: DataFrame, meanwhile: Callable[[], object]) -> None:
        super().__init__(rows)
        self.meanwhile = meanwhile

    def work(self, attempt: Attempt) -> StagedChanges | None:
        done = super().work(attempt)
        self.meanwhile()
        return done


class Overtaken(_Overtaken, Insert):
    pass


def test_given_a_record_index_then_of_two_that_add_one_key_in_two_partitions_the_second_is_refused(
    spark: Any, make: Make
) -> None:
    table = make([(1, "a", None, 0)])
    table.create_index("rec", "record")
    other = IndexedTable.load(spark, table.uri)

    with pytest.raises(ConcurrentWrite, match="shard"):
        insert = frame(spark, [(7, "a", None, 0)])
        run(table._handle, Overtaken(insert, lambda: other.insert(frame(spark, [(7, "b", None, 0)]))))
    # Other keys of the same shard do not stand in the way.
    run(
        table._handle,
        Overtaken(frame(spark, [(8, "c", None, 0)]), lambda: other.insert(frame(spark, [(9, "d", None, 0)]))),
    )

    table = IndexedTable.load(spark, table.uri)
    assert [row[:2] for row in rows_of(table)] == [(1, "a"), (7, "b"), (8, "c"), (9, "d")]
    assert {row[0] for row in entries(table, "rec")} == {1, 7, 8, 9}
    with pytest.raises(KeysExist, match="id=8"):
        table.insert(frame(spark, [(8, "elsewhere", None, 0)]))


class LateUpsert(_Overtaken):
    pass


def test_given_a_writer_from_before_an_index_then_it_commits_and_its_file_groups_are_scanned(
    spark: Any, make: Make
) -> None:
    table = make([(1, "a", "aus", 0), (2, "b", "aus", 0)])
    other = IndexedTable.load(spark, table.uri)

    run(table._handle, LateUpsert(frame(spark, [(1, "a", "sfo", 0)]),
                                  lambda: other.create_index("city", "secondary", ["city"])))  # fmt: skip

    table = IndexedTable.load(spark, table.uri)
    assert table.indexes["city"].lagging == 1
    assert rows_of(table, "city = 'sfo'") == [(1, "a", "sfo", 0)]
    assert rows_of(table, "city = 'aus'") == [(2, "b", "aus", 0)]


def test_given_a_writer_from_before_a_record_index_then_it_cannot_bring_a_key_into_a_second_partition(
    spark: Any, make: Make
) -> None:
    table = make([(1, "a", "aus", 0), (2, "b", "aus", 0)])
    other = IndexedTable.load(spark, table.uri)
    other.create_index("rec", "record")

    def late(rows: list[Row]) -> None:
        table = IndexedTable.load(spark, other.uri)
        table.drop_index("rec")
        run(table._handle, LateUpsert(frame(spark, rows), lambda: other.create_index("rec", "record")))

    with pytest.raises(ConcurrentWrite, match="id=2 in 'p=b'"):
        late([(2, "a", "sfo", 0)])
    late([(2, "b", "sfo", 0), (3, "a", None, 0)])

    table = IndexedTable.load(spark, table.uri)
    assert rows_of(table) == [(1, "a", "aus", 0), (2, "b", "sfo", 0), (3, "a", None, 0)]
    assert table.indexes["rec"].lagging == 2
    # What is not covered is looked at by writers too.
    table.upsert(frame(spark, [(3, "b", None, 1)]))
    assert rows_of(table, "id = 3") == [(3, "b", None, 1)]
    table.refresh_index("rec")
    assert sorted(entries(table, "rec")) == [(1, "p=a"), (2, "p=b"), (3, "p=b")]


def test_given_two_builds_of_one_name_at_once_then_one_is_refused(spark: Any, make: Make) -> None:
    table = make([(1, "a", "aus", 0)])
    other = IndexedTable.load(spark, table.uri)

    def overtake(_number: int, _version: int) -> None:
        other.create_index("city", "secondary", ["n"])

    with pytest.raises((IndexExists, ConcurrentWrite)):
        run(table._handle, CreateIndex("city", "secondary", ["city"], after_round=overtake))

    assert IndexedTable.load(spark, table.uri).indexes["city"].columns == ("n",)
