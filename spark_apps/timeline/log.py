"""The log of one table: reading it, and writing its next version exactly once.

Version N is ``_index/timeline/<N as 20 digits>.json``, made by create-if-absent. After any error of that call the key
is read back, because a store may answer an error to a write that landed, and "already exists" to one's own.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from spark_apps.storage.documents import decode
from spark_apps.storage.errors import (
    CommitStateUnknown,
    InvalidInput,
    LeadsOutside,
    LogDamaged,
    LogVanished,
    NewerFormat,
    ObjectNotFound,
    ObjectTooLarge,
    SnapshotExpired,
    TableNotFound,
    VersionNotFound,
)
from spark_apps.storage.store import ObjectStore, OutcomeUnknown, write_once
from spark_apps.timeline import checkpoints, sidecars
from spark_apps.timeline.field_types import COMMIT_BYTES
from spark_apps.timeline.model import FORMAT_VERSION, Commit, FormatOnly, Struct
from spark_apps.timeline.state import State
from spark_apps.timeline.validation import check_commit, check_paths

logger = logging.getLogger(__name__)

ROOT = "_index"
TIMELINE = f"{ROOT}/timeline"

_PREFETCH_FROM = 32
_PREFETCH_THREADS = 16
_RECENT_KEPT = 1000
_OF_AN_ATTEMPT = re.compile(r"data/[A-Za-z0-9._-]+\.\d+/")
_INSTANT_FORMAT = "%Y%m%d%H%M%S"
_COMMIT_NAME = re.compile(r"[0-9]{20}\.json")
_RESTORE = "Restore that file from a backup, or find out who wrote it."

T = TypeVar("T", bound=Struct)


def commit_key(version: int) -> str:
    return f"{TIMELINE}/{version:020d}.json"


class Timeline:
    """The log of the table at ``store``. Not thread-safe: one for each thread.

    :param clock: seconds since 1970; only decides what may be ended or expired, never what is right.
    """

    def __init__(self, store: ObjectStore, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock
        self._state = State()
        self._snapshot: State | None = None
        self._recent: dict[int, Commit] = {}
        self._loaded: State | None = None
        self._identity: str | None = None
        self.sleep: Callable[[float], None] = time.sleep

    # --- reading ----------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, store: ObjectStore, clock: Callable[[], float] = time.time) -> Timeline:
        """Open the log of an existing table and read it to its end.

        :raises TableNotFound: if there is no table.
        :raises LogVanished: if there are files of a table but no log.
        :raises NewerFormat: if a newer version of this package wrote the log.
        """
        timeline = cls(store, clock)
        timeline._load()
        if timeline._state.dropped:
            raise TableNotFound(f"The table at {store.uri} was dropped in version {timeline._state.version}.")
        return timeline

    @property
    def head(self) -> State:
        """The newest state known here; see :meth:`refresh`."""
        if self._snapshot is None or self._snapshot.version != self._state.version:
            self._snapshot = self._state.copy()
        return self._snapshot

    @property
    def identity(self) -> str:
        """A hash of the log's first commit, which no two logs share.

        It tells this log from another one at the same location.

        :raises TableNotFound: if the log is gone.
        """
        if self._identity is None:
            identity = self._first_commit_hash()
            if identity is None:
                raise TableNotFound(f"There is no log at {self.store.uri} any more.")
            self._identity = identity
        return self._identity

    def is_replaced(self) -> bool:
        """Test whether the log was deleted since it was read here, or deleted and begun anew, by one small request."""
        return self._first_commit_hash() != self.identity

    def refresh(self) -> State:
        """Read what was committed since, and return the newest state."""
        self._read_on()
        return self.head

    def read(self, version: int) -> Commit | None:
        """Return one commit, or ``None`` if the log does not reach that far."""
        if version in self._recent:
            return self._recent[version]
        try:
            body = self.store.get(commit_key(version), COMMIT_BYTES)
        except ObjectNotFound:
            return None
        except (ObjectTooLarge, LeadsOutside) as error:
            raise LogDamaged(f"Version {version} cannot be read: {error.message}", hint=_RESTORE) from error
        return self.decode(body, version)

    def commits(self, after: int = -1, until: int | None = None) -> Iterator[Commit]:
        """Yield the commits behind version ``after``, oldest first, up to ``until`` or the newest known."""
        last = self._state.version if until is None else until
        for version in range(after + 1, last + 1):
            commit = self.read(version)
            if commit is None:
                raise self._hole(version)
            yield commit

    def at(self, version: int | None = None, as_of: str | datetime | None = None) -> State:
        """Return the state as of a version, or as of an instant (ISO 8601, a ``datetime``, or the log's own form).

        :raises VersionNotFound: if the log holds no such version or nothing so early.
        :raises SnapshotExpired: if the version was expired.
        """
        if as_of is not None:
            version = self._version_at(parse_instant(as_of))
        if version is None or version == self._state.version:
            return self.head
        if not 0 <= version <= self._state.version:
            raise VersionNotFound(
                f"{self.store.uri} has no version {version}; its versions are {self._state.expired_below} to "
                f"{self._state.version}.",
            )
        if version < self._state.expired_below:
            raise SnapshotExpired(
                f"Version {version} of {self.store.uri} was expired; the oldest that can be read is "
                f"{self._state.expired_below}.",
                hint="Read a newer version, or keep more versions when cleaning.",
            )
        return self.rebuild(version)

    def rebuild(self, version: int) -> State:
        """Return the state of any version up to the newest, folded from the log; its files may have been expired."""
        if version == self._state.version:
            return self.head
        base = self._loaded if self._loaded is not None and self._loaded.version <= version else None
        if base is None:
            base = checkpoints.newest(self.store, version)
        state = State() if base is None else base.copy()
        for commit in self.commits(after=state.version, until=version):
            self._fold(state, commit)
        return state

    # --- writing ----------------------------------------------------------------------------------------------

    def create(self, commit: Commit) -> Commit:
        """Write ``commit`` as its version, which must be the next one.

        :returns: the commit that stands there now: this one, or another's that was first.
        :raises CommitStateUnknown: if the store did not let us find out.
        """
        self._check_own(commit)
        stored = sidecars.split(self.store, commit)
        body = msgspec.json.encode(stored)
        try:
            winner = write_once(self.store, commit_key(commit.version), body, self.sleep)
        except OutcomeUnknown as error:
            raise CommitStateUnknown(
                f"Version {commit.version} by transaction {commit.txn_id}: {error.message}",
                hint="Try the same transaction again once the store answers: it finds its commit if there is one.",
            ) from error
        return commit if winner == body else self.decode(winner, commit.version)

    def advance(self, commit: Commit) -> None:
        """Fold in the next commit.

        :raises LogDamaged: if it cannot be the next one; then nothing was folded in.
        """
        self._fold(self._state, commit)
        self._recent[commit.version] = commit
        while len(self._recent) > _RECENT_KEPT:
            del self._recent[next(iter(self._recent))]

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint of the newest state once the log behind the last one has grown. Failing is no harm."""
        checkpoints.write_if_due(self.store, self._state)

    def check_not_vanished(self) -> None:
        """Check that the newest version known is still in the store.

        :raises LogVanished: if it is gone.
        """
        if self._state.version >= 0 and self.store.head(commit_key(self._state.version)) is None:
            raise LogVanished(
                f"Version {self._state.version} of {self.store.uri} was there and is gone: the log was deleted or "
                "moved.",
                hint="Put the folder _index/timeline back from a backup; do not create the table anew over its files.",
            )

    def next_instant(self) -> str:
        """Return an instant behind that of the newest commit, and not before the clock."""
        now = format_instant(self.clock())
        if now > self._state.instant:
            return now
        return format_instant(seconds_of(self._state.instant) + 0.001)

    def decode(self, body: bytes, version: int) -> Commit:
        """Decode a commit.

        :raises NewerFormat: if a newer version of this package wrote it.
        :raises LogDamaged: if it cannot be read.
        """
        where = f"Version {version} of {self.store.uri}"
        form = decode(body, FormatOnly, where, hint=_RESTORE).format
        if form > FORMAT_VERSION:
            raise NewerFormat(
                f"{where} has log format {form}; this package reads up to format {FORMAT_VERSION}.",
                hint="Install a newer airflow-provider-index wherever this table is used.",
            )
        commit = decode(body, Commit, where, hint=_RESTORE)
        if commit.version != version:
            raise LogDamaged(f"{where} says of itself that it is version {commit.version}.", hint=_RESTORE)
        commit = sidecars.join(self.store, commit, where)
        check_commit(commit, where)
        return commit

    # --- inside -----------------------------------------------------------------------------------------------

    def _fold(self, state: State, commit: Commit) -> None:
        try:
            state.apply(commit)
        except LogDamaged as error:
            raise LogDamaged(
                f"Version {commit.version} of {self.store.uri}: {error.message}", hint=error.hint
            ) from error

    def _check_own(self, commit: Commit) -> None:
        """Check a commit that is to be written by the rules that its readers will check it by.

        :raises InvalidInput: if a field breaks one, naming it.
        """
        try:
            head = commit if len(commit.actions) <= sidecars.INLINE_ACTIONS else replace(commit, actions=())
            decode(msgspec.json.encode(head), Commit, "It")
            check_commit(commit, "It")
            check_paths(commit.actions, self._state.definition)
        except LogDamaged as error:
            raise InvalidInput(
                f"The commit of {commit.operation} (transaction {commit.txn_id}) would make a version that nobody "
                f"reads. {error.message}",
            ) from error

    def _load(self) -> None:
        """Read from the newest usable checkpoint to the end of the log."""
        base = checkpoints.newest(self.store)
        if base is not None:
            self._state, self._loaded = base, base.copy()
        last = self._last_listed()
        if last < 0 and base is None:
            self._check_missing()
            last = self._last_listed()
        for start in range(self._state.version + 1, last + 1, _RECENT_KEPT):
            versions = range(start, min(start + _RECENT_KEPT, last + 1))
            for version, commit in zip(versions, self._read_many(versions), strict=True):
                if commit is None:
                    raise self._hole(version)
                self.advance(commit)
        self._read_on()

    def _read_many(self, versions: range) -> list[Commit | None]:
        """Read many commits at once: one after the other, a far store would take a round trip for each."""
        if len(versions) < _PREFETCH_FROM:
            return [self.read(version) for version in versions]
        with ThreadPoolExecutor(_PREFETCH_THREADS) as pool:
            return list(pool.map(self.read, versions))

    def _read_on(self) -> None:
        while (commit := self.read(self._state.version + 1)) is not None:
            self.advance(commit)

    def _last_listed(self) -> int:
        after = commit_key(self._state.version) if self._state.version >= 0 else None
        names = [info.key.removeprefix(f"{TIMELINE}/") for info in self.store.list(TIMELINE, after=after)]
        versions = [int(name[:20]) for name in names if _COMMIT_NAME.fullmatch(name)]
        if self._state.version >= 0 and not versions:
            self.check_not_vanished()
        return max(versions, default=-1)

    def _first_commit_hash(self) -> str | None:
        try:
            return hashlib.sha256(self.store.get(commit_key(0))).hexdigest()[:16]
        except ObjectNotFound:
            return None

    def _check_missing(self) -> None:
        """Raise what a missing log means, unless the table was made at this very moment.

        :raises TableNotFound: if there is no table.
        :raises LogVanished: if there are files of a table but no log.
        """
        if left_by_a_table(self.store):
            if self.store.head(commit_key(0)) is not None:
                return
            raise LogVanished(
                f"There are files of a table at {self.store.uri} but its log (_index/timeline) is gone.",
                hint="Put the folder _index/timeline back from a backup; do not create the table anew over its files.",
            )
        raise TableNotFound(f"There is no table at {self.store.uri}.", hint="Check the location, or create the table.")

    def _hole(self, version: int) -> LogDamaged:
        return LogDamaged(
            f"Version {version} is missing from the log of {self.store.uri}, though later ones are there.",
            hint="Restore _index/timeline from a backup.",
        )

    def _version_at(self, instant: str) -> int:
        low = self._state.expired_below
        first = self.read(low)
        if first is None or first.instant > instant:
            raise VersionNotFound(
                f"{self.store.uri} has nothing as early as {instant}; its oldest readable version is {low}"
                f"{f' of {first.instant}' if first else ''} (UTC).",
            )
        return self.newest_by(instant, low)

    def newest_by(self, instant: str, low: int = 0) -> int:
        """Return the newest version, from ``low`` on, whose instant is not after ``instant``; ``low`` if all are.

        Expired versions count too.
        """
        high = self._state.version
        while low < high:
            middle = (low + high + 1) // 2
            commit = self.read(middle)
            if commit is None:
                raise self._hole(middle)
            low, high = (middle, high) if commit.instant <= instant else (low, middle - 1)
        return low


def left_by_a_table(store: ObjectStore) -> bool:
    """Test whether there are files of a table beside its log.

    A creation that ended before its first commit has left no more than a hashing config, a sidecar and a job's folder;
    other systems have a folder ``data`` too, without folders of attempts in it.
    """
    no_table = (f"{TIMELINE}/0", f"{ROOT}/hashing/config/", f"{ROOT}/sidecars/", f"{ROOT}/jobs/")
    return any(not info.key.startswith(no_table) for info in store.list(ROOT)) or any(
        _OF_AN_ATTEMPT.match(info.key) for info in store.list("data")
    )


def format_instant(seconds: float) -> str:
    """Format seconds since 1970 as ``yyyyMMddHHmmssSSS`` in UTC."""
    millis = round(seconds * 1000)
    moment = datetime.fromtimestamp(millis // 1000, UTC)
    return f"{moment.strftime(_INSTANT_FORMAT)}{millis % 1000:03d}"


def parse_instant(value: str | datetime) -> str:
    """Parse an instant in the log's form.

    :raises VersionNotFound: if it cannot be understood.
    """
    if isinstance(value, str):
        if re.fullmatch("[0-9]{17}", value):
            return value
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise VersionNotFound(
                f"{value!r} is no instant.", hint="Give ISO 8601, such as 2026-11-20T00:00:00Z."
            ) from error
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return format_instant(value.timestamp())


def seconds_of(instant: str) -> float:
    """Return an instant of the log (``yyyyMMddHHmmssSSS``, UTC) in seconds since 1970."""
    # Not strptime: logs hold a second 60, where two hashing files of one millisecond had to differ.
    minute = datetime(int(instant[:4]), int(instant[4:6]), int(instant[6:8]), int(instant[8:10]), int(instant[10:12]),
                      tzinfo=UTC)  # fmt: skip
    return minute.timestamp() + int(instant[12:]) / 1000
