"""Rows of one record key in several partitions, where a ``record`` index is to make keys unique: one of each is kept.

Such rows are older than the index, or came back with a restored version from before it. Which row is kept is what the
table's merging would have kept, had all been written into one partition.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_apps.actions.key_location import tombstones
from spark_apps.actions.partition_targets import existing, path_of
from spark_apps.actions.template import Attempt, StagedChanges
from spark_apps.actions.upsert_plan import unique_index
from spark_apps.actions.write import Staged, WriteRows, held_by, stage_tombstones
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.registry import find
from spark_apps.mergetree.partition_assignment import value_texts
from spark_apps.mergetree.read import SEQUENCE_NUMBER, read_files, scan, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import Write, definition_scope, partition_scope
from spark_apps.timeline.operations import DELETE_REPEATED_KEYS, Operation
from spark_apps.timeline.stages import state_with_actions

_RANK = "__index_rank"


class DeleteRepeatedKeys(WriteRows):
    """Deletion of all rows but one of each record key that stands in several partitions.

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
                "The partition columns are part of the record key (or there are none), so no key can stand in two "
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
        work = super().work(replace(attempt, snapshot=replace(snapshot, state=without)))
        if work is None:
            return None
        attempt.phase(f"build index {entry.definition.name} anew")
        remaining = state_with_actions(
            snapshot.state, work.actions, work.writes, [*work.maintained, entry.definition.tree]
        )
        folder = attempt.index_folder(entry.definition.name, "anew")
        context = IndexContext(replace(snapshot, state=remaining), entry.definition, folder)
        built = find(entry.definition.kind).refresh(context, "full")
        work.actions.extend(built.actions)
        work.writes.extend([*built.writes, Write(definition_scope(entry.definition.name), "replace")])
        work.maintained.append(entry.definition.tree)
        work.guard = None
        return work

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        snapshot, targets = attempt.snapshot, existing(attempt.snapshot)
        attempt.phase("look for keys in several partitions")
        rows, keys = _several(snapshot, tree, frames)
        losing = held_by(frames, _losing(snapshot, tree, rows, keys))
        attempt.phase("write the tombstones")
        staged = stage_tombstones(attempt, tree, tombstones(losing, tree), "rows", targets)
        self._looked_at = _partitions(snapshot, tree, rows)
        return Staged(staged, targets, self.plan(attempt, None, "matches"))

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        # Neither the rows that go nor those that stay in their place may change until then.
        work.reads.extend(map(partition_scope, self._looked_at))
        work.metrics["partitions_read"] = len(self._looked_at)


def _several(snapshot: Snapshot, tree: Tree, frames: ExitStack) -> tuple[DataFrame, DataFrame]:
    """Return the rows whose record key stands in several partitions, and these keys."""
    ordering = [] if tree.ordering is None else [tree.ordering]
    rows = scan(snapshot, tree, snapshot.groups(), list(dict.fromkeys([*tree.tombstone_columns, *ordering])))
    counted = rows.select(*map(column, tree.key)).groupBy(*map(column, tree.key)).count()
    keys = held_by(frames, counted.where("count > 1").drop("count"))
    return held_by(frames, with_keys(rows, keys, tree, tree.key)), keys


def _losing(snapshot: Snapshot, tree: Tree, rows: DataFrame, keys: DataFrame) -> DataFrame:
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
    found = rows.select(*value_texts(tree).values()).distinct().collect()
    return sorted(path_of(snapshot.table, tuple(row)) for row in found)
