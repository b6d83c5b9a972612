"""Writes rows: upsert, insert, delete. The overwriting of partitions is in
:mod:`spark_apps.actions.overwrite`.

All three stage deltas (rows or tombstones) into the file groups that the batch's keys belong to, and touch no
other. With
``copy_on_write`` the touched groups are then written anew from what they held and the staged deltas, in the
same commit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.finding import changes_by, find_places, finds_late
from spark_apps.actions.groups import with_groups
from spark_apps.actions.maintenance import (
    changes_of,
    kept,
    maintain,
    rows_of_staged,
    touched_groups,
    wanted_columns,
    with_staged,
)
from spark_apps.actions.moves import Moves, keep_unique, locate, moves_of, rows_at, tombstones, unique_index
from spark_apps.actions.partitions import Spread, existing, spread
from spark_apps.actions.positions import with_positions
from spark_apps.actions.template import Action, Attempt, Work
from spark_apps.indexes.handler import Changes
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import column, conform
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.mergetree.write import one_a_key, partition_counts, refused_nulls, stage_rows
from spark_apps.query.checking import check_predicate
from spark_apps.query.planning import parsed
from spark_apps.query.predicates import of_whole_rows
from spark_apps.storage.errors import InvalidSchema, KeysExist, UnknownColumn
from spark_apps.timeline.model import NEW_KEYS, AddFile, RemoveFile, Write, group_scope

Counts = Mapping[tuple[str | None, ...], int]
"""Values of the partition columns, as text, and how many rows have them."""

_EXAMPLES = 3


@dataclass(frozen=True)
class Staged:
    """Staged deltas, the partitions that they are of, and what is known of the rows of their keys."""

    files: list[AddFile]
    targets: Spread
    changes: Changes | None = None


class WriteRows(Action):
    """What upsert, insert and delete share."""

    staging = "rows"

    @property
    def relies_on_keys(self) -> bool:
        """Whether other rows change where keys are unique in the table than where they are in their partitions."""
        return True

    @abstractmethod
    def stage(self, attempt: Attempt, tree: Tree, held: ExitStack) -> Staged:
        """Stages deltas of the table's own tree, into the attempt's folder ``rows``.

        :param held: keeps frames until the indexes have followed.
        """

    def work(self, attempt: Attempt) -> Work | None:
        with ExitStack() as held:
            return self._work(attempt, attempt.snapshot.data, held)

    def _work(self, attempt: Attempt, tree: Tree, held: ExitStack) -> Work | None:
        with refused_nulls():
            done = self.stage(attempt, tree, held)
        staged, targets = done.files, done.targets
        if not staged:
            return None
        work = Work(reads=targets.reads, metrics=written(staged))
        self.check(attempt, tree, staged, work)
        targets = targets.only(action.partition for action in staged)
        work.metrics["new_partitions"] = len(targets.new)
        work.actions.extend(targets.puts)
        if attempt.snapshot.table.write_mode == "copy_on_write":
            _rewrite(attempt, tree, staged, targets, work)
        else:
            work.actions.extend(with_positions(attempt, tree, staged))
            work.writes.extend(Write(group_scope(a.partition, a.group), "append") for a in staged)
        keep_unique(attempt, tree, staged, work, relies=self.relies_on_keys)
        if kept(attempt.snapshot.state):
            changes = done.changes or changes_of(attempt.snapshot, tree, staged, wanted_columns(attempt.snapshot))
            maintain(attempt, changes, work, held_already=done.changes is not None)
        return work

    def check(self, attempt: Attempt, tree: Tree, staged: Sequence[AddFile], work: Work) -> None:
        """What must hold of the staged rows before they may be committed."""
        return None


class Upsert(WriteRows):
    """Rows replace those of their key; new keys are added.

    :param deleted: a boolean column of the batch that the table does not have: where it is true, the row of
        that key is deleted instead.
    """

    operation: ClassVar[str] = "upsert"

    may_find_late: ClassVar[bool] = True
    """Whether rows may be staged before it is known where their keys live."""

    def __init__(self, rows: DataFrame, deleted: str | None = None) -> None:
        self.rows = rows
        self.deleted = deleted

    def validate(self, snapshot: Snapshot) -> None:
        self._conformed(snapshot.data)

    def _conformed(self, tree: Tree) -> DataFrame:
        if self.deleted is None:
            return conform(self.rows, tree.schema)
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
        return conform(marked, with_mark).withColumn(DELETED, F.when(F.col(DELETED), F.lit(True)))

    def stage(self, attempt: Attempt, tree: Tree, held: ExitStack) -> Staged:
        rows = self._conformed(tree)
        if not tree.by_id and (not tree.partition_by or unique_index(attempt.snapshot.state) is None):
            return Staged(*self._stage(attempt, tree, rows, _counts(attempt, tree, rows)))
        # Keys are unique in the table, so the batch is reduced over all partitions, and old places are given
        # up.
        with ExitStack() as batch:
            rows = held_by(batch, one_a_key(rows, tree, tree.key))
            counts = _counts(attempt, tree, rows)
            if self.may_find_late and finds_late(attempt.snapshot, tree, sum(counts.values())):
                staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
                return self._with_places(attempt, tree, staged, targets, held) if staged else Staged([], targets)
            moves = self.moves(attempt, tree, rows, batch)
            rows = moves.rows
            if tree.by_id:
                rows = with_groups(attempt.snapshot, tree, rows, moves.places, lambda frame: held_by(batch, frame))
            staged, targets = self._stage(attempt, tree, rows, counts, reduced=True)
            left = stage_leaving(attempt, tree, moves)
        return Staged([*staged, *left], targets.with_more(moves.targets))

    def _with_places(
        self, attempt: Attempt, tree: Tree, staged: list[AddFile], targets: Spread, held: ExitStack
    ) -> Staged:
        def hold(frame: DataFrame) -> DataFrame:
            return held_by(held, frame)

        columns = wanted_columns(attempt.snapshot)
        places = find_places(attempt, tree, staged, columns, hold)
        left = stage_leaving(attempt, tree, places.moves)
        changes = changes_by(attempt.snapshot, tree, staged, left, columns, places, hold)
        return Staged([*staged, *left], targets.with_more(places.moves.targets), changes)

    def moves(self, attempt: Attempt, tree: Tree, rows: DataFrame, held: ExitStack) -> Moves:
        """Which rows of the batch leave another partition."""
        return moves_of(attempt, tree, rows, lambda frame: held_by(held, frame))

    def _stage(
        self, attempt: Attempt, tree: Tree, rows: DataFrame, counts: Counts, reduced: bool = False
    ) -> tuple[list[AddFile], Spread]:
        """Stages rows that are, at the most, as many of each partition as ``counts`` tells."""
        targets = spread(attempt.snapshot, counts)
        attempt.phase("write the rows")
        store, folder, count = attempt.snapshot.store, attempt.folder("rows"), sum(counts.values())
        return stage_rows(store, tree, rows, folder, targets.targets, one_a_key=not reduced, expected=count), targets


def _counts(attempt: Attempt, tree: Tree, rows: DataFrame) -> Counts:
    attempt.phase("find the partitions")
    return partition_counts(rows, tree)


def held_by(held: ExitStack, frame: DataFrame) -> DataFrame:
    """The frame, kept by Spark until the stack is left."""
    return held.enter_context(cached(frame))


def stage_leaving(attempt: Attempt, tree: Tree, moves: Moves) -> list[AddFile]:
    """Stages the tombstones for the old places of moved rows, in file groups that are there."""
    if moves.leaving is None:
        return []
    attempt.phase("write the tombstones of moved rows")
    snapshot = attempt.snapshot
    targets = moves.targets.targets
    staged = stage_rows(snapshot.store, tree, moves.leaving, attempt.folder("left"), targets, unknown="drop")
    groups = touched_groups(snapshot, staged)
    return [action for action in staged if (action.partition, action.group) in groups]


class Insert(Upsert):
    """New rows; keys that the table holds (with a ``record`` index in any partition, else in theirs) are
    refused."""

    operation: ClassVar[str] = "insert"
    may_find_late = False

    def stage(self, attempt: Attempt, tree: Tree, held: ExitStack) -> Staged:
        done = super().stage(attempt, tree, held)
        files = [replace(action, extra={**(action.extra or {}), NEW_KEYS: True}) for action in done.files]
        return Staged(files, done.targets, done.changes)

    def moves(self, attempt: Attempt, tree: Tree, rows: DataFrame, held: ExitStack) -> Moves:
        _refuse(rows_at(attempt.snapshot, tree, held_by(held, locate(attempt, tree, rows))), tree)
        return Moves(rows)

    def check(self, attempt: Attempt, tree: Tree, staged: Sequence[AddFile], work: Work) -> None:
        touched = touched_groups(attempt.snapshot, staged)
        work.reads.extend(group_scope(a.partition, a.group) for a in staged)
        if touched:
            attempt.phase("look for keys that exist")
            _refuse(rows_of_staged(attempt.snapshot, tree, staged, touched, tree.identity), tree)


def _refuse(found: DataFrame, tree: Tree) -> None:
    examples = [
        ", ".join(f"{name}={value!r}" for name, value in row.asDict().items())
        for row in found.select(*map(column, tree.identity)).limit(_EXAMPLES).collect()
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

    operation: ClassVar[str] = "delete"

    def __init__(self, rows: DataFrame | str) -> None:
        self.rows = rows

    @property
    def relies_on_keys(self) -> bool:
        return not isinstance(self.rows, str)  # whose predicate names the rows themselves

    def validate(self, snapshot: Snapshot) -> None:
        if isinstance(self.rows, str):
            check_predicate(snapshot, self.rows)
        else:
            conform(self.rows, snapshot.data.schema, only=snapshot.table.record_key)

    def stage(self, attempt: Attempt, tree: Tree, held: ExitStack) -> Staged:
        snapshot = attempt.snapshot
        here = existing(snapshot)
        if not here.targets:
            return Staged([], here)
        attempt.phase("write the tombstones")
        keys = self._keys(attempt, tree)
        staged = stage_rows(
            snapshot.store, tree, tombstones(keys, tree), attempt.folder("rows"), here.targets, unknown="drop"
        )
        groups = touched_groups(snapshot, staged)
        return Staged([action for action in staged if (action.partition, action.group) in groups], here)

    def check(self, attempt: Attempt, tree: Tree, staged: Sequence[AddFile], work: Work) -> None:
        if isinstance(self.rows, str):
            # What the predicate saw in these groups must still be so when the tombstones are published.
            work.reads.extend(group_scope(a.partition, a.group) for a in staged)

    def _keys(self, attempt: Attempt, tree: Tree) -> DataFrame:
        snapshot = attempt.snapshot
        if isinstance(self.rows, str):
            if tree.by_id and of_whole_rows(parsed(snapshot, self.rows)):
                # It must not see the column that tells a row's file group.
                matching = scan(snapshot, tree, snapshot.groups(), tree.columns).where(self.rows)
                return locate(attempt, tree, matching)
            matching = scan(snapshot, tree, snapshot.groups(), tree.given).where(self.rows)
            return matching.select(*map(column, tree.place))
        given = {name.lower() for name in self.rows.columns}
        whole = all(name.lower() in given for name in tree.identity)
        if whole and not tree.by_id and (not tree.partition_by or unique_index(snapshot.state) is None):
            return conform(self.rows, tree.schema, only=tree.identity)
        return locate(attempt, tree, conform(self.rows, tree.schema, only=tree.key).distinct())


def _rewrite(attempt: Attempt, tree: Tree, staged: Sequence[AddFile], targets: Spread, work: Work) -> None:
    """Writes the touched file groups anew, with the staged deltas folded in."""
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
    bases = stage_rows(snapshot.store, tree, rows, folder, paths, kind="base", one_a_key=False)
    work.actions.extend(RemoveFile(tree.name, file.path) for files in touched.values() for file in files)
    work.actions.extend(bases)
    work.metrics["rewritten_files"] = len(bases)
    work.metrics["rewritten_bytes"] = sum(base.bytes for base in bases)


def written(staged: Sequence[AddFile]) -> dict[str, Any]:
    """What a receipt tells of staged files."""
    return {
        "rows": sum(action.rows - action.tombstones for action in staged),
        "tombstones": sum(action.tombstones for action in staged),
        "files": len(staged),
        "bytes": sum(action.bytes for action in staged),
        "partitions": len({action.partition for action in staged}),
    }
