"""A call of a format's own maintenance as a transaction of our log: intent, call, receipt.

The attempt's request is the intent, with the version of the format before the call. The call carries the transaction's
id, and the receipt is a commit of our log that names the format's version and lists the table's files as they are now.
So of a try that was killed in any gap, the next one finds what landed: our receipt; else the format's commit by the
id; else it makes the call. A call that writes no commit is made again, which does no harm, and the receipt says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle, run
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.engine.spark_versions import message_of
from spark_apps.maintenance.native_calls import NativeCall, call_of, source_of
from spark_apps.native.interface import NativeCommit, NativeTable, native_table
from spark_apps.sources.listing import check_apart
from spark_apps.sources.registry import open_source
from spark_apps.storage.errors import (
    ConcurrentWrite,
    InvalidInput,
    LakeIndexError,
    StorageError,
    TableNotFound,
)
from spark_apps.storage.printing import Printed, View
from spark_apps.timeline.commit import Intent, check_windows
from spark_apps.timeline.limits import SILENT_WRITER_SECONDS
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import Timeline, seconds_of
from spark_apps.timeline.model import Receipt, Scope, Write, table_scope
from spark_apps.timeline.operations import MAINTAIN_SOURCE, RESTORE_SOURCE, Operation
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import (
    Transaction,
    find_receipt,
    is_presumed_dead,
    live_requests,
    read_requested,
)

if TYPE_CHECKING:
    from spark_apps.mergetree.tree import Snapshot

logger = logging.getLogger(__name__)

BEFORE = "version_before"
"""In the request of an attempt: the format's version before the call."""

_CONFLICTS = ("concurrent", "commitfailedexception", "validationexception", "writeconflict")
"""Parts of the names of what Delta, Iceberg and Hudi raise where another writer's commit came in between."""

FOREIGN = (
    "A stop-write window of this package does not hold back writers of the format; what they commit meanwhile is the "
    "affair of the format's own conflict check."
)


@dataclass(frozen=True)
class NativePlan(Printed):
    """The plan of a call of a format's own maintenance, by the table's own log.

    :param commits: whether it would end in a commit of the format. :param figures: files, bytes and the like.
    :param held_back: what keeps it from being done, or what it takes away, in sentences. :param notes: what to know.
    """

    call: str
    format: str
    arguments: Mapping[str, Any]
    commits: bool
    figures: Mapping[str, Any]
    held_back: Sequence[str] = ()
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "call": self.call,
            "format": self.format,
            "arguments": dict(self.arguments),
            "commits": self.commits,
            **self.figures,
            "held_back": list(self.held_back),
            "notes": list(self.notes),
        }

    def view(self) -> View:
        facts = [*self.figures.items(), *(("held back", one) for one in self.held_back)]
        return View(f"{self.format} {self.call}: plan", [*facts, *(("note", one) for one in self.notes)])


