"""The template of every action: validate, begin, work, commit.

An action has a name, checks its arguments, and stages files; this module claims the attempt, shows signs
of life while Spark works, publishes everything in one commit, and ends the attempt if anything fails. An
action with nothing to do commits nothing, and its receipt has no version.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace as changed

from spark_apps.actions.limits import HEARTBEAT_SECONDS, UpsertLimits
from spark_apps.actions.source_diff import LastObservation, Observation, check_types, observe
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.engine.spark_versions import message_of, missing_names
from spark_apps.layout.partitions import canonical
from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import translate_spark_errors
from spark_apps.sources.registry import Refused, check_surroundings
from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    CommitStateUnknown,
    ConcurrentWrite,
    InvalidInput,
    LakeIndexError,
    OtherFormat,
    StopWriteWindowOpen,
    UnknownColumn,
)
from spark_apps.timeline import windows
from spark_apps.timeline.commit import ByKeys, Guard, KeysConflict
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    Receipt,
    Scope,
    StageManifest,
    TableDefinition,
    Write,
    definition_scope,
    group_scope,
)
from spark_apps.timeline.operations import Operation
from spark_apps.timeline.stages import changed_groups, check_made_from, state_with_actions
from spark_apps.timeline.state import IndexEntry, State
from spark_apps.timeline.transactions import CURRENT, Transaction, begin, find_receipt, resume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.indexes.handler import IndexContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableHandle:
    """A table that actions work on: its log, and the Spark session that does the work."""

    spark: SparkSession
    timeline: Timeline
    source_options: Mapping[str, Any] | None = None
    """Options of the store that holds the rows of a registered source; never written down."""
    stage: Stage | None = None
    """The stage of a transaction that an action on this table becomes, instead of a commit of its own."""
    limits: UpsertLimits = field(default_factory=UpsertLimits)
    """How much of finding rows the driver takes on itself in a write."""
    seen: LastObservation = field(default_factory=LastObservation, compare=False, repr=False)
    """A registered source as it was found last."""

    def snapshot(self, state: State | None = None) -> Snapshot:
        """Return the newest version known, or the one given; of a registered source, with its files as they are now.

        A folder of plain files that is another format's table by now is shown as the log lists it, and not read.
        """
        snapshot = Snapshot(self.spark, self.timeline.store, self.timeline.head if state is None else state)
        if snapshot.table.source is None:
            return snapshot
        try:
            return self.observe(snapshot.state).snapshot
        except OtherFormat as error:
            return replace(snapshot, external=Refused(error))

    def observe(self, state: State, partitions: Collection[str] | None = None, by_list: bool = False) -> Observation:
        """Return the source of a registered table, compared with a version of its log."""
        snapshot = Snapshot(self.spark, self.timeline.store, state)
        return observe(snapshot, self.source_options, partitions=partitions, by_list=by_list, seen=self.seen)


@dataclass
class StagedChanges:
    """Everything that one commit publishes, as an action staged it."""

    actions: list[AnyAction] = field(default_factory=list)
    reads: list[Scope] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    maintained: list[str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    keys_conflict: KeysConflict | None = None
    guard: Guard | None = None
    unique_by: str = ""
    """Tree of the index by which the written keys were found to be unique."""
    idle: bool = False
    """Whether there turned out to be nothing to do: only the metrics say something."""


@dataclass(frozen=True)
class Attempt:
    """The try at an action's work: the snapshot it starts from, where it stages, and where it reports progress."""

    snapshot: Snapshot
    transaction: Transaction
    heartbeats: HeartbeatThread
    stage: str = ""
    """Begins the names of folders, where the work is one stage of several; empty where it is all."""
    limits: UpsertLimits = field(default_factory=UpsertLimits)
    """How much of finding rows the driver takes on itself."""
    partitions: Sequence[str] | None = None
    """The paths of the partitions that the work is confined to; ``None`` for all."""

    def folder(self, name: str) -> str:
        """Return the key of a folder of this attempt for data files."""
        return self.transaction.data_folder(f"{self.stage}{name}")

    def index_folder(self, index: str, name: str) -> str:
        """Return the key of a folder of this attempt for files of an index."""
        return self.transaction.index_folder(index, f"{self.stage}{name}")

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Report what is being done, for those who watch the attempt."""
        self.heartbeats.phase(name, done, total)


class Action(ABC):
    """An operation on a table."""

    operation: ClassVar[Operation]
    """What the log and receipts call it."""

    scopes: tuple[Scope, ...] | None = None
    """What it may write, if known before it begins; for those who drain."""

    protect: int | None = None
    """A version older than the newest whose files it needs."""

    on_sources: ClassVar[Literal["refused", "blind", "observing"]] = "refused"
    """What becomes of it on a registered source: refused, since it writes rows; done without a look at the source; or
    done on the source as it is now, whose changes the same commit records in the log."""

    commits_observation: ClassVar[bool] = False
    """Whether it commits the changes of a source also where it has nothing else to do."""

    compares_lists: bool = False
    """Whether it compares the list of all files of a source with its log, also where the source's own log says what
    changed: what then is wrong is set right."""

    partitions: Sequence[str] | None = None
    """The partitions that it is confined to, as they were given."""

    staging: ClassVar[Literal["no", "rows", "alone", "after"]] = "no"
    """Whether it can be a stage of a transaction: one that writes rows, another that works on what is committed, or one
    that may also be made from other stages."""

    @property
    def indexes(self) -> Collection[str]:
        """The names of the indexes whose values it makes of rows, or folds."""
        return ()

    def not_staged_because(self) -> str | None:
        """Return why this action cannot be a stage; ``None`` if it can."""
        return "it is a whole change of the table" if self.staging == "no" else None

    @property
    def confinable(self) -> bool:
        """True if it may be confined to the partitions of the stages that it is made from."""
        return False

    def confined_to(self, table: TableDefinition) -> list[str] | None:
        """Return the partitions that the action is confined to, by their canonical paths; ``None`` for all.

        :raises InvalidInput: for what is no path of a partition of the table.
        """
        return None if self.partitions is None else list(dict.fromkeys(canonical(table, p) for p in self.partitions))

    def validate(self, snapshot: Snapshot) -> None:
        """Check the arguments against the newest version known, and change nothing.

        :raises InvalidInput: (or a subclass) before anything is done.
        """
        return None

    @abstractmethod
    def work(self, attempt: Attempt) -> StagedChanges | None:
        """Stage the work, and return it; ``None`` if there is nothing to do."""

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        """Do what must wait until the commit is in the log, such as removing files outside of the table.

        A later try that finds the commit calls this again, so that what failed then can be made up for.
        """
        return None

    def still_possible(self, work: StagedChanges, state: State) -> StagedChanges | None:
        """Return a smaller part of the work that a refused commit can still do; ``None`` if there is none."""
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
    """Run an action as one transaction; on a table that is worked on in a stage, stage it.

    :param txn_id: names the intent: if it has its commit already, that commit's receipt is returned and
        nothing is done.
    :param window: epoch of the stop-write window that the caller holds.
    :param inputs: what the request records of the inputs, for people.
    :param renew_seconds: keep the window open by signs of life, each time for so long; by default as long as it was
        opened for, up to its last moment.
    :returns: the receipt; its ``version`` is ``None`` if there was nothing to do.
    :raises CommitRefused: for each reason of that branch; nothing was changed.
    :raises CommitStateUnknown: if it is unknown whether the commit landed; try again under the same ``txn_id``.
    """
    if handle.stage is not None:
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
    head = handle.timeline.refresh()
    earlier = None if txn_id is None else find_receipt(handle.timeline, txn_id)
    if earlier is not None:  # before the arguments are checked: what the first try made would be in a retry's way
        return earlier
    observation = observe_table(handle, action, head)
    action.validate(observation.snapshot)
    if window is not None and renew_seconds is None:
        renew_seconds = windows.length(handle.timeline, window)
    try:
        transaction = begin(
            handle.timeline,
            operation=action.operation.name,
            txn_id=txn_id,
            scopes=action.scopes,
            window=window,
            protect=action.protect,
            inputs=inputs,
        )
    except AlreadyCommitted as error:
        return error.receipt
    try:
        with HeartbeatThread(transaction, renew_seconds=renew_seconds) as heartbeats:
            if transaction.base.version != observation.snapshot.state.version:
                observation = observe_table(handle, action, transaction.base)
            confined = action.confined_to(observation.snapshot.table)
            attempt = Attempt(observation.snapshot, transaction, heartbeats, "", handle.limits, confined)
            work = action.work(attempt)
            if work is not None:
                follow_files(attempt, work)
            if work is None and observation.actions and action.commits_observation:
                work = StagedChanges()
            if work is None or work.idle:
                return _nothing_to_do(transaction, {} if work is None else work.metrics)
            heartbeats.phase("commit")
            receipt = _commit(transaction, action, observation, work)
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


def _commit(transaction: Transaction, action: Action, observation: Observation, work: StagedChanges) -> Receipt:
    """Publish the work, or the part of it that still can be published."""
    while True:
        changes = _with_observed(work, observation)
        try:
            return transaction.commit(
                changes.actions,
                reads=dict.fromkeys(changes.reads),
                writes=dict.fromkeys(changes.writes),
                maintained=dict.fromkeys(changes.maintained),
                metrics=changes.metrics,
                keys_conflict=changes.keys_conflict,
                guard=changes.guard,
            )
        except (ConcurrentWrite, StopWriteWindowOpen) as refused:
            rest = action.still_possible(work, transaction.timeline.refresh())
            if rest is None:
                raise
            logger.info("%s: a part of the work is left out: %s", action.operation, refused.message)
            work = rest


def follow_files(attempt: Attempt, work: StagedChanges) -> None:
    """Add to ``work`` what the data files that it adds mean to indexes that keep something of each file.

    An index that cannot be kept lags behind: rows are written whatever becomes of it.
    """
    from spark_apps.indexes.handler import IndexContext
    from spark_apps.indexes.registry import available

    snapshot = attempt.snapshot
    # A table that is being made has no indexes, and another writer owns the files of a source.
    if not snapshot.state.indexes or snapshot.table.source is not None:
        return
    added = [action for action in work.actions if isinstance(action, AddFile) and action.tree == DATA_TREE]
    files = [DataFile.of(action, snapshot.state.version + 1) for action in added]
    for entry in snapshot.state.indexes.values() if files else ():
        definition, handler = entry.definition, available(entry.definition.kind)
        if handler is None or not handler.follows_files or definition.deferred or not entry.active:
            continue
        attempt.phase(f"index {definition.name}")
        context = IndexContext(snapshot, definition, attempt.index_folder(definition.name, "follow"))
        try:
            with index_errors(context):
                done = handler.follow(context, files)
        except spark_errors(LakeIndexError) as error:
            warn_of_lag(context, error)
            continue
        work.actions.extend(done.actions)
        work.writes.extend(done.writes)
        if not done.empty:
            work.maintained.append(definition.tree)
        work.metrics.update({f"index.{definition.name}.{name}": value for name, value in done.metrics.items()})


@contextmanager
def index_errors(context: IndexContext) -> Iterator[None]:
    """Return the context in which failures while an index is made of rows become errors that name it.

    These are Spark's, and those over a column that the index names and the table lacks, as in a log that was altered.
    """
    definition, source = context.definition, context.table.source
    label = f"The index {definition.name!r}"
    try:
        with translate_spark_errors(
            f"{label} over {', '.join(definition.columns)}", "" if source is None else source.location
        ):
            yield
    except spark_errors(KeyError) as error:
        existing = {field.name.lower() for field in context.table.fields}
        named = [*definition.columns, *definition.included, *(definition.partition_by or ())]
        missing = missing_names(error)  # any other failure stays what it is, whatever the table lacks
        lacking = next((name for name in named if name.lower() not in existing and name in missing), None)
        if lacking is None:
            raise
        raise UnknownColumn(
            f"{label} is over the column {lacking!r}, which the table lacks.",
            hint="Drop the index, and create it again over columns that are there.",
        ) from error


def warn_of_lag(context: IndexContext, error: Exception) -> None:
    """Say why an index does not cover the rows that are written."""
    why = f"{error.message} {error.hint}" if isinstance(error, LakeIndexError) else message_of(error)
    logger.warning(
        "Index %r lags behind this commit, and queries scan the file groups that it writes: %s",
        context.definition.name, why,
    )  # fmt: skip


def _with_observed(work: StagedChanges, observation: Observation) -> StagedChanges:
    """Return the work together with what has changed in the source, if anything has."""
    if not observation.actions:
        return work
    return replace(
        work,
        actions=observation.beside(work.actions),
        writes=[*work.writes, *observation.writes],
        maintained=[*work.maintained, *observation.covered_trees(work.actions)],
        metrics={**work.metrics, **observation.metrics},
    )


def observe_table(handle: TableHandle, action: Action, state: State) -> Observation:
    """Return the version that the action works on, of a registered source with its changes since.

    :raises InvalidInput: if the action writes rows that another writer owns.
    """
    snapshot = Snapshot(handle.spark, handle.timeline.store, state)
    source = snapshot.table.source
    if source is None:
        _check_indexes(snapshot, action)
    if source is None or action.on_sources == "blind":
        return Observation(snapshot)
    if action.on_sources == "refused":
        raise InvalidInput(
            f"{action.operation} cannot be done: another writer owns the rows of this table, in the {source.format} "
            f"source {source.location}, which this package only reads.",
            hint="Write to the source with what owns it; a refresh of an index then finds what changed.",
        )
    partitions = action.confined_to(snapshot.table)
    check_surroundings(snapshot.table, handle.source_options)
    only = None if partitions is None else set(partitions)
    observation = handle.observe(state, only, action.compares_lists)
    check_types(state, observation.snapshot.state)
    _check_indexes(observation.snapshot, action)
    return observation


def _check_indexes(snapshot: Snapshot, action: Action) -> None:
    """Check that the indexes whose values an action makes are over columns that the table has."""
    from spark_apps.indexes.registry import check_columns

    for name in action.indexes:
        if name in snapshot.state.indexes:
            check_columns(snapshot.table, snapshot.state.indexes[name].definition)


def _nothing_to_do(transaction: Transaction, metrics: Mapping[str, Any]) -> Receipt:
    transaction.withdraw()
    logger.info("%s of %s: nothing to do", transaction.requested.operation, transaction.timeline.store.uri)
    return Receipt(
        None, transaction.txn_id, transaction.requested.operation, dict(metrics), attempt=transaction.attempt
    )


def _end(transaction: Transaction, cause: BaseException) -> None:
    """End the attempt of an action that failed, so that no other waits for it and its files may go."""
    reason = cause.message if isinstance(cause, LakeIndexError) else type(cause).__name__
    try:
        transaction.abort(reason[:500])
    except LakeIndexError as error:
        # The failure itself is what the caller must learn; the attempt will be taken for dead by its
        # silence.
        logger.warning("Attempt %s of %s was not ended: %s", transaction.attempt, transaction.txn_id, error)


class HeartbeatThread:
    """Shows signs of life of an attempt from a thread of its own, as long as the ``with`` block runs.

    :param renew_seconds: keeps the attempt's stop-write window open: once a third of it has passed, the deadline is
        moved to this number of seconds from then.
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
        """Set what the next heartbeats report."""
        self._now = (name, done, total)
        CURRENT.phase(name, done, total)

    def __enter__(self) -> HeartbeatThread:
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


