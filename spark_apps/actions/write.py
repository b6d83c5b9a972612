"""Writes rows: upsert, insert, delete, and the overwriting and dropping of partitions; drops the table.

The first three stage deltas (rows or tombstones) into the file groups that the batch's keys belong to, and touch no
other. With ``copy_on_write`` the touched groups are then written anew from what they held and the staged deltas, in the
same commit. The plan decides how the replaced rows are found (:mod:`spark_apps.actions.upsert_plan`).

An overwritten partition's rows are replaced as a whole, in one commit, with its bucket count kept; so such a commit
waits for nothing and conflicts with every other write to the partition.

The transaction of a streaming query's micro-batch is named after the id that the checkpoint keeps for its query, and
the batch's number. Spark runs a batch again whose end it has not noted, with the same rows; so the commit of an earlier
try is found in the table's log, and nothing is written twice.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.key_location import (
    RelocatedRows,
    as_files,
    changes_by,
    changes_of,
    drop_from_indexes,
    existing_rows,
    keep_unique,
    locate_keys,
    locate_staged,
    maintain,
    maintained_by_rows,
    ordering_of,
    paths_of,
    relocated_rows,
    rows_of_staged,
    tombstones,
    touched_groups,
    with_counts,
    with_positions,
    with_staged,
)
from spark_apps.actions.late_rows import guard_of_late, is_timely, kept_in, timely_rows, with_orderings_of_rows
from spark_apps.actions.limits import MAX_BATCH_TRIES
from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle
from spark_apps.actions.upsert_on_driver import collect_few, has_each_key_once, stage_few, takes_few_rows
from spark_apps.actions.upsert_plan import (
    Given,
    PartitionTargets,
    UpsertPlan,
    existing_targets,
    keys_are_located,
    log_plan,
    plan_upsert,
    targets_for,
    unique_index,
    with_groups,
)
from spark_apps.engine.pyspark_names import spark_errors
from spark_apps.engine.spark_utils import cached, remembered_settings
from spark_apps.engine.spark_versions import from_arrow
from spark_apps.indexes.handler import ChangedRows, Changes, IndexContext
from spark_apps.indexes.registry import find
from spark_apps.layout.partitions import path_of_texts
from spark_apps.mergetree.buckets import value_texts
from spark_apps.mergetree.read import SEQUENCE_NUMBER, kept_tombstones, read_files, same_key, scan, with_keys
from spark_apps.mergetree.schema import column, conform_batch
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.mergetree.write import one_per_key, partition_counts, stage_kept, stage_rows, translate_spark_errors
from spark_apps.query.planning import parse_for_session
from spark_apps.query.predicates import check_predicate, of_whole_rows
from spark_apps.storage.errors import (
    ConcurrentWrite,
    EnvironmentMismatch,
    InvalidInput,
    InvalidSchema,
    KeysExist,
    LakeIndexError,
    UnknownColumn,
    note_done_before,
)
from spark_apps.storage.names import check_txn_id
from spark_apps.timeline.commit import Guard
from spark_apps.timeline.files import DataFile, merge_order
from spark_apps.timeline.model import (
    DATA_TREE,
    NEW_KEYS,
    AddFile,
    AnyAction,
    DropPartition,
    DropTable,
    Receipt,
    RemoveFile,
    Write,
    definition_scope,
    group_scope,
    partition_scope,
    table_scope,
)
from spark_apps.timeline.operations import (
    DELETE,
    DELETE_REPEATED_KEYS,
    DROP_PARTITION,
    DROP_TABLE,
    INSERT,
    INSERT_OVERWRITE,
    UPSERT,
    Operation,
)
from spark_apps.timeline.stages import state_with_actions
from spark_apps.timeline.state import State
from spark_apps.timeline.tombstones import mark_ordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

Counts = Mapping[tuple[str | None, ...], int]
"""Values of the partition columns, as text, and how many rows have them."""

_EXAMPLES = 3


_RANK = "__index_rank"


LATE = "late"
"""In receipts: how many rows were not written, since their key was deleted with a higher ordering."""


@dataclass(frozen=True)
class Staged:
    """Staged deltas, the partitions that they are of, the plan that they follow, and what is known of their rows."""

    files: list[AddFile]
    targets: PartitionTargets
    plan: UpsertPlan
    changes: Changes | None = None
    rows: ChangedRows | None = None
    late: int = 0
    """How many rows were left out, since their key was deleted with a higher ordering."""
    relies: bool = False
    """Whether tombstones have the ordering of rows, which must stay as they are until the commit."""


class WriteRows(Action):
    """The common part of upsert, insert and delete."""

    staging = "rows"

    stage_first: ClassVar[bool] = False
    """Whether rows may be staged before it is known where their keys live."""

    writes_rows: ClassVar[bool] = False
    """Whether there are rows among what it writes, which may be late."""

    @property
    def relies_on_keys(self) -> bool:
        """True if other rows change where keys are unique in the table than where they are in their partitions."""
        return True

    def plan(self, attempt: Attempt, rows: int | None, given: Given, *, on_driver: bool = False) -> UpsertPlan:
        """Return how the rows that are replaced are found, and log it.

        :param rows: of the batch, if they are counted. :param on_driver: whether the driver has them.
        """
        plan = plan_upsert(
            attempt.snapshot, rows, attempt.limits,
            operation=self.operation.name, given=given, stage_first=self.stage_first, on_driver=on_driver,
        )  # fmt: skip
        return log_plan(attempt.transaction.txn_id, plan)

    @abstractmethod
    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        """Stage deltas of the table's own tree, into the attempt's folder ``rows``.

        :param frames: keeps frames until the indexes have followed.
        """

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with remembered_settings(), ExitStack() as frames:
            return self._work(attempt, attempt.snapshot.data, frames)

    def _work(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> StagedChanges | None:
        with translate_spark_errors():
            result = self.stage(attempt, tree, frames)
        staged, targets, plan = result.files, result.targets, result.plan
        if not staged:
            return StagedChanges(metrics={**written(staged), LATE: result.late}, idle=True) if result.late else None
        work = StagedChanges(metrics=written(staged))
        if ordering_of(tree) and self.writes_rows:
            work.metrics[LATE] = result.late
        if result.relies:
            work.reads.extend(group_scope(action.partition, action.group) for action in staged)
        self.check(attempt, tree, result, work)
        work.reads.extend(targets.reads)
        targets = targets.only(action.partition for action in staged)
        work.metrics["new_partitions"] = len(targets.new)
        work.actions.extend(targets.puts)
        if plan.rewrites:
            _rewrite(attempt, tree, staged, targets, work)
        else:
            work.actions.extend(with_positions(attempt, tree, plan, staged))
            work.writes.extend(Write(group_scope(a.partition, a.group), "append") for a in staged)
        keep_unique(attempt, tree, staged, work, relies=self.relies_on_keys)
        if not plan.rewrites and not attempt.stage:
            work.guard = _combine_guards(work.guard, guard_of_late(attempt.snapshot.state, tree, staged))
        if plan.indexes:
            done = {} if result.rows is None else maintained_by_rows(attempt, result.rows)
            changes = result.changes
            if result.rows is not None and len(done) == len(plan.indexes):
                changes = Changes(None, None, result.rows.groups, counts=result.rows.counts)
            changes = changes or changes_of(attempt.snapshot, tree, plan, staged)
            maintain(attempt, changes, work, held_already=result.changes is not None, done=done)
            work.actions[:] = with_counts(work.actions, changes, tree)
        return work

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        """Check what must hold of the staged rows before they may be committed."""
        return None


def _combine_guards(first: Guard | None, second: Guard | None) -> Guard | None:
    """Return a check that makes both checks, of which either may be missing."""
    if first is None or second is None:
        return first or second

    def guard(head: State) -> None:
        first(head)
        second(head)

    return guard


class Upsert(WriteRows):
    """Rows replace those of their key; new keys are added.

    :param deleted: a boolean column of the batch that the table does not have: where it is true, the row of
        that key is deleted instead.
    """

    operation: ClassVar[Operation] = UPSERT
    stage_first = True
    writes_rows = True

    def __init__(self, rows: DataFrame, deleted: str | None = None) -> None:
        self.rows = rows
        self.deleted = deleted

    def validate(self, snapshot: Snapshot) -> None:
        self._conformed(snapshot)

    def _conformed(self, snapshot: Snapshot) -> DataFrame:
        tree = snapshot.data
        if self.deleted is None:
            return conform_batch(self.rows, tree.schema)
        if self.deleted not in self.rows.columns or self.deleted in tree.columns:
            raise UnknownColumn(
                f"{self.deleted!r} is to say which rows are deleted, but the batch lacks it or the table has it.",
                hint="Give a boolean column of the batch alone.",
            )
        if not isinstance(self.rows.schema[self.deleted].dataType, T.BooleanType):
            raise InvalidSchema(
                f"The column {self.deleted!r}, which is to say what is deleted, is "
                f"{self.rows.schema[self.deleted].dataType.simpleString()} and not boolean.",
                hint="Give a condition, such as withColumn('deleted', col('op') == 'D').",
            )
        marked = self.rows.withColumnRenamed(self.deleted, DELETED)
        with_mark = T.StructType([*tree.schema.fields, T.StructField(DELETED, T.BooleanType())])
        # Only true marks a tombstone: false becomes null, so that readers need not distinguish the two.
        return conform_batch(marked, with_mark).withColumn(DELETED, F.when(F.col(DELETED), F.lit(True)))

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        rows = self._conformed(attempt.snapshot)
        by_driver = self.stage_first and takes_few_rows(attempt, tree)
        with ExitStack() as batch:
            if by_driver and (few := collect_few(attempt, tree, rows)) is not None:
                if (result := self._staged_by_driver(attempt, tree, few)) is not None:
                    return result
                by_driver, rows = False, from_arrow(attempt.snapshot.spark, few.select(rows.columns), rows.schema)
            if keys_are_located(attempt.snapshot):
                # Keys are unique in the table, so the batch is reduced over all partitions.
                rows = cached_in(batch, one_per_key(rows, tree, tree.key))
            attempt.phase("find the partitions")
            counts = partition_counts(rows, tree)
            if by_driver and 0 < sum(counts.values()) <= attempt.limits.staged_rows:
                few = collect_few(attempt, tree, rows, counted=True)
                result = None if few is None else self._staged_by_driver(attempt, tree, few)
                if result is not None:
                    return result
            timely = timely_rows(attempt, tree, rows, counts, lambda frame: cached_in(batch, frame))
            rows, late, relies = timely.rows, timely.late, timely.relies
            plan = self.plan(attempt, sum(counts.values()) if tree.partition_by else None, "rows")
            if plan.order == "stage":
                staged, targets = self._stage(attempt, tree, rows, counts, timely.reduced)
                return Staged(staged, targets, plan, late=late, relies=relies)
            if plan.order == "stage, locate":
                staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
                return self._located(attempt, tree, plan, staged, targets, frames)
            relocated = self.relocated(attempt, tree, plan, rows, batch)
            rows = relocated.rows
            if tree.by_id:
                rows = with_groups(
                    attempt.snapshot, tree, rows, relocated.located, lambda frame: cached_in(batch, frame)
                )
            staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
            vacated = stage_leaving(attempt, tree, relocated)
        return Staged([*staged, *vacated], targets.with_more(relocated.targets), plan, late=late, relies=relies)

    def _staged_by_driver(self, attempt: Attempt, tree: Tree, batch: Any) -> Staged | None:
        """Return a small batch as the driver staged it; ``None`` if it declines."""
        if not has_each_key_once(attempt, tree, batch):
            return None
        if not is_timely(attempt, tree, batch, paths_of(attempt.snapshot.table, tree, batch)):
            return None
        plan = self.plan(attempt, len(batch), "rows", on_driver=True)
        done = stage_few(attempt, tree, plan, batch)
        if done is None:
            return None
        files = mark_ordered(done.files) if ordering_of(tree) else done.files
        return Staged(files, done.targets, plan, rows=done.rows)

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
            return cached_in(frames, frame)

        if not staged:
            return Staged([], targets, plan)
        locations = locate_staged(attempt, tree, plan, staged, hold)
        vacated = stage_leaving(attempt, tree, locations.relocated)
        changes = changes_by(attempt.snapshot, tree, plan, staged, vacated, locations, hold)
        return Staged([*staged, *vacated], targets.with_more(locations.relocated.targets), plan, changes)

    def relocated(
        self, attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, frames: ExitStack
    ) -> RelocatedRows:
        """Return which rows of the batch leave another partition."""
        return relocated_rows(attempt, tree, plan, rows, lambda frame: cached_in(frames, frame))

    def _stage(
        self, attempt: Attempt, tree: Tree, rows: DataFrame, counts: Counts, reduced: bool = False
    ) -> tuple[list[AddFile], PartitionTargets]:
        """Stage rows that are, at the most, as many of each partition as ``counts`` holds."""
        targets = targets_for(attempt.snapshot, counts)
        attempt.phase("write the rows")
        store, folder, count = attempt.snapshot.store, attempt.folder("rows"), sum(counts.values())
        staged = stage_rows(store, tree, rows, folder, targets.targets, one_per_key=not reduced, expected=count)
        return mark_ordered(staged) if ordering_of(tree) else staged, targets


def cached_in(frames: ExitStack, frame: DataFrame) -> DataFrame:
    """Return the frame, kept by Spark until the stack is left."""
    return frames.enter_context(cached(frame))


def stage_leaving(attempt: Attempt, tree: Tree, relocated: RelocatedRows) -> list[AddFile]:
    """Stage tombstones for moved rows in the partitions that they leave, in file groups that exist."""
    if relocated.leaving is None:
        return []
    attempt.phase("write the tombstones of moved rows")
    return stage_tombstones(attempt, tree, relocated.leaving, "left", relocated.targets)


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

    def relocated(
        self, attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, frames: ExitStack
    ) -> RelocatedRows:
        _refuse(existing_rows(attempt.snapshot, tree, cached_in(frames, locate_keys(attempt, tree, rows))), tree)
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

    In a table that is merged by its ordering column a delete has an ordering: ``until``, else the batch's own value of
    that column, else the highest of the rows that it removes. Rows above it stay, and rows that are not stay deleted.
    """

    operation: ClassVar[Operation] = DELETE

    def __init__(self, rows: DataFrame | str, until: Any = None) -> None:
        self.rows = rows
        self.until = until

    @property
    def relies_on_keys(self) -> bool:
        return not isinstance(self.rows, str)  # whose predicate names the rows themselves

    def validate(self, snapshot: Snapshot) -> None:
        if self.until is not None:
            _check_until(snapshot, self.until)
        if isinstance(self.rows, str):
            check_predicate(snapshot, self.rows)
        else:
            conform_batch(self.rows, snapshot.data.schema, only=snapshot.table.record_key)
            conform_batch(self.rows, snapshot.data.schema, only=self._ordering_of_batch(snapshot.data))

    def _ordering_of_batch(self, tree: Tree) -> tuple[str, ...]:
        """Return the column by which the batch itself orders its deletes; none if it does not."""
        if isinstance(self.rows, str) or self.until is not None:
            return ()
        names = {name.lower() for name in self.rows.columns}
        return tuple(name for name in ordering_of(tree) if name.lower() in names)

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        snapshot = attempt.snapshot
        plan, targets = self.plan(attempt, None, self._given(snapshot, tree)), existing_targets(snapshot)
        ordered = bool(self._ordering_of_batch(tree)) or (self.until is not None and not isinstance(self.rows, str))
        # A delete with an ordering counts for rows that are yet to come.
        ahead = ordered and not plan.locates
        if not targets.targets and not ahead:
            return Staged([], targets, plan)
        attempt.phase("write the tombstones")
        keys, relies = self._keys(attempt, tree, plan), False
        if ordering_of(tree):
            keys, relies = self._with_ordering(snapshot, tree, keys, frames)
        if ahead:
            targets = targets_for(snapshot, partition_counts(keys, tree))
            store, folder = snapshot.store, attempt.folder("rows")
            staged = stage_rows(store, tree, tombstones(keys, tree), folder, targets.targets)
        else:
            staged = stage_tombstones(attempt, tree, tombstones(keys, tree), "rows", targets)
        return Staged(mark_ordered(staged) if ordering_of(tree) else staged, targets, plan, relies=relies)

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
        """Return the rows that go, by the columns that name them, and the ordering where it is known."""
        snapshot, ordering = attempt.snapshot, ordering_of(tree)
        if isinstance(self.rows, str):
            matching = scan(snapshot, tree, snapshot.groups(), tree.columns if plan.locates else tree.given)
            matching = matching.where(self.rows)
            if self.until is not None:
                matching = matching.where(F.coalesce(column(ordering[0]) <= _until(tree, self.until), F.lit(True)))
            if plan.locates:
                return locate_keys(attempt, tree, matching)
            return matching.select(*map(column, dict.fromkeys([*tree.tombstone_columns, *ordering])))
        own = self._ordering_of_batch(tree)
        if not plan.locates:
            return conform_batch(self.rows, tree.schema, only=[*tree.identity, *own])
        keys = conform_batch(self.rows, tree.schema, only=[*tree.key, *own])
        located = locate_keys(attempt, tree, keys.select(*map(column, tree.key)).distinct())
        if not own:
            return located
        highest = keys.groupBy(*[column(name).alias(f"__index_k_{name}") for name in tree.key]).agg(
            F.max(column(own[0])).alias(own[0])
        )
        joined = located.join(highest, same_key(located, highest, tree, tree.key, "__index_k_"))
        return joined.select(*map(column, dict.fromkeys([*tree.tombstone_columns, *own])))

    def _with_ordering(
        self, snapshot: Snapshot, tree: Tree, keys: DataFrame, frames: ExitStack
    ) -> tuple[DataFrame, bool]:
        """Return the keys with the ordering of each, and whether that is taken from rows."""
        (ordering,) = ordering_of(tree)
        if self.until is not None:
            return keys.withColumn(ordering, _until(tree, self.until)), False
        keys = cached_in(frames, keys)
        if ordering not in keys.columns:
            return cached_in(frames, with_orderings_of_rows(snapshot, tree, keys)), True
        if isinstance(self.rows, str):
            return keys, True
        without = keys.where(column(ordering).isNull()).select(*map(column, tree.tombstone_columns))
        if not without.limit(1).count():
            return keys, False
        taken = with_orderings_of_rows(snapshot, tree, without)
        return cached_in(frames, keys.where(column(ordering).isNotNull()).unionByName(taken)), True


