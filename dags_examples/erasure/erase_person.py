"""Takes a person's rows out of a table for good, by hand and after an approval.

The rows are deleted, and once more until none is found, for others may have come meanwhile. Then the table
and its indexes are folded, so that no file of the newest version holds them any more, and older versions are expired
and their files removed: nobody can read the rows back afterwards, nor go back to a version before. What the logs hold
of them goes too, and at the end every file below the table is searched for the values of the predicate.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.operators import (
    CleanTableOperator,
    CompactIndexOperator,
    CompactTableOperator,
    IncrementalRefreshOperator,
    PreviewErasureOperator,
    WriteTableOperator,
)

DELETES = 3
"""Each but the first finds only what was written while the one before it was at work."""

TABLE: dict[str, Any] = {"table": "{{ params.table }}", "table_conn_id": "index_table_store_default"}

with DAG(
    "erase_person",
    params={
        "table": Param(
            "lake.trips", type="string", minLength=1, title="Table", description="A name below the warehouse."
        ),
        "where": Param(
            "rider = 'r-17'", type="string", minLength=1, title="Rows", description="A SQL predicate on the table."
        ),
        "tombstones": Param(
            True,
            type="boolean",
            title="Forget the deletes",
            description="Deletes kept against late rows hold record keys; without them a day that is delivered again "
            "brings the rows back.",
        ),
    },
    max_active_runs=1,
    render_template_as_native_obj=True,
    tags=["erasure"],
    doc_md=__doc__,
):

    @task
    def indexes_of(table: str) -> list[str]:
        """Return the names of the table's indexes."""
        return list(TableStoreHook(TABLE["table_conn_id"]).timeline(table).head.indexes)

    @task
    def check_none_left(deleted: list[dict[str, Any]]) -> None:
        """Fail if the last delete found rows still: whoever writes them must stop before they can be erased."""
        if deleted[-1]["version"] is not None:
            raise RuntimeError(
                f"Each of {len(deleted)} deletes found rows, so they are still being written. Those found so far are "
                "deleted, and can be read in older versions. Stop what writes them, then trigger this DAG again."
            )

    @task
    def prove(table: str, where: str) -> dict[str, Any]:
        """Fail if a file below the table still holds a value of the predicate: a running writer may need it."""
        report = TableStoreHook(TABLE["table_conn_id"]).open(table).verify_erasure(where)
        if not report.ok:
            raise RuntimeError(f"Not all is erased. Clear the task clean when running writers have ended.\n{report}")
        return report.to_dict()

    # A person approves what was read of the predicate: its text may hold comments, and Markdown.
    preview = PreviewErasureOperator(task_id="preview", where="{{ params.where }}", **TABLE)
    approved = ApprovalOperator(
        task_id="approve",
        subject="Erase these rows for good?",
        body="{{ ti.xcom_pull(task_ids='preview', key='markdown') }}",
    )
    delete = WriteTableOperator(
        task_id="delete", batches=[{"operation": "delete", "where": "{{ params.where }}"}] * DELETES, **TABLE
    )
    fold = CompactTableOperator(task_id="fold", mode="full", **TABLE)
    indexes = indexes_of(TABLE["table"])
    # First every index gets to know of the rows that went, then its files lose them.
    refresh = IncrementalRefreshOperator.partial(task_id="refresh_indexes", **TABLE).expand(index=indexes)
    compact = CompactIndexOperator.partial(task_id="fold_indexes", mode="full", **TABLE).expand(index=indexes)
    # The steps of a table without indexes are skipped; after a reject all are, and nothing may be cleaned.
    clean = CleanTableOperator(
        task_id="clean", retain_versions=1, retain_hours=0, published_log=True, query_log=True,
        tombstones="{{ params.tombstones }}",
        trigger_rule="none_failed_min_one_success", **TABLE,
    )  # fmt: skip
    preview >> approved >> delete
    check_none_left(delete.output) >> fold >> indexes
    refresh >> compact >> clean
    fold >> clean >> prove(TABLE["table"], "{{ params.where }}")
