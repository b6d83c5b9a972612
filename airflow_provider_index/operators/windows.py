"""Operators that open and close a stop-write window. They commit from the worker; no Spark is started."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from airflow.sdk import BaseOperator

from airflow_provider_index.arguments import (
    declares_arguments,
    epoch,
    some_texts,
)
from airflow_provider_index.connected import Connected
from airflow_provider_index.failures import read_error
from airflow_provider_index.identity import prefix_of_task, transaction_id
from airflow_provider_index.operators.base import TableOperator
from spark_apps.storage.errors import (
    AlreadyCommitted,
    InvalidInput,
    JobFailed,
    LakeIndexError,
    StopWriteWindowOpen,
    TableNotFound,
    WindowNotOpen,
)
from spark_apps.timeline.limits import WINDOW_SECONDS

if TYPE_CHECKING:
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.state import Window

_NAMED = 20


def check_drain(name: str, drain: Any, seconds: Any, at_most: Any) -> None:
    """Check that a window can last as long as it may wait for earlier writers.

    What is a template still is passed over.

    :raises InvalidInput: if its last moment would come first: nobody could work in it.
    """
    from spark_apps.timeline.windows import DEFAULT_AT_MOST

    if not all(value is None or isinstance(value, (int, float)) for value in (drain, seconds, at_most)):
        return
    last = max(DEFAULT_AT_MOST, seconds or 0) if at_most is None else at_most
    if drain is not None and drain >= last:
        raise InvalidInput(
            f"{name} is {drain:g} seconds, and the window ends {last:g} seconds after it opened: no time would be left "
            "to work in it.",
            hint=f"Give at_most more than {name}, or less of {name}.",
        )


class OpenStopWriteWindowOperator(TableOperator):
    """Opens a window: from its commit on, only the holder of its epoch can commit in its scope.

    ::

        OpenStopWriteWindowOperator(
            task_id="open", table="shop.orders", partitions=["dt=2026-11-11"], seconds=1800, drain_seconds=120
        )

    :param partitions: paths of partitions (``dt=2024-11-11``); the whole table by default.
    :param seconds: seconds until the deadline, after which anybody may end the window.
    :param at_most: seconds until the last moment, which cannot be extended; six hours by default.
    :param holder: who holds the window, for people; DAG, run and task by default.
    :param wait_seconds: seconds to wait for other windows in the scope to end; with ``deferrable``, in the triggerer.
        By default it does not wait, and a retry may help.
    :param drain_seconds: seconds to wait, after opening, for writers that began earlier, less than ``at_most``; then
        they are ended by a commit. ``None`` leaves this to a
        :class:`~airflow_provider_index.sensors.WritersDrainedSensor`.

    Returns ``{"epoch", "holder", "deadline", "last_moment", "partitions"}``; times are seconds since 1970. A retry
    returns the window that its first try opened, if it is still open, otherwise another one. A cleared task closes the
    earlier window and opens another one: the work in the earlier window was ended by the clear, and cannot commit any
    more.
    :param poll_interval: seconds between two checks while it waits.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        partitions: Annotated[Sequence[str] | None, some_texts] = None,
        seconds: float = WINDOW_SECONDS,
        at_most: float | None = None,
        holder: str | None = None,
        drain_seconds: float | None = None,
        wait_seconds: float | None = None,
        poll_interval: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def check_arguments(self) -> None:
        super().check_arguments()
        check_drain("drain_seconds", self.drain_seconds, self.seconds, self.at_most)

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "open": self.partitions}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        return self._open_when_free(context, time.time() + (self.wait_seconds or 0))

    def execute_complete(self, context: Mapping[str, Any], event: Mapping[str, Any], until: float | None = None) -> Any:
        """Resume when the other windows have ended, or the waiting time is over.

        :param until: when it is. ``dag.test()`` of Airflow up to 3.3 does not hand it on; then it begins again.
        """
        with self.reading(context):
            if event["status"] == "error":
                raise read_error(event["error"])
            last = time.time() + (self.wait_seconds or 0) if until is None else until
            return self.done(context, self._open_when_free(context, last))

    def _open_when_free(self, context: Mapping[str, Any], until: float) -> dict[str, Any]:
        while True:
            try:
                return self._open(context)
            except StopWriteWindowOpen as error:
                if time.time() >= until:
                    raise
                self.log.info("%s Waiting for its end, %.0f s at most.", error.message, until - time.time())
            if self.deferrable:
                from airflow_provider_index.triggers.timeline import WindowsClosedTrigger

                trigger = WindowsClosedTrigger(
                    table=self.table,
                    table_conn_id=self.table_conn_id,
                    poll_interval=self.poll_interval,
                    deadline=until,
                    partitions=self.partitions,
                )
                self.defer(trigger=trigger, method_name="execute_complete", kwargs={"until": until})
            time.sleep(self.poll_interval)

    def _open(self, context: Mapping[str, Any]) -> dict[str, Any]:
        import msgspec

        from spark_apps.timeline import windows

        ti = context["ti"]
        timeline = self.hook.timeline(self.table)
        self._close_earlier(context, timeline)
        window = self._reopened(context, timeline, self.holder or f"{ti.dag_id}.{ti.task_id} ({ti.run_id})")
        self.log.info("Opened a stop-write window over %s, epoch %s.", window.scope_text, window.epoch)
        if self.drain_seconds is not None:
            ended = windows.drain(
                timeline, window.epoch, seconds=self.drain_seconds, then_abort=True, renew_seconds=self.seconds
            )
            self.log.info("Writers are drained; %s attempts were ended by a commit.", ended)
        built: dict[str, Any] = msgspec.to_builtins(windows.find(timeline, window.epoch))
        # Also under a key of its own, so that `open.output["epoch"]` can be handed on.
        ti.xcom_push(key="epoch", value=window.epoch)
        return {"partitions": None, **built}

    def _reopened(self, context: Mapping[str, Any], timeline: Timeline, holder: str) -> Window:
        """Return the window that an earlier try opened, while it is open; where it has ended, another one."""
        from airflow_provider_index.conditions import paths_of
        from spark_apps.timeline import windows

        txn_id = transaction_id(context, self.inputs)
        partitions = paths_of(timeline, self.partitions)
        for again in itertools.count():
            name = txn_id if again == 0 else f"{txn_id}.{again}"
            try:
                return windows.open_window(
                    timeline,
                    holder,
                    partitions=partitions,
                    seconds=self.seconds,
                    at_most=self.at_most,
                    txn_id=name,
                )
            except WindowNotOpen as error:
                self.log.info("The window that an earlier try opened has ended; another is opened. %s", error.message)
        raise AssertionError("numbers do not end")

    def _close_earlier(self, context: Mapping[str, Any], timeline: Timeline) -> None:
        """Close what earlier rounds of this task left open; Airflow clears the task that would have done so, too."""
        from spark_apps.timeline import windows

        prefix, mine = prefix_of_task(context), transaction_id(context, self.inputs)
        head = timeline.head
        opened = {version for txn_id, (version, _) in head.committed.items()
                  if txn_id.startswith(prefix) and not txn_id.startswith(mine)}  # fmt: skip
        for earlier in sorted(opened & head.windows.keys()):
            try:
                windows.close(timeline, earlier)
            except WindowNotOpen as error:
                self.log.info("%s", error.message)
            else:
                self.log.info("Closed the window of epoch %s, opened before this task was cleared.", earlier)


