"""The partitions, indexes and history of a table, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_apps.timeline.files import DataFile
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, IndexDefinition
from spark_apps.timeline.state import State


@dataclass(frozen=True)
class PartitionInfo:
    """A partition: its bucket count and live files.

    ``rows`` counts what the files hold before merging, without tombstones: after a compaction that is the number of
    rows, before it an upper bound.
    """

    buckets: int | None
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class HistoryEntry:
    """A commit. ``instant`` is ``yyyyMMddHHmmssSSS`` in UTC."""

    version: int
    instant: str
    operation: str
    txn_id: str
    metrics: dict[str, Any]


@dataclass(frozen=True)
class IndexInfo:
    """An index as the table's version shows it. ``lagging`` counts the file groups that it does not cover."""

    name: str
    kind: str
    columns: tuple[str, ...]
    included: tuple[str, ...]
    properties: dict[str, str]
    state: str
    deferred: bool
    lagging: int
    definition: IndexDefinition


@dataclass(frozen=True)
class IndexStatus:
    """The coverage and the size of an index.

    ``covered`` and ``lagging`` count data files and their bytes, by file groups: where an index lags behind in a
    group, all files of the group count as lagging. ``files`` and ``bytes`` are the index's own. ``refreshed`` is the
    version of the last commit that built or refreshed it, ``None`` if none did; the instants are
    ``yyyyMMddHHmmssSSS`` in UTC.
    """

    covered_files: int
    covered_bytes: int
    lagging_files: int
    lagging_bytes: int
    files: int
    bytes: int
    created: int
    created_at: str | None
    refreshed: int | None
    refreshed_at: str | None


def status_of(timeline: Timeline, state: State, name: str) -> IndexStatus:
    """Return the status of an index.

    :raises IndexNotFound: if there is no index of that name.
    """
    entry = state.index(name)
    covered: list[int] = []
    lagging: list[int] = []
    for file in state.files(DATA_TREE):
        (covered if entry.covers(file.group_key) else lagging).append(file.bytes)
    index_bytes = [file.bytes for file in state.files(entry.definition.tree)]
    # What was created empty was not brought up to date by that.
    empty = entry.definition.deferred and entry.refreshed == entry.created
    return IndexStatus(
        covered_files=len(covered),
        covered_bytes=sum(covered),
        lagging_files=len(lagging),
        lagging_bytes=sum(lagging),
        files=len(index_bytes),
        bytes=sum(index_bytes),
        created=entry.created,
        created_at=_instant(timeline, entry.created),
        refreshed=None if empty else entry.refreshed,
        refreshed_at=None if empty else _instant(timeline, entry.refreshed),
    )


def _instant(timeline: Timeline, version: int) -> str | None:
    commit = timeline.read(version)
    return None if commit is None else commit.instant


def partitions_of(state: State) -> dict[str, PartitionInfo]:
    """Return the bucket count and the live files of each partition, by path."""
    files: dict[str, list[DataFile]] = {path: [] for path in state.partitions}
    for file in state.files(DATA_TREE):
        files.setdefault(file.partition, []).append(file)
    return {
        path: PartitionInfo(
            state.partitions[path].buckets,
            sum(max(file.rows, 0) - file.tombstones for file in group),
            sum(file.bytes for file in group),
            len(group),
        )
        for path, group in sorted(files.items())
    }


def indexes_of(state: State) -> dict[str, IndexInfo]:
    """Return what each index is and how far it lags, by name."""
    return {
        name: IndexInfo(
            name=name,
            kind=entry.definition.kind,
            columns=entry.definition.columns,
            included=entry.definition.included,
            properties=entry.definition.properties,
            state=entry.state,
            deferred=entry.definition.deferred,
            lagging=len(entry.lag),
            definition=entry.definition,
        )
        for name, entry in sorted(state.indexes.items())
    }


def history_of(timeline: Timeline, version: int) -> list[HistoryEntry]:
    """Return all commits up to ``version``, oldest first."""
    return [
        HistoryEntry(commit.version, commit.instant, commit.operation, commit.txn_id, dict(commit.metrics))
        for commit in timeline.commits(until=version)
    ]
