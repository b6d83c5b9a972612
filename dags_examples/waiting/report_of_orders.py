"""Waits for the day's orders, and for the index over them, before it reads: five sensors that leave their slot.

This DAG need not know who writes the orders, nor by which DAG: the commit in the table's log is what counts.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_index.operators import IndexSQLOperator
from airflow_provider_index.sensors import (
    IndexFreshnessSensor,
    IndexStateSensor,
    StopWriteWindowClosedSensor,
    TableCommitSensor,
    TableRowSensor,
)

ORDERS = {"table": "shop.orders", "table_conn_id": "index_table_store_default", "deferrable": True}

with DAG(
    "report_of_orders",
    params={
        "city": Param("rome", type="string", title="City"),
        "after": Param(0, type="integer", minimum=0, title="A version of the table that was seen already"),
    },
    tags=["waiting"],
    doc_md=__doc__,
):
    landed = TableCommitSensor(
        task_id="landed", after_version="{{ params.after }}", operations=["upsert", "insert"], **ORDERS
    )
    quiet = StopWriteWindowClosedSensor(task_id="quiet", **ORDERS)
    built = IndexStateSensor(task_id="built", index="by_city", states=["active"], **ORDERS)
    fresh = IndexFreshnessSensor(task_id="fresh", index="by_city", within_commits=0, **ORDERS)
    # What a person wrote into the form is bound as a value; in the text itself it could say anything.
    city = {"city": "{{ params.city }}"}
    ordered = TableRowSensor(task_id="ordered", where="city = :city", parameters=city, at_least=1, **ORDERS)
    report = IndexSQLOperator(
        task_id="report",
        sql="SELECT count(*) AS orders FROM shop.orders WHERE city = :city",
        parameters=city,
        table_conn_id=ORDERS["table_conn_id"],
    )
    landed >> quiet >> built >> fresh >> ordered >> report
