"""Gives the busiest months more buckets, by hand: a plan first, then the work while nobody else writes,
then a check.

Writers that meet the stop-write window are refused with a message that says who holds it and until when;
with retries they succeed once it is closed.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_index.operators import BucketRescaleOperator, IncrementalRefreshOperator, VerifyIndexOperator
from airflow_provider_index.task_groups import stop_write_window

TABLE = "demo.flights"
RULES = {"buckets": "{{ params.buckets }}", "bucket_expressions": "{{ params.expressions }}"}

with DAG(
    "flights_rescale",
    schedule=None,
    max_active_tasks=2,
    tags=["flights"],
    doc_md=__doc__,
    params={
        "buckets": Param(2, type="integer", minimum=1, title="Buckets where no rule matches"),
        "expressions": Param(
            r"month=(7|8|10)$,8",
            type="string",
            title="Rules",
            description="pattern,count;… : the first pattern found in a partition's path gives its count.",
        ),
    },
):
    plan = BucketRescaleOperator(task_id="plan", table=TABLE, plan_only=True, **RULES)
    with stop_write_window("quiet", table=TABLE, seconds=1800, patience=120) as window:
        rescale = BucketRescaleOperator(task_id="rescale", table=TABLE, window=window.epoch, **RULES)
        # Indexes that address files take the new ones in.
        refresh = IncrementalRefreshOperator.partial(task_id="refresh_index", table=TABLE, window=window.epoch).expand(
            index=["by_route", "by_delay"]
        )
        rescale >> refresh
    # Which rows there are is what a rescale could get wrong. The nightly run verifies all indexes.
    verify = VerifyIndexOperator(task_id="verify", table=TABLE, index="by_key")
    plan >> window.group >> verify
