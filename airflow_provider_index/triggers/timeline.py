"""Waiting on a table's timeline without a worker: triggers that look at storage from time to time.

A trigger carries no credentials; it reads the connection where it runs. It ends by itself at an absolute
deadline, because Airflow's own time limit for a deferred task would skip what the task does at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_index.conditions import new_commit, writers_drained
from airflow_provider_index.hooks.table_store import TableStoreHook
from spark_apps.job import describe_error
from spark_apps.storage.errors import LakeIndexError, StorageUnavailable
from spark_apps.timeline.log import Timeline


class TimelineTrigger(BaseTrigger):
    """Asks :meth:`look` until it answers, then fires once.

    Its event is ``{"status": "done", "value": …}``, ``{"status": "timeout"}``, or ``{"status": "error",
    "error": …}``.

    :param table: what the task calls the table.
    :param deadline: seconds since 1970 at which to give up.
    """

    def __init__(self, *, table: str, table_conn_id: str, poll_interval: float, deadline: float) -> None:
        super().__init__()
        self.table = table
        self.table_conn_id = table_conn_id
        self.poll_interval = poll_interval
        self.deadline = deadline

    def look(self, timeline: Timeline) -> Any:
        """What was waited for, or ``None`` if it is not there yet."""
        raise NotImplementedError

    def own_arguments(self) -> dict[str, Any]:
        """Arguments beside those of this class."""
        return {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            "table": self.table,
            "table_conn_id": self.table_conn_id,
            "poll_interval": self.poll_interval,
            "deadline": self.deadline,
            **self.own_arguments(),
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        timeline: Timeline | None = None
        while True:
            try:
                if timeline is None:
                    # Connections are asked of the supervisor, which answers only on the event loop's own
                    # thread.
                    store = await sync_to_async(TableStoreHook(self.table_conn_id).store)(self.table)
                    timeline = await asyncio.to_thread(Timeline.load, store)
                found = await asyncio.to_thread(self.look, timeline)
            except StorageUnavailable as error:
                # It may pass, and there is a deadline.
                self.log.warning("%s", error)
                timeline = found = None
            except LakeIndexError as error:
                yield TriggerEvent({"status": "error", "error": msgspec.to_builtins(describe_error(error))})
                return
            if found is not None:
                yield TriggerEvent({"status": "done", "value": found})
                return
            if time.time() > self.deadline:
                yield TriggerEvent({"status": "timeout"})
                return
            await asyncio.sleep(self.poll_interval)


class TableCommitTrigger(TimelineTrigger):
    """Fires at the first commit behind version ``after``; see
    :func:`airflow_provider_index.conditions.new_commit`."""

    def __init__(
        self,
        *,
        after: int,
        operations: list[str] | None = None,
        partition: str | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self.after = after
        self.operations = operations
        self.partition = partition

    def look(self, timeline: Timeline) -> dict[str, Any] | None:
        return new_commit(timeline, self.after, self.operations, self.partition)

    def own_arguments(self) -> dict[str, Any]:
        return {"after": self.after, "operations": self.operations, "partition": self.partition}


class WritersDrainedTrigger(TimelineTrigger):
    """Fires once no writer from before a window is at work; see
    :func:`airflow_provider_index.conditions.writers_drained`.

    :param abort_at: seconds since 1970 from which on writers that are left are ended by a commit.
    """

    def __init__(self, *, epoch: int, silent_seconds: float, abort_at: float | None = None, **shared: Any) -> None:
        super().__init__(**shared)
        self.epoch = epoch
        self.silent_seconds = silent_seconds
        self.abort_at = abort_at

    def look(self, timeline: Timeline) -> dict[str, Any] | None:
        late = self.abort_at is not None and time.time() >= self.abort_at
        return writers_drained(timeline, self.epoch, silent_seconds=self.silent_seconds, then_abort=late)

    def own_arguments(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "silent_seconds": self.silent_seconds, "abort_at": self.abort_at}
