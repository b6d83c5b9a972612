"""Delta tables by their names in a session's catalog, whose logs are below a warehouse."""

from __future__ import annotations

import pytest

import spark_apps
from spark_apps import IndexedTable, open_table, sql
from spark_apps.storage import errors
from spark_apps.storage.store import SOURCE_ROOTS
from spark_apps.timeline.allowed_sources import _NAMED
from spark_apps.timeline.locations import Warehouse

pytestmark = pytest.mark.usefixtures("delta")


def test_given_a_name_and_a_warehouse_then_the_log_is_there_and_the_catalog_says_where_the_table_is(spark, tmp_path):
    root, table_path = str(tmp_path / "w"), str(tmp_path / "w" / "t")
    spark.sql("DROP TABLE IF EXISTS named")
    spark.sql(f"CREATE TABLE named (id BIGINT, n BIGINT) USING delta LOCATION '{table_path}'")
    rows = spark.range(400).selectExpr("id", "id * 7919 % 400 AS n")
    rows.repartitionByRange(4, "id").write.insertInto("named")
    spark_apps.enable(spark, warehouse=root)
    table = IndexedTable.register(spark, "named", record_key=["id"])
    try:
        assert table.uri.startswith(f"{root}/_indexes/spark_catalog/default/named-")
        sql.run(spark, "CREATE INDEX by_n ON default.named (n)", warehouse=root)
        assert Warehouse(root).locate("default.named") == table.uri
        for name in ("named", "default.named", "spark_catalog.default.named"):
            assert IndexedTable.load(spark, name).uri == table.uri
        asked = f"SELECT * FROM named WHERE n = {201 * 7919 % 400}"
        assert [scan.scanned for scan in spark_apps.explain(asked, spark).scans] == [(4, 1)]
        assert [row.id for row in spark.sql(asked).collect()] == [201]

        # Another process, which has not named log and table together.
        _NAMED.clear()
        assert IndexedTable.load(spark, table.uri).read("n = 3").count() == 1
        with pytest.raises(errors.SourceNotAllowed, match="only the catalog of a Spark session knows"):
            open_table("default.named", warehouse=root)
        allowed = {SOURCE_ROOTS: [table_path]}
        assert open_table("default.named", warehouse=root, options=allowed).read("n = 3").num_rows == 1
        spark.sql("DROP TABLE named")
        spark.sql(f"CREATE TABLE named USING delta LOCATION '{tmp_path / 'other'}' AS SELECT 1L AS id, 3L AS n")
        with pytest.raises(errors.SourceNotAllowed, match="which the session's catalog has at"):
            IndexedTable.load(spark, table.uri)
        again = IndexedTable.register(spark, "named", record_key=["id"])
        assert again.uri != table.uri and IndexedTable.load(spark, "named").read().count() == 1

        # In another session since this one was enabled: it asks for the name.
        spark.sql("DROP TABLE named")
        spark.sql(f"CREATE TABLE named (id BIGINT, n BIGINT) USING delta LOCATION '{tmp_path / 'since'}'")
        rows.repartitionByRange(4, "id").write.insertInto("named")
        since = IndexedTable.register(spark.newSession(), "default.named", warehouse=root)
        since.create_index("by_n", "secondary", ["n"])
        assert [scan.scanned for scan in spark_apps.explain(asked, spark).scans] == [(4, 1)]
    finally:
        spark_apps.disable(spark)
        spark.sql("DROP TABLE IF EXISTS named")