# --- Actions as stages of a transaction -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """The stage of a transaction that a table's next action is.

    :param after: the stages that it is made from; what these were made from counts as well.
    :param leave: indexes kept with the data that this write leaves to another stage.
    :param inputs: what the stage is made of, for a second try to compare.
    :param number: of the try; a try of a lower one that is late does not count.
    """

    txn_id: str
    attempt: int
    name: str
    after: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    inputs: str = ""
    number: int | None = None


@dataclass(frozen=True)
class Overlay:
    """The staged work that a stage is made from.

    :param base: the version that the transaction began from.
    :param state: that version with the staged work laid over it.
    :param made_from: stage -> hash of its manifest.
    :param groups: file groups of the table's rows in which the staged work adds or removes files.
    """

    base: State
    state: State
    made_from: dict[str, str] = field(default_factory=dict)
    groups: frozenset[GroupKey] = frozenset()

    @property
    def partitions(self) -> list[str]:
        return sorted({partition for partition, _ in self.groups})


def run_stage(handle: TableHandle, action: Action, stage: Stage) -> Receipt:
    """Stage an action's work under a transaction.

    Nothing becomes visible, and a failure ends nothing: the stage can be tried again.

    :returns: a receipt without a version, with the stage and its manifest's hash.
    :raises InvalidInput: for an action that cannot be a stage.
    :raises StageMismatch: if a stage that this one is made from is missing or was tried again since.
    :raises AttemptAborted: if the transaction was rolled back.
    """
    started = time.monotonic()
    _check_may_be_staged(action, stage)
    try:
        transaction = resume(handle.timeline, stage.txn_id, stage.attempt)
    except AlreadyCommitted as error:
        return error.receipt
    overlay = overlay_of(transaction, stage.after)
    token = transaction.claim(stage.name, stage.number)
    state = leaving(overlay.state, stage.leave)
    epoch = transaction.requested.epoch
    renewed = None if epoch is None else windows.length(handle.timeline, epoch)
    # Each try writes into folders of its own: a try before it may be at work yet.
    prefix = f"{stage.name}-{token[:8]}-"
    with HeartbeatThread(transaction, renew_seconds=renewed, shared=True) as heartbeats:
        heartbeats.phase(f"stage {stage.name}")
        observation = observe_table(handle, action, state)
        action.validate(observation.snapshot)
        confined = _confined_to(action, overlay, observation.snapshot.table)
        work = action.work(Attempt(observation.snapshot, transaction, heartbeats, prefix, handle.limits, confined))
        if work is not None or action.commits_observation:
            work = _with_observed(work or StagedChanges(), observation)
        work = work or StagedChanges()
        if overlay.made_from and work.actions:
            work = in_step(work, overlay, observation.snapshot.state)
        transaction.check_alive()
        hash_ = _stage(transaction, stage, action, work, overlay, token)
    logger.info(
        "%s of %s is staged as %r of transaction %s after %.1f s, %s",
        action.operation, handle.timeline.store.uri, stage.name, stage.txn_id, time.monotonic() - started, work.metrics,
    )  # fmt: skip
    metrics = {**work.metrics, "stage": stage.name, "staged": hash_}
    return Receipt(None, stage.txn_id, action.operation.name, metrics, attempt=stage.attempt)


def overlay_of(transaction: Transaction, after: Iterable[str]) -> Overlay:
    """Return the version that the transaction began from, with stages (and what they were made from) laid over it.

    :raises StageMismatch: if one is missing, or they are of different tries.
    """
    staged: dict[str, tuple[StageManifest, str]] = {}
    pending = list(after)
    while pending:
        name = pending.pop()
        if name not in staged:
            staged[name] = transaction.staged(name)
            pending.extend(staged[name][0].made_from)
    check_made_from(transaction.requested, staged)
    # In the order in which the transaction lists them; coverage of all comes last, as in the commit.
    manifests = [staged[name][0] for name in transaction.requested.stages if name in staged]
    actions = sorted((a for m in manifests for a in m.actions), key=lambda a: isinstance(a, MarkCovered))
    state = state_with_actions(
        transaction.base,
        actions,
        [write for manifest in manifests for write in manifest.writes],
        [tree for manifest in manifests for tree in manifest.maintained],
    )
    made_from = {name: hash_ for name, (_, hash_) in staged.items()}
    return Overlay(transaction.base, state, made_from, frozenset(changed_groups(transaction.base, actions)))


def leaving(state: State, names: Collection[str]) -> State:
    """Return the state as a write sees it that leaves indexes to other stages: as if these were deferred.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: for an index that a write cannot do without.
    """
    from spark_apps.indexes.registry import find

    if not names:
        return state
    other = state.copy()
    for name in names:
        entry = state.index(name)
        if find(entry.definition.kind).unique_keys:
            raise InvalidInput(
                f"The index {name!r} cannot be left to another stage: writes find by it where a key lives, and keep "
                "keys unique.",
                hint="Leave out that name; the write keeps the index itself.",
            )
        other.indexes[name] = changed(entry, definition=changed(entry.definition, deferred=True))
    return other


def in_step(work: StagedChanges, overlay: Overlay, state: State) -> StagedChanges:
    """Return work on an index that was made from staged rows, in the form in which it can be committed with them.

    The file groups that the index now covers must stay as they are until then, so they count as read; its entries
    take the sequence number of the commit, above what the base held; and it covers these groups as of the commit.
    """
    trees = {action.tree for action in work.actions if isinstance(action, MarkCovered)}
    for tree in sorted(trees):
        definition, new = _definition(work.actions, state, tree)
        entry = state.index_of_tree(tree)
        lag = set(overlay.groups) if new or entry is None else set(entry.lag)
        groups = sorted(lag & _covered(work.actions, tree, lag, overlay))
        if not groups:
            continue
        actions: list[AnyAction] = [_at_commit(action, tree, definition, overlay) for action in work.actions]
        before = overlay.base.index_of_tree(tree)
        behind = before is not None and any(group in before.lag for group in groups)
        work = replace(
            work,
            actions=[*actions, MarkCovered(tree, None, groups=tuple(groups))],
            reads=[*work.reads, *(group_scope(*group) for group in groups)],
            writes=_writes(work.writes, tree, definition, behind, actions),
        )
    return work


def _covered(actions: Sequence[AnyAction], tree: str, lag: Collection[GroupKey], overlay: Overlay) -> set[GroupKey]:
    """Return the lagging file groups that the work has read and that the commit must find unchanged."""
    groups: set[GroupKey] = set()
    for action in actions:
        if isinstance(action, MarkCovered) and action.tree == tree:
            paths = action.partitions
            groups |= {g for g in lag if (g in overlay.groups if paths is None else g[0] in paths)}
    return groups


def _definition(actions: Sequence[AnyAction], state: State, tree: str) -> tuple[IndexDefinition, bool]:
    for action in actions:
        if isinstance(action, PutIndex) and action.definition.tree == tree and state.index_of_tree(tree) is None:
            return action.definition, True
    entry = state.index_of_tree(tree)
    assert isinstance(entry, IndexEntry)
    return entry.definition, False


def _at_commit(action: AnyAction, tree: str, definition: IndexDefinition, overlay: Overlay) -> AnyAction:
    """Return an action whose entries merge above all of the base's, where they change what the base holds."""
    if not isinstance(action, AddFile) or action.tree != tree or definition.addresses != "key":
        return action
    late = action.kind == "delta" and action.sequence_number == overlay.base.version
    return changed(action, sequence_number=None) if late else action


