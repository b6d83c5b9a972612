"""Every argument of every trigger and task group means the same as a value and as text, or is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_index.operators import WriteTableOperator
from airflow_provider_index.task_groups import index_transaction, stop_write_window
from spark_apps.storage.errors import InvalidInput
from tests.airflow_provider_index.every_argument.surface import (
    MEANINGS,
    arguments,
    groups,
    meanings,
    named,
    readable,
    required,
    triggers,
)

WHERE: dict[str, dict[str, list[tuple[str, str]]]] = {
    "stop_write_window": {
        "table": [("open", "table"), ("drained", "table"), ("close", "table")],
        "table_conn_id": [("open", "table_conn_id"), ("drained", "table_conn_id"), ("close", "table_conn_id")],
        "partitions": [("open", "partitions")],
        "seconds": [("open", "seconds")],
        "at_most": [("open", "at_most")],
        "holder": [("open", "holder")],
        "wait_seconds": [("open", "wait_seconds")],
        "patience": [("drained", "patience")],
    },
    "index_transaction": {
        "table": [("begin", "table"), ("commit", "table"), ("roll_back", "table")],
        "table_conn_id": [("begin", "table_conn_id"), ("commit", "table_conn_id"), ("roll_back", "table_conn_id")],
        "partitions": [("begin", "partitions")],
        "window": [("begin", "window")],
        "patience": [("begin", "patience")],
        "stages": [("begin", "stages")],
    },
}
"""Group -> argument -> the tasks that get it."""


@pytest.mark.parametrize("kind", triggers(), ids=lambda kind: kind.__name__)
def test_every_argument_of_a_trigger_is_read_also_from_text(kind: type) -> None:
    assert set(arguments(kind)) >= set(required(kind))
    for name in readable(kind):
        for value, meaning in meanings(kind, name):
            for form in (value, str(value)):
                trigger: Any = kind(**{**required(kind), name: form})
                kept = trigger.serialize()[1][name]
                if name == "submission":
                    assert kept.items() >= meaning.items()
                else:
                    assert kept == (sorted(meaning) if name == "operations" else meaning), (name, form)


@pytest.mark.parametrize("kind", triggers(), ids=lambda kind: kind.__name__)
def test_what_no_argument_of_a_trigger_can_mean_is_refused_at_once(kind: Callable[..., Any]) -> None:
    for name in readable(kind):  # type: ignore[arg-type]
        for junk in ([["a"]], object(), {1: 2}):
            with pytest.raises(InvalidInput, match=name):
                kind(**{**required(kind), name: junk})  # type: ignore[arg-type]


RETURNED = object()
"""Stands for what another task returns."""


def made(group: Callable[..., Any], **given: Any) -> dict[str, Any]:
    with DAG("d", schedule=None) as dag:
        returned = task(lambda: 1, task_id="other")()  # type: ignore[arg-type]
        given = {name: returned if value is RETURNED else value for name, value in given.items()}
        with group("g", **{"table": "t", **given}):
            WriteTableOperator(task_id="work", table=given.get("table", "t"), sql="SELECT 1", stage="a_stage")
    return {"other": returned, **{one.task_id.removeprefix("g."): one for one in dag.tasks if one.task_id != "other"}}


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.__name__)
def test_every_argument_of_a_group_reaches_its_tasks_with_its_meaning(group: Callable[..., Any]) -> None:
    names = set(named(group)) - {"group_id"}
    assert names == set(WHERE[group.__name__])
    for name in names:
        for value, meaning in MEANINGS[name]:
            for form in (value, str(value)):
                tasks = made(group, **{name: form})
                for task_id, argument in WHERE[group.__name__][name]:
                    wanted = [*meaning, "a_stage"] if name == "stages" else meaning
                    assert getattr(tasks[task_id], argument) == wanted, (name, form)


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.__name__)
def test_templates_and_what_other_tasks_return_pass_through_a_group_or_are_refused(group: Callable[..., Any]) -> None:
    for name in set(named(group)) - {"group_id", "table"}:
        for given in ("{{ params.x }}", RETURNED):
            if name == "stages":
                with pytest.raises(InvalidInput, match="known only when the task runs"):
                    made(group, stages=given)
                continue
            tasks = made(group, **{name: given})
            for task_id, argument in WHERE[group.__name__][name]:
                assert getattr(tasks[task_id], argument) is (tasks["other"] if given is RETURNED else given), name


@pytest.mark.parametrize("group", [stop_write_window, index_transaction])
def test_what_a_group_cannot_mean_is_refused_where_the_dag_is_parsed(group: Callable[..., Any]) -> None:
    for name in WHERE[group.__name__]:
        with pytest.raises(InvalidInput, match=name):
            made(group, **{name: [["no such thing"]]})
