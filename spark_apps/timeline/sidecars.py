"""Commits with very many actions keep them in a Parquet file beside the log, named by the hash of its bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import msgspec
import xxhash

from spark_apps.storage.documents import MOST_VALUES, reason
from spark_apps.storage.errors import InvalidInput, LogDamaged, ObjectNotFound, ObjectTooLarge
from spark_apps.storage.parquet_headers import open_parquet
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.field_types import MOST_ACTIONS, SIDECAR_BYTES, SIDECAR_DECODED_BYTES
from spark_apps.timeline.model import AnyAction, Commit

INLINE_ACTIONS = 1000
"""The most actions that a commit's own JSON holds."""

_FOLDER = "_index/sidecars"
_AT_ONCE = 16_384
_ANY_ACTIONS, _ANY_BYTES = 20_000, 64 << 20
_HINT = "Restore that file from a backup, or find out who wrote it."


def split(store: ObjectStore, commit: Commit) -> Commit:
    """Return the commit as it goes into the log; the sidecar, if it needs one, is written first."""
    if len(commit.actions) <= INLINE_ACTIONS:
        return commit
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"action": [msgspec.json.encode(action) for action in commit.actions]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)  # no two actions are the same
    body = sink.getvalue()
    rows, size = limits(len(body))
    if len(body) > SIDECAR_BYTES or table.num_rows > rows or table.nbytes > size:
        raise InvalidInput(
            f"{commit.operation} (transaction {commit.txn_id}) has {table.num_rows:,} actions of {table.nbytes:,} "
            f"bytes, more than one commit may have ({rows:,} of {size:,}).",
            hint="Do it in several commits: some partitions each.",
        )
    key = f"{_FOLDER}/{xxhash.xxh3_128_hexdigest(body)}.parquet"
    store.put(key, body)
    return msgspec.structs.replace(commit, actions=(), sidecar=key)


def join(store: ObjectStore, commit: Commit, where: str) -> Commit:
    """Return the commit with its actions.

    :param where: names the commit and its table, for errors.
    :raises LogDamaged: if the sidecar is gone, is not what was written, or holds more than a commit may.
    """
    if commit.sidecar is None:
        return commit
    try:
        body = store.get(commit.sidecar, SIDECAR_BYTES)
    except ObjectNotFound as error:
        raise LogDamaged(f"{where} lists {commit.sidecar}, which is gone.", hint=_HINT) from error
    except ObjectTooLarge as error:
        raise LogDamaged(f"{where} lists {commit.sidecar}. {error.message}", hint=_HINT) from error
    if f"{_FOLDER}/{xxhash.xxh3_128_hexdigest(body)}.parquet" != commit.sidecar:
        raise LogDamaged(f"{commit.sidecar}, listed by {where}, is not what was written.", hint=_HINT)
    actions = tuple(_actions(body, f"{commit.sidecar}, listed by {where},"))
    return msgspec.structs.replace(commit, actions=actions, sidecar=None)


def _actions(body: bytes, what: str) -> Iterator[AnyAction]:
    """Yield the actions of a sidecar, decoded piece by piece; one that is repeated as it stands is decoded once."""
    import pyarrow as pa

    rows, size = limits(len(body))
    opened = open_parquet(body, what, rows=rows, size=size)
    if opened.schema_arrow.names != ["action"] or opened.schema_arrow.types[0] not in (
        pa.binary(),
        pa.dictionary(pa.int32(), pa.binary()),
    ):
        raise LogDamaged(f"{what} cannot be read: its columns are not those of a sidecar.", hint=_HINT)
    decoder, values = msgspec.json.Decoder(AnyAction), 0
    try:
        for chunk in opened.read().column("action").chunks:
            coded = isinstance(chunk, pa.DictionaryArray)
            actions: list[AnyAction] = []
            for texts in _pieces(chunk.dictionary if coded else chunk):
                values += sum(text.count(b"{") + text.count(b"[") for text in texts)
                if values > MOST_VALUES:
                    raise LogDamaged(f"{what} cannot be read: it holds more than {MOST_VALUES:,} objects.", hint=_HINT)
                actions.extend(map(decoder.decode, texts))
            yield from (actions[code] for code in chunk.indices.to_pylist()) if coded else actions
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(f"{what} cannot be read: {reason(error)}.", hint=_HINT) from error
    except (pa.ArrowException, OSError, TypeError) as error:
        raise LogDamaged(f"{what} cannot be read: {error}.", hint=_HINT) from error


def limits(size: int) -> tuple[int, int]:
    """Return how many actions, and how many bytes of JSON, a sidecar of ``size`` bytes may hold.

    A file added takes 12 bytes there, one removed 4, and they shrink to a twentieth or a fortieth: a small sidecar that
    holds far more repeats itself, and so is none.
    """
    return min(MOST_ACTIONS, _ANY_ACTIONS + 2 * size), min(SIDECAR_DECODED_BYTES, _ANY_BYTES + 500 * size)


def _pieces(texts: Any) -> Iterator[list[bytes]]:
    return (texts.slice(first, _AT_ONCE).to_pylist() for first in range(0, len(texts), _AT_ONCE))
