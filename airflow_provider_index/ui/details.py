"""Contents of the page of one table: its log in stretches, what is at work on it, its indexes and their worth."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.maintenance.health import Health, behind_since, health_of
from airflow_provider_index.ui.commits import Entry, entries
from airflow_provider_index.ui.limits import (
    COMMITS_A_PAGE,
    DETAIL_SECONDS,
    MAX_SAMPLED_BYTES,
    MAX_TRANSACTIONS,
    PARTITIONS_A_PAGE,
    UPKEEP_COMMITS,
)
from airflow_provider_index.ui.overview import whole
from airflow_provider_index.ui.tables import Lake, Readers, TableName
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.store import Store
from spark_apps.timeline.delta.publishing import Published, published
from spark_apps.timeline.features import unknown_writer_features
from spark_apps.timeline.limits import SILENT_WRITER_SECONDS
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.maintenance_records import TablePlan, read_last
from spark_apps.timeline.model import AddFile, Commit, Heartbeat, Requested
from spark_apps.timeline.state import State
from spark_apps.timeline.statistics import (
    PartitionStatistics,
    TableStatistics,
    partition_statistics,
    table_statistics,
)
from spark_apps.timeline.transactions import live_requests, read_heartbeat
from spark_apps.workload.worth import Worth, worth_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DetailQuery:
    """Part of the log and of the partitions that a request asks for."""

    before: int | None = None
    partition: str = ""
    page: int = 1
    advice: bool = False
    """Whether advice on the table's indexes is asked for, which reads a sample of its files."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> DetailQuery:
        """Return the query of an address; whatever makes no sense there counts as left out."""
        before = whole(query.get("before"), -1)
        return cls(
            before if before >= 0 else None,
            query.get("partition", "")[:500],
            max(1, whole(query.get("p"), 1)),
            query.get("advice") == "1",
        )


@dataclass(frozen=True)
class Live:
    """An attempt that may still commit, and its last sign of life."""

    requested: Requested
    beat: Heartbeat | None

    @property
    def last_sign(self) -> float:
        """Seconds since 1970."""
        return max(self.requested.requested_at, self.beat.at if self.beat else 0.0)

    def silent(self, now: float) -> bool:
        """Return whether its last sign of life is so old that a drain would take it for dead."""
        return now - self.last_sign > SILENT_WRITER_SECONDS


