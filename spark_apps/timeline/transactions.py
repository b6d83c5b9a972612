"""Transactions: an id that names an intent, attempts that try it, stages that prepare it, one commit that publishes it.

``<table>/_index/transactions/<txn id>/<attempt>/`` holds ``requested.json`` (its creation claims the attempt),
``heartbeat.json`` and one ``stage-<name>.json`` for each stage. Nothing staged is visible before the commit, and an
attempt is ended only by a commit, so a process that was taken for dead cannot publish when it wakes. Its files say
what was requested; whether it has ended, only the log says.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from spark_apps.storage.documents import fetch
from spark_apps.storage.errors import (
    AlreadyCommitted,
    LogDamaged,
    ObjectNotFound,
    StageMismatch,
    TransactionNotFound,
)
from spark_apps.storage.names import check_name, check_txn_id
from spark_apps.storage.store import write_once
from spark_apps.timeline import stages
from spark_apps.timeline.commit import (
    REPLACED,
    Guard,
    Intent,
    KeysConflict,
    abort_id,
    check_declared,
    check_not_aborted,
    check_not_committed,
    commit_changes,
    commit_of,
    housekeeping,
    new_txn_id,
)
from spark_apps.timeline.field_types import Count, FolderTxnId, Label
from spark_apps.timeline.limits import MAX_HEARTBEAT_BYTES, MAX_NOTE_BYTES
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    Abort,
    AddFile,
    AnyAction,
    Commit,
    Heartbeat,
    Receipt,
    Requested,
    Scope,
    StageManifest,
    Write,
)
from spark_apps.timeline.operations import ABORT
from spark_apps.timeline.state import State

logger = logging.getLogger(__name__)

# --- reading attempts -------------------------------------------------------------------------------------------------


TRANSACTIONS = "_index/transactions"
DATA = "data"
INDEXES = "_index/indexes"
WITHDRAWN = "withdrawn.json"

_AGAIN = "Begin the transaction again. Whoever cleans or drains ends this attempt once it is silent."
_OF_AN_ATTEMPT = re.compile(rf"{TRANSACTIONS}/(?!.*\.\.)([A-Za-z0-9][A-Za-z0-9._\-]{{0,127}})/([0-9]{{6,18}})/([^/]+)")


def attempt_folder(txn_id: str, attempt: int) -> str:
    return f"{TRANSACTIONS}/{txn_id}/{attempt:06d}"


def attempt_of(key: str) -> tuple[str, int] | None:
    """Return the transaction id and the attempt in whose folder a key is; ``None`` if it is in none."""
    match = _OF_AN_ATTEMPT.fullmatch(key)
    if match is None or match[2] != f"{int(match[2]):06d}":
        return None
    return match[1], int(match[2])


def read_requested(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """Return the request of an attempt.

    :raises TransactionNotFound: if there is none.
    :raises LogDamaged: if it is there and cannot be read.
    """
    key = _request_key(check_txn_id(txn_id), attempt)
    try:
        requested, _ = fetch(timeline.store, key, Requested, MAX_NOTE_BYTES)
    except ObjectNotFound as error:
        raise TransactionNotFound(
            f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id}."
        ) from error
    except LogDamaged as error:
        raise LogDamaged(error.message, hint=_AGAIN) from error
    if (requested.txn_id, requested.attempt) != (txn_id, attempt):
        raise LogDamaged(
            f"{timeline.store.uri}/{key} says of itself that it is attempt {requested.attempt} of transaction "
            f"{requested.txn_id}.",
            hint=_AGAIN,
        )
    return requested


def read_heartbeat(timeline: Timeline, txn_id: str, attempt: int) -> Heartbeat | None:
    """Return the newest sign of life of an attempt, or ``None`` if it left none.

    Of one that cannot be read (a machine that lost its power leaves it empty) the time of its writing is returned.
    """
    key = f"{attempt_folder(txn_id, attempt)}/heartbeat.json"
    try:
        return fetch(timeline.store, key, Heartbeat, MAX_HEARTBEAT_BYTES)[0]
    except ObjectNotFound:
        return None
    except LogDamaged as error:
        logger.warning("%s It counts as of when it was written.", error.message)
        written = _written_at(timeline, key)
        return None if written is None else Heartbeat(written)


def _unreadable(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    """Return a substitute for a request that cannot be read.

    Its attempt may need anything, from the first version on, and write anywhere, for as long as it is not ended.

    :raises TransactionNotFound: if the request has gone meanwhile.
    """
    written = _written_at(timeline, _request_key(txn_id, attempt))
    if written is None:
        raise TransactionNotFound(f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id} any more.")
    return Requested(txn_id, attempt, 0, "unreadable", (), written, "")


def _request_key(txn_id: str, attempt: int) -> str:
    return f"{attempt_folder(txn_id, attempt)}/requested.json"


def _written_at(timeline: Timeline, key: str) -> float | None:
    """Return when a key was written, in seconds since 1970 by the store's clock."""
    info = timeline.store.head(key)
    return None if info is None else info.modified.timestamp()


