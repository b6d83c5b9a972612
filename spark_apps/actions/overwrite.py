"""Overwrites and drops partitions, and drops the table.

A partition's rows are replaced as a whole, in one commit, with its bucket count kept; so such a commit waits
for nothing and conflicts with every other write to the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import ClassVar

from pyspark.sql import DataFrame

from spark_apps.actions.kept_indexes import changes_of, drop_from_indexes, maintain
from spark_apps.actions.key_location import keep_unique, moves_of
from spark_apps.actions.partition_targets import PartitionTargets, path_of, spread, with_groups
from spark_apps.actions.replaced_rows import as_files
from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle
from spark_apps.actions.upsert_plan import UpsertPlan, keys_are_located, log_plan, plan_upsert
from spark_apps.actions.write import held_by, stage_leaving, written
from spark_apps.indexes.handler import Changes
from spark_apps.mergetree.read import read_files, scan
from spark_apps.mergetree.schema import column, conform_batch
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write import one_per_key, partition_counts, stage_rows, translate_spark_errors
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, merge_order
from spark_apps.timeline.model import (
    AddFile,
    DropPartition,
    DropTable,
    Receipt,
    RemoveFile,
    Write,
    group_scope,
    partition_scope,
    table_scope,
)
from spark_apps.timeline.operations import DROP_PARTITION, DROP_TABLE, INSERT_OVERWRITE, Operation

logger = logging.getLogger(__name__)


class InsertOverwrite(Action):
    """Replacement of all rows of some partitions by those of the batch.

    :param partitions: paths; one without rows in the batch becomes empty. A row of another partition is
        refused.
    """

    operation: ClassVar[Operation] = INSERT_OVERWRITE

    staging = "rows"

    def __init__(self, rows: DataFrame, partitions: Iterable[str] | None = None) -> None:
        self.rows = rows
        self.partitions = None if partitions is None else list(partitions)

    def validate(self, snapshot: Snapshot) -> None:
        conform_batch(self.rows, snapshot.data.schema)
        if self.partitions is not None and not self.partitions:
            raise InvalidInput(
                "No partition was named to overwrite.", hint="Name some, or leave it out for those in the input."
            )
        self.confined_to(snapshot.table)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        rows, paths = conform_batch(self.rows, tree.schema), attempt.partitions
        with translate_spark_errors(), ExitStack() as frames:
            if keys_are_located(snapshot):
                rows = held_by(frames, one_per_key(rows, tree, tree.key))
            attempt.phase("find the partitions")
            counts = partition_counts(rows, tree)
            targets = _targets(snapshot, counts, paths)
            plan = plan_upsert(
                snapshot, sum(counts.values()) if tree.partition_by else None, attempt.limits,
                operation=self.operation.name, given="partitions",
            )  # fmt: skip
            log_plan(attempt, plan)
            attempt.phase("write the rows")
            if tree.by_id:
                rows = with_groups(snapshot, tree, rows, None, lambda frame: held_by(frames, frame), fresh=True)
            staged = stage_rows(snapshot.store, tree, rows, attempt.folder("rows"), targets.targets, kind="base")
            replaced = paths or sorted({action.partition for action in staged})
            vacated = []
            if plan.locates and staged:
                moves = moves_of(attempt, tree, plan, rows, lambda frame: held_by(frames, frame), replaced)
                vacated = stage_leaving(attempt, tree, moves)
        return _overwriting(attempt, plan, staged, vacated, replaced, targets)


def _targets(
    snapshot: Snapshot, values: Collection[tuple[str | None, ...]], paths: Sequence[str] | None
) -> PartitionTargets:
    """Return the partitions of a batch. :raises InvalidInput: if one is not among those to overwrite."""
    if paths is not None:
        stray = [path for texts in values if (path := path_of(snapshot.table, texts)) not in paths]
        if snapshot.table.partition_by and stray:
            raise InvalidInput(
                f"The input holds rows of {stray[0]!r}, which is not among the partitions to overwrite.",
                hint="Take those rows out, or name their partition too.",
            )
    return spread(snapshot, values)


def _overwriting(
    attempt: Attempt,
    plan: UpsertPlan,
    staged: list[AddFile],
    vacated: list[AddFile],
    replaced: Sequence[str],
    targets: PartitionTargets,
) -> StagedChanges | None:
    """Return the changes of a commit by which partitions hold the staged rows and no others."""
    snapshot, tree = attempt.snapshot, attempt.snapshot.data
    old = [file for path in replaced for file in snapshot.state.files(tree.name, path)]
    if not staged and not old:
        return None
    targets = targets.only(action.partition for action in staged)
    work = StagedChanges(reads=targets.reads, metrics={**written(staged), "replaced_files": len(old)})
    # A partition that others only lose rows from keeps its entry as it is.
    work.actions.extend(targets.puts)
    work.actions.extend(RemoveFile(tree.name, file.path) for file in old)
    work.actions.extend([*staged, *vacated])
    work.writes.extend(Write(partition_scope(path), "replace") for path in replaced)
    work.writes.extend(Write(group_scope(a.partition, a.group), "append") for a in vacated)
    keep_unique(attempt, tree, [*staged, *vacated], work, replaced)
    if plan.indexes:
        maintain(attempt, _replacing(snapshot, tree, plan, old, staged, vacated, replaced), work)
    return work


def _replacing(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    old: Sequence[DataFile],
    staged: Sequence[AddFile],
    vacated: Sequence[AddFile],
    replaced: Sequence[str],
) -> Changes:
    """Return the changes of a commit that removes ``old``, adds ``staged``, and takes moved rows out of others."""
    names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
    removed: list[DataFrame] = []
    if old:
        groups: dict[tuple[str, str], list[DataFile]] = {}
        for file in sorted(old, key=merge_order):
            groups.setdefault(file.group_key, []).append(file)
        removed.append(scan(snapshot, tree, groups, names))
    if vacated:
        moved = changes_of(snapshot, tree, plan, vacated).before
        if moved is not None:
            removed.append(moved)
    after = read_files(snapshot, tree, as_files(snapshot, staged), names) if staged else None
    written_groups = [(a.partition, a.group) for a in (*staged, *vacated)]
    return Changes(
        reduce(DataFrame.unionByName, removed).select(*map(column, names)) if removed else None,
        after,
        frozenset([*(file.group_key for file in old), *written_groups]),
        frozenset(replaced),
    )


class DropPartitions(Action):
    """Partitions go, with their rows and bucket counts; those that are not there are passed over."""

    operation: ClassVar[Operation] = DROP_PARTITION

    def __init__(self, paths: Iterable[str]) -> None:
        self.partitions = list(paths)

    def validate(self, snapshot: Snapshot) -> None:
        if not snapshot.table.partition_by:
            raise InvalidInput(
                "The table has no partition columns, so no partition can be dropped.",
                hint="Use delete('true') to remove all rows, or drop() to drop the table.",
            )
        self.confined_to(snapshot.table)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        paths = [path for path in attempt.partitions or () if path in snapshot.state.partitions]
        if not paths:
            return None
        old = [file for path in paths for file in snapshot.state.files(tree.name, path)]
        work = StagedChanges(
            actions=[DropPartition(path) for path in paths],
            writes=[Write(partition_scope(path), "replace") for path in paths],
            metrics={"partitions": len(paths), "files": len(old), "bytes": sum(file.bytes for file in old)},
        )
        plan = plan_upsert(snapshot, None, attempt.limits, operation=self.operation.name, given="matches")
        if old and plan.indexes:
            maintain(attempt, _replacing(snapshot, tree, plan, old, [], [], paths), work)
        drop_from_indexes(attempt, paths, work)
        return work


class Drop(Action):
    """The table goes, with all its indexes. Its files stay until they are cleaned or deleted by hand."""

    operation: ClassVar[Operation] = DROP_TABLE
    on_sources = "blind"

    def work(self, attempt: Attempt) -> StagedChanges | None:
        return StagedChanges(actions=[DropTable()], writes=[Write(table_scope(), "replace")])

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        from spark_apps.actions.indexing import left_behind

        # An index never stops its table from being dropped; all of it that lies with the table goes anyway.
        for error in left_behind(handle, receipt):
            logger.warning("What an index keeps outside of the table was not removed: %s", error)
