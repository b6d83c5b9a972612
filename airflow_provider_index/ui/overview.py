"""The tables of a connection as one page of the overview shows them: which ones, in which order, and their totals."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

from airflow_provider_index.maintenance.health import Health, behind_since, health_of
from airflow_provider_index.ui.limits import (
    FRESH_SECONDS,
    LISTING_SECONDS,
    MAX_KEPT,
    MAX_TABLES_READ,
    PAGE_SIZES,
    PATIENCE_SECONDS,
)
from airflow_provider_index.ui.tables import Lake, Readers, TableName
from spark_apps.storage.errors import TableNotFound
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.state import Window
from spark_apps.timeline.statistics import TableStatistics, table_statistics


@dataclass(frozen=True)
class TableSummary:
    """A table of the overview, as of ``read_at`` (seconds since 1970).

    :param behind_since: index -> when the first commit was made that it does not cover.
    """

    table: TableName
    read_at: float
    statistics: TableStatistics | None = None
    windows: tuple[Window, ...] = ()
    behind_since: tuple[tuple[str, float], ...] = ()
    trouble: str = ""
    dropped: bool = False
    waiting: bool = False

    @property
    def health(self) -> Health | None:
        """The table's health, ``None`` if it could not be read."""
        if self.statistics is None:
            return None
        return health_of(self.statistics, self.windows, dict(self.behind_since), self.read_at)

    @property
    def concerns(self) -> bool:
        """True if a person should look: it cannot be read or is empty, an index lags or is off, a window is overdue."""
        if self.statistics is None:
            return bool(self.trouble)
        if not self.statistics.data.files:
            return True
        indexes = self.statistics.indexes.values()
        lags = any(index.lag.groups or index.state != "active" for index in indexes)
        return lags or any(window.deadline < time.time() for window in self.windows)


@dataclass(frozen=True)
class Listing:
    """The tables of a warehouse; ``trouble`` says why they are not known."""

    tables: tuple[TableName, ...] = ()
    read_at: float = 0.0
    trouble: str = ""


@dataclass
class _Entry:
    value: Any = None
    read_at: float = float("-inf")
    future: Future[Any] | None = None


class TableCache:
    """Cache of what is known of the tables of all connections, safe to be used by many requests at once."""

    def __init__(self, patience: float = PATIENCE_SECONDS, fresh: float = FRESH_SECONDS, threads: int = 8) -> None:
        self.patience = patience
        self.fresh = fresh
        self.threads = threads
        self._readers: dict[str, Readers] = {}
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._lock = Lock()

    def readers(self, lake: Lake) -> Readers:
        """Return the threads that read what is behind a connection: one that hangs takes none of another's."""
        with self._lock:
            return self._readers.setdefault(lake.conn_id, Readers(self.threads))

    def helpers(self, lake: Lake) -> Readers:
        """Return threads for many small requests at once. Others than those above, which wait for them."""
        with self._lock:
            return self._readers.setdefault(f"{lake.conn_id} helpers", Readers(2 * self.threads))

    def listing(self, lake: Lake) -> Listing:
        """Return the tables of a warehouse, at most half a minute old unless listing takes longer than a page waits."""
        entry = self._ask(lake, "", LISTING_SECONDS, lambda _: self._list(lake))
        self._wait(lake, [entry], time.monotonic() + self.patience)
        if entry.value is None:
            return Listing(trouble=f"No answer within {self.patience:g} s. Load the page again to see whether it came.")
        listing: Listing = entry.value
        return listing

    def summaries(
        self, lake: Lake, first: Sequence[TableName], others: Sequence[TableName] = ()
    ) -> dict[str, TableSummary]:
        """Return summaries by location, of ``first``, for which the page waits, and of ``others`` as known by then."""
        until = time.monotonic() + self.patience
        answers = {table: self._ask_summary(lake, table) for table in (*first, *others)}
        self._wait(lake, [answers[table] for table in first], until)
        return {table.location: self._summary(table, entry) for table, entry in answers.items()}

    def _ask_summary(self, lake: Lake, table: TableName) -> _Entry:
        return self._ask(lake, table.location, self.fresh, lambda known: read_summary(lake, table, known))

    def _summary(self, table: TableName, entry: _Entry) -> TableSummary:
        if entry.value is not None:
            summary: TableSummary = entry.value
            return summary
        late = f"No answer within {self.patience:g} s; the page goes on asking."
        return TableSummary(table, time.time(), trouble=late, waiting=True)

    def _ask(self, lake: Lake, what: str, fresh: float, read: Callable[[Any], Any]) -> _Entry:
        key = (lake.identity, what)
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > MAX_KEPT:
                self._entries.popitem(last=False)
            old = time.monotonic() - entry.read_at > fresh
            if not old or (entry.future is not None and not entry.future.done()):
                return entry
            known = entry.value
            readers = self._readers.setdefault(lake.conn_id, Readers(self.threads))
            entry.future = readers.submit(lambda: self._take(entry, lambda: read(known)))
            return entry

    @staticmethod
    def _take(entry: _Entry, read: Callable[[], Any]) -> None:
        entry.value = read()
        entry.read_at = time.monotonic()

    def _wait(self, lake: Lake, entries: Sequence[_Entry], until: float) -> None:
        futures = {entry.future for entry in entries if entry.future is not None and not entry.future.done()}
        while futures and (remaining := until - time.monotonic()) > 0:
            self.readers(lake).nudge()
            futures = set(wait(futures, min(remaining, 1.0)).not_done)

    def _list(self, lake: Lake) -> Listing:
        try:
            return Listing(tuple(lake.tables(self.helpers(lake), 2 * self.patience)), time.time())
        except Exception as error:  # noqa: BLE001 - the page says so; it must not fail for one connection
            return Listing(read_at=time.time(), trouble=lake.reason(error))