@dataclass(frozen=True)
class Upkeep:
    """The upkeep of an index: how many of the newest commits wrote to it, and how much."""

    commits: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Detail:
    """All that the page of one table shows, as of ``now`` (seconds since 1970)."""

    lake: Lake
    table: TableName
    query: DetailQuery
    now: float
    state: State
    statistics: TableStatistics
    behind_since: Mapping[str, float]
    entries: tuple[Entry, ...]
    live: tuple[Live, ...]
    more_live: int
    partitions: tuple[PartitionStatistics, ...]
    partition_count: int
    largest_bucket: int
    plans: tuple[TablePlan, ...]
    published: Published | None
    """How far other engines see the table, if it is published for them."""
    worth: Worth | None
    """What its indexes were worth to its queries, if it keeps a query log that can be read."""
    worth_trouble: str
    """Why its query log cannot be read."""
    upkeep: Mapping[str, Upkeep]
    upkeep_commits: int
    health: Health
    advice: Any
    """A :class:`spark_apps.advisor.advice.Advice` if it was asked for; ``advice_trouble`` says why it cannot be had."""
    advice_trouble: str

    @property
    def unknown_features(self) -> list[str]:
        """Features of the table by which this version of the package cannot write."""
        return unknown_writer_features(self.state.writer_features)

    @property
    def partition_pages(self) -> int:
        return max(1, -(-self.partition_count // PARTITIONS_A_PAGE))


def read_detail(lake: Lake, name: str, query: DetailQuery, many: Readers) -> Detail:
    """Read one table.

    :param name: location or name of it.
    :param many: threads on which commits are read, many at once.
    :raises InvalidName: if it is outside the warehouse. :raises TableNotFound: :raises LogDamaged:
    :raises StorageUnavailable:
    """
    table, store = lake.find(name)
    timeline = Timeline.load(store)
    live, more = _live(timeline, many)
    state = timeline.head
    statistics = table_statistics(state)
    now = time.time()
    paths = [path for path in sorted(state.partitions, reverse=True) if query.partition.lower() in path.lower()]
    since = behind_since(timeline, statistics, now)
    newest = _commits(timeline, None, UPKEEP_COMMITS, many)
    # The stretch of the log that the page shows.
    commits = (
        newest[-COMMITS_A_PAGE:] if query.before is None else _commits(timeline, query.before, COMMITS_A_PAGE, many)
    )
    worth, worth_trouble = _worth(lake, timeline, state, many)
    start = (query.page - 1) * PARTITIONS_A_PAGE
    shown = paths[start : start + PARTITIONS_A_PAGE]
    partitions = sorted(partition_statistics(state, shown), key=lambda one: one.path, reverse=True)
    return Detail(
        lake,
        table,
        query,
        now,
        state,
        statistics,
        since,
        tuple(entries(commits, state)),
        tuple(live),
        more,
        tuple(partitions),
        len(paths),
        max((size for partition in partitions for size in partition.bucket_bytes), default=0),
        tuple(_last_plans(store)),
        published(timeline),
        worth,
        worth_trouble,
        _upkeep(state, newest),
        len(newest),
        health_of(statistics, state.windows.values(), since, now, worth),
        *_advice(lake, table, state, query),
    )


def _advice(lake: Lake, table: TableName, state: State, query: DetailQuery) -> tuple[Any, str]:
    """Return advice on the indexes of a table if it was asked for, or why there can be none."""
    if not query.advice or state.definition is None:
        return None, ""
    if state.definition.source is not None:
        # Its log says where its files are, and this server opens nothing by it.
        return None, "It is a registered source, whose files this server does not read. Use AdviseIndexesOperator."
    try:
        opened = TableStoreHook(lake.conn_id).open(table.location)
        return opened.advise(most_bytes=MAX_SAMPLED_BYTES), ""
    except LakeIndexError as error:
        return None, " ".join(part for part in (lake.reason(error), error.hint) if part)


def _worth(lake: Lake, timeline: Timeline, state: State, many: Readers) -> tuple[Worth | None, str]:
    """Return what the indexes of a table were worth to its queries if it keeps a query log, or why that is unknown."""
    try:
        return worth_of(timeline, state, lambda read, of: together(many, [partial(read, one) for one in of])), ""
    except LakeIndexError as error:
        return None, lake.reason(error)


def _upkeep(state: State, commits: Iterable[Commit]) -> dict[str, Upkeep]:
    """Return index -> what these commits wrote to it; those of an index of its name that was dropped are left out."""
    trees = {entry.definition.tree: (name, entry.created) for name, entry in state.indexes.items()}
    upkeep: dict[str, Upkeep] = {}
    for commit in commits:
        written: dict[str, int] = {}
        for action in commit.actions:
            if isinstance(action, AddFile) and action.tree in trees:
                name, created = trees[action.tree]
                if commit.version >= created:
                    written[name] = written.get(name, 0) + action.bytes
        for name, size in written.items():
            before = upkeep.get(name, Upkeep())
            upkeep[name] = Upkeep(before.commits + 1, before.bytes + size)
    return upkeep


def _commits(timeline: Timeline, before: int | None, most: int, many: Readers) -> list[Commit]:
    """Return a stretch of the log, oldest first."""
    last = timeline.head.version if before is None else min(before - 1, timeline.head.version)
    versions = range(max(0, last - most + 1), last + 1)
    commits = together(many, [partial(timeline.read, version) for version in versions])
    return [commit for commit in commits if commit is not None]


def together(many: Readers, calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Return the results of calls that run side by side, in their order. Raises what the first of them raises."""
    futures: list[Future[Any]] = [many.submit(call) for call in calls]
    wait_for(futures, DETAIL_SECONDS)
    return [future.result(0) for future in futures]


def _live(timeline: Timeline, many: Readers) -> tuple[list[Live], int]:
    """Return the newest attempts that may still commit, and how many more there are."""
    requests = sorted(live_requests(timeline), key=lambda one: one.requested_at, reverse=True)
    shown = requests[:MAX_TRANSACTIONS]
    beats = together(many, [partial(_beat, timeline, requested) for requested in shown])
    return [Live(*both) for both in zip(shown, beats, strict=True)], len(requests) - len(shown)


def _beat(timeline: Timeline, requested: Requested) -> Heartbeat | None:
    try:
        return read_heartbeat(timeline, requested.txn_id, requested.attempt)
    except (LakeIndexError, msgspec.MsgspecError) as error:
        logger.info("No sign of life of %s could be read: %s", requested.txn_id, error)
        return None


def _last_plans(store: Store) -> list[TablePlan]:
    """Return what each maintenance DAG left of its last plan, newest first."""
    try:
        return sorted(read_last(store).plans.values(), key=lambda plan: plan.at, reverse=True)
    except (LakeIndexError, msgspec.MsgspecError) as error:
        logger.info("The last plans of %s cannot be read: %s", store.uri, error)
        return []
