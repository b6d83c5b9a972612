"""The rows that staged deltas replace: as they were, as they will be, their positions, and what indexes make of them.

A file is sorted by key. So the driver searches files on its own disk for the keys of a delta, on whole columns, in a
part of the time that Spark takes to hash each key of the file and to look it up; columns of the rows are read where
there are rows to take. The plan of the write decides whether the driver or Spark searches
(:mod:`spark_apps.actions.upsert_plan`).

Each index kept with the data stages its part of the commit that changes the rows. What is joined with the touched file
groups are the staged files and not the caller's frame, so a batch is never computed twice and cannot differ from
itself.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.template import Attempt, StagedChanges
from spark_apps.actions.upsert_plan import UpsertPlan, kept
from spark_apps.indexes.handler import Changes, IndexContext, IndexWork
from spark_apps.indexes.keyed.matching import (
    KeyMatcher,
    comparable_type,
    kinds_of,
    normalize_column,
)
from spark_apps.indexes.registry import available, find
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.read import (
    encode_positions,
    live_rows,
    names_within,
    newest_rows,
    positions_target,
    read_files,
    scan_keys,
    with_keys,
)
from spark_apps.mergetree.spark_utils import cached, from_arrow
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, ROW, FileGroups, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey, Positions, positions_path
from spark_apps.timeline.model import NEW_KEYS, AddFile, Commit, Scope, group_scope
from spark_apps.timeline.publish import ByKeys, KeysConflict
from spark_apps.timeline.state import IndexEntry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


_AT_ONCE = 16
_INDEXES_AT_ONCE = 4


def as_files(snapshot: Snapshot, staged: Iterable[AddFile]) -> list[DataFile]:
    """Return staged files as a reader takes them: above everything that the snapshot holds."""
    return [DataFile.of(action, snapshot.state.version + 1) for action in staged]


def touched_groups(snapshot: Snapshot, staged: Iterable[AddFile]) -> dict[GroupKey, list[DataFile]]:
    """Return the file groups of the snapshot that staged files fall into."""
    return snapshot.groups(only=((action.partition, action.group) for action in staged))


def with_staged(
    snapshot: Snapshot, groups: Mapping[GroupKey, Sequence[DataFile]], staged: Iterable[AddFile]
) -> dict[GroupKey, list[DataFile]]:
    """Return file groups as they will be once the staged files are committed."""
    merged = {key: list(files) for key, files in groups.items()}
    for file in as_files(snapshot, staged):
        merged.setdefault(file.group_key, []).append(file)
    return merged


def rows_in(snapshot: Snapshot, tree: Tree, staged: Sequence[AddFile], names: Sequence[str]) -> DataFrame | None:
    """Return the rows that staged files hold; ``None`` if they hold tombstones only."""
    files = as_files(snapshot, [action for action in staged if action.rows > action.tombstones])
    if not files:
        return None
    return read_files(snapshot, tree, files, names, flag=True).where(F.col(DELETED).isNull()).drop(DELETED)


def rows_of_staged(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    groups: Mapping[GroupKey, Sequence[DataFile]],
    columns: Sequence[str],
) -> DataFrame:
    """Return the rows of file groups that have a key of the staged files."""
    files = [file for file in as_files(snapshot, staged) if file.group_key in groups]
    if plan.searches(sum(file.rows for file in files), columns):
        return _rows_with_keys(snapshot, tree, groups, by_group(files), columns)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.tombstone_columns)
    return scan_keys(snapshot, tree, groups, columns, keys, tree.tombstone_columns, sum(a.rows for a in staged))


# --- Rows searched for by the driver ----------------------------------------------------------------------------------


def by_group(files: Iterable[DataFile]) -> dict[GroupKey, list[DataFile]]:
    """Return files by their file group."""
    groups: dict[GroupKey, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.group_key, []).append(file)
    return groups


def _numbers_of(
    snapshot: Snapshot, tree: Tree, files: Mapping[GroupKey, DataFile], deltas: FileGroups
) -> list[Numbers]:
    """Return, of one file of each group that has deltas, the numbers of its rows whose keys the deltas hold.

    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is not as the log states.
    """
    import numpy as np

    def search(key: GroupKey) -> Numbers:
        delta_keys, first = _keys_of(snapshot, tree, deltas[key]), 0
        parts = [np.empty(0, np.int64)]
        with _opened(snapshot, files[key]) as opened:
            for keys in _row_group_keys(opened, tree):
                parts.append(first + _among(delta_keys, keys))
                first += len(keys)
        return np.concatenate(parts)

    check_intact(snapshot, tree, [file for key, some in deltas.items() for file in (files[key], *some)])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(search, deltas))


def _rows_with_keys(
    snapshot: Snapshot, tree: Tree, groups: FileGroups, deltas: FileGroups, columns: Sequence[str]
) -> DataFrame:
    """Return the rows of file groups, merged, that have a key of the deltas there.

    :param groups: their files in merge order.
    :param columns: of the tree, and perhaps :data:`~spark_apps.mergetree.tree.GROUP_ID`.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is not as the log states.
    """
    import pyarrow as pa

    check_intact(snapshot, tree, [file for key, files in groups.items() for file in (*files, *deltas[key])])
    names = list(dict.fromkeys([*tree.key, *(name for name in columns if name != GROUP_ID)]))

    def search(key: GroupKey) -> Any:
        rows = _newest(snapshot, tree, groups[key], _keys_of(snapshot, tree, deltas[key]), names)
        return rows.append_column(GROUP_ID, pa.repeat(key[1], len(rows))).select(list(columns))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        table = pa.concat_tables(pool.map(search, groups))
    kinds = [T.StringType() if name == GROUP_ID else tree.field(name).dataType for name in columns]
    schema = T.StructType([T.StructField(name, kind) for name, kind in zip(columns, kinds, strict=True)])
    return from_arrow(snapshot.spark, table, schema)


def _newest(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], sought: KeyMatcher, names: Sequence[str]) -> Any:
    """Return the newest row of each sought key, unless that is a tombstone; the files are given in merge order."""
    import pyarrow as pa

    shape = [pa.field(name, comparable_type(kind)) for name, kind in zip(names, kinds_of(tree, names), strict=True)]
    parts = [pa.schema([*shape, pa.field(DELETED, pa.bool_())]).empty_table()]
    for file in files:
        with _opened(snapshot, file) as opened:
            for number, keys in enumerate(_row_group_keys(opened, tree)):
                matches = _among(sought, keys)
                if len(matches):
                    parts.append(_rows(opened, number, tree, names, keys, matches))
    rows = pa.concat_tables(parts)
    if len(files) > 1 and len(rows):
        rows = newest_rows(rows, tree.key)
    return live_rows(rows).drop_columns([DELETED])


def _rows(opened: Any, number: int, tree: Tree, names: Sequence[str], keys: Any, matches: Numbers) -> Any:
    """Return some rows of a row group, whose keys were read already, with these columns."""
    import pyarrow as pa

    in_file = set(opened.schema_arrow.names)
    stored = {name: tree.stored(name) for name in names if name not in tree.key} | {DELETED: DELETED}
    to_read = [name for name in stored.values() if name in in_file]
    others: Any = opened.read_row_group(number, to_read, use_threads=False) if to_read else None
    columns = []
    for name, kind in zip(names, kinds_of(tree, names), strict=True):
        if name in tree.key:
            columns.append(normalize_column(keys.column(name).take(matches), kind))
        elif stored[name] in in_file:
            columns.append(normalize_column(others.column(stored[name]).take(matches), kind))
        else:
            columns.append(pa.nulls(len(matches), comparable_type(kind)))
    deleted = others.column(DELETED).take(matches) if DELETED in in_file else pa.nulls(len(matches), pa.bool_())
    return pa.table([*columns, deleted], names=[*names, DELETED])


def _keys_of(snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile]) -> KeyMatcher:
    """Return the keys of deltas of one file group."""
    import pyarrow as pa

    parts: list[Any] = []
    for delta in deltas:
        with _opened(snapshot, delta) as opened:
            parts.extend(_row_group_keys(opened, tree))
    return KeyMatcher(dataclasses.replace(tree, hash_fields=tree.key), pa.concat_tables(parts))


def _among(sought: KeyMatcher, keys: Any) -> Numbers:
    """Return the numbers of the rows that have a sought key."""
    matches: Numbers = sought.rows_among(keys.column(0)) if sought.sortable else sought.rows_of(keys.columns)
    return matches


def _row_group_keys(opened: Any, tree: Tree) -> Iterator[Any]:
    """Yield the key columns of each row group of an opened file as an Arrow table.

    All tables are of one schema, whether or not a file states that its columns have no null.
    """
    import pyarrow as pa

    names = [tree.stored(name) for name in tree.key]
    for number in range(opened.num_row_groups):
        read = opened.read_row_group(number, names, use_threads=False)
        yield pa.table([read.column(name) for name in names], names=list(tree.key))


@contextmanager
def _opened(snapshot: Snapshot, file: DataFile) -> Iterator[Any]:
    """Open a file on the driver's disk for the block.

    :raises StorageError: naming the file, if it cannot be read in the block.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        path = snapshot.store.spark_path(file.path).removeprefix("file://")
        with pq.ParquetFile(path, page_checksum_verification=True) as opened:
            yield opened
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Bring the file back from a backup, or restore an earlier version of the table.",
        ) from error


