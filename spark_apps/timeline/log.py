"""The log of one table: reading it, and writing its next version exactly once.

Version N is ``_index/timeline/<N as 20 digits>.json``, made by create-if-absent. After any error of that call the key
is read back, because a store may answer an error to a write that landed, and "already exists" to one's own.

Commits with very many actions keep them in a Parquet file beside the log, a sidecar, named by the hash of its bytes.
A checkpoint is the folded state of a version as one Parquet file, so that a reader need not fold the whole log. It is
for speed only. Its name carries the hash of its bytes; one that is damaged, or newer than the version in question, is
passed over, and the log is folded from an older one or from its beginning.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import xxhash
from msgspec.structs import replace

from spark_apps.storage import documents
from spark_apps.storage.documents import decode, prepare, reason
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
    StorageError,
    TableNotFound,
    VersionNotFound,
)
from spark_apps.storage.limits import MAX_VALUES
from spark_apps.storage.parquet.headers import open_parquet
from spark_apps.storage.store import ObjectStore, OutcomeUnknown, write_once
from spark_apps.timeline import features, files
from spark_apps.timeline.field_types import (
    ConfigInstant,
    ConfigPath,
    Count,
    Group,
    Instant,
    MetaPath,
    Name,
    Partition,
    TxnId,
    Version,
    VersionOrNone,
    Words,
)
from spark_apps.timeline.files import FileSet
from spark_apps.timeline.limits import (
    MAX_ACTIONS,
    MAX_CHECKPOINT_BYTES,
    MAX_CHECKPOINT_DECODED_BYTES,
    MAX_COMMIT_BYTES,
    MAX_FILES,
    MAX_RECENT_COMMITS,
    MAX_SIDECAR_BYTES,
    MAX_SIDECAR_DECODED_BYTES,
)
from spark_apps.timeline.model import (
    AnyAction,
    Commit,
    Expire,
    Features,
    FormatOnly,
    HashingConfig,
    OpenWindow,
    PutPartition,
    PutTable,
    SetLag,
    Struct,
    TableDefinition,
)
from spark_apps.timeline.state import IndexEntry, PartitionEntry, State, Window
from spark_apps.timeline.validation import check_commit, check_paths, check_together, data_prefix

logger = logging.getLogger(__name__)

ROOT = "_index"
TIMELINE = f"{ROOT}/timeline"

_PREFETCH_FROM = 32
_PREFETCH_THREADS = 16

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
        """The newest state that was read; see :meth:`refresh`."""
        if self._snapshot is None or self._snapshot.version != self._state.version:
            self._snapshot = self._state.copy()
        return self._snapshot

    @property
    def identity(self) -> str:
        """A hash of the log's first commit, which no two logs share.

        It distinguishes this log from another one at the same location.

        :raises TableNotFound: if the log is gone.
        """
        if self._identity is None:
            identity = self._first_commit_hash()
            if identity is None:
                raise TableNotFound(f"There is no log at {self.store.uri} any more.")
            self._identity = identity
        return self._identity

    def is_replaced(self) -> bool:
        """Test whether the log was deleted since it was read, or deleted and begun anew, by one small request.

        :returns: whether it was.
        """
        return self._first_commit_hash() != self.identity

    def refresh(self) -> State:
        """Read what was committed since, and return the newest state."""
        self._read_on()
        return self.head

    def read(self, version: int) -> Commit | None:
        """Return one commit, or ``None`` if the log does not reach that far.

        :param version: of the commit.
        :raises LogDamaged: if it cannot be read.
        """
        if version in self._recent:
            return self._recent[version]
        try:
            body = self.store.get(commit_key(version), MAX_COMMIT_BYTES)
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
                raise self._missing_version(version)
            yield commit

    def at(self, version: int | None = None, as_of: str | datetime | None = None) -> State:
        """Return the state as of a version, or as of an instant (ISO 8601, a ``datetime``, or the log's own form).

        :param version: or ``as_of``, an instant; the newest version without either.
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
            base = newest_checkpoint(self.store, version)
        state = State() if base is None else base.copy()
        for commit in self.commits(after=state.version, until=version):
            self._fold(state, commit)
        return state

    # --- writing ----------------------------------------------------------------------------------------------

    def create(self, commit: Commit) -> Commit:
        """Write ``commit`` as its version, which must be the next one.

        :returns: the commit that has the version now: this one, or another's that was first.
        :raises CommitStateUnknown: if the store did not let us find out.
        :raises UnsupportedFeature: if the table has a feature that a writer must know.
        """
        self.check_writable()
        self._check_own(commit)
        stored = write_sidecar(self.store, commit)
        body = msgspec.json.encode(stored)
        try:
            winner = write_once(self.store, commit_key(commit.version), body, self.sleep)
        except OutcomeUnknown as error:
            raise CommitStateUnknown(
                f"Version {commit.version} by transaction {commit.txn_id}: {error.message}",
                hint="Try the same transaction again once the store answers: it finds its commit if there is one.",
            ) from error
        return commit if winner == body else self.decode(winner, commit.version)

    def check_writable(self) -> None:
        """Check that this package knows all that a writer of the table must know, as of the newest version read.

        :raises UnsupportedFeature: if it does not, naming the feature.
        """
        features.check_writable(self._state.writer_features, f"The table at {self.store.uri}")

    def advance(self, commit: Commit) -> None:
        """Fold in the next commit.

        :raises LogDamaged: if it cannot be the next one; then nothing was folded in.
        """
        self._fold(self._state, commit)
        self._recent[commit.version] = commit
        while len(self._recent) > MAX_RECENT_COMMITS:
            del self._recent[next(iter(self._recent))]

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint of the newest state once the log behind the last one has grown. Failing is no harm."""
        write_checkpoint_if_due(self.store, self._state)

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

        :param body: of a version's file.
        :returns: the commit.
        :raises NewerFormat: if a newer version of this package wrote it.
        :raises UnsupportedFeature: if the table has a feature that a reader must know.
        :raises LogDamaged: if it cannot be read.
        """
        where = f"Version {version} of {self.store.uri}"
        features.check_readable(decode(body, FormatOnly, where, hint=_RESTORE), where)
        commit = decode(body, Commit, where, hint=_RESTORE)
        if commit.version != version:
            raise LogDamaged(f"{where} says of itself that it is version {commit.version}.", hint=_RESTORE)
        commit = read_sidecar(self.store, commit, where)
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
            head = commit if len(commit.actions) <= INLINE_ACTIONS else replace(commit, actions=())
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
        base = newest_checkpoint(self.store)
        if base is not None:
            self._state, self._loaded = base, base.copy()
        last = self._last_listed()
        if last < 0 and base is None:
            self._check_missing()
            last = self._last_listed()
        for start in range(self._state.version + 1, last + 1, MAX_RECENT_COMMITS):
            versions = range(start, min(start + MAX_RECENT_COMMITS, last + 1))
            for version, commit in zip(versions, self._read_many(versions), strict=True):
                if commit is None:
                    raise self._missing_version(version)
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

    def _missing_version(self, version: int) -> LogDamaged:
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
                raise self._missing_version(middle)
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


# --- sidecars: the actions of large commits ---------------------------------------------------------------------------


INLINE_ACTIONS = 1000
"""The most actions that a commit's own JSON holds."""

_SIDECARS = "_index/sidecars"
_AT_ONCE = 16_384
_ANY_ACTIONS, _ANY_BYTES = 20_000, 64 << 20
_RESTORE_SIDECAR = "Restore that file from a backup, or find out who wrote it."


def write_sidecar(store: ObjectStore, commit: Commit) -> Commit:
    """Return the commit as it goes into the log; the sidecar, if it needs one, is written first."""
    if len(commit.actions) <= INLINE_ACTIONS:
        return commit
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"action": [msgspec.json.encode(action) for action in commit.actions]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)  # no two actions are the same
    body = sink.getvalue()
    rows, size = sidecar_limits(len(body))
    if len(body) > MAX_SIDECAR_BYTES or table.num_rows > rows or table.nbytes > size:
        raise InvalidInput(
            f"{commit.operation} (transaction {commit.txn_id}) has {table.num_rows:,} actions of {table.nbytes:,} "
            f"bytes, more than one commit may have ({rows:,} of {size:,}).",
            hint="Do it in several commits: some partitions each.",
        )
    key = f"{_SIDECARS}/{xxhash.xxh3_128_hexdigest(body)}.parquet"
    store.put(key, body)
    return msgspec.structs.replace(commit, actions=(), sidecar=key)


