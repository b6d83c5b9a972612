"""A rescale inside a stop-write window, while a writer that is not its holder tries; and a window over a table that a
catalog names."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider_index.operators import (
    BucketRescaleOperator,
    CloseStopWriteWindowOperator,
    OpenStopWriteWindowOperator,
    WriteTableOperator,
)
from airflow_provider_index.task_groups import stop_write_window

HERE = {"table": "db.windowed", "table_conn_id": "lake"}
NAMED = {"table": "prod.db.trips", "table_conn_id": "lake"}
ROWS = "SELECT id, concat('p', id % 2) AS part FROM range({0}, {1})"
CREATE = {"schema": "id bigint, part string", "record_key": ["id"], "partition_by": ["part"], "buckets": 1}

# Outside the window its epoch comes by a template: a task that takes it from the setup itself would belong
# to the window.
EPOCH = "{{ ti.xcom_pull(task_ids='quiet.open')['epoch'] }}"
NAMED_EPOCH = "{{ ti.xcom_pull(task_ids='named_open')['epoch'] }}"

with DAG("windows"):
    load = WriteTableOperator(task_id="load", sql=ROWS.format(0, 100), create=CREATE, **HERE)
    plan = BucketRescaleOperator(task_id="plan", buckets=3, plan_only=True, **HERE)
    with stop_write_window("quiet", seconds=300, deferrable=True, poke_interval=1, **HERE) as window:
        writer = WriteTableOperator(task_id="writer", sql=ROWS.format(100, 200), **HERE)
        tried = EmptyOperator(task_id="tried", trigger_rule="all_done")
        rescale = BucketRescaleOperator(task_id="rescale", buckets=3, window=window.epoch, **HERE)
        writer >> tried >> rescale
    after = WriteTableOperator(task_id="after", sql=ROWS.format(100, 200), **HERE)
    fenced = BucketRescaleOperator(task_id="fenced", buckets=5, window=EPOCH, retries=5, **HERE)
    again = CloseStopWriteWindowOperator(task_id="again", window=EPOCH, **HERE)
    never = CloseStopWriteWindowOperator(task_id="never", window=9999, retries=5, **HERE)
    named_open = OpenStopWriteWindowOperator(task_id="named_open", seconds=300, **NAMED)
    named_open >> CloseStopWriteWindowOperator(task_id="named_close", window=NAMED_EPOCH, **NAMED)
    load >> plan >> window.group
    window.close >> after >> [fenced, again, never]
