"""Tables merged by an ordering column: a delete keeps its place in the order, whatever comes late or again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable, open_table, sql
from spark_apps.storage.errors import InvalidInput, KeysExist
from spark_apps.timeline.features import ORDERED_DELETES
from spark_apps.timeline.model import DATA_TREE, TOMBSTONES_TREE
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared, locating_by_spark

pytestmark = pytest.mark.by_turn(8)

DDL = "id bigint, p string, v int, o int"
Row = tuple[int, str, int, int | None]


def make(spark: Any, folder: Path, **options: Any) -> IndexedTable:
    return IndexedTable.create(spark, folder, DDL, ["id"], ordering_column="o", merge_by="ordering",
                               **{"buckets": 1, **options})  # fmt: skip


def day(spark: Any, *rows: Row) -> Any:
    return frame(spark, list(rows), DDL)


def gone(spark: Any, *rows: Row) -> Any:
    return frame(spark, [(*row, True) for row in rows], f"{DDL}, gone boolean")


def ids(table: IndexedTable) -> list[tuple[int, int | None]]:
    """The keys with their orderings, as Spark and as Arrow read them."""
    by_spark = sorted((row.id, row.o) for row in table.read().collect())
    by_arrow = open_table(table.uri).read(columns=["id", "o"]).to_pylist()
    assert sorted((row["id"], row["o"]) for row in by_arrow) == by_spark
    return by_spark


def kept(table: IndexedTable) -> list[tuple[int, int]]:
    """The keys and orderings in files beside bases."""
    files = IndexedTable.load(table.snapshot.spark, table.uri).snapshot.state.files(TOMBSTONES_TREE)
    rows = [row for file in files for row in pq.ParquetFile(Path(table.uri) / file.path).read().to_pylist()]
    return sorted((row["id"], row["o"]) for row in rows)


def folded_deletes(spark: Any, folder: Path, **options: Any) -> IndexedTable:
    """Of the keys 1 to 4 all but 2 were deleted, with orderings of 2, 3 and 4; the deltas are folded."""
    table = make(spark, folder, **options)
    table.upsert(day(spark, (1, "a", 10, 1), (2, "a", 20, 1), (3, "a", 30, 1), (4, "b", 40, 4)))
    table.upsert(gone(spark, (1, "a", 0, 2), (3, "a", 0, 3)), deleted="gone")
    table.delete("id = 4")
    table.compact()
    return table


Fold = Callable[[IndexedTable], Any]
FOLDS: dict[str, Fold] = {
    "as it is": lambda table: None,
    "quick": lambda table: table.compact(mode="quick"),
    "full": lambda table: table.compact(),
    "rescale": lambda table: table.rescale(buckets=3),
}


@pytest.mark.by_turn(16)
@pytest.mark.parametrize("fold", FOLDS)
def test_given_days_that_come_again_then_the_newest_event_of_each_key_stands(
    spark: Any, tmp_path: Path, fold: str
) -> None:
    table = make(spark, tmp_path / "t")
    first, second = day(spark, (1, "a", 10, 1), (2, "a", 20, 1)), gone(spark, (1, "a", 0, 2), (2, "a", 0, 2))
    table.upsert(first)
    table.upsert(second, deleted="gone")
    FOLDS[fold](table)
    table.upsert(day(spark, (1, "a", 11, 3)))
    FOLDS[fold](table)

    table.upsert(second, deleted="gone")
    assert ids(table) == [(1, 3)]
    FOLDS[fold](table)
    receipt = table.upsert(first)
    assert (ids(table), receipt.metrics["late"]) == ([(1, 3)], 1)
    FOLDS[fold](table)
    assert ids(table) == [(1, 3)]
    bases = [file for file in table.snapshot.state.files(DATA_TREE) if file.kind == "base"]
    assert all("__index_deleted" not in pq.read_schema(Path(table.uri) / file.path).names for file in bases)


def late_by_upsert(spark: Any, table: IndexedTable) -> int:
    return table.upsert(day(spark, (1, "a", 1, 2), (3, "a", 1, 1), (5, "a", 1, None))).metrics["late"]


def late_by_upsert_of_deletes(spark: Any, table: IndexedTable) -> int:
    rows = [(1, "a", 1, 2, False), (3, "a", 1, 1, False), (5, "a", 1, None, False), (9, "a", 1, 1, True)]
    return table.upsert(frame(spark, rows, f"{DDL}, gone boolean"), deleted="gone").metrics["late"]


def late_by_insert(spark: Any, table: IndexedTable) -> int:
    with pytest.raises(KeysExist):
        table.insert(day(spark, (1, "a", 1, 2), (2, "a", 1, 1)))
    return table.insert(day(spark, (1, "a", 1, 2), (3, "a", 1, 1), (5, "a", 1, None))).metrics["late"]


def late_by_merge(spark: Any, table: IndexedTable) -> int:
    day(spark, (1, "a", 1, 2), (3, "a", 1, 1), (5, "a", 1, None)).createOrReplaceTempView("late_source")
    text = f"MERGE INTO `{table.uri}` t USING late_source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    sql.run(spark, text)
    commit = list(IndexedTable.load(spark, table.uri)._handle.timeline.commits(table.version))[-1]
    assert commit.metrics["inserted"] == 1
    return int(commit.metrics["late"])


def late_by_stream(spark: Any, table: IndexedTable) -> int:
    batch = day(spark, (1, "a", 1, 2), (3, "a", 1, 1), (5, "a", 1, None))
    return int(table.upsert_batch("stream", query_id="q")(batch, 0).metrics["late"])


def late_by_overwrite(spark: Any, table: IndexedTable) -> int:
    rows = day(spark, (1, "a", 1, 2), (2, "a", 20, 1), (3, "a", 1, 1), (5, "a", 1, None))
    return table.insert_overwrite(rows).metrics["late"]


WAYS = [late_by_upsert, late_by_upsert_of_deletes, late_by_insert, late_by_merge, late_by_stream, late_by_overwrite]


@pytest.mark.by_turn(12)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_given_rows_below_the_delete_of_their_key_then_no_way_of_writing_writes_them_and_the_receipt_counts_them(
    spark: Any, prepared: Prepared, way: Callable[[Any, IndexedTable], int]
) -> None:
    table = prepared(folded_deletes)
    if WAYS.index(way) % 2:
        locating_by_spark(table)

    assert way(spark, table) == 2
    table = IndexedTable.load(spark, table.uri)
    assert ids(table) == [(2, 1), (5, None)]
    assert table.upsert(day(spark, (1, "a", 1, 2))).version is None
    table.upsert(day(spark, (1, "a", 1, 3)))
    assert ids(table) == [(1, 3), (2, 1), (5, None)]


@pytest.mark.by_turn(1)
def test_given_deletes_that_are_folded_then_a_file_beside_the_base_keeps_them_as_long_as_no_row_is_above(
    spark: Any, prepared: Prepared
) -> None:
    table = prepared(folded_deletes)

    assert kept(table) == [(1, 2), (3, 3), (4, 4)]
    assert ORDERED_DELETES in table.snapshot.state.reader_features
    assert ORDERED_DELETES in table.snapshot.state.writer_features
    table.upsert(day(spark, (3, "a", 31, 4)))
    table.compact()
    assert (kept(table), ids(table)) == ([(1, 2), (4, 4)], [(2, 1), (3, 4)])
    table.restore(table.version - 2)
    assert (kept(table), ids(table)) == ([(1, 2), (3, 3), (4, 4)], [(2, 1)])


@pytest.mark.by_turn(4)
def test_given_a_delete_without_an_ordering_then_it_takes_that_of_its_rows_and_until_gives_another(
    spark: Any, tmp_path: Path
) -> None:
    table = make(spark, tmp_path / "t")
    rows = day(spark, *((number, "a", 0, 5) for number in range(1, 7)))
    table.upsert(rows)

    table.delete("id = 1")
    table.delete(frame(spark, [(2,)], "id bigint"))
    table.delete(day(spark, (3, "a", 0, 5), (4, "a", 0, 4)))
    table.upsert(gone(spark, (5, "a", 0, None)), deleted="gone")
    table.delete("id IN (4, 6)", until=4)
    assert ids(table) == [(4, 5), (6, 5)]
    assert table.upsert(rows).metrics["late"] == 4
    table.delete("id = 6", until="7")
    assert table.upsert(day(spark, (6, "a", 0, 7))).metrics["late"] == 1
    table.delete(frame(spark, [(8,)], "id bigint"), until=2)
    assert table.upsert(day(spark, (8, "a", 0, 2), (6, "a", 0, 8))).metrics["late"] == 1
    assert ids(table) == [(4, 5), (6, 8)]
    for strict, until in product(("true", "false"), ("no number", 1.5e300)):
        with session_with(spark, {"spark.sql.ansi.enabled": strict}), pytest.raises(InvalidInput, match="until"):
            table.delete("id = 4", until=until)


def test_given_a_table_merged_by_commit_then_until_is_refused(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], ordering_column="o", buckets=1)

    with pytest.raises(InvalidInput, match="not merged by an ordering"):
        table.delete("id = 1", until=2)


@pytest.mark.by_turn(4)
def test_given_tombstones_from_before_orderings_counted_then_they_remove_what_was_committed_before_them(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(spark, tmp_path / "t")
    table.upsert(day(spark, (1, "a", 10, 5), (2, "a", 20, 5), (3, "a", 30, 5)))
    monkeypatch.setattr("spark_apps.actions.write.mark_ordered", list)
    table.upsert(gone(spark, (1, "a", 0, 2), (2, "a", 0, 2)), deleted="gone")
    monkeypatch.undo()

    assert not table.snapshot.state.reader_features
    assert ids(table) == [(3, 5)]
    table.upsert(day(spark, (1, "a", 11, 1)))
    table.upsert(gone(spark, (3, "a", 0, 6)), deleted="gone")
    assert ids(table) == [(1, 1)]
    table.compact(mode="quick")
    assert ids(table) == [(1, 1)]
    table.compact()
    assert (ids(table), kept(table)) == ([(1, 1)], [(3, 6)])


def test_given_an_ordering_column_that_partitions_the_table_then_deletes_have_no_ordering_and_commits_decide(
    spark: Any, tmp_path: Path
) -> None:
    table = make(spark, tmp_path / "t", partition_by=["o"])
    table.create_index("key", "record")
    table.upsert(day(spark, (1, "a", 10, 1), (2, "a", 20, 1)))
    table.upsert(day(spark, (1, "a", 11, 2)))
    table.delete("id = 2")

    assert ids(table) == [(1, 2)]
    table.upsert(day(spark, (2, "a", 20, 1)))
    assert ids(table) == [(1, 2), (2, 1)] and table.verify("key").ok
    with pytest.raises(InvalidInput, match="names a row"):
        table.delete("id = 2", until=3)
