"""Conflicts: when one commit stands in the way of another.

A commit says what it read and wrote as scopes. Of two that raced, the second one is rebased when the order of the
two makes no difference to either, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.storage.ranged_file import RangedFile
from spark_apps.storage.store import ObjectStore
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
# A compaction leaves the rows as they are; so does an index entry as of an earlier version.
_CHANGES_ROWS: frozenset[WriteMode] = frozenset(("append", "replace", "observed"))

KeysConflict = Callable[[Scope, Commit], bool]
"""Asked where two commits appended to one shard of a unique index: whether they wrote a key in common."""


@dataclass(frozen=True)
class Intent:
    """A commit that is to be made: all but its version and instant.

    :param base: version of the state that the work was done on.
    :param epoch: the stop-write window under which the writer works.
    :param exempt: allowed inside any window (windows, aborts and expiries themselves).
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


def conflict(intent: Intent, landed: Commit) -> tuple[Scope, Scope] | None:
    """Return the scopes (of the intent, of the commit) over which a commit landed since forbids it, or ``None``."""
    for write in landed.writes:
        if write.mode in _CHANGES_ROWS:
            for read in intent.reads:
                if read.overlaps(write.scope) and (read.kind != "shard" or _keys_in_common(intent, read, landed)):
                    return read, write.scope
        for written in intent.writes:
            if written.scope.overlaps(write.scope) and not commute(written.mode, write.mode):
                return written.scope, write.scope
            if written == write and written.mode == "append" and _keys_in_common(intent, written.scope, landed):
                return written.scope, write.scope
    return None


def commute(one: WriteMode, other: WriteMode) -> bool:
    """Test whether two writes of one scope leave the same state in either order."""
    return frozenset((one, other)) in _COMMUTE


def _keys_in_common(intent: Intent, scope: Scope, landed: Commit) -> bool:
    """Test whether two commits wrote one key of a shard of a unique index.

    The entries of other indexes are not unique, so that without ``keys_conflict`` their appends always commute.
    """
    return scope.kind == "shard" and intent.keys_conflict is not None and intent.keys_conflict(scope, landed)


def check_declared(operation: str, actions: Iterable[AnyAction], writes: Iterable[Write]) -> None:
    """Check that a commit changes no more than it declares.

    Otherwise it could not be told apart from others, nor be kept out by a window.

    :raises InvalidInput: for the first action outside of what the commit says it writes.
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


# --- Whether two sets of index files have a key in common -----------------------------------------------------------


@dataclass(frozen=True)
class ByKeys:
    """A test of keys in common that names what it compares, so that another process can do the same.

    :param columns: tree of an index -> its key columns, as files call them.
    """

    columns: Mapping[str, tuple[str, ...]]
    conflict: KeysConflict

    def __call__(self, scope: Scope, landed: Commit) -> bool:
        return self.conflict(scope, landed)


def share_keys(store: ObjectStore, columns: Sequence[str], files: Sequence[AddFile], landed: Sequence[AddFile]) -> bool:
    """Test whether files of one shard hold a key in common; true also where that cannot be read.

    :param columns: the key columns, as files call them; empty if they are not known.
    """
    if not files or not landed:
        return False
    if not columns:
        return True
    import pyarrow as pa

    try:
        keys, landed_keys = _keys(store, columns, files), _keys(store, columns, landed)
        return keys.join(landed_keys, keys.column_names, join_type="left semi").num_rows > 0
    except (StorageError, pa.ArrowException, OSError):
        return True  # what cannot be read may hold a key of this commit; the caller begins again on the new state


def _keys(store: ObjectStore, columns: Sequence[str], files: Sequence[AddFile]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(file: AddFile) -> Any:
        opened = RangedFile(lambda start, end: store.get_range(file.path, start, end), file.bytes)
        source = pa.PythonFile(opened, mode="r")
        return pq.read_table(source, columns=list(columns), coerce_int96_timestamp_unit="us")

    return pa.concat_tables([read(file) for file in files])
