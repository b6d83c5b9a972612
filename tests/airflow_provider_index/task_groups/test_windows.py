"""How the tasks of a stop-write window depend on each other."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup

from airflow_provider_index.operators import BucketRescaleOperator
from airflow_provider_index.task_groups import stop_write_window


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
