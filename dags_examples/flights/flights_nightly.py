"""The nightly upkeep: folds the day's small files into large ones, in the table and in its indexes, refreshes
the indexes that address files, and verifies all of them.

Readers and writers go on meanwhile. A verification that finds a difference fails its task and says which.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import (
    CleanTableOperator,
    CompactIndexOperator,
    CompactTableOperator,
    IncrementalRefreshOperator,
    VerifyIndexOperator,
)

TABLE = "demo.flights"

with DAG("flights_nightly", schedule=None, max_active_tasks=2, tags=["flights"], doc_md=__doc__):
    compact_table = CompactTableOperator(task_id="compact_table", table=TABLE, mode="full")
    # Indexes of kind record and secondary are kept in every commit; only their files become many.
    compact_index = CompactIndexOperator.partial(task_id="compact_index", table=TABLE, mode="full").expand(
        index=["by_key", "by_tailnum"]
    )
    # Those of kind covering and compact speak of files, and these are others after a compaction.
    refresh_index = IncrementalRefreshOperator.partial(task_id="refresh_index", table=TABLE).expand(
        index=["by_route", "by_delay"]
    )
    verify = VerifyIndexOperator(task_id="verify", table=TABLE)
    # Nothing younger than a week is deleted.
    clean = CleanTableOperator(task_id="clean", table=TABLE, retain_versions=10, retain_hours=168)
    compact_table >> [compact_index, refresh_index] >> verify >> clean