def read_sidecar(store: ObjectStore, commit: Commit, where: str) -> Commit:
    """Return the commit with its actions.

    :param where: names the commit and its table, for errors.
    :raises LogDamaged: if the sidecar is gone, is not what was written, or holds more than a commit may.
    """
    if commit.sidecar is None:
        return commit
    try:
        body = store.get(commit.sidecar, MAX_SIDECAR_BYTES)
    except ObjectNotFound as error:
        raise LogDamaged(f"{where} lists {commit.sidecar}, which is gone.", hint=_RESTORE_SIDECAR) from error
    except ObjectTooLarge as error:
        raise LogDamaged(f"{where} lists {commit.sidecar}. {error.message}", hint=_RESTORE_SIDECAR) from error
    if f"{_SIDECARS}/{xxhash.xxh3_128_hexdigest(body)}.parquet" != commit.sidecar:
        raise LogDamaged(f"{commit.sidecar}, listed by {where}, is not what was written.", hint=_RESTORE_SIDECAR)
    actions = tuple(_sidecar_actions(body, f"{commit.sidecar}, listed by {where},"))
    return msgspec.structs.replace(commit, actions=actions, sidecar=None)


def _sidecar_actions(body: bytes, what: str) -> Iterator[AnyAction]:
    """Yield the actions of a sidecar, decoded piece by piece; one that the file repeats by a dictionary only once."""
    import pyarrow as pa

    rows, size = sidecar_limits(len(body))
    opened = open_parquet(body, what, rows=rows, size=size)
    if opened.schema_arrow.names != ["action"] or opened.schema_arrow.types[0] not in (
        pa.binary(),
        pa.dictionary(pa.int32(), pa.binary()),
    ):
        raise LogDamaged(f"{what} cannot be read: its columns are not those of a sidecar.", hint=_RESTORE_SIDECAR)
    decoder, values = msgspec.json.Decoder(AnyAction), 0
    try:
        for chunk in opened.read().column("action").chunks:
            coded = isinstance(chunk, pa.DictionaryArray)
            actions: list[AnyAction] = []
            for texts in _sidecar_pieces(chunk.dictionary if coded else chunk):
                values += sum(text.count(b"{") + text.count(b"[") for text in texts)
                if values > MAX_VALUES:
                    raise LogDamaged(
                        f"{what} cannot be read: it holds more than {MAX_VALUES:,} objects.", hint=_RESTORE_SIDECAR
                    )
                actions.extend(map(decoder.decode, texts))
            yield from (actions[code] for code in chunk.indices.to_pylist()) if coded else actions
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(f"{what} cannot be read: {reason(error)}.", hint=_RESTORE_SIDECAR) from error
    except (pa.ArrowException, OSError, TypeError) as error:
        raise LogDamaged(f"{what} cannot be read: {error}.", hint=_RESTORE_SIDECAR) from error


