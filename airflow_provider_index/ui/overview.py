"""The tables of a connection as one page of the overview shows them: which ones, in which order, and their totals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airflow_provider_index.ui.board import Board, Card, Listing, in_trouble
from airflow_provider_index.ui.lake import Lake

T = TypeVar("T")

_WHOLE = re.compile(r"-?[0-9]{1,9}")

PAGE_SIZES = (50, 200, 1000)
MOST_READ = 5000
"""Of a larger warehouse only the tables on the page are read, and totals are not given."""


def _size(card: Card) -> float:
    return card.statistics.data.bytes + card.statistics.index_bytes if card.statistics else -1


def _small(card: Card) -> float:
    return card.statistics.data.small_files if card.statistics else -1


def _lag(card: Card) -> float:
    return max((card.read_at - since for _, since in card.behind_since), default=-1.0)


def _changed(card: Card) -> float:
    return float(card.statistics.instant or 0) if card.statistics else -1


SORTS: Mapping[str, tuple[str, Callable[[Card], float] | None]] = {
    "name": ("name", None),
    "lag": ("furthest behind", _lag),
    "small": ("most small files", _small),
    "size": ("largest", _size),
    "changed": ("last changed", _changed),
}
"""Word in the address -> what it is called, and what is sorted by, highest first."""


@dataclass(frozen=True)
class Wish:
    """What somebody asked the overview for."""

    search: str = ""
    show: str = "all"
    sort: str = "name"
    page: int = 1
    per_page: int = PAGE_SIZES[0]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wish:
        """From an address; whatever makes no sense there is as if it had not been said."""
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
    """Over all tables of a warehouse that have been read; ``unread`` have not been yet."""

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
    """One page of it. ``found`` tables fit the wish, on ``pages`` pages."""

    lake: Lake
    wish: Wish
    listing: Listing
    cards: tuple[Card, ...] = ()
    found: int = 0
    totals: Totals | None = None
    now: float = 0.0

    @property
    def pages(self) -> int:
        return max(1, -(-self.found // self.wish.per_page))


def look(board: Board, lake: Lake, wish: Wish) -> Overview:
    """Reads what the overview of one connection shows, within the board's patience for the listing and again for the
    tables."""
    listing = board.listing(lake)
    named = [table for table in listing.tables if wish.search.lower() in table.name.lower()]
    every = len(listing.tables) <= MOST_READ
    in_order = wish.sort == "name" and wish.show == "all"
    if in_order or not every:
        shown = _page(named, wish)
        cards = _sound(board.cards(lake, shown, listing.tables if every else ()))
        rows, found = [cards[table.location] for table in shown], len(named)
    else:
        cards = _sound(board.cards(lake, named, listing.tables))
        fitting = [card for table in named if _fits(card := cards[table.location], wish)]
        key = SORTS[wish.sort][1]
        ordered = fitting if key is None else sorted(fitting, key=key, reverse=True)
        rows, found = _page(ordered, wish), len(ordered)
    totals = _totals(list(cards.values())) if every and not listing.trouble else None
    return Overview(lake, wish, listing, tuple(rows), found, totals, time.time())


def _sound(cards: Mapping[str, Card]) -> dict[str, Card]:
    """The cards, with what a table's log says in them only where it can be compared and added up with the others."""
    found = {}
    for location, card in cards.items():
        try:
            _totals([card])
            for _, key in SORTS.values():
                if key is not None:
                    key(card)
            _fits(card, Wish(show="concerns"))
        except Exception as error:  # noqa: BLE001 - one table must not hide the others
            card = in_trouble(card, error)
        found[location] = card
    return found


def _fits(card: Card, wish: Wish) -> bool:
    return wish.show == "all" or card.concerns


def _page(rows: Sequence[T], wish: Wish) -> list[T]:
    start = (wish.page - 1) * wish.per_page
    return list(rows[start : start + wish.per_page])


def _totals(cards: Sequence[Card]) -> Totals:
    read = [(card, card.statistics) for card in cards if card.statistics is not None]
    return Totals(
        tables=sum(not card.dropped for card in cards),
        unread=sum(card.waiting for card in cards),
        troubled=sum(bool(card.trouble) and not card.dropped and not card.waiting for card in cards),
        behind=sum(any(not index.lag.none for index in found.indexes.values()) for _, found in read),
        windows=sum(len(card.windows) for card, _ in read),
        indexes=sum(len(found.indexes) for _, found in read),
        bytes=sum(found.data.bytes for _, found in read),
        index_bytes=sum(found.index_bytes for _, found in read),
    )


def whole(text: str | None, otherwise: int) -> int:
    """A whole number out of an address; something else if it is none, or absurdly long."""
    return int(text) if text and _WHOLE.fullmatch(text) else otherwise
