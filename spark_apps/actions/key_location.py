"""The partitions that the keys of a write live in, and the rows that it replaces: as they were and as they will be.

With a ``record`` index a key is unique in the whole table, so a row whose partition value changes moves: its old
partition gets a tombstone in the same commit. Without one a key is unique in its partition, and nothing moves. The
plan of the write decides when and by whom keys are looked up (:mod:`spark_apps.actions.upsert_plan`).

A file is sorted by key. So the driver searches files on its own disk for the keys of a delta, on whole columns, in a
part of the time that Spark takes to hash each key of the file and to look it up; columns of the rows are read where
there are rows to take.

Each index kept with the data stages its part of the commit that changes the rows. What is joined with the touched file
groups are the staged files and not the caller's frame, so a batch is never computed twice and cannot differ from
itself.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec.structs import replace

from spark_apps.actions.limits import INDEX_THREADS, MAX_ROWS_READ_AGAIN, POSITION_THREADS
from spark_apps.actions.template import Attempt, StagedChanges, index_errors, warn_of_lag
from spark_apps.actions.upsert_plan import NOWHERE, PartitionTargets, UpsertPlan, kept, targets_for, unique_index
from spark_apps.engine.pyspark_names import DataFrame, F, T, spark_errors
from spark_apps.engine.spark_utils import cached, inline
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.indexes.handler import PARTITION, ChangedRows, Changes, IndexContext, IndexWork
from spark_apps.indexes.keyed.matching import (
    KeyMatcher,
    comparable_type,
    kinds_of,
    normalize_column,
)
from spark_apps.indexes.registry import available, find
from spark_apps.layout.partitions import path_of_texts
from spark_apps.mergetree.buckets import value_texts
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.read import (
    encode_positions,
    live_rows,
    names_within,
    newest_rows,
    positions_target,
    read_files,
    same_key,
    scan,
    scan_keys,
    with_keys,
)
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.times import InexactTimes, exact
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, ROW, FileGroups, Snapshot, Tree
from spark_apps.storage.arrow_keys import last_matches, number_rows
from spark_apps.storage.errors import ConcurrentWrite, LakeIndexError, StorageError
from spark_apps.storage.parquet.files import open_file
from spark_apps.timeline.commit import ByKeys, KeysConflict
from spark_apps.timeline.files import DataFile, GroupKey, Positions, positions_path
from spark_apps.timeline.model import (
    NEW_KEYS,
    REPLACED,
    AddFile,
    AnyAction,
    Commit,
    Scope,
    TableDefinition,
    group_scope,
)
from spark_apps.timeline.state import IndexEntry, State, was_kept_current

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

# --- the rows that are replaced ---------------------------------------------------------------------------------------


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


def _rows_staged(
    snapshot: Snapshot, tree: Tree, plan: UpsertPlan, staged: Sequence[AddFile], names: Sequence[str]
) -> DataFrame | None:
    """Return the rows that staged files hold, as :func:`rows_in` does; of few rows the driver reads the files."""
    files = as_files(snapshot, [action for action in staged if action.rows > action.tombstones])
    count = sum(file.rows for file in files)
    if (
        not count
        or count > MAX_ROWS_READ_AGAIN
        or not plan.searches(count, [name for name in names if name != GROUP_ID])
    ):
        return rows_in(snapshot, tree, staged, names)
    import pyarrow as pa

    stored = [tree.stored(name) for name in names if name != GROUP_ID]

    def read(file: DataFile) -> Any:
        with opened_file(snapshot, file) as opened:
            flag = [DELETED] if DELETED in opened.schema_arrow.names else []
            rows = opened.read([*stored, *flag], use_threads=False)
        rows = rows.filter(rows.column(DELETED).is_null()) if flag else rows
        columns = [
            pa.repeat(file.group, len(rows))
            if name == GROUP_ID
            else normalize_column(exact(tree, name, rows.column(tree.stored(name))), *kinds_of(tree, [name]))
            for name in names
        ]
        return pa.table(columns, names=list(names))

    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            tables = list(pool.map(read, files))
    except InexactTimes:
        return rows_in(snapshot, tree, staged, names)
    return from_arrow(snapshot.spark, pa.concat_tables(tables), _schema_of(tree, names))


def _schema_of(tree: Tree, names: Sequence[str]) -> T.StructType:
    kinds = [T.StringType() if name == GROUP_ID else tree.field(name).dataType for name in names]
    return T.StructType([T.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])


def rows_of_staged(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    groups: Mapping[GroupKey, Sequence[DataFile]],
    columns: Sequence[str],
) -> DataFrame:
    """Return the rows of file groups that have a key of the staged files."""
    return counted_rows_of_staged(snapshot, tree, plan, staged, groups, columns)[0]


def counted_rows_of_staged(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    groups: Mapping[GroupKey, Sequence[DataFile]],
    columns: Sequence[str],
) -> tuple[DataFrame, Mapping[GroupKey, int] | None]:
    """Return the rows as :func:`rows_of_staged` does, and how many each group has; ``None`` where Spark finds them."""
    files = [file for file in as_files(snapshot, staged) if file.group_key in groups]
    if plan.searches(sum(file.rows for file in files), columns):
        with suppress(InexactTimes):
            return _rows_with_keys(snapshot, tree, groups, by_group(files), columns)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.tombstone_columns)
    count = sum(action.rows for action in staged)
    return scan_keys(snapshot, tree, groups, columns, keys, tree.tombstone_columns, count), None


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
        with opened_file(snapshot, files[key]) as opened:
            for keys in _row_group_keys(opened, tree):
                parts.append(first + _among(delta_keys, keys))
                first += len(keys)
        return np.concatenate(parts)

    check_intact(snapshot, tree, [file for key, some in deltas.items() for file in (files[key], *some)])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(search, deltas))


def _rows_with_keys(
    snapshot: Snapshot, tree: Tree, groups: FileGroups, deltas: FileGroups, columns: Sequence[str]
) -> tuple[DataFrame, dict[GroupKey, int]]:
    """Return the rows of file groups, merged, that have a key of the deltas there, and how many each group has.

    :param groups: their files in merge order.
    :param columns: of the tree, and perhaps :data:`~spark_apps.mergetree.tree.GROUP_ID`.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is not as the log states.
    """
    import pyarrow as pa

    check_intact(snapshot, tree, [file for key in groups for file in deltas[key]])
    names = [name for name in columns if name != GROUP_ID]
    by_group = newest_with_keys(snapshot, tree, groups, lambda key: _keys_of(snapshot, tree, deltas[key]), names)
    table = pa.concat_tables(
        rows.append_column(GROUP_ID, pa.repeat(key[1], len(rows))).select(list(columns))
        for key, rows in by_group.items()
    )
    counts = {key: len(rows) for key, rows in by_group.items()}
    return from_arrow(snapshot.spark, table, _schema_of(tree, columns)), counts


def newest_with_keys(
    snapshot: Snapshot, tree: Tree, groups: FileGroups, sought: Callable[[GroupKey], KeyMatcher], columns: Sequence[str]
) -> dict[GroupKey, Any]:
    """Return, as an Arrow table for each file group, its rows, merged, that have a sought key.

    :param groups: their files in merge order. :param sought: returns the keys that are looked for in a group.
    :param columns: of the tree.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is not as the log states.
    """
    check_intact(snapshot, tree, [file for files in groups.values() for file in files])
    names = list(dict.fromkeys([*tree.key, *columns]))

    def search(key: GroupKey) -> Any:
        return _newest(snapshot, tree, groups[key], sought(key), names)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return dict(zip(groups, pool.map(search, groups), strict=True))


def _newest(snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], sought: KeyMatcher, names: Sequence[str]) -> Any:
    """Return the newest row of each sought key, unless that is a tombstone; the files are given in merge order."""
    import pyarrow as pa

    shape = [pa.field(name, comparable_type(kind)) for name, kind in zip(names, kinds_of(tree, names), strict=True)]
    parts = [pa.schema([*shape, pa.field(DELETED, pa.bool_())]).empty_table()]
    for file in files:
        with opened_file(snapshot, file) as opened:
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
            values = exact(tree, name, others.column(stored[name]).take(matches))
            columns.append(normalize_column(values, kind))
        else:
            columns.append(pa.nulls(len(matches), comparable_type(kind)))
    deleted = others.column(DELETED).take(matches) if DELETED in in_file else pa.nulls(len(matches), pa.bool_())
    return pa.table([*columns, deleted], names=[*names, DELETED])


def _keys_of(snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile]) -> KeyMatcher:
    """Return the keys of deltas of one file group."""
    import pyarrow as pa

    parts: list[Any] = []
    for delta in deltas:
        with opened_file(snapshot, delta) as opened:
            parts.extend(_row_group_keys(opened, tree))
    return KeyMatcher(dataclasses.replace(tree, hash_fields=tree.key), pa.concat_tables(parts))


def _among(sought: KeyMatcher, keys: Any) -> Numbers:
    """Return the numbers of the rows that have a sought key."""
    matches: Numbers = sought.rows_among(keys.column(0)) if sought.sortable else sought.rows_of(keys.columns)
    return matches


def _row_group_keys(opened: Any, tree: Tree) -> Iterator[Any]:
    """Yield the key columns of each row group of an opened file as an Arrow table.

    All tables are of one schema, whether or not a file states that its columns have no null.

    :raises InexactTimes: if keys are times that Arrow may have taken for others.
    """
    import pyarrow as pa

    stored = {name: tree.stored(name) for name in tree.key}
    for number in range(opened.num_row_groups):
        read = opened.read_row_group(number, list(stored.values()), use_threads=False)
        yield pa.table({name: exact(tree, name, read.column(stored[name])) for name in stored})


@contextmanager
def opened_file(snapshot: Snapshot, file: DataFile) -> Iterator[Any]:
    """Open a file on the driver's disk for the block.

    :raises StorageError: naming the file, if it cannot be read in the block.
    """
    import pyarrow as pa

    try:
        path = snapshot.store.spark_path(file.path).removeprefix("file://")
        with open_file(path) as opened:
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
    if plan.position_rows is None:
        return list(staged)
    touched = touched_groups(attempt.snapshot, staged)
    return positions_over(attempt, tree, plan, staged, {key: positions_target(files) for key, files in touched.items()})


def positions_over(
    attempt: Attempt,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    under: Mapping[GroupKey, DataFile | None],
) -> list[AddFile]:
    """Return deltas as :func:`with_positions` does, given the file under those of each group."""
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
        # What several deltas of one commit replace in a group is written beside the first of them.
        rows = hidden.get(file.lineage) if first[action.partition, action.group] == action.path else None
        positions = Positions(file.lineage)
        if rows is not None and len(rows):
            body = encode_positions(file.lineage, file.rows, rows)
            snapshot.store.put(positions_path(action.path), body)
            positions = Positions(file.lineage, len(rows), len(body))
        return replace(action, extra={**(action.extra or {}), **positions.to_extra()})

    with ThreadPoolExecutor(POSITION_THREADS) as pool:
        return list(pool.map(put, staged))


def _hidden_rows(
    snapshot: Snapshot, tree: Tree, plan: UpsertPlan, deltas: Sequence[AddFile], lowest: Mapping[GroupKey, DataFile]
) -> Iterable[tuple[int, Numbers]]:
    """Return the lineage of each file under deltas with the numbers of its rows whose keys the deltas hold."""
    files = as_files(snapshot, deltas)
    groups = by_group(files)
    if plan.searches(sum(file.rows for file in files)):
        with suppress(InexactTimes):
            numbers = _numbers_of(snapshot, tree, lowest, groups)
            return zip((lowest[key].lineage for key in groups), numbers, strict=True)
    return _hidden_by_spark(snapshot, tree, files, [lowest[key] for key in groups])


def _hidden_by_spark(
    snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile], files: Sequence[DataFile]
) -> Iterator[tuple[int, Numbers]]:
    import numpy as np

    names = names_within(tree, [[file] for file in files])
    keys = read_files(snapshot, tree, deltas, names)
    rows = read_files(snapshot, tree, files, names, row=True)
    hidden = to_arrow(with_keys(rows, keys, tree, names, sum(file.rows for file in deltas)).select(LINEAGE, ROW))
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
    before, counts = counted_rows_of_staged(snapshot, tree, plan, staged, touched, names) if touched else (None, None)
    if tree.merge_by == "ordering" and touched:
        # The merge decides which of old and new row stays, and whether a delete removes any.
        merged = with_staged(snapshot, touched, staged)
        after: DataFrame | None = rows_of_staged(snapshot, tree, plan, staged, merged, names)
    else:
        after = _rows_staged(snapshot, tree, plan, staged, names)
    return Changes(before, after, frozenset((action.partition, action.group) for action in staged), counts=counts)


def maintained_by_rows(attempt: Attempt, changes: ChangedRows) -> dict[str, IndexWork]:
    """Return what the change of few rows means for each index that needs no frame of them, by the index's name."""
    attempt.phase("indexes")
    parts = {}
    for entry in kept(attempt.snapshot.state):
        folder = attempt.index_folder(entry.definition.name, "rows")
        context = IndexContext(attempt.snapshot, entry.definition, folder)
        part = find(entry.definition.kind).maintain_rows(context, changes)
        if part is not None:
            parts[entry.definition.name] = part
    return parts


