"""When one commit stands in the way of another.

A commit says what it read and wrote as scopes. Of two that raced, the second one is rebased when the order of the
two makes no difference to either, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Commit,
    DropPartition,
    PutPartition,
    RemoveFile,
    Scope,
    Write,
    WriteMode,
    group_scope,
    partition_scope,
)

# Pairs of modes on one scope that leave the same state in either order; the pair's order does not matter.
_COMMUTE: frozenset[frozenset[WriteMode]] = frozenset(
    frozenset(pair)
    for pair in (("append",), ("append", "fold"), ("append", "backdated"), ("backdated",), ("observed",))
)
# A compaction leaves the rows as they are; so does an index entry that tells of an earlier version.
_CHANGES_ROWS: frozenset[WriteMode] = frozenset(("append", "replace", "observed"))

KeysConflict = Callable[[Scope, Commit], bool]
"""Asked where two commits appended to one shard of a unique index: whether they wrote a key in common."""


@dataclass(frozen=True)
class Intent:
    """A commit that somebody wants to make: all but its version and instant.

    :param base: version of the state that the work was done on.
    :param epoch: the stop-write window under which the writer works.
    :param exempt: allowed inside anybody's window (windows, aborts and expiries themselves).
    """

    operation: str
    txn_id: str
    attempt: int
    base: int
    actions: tuple[AnyAction, ...]
    reads: tuple[Scope, ...] = ()
    writes: tuple[Write, ...] = ()
    epoch: int | None = None
    maintained: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    exempt: bool = False
    keys_conflict: KeysConflict | None = None

    @property
    def bucket_counts(self) -> dict[str, int | None]:
        """The bucket counts that the commit's files were written with, by partition."""
        return {action.path: action.buckets for action in self.actions if isinstance(action, PutPartition)}


def conflict(mine: Intent, theirs: Commit) -> tuple[Scope, Scope] | None:
    """The scopes (mine, theirs) over which a commit that landed after my base forbids mine, or ``None``."""
    for write in theirs.writes:
        if write.mode in _CHANGES_ROWS:
            for read in mine.reads:
                if read.overlaps(write.scope) and (read.kind != "shard" or _keys_in_common(mine, read, theirs)):
                    return read, write.scope
        for own in mine.writes:
            if own.scope.overlaps(write.scope) and not commute(own.mode, write.mode):
                return own.scope, write.scope
            if own == write and own.mode == "append" and _keys_in_common(mine, own.scope, theirs):
                return own.scope, write.scope
    return None


def commute(one: WriteMode, other: WriteMode) -> bool:
    """Whether two writes of one scope leave the same state in either order."""
    return frozenset((one, other)) in _COMMUTE


def _keys_in_common(mine: Intent, scope: Scope, theirs: Commit) -> bool:
    """Whether two commits wrote one key of a shard of a unique index. The entries of other indexes are not unique, so
    that without ``keys_conflict`` their appends always commute."""
    return scope.kind == "shard" and mine.keys_conflict is not None and mine.keys_conflict(scope, theirs)


def check_declared(operation: str, actions: Iterable[AnyAction], writes: Iterable[Write]) -> None:
    """A commit that changes more than it says could not be told apart from others, nor be kept out by a window.

    :raises InvalidInput: naming the first action outside of what the commit says it writes.
    """
    declared = tuple(writes)
    known: dict[Scope, bool] = {}
    for action in actions:
        if isinstance(action, AddFile) and action.tree == DATA_TREE:
            scope = group_scope(action.partition, action.group)
        elif isinstance(action, PutPartition | DropPartition):
            scope = partition_scope(action.path)
        else:
            continue
        if scope not in known:
            known[scope] = any(write.scope.overlaps(scope) for write in declared)
        if not known[scope]:
            raise InvalidInput(
                f"{operation} changes {scope} and does not say that it writes there.", hint="Declare it in 'writes'."
            )
    takes_away = any(isinstance(action, RemoveFile | DropPartition) for action in actions)
    if takes_away and all(write.mode == "append" for write in declared):
        raise InvalidInput(
            f"{operation} takes files away and says only that it appends.",
            hint="Declare 'replace', or 'fold' where the rows stay the same.",
        )