class CloseStopWriteWindowOperator(TableOperator):
    """Closes the window of an epoch.

    If the window has already ended (its deadline passed, or another task closed it), this is only reported, so a
    teardown may run twice.

    ::

        CloseStopWriteWindowOperator(task_id="close", table="shop.orders", window=open.output["epoch"])

    :param window: the epoch that :class:`OpenStopWriteWindowOperator` returned.
    """

    @declares_arguments
    def __init__(self, *, window: Annotated[int | str, epoch], **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "close": self.window}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any] | None:
        from spark_apps.timeline import windows

        epoch = self.window
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


class EndExpiredWindowsOperator(Connected, BaseOperator):
    """Ends stop-write windows past their deadline, and writers without a sign of life, by commits.

    It is not required: the next writer also ends a window past its deadline, and a drain or a cleaning ends a dead
    writer. It shows what was left open in a warehouse.

    ::

        EndExpiredWindowsOperator(task_id="reap", tables=["shop.orders"], silent_seconds=7200, table_conn_id="lake")

    :param tables: names, URIs or paths; all tables of the connection's warehouse by default.
    :param silent_seconds: seconds without a sign of life after which attempts are ended, or their own patience if that
        is longer; ``None`` ends no attempts.

    Returns ``{"windows": […], "attempts": […]}``, what was ended, by table. If a table cannot be read, the others are
    still checked, and the task fails in the end.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        tables: Annotated[Sequence[str] | None, some_texts] = None,
        silent_seconds: float | None = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def execute(self, context: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """End in every table, once, what was left open."""
        with self.reading(context):
            return self._end_everywhere(context["ti"])

    def _end_everywhere(self, ti: Any) -> dict[str, list[dict[str, Any]]]:
        ended: dict[str, list[dict[str, Any]]] = {"windows": [], "attempts": []}
        failed: list[str] = []
        for name in self._names():
            try:
                timeline = self.hook.timeline(name)
                ended["windows"] += self._end_windows(name, timeline, f"{ti.dag_id}.{ti.task_id}")
                if self.silent_seconds is not None:
                    ended["attempts"] += self._end_attempts(name, timeline, self.silent_seconds)
            except LakeIndexError as error:
                if self.tables is None and isinstance(error, TableNotFound):
                    continue  # it was dropped, and only its log is there
                self.log.error("%s: %s", name, error)
                failed.append(name)
            except Exception:
                # Whatever is wrong with one table, the others are looked at, and the task fails naming it.
                self.log.exception("%s: an error that nobody foresaw.", name)
                failed.append(name)
        if failed:
            more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
            raise JobFailed(
                f"{len(failed)} tables could not be looked at: {', '.join(map(repr, failed[:_NAMED]))}{more}.",
                outcome="What was left open in the others has been ended.",
                hint="See the lines above.",
            )
        return ended

    def _names(self) -> list[str]:
        from spark_apps.timeline.locations import Warehouse

        if self.tables is not None:
            return list(self.tables)
        hook = self.hook
        tables = Warehouse(hook.warehouse, hook.storage_options).tables()
        return [table.location for table in tables]

    def _end_windows(self, name: str, timeline: Timeline, by: str) -> list[dict[str, Any]]:
        from spark_apps.timeline import windows

        ended = []
        for window in windows.end_expired(timeline, by):
            self.log.warning("%s: ended the window of %s over %s.", name, window.holder, window.scope_text)
            ended.append({"table": name, "epoch": window.epoch, "holder": window.holder, "deadline": window.deadline})
        return ended

    def _end_attempts(self, name: str, timeline: Timeline, silent_seconds: float) -> list[dict[str, Any]]:
        from spark_apps.timeline.transactions import abort, is_presumed_dead, live_requests

        ended = []
        for request in live_requests(timeline):
            if not is_presumed_dead(timeline, request, silent_seconds):
                continue
            try:
                abort(timeline, request.txn_id, request.attempt, f"no sign of life for {silent_seconds:g} s")
            except AlreadyCommitted as error:
                self.log.info("%s: %s", name, error.message)
                continue
            self.log.warning("%s: ended attempt %s of %s.", name, request.attempt, request.txn_id)
            ended.append({"table": name, "txn_id": request.txn_id, "attempt": request.attempt})
        return ended