def read_summary(lake: Lake, table: TableName, known: TableSummary | None = None) -> TableSummary:
    """Read what the overview says of a table; never raises, but says what is wrong."""
    now = time.time()
    try:
        log = lake.log(table)
        if known is not None and known.statistics is not None:
            following = log.head(commit_key(known.statistics.version + 1))
            if following is None and log.head(commit_key(known.statistics.version)) is not None:
                return replace(known, read_at=now)
        return _read(Timeline.load(log), table, now)
    except TableNotFound as error:
        return TableSummary(table, now, trouble=lake.reason(error), dropped=True)
    except Exception as error:  # noqa: BLE001 - one table that cannot be read must not hide the others
        return TableSummary(table, now, trouble=lake.reason(error))


def in_trouble(summary: TableSummary, error: BaseException) -> TableSummary:
    """Return the summary of a table whose numbers were read and make no sense."""
    return TableSummary(
        summary.table, summary.read_at, trouble=f"What its log says cannot be shown ({type(error).__name__})."
    )


def _read(timeline: Timeline, table: TableName, now: float) -> TableSummary:
    state = timeline.head
    statistics = table_statistics(state)
    since = behind_since(timeline, statistics, now)
    return TableSummary(table, now, statistics, tuple(state.windows.values()), tuple(since.items()))


# --- The tables of a connection as one page of the overview shows them ----------------------------------------------


T = TypeVar("T")

_WHOLE = re.compile(r"-?[0-9]{1,9}")


def _size(summary: TableSummary) -> float:
    return summary.statistics.data.bytes + summary.statistics.index_bytes if summary.statistics else -1


def _small(summary: TableSummary) -> float:
    return summary.statistics.data.small_files if summary.statistics else -1


def _lag(summary: TableSummary) -> float:
    return max((summary.read_at - since for _, since in summary.behind_since), default=-1.0)


def _changed(summary: TableSummary) -> float:
    return float(summary.statistics.instant or 0) if summary.statistics else -1


SORTS: Mapping[str, tuple[str, Callable[[TableSummary], float] | None]] = {
    "name": ("name", None),
    "lag": ("furthest behind", _lag),
    "small": ("most small files", _small),
    "size": ("largest", _size),
    "changed": ("last changed", _changed),
}
"""Word in the address -> what it is called, and what is sorted by, highest first."""