def maintain(
    attempt: Attempt,
    changes: Changes,
    work: StagedChanges,
    *,
    held_already: bool = False,
    done: Mapping[str, IndexWork] | None = None,
) -> None:
    """Add to ``work`` what the change of rows means for every index kept with the data.

    :param held_already: whether Spark keeps ``changes.before`` already, or no index reads it.
    :param done: what was staged for some of them already, by name.
    """
    entries, known = kept(attempt.snapshot.state), done or {}
    if not entries:
        return
    conflicts: dict[str, KeysConflict] = {}
    attempt.phase("indexes " + ", ".join(entry.definition.name for entry in entries))
    with ExitStack() as held:
        if changes.before is not None and len(entries) > len(known) + 1 and not held_already:
            changes = dataclasses.replace(changes, before=held.enter_context(cached(changes.before)))

        def part_of(entry: IndexEntry) -> IndexWork | None:
            if entry.definition.name in known:
                return known[entry.definition.name]
            folder = attempt.index_folder(entry.definition.name, "maintain")
            context = IndexContext(attempt.snapshot, entry.definition, folder)
            handler = find(entry.definition.kind)
            try:
                with index_errors(context):
                    return handler.maintain(context, changes)
            except spark_errors(LakeIndexError) as error:
                if not handler.expressions(context.table, entry.definition):
                    raise
                # Rows are written whatever an expression gives for them, and whoever writes them.
                warn_of_lag(context, error)
                return None

        with ThreadPoolExecutor(INDEX_THREADS) as pool:
            parts = list(pool.map(part_of, entries))
    for entry, part in zip(entries, parts, strict=True):
        definition = entry.definition
        if part is None:
            continue
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


