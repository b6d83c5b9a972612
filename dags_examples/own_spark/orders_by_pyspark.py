"""Writes orders in a task of Airflow's own Spark provider: `@task.pyspark` makes the session of the connection, and
`IndexedTable` works in it.

The indexes of the table change in the same commit as its rows. An upsert that is repeated leaves the same rows, so a
retry does no harm.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

TABLE, TABLES = "shop.orders", "index_table_store_default"

with DAG(
    "orders_by_pyspark",
    params={"city": Param("rome", type="string", title="City of the new orders")},
    tags=["own spark"],
    doc_md=__doc__,
):
    # The session is of this connection: a master, or a Spark Connect server. Each key of its extra becomes a setting.
    @task.pyspark(conn_id="spark_default")
    def write_orders(spark: Any, params: Any = None) -> dict[str, Any]:
        """Upsert ten orders; return the receipt of the commit."""
        # Where a task runs, not where the DAG is parsed: this imports pyspark.
        from airflow_provider_index.hooks import TableStoreHook
        from spark_apps import IndexedTable

        tables = TableStoreHook(TABLES)
        table = IndexedTable.load(spark, tables.locate(TABLE), storage_options=tables.storage_options)
        orders = spark.range(100, 110).selectExpr("id", "CAST(NULL AS string) AS city").na.fill(params["city"])
        return dict(table.upsert(orders).to_dict())

    write_orders()