def _until(tree: Tree, until: Any) -> Column:
    (ordering,) = ordering_of(tree)
    return F.lit(until).cast(tree.field(ordering).dataType)


def _check_until(snapshot: Snapshot, until: Any) -> None:
    """Refuse what is no value of the ordering column. :raises InvalidInput: naming it."""
    tree = snapshot.data
    if tree.merge_by == "ordering" and tree.ordering in tree.identity:
        raise InvalidInput(
            f"'until' says up to which ordering rows are deleted, and the ordering column {tree.ordering!r} is part of "
            "what names a row, so that deletes have no ordering.",
            hint="Leave it out.",
        )
    if not ordering_of(tree):
        raise InvalidInput(
            "'until' says up to which ordering rows are deleted, and this table is not merged by an ordering column.",
            hint="Leave it out.",
        )
    (ordering,) = ordering_of(tree)
    with suppress(*spark_errors()):
        # A plain cast makes the highest number of one that is too large, where the session is not strict (ANSI).
        tried = f"try_cast(until AS {tree.field(ordering).dataType.simpleString()})"
        if snapshot.spark.range(1).select(F.lit(until).alias("until")).where(f"{tried} IS NOT NULL").count():
            return
    raise InvalidInput(
        f"'until' is {until!r}, which is no value of the ordering column {tree.ordering!r} of type "
        f"{tree.type_of(ordering)}.",
        hint="Give a value of that type, or its text.",
    )


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
    merged, beside = with_staged(snapshot, touched, over), kept_tombstones(snapshot, tree, touched)
    now = attempt.transaction.timeline.clock()
    work.actions.extend(stage_kept(snapshot, tree, merged, beside, attempt.folder("tombstones"), paths, now))
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


