"""Keeps indexes in step with the rows: each index kept with the data stages its part of the commit that changes them.

The old values come from the touched file groups, as columns, by a join with the keys that were just staged. What is
joined are the staged files and not the caller's frame, so a batch is never computed twice and cannot differ from
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame

from spark_apps.actions.replaced_rows import rows_in, rows_of_staged, touched_groups, with_staged
from spark_apps.actions.template import Attempt, StagedChanges
from spark_apps.actions.upsert_plan import UpsertPlan, kept
from spark_apps.indexes.handler import Changes, IndexContext, IndexWork
from spark_apps.indexes.registry import available, find
from spark_apps.mergetree.spark_utils import cached
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.timeline.conflicts import ByKeys, KeysConflict
from spark_apps.timeline.model import AddFile, Commit, Scope, group_scope
from spark_apps.timeline.state import IndexEntry

_AT_ONCE = 4


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
