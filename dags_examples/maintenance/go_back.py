"""Takes a table back to an earlier version, by hand: after a load that should not have been.

The rows, the bucket counts and the indexes of that version come back as a new commit. What was written since stays
readable as of its own version, and an index that was made since, over the wrong rows, is dropped.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_index.operators import DropIndexOperator, RestoreTableOperator, VerifyIndexOperator

TABLE = {"table": "{{ params.table }}", "table_conn_id": "index_table_store_default"}

with DAG(
    "go_back",
    params={
        "table": Param(
            "shop.orders", type="string", minLength=1, title="Table", description="A name below the warehouse."
        ),
        "version": Param(1, type="integer", minimum=1, title="Version", description="As the page of the table shows."),
        "drop": Param(
            None, type=["null", "string"], title="Index to drop", description="One that was made since, if any."
        ),
    },
    max_active_runs=1,
    tags=["maintenance"],
    doc_md=__doc__,
):
    restore = RestoreTableOperator(task_id="restore", version="{{ params.version }}", **TABLE)
    drop = DropIndexOperator(task_id="drop", index="{{ params.drop or 'none' }}", if_exists=True, **TABLE)
    verify = VerifyIndexOperator(task_id="verify", **TABLE)
    restore >> drop >> verify
