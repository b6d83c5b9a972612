"""Takes in December, a delivery and a commit a day: new flights, corrections, and flights that were
cancelled.

A delivery holds rows of the table and a column ``cancelled``; where that is true, the flight of that key is
deleted in the same commit. All indexes are kept in each commit. The first 29 deliveries are written by one
app, which saves the start of Spark; the last two are tasks of their own, as a daily DAG would have them.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator

TABLE = "demo.flights"
DELIVERIES = "{{ var.value.flights_landing }}/deliveries"

with DAG("flights_december", schedule=None, tags=["flights"], doc_md=__doc__):
    days = WriteTableOperator(
        task_id="days_1_to_29",
        table=TABLE,
        source=DELIVERIES,
        deleted="cancelled",
        # Each batch is a commit of its own; a retry goes on behind the last that landed.
        batches=[
            {"sql": f"SELECT * EXCEPT (delivery) FROM source WHERE delivery = DATE'2013-12-{day:02d}'"}
            for day in range(1, 30)
        ],
    )
    previous = days
    for day in (30, 31):
        task = WriteTableOperator(
            task_id=f"day_{day}",
            table=TABLE,
            source=f"{DELIVERIES}/delivery=2013-12-{day:02d}",
            deleted="cancelled",
        )
        previous >> task
        previous = task
