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

from spark_apps.actions.groups import with_groups
from spark_apps.actions.maintenance import (
    as_files,
    changes_of,
    drop_from_indexes,
    kept,
    maintain,
    wanted_columns,
)
from spark_apps.actions.moves import keep_unique, moves_of, unique_index
from spark_apps.actions.partitions import Spread, path_of, spread
from spark_apps.actions.template import Action, Attempt, TableHandle, Work
from spark_apps.actions.write import held_by, stage_leaving, written
from spark_apps.indexes.handler import Changes
from spark_apps.layout.partitions import canonical
from spark_apps.mergetree.read import read_files, scan
from spark_apps.mergetree.schema import column, conform
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write import one_a_key, partition_counts, refused_nulls, stage_rows
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile
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

logger = logging.getLogger(__name__)


class InsertOverwrite(Action):
    """The rows of some partitions become those of the batch: of the partitions in the batch, or of given
    ones.

    :param partitions: paths; one without rows in the batch becomes empty. A row of another partition is
        refused.
    """

    operation: ClassVar[str] = "insert_overwrite"

    staging = "rows"

    def __init__(self, rows: DataFrame, partitions: Iterable[str] | None = None) -> None:
        self.rows = rows
        self.partitions = None if partitions is None else list(partitions)

    def validate(self, snapshot: Snapshot) -> None:
        conform(self.rows, snapshot.data.schema)
        if self.partitions is not None:
            if not self.partitions:
                raise InvalidInput(
                    "No partition was named to overwrite.", hint="Name some, or leave it out for those in the input."
                )
            self.partitions = list(dict.fromkeys(canonical(snapshot.table, path) for path in self.partitions))

    def work(self, attempt: Attempt) -> Work | None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        rows = conform(self.rows, tree.schema)
        unique = tree.by_id or (bool(tree.partition_by) and unique_index(snapshot.state) is not None)
        with refused_nulls(), ExitStack() as held:
            if unique:
                rows = held_by(held, one_a_key(rows, tree, tree.key))
            attempt.phase("find the partitions")
            targets = self._targets(snapshot, partition_counts(rows, tree))
            attempt.phase("write the rows")
            if tree.by_id:
                rows = with_groups(snapshot, tree, rows, None, lambda frame: held_by(held, frame), fresh=True)
            staged = stage_rows(snapshot.store, tree, rows, attempt.folder("rows"), targets.targets, kind="base")
            replaced = self.partitions or sorted({action.partition for action in staged})
            left = []
            if unique and staged:
                moves = moves_of(attempt, tree, rows, lambda frame: held_by(held, frame), replaced)
                left = stage_leaving(attempt, tree, moves)
        return self._work(attempt, tree, staged, left, replaced, targets)

    def _targets(self, snapshot: Snapshot, values: Collection[tuple[str | None, ...]]) -> Spread:
        if self.partitions is not None:
            stray = [path for texts in values if (path := path_of(snapshot.table, texts)) not in self.partitions]
            if snapshot.table.partition_by and stray:
                raise InvalidInput(
                    f"The input holds rows of {stray[0]!r}, which is not among the partitions to overwrite.",
                    hint="Take those rows out, or name their partition too.",
                )
        return spread(snapshot, values)

    def _work(
        self,
        attempt: Attempt,
        tree: Tree,
        staged: list[AddFile],
        left: list[AddFile],
        replaced: Sequence[str],
        targets: Spread,
    ) -> Work | None:
        snapshot = attempt.snapshot
        old = [file for path in replaced for file in snapshot.state.files(tree.name, path)]
        if not staged and not old:
            return None
        targets = targets.only(action.partition for action in staged)
        work = Work(reads=targets.reads, metrics={**written(staged), "replaced_files": len(old)})
        # A partition that others only lose rows from keeps its entry as it is.
        work.actions.extend(targets.puts)
        work.actions.extend(RemoveFile(tree.name, file.path) for file in old)
        work.actions.extend([*staged, *left])
        work.writes.extend(Write(partition_scope(path), "replace") for path in replaced)
        work.writes.extend(Write(group_scope(a.partition, a.group), "append") for a in left)
        keep_unique(attempt, tree, [*staged, *left], work, replaced)
        if kept(snapshot.state):
            columns = wanted_columns(snapshot)
            maintain(attempt, _replacing(snapshot, tree, old, staged, left, replaced, columns), work)
        return work


def _replacing(
    snapshot: Snapshot,
    tree: Tree,
    old: Sequence[DataFile],
    staged: Sequence[AddFile],
    left: Sequence[AddFile],
    replaced: Sequence[str],
    columns: Sequence[str],
) -> Changes:
    """The changes of a commit that removes ``old``, adds ``staged``, and takes moved rows away from
    elsewhere."""
    names = list(dict.fromkeys([*tree.place, *columns]))
    gone: list[DataFrame] = []
    if old:
        groups: dict[tuple[str, str], list[DataFile]] = {}
        for file in sorted(old, key=lambda file: (file.place, file.kind == "delta")):
            groups.setdefault(file.group_key, []).append(file)
        gone.append(scan(snapshot, tree, groups, names))
    if left:
        moved = changes_of(snapshot, tree, left, columns).before
        if moved is not None:
            gone.append(moved)
    after = read_files(snapshot, tree, as_files(snapshot, staged), names) if staged else None
    written_groups = [(a.partition, a.group) for a in (*staged, *left)]
    return Changes(
        reduce(DataFrame.unionByName, gone).select(*map(column, names)) if gone else None,
        after,
        frozenset([*(file.group_key for file in old), *written_groups]),
        frozenset(replaced),
    )


class DropPartitions(Action):
    """Partitions go, with their rows and bucket counts; those that are not there are passed over."""

    operation: ClassVar[str] = "drop_partition"

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = list(paths)

    def validate(self, snapshot: Snapshot) -> None:
        if not snapshot.table.partition_by:
            raise InvalidInput(
                "The table has no partition columns, so no partition can be dropped.",
                hint="Use delete('true') to remove all rows, or drop() to drop the table.",
            )
        self.paths = list(dict.fromkeys(canonical(snapshot.table, path) for path in self.paths))

    def work(self, attempt: Attempt) -> Work | None:
        snapshot, tree = attempt.snapshot, attempt.snapshot.data
        paths = [path for path in self.paths if path in snapshot.state.partitions]
        if not paths:
            return None
        old = [file for path in paths for file in snapshot.state.files(tree.name, path)]
        work = Work(
            actions=[DropPartition(path) for path in paths],
            writes=[Write(partition_scope(path), "replace") for path in paths],
            metrics={"partitions": len(paths), "files": len(old), "bytes": sum(file.bytes for file in old)},
        )
        if old and kept(snapshot.state):
            maintain(attempt, _replacing(snapshot, tree, old, [], [], paths, wanted_columns(snapshot)), work)
        drop_from_indexes(attempt, paths, work)
        return work


class Drop(Action):
    """The table goes, with all its indexes. Its files stay until they are cleaned or deleted by hand."""

    operation: ClassVar[str] = "drop_table"
    on_sources = "blind"

    def work(self, attempt: Attempt) -> Work | None:
        return Work(actions=[DropTable()], writes=[Write(table_scope(), "replace")])

    def committed(self, handle: TableHandle, receipt: Receipt) -> None:
        from spark_apps.actions.indexing import left_behind

        # An index never stops its table from being dropped; all of it that lies with the table goes anyway.
        for error in left_behind(handle, receipt):
            logger.warning("What an index keeps outside of the table was not removed: %s", error)
