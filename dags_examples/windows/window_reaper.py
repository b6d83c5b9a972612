"""Ends what was left open in a warehouse, every ten minutes: stop-write windows past their deadline, and writers that
gave no sign of life for an hour.

A run that Airflow ended by ``dagrun_timeout`` skips its teardowns, so its window stays open until the deadline and its
transaction until its patience is over. Nothing is wrong then, but others wait; this DAG says in its log who left what.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import EndExpiredWindowsOperator

with DAG(
    "window_reaper",
    schedule=timedelta(minutes=10),
    catchup=False,
    max_active_runs=1,
    tags=["upkeep"],
    doc_md=__doc__,
):
    EndExpiredWindowsOperator(task_id="end_expired", silent_seconds=3600, table_conn_id="index_table_store_default")