@dataclass
class MaintainSource(Action):
    """A call that leaves the rows as they are."""

    handle: TableHandle
    call: NativeCall
    arguments: Mapping[str, Any]
    native: NativeTable
    window: int | None = None
    before: str | None = None

    operation: ClassVar[Operation] = MAINTAIN_SOURCE
    on_sources: ClassVar[Literal["refused", "blind", "observing"]] = "blind"
    scopes: tuple[Scope, ...] | None = None

    def validate(self, snapshot: Snapshot) -> None:
        source = snapshot.table.source
        assert source is not None
        check_apart(locate(source.location), self.handle.timeline.store.uri)
        there = self.native.identity()
        if source.identity is not None and there is not None and there != source.identity:
            raise TableNotFound(
                f"The table that was registered at {source.location} is gone: the one that is there now has the id "
                f"{there}, and it had {source.identity}.",
                outcome="Nothing was changed.",
                hint="Drop the registration, which leaves the table alone, and register the new one.",
            )
        self.native.check(self.call, self.arguments)

    def work(self, attempt: Attempt) -> StagedChanges:
        transaction, timeline = attempt.transaction, self.handle.timeline
        began, again = self._begun(transaction)
        landed = self._landed(transaction, began) if again and self.call.commits else []
        found = bool(landed) or (again and self.native.has_taken_effect(self.call, self.arguments, began))
        said: Mapping[str, Any] = {}
        if not found:
            self._check_may_be_made(timeline, transaction.txn_id)
            transaction.check_alive()
            attempt.phase(f"{self.call.format} {self.call.name}")
            said, landed = self._made(transaction, began)
        attempt.phase("list the files")
        metrics = self._metrics(said, landed, began)
        if again and (found or not self.call.commits):
            metrics["found" if found else "made_again"] = True
        changes = self._observed(attempt.snapshot.state, metrics)
        changes.idle = self.call.commits and not landed
        return changes

    def still_possible(self, work: StagedChanges, state: State) -> StagedChanges | None:
        """Return the receipt alone: the call has been made, whoever else has recorded the table's files meanwhile."""
        return None if not work.actions and not work.writes else StagedChanges(metrics=work.metrics)

    # --- the parts of the work ------------------------------------------------------------------------------------

    def _begun(self, transaction: Transaction) -> tuple[str | None, bool]:
        """Return the format's version before the transaction's first try, and whether this one is another.

        The version is ``None`` where a cleaning took the request of a try away: then the whole history counts.
        """
        numbers = range(1, transaction.attempt)
        if not numbers:
            return self.before, False
        try:
            first = read_requested(transaction.timeline, transaction.txn_id, numbers[0])
        except LakeIndexError:
            return None, True
        began = first.inputs.get(BEFORE)
        return (began if isinstance(began, str) and self.native.is_version(began) else None), True

    def _landed(self, transaction: Transaction, began: str | None) -> list[NativeCommit]:
        """Return the format's commits that carry the transaction's id, the newest first."""
        return [one for one in self.native.commits_after(began) if one.txn_id == transaction.txn_id]

    def _made(self, transaction: Transaction, began: str | None) -> tuple[Mapping[str, Any], list[NativeCommit]]:
        """Make the call, and return what it says with the commits that it made.

        One whose commit landed before it failed has succeeded.
        """
        try:
            said = self.native.make(self.call, self.arguments, transaction.txn_id)
        except spark_errors() as error:
            landed = self._landed(transaction, began) if self.call.commits else []
            if not landed:
                raise _failed(self.call, error) from error
            logger.warning("%s has its commit, and failed after it: %s", self.call.name, message_of(error))
            return {}, landed
        return said, self._landed(transaction, began)

    def _metrics(self, said: Mapping[str, Any], landed: Sequence[NativeCommit], began: str | None) -> dict[str, Any]:
        metrics: dict[str, Any] = {"call": self.call.name, "format": self.call.format, **self.arguments}
        metrics |= {BEFORE: began, "version_after": self.native.version(), **self.native.size(), **said}
        if landed:
            metrics["commit"] = landed[0].version
            metrics |= {f"{self.call.format}.{name}": value for name, value in landed[0].metrics.items()}
        if began is not None:
            later = self.native.commits_after(began)
            metrics["foreign_commits"] = sum(one.txn_id is None for one in later)
        return metrics

    def _observed(self, state: State, metrics: dict[str, Any]) -> StagedChanges:
        """Return the table's files as they are now, for the log of the indexes."""
        try:
            observation = self.handle.observe(state)
        except LakeIndexError as error:
            logger.warning("The files after %s are left to the next refresh: %s", self.call.name, error.message)
            return StagedChanges(metrics=metrics)
        return StagedChanges(
            actions=list(observation.actions),
            writes=list(observation.writes),
            metrics={**metrics, **(observation.metrics if observation.actions else {})},
        )

    def _check_may_be_made(self, timeline: Timeline, txn_id: str) -> None:
        """Check that neither a window nor another commit or attempt stands against the call.

        :raises CommitRefused: naming it; nothing was changed.
        """
        _check_windows(timeline, self.operation, txn_id, self.window)
        self._check_foreign(timeline)
        for reason in _needed_by_attempts(timeline, self._retention(), but=txn_id):
            raise ConcurrentWrite(
                f"{self.call.name} is not made: {reason}",
                outcome="Nothing was deleted.",
                hint="Wait until it has ended, or end it; an attempt that gives no sign of life is no obstacle.",
            )

    def _retention(self) -> float | None:
        return self.native.retention(self.call, self.arguments) if self.call.kind == "clean" else None

    def _check_foreign(self, timeline: Timeline) -> None:
        """Check that no other writer has committed since the window was opened.

        :raises ConcurrentWrite: naming its commit.
        """
        if self.window is None or self.window not in timeline.head.windows:
            return
        [opening] = timeline.commits(after=self.window - 1, until=self.window)
        opened = seconds_of(opening.instant)
        ours = timeline.head.committed
        for commit in self.native.commits_since(opened):
            if commit.txn_id is None or commit.txn_id not in ours:
                raise ConcurrentWrite(
                    f"Another writer has committed version {commit.version} ({commit.operation}) of the table since "
                    f"the window of epoch {self.window} was opened. {FOREIGN}",
                    hint="Stop that writer, and open a window anew; or do the work without one.",
                )


