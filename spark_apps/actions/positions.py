"""Finds the positions of the rows that staged deltas replace, where the table was made with ``positions``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_apps.actions.maintenance import as_files, touched_groups
from spark_apps.actions.searching import by_group, numbers_of, searchable
from spark_apps.actions.template import Attempt
from spark_apps.mergetree.positions import beneath, encoded
from spark_apps.mergetree.read import broadcast_rows, names_within, read_files, with_keys
from spark_apps.mergetree.tree import LINEAGE, ROW, Snapshot, Tree
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import NEW_KEYS, AddFile
from spark_apps.timeline.positions import Positions, path_of

if TYPE_CHECKING:
    from spark_apps.actions.searching import Numbers

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
    files = as_files(snapshot, deltas)
    groups = by_group(files)
    if not searchable(snapshot, tree, files):
        return _by_spark(snapshot, tree, files, [over[key] for key in groups])
    return zip((over[key].lineage for key in groups), numbers_of(snapshot, tree, over, groups), strict=True)


def _by_spark(
    snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile], files: Sequence[DataFile]
) -> Iterator[tuple[int, Numbers]]:
    import numpy as np

    names = names_within(tree, [[file] for file in files])
    keys = read_files(snapshot, tree, deltas, names)
    rows = read_files(snapshot, tree, files, names, row=True)
    found = with_keys(rows, keys, tree, names, sum(file.rows for file in deltas)).select(LINEAGE, ROW).toArrow()
    lineages, numbers = found.column(LINEAGE).to_numpy(), found.column(ROW).to_numpy()
    order = np.argsort(lineages, kind="stable")
    told, counts = np.unique(lineages, return_counts=True)
    ends = np.cumsum(counts)
    for lineage, begin, end in zip(told.tolist(), ends - counts, ends, strict=True):
        yield lineage, numbers[order[begin:end]]