def sidecar_limits(size: int) -> tuple[int, int]:
    """Return how many actions, and how many bytes of JSON, a sidecar of ``size`` bytes may hold.

    A file added takes 12 bytes there, one removed 4, and they shrink to a twentieth or a fortieth: a small sidecar that
    holds far more repeats itself, and so is none.
    """
    return min(MAX_ACTIONS, _ANY_ACTIONS + 2 * size), min(MAX_SIDECAR_DECODED_BYTES, _ANY_BYTES + 500 * size)


def _sidecar_pieces(texts: Any) -> Iterator[list[bytes]]:
    return (texts.slice(first, _AT_ONCE).to_pylist() for first in range(0, len(texts), _AT_ONCE))


# --- checkpoints ------------------------------------------------------------------------------------------------------


CHECKPOINTS = "_index/timeline/checkpoints"

_CHECKPOINT_EVERY = 20
_LARGE_CHECKPOINT_EVERY = 200
_LARGE_STATE = 10_000
_CHECKPOINTS_KEPT = 3
_FILES_A_ROW_GROUP = 1 << 17
"""So few that single files are found without unpacking many others."""
_CHECKPOINT_HEADER = b"state"
_CHECKPOINT_NAME = re.compile(r"([0-9]{20})\.([0-9a-f]{16})\.parquet")
_ANY_CHECKPOINT_BYTES = 64 << 20


