"""The worth of a table's indexes to the queries of the last days, day by day, from its query log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.log import Timeline, seconds_of
from spark_apps.timeline.model import Commit
from spark_apps.timeline.state import State
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.limits import MAX_PAGE_BYTES, MAX_PAGE_OBJECTS
from spark_apps.workload.query_log import BEYOND, PROPERTY, read_log

DAYS = 30


@dataclass(slots=True)
class IndexUse:
    """The use that queries made of one index.

    :param used: queries that used it. :param unused: the code of a reason -> queries that did not use it for that.
    :param bytes_spared: a day, oldest first.
    """

    used: float = 0.0
    unused: dict[str, float] = field(default_factory=dict)
    bytes_spared: list[float] = field(default_factory=list)

    @property
    def asked(self) -> float:
        """Queries for which it was thought of."""
        return self.used + sum(self.unused.values())


@dataclass(frozen=True)
class Worth:
    """The worth of the indexes of a table to its queries.

    :param first_day: and ``days``: of which it is. :param queries: of the table in these days.
    :param whole: whether all of the log's lines of these days were read, and not only the newest.
    """

    first_day: datetime
    days: int
    queries: float
    whole: bool
    indexes: Mapping[str, IndexUse]


def worth_of(
    timeline: Timeline,
    state: State,
    read: Callable[[Callable[[int], Commit | None], list[int]], Iterable[Commit | None]] = map,
    now: float | None = None,
) -> Worth | None:
    """Return what the indexes of a table were worth to its queries, ``None`` if it keeps no query log.

    :param state: which indexes there are. :param read: as ``map``: reads commits, side by side where it can.
    :param now: in seconds since 1970.
    :raises LakeIndexError: if the commits that made the indexes, or the query log, cannot be read.
    """
    if state.definition is None or state.definition.properties.get(PROPERTY, "off").lower() == "off":
        return None
    commits = read(timeline.read, [entry.created for entry in state.indexes.values()])
    created = {
        name: None if commit is None else seconds_of(commit.instant)
        for name, commit in zip(state.indexes, commits, strict=True)
    }
    return read_worth(timeline.store, state.definition.properties, created, now)


def read_worth(
    store: ObjectStore, properties: Mapping[str, str], created: Mapping[str, float | None], now: float | None = None
) -> Worth | None:
    """Return what the indexes of a table were worth to its queries, ``None`` if it keeps no query log.

    :param store: of the table's log. :param properties: of the table.
    :param created: the indexes that it has -> when each was created, in seconds since 1970, ``None`` if that is not
        known any more. What another index of that name saved before is not counted.
    :param now: in seconds since 1970.
    :raises StorageUnavailable: if the store does not answer.
    """
    if properties.get(PROPERTY, "off").lower() == "off":
        return None
    until = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    first_day = until.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    uses = {name: IndexUse(bytes_spared=[0.0] * DAYS) for name in created}
    queries = 0.0

    def take(query: AskedQuery) -> None:
        nonlocal queries
        day = (query.asked - first_day).days
        if not 0 <= day < DAYS:  # a time to come, where somebody's clock is wrong
            return
        queries += query.weight
        asked = query.asked.timestamp()
        counted = {name for name, since in created.items() if since is None or asked >= since}
        for name, _ in query.used:
            if name in counted:
                uses[name].used += query.weight
        for name, _, code in query.unused:
            if name in counted:
                unused = uses[name].unused
                unused[code] = unused.get(code, 0.0) + query.weight
        for name, spared in query.spared.items():
            if name in counted:
                uses[name].bytes_spared[day] += query.weight * spared

    read = read_log(store, first_day, most_objects=MAX_PAGE_OBJECTS, most_bytes=MAX_PAGE_BYTES, each=take)
    return Worth(first_day, DAYS, queries, BEYOND not in read.refused, uses)
