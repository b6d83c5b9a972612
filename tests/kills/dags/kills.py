"""The five kinds of work that are interrupted, each held by its task, deferred or detached, with and without limits of
time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_index.operators import (
    BucketRescaleOperator,
    BuildIndexOperator,
    CompactTableOperator,
    IncrementalRefreshOperator,
    WriteTableOperator,
)
from airflow_provider_index.task_groups import index_transaction, stop_write_window

TASK_LIMIT = timedelta(seconds=60)
RUN_LIMIT = timedelta(seconds=90)
SILENT_SECONDS = 25
"""After so long without a sign of life an app that was left behind is taken for dead."""
# The rows that were there get a new note, and as many are new.
ROWS = "SELECT id, concat('new ', id % 7) AS note, concat('p', id % 3) AS part FROM range(2000, 6000)"


def write(**shared: Any) -> None:
    WriteTableOperator(task_id="work", sql=ROWS, **shared)


def build(**shared: Any) -> None:
    BuildIndexOperator(task_id="work", index="more", kind="secondary", columns=["note"], **shared)


def compact(**shared: Any) -> None:
    CompactTableOperator(task_id="work", **shared)


def rescale(table: str, table_conn_id: str, **shared: Any) -> None:
    where = {"table": table, "table_conn_id": table_conn_id}
    with stop_write_window("window", seconds=240, at_most=480, patience=5, **where) as window:
        BucketRescaleOperator(task_id="work", buckets=4, window=window.epoch, **where, **shared)


def transaction(table: str, table_conn_id: str, **shared: Any) -> None:
    where = {"table": table, "table_conn_id": table_conn_id}
    with index_transaction("together", **where):
        rows = WriteTableOperator(task_id="work", sql=ROWS, **where, **shared)
        index = IncrementalRefreshOperator(task_id="index", index="by_note", **where, **shared)
        rows >> index


for make in (write, build, compact, rescale, transaction):
    for mode in ("held", "deferred", "detached"):
        for limit in ("", "task_limit", "run_limit"):
            with DAG(
                "_".join(filter(None, [make.__name__, mode, limit])),
                params={"table": ""},
                dagrun_timeout=RUN_LIMIT if limit == "run_limit" else None,
            ):
                make(
                    table="{{ params.table }}",
                    table_conn_id="lake",
                    deferrable=mode == "deferred",
                    runner="left_behind.LeftBehindRunner" if mode == "detached" else None,
                    silent_seconds=SILENT_SECONDS,
                    execution_timeout=TASK_LIMIT if limit == "task_limit" else None,
                    retries=2,
                    retry_delay=timedelta(seconds=2),
                )
