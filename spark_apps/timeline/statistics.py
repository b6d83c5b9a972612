"""Statistics of a snapshot: sizes, small files, tombstones, and how far indexes lag.

All of them come from the folded log alone, without Spark and without reading any data file, so that a page or a
maintenance plan may ask for many tables. What is to be done about them is decided elsewhere
(:mod:`spark_apps.maintenance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_apps.timeline.files import NO_ROWS, DataFile, GroupKey, RowCount, covered_lineages, merge_order, row_count
from spark_apps.timeline.limits import SMALL_BYTES
from spark_apps.timeline.log import Timeline, seconds_of
from spark_apps.timeline.model import DATA_TREE, OWN_ENGINE
from spark_apps.timeline.state import IndexEntry, State


@dataclass(frozen=True)
class TreeStatistics:
    """Live files of one merge tree: the table's own rows, or the entries of an index.

    :param small_files: of a group with more files than one, those below the size in question: what a compaction can
        fold away. The one file of a group is never counted, since nothing would make it larger.
    :param foldable_groups: groups of more than one file, or with tombstones; ``foldable_files`` and ``foldable_bytes``
        are theirs.
    :param rows: in files, tombstones and rows under later ones included; 0 for sources without counts.
    :param count: rows as a reader sees them, as far as the log says.
    """

    files: int = 0
    bytes: int = 0
    rows: int = 0
    tombstones: int = 0
    delta_files: int = 0
    groups: int = 0
    small_files: int = 0
    small_bytes: int = 0
    foldable_groups: int = 0
    foldable_files: int = 0
    foldable_bytes: int = 0
    largest_group: int = 0
    """Bytes of the group that holds most."""
    count: RowCount = NO_ROWS

    @property
    def tombstone_ratio(self) -> float:
        """Rows that remove a key, of all rows in files: 0 to 1."""
        return self.tombstones / self.rows if self.rows else 0.0

    @property
    def small_share(self) -> float:
        """Small files of all files: 0 to 1."""
        return self.small_files / self.files if self.files else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, the two shares included."""
        figures = {name: value for name, value in asdict(self).items() if name != "count"}
        return {**figures, "tombstone_ratio": self.tombstone_ratio, "small_share": self.small_share}


@dataclass(frozen=True)
class Lag:
    """The part of the rows that an index does not cover yet.

    :param groups: file groups that it does not cover.
    :param files: data files that a refresh would read.
    :param bytes: theirs.
    :param commits: how many commits brought those files, as far as the files still show: a compaction merges the files
        of several commits into one. At least 1 where a group is not covered.
    :param covered_through: the lowest version that some group is covered through; ``None`` if all is covered, -1 if a
        group is not covered at all.
    """

    groups: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    covered_through: int | None = None

    @property
    def is_empty(self) -> bool:
        """True if the index covers all of the table."""
        return self.groups == 0


@dataclass(frozen=True)
class IndexStatistics:
    """Statistics of an index: what it is, what its files hold, and how far it lags.

    ``created`` and ``refreshed`` are versions.
    """

    name: str
    kind: str
    state: str
    deferred: bool
    addresses: str
    tree: TreeStatistics
    lag: Lag
    created: int
    refreshed: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return {**asdict(self), "tree": self.tree.to_dict()}


@dataclass(frozen=True)
class PartitionStatistics:
    """Statistics of a partition.

    ``bucket_bytes`` has an entry a bucket, empty ones included; without a bucket layout one a file group, largest
    first.
    """

    path: str
    buckets: int | None
    files: int
    bytes: int
    rows: int
    bucket_bytes: tuple[int, ...]
    count: RowCount = NO_ROWS

    @property
    def skew(self) -> float:
        """Bytes of the fullest bucket over the mean; 1 is even, 0 an empty partition."""
        return max(self.bucket_bytes) * len(self.bucket_bytes) / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class TableStatistics:
    """A table as of one version."""

    version: int
    instant: str
    source: str | None
    """Format of the registered source whose rows these are; ``None`` for rows of our own."""
    data: TreeStatistics
    indexes: Mapping[str, IndexStatistics] = field(default_factory=dict)
    partitions: int = 0

    @property
    def index_bytes(self) -> int:
        """Bytes of all indexes together."""
        return sum(index.tree.bytes for index in self.indexes.values())


def table_statistics(state: State, small_bytes: int = SMALL_BYTES) -> TableStatistics:
    """Return the numbers of a whole table.

    :raises TableNotFound: if it was dropped.
    """
    source = state.table.source
    return TableStatistics(
        state.version,
        state.instant,
        None if source is None else source.format,
        tree_statistics(state, DATA_TREE, small_bytes),
        {name: index_statistics(state, name, small_bytes) for name in sorted(state.indexes)},
        len(state.partitions),
    )


