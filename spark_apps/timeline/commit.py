"""Publishing a commit: read to the end of the log, check, write the next version, and again if another was first.

Every commit of a table goes through :func:`commit_changes`. Version N is written only after every commit from the
intent's base to N-1 was read, and none of them is the transaction's own, ends its attempt, conflicts with it, or ends
its window. A commit says what it read and wrote as scopes: of two that raced, the second one is rebased when the order
of the two makes no difference to either, and is refused otherwise.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as changed

from spark_apps.storage.arrow_keys import positions_of_keys
from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    AttemptReplaced,
    BucketCountMismatch,
    CommitUndone,
    ConcurrentWrite,
    FencedOff,
    InvalidInput,
    StopWriteWindowOpen,
    StorageError,
    TableNotFound,
)
from spark_apps.storage.parquet.listed import ParquetFiles
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline import hashing_config
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.features import format_of, with_needed
from spark_apps.timeline.log import Timeline, commit_key, format_instant
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DATA_TREE,
    Abort,
    AddFile,
    AnyAction,
    Commit,
    DropHashingConfig,
    DropIndex,
    DropPartition,
    DropTable,
    EndWindow,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    PutTable,
    Receipt,
    RemoveFile,
    Scope,
    Write,
    WriteMode,
    group_scope,
    partition_scope,
)
from spark_apps.timeline.operations import CREATE_INDEX, END_WINDOW, Operation
from spark_apps.timeline.state import State, Window

logger = logging.getLogger(__name__)

# --- what a commit reads and writes, and what conflicts with it -------------------------------------------------------


# Pairs of modes on one scope that leave the same state in either order; the pair's order does not matter.
_COMMUTE: frozenset[frozenset[WriteMode]] = frozenset(
    frozenset(pair)
    for pair in (("append",), ("append", "fold"), ("append", "backdated"), ("backdated",), ("observed",))
)
# A compaction leaves the rows as they are; so does an index entry as of an earlier version.
_CHANGES_ROWS: frozenset[WriteMode] = frozenset(("append", "replace", "observed"))

KeysConflict = Callable[[Scope, Commit], bool]
"""Asked where two commits appended to one shard of a unique index: whether they wrote a key in common."""


@dataclass(frozen=True)
class Intent:
    """A commit that is to be made: all but its version and instant.

    :param base: version of the state that the work was done on.
    :param epoch: the stop-write window under which the writer works.
    :param exempt: allowed inside any window (windows, aborts and expiries themselves).
    """

    operation: str
    txn_id: str
    attempt: int
    base: int
    actions: tuple[AnyAction, ...]
    reads: tuple[Scope, ...] = ()
    writes: tuple[Write, ...] = ()
    epoch: int | None = None
    maintained: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    exempt: bool = False
    keys_conflict: KeysConflict | None = None

    @property
    def bucket_counts(self) -> dict[str, int | None]:
        """The bucket counts that the commit's files were written with, by partition."""
        return {action.path: action.buckets for action in self.actions if isinstance(action, PutPartition)}


def conflict(intent: Intent, landed: Commit) -> tuple[Scope, Scope] | None:
    """Return the scopes (of the intent, of the commit) over which a commit landed since forbids it, or ``None``."""
    for write in landed.writes:
        if write.mode in _CHANGES_ROWS:
            for read in intent.reads:
                if read.overlaps(write.scope) and (read.kind != "shard" or _keys_in_common(intent, read, landed)):
                    return read, write.scope
        for written in intent.writes:
            if written.scope.overlaps(write.scope) and not commute(written.mode, write.mode):
                return written.scope, write.scope
            if written == write and written.mode == "append" and _keys_in_common(intent, written.scope, landed):
                return written.scope, write.scope
    return None


def commute(one: WriteMode, other: WriteMode) -> bool:
    """Test whether two writes of one scope leave the same state in either order."""
    return frozenset((one, other)) in _COMMUTE


def _keys_in_common(intent: Intent, scope: Scope, landed: Commit) -> bool:
    """Test whether two commits wrote one key of a shard of a unique index.

    The entries of other indexes are not unique, so that without ``keys_conflict`` their appends always commute.
    """
    return scope.kind == "shard" and intent.keys_conflict is not None and intent.keys_conflict(scope, landed)


