"""Indexes damaged on purpose, by commits that look like any other: what ``verify`` says of each, and that a repair
mends it in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.block import compact
from spark_apps.indexes.covering import index_files
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.indexes.lineage import entry_files
from spark_apps.indexes.registry import find
from spark_apps.jobs.job import Job
from spark_apps.mergetree.read import read_files
from spark_apps.programs.verify_index import verify_index
from spark_apps.timeline.model import AddFile, RemoveFile, Write, definition_scope
from spark_apps.timeline.transactions import begin
from tests.differential.session import small
from tests.spark_apps.frames import frame

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

DDL = "id bigint, p string, city string, n int"
ROWS, STALE = 40, 3


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: Any) -> Iterator[None]:
    """Comparing a few rows takes less than compiling the comparison."""
    with small(spark, compiled=False):
        yield


@pytest.fixture(scope="module")
def made(interpreted: None, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """A table with an index of each kind over everything; the lazy one keeps three entries of old values."""
    path: Path = tmp_path_factory.mktemp("verify") / "table"
    table = IndexedTable.create(spark, path, DDL, ["id"], partition_by=["p"], buckets=1)
    table.upsert(frame(spark, [(i, "ab"[i % 2], f"c{i % 4}", i) for i in range(ROWS)], DDL))
    table.create_index("rec", "record")
    table.create_index("eager", "secondary", ["city"])
    table.create_index("lazy", "secondary", ["city"], properties={"tombstones": "lazy"})
    table.upsert(frame(spark, [(i, "ab"[i % 2], "moved", i) for i in (1, 2, 3)], DDL))
    table.compact()
    table.create_index("sharded", "secondary", ["n"], properties={"shards": "2"})
    table.create_index("blocks", "compact", ["city"])
    table.create_index(
        "cov", "covering", ["city"], included=IncludedColumns(include=["n"]), properties={"buckets": "2"}
    )
    return table


FAULTS = ("missing", "too_many", "wrong_partition", "wrong_values", "wrong_shard")


def spoil(table: IndexedTable, name: str, change: Callable[[DataFrame], DataFrame], move: bool = False) -> None:
    """Commits other entries in place of those of an index; with ``move`` those of one bucket as the other's."""
    snapshot, definition = table.snapshot, table.indexes[name].definition
    transaction = begin(table._handle.timeline, operation="spoil")
    context = IndexContext(snapshot, definition, transaction.index_folder(name, "spoiled"))
    old = entry_files(snapshot.state.files(definition.tree))
    added: list[AddFile]
    if definition.kind == "compact":
        tree = compact.entry_tree(snapshot.table, definition)
        entries = change(read_files(snapshot, tree, old, tree.columns))
        added = compact.stage_entries(context, tree, entries, compact.index_partitions_of(old), 40)
    elif definition.kind == "covering":
        columns, stages = index_files.columns_of(old[0]), {}
        for group in map(str, range(definition.shards)):
            stages[group] = set().union(*(index_files.stages_of(file) for file in old))
        paths = [snapshot.store.spark_path(file.path) for file in old]
        rows = change(snapshot.spark.read.parquet(*paths))
        added = index_files.stage_entries(context, rows, columns, "entries", stages)
    else:
        handler: Any = find(definition.kind)
        tree = handler.tree(snapshot.table, definition)
        added = handler._stage(context, tree, change(handler.entries(context)), "base", snapshot.state.version)
    if move:
        added = [replace(action, group=str(1 - int(action.group))) for action in added]
    removed = [RemoveFile(file.tree, file.path) for file in old]
    table._moved_to(transaction.commit([*removed, *added], writes=[Write(definition_scope(name), "fold")]))


def check(
    table: IndexedTable, name: str, change: Callable[[DataFrame], DataFrame], move: bool = False, **wrong: int
) -> None:
    """Spoil an index that is sound, compare what ``verify`` counts (and that what is not named is 0), and repair it."""
    stale = STALE if name == "lazy" else 0
    spoil(table, name, change, move)
    report = table.verify(name)
    counted = {fault: getattr(report, fault) for fault in FAULTS}
    expected = dict.fromkeys(counted, 0) | {fault: n for fault, n in wrong.items() if fault != "stale"}
    assert counted == expected, report
    assert report.stale == wrong.get("stale", stale)
    assert report.ok == (not any(expected.values()))
    assert {d.fault.replace(" ", "_") for d in report.differences} == {fault for fault, n in expected.items() if n}
    version = table.version
    mended = table.verify(name, repair=True)
    if report.ok:
        assert mended.repaired is None and table.version == version
        return
    assert mended.repaired == table.version == version + 1
    after = table.verify(name)
    assert after.ok and after.rows == ROWS and not after.stale, after


def _more(frame: DataFrame, where: str, **columns: str) -> DataFrame:
    """The frame with copies of some rows in which columns are others."""
    copies = frame.where(where)
    return frame.unionByName(copies.withColumns({name: F.expr(text) for name, text in columns.items()}))


