"""The nightly upkeep: folds the day's small files into large ones, in the table and in its indexes, and
verifies these.

Readers and writers go on meanwhile. A verification that finds a difference fails its task and says which.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import (
    CleanTableOperator,
    CompactIndexOperator,
    CompactTableOperator,
    VerifyIndexOperator,
)

TABLE = "demo.flights"

with DAG("flights_nightly", schedule=None, max_active_tasks=2, tags=["flights"], doc_md=__doc__):
    compact_table = CompactTableOperator(task_id="compact_table", table=TABLE, mode="full")
    compact_index = CompactIndexOperator.partial(task_id="compact_index", table=TABLE, mode="full").expand(
        index=["by_key", "by_tailnum", "by_dest"]
    )
    verify = VerifyIndexOperator(task_id="verify", table=TABLE)
    # Nothing younger than a week is deleted.
    clean = CleanTableOperator(task_id="clean", table=TABLE, retain_versions=10, retain_hours=168)
    compact_table >> compact_index >> verify >> clean