# --- Positions of replaced rows ---------------------------------------------------------------------------------------


def with_positions(attempt: Attempt, tree: Tree, plan: UpsertPlan, staged: Sequence[AddFile]) -> list[AddFile]:
    """Return staged deltas with their positions, if the table keeps them; the positions are put beside the deltas.

    The keys of the files under the deltas are read. Deltas of more keys than are broadcast get no positions.
    """
    touched = touched_groups(attempt.snapshot, staged)
    return positions_over(attempt, tree, plan, staged, {key: positions_target(files) for key, files in touched.items()})


def positions_over(
    attempt: Attempt,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    under: Mapping[GroupKey, DataFile | None],
) -> list[AddFile]:
    """Return deltas as :func:`with_positions` does, where it is known which file lies under those of each group."""
    snapshot = attempt.snapshot
    lowest = {key: file for key, file in under.items() if file is not None}
    deltas = [action for action in staged if (action.partition, action.group) in lowest]
    replacing = [action for action in deltas if not (action.extra or {}).get(NEW_KEYS)]
    if not deltas or not plan.positions(sum(action.rows for action in replacing)):
        return list(staged)
    hidden: dict[int, Numbers] = {}
    if replacing:
        attempt.phase("find the positions of replaced rows")
        hidden = dict(_hidden_rows(snapshot, tree, plan, replacing, lowest))
    first: dict[GroupKey, str] = {}
    for action in deltas:
        first.setdefault((action.partition, action.group), action.path)

    def put(action: AddFile) -> AddFile:
        file = lowest.get((action.partition, action.group))
        if file is None:
            return action
        # What several deltas of one commit hide in a group stands beside the first of them.
        rows = hidden.get(file.lineage) if first[action.partition, action.group] == action.path else None
        positions = Positions(file.lineage)
        if rows is not None and len(rows):
            body = encode_positions(file.lineage, file.rows, rows)
            snapshot.store.put(positions_path(action.path), body)
            positions = Positions(file.lineage, len(rows), len(body))
        return replace(action, extra={**(action.extra or {}), **positions.to_extra()})

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(put, staged))


