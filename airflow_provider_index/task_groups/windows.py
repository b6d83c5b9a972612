"""Work inside a stop-write window: opened before it, drained, and closed after it whatever became of the work."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from airflow.sdk import TaskGroup

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.operators.windows import (
    CloseStopWriteWindowOperator,
    OpenStopWriteWindowOperator,
    check_drain,
)
from airflow_provider_index.sensors.timeline import WritersDrainedSensor
from spark_apps.timeline.limits import WINDOW_SECONDS

_PATIENCE = 600.0


@dataclass(frozen=True)
class StopWriteWindow:
    """The stop-write window of a task group, with what its tasks need.

    :param epoch: the value for ``window`` of the operators inside.
    :param group: the task group, to set upstream and downstream tasks.
    """

    epoch: Any
    group: TaskGroup
    open: OpenStopWriteWindowOperator
    drained: WritersDrainedSensor
    close: CloseStopWriteWindowOperator


@contextmanager
def stop_write_window(
    group_id: str,
    *,
    table: str,
    partitions: Sequence[str] | None = None,
    seconds: float = WINDOW_SECONDS,
    at_most: float | None = None,
    holder: str | None = None,
    patience: float | Literal["auto"] | None = "auto",
    wait_seconds: float | None = None,
    table_conn_id: str = TableStoreHook.default_conn_name,
    **sensor: Any,
) -> Iterator[StopWriteWindow]:
    """Run the tasks inside the ``with`` block while no other writer can commit.

    ::

        with stop_write_window("rescale", table="flights", seconds=1800) as window:
            BucketRescaleOperator(task_id="rescale", table="flights", buckets=8, window=window.epoch)

    The window is opened by a setup task and closed by a teardown. Airflow does not always run a teardown. Then the
    window ends at its deadline, and work with an epoch that has ended is refused.

    :param partitions: the partitions to hold, as paths; the whole table by default.
    :param seconds: seconds until the deadline.
    :param at_most: seconds until the last moment, which cannot be extended.
    :param patience: seconds to wait for writers that began earlier, less than ``at_most``; then they are ended by a
        commit. ``None`` waits for them until the sensor's timeout. By default ten minutes, or half of ``at_most`` if
        that is less.
    :param wait_seconds: seconds to wait for other windows in the scope to end before this one opens.
    :param sensor: more arguments of the sensor that waits for earlier writers, such as ``deferrable`` and
        ``poke_interval``.
    :param group_id: the id of the task group.
    :param table_conn_id: the connection of the table.
    :param holder: who holds it, for people.
    :returns: the window, in a ``with`` statement; pass its ``epoch`` to the tasks inside.
    """
    if patience == "auto":
        patience = min(_PATIENCE, at_most / 2) if isinstance(at_most, (int, float)) else _PATIENCE
    check_drain("patience", patience, seconds, at_most)
    where: dict[str, Any] = {"table": table, "table_conn_id": table_conn_id}
    with TaskGroup(group_id) as group:
        opened = OpenStopWriteWindowOperator(
            task_id="open",
            partitions=partitions,
            seconds=seconds,
            at_most=at_most,
            holder=holder,
            wait_seconds=wait_seconds,
            **({"deferrable": sensor["deferrable"]} if "deferrable" in sensor else {}),
            **where,
        ).as_setup()
        epoch = opened.output["epoch"]
        drained = WritersDrainedSensor(
            task_id="drained",
            window=epoch,
            patience=patience,
            **{"poke_interval": 5, **where, **sensor},
        )
        close = CloseStopWriteWindowOperator(task_id="close", window=epoch, **where).as_teardown(setups=opened)
        opened >> drained >> close
        before = set(group.children)
        yield StopWriteWindow(epoch, group, opened, drained, close)
        put_between(drained, close, group, before)


def put_between(first: Any, last: Any, group: TaskGroup, before: Collection[str]) -> list[Any]:
    """Put the tasks that a group got meanwhile between two others, and return them.

    Only those that wait for none of them wait for ``first``, and ``last`` waits only for those that none of them waits
    for: the rest is in between.

    :param before: ids of the children that the group had before.
    """
    made = [child for name, child in group.children.items() if name not in before]
    tasks = [task for child in made for task in (child.iter_tasks() if isinstance(child, TaskGroup) else [child])]
    inside = {task.task_id for task in tasks}
    for task in tasks:
        if not inside & task.upstream_task_ids:
            first >> task
        if not inside & task.downstream_task_ids:
            task >> last
    return tasks
