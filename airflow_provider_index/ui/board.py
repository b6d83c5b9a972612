"""What the overview says of many tables: read by several threads, kept for some seconds, late ones not waited for.

A table whose last reading is no older than ``fresh_seconds`` is not read at all; an older one is asked whether its log
has a next version, which is one request, and read anew only then.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from airflow_provider_index.ui.lake import Lake, TableName
from airflow_provider_index.ui.readers import Readers
from spark_apps.storage.errors import TableNotFound
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.state import Window
from spark_apps.timeline.statistics import TableStatistics, age_of_lag, table_statistics

FRESH_SECONDS = 15.0
LISTING_SECONDS = 30.0
PATIENCE_SECONDS = 3.0
"""How long a page waits for what it shows. What comes later is there when the page is loaded again."""

_KEPT = 20_000


@dataclass(frozen=True)
class Card:
    """One table of the overview, as of ``read_at`` (seconds since 1970).

    :param behind_since: index -> when the first commit was made that it does not tell of.
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
    def concerns(self) -> bool:
        """Whether somebody should look: it cannot be read, an index lags or is off, or a window is overdue."""
        if self.statistics is None:
            return bool(self.trouble)
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


class Board:
    """What is known of the tables of all connections. Safe to be used by many requests at once."""

    def __init__(self, patience: float = PATIENCE_SECONDS, fresh: float = FRESH_SECONDS, threads: int = 8) -> None:
        self.patience = patience
        self.fresh = fresh
        self.threads = threads
        self._readers: dict[str, Readers] = {}
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._lock = Lock()

    def readers(self, lake: Lake) -> Readers:
        """The threads that read what is behind a connection: one that hangs takes none of another's."""
        with self._lock:
            return self._readers.setdefault(lake.conn_id, Readers(self.threads))

    def helpers(self, lake: Lake) -> Readers:
        """Threads for many small requests at once. Others than those above, which wait for them."""
        with self._lock:
            return self._readers.setdefault(f"{lake.conn_id} helpers", Readers(2 * self.threads))

    def listing(self, lake: Lake) -> Listing:
        """The tables of a warehouse, at most half a minute old unless listing takes longer than a page waits."""
        entry = self._ask(lake, "", LISTING_SECONDS, lambda _: self._list(lake))
        self._wait(lake, [entry], time.monotonic() + self.patience)
        if entry.value is None:
            return Listing(trouble=f"No answer within {self.patience:g} s. Load the page again to see whether it came.")
        listing: Listing = entry.value
        return listing

    def cards(self, lake: Lake, first: Sequence[TableName], others: Sequence[TableName] = ()) -> dict[str, Card]:
        """Cards by location: of ``first``, for which the page waits, and of ``others`` what is known by then."""
        until = time.monotonic() + self.patience
        asked = {table: self._ask_card(lake, table) for table in (*first, *others)}
        self._wait(lake, [asked[table] for table in first], until)
        return {table.location: self._card(table, entry) for table, entry in asked.items()}

    def _ask_card(self, lake: Lake, table: TableName) -> _Entry:
        return self._ask(lake, table.location, self.fresh, lambda known: read_card(lake, table, known))

    def _card(self, table: TableName, entry: _Entry) -> Card:
        if entry.value is not None:
            card: Card = entry.value
            return card
        late = f"No answer within {self.patience:g} s; the page goes on asking."
        return Card(table, time.time(), trouble=late, waiting=True)

    def _ask(self, lake: Lake, what: str, fresh: float, read: Callable[[Any], Any]) -> _Entry:
        key = (lake.identity, what)
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > _KEPT:
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
        while futures and (left := until - time.monotonic()) > 0:
            self.readers(lake).nudge()
            futures = set(wait(futures, min(left, 1.0)).not_done)

    def _list(self, lake: Lake) -> Listing:
        try:
            return Listing(tuple(lake.tables(self.helpers(lake), 2 * self.patience)), time.time())
        except Exception as error:  # noqa: BLE001 - the page says so; it must not fail for one connection
            return Listing(read_at=time.time(), trouble=lake.reason(error))


def read_card(lake: Lake, table: TableName, known: Card | None = None) -> Card:
    """Reads what the overview says of a table; never raises, but says what is wrong."""
    now = time.time()
    try:
        log = lake.log(table)
        if known is not None and known.statistics is not None:
            following = log.head(commit_key(known.statistics.version + 1))
            if following is None and log.head(commit_key(known.statistics.version)) is not None:
                return replace(known, read_at=now)
        return _read(Timeline.load(log), table, now)
    except TableNotFound as error:
        return Card(table, now, trouble=lake.reason(error), dropped=True)
    except Exception as error:  # noqa: BLE001 - one table that cannot be read must not hide the others
        return Card(table, now, trouble=lake.reason(error))


def in_trouble(card: Card, error: BaseException) -> Card:
    """The card of a table whose numbers were read, and make no sense."""
    return Card(card.table, card.read_at, trouble=f"What its log says cannot be shown ({type(error).__name__}).")


def _read(timeline: Timeline, table: TableName, now: float) -> Card:
    state = timeline.head
    statistics = table_statistics(state)
    ages = ((name, age_of_lag(timeline, index.lag)) for name, index in statistics.indexes.items())
    since = tuple((name, now - age) for name, age in ages if age is not None)
    return Card(table, now, statistics, tuple(state.windows.values()), since)
