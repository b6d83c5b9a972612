"""Checkpoints of a published Delta log: what its commits come to, so that readers fetch one file and the commits since.

They are speed only: made of the log's own commits, which all stay, and a log without one, or whose newest could not be
written, is read as well. What is published is for :mod:`spark_apps.timeline.open_tables`.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.delta_log import FOLDER, commit_key

logger = logging.getLogger(__name__)

EVERY = 100
"""After so many commits there is another one."""

LAST = f"{FOLDER}/_last_checkpoint"

_AT_ONCE = 8
_MOST_BYTES = 1 << 30

_Rows = dict[str, Any]
_FileId = tuple[str, str]


def checkpoint_key(version: int) -> str:
    """Return the key of the checkpoint of a version of the log."""
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def write_if_due(store: ObjectStore, version: int, expired_before: int) -> None:
    """Write the checkpoint of a version that was just published, if it is due; a failure is told and left.

    :param expired_before: files that were removed before this moment, in milliseconds since 1970, are no longer named.
    """
    if version == 0 or version % EVERY:
        return
    try:
        rows = _replayed(store, version, expired_before)
        body = _encode(rows)
        store.put(checkpoint_key(version), body)
        files = sum("add" in row for row in rows)
        told = {"version": version, "size": len(rows), "sizeInBytes": len(body), "numOfAddFiles": files}
        store.put(LAST, msgspec.json.encode(told))
        logger.info("Version %s of the Delta log in %s has a checkpoint of %s files.", version, store.uri, files)
    except Exception as error:  # noqa: BLE001 - the version is published, and no failure here may say otherwise
        logger.warning("Version %s of the Delta log in %s has no checkpoint: %s", version, store.uri, error)


def _replayed(store: ObjectStore, version: int, expired_before: int) -> list[_Rows]:
    """Return the actions that a version of the log comes to: of a file, a transaction, the columns the newest alone."""
    alone: dict[str, Any] = {}
    txns: dict[str, Any] = {}
    added: dict[_FileId, Any] = {}
    removed: dict[_FileId, Any] = {}
    for action in _actions(store, version):
        [(kind, told)] = action.items()
        if kind == "add":
            removed.pop(_id(told), None)
            added[_id(told)] = {**told, "dataChange": False}
        elif kind == "remove":
            added.pop(_id(told), None)
            removed[_id(told)] = {**told, "dataChange": False}
        elif kind == "txn":
            txns[told["appId"]] = told
        elif kind in ("protocol", "metaData"):
            alone[kind] = told
    kept = [told for told in removed.values() if told["deletionTimestamp"] >= expired_before]
    return [
        *({kind: told} for kind, told in sorted(alone.items(), reverse=True)),
        *({"txn": told} for told in txns.values()),
        *({"add": told} for told in added.values()),
        *({"remove": told} for told in kept),
    ]


def _actions(store: ObjectStore, version: int) -> Iterator[_Rows]:
    """Yield the actions of the last checkpoint and of the commits since, up to a version."""
    begun, before = version // EVERY * EVERY - EVERY, []
    if begun > 0:
        try:
            before = _decode(store.get(checkpoint_key(begun), _MOST_BYTES))
        except (LakeIndexError, OSError, ValueError):
            begun = 0  # it was never written, or is damaged
    yield from before
    numbers = range(begun + 1 if before else 0, version + 1)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for body in pool.map(lambda number: store.get(commit_key(number), _MOST_BYTES), numbers):
            yield from (msgspec.json.decode(line) for line in body.splitlines())


def _id(told: Mapping[str, Any]) -> _FileId:
    vector = told.get("deletionVector") or {}
    return told["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset')}"


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
    import pyarrow.parquet as pq

    rows = pq.read_table(io.BytesIO(body), schema=_schema()).to_pylist()
    return [{kind: _with_maps(told) for kind, told in row.items() if told is not None} for row in rows]


def _with_pairs(row: _Rows) -> _Rows:
    """Return an action with its maps as Arrow takes them."""
    [(kind, told)] = row.items()
    made: _Rows = {
        name: list(value.items()) if name in _MAPS and value is not None else value for name, value in told.items()
    }
    if "format" in made:
        made["format"] = {**made["format"], "options": list(made["format"]["options"].items())}
    return {kind: made}


def _with_maps(told: Mapping[str, Any]) -> _Rows:
    """Return what an action says, without what it does not say."""
    made = {name: dict(value) if name in _MAPS else value for name, value in told.items() if value is not None}
    if "format" in made:
        made["format"] = {**made["format"], "options": dict(made["format"]["options"] or ())}
    return made
