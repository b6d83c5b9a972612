"""Writes rows: upsert, insert, delete; the overwriting of partitions is in :mod:`spark_apps.actions.overwrite`.

All three stage deltas (rows or tombstones) into the file groups that the batch's keys belong to, and touch no other.
With ``copy_on_write`` the touched groups are then written anew from what they held and the staged deltas, in the same
commit. The plan decides how the replaced rows are found (:mod:`spark_apps.actions.upsert_plan`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, ClassVar

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.kept_indexes import changes_of, maintain
from spark_apps.actions.key_location import (
    RelocatedRows,
    changes_by,
    existing_rows,
    keep_unique,
    locate,
    locate_staged,
    moves_of,
    tombstones,
)
from spark_apps.actions.partition_targets import PartitionTargets, existing, spread, with_groups
from spark_apps.actions.replaced_rows import rows_of_staged, touched_groups, with_positions, with_staged
from spark_apps.actions.template import Action, Attempt, StagedChanges
from spark_apps.actions.upsert_plan import Given, UpsertPlan, keys_are_located, log_plan, plan_upsert
from spark_apps.indexes.handler import Changes
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import column, conform_batch
from spark_apps.mergetree.spark_utils import cached
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.mergetree.write import one_per_key, partition_counts, stage_rows, translate_spark_errors
from spark_apps.query.planning import parse_for_session
from spark_apps.query.predicates import check_predicate, of_whole_rows
from spark_apps.storage.errors import InvalidSchema, KeysExist, UnknownColumn
from spark_apps.timeline.model import NEW_KEYS, AddFile, RemoveFile, Write, group_scope
from spark_apps.timeline.operations import DELETE, INSERT, UPSERT, Operation

Counts = Mapping[tuple[str | None, ...], int]
"""Values of the partition columns, as text, and how many rows have them."""

_EXAMPLES = 3


@dataclass(frozen=True)
class Staged:
    """Staged deltas, the partitions that they are of, the plan that they follow, and what is known of their rows."""

    files: list[AddFile]
    targets: PartitionTargets
    plan: UpsertPlan
    changes: Changes | None = None


class WriteRows(Action):
    """The common part of upsert, insert and delete."""

    staging = "rows"

    stage_first: ClassVar[bool] = False
    """Whether rows may be staged before it is known where their keys live."""

    @property
    def relies_on_keys(self) -> bool:
        """True if other rows change where keys are unique in the table than where they are in their partitions."""
        return True

    def plan(self, attempt: Attempt, rows: int | None, given: Given) -> UpsertPlan:
        """Return how the rows that are replaced are found, and log it.

        :param rows: of the batch, if they are counted.
        """
        plan = plan_upsert(
            attempt.snapshot, rows, attempt.limits,
            operation=self.operation.name, given=given, stage_first=self.stage_first,
        )  # fmt: skip
        return log_plan(attempt, plan)

    @abstractmethod
    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        """Stage deltas of the table's own tree, into the attempt's folder ``rows``.

        :param frames: keeps frames until the indexes have followed.
        """

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with ExitStack() as frames:
            return self._work(attempt, attempt.snapshot.data, frames)

    def _work(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> StagedChanges | None:
        with translate_spark_errors():
            result = self.stage(attempt, tree, frames)
        staged, targets, plan = result.files, result.targets, result.plan
        if not staged:
            return None
        work = StagedChanges(reads=targets.reads, metrics=written(staged))
        self.check(attempt, tree, result, work)
        targets = targets.only(action.partition for action in staged)
        work.metrics["new_partitions"] = len(targets.new)
        work.actions.extend(targets.puts)
        if plan.rewrites:
            _rewrite(attempt, tree, staged, targets, work)
        else:
            work.actions.extend(with_positions(attempt, tree, plan, staged))
            work.writes.extend(Write(group_scope(a.partition, a.group), "append") for a in staged)
        keep_unique(attempt, tree, staged, work, relies=self.relies_on_keys)
        if plan.indexes:
            changes = result.changes or changes_of(attempt.snapshot, tree, plan, staged)
            maintain(attempt, changes, work, held_already=result.changes is not None)
        return work

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        """Check what must hold of the staged rows before they may be committed."""
        return None


class Upsert(WriteRows):
    """Rows replace those of their key; new keys are added.

    :param deleted: a boolean column of the batch that the table does not have: where it is true, the row of
        that key is deleted instead.
    """

    operation: ClassVar[Operation] = UPSERT
    stage_first = True

    def __init__(self, rows: DataFrame, deleted: str | None = None) -> None:
        self.rows = rows
        self.deleted = deleted

    def validate(self, snapshot: Snapshot) -> None:
        self._conformed(snapshot.data)

    def _conformed(self, tree: Tree) -> DataFrame:
        if self.deleted is None:
            return conform_batch(self.rows, tree.schema)
        if self.deleted not in self.rows.columns or self.deleted in tree.columns:
            raise UnknownColumn(
                f"{self.deleted!r} is to tell which rows are deleted, but the batch lacks it or the table has it.",
                hint="Give a boolean column of the batch alone.",
            )
        if not isinstance(self.rows.schema[self.deleted].dataType, T.BooleanType):
            raise InvalidSchema(
                f"The column {self.deleted!r}, which is to tell what is deleted, is "
                f"{self.rows.schema[self.deleted].dataType.simpleString()} and not boolean.",
                hint="Give a condition, such as withColumn('deleted', col('op') == 'D').",
            )
        marked = self.rows.withColumnRenamed(self.deleted, DELETED)
        with_mark = T.StructType([*tree.schema.fields, T.StructField(DELETED, T.BooleanType())])
        # Only a true is a tombstone; a false would be one more value to tell apart wherever rows are read.
        return conform_batch(marked, with_mark).withColumn(DELETED, F.when(F.col(DELETED), F.lit(True)))

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        rows = self._conformed(tree)
        with ExitStack() as batch:
            if keys_are_located(attempt.snapshot):
                # Keys are unique in the table, so the batch is reduced over all partitions.
                rows = held_by(batch, one_per_key(rows, tree, tree.key))
            counts = _counts(attempt, tree, rows)
            plan = self.plan(attempt, sum(counts.values()) if tree.partition_by else None, "rows")
            if plan.order == "stage":
                return Staged(*self._stage(attempt, tree, rows, counts), plan)
            if plan.order == "stage, locate":
                staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
                return self._located(attempt, tree, plan, staged, targets, frames)
            moves = self.moves(attempt, tree, plan, rows, batch)
            rows = moves.rows
            if tree.by_id:
                rows = with_groups(attempt.snapshot, tree, rows, moves.located, lambda frame: held_by(batch, frame))
            staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
            vacated = stage_leaving(attempt, tree, moves)
        return Staged([*staged, *vacated], targets.with_more(moves.targets), plan)

    def _located(
        self,
        attempt: Attempt,
        tree: Tree,
        plan: UpsertPlan,
        staged: list[AddFile],
        targets: PartitionTargets,
        frames: ExitStack,
    ) -> Staged:
        """Return staged rows with tombstones where their keys lived, which is looked for now."""

        def hold(frame: DataFrame) -> DataFrame:
            return held_by(frames, frame)

        if not staged:
            return Staged([], targets, plan)
        locations = locate_staged(attempt, tree, plan, staged, hold)
        vacated = stage_leaving(attempt, tree, locations.moves)
        changes = changes_by(attempt.snapshot, tree, plan, staged, vacated, locations, hold)
        return Staged([*staged, *vacated], targets.with_more(locations.moves.targets), plan, changes)

    def moves(
        self, attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, frames: ExitStack
    ) -> RelocatedRows:
        """Return which rows of the batch leave another partition."""
        return moves_of(attempt, tree, plan, rows, lambda frame: held_by(frames, frame))

    def _stage(
        self, attempt: Attempt, tree: Tree, rows: DataFrame, counts: Counts, reduced: bool = False
    ) -> tuple[list[AddFile], PartitionTargets]:
        """Stage rows that are, at the most, as many of each partition as ``counts`` holds."""
        targets = spread(attempt.snapshot, counts)
        attempt.phase("write the rows")
        store, folder, count = attempt.snapshot.store, attempt.folder("rows"), sum(counts.values())
        return stage_rows(store, tree, rows, folder, targets.targets, one_per_key=not reduced, expected=count), targets


def _counts(attempt: Attempt, tree: Tree, rows: DataFrame) -> Counts:
    attempt.phase("find the partitions")
    return partition_counts(rows, tree)


def held_by(frames: ExitStack, frame: DataFrame) -> DataFrame:
    """Return the frame, kept by Spark until the stack is left."""
    return frames.enter_context(cached(frame))


def stage_leaving(attempt: Attempt, tree: Tree, moves: RelocatedRows) -> list[AddFile]:
    """Stage tombstones for moved rows in the partitions that they leave, in file groups that exist."""
    if moves.leaving is None:
        return []
    attempt.phase("write the tombstones of moved rows")
    return stage_tombstones(attempt, tree, moves.leaving, "left", moves.targets)


def stage_tombstones(
    attempt: Attempt, tree: Tree, rows: DataFrame, folder: str, targets: PartitionTargets
) -> list[AddFile]:
    """Stage tombstones in a folder of the attempt; those for file groups that do not exist are left out."""
    snapshot = attempt.snapshot
    staged = stage_rows(snapshot.store, tree, rows, attempt.folder(folder), targets.targets, unknown="drop")
    groups = touched_groups(snapshot, staged)
    return [action for action in staged if (action.partition, action.group) in groups]


class Insert(Upsert):
    """New rows; keys that the table holds (with a ``record`` index in any partition, else in theirs) are refused."""

    operation: ClassVar[Operation] = INSERT
    stage_first = False

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        result = super().stage(attempt, tree, frames)
        files = [replace(action, extra={**(action.extra or {}), NEW_KEYS: True}) for action in result.files]
        return replaced(result, files=files)

    def moves(
        self, attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, frames: ExitStack
    ) -> RelocatedRows:
        _refuse(existing_rows(attempt.snapshot, tree, held_by(frames, locate(attempt, tree, rows))), tree)
        return RelocatedRows(rows)

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        staged, touched = result.files, touched_groups(attempt.snapshot, result.files)
        work.reads.extend(group_scope(a.partition, a.group) for a in staged)
        if touched:
            attempt.phase("look for keys that exist")
            _refuse(rows_of_staged(attempt.snapshot, tree, result.plan, staged, touched, tree.identity), tree)


def _refuse(rows: DataFrame, tree: Tree) -> None:
    """Refuse rows that exist.

    :raises KeysExist: with examples, if there is any.
    """
    examples = [
        ", ".join(f"{name}={value!r}" for name, value in row.asDict().items())
        for row in rows.select(*map(column, tree.identity)).limit(_EXAMPLES).collect()
    ]
    if examples:
        raise KeysExist(
            f"The batch holds keys that the table has already, such as ({'), ('.join(examples)}).",
            hint="Use upsert to replace those rows, or take them out of the batch.",
        )


class Delete(WriteRows):
    """Tombstones for rows given by key, or for those that a SQL predicate matches.

    Rows are named by their record key; where the batch has the partition columns too, and no ``record`` index
    makes keys unique in the whole table, only in those partitions.
    """

    operation: ClassVar[Operation] = DELETE

    def __init__(self, rows: DataFrame | str) -> None:
        self.rows = rows

    @property
    def relies_on_keys(self) -> bool:
        return not isinstance(self.rows, str)  # whose predicate names the rows themselves

    def validate(self, snapshot: Snapshot) -> None:
        if isinstance(self.rows, str):
            check_predicate(snapshot, self.rows)
        else:
            conform_batch(self.rows, snapshot.data.schema, only=snapshot.table.record_key)

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        plan, targets = self.plan(attempt, None, self._given(attempt.snapshot, tree)), existing(attempt.snapshot)
        if not targets.targets:
            return Staged([], targets, plan)
        attempt.phase("write the tombstones")
        keys = self._keys(attempt, tree, plan)
        return Staged(stage_tombstones(attempt, tree, tombstones(keys, tree), "rows", targets), targets, plan)

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        if isinstance(self.rows, str):
            # What the predicate saw in these groups must still be so when the tombstones are published.
            work.reads.extend(group_scope(a.partition, a.group) for a in result.files)

    def _given(self, snapshot: Snapshot, tree: Tree) -> Given:
        """Return what names the rows that go."""
        if isinstance(self.rows, str):
            # A predicate on whole rows must not see the column with a row's file group, which is then located.
            return "keys" if tree.by_id and of_whole_rows(parse_for_session(snapshot, self.rows)) else "matches"
        names = {name.lower() for name in self.rows.columns}
        return "rows" if all(name.lower() in names for name in tree.identity) else "keys"

    def _keys(self, attempt: Attempt, tree: Tree, plan: UpsertPlan) -> DataFrame:
        """Return the rows that go, by the columns that name them."""
        snapshot = attempt.snapshot
        if isinstance(self.rows, str):
            matching = scan(snapshot, tree, snapshot.groups(), tree.columns if plan.locates else tree.given)
            matching = matching.where(self.rows)
            return (
                locate(attempt, tree, matching)
                if plan.locates
                else matching.select(*map(column, tree.tombstone_columns))
            )
        if plan.locates:
            return locate(attempt, tree, conform_batch(self.rows, tree.schema, only=tree.key).distinct())
        return conform_batch(self.rows, tree.schema, only=tree.identity)


def _rewrite(
    attempt: Attempt, tree: Tree, staged: Sequence[AddFile], targets: PartitionTargets, work: StagedChanges
) -> None:
    """Write the touched file groups anew, with the staged deltas folded in."""
    snapshot = attempt.snapshot
    touched = touched_groups(snapshot, staged)
    work.writes.extend(Write(group_scope(a.partition, a.group), "replace") for a in staged)
    work.reads.extend(group_scope(*key) for key in touched)
    # A group that held nothing is as good as rewritten: one file, and no tombstone in it.
    work.actions.extend(a for a in staged if (a.partition, a.group) not in touched)
    if not touched:
        return
    attempt.phase("write the touched file groups anew")
    over = [action for action in staged if (action.partition, action.group) in touched]
    rows = scan(snapshot, tree, with_staged(snapshot, touched, over), tree.given)
    paths = targets.only(partition for partition, _ in touched).targets
    folder = attempt.folder("rewritten")
    bases = stage_rows(snapshot.store, tree, rows, folder, paths, kind="base", one_per_key=False)
    work.actions.extend(RemoveFile(tree.name, file.path) for files in touched.values() for file in files)
    work.actions.extend(bases)
    work.metrics["rewritten_files"] = len(bases)
    work.metrics["rewritten_bytes"] = sum(base.bytes for base in bases)


def written(staged: Sequence[AddFile]) -> dict[str, Any]:
    """Return the figures of staged files for a receipt."""
    return {
        "rows": sum(action.rows - action.tombstones for action in staged),
        "tombstones": sum(action.tombstones for action in staged),
        "files": len(staged),
        "bytes": sum(action.bytes for action in staged),
        "partitions": len({action.partition for action in staged}),
    }
