"""Sensors for a new commit, drained writers, and the state and freshness of an index.

In a worker, rescheduled, or deferred, they ask the same questions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_index.arguments import (
    declares_arguments,
    epoch,
    index_states,
    some_texts,
    values_by_name,
)
from airflow_provider_index.compat import AirflowSensorTimeout
from airflow_provider_index.connected import OnTable
from airflow_provider_index.failures import read_error
from airflow_provider_index.identity import once
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.limits import SILENT_WRITER_SECONDS

if TYPE_CHECKING:
    from airflow_provider_index.triggers.timeline import TimelineTrigger


class TimelineSensor(OnTable, BaseSensorOperator):
    """Base class of the sensors. Each sensor names a trigger that waits for the same, and uses it for its checks.

    :param poke_interval: seconds between two checks.
    """

    ui_color = "#e3f2e6"

    def __init__(self, *, poke_interval: float = 15, **kwargs: Any) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        """Return the trigger that waits for what this sensor waits for."""
        raise NotImplementedError

    def poke(self, context: Mapping[str, Any]) -> PokeReturnValue:
        value = self._trigger(context).evaluate(self.hook.timeline(self.table))
        return PokeReturnValue(value is not None, value)

    def execute(self, context: Mapping[str, Any]) -> Any:
        with self.reading(context):
            if not self.deferrable:
                return self._wait(context)
            poked = self.poke(context)
            if poked.is_done:
                self._count_wait(context)
                return poked.xcom_value
            self.defer(trigger=self._trigger(context), method_name="execute_complete")

    def execute_complete(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Resume after the trigger has fired."""
        with self.reading(context):
            self._count_wait(context)
            if event["status"] == "timeout":
                raise AirflowSensorTimeout(f"{self.task_id} has waited {self.timeout:g} s in vain.")
            if event["status"] == "error":
                raise read_error(event["error"])
            return event["value"]

    def _wait(self, context: Mapping[str, Any]) -> Any:
        try:
            value = super().execute(context)
        except AirflowSensorTimeout:
            self._count_wait(context)
            raise
        self._count_wait(context)
        return value

    def _count_wait(self, context: Mapping[str, Any]) -> None:
        from airflow_provider_index import metrics

        metrics.record_wait(self.task_type, self.table, time.time() - self._started(context))

    def _started(self, context: Mapping[str, Any]) -> float:
        return float(once(context, "sensor", time.time))

    def _trigger(self, context: Mapping[str, Any]) -> TimelineTrigger:
        started = self._started(context)
        return self.trigger(
            context,
            table=self.table,
            table_conn_id=self.table_conn_id,
            poll_interval=self.poke_interval,
            deadline=started + self.timeout,
        )


