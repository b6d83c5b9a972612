"""Commits with very many actions keep them in a Parquet file beside the log, named by the hash of its bytes."""

from __future__ import annotations

import io

import msgspec
import xxhash

from spark_apps.storage.errors import LogDamaged, ObjectNotFound
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.model import AnyAction, Commit

INLINE_ACTIONS = 1000
"""The most actions that a commit's own JSON holds."""

_FOLDER = "_index/sidecars"


def split(store: ObjectStore, commit: Commit) -> Commit:
    """The commit as it goes into the log; the sidecar, if it needs one, is written first."""
    if len(commit.actions) <= INLINE_ACTIONS:
        return commit
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"action": [msgspec.json.encode(action) for action in commit.actions]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    body = sink.getvalue()
    key = f"{_FOLDER}/{xxhash.xxh3_128_hexdigest(body)}.parquet"
    store.put(key, body)
    return msgspec.structs.replace(commit, actions=(), sidecar=key)


def join(store: ObjectStore, commit: Commit) -> Commit:
    """The commit with its actions. :raises LogDamaged: if the sidecar is gone or is not what was written."""
    if commit.sidecar is None:
        return commit
    try:
        body = store.get(commit.sidecar)
    except ObjectNotFound as error:
        raise LogDamaged(f"Version {commit.version} lists {commit.sidecar}, which is gone.") from error
    if f"{_FOLDER}/{xxhash.xxh3_128_hexdigest(body)}.parquet" != commit.sidecar:
        raise LogDamaged(f"{commit.sidecar}, listed by version {commit.version}, is not what was written.")
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(io.BytesIO(body)).read().column("action").to_pylist()
    decoder = msgspec.json.Decoder(AnyAction)
    return msgspec.structs.replace(commit, actions=tuple(decoder.decode(row) for row in rows), sidecar=None)
