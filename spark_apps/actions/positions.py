"""Finds the positions of the rows that staged deltas replace, where the table was made with ``positions``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spark_apps.actions.maintenance import as_files, touched_groups
from spark_apps.actions.template import Attempt
from spark_apps.indexes.matching import Wanted
from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.positions import beneath, encoded
from spark_apps.mergetree.read import broadcast_rows, names_within, read_files, with_keys
from spark_apps.mergetree.repeated import countable
from spark_apps.mergetree.tree import LINEAGE, ROW, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import NEW_KEYS, AddFile
from spark_apps.timeline.positions import Positions, path_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_AT_ONCE = 16


def with_positions(attempt: Attempt, tree: Tree, staged: Sequence[AddFile]) -> list[AddFile]:
    """Staged deltas, with positions if the table has them; they are put beside the deltas.

    It reads the keys of the files under the deltas. Deltas of more keys than are broadcast get none.
    """
    touched = touched_groups(attempt.snapshot, staged)
    return positions_over(attempt, tree, staged, {key: beneath(files) for key, files in touched.items()})


def positions_over(
    attempt: Attempt, tree: Tree, staged: Sequence[AddFile], under: Mapping[GroupKey, DataFile | None]
) -> list[AddFile]:
    """As :func:`with_positions`, where it is known which file lies under the deltas of each group."""
    snapshot = attempt.snapshot
    if not snapshot.table.positions or tree.merge_by != "commit":
        return list(staged)
    over = {key: file for key, file in under.items() if file is not None}
    deltas = [action for action in staged if (action.partition, action.group) in over]
    sought = [action for action in deltas if not (action.extra or {}).get(NEW_KEYS)]
    if not deltas or sum(action.rows for action in sought) > broadcast_rows(snapshot.spark):
        return list(staged)
    hidden: dict[int, Numbers] = {}
    if sought:
        attempt.phase("find the positions of replaced rows")
        hidden = dict(_found(snapshot, tree, sought, over))

    def put(action: AddFile) -> AddFile:
        file = over.get((action.partition, action.group))
        if file is None:
            return action
        # What several deltas of one commit hide in a group, the first of them tells.
        rows = hidden.get(file.lineage) if first[action.partition, action.group] == action.path else None
        told = Positions(file.lineage)
        if rows is not None and len(rows):
            body = encoded(file.lineage, file.rows, rows)
            snapshot.store.put(path_of(action.path), body)
            told = Positions(file.lineage, len(rows), len(body))
        return replace(action, extra={**(action.extra or {}), **told.to_extra()})

    first: dict[GroupKey, str] = {}
    for action in deltas:
        first.setdefault((action.partition, action.group), action.path)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(put, staged))


def _found(
    snapshot: Snapshot, tree: Tree, deltas: Sequence[AddFile], over: Mapping[GroupKey, DataFile]
) -> Iterable[tuple[int, Numbers]]:
    """Lineage of a file -> numbers of the rows in it whose keys the deltas hold."""
    groups: dict[GroupKey, list[DataFile]] = {}
    for delta in as_files(snapshot, deltas):
        groups.setdefault(delta.group_key, []).append(delta)
    if not countable(snapshot.store, tree):
        return _by_spark(snapshot, tree, deltas, [over[key] for key in groups])
    check_intact(snapshot, tree, [file for key, files in groups.items() for file in (over[key], *files)])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda key: (over[key].lineage, _rows_in(snapshot, tree, over[key], groups[key])), groups))


def _by_spark(
    snapshot: Snapshot, tree: Tree, deltas: Sequence[AddFile], files: Sequence[DataFile]
) -> Iterator[tuple[int, Numbers]]:
    import numpy as np

    names = names_within(tree, [[file] for file in files])
    keys = read_files(snapshot, tree, as_files(snapshot, deltas), names)
    rows = read_files(snapshot, tree, files, names, row=True)
    found = with_keys(rows, keys, tree, names, sum(action.rows for action in deltas)).select(LINEAGE, ROW).toArrow()
    lineages, numbers = found.column(LINEAGE).to_numpy(), found.column(ROW).to_numpy()
    order = np.argsort(lineages, kind="stable")
    told, counts = np.unique(lineages, return_counts=True)
    ends = np.cumsum(counts)
    for lineage, begin, end in zip(told.tolist(), ends - counts, ends, strict=True):
        yield lineage, numbers[order[begin:end]]


def _rows_in(snapshot: Snapshot, tree: Tree, file: DataFile, deltas: Sequence[DataFile]) -> Numbers:
    """Numbers of the rows of a file on the driver's disk whose keys deltas of its group hold. Files are sorted by key,
    so this takes a part of what Spark needs to hash each."""
    import numpy as np
    import pyarrow as pa

    keys = pa.concat_tables(part for delta in deltas for part in _keys_of(snapshot, tree, delta))
    wanted = Wanted(dataclasses.replace(tree, hash_fields=tree.key), keys)
    first, found = 0, [np.empty(0, np.int64)]
    for part in _keys_of(snapshot, tree, file):
        here = wanted.rows_among(part.column(0)) if wanted.sortable else wanted.rows_of(part.columns)
        found.append(first + here)
        first += len(part)
    return np.concatenate(found)


def _keys_of(snapshot: Snapshot, tree: Tree, file: DataFile) -> Iterator[Any]:
    """The keys of a file on the driver's disk, an Arrow table for each row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [tree.stored(name) for name in tree.key]
    try:
        place = snapshot.store.spark_path(file.path).removeprefix("file://")
        with pq.ParquetFile(place, page_checksum_verification=True) as opened:
            for number in range(opened.num_row_groups):
                yield opened.read_row_group(number, names, use_threads=False).select(names).rename_columns(tree.key)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Bring the file back from a backup, or restore an earlier version of the table.",
        ) from error
