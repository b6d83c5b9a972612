"""Included columns that come and go, over files of several formats: the document's scenario, V0 to V5, step by step.

Its listing contradicts its own rules in three places, where the rules are followed here. V2 is a full refresh with
included columns C2 and C4, and lists its files with (C0, C1, C2), as V3, V4 and V5's second approach do after it: a
full refresh writes all entries with the columns included then, and the schema that it states is (C0, C2, C4). V5's
first approach lists three files, two of one name: merging all files of a bucket leaves one file a bucket, here two. V4
is said to drop deleted rows from all files, which is done only to those that hold some.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.covering.definition import schema_of
from spark_apps.indexes.covering.index_files import columns_of
from spark_apps.indexes.lineage import entry_files
from tests.spark_apps.indexes.evolving import Folder, in_bucket
from tests.spark_apps.indexes.support import index_files

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ALWAYS = {"buckets": "2", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
OPTIONS = {"csv": {"header": "true"}}


def _registered(
    spark: Any, folder: Folder, schema: str = "c0 bigint, pad string, c1 string, c2 string"
) -> IndexedTable:
    return IndexedTable.register(
        spark,
        folder.path,
        folder.form,
        schema=schema,
        options=OPTIONS.get(folder.form),
        index_root=f"{folder.path}_log",
    )


def _load(spark: Any, folder: Folder) -> IndexedTable:
    return IndexedTable.load(spark, f"{folder.path}_log/{folder.path.name}")


class _Steps:
    """One history, with an index for each approach of the document that is asked for."""

    def __init__(self, spark: Any, folder: Folder, approaches: tuple[str, ...]) -> None:
        self.spark, self.folder, self.approaches = spark, folder, approaches
        self.table = _registered(spark, folder)

    def create(self, include: list[str]) -> None:
        for approach in self.approaches:
            properties = {**ALWAYS, "optimize_schema": approach}
            self.table.create_index(
                approach, "covering", ["c0"], included=IncludedColumns(include=include), properties=properties
            )

    def refresh(self, mode: Any, add: str = "", drop: str = "", schema: str | None = None) -> None:
        included = IncludedColumns(include=[add], exclude=[drop]) if add else None
        for approach in self.approaches:
            assert self.table.refresh_index(approach, mode, included=included, schema=schema).committed

    def check(self, included: set[str], schema: set[str], files: list[str]) -> None:
        """The index's metadata and files as the document has them, and the rows as a reader of the files has them."""
        for approach in self.approaches:
            info = self.table.indexes[approach]
            assert set(info.included) == included
            assert set(schema_of(info.definition).names) == schema
            assert self.files(approach) == sorted(files)
        known = [field.name for field in self.table.definition.fields if field.name != "pad"]
        self.same_rows(known)
        self.same_rows([known[0], known[-1]])

    def files(self, approach: str) -> list[str]:
        return sorted(" ".join(columns_of(file)) for file in entry_files(index_files(self.table, approach)))

    def same_rows(self, columns: list[str]) -> None:
        """All rows for all columns of the table, else those with some values of the indexed column."""
        numbers, where = None, None
        if len(columns) == 2:
            numbers = {number for _, some in self.folder.files.values() for number in some[:2]}
            where = f"c0 IN ({', '.join(map(str, numbers))})"
        answer = _load(self.spark, self.folder).read(where, columns).collect()
        assert sorted(map(tuple, answer), key=repr) == self.folder.rows(columns, numbers)

    def uses(self, columns: list[str]) -> int:
        """How many data files a query for these columns reads none of; of JSON only without rows of nulls."""
        explanation = _load(self.spark, self.folder).explain("c0 IS NOT NULL", columns=columns)
        return sum(use.replaces for use in explanation.indexes)