def tree_statistics(state: State, tree: str, small_bytes: int = SMALL_BYTES) -> TreeStatistics:
    """Return the numbers of one merge tree, in one pass over its files."""
    groups: dict[GroupKey, _Sum] = {}
    files: dict[GroupKey, list[DataFile]] = {}
    for file in state.files(tree):
        groups.setdefault(file.group_key, _Sum()).add(file, small_bytes)
        files.setdefault(file.group_key, []).append(file)
    total = _Sum()
    foldable = [group for group in groups.values() if group.files > 1 or group.tombstones]
    for group in groups.values():
        total.join(group)
    crowded = [group for group in groups.values() if group.files > 1]
    return TreeStatistics(
        total.files,
        total.bytes,
        total.rows,
        total.tombstones,
        total.deltas,
        len(groups),
        sum(group.small for group in crowded),
        sum(group.small_bytes for group in crowded),
        len(foldable),
        sum(group.files for group in foldable),
        sum(group.bytes for group in foldable),
        max((group.bytes for group in groups.values()), default=0),
        count_rows(state, files.values(), tree),
    )


def count_rows(state: State, groups: Iterable[list[DataFile]], tree: str = DATA_TREE) -> RowCount:
    """Return the rows of file groups of a tree as a reader sees them, as far as the log says.

    :param groups: their files, in any order.
    """
    merge_by = "commit" if state.definition is None or tree != DATA_TREE else state.definition.merge_by
    alone, total = 0, NO_ROWS
    for files in groups:
        if len(files) == 1 and files[0].rows >= 0 and not files[0].tombstones:
            alone += files[0].rows  # most groups of a large table
        else:
            total += row_count(sorted(files, key=merge_order), merge_by)
    return total + RowCount(alone, alone)


def index_statistics(state: State, name: str, small_bytes: int = SMALL_BYTES) -> IndexStatistics:
    """Return the numbers of one index.

    :raises IndexNotFound: if there is none of that name.
    """
    entry = state.index(name)
    made = entry.definition
    return IndexStatistics(
        name,
        made.kind,
        entry.state,
        made.deferred,
        made.addresses,
        tree_statistics(state, made.tree, small_bytes),
        lag_of(state, entry),
        entry.created,
        entry.refreshed,
    )


def lag_of(state: State, entry: IndexEntry) -> Lag:
    """Return how far an index is behind the rows of a snapshot."""
    if not entry.lag or entry.definition.engine != OWN_ENGINE:  # another engine keeps its own with each write
        return Lag()
    covered = covered_lineages(state.files(entry.definition.tree)) if entry.by_file else frozenset[int]()
    files = [
        file
        for file in state.files(DATA_TREE)
        if file.group_key in entry.lag
        and (file.lineage not in covered if entry.by_file else file.sequence_number > entry.lag[file.group_key])
    ]
    commits = len({file.sequence_number for file in files})
    return Lag(
        len(entry.lag), len(files), sum(file.bytes for file in files), max(commits, 1), min(entry.lag.values())
    )  # fmt: skip


def partition_statistics(state: State, paths: Iterable[str] | None = None) -> list[PartitionStatistics]:
    """Return sizes of partitions and of their buckets, by path; of all, or of those named that are there."""
    chosen = None if paths is None else set(paths)
    sizes: dict[str, dict[str, int]] = {}
    sums: dict[str, _Sum] = {}
    files: dict[str, dict[str, list[DataFile]]] = {}
    for file in state.files(DATA_TREE):
        if chosen is None or file.partition in chosen:
            groups = sizes.setdefault(file.partition, {})
            groups[file.group] = groups.get(file.group, 0) + file.bytes
            sums.setdefault(file.partition, _Sum()).add(file, 0)
            files.setdefault(file.partition, {}).setdefault(file.group, []).append(file)
    statistics = []
    for path in sorted(state.partitions.keys() | sums.keys()):
        if chosen is None or path in chosen:
            entry, total, groups = state.partitions.get(path), sums.get(path, _Sum()), sizes.get(path, {})
            count = None if entry is None else entry.buckets
            if count is None:
                each = tuple(sorted(groups.values(), reverse=True))
            else:
                each = tuple(groups.get(str(bucket), 0) for bucket in range(count))
            rows = count_rows(state, files.get(path, {}).values())
            statistics.append(PartitionStatistics(path, count, total.files, total.bytes, total.rows, each, rows))
    return statistics


def age_of_version(timeline: Timeline, version: int) -> float | None:
    """Return seconds since a version was committed; ``None`` if the log does not hold it. Reads one commit at most."""
    commit = timeline.read(version) if version >= 0 else None
    return None if commit is None else max(timeline.clock() - seconds_of(commit.instant), 0.0)


def age_of_lag(timeline: Timeline, lag: Lag) -> float | None:
    """Return seconds since the first commit that an index does not cover; ``None`` where all is covered."""
    if lag.covered_through is None:
        return None
    return age_of_version(timeline, lag.covered_through + 1)


class _Sum:
    """A running sum over files."""

    __slots__ = ("bytes", "deltas", "files", "rows", "small", "small_bytes", "tombstones")

    def __init__(self) -> None:
        self.files = self.bytes = self.rows = self.tombstones = self.deltas = self.small = self.small_bytes = 0

    def add(self, file: DataFile, small_below: int) -> None:
        self.files += 1
        self.bytes += file.bytes
        self.rows += max(file.rows, 0)  # a source whose format has no count has -1
        self.tombstones += file.tombstones
        self.deltas += file.kind == "delta"
        if file.bytes < small_below:
            self.small += 1
            self.small_bytes += file.bytes

    def join(self, other: _Sum) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
