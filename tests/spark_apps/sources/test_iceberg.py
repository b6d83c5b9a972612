"""Iceberg tables as a source, held against what ``pyiceberg`` itself reads of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.spark_apps.sources.iceberg_deletes import delete_equal, delete_positions
from tests.spark_apps.sources.lake import arrow_rows, digest, people, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """What a registration says of the catalog."""
    (tmp_path / "warehouse").mkdir()
    return {"catalog": "test", "catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
            "catalog.warehouse": f"file://{tmp_path}/warehouse"}  # fmt: skip


@pytest.fixture
def catalog(options: dict[str, str]) -> Catalog:
    own = {name.partition(".")[2]: value for name, value in options.items() if "." in name}
    found = load_catalog("test", **own)
    found.create_namespace("db")
    return found


def folder(table: Any) -> Path:
    return Path(table.location().removeprefix("file://"))


def test_a_partitioned_table_is_read_by_its_snapshots_indexed_and_followed(
    spark: Any, catalog: Catalog, options: dict[str, str]
) -> None:
    rows = people(0, 12).append_column(
        "day", pa.array([dt.date(2024, 1, n % 3 + 1) if n % 4 else None for n in range(12)])
    )
    theirs = catalog.create_table("db.people", schema=rows.schema)
    with theirs.update_spec() as update:
        update.add_field("city", IdentityTransform())
        update.add_field("day", IdentityTransform())
    theirs.append(rows)
    before = digest(folder(theirs))
    table = IndexedTable.register(spark, "db.people", "iceberg", options=options, record_key=["id"])
    assert table.definition.partition_by == ("city", "day")
    assert rows_of(table.read()) == arrow_rows(theirs.scan().to_arrow())
    assert table.create_index("by_id", kind="record").committed and table.verify("by_id").ok
    assert table.explain("id = 7").files_read == 1
    assert rows_of(table.read("id = 7")) == arrow_rows(theirs.scan("id = 7").to_arrow())
    assert table.read("day IS NULL AND city = 'rome'").count() == 1
    assert digest(folder(theirs)) == before
    first = theirs.current_snapshot()
    assert first is not None and table.definition.source is not None
    assert table.definition.source.version == str(first.snapshot_id)

    theirs.append(rows.set_column(0, "id", pa.array(range(100, 112), pa.int64())))
    theirs.delete("id = 7")
    table = IndexedTable.load(spark, folder(theirs))
    assert rows_of(table.read()) == arrow_rows(theirs.scan().to_arrow())
    assert table.read("id = 7").count() == 0 and table.read("id = 107").count() == 1
    assert table.refresh_index("by_id").committed
    assert table.explain("id = 107").files_read == 1
    past = IndexedTable.load(spark, folder(theirs), source_version=first.snapshot_id)
    assert rows_of(past.read()) == arrow_rows(theirs.scan(snapshot_id=first.snapshot_id).to_arrow())
    assert past.explain("id = 7").files_read == 1 and past.read("id = 7").count() == 1
    with pytest.raises(errors.VersionNotFound):
        IndexedTable.load(spark, folder(theirs), source_version=12345)
    with theirs.update_spec() as update:
        update.remove_field("city")
    theirs.append(rows)
    with pytest.raises(errors.UnsupportedSource, match="partition spec"):
        IndexedTable.load(spark, folder(theirs))


def test_deletes_by_position_hold_renames_are_followed_and_deletes_by_equality_are_refused(
    spark: Any, catalog: Catalog, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    theirs = catalog.create_table("db.t", schema=people(0, 1).schema)
    theirs.append(people(0, 6))
    theirs.append(people(10, 6))
    table = IndexedTable.register(spark, "db.t", "iceberg", options=options, record_key=["id"])
    table.create_index("by_id", kind="record")
    first = next(task.file for task in theirs.scan().plan_files())
    delete_positions(theirs, first.file_path, [1, 2])
    table = IndexedTable.load(spark, folder(theirs))
    assert rows_of(table.read()) == arrow_rows(theirs.scan().to_arrow())
    assert "delete files" in caplog.text
    table.refresh_index("by_id")
    assert table.verify("by_id").ok
    assert rows_of(table.read("id = 3")) == arrow_rows(theirs.scan("id = 3").to_arrow())

    with theirs.update_schema() as update:
        update.rename_column("note", "remark")
        update.add_column("age", LongType())
    table = IndexedTable.load(spark, folder(theirs))
    assert [field.name for field in table.definition.fields] == ["id", "city", "remark", "age"]
    assert rows_of(table.read()) == arrow_rows(theirs.scan().to_arrow())
    assert rows_of(table.read("remark = 'note 3'", ["id"])) == rows_of([(3,)])
    table.refresh_index("by_id")
    assert rows_of(table.read("id = 13", ["remark", "age"])) == rows_of([("note 13", None)])

    delete_equal(theirs, "id", [4])
    with pytest.raises(errors.UnsupportedSource, match="equality deletes"):
        IndexedTable.load(spark, folder(theirs))


def test_a_folder_tells_its_newest_metadata_only_by_a_version_hint(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    theirs = catalog.create_table("db.hinted", schema=people(0, 1).schema)
    theirs.append(people(0, 6))
    metadata = Path(theirs.metadata_location.removeprefix("file://"))
    with pytest.raises(errors.TableNotFound, match="version-hint"):
        IndexedTable.register(spark, folder(theirs), "iceberg")
    (metadata.parent / "version-hint.text").write_text(metadata.name)
    table = IndexedTable.register(spark, folder(theirs), "iceberg")
    table.create_index("by_city", kind="secondary", columns=["city"])
    assert rows_of(table.read("city = 'rome'")) == arrow_rows(theirs.scan("city = 'rome'").to_arrow())
    assert not (folder(theirs) / "_index").exists()
    empty = catalog.create_table("db.empty", schema=people(0, 1).schema)
    (folder(empty) / "metadata" / "version-hint.text").write_text(Path(empty.metadata_location).name)
    nothing = IndexedTable.register(spark, folder(empty), "iceberg")
    assert nothing.read().count() == 0 and nothing.create_index("i", kind="secondary", columns=["id"]).committed
