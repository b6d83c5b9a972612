"""Indexes made, changed and dropped beside changes of the columns that they are over: whichever commits first, no index
is left that the table's columns do not go with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.actions.evolve_schema import AddColumns, DropColumns, RenameColumn, WidenColumn
from spark_apps.actions.indexing import CompactIndex, CreateIndex, RefreshIndex
from spark_apps.actions.template import Action
from spark_apps.storage import errors
from tests.spark_apps.frames import frame
from tests.spark_apps.racing import go
from tests.spark_apps.small_tables import Prepared

pytestmark = pytest.mark.spark

DDL = "id bigint, v smallint, w string"
PARTED = "id bigint, p string, w string"

Made = Callable[[], Action]

CHANGES: dict[str, Made] = {
    "widen": lambda: WidenColumn("v", "int"),
    "rename": lambda: RenameColumn("v", "renamed"),
    "drop": lambda: DropColumns(["v"]),
}
MAKERS: dict[str, Made] = {
    "secondary": lambda: CreateIndex("made", "secondary", ["v"], deferred=True),
    "compact": lambda: CreateIndex("made", "compact", ["v"], deferred=True),
    "covering": lambda: CreateIndex("made", "covering", ["v"], deferred=True),
    "included": lambda: CreateIndex("made", "covering", ["w"], IncludedColumns(include=["v"]), deferred=True),
    "refresh": lambda: RefreshIndex("cov", included=IncludedColumns(include=["v"])),
}


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    return frame(spark, [(n, n % 8, f"w{n}") for n in range(40)], DDL)


@pytest.fixture(scope="module")
def kept(spark: Any, rows: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """A table that the refused of each pair leaves as it is; the other one's work is undone after it."""
    made = IndexedTable.create(spark, tmp_path_factory.mktemp("columns") / "table", DDL, ["id"], buckets=1)
    made.upsert(rows)
    made.create_index("cov", "covering", ["w"])
    return made


@pytest.fixture
def table(kept: IndexedTable) -> Iterator[IndexedTable]:
    table = IndexedTable.load(kept._handle.spark, kept.uri)
    before = table.version
    yield table
    table.restore(before)
    for name in set(table.indexes) - {"cov"}:
        table.drop_index(name)


def build_empty(spark: Any, folder: Path) -> None:
    IndexedTable.create(spark, folder, DDL, ["id"], buckets=1).create_index("cov", "covering", ["w"], deferred=True)


# Each change with each way to need the column; three commits run them all, each meeting every maker and every change.
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.by_turn(6)
def test_an_index_over_a_column_that_lands_first_refuses_a_change_of_the_column(
    table: IndexedTable, change: str, maker: str
) -> None:
    def meanwhile(other: IndexedTable) -> None:
        assert other._run(MAKERS[maker](), None, None).committed

    with pytest.raises(errors.ConcurrentWrite, match="Nothing was changed"):
        go(table, CHANGES[change](), meanwhile)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.by_turn(6)
def test_a_change_of_a_column_that_lands_first_refuses_an_index_over_it(
    prepared: Prepared, change: str, maker: str
) -> None:
    fresh = prepared(build_empty)

    with pytest.raises(errors.ConcurrentWrite, match="Nothing was changed"):
        go(fresh, MAKERS[maker](), lambda other: other._run(CHANGES[change](), None, None))


def test_a_new_column_does_not_meet_an_index(table: IndexedTable) -> None:
    after = go(table, AddColumns("x int"), lambda other: other.create_index("made", "secondary", ["v"], deferred=True))

    assert "x" in after.schema.names and "made" in after.indexes


def test_of_two_indexes_whose_names_differ_in_case_only_the_second_is_refused(table: IndexedTable) -> None:
    with pytest.raises(errors.ConcurrentWrite, match=r"needs definition ByV, and create_index .* definition byv"):
        go(
            table,
            CreateIndex("ByV", "secondary", ["v"], deferred=True),
            lambda other: other.create_index("byv", "secondary", ["w"], deferred=True),
        )


@pytest.mark.by_turn(4)
def test_a_lazy_sweep_does_not_drop_entries_that_a_refresh_has_leaned_on_meanwhile(spark: Any, tmp_path: Path) -> None:
    rows = frame(spark, [(n, "a", f"w{n % 3}") for n in range(6)], PARTED)
    table = IndexedTable.create(spark, tmp_path / "table", PARTED, ["id"], ["p"], buckets=1)
    table.upsert(rows)
    table.create_index("lazy", "secondary", ["w"], deferred=True, properties={"tombstones": "lazy", "shards": "16"})
    table.refresh_index("lazy")
    table.drop_partition("p=a")
    table.upsert(frame(spark, [(9, "b", "w9")], PARTED))

    def again(other: IndexedTable) -> None:
        other.upsert(rows)
        # The entry of the other row, which lies in a shard of its own; theirs are all there.
        assert other.refresh_index("lazy").metrics["entries"] == 1
        added = {file.group for file in other.snapshot.state.files(other.indexes["lazy"].definition.tree)}
        assert len(added) == 4, added

    with pytest.raises(errors.ConcurrentWrite, match="Nothing was changed"):
        go(table, CompactIndex("lazy", "full"), again)

    after = IndexedTable.load(spark, table.uri)
    assert sorted(row.id for row in after.read("w = 'w1'").collect()) == [1, 4]
    assert after.explain("w = 'w1'").index_used == "lazy" and after.verify("lazy").ok


def test_a_compaction_of_an_index_that_was_dropped_meanwhile_is_refused(spark: Any, rows: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "table", DDL, ["id"], buckets=1)
    table.upsert(rows)
    table.create_index("made", "secondary", ["v"])
    table.upsert(frame(spark, [(n, n % 8 + 1, "other") for n in range(20)], DDL))

    with pytest.raises(errors.ConcurrentWrite, match=r"needs definition made.*Nothing was changed"):
        go(IndexedTable.load(spark, table.uri), CompactIndex("made", "full"), lambda other: other.drop_index("made"))
