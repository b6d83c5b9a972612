"""Compaction of the table's own file groups; :mod:`spark_apps.indexes.handler` compacts those of an index."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard, get_args

from spark_apps.actions.key_location import positions_over
from spark_apps.actions.limits import FOOTER_THREADS
from spark_apps.actions.template import Action, Attempt, StagedChanges
from spark_apps.actions.upsert_plan import existing_targets, plan_upsert
from spark_apps.mergetree.read import positions_target
from spark_apps.mergetree.tree import FileGroups, Snapshot
from spark_apps.mergetree.write import CompactMode, FoldPlan, fold, folding_metrics, plan_fold
from spark_apps.query.planning import matching_partitions, parse_for_session
from spark_apps.query.predicates import check_predicate
from spark_apps.storage.errors import ConcurrentWrite, InvalidInput
from spark_apps.timeline.commit import Guard
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.files import DataFile, GroupKey, is_merged
from spark_apps.timeline.model import (
    DATA_TREE,
    TOMBSTONES_TREE,
    AddFile,
    AnyAction,
    RemoveFile,
    Write,
    group_scope,
)
from spark_apps.timeline.operations import COMPACT, Operation
from spark_apps.timeline.state import State

_ZONED = re.compile(r"\btimestamp\b")


@dataclass(frozen=True)
class PartitionCompaction:
    """A partition of which files are to be folded: how many, and their bytes."""

    partition: str
    files: int
    bytes: int


@dataclass(frozen=True)
class CompactionPlan:
    """The file groups that a compaction would fold, as figures by partition."""

    mode: str
    partitions: tuple[PartitionCompaction, ...]

    @property
    def files(self) -> int:
        """The files that are read."""
        return sum(one.files for one in self.partitions)

    @property
    def bytes(self) -> int:
        """The bytes of these files."""
        return sum(one.bytes for one in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        parts = [{"partition": one.partition, "files": one.files, "bytes": one.bytes} for one in self.partitions]
        return {"mode": self.mode, "partitions": parts, "files": self.files, "bytes": self.bytes}


class CompactTable(Action):
    """Folding of deltas into bases (``full``) or with each other (``quick``); the rows stay the same.

    ``full`` also writes bases anew that an earlier version wrote in another form: with times as INT96, or, of a
    published table, from before a column was widened.

    :param partitions: paths; all by default.
    :param where: a predicate; partitions in which no row can satisfy it are left out.
    """

    operation: ClassVar[Operation] = COMPACT
    staging = "alone"

    def __init__(
        self, mode: CompactMode = "full", partitions: Iterable[str] | None = None, where: str | None = None
    ) -> None:
        self.mode = check_mode(mode)
        self.where = where
        self.partitions = None if partitions is None else list(partitions)
        self._inputs: dict[GroupKey, list[DataFile]] = {}
        self._beside: dict[GroupKey, list[DataFile]] = {}
        self._emptied: set[GroupKey] = set()

    def validate(self, snapshot: Snapshot) -> None:
        self.confined_to(snapshot.table)
        if self.where is not None:
            check_predicate(snapshot, self.where)

    def plan(self, snapshot: Snapshot) -> CompactionPlan:
        """Return what would be folded, in figures."""
        plan = self._fold_plan(snapshot)
        counts: dict[str, list[DataFile]] = {}
        for (partition, _), files in plan.groups.items():
            counts.setdefault(partition, []).extend(files)
        parts = (PartitionCompaction(path, len(files), sum(one.bytes for one in files)) for path, files in
                 sorted(counts.items()))  # fmt: skip
        return CompactionPlan(self.mode, tuple(parts))

    def _fold_plan(self, snapshot: Snapshot) -> FoldPlan:
        groups, paths = snapshot.groups(DATA_TREE), self.confined_to(snapshot.table)
        if paths is not None:
            groups = {key: files for key, files in groups.items() if key[0] in paths}
        if self.where is not None:
            may_match = matching_partitions(snapshot, parse_for_session(snapshot, self.where))
            groups = {key: files for key, files in groups.items() if key[0] in may_match}
        return plan_fold(groups, self.mode, _files_of_earlier_form(snapshot, groups) if self.mode == "full" else ())

    def work(self, attempt: Attempt) -> StagedChanges | None:
        plan = self._fold_plan(attempt.snapshot)
        if not plan.groups:
            return None
        attempt.phase("fold file groups", 0, len(plan.groups))
        targets = existing_targets(attempt.snapshot, sorted({partition for partition, _ in plan.groups})).targets
        tree, groups = attempt.snapshot.data, attempt.snapshot.groups(DATA_TREE, plan.deltas)
        now = attempt.transaction.timeline.clock()
        actions, metrics = fold(attempt.snapshot, tree, plan, attempt.folder("folded"), targets, now=now)
        deltas = [one for one in actions if _adds_rows(one) and one.kind == "delta"]
        others = [one for one in actions if not (_adds_rows(one) and one.kind == "delta")]
        # The deltas that were folded no longer count, only the file under them does.
        under = {key: positions_target(files[:1]) for key, files in groups.items()}
        upsert = plan_upsert(attempt.snapshot, None, attempt.limits, operation=self.operation.name, given="matches")
        actions = [*others, *positions_over(attempt, tree, upsert, deltas, under)]
        writes = [Write(group_scope(*key), "fold") for key in plan.groups]
        self._inputs = plan.groups
        self._beside = attempt.snapshot.groups(TOMBSTONES_TREE, plan.groups)
        guard = self._guard_of_emptied(actions)
        return StagedChanges(actions=actions, writes=writes, metrics={"mode": self.mode, **metrics}, guard=guard)

    def _guard_of_emptied(self, actions: Iterable[AnyAction]) -> Guard | None:
        """Return a check that nothing lands in file groups of which only the orderings of deletes are left.

        Rows there would be read as they are, with nothing to merge them with.
        """
        added = [action for action in actions if isinstance(action, AddFile)]
        kept = {action.group_key for action in added if action.tree == TOMBSTONES_TREE}
        self._emptied = (
            kept - {action.group_key for action in added if action.tree == DATA_TREE}
        ) & self._inputs.keys()
        if not self._emptied:
            return None

        def guard(head: State) -> None:
            for key in self._emptied:
                if self._has_landed(head, key):
                    raise ConcurrentWrite(
                        f"All rows of the file group {'/'.join(key)} were deleted, and others landed in it while it "
                        "was folded.",
                        hint="Run it again: it will fold them too.",
                    )

        return guard

    def _has_landed(self, state: State, key: GroupKey) -> bool:
        """Return whether files landed in a file group that are not among those that are folded."""
        return not {file.path for file in state.files(DATA_TREE, *key)} <= {file.path for file in self._inputs[key]}

    def still_possible(self, work: StagedChanges, state: State) -> StagedChanges | None:
        """Return the work without the groups that other commits replaced, or hold a window over.

        Groups are folded each by itself, so a long compaction of many partitions does not lose all because of one.
        """
        groups = {write.scope for write in work.writes}
        kept = {
            key: files
            for key, files in self._inputs.items()
            if group_scope(*key) in groups
            and _untouched(state, key, files)
            and not (key in self._emptied and self._has_landed(state, key))
        }
        if not kept or len(kept) == len(groups):
            return None
        beside = {key: files for key, files in self._beside.items() if key in kept}
        paths = {file.path for some in (kept, beside) for files in some.values() for file in files}
        added = [one for one in work.actions if isinstance(one, AddFile) and (one.partition, one.group) in kept]
        removed = [one for one in work.actions if isinstance(one, RemoveFile) and one.path in paths]
        folded = [one for one in added if _adds_rows(one)]
        folding = folding_metrics([file for files in kept.values() for file in files], folded, len(kept))
        metrics = {**work.metrics, **folding, "groups_left": len(self._inputs) - len(kept)}
        return StagedChanges(
            actions=[*removed, *added],
            writes=[Write(group_scope(*key), "fold") for key in kept],
            metrics=metrics,
            guard=work.guard,
        )


def _files_of_earlier_form(snapshot: Snapshot, groups: FileGroups) -> set[str]:
    """Return the files, of groups that have nothing to fold, which are written otherwise today; by their footers.

    They are read where there may be such files: of a table with timestamps, or one that is published.
    """
    table, merged = snapshot.table, [file for files in groups.values() if is_merged(files) for file in files]
    if not publishing.is_published(table) and not any(_ZONED.search(field.type) for field in table.fields):
        return set()
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        earlier = pool.map(lambda file: publishing.is_of_an_earlier_form(snapshot.store, file, table), merged)
        return {file.path for file, is_earlier in zip(merged, earlier, strict=True) if is_earlier}


def _adds_rows(action: AnyAction) -> TypeGuard[AddFile]:
    return isinstance(action, AddFile) and action.tree == DATA_TREE


def _untouched(state: State, key: GroupKey, files: list[DataFile]) -> bool:
    scope = group_scope(*key)
    if any(window.covers(scope) for window in state.windows.values()):
        return False
    return {file.path for file in files} <= {file.path for file in state.files(DATA_TREE, *key)}


def check_mode(mode: str) -> CompactMode:
    """Return the mode.

    :raises InvalidInput: if there is none of that name.
    """
    if mode not in get_args(CompactMode):
        raise InvalidInput(
            f"There is no compaction mode {mode!r}.", hint=f"Use one of: {', '.join(get_args(CompactMode))}."
        )
    return mode  # type: ignore[return-value]