@pytest.mark.parametrize(
    ("form", "approaches"), [("parquet", ("merge",)), ("json", ("same",)), ("csv", ("merge",)), ("orc", ("same",))]
)
@pytest.mark.by_turn(16)
def test_the_scenario_of_the_document(spark: Any, tmp_path: Path, form: str, approaches: tuple[str, ...]) -> None:
    folder = Folder(tmp_path / "data", form)
    folder.write("f1", "c0 c1 c2", range(10))
    folder.write("f2", "c0 c1 c2", range(10, 20))
    steps = _Steps(spark, folder, approaches)
    steps.create(["c1", "c2"])  # V0
    steps.check({"c1", "c2"}, {"c0", "c1", "c2"}, ["c0 c1 c2"] * 2)
    assert steps.uses(["c0", "c1"]) == 2

    folder.remove("f2")
    lone = in_bucket(0, 8, 20)
    folder.write("f3", "c0 c2 c3", lone[:4])
    folder.write("f4", "c0 c1 c2 c3", lone[4:])
    steps.refresh("incremental", add="c3", drop="c1", schema="c3 bigint")  # V1
    steps.check({"c2", "c3"}, {"c0", "c1", "c2", "c3"}, ["c0 c1 c2"] * 2 + ["c0 c2 c3"])
    # Of f1 it holds c1, which f3 lacks; f4 has it and the index does not hold it. No file but f3 and f4 has c3.
    assert (steps.uses(["c0", "c1"]), steps.uses(["c0", "c3"]), steps.uses(["c0", "c1", "c3"])) == (2, 3, 2)

    folder.remove("f3")
    folder.write("f5", "c0 c2 c4", range(40, 50))
    steps.refresh("full", add="c4", drop="c3", schema="c4 bigint")  # V2
    steps.check({"c2", "c4"}, {"c0", "c2", "c4"}, ["c0 c2 c4"] * 2)

    folder.remove("f1")
    folder.write("f6", "c0 c2 c5", range(50, 60))
    folder.write("f7", "c0 c2 c5", range(60, 70))
    steps.refresh("incremental", add="c5", drop="c4", schema="c5 bigint")  # V3
    steps.check({"c2", "c5"}, {"c0", "c2", "c4", "c5"}, ["c0 c2 c4"] * 2 + ["c0 c2 c5"] * 2)
    assert steps.uses(["c0", "c4"]) == 4 and steps.uses(["c0", "c5"]) == 4

    folder.remove("f7")
    folder.write("f8", "c0 c2 c5", in_bucket(1, 6, 70))
    steps.refresh("incremental")  # V4
    steps.check({"c2", "c5"}, {"c0", "c2", "c4", "c5"}, ["c0 c2 c4"] * 2 + ["c0 c2 c5"] * 3)

    for approach in approaches:  # V5
        assert steps.table.compact(approach, "full").committed
        assert not steps.table.compact(approach, "full").committed
        expected = {"merge": ["c0 c2 c4 c5"] * 2, "same": ["c0 c2 c4"] * 2 + ["c0 c2 c5"] * 2}[approach]
        assert steps.files(approach) == expected
        assert steps.table.verify(approach).ok
    steps.same_rows(["c0", "c2", "c4", "c5"])
    assert steps.uses(["c0", "c4"]) == 4 == steps.uses(["c0", "c5"])


def test_given_files_appended_removed_and_rewritten_then_queries_and_refreshes_follow(
    spark: Any, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "data", "json")
    for number in range(4):
        folder.write(f"f{number}", "c0 c1 c2", range(number * 10, number * 10 + 10))
    steps = _Steps(spark, folder, ("same",))
    steps.create(["c1"])
    table = steps.table
    table.create_index("plain", "covering", ["c0"], included=IncludedColumns(include=["c2"]),
                       properties={"lineage": "false", "hybrid_deleted_ratio": "1"})  # fmt: skip
    assert not table.refresh_index("same").committed and not table.refresh_index("same", "quick").committed
    # Of JSON a predicate must leave out rows of nulls, which damaged lines would be.
    assert _load(spark, folder).explain("c0 IS NOT NULL", columns=["c0", "c2"]).index_used == "plain"

    folder.write("f1", "c0 c1 c2", range(100, 110))
    folder.remove("f2")
    folder.write("f4", "c0 c1 c2", range(200, 210))
    steps.same_rows(["c0", "c1"])
    assert steps.uses(["c0", "c1"]) == 2
    steps.same_rows(["c0", "c2"])
    seen = _load(spark, folder)
    assert seen.explain("c0 IS NOT NULL", columns=["c0", "c2"]).not_used["plain"].code == "too_much_appended"
    with pytest.raises(ValueError, match=r"no lineage.*Nothing was changed.*mode='full'"):
        seen.refresh_index("plain")
    seen.alter_index("plain", {"hybrid_appended_ratio": "1"})
    assert _load(spark, folder).explain("c0 IS NOT NULL", columns=["c0", "c2"]).not_used["plain"].code == "no_lineage"

    receipt = steps.table.refresh_index("same")
    assert (receipt.metrics["files"], receipt.metrics["removed_files"]) == (2, 2)
    assert not steps.table.refresh_index("same").committed
    assert steps.uses(["c0", "c1"]) == 4
    steps.same_rows(["c0", "c1"])
    report = steps.table.verify("same")
    assert report.ok and report.rows == report.entries == 40 and not report.stale and not report.uncovered
    assert steps.table.refresh_index("plain", "full").committed
    assert steps.uses(["c0", "c2"]) == 4
    steps.same_rows(["c0", "c2"])

    folder.remove("f0")
    table = _load(spark, folder)
    table.alter_index("same", {"small_bytes": "1"})
    assert not table.compact("same", "quick").committed
    table.alter_index("same", {"small_bytes": "100000"})
    receipt = table.compact("same", "quick")
    assert (receipt.metrics["files_before"], receipt.metrics["files_after"], receipt.metrics["rows"]) == (4, 2, 30)
    report = table.verify("same")
    assert report.ok and (report.rows, report.entries, report.stale) == (30, 30, 0)
    assert not table.refresh_index("same").committed and steps.uses(["c0", "c1"]) == 3
    steps.same_rows(["c0", "c1"])
