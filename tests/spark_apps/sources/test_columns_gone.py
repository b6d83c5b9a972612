"""An index over a column that its source's owner has dropped or renamed: it is not used, and nothing else is harmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidSchema
from tests.spark_apps.sources.lake import arrow_rows, people, rows_of

pytestmark = pytest.mark.spark

GONE = ("comp", "cov", "sec", "skip")
LEFT = people(0, 20).drop_columns(["city"])


def index(table: IndexedTable) -> None:
    """Make four indexes over the city, or an expression of it, and one over the id."""
    table.create_index("skip", kind="skipping", columns=["minmax(id)", "values(lower(city))"])
    table.create_index("sec", kind="secondary", columns=["lower(city)"])
    table.create_index("comp", kind="compact", columns=["city"])
    table.create_index("cov", kind="covering", columns=["lower(city)"], included=["id"])
    table.create_index("by_id", kind="secondary", columns=["id"])


def check(table: IndexedTable, in_process: bool = True) -> None:
    """Compare reads in every way with rows that have no city, and see that no index over it is used."""
    opened = spark_apps.open_table(table.uri)
    for where, many in ((None, 20), ("id = 3", 1), ("id >= 0 AND id < 10", 10)):
        assert table.read(where, ["id"]).count() == many
        told = [table.explain(where)]
        if in_process:
            assert opened.read(where, ["id"]).num_rows == many
            told.append(opened.explain(where))
            told.append(table.explain(where, hypothetical=[{"kind": "secondary", "columns": ["id"], "name": "h"}]))
        for explained in told:
            assert {one: explained.not_used[one].code for one in GONE} == dict.fromkeys(GONE, "column_gone"), where
            assert not set(GONE) & {use.name for use in explained.indexes}


def maintain(table: IndexedTable, indexes: tuple[str, ...] = GONE) -> None:
    """Refresh, create, verify, compact and drop others; those over the city say what is the matter."""
    for name in indexes:
        for call in (table.refresh_index, table.verify, table.compact):
            with pytest.raises(InvalidSchema, match=f"'city'.*'{name}'"):
                call(name)
    assert table.refresh_index("by_id").committed
    table.create_index("later", kind="skipping", columns=["minmax(id)"])
    for name in ("by_id", "later"):
        assert table.verify(name).ok
        table.compact(name)
    assert "by_id" in str(table.explain("id = 3").index_used)
    table.drop_index("sec")
    assert "sec" not in table.indexes


@pytest.mark.by_turn(4)
def test_given_a_delta_table_without_the_column_then_indexes_over_it_are_not_used_and_harm_no_other(
    spark: Any, tmp_path: Path
) -> None:
    for first in (0, 10):
        write_deltalake(tmp_path / "t", people(first, 10), mode="append")
    index(IndexedTable.register(spark, tmp_path / "t", "delta"))
    write_deltalake(tmp_path / "t", LEFT, mode="overwrite", schema_mode="overwrite")

    table = IndexedTable.load(spark, tmp_path / "t")
    check(table)
    assert rows_of(table.read()) == arrow_rows(LEFT)
    maintain(table)
    before = IndexedTable.load(spark, tmp_path / "t", source_version=1)
    assert before.read("lower(city) = 'oslo'").count() == 7


@pytest.mark.by_turn(6)
def test_given_a_version_from_before_a_column_then_indexes_over_it_are_not_used(spark: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", LEFT, mode="append")
    write_deltalake(tmp_path / "t", people(20, 10), mode="append", schema_mode="merge")
    index(IndexedTable.register(spark, tmp_path / "t", "delta"))

    table = IndexedTable.load(spark, tmp_path / "t", source_version=0)
    for where, many in ((None, 20), ("id = 3", 1)):
        assert table.read(where).count() == many
        assert {table.explain(where).not_used[name].code for name in GONE} == {"column_gone"}


@pytest.mark.by_turn(12)
def test_given_an_iceberg_column_renamed_and_back_then_indexes_over_it_come_back_with_a_refresh(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "warehouse").mkdir()
    own = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("test", **own)
    catalog.create_namespace("db")
    theirs = catalog.create_table("db.t", schema=people(0, 1).schema)
    for first in (0, 10):
        theirs.append(people(first, 10))
    options = {"catalog": "test", **{f"catalog.{name}": text for name, text in own.items()}}
    index(IndexedTable.register(spark, "db.t", "iceberg", options=options))
    place = theirs.location().removeprefix("file://")

    with theirs.update_schema() as update:
        update.rename_column("city", "town")
    table = IndexedTable.load(spark, place)
    check(table, in_process=False)  # only Spark reads files whose columns have other names
    maintain(table)
    with theirs.update_schema() as update:
        update.rename_column("town", "city")
    table = IndexedTable.load(spark, place)
    assert table.read("lower(city) = 'oslo'").count() == 7
    for name in ("skip", "comp", "cov"):
        table.refresh_index(name)
        assert table.verify(name).ok
    assert table.read("lower(city) = 'oslo'").count() == 7


@pytest.mark.by_turn(6)
def test_given_files_registered_anew_without_the_column_then_plain_queries_do_not_use_indexes_over_it(
    spark: Any, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    pq.write_table(people(0, 20), files / "0.parquet")
    table = IndexedTable.register(spark, files)
    index(table)
    pq.write_table(LEFT, files / "0.parquet")

    spark_apps.enable(spark, tmp_path)
    try:
        rows = spark.read.parquet(str(files)).where("id = 3")
        assert rows.count() == 1
        assert not any(scan.failed for scan in spark_apps.explain(rows).scans)
    finally:
        spark_apps.disable(spark)