class _IndexHeader(Struct, frozen=True):
    """An index in the header. ``gone`` is ``None`` in checkpoints from before it was kept."""

    entry: IndexEntry
    lag: tuple[tuple[Partition, Group, VersionOrNone, VersionOrNone], ...] = ()
    gone: tuple[tuple[Partition, Group, Version], ...] | None = None

    @property
    def rows_gone(self) -> dict[tuple[str, str], int]:
        """:attr:`IndexEntry.gone`; where it was not kept, as late as it can have been."""
        if self.gone is not None:
            return {(p, g): at for p, g, at in self.gone}
        return {(p, g): dirty for p, g, through, dirty in self.lag if through < 0}


class _CheckpointHeader(Struct, frozen=True):
    format: Version
    version: Version
    instant: Instant
    definition: TableDefinition | None
    partitions: dict[Partition, PartitionEntry]
    indexes: dict[Name, _IndexHeader]
    configs: list[HashingConfig]
    config_paths: dict[ConfigInstant, ConfigPath]
    meta_paths: list[MetaPath]
    windows: dict[Version, Window]
    ended_windows: dict[Version, Words]
    committed: dict[TxnId, tuple[Version, Count]]
    aborted: dict[TxnId, list[Count]]
    restores: list[tuple[Version, Version]]
    expired_below: Version
    dropped: bool
    last_drop: VersionOrNone | None = None
    reader_features: Features = ()
    writer_features: Features = ()


_PLAIN = (
    "version", "instant", "definition", "partitions", "configs", "config_paths", "meta_paths", "windows",
    "ended_windows", "committed", "aborted", "restores", "expired_below", "dropped", "last_drop",
    "reader_features", "writer_features",
)  # fmt: skip


def write_checkpoint_if_due(store: ObjectStore, state: State) -> bool:
    """Write a checkpoint every 20 versions; of a large table every 200, or when a tenth of its files changed.

    A failure is logged and forgotten: the log itself has everything.
    """
    if state.version == 0 or state.version % _CHECKPOINT_EVERY:
        return False
    size, changes = state.file_set.size(), state.file_set.changes()
    if size > _LARGE_STATE and changes < size / 10 and state.version % _LARGE_CHECKPOINT_EVERY:
        return False
    # From now on this process, too, builds on these columns instead of carrying all changes since its own start.
    state.file_set = FileSet(state.file_set.flattened())
    try:
        write_checkpoint(store, state)
    except StorageError as error:
        logger.warning("No checkpoint of version %s was written: %s", state.version, error.message)
        return False
    return True


def write_checkpoint(store: ObjectStore, state: State) -> str:
    """Write a checkpoint of ``state``, remove all but the newest three, and return its key."""
    body = encode_checkpoint(state)
    key = f"{CHECKPOINTS}/{state.version:020d}.{xxhash.xxh3_64_hexdigest(body)}.parquet"
    store.put(key, body)
    older = [info.key for info in store.list(CHECKPOINTS)]
    store.delete(older[:-_CHECKPOINTS_KEPT])
    return key


def newest_checkpoint(store: ObjectStore, until: int | None = None) -> State | None:
    """Return the state of the newest checkpoint that can be used, not after ``until``; ``None`` without one."""
    for info in reversed(store.list(CHECKPOINTS)):
        name = _CHECKPOINT_NAME.fullmatch(info.key.removeprefix(f"{CHECKPOINTS}/"))
        if name is None or (until is not None and int(name[1]) > until):
            continue
        try:
            body = store.get(info.key, MAX_CHECKPOINT_BYTES)
            if xxhash.xxh3_64_hexdigest(body) != name[2]:
                raise LogDamaged("It is not what was written.")
            state = decode_checkpoint(body, f"Checkpoint {info.key} of {store.uri}")
            if state is not None and state.version != int(name[1]):
                raise LogDamaged(f"It says of itself that it is of version {state.version}.")
        except (StorageError, LogDamaged) as error:
            logger.warning("Checkpoint %s of %s is passed over: %s", info.key, store.uri, error.message)
            continue
        if state is not None:
            return state
    return None