# --- keys in several partitions ---------------------------------------------------------------------------------------


class DeleteRepeatedKeys(WriteRows):
    """Deletion of all rows but one of each record key that is in several partitions.

    The ``record`` index, if there is one, is built anew from the rows that remain, in the same commit.

    Kept is the row with the highest ordering column where that decides between commits (``merge_by`` "ordering"), else
    the one that was written last; of equals the one whose partition path is last.
    """

    operation: ClassVar[Operation] = DELETE_REPEATED_KEYS

    def __init__(self) -> None:
        self._looked_at: list[str] = []

    def not_staged_because(self) -> str | None:
        return "it looks at the rows of all partitions"

    def validate(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        if set(table.partition_by) <= set(table.record_key):
            raise InvalidInput(
                "The partition columns are part of the record key (or there are none), so no key can be in two "
                "partitions."
            )

    def work(self, attempt: Attempt) -> StagedChanges | None:
        snapshot = attempt.snapshot
        entry = unique_index(snapshot.state)
        if entry is None:
            return super().work(attempt)
        # That index has one entry a key and cannot follow: it is built from the remaining rows in the end.
        without = snapshot.state.copy()
        del without.indexes[entry.definition.name]
        work = super().work(replaced(attempt, snapshot=replaced(snapshot, state=without)))
        if work is None:
            return None
        attempt.phase(f"build index {entry.definition.name} anew")
        remaining = state_with_actions(
            snapshot.state, work.actions, work.writes, [*work.maintained, entry.definition.tree]
        )
        folder = attempt.index_folder(entry.definition.name, "anew")
        context = IndexContext(replaced(snapshot, state=remaining), entry.definition, folder)
        built = find(entry.definition.kind).refresh(context, "full")
        work.actions.extend(built.actions)
        work.writes.extend([*built.writes, Write(definition_scope(entry.definition.name), "replace")])
        work.maintained.append(entry.definition.tree)
        work.guard = None
        return work

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        snapshot, targets = attempt.snapshot, existing_targets(attempt.snapshot)
        attempt.phase("look for keys in several partitions")
        rows, keys = _rows_of_repeated_keys(snapshot, tree, frames)
        losing = cached_in(frames, _rows_to_delete(snapshot, tree, rows, keys))
        attempt.phase("write the tombstones")
        staged = stage_tombstones(attempt, tree, tombstones(losing, tree), "rows", targets)
        self._looked_at = _partitions(snapshot, tree, rows)
        return Staged(staged, targets, self.plan(attempt, None, "matches"))

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        # Neither the rows that go nor those that stay in their place may change until then.
        work.reads.extend(map(partition_scope, self._looked_at))
        work.metrics["partitions_read"] = len(self._looked_at)


def _rows_of_repeated_keys(snapshot: Snapshot, tree: Tree, frames: ExitStack) -> tuple[DataFrame, DataFrame]:
    """Return the rows whose record key is in several partitions, and these keys."""
    ordering = [] if tree.ordering is None else [tree.ordering]
    rows = scan(snapshot, tree, snapshot.groups(), list(dict.fromkeys([*tree.tombstone_columns, *ordering])))
    counted = rows.select(*map(column, tree.key)).groupBy(*map(column, tree.key)).count()
    keys = cached_in(frames, counted.where("count > 1").drop("count"))
    return cached_in(frames, with_keys(rows, keys, tree, tree.key)), keys


def _rows_to_delete(snapshot: Snapshot, tree: Tree, rows: DataFrame, keys: DataFrame) -> DataFrame:
    """Return all rows of each key but the one that is kept."""
    if tree.merge_by == "ordering":
        assert tree.ordering is not None
        first = [column(tree.ordering).desc_nulls_last()]
    else:
        files = snapshot.state.files(tree.name)
        events = read_files(
            snapshot, tree, files, tree.tombstone_columns, flag=True, sequence_number=True,
            only=lambda frame: with_keys(frame, keys, tree, tree.key),
        )  # fmt: skip
        written = (
            events.where(F.col(DELETED).isNull())
            .groupBy(*map(column, tree.tombstone_columns))
            .agg(F.max(SEQUENCE_NUMBER).alias(SEQUENCE_NUMBER))
        )
        alike = [F.col(f"`{name}`") for name in tree.tombstone_columns]
        named = written.select(*[c.alias(f"__index_w{n}") for n, c in enumerate(alike)], SEQUENCE_NUMBER)
        same = [column(name).eqNullSafe(F.col(f"__index_w{n}")) for n, name in enumerate(tree.tombstone_columns)]
        rows = rows.join(named, same, "left")
        first = [F.col(SEQUENCE_NUMBER).desc_nulls_last()]
    window = Window.partitionBy(*map(column, tree.key)).orderBy(
        *first, *(text.desc_nulls_last() for text in value_texts(tree).values())
    )
    ranked = rows.withColumn(_RANK, F.row_number().over(window))
    return ranked.where(F.col(_RANK) > 1).select(*map(column, tree.tombstone_columns))


def _partitions(snapshot: Snapshot, tree: Tree, rows: DataFrame) -> list[str]:
    values = rows.select(*value_texts(tree).values()).distinct().collect()
    return sorted(path_of_texts(snapshot.table, tuple(row)) for row in values)


# --- whole partitions, and the whole table ----------------------------------------------------------------------------


class InsertOverwrite(Action):
    """Replacement of all rows of some partitions by those of the batch.

    :param partitions: paths; one without rows in the batch becomes empty. A row of another partition is
        refused.
    """

    operation: ClassVar[Operation] = INSERT_OVERWRITE

    staging = "rows"

    also: Callable[[State], Collection[str]] | None = None
    """Which partitions of a version are replaced beside those of the batch."""

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
                rows = cached_in(frames, one_per_key(rows, tree, tree.key))
            attempt.phase("find the partitions")
            counts = partition_counts(rows, tree)
            targets = _targets(snapshot, counts, paths)
            plan = plan_upsert(
                snapshot, sum(counts.values()) if tree.partition_by else None, attempt.limits,
                operation=self.operation.name, given="partitions",
            )  # fmt: skip
            log_plan(attempt.transaction.txn_id, plan)
            timely = timely_rows(attempt, tree, rows, counts, lambda frame: cached_in(frames, frame))
            rows = timely.rows
            attempt.phase("write the rows")
            if tree.by_id:
                rows = with_groups(snapshot, tree, rows, None, lambda frame: cached_in(frames, frame), fresh=True)
            staged = stage_rows(snapshot.store, tree, rows, attempt.folder("rows"), targets.targets, kind="base")
            also = [] if self.also is None else self.also(snapshot.state)
            named = {target.path for target in targets.targets} if timely.late else set[str]()
            replaced = paths or sorted({*(action.partition for action in staged), *named, *also})
            vacated = []
            if plan.locates and staged:
                relocated = relocated_rows(attempt, tree, plan, rows, lambda frame: cached_in(frames, frame), replaced)
                vacated = stage_leaving(attempt, tree, relocated)
            work = _overwriting(attempt, plan, staged, vacated, replaced, targets)
            if work is not None:
                work.actions.extend(_tombstones_of(attempt, tree, replaced))
            elif timely.late:
                work = StagedChanges(metrics=written([]), idle=True)
            if work is not None and ordering_of(tree):
                work.metrics[LATE] = timely.late
        return work


def _tombstones_of(attempt: Attempt, tree: Tree, paths: Iterable[str]) -> list[AnyAction]:
    """Return what keeps the orderings of deletes in the deltas of partitions, whose files all go."""
    snapshot, gone = attempt.snapshot, set(paths)
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in gone}
    targets, now = existing_targets(snapshot, sorted(gone)).targets, attempt.transaction.timeline.clock()
    beside = kept_in(snapshot, tree, gone)
    return stage_kept(snapshot, tree, groups, beside, attempt.folder("tombstones"), targets, now)


