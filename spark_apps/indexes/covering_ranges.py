"""Which part of a covering index's files a predicate leaves: their rows are sorted by the indexed columns, so Parquet's
min and max tell it.

A file that its min and max rule out is not read. Of the others it is only estimated what Spark skips in them, for the
plan to compare with what the table's files would cost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_apps.indexes.handler import Question
from spark_apps.indexes.ranges import Range, range_of
from spark_apps.layout.types import ColumnType
from spark_apps.mergetree.blockfiles import BlockFile, read_footers
from spark_apps.mergetree.intact import Identity, identity_of
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile

_HALVINGS = 7
"""How finely a range is looked at: to a hundredth of it."""

_MOST_REMEMBERED = 20_000


Told = tuple[Mapping[str, Range], ...]
"""What the footer of an entry file says of each row group: the ranges of the indexed columns that it tells."""

_told: dict[tuple[str, str, Identity | None], Told] = {}


def told(snapshot: Snapshot, files: Sequence[DataFile], indexed: Mapping[str, ColumnType]) -> list[Told]:
    """What the footers of entry files say, read once as long as a file is the same. The files must have passed
    :func:`~spark_apps.mergetree.intact.check_intact`.

    :param indexed: the indexed columns and their types.
    :raises StorageError: naming a file whose footer cannot be read.
    """
    keys = [(snapshot.store.uri, file.path, identity_of(snapshot, file.path)) for file in files]
    known = {key: found for key in keys if (found := _told.get(key)) is not None}
    fresh = {key: file for key, file in zip(keys, files, strict=True) if key not in known}
    if fresh:
        footers = read_footers(snapshot, list(fresh.values()), own=True)
        known.update({key: _of(footer, indexed) for key, footer in zip(fresh, footers, strict=True)})
        if len(_told) > _MOST_REMEMBERED:
            _told.clear()
        _told.update({key: known[key] for key in fresh})
    return [known[key] for key in keys]


def _of(footer: BlockFile, indexed: Mapping[str, ColumnType]) -> Told:
    usable = {name: kind for name, kind in indexed.items() if footer.exact({name: kind.text})}
    ranges = []
    for block in range(footer.blocks):
        found = {name: range_of(footer.statistics(block, name), kind) for name, kind in usable.items()}
        ranges.append({name: held for name, held in found.items() if held is not None})
    return tuple(ranges)


def left(question: Question | None, told: Told, first: str) -> float:
    """Which part of a file's rows can satisfy a predicate, from 0 (none of them, for certain) to 1, about.

    :param first: the first of the indexed columns, by which the file is sorted before all.
    """
    if question is None or not told:
        return 1.0
    parts = [_part(question, ranges, first) for ranges in told]
    return sum(parts) / len(parts)


def _part(question: Question, ranges: Mapping[str, Range], first: str) -> float:
    if not question.may_match(ranges):
        return 0.0
    held = ranges.get(first)
    if held is None or first not in question.columns:
        return 1.0

    def part(held: Range, depth: int) -> float:
        if not question.may_match({**ranges, first: held}):
            return 0.0
        halves = _halves(held) if depth else None
        return 1.0 if halves is None else sum(part(half, depth - 1) for half in halves) / 2

    # What remains when nothing is left of its halves is a page or two: the smallest part that is looked at.
    return max(part(replace(held, nulls=False), _HALVINGS), 0.5**_HALVINGS)


def _halves(held: Range) -> tuple[Range, Range] | None:
    """A range cut in the middle; ``None`` where there is no middle, or none can be told."""
    low, high = held.low, held.high
    middle: Any
    if low is None or isinstance(low, (bool, str, bytes)) or not low < high:
        return None
    if isinstance(low, dt.date) and not isinstance(low, dt.datetime):
        middle = low + dt.timedelta(days=(high - low).days // 2)
        above = middle + dt.timedelta(days=1)
    elif isinstance(low, int):
        middle = low + (high - low) // 2
        above = middle + 1
    else:
        middle = above = low + (high - low) / 2
    return replace(held, high=middle), replace(held, low=above)