def _writes(
    writes: Iterable[Write], tree: str, definition: IndexDefinition, behind: bool, actions: Sequence[AnyAction]
) -> list[Write]:
    on_top = {a.group for a in actions if isinstance(a, AddFile) and a.tree == tree and a.sequence_number is None}
    folds = any(write.mode == "fold" and write.scope.kind == "shard" for write in writes)
    declared = []
    for write in writes:
        if write.scope.name == tree and write.mode == "backdated" and write.scope.group in on_top:
            write = Write(write.scope, "append")
        elif write == Write(definition_scope(definition.name), "fold") and not behind and not folds:
            # It covers only rows that no other reader can see, so another refresh at the same time does no harm.
            write = Write(write.scope, "append")
        declared.append(write)
    return declared


def _confined_to(action: Action, overlay: Overlay, table: TableDefinition) -> list[str] | None:
    """Return the partitions that a stage is confined to.

    A refresh made from staged rows reads their partitions only, unless others were named: those must stay as they are
    until the commit.
    """
    if overlay.made_from and action.staging == "after" and action.partitions is None and action.confinable:
        return overlay.partitions
    return action.confined_to(table)


def _check_may_be_staged(action: Action, stage: Stage) -> None:
    reason = action.not_staged_because()
    if reason is not None:
        raise InvalidInput(
            f"{action.operation} cannot be a stage of a transaction: {reason}.",
            hint="Run it as a task of its own, before or after the transaction.",
        )
    if stage.after and action.staging != "after":
        raise InvalidInput(
            f"Stage {stage.name!r} ({action.operation}) cannot be made from other stages ({', '.join(stage.after)}): "
            "only what brings an index up to date can.",
            hint="Leave 'after' out; writes of one transaction must be of different partitions or buckets.",
        )
    if stage.leave and action.staging != "rows":
        raise InvalidInput(f"{action.operation} writes no rows, so it can leave no index to another stage.")


def _stage(
    transaction: Transaction, stage: Stage, action: Action, work: StagedChanges, overlay: Overlay, token: str
) -> str:
    keys = work.keys_conflict
    unique = dict(keys.columns) if isinstance(keys, ByKeys) else {}
    if keys is not None and not unique:
        unique = {w.scope.name: () for w in work.writes if w.scope.kind == "shard" and w.scope.name is not None}
    return transaction.stage(
        stage.name,
        work.actions,
        reads=dict.fromkeys(work.reads),
        writes=dict.fromkeys(work.writes),
        maintained=dict.fromkeys(work.maintained),
        made_from=overlay.made_from,
        metrics=work.metrics,
        token=token,
        operation=action.operation.name,
        inputs=stage.inputs,
        unique=unique,
        sole=work.guard is not None and not work.unique_by,
        unique_by=work.unique_by,
    )