def with_counts(actions: Sequence[AnyAction], changes: Changes, tree: Tree) -> list[AnyAction]:
    """Return actions with the number of rows that each staged delta replaces or deletes, where it was counted.

    What a commit counts holds only where no other changes the group meanwhile: that of a group whose old values an
    index has read (:func:`maintain`).
    """
    if changes.counts is None or tree.merge_by != "commit":
        return list(actions)
    deltas = Counter(action.group_key for action in actions if _is_delta(action, tree))
    return [
        replace(action, extra={**(action.extra or {}), REPLACED: changes.counts[action.group_key]})
        if _is_delta(action, tree) and deltas[action.group_key] == 1 and action.group_key in changes.counts
        else action
        for action in actions
    ]


def _is_delta(action: AnyAction, tree: Tree) -> TypeGuard[AddFile]:
    return isinstance(action, AddFile) and action.tree == tree.name and action.kind == "delta"


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


# --- where keys are ---------------------------------------------------------------------------------------------------


Hold = Callable[[DataFrame], DataFrame]
"""Has Spark keep a frame that is read more than once, as long as the write needs it."""

_TARGET = "__index_own"
"""Column with the path of the partition that a row is written into."""


def locate_keys(
    attempt: Attempt, tree: Tree, keys: DataFrame, count: int | None = None, *, broadcast: bool = False
) -> DataFrame:
    """Return the rows that have one of these record keys, in whatever partition, by the columns that name them.

    :param keys: frame with the record key columns, each key once.
    :param count: how many there are, if known.
    :param broadcast: whether the keys are broadcast.
    """
    snapshot = attempt.snapshot
    keys = keys.select(*map(column, tree.key))
    if broadcast:
        keys = F.broadcast(keys)
    entry = unique_index(snapshot.state)
    indexed: DataFrame | None = None
    if entry is not None:
        context = IndexContext(snapshot, entry.definition, attempt.index_folder(entry.definition.name, "locate"))
        located = find(entry.definition.kind).locate(context, keys)
        if located is not None:
            indexed = _partition_columns(snapshot, tree, located)
            if not entry.lag:
                return indexed
    groups = snapshot.groups(only=None if indexed is None or entry is None else entry.lag)
    scanned = scan_keys(snapshot, tree, groups, tree.tombstone_columns, keys, tree.key, count)
    return scanned if indexed is None else indexed.unionByName(scanned).distinct()