def check_declared(operation: str, actions: Iterable[AnyAction], writes: Iterable[Write]) -> None:
    """Check that a commit changes no more than it declares.

    Otherwise no conflict with it could be found, and no window could refuse it.

    :raises InvalidInput: for the first action outside of what the commit says it writes.
    """
    declared = tuple(writes)
    known: dict[Scope, bool] = {}
    for action in actions:
        if isinstance(action, AddFile) and action.tree == DATA_TREE:
            scope = group_scope(action.partition, action.group)
        elif isinstance(action, PutPartition | DropPartition):
            scope = partition_scope(action.path)
        else:
            continue
        if scope not in known:
            known[scope] = any(write.scope.overlaps(scope) for write in declared)
        if not known[scope]:
            raise InvalidInput(
                f"{operation} changes {scope} and does not say that it writes there.", hint="Declare it in 'writes'."
            )
    takes_away = any(isinstance(action, RemoveFile | DropPartition) for action in actions)
    if takes_away and all(write.mode == "append" for write in declared):
        raise InvalidInput(
            f"{operation} takes files away and says only that it appends.",
            hint="Declare 'replace', or 'fold' where the rows stay the same.",
        )


# --- Whether two sets of index files have a key in common -----------------------------------------------------------


@dataclass(frozen=True)
class ByKeys:
    """A test of keys in common that names what it compares, so that another process can do the same.

    :param columns: tree of an index -> its key columns, as files call them.
    """

    columns: Mapping[str, tuple[str, ...]]
    conflict: KeysConflict

    def __call__(self, scope: Scope, landed: Commit) -> bool:
        return self.conflict(scope, landed)


def share_keys(store: ObjectStore, columns: Sequence[str], files: Sequence[AddFile], landed: Sequence[AddFile]) -> bool:
    """Test whether files of one shard hold a key in common; true also where that cannot be read.

    :param columns: the key columns, as files call them; empty if they are not known.
    """
    if not files or not landed:
        return False
    if not columns:
        return True
    import pyarrow as pa

    try:
        keys, landed_keys = _keys(store, columns, files), _keys(store, columns, landed)
        return len(positions_of_keys(keys, landed_keys, keys.column_names)) > 0
    except (StorageError, pa.ArrowException, OSError):
        return True  # what cannot be read may hold a key of this commit; the caller begins again on the new state


def _keys(store: ObjectStore, columns: Sequence[str], files: Sequence[AddFile]) -> Any:
    import pyarrow as pa

    opened = ParquetFiles(store)
    return pa.concat_tables([opened.open(file).columns(columns) for file in files])


# --- publishing -------------------------------------------------------------------------------------------------------


REPLACED = "replaced by a later try"
"""Reason of an abort by a later try, which goes on with the attempt's work."""

Guard = Callable[[State], None]
"""A check of the caller's own on the state that the commit would follow; raises to refuse."""


def commit_changes(timeline: Timeline, intent: Intent, guard: Guard | None = None) -> Receipt:
    """Commit ``intent`` as the next version.

    :raises AlreadyCommitted: if the transaction has its commit; its receipt is in the error.
    :raises CommitRefused: for each reason of that branch of the error tree; nothing was changed.
    :raises CommitStateUnknown: if the store did not answer whether the commit landed.
    """
    checked, overtaken = intent.base, False
    while True:
        head = timeline.refresh()
        check_not_committed(head, intent.txn_id, timeline)
        check_not_aborted(head, intent.txn_id, intent.attempt, timeline)
        landed_since = list(timeline.commits(after=checked))
        for commit in landed_since:
            check_new_partitions(intent, commit)
        for commit in landed_since:
            check_conflict(intent, commit)
        overtaken = overtaken or any(_puts_table(commit.actions) for commit in landed_since)
        checked = head.version
        if guard is not None:
            guard(head)
        if not intent.exempt:
            check_not_dropped(timeline, head, intent)
            check_bucket_counts(head, intent)
            expired = check_windows(head, intent, timeline.clock())
            if expired is not None:
                end_window(timeline, expired, ended_by=intent.txn_id)
                continue
        changes_hashing = _changes_hashing(head, intent.actions)
        bare = _commit(timeline, replace(intent, actions=with_sound_marks(intent.actions, overtaken)), head)
        timeline.check_not_vanished()
        candidate = hashing_config.with_files(timeline, head, bare) if changes_hashing else bare
        landed = timeline.create(candidate)
        if landed is candidate:
            timeline.advance(candidate)
            timeline.checkpoint_if_due()
            if candidate is not bare:
                hashing_config.archive(timeline.store, head, timeline.head)
            publishing.follow(timeline, candidate, head)
            return Receipt.of(candidate)


