"""Hudi tables by their names in a session's catalog, whose logs are below a warehouse."""

from __future__ import annotations

import shutil

import pytest

import spark_apps
from spark_apps import IndexedTable, open_table, sql
from spark_apps.storage import errors
from spark_apps.timeline.allowed_sources import _NAMED
from spark_apps.timeline.locations import Warehouse
from tests.connectors.hudi_tables import key, make


@pytest.fixture
def named(hudi, tmp_path):
    """The folder of a table of 4 slices that the session's catalog calls ``hudi_named``."""
    path = tmp_path / "t"
    make(hudi, str(path), "cow", files=4, rows=400)
    hudi.sql("DROP TABLE IF EXISTS hudi_named")
    hudi.sql(f"CREATE TABLE hudi_named USING hudi LOCATION '{path}'")
    yield path
    spark_apps.disable(hudi)
    hudi.sql("DROP TABLE IF EXISTS hudi_named")


def test_given_a_name_and_a_warehouse_then_the_log_is_there_and_a_table_made_anew_is_another(hudi, named, tmp_path):
    root = str(tmp_path / "w")
    (tmp_path / "w").mkdir()
    spark_apps.enable(hudi, warehouse=root)
    table = IndexedTable.register(hudi, "hudi_named", record_key=["id"])
    assert table.uri.startswith(f"{root}/_indexes/spark_catalog/default/hudi_named-2")
    sql.run(hudi, "CREATE INDEX by_key ON default.hudi_named (key)", warehouse=root)
    # As operators, triggers and the page do, without Spark.
    assert Warehouse(root).locate("default.hudi_named") == table.uri
    for name in ("hudi_named", "default.hudi_named", "spark_catalog.default.hudi_named"):
        assert IndexedTable.load(hudi, name).uri == table.uri
    asked = f"SELECT * FROM hudi_named WHERE key = {key(201, 400)}"
    assert [scan.scanned for scan in spark_apps.explain(asked, hudi).scans] == [(4, 1)]
    assert [row.id for row in hudi.sql(asked).collect()] == [201]

    # Another process, which has not named log and table together: the session's catalog says where the table is.
    _NAMED.clear()
    assert IndexedTable.load(hudi, table.uri).read("key = 3").count() == 1
    with pytest.raises(errors.SourceNotAllowed, match="only the catalog of a Spark session knows"):
        open_table("default.hudi_named", warehouse=root).read("key = 3")

    # Dropped and made anew at its place, by another session than this one, in which it is asked for by its name.
    hudi.sql("DROP TABLE hudi_named")
    shutil.rmtree(named)
    make(hudi, str(named), "cow", files=4, rows=400)
    hudi.sql(f"CREATE TABLE hudi_named USING hudi LOCATION '{named}'")
    with pytest.raises(errors.TableNotFound, match="is gone"):
        IndexedTable.load(hudi, table.uri).read().count()
    other = hudi.newSession()
    other.conf.set("spark.sql.catalog.spark_catalog", hudi.conf.get("spark.sql.catalog.spark_catalog"))
    again = IndexedTable.register(other, "default.hudi_named", warehouse=root)
    again.create_index("by_key", "secondary", ["key"])
    assert again.uri != table.uri and Warehouse(root).locate("default.hudi_named") == again.uri
    assert [scan.scanned for scan in spark_apps.explain(asked, hudi).scans] == [(4, 1)]
    assert [row.id for row in hudi.sql(asked).collect()] == [201]
