"""The demand for the indexes of a table: how many queries asked for each lately, and the bytes that it saved them.

It comes from the table's query log (:mod:`spark_apps.workload.query_log`); of a table without one nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spark_apps.storage.store import ObjectStore
from spark_apps.workload.query_log import PROPERTY, read_log

DAYS = 7.0
"""Days for which queries count: a report that is made once a week is among them."""

_MIN_DAYS = 1.0
"""Days that a log must have: a younger one says nothing of the demand."""

_BEHIND = ("covers_nothing", "not_active", "too_much_appended", "too_much_deleted")
"""Why an index was not used that would have been, had it been refreshed."""


@dataclass(frozen=True)
class IndexDemand:
    """The demand for one index.

    :param queries: that used it, or would have, had it not been behind. :param bytes_a_day: that it saved them.
    """

    queries: float = 0.0
    bytes_a_day: float = 0.0


@dataclass(frozen=True)
class Demand:
    """The demand for the indexes of a table.

    :param queries: of the table, in the last ``days``.
    """

    queries: float
    days: float
    indexes: Mapping[str, IndexDemand] = field(default_factory=dict)

    def of(self, index: str) -> IndexDemand:
        """Return the demand for an index."""
        return self.indexes.get(index, IndexDemand())


def read_demand(store: ObjectStore, properties: Mapping[str, str], now: float | None = None) -> Demand | None:
    """Return the demand for the indexes of a table, ``None`` if it keeps no log, or one that is too young or empty.

    :param store: of the table's log. :param now: in seconds since 1970.
    :raises StorageUnavailable: if the store does not answer.
    """
    if properties.get(PROPERTY, "off").lower() == "off":
        return None
    until = time.time() if now is None else now
    asked = read_log(store, since=datetime.fromtimestamp(until - DAYS * 86_400, UTC))
    first = min((group.first for group in asked), default=None)
    days = 0.0 if first is None else min(DAYS, (until - first.timestamp()) / 86_400)
    if days < _MIN_DAYS:
        return None
    indexes = {
        name: IndexDemand(one.used + sum(one.unused.get(code, 0.0) for code in _BEHIND), one.bytes_spared / days)
        for name, one in asked.indexes().items()
    }
    return Demand(asked.weight, days, indexes)
