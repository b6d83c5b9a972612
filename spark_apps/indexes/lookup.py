"""Looks keys up in a merge tree on the driver: only the shards, row groups, pages and columns that can hold them are
read.

A Spark job costs more than all of this for a handful of keys, and for many where the index is not large. All of it
works on whole columns; Python objects are made for those alone who ask for them (:func:`lookup`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spark_apps.indexes.entry_files import EntryFile, damaged, ranged
from spark_apps.indexes.handler import PARTITION, Key
from spark_apps.indexes.matching import Wanted, arrow_type, as_arrow, as_keys, kinds_of, last_of_each, uniform
from spark_apps.layout.hashing import DEFAULT_HASH, bucket_id
from spark_apps.layout.hashing_arrays import buckets_of_columns
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.timeline.files import DataFile

__all__ = ["MOST_ROWS", "Found", "FoundTable", "TooMany", "damaged", "lookup", "lookup_table", "ranged", "shards_of"]

MOST_ROWS = 4_000_000
"""So many rows, in row groups that can hold the keys, are read on the driver at most."""

_MOST_FOUND = 100_000
"""So many entries become Python objects at most: by then Spark has them too."""

_THREADED_ROWS = 200_000
# Row groups are read by so many at most, which bounds the memory that a thread needs.
_MOST_GROUPS = 16
_THREADS = 8
# Below this numpy's many small steps take longer than a call for each key.
_HASHED_SINGLY = 64

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


@dataclass(frozen=True)
class FoundTable:
    """The entries of the keys as an Arrow table with the tree's columns. ``files`` and ``bytes`` were read for it."""

    table: Any
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
    found = lookup_table(snapshot, tree, as_arrow(tree, keys), shards, MOST_ROWS, _MOST_FOUND)
    try:
        key = as_keys(found.table, tree, tree.key)
    except (OverflowError, ValueError) as error:
        raise TooMany from error  # Spark knows values that Python does not
    partitions = found.table.column(PARTITION).to_pylist()
    groups: Sequence[str | None] = [None] * len(partitions)
    if GROUP_ID in found.table.column_names:
        groups = found.table.column(GROUP_ID).to_pylist()
    places = zip(partitions, groups, strict=True)
    return Found(list(zip(key, places, strict=True)), found.files, found.bytes)


def lookup_table(
    snapshot: Snapshot,
    tree: Tree,
    keys: Any,
    shards: int,
    most_rows: int | None = None,
    most_found: int | None = None,
) -> FoundTable:
    """The live entries of a tree whose ``hash_fields`` have one of the given values.

    :param keys: an Arrow table with the columns ``tree.hash_fields``, of types that can be cast to theirs.
    :param most_rows: so many rows at most are in row groups that can hold the keys.
    :param most_found: so many entries at most are found.
    :raises TooMany: if they are more. :raises StorageError: if a file is missing or damaged.
    """
    import pyarrow as pa

    groups = snapshot.groups(tree.name)
    shards_read = [
        _Shard(snapshot, tree, groups.get(("", shard), ()), Wanted(tree, some))
        for shard, some in _by_shard(tree, keys, shards).items()
    ]
    if most_rows is not None and sum(shard.rows for shard in shards_read) > most_rows:
        raise TooMany
    tables = [_nothing(tree), *_read(tree, shards_read, most_found)]
    files = [file for shard in shards_read for file in shard.files]
    return FoundTable(pa.concat_tables(tables), len(files), sum(file.bytes for file in files))


class _Shard:
    """The files of a shard, and the keys that it can hold."""

    def __init__(self, snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], wanted: Wanted) -> None:
        self.wanted = wanted
        self.files = [EntryFile(snapshot, tree, file, wanted) for file in files]
        self.rows = sum(file.rows_in(group) for file in self.files for group in file.groups)

    def jobs(self, threads: int) -> list[tuple[EntryFile, list[int]]]:
        """Files with some of their row groups, each a thread's work for a while."""
        found = []
        for file in self.files:
            step = max(1, min(_MOST_GROUPS, -(-len(file.groups) // (4 * threads))))
            found += [(file, file.groups[n : n + step]) for n in range(0, len(file.groups), step)]
        return found


def _read(tree: Tree, shards: Sequence[_Shard], most_found: int | None) -> list[Any]:
    """The live entries with a key, a table a shard.

    :raises TooMany: if they are more than ``most_found``.
    """
    threads = min(_THREADS, os.cpu_count() or 1) if sum(shard.rows for shard in shards) >= _THREADED_ROWS else 1
    with ExitStack() as stack:
        each: Any = map
        if threads > 1:
            pool = stack.enter_context(ThreadPoolExecutor(threads))
            each = pool.map
            each(Wanted.prepare, [shard.wanted for shard in shards])  # while the first pages are read
        jobs = [shard.jobs(threads) for shard in shards]
        parts = each(lambda job: job[0].rows(job[1]), [job for some in jobs for job in some])
        tables, found = [], 0
        for shard, some in zip(shards, jobs, strict=True):
            held = [part for part in islice(parts, len(some)) if part is not None]
            if held:
                tables.append(_newest(tree, held, len(shard.files)))
                found += len(tables[-1])
            if most_found is not None and found > most_found:
                raise TooMany
    return tables


def _newest(tree: Tree, parts: Sequence[Any], files: int) -> Any:
    """Of each key the entry that was written last, unless that is a tombstone; parts are given in merge order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(parts, promote_options="default") if len(parts) > 1 else parts[0]
    if files > 1 and len(parts) > 1:
        table = table.take(last_of_each([table.column(name).combine_chunks() for name in tree.key]))
    if DELETED in table.column_names:
        table = table.filter(pc.invert(pc.fill_null(table.column(DELETED), False)))
    return table.select(_columns(tree))


def _columns(tree: Tree) -> list[str]:
    return list(dict.fromkeys([*tree.key, *tree.columns]))


def _nothing(tree: Tree) -> Any:
    import pyarrow as pa

    names = _columns(tree)
    return pa.table(
        [pa.array([], arrow_type(kind)) for kind in kinds_of(tree, names)],
        names=names,
    )


def _by_shard(tree: Tree, keys: Any, shards: int) -> dict[str, Any]:
    """Shard -> the rows of an Arrow table of keys that it can hold."""
    import numpy as np

    if not len(keys):
        return {}
    if shards == 1:
        return {"0": keys}
    kinds = kinds_of(tree, tree.hash_fields)
    columns = [uniform(keys.column(name), kind) for name, kind in zip(tree.hash_fields, kinds, strict=True)]
    found = None
    if tree.hash_function == DEFAULT_HASH and len(keys) > _HASHED_SINGLY:
        found = buckets_of_columns(columns, kinds, shards)
    if found is None:
        types = [kind.text for kind in kinds]
        try:
            singly = as_keys(keys.select(tree.hash_fields), tree, tree.hash_fields)
            found = np.array([bucket_id(key, shards, tree.hash_function, types) for key in singly])
        except (OverflowError, ValueError) as error:
            if tree.hash_function != DEFAULT_HASH:
                raise TooMany from error
            found = buckets_of_columns(columns, kinds, shards)
            if found is None:
                raise TooMany from error
    order = np.argsort(found, kind="stable")
    bounds = np.flatnonzero(np.diff(found[order])) + 1
    return {str(found[places[0]]): keys.take(places) for places in np.split(order, bounds)}
