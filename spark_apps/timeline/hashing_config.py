"""The hashing files: a table's bucket rules and each partition's count, for people and other engines.

The state in the log is what counts; these files are its copies in the forms of the partition-level bucket index
document (Hudi's RFC-89): ``<instant>.hashing_config``, all rules in JSON, and
``<instant>.hashing_meta``, all counts in Avro. A file is written before the commit that names it, under the instant of
that commit, and counts only if it is named. A name is never used twice: a commit that another one overtook takes a
later instant and writes anew, from the state that it then follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from spark_apps.storage.errors import InvalidRule, LogDamaged, ObjectNotFound, StorageError
from spark_apps.storage.parquet.thrift import varint
from spark_apps.storage.store import ObjectStore, write_once
from spark_apps.timeline.limits import MAX_HASHING_META_BYTES
from spark_apps.timeline.log import format_instant, seconds_of
from spark_apps.timeline.model import (
    AnyAction,
    Commit,
    DropHashingConfig,
    HashingConfig,
    HashingMeta,
    PutHashingConfig,
)
from spark_apps.timeline.state import PartitionEntry, State

_T = TypeVar("_T")

if TYPE_CHECKING:
    from spark_apps.timeline.log import Timeline

logger = logging.getLogger(__name__)

FIRST_INSTANT = "0" * 17
"""Instant of the config that a table is made with, as the document names its file."""

META_VERSION = 1

_ROOT = "_index/hashing"
_CONFIG, _META = "config", "meta"
_META_SCHEMA: dict[str, Any] = {
    "namespace": "org.apache.hudi.avro.model",
    "type": "record",
    "doc": "hashing meta for current table using partition level simple bucket index",
    "name": "SimpleHashMeta",
    "fields": [
        {"name": "version", "type": ["int", "null"], "default": 1},
        {
            "name": "partitionMeta",
            "type": [
                "null",
                {
                    "type": "map",
                    "values": {
                        "type": "record",
                        "name": "PartitionHashInfo",
                        "fields": [
                            {"name": "bucketNumber", "type": ["null", "int"], "default": None},
                            {"name": "instant", "type": ["null", "string"], "default": None},
                        ],
                    },
                },
            ],
            "default": None,
        },
    ],
}


# --- their content --------------------------------------------------------------------------------------------------


def config_body(configs: Iterable[HashingConfig]) -> bytes:
    """Return the bytes of a ``.hashing_config`` file: every config in force under its instant, the newest first."""
    versions = {
        config.instant: {"expression": config.expressions or "", "rule": config.rule, "default": config.default}
        for config in sorted(configs, key=lambda config: config.instant, reverse=True)
    }
    return json.dumps(versions, indent=2, ensure_ascii=False).encode()


def read_config(body: bytes | str) -> tuple[HashingConfig, ...]:
    """Return the configs in a ``.hashing_config`` file, oldest first.

    :raises InvalidRule: if it is not one.
    """
    try:
        return tuple(_config(instant, fields) for instant, fields in sorted(json.loads(body).items()))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise InvalidRule(
            f"This is not a hashing config: {error}.", hint="It is JSON: {instant: {expression, rule, default}}."
        ) from error


def _config(instant: str, fields: Mapping[str, Any]) -> HashingConfig:
    default, expressions = fields["default"], fields["expression"]
    if isinstance(default, str) and default.isascii() and default.isdigit():
        default = int(default)
    if not isinstance(expressions, str | None) or not isinstance(default, int):
        raise TypeError(f"the config of {instant} has the default {default!r} and the expression {expressions!r}")
    return HashingConfig(instant, default, str(fields["rule"]), expressions or None)


def meta_body(partitions: Mapping[str, PartitionEntry]) -> bytes:
    """Return the bytes of a ``.hashing_meta`` file: the bucket count of every partition, and the instant it is of."""
    import fastavro

    counts = {
        path: {"bucketNumber": entry.buckets, "instant": entry.since or None}
        for path, entry in sorted(partitions.items())
        if entry.buckets is not None
    }
    # The mark between Avro's blocks is random unless given; equal contents shall be equal bytes.
    mark = hashlib.blake2b(json.dumps(counts).encode(), digest_size=16).digest()
    sink = io.BytesIO()
    schema = fastavro.parse_schema(_META_SCHEMA, _write_hint=False)
    record = {"version": META_VERSION, "partitionMeta": counts}
    fastavro.writer(sink, schema, [record], codec="deflate", sync_marker=mark)
    return sink.getvalue()


def read_meta(body: bytes) -> dict[str, tuple[int, str]]:
    """Return partition path -> its bucket count and the instant that set it.

    :raises LogDamaged: if these are not the bytes of a ``.hashing_meta`` file.
    """
    try:
        return dict(_Avro(_block(body)).counts())
    except (ValueError, LookupError, zlib.error) as error:
        raise LogDamaged(
            f"This is not a hashing meta: {error}.", hint="The counts themselves are in the table's log."
        ) from error


def _block(body: bytes) -> bytes:
    """Return the bytes of the record in an Avro file that holds one, unpacked."""
    if body[:4] != b"Obj\x01":
        raise ValueError("it does not begin as Avro")
    file = _Avro(body, 4)
    codec = dict(file.pairs(file.text)).get(b"avro.codec", b"null")
    mark, count, packed = file.take(16), file.number(), file.text()
    if count != 1 or file.take(16) != mark:
        raise ValueError("it does not hold one record")
    if codec == b"null":
        return packed
    if codec != b"deflate":
        raise ValueError(f"it is packed by {codec!r:.20}")
    unpacker = zlib.decompressobj(-15)
    unpacked = unpacker.decompress(packed, min(MAX_HASHING_META_BYTES, _SMALL_META_BYTES + 100 * len(packed)))
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("it is larger than such a file can be, or cut")
    return unpacked


_SMALL_META_BYTES = 1 << 20


class _Avro:
    """Bytes of Avro, which are read from the front; each call raises ``LookupError`` where they end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self._position = data, position

    def number(self) -> int:
        """Read a number."""
        number, self._position = varint(self._data, self._position)
        return (number >> 1) ^ -(number & 1)

    def take(self, size: int) -> bytes:
        """Read that many bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise IndexError("it is cut")
        data, self._position = self._data[self._position : end], end
        return data

    def text(self) -> bytes:
        """Read a text, as its bytes."""
        return self.take(self.number())

    def pairs(self, value: Callable[[], _T]) -> Iterator[tuple[bytes, _T]]:
        """Read a map of texts to values."""
        while count := self.number():
            if count < 0:
                count, _ = -count, self.number()
            if count > len(self._data) - self._position:
                raise ValueError("it names more partitions than it has bytes")
            for _ in range(count):
                yield self.text(), value()

    def counts(self) -> Iterator[tuple[str, tuple[int, str]]]:
        """Read the record of a ``.hashing_meta`` file."""
        if self.number() == 0:  # the version, if there is one
            self.number()
        if self.number() != 1:
            return
        for path, (count, instant) in self.pairs(self._count):
            yield path.decode(), (count, instant)

    def _count(self) -> tuple[int, str]:
        count = self.number() if self.number() == 1 else 0
        return count, self.text().decode() if self.number() == 1 else ""


# --- writing them with a commit -------------------------------------------------------------------------------------


def with_files(timeline: Timeline, head: State, commit: Commit) -> Commit:
    """Write the hashing files that a commit must name; return the commit with their names.

    A config is needed where the rules change, a meta where the count of a partition does: a new one above all. Version
    0 names its config by zeros, every other commit by its own instant, which moves on if the name is taken.

    :param head: the state that the commit follows.
    :raises StorageUnavailable: if a file could not be written; then nothing is committed.
    """
    rules = any(isinstance(action, PutHashingConfig | DropHashingConfig) for action in commit.actions)
    instant = FIRST_INSTANT if commit.version == 0 else commit.instant
    while True:
        named, bodies = _named(head, commit, instant, rules)
        written = (write_once(timeline.store, path, body, timeline.sleep) == body for path, body in bodies.items())
        if all(written):
            return named
        instant = f"{int(instant) + 1:017d}" if commit.version == 0 else format_instant(seconds_of(instant) + 0.001)


def _named(head: State, commit: Commit, instant: str, rules: bool) -> tuple[Commit, dict[str, bytes]]:
    """Return the commit as it is to be made at ``instant``, and the bodies of the files that it names."""
    instants = {} if commit.version == 0 else {"instant": instant}
    config_path = f"{_ROOT}/{_CONFIG}/{instant}.hashing_config"
    actions = [_at(action, instant, config_path) for action in commit.actions]
    named = replace(commit, actions=tuple(actions), **instants)
    after = head.copy()
    after.apply(named)
    bodies = {config_path: config_body(after.configs)} if rules else {}
    if _counts(after) != _counts(head) and not after.dropped:
        meta_path = f"{_ROOT}/{_META}/{instant}.hashing_meta"
        bodies[meta_path] = meta_body(after.partitions)
        named = replace(named, actions=(*named.actions, HashingMeta(meta_path)))
    return named, bodies


def _at(action: AnyAction, instant: str, path: str) -> AnyAction:
    if isinstance(action, PutHashingConfig):
        return PutHashingConfig(replace(action.config, instant=instant), path)
    if isinstance(action, DropHashingConfig):
        return replace(action, path=path)
    return action


def _counts(state: State) -> dict[str, int]:
    return {path: entry.buckets for path, entry in state.partitions.items() if entry.buckets is not None}


# --- the archive ----------------------------------------------------------------------------------------------------


def archived(path: str) -> str:
    """Return the path of a file once it has been archived."""
    return path.replace(f"{_ROOT}/", f"{_ROOT}/archive/", 1)


def archive(store: ObjectStore, before: State, after: State) -> None:
    """Move away the files that the newest commit pushed out of the newest five configs and ten metas.

    Failing is no harm: the cleaner moves them later.
    """
    for path in {*_named_in(before)} - {*_named_in(after)}:
        try:
            _move(store, path)
        except StorageError as error:
            logger.warning("%s was not archived: %s", path, error.message)


def tidy(timeline: Timeline) -> None:
    """Archive what was named by a commit and is not among the newest, and delete what never was named.

    A file that no commit names is of an attempt that crashed or was overtaken. Commits' instants rise, so no commit can
    name it any more once one has a later instant.
    """
    head = timeline.head
    current = {*_named_in(head)}
    for kind in (_CONFIG, _META):
        for info in timeline.store.list(f"{_ROOT}/{kind}"):
            instant, _, suffix = info.key.rpartition("/")[2].partition(".")
            if suffix != f"hashing_{kind}" or info.key in current or instant > head.instant:
                continue
            commit = timeline.read(timeline.newest_by(instant))
            if commit is not None and info.key in paths_of(commit.actions):
                _move(timeline.store, info.key)
            else:
                timeline.store.delete([info.key])


def _named_in(state: State) -> Iterator[str]:
    yield from state.config_paths.values()
    yield from state.meta_paths


def _move(store: ObjectStore, path: str) -> None:
    """Copy a file, then delete it. Two processes at once copy the same bytes."""
    try:
        body = store.get(path)
    except ObjectNotFound:
        return
    store.put(archived(path), body)
    store.delete([path])


def paths_of(actions: Iterable[AnyAction]) -> list[str]:
    """Return the hashing files that a commit with these actions names."""
    naming = (a.path for a in actions if isinstance(a, PutHashingConfig | DropHashingConfig | HashingMeta))
    return [path for path in naming if path is not None]
