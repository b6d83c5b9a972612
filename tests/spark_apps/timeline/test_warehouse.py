"""Tables by name: where they are, and how a warehouse is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps.storage.errors import InvalidName
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import Warehouse, locate
from spark_apps.timeline.model import DropTable, Field, TableDefinition, Write, table_scope
from spark_apps.timeline.transactions import begin

TABLE = TableDefinition("x", (Field("id", "int"),), ("id",))


def drop(store: Store) -> None:
    timeline, _ = create_table(store, TABLE)
    begin(timeline, operation="drop_table", txn_id="drop").commit(
        [DropTable()], writes=[Write(table_scope(), "replace")]
    )


def test_a_warehouse_is_searched_by_its_logs(tmp_path: Path) -> None:
    for place in ("one", "db/two", "cat/db/three", "_hidden/four", "db/_indexes/files", "a/b/c/too_deep"):
        create_table(Store(tmp_path / place), TABLE)
    drop(Store(tmp_path / "gone"))
    (tmp_path / "db" / "files").mkdir()
    (tmp_path / "db" / "files" / "part.parquet").write_bytes(b"somebody else's")

    tables = {table.name: table for table in Warehouse(str(tmp_path)).tables()}

    assert sorted(tables) == ["cat.db.three", "db.files", "db.two", "gone", "one"]
    assert tables["db.two"].location == str(tmp_path / "db" / "two")
    assert tables["db.files"].location == str(tmp_path / "db" / "_indexes" / "files")
    assert tables["gone"].state() is None and tables["one"].state() is not None


def test_without_a_root_there_is_nothing_to_search_and_no_name_to_find() -> None:
    assert list(Warehouse().tables()) == []
    with pytest.raises(InvalidName, match="the connection 'x' names no warehouse"):
        Warehouse(whose="the connection 'x'").locate("db.t")


@pytest.mark.parametrize("name", ["db/../../etc", "a b", "", "db..t"])
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        Warehouse(str(tmp_path)).locate(name)


def test_a_receipt_is_found_also_of_a_dropped_table_and_of_a_source(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    drop(Store(tmp_path / "gone"))
    create_table(Store(tmp_path / "_indexes" / "files"), TABLE, txn_id="made")

    receipt = warehouse.receipt(str(tmp_path / "gone"), "drop")
    assert receipt is not None and receipt.version == 1
    beside = warehouse.receipt(str(tmp_path / "files"), "made")
    assert beside is not None and beside.version == 0
    assert warehouse.receipt(str(tmp_path / "gone"), "other") is None


@pytest.mark.parametrize("source", ["a b", "trips.v1", "2024", "raw/*.parquet", "raw/day=*/[ab]*"])
def test_the_log_of_a_source_whose_name_is_no_plain_one_is_found(tmp_path: Path, source: str) -> None:
    uri = f"{tmp_path}/{source}"
    create_table(Store(locate(uri).default_log()), TABLE, txn_id="made")

    receipt = Warehouse().receipt(uri, "made")

    assert receipt is not None and receipt.version == 0


def test_looking_for_a_table_makes_no_folder(tmp_path: Path) -> None:
    assert Warehouse(str(tmp_path)).receipt(str(tmp_path / "none"), "x") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["data", "_index", "data/deep", "_index/indexes/x"])
def test_a_table_among_the_files_of_another_is_refused_and_one_beside_it_is_made(tmp_path: Path, inside: str) -> None:
    create_table(Store(tmp_path / "a"), TABLE)

    with pytest.raises(InvalidName, match=r"is among the files of the table at .*/a, .*Nothing was changed"):
        create_table(Store(tmp_path / "a" / inside), TABLE)

    create_table(Store(tmp_path / "b" / inside), TABLE)  # a folder of that name elsewhere is like any other
    create_table(Store(tmp_path / "a" / "other"), TABLE)
