"""Finds rows by their key on the driver, in files that lie on its own disk.

A file is sorted by key. So the keys of a delta are searched for in it, on whole columns, in a part of the time that
Spark takes to hash each key of the file and to look it up; columns of the rows are read where there are some to find.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from spark_apps.indexes.matching import Wanted, arrow_type, kinds_of, last_of_each, uniform
from spark_apps.mergetree.inline import of_arrow
from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.read import broadcast_rows
from spark_apps.mergetree.repeated import PLAIN, countable
from spark_apps.mergetree.tree import DELETED, GROUP_ID, FileGroups, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


def searchable(snapshot: Snapshot, tree: Tree, deltas: Iterable[DataFile], columns: Collection[str] = ()) -> bool:
    """Whether rows with the keys of deltas can be found here, and these columns of them be taken as Spark would.

    No more than keys are broadcast, for the rows pass through the driver's memory as these do.
    """
    if tree.merge_by != "commit" or snapshot.table.source is not None or not countable(snapshot.store, tree):
        return False
    kinds = [type(tree.field(name).dataType) for name in columns if name in tree.columns]
    few = sum(file.rows for file in deltas) <= broadcast_rows(snapshot.spark)
    return few and all(kind in PLAIN for kind in kinds)


def by_group(files: Iterable[DataFile]) -> dict[GroupKey, list[DataFile]]:
    """Files by their file group."""
    found: dict[GroupKey, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.group_key, []).append(file)
    return found


def numbers_of(snapshot: Snapshot, tree: Tree, files: Mapping[GroupKey, DataFile], deltas: FileGroups) -> list[Numbers]:
    """Of one file of each group that has deltas: the numbers of its rows whose keys the deltas hold.

    :raises ObjectNotFound: :raises StorageError: if a file is not as the log says.
    """
    import numpy as np

    def found(key: GroupKey) -> Numbers:
        wanted, first = _wanted(snapshot, tree, deltas[key]), 0
        parts = [np.empty(0, np.int64)]
        with _opened(snapshot, files[key]) as opened:
            for keys in _keys(opened, tree):
                parts.append(first + _among(wanted, keys))
                first += len(keys)
        return np.concatenate(parts)

    check_intact(snapshot, tree, [file for key, some in deltas.items() for file in (files[key], *some)])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(found, deltas))


def rows_with_keys(
    snapshot: Snapshot, tree: Tree, groups: FileGroups, deltas: FileGroups, columns: Sequence[str]
) -> DataFrame:
    """The rows of file groups, merged, that have a key of the deltas there.

    :param groups: their files in merge order. :param columns: of the tree, and perhaps
        :data:`~spark_apps.mergetree.tree.GROUP_ID`.
    :raises ObjectNotFound: :raises StorageError: if a file is not as the log says.
    """
    import pyarrow as pa

    check_intact(snapshot, tree, [file for key, files in groups.items() for file in (*files, *deltas[key])])
    names = list(dict.fromkeys([*tree.key, *(name for name in columns if name != GROUP_ID)]))

    def found(key: GroupKey) -> Any:
        rows = _newest(snapshot, tree, groups[key], _wanted(snapshot, tree, deltas[key]), names)
        return rows.append_column(GROUP_ID, pa.repeat(key[1], len(rows))).select(list(columns))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        table = pa.concat_tables(pool.map(found, groups))
    kinds = [T.StringType() if name == GROUP_ID else tree.field(name).dataType for name in columns]
    schema = T.StructType([T.StructField(name, kind) for name, kind in zip(columns, kinds, strict=True)])
    return of_arrow(snapshot.spark, table, schema)


def _newest(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], wanted: Wanted, names: Sequence[str]) -> Any:
    """Of each wanted key in files, given in merge order, the row that was written last, unless that is a tombstone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = [pa.field(name, arrow_type(kind)) for name, kind in zip(names, kinds_of(tree, names), strict=True)]
    parts = [pa.schema([*shape, pa.field(DELETED, pa.bool_())]).empty_table()]
    for file in files:
        with _opened(snapshot, file) as opened:
            for number, keys in enumerate(_keys(opened, tree)):
                here = _among(wanted, keys)
                if len(here):
                    parts.append(_rows(opened, number, tree, names, keys, here))
    rows = pa.concat_tables(parts)
    if len(files) > 1 and len(rows):
        rows = rows.take(last_of_each([rows.column(name).combine_chunks() for name in tree.key]))
    return rows.filter(pc.is_null(rows.column(DELETED))).drop_columns([DELETED])


def _rows(opened: Any, number: int, tree: Tree, names: Sequence[str], keys: Any, here: Numbers) -> Any:
    """Some rows of a row group, of which the keys were read already, with these columns."""
    import pyarrow as pa

    held = set(opened.schema_arrow.names)
    stored = {name: tree.stored(name) for name in names if name not in tree.key} | {DELETED: DELETED}
    inside = [place for place in stored.values() if place in held]
    others: Any = opened.read_row_group(number, inside, use_threads=False) if inside else None
    columns = []
    for name, kind in zip(names, kinds_of(tree, names), strict=True):
        if name in tree.key:
            columns.append(uniform(keys.column(name).take(here), kind))
        elif stored[name] in held:
            columns.append(uniform(others.column(stored[name]).take(here), kind))
        else:
            columns.append(pa.nulls(len(here), arrow_type(kind)))
    deleted = others.column(DELETED).take(here) if DELETED in held else pa.nulls(len(here), pa.bool_())
    return pa.table([*columns, deleted], names=[*names, DELETED])


def _wanted(snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile]) -> Wanted:
    """The keys of deltas of one file group."""
    import pyarrow as pa

    parts: list[Any] = []
    for delta in deltas:
        with _opened(snapshot, delta) as opened:
            parts.extend(_keys(opened, tree))
    return Wanted(dataclasses.replace(tree, hash_fields=tree.key), pa.concat_tables(parts))


def _among(wanted: Wanted, keys: Any) -> Numbers:
    found: Numbers = wanted.rows_among(keys.column(0)) if wanted.sortable else wanted.rows_of(keys.columns)
    return found


def _keys(opened: Any, tree: Tree) -> Iterator[Any]:
    """The key columns of an opened file, an Arrow table for each row group; of one schema, whether or not a file says
    that its columns have no null."""
    import pyarrow as pa

    names = [tree.stored(name) for name in tree.key]
    for number in range(opened.num_row_groups):
        read = opened.read_row_group(number, names, use_threads=False)
        yield pa.table([read.column(name) for name in names], names=list(tree.key))


@contextmanager
def _opened(snapshot: Snapshot, file: DataFile) -> Iterator[Any]:
    """A file on the driver's disk. :raises StorageError: naming it, if it cannot be read in the block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        place = snapshot.store.spark_path(file.path).removeprefix("file://")
        with pq.ParquetFile(place, page_checksum_verification=True) as opened:
            yield opened
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Bring the file back from a backup, or restore an earlier version of the table.",
        ) from error
