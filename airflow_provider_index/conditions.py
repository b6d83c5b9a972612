"""Conditions that sensors and triggers wait for: questions to a timeline just read, which are answered at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_apps.layout.partitions import canonical
from spark_apps.storage.errors import DrainTimeout, IndexNotFound
from spark_apps.timeline import windows
from spark_apps.timeline.limits import SILENT_WRITER_SECONDS
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Commit, Receipt
from spark_apps.timeline.operations import operation_of
from spark_apps.timeline.state import IndexEntry


def paths_of(timeline: Timeline, partitions: Iterable[str] | None) -> list[str] | None:
    """Return partitions that a person named, as the log calls them: ``dt=1/`` and, of a number, ``dt=01`` are ``dt=1``.

    :raises InvalidInput: for what is no path of a partition of the table.
    """
    return None if partitions is None else [canonical(timeline.head.table, path) for path in partitions]


def new_commit(
    timeline: Timeline,
    after: int,
    operations: Iterable[str] | None = None,
    partition: str | None = None,
) -> dict[str, Any] | None:
    """Return the receipt of the first commit behind version ``after`` that changed rows or indexes.

    :param operations: only these; windows, aborts and expiries count only if they are named.
    :param partition: only commits that wrote into this partition.
    """
    names = None if operations is None else frozenset(operations)
    partition = None if partition is None else canonical(timeline.head.table, partition)
    for commit in timeline.commits(after=after):
        named = bool(commit.writes) if names is None else commit.operation in names
        if named and (partition is None or touches(commit, partition)):
            return Receipt.of(commit).to_dict()
    return None


def writers_drained(
    timeline: Timeline,
    epoch: int,
    *,
    silent_seconds: float = SILENT_WRITER_SECONDS,
    then_abort: bool = False,
) -> dict[str, Any] | None:
    """Return whether no writer from before a window is at work in its scope any more, and how many were ended for that.

    :param silent_seconds: writers without a sign of life for so long are ended by a commit.
    :param then_abort: end all that are left.
    :raises WindowNotOpen: if the window has ended.
    """
    try:
        aborted = windows.drain(timeline, epoch, seconds=0, silent_seconds=silent_seconds, then_abort=then_abort)
    except DrainTimeout:
        return None
    return {"epoch": epoch, "aborted": aborted}


def windows_closed(
    timeline: Timeline, *, partitions: Iterable[str] | None = None, epoch: int | None = None
) -> dict[str, Any] | None:
    """Return the newest version, once no other writer holds a window over the table, or over any of these partitions.

    A window past its deadline does not count: the next writer ends it.

    :param epoch: look at the window of this epoch only.
    """
    paths = paths_of(timeline, partitions)
    for window in timeline.head.windows.values():
        apart = window.partitions is not None and paths is not None and not set(paths) & set(window.partitions)
        if (epoch is None or window.epoch == epoch) and not apart and timeline.clock() <= window.deadline:
            return None
    return {"version": timeline.head.version}


def index_fresh(
    timeline: Timeline,
    index: str,
    *,
    partitions: Iterable[str] | None = None,
    within_commits: int = 0,
    with_source: bool = False,
) -> dict[str, Any] | None:
    """Return whether an active index covers all rows, or lacks no more than the newest commits.

    :param partitions: only these, as paths.
    :param within_commits: how many commits of the table it may be behind.
    :param with_source: count the commits of a registered source too that its log has not taken in.
    :raises IndexNotFound: :raises InvalidInput: if the table has no source that could have commits.
    """
    head = timeline.head
    entry = _index_of(timeline, index)
    if not entry.active:
        return None
    paths = paths_of(timeline, partitions)
    behind = [through for (partition, _), through in entry.lag.items() if paths is None or partition in paths]
    lag = max((head.version - through for through in behind), default=0)
    if with_source and lag <= within_commits:
        from airflow_provider_index.source_state import source_state

        options = getattr(timeline.store, "options", None)
        further = source_state(head, timeline.store.uri, options).behind(head)
        if lag + further > within_commits:
            return None
        lag += int(further)
    return None if lag > within_commits else {"index": index, "version": head.version, "lag": lag}


def index_in_state(timeline: Timeline, index: str, states: Iterable[str]) -> dict[str, Any] | None:
    """Return whether an index is in one of the states: creating, active, disabled, or ``absent`` for none."""
    entry = timeline.head.indexes.get(index)
    state = "absent" if entry is None else str(entry.state)
    return {"index": index, "version": timeline.head.version, "state": state} if state in set(states) else None


def rows_match(
    timeline: Timeline, where: str, at_least: int = 1, time_zone: str | None = None
) -> dict[str, Any] | None:
    """Return whether enough rows satisfy a predicate: the table's version, and how many rows were counted.

    Read in this process, without Spark; no more is read once that number is reached.

    :param time_zone: of times that the predicate gives without one.
    :raises InvalidPredicate: if only Spark can judge the predicate.
    :raises InvalidInput: if the time zone is not known.
    """
    from spark_apps.arrow_table import opened_log

    table, rows = opened_log(timeline, time_zone=time_zone), 0
    for batch in table.batches(where):
        rows += batch.num_rows
        if rows >= at_least:
            return {"version": table.version, "rows": rows}
    return None


def _index_of(timeline: Timeline, index: str) -> IndexEntry:
    entry = timeline.head.indexes.get(index)
    if entry is None:
        raise IndexNotFound(
            f"The table {timeline.store.uri} has no index {index!r}; it has "
            f"{', '.join(sorted(timeline.head.indexes)) or 'none'}.",
            hint="Correct the name, or wait for it with IndexStateSensor(states=['active']).",
        )
    return entry


def touches(commit: Commit, partition: str) -> bool:
    """Return whether a commit wrote into a partition."""
    return any(write.scope.kind == "table" or write.scope.partition == partition for write in commit.writes)


def changes_rows(commit: Commit) -> bool:
    """Return whether a commit changed the table's rows.

    Not so one that put the same rows into other files, that worked on indexes only, or that noted what a source holds.
    """
    if "rows" not in operation_of(commit.operation).changes:
        return False
    return any(
        write.scope.kind in ("table", "partition", "bucket") and write.mode in ("append", "replace")
        for write in commit.writes
    )
