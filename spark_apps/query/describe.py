"""What a table shows of itself: its partitions, indexes and history, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_apps.timeline.files import DataFile
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, IndexDefinition
from spark_apps.timeline.state import State


@dataclass(frozen=True)
class PartitionInfo:
    """A partition: its bucket count and live files. ``rows`` counts what the files hold before merging,
    without tombstones: after a compaction that is the number of rows, before it an upper bound."""

    buckets: int | None
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class HistoryEntry:
    """One commit. ``instant`` is ``yyyyMMddHHmmssSSS`` in UTC."""

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


def partitions_of(state: State) -> dict[str, PartitionInfo]:
    """Partition path -> its bucket count and live files, by path."""
    files: dict[str, list[DataFile]] = {path: [] for path in state.partitions}
    for file in state.files(DATA_TREE):
        files.setdefault(file.partition, []).append(file)
    return {
        path: PartitionInfo(
            state.partitions[path].buckets,
            sum(file.rows - file.tombstones for file in found),
            sum(file.bytes for file in found),
            len(found),
        )
        for path, found in sorted(files.items())
    }


def indexes_of(state: State) -> dict[str, IndexInfo]:
    """Index name -> what it is and how far it lags, by name."""
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
    """All commits up to ``version``, oldest first."""
    return [
        HistoryEntry(commit.version, commit.instant, commit.operation, commit.txn_id, dict(commit.metrics))
        for commit in timeline.commits(until=version)
    ]