@dataclass(frozen=True)
class RelocatedRows:
    """The rows of a batch, and tombstones for those that leave another partition.

    :param rows: the batch, without rows that lose against a newer one in another partition.
    :param leaving: tombstones for the partitions that are left; ``None`` if no row moves.
    :param targets: the partitions that are left.
    :param located: where keys of the batch live now; ``None`` if they were not looked for.
    """

    rows: DataFrame
    leaving: DataFrame | None = None
    targets: PartitionTargets = NOWHERE
    located: DataFrame | None = None


def relocated_rows(
    attempt: Attempt,
    tree: Tree,
    plan: UpsertPlan,
    rows: DataFrame,
    hold: Hold,
    replaced: Collection[str] = (),
) -> RelocatedRows:
    """Return which rows of a batch leave another partition.

    :param rows: the batch, one row a record key.
    :param hold: keeps a frame that is read more than once.
    :param replaced: partitions all of whose rows go anyway (an overwrite, which ordering does not stop).
    """
    if not attempt.snapshot.state.partitions:
        return RelocatedRows(rows)
    attempt.phase("find the keys")
    if plan.rows is not None and plan.looks_up(plan.rows) and not tree.by_id and _all_stay(attempt, tree, rows):
        return RelocatedRows(rows)
    located = locate_keys(attempt, tree, rows)
    if tree.by_id:
        located = hold(located)
    if not tree.partition_by:
        return RelocatedRows(rows, located=located)
    # What stays where it is has its new row in the same file group; only the others need a tombstone.
    elsewhere = hold(with_keys(located, rows, tree, tree.identity, without=True))
    values = [tuple(row) for row in elsewhere.select(*value_texts(tree).values()).distinct().collect()]
    targets = targets_for(attempt.snapshot, values)
    targets = targets.only({target.path for target in targets.targets} - targets.new - set(replaced))
    if not targets.targets:
        return RelocatedRows(rows, located=located)
    if tree.merge_by == "ordering" and not replaced:
        losing = hold(_losing(attempt.snapshot, tree, rows, elsewhere, targets))
        rows = with_keys(rows, losing, tree, tree.key, without=True)
        elsewhere = with_keys(elsewhere, losing, tree, tree.key, without=True)
    return RelocatedRows(rows, tombstones(elsewhere, tree), targets, located)


