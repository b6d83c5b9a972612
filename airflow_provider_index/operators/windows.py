"""Operators that open and close a stop-write window. They commit from the worker; no Spark is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from airflow_provider_index.identity import transaction_id, tries_allowed
from airflow_provider_index.operators.base import TableOperator, epoch_of
from spark_apps.storage.errors import InvalidInput, WindowNotOpen
from spark_apps.timeline import windows


class OpenStopWriteWindowOperator(TableOperator):
    """Opens a window: from its commit on nobody but the holder of its epoch commits in its scope.

    :param partitions: paths of partitions (``dt=2024-11-11``); the whole table by default.
    :param seconds: until the deadline, after which anyone may end the window.
    :param at_most: until the last moment, which no renewal passes; six hours by default.
    :param holder: who holds it, for people; DAG, run and task by default.
    :param drain_seconds: after opening, wait so long for writers that began before; then end them by a
        commit. ``None`` leaves that to a :class:`~airflow_provider_index.sensors.WritersDrainedSensor`.

    Returns ``{"epoch", "holder", "deadline", "last_moment", "partitions"}``; times are seconds since 1970.
    A retry gets the window that its first try opened.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "partitions", "holder")

    def __init__(
        self,
        *,
        partitions: Sequence[str] | None = None,
        seconds: float = windows.DEFAULT_SECONDS,
        at_most: float | None = None,
        holder: str | None = None,
        drain_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.partitions = partitions
        self.seconds = seconds
        self.at_most = at_most
        self.holder = holder
        self.drain_seconds = drain_seconds

    def inputs(self) -> dict[str, Any]:
        partitions = None if self.partitions is None else list(self.partitions)
        # A window that is opened again after a clear is another window, even over the same partitions.
        return {**super().inputs(), "open": partitions, "round": self._round}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        ti = context["ti"]
        self._round = tries_allowed(context)
        timeline = self.hook.timeline(self.table)
        window = windows.open_window(
            timeline,
            self.holder or f"{ti.dag_id}.{ti.task_id} ({ti.run_id})",
            partitions=self.partitions,
            seconds=self.seconds,
            at_most=self.at_most,
            txn_id=transaction_id(context, self.inputs),
        )
        self.log.info("Opened a stop-write window over %s, epoch %s.", window.scope_text, window.epoch)
        if self.drain_seconds is not None:
            ended = windows.drain(timeline, window.epoch, seconds=self.drain_seconds, then_abort=True)
            self.log.info("Writers are drained; %s attempts were ended by a commit.", ended)
        built: dict[str, Any] = msgspec.to_builtins(windows.find(timeline, window.epoch))
        # Also under a key of its own, so that `open.output["epoch"]` can be handed on.
        ti.xcom_push(key="epoch", value=window.epoch)
        return {"partitions": None, **built}


class CloseStopWriteWindowOperator(TableOperator):
    """Closes the window of an epoch. A window that has ended already (its deadline passed, or somebody
    closed it) is only told of, so that a teardown may run twice.

    :param window: the epoch that opening returned.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "window")

    def __init__(self, *, window: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.window = window

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "close": epoch_of(self.window)}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        epoch = epoch_of(self.window)
        if epoch is None:
            raise InvalidInput("No window to close was given.", hint="Hand on the epoch that opening returned.")
        timeline = self.hook.timeline(self.table)
        if epoch in timeline.head.ended_windows:
            self.log.warning("The window of epoch %s has ended: %s.", epoch, timeline.head.ended_windows[epoch])
            return None
        try:
            receipt = windows.close(timeline, epoch, txn_id=transaction_id(context, self.inputs))
        except WindowNotOpen:
            if epoch not in timeline.refresh().ended_windows:
                raise
            self.log.warning("The window of epoch %s has ended meanwhile.", epoch)
            return None
        self.log.info("Closed the stop-write window of epoch %s.", epoch)
        return receipt.to_dict()
