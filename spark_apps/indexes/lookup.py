"""Looks few keys up in a merge tree on the driver: only the shards, row groups and columns that can hold them are read.

A Spark job costs more than all of this for a handful of keys. Every file is checked against what the log says of it
(size, rows) and its pages against their checksums, so that a damaged file is found and never taken for an empty answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.indexes.handler import PARTITION, Key
from spark_apps.indexes.ranges import value_of
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.footers import check_footer
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import LakeIndexError, StorageError
from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import AddFile

_MOST_ROWS = 4_000_000
"""So many rows, in row groups that can hold the keys, are read on the driver at most."""

_MOST_FOUND = 100_000
"""So many entries become Python objects at most: a second's work, by which time Spark has them too."""

Place = tuple[str, str | None]
"""Partition and, where no hash of the key tells it, file group of a row."""


class TooMany(Exception):
    """The keys stand in more rows, or may, than a driver should read; Spark can."""


@dataclass(frozen=True)
class Found:
    """The entries of the keys: their whole key columns and place. ``files`` and ``bytes`` were read for it."""

    entries: list[tuple[Key, Place]]
    files: int
    bytes: int


def shards_of(tree: Tree, keys: Collection[Key], shards: int) -> dict[str, list[Key]]:
    """Shard -> the keys that it can hold."""
    types = [tree.field(name).dataType.simpleString() for name in tree.hash_fields]
    found: dict[str, list[Key]] = {}
    for key in keys:
        found.setdefault(str(bucket_id(key, shards, tree.hash_function, types)), []).append(key)
    return found


def lookup(snapshot: Snapshot, tree: Tree, keys: Collection[Key], shards: int) -> Found:
    """The live entries of a tree whose ``hash_fields`` have one of the given values.

    :raises TooMany: :raises StorageError: if a file is missing or damaged.
    """
    groups = snapshot.groups(tree.name)
    entries: list[tuple[Key, Place]] = []
    files = read = rows = 0
    for shard, wanted in shards_of(tree, keys, shards).items():
        newest: dict[Key, Place | None] = {}
        for file in groups.get(("", shard), ()):
            reader = _Reader(snapshot.store, tree, file, wanted)
            rows += reader.rows
            if rows > _MOST_ROWS:
                raise TooMany
            newest.update(reader.entries())
            if len(entries) + len(newest) > _MOST_FOUND:
                raise TooMany
            files, read = files + 1, read + reader.bytes
        entries.extend((key, place) for key, place in newest.items() if place is not None)
    return Found(entries, files, read)


class _Reader:
    """One file of a tree, and the row groups of it that can hold some keys."""

    def __init__(self, store: ObjectStore, tree: Tree, file: DataFile, keys: Sequence[Key]) -> None:
        import pyarrow as pa

        self._tree = tree
        self._file = file
        self._keys = frozenset(keys)
        self._types = [parse_type(tree.field(name).dataType.simpleString()) for name in tree.key]
        try:
            self._bytes = ranged(store, file)
            self._parquet = self._open()
            self._groups = [n for n in range(self._parquet.num_row_groups) if self._can_hold(n)]
        except (pa.ArrowException, OSError, StorageError) as error:
            raise damaged(file.path, error) from error

    def _open(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        check_footer(self._bytes, self._file.extra)
        parquet = pq.ParquetFile(
            pa.PythonFile(self._bytes, mode="r"),
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
        )
        if parquet.metadata.num_rows != self._file.rows:
            raise pa.ArrowInvalid(f"it has {parquet.metadata.num_rows} rows, the log says {self._file.rows}")
        return parquet

    @property
    def bytes(self) -> int:
        return self._bytes.fetched

    @property
    def rows(self) -> int:
        return sum(self._parquet.metadata.row_group(n).num_rows for n in self._groups)

    def entries(self) -> Iterator[tuple[Key, Place | None]]:
        """(key columns, place) of the rows with one of the keys; no place for a tombstone."""
        import pyarrow as pa

        if not self._groups:
            return
        names = list(dict.fromkeys([*self._tree.key, *self._tree.columns]))
        if self._file.kind == "delta":
            names.append(DELETED)
        try:
            stored = [self._tree.stored(name) for name in names]
            table = self._parquet.read_row_groups(self._groups, columns=stored, use_threads=False)
            rows = self._matching(table.select(stored).rename_columns(names))
        except (pa.ArrowException, OSError, StorageError) as error:
            raise damaged(self._file.path, error) from error
        prefix = len(self._tree.hash_fields)
        partition = names.index(PARTITION)
        group = names.index(GROUP_ID) if GROUP_ID in names else None
        gone = names.index(DELETED) if DELETED in names else None
        for row in rows:
            key = tuple(value_of(value, kind) for value, kind in zip(row[: len(self._types)], self._types, strict=True))
            if key[:prefix] in self._keys:
                place = (row[partition], None if group is None else row[group])
                yield key, None if gone is not None and row[gone] else place

    def _matching(self, table: Any) -> Iterator[tuple[Any, ...]]:
        """Rows each of whose looked-up columns has some value of the keys: all that are wanted, and few others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for place, name in enumerate(self._tree.hash_fields):
            held = table.column(name)
            values = pa.array(list({key[place] for key in self._keys}), type=held.type)
            table = table.filter(pc.is_in(held, value_set=values))
        if table.num_rows > _MOST_FOUND:
            raise TooMany
        return zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)

    def _can_hold(self, number: int) -> bool:
        group = self._parquet.metadata.row_group(number)
        ranges = []
        for name in self._tree.hash_fields:
            place = self._parquet.schema_arrow.get_field_index(self._tree.stored(name))
            ranges.append(_Range.of(group.column(place).statistics))
        return any(all(held.can_hold(value) for held, value in zip(ranges, key, strict=True)) for key in self._keys)


@dataclass(frozen=True)
class _Range:
    """What the statistics of a column chunk say; without them it can hold anything."""

    known: bool
    low: Any = None
    high: Any = None
    nulls: bool = True

    @classmethod
    def of(cls, statistics: Any) -> _Range:
        if statistics is None:
            return cls(False)
        nulls = not statistics.has_null_count or statistics.null_count > 0
        if not statistics.has_min_max:
            return cls(False, nulls=nulls)
        return cls(True, statistics.min, statistics.max, nulls)

    def can_hold(self, value: Any) -> bool:
        if value is None:
            return self.nulls
        if not self.known:
            return True
        try:
            return bool(self.low <= value <= self.high)
        except TypeError:  # statistics in another form than the values, as for times without a zone
            return True


def ranged(store: ObjectStore, file: DataFile | AddFile) -> RangedFile:
    """A file of an index, read by ranges."""
    return RangedFile(lambda start, end: store.get_range(file.path, start, end), file.bytes)


def damaged(path: str, error: Exception) -> StorageError:
    """The error that says that a file of an index cannot be used."""
    reason = error.message if isinstance(error, LakeIndexError) else str(error).strip().split("\n")[0]
    return StorageError(
        f"The index file {path} cannot be read: {reason}.",
        outcome="The rows are not affected.",
        hint="Rebuild the index: refresh_index(name, mode='full').",
    )