def attempts(timeline: Timeline, txn_id: str | None = None) -> list[tuple[str, int]]:
    """Return (txn id, attempt) of all attempts requested, of one transaction or of all.

    Those that were withdrawn or tidied away are left out.
    """
    prefix = TRANSACTIONS if txn_id is None else f"{TRANSACTIONS}/{txn_id}"
    marked = _marked(timeline, prefix, "requested.json", WITHDRAWN)
    withdrawn = set(marked[WITHDRAWN])
    return [attempt for attempt in marked["requested.json"] if attempt not in withdrawn]


def withdrawn_attempts(timeline: Timeline) -> list[tuple[str, int]]:
    """Return (txn id, attempt) of those that had nothing to do, as long as they are not tidied away."""
    return _marked(timeline, TRANSACTIONS, WITHDRAWN)[WITHDRAWN]


def _marked(timeline: Timeline, prefix: str, *names: str) -> dict[str, list[tuple[str, int]]]:
    """Return the attempts whose folders hold files of these names, by name; in one listing."""
    attempts_of: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    for info in timeline.store.list(prefix):
        attempt, name = attempt_of(info.key), info.key.rpartition("/")[2]
        if attempt is not None and name in attempts_of:
            attempts_of[name].append(attempt)
    return attempts_of


def is_live(state: State, txn_id: str, attempt: int) -> bool:
    """Test whether an attempt may still commit: neither it nor its transaction has ended by a commit."""
    return txn_id not in state.committed and not state.is_aborted(txn_id, attempt)


def live_attempts_of(timeline: Timeline, txn_id: str | None = None) -> list[int]:
    """Return the attempts of a transaction that may still commit."""
    state = timeline.head
    return [attempt for txn, attempt in attempts(timeline, txn_id) if is_live(state, txn, attempt)]


def live_attempts_below(timeline: Timeline, prefix: str) -> list[tuple[str, int]]:
    """Return (txn id, attempt) of those that may still commit, of all transactions whose ids begin with a prefix."""
    listed = [one for one in attempts(timeline) if one[0].startswith(prefix)]
    state = timeline.head
    return [one for one in listed if is_live(state, *one)]


def commits_below(timeline: Timeline, prefix: str) -> Iterator[Commit]:
    """Yield the commits of the transactions whose ids begin with a prefix, the newest first."""
    state = timeline.head
    found = sorted((version, txn_id) for txn_id, (version, _) in state.committed.items() if txn_id.startswith(prefix))
    for _, txn_id in reversed(found):
        commit = commit_of(timeline, state, txn_id)
        if commit is not None:
            yield commit