class TableCommitSensor(TimelineSensor):
    """Waits for a commit of a table and returns its receipt.

    ::

        TableCommitSensor(
            task_id="landed", table="shop.orders", operations=["upsert"], partition="dt=2026-11-11", deferrable=True
        )

    :param after_version: only commits after this version; by default, commits after the sensor started.
    :param operations: only these operations (``upsert``, ``compact`` …).
    :param partition: only commits that wrote into this partition, as a path (``dt=2024-11-11``).
    """

    @declares_arguments
    def __init__(
        self,
        *,
        after_version: int | str | None = None,
        operations: Annotated[Sequence[str] | None, some_texts] = None,
        partition: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import TableCommitTrigger

        after, log = self.after_version, None
        if after is None:
            after, log = self._start_from(context)
        return TableCommitTrigger(after=after, log=log, operations=self.operations, partition=self.partition, **shared)

    def _start_from(self, context: Mapping[str, Any]) -> tuple[int, str | None]:
        """Return the version that was the newest when the sensor first looked, and of which log."""
        if self.reschedule and context.get("task_state_store") is None:
            raise InvalidInput(
                "This Airflow cannot remember where a rescheduled sensor began to look.",
                hint="Give after_version, or use mode='poke' or deferrable=True.",
            )
        if not hasattr(self, "_after"):
            kept = once(context, "after", self._newest)
            # A sensor of an earlier version of this package kept the version alone.
            self._after = (kept, None) if isinstance(kept, int) else (int(kept["version"]), str(kept["log"]))
        return self._after

    def _newest(self) -> dict[str, Any]:
        timeline = self.hook.timeline(self.table)
        return {"version": timeline.head.version, "log": timeline.identity}


class WritersDrainedSensor(TimelineSensor):
    """Waits until all writers in the scope of a stop-write window that began before it have finished.

    ::

        WritersDrainedSensor(task_id="drained", table="shop.orders", window=open.output["epoch"], patience=120)

    :param window: the epoch of the window.
    :param patience: seconds after which the remaining writers are ended by a commit; by default the sensor waits until
        its timeout.
    :param silent_seconds: writers without a sign of life for this many seconds are ended by a commit at once.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        window: Annotated[int | str, epoch],
        patience: float | None = None,
        silent_seconds: float = SILENT_WRITER_SECONDS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import WritersDrainedTrigger

        abort_at = None
        if self.patience is not None:
            abort_at = shared["deadline"] - self.timeout + self.patience
        return WritersDrainedTrigger(epoch=self.window, silent_seconds=self.silent_seconds, abort_at=abort_at, **shared)


class IndexFreshnessSensor(TimelineSensor):
    """Waits until an active index covers its table; returns ``index``, ``version`` (of the table) and ``lag``.

    ::

        IndexFreshnessSensor(task_id="fresh", table="shop.orders", index="by_city", within_commits=1)

    :param index: name of the index; if it does not exist, the task fails at once.
    :param partitions: only these, as paths (``dt=2024-11-11``); all by default.
    :param within_commits: how many commits of the table the index may lag behind.
    :param with_source: of a registered source: count also the commits of the source itself that no refresh has taken in
        yet, by its own log and without Spark. Of plain files, another list counts as one commit; commits that are gone
        from the log count as more than any number.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        index: str,
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        within_commits: int = 0,
        with_source: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import IndexFreshnessTrigger

        return IndexFreshnessTrigger(
            index=self.index,
            partitions=self.partitions,
            within_commits=self.within_commits,
            with_source=self.with_source,
            **shared,
        )


class TableRowSensor(TimelineSensor):
    """Waits until rows of a table satisfy a predicate; returns ``version`` (of the table) and ``rows``.

    The rows are read in the worker or the triggerer, without Spark, by the table's indexes, as with
    :func:`spark_apps.open_table`. Use it for predicates that few rows satisfy.

    ::

        TableRowSensor(
            task_id="paid", table="shop.orders", where="id = :id AND paid", parameters={"id": 7}, deferrable=True
        )

    :param where: a predicate in Spark's SQL over the values of columns; if only Spark can evaluate it, the task fails
        at once.
    :param parameters: name -> value, bound to ``:name`` in the predicate and never read as SQL.
    :param at_least: how many rows must satisfy it; ``rows`` may be more.
    :param time_zone: the zone of times without one in the predicate, as ``spark.sql.session.timeZone``; a predicate
        that needs it fails the task without it.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        where: str,
        parameters: Annotated[Mapping[str, Any] | None, values_by_name] = None,
        at_least: int = 1,
        time_zone: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import TableRowTrigger
        from spark_apps.storage.parameters import bind

        where = bind(self.where, self.parameters)
        return TableRowTrigger(where=where, at_least=self.at_least, time_zone=self.time_zone, **shared)


class IndexStateSensor(TimelineSensor):
    """Waits until an index is in a given state; returns ``index``, ``version`` (of the table) and ``state``.

    ::

        IndexStateSensor(task_id="active", table="shop.orders", index="by_city", states=["active"])

    :param index: name of the index.
    :param states: ``creating``, ``active``, ``disabled``, or ``absent`` for an index that does not exist.
    """

    @declares_arguments
    def __init__(
        self, *, index: str, states: Annotated[Sequence[str], index_states] = ("active",), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import IndexStateTrigger

        return IndexStateTrigger(index=self.index, states=self.states, **shared)


# --- The sensor for writers that wait until a stop-write window is closed -------------------------------------------


class StopWriteWindowClosedSensor(TimelineSensor):
    """Waits until no stop-write window is open over the table, or over some of its partitions.

    A window past its deadline does not count, because the next writer ends it.

    Another window may be opened before the next task writes, so that task still needs its retries.

    ::

        StopWriteWindowClosedSensor(
            task_id="closed", table="shop.orders", partitions=["dt=2026-11-11"], deferrable=True
        )

    :param partitions: paths of the partitions that will be written; by default any window counts.
    :param window: wait only for the end of the window with this epoch.

    Returns ``{"version"}``, the table's newest version at that time.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        window: Annotated[int | str | None, epoch] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def trigger(self, context: Mapping[str, Any], **shared: Any) -> TimelineTrigger:
        from airflow_provider_index.triggers.timeline import WindowsClosedTrigger

        return WindowsClosedTrigger(partitions=self.partitions, epoch=self.window, **shared)