def _puts_table(actions: Iterable[AnyAction]) -> bool:
    return any(isinstance(action, PutTable) for action in actions)


def with_sound_marks(actions: Sequence[AnyAction], overtaken: bool) -> tuple[AnyAction, ...]:
    """Return actions whose source has a mark only where its files will be exactly those of the version it names.

    Of two that recorded a source at once, each knows what it found itself: together they may list a file that is gone.

    :param overtaken: whether another commit has recorded it since the one that these were made on.
    """
    marks = {
        action.definition.source.mark
        for action in actions
        if isinstance(action, PutTable) and action.definition.source is not None
    }
    if not overtaken and len(marks) < 2:
        return tuple(actions)
    return tuple(_without_mark(action) for action in actions)


def _without_mark(action: AnyAction) -> AnyAction:
    if not isinstance(action, PutTable) or action.definition.source is None:
        return action
    source = changed(action.definition.source, mark=None)
    return PutTable(changed(action.definition, source=source))


def housekeeping(operation: Operation, action: AnyAction, *, base: int, txn_id: str | None = None) -> Intent:
    """Return an intent without files: a window, an abort, an expiry.

    It is allowed inside any window; its attempt number is drawn by lot.
    """
    return Intent(
        operation=operation.name,
        txn_id=txn_id or new_txn_id(operation.name),
        attempt=secrets.randbits(62),
        base=base,
        actions=(action,),
        exempt=True,
    )


def new_txn_id(operation: str) -> str:
    """Return a transaction id for a caller who gave none; no retry can ask for such a transaction again."""
    return f"{operation}-{secrets.token_hex(8)}"


def commit_of(timeline: Timeline, state: State, txn_id: str) -> Commit | None:
    """Return a transaction's commit, whether or not it is still in effect."""
    if txn_id not in state.committed:
        return None
    version, _ = state.committed[txn_id]
    return next(timeline.commits(after=version - 1, until=version))


# --- the checks, each on the state that the commit would follow --------------------------------------------------


def check_not_committed(state: State, txn_id: str, timeline: Timeline) -> None:
    """Check that a transaction has no commit.

    :raises AlreadyCommitted: if it has one that is in effect.
    :raises CommitUndone: if it has one whose effect was taken back.
    """
    commit = commit_of(timeline, state, txn_id)
    if commit is None:
        return
    receipt = Receipt.of(commit)
    drop, gone = drop_since(timeline, state, commit), "the table"
    if drop is None:
        drop, gone = _index_drop_since(timeline, state, commit)
    # Windows, aborts and expiries write no scope; neither a restore nor a drop takes one of them back.
    if commit.writes and (drop is not None or not (state.is_in_effect(commit.version) or _drops(commit))):
        how = "a later restore took its effect back"
        if drop is not None:
            how = f"{gone} was dropped in version {drop.version} since"
        raise CommitUndone(
            f"Transaction {txn_id} committed version {commit.version}, and {how}.",
            receipt,
            outcome="Nothing was written again.",
            hint="To do the work again, give it another transaction id; on Airflow, clear the task.",
            by=None if drop is None else drop.txn_id,
        )
    # Its writer may have died before the commit was synced to disk; from now on readers rely on it.
    timeline.store.sync([commit_key(commit.version)])
    raise AlreadyCommitted(
        f"Transaction {txn_id} has committed already, as version {commit.version}.",
        receipt,
        outcome="Nothing was written again.",
    )


def drop_since(timeline: Timeline, state: State, commit: Commit) -> Commit | None:
    """Return the drop of the table that a commit was made on; ``None`` while the table is there.

    It is ``None`` for a drop itself too, whose effect no table that is made later takes back.
    """
    if _drops(commit) or (state.last_drop is not None and state.last_drop <= commit.version):
        return None
    return next((later for later in timeline.commits(commit.version, state.version) if _drops(later)), None)