def live_requests(timeline: Timeline) -> list[Requested]:
    """Return all requests of the table whose attempts may still commit, as of the newest state.

    The timeline is brought to that state.
    """
    while True:
        listed = attempts(timeline)
        state = timeline.refresh()
        try:
            return [_request(timeline, txn, attempt) for txn, attempt in listed if is_live(state, txn, attempt)]
        except TransactionNotFound as error:
            # It has ended since, and a cleaner tidied it away. So the state is older than its commit, which may need
            # files that only its request held: look again.
            logger.info("%s", error.message)


def _request(timeline: Timeline, txn_id: str, attempt: int) -> Requested:
    try:
        return read_requested(timeline, txn_id, attempt)
    except LogDamaged as error:
        logger.warning("%s", error.message)
        return _unreadable(timeline, txn_id, attempt)


def is_presumed_dead(timeline: Timeline, requested: Requested, silent_seconds: float) -> bool:
    """Test whether an attempt has shown no sign of life for ``silent_seconds``, or for its patience if that is longer.

    Only :func:`abort` ends it.
    """
    beat = read_heartbeat(timeline, requested.txn_id, requested.attempt)
    last = requested.requested_at if beat is None else max(beat.at, requested.requested_at)
    return timeline.clock() - last > max(silent_seconds, requested.patience)


# --- transactions -----------------------------------------------------------------------------------------------------


