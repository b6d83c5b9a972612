"""Writes orders by an app of one's own, `orders_app.py`, which Airflow's own `SparkSubmitOperator` submits, inside a
stop-write window: while it is open no other writer commits.

The app gets the window's epoch, and writes with it. Had the window ended before, its commit would be refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param

from airflow_provider_index.task_groups import stop_write_window

TABLE = "shop.orders"

with (
    DAG(
        "orders_by_submit",
        params={"location": Param("/data/warehouse/shop/orders", type="string", title="Where the table is")},
        tags=["own spark"],
        doc_md=__doc__,
    ),
    stop_write_window("quiet", table=TABLE, seconds=1800),
):
    SparkSubmitOperator(
        task_id="write_orders",
        application=str(Path(__file__).with_name("orders_app.py")),
        # A command line is text, and the epoch a number: a template makes text of it.
        application_args=["{{ params.location }}", "{{ ti.xcom_pull('quiet.open', key='epoch') }}"],
        conn_id="spark_default",
        # The Python that has the package, for the driver and the executors.
        conf={"spark.pyspark.python": sys.executable},
    )