def _all_stay(attempt: Attempt, tree: Tree, rows: DataFrame) -> bool:
    """Return whether the index, asked by the driver, knows that no key of a batch lives in another partition."""
    import pyarrow.compute as pc

    entries = entries_of(attempt, tree, to_arrow(with_texts(tree, rows)))
    return entries is not None and not pc.any(is_elsewhere(entries)).as_py()


def with_texts(tree: Tree, rows: DataFrame) -> DataFrame:
    """Return the record key, and the texts that the names of partitions are made of."""
    return rows.select(*map(column, tree.key), *[text.alias(name) for name, text in value_texts(tree).items()])


def entries_of(attempt: Attempt, tree: Tree, batch: Any) -> Any | None:
    """Return each record key of a batch that lives anywhere, with its partition and the one it is written into.

    :param batch: an Arrow table of :func:`with_texts`.
    :returns: an Arrow table; ``None`` if the index declines, as it does where it would read too much.
    """
    import numpy as np
    import pyarrow as pa

    entry = unique_index(attempt.snapshot.state)
    if entry is None:
        return None
    kinds = kinds_of(tree, tree.key)
    keys = pa.table(
        [normalize_column(batch.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)],
        names=list(tree.key),
    )
    known = find(entry.definition.kind).places(IndexContext(attempt.snapshot, entry.definition, ""), keys)
    if known is None:
        return None
    targets = paths_of(attempt.snapshot.table, tree, batch)
    found = last_matches([keys.column(name) for name in tree.key], [known.column(name) for name in tree.key])
    there = np.flatnonzero(found >= 0)
    if len(there) != len(known):
        return None  # a key was given twice
    entries = known.select([*tree.key, PARTITION]).take(found[there])
    return entries.append_column(_TARGET, targets.take(there))


def paths_of(table: TableDefinition, tree: Tree, batch: Any) -> Any:
    """Return the path of the partition that each row of a batch is written into."""
    import numpy as np
    import pyarrow as pa

    if not tree.partition_by:
        return pa.repeat(path_of_texts(table, ()), len(batch))
    texts = batch.select(list(value_texts(tree))).combine_chunks()
    numbers = number_rows(texts.columns)
    _, first, numbered_paths = np.unique(numbers, return_index=True, return_inverse=True)
    paths = [path_of_texts(table, tuple(row.values())) for row in texts.take(first).to_pylist()]
    return pa.array(paths, pa.string()).take(pa.array(numbered_paths))


