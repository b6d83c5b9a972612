"""Iceberg tables of real catalogs on loopback: Hive's metastore, REST with a token, JDBC; beside other writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.connectors.iceberg_tables import key, make
from tests.connectors.servers import TOKEN, CatalogServers, catalog_servers

pytestmark = [pytest.mark.usefixtures("iceberg"), pytest.mark.by_turn(4)]

ROWS = 400


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServers]:
    """A JVM that serves catalogs."""
    home = tmp_path_factory.mktemp("servers")
    try:
        with catalog_servers(home) as started:
            yield started
    except ConnectionError as error:
        pytest.skip(f"CONNECTORS NOT TESTED: the servers' jars: {error}")


@pytest.fixture(autouse=True)
def _disabled(spark: Any) -> Any:
    yield
    spark_apps.disable(spark)


def named(spark: Any, catalog: str, **properties: str) -> str:
    """Let a session have a catalog of Iceberg tables, and return its name."""
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{name.replace('_', '-')}", value)
    return catalog


def check_followed(spark: Any, warehouse: Path, catalog: str, append: Callable[[], None]) -> None:
    """Index a table by its name, and see that plain SQL leaves files out, before and after a commit by another writer.

    :param append: commits one more file, by another client, of :func:`appended`.
    """
    warehouse.mkdir(exist_ok=True)
    name = f"{catalog}.db.trips"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.db")
    make(spark, name, 8, ROWS)
    spark_apps.enable(spark, warehouse=str(warehouse))
    table = IndexedTable.register(spark, name, record_key=["key"])
    assert table.uri.startswith(f"{warehouse}/_indexes/{catalog}/db/trips-")
    table.create_index("by_key", "record")
    assert asked(spark, name, 201) == ([201], (8, 1))

    append()
    spark.sql(f"REFRESH TABLE {name}")
    assert asked(spark, name, 201) == ([201, ROWS], (9, 2))
    assert asked(spark, name, 202) == ([202], (9, 2))
    again = IndexedTable.load(spark, name)
    assert again.refresh_index("by_key").committed and again.verify("by_key").ok
    assert asked(spark, name, 201) == ([201, ROWS], (9, 2))
    assert asked(spark, name, 202) == ([202], (9, 1))


def asked(spark: Any, name: str, row: int) -> tuple[list[int], tuple[int, int] | None]:
    """Ask for the key of a row, and return the ids found, and the files of the connector's plan and those kept."""
    query = f"SELECT id FROM {name} WHERE key = {key(row, ROWS)} ORDER BY id"
    [scan] = spark_apps.explain(query, spark).scans
    return [found.id for found in spark.sql(query).collect()], scan.scanned


def appended() -> dict[str, list[Any]]:
    """Return the columns of rows of which one has the key of row 201, and whose keys are from all of the range."""
    return {"id": [ROWS, ROWS + 1, ROWS + 2], "key": [key(201, ROWS), -1, ROWS], "n": [1, 1, 1], "rider": ["r"] * 3}


def by_pyiceberg(**catalog: str) -> Callable[[], None]:
    """Return what commits these rows by pyiceberg."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    rows = pa.table({**appended(), "n": pa.array(appended()["n"], pa.int32())})
    return lambda: load_catalog(**catalog).load_table("db.trips").append(rows)


def test_given_a_hive_metastore_then_its_table_is_indexed_by_name_and_follows_another_writer(
    spark: Any, servers: CatalogServers, tmp_path: Path
) -> None:
    given = {"type": "hive", "uri": servers.metastore(), "warehouse": str(tmp_path / "tables")}
    # Its database has no tables for locks: Hive makes these by a tool of its own.
    given["hadoop.iceberg.engine.hive.lock-enabled"] = "false"
    # Another client of the metastore, which knows nothing of the first one's caches.
    catalog, other = named(spark, "hms", **given), named(spark, "hms_of_another", **given)
    rows = ", ".join(map(str, zip(*appended().values(), strict=True)))
    insert = f"INSERT INTO {other}.db.trips SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}"
    check_followed(spark, tmp_path / "indexes", catalog, lambda: spark.sql(insert).collect())


def test_given_a_rest_catalog_with_a_token_then_its_table_is_indexed_by_name_and_follows_pyiceberg(
    spark: Any, servers: CatalogServers, tmp_path: Path
) -> None:
    given = {"type": "rest", "uri": servers.rest()}
    named(spark, "stranger", **given)
    with pytest.raises(Exception, match="no token"):
        spark.sql("SHOW NAMESPACES IN stranger").collect()
    catalog = named(spark, "rest", **given, token=TOKEN)
    check_followed(spark, tmp_path, catalog, by_pyiceberg(**given, name="other", token=TOKEN))


def test_given_a_jdbc_catalog_then_its_table_is_indexed_by_name_and_follows_pyiceberg(
    spark: Any, tmp_path: Path
) -> None:
    place = {"warehouse": str(tmp_path / "tables")}
    catalog = named(spark, "jdbc", type="jdbc", uri=f"jdbc:sqlite:{tmp_path}/catalog.db", **place)
    writer = by_pyiceberg(name=catalog, type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", **place)
    check_followed(spark, tmp_path / "indexes", catalog, writer)


def test_given_a_rest_catalog_that_lends_a_token_for_files_then_no_index_copies_them_unless_it_is_asked_for(
    spark: Any, servers: CatalogServers, tmp_path: Path
) -> None:
    catalog = named(spark, "lender", type="rest", uri=servers.rest({"s3.session-token": "secret"}), token=TOKEN)
    spark.sql(f"CREATE NAMESPACE {catalog}.db")
    make(spark, f"{catalog}.db.lent", 2, 20)
    table = IndexedTable.register(spark, f"{catalog}.db.lent", warehouse=tmp_path)
    with pytest.raises(errors.PlainCopyRefused, match=r"lends the rights .*s3\.session-token") as refused:
        table.create_index("by_key", "secondary", ["key"])
    assert "secret" not in str(refused.value) and not table.indexes
    table.create_index("by_key", "secondary", ["key"], properties={"allow_plain_copy": "true"})
    assert table.verify("by_key").ok