def _targets(
    snapshot: Snapshot, values: Collection[tuple[str | None, ...]], paths: Sequence[str] | None
) -> PartitionTargets:
    """Return the partitions of a batch. :raises InvalidInput: if one is not among those to overwrite."""
    if paths is not None:
        stray = [path for texts in values if (path := path_of_texts(snapshot.table, texts)) not in paths]
        if snapshot.table.partition_by and stray:
            raise InvalidInput(
                f"The input holds rows of {stray[0]!r}, which is not among the partitions to overwrite.",
                hint="Take those rows out, or name their partition too.",
            )
    return targets_for(snapshot, values)


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
        work.actions.extend(_tombstones_of(attempt, tree, paths))
        drop_from_indexes(attempt, paths, work)
        return work


class DropTableAction(Action):
    """The table goes, with all its indexes. Its files stay until they are cleaned or deleted by hand."""

    operation: ClassVar[Operation] = DROP_TABLE
    on_sources = "blind"

    def work(self, attempt: Attempt) -> StagedChanges | None:
        return StagedChanges(actions=[DropTable()], writes=[Write(table_scope(), "replace")])

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        from spark_apps.actions.indexing import left_behind

        # An index never stops its table from being dropped; all of it that is kept with the table goes anyway.
        for error in left_behind(handle, receipt):
            logger.warning("What an index keeps outside of the table was not removed: %s", error)