def _hidden_rows(
    snapshot: Snapshot, tree: Tree, plan: UpsertPlan, deltas: Sequence[AddFile], lowest: Mapping[GroupKey, DataFile]
) -> Iterable[tuple[int, Numbers]]:
    """Return the lineage of each file under deltas with the numbers of its rows whose keys the deltas hold."""
    files = as_files(snapshot, deltas)
    groups = by_group(files)
    if not plan.searches(sum(file.rows for file in files)):
        return _hidden_by_spark(snapshot, tree, files, [lowest[key] for key in groups])
    numbers = _numbers_of(snapshot, tree, lowest, groups)
    return zip((lowest[key].lineage for key in groups), numbers, strict=True)


def _hidden_by_spark(
    snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile], files: Sequence[DataFile]
) -> Iterator[tuple[int, Numbers]]:
    import numpy as np

    names = names_within(tree, [[file] for file in files])
    keys = read_files(snapshot, tree, deltas, names)
    rows = read_files(snapshot, tree, files, names, row=True)
    hidden = with_keys(rows, keys, tree, names, sum(file.rows for file in deltas)).select(LINEAGE, ROW).toArrow()
    lineages, numbers = hidden.column(LINEAGE).to_numpy(), hidden.column(ROW).to_numpy()
    order = np.argsort(lineages, kind="stable")
    distinct, counts = np.unique(lineages, return_counts=True)
    ends = np.cumsum(counts)
    for lineage, begin, end in zip(distinct.tolist(), ends - counts, ends, strict=True):
        yield lineage, numbers[order[begin:end]]


