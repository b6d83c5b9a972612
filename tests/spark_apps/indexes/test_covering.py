"""Covering indexes on keyed tables: the same rows with them as without, whatever was written since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.actions.indexing import verify
from spark_apps.indexes.covering.index_files import columns_of, stage_entries, stages_of
from spark_apps.indexes.handler import IndexContext
from spark_apps.timeline.files import DataFile
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files, local
from tests.spark_apps.small_tables import in_order, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(12)]

DDL = "id bigint, p string, city string, n int, note string"


def _rows(ids: range, note: str = "x") -> list[tuple[Any, ...]]:
    return [(i, "ab"[i % 2], f"c{i % 7}", i % 5 if i % 5 else None, f"{note}{i}" * 40) for i in ids]


def _kinds(spark: Any, path: Path, **more: Any) -> IndexedTable:
    table = IndexedTable.create(spark, path, DDL, ["id"], partition_by=["p"], buckets=1, **more)
    table.upsert(frame(spark, _rows(range(200)), DDL))
    properties = {"buckets": "2", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
    table.create_index("cov", "covering", ["city"], included=IncludedColumns(include=["n"]), properties=properties)
    return table


def test_given_writes_since_then_rows_of_the_index_give_way_to_them(spark: Any, tmp_path: Path) -> None:
    table = _kinds(spark, tmp_path / "t")
    assert table.indexes["cov"].included == ("n",)
    expected = {row[0]: row for row in _rows(range(200))}
    where = "city IN ('c1', 'c3')"

    def check() -> Any:
        wanted = in_order((r[2], r[3]) for r in expected.values() if r[2] in ("c1", "c3"))
        assert rows_of(table, where, ["city", "n"]) == wanted
        whole = in_order(r for r in expected.values() if r[2] in ("c1", "c3"))
        assert rows_of(table, where) == whole
        return table.explain(where, ["city", "n"])

    explanation = check()
    assert explanation.index_used == "cov" and explanation.files_read == 0 and explanation.indexes[0].replaces == 2
    assert table.explain(where).not_used["cov"].code == "lacks_columns"
    changed: list[tuple[Any, ...]] = [(1, "b", "c3", 9, "new"), (3, "b", "c2", 1, "new"), (400, "b", "c1", 1, "new")]
    changed.append((2, "a", "c1", 7, ""))
    table.upsert(frame(spark, changed, DDL))
    expected.update({row[0]: row for row in changed})
    assert table.delete("id IN (8, 15)").committed
    del expected[8], expected[15]
    explanation = check()
    assert explanation.index_used == "cov" and (explanation.files_read, explanation.groups_read) == (4, 2)
    assert table.verify("cov").ok
    assert table.refresh_index("cov").committed, "the log records that it covers all it can"
    assert not table.refresh_index("cov").committed
    check()
    table.compact()
    assert check().not_used["cov"].code == "covers_nothing"
    receipt = table.refresh_index("cov")
    assert (receipt.metrics["files"], receipt.metrics["removed_files"]) == (2, 2)
    assert check().files_read == 0 and not table.indexes["cov"].lagging
    report = table.verify("cov")
    assert report.ok and report.rows == report.entries == len(expected) and not report.stale


def test_given_any_damage_of_the_index_then_the_rows_are_scanned_and_verify_repairs_it(
    spark: Any, tmp_path: Path
) -> None:
    table = _kinds(spark, tmp_path / "t")
    where, columns = "city = 'c1'", ["id", "city", "n"]
    expected = in_order((r[0], r[2], r[3]) for r in _rows(range(200)) if r[2] == "c1")
    [used] = table.explain(where, columns).indexes
    assert (used.name, used.files) == ("cov", 1)
    for file in index_files(table, "cov"):
        whole = local(table, file).read_bytes()
        for garbled in (None, whole[:-20], whole[:60] + bytes(b ^ 0xFF for b in whole[60:80]) + whole[80:]):
            if file.group == "coverage":
                continue
            local(table, file).unlink() if garbled is None else local(table, file).write_bytes(garbled)
            assert rows_of(table, where, columns) == expected
        local(table, file).write_bytes(whole)
    assert table.verify("cov").ok
    spoiled = next(file for file in index_files(table, "cov") if file.rows)
    _spoil(local(table, spoiled))
    assert not table.verify("cov").ok
    version = table.version
    assert table.verify("cov", repair=True).repaired == version + 1 == table.version
    assert table.verify("cov").ok and rows_of(table, where, columns) == expected
    assert table.verify("cov", repair=True).repaired is None and table.version == version + 1


def _spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def test_given_entries_that_disagree_with_the_rows_then_verify_says_how(spark: Any, tmp_path: Path) -> None:
    table = _kinds(spark, tmp_path / "t")
    files = [file for file in index_files(table, "cov") if file.rows]
    rows = spark.read.parquet(*[str(local(table, file)) for file in files])
    wrong = rows.where("id <> 4").withColumn("n", F.expr("IF(id = 6, 77, n)"))
    wrong = wrong.unionAll(wrong.where("id = 9").withColumn("id", F.lit(9000).cast("bigint")))
    context = IndexContext(table.snapshot, table.indexes["cov"].definition, "_index/indexes/cov/spoiled")
    stages = {file.group: stages_of(file) for file in files}
    spoiled = stage_entries(context, wrong, columns_of(files[0]), "entries", stages)
    state = table.snapshot.state.copy()
    for file in files:
        state.file_set.remove(file.tree, file.path)
    for action in spoiled:
        state.file_set.add(DataFile.of(action, state.version))
    report = verify(replace(table.snapshot, state=state, intact=set()), "cov")
    assert (report.missing, report.too_many, report.wrong_values) == (1, 1, 1)
    assert {(d.fault, d.key["id"]) for d in report.differences} == {
        ("missing", 4), ("too many", 9000), ("wrong values", 6),
    }  # fmt: skip


def test_given_rows_that_win_by_an_ordering_column_then_file_groups_with_deltas_are_merged_from_the_files(
    spark: Any, tmp_path: Path
) -> None:
    table = IndexedTable.create(
        spark, tmp_path / "t", "id bigint, city string, ts int, note string", ["id"], buckets=1,
        ordering_column="ts", merge_by="ordering",
    )  # fmt: skip
    rows = [(i, f"c{i % 3}", 10, f"{i:05d}" * 99) for i in range(90)]
    table.upsert(frame(spark, rows, "id bigint, city string, ts int, note string"))
    every = {"hybrid_appended_ratio": "1"}
    table.create_index("cov", "covering", ["city"], included=IncludedColumns(exclude=["note"]), properties=every)
    assert table.explain("city = 'c1'", ["id", "city"]).index_used == "cov"
    late = [(1, "late", 5, ""), (4, "newer", 20, "")]
    table.upsert(frame(spark, late, "id bigint, city string, ts int, note string"))
    assert table.explain("city = 'c1'", ["id", "city"]).not_used["cov"].code == "merged_rows"
    assert {row[0] for row in rows_of(table, "city = 'c1'", ["id"])} == set(range(1, 90, 3)) - {4}
