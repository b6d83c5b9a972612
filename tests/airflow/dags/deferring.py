"""A write that is waited for in the triggerer, and takes as long as its run says, on its first try.

A later try takes some seconds too: a scheduler that hears of the task's return before it hears that the task had left
takes it for killed (docs/waiting.md).
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator
from airflow_provider_index.sensors import IndexStateSensor

CREATE = {"schema": "id bigint, note string", "record_key": ["id"], "buckets": 1}
# How long is said in a setting of Spark, which is no part of what goes in: a retry finds the same transaction.
SLOW = "SELECT id, concat('', reflect('java.lang.Thread', 'sleep', bigint(${spark.slow.millis}))) AS note FROM range(1)"
SHARED = {
    "table": "db.{{ params.table }}",
    "table_conn_id": "lake",
    "sql": SLOW,
    "create": CREATE,
    "conf": {"spark.slow.millis": "{{ 1000 * params.seconds if ti.try_number == 1 else 6000 }}"},
    "deferrable": True,
    "poll_interval": 1,
}

with DAG("deferring", params={"table": "deferred", "seconds": 0}):
    write = WriteTableOperator(task_id="write", spark_conn_id="spark_submit", **SHARED)
    seen = IndexStateSensor(
        task_id="seen", table="db.{{ params.table }}", table_conn_id="lake", index="none", states=["absent"]
    )
    write >> seen

with DAG("deferring_over_connect", params={"table": "deferred", "seconds": 0}):
    WriteTableOperator(task_id="write", **SHARED)

with DAG("deferring_in_time", params={"table": "late", "seconds": 600}):
    WriteTableOperator(task_id="write", execution_timeout=timedelta(seconds=45), **SHARED)
