"""Iceberg tables whose logs are below a warehouse (docs/iceberg.md): found by name and id, and without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import spark_apps
from spark_apps import IndexedTable, sql
from spark_apps.jobs.job import Job
from spark_apps.jobs.program import load_table
from spark_apps.programs.register_table import register_table
from spark_apps.storage import errors
from spark_apps.storage.store import Store
from spark_apps.timeline.allowed_sources import _NAMED
from spark_apps.timeline.catalog_names import NAMES
from spark_apps.timeline.locations import Warehouse
from tests.connectors.iceberg_tables import key, make

pytestmark = pytest.mark.usefixtures("iceberg")


@pytest.fixture(autouse=True)
def _disabled(spark: Any) -> Any:
    yield
    spark_apps.disable(spark)


def scanned(spark: Any, name: str) -> list[tuple[int, int] | None]:
    """Ask for one row of an enabled session's table, and return how many files each scan has and keeps."""
    asked = f"SELECT * FROM {name} WHERE key = {key(201, 400)}"
    assert [row.id for row in spark.sql(asked).collect()] == [201]
    return [scan.scanned for scan in spark_apps.explain(asked, spark).scans]


def test_given_an_enabled_warehouse_then_a_name_has_its_log_there_and_is_found_by_all(spark, tmp_path):
    name = "prod.db.named"
    make(spark, name, 4, 400)
    spark_apps.enable(spark, warehouse=str(tmp_path))
    table = IndexedTable.register(spark, name, record_key=["key"])
    table.create_index("by_key", "record")

    assert table.uri.startswith(f"{tmp_path}/_indexes/prod/db/named-")
    assert Warehouse(str(tmp_path)).locate(name) == table.uri
    for given in (name, f"catalog:{name}", table.uri):
        assert IndexedTable.load(spark, given).uri == table.uri
    assert IndexedTable.load(spark, table.uri).read(f"key = {key(201, 400)}").count() == 1
    assert scanned(spark, name) == [(4, 1)]

    spark_apps.enable(spark, warehouse=str(tmp_path))
    assert scanned(spark, name) == [(4, 1)]
    spark_apps.disable(spark)
    assert IndexedTable.load(spark, name, warehouse=tmp_path).uri == table.uri


def test_given_a_table_registered_elsewhere_since_then_its_name_is_asked_for_once(spark, tmp_path, monkeypatch):
    name, other = "prod.db.since", "prod.db.unindexed"
    make(spark, name, 4, 400)
    make(spark, other, 1, 4)
    (tmp_path / NAMES).mkdir(parents=True)
    spark_apps.enable(spark, warehouse=str(tmp_path))
    table = IndexedTable.register(spark.newSession(), name, record_key=["key"], warehouse=tmp_path)
    table.create_index("by_key", "record")
    asked = []
    get = Store.get

    def counted(self: Store, key: str, most: int | None = None) -> bytes:
        if NAMES in key:
            asked.append(key)
        return get(self, key, most)

    monkeypatch.setattr(Store, "get", counted)
    for _ in range(3):
        assert scanned(spark, name) == [(4, 1)]
        spark.sql(f"SELECT * FROM {other} WHERE key = 1").collect()
    assert sorted(asked) == [f"{NAMES}/prod/db/since.json", f"{NAMES}/prod/db/unindexed.json"]


def test_given_a_table_made_anew_under_its_name_then_the_name_leads_to_the_new_log_alone(spark, tmp_path):
    name = "prod.db.`anew-1`"
    make(spark, name, 4, 400)
    spark_apps.enable(spark, warehouse=str(tmp_path))
    old = IndexedTable.register(spark, name, record_key=["key"])
    old.create_index("by_key", "record")
    spark.sql(f"DROP TABLE {name} PURGE")
    make(spark, name, 4, 400)
    assert scanned(spark, name) == [None]
    with pytest.raises(errors.TableNotFound, match="is gone: the one that is there now"):
        IndexedTable.load(spark, name)

    new = IndexedTable.register(spark, name, record_key=["key"])
    new.create_index("by_key", "record")
    assert new.uri != old.uri and IndexedTable.load(spark, name).uri == new.uri
    assert scanned(spark, name) == [(4, 1)]
    with pytest.raises(errors.TableExists):
        IndexedTable.register(spark, name)


def test_given_a_script_and_a_job_then_the_name_is_registered_indexed_and_refused_where_it_is_a_folder_too(
    spark, tmp_path
):
    name = "prod.db.scripted"
    make(spark, name, 4, 400)
    root = str(tmp_path)
    made, created = sql.run(
        spark, f"CREATE TABLE {name} USING iceberg; CREATE INDEX by_n ON {name} (n)", warehouse=root
    )
    assert made.location == created.location == Warehouse(root).locate(name)

    options = {"warehouse_root": root}
    asked = {"format": "iceberg", "catalog_name": name, "warehouse": root}
    job = Job("register_table", f"{root}/prod/db/scripted", asked, storage_options=options)
    assert register_table(spark, job).version is None, "it is registered as asked"
    index = {"name": "by_n2", "kind": "skipping", "columns": ["values(n)"]}
    build = Job("build_index", made.location, index, storage_options=options)
    _NAMED.clear()  # as in another process, which has not named log and table together
    assert load_table(spark, build).create_index(**build.arguments).committed
    with pytest.raises(errors.SourceNotAllowed):
        load_table(spark, replace(build, storage_options={}))

    other = "prod.db.both"
    make(spark, other, 1, 4)
    (tmp_path / "prod" / "db" / "both").mkdir(parents=True)
    (tmp_path / "prod" / "db" / "both" / "x.parquet").write_bytes(b"")
    job = Job("register_table", f"{root}/prod/db/both", {**asked, "catalog_name": other}, storage_options=options)
    with pytest.raises(errors.InvalidName, match=r"is a table of a catalog.*and a folder of the warehouse"):
        register_table(spark, job)
    job = replace(job, table=f"catalog:{other}", arguments={**asked, "catalog_name": f"catalog:{other}"})
    assert register_table(spark, job).version == 0 and "/_indexes/prod/db/both-" in Warehouse(root).locate(
        f"catalog:{other}"
    )


def test_given_no_warehouse_then_a_folder_for_the_log_is_asked_for(spark, tmp_path):
    name = "prod.db.nowhere"
    make(spark, name, 1, 4)
    with pytest.raises(errors.InvalidInput, match="no warehouse is named that could keep its log"):
        IndexedTable.register(spark, name)
    table = IndexedTable.register(spark, name, index_root=tmp_path)
    assert table.uri.startswith(f"{tmp_path}/")
    # A registration of before, whose log is beside the table.
    place = table.definition.source.location
    beside = IndexedTable.register(spark, name, index_root=f"{place.rpartition('/')[0]}/_indexes")
    assert IndexedTable.load(spark, name).uri == beside.uri
    assert IndexedTable.load(spark, name, warehouse=tmp_path).uri == beside.uri
