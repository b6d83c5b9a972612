"""Changes rows by what they hold: UPDATE and MERGE, computed from the version that the attempt works on.

The changes are staged as an upsert with deletes. What was read of the file groups that change must still be so when
they are published: another commit of rows there, in between, refuses this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_apps.actions.key_location import existing_rows, locate_keys, rows_of_staged, touched_groups
from spark_apps.actions.template import Attempt, StagedChanges
from spark_apps.actions.upsert_plan import keys_are_located, unique_index
from spark_apps.actions.write import Delete, Insert, InsertOverwrite, Staged, Upsert, cached_in
from spark_apps.mergetree.buckets import bucket_column
from spark_apps.mergetree.read import with_keys
from spark_apps.mergetree.schema import column, conform_batch
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import ConcurrentWrite, InvalidInput, KeysExist
from spark_apps.timeline.model import group_scope, partition_scope
from spark_apps.timeline.operations import DELETE, MERGE, UPDATE, Operation
from spark_apps.timeline.state import State

ACTION = "__lakeindex_action"
OLD = "__lakeindex_old_"
_DELETED = "__lakeindex_deleted"
_PROBLEM = "__lakeindex_problem"
_EXAMPLES = 3


MatchedIn = Literal["groups", "buckets", "table"]
"""In the file groups that rows are inserted into, in those of their buckets in any partition, or anywhere."""


@dataclass(frozen=True)
class RowChanges:
    """Changes of rows, as a query computes them.

    :param rows: the table's columns as they are to be; :data:`ACTION`: "update", "delete", "insert", or null for a row
        that only was matched; and for each of :func:`compared`, ``OLD`` and its name: the value that the row had.
    :param matched_once: a row may be matched by one row of a source only.
    :param new_unless_null: a row that is inserted is known to have a new key where none of these columns is null;
        ``None`` if that is known of no row.
    :param matched_in: where a row that another writer adds could match one that is inserted.
    """

    rows: DataFrame
    matched_once: bool = False
    new_unless_null: Collection[str] | None = ()
    matched_in: MatchedIn = "groups"


Compute = Callable[[Snapshot, Callable[[DataFrame], DataFrame]], RowChanges]
"""Computes the changes of a version; the second argument keeps a frame that is used several times."""


ComputeRows = Callable[[Snapshot], DataFrame]
Enabled = Callable[[], AbstractContextManager[Any]]
"""The block in which the frames of a query can be planned."""


def compared(tree: Tree) -> list[str]:
    """Return the columns whose old values a change needs: those of the identity, and the one that orders rows."""
    ordering = [tree.ordering] if tree.ordering is not None and tree.merge_by == "ordering" else []
    return list(dict.fromkeys([*tree.identity, *ordering]))


class ChangeRows(Upsert):
    """Rows that a query changes.

    :param compute: the query, given the version to be changed.
    """

    def __init__(self, compute: Compute, enabled: Enabled) -> None:
        self._compute = compute
        self._enabled = enabled
        self._found: _Found | None = None

    def validate(self, snapshot: Snapshot) -> None:
        with self._enabled():
            self._compute(snapshot, lambda frame: frame)  # analyzed, and not run

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with self._enabled():
            return super().work(attempt)

    def stage(self, attempt: Attempt, tree: Tree, frames: ExitStack) -> Staged:
        attempt.phase("find the rows that change")
        changes = self._compute(attempt.snapshot, lambda frame: cached_in(frames, frame))
        rows = cached_in(frames, changes.rows.withColumn(_PROBLEM, self._problem(attempt.snapshot, tree)))
        counts, unproven = self._check_rows(attempt.snapshot, tree, rows, changes)
        self._found = _Found(changes, rows, counts, unproven)
        if unproven and keys_are_located(attempt.snapshot):
            attempt.phase("look for keys that exist")
            keys = self._found.inserted(tree.key, unproven_only=True)
            located = cached_in(frames, locate_keys(attempt, tree, keys, unproven))
            _refuse_existing(existing_rows(attempt.snapshot, tree, located), tree.identity)
        marked = rows.where(F.col(ACTION).isNotNull()).withColumn(_DELETED, F.col(ACTION) == "delete")
        self.rows, self.deleted = marked.select(*map(column, tree.columns), _DELETED), _DELETED
        return super().stage(attempt, tree, frames)

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        assert self._found is not None
        found, touched = self._found, touched_groups(attempt.snapshot, result.files)
        if found.unproven and touched and not keys_are_located(attempt.snapshot):
            attempt.phase("look for keys that exist")
            existing = rows_of_staged(attempt.snapshot, tree, result.plan, result.files, touched, tree.identity)
            keys = found.inserted(tree.identity, unproven_only=True)
            _refuse_existing(with_keys(existing, keys, tree, tree.identity, found.unproven), tree.identity)
        work.reads.extend(group_scope(action.partition, action.group) for action in result.files)
        if found.counts["inserted"]:
            _read_matching(attempt.snapshot, tree, found, result, work)
        # Only rows that are inserted can be late: a row that is there is above the delete of its key.
        work.metrics.update({**found.counts, "inserted": found.counts["inserted"] - result.late})

    # --- What a change may not do -------------------------------------------------------------------------------------

    def _problem(self, snapshot: Snapshot, tree: Tree) -> Column:
        """Return why a row cannot be changed; null if it can."""

        def differs(names: Sequence[str]) -> Column:
            same = F.lit(True)
            for name in names:
                same = same & column(name).eqNullSafe(column(OLD + name))
            return ~same

        problem = F.when(differs(tree.key), "key")
        if unique_index(snapshot.state) is None:
            problem = problem.when(differs(tree.partition_by), "partition")
        if tree.ordering is not None and tree.merge_by == "ordering":
            new, old = column(tree.ordering), column(OLD + tree.ordering)
            problem = problem.when((new < old) | (new.isNull() & old.isNotNull()), "ordering")
        return F.when(F.col(ACTION) == "update", problem)

    def _check_rows(
        self, snapshot: Snapshot, tree: Tree, rows: DataFrame, changes: RowChanges
    ) -> tuple[dict[str, int], int]:
        """Check all changes before any is staged, but for keys of the table; return how many there are of each kind.

        :returns: the counts, and how many rows are inserted whose keys the table may have.
        :raises InvalidInput: naming rows that cannot be changed so.
        :raises KeysExist: for several rows to be inserted with one key.
        """
        counts: dict[str, int] = {"updated": 0, "deleted": 0, "inserted": 0}
        unproven = 0
        unsure = F.count(F.when(_may_exist(changes), 1))
        grouped = rows.groupBy(ACTION, _PROBLEM).agg(F.count(F.lit(1)), unsure)
        for action, problem, count, of_them in grouped.collect():
            if problem is not None:
                _refuse(tree, rows.where(F.col(_PROBLEM) == problem), problem, self.operation)
            if action is not None:
                counts[f"{action.removesuffix('e')}ed"] = count
            unproven += of_them
        if changes.matched_once:
            old = [column(OLD + name).alias(name) for name in tree.identity]
            # A row of the source without a match, inserted or not, has no values of the table: no key there is null.
            matched = rows.where(column(OLD + tree.key[0]).isNotNull()).select(*old)
            if repeated := _repeated(matched, tree.identity):
                raise InvalidInput(
                    f"Several rows of the source match one row of the table, such as {repeated}.",
                    hint="Nothing decides which of them counts: let the source have one row for each.",
                )
        if counts["inserted"]:
            identity = tree.key if unique_index(snapshot.state) is not None else tree.identity
            if repeated := _repeated(rows.where(F.col(ACTION) == "insert"), identity):
                raise KeysExist(
                    f"Several rows that are to be inserted have one key, such as {repeated}.",
                    hint="Let the source have one row a key.",
                )
        return counts, unproven


@dataclass(frozen=True)
class _Found:
    """Changes that a query found.

    :param rows: of ``changes``, computed. :param counts: how many rows are updated, deleted and inserted.
    :param unproven: how many of the inserted ones may have a key of the table.
    """

    changes: RowChanges
    rows: DataFrame
    counts: dict[str, int]
    unproven: int

    def inserted(self, names: Sequence[str], *, unproven_only: bool = False) -> DataFrame:
        """Return some columns of the rows that are inserted."""
        chosen = _may_exist(self.changes) if unproven_only else F.col(ACTION) == "insert"
        return self.rows.where(chosen).select(*map(column, names))


def _may_exist(changes: RowChanges) -> Column:
    """Return whether a row is inserted whose key the table may have."""
    if changes.new_unless_null is None:
        unsure = F.lit(True)
    else:
        unsure = reduce(Column.__or__, [column(name).isNull() for name in changes.new_unless_null], F.lit(False))
    return (F.col(ACTION) == "insert") & unsure


def _refuse_existing(rows: DataFrame, identity: Sequence[str]) -> None:
    """Refuse rows that are to be inserted where some exist. :raises KeysExist: with examples, if there is any."""
    if existing := rows.select(*map(column, identity)).limit(_EXAMPLES).collect():
        raise KeysExist(
            f"Rows are to be inserted whose keys the table has already, such as {_keys(existing, identity)}.",
            hint="Match rows by nothing but the record key, or take those rows out of the source.",
        )


# --- What another writer may not do meanwhile -------------------------------------------------------------------------


def _read_matching(snapshot: Snapshot, tree: Tree, found: _Found, result: Staged, work: StagedChanges) -> None:
    """Add to ``work`` that no row is added where it could match one that was inserted because none did."""
    matched_in, partitions = found.changes.matched_in, snapshot.state.partitions
    if matched_in == "groups":
        return  # they are read as they are
    if matched_in == "table":
        work.reads.extend(map(partition_scope, partitions))
        groups: dict[int | None, set[str]] | None = None
    else:
        groups = _groups_of_inserted(snapshot, tree, found, result)
        work.reads.extend(
            group_scope(path, group) for path, entry in partitions.items() for group in groups[entry.buckets]
        )

    def guard(head: State) -> None:
        for path, entry in head.partitions.items():
            there = set() if path in partitions else {file.group for file in head.files(tree.name, path)}
            if there and (groups is None or there & groups.get(entry.buckets, there)):
                raise ConcurrentWrite(
                    f"Since version {snapshot.state.version}, from which this statement began, rows of the new "
                    f"partition {path!r} have landed, which may match rows that it inserts.",
                    hint="Run it again: it will match those rows.",
                )

    work.guard = guard


def _groups_of_inserted(snapshot: Snapshot, tree: Tree, found: _Found, result: Staged) -> dict[int | None, set[str]]:
    """Return, for each bucket count of the table, the groups of the inserted rows in partitions of that count."""
    counts = {entry.buckets for entry in snapshot.state.partitions.values()}
    counts |= {target.buckets for target in result.targets.targets}
    if len(counts) == 1:
        return {counts.pop(): {action.group for action in result.files}}
    types = [tree.type_of(name) for name in tree.hash_fields]
    groups: dict[int | None, set[str]] = {}
    for count in counts:
        assert count is not None
        bucket = bucket_column(tree.hash_fields, count, tree.hash_function, types)
        rows = found.inserted(tree.hash_fields).select(bucket).distinct().collect()
        groups[count] = {str(row[0]) for row in rows}
    return groups


def _repeated(rows: DataFrame, names: Sequence[str]) -> str:
    repeated = rows.groupBy(*map(column, names)).count().where("count > 1").limit(_EXAMPLES).collect()
    return _keys([row[:-1] for row in repeated], names)


def _keys(rows: Sequence[Any], names: Sequence[str]) -> str:
    texts = (", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True)) for row in rows)
    return ", ".join(f"({text})" for text in texts)


_PROBLEMS = {
    "key": (
        "gives rows another record key, such as that of {rows}",
        "A key names its row for good: delete the row and insert another.",
    ),
    "partition": (
        "moves rows to another partition, such as {rows}",
        "A table with an index of kind 'record' can do that; else delete the rows and insert them anew.",
    ),
    "ordering": (
        "lowers the ordering column, so that the rows as they are would win, such as {rows}",
        "The table is merged by that column: give it a value that is not lower.",
    ),
}


def _refuse(tree: Tree, rows: DataFrame, problem: str, operation: Operation) -> None:
    examples = rows.select(*(column(OLD + name).alias(name) for name in tree.identity)).limit(_EXAMPLES).collect()
    says, hint = _PROBLEMS[problem]
    raise InvalidInput(f"The {operation} {says.format(rows=_keys(examples, tree.identity))}.", hint=hint)


class UpdateRows(ChangeRows):
    """Rows that satisfy a condition get other values."""

    operation: ClassVar[Operation] = UPDATE


class MergeRows(ChangeRows):
    """Rows are changed, deleted and inserted by what a source holds."""

    operation: ClassVar[Operation] = MERGE


class DeleteRows(Delete):
    """Rows that a query finds are deleted."""

    operation: ClassVar[Operation] = DELETE

    def __init__(self, compute: ComputeRows, enabled: Enabled) -> None:
        super().__init__("true")
        self._compute = compute
        self._enabled = enabled

    def validate(self, snapshot: Snapshot) -> None:
        with self._enabled():
            self._compute(snapshot)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with self._enabled(), ExitStack() as frames:
            self.rows = cached_in(frames, self._compute(attempt.snapshot))
            return super().work(attempt)

    def check(self, attempt: Attempt, tree: Tree, result: Staged, work: StagedChanges) -> None:
        work.reads.extend(group_scope(action.partition, action.group) for action in result.files)


class InsertQuery(Insert):
    """Rows that a query gives are inserted, as it finds them in the version that the attempt works on."""

    def __init__(self, compute: ComputeRows, enabled: Enabled) -> None:
        self._compute = compute
        self._enabled = enabled
        self.deleted = None

    def validate(self, snapshot: Snapshot) -> None:
        with self._enabled():
            conform_batch(self._compute(snapshot), snapshot.data.schema)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with self._enabled():
            self.rows = self._compute(attempt.snapshot)
            return super().work(attempt)


class OverwriteQuery(InsertOverwrite):
    """Partitions are replaced by the rows of a query, as it finds them in the version that the attempt works on.

    :param also: which partitions of a version are replaced beside those of the rows.
    """

    def __init__(self, compute: ComputeRows, enabled: Enabled, also: Callable[[State], Collection[str]] | None) -> None:
        self._compute = compute
        self._enabled = enabled
        self.also = also
        self.partitions = None

    def validate(self, snapshot: Snapshot) -> None:
        with self._enabled():
            conform_batch(self._compute(snapshot), snapshot.data.schema)

    def work(self, attempt: Attempt) -> StagedChanges | None:
        with self._enabled():
            self.rows = self._compute(attempt.snapshot)
            return super().work(attempt)
