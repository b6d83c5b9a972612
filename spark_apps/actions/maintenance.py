"""Keeps indexes in step with the rows: tells each index kept with the data what a commit changes, and takes
its part of it.

The old values come from the touched file groups, as columns, by a join with the keys that were just staged;
the staged files, not the caller's frame, are what is joined, so a batch is never computed again and cannot
differ from itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.actions.searching import by_group, rows_with_keys, searchable
from spark_apps.actions.template import Attempt, Work
from spark_apps.indexes.handler import Changes, IndexContext, IndexWork
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.read import read_files, scan_keys
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.timeline.conflicts import KeysConflict
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.keys import ByKeys
from spark_apps.timeline.model import AddFile, Commit, Scope, group_scope
from spark_apps.timeline.state import IndexEntry, State

_AT_ONCE = 4


def kept(state: State) -> list[IndexEntry]:
    """The indexes that change in the same commit as the rows. One whose code is not here lags behind
    instead."""
    from spark_apps.indexes.registry import available

    active = [entry for entry in state.indexes.values() if entry.active and not entry.definition.deferred]
    handlers = {entry.definition.kind: available(entry.definition.kind) for entry in active}
    return [entry for entry in active if (handler := handlers[entry.definition.kind]) is not None and handler.maintains]


def as_files(snapshot: Snapshot, staged: Iterable[AddFile]) -> list[DataFile]:
    """Staged files as a reader takes them: above everything that the snapshot holds."""
    return [DataFile.of(action, snapshot.state.version + 1) for action in staged]


def touched_groups(snapshot: Snapshot, staged: Iterable[AddFile]) -> dict[GroupKey, list[DataFile]]:
    """The file groups of the snapshot that staged files fall into."""
    return snapshot.groups(only=((action.partition, action.group) for action in staged))


def with_staged(
    snapshot: Snapshot, groups: Mapping[GroupKey, Sequence[DataFile]], staged: Iterable[AddFile]
) -> dict[GroupKey, list[DataFile]]:
    """File groups as they will be once the staged files are committed."""
    merged = {key: list(files) for key, files in groups.items()}
    for file in as_files(snapshot, staged):
        merged.setdefault(file.group_key, []).append(file)
    return merged


def changes_of(snapshot: Snapshot, tree: Tree, staged: Sequence[AddFile], columns: Sequence[str]) -> Changes:
    """What staged deltas do to the rows of their keys: partition columns, record key and ``columns``."""
    names = list(dict.fromkeys([*tree.place, *columns]))
    files = as_files(snapshot, staged)
    touched = touched_groups(snapshot, staged)
    before = rows_of_staged(snapshot, tree, staged, touched, names) if touched else None
    if tree.merge_by == "ordering" and touched and any(file.rows > file.tombstones for file in files):
        # Which of old and new row stands is decided by the merge.
        after: DataFrame | None = rows_of_staged(snapshot, tree, staged, with_staged(snapshot, touched, staged), names)
    else:
        after = rows_in(snapshot, tree, staged, names)
    return Changes(before, after, frozenset((file.partition, file.group) for file in files))


def rows_in(snapshot: Snapshot, tree: Tree, staged: Sequence[AddFile], names: Sequence[str]) -> DataFrame | None:
    """The rows that staged files hold; ``None`` if they hold tombstones only."""
    files = as_files(snapshot, [action for action in staged if action.rows > action.tombstones])
    if not files:
        return None
    return read_files(snapshot, tree, files, names, flag=True).where(F.col(DELETED).isNull()).drop(DELETED)


def rows_of_staged(
    snapshot: Snapshot,
    tree: Tree,
    staged: Sequence[AddFile],
    groups: Mapping[GroupKey, Sequence[DataFile]],
    columns: Sequence[str],
) -> DataFrame:
    """The rows of file groups that have a key of the staged files."""
    files = [file for file in as_files(snapshot, staged) if file.group_key in groups]
    if searchable(snapshot, tree, files, columns):
        return rows_with_keys(snapshot, tree, groups, by_group(files), columns)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.place)
    return scan_keys(snapshot, tree, groups, columns, keys, tree.place, sum(a.rows for a in staged))


def wanted_columns(snapshot: Snapshot) -> list[str]:
    """The columns that any kept index needs to see of a changed row."""
    from spark_apps.indexes.registry import find

    names: dict[str, None] = {}
    for entry in kept(snapshot.state):
        names.update(dict.fromkeys(find(entry.definition.kind).reads(snapshot.table, entry.definition)))
    return list(names)


def needs_rows(state: State) -> bool:
    """Whether any kept index needs to see the rows that an upsert replaces."""
    from spark_apps.indexes.registry import find

    entries = kept(state)
    return any(find(entry.definition.kind).needs_rows(state.table, entry.definition) for entry in entries)


def maintain(attempt: Attempt, changes: Changes, work: Work, *, held_already: bool = False) -> None:
    """Adds to ``work`` what the change of rows means for every index kept with the data.

    :param held_already: ``changes.before`` is kept by Spark, or nobody reads it.
    """
    from spark_apps.indexes.registry import find

    entries = kept(attempt.snapshot.state)
    if not entries:
        return
    conflicts: dict[str, KeysConflict] = {}
    attempt.phase("indexes " + ", ".join(entry.definition.name for entry in entries))
    with ExitStack() as held:
        if changes.before is not None and len(entries) > 1 and not held_already:
            changes = replace(changes, before=held.enter_context(cached(changes.before)))

        def part_of(entry: IndexEntry) -> IndexWork:
            folder = attempt.index_folder(entry.definition.name, "maintain")
            context = IndexContext(attempt.snapshot, entry.definition, folder)
            return find(entry.definition.kind).maintain(context, changes)

        # Most of a small job is waiting for Spark to plan it.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
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
    # The old values were read: nobody may change them until the commit.
    work.reads.extend(group_scope(*group) for group in changes.groups)
    if conflicts:
        work.keys_conflict = _by_tree(conflicts)


def drop_from_indexes(attempt: Attempt, partitions: Sequence[str], work: Work) -> None:
    """Adds to ``work`` what goes with dropped partitions of indexes that are not told of single rows."""
    from spark_apps.indexes.registry import available

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
    def conflict(scope: Scope, theirs: Commit) -> bool:
        own = conflicts.get(scope.name or "")
        return own is not None and own(scope, theirs)

    told = [own.columns for own in conflicts.values() if isinstance(own, ByKeys)]
    if len(told) < len(conflicts):
        return conflict
    return ByKeys({tree: names for columns in told for tree, names in columns.items()}, conflict)