# --- what indexes make of the rows ------------------------------------------------------------------------------------


def changes_of(snapshot: Snapshot, tree: Tree, plan: UpsertPlan, staged: Sequence[AddFile]) -> Changes:
    """Return what staged deltas do to the rows of their keys: partition columns, record key and the plan's columns."""
    names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
    touched = touched_groups(snapshot, staged)
    before = rows_of_staged(snapshot, tree, plan, staged, touched, names) if touched else None
    if tree.merge_by == "ordering" and touched and any(action.rows > action.tombstones for action in staged):
        # Which of old and new row stands is decided by the merge.
        merged = with_staged(snapshot, touched, staged)
        after: DataFrame | None = rows_of_staged(snapshot, tree, plan, staged, merged, names)
    else:
        after = rows_in(snapshot, tree, staged, names)
    return Changes(before, after, frozenset((action.partition, action.group) for action in staged))


def maintain(attempt: Attempt, changes: Changes, work: StagedChanges, *, held_already: bool = False) -> None:
    """Add to ``work`` what the change of rows means for every index kept with the data.

    :param held_already: whether Spark keeps ``changes.before`` already, or no index reads it.
    """
    entries = kept(attempt.snapshot.state)
    if not entries:
        return
    conflicts: dict[str, KeysConflict] = {}
    attempt.phase("indexes " + ", ".join(entry.definition.name for entry in entries))
    with ExitStack() as held:
        if changes.before is not None and len(entries) > 1 and not held_already:
            changes = dataclasses.replace(changes, before=held.enter_context(cached(changes.before)))

        def part_of(entry: IndexEntry) -> IndexWork:
            folder = attempt.index_folder(entry.definition.name, "maintain")
            context = IndexContext(attempt.snapshot, entry.definition, folder)
            return find(entry.definition.kind).maintain(context, changes)

        # Most of a small job is waiting for Spark to plan it.
        with ThreadPoolExecutor(_INDEXES_AT_ONCE) as pool:
            parts = list(pool.map(part_of, entries))
    for entry, part in zip(entries, parts, strict=True):
        definition = entry.definition
        work.actions.extend(part.actions)
        work.reads.extend(part.reads)
        work.writes.extend(part.writes)
        work.maintained.append(definition.tree)
        work.metrics.update({f"index.{definition.name}.{name}": value for name, value in part.metrics.items()})
        if part.keys_conflict is not None:
            conflicts[definition.tree] = part.keys_conflict
    # The old values were read: no other commit may change them until this one.
    work.reads.extend(group_scope(*group) for group in changes.groups)
    if conflicts:
        work.keys_conflict = _by_tree(conflicts)


def drop_from_indexes(attempt: Attempt, partitions: Sequence[str], work: StagedChanges) -> None:
    """Add to ``work`` what goes with dropped partitions, of indexes that do not follow single rows."""
    for entry in attempt.snapshot.state.indexes.values():
        handler = available(entry.definition.kind)
        if handler is None or handler.maintains:
            continue
        context = IndexContext(attempt.snapshot, entry.definition, "")
        part = handler.drop_partitions(context, partitions)
        work.actions.extend(part.actions)
        work.reads.extend(part.reads)
        work.writes.extend(part.writes)


def _by_tree(conflicts: Mapping[str, KeysConflict]) -> KeysConflict:
    """Return one rule for the conflicts of several indexes, each asked of the shards of its own tree."""

    def conflict(scope: Scope, other: Commit) -> bool:
        rule = conflicts.get(scope.name or "")
        return rule is not None and rule(scope, other)

    key_columns = [rule.columns for rule in conflicts.values() if isinstance(rule, ByKeys)]
    if len(key_columns) < len(conflicts):
        return conflict
    return ByKeys({tree: names for columns in key_columns for tree, names in columns.items()}, conflict)