def _index_drop_since(timeline: Timeline, state: State, commit: Commit) -> tuple[Commit | None, str]:
    """Return the drop of the index that a commit created, and what was dropped; ``None`` while it is there."""
    if commit.operation != CREATE_INDEX.name:
        return None, ""
    made = {action.definition.name: action.definition.tree for action in commit.actions if isinstance(action, PutIndex)}
    for name, tree in made.items():
        if name in state.indexes and state.indexes[name].definition.tree == tree:
            continue
        for later in timeline.commits(commit.version, state.version):
            if any(isinstance(action, DropIndex) and action.name == name for action in later.actions):
                return later, f"the index {name!r}"
    return None, ""


def _drops(commit: Commit) -> bool:
    return any(isinstance(action, DropTable) for action in commit.actions)


def check_not_aborted(state: State, txn_id: str, attempt: int, timeline: Timeline) -> None:
    """Check that an attempt was not ended by a commit.

    :raises AttemptReplaced: if a later try of the work has ended the attempt.
    :raises AttemptAborted: if anything else has, which the error names.
    """
    if not state.is_aborted(txn_id, attempt):
        return
    ending = commit_of(timeline, state, abort_id(txn_id, attempt))
    aborts = () if ending is None else (action for action in ending.actions if isinstance(action, Abort))
    reason = next((action.reason for action in aborts), "")
    kind = AttemptReplaced if reason == REPLACED else AttemptAborted
    raise kind(
        f"Attempt {attempt} of transaction {txn_id} was ended by a commit: {reason or 'no reason was given'}.",
        hint="Stop; a retry is a new attempt.",
    )


def abort_id(txn_id: str, attempt: int) -> str:
    """Return the transaction id of the commit that ends an attempt, the same whichever process ends it."""
    return f"abort-{hashlib.sha256(txn_id.encode()).hexdigest()[:24]}.{attempt}"


def check_not_dropped(timeline: Timeline, state: State, intent: Intent) -> None:
    """Check that the table is there, unless the commit makes it anew.

    :raises TableNotFound: if it was dropped.
    """
    if state.dropped and not any(isinstance(action, PutTable) for action in intent.actions):
        raise TableNotFound(f"The table at {timeline.store.uri} was dropped.", hint="Create it again.")


def check_conflict(intent: Intent, commit: Commit) -> None:
    """Check that a commit which landed since does not conflict with the intent.

    :raises ConcurrentWrite: if it does, naming both.
    """
    scopes = conflict(intent, commit)
    if scopes is not None:
        wrote, other = scopes
        raise ConcurrentWrite(
            f"{intent.operation} (transaction {intent.txn_id}, based on version {intent.base}) needs {wrote}, and "
            f"{commit.operation} (transaction {commit.txn_id}) has changed {other} in version {commit.version}.",
            hint="Run it again: it will start from the newest version.",
        )


def check_new_partitions(intent: Intent, commit: Commit) -> None:
    """Refuse one of two writers that would create one partition by different rules.

    A writer that creates a partition reads the rules; a rescale sets counts and does not. This is checked before the
    scopes are, which would name only the rules that the two disagree about.

    :raises BucketCountMismatch: if they do, naming both counts.
    """
    if CONFIG_SCOPE not in intent.reads:
        return
    expected = intent.bucket_counts
    for action in commit.actions:
        if isinstance(action, PutPartition) and expected.get(action.path, action.buckets) != action.buckets:
            raise BucketCountMismatch(
                f"{commit.operation} (transaction {commit.txn_id}) has made partition {action.path!r} with "
                f"{action.buckets} buckets in version {commit.version}; {intent.operation} (transaction "
                f"{intent.txn_id}) was written with {expected[action.path]}.",
                hint="Run it again: it will use the count that the partition has now.",
            )


