"""Checkpoints: the folded state of a version as one Parquet file, so that a reader need not fold the whole log.

They are for speed only. The name carries the hash of the bytes; one that is damaged, or newer than what is asked for,
is passed over, and the log is folded from an older one or from its beginning.
"""

from __future__ import annotations

import io
import logging
from typing import Any

import msgspec
import xxhash

from spark_apps.storage.errors import StorageError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import FileSet, Shared
from spark_apps.timeline.model import HashingConfig, Struct, TableDefinition
from spark_apps.timeline.state import IndexEntry, PartitionEntry, State, Window

logger = logging.getLogger(__name__)

CHECKPOINTS = "_index/timeline/checkpoints"
CHECKPOINT_FORMAT = 1

_EVERY_COMMITS = 20
_KEPT = 3
_HEADER = b"state"
_COLUMNS = (
    "tree",
    "partition",
    "group",
    "path",
    "kind",
    "rows",
    "bytes",
    "place",
    "tombstones",
    "lineage",
    "extra",
)


class _IndexHeader(Struct, frozen=True):
    entry: IndexEntry
    lag: tuple[tuple[str, str, int], ...] = ()


class _Header(Struct, frozen=True):
    format: int
    version: int
    instant: str
    definition: TableDefinition | None
    partitions: dict[str, PartitionEntry]
    indexes: dict[str, _IndexHeader]
    configs: list[HashingConfig]
    config_paths: dict[str, str]
    meta_paths: list[str]
    windows: dict[int, Window]
    ended_windows: dict[int, str]
    committed: dict[str, tuple[int, int]]
    aborted: dict[str, list[int]]
    restores: list[tuple[int, int]]
    expired_below: int
    dropped: bool


_PLAIN = (
    "version", "instant", "definition", "partitions", "configs", "config_paths", "meta_paths", "windows",
    "ended_windows", "committed", "aborted", "restores", "expired_below", "dropped",
)  # fmt: skip


def write_if_due(store: ObjectStore, state: State) -> bool:
    """Writes a checkpoint every 20 versions, on large tables less often: when a tenth of the files changed.

    A failure is logged and forgotten: the log itself has everything.
    """
    if state.version == 0 or state.version % _EVERY_COMMITS:
        return False
    size, changes = state.file_set.size(), state.file_set.changes()
    if size > 10_000 and changes < size / 10 and state.version % (_EVERY_COMMITS * 50):
        return False
    try:
        write(store, state)
    except StorageError as error:
        logger.warning("No checkpoint of version %s was written: %s", state.version, error.message)
        return False
    return True


def write(store: ObjectStore, state: State) -> str:
    """Writes a checkpoint of ``state``, removes all but the newest three, and returns its key."""
    body = encode(state)
    key = f"{CHECKPOINTS}/{state.version:020d}.{xxhash.xxh3_64_hexdigest(body)}.parquet"
    store.put(key, body)
    older = [info.key for info in store.list(CHECKPOINTS)]
    store.delete(older[:-_KEPT])
    return key


def newest(store: ObjectStore, until: int | None = None) -> State | None:
    """The state of the newest checkpoint that can be used, not after version ``until``; ``None`` without one."""
    for info in reversed(store.list(CHECKPOINTS)):
        parts = info.key.removeprefix(f"{CHECKPOINTS}/").split(".")
        if len(parts) != 3 or not parts[0].isdigit() or (until is not None and int(parts[0]) > until):
            continue
        try:
            body = store.get(info.key)
        except StorageError as error:
            logger.warning("Checkpoint %s is passed over: %s", info.key, error.message)
            continue
        if xxhash.xxh3_64_hexdigest(body) != parts[1]:
            logger.warning("Checkpoint %s is damaged and passed over.", info.key)
            continue
        state = decode(body)
        if state is not None:
            return state
    return None


def encode(state: State) -> bytes:
    """One Parquet file: the files as rows, everything else as JSON in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = _Header(
        CHECKPOINT_FORMAT,
        indexes={
            name: _IndexHeader(
                msgspec.structs.replace(entry, lag={}), tuple((*group, at) for group, at in entry.lag.items())
            )
            for name, entry in state.indexes.items()
        },
        **{name: getattr(state, name) for name in _PLAIN},
    )
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for file in state.file_set:
        for name in _COLUMNS[:-1]:
            columns[name].append(getattr(file, name))
        columns["extra"].append(msgspec.json.encode(file.extra) if file.extra else None)
    strings, numbers = pa.string(), pa.int64()
    types = [strings] * 5 + [numbers] * 5 + [pa.binary()]
    schema = pa.schema(list(zip(_COLUMNS, types, strict=True)), metadata={_HEADER: msgspec.json.encode(header)})
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
    return sink.getvalue()


def decode(body: bytes) -> State | None:
    """The state in a checkpoint; ``None`` if it has a format that this code does not know."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(body))
    raw = (table.schema.metadata or {}).get(_HEADER)
    if raw is None or msgspec.json.decode(raw).get("format") != CHECKPOINT_FORMAT:
        return None
    header = msgspec.json.decode(raw, type=_Header)
    state = State()
    for name in _PLAIN:
        setattr(state, name, getattr(header, name))
    state.indexes = {
        name: msgspec.structs.replace(index.entry, lag={(p, g): at for p, g, at in index.lag})
        for name, index in header.indexes.items()
    }
    state.file_set = FileSet(Shared(table))
    return state