@dataclass(frozen=True)
class OverviewQuery:
    """The tables that a page of the overview is to show, and their order."""

    search: str = ""
    show: str = "all"
    sort: str = "name"
    page: int = 1
    per_page: int = PAGE_SIZES[0]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> OverviewQuery:
        """Return the query of an address; whatever makes no sense there counts as left out."""
        sort, show = query.get("sort", "name"), query.get("show", "all")
        return cls(
            query.get("q", "").strip()[:200],
            show if show == "concerns" else "all",
            sort if sort in SORTS else "name",
            max(1, whole(query.get("page"), 1)),
            min(max(whole(query.get("per"), PAGE_SIZES[0]), 1), PAGE_SIZES[-1]),
        )


@dataclass(frozen=True)
class Totals:
    """Sums over the tables of a warehouse that have been read; ``unread`` of them have not been yet."""

    tables: int = 0
    unread: int = 0
    troubled: int = 0
    behind: int = 0
    windows: int = 0
    indexes: int = 0
    bytes: int = 0
    index_bytes: int = 0


@dataclass(frozen=True)
class Overview:
    """A page of the overview: ``count`` tables fit the query, on ``pages`` pages."""

    lake: Lake
    chosen: OverviewQuery
    listing: Listing
    summaries: tuple[TableSummary, ...] = ()
    count: int = 0
    totals: Totals | None = None
    now: float = 0.0

    @property
    def pages(self) -> int:
        return max(1, -(-self.count // self.chosen.per_page))


def read_overview(table_cache: TableCache, lake: Lake, chosen: OverviewQuery) -> Overview:
    """Read what the overview of one connection shows.

    That takes at most the cache's patience for the listing, and again for the tables.
    """
    listing = table_cache.listing(lake)
    named = [table for table in listing.tables if chosen.search.lower() in table.name.lower()]
    every = len(listing.tables) <= MAX_TABLES_READ
    in_order = chosen.sort == "name" and chosen.show == "all"
    if in_order or not every:
        shown = _page(named, chosen)
        summaries = _sound(table_cache.summaries(lake, shown, listing.tables if every else ()))
        rows, count = [summaries[table.location] for table in shown], len(named)
    else:
        summaries = _sound(table_cache.summaries(lake, named, listing.tables))
        fitting = [summary for table in named if _fits(summary := summaries[table.location], chosen)]
        key = SORTS[chosen.sort][1]
        ordered = fitting if key is None else sorted(fitting, key=key, reverse=True)
        rows, count = _page(ordered, chosen), len(ordered)
    totals = _totals(list(summaries.values())) if every and not listing.trouble else None
    return Overview(lake, chosen, listing, tuple(rows), count, totals, time.time())


def _sound(summaries: Mapping[str, TableSummary]) -> dict[str, TableSummary]:
    """Return the summaries, with an error in each whose numbers cannot be compared and added up with others."""
    sound = {}
    for location, summary in summaries.items():
        try:
            _totals([summary])
            for _, key in SORTS.values():
                if key is not None:
                    key(summary)
            _fits(summary, OverviewQuery(show="concerns"))
        except Exception as error:  # noqa: BLE001 - one table must not hide the others
            summary = in_trouble(summary, error)
        sound[location] = summary
    return sound


def _fits(summary: TableSummary, chosen: OverviewQuery) -> bool:
    return chosen.show == "all" or summary.concerns


def _page(rows: Sequence[T], chosen: OverviewQuery) -> list[T]:
    start = (chosen.page - 1) * chosen.per_page
    return list(rows[start : start + chosen.per_page])


def _totals(summaries: Sequence[TableSummary]) -> Totals:
    read = [(summary, summary.statistics) for summary in summaries if summary.statistics is not None]
    return Totals(
        tables=sum(not summary.dropped for summary in summaries),
        unread=sum(summary.waiting for summary in summaries),
        troubled=sum(bool(summary.trouble) and not summary.dropped and not summary.waiting for summary in summaries),
        behind=sum(any(not index.lag.is_empty for index in statistics.indexes.values()) for _, statistics in read),
        windows=sum(len(summary.windows) for summary, _ in read),
        indexes=sum(len(statistics.indexes) for _, statistics in read),
        bytes=sum(statistics.data.bytes for _, statistics in read),
        index_bytes=sum(statistics.index_bytes for _, statistics in read),
    )


def whole(text: str | None, otherwise: int) -> int:
    """Return a whole number out of an address; something else if it is none, or absurdly long."""
    return int(text) if text and _WHOLE.fullmatch(text) else otherwise
