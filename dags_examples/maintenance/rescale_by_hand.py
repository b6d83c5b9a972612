"""Other bucket counts for a table, by hand: a form, a plan with a picture, a person's approval, then the work while
nobody else writes, and a check.

Fill in the form and look at the task `approve`: it shows the sizes of buckets before and after. Until a person
approves, nothing is changed and no window is open; a reject leaves everything as it is.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_index.operators import BucketRescaleOperator, PreviewRescaleOperator, VerifyIndexOperator
from airflow_provider_index.task_groups import stop_write_window

WHERE = {"table": "{{ params.table }}", "table_conn_id": "{{ params.table_conn_id }}"}
RULES = {
    "buckets": "{{ params.buckets or '' }}",
    "bucket_rule": "{{ (params.rule if params.expressions else None) or '' }}",
    "bucket_expressions": "{{ params.expressions or '' }}",
}

with DAG(
    "rescale_by_hand",
    schedule=None,
    max_active_runs=8,
    tags=["maintenance"],
    doc_md=__doc__,
    params={
        "table": Param("", type="string", minLength=1, title="Table", description="Name, URI or path."),
        "expressions": Param(
            None,
            type=["null", "string"],
            title="Rules",
            description="pattern,count;… : the first pattern found in a partition's path gives its count.",
            examples=[r"dt=2026-11-(11|27),256;dt=2026-.*,32"],
        ),
        "buckets": Param(
            None, type=["null", "integer"], minimum=1, maximum=100_000, title="Buckets where no rule matches"
        ),
        "rule": Param(
            "regex",
            type=["null", "string"],
            title="How rules are read",
            description="regex if empty.",
            examples=["regex", "range"],
        ),
        "partitions": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Only these partitions",
            description="Paths such as dt=2026-11-11, one a line; all if empty.",
        ),
        "table_conn_id": Param("index_table_store_default", type="string", title="Table connection"),
    },
):
    plan = BucketRescaleOperator(
        task_id="plan", plan_only=True, partitions="{{ (params.partitions or []) | join('\n') }}", **RULES, **WHERE
    )
    preview = PreviewRescaleOperator(task_id="preview", plan=plan.output, **WHERE)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Rescale this table?",
        body="{{ ti.xcom_pull(task_ids='preview', key='markdown') }}",
        # From apache-airflow-providers-standard 1.12.3 on; the constraints of Airflow 3.1.8 pin an older one.
        response_timeout=timedelta(days=2),
    )
    # Opened only after the approval: a window must not wait for a person.
    with stop_write_window(
        "quiet", partitions=preview.output["partitions"], seconds=1800, patience=120, **WHERE
    ) as window:
        rescale = BucketRescaleOperator(
            task_id="rescale", window=window.epoch, partitions=preview.output["partitions"], **RULES, **WHERE
        )
        verify = VerifyIndexOperator(task_id="verify", **WHERE)
        rescale >> verify
    preview >> approve >> window.group
