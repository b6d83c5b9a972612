"""A transaction of several tasks: each stages its part in a job of its own, and one commit publishes all or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

from airflow_provider_index.arguments import is_plain, text_list
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.operators.base import SparkTableOperator
from airflow_provider_index.operators.transactions import (
    PATIENCE,
    BeginTransactionOperator,
    CommitTransactionOperator,
    RollBackTransactionOperator,
)
from airflow_provider_index.task_groups.windows import put_between
from spark_apps.storage.errors import InvalidInput


@dataclass(frozen=True)
class IndexTransaction:
    """The transaction of a task group, with what its tasks need.

    :param transaction: the value for ``transaction`` of operators; operators inside the group get it automatically.
    :param group: the task group, to set upstream and downstream tasks.
    """

    transaction: Any
    group: TaskGroup
    begin: BeginTransactionOperator
    commit: CommitTransactionOperator
    roll_back: RollBackTransactionOperator


@contextmanager
def index_transaction(
    group_id: str,
    *,
    table: str,
    stages: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    window: Any = None,
    patience: float = PATIENCE,
    table_conn_id: str = TableStoreHook.default_conn_name,
    **commit: Any,
) -> Iterator[IndexTransaction]:
    """Publish the work of all operators inside the ``with`` in one commit; each stages it in a job of its own.

    ::

        with index_transaction("load", table="flights") as load:
            write = WriteTableOperator(task_id="write", table="flights", source=…, leave_indexes=["by_city"])
            write >> RefreshIndexOperator(task_id="by_city", table="flights", index="by_city")
            write >> RefreshIndexOperator(task_id="wide", table="flights", index="wide")

    The stages are the operators inside that work on the table: a write, a build or refresh of an index, a compaction.
    A build or refresh downstream of other stages is built from them and sees their staged rows. After any failure
    nothing is published, and a teardown rolls the transaction back. Other transactions can go on meanwhile, on other
    partitions.

    :param stages: the names of the stages, if there are others than the operators inside.
    :param partitions: the partitions that the stages write, as paths; any by default.
    :param window: epoch of the stop-write window in which the work is done.
    :param patience: seconds without a sign of life after which the transaction counts as dead.
    :param commit: more arguments of the task that commits, such as ``outlets`` and ``retries``.
    :param group_id: the id of the task group.
    :param table_conn_id: the connection of the table.
    :returns: the transaction, in a ``with`` statement.
    :raises InvalidInput: for an operator inside that cannot be a stage, two stages with the same name, or a mapped
        task.
    """
    where: dict[str, Any] = {"table": table, "table_conn_id": table_conn_id}
    _check_known(group_id, "stages", stages)
    named = text_list("stages", stages) or []
    with TaskGroup(group_id) as group:
        begun = BeginTransactionOperator(
            task_id="begin",
            stages=named,
            partitions=partitions,
            window=window,
            patience=patience,
            **where,
        ).as_setup()
        committed = CommitTransactionOperator(task_id="commit", transaction=begun.output, **where, **commit)
        rolled_back = RollBackTransactionOperator(task_id="roll_back", transaction=begun.output, **where)
        rolled_back.as_teardown(setups=begun)
        begun >> committed >> rolled_back
        before = set(group.children)
        yield IndexTransaction(begun.output, group, begun, committed, rolled_back)
        work = put_between(begun, committed, group, before)
        made = _make_stages(work, begun, table)
        begun.stages = list(dict.fromkeys([*named, *made]))
        if not begun.stages:
            raise InvalidInput(f"The transaction {group_id!r} has no stage.", hint="Make operators inside of it.")


def _make_stages(work: Sequence[Any], begun: BeginTransactionOperator, table: str) -> list[str]:
    """Make stages of the operators on the table and return their names, those that others are made from first."""
    names: dict[str, str] = {}
    for task in work:
        operator = None if isinstance(task, BaseOperator) else getattr(task, "operator_class", None)
        if isinstance(operator, type) and issubclass(operator, SparkTableOperator):
            raise InvalidInput(
                f"The mapped task {task.task_id!r} cannot be a stage of a transaction, which lists its stages when it "
                "begins.",
                hint="Make one task for each stage, or one stage of all.",
            )
        if not isinstance(task, SparkTableOperator) or task.table != table:
            continue
        for name in ("plan_only", "stage", "after"):
            _check_known(task.task_id, name, getattr(task, name))
        if task.plan_only:
            continue
        task.check_may_be_stage()
        name = task.stage_name
        if name in names.values():
            raise InvalidInput(f"Two tasks of the transaction stage as {name!r}.", hint="Give one another 'stage'.")
        names[task.task_id] = name
    for task in work:
        if task.task_id not in names:
            continue
        if task.transaction is None:
            task.transaction = begun.output
        if task.stageable == "after" and not task.after:
            upstream = task.get_flat_relative_ids(upstream=True)
            task.after = [name for task_id, name in names.items() if task_id in upstream]
    upstream = {task.task_id: task.get_flat_relative_ids(upstream=True) for task in work}
    depth = {task_id: sum(other in upstream[task_id] for other in names) for task_id in names}
    return [names[task_id] for task_id in sorted(names, key=lambda task_id: depth[task_id])]


def _check_known(whose: str, name: str, given: Any) -> None:
    if not is_plain(given):
        raise InvalidInput(
            f"{name} of {whose!r} is known only when the task runs: {given!r}.",
            hint="A transaction lists its stages when the DAG is parsed; give a plain value there.",
        )
