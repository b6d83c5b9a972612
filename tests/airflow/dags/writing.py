"""Writes, is tried again after its commit landed, compacts, and writes what the table refuses."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import (
    BuildIndexOperator,
    CompactTableOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)

CREATE = {
    "schema": "id bigint, city string, part string",
    "record_key": ["id"],
    "partition_by": ["part"],
    "buckets": 2,
}
ROWS = "SELECT id, concat('c', id % 10) AS city, concat('p', id % 2) AS part FROM range({0}, {1})"
HERE = {"table": "db.rows", "table_conn_id": "lake"}


class LosesItsWorker(WriteTableOperator):
    """Ends in failure right after its commit has landed, the first time."""

    def execute(self, context):
        receipt = super().execute(context)
        if context["ti"].try_number == 1:
            raise RuntimeError("the worker is gone")
        return receipt


with DAG("writing", default_args={"retry_delay": timedelta(seconds=1)}):
    load = WriteTableOperator(task_id="load", sql=ROWS.format(0, 1000), create=CREATE, **HERE)
    retried = LosesItsWorker(task_id="retried", sql=ROWS.format(900, 1100), retries=2, **HERE)
    # A table that tasks over Spark Connect write to is indexed by one that brings its own Spark.
    build = BuildIndexOperator(
        task_id="build", index="by_city", kind="secondary", columns=["city"], spark_conn_id="spark_submit", **HERE
    )
    verify = VerifyIndexOperator(task_id="verify", **HERE)
    several = WriteTableOperator(
        task_id="several",
        batches=[
            {"operation": "insert", "sql": ROWS.format(2000, 2010)},
            {"operation": "delete", "where": "id < 5"},
            {"operation": "delete", "where": "id < 5"},
        ],
        **HERE,
    )
    compact = CompactTableOperator(task_id="compact", mode="full", **HERE)
    refused = WriteTableOperator(task_id="refused", operation="insert", sql=ROWS.format(500, 502), retries=5, **HERE)
    load >> build >> retried >> several >> compact >> verify >> refused