class Transaction:
    """An attempt of a transaction. Made by :func:`begin` or, in another process, by :func:`resume`."""

    def __init__(self, timeline: Timeline, requested: Requested, base: State) -> None:
        self.timeline = timeline
        self.requested = requested
        self.base = base
        self.txn_id = requested.txn_id
        self.attempt = requested.attempt

    def __repr__(self) -> str:
        return f"Transaction({self.txn_id!r}, attempt={self.attempt}, base={self.base.version})"

    @property
    def folder(self) -> str:
        """Return the key of the attempt's own folder for its manifests."""
        return attempt_folder(self.txn_id, self.attempt)

    def data_folder(self, stage: str) -> str:
        """Return the key of the folder into which a stage writes data files."""
        return f"{DATA}/{self.txn_id}.{self.attempt}/{check_name('stage', stage)}"

    def index_folder(self, index: str, stage: str) -> str:
        """Return the key of the folder into which a stage writes files of an index."""
        return f"{INDEXES}/{check_name('index', index)}/{self.txn_id}.{self.attempt}/{check_name('stage', stage)}"

    def claim(self, stage: str, number: int | None = None) -> str:
        """Make this try of a stage the one that counts, instead of what an earlier try has staged or stages yet.

        :param number: of the try, rising from try to try, so that one that claims late is known as the earlier one.
        :returns: the token for :meth:`stage`.
        :raises StageMismatch: if :func:`begin` did not list the stage, or a later try has claimed it.
        """
        self._check_stage(stage)
        timeline = self.timeline
        return stages.claim(timeline.store, self.folder, stage, timeline.clock(), timeline.sleep, number)

    def heartbeat(self, phase: str = "", done: int | None = None, total: int | None = None, note: str = "") -> None:
        """Leave a sign of life.

        :raises StorageUnavailable: if it was not written, which a caller may well ignore.
        """
        beat = Heartbeat(self.timeline.clock(), phase, done, total, note)
        self.timeline.store.put(f"{self.folder}/heartbeat.json", msgspec.json.encode(beat))

    def check_alive(self) -> None:
        """Check that the attempt may still commit.

        :raises AttemptAborted: if a commit has ended it.
        :raises AlreadyCommitted: if the transaction has its commit.
        """
        state = self.timeline.refresh()
        check_not_committed(state, self.txn_id, self.timeline)
        check_not_aborted(state, self.txn_id, self.attempt, self.timeline)

    def stage(
        self,
        name: str,
        actions: Iterable[AnyAction],
        *,
        reads: Iterable[Scope] = (),
        writes: Iterable[Write] = (),
        maintained: Iterable[str] = (),
        made_from: Mapping[str, str] | None = None,
        metrics: Mapping[str, Any] | None = None,
        token: str | None = None,
        operation: str = "",
        inputs: str = "",
        unique: Mapping[str, Sequence[str]] | None = None,
        sole: bool = False,
        unique_by: str = "",
    ) -> str:
        """Write the manifest of a stage; staging again replaces it. Nothing becomes visible.

        ::

            transaction.stage("rows", actions, writes=[Write(group_scope("dt=2026-11-27", "3"), "append")])

        :param made_from: stages this one was made from, with the hashes that staging them returned.
        :param token: of the try that stages, from :meth:`claim`; without effect once another try has claimed the stage.
        :param operation: what was done; puts the stage's name before its metrics in the receipt.
        :param inputs: describes what the stage was made of beside other stages.
        :param unique: trees of indexes of unique keys that get entries, with their key columns as files call them.
        :param sole: no index that is kept with the data may be made beside this.
        :param unique_by: tree of the index by which its keys were seen to be unique in the table.
        :returns: the manifest's hash.
        :raises StageMismatch: if :func:`begin` did not list the stage.
        """
        self._check_stage(name)
        manifest = StageManifest(
            name,
            tuple(actions),
            tuple(reads),
            tuple(writes),
            tuple(maintained),
            dict(made_from or {}),
            dict(metrics or {}),
            operation,
            inputs,
            {tree: tuple(names) for tree, names in (unique or {}).items()},
            sole,
            unique_by,
        )
        return stages.write_manifest(self.timeline.store, self.folder, manifest, token)

    def staged(self, name: str) -> tuple[StageManifest, str]:
        """Return a stage's manifest and its hash.

        :raises StageMismatch: if it is missing or damaged.
        """
        return stages.read_manifest(self.timeline.store, self.folder, self.requested, name)

    def commit(
        self,
        actions: Iterable[AnyAction] | None = None,
        *,
        reads: Iterable[Scope] = (),
        writes: Iterable[Write] = (),
        maintained: Iterable[str] = (),
        metrics: Mapping[str, Any] | None = None,
        keys_conflict: KeysConflict | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """Publish the work in one commit: ``actions``, or without them what the stages' manifests list.

        ::

            receipt = transaction.commit(metrics={"rows": 17})  # what the stages have staged

        :param reads: what the work relied on; added to that of the manifests.
        :param writes: what it writes; added likewise. Every file added or removed must be within one of these.
        :param maintained: trees of the indexes that are in step with the rows after this commit.
        :param keys_conflict: tests two appends to one shard of a unique index for keys in common.
        :raises AlreadyCommitted: if the transaction has its commit.
        :raises CommitRefused: for each reason of that branch of the error tree; nothing was changed.
        :raises CommitStateUnknown: if the store did not answer whether the commit landed.
        """
        all_metrics = dict(metrics or {})
        if actions is None:
            unstaged = StageManifest("", (), tuple(reads), tuple(writes), tuple(maintained), {}, all_metrics)
            manifest = self._joined_stages(unstaged)
            keys_conflict = keys_conflict or stages.keys_conflict(self.timeline.store, manifest)
            guard = guard or stages.guard(self.base, manifest)
        else:
            manifest = StageManifest(
                "", tuple(actions), tuple(reads), tuple(writes), tuple(maintained), {}, all_metrics
            )
        self._check_files(manifest.actions)
        check_declared(self.requested.operation, manifest.actions, manifest.writes)
        intent = Intent(
            operation=self.requested.operation,
            txn_id=self.txn_id,
            attempt=self.attempt,
            base=self.base.version,
            actions=manifest.actions,
            reads=manifest.reads,
            writes=manifest.writes,
            epoch=self.requested.epoch,
            maintained=manifest.maintained,
            metrics=manifest.metrics,
            keys_conflict=keys_conflict,
        )
        return commit_changes(self.timeline, intent, guard)

    def abort(self, reason: str = "") -> Receipt | None:
        """End this attempt by a commit; see :func:`abort`."""
        return abort(self.timeline, self.txn_id, self.attempt, reason)

    def withdraw(self) -> None:
        """Take back the request of an attempt that had nothing to do.

        This is for its owner only, and instead of a commit: no process waits for the attempt any longer, and its staged
        files go with it.

        Request and mark stay, so that the number is not given out again, not even to a caller who chose it before: a
        deletion that lands late must not meet the files of another attempt.
        """
        self.timeline.store.put(f"{self.folder}/{WITHDRAWN}", b"{}")
        staged = self.timeline.store.list(f"{DATA}/{self.txn_id}.{self.attempt}")
        self.timeline.store.delete([info.key for info in staged])

    def _check_stage(self, name: str) -> None:
        if name not in self.requested.stages:
            raise StageMismatch(
                f"Transaction {self.txn_id} has no stage {name!r}; it has {', '.join(self.requested.stages)}.",
                hint="List the stage when the transaction begins.",
            )

    def _joined_stages(self, unstaged: StageManifest) -> StageManifest:
        staged = {name: self.staged(name) for name in self.requested.stages}
        joined = stages.join(self.requested, self.base, staged, self.timeline.store)
        return msgspec.structs.replace(
            joined,
            reads=tuple(dict.fromkeys((*joined.reads, *unstaged.reads))),
            writes=tuple(dict.fromkeys((*joined.writes, *unstaged.writes))),
            maintained=tuple(dict.fromkeys((*joined.maintained, *unstaged.maintained))),
            metrics={**joined.metrics, **unstaged.metrics},
        )

    def _check_files(self, actions: Iterable[AnyAction]) -> None:
        """Check that files which this attempt staged are there in the size that was staged."""
        folder_of_attempt = f"/{self.txn_id}.{self.attempt}/"
        expected = {
            action.path: action.bytes
            for action in actions
            if isinstance(action, AddFile) and folder_of_attempt in action.path
        }
        folders = {path[: path.index(folder_of_attempt) + len(folder_of_attempt) - 1] for path in expected}
        sizes = {info.key: info.size for folder in sorted(folders) for info in self.timeline.store.list(folder)}
        wrong = [path for path, size in expected.items() if sizes.get(path) != size]
        if wrong:
            path = wrong[0]
            raise StageMismatch(
                f"{len(wrong)} of {len(expected)} staged files of transaction {self.txn_id} are missing or have "
                f"another size; the first is {path} ({sizes.get(path, 'no')} bytes there, {expected[path]} staged).",
                hint="Begin the transaction again; on Airflow, clear the task that began it with all that follows.",
            )
        # Spark leaves what it wrote to the system, and the commit shall not outlive it. With the checksums beside them.
        self.timeline.store.sync(sizes)


def begin(
    timeline: Timeline,
    *,
    operation: str,
    txn_id: str | None = None,
    stages: Iterable[str] = ("work",),
    scopes: Iterable[Scope] | None = None,
    window: int | None = None,
    protect: int | None = None,
    fence: bool = False,
    inputs: Mapping[str, Any] | None = None,
    patience: float = 0.0,
) -> Transaction:
    """Claim the next attempt of a transaction.

    The request is written first and the log read again after it, so that from the base on nothing is cleaned away.

    ::

        transaction = begin(timeline, operation="upsert", txn_id="load-2026-11-27", stages=("rows", "indexes"))

    :param txn_id: names the intent; a retry gives the same one. Drawn by lot if not given.
    :param scopes: what it may write, for a process that drains a window; ``None`` for anything.
    :param window: epoch of the stop-write window it works under.
    :param protect: a version older than the newest whose files it needs.
    :param fence: end the earlier attempts of the transaction first, by commits.
    :param patience: seconds without a sign of life that are nothing unusual, for instance between two stages.
    :param timeline: the table's log.
    :param operation: what the commit will be called.
    :param inputs: what the work is made from, kept with the request.
    :returns: the attempt, to stage work in and to commit.
    :raises AlreadyCommitted: if the transaction has its commit.
    :raises CommitUndone: if it has one whose effect was taken back.
    :raises UnsupportedFeature: if the table has a feature that a writer must know.
    """
    given, txn_id = txn_id, new_txn_id(operation) if txn_id is None else check_txn_id(txn_id)
    request = Requested(
        txn_id=txn_id,
        attempt=0,
        base=0,
        operation=operation,
        stages=tuple(check_name("stage", stage) for stage in stages),
        requested_at=timeline.clock(),
        nonce=secrets.token_hex(8),
        scopes=None if scopes is None else tuple(scopes),
        epoch=window,
        protects=protect,
        inputs=dict(inputs or {}),
        patience=patience,
    )
    if given is not None:
        check_not_committed(timeline.refresh(), txn_id, timeline)
        if fence:
            end_earlier(timeline, txn_id)
    while True:
        base = timeline.refresh()
        timeline.check_writable()
        requested = _claim(timeline, msgspec.structs.replace(request, base=base.version))
        after = timeline.refresh()
        if given is not None:
            check_not_committed(after, txn_id, timeline)
        transaction = Transaction(timeline, requested, base)
        oldest = base.version if protect is None else min(base.version, protect)
        # The number of an attempt that ended while we claimed it, or a cleaner that did not see the request.
        if not after.is_aborted(txn_id, requested.attempt) and after.expired_below <= oldest:
            return transaction
        transaction.withdraw()
        if protect is not None:
            timeline.at(protect)


def end_earlier(timeline: Timeline, txn_id: str) -> None:
    """End, by commits, the attempts of a transaction that a new one replaces.

    :raises AlreadyCommitted: if one of them has committed.
    """
    for attempt in live_attempts_of(timeline, txn_id):
        abort(timeline, txn_id, attempt, REPLACED)


def resume(timeline: Timeline, txn_id: str, attempt: int) -> Transaction:
    """Return the attempt that :func:`begin` claimed, in another process; its base is the version it was requested at.

    :param timeline: the table's log.
    :param txn_id: and ``attempt``: as :func:`begin` gave them.
    :raises TransactionNotFound: if there is no such attempt.
    :raises AttemptAborted: if a commit has ended it.
    :raises AlreadyCommitted: if the transaction has its commit.
    """
    requested = None
    try:
        requested = read_requested(timeline, txn_id, attempt)
    except TransactionNotFound:
        logger.info("Attempt %s of %s left no request; the log shows whether it has ended.", attempt, txn_id)
    # After looking for the request: what an ended attempt left behind may be tidied away at any moment.
    state = timeline.refresh()
    check_not_committed(state, txn_id, timeline)
    check_not_aborted(state, txn_id, attempt, timeline)
    if requested is None:
        raise TransactionNotFound(f"{timeline.store.uri} knows no attempt {attempt} of transaction {txn_id}.")
    return Transaction(timeline, requested, timeline.rebuild(requested.base))


def abort(timeline: Timeline, txn_id: str, attempt: int, reason: str = "") -> Receipt:
    """End an attempt by a commit, after which it cannot commit and its files may go.

    ::

        abort(timeline, "load-2026-11-27", attempt=1, reason="its cluster is gone")

    :returns: the receipt of the abort, of this call or an earlier one.
    :raises AlreadyCommitted: if that very attempt has committed; nothing was aborted.
    """
    check_txn_id(txn_id)

    def not_committed(state: State) -> None:
        commit = commit_of(timeline, state, txn_id)
        if commit is not None and commit.attempt == attempt:
            raise AlreadyCommitted(
                f"Attempt {attempt} of transaction {txn_id} has committed version {commit.version}; it is not aborted.",
                Receipt.of(commit),
                outcome="The commit is in effect."
                if state.is_in_effect(commit.version)
                else "Its effect is gone: a later restore took it back, or the table was dropped.",
            )

    not_committed(timeline.refresh())
    intent = housekeeping(
        ABORT, Abort(txn_id, attempt, reason), txn_id=abort_id(txn_id, attempt), base=timeline.head.version
    )
    try:
        return commit_changes(timeline, intent, not_committed)
    except AlreadyCommitted as error:
        if error.receipt.txn_id == txn_id:
            raise
        return error.receipt


def find_receipt(timeline: Timeline, txn_id: str) -> Receipt | None:
    """Return the receipt of a transaction whose commit is in effect, or ``None`` if it has none.

    :raises CommitUndone: if it has one and a restore took its effect back, or the table was dropped since.
    """
    try:
        check_not_committed(timeline.refresh(), check_txn_id(txn_id), timeline)
    except AlreadyCommitted as error:
        return error.receipt
    return None


def _claim(timeline: Timeline, request: Requested) -> Requested:
    """Write the request under the first free attempt number; numbers of ended attempts are not given out again."""
    state = timeline.head
    listed = timeline.store.list(f"{TRANSACTIONS}/{request.txn_id}")
    folders = (attempt_of(info.key) for info in listed)
    used = [match[1] for match in folders if match is not None] + state.aborted.get(request.txn_id, [])
    number = max(used, default=0) + 1
    while True:
        numbered = msgspec.structs.replace(request, attempt=number)
        body = msgspec.json.encode(numbered)
        key = f"{attempt_folder(request.txn_id, number)}/requested.json"
        if write_once(timeline.store, key, body, timeline.sleep) == body:
            return numbered
        number += 1


# --- what this process works on ---------------------------------------------------------------------------------------


Now = tuple[str, int | None, int | None]
"""Phase, how much of it is done, and of how much."""


class BegunAttempt(msgspec.Struct, frozen=True):
    """An attempt that the app began: of which transaction, in which table's log."""

    log: Label
    txn_id: FolderTxnId
    attempt: Count


@dataclass(frozen=True)
class AttemptInProgress:
    """An attempt that is worked on.

    :param base: the version it began from.
    :param shared: other jobs work on it too; it is not ended with this one.
    """

    attempt: BegunAttempt
    base: int
    shared: bool = False


class Progress:
    """The phase and the attempts of this process. Safe to use from several threads.

    :ivar begun: called with every attempt before work on it begins; an error of it ends the attempt's work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Now = ("", None, None)
        self._in_progress: list[AttemptInProgress] = []
        self.begun: Callable[[Transaction, bool], None] | None = None

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Set the phase of the work."""
        with self._lock:
            self._now = (name, done, total)

    def now(self) -> Now:
        """Return the phase of the work, and how far it is."""
        with self._lock:
            return self._now

    def hold(self, transaction: Transaction, *, shared: bool = False) -> None:
        """Note that work on an attempt begins.

        :param shared: other jobs work on the attempt too; it is not ended with this one.
        :raises AttemptAborted: if the job was cancelled meanwhile; the attempt has been ended.
        """
        if self.begun is not None:
            self.begun(transaction, shared)
        with self._lock:
            self._in_progress.append(AttemptInProgress(_named(transaction), transaction.base.version, shared))

    def release(self, transaction: Transaction) -> None:
        """Note that work on an attempt has ended, whichever way."""
        one = _named(transaction)
        with self._lock:
            self._in_progress = [work for work in self._in_progress if work.attempt != one]

    def in_progress(self) -> list[AttemptInProgress]:
        """Return the attempts that are worked on."""
        with self._lock:
            return list(self._in_progress)


CURRENT = Progress()
"""Of this process."""


def _named(transaction: Transaction) -> BegunAttempt:
    return BegunAttempt(transaction.timeline.store.uri, transaction.txn_id, transaction.attempt)