def is_elsewhere(entries: Any) -> Any:
    """Return which entries name another partition than their key is written into."""
    import pyarrow.compute as pc

    return pc.not_equal(entries.column(PARTITION), entries.column(_TARGET))


def _located_at(snapshot: Snapshot, tree: Tree, entries: Any) -> DataFrame | None:
    """Return the record keys of entries with the columns of their partitions; ``None`` if no such partition exists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(list(snapshot.state.partitions), pa.string())
    there = entries.filter(pc.is_in(entries.column(PARTITION), value_set=known))
    if not len(there):
        return None
    fields = [T.StructField(name, tree.field(name).dataType) for name in tree.key]
    schema = T.StructType([*fields, T.StructField(PARTITION, T.StringType())])
    return _partition_columns(snapshot, tree, from_arrow(snapshot.spark, there.select(schema.names), schema))


def keep_unique(
    attempt: Attempt,
    tree: Tree,
    staged: Sequence[AddFile],
    work: StagedChanges,
    replaced: Collection[str] = (),
    relies: bool = True,
) -> None:
    """Guard a commit against keys of other partitions that it could not know, and against the drop of its index.

    It looked its keys up in the unique index that the table had when it began, if there was one. Rows may land since
    that were not written by that index: by writers from before it, or because another was made in its place. Where that
    happened, the keys are looked up once more when the commit is made. Where the index is gone, keys are unique in
    their partitions only: what the commit takes out of other partitions, or left out of its batch, would be lost.

    :param staged: its deltas, those that take rows out of other partitions among them.
    :param replaced: partitions all of whose rows go.
    :param relies: which rows change depends on whether keys are unique in the whole table.
    """
    written = [action for action in staged if action.rows > action.tombstones]
    base, known = attempt.snapshot.state, unique_index(attempt.snapshot.state)
    if set(tree.partition_by) <= set(tree.key) or not (written or (relies and known is not None)):
        return

    def guard(head: State) -> None:
        entry = unique_index(head)
        if entry is None and known is not None and relies:
            raise ConcurrentWrite(
                f"Since version {base.version}, from which this write began, the record index "
                f"{known.definition.name!r} was dropped, and with it a key is unique in its partition only; this write "
                "took it to be unique in the table.",
                hint="Run it again: it will leave the rows of other partitions alone.",
            )
        if entry is None or not written or (known is not None and was_kept_current(known, entry, base.version)):
            return
        newest = dataclasses.replace(attempt, snapshot=dataclasses.replace(attempt.snapshot, state=head))
        examples = _keys_in_other_partitions(newest, tree, staged, written, replaced)
        if examples:
            raise ConcurrentWrite(
                f"Since version {base.version}, from which this write began, rows have landed that the record index "
                f"{entry.definition.name!r} does not hold, or it was made; rows of this write have keys of other "
                f"partitions: {examples}.",
                hint="Run it again: it will move those rows.",
            )

    earlier = work.guard

    def both(head: State) -> None:
        if earlier is not None:
            earlier(head)
        guard(head)

    work.guard = both
    work.unique_by = "" if known is None else known.definition.tree


def _keys_in_other_partitions(
    newest: Attempt, tree: Tree, staged: Sequence[AddFile], written: Sequence[AddFile], replaced: Collection[str]
) -> str:
    """Return examples of staged rows whose keys are in other partitions too; an empty text if there are none."""
    snapshot, texts = newest.snapshot, value_texts(tree)
    rows = read_files(snapshot, tree, as_files(snapshot, written), tree.key, flag=True).where(F.col(DELETED).isNull())
    staged_keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    located = locate_keys(newest, tree, rows.select(*map(column, tree.key)).distinct())
    untouched = with_keys(located, staged_keys, tree, tree.identity, without=True)
    one = [F.first(column(name)).alias(name) for name in tree.key if name not in tree.partition_by]
    partitions = untouched.groupBy(*[text.alias(name) for name, text in texts.items()]).agg(F.count(F.lit(1)), *one)
    example = {
        path_of_texts(snapshot.table, tuple(row[name] for name in texts)): row.asDict() for row in partitions.collect()
    }
    return "; ".join(
        f"{', '.join(f'{name}={row[name]!r}' for name in tree.key if name in row)} in {path!r}"
        for path, row in sorted((path, row) for path, row in example.items() if path not in replaced)[:3]
    )


def _losing(
    snapshot: Snapshot, tree: Tree, rows: DataFrame, elsewhere: DataFrame, targets: PartitionTargets
) -> DataFrame:
    """Return record keys of the batch whose row in another partition has a higher ordering; null is the lowest."""
    assert tree.ordering is not None
    paths = {target.path for target in targets.targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    stored = scan(snapshot, tree, groups, list(dict.fromkeys([*tree.identity, tree.ordering])))
    stored = with_keys(stored, elsewhere, tree, tree.identity)
    # A tombstone without an ordering removes the row, whatever that holds.
    ordered = F.col(DELETED).isNull() | column(tree.ordering).isNotNull() if DELETED in rows.columns else F.lit(True)
    batch = rows.where(ordered)
    names = {name: f"__index_k_{name}" for name in tree.key}
    old = stored.select(*[column(n).alias(r) for n, r in names.items()], column(tree.ordering).alias("__index_old"))
    new = column(tree.ordering)
    higher = F.col("__index_old").isNotNull() & (new.isNull() | (F.col("__index_old") > new))
    joined = batch.join(old, same_key(batch, old, tree, tree.key, "__index_k_"))
    return joined.where(higher).select(*map(column, tree.key))


def existing_rows(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Return, of rows named by partition columns and record key, those that exist: an index may name one that did."""
    values = [tuple(row) for row in located.select(*value_texts(tree).values()).distinct().collect()]
    paths = {target.path for target in targets_for(snapshot, values).targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    return with_keys(scan(snapshot, tree, groups, tree.tombstone_columns), located, tree, tree.tombstone_columns)


def tombstones(keys: DataFrame, tree: Tree) -> DataFrame:
    """Return tombstones for rows named by partition columns and record key; all other columns are null.

    But for the column that orders rows, where they are merged by it and the keys have it.
    """
    held = {*tree.tombstone_columns, *(ordering_of(tree) if tree.ordering in keys.columns else ())}
    return keys.select(
        *[
            column(name) if name in held else F.lit(None).cast(tree.field(name).dataType).alias(name)
            for name in tree.given
        ],
        F.lit(True).alias(DELETED),
    )


def ordering_of(tree: Tree) -> tuple[str, ...]:
    """Return the column that orders rows and deletes across commits; none where the order of commits does.

    A column that names rows orders no deletes: a row and its delete have one value in it.
    """
    if tree.ordering is None or tree.merge_by != "ordering" or tree.ordering in tree.identity:
        return ()
    return (tree.ordering,)


def _partition_columns(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Return record keys with the columns of their partition, from record keys with its path."""
    if not tree.partition_by:
        return located.select(*map(column, tree.tombstone_columns))
    names = list(value_texts(tree))
    known = inline(
        snapshot.spark,
        [(path, *entry.values) for path, entry in snapshot.state.partitions.items()],
        ", ".join(["__index_path string", *(f"{name} string" for name in names)]),
    )
    # A record key column may be a partition column too; the partition's own value is the one that counts.
    others = [column(name) for name in tree.tombstone_columns if name not in tree.partition_by]
    joined = located.join(F.broadcast(known), F.col(PARTITION) == F.col("__index_path"))
    values = [F.col(text).cast(tree.field(name).dataType).alias(name)
              for text, name in zip(names, tree.partition_by, strict=True)]  # fmt: skip
    return joined.select(*values, *others)


# --- Where the keys of a staged upsert live -------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyLocations:
    """The keys of staged files, as far as they are located.

    :param before: their rows as they were in the file groups that the files go into; ``None`` if there were none, or
        no index needs them.
    :param located: partition columns and record key of all keys that live anywhere; ``None`` if ``settled``, or if none
        does.
    :param settled: whether every key lives in the partition that it was written into.
    :param relocated: the rows that leave another partition.
    :param counts: how many rows of ``before`` each file group has, where that is known.
    """

    before: DataFrame | None
    located: DataFrame | None
    settled: bool
    relocated: RelocatedRows
    counts: Mapping[GroupKey, int] | None = None


@dataclass(frozen=True)
class _IndexedKeys:
    """The keys without a row in the touched file groups, as the index locates them.

    :param located: those that live anywhere. :param staying: how many live where they were written into.
    :param elsewhere: those that live in another partition. :param vacated: the values of these partitions.
    """

    located: DataFrame | None = None
    staying: int = 0
    elsewhere: DataFrame | None = None
    vacated: Sequence[tuple[str | None, ...]] = ()


def locate_staged(
    attempt: Attempt, tree: Tree, plan: UpsertPlan, staged: Sequence[AddFile], hold: Hold
) -> KeyLocations:
    """Return where the keys of staged files live.

    :param hold: keeps a frame that is read more than once.
    """
    snapshot = attempt.snapshot
    count = sum(action.rows for action in staged)
    touched = touched_groups(snapshot, staged)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    before, existed, others, counts = None, 0, keys, None
    if touched and plan.reads_old_rows:
        attempt.phase("read the old values")
        names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
        to_count = list(dict.fromkeys([*names, GROUP_ID]))
        rows, counts = counted_rows_of_staged(snapshot, tree, plan, staged, touched, to_count)
        rows = hold(rows)
        counts = _counted(tree, snapshot.table, rows) if counts is None else counts
        before, existed = rows.select(*map(column, names)), sum(counts.values())
        if 0 < existed < count:
            others = with_keys(keys, before, tree, tree.identity, existed, without=True)
    indexed = _IndexedKeys()
    if existed < count and snapshot.state.partitions:
        attempt.phase("find the keys")
        looked_up = _look_up(attempt, tree, others) if plan.looks_up(count - existed) else None
        indexed = looked_up or _join(attempt, tree, plan, hold(others) if existed else others, count - existed, hold)
    settled = existed + indexed.staying == count and not any(action.tombstones for action in staged)
    parts = [] if before is None else [before.select(*map(column, tree.identity))]
    parts += [] if indexed.located is None else [indexed.located]
    located = None if settled or not parts else reduce(DataFrame.unionByName, parts)
    targets = targets_for(snapshot, indexed.vacated)
    targets = targets.only({target.path for target in targets.targets} - targets.new)
    relocated = RelocatedRows(keys)
    if indexed.elsewhere is not None and targets.targets:
        relocated = RelocatedRows(keys, tombstones(indexed.elsewhere, tree), targets)
    return KeyLocations(before if existed else None, located, settled, relocated, counts)


def _counted(tree: Tree, table: TableDefinition, rows: DataFrame) -> dict[GroupKey, int]:
    """Return how many of the rows each file group has."""
    texts = value_texts(tree)
    groups = rows.groupBy(*[text.alias(name) for name, text in texts.items()], GROUP_ID).count().collect()
    return {(path_of_texts(table, tuple(row)[: len(texts)]), row[GROUP_ID]): row["count"] for row in groups}


def _look_up(attempt: Attempt, tree: Tree, rows: DataFrame) -> _IndexedKeys | None:
    """Return where the index, read by the driver, locates the keys of rows; ``None`` if it declines."""
    snapshot = attempt.snapshot
    entries = entries_of(attempt, tree, to_arrow(with_texts(tree, rows)))
    if entries is None:
        return None
    elsewhere = entries.filter(is_elsewhere(entries))
    known = snapshot.state.partitions
    paths = set(elsewhere.column(PARTITION).to_pylist())
    vacated = sorted((known[path].values for path in paths if path in known), key=repr)
    staying = len(entries) - len(elsewhere)
    return _IndexedKeys(_located_at(snapshot, tree, entries), staying, _located_at(snapshot, tree, elsewhere), vacated)


def _join(attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, count: int, hold: Hold) -> _IndexedKeys:
    """Return where the keys of rows live, by a join of Spark's with the entries of the index."""
    located = hold(locate_keys(attempt, tree, rows, count, broadcast=plan.broadcasts(count)))
    elsewhere = hold(with_keys(located, rows, tree, tree.identity, count, without=True))
    vacated = [tuple(row) for row in elsewhere.groupBy(*value_texts(tree).values()).count().collect()]
    staying = located.count() - sum(row[-1] for row in vacated)
    return _IndexedKeys(located, staying, elsewhere if vacated else None, [row[:-1] for row in vacated])


def changes_by(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    vacated: Sequence[AddFile],
    locations: KeyLocations,
    hold: Hold,
) -> Changes:
    """Return what an upsert does to the rows of its keys, from what is known of them.

    :param vacated: the tombstones for partitions that are left.
    """
    names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
    before, counts = locations.before, locations.counts
    if vacated and plan.reads_old_rows:
        leaving = changes_of(snapshot, tree, plan, vacated)
        if leaving.before is not None:
            moved = hold(leaving.before)
            before = moved if before is None else before.unionByName(moved)
        counts = None if counts is None or leaving.counts is None else {**leaving.counts, **counts}
    groups = frozenset((action.partition, action.group) for action in (*staged, *vacated))
    after = _rows_staged(snapshot, tree, plan, staged, names)
    return Changes(before, after, groups, located=locations.located, settled=locations.settled, counts=counts)
