"""How the tasks of a transaction depend on each other, and what becomes a stage."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup, task

from airflow_provider_index.operators import (
    BucketRescaleOperator,
    BuildIndexOperator,
    CompactTableOperator,
    RefreshIndexOperator,
    WriteTableOperator,
)
from airflow_provider_index.operators.staged import InTransaction
from airflow_provider_index.task_groups import index_transaction
from spark_apps.storage.errors import InvalidInput

T = {"table": "/t"}


def test_the_operators_inside_become_stages_and_what_is_downstream_is_made_from_what_is_upstream() -> None:
    with DAG("d") as dag:
        before = EmptyOperator(task_id="before")
        with index_transaction("load", partitions=["dt=1"], retries=3, **T) as load:
            write = WriteTableOperator(task_id="write", sql="a", leave_indexes=["by_city"], **T)
            check = EmptyOperator(task_id="check")
            with TaskGroup("indexes"):
                by_city = RefreshIndexOperator(task_id="by_city", index="by_city", **T)
                wide = BuildIndexOperator(task_id="2-wide", index="wide", kind="covering", columns=["c"], **T)
            CompactTableOperator(task_id="fold", **T)
            elsewhere = WriteTableOperator(task_id="elsewhere", sql="a", table="/other")
            write >> check >> [by_city, wide]
        after = EmptyOperator(task_id="after")
        before >> load.group >> after

    assert load.begin.stages == ["write", "fold", "by_city", "s-2-wide"]
    assert list(by_city.after) == ["write"] and list(wide.after) == ["write"] and list(write.after) == []
    assert elsewhere.transaction is None and write.transaction is not None

    def upstream(task_id: str) -> set[str]:
        return dag.get_task(task_id).upstream_task_ids

    assert upstream("load.begin") == {"before"}
    assert upstream("load.write") == {"load.begin"} == upstream("load.fold")
    leaves = {"load.indexes.by_city", "load.indexes.2-wide", "load.fold", "load.elsewhere"}
    assert upstream("load.commit") == {"load.begin", *leaves}
    assert upstream("load.roll_back") == {"load.begin", "load.commit"}
    assert dag.get_task("load.begin").is_setup and dag.get_task("load.roll_back").is_teardown
    assert load.commit.retries == 3
    assert "load.commit" in upstream("after") and "load.roll_back" not in upstream("after")


def test_a_task_that_takes_what_a_stage_returned_stands_between_it_and_what_is_made_from_it() -> None:
    @task
    def check(staged: dict[str, Any]) -> None:
        raise ValueError(staged)

    with DAG("d") as dag, index_transaction("load", **T) as load:
        write = WriteTableOperator(task_id="write", sql="a", **T)
        index = RefreshIndexOperator(task_id="by_city", index="by_city", **T)
        check(write.output) >> index

    assert dag.get_task("load.check").upstream_task_ids == {"load.write"}
    assert list(index.after) == ["write"]
    assert load.commit.upstream_task_ids == {"load.begin", "load.by_city"}
    hidden = {name for name in vars(InTransaction) if hasattr(BaseOperator, name) and not name.startswith("__")}
    assert hidden == set(), "names that Airflow uses itself"


def test_what_cannot_be_a_stage_is_refused_when_the_dag_is_read() -> None:
    with DAG("d"):
        with pytest.raises(InvalidInput, match="BucketRescaleOperator cannot be a stage"), index_transaction("a", **T):
            BucketRescaleOperator(task_id="rescale", buckets=2, **T)
        with (
            pytest.raises(InvalidInput, match="Two tasks of the transaction stage as 'w'"),
            index_transaction("b", **T),
        ):
            WriteTableOperator(task_id="w", sql="a", **T)
            WriteTableOperator(task_id="x", sql="b", stage="w", **T)
        with pytest.raises(InvalidInput, match="mapped task"), index_transaction("c", **T):
            WriteTableOperator.partial(task_id="w", **T).expand(sql=["a", "b"])
        with pytest.raises(InvalidInput, match="has no stage"), index_transaction("e", **T):
            EmptyOperator(task_id="nothing")
