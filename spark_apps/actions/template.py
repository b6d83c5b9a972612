"""The template of every action: validate, begin, op, commit.

An action says what it is, checks its arguments, and stages files; this module claims the attempt, shows signs
of life while Spark works, publishes everything in one commit, and ends the attempt if anything fails. An
action with nothing to do commits nothing and says so in its receipt.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from spark_apps.actions.observing import Observation, check_columns, observe
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    CommitStateUnknown,
    ConcurrentWrite,
    InvalidInput,
    LakeIndexError,
    StopWriteWindowOpen,
)
from spark_apps.timeline import windows
from spark_apps.timeline.conflicts import KeysConflict
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import AnyAction, Receipt, Scope, Write
from spark_apps.timeline.progress import CURRENT
from spark_apps.timeline.publish import Guard
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import Transaction, begin, find_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.actions.staging import Stage

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True)
class TableHandle:
    """A table that actions work on: its log, and the Spark session that does the work."""

    spark: SparkSession
    timeline: Timeline
    source_options: Mapping[str, Any] | None = None
    """Options of the store that holds the rows of a registered source; never written down."""
    stage: Stage | None = None
    """The stage of a transaction that an action on this table becomes, instead of a commit of its own."""

    def snapshot(self, state: State | None = None) -> Snapshot:
        """The newest version known here, or the one given; of a registered source with its files as they are now."""
        snapshot = Snapshot(self.spark, self.timeline.store, self.timeline.head if state is None else state)
        return snapshot if snapshot.table.source is None else self.observe(snapshot.state).snapshot

    def observe(self, state: State, partitions: Collection[str] | None = None) -> Observation:
        """The source of a registered table against a version of its log."""
        snapshot = Snapshot(self.spark, self.timeline.store, state)
        return observe(snapshot, self.source_options, partitions=partitions)


@dataclass
class Work:
    """What an action staged: everything that one commit publishes."""

    actions: list[AnyAction] = field(default_factory=list)
    reads: list[Scope] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    maintained: list[str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    keys_conflict: KeysConflict | None = None
    guard: Guard | None = None
    unique_by: str = ""
    """Tree of the index by which the written keys were found to be unique."""


@dataclass(frozen=True)
class Attempt:
    """What :meth:`Action.work` is given: the snapshot it starts from, where to stage, and how to tell of
    progress."""

    snapshot: Snapshot
    transaction: Transaction
    pulse: Pulse
    stage: str = ""
    """Begins the names of folders, where the work is one stage of several; empty where it is all."""

    def folder(self, name: str) -> str:
        """Key of a folder of this attempt for data files."""
        return self.transaction.data_folder(f"{self.stage}{name}")

    def index_folder(self, index: str, name: str) -> str:
        """Key of a folder of this attempt for files of an index."""
        return self.transaction.index_folder(index, f"{self.stage}{name}")

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Says what is being done, for whoever watches the attempt."""
        self.pulse.phase(name, done, total)


class Action(ABC):
    """One thing that can be done to a table."""

    operation: ClassVar[str]
    """Its name in the log and in receipts."""

    scopes: tuple[Scope, ...] | None = None
    """What it may write, if known before it begins; for those who drain."""

    protect: int | None = None
    """A version older than the newest whose files it needs."""

    on_sources: ClassVar[Literal["refused", "blind", "observing"]] = "refused"
    """What becomes of it on a registered source: refused, since it writes rows; done without a look at the source; or
    done on the source as it is now, telling the log of it in the same commit."""

    commits_observation: ClassVar[bool] = False
    """Whether it tells the log of a changed source also where it has nothing else to do."""

    partitions: Sequence[str] | None = None
    """The partitions that it is confined to."""

    staging: ClassVar[Literal["no", "rows", "alone", "after"]] = "no"
    """Whether it can be a stage of a transaction: one that writes rows, another that works on what is committed, or one
    that may also be made from other stages."""

    def not_staged_because(self) -> str | None:
        """Why this very action cannot be a stage; ``None`` if it can."""
        return "it is a whole change of the table" if self.staging == "no" else None

    @property
    def confinable(self) -> bool:
        """Whether it may be confined to the partitions of the stages that it is made from."""
        return False

    def validate(self, snapshot: Snapshot) -> None:
        """Checks the arguments against the newest version known. :raises InvalidInput: (or its kin) before
        anything is done."""
        return None

    @abstractmethod
    def work(self, attempt: Attempt) -> Work | None:
        """Stages the work; ``None`` if there is nothing to do."""

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        """Does what must wait until the commit is in the log, such as removing what lies outside of the table. Called
        again by whoever finds the commit of an earlier try, so that what failed then can be made up for."""
        return None

    def still_possible(self, work: Work, state: State) -> Work | None:
        """Asked when a commit was refused because of somebody else's: a smaller part of the work that this newer state
        does not stand in the way of; ``None`` if the work is whole or nothing."""
        return None


