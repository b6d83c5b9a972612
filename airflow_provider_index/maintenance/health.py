"""The health of a table in one word, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from spark_apps.storage.printing import counted
from spark_apps.storage.units import format_bytes, format_duration
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.state import Window
from spark_apps.timeline.statistics import TableStatistics, age_of_lag
from spark_apps.workload.worth import Worth

_FEWEST_QUERIES = 20
"""How many queries show that an index is of no use, if none of them used it."""
_SMALL_SHARE, _MANY_SMALL = 0.5, 100


@dataclass(frozen=True)
class Health:
    """:param word: such as ``healthy``. :param level: how bad that is. :param reason: a sentence."""

    word: str
    level: Literal["good", "warn", "bad"]
    reason: str


def behind_since(timeline: Timeline, statistics: TableStatistics, now: float) -> dict[str, float]:
    """Return index -> when the first commit was made that it does not cover, in seconds since 1970."""
    ages = ((name, age_of_lag(timeline, index.lag)) for name, index in statistics.indexes.items())
    return {name: now - age for name, age in ages if age is not None}


def health_of(
    statistics: TableStatistics,
    windows: Iterable[Window],
    since: Mapping[str, float],
    now: float,
    worth: Worth | None = None,
) -> Health:
    """Return the health of a table: the worst that is known of it.

    :param since: as :func:`behind_since` returns it.
    :param now: in seconds since 1970. :param worth: of its indexes, if its query log was read.
    """
    for window in windows:
        if window.deadline < now:
            late = format_duration(now - window.deadline)
            return Health("stopped", "bad", f"The stop-write window of {window.holder} is {late} past its deadline.")
    indexes = statistics.indexes
    for name, index in indexes.items():
        if index.state not in ("active", "creating"):
            return Health("impaired", "warn", f"The index {name} is {index.state}.")
    behind = {name: index.lag for name, index in indexes.items() if index.lag.groups}
    if behind:
        name, lag = max(behind.items(), key=lambda item: (item[1].bytes, item[0]))
        span = f", for {format_duration(now - since[name])}" if name in since else ""
        others = f" (and {counted(len(behind) - 1, 'more index', 'more indexes')})" if len(behind) > 1 else ""
        uncovered = f"{counted(lag.groups, 'file group')}, {format_bytes(lag.bytes, short=True)}{span}"
        return Health("behind", "warn", f"The index {name}{others} does not cover {uncovered}.")
    data = statistics.data
    if not data.files:
        why = "the load that created it may have failed, or all were deleted."
        return Health(
            "empty", "warn", f"It has no rows: {why if statistics.source is None else 'its source has no files.'}"
        )
    if data.small_files > _MANY_SMALL and data.small_share > _SMALL_SHARE:
        small = f"{data.small_files:,} of {data.files:,} files are small: a compaction folds them together."
        return Health("scattered", "warn", small)
    # A record index says which rows a write replaces, whether queries ask for it or not.
    unused = [name for name, index in indexes.items() if index.kind != "record" and _unused(worth, name)]
    if worth is not None and unused:
        none_of = f"None of {worth.queries:,.0f} queries in {worth.days} days used {', '.join(unused[:3])}"
        return Health("idle", "warn", f"{none_of}{' and others' if len(unused) > 3 else ''}.")
    covers = "Its indexes cover all of it" if indexes else "It has no index"
    return Health("healthy", "good", f"{covers}, and no window is past its deadline.")


def _unused(worth: Worth | None, name: str) -> bool:
    return (
        worth is not None
        and worth.whole
        and worth.queries >= _FEWEST_QUERIES
        and name in worth.indexes
        and not worth.indexes[name].used
    )
