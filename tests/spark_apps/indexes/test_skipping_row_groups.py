"""Records of row groups: what they rule out holds no match, whoever reads the rows, and what is said of another file is
not used."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import spark_apps
from spark_apps import IndexedTable
from spark_apps.actions.indexing import verify
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.skipping import collecting, row_groups, skipping
from spark_apps.indexes.skipping.records import Known, RecordFile
from spark_apps.indexes.skipping.skipping import SkippingHandler
from spark_apps.query import planning
from spark_apps.query.planning import filter_of, plan_read
from spark_apps.storage import errors
from tests.differential.session import small
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files
from tests.spark_apps.small_tables import within

pytestmark = [pytest.mark.spark]

Row = tuple[Any, ...]
DDL = "id bigint, s string, n int, f double, ts timestamp"
PARTS = (
    "minmax(n)", "bloom(n)", "values(f)", "minmax(f)", "minmax(s)", "bloom(s)", "ngrams(s)", "bloom(lower(s))",
    "minmax(to_date(ts))", "minmax(ts)", "nulls(n)", "minmax(n * 2)",
)  # fmt: skip
BY_ROW_GROUP = {"granularity": "row_group"}


def _row(rng: random.Random, key: int) -> Row:
    """A row whose values lie near those of rows with near keys, which stand in one row group."""
    near = key // 25
    return (
        key,
        None if rng.random() < 0.1 else f"{rng.choice(('Word', 'wörd', 'WORD'))}{near} of {key % 7}",
        None if rng.random() < 0.1 else near * 10 + rng.randrange(8),
        rng.choice((math.nan, -0.0, float(near), None)) if near % 4 == 1 else float(near),
        dt.datetime(2024, 3, 1, 5, tzinfo=dt.UTC) + dt.timedelta(days=near, hours=rng.randrange(8)),
    )


def _predicates(rng: random.Random, count: int) -> list[str]:
    def one() -> str:
        near = rng.randrange(-1, 22)
        number, word = near * 10 + rng.randrange(8), rng.choice(("Word", "wörd"))
        op = rng.choice(("=", "=", "<=>", "<", ">=", "<>"))
        day = dt.date(2024, 3, 1) + dt.timedelta(days=near)
        return rng.choice((
            f"n {op} {number}", f"n {op} {number}", f"n IN ({number}, {number + 90})", "n IS NULL",
            f"n BETWEEN {number} AND {number + 9}", f"f {op} {near}.0D", "f = double('NaN')", "f = 0.0D",
            f"s {op} '{word}{near} of 3'", f"s LIKE '%{near} of%'", f"s LIKE '{word}{near}%'", f"s LIKE '%ord{near} %'",
            f"lower(s) = 'word{near} of 1'", f"to_date(ts) {op} DATE'{day}'", f"ts {op} TIMESTAMP'{day} 08:00:00Z'",
            f"n * 2 {op} {2 * number}",
        ))  # fmt: skip

    joined = [one() for _ in range(count)]
    return [
        where
        if rng.random() < 0.5
        else f"{where} {rng.choice(('AND', 'AND', 'OR'))} {rng.choice(('', 'NOT '))}({one()})"
        for where in joined
    ]


def _compare(spark: Any, table: IndexedTable, rows: dict[int, Row], predicates: list[str]) -> tuple[int, int]:
    """Return how many row groups were ruled out, and how many of files with deltas over them.

    What is read in this process and by Spark is what Spark finds in the rows as they are.
    """
    scanned = frame(spark, list(rows.values()), DDL)
    matching = scanned.select("id", *(F.expr(where).alias(f"m{n}") for n, where in enumerate(predicates))).collect()
    opened = spark_apps.open_table(table.uri, time_zone="UTC")
    skipped = under_deltas = here = 0
    for number, where in enumerate(predicates):
        expected = sorted(row["id"] for row in matching if row[f"m{number}"])
        plan = plan_read(table.snapshot, filter_of(table.snapshot, where), ["id"])
        assert not plan.warnings, where
        for files in plan.files.values():
            ruled_out = [
                plan.block_counts[f.lineage] - len(plan.blocks[f.lineage]) for f in files if f.lineage in plan.blocks
            ]
            skipped += sum(ruled_out)
            under_deltas += sum(ruled_out) if len(files) > 1 else 0
        try:
            assert sorted(opened.read(where, ["id"]).column("id").to_pylist()) == expected, where
            here += 1
        except errors.InvalidPredicate:
            pass  # of an expression, which only Spark evaluates
        if number % 25 == 0:
            assert sorted(row.id for row in table.read(where, ["id"]).collect()) == expected, where
    assert here > len(predicates) / 3
    return skipped, under_deltas


def _kept(table: IndexedTable, name: str = "i") -> list[list[int]]:
    """Return the rows of the row groups that the index tells of, by data file."""
    files = [RecordFile(table.snapshot.store, file) for file in index_files(table, name)]
    return [list(each.rows) for file in files for each in file.header.row_groups]


@pytest.mark.by_turn(16)
def test_given_random_rows_and_deltas_then_what_is_read_of_row_groups_is_what_a_scan_finds(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    rng = random.Random(11)
    rows = {key: _row(rng, key) for key in range(480)}
    with small(spark, compiled=False, row_groups=25):
        table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], buckets=2)
        within(table, staged_rows=0)  # by Spark, whose files have row groups of so many rows
        table.upsert(frame(spark, list(rows.values()), DDL))
        table.create_index("i", "skipping", PARTS, properties=BY_ROW_GROUP)
        assert [len(each) > 7 for each in _kept(table)] == [True, True]
        version = table.version
        skipped, _ = _compare(spark, table, rows, _predicates(rng, 90))
        assert skipped > 500
        assert table.explain("s LIKE '%13 of%'").blocks_skipped  # of which the files' own min and max do not tell

        # Read by Spark, in pieces and a few at once, row groups have the same records.
        with monkeypatch.context() as patch:
            patch.setattr(collecting, "MAX_DRIVER_BYTES", -1)
            patch.setattr(collecting, "MAX_ROW_GROUPS_PER_JOB", 9)
            assert verify(table.snapshot, "i").ok
            assert len(_found(table)[0].row_groups) > 7

        changes = {key: (key, *_row(rng, 479 - key)[1:]) for key in rng.sample(range(490), 20)}
        rows.update(changes)
        table.upsert(frame(spark, list(changes.values()), DDL))
        table.delete("id IN (3, 77, 78, 300)")
        rows = {key: row for key, row in rows.items() if key not in (3, 77, 78, 300)}
        assert table.indexes["i"].lagging == 0
        _, under_deltas = _compare(spark, table, rows, _predicates(rng, 60))
        assert under_deltas > 300

        table.compact("i", "full")
        table.compact()
        assert len(_kept(table)) == 4 and table.indexes["i"].lagging == 0  # those of the files of before too
        table.compact("i", "full")
        assert len(_kept(table)) == 2
        skipped, _ = _compare(spark, table, rows, _predicates(rng, 30))
        assert skipped > 100
        table.restore(version)
        table.refresh_index("i")
        assert table.read("n * 2 = 2 * n").count() == table.read("n IS NOT NULL").count()
        assert len(_kept(table)) == 2 and verify(table.snapshot, "i").ok


def _found(table: IndexedTable) -> list[Known]:
    """Return what a build finds now of the data files."""
    context = IndexContext(table.snapshot, table.indexes["i"].definition, "")
    return SkippingHandler()._collected(context, table.snapshot.state.files("data"))


def _u(number: int) -> int:
    """Return a value of its own for each of the 780 rows of the folder, near ones far apart."""
    return number * 337 % 780


def _folder(tmp_path: Path) -> Path:
    """A folder of two Parquet files of four row groups of a hundred rows, the last of which has eighty."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(2):
        rows = range(number * 400, 400 + number * 380)
        values = list(map(_u, rows))
        table = pa.table({"n": list(rows), "u": pa.array(values, pa.int64()), "v": [f"v{value}" for value in values]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=100)
    return folder


def test_given_conditions_that_hold_in_different_row_groups_then_the_file_is_left_out_and_of_others_one_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path)
    table = IndexedTable.register(spark, folder, format="parquet")
    columns, properties = ["bloom(u)", "bloom(v)"], {"false_positive_rate": "0.000001"}
    apart, near = f"u = {_u(5)} AND v = 'v{_u(250)}'", f"u = {_u(5)} AND v = 'v{_u(5)}'"
    table.create_index("file", "skipping", columns, properties=properties)
    assert [table.explain(where).files_read for where in (apart, near)] == [1, 1]
    table.drop_index("file")
    table.create_index("i", "skipping", columns, properties=properties | BY_ROW_GROUP)
    assert [table.explain(where).files_read for where in (apart, near)] == [0, 1]
    left = "blocks_left: 1 of 4 blocks of 1 file can hold such rows, 100 of 400 rows"
    assert any(note.startswith(left) and "as a whole" in note for note in table.explain(near).notes)

    opened = spark_apps.open_table(folder)
    explained = opened.explain(near)
    assert (explained.blocks_read, explained.blocks_skipped) == (1, 3) and explained.notes[0].startswith(left)
    assert explained.bytes_read < (folder / "0.parquet").stat().st_size / 2
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    assert [row.n for row in table.read(near).collect()] == [5] and table.explain(near).blocks_read == 1

    # The other row groups are not looked at.
    path = folder / "0.parquet"
    times, metadata, damaged = path.stat(), pq.read_metadata(path), bytearray(path.read_bytes())
    for group in (1, 2, 3):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
            damaged[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(bytes(damaged))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert opened.read(near).column("n").to_pylist() == [5]
    assert [row.n for row in table.read(near).collect()] == [5]
    with pytest.raises(errors.StorageError):
        opened.read(f"u = {_u(250)}")


def test_given_records_of_other_row_groups_than_a_file_has_then_all_of_it_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path)
    table = IndexedTable.register(spark, folder, format="parquet")
    monkeypatch.setattr(planning, "MIN_SAVED_BYTES", 0)
    known = skipping.collect

    def changed(change: Any) -> Any:
        return lambda *given: [change(one) for one in known(*given)]

    def check(*rows: int) -> None:
        """Look for rows in this process and by Spark."""
        where = f"u IN ({', '.join(str(_u(row)) for row in rows)})"
        here = spark_apps.open_table(folder).read(where, ["n"]).column("n").to_pylist()
        assert [sorted(here), sorted(row.n for row in table.read(where, ["n"]).collect())] == [list(rows)] * 2

    def files_left(row: int) -> int:
        return int(table.explain(f"u = {_u(row)}").files_read)

    with monkeypatch.context() as patch:  # the last one is missing, and so are its rows
        patch.setattr(skipping, "collect", changed(lambda one: replace(one, rows=300, row_groups=one.row_groups[:-1])))
        table.create_index("i", "skipping", ["bloom(u)"], properties=BY_ROW_GROUP)
    check(5, 350)
    assert files_left(5) == 1 and not verify(table.snapshot, "i").ok

    with monkeypatch.context() as patch:  # or one is missing, and another one has its rows
        patch.setattr(skipping, "collect", changed(lambda one: replace(
            one, row_groups=(*one.row_groups[:2], replace(one.row_groups[3], rows=one.rows - 200))
        )))  # fmt: skip
        table.refresh_index("i", mode="full")
    assert plan_read(table.snapshot, filter_of(table.snapshot, f"u = {_u(5)}")).block_counts and files_left(5) == 1
    check(5, 250)

    with monkeypatch.context() as patch:  # or there are not as many rows in them as in the file
        patch.setattr(skipping, "collect", changed(lambda one: replace(one, row_groups=one.row_groups[:-1])))
        table.refresh_index("i", mode="full")
    check(350)
    assert table.explain("u = 350").not_used["i"].code == "unreadable"

    # What would take too much is not kept, and files are left out as before.
    for patched, name, value in ((row_groups, "MAX_ROW_GROUPS", 3), (skipping, "ALWAYS_RECORDS_BYTES", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(patched, name, value)
            patch.setattr(skipping, "MAX_RECORDS_SHARE", 1e-9)
            table.refresh_index("i", mode="full")
        assert _kept(table) == [] and files_left(350) == 1
    table.refresh_index("i", mode="full")
    assert _kept(table) == [[100] * 4, [100, 100, 100, 80]] and verify(table.snapshot, "i").ok
    check(85)
    check(85, 399, 400, 779)

    with monkeypatch.context() as patch:  # verification compares what is said of each
        patch.setattr(skipping, "collect", changed(
            lambda one: replace(one, row_groups=(one.row_groups[1], *one.row_groups[1:]))
            if one.rows == 400 else one
        ))  # fmt: skip
        table.refresh_index("i", mode="full")
    report = verify(table.snapshot, "i")
    assert report.differences[0].key["of"] == "bloom of u in row group 0" and report.wrong_values == 1


def test_given_rows_that_win_by_an_ordering_then_a_row_that_does_not_match_still_hides_one_that_does(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "id bigint, s string, at int"
    with small(spark, compiled=False, row_groups=20):
        table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], None, "at", "ordering", buckets=1)
        within(table, staged_rows=0)
        table.upsert(frame(spark, [(key, f"old{key}", 100 + key) for key in range(200)], ddl))
        table.create_index("i", "skipping", ["bloom(s)", "minmax(at)"], properties=BY_ROW_GROUP)
        assert len(_kept(table)[0]) > 4
        table.upsert(frame(spark, [(5, "new", 7), (150, "new", 900)], ddl))
    opened = spark_apps.open_table(table.uri)
    assert opened.read("s = 'new'").column("id").to_pylist() == [150]
    assert [row.id for row in table.read("s = 'new'").collect()] == [150]
    assert table.read("s = 'old5'").count() == 1 and opened.read("s = 'old150'").num_rows == 0
    assert not plan_read(table.snapshot, filter_of(table.snapshot, "s = 'old5'")).blocks


def test_given_a_base_without_a_match_under_a_delta_with_one_then_its_bytes_count_for_spark_which_reads_all_of_it(
    spark: Any, tmp_path: Path
) -> None:
    ddl = "id bigint, n int, s string"
    with small(spark, compiled=False, row_groups=50):
        table = IndexedTable.create(spark, tmp_path / "t", ddl, ["id"], buckets=1)
        within(table, staged_rows=0)
        table.upsert(frame(spark, [(key, key // 50, f"{key * 7919:0100}") for key in range(2000)], ddl))
        table.create_index("i", "skipping", ["minmax(n)"], properties=BY_ROW_GROUP)
        table.upsert(frame(spark, [(7, 5000, "new")], ddl))
        table.create_index("c", "covering", ["n"], included=["id", "s"], properties={"layout": "ranges"})
    assert [len(left) for left in plan_read(table.snapshot, filter_of(table.snapshot, "n = 5000")).blocks.values()] == [
        0
    ]
    assert [use.name for use in table.explain("n = 5000").indexes] == ["i", "c"]