def run(
    handle: TableHandle,
    action: Action,
    *,
    txn_id: str | None = None,
    window: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    renew_seconds: float | None = None,
) -> Receipt:
    """Runs an action as one transaction; or where the table is to be worked on in a stage, stages it.

    :param txn_id: names the intent: if it has its commit already, that commit's receipt is returned and
        nothing is done.
    :param window: epoch of the stop-write window that the caller holds.
    :param inputs: what the request records of the inputs, for people.
    :param renew_seconds: keep the window open by signs of life, each time for so long; by default as long as it was
        opened for, up to its last moment.
    :returns: the receipt; its ``version`` is ``None`` if there was nothing to do.
    :raises CommitRefused: for each reason of that branch; nothing was changed.
    :raises CommitStateUnknown: if it is unknown whether the commit landed; try again under the same
        ``txn_id``.
    """
    if handle.stage is not None:
        from spark_apps.actions.staging import run_stage

        return run_stage(handle, action, handle.stage)
    receipt = _run(handle, action, txn_id, window, inputs, renew_seconds)
    if receipt.committed:
        action.committed(handle, receipt)
    return receipt


def _run(
    handle: TableHandle,
    action: Action,
    txn_id: str | None,
    window: int | None,
    inputs: Mapping[str, Any] | None,
    renew_seconds: float | None,
) -> Receipt:
    started = time.monotonic()
    handle.timeline.refresh()
    done = None if txn_id is None else find_receipt(handle.timeline, txn_id)
    if done is not None:  # before the arguments are checked: what the first try made would be in a retry's way
        return done
    seen = look(handle, action, handle.timeline.head)
    action.validate(seen.snapshot)  # which may say to which partitions it is confined
    if window is not None and renew_seconds is None:
        renew_seconds = windows.length(handle.timeline, window)
    try:
        transaction = begin(
            handle.timeline,
            operation=action.operation,
            txn_id=txn_id,
            scopes=action.scopes,
            window=window,
            protect=action.protect,
            inputs=inputs,
        )
    except AlreadyCommitted as error:
        return error.receipt
    try:
        with Pulse(transaction, renew_seconds=renew_seconds) as pulse:
            if transaction.base.version != seen.snapshot.state.version or action.partitions is not None:
                seen = look(handle, action, transaction.base)
            work = action.work(Attempt(seen.snapshot, transaction, pulse))
            if work is None and seen.actions and action.commits_observation:
                work = Work()
            if work is None:
                return _nothing_to_do(transaction)
            pulse.phase("commit")
            receipt = _commit(transaction, action, seen, work)
    except AlreadyCommitted as error:
        return error.receipt
    except (CommitStateUnknown, AttemptAborted):
        raise
    except BaseException as error:
        _end(transaction, error)
        raise
    logger.info(
        "%s of %s: version %s, %.1f s, %s",
        action.operation, handle.timeline.store.uri, receipt.version, time.monotonic() - started, receipt.metrics,
    )  # fmt: skip
    return receipt


def _commit(transaction: Transaction, action: Action, seen: Observation, work: Work) -> Receipt:
    """Publishes the work, or what of it still can be."""
    while True:
        try:
            return transaction.commit(
                seen.beside(work.actions),
                reads=dict.fromkeys(work.reads),
                writes=dict.fromkeys([*work.writes, *seen.writes]),
                maintained=dict.fromkeys([*work.maintained, *seen.told(work.actions)]),
                metrics={**work.metrics, **seen.metrics},
                keys_conflict=work.keys_conflict,
                guard=work.guard,
            )
        except (ConcurrentWrite, StopWriteWindowOpen) as refused:
            rest = action.still_possible(work, transaction.timeline.refresh())
            if rest is None:
                raise
            logger.info("%s: a part of the work is left out: %s", action.operation, refused.message)
            work = rest