def _other(frame: DataFrame, where: str, **columns: str) -> DataFrame:
    """The frame with other columns in some rows."""
    return frame.withColumns({n: F.expr(f"IF({where}, {text}, {n})") for n, text in columns.items()})


def test_given_a_record_index_that_lacks_invents_and_misplaces_a_key_then_each_is_found(made: IndexedTable) -> None:
    def change(entries: DataFrame) -> DataFrame:
        more = _more(entries.where("id <> 4"), "id = 5", id="900L")
        return _other(more, "id = 6", **{PARTITION: "'p=b'"})

    check(made, "rec", change, missing=1, too_many=1, wrong_partition=1)


def test_given_a_secondary_index_with_wrong_entries_then_each_is_found(made: IndexedTable) -> None:
    def change(entries: DataFrame) -> DataFrame:
        more = _more(entries.where("id <> 4"), "id = 5", city="'elsewhere'")
        return _other(more, "id = 6", **{PARTITION: "'p=b'"})

    # The place is part of what tells its entries apart: one that is misplaced is one that is missing and one too many.
    check(made, "eager", change, missing=2, too_many=2)


@pytest.mark.by_turn(4)
def test_given_entries_in_a_shard_in_which_no_lookup_reads_then_they_are_found(made: IndexedTable) -> None:
    check(made, "sharded", lambda entries: entries, move=True, wrong_shard=40)

    assert [row.id for row in made.read("n = 7").collect()] == [7]
    assert made.explain("n = 7").index_used == "sharded"


def test_given_lazy_tombstones_then_entries_of_old_values_are_counted_and_only_missing_ones_are_wrong(
    made: IndexedTable,
) -> None:
    report = made.verify("lazy")
    assert report.ok and report.stale == STALE and report.entries == report.rows + 3
    check(made, "lazy", lambda entries: _more(entries, "id = 5", city="'elsewhere'"), stale=4)
    check(made, "lazy", lambda entries: entries.where("id <> 4"), missing=1, stale=4)


def test_given_a_compact_index_with_a_value_too_few_too_many_misplaced_and_miscounted_then_each_is_found(
    made: IndexedTable,
) -> None:
    rows, block = compact.ROWS, compact.BLOCK

    def change(entries: DataFrame) -> DataFrame:
        more = _more(entries.where("NOT (city = 'c0')"), "city = 'c1'", city="'elsewhere'")
        return _other(_other(more, "city = 'c2'", **{rows: f"{rows} + 1"}), "city = 'c3'", **{block: f"{block} + 1"})

    # Each of these values stands in one block.
    check(made, "blocks", change, missing=2, too_many=2, wrong_values=1)


def test_given_a_covering_index_with_rows_too_few_too_many_altered_and_in_another_bucket_then_each_is_found(
    made: IndexedTable,
) -> None:
    def change(entries: DataFrame) -> DataFrame:
        more = _more(entries.where("id <> 4"), "id = 5", id="900L")
        return _other(more, "id = 6", n="77")

    check(made, "cov", change, missing=1, too_many=1, wrong_values=1)

    # The files of the two buckets change places: nobody would look for a row where it lies then.
    check(made, "cov", lambda entries: entries, move=True, wrong_values=40)


@pytest.mark.by_turn(8)
def test_given_a_value_and_a_null_that_changed_columns_then_it_is_found(spark: Any, tmp_path: Path) -> None:
    """Spark's hash leaves nulls out."""
    ddl = "id bigint, a int, b int"
    table = IndexedTable.create(spark, tmp_path / "table", ddl, ["id"], buckets=1)
    table.upsert(frame(spark, [(1, None, 5), (2, 6, 7)], ddl))
    table.create_index(
        "cov", "covering", ["id"], included=IncludedColumns(include=["a", "b"]), properties={"buckets": "1"}
    )
    assert table.verify("cov").ok

    spoil(table, "cov", lambda entries: _other(entries.withColumn("c", F.col("a")), "id = 1", a="b", b="c").drop("c"))

    assert table.verify("cov").wrong_values == 1


def test_the_program_repairs_all_that_is_wrong_in_one_commit_and_a_retry_finds_it(
    spark: Any, made: IndexedTable
) -> None:
    spoil(made, "rec", lambda entries: entries.where("id <> 4"))
    spoil(made, "eager", lambda entries: entries.where("id <> 5"))
    job = Job("verify_index", made.uri, {"repair": True}, txn_id="mend")
    version = made.version

    assert not verify_index(spark, Job("verify_index", made.uri, {"names": ["rec"]})).value["rec"]["ok"]
    receipt = verify_index(spark, job)

    assert (receipt.version, receipt.operation, receipt.txn_id) == (version + 1, "repair_index", "mend")
    assert receipt.metrics["repaired"] == ["eager", "rec"]
    assert (receipt.metrics["rec.missing"], receipt.metrics["eager.missing"]) == (1, 1)
    assert verify_index(spark, job) == receipt
    healthy = Job("verify_index", made.uri, {"repair": True, "names": ["rec", "eager"]}, txn_id="again")
    assert verify_index(spark, healthy).version is None
    assert IndexedTable.load(spark, made.uri).version == version + 1
