"""How the tasks of a stop-write window depend on each other."""

from __future__ import annotations

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup

from airflow_provider_index.operators import BucketRescaleOperator
from airflow_provider_index.task_groups import stop_write_window
from spark_apps.storage.errors import InvalidInput


def test_work_waits_for_the_writers_and_closing_waits_for_the_work() -> None:
    with DAG("d") as dag:
        before = EmptyOperator(task_id="before")
        with stop_write_window("window", table="/t", partitions=["dt=1"], patience=60) as window:
            first = BucketRescaleOperator(task_id="first", table="/t", buckets=8, window=window.epoch)
            with TaskGroup("inner"):
                middle = EmptyOperator(task_id="middle")
            last = EmptyOperator(task_id="last")
            first >> middle >> last
            EmptyOperator(task_id="beside")
        after = EmptyOperator(task_id="after")
        before >> window.group >> after

    def upstream(task_id: str) -> set[str]:
        return dag.get_task(task_id).upstream_task_ids

    assert upstream("window.open") == {"before"}
    assert upstream("window.drained") == {"window.open"}
    assert upstream("window.first") == {"window.open", "window.drained"}
    assert upstream("window.inner.middle") == {"window.first"}
    assert upstream("window.beside") == {"window.drained"}
    assert upstream("window.close") == {"window.open", "window.drained", "window.last", "window.beside"}
    assert dag.get_task("window.open").is_setup and dag.get_task("window.close").is_teardown
    assert upstream("after") >= {"window.last", "window.beside"}
    assert "window.close" not in upstream("after")


def test_given_no_patience_then_a_short_window_keeps_half_of_its_time_for_the_work() -> None:
    with DAG("d"):
        with stop_write_window("short", table="/t", seconds=60, at_most=300) as short:
            EmptyOperator(task_id="a")
        with stop_write_window("long", table="/t") as long:
            EmptyOperator(task_id="b")
        with (
            pytest.raises(InvalidInput, match="patience is 600"),
            stop_write_window("w", table="/t", at_most=600, patience=600),
        ):
            pass

    assert (short.drained.patience, long.drained.patience) == (150, 600)