class RestoreSource(MaintainSource):
    """A call that brings back an earlier version."""

    operation: ClassVar[Operation] = RESTORE_SOURCE


def maintain_source(
    handle: TableHandle,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    plan_only: bool = False,
    txn_id: str | None = None,
    window: int | None = None,
) -> Receipt | NativePlan:
    """Make a call of the format's own maintenance on a registered table, or plan it.

    :param window: epoch of the stop-write window that the caller holds.
    :raises InvalidInput: for a call that the format does not have, or arguments that it cannot have.
    :raises ConcurrentWrite: if another writer committed within the window, or the format's own conflict check refused.
    """
    call = call_of(name, "call")
    given = call.read(arguments, name)
    if handle.stage is not None:
        raise InvalidInput(f"{name} cannot be a stage of a transaction: it is a commit of another format's.")
    state = handle.timeline.refresh()
    if txn_id is not None and (earlier := find_receipt(handle.timeline, txn_id)) is not None:
        return earlier
    source = source_of(state.table, call)
    # A log names the place: what may not be read of it may not be maintained either.
    open_source(state.table, handle.source_options, handle.timeline.store.uri, handle.spark)
    native = native_table(handle.spark, source, handle.source_options)
    kind = RestoreSource if call.kind == "restore" else MaintainSource
    action = kind(handle, call, given, native, window)
    if plan_only:
        action.validate(handle.snapshot(state))
        planned = native.plan(call, given)
        held = _held_back(handle.timeline, action)
        return NativePlan(name, call.format, given, call.commits, planned.figures, held, [*planned.notes, FOREIGN])
    action.before = native.version()
    inputs = {"call": name, "arguments": dict(given), BEFORE: action.before}
    return run(handle, action, txn_id=txn_id, window=window, inputs=inputs)


def _check_windows(timeline: Timeline, operation: Operation, txn_id: str, window: int | None) -> None:
    """Check that no other holder has a window over any of the table, before anything is done that it forbids."""
    state = timeline.refresh()
    intent = Intent(operation.name, txn_id, 0, state.version, (), writes=(Write(table_scope()),), epoch=window)
    check_windows(state, intent, timeline.clock())


def _needed_by_attempts(timeline: Timeline, retention: float | None, but: str = "") -> list[str]:
    """Return which attempts at work began longer ago than deleted files are kept, in sentences."""
    if retention is None:
        return []
    now, reasons = timeline.clock(), []
    for request in live_requests(timeline):
        old = now - request.requested_at > retention
        if request.txn_id != but and old and not is_presumed_dead(timeline, request, SILENT_WRITER_SECONDS):
            reasons.append(
                f"{request.operation} (transaction {request.txn_id}) is at work since before the files that would be "
                "deleted were replaced, and may read them."
            )
    return reasons


def _held_back(timeline: Timeline, action: MaintainSource) -> list[str]:
    """Return what needs files that a call would delete, in sentences."""
    retention = action._retention()
    reasons = _needed_by_attempts(timeline, retention)
    if retention is None:
        return reasons
    since = timeline.clock() - retention
    kept = [one for one in timeline.commits(after=timeline.head.expired_below - 1) if seconds_of(one.instant) < since]
    if kept[:-1]:  # what the last of them lists was current until later
        reasons.append(
            f"Versions {kept[0].version} to {kept[-2].version} of the log of indexes list files as they were before; "
            "readers of these versions (version=, as_of=) may not find them. Clean the log to expire them."
        )
    return reasons


def _failed(call: NativeCall, error: Exception) -> LakeIndexError:
    """Return the error of a call that made no commit."""
    said = message_of(error)
    named = f"{type(error).__name__} {said} {getattr(error, 'java_exception', '')}".lower()
    if any(one in named for one in _CONFLICTS):
        return ConcurrentWrite(
            f"{call.name} was refused by {call.format}'s own conflict check: {said}",
            outcome="The table is as the other writer left it.",
            hint="Try again.",
        )
    outcome = "It has made no commit." if call.commits else "What it had done stays done."
    return StorageError(f"{call.name} failed: {said}", outcome=outcome, hint="See what the format says, and try again.")
