"""Many keys over a small table: the rows are read, the answer is the same, and ``explain`` says why."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.query import planning
from spark_apps.storage import errors

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    made = IndexedTable.create(spark, tmp_path_factory.mktemp("costs") / "t", "id int, city string", ["id"], buckets=4)
    made.upsert(spark.range(0, 500, 1, 1).selectExpr("cast(id as int) id", "concat('c', id) city"))
    made.create_index("by_city", "secondary", ["city"])
    return made


def _cities(count: int) -> str:
    return "city IN (" + ", ".join(f"'c{n}'" for n in range(count)) + ")"


def test_given_more_keys_than_the_table_is_worth_then_it_is_scanned_and_explain_says_so(table: IndexedTable) -> None:
    assert table.explain(_cities(planning.ALWAYS_KEYS)).index_used == "by_city"
    many = _cities(300)
    why = table.explain(many).not_used["by_city"]
    assert (why.code, "looking 300 keys up" in why.reason) == ("scan_is_cheaper", True)
    assert table.read(many).count() == 300


def test_given_a_table_that_takes_long_to_scan_then_as_many_keys_are_looked_up(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_KEY_SECONDS", 0.0)
    monkeypatch.setattr(planning, "_BYTES_A_SECOND", 1.0)
    monkeypatch.setattr(planning, "KEY_BYTES", 0)
    assert table.explain(_cities(300)).index_used == "by_city"
    assert table.read(_cities(300)).count() == 300


def test_given_a_predicate_longer_than_a_small_table_is_worth_then_it_is_left_to_spark(table: IndexedTable) -> None:
    many = _cities(499)
    where = f"{many} OR ({many} AND id < 0) OR ({many})"
    assert len(where) > planning.ALWAYS_CHARACTERS
    explanation = table.explain(where)
    assert (explanation.not_used["by_city"].code, explanation.groups_read) == ("scan_is_cheaper", 4)
    assert table.read(where, ["id"]).count() == 499
    with pytest.raises(errors.UnknownColumn, match="no column 'town'"):
        table.read(where + " OR town = 'x'")
    with pytest.raises(errors.InvalidPredicate):
        table.read(where + " OR (")


def test_given_a_plan_when_it_is_used_then_nothing_of_it_can_be_changed(table: IndexedTable) -> None:
    plan: Any = planning.plan_read(table.snapshot, planning.filter_of(table.snapshot, "city = 'c3'"), ["id"])
    assert (plan.columns, [use.name for use in plan.used]) == (("id", "city"), ["by_city"])
    with pytest.raises(FrozenInstanceError):
        plan.groups = {}
    for name in ("groups", "files", "keyed", "blocks", "not_used"):
        with pytest.raises(TypeError):
            getattr(plan, name)["more"] = None
    for name in ("covering_scans", "used", "warnings"):
        assert isinstance(getattr(plan, name), tuple)


def test_given_a_name_that_spark_wants_in_quotes_then_the_error_is_of_this_package(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id int, `Zürich` int", ["id"])
    table.upsert(spark.createDataFrame([(1, 2)], "id int, `Zürich` int"))
    assert table.read("`zürich` = 2").count() == 1
    with pytest.raises(errors.InvalidPredicate, match="cannot be used"):
        table.read("Zürich = 2")


def test_given_a_wide_column_that_is_not_asked_for_then_files_count_with_the_bytes_of_the_others(
    spark: Any, tmp_path: Path
) -> None:
    """By types a text is as wide as any other, and an index without it seems to read a fraction of the files."""
    note = "concat(sha2(string(id), 512), sha2(string(-id), 512)) AS note"
    spark.range(0, 2000, 1, 1).selectExpr("id", "xxhash64(id) AS k", note).write.parquet(str(tmp_path / "s"))
    table = IndexedTable.register(spark, tmp_path / "s")
    table.create_index("by_k", "covering", ["k"], included=["id"])
    [file] = (tmp_path / "s").glob("*.parquet")
    chunks = [pq.read_metadata(file).row_group(0).column(number) for number in range(3)]
    sizes = {chunk.path_in_schema: chunk.total_compressed_size for chunk in chunks}

    plan = planning.plan_read(table._handle.snapshot(), None, ["id", "k"])

    share = (sizes["id"] + sizes["k"]) / sum(sizes.values())
    counted = [use.instead_of for use in plan.used] or [
        int(number.replace(",", "")) for number in re.findall("[0-9,]+$", plan.not_used["by_k"].reason)
    ]
    assert counted == [pytest.approx(share * file.stat().st_size, abs=2)]
    assert share < 0.25