def check_bucket_counts(state: State, intent: Intent) -> None:
    """Check the bucket counts of the intent's files against those of the partitions.

    A commit that replaces the whole partition sets its count.

    :raises BucketCountMismatch: if they differ, naming both counts.
    """
    if any(write.mode == "replace" and write.scope.kind == "table" for write in intent.writes):
        return
    scopes = (write.scope for write in intent.writes if write.mode == "replace")
    sets = {scope.partition for scope in scopes if scope.kind == "partition"}
    given = intent.bucket_counts
    for partition, count in given.items():
        there = state.partitions.get(partition)
        if there is not None and there.buckets != count and partition not in sets:
            raise BucketCountMismatch(
                f"Partition {partition!r} has {there.buckets} buckets; {intent.operation} (transaction "
                f"{intent.txn_id}) was written with {count}.",
                hint="Run it again; to change the count, rescale the partition.",
            )
    for action in intent.actions:
        if not isinstance(action, AddFile) or action.tree != DATA_TREE:
            continue
        known = state.partitions.get(action.partition)
        count = given.get(action.partition, None if known is None else known.buckets)
        if count is not None and not (action.group.isascii() and action.group.isdigit() and int(action.group) < count):
            raise BucketCountMismatch(
                f"Partition {action.partition!r} has {count} buckets; {intent.operation} (transaction {intent.txn_id}) "
                f"wrote a file of bucket {action.group}.",
                hint="Run it again.",
            )


def check_windows(state: State, intent: Intent, now: float) -> Window | None:
    """Check that the open windows let the intent pass; return one past its deadline that must be ended first.

    :raises FencedOff: if the intent's own window has ended.
    :raises StopWriteWindowOpen: if another one is open there, naming holder, scope and deadline.
    """
    if intent.epoch is not None and intent.epoch not in state.windows:
        how = state.ended_windows.get(intent.epoch, f"no window was opened in version {intent.epoch}")
        raise FencedOff(
            f"{intent.operation} (transaction {intent.txn_id}) works under the stop-write window of epoch "
            f"{intent.epoch}, which is not open: {how}.",
            hint="Do not retry under this epoch; open a new window and begin again.",
        )
    for window in state.windows.values():
        if window.epoch == intent.epoch or not any(window.covers(write.scope) for write in intent.writes):
            continue
        if now > window.deadline:
            return window
        raise StopWriteWindowOpen(
            f"{window.holder} holds a stop-write window over {window.scope_text} (epoch {window.epoch}) until "
            f"{format_instant(window.deadline)} UTC; {intent.operation} (transaction {intent.txn_id}) would write "
            "there.",
            hint="Wait until the window is closed (StopWriteWindowClosedSensor), then run it again.",
        )
    return None


def end_window(timeline: Timeline, window: Window, ended_by: str) -> None:
    """End a window past its deadline, by a commit; do nothing if it has ended meanwhile or was renewed."""

    def still_expired(state: State) -> None:
        there = state.windows.get(window.epoch)
        if there is None or timeline.clock() <= there.deadline:
            raise _NothingToEnd("The window has ended or was renewed.")

    action = EndWindow(window.epoch, ended_by)
    try:
        commit_changes(timeline, housekeeping(END_WINDOW, action, base=timeline.head.version), still_expired)
    except _NothingToEnd:
        logger.info("Window %s was ended or renewed by another process.", window.epoch)


class _NothingToEnd(ConcurrentWrite):
    pass


def _changes_hashing(head: State, actions: Iterable[AnyAction]) -> bool:
    """Test whether a commit may change the rules, or the count of a partition, so that it must name hashing files."""
    for action in actions:
        if isinstance(action, PutHashingConfig | DropHashingConfig):
            return True
        if isinstance(action, PutPartition):
            there = head.partitions.get(action.path)
            if action.buckets != (None if there is None else there.buckets):
                return True
        elif isinstance(action, DropPartition) and action.path in head.partitions:
            return True
    return False


def _commit(timeline: Timeline, intent: Intent, head: State) -> Commit:
    reader_features, writer_features = with_needed(head.reader_features, head.writer_features, intent.actions)
    return Commit(
        format=format_of(reader_features, writer_features),
        version=head.version + 1,
        instant=timeline.next_instant(),
        operation=intent.operation,
        txn_id=intent.txn_id,
        attempt=intent.attempt,
        base=intent.base,
        reads=intent.reads,
        writes=intent.writes,
        epoch=intent.epoch,
        maintained=intent.maintained,
        actions=intent.actions,
        metrics=intent.metrics,
        reader_features=reader_features,
        writer_features=writer_features,
    )