class DropUnfilled(DropTableAction):
    """The table goes if it has no rows: those that it was made for could not be written."""

    def work(self, attempt: Attempt) -> StagedChanges | None:
        return None if attempt.snapshot.state.files(DATA_TREE) else super().work(attempt)


def drop_unfilled(drop: Callable[[Action], Receipt], cause: BaseException) -> None:
    """Drop a table that was made for rows which could not be written, and say so in the cause's message.

    :param drop: runs an action on the table.
    """
    try:
        dropped = drop(DropUnfilled()).version is not None
    except LakeIndexError as error:
        logger.warning("A table that got no rows was not dropped: %s", error)
        done = f"The table was created, none of its rows was written, and it was not dropped again: {error.message}"
    else:
        done = (
            "The table was created, and dropped again, for its rows could not be written."
            if dropped
            else "The table was created and stays, for it has rows of another writer; none of these was written."
        )
    note_done_before(cause, done)


# --- micro-batches ----------------------------------------------------------------------------------------------------


_QUERY_ID = "sql.streaming.queryId"
"""Spark's own name of the property that the thread of a streaming query has; the checkpoint keeps its value."""
_LONGEST = "00000000-0000-0000-0000-000000000000.9223372036854775807"


@dataclass(frozen=True)
class UpsertBatch:
    """The function for ``foreachBatch``.

    It names the table instead of holding it, since Spark Connect runs it in another process.

    :param load: loads a table, given a session, its address and the options of its store.
    :param name: begins the transactions' ids. :param query_id: the query's id, where Spark does not give it.
    :param deleted: as of ``IndexedTable.upsert``.
    :raises InvalidName: if the name cannot begin an id.
    """

    load: Callable[..., Any]
    uri: str
    options: Mapping[str, Any] | None = field(repr=False)
    name: str
    deleted: str | None = None
    query_id: str | None = None

    def __post_init__(self) -> None:
        check_txn_id(f"{self.name}.{self.query_id or _LONGEST}.0")

    def __call__(self, rows: DataFrame, batch_id: int) -> Receipt:
        """Write one batch, or find that it is written.

        :raises EnvironmentMismatch: if the query's id is unknown.
        :raises CommitRefused: if the commit is refused; the next start of the query runs the batch again.
        """
        txn_id = f"{self.name}.{self.query_id or _query_id(rows)}.{batch_id}"
        table = self.load(rows.sparkSession, self.uri, options=self.options)
        before = table.version
        for tried in range(1, MAX_BATCH_TRIES + 1):
            try:
                receipt: Receipt = table.upsert(rows, deleted=self.deleted, txn_id=txn_id)
                break
            except ConcurrentWrite as error:
                if tried == MAX_BATCH_TRIES:
                    raise
                logger.info("batch %s of %s is tried again: %s", batch_id, self.name, error.message)
        if receipt.version is None:
            logger.info("batch %s of %s: nothing to do", batch_id, self.name)
        else:
            known = "was committed before, " if receipt.version <= before else ""
            logger.info("batch %s of %s: %sversion %s", batch_id, self.name, known, receipt.version)
        return receipt


def _query_id(rows: DataFrame) -> str:
    context: Any = getattr(rows.sparkSession, "_sc", None)
    of_query = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not of_query:
        raise EnvironmentMismatch(
            "The id of this batch's streaming query is unknown, so the batch could not be recognised after a restart.",
            hint="Outside of foreachBatch, over Spark Connect, and where PYSPARK_PIN_THREAD is false, Spark does not "
            "say it: give upsert_batch a query_id, a different one for each checkpoint.",
        )
    return str(of_query)