def encode_checkpoint(state: State) -> bytes:
    """Return a state as one Parquet file: the files as rows, everything else as JSON in the file's metadata."""
    import pyarrow.parquet as pq

    header = _CheckpointHeader(
        features.format_of(state.reader_features, state.writer_features),
        indexes={
            name: _IndexHeader(
                msgspec.structs.replace(entry, lag={}, dirty={}, gone={}),
                tuple((*group, through, entry.dirty.get(group, through)) for group, through in entry.lag.items()),
                tuple((*group, at) for group, at in entry.gone.items()),
            )
            for name, entry in state.indexes.items()
        },
        **{name: getattr(state, name) for name in _PLAIN},
    )
    columns = state.file_set.flattened()
    sink = io.BytesIO()
    table = columns.table.replace_schema_metadata({_CHECKPOINT_HEADER: msgspec.json.encode(header)})
    # Only what repeats gains from a dictionary; paths differ, and building theirs would cost most of the time.
    pq.write_table(
        table, sink, compression="zstd", use_dictionary=list(files.REPEATED), row_group_size=_FILES_A_ROW_GROUP
    )
    return sink.getvalue()


def decode_checkpoint(body: bytes, what: str = "The checkpoint") -> State | None:
    """Return the state in a checkpoint; ``None`` if it has a format that this code does not know.

    :param what: names the checkpoint, for errors.
    :raises LogDamaged: if it is none, or holds more than a table may have.
    """
    opened = open_parquet(
        body, what, rows=MAX_FILES, size=_ANY_CHECKPOINT_BYTES + min(MAX_CHECKPOINT_DECODED_BYTES, 500 * len(body)),
        repeated=files.REPEATED,
    )  # fmt: skip
    raw = (opened.schema_arrow.metadata or {}).get(_CHECKPOINT_HEADER)
    if raw is None:
        return None
    try:
        features.check_readable(documents.decode(raw, FormatOnly, what), what)
    except NewerFormat:
        return None  # the log itself says so, of the version that is read
    header = documents.decode(raw, _CheckpointHeader, what)
    check_together(_as_actions(header), header.version, what)
    source = None if header.definition is None else header.definition.source
    columns = files.read(body, opened, header.version, data_prefix(source), what)
    state = State()
    for name in _PLAIN:
        setattr(state, name, getattr(header, name))
    state.indexes = {
        name: msgspec.structs.replace(
            index.entry,
            lag={(p, g): through for p, g, through, _ in index.lag},
            dirty={(p, g): dirty for p, g, _, dirty in index.lag},
            gone=index.rows_gone,
        )
        for name, index in header.indexes.items()
    }
    state.file_set = FileSet(columns)
    return state


def _as_actions(header: _CheckpointHeader) -> dict[str, AnyAction]:
    """Return a header as the actions that could have led to it: their fields' rules hold for its own."""
    actions: dict[str, AnyAction] = {"expired_": Expire(header.expired_below)}
    if header.definition is not None:
        actions[""] = PutTable(header.definition)
    for path, entry in header.partitions.items():
        actions[f"partitions[{path!r}]."] = PutPartition(path, entry.buckets, entry.values)
    for name, index in header.indexes.items():
        lag = tuple((partition, group, through) for partition, group, through, _ in index.lag)
        actions[f"indexes[{name!r}].lag."] = SetLag(index.entry.definition.tree, lag)
    for epoch, window in header.windows.items():
        opened = OpenWindow(window.holder, window.deadline, window.last_moment, window.partitions)
        actions[f"windows[{epoch}]."] = opened
    return actions


prepare(_CheckpointHeader)
