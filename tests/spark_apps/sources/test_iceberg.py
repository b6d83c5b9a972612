"""Iceberg tables as a source, held against what ``pyiceberg`` itself reads of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, StringType

from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.spark_apps.sources.iceberg_deletes import delete_equal, delete_positions
from tests.spark_apps.sources.lake import arrow_rows, digest, people, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """What a registration says of the catalog."""
    (tmp_path / "warehouse").mkdir()
    return {"catalog": "test", "catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
            "catalog.warehouse": f"file://{tmp_path}/warehouse"}  # fmt: skip


@pytest.fixture
def catalog(options: dict[str, str]) -> Catalog:
    own = {name.partition(".")[2]: value for name, value in options.items() if "." in name}
    made = load_catalog("test", **own)
    made.create_namespace("db")
    return made


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


def test_given_a_widened_column_then_indexes_over_it_are_asked_no_more_until_they_are_made_anew(
    spark: Any, catalog: Catalog, options: dict[str, str]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("f", pa.float32())])
    theirs = catalog.create_table("db.widened", schema=schema)
    for first in (0, 10):
        ids = range(first, first + 10)
        theirs.append(pa.table([[*ids], [*ids], [n / 10 for n in ids]], schema=schema))
    table = IndexedTable.register(spark, "db.widened", "iceberg", options=options)
    table.create_index("by_n", "secondary", ["n"], properties={"shards": "4"})
    table.create_index("blocks", "compact", ["n", "f"])
    table.create_index("cover", "covering", ["n"], included=["id"], properties={"buckets": "4"})
    table.create_index("by_id", "secondary", ["id"])

    with theirs.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("f", DoubleType())
    wider = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("f", pa.float64())])
    theirs.append(pa.table([[30, 31], [3, 2**40], [0.1, 0.3]], schema=wider))
    asked = ["n = 3", "n IN (3, 13, 1099511627776)", f"n > {2**31}", "n < 2 OR f = 0.1", "f > 1.8", "id = 13"]
    everything = theirs.scan().to_arrow()
    right = {where: _matching(everything, where) for where in asked}

    def agrees() -> None:
        for where in asked:
            assert rows_of(table.read(where)) == right[where], where

    table = IndexedTable.load(spark, folder(theirs))
    agrees()
    for name in ("by_n", "blocks", "cover"):
        with pytest.raises(errors.InvalidSchema, match=f"{name}.*drop_index"):
            table.refresh_index(name)
        table.drop_index(name)
    agrees()
    assert table.refresh_index("by_id").committed and table.verify("by_id").ok
    table.create_index("by_n", "secondary", ["n"], properties={"shards": "4"})
    table.create_index("blocks", "compact", ["n", "f"])
    assert table.verify("by_n").ok and table.verify("blocks").ok
    assert table.explain("n = 13").index_used is not None
    agrees()


def test_given_names_that_stand_for_other_columns_then_indexes_do_not_tell_of_the_old_ones(
    spark: Any, catalog: Catalog, options: dict[str, str]
) -> None:
    theirs = catalog.create_table("db.renamed", schema=people(0, 1).schema)
    theirs.append(people(0, 6))
    theirs.append(people(10, 6))
    table = IndexedTable.register(spark, "db.renamed", "iceberg", options=options)
    table.create_index("by_note", "secondary", ["note"])
    table.create_index("blocks", "compact", ["note"])
    table.create_index("by_city", "secondary", ["city"])
    table.create_index("cover", "covering", ["city"], included=["note"])

    with theirs.update_schema() as update:  # the two change names
        update.rename_column("note", "other")
        update.rename_column("city", "note")
    with theirs.update_schema() as update:
        update.rename_column("other", "city")
    asked = ["note = 'rome'", "city = 'note 3'", "city IS NULL", "note = 'note 3'"]
    for _ in range(2):
        table = IndexedTable.load(spark, folder(theirs))
        everything = theirs.scan().to_arrow()
        for where in asked:
            assert rows_of(table.read(where)) == _matching(everything, where), where
        for name in table.indexes:
            assert table.refresh_index(name).committed and table.verify(name).ok, name
        for where in asked:
            assert rows_of(table.read(where)) == _matching(everything, where), where
        assert table.explain("note = 'rome'").index_used is not None

        with theirs.update_schema() as update:  # and then one is made anew
            update.delete_column("note")
        with theirs.update_schema() as update:
            update.add_column("note", StringType())
        asked = ["note IS NULL", "note = 'rome'", "city = 'note 3'"]


def _matching(rows: pa.Table, where: str) -> Any:
    """The rows that satisfy a predicate, as DuckDB finds them."""
    import duckdb

    return rows_of(duckdb.sql(f"SELECT * FROM rows WHERE {where}").fetchall())


@pytest.mark.by_turn(1)
def test_given_a_column_that_was_renamed_then_the_current_snapshot_asked_for_by_its_id_has_its_values(
    spark: Any, catalog: Catalog, options: dict[str, str]
) -> None:
    theirs = catalog.create_table("db.people", schema=people(0, 1).schema)
    theirs.append(people(0, 6))
    table = IndexedTable.register(spark, "db.people", "iceberg", options=options)
    with theirs.update_schema() as update:
        update.rename_column("city", "town")
    now = theirs.current_snapshot()
    assert now is not None

    asked = IndexedTable.load(spark, table.uri, source_version=now.snapshot_id)

    assert asked.schema.names == theirs.scan().to_arrow().column_names
    assert rows_of(asked.read()) == arrow_rows(theirs.scan().to_arrow())
