"""Restoring an earlier version, as a new commit.

It brings back rows, bucket counts and the state of indexes that existed then and exist now. Newer indexes stay, empty
and covering nothing, as do those that address files if columns have gone or changed since; dropped ones stay dropped.
Windows, transaction ids, aborts, instants and bucket rules never go back. A table that was dropped is not brought back
into the one that was made after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from spark_apps.storage.errors import AlreadyCommitted, InvalidInput, LakeIndexError
from spark_apps.timeline.commit import new_txn_id
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    TOMBSTONES_TREE,
    AnyAction,
    DropPartition,
    IndexDefinition,
    PutIndex,
    PutPartition,
    Receipt,
    RemoveFile,
    Restore,
    SetLag,
    Write,
    table_scope,
)
from spark_apps.timeline.operations import RESTORE
from spark_apps.timeline.state import NEVER, State
from spark_apps.timeline.transactions import begin, find_receipt


def restore(timeline: Timeline, version: int, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
    """Take back the effects of all commits after ``version``.

    :param window: epoch of a stop-write window over the whole table, where one is held.
    :raises VersionNotFound: if the log holds no such version.
    :raises SnapshotExpired: if it was expired.
    :raises ConcurrentWrite: if another writer commits meanwhile.
    :raises InvalidInput: for a version of a table that was dropped since, or if another writer owns the rows.
    :raises TableNotFound: if the table was dropped.
    """
    if txn_id is not None:
        done = find_receipt(timeline, txn_id)  # before looking at the version, which may have been expired since
        if done is not None:
            return done
    head = timeline.refresh()
    if head.table.source is not None:
        raise InvalidInput(
            "This table cannot be restored: another writer owns its rows.",
            hint="Restore the source itself; load(…, source_version=…) reads an older version of it.",
        )
    _check_same_table(timeline, head, timeline.at(version))
    if version == head.version:
        return Receipt(None, txn_id or new_txn_id(RESTORE.name), RESTORE.name, {"restored_version": version})
    try:
        transaction = begin(timeline, operation=RESTORE.name, txn_id=txn_id, window=window, protect=version)
    except AlreadyCommitted as error:
        return error.receipt
    # Not at(): by now the version may have been expired, while its files are kept for this attempt.
    then, now = timeline.rebuild(version), transaction.base
    try:
        _check_same_table(timeline, now, then)  # it may have been dropped and made anew meanwhile
    except LakeIndexError:
        transaction.withdraw()
        raise
    actions = tuple(_changes(now, then))
    metrics = {
        "restored_version": version,
        "rows": sum(file.rows - file.tombstones for file in then.files(DATA_TREE)),
    }
    everything = Write(table_scope(), "replace")
    return transaction.commit(
        (Restore(version), *actions), reads=(table_scope(),), writes=(everything,), metrics=metrics
    )


def _check_same_table(timeline: Timeline, now: State, then: State) -> None:
    """Check that two states are of one table.

    :raises InvalidInput: if the table was dropped between two states, or in the earlier one.
    """
    head, earlier = now.table, then.definition
    dropped_since = now.last_drop is not None and now.last_drop >= then.version
    if earlier is not None and earlier.table_id == head.table_id and not then.dropped and not dropped_since:
        return
    raise InvalidInput(
        f"Version {then.version} is of a table that was dropped at {timeline.store.uri}; the one there now is another, "
        "made in its place.",
        hint=f"Restore a version of this table. The other one's rows can be read with version={then.version}, "
        "while they are kept, and written into this one.",
    )


def _changes(now: State, then: State) -> Iterator[AnyAction]:
    for path in now.partitions.keys() - then.partitions.keys():
        yield DropPartition(path)
    for path, entry in then.partitions.items():
        if now.partitions.get(path) != entry:
            yield PutPartition(path, entry.buckets, entry.values)
    yield from _file_changes(now, then, DATA_TREE)
    yield from _file_changes(now, then, TOMBSTONES_TREE)
    for name, index in now.indexes.items():
        tree, earlier = index.definition.tree, then.indexes.get(name)
        if earlier is not None and earlier.definition.tree == tree and _is_still_readable(index.definition, now, then):
            # Columns keep today's names: the table's schema never goes back.
            definition = replace(earlier.definition, columns=index.definition.columns)
            if definition != index.definition:
                yield PutIndex(definition, index.state)
            yield from _file_changes(now, then, tree)
            lag = earlier.lag
        else:
            # Its entries are on rows, or columns, that are no more; a refresh starts from nothing.
            yield from (RemoveFile(tree, path) for path in sorted(file.path for file in now.files(tree)))
            lag = dict.fromkeys(then.groups(DATA_TREE), NEVER)
        yield SetLag(tree, tuple((*group, through) for group, through in lag.items()))


def _is_still_readable(definition: IndexDefinition, now: State, then: State) -> bool:
    """Test whether what the files of an index held then can be read today.

    Those of an index that addresses files know columns by the names of their time, which may be those of other columns
    by now.
    """
    return definition.addresses == "key" or _columns(then) <= _columns(now)


def _columns(state: State) -> set[tuple[str, str, str]]:
    return {(field.name, field.stored_name, field.type) for field in state.table.fields}


def _file_changes(now: State, then: State, tree: str) -> Iterator[AnyAction]:
    kept = {file.path: file for file in then.files(tree)}
    present = {file.path for file in now.files(tree)}
    for path in sorted(present - kept.keys()):
        yield RemoveFile(tree, path)
    for path in sorted(kept.keys() - present):
        yield kept[path].to_add()