def look(handle: TableHandle, action: Action, state: State) -> Observation:
    """What the action works on: the version, and of a registered source what has become of it since.

    :raises InvalidInput: if the action writes rows and they are somebody else's.
    """
    snapshot = Snapshot(handle.spark, handle.timeline.store, state)
    source = snapshot.table.source
    if source is None or action.on_sources == "blind":
        return Observation(snapshot)
    if action.on_sources == "refused":
        raise InvalidInput(
            f"{action.operation} cannot be done: the rows of this table are somebody else's, in the {source.format} "
            f"source {source.location}, which is only read here.",
            hint="Write to the source with what owns it; a refresh of an index then finds what changed.",
        )
    found = handle.observe(state, None if action.partitions is None else set(action.partitions))
    check_columns(state, found.snapshot.state)
    return found


def _nothing_to_do(transaction: Transaction) -> Receipt:
    transaction.withdraw()
    logger.info("%s of %s: nothing to do", transaction.requested.operation, transaction.timeline.store.uri)
    return Receipt(None, transaction.txn_id, transaction.requested.operation, attempt=transaction.attempt)


def _end(transaction: Transaction, cause: BaseException) -> None:
    """Ends the attempt of an action that failed, so that nobody waits for it and its files may go."""
    reason = cause.message if isinstance(cause, LakeIndexError) else type(cause).__name__
    try:
        transaction.abort(reason[:500])
    except LakeIndexError as error:
        # The failure itself is what the caller must hear of; the attempt will be taken for dead by its
        # silence.
        logger.warning("Attempt %s of %s was not ended: %s", transaction.attempt, transaction.txn_id, error)


class Pulse:
    """Shows signs of life of an attempt from a thread of its own, as long as the ``with`` block runs.

    :param renew_seconds: keeps the attempt's stop-write window open: once a third of it has passed, the deadline is
        moved to so long from then.
    :param shared: other jobs work on the attempt too.
    """

    def __init__(
        self,
        transaction: Transaction,
        seconds: float = HEARTBEAT_SECONDS,
        renew_seconds: float | None = None,
        shared: bool = False,
    ) -> None:
        self._transaction = transaction
        self._seconds = seconds if renew_seconds is None else min(seconds, renew_seconds / 6)
        self._renew_seconds = renew_seconds
        self._renew_at = 0.0
        self._shared = shared
        self._ended = threading.Event()
        self._now: tuple[str, int | None, int | None] = ("begin", None, None)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the next beats tell."""
        self._now = (name, done, total)
        CURRENT.phase(name, done, total)

    def __enter__(self) -> Pulse:
        CURRENT.hold(self._transaction, shared=self._shared)
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        CURRENT.release(self._transaction)
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        first = True  # a window may be about to end already
        while first or not self._ended.wait(self._seconds):
            try:
                if not first:
                    self._transaction.heartbeat(*self._now)
                first = False
                self._renew()
            except LakeIndexError as error:
                # A beat may be lost; only a long silence counts, and a window that has ended refuses the
                # commit itself.
                logger.warning("A sign of life could not be given: %s", error)

    def _renew(self) -> None:
        epoch, seconds = self._transaction.requested.epoch, self._renew_seconds
        if epoch is None or seconds is None or time.monotonic() < self._renew_at:
            return
        # A log of this thread's own: the one of the transaction belongs to the thread that will commit.
        timeline = Timeline.load(self._transaction.timeline.store, self._transaction.timeline.clock)
        window = windows.find(timeline, epoch)
        if window.deadline - timeline.clock() <= seconds * 2 / 3:
            window = windows.renew(timeline, epoch, seconds)
        self._renew_at = time.monotonic() + max(window.deadline - timeline.clock() - seconds * 2 / 3, seconds / 12)
