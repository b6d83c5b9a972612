"""Takes in late corrections, whenever they come.

Another writer may hold a stop-write window over the table just then. The write is refused before it costs
anything, and the retries bring it in when the window is closed.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator

TABLE = "demo.flights"

with DAG("flights_correction", schedule=None, tags=["flights"], doc_md=__doc__):
    WriteTableOperator(
        task_id="correct",
        table=TABLE,
        source="{{ var.value.flights_landing }}/late",
        retries=30,
        retry_delay=timedelta(seconds=10),
    )
