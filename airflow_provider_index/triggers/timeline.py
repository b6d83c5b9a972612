"""Waiting on a table's timeline without a worker: triggers that look at storage from time to time.

A trigger carries no credentials; it reads the connection where it runs. It ends by itself at an absolute
deadline, because Airflow's own time limit for a deferred task would skip what the task does at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_index.arguments import (
    NOT_DECLARED,
    SerializesArguments,
    declares_arguments,
    index_states,
    some_texts,
)
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
from airflow_provider_index.triggers.polling import as_event, load_watched, polled
from spark_apps.storage.errors import StorageUnavailable
from spark_apps.timeline.log import Timeline


class TimelineTrigger(SerializesArguments, BaseTrigger):
    """Asks :meth:`evaluate` until it answers, then fires once.

    Its event is ``{"status": "done", "value": …}``, ``{"status": "timeout"}``, or ``{"status": "error",
    "error": …}``.

    :param table: what the task calls the table.
    :param deadline: seconds since 1970 at which to give up.
    :param table_conn_id: the connection of the tables.
    :param poll_interval: seconds between two checks.
    """

    @declares_arguments
    def __init__(self, *, table: str, table_conn_id: str, poll_interval: float, deadline: float) -> None:
        super().__init__()

    def evaluate(self, timeline: Timeline) -> Any:
        """Return what was waited for, or ``None`` if it is not there yet."""
        raise NotImplementedError

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
        return await asyncio.to_thread(load_watched, store)


def _refresh(timeline: Timeline) -> Timeline:
    """Refresh a timeline once for all triggers that wait, which then check it in memory.

    :raises StorageUnavailable: the log was deleted; it is opened anew, which shows whether there is one again.
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

    @declares_arguments
    def __init__(
        self,
        *,
        after: int,
        log: Annotated[str | None, NOT_DECLARED] = None,
        operations: Annotated[Sequence[str] | None, some_texts] = None,
        partition: str | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        # A trigger's own "log" is where its lines go.
        self.log_identity = log
        self._looked: int = self.after
        self._looked_at = log

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        if self._looked_at not in (None, timeline.identity):
            self._looked = -1
        self._looked_at = timeline.identity
        commit = new_commit(timeline, self._looked, self.operations, self.partition)
        self._looked = max(self._looked, timeline.head.version)
        return commit

    def serialized_arguments(self) -> dict[str, Any]:
        return {**super().serialized_arguments(), "log": self.log_identity}


class WritersDrainedTrigger(TimelineTrigger):
    """Fires once all writers that began before a window have finished.

    See :func:`airflow_provider_index.conditions.writers_drained`.

    :param abort_at: seconds since 1970, after which the remaining writers are ended by a commit.
    :param epoch: of the window.
    :param silent_seconds: as of the sensor.
    """

    @declares_arguments
    def __init__(self, *, epoch: int, silent_seconds: float, abort_at: float | None = None, **shared: Any) -> None:
        super().__init__(**shared)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        late = self.abort_at is not None and time.time() >= self.abort_at
        return writers_drained(timeline, self.epoch, silent_seconds=self.silent_seconds, then_abort=late)


class IndexFreshnessTrigger(TimelineTrigger):
    """Fires once an index covers its table; see :func:`airflow_provider_index.conditions.index_fresh`.

    :param partitions: and ``within_commits``, ``with_source``: as of the sensor.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        index: str,
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        within_commits: int = 0,
        with_source: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return index_fresh(
            timeline,
            self.index,
            partitions=self.partitions,
            within_commits=self.within_commits,
            with_source=self.with_source,
        )


class IndexStateTrigger(TimelineTrigger):
    """Fires once an index is in one of the states; see :func:`airflow_provider_index.conditions.index_in_state`."""

    @declares_arguments
    def __init__(self, *, index: str, states: Annotated[Sequence[str], index_states], **shared: Any) -> None:
        super().__init__(**shared)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return index_in_state(timeline, self.index, self.states)


class TableRowTrigger(TimelineTrigger):
    """Fires once rows satisfy a predicate; see :func:`airflow_provider_index.conditions.rows_match`.

    :param where: and ``at_least`` and ``time_zone``: as of the sensor.
    """

    @declares_arguments
    def __init__(self, *, where: str, at_least: int = 1, time_zone: str | None = None, **shared: Any) -> None:
        super().__init__(**shared)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return rows_match(timeline, self.where, self.at_least, self.time_zone)


class WindowsClosedTrigger(TimelineTrigger):
    """Fires once no window is open over what is to be written.

    See :func:`airflow_provider_index.conditions.windows_closed`.

    :param epoch: wait for the window of this epoch only.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        epoch: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)

    def evaluate(self, timeline: Timeline) -> dict[str, Any] | None:
        return windows_closed(timeline, partitions=self.partitions, epoch=self.epoch)
