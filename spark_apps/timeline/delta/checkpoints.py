"""Checkpoints of a published Delta log: what its commits come to, so that readers fetch one file and the commits since.

They are speed only: made of the log's own commits, and a log without one, or whose newest could not be written, is
read as well. The commits stay until :func:`keep_only` is asked for: then the checkpoint of the newest version, read
back first, takes the place of all that is older. What is published is for :mod:`spark_apps.timeline.delta.publishing`.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from spark_apps.storage.errors import LakeIndexError, StorageError
from spark_apps.storage.parquet.files import column_chunks
from spark_apps.storage.parquet.headers import open_bounded
from spark_apps.storage.store import ObjectInfo, ObjectStore
from spark_apps.timeline.delta.log import FOLDER, commit_key
from spark_apps.timeline.limits import (
    DELTA_CHECKPOINT_VALUES,
    DELTA_CHECKPOINT_VALUES_PER_BYTE,
    MAX_DELTA_CHECKPOINT_BYTES,
    MAX_DELTA_HEAD_BYTES,
)

logger = logging.getLogger(__name__)

EVERY = 100
"""Versions from one checkpoint to the next."""

LAST = f"{FOLDER}/_last_checkpoint"

_FILE = re.compile(re.escape(FOLDER) + r"/(\d{20})\.(json|checkpoint\.parquet)")
_AT_ONCE = 8


_Rows = dict[str, Any]
_FileId = tuple[str, str]


def checkpoint_key(version: int) -> str:
    """Return the key of the checkpoint of a version of the log."""
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def write_if_due(store: ObjectStore, version: int, expired_before: int) -> None:
    """Write the checkpoint of a version that was just published, if it is due; a failure is logged and left.

    :param expired_before: files that were removed before this moment, in milliseconds since 1970, are no longer named.
    """
    if version == 0 or version % EVERY:
        return
    try:
        _write(store, version, _replayed(store, version, expired_before))
    except Exception as error:  # noqa: BLE001 - the version is published, and no failure here may say otherwise
        logger.warning("Version %s of the Delta log in %s has no checkpoint: %s", version, store.uri, error)


def keep_only(store: ObjectStore, version: int, expired_before: int) -> dict[str, int]:
    """Write the checkpoint of the newest version of a log, then delete all that is older; return what went, with sizes.

    The commit of that version stays: it names no file that the checkpoint does not. Readers find the whole table at
    each moment of it, and what a process left undone is done by the next call.

    :param expired_before: as for :func:`write_if_due`.
    :raises StorageError: if the checkpoint cannot be read back as it was written. Nothing is deleted then.
    """
    older = older_files(store, version)
    if not older:
        return {}
    rows = _replayed(store, version, expired_before)
    _write(store, version, rows)
    if _decode(store.get(checkpoint_key(version), MAX_DELTA_CHECKPOINT_BYTES)) != rows:
        raise StorageError(
            f"The checkpoint of version {version} of the Delta log in {store.uri} is not read back as it was written.",
            outcome="No file of that log was deleted.",
            hint="Try again; if it happens again, the storage damages files.",
        )
    # Another process may have gone on from an older one meanwhile.
    last = _last_checkpoint(store)
    gone = {info.key: info.size for info in older if _number(info) < last}
    store.delete(gone)  # the oldest first: what is left of a log is never read as an older version
    return gone


def _last_checkpoint(store: ObjectStore) -> int:
    """Return the version whose checkpoint readers begin with; -1 if that is not said."""
    try:
        return int(msgspec.json.decode(store.get(LAST, MAX_DELTA_HEAD_BYTES))["version"])
    except (LakeIndexError, msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return -1


def older_files(store: ObjectStore, version: int) -> list[ObjectInfo]:
    """Return the commits and checkpoints below a version of a log, oldest first."""
    found = [info for info in store.list(FOLDER) if _FILE.fullmatch(info.key)]
    return [info for info in found if _number(info) < version]


def _number(info: ObjectInfo) -> int:
    match = _FILE.fullmatch(info.key)
    return -1 if match is None else int(match[1])


def _write(store: ObjectStore, version: int, rows: list[_Rows]) -> None:
    body = _encode(rows)
    store.put(checkpoint_key(version), body)
    files = sum("add" in row for row in rows)
    summary = {"version": version, "size": len(rows), "sizeInBytes": len(body), "numOfAddFiles": files}
    store.put(LAST, msgspec.json.encode(summary))
    logger.info("Version %s of the Delta log in %s has a checkpoint of %s files.", version, store.uri, files)


def _replayed(store: ObjectStore, version: int, expired_before: int) -> list[_Rows]:
    """Return the actions that a version of the log comes to: of a file, a transaction, the columns the newest alone."""
    alone: dict[str, Any] = {}
    txns: dict[str, Any] = {}
    added: dict[_FileId, Any] = {}
    removed: dict[_FileId, Any] = {}
    for action in _actions(store, version):
        [(kind, fields)] = action.items()
        if kind == "add":
            removed.pop(_id(fields), None)
            added[_id(fields)] = {**fields, "dataChange": False}
        elif kind == "remove":
            added.pop(_id(fields), None)
            removed[_id(fields)] = {**fields, "dataChange": False}
        elif kind == "txn":
            txns[fields["appId"]] = fields
        elif kind in ("protocol", "metaData"):
            alone[kind] = fields
    kept = [fields for fields in removed.values() if fields["deletionTimestamp"] >= expired_before]
    return [
        *({kind: fields} for kind, fields in sorted(alone.items(), reverse=True)),
        *({"txn": fields} for fields in txns.values()),
        *({"add": fields} for fields in added.values()),
        *({"remove": fields} for fields in kept),
    ]


def _actions(store: ObjectStore, version: int) -> Iterator[_Rows]:
    """Yield the actions of the newest checkpoint that can be read, up to a version, and of the commits since."""
    before, begun = _last_readable(store, version)
    yield from before
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        keys = map(commit_key, range(begun + 1, version + 1))
        for body in pool.map(lambda key: store.get(key, MAX_DELTA_CHECKPOINT_BYTES), keys):
            yield from (msgspec.json.decode(line) for line in body.splitlines())


def _last_readable(store: ObjectStore, version: int) -> tuple[list[_Rows], int]:
    """Return what the newest checkpoint up to a version holds, with its number; nothing and -1 if there is none."""
    import pyarrow as pa

    for info in reversed(older_files(store, version + 1)):
        if not info.key.endswith(".parquet"):
            continue
        try:
            return _decode(store.get(info.key, MAX_DELTA_CHECKPOINT_BYTES)), _number(info)
        except (LakeIndexError, pa.ArrowException, OSError, ValueError):
            continue  # it is damaged; an older one or the commits hold the same
    return [], -1


def _id(fields: Mapping[str, Any]) -> _FileId:
    vector = fields.get("deletionVector") or {}
    return fields["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset')}"


# --- as Parquet -------------------------------------------------------------------------------------------------------

_MAPS = ("partitionValues", "configuration")


def _schema() -> Any:
    import pyarrow as pa

    text, number, texts = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    vector = pa.struct(
        [("storageType", text), ("pathOrInlineDv", text), ("offset", pa.int32()), ("sizeInBytes", pa.int32()),
         ("cardinality", number)]
    )  # fmt: skip
    members = {
        "txn": [("appId", text), ("version", number), ("lastUpdated", number)],
        "add": [("path", text), ("partitionValues", texts), ("size", number), ("modificationTime", number),
                ("dataChange", pa.bool_()), ("stats", text), ("deletionVector", vector)],
        "remove": [("path", text), ("deletionTimestamp", number), ("dataChange", pa.bool_()),
                   ("extendedFileMetadata", pa.bool_()), ("partitionValues", texts), ("size", number),
                   ("deletionVector", vector)],
        "metaData": [("id", text), ("name", text), ("description", text),
                     ("format", pa.struct([("provider", text), ("options", texts)])), ("schemaString", text),
                     ("partitionColumns", pa.list_(text)), ("configuration", texts), ("createdTime", number)],
        "protocol": [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
                     ("readerFeatures", pa.list_(text)), ("writerFeatures", pa.list_(text))],
    }  # fmt: skip
    return pa.schema([(name, pa.struct(fields)) for name, fields in members.items()])


def _encode(rows: list[_Rows]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_with_pairs(row) for row in rows], _schema()), sink, compression="snappy")
    return sink.getvalue()


def _decode(body: bytes) -> list[_Rows]:
    opened = open_bounded(body)
    values = sum(chunk.num_values for n in range(opened.num_row_groups) for chunk in column_chunks(opened.metadata, n))
    if values > DELTA_CHECKPOINT_VALUES + DELTA_CHECKPOINT_VALUES_PER_BYTE * len(body):
        raise OSError(f"it has {values:,} values in {len(body):,} bytes")
    if not opened.schema_arrow.equals(_schema()):
        raise OSError("its columns are not those that this package writes")
    rows = opened.read().to_pylist()
    return [{kind: _with_maps(fields) for kind, fields in row.items() if fields is not None} for row in rows]


def _with_pairs(row: _Rows) -> _Rows:
    """Return an action with its maps as Arrow takes them."""
    [(kind, fields)] = row.items()
    made: _Rows = {
        name: list(value.items()) if name in _MAPS and value is not None else value for name, value in fields.items()
    }
    if "format" in made:
        made["format"] = {**made["format"], "options": list(made["format"]["options"].items())}
    return {kind: made}


def _with_maps(fields: Mapping[str, Any]) -> _Rows:
    """Return what an action says, without what it does not say."""
    made = {name: dict(value) if name in _MAPS else value for name, value in fields.items() if value is not None}
    if "format" in made:
        made["format"] = {**made["format"], "options": dict(made["format"]["options"] or ())}
    return made
