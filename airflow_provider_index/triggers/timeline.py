"""Waiting on a table's timeline without a worker: triggers that look at storage from time to time.

A trigger carries no credentials; it reads the connection where it runs. It ends by itself at an absolute
deadline, because Airflow's own time limit for a deferred task would skip what the task does at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_index.arguments import index_states, integer, number, required, some_texts, text
from airflow_provider_index.compat import ask_supervisor
from airflow_provider_index.conditions import (
    index_fresh,
    index_in_state,
    new_commit,
    rows_match,
    windows_closed,
    writers_drained,
)
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.triggers.polling import as_event, polled
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline


class TimelineTrigger(BaseTrigger):
    """Asks :meth:`evaluate` until it answers, then fires once.

    Its event is ``{"status": "done", "value": …}``, ``{"status": "timeout"}``, or ``{"status": "error",
    "error": …}``.

    :param table: what the task calls the table.
    :param deadline: seconds since 1970 at which to give up.
    :param table_conn_id: the connection of the tables.
    :param poll_interval: seconds between two checks.
    """

    def __init__(self, *, table: str, table_conn_id: str, poll_interval: float, deadline: float) -> None:
        super().__init__()
        self.table = required(text)("table", table)
        self.table_conn_id = required(text)("table_conn_id", table_conn_id)
        self.poll_interval = required(number)("poll_interval", poll_interval)
        self.deadline = required(number)("deadline", deadline)

    def evaluate(self, timeline: Timeline) -> Any:
        """Return what was waited for, or ``None`` if it is not there yet."""
        raise NotImplementedError

    def serialized_arguments(self) -> dict[str, Any]:
        """Return arguments beside those of this class."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            "table": self.table,
            "table_conn_id": self.table_conn_id,
            "poll_interval": self.poll_interval,
            "deadline": self.deadline,
            **self.serialized_arguments(),
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        key = ("timeline", self.table, self.table_conn_id)
        reached = True
        async with polled(key, self._open, _refresh, self.evaluate, self.poll_interval) as rounds:
            async for value in rounds:
                if isinstance(value, StorageUnavailable):
                    # It may pass, and there is a deadline.
                    if reached:
                        self.log.warning("%s", value)
                    reached = False
                elif isinstance(value, Exception):
                    yield TriggerEvent(as_event(value))
                    return
                elif value is not None:
                    yield TriggerEvent({"status": "done", "value": value})
                    return
                else:
                    reached = True
                if time.time() > self.deadline:
                    yield TriggerEvent({"status": "timeout"})
                    return

    async def _open(self) -> Timeline:
        store = await ask_supervisor(TableStoreHook(self.table_conn_id).log_store, self.table)
        return await asyncio.to_thread(_load, store)


def _load(store: Store) -> Timeline:
    timeline = Timeline.load(store)
    timeline.identity  # noqa: B018 - read now, so that a later look can tell whether it is still this log
    return timeline


def _refresh(timeline: Timeline) -> Timeline:
    """Refresh a timeline once for all triggers that wait, which then check it in memory.

    :raises StorageUnavailable: the log was deleted; it is opened anew, which tells whether there is one again.
    """
    if timeline.is_replaced():
        raise StorageUnavailable(f"The log of {timeline.store.uri} was deleted, or deleted and begun anew.")
    timeline.refresh()
    return timeline


class TableCommitTrigger(TimelineTrigger):
    """Fires at the first commit after version ``after``.

    See :func:`airflow_provider_index.conditions.new_commit`.

    :param log: identity of the log to which ``after`` belongs, if known; in a log that was started again since, the
        first commit counts.
    :param operations: and ``partition``: as of the sensor.
    """

    def __init__(
        self,
        *,
        after: int,
        log: str | None = None,
        operations: list[str] | None = None,
        partition: str | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.after = required(integer)("after", after)
        self.log_identity = log
        self.operations = some_texts("operations", operations)
        self.partition = text("partition", partition)
        self._looked = self.after
        self._looked_at = log

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        if self._looked_at not in (None, timeline.identity):
            self._looked = -1
        self._looked_at = timeline.identity
        commit = new_commit(timeline, self._looked, self.operations, self.partition)
        self._looked = max(self._looked, timeline.head.version)
        return commit

    def serialized_arguments(self) -> dict[str, Any]:
        return {
            "after": self.after,
            "log": self.log_identity,
            "operations": self.operations,
            "partition": self.partition,
        }


class WritersDrainedTrigger(TimelineTrigger):
    """Fires once all writers that began before a window have finished.

    See :func:`airflow_provider_index.conditions.writers_drained`.

    :param abort_at: seconds since 1970, after which the remaining writers are ended by a commit.
    :param epoch: of the window.
    :param silent_seconds: as of the sensor.
    """

    def __init__(self, *, epoch: int, silent_seconds: float, abort_at: float | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.epoch = required(integer)("epoch", epoch)
        self.silent_seconds = required(number)("silent_seconds", silent_seconds)
        self.abort_at = number("abort_at", abort_at)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        late = self.abort_at is not None and time.time() >= self.abort_at
        return writers_drained(timeline, self.epoch, silent_seconds=self.silent_seconds, then_abort=late)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "silent_seconds": self.silent_seconds, "abort_at": self.abort_at}


class IndexFreshnessTrigger(TimelineTrigger):
    """Fires once an index covers its table; see :func:`airflow_provider_index.conditions.index_fresh`.

    :param partitions: and ``within_commits``: as of the sensor.
    """

    def __init__(
        self, *, index: str, partitions: list[str] | None = None, within_commits: int = 0, **shared: Any
    ) -> None:
        super().__init__(**shared)
        self.index = required(text)("index", index)
        self.partitions = some_texts("partitions", partitions)
        self.within_commits = required(integer)("within_commits", within_commits)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return index_fresh(timeline, self.index, partitions=self.partitions, within_commits=self.within_commits)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"index": self.index, "partitions": self.partitions, "within_commits": self.within_commits}


class IndexStateTrigger(TimelineTrigger):
    """Fires once an index is in one of the states; see :func:`airflow_provider_index.conditions.index_in_state`."""

    def __init__(self, *, index: str, states: list[str], **shared: Any) -> None:
        super().__init__(**shared)
        self.index = required(text)("index", index)
        self.states = required(index_states)("states", states)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return index_in_state(timeline, self.index, self.states)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"index": self.index, "states": self.states}


class TableRowTrigger(TimelineTrigger):
    """Fires once rows satisfy a predicate; see :func:`airflow_provider_index.conditions.rows_match`.

    :param where: and ``at_least`` and ``time_zone``: as of the sensor.
    """

    def __init__(self, *, where: str, at_least: int = 1, time_zone: str | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.where = required(text)("where", where)
        self.at_least = required(integer)("at_least", at_least)
        self.time_zone = text("time_zone", time_zone)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return rows_match(timeline, self.where, self.at_least, self.time_zone)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"where": self.where, "at_least": self.at_least, "time_zone": self.time_zone}


class WindowsClosedTrigger(TimelineTrigger):
    """Fires once no window is open over what is to be written.

    See :func:`airflow_provider_index.conditions.windows_closed`.

    :param epoch: wait for the window of this epoch only.
    """

    def __init__(self, *, partitions: list[str] | None = None, epoch: int | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.partitions = some_texts("partitions", partitions)
        self.epoch = integer("epoch", epoch)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return windows_closed(timeline, partitions=self.partitions, epoch=self.epoch)

    def serialized_arguments(self) -> dict[str, Any]:
        return {"partitions": self.partitions, "epoch": self.epoch}
