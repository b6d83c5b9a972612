"""Checkpoints: the folded state of a version as one Parquet file, so that a reader need not fold the whole log.

They are for speed only. The name carries the hash of the bytes; one that is damaged, or newer than the version in
question, is passed over, and the log is folded from an older one or from its beginning.
"""

from __future__ import annotations

import io
import logging
import re

import msgspec
import xxhash

from spark_apps.storage import documents
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import LogDamaged, StorageError
from spark_apps.storage.parquet_headers import open_parquet
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline import files
from spark_apps.timeline.field_types import (
    CHECKPOINT_BYTES,
    CHECKPOINT_DECODED_BYTES,
    MOST_FILES,
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
from spark_apps.timeline.model import (
    AnyAction,
    Expire,
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
from spark_apps.timeline.validation import check_together, data_prefix

logger = logging.getLogger(__name__)

CHECKPOINTS = "_index/timeline/checkpoints"
CHECKPOINT_FORMAT = 1

_EVERY_COMMITS = 20
_EVERY_COMMITS_LARGE = 200
_LARGE = 10_000
_KEPT = 3
_HEADER = b"state"
_NAME = re.compile(r"([0-9]{20})\.([0-9a-f]{16})\.parquet")
_ANY_BYTES = 64 << 20


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


class _Header(Struct, frozen=True):
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


_PLAIN = (
    "version", "instant", "definition", "partitions", "configs", "config_paths", "meta_paths", "windows",
    "ended_windows", "committed", "aborted", "restores", "expired_below", "dropped", "last_drop",
)  # fmt: skip


def write_if_due(store: ObjectStore, state: State) -> bool:
    """Write a checkpoint every 20 versions; of a large table every 200, or when a tenth of its files changed.

    A failure is logged and forgotten: the log itself has everything.
    """
    if state.version == 0 or state.version % _EVERY_COMMITS:
        return False
    size, changes = state.file_set.size(), state.file_set.changes()
    if size > _LARGE and changes < size / 10 and state.version % _EVERY_COMMITS_LARGE:
        return False
    # From here on this process, too, stands on these columns instead of carrying all changes since its own start.
    state.file_set = FileSet(state.file_set.flattened())
    try:
        write(store, state)
    except StorageError as error:
        logger.warning("No checkpoint of version %s was written: %s", state.version, error.message)
        return False
    return True


def write(store: ObjectStore, state: State) -> str:
    """Write a checkpoint of ``state``, remove all but the newest three, and return its key."""
    body = encode(state)
    key = f"{CHECKPOINTS}/{state.version:020d}.{xxhash.xxh3_64_hexdigest(body)}.parquet"
    store.put(key, body)
    older = [info.key for info in store.list(CHECKPOINTS)]
    store.delete(older[:-_KEPT])
    return key


def newest(store: ObjectStore, until: int | None = None) -> State | None:
    """Return the state of the newest checkpoint that can be used, not after ``until``; ``None`` without one."""
    for info in reversed(store.list(CHECKPOINTS)):
        name = _NAME.fullmatch(info.key.removeprefix(f"{CHECKPOINTS}/"))
        if name is None or (until is not None and int(name[1]) > until):
            continue
        try:
            body = store.get(info.key, CHECKPOINT_BYTES)
            if xxhash.xxh3_64_hexdigest(body) != name[2]:
                raise LogDamaged("It is not what was written.")
            state = decode(body, f"Checkpoint {info.key} of {store.uri}")
            if state is not None and state.version != int(name[1]):
                raise LogDamaged(f"It says of itself that it is of version {state.version}.")
        except (StorageError, LogDamaged) as error:
            logger.warning("Checkpoint %s of %s is passed over: %s", info.key, store.uri, error.message)
            continue
        if state is not None:
            return state
    return None


def encode(state: State) -> bytes:
    """Return a state as one Parquet file: the files as rows, everything else as JSON in the file's metadata."""
    import pyarrow.parquet as pq

    header = _Header(
        CHECKPOINT_FORMAT,
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
    table = columns.table.replace_schema_metadata({_HEADER: msgspec.json.encode(header)})
    # Only what repeats gains from a dictionary; paths differ, and building theirs would cost most of the time.
    pq.write_table(table, sink, compression="zstd", use_dictionary=list(files.REPEATED))
    return sink.getvalue()


def decode(body: bytes, what: str = "The checkpoint") -> State | None:
    """Return the state in a checkpoint; ``None`` if it has a format that this code does not know.

    :param what: names the checkpoint, for errors.
    :raises LogDamaged: if it is none, or holds more than a table may have.
    """
    opened = open_parquet(
        body, what, rows=MOST_FILES, size=_ANY_BYTES + min(CHECKPOINT_DECODED_BYTES, 500 * len(body)),
        repeated=files.REPEATED,
    )  # fmt: skip
    raw = (opened.schema_arrow.metadata or {}).get(_HEADER)
    if raw is None or documents.decode(raw, FormatOnly, what).format != CHECKPOINT_FORMAT:
        return None
    header = documents.decode(raw, _Header, what)
    check_together(_as_actions(header), header.version, what)
    source = None if header.definition is None else header.definition.source
    table = files.read(opened, header.version, data_prefix(source), what)
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
    state.file_set = FileSet(files.Columns(table, what))
    return state


def _as_actions(header: _Header) -> dict[str, AnyAction]:
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


prepare(_Header)
