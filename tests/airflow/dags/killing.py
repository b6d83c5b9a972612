"""A write that takes long, to be killed in its middle; its driver is one of ``spark-submit``."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator

HERE = {"table": "db.{{ params.table }}", "table_conn_id": "lake"}
CREATE = {"schema": "id bigint, note string", "record_key": ["id"], "buckets": 1}
# One row that takes its time, read while the attempt is open. The time is a setting of Spark, which is no part of what
# goes in, so that a later try is quick and of the same transaction.
SLEEP = "reflect('java.lang.Thread', 'sleep', bigint(${spark.slow.millis}))"
SLOW = f"SELECT id, concat('', {SLEEP}) AS note FROM range(0, 1, 1, 1)"

with DAG("killing", params={"table": "killed", "seconds": 0}):
    load = WriteTableOperator(task_id="load", sql="SELECT id, 'first' AS note FROM range(10)", create=CREATE, **HERE)
    slow = WriteTableOperator(
        task_id="slow",
        sql=SLOW,
        conf={"spark.slow.millis": "{{ 1000 * params.seconds if ti.try_number == 1 else 0 }}"},
        spark_conn_id="spark_submit",
        retries=1,
        retry_delay=timedelta(seconds=1),
        **HERE,
    )
    load >> slow
