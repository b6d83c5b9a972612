"""The bound of the rows that a query takes alone: the first of an order, the highest and lowest of a column.

Skipping indexes know for each file between which values of a column its rows are, and how many have one. Files whose
values are all beyond a bound have that many rows beyond it; if these are as many as the query takes, no row before the
bound is among the first. Files that no index knows can only add rows beyond it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_apps.indexes.handler import Extremes, IndexContext
from spark_apps.indexes.registry import available, columns_gone
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.planning import UNREADABLE_INDEX
from spark_apps.query.predicates import Comparison, IsNull, Or, Predicate
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import NEW_KEYS

_KINDS = frozenset(("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "decimal"))
"""Types whose order is Python's, and whose values have a text that means the same in every session."""


@dataclass(frozen=True)
class FirstRows:
    """The first rows by the order of a column.

    :param rows: how many. :param nulls_first: whether rows without a value come before all others.
    """

    column: str
    descending: bool
    nulls_first: bool
    rows: int

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> FirstRows:
        return cls(said["column"], said["descending"], said["nulls_first"], said["rows"])


def bound_of(snapshot: Snapshot, first: Sequence[FirstRows]) -> Predicate | None:
    """Return a predicate that holds for all of these rows, of which there is one at least.

    ``None`` if indexes do not bound them.
    """
    bounds = [_bound(snapshot, each) for each in dict.fromkeys(first)]
    known = tuple(bound for bound in bounds if bound is not None)
    if len(known) < len(bounds):
        return None
    return known[0] if len(known) == 1 else Or(known)


def _bound(snapshot: Snapshot, first: FirstRows) -> Predicate | None:
    field = next((field for field in snapshot.table.fields if field.name == first.column), None)
    kind = None if field is None else parse_type(field.type)
    if kind is None or kind.kind not in _KINDS:
        return None
    known = [each for each in _extremes(snapshot, first.column) if each.filled and _is_comparable(each)]
    known.sort(key=lambda each: each.low if first.descending else each.high, reverse=first.descending)
    count = 0
    for each in known:
        count += each.filled
        if count >= first.rows:
            operator, value = (">=", each.low) if first.descending else ("<=", each.high)
            beyond = Comparison(first.column, operator, value)
            return Or((IsNull(first.column), beyond)) if first.nulls_first else beyond
    return None


def _is_comparable(extremes: Extremes) -> bool:
    values = (extremes.low, extremes.high)
    return all(isinstance(value, (int, Decimal, dt.date)) and not isinstance(value, bool) for value in values)


def _extremes(snapshot: Snapshot, column: str) -> Iterator[Extremes]:
    """Yield what indexes know of files whose rows are all rows of the table, each file once."""
    whole = {file.lineage for members in snapshot.groups().values() if _all_live(members) for file in members}
    whole.discard(0)
    for entry in snapshot.state.indexes.values():
        handler = available(entry.definition.kind) if entry.active else None
        if handler is None or not whole or columns_gone(snapshot.table, entry.definition):
            continue
        try:
            extremes = handler.extremes(IndexContext(snapshot, entry.definition, ""), column)
        except UNREADABLE_INDEX:
            continue  # what is damaged bounds nothing, and a warning comes of its use
        for lineage in whole & extremes.keys():
            yield extremes[lineage]
        whole -= extremes.keys()


def _all_live(members: Sequence[DataFile]) -> bool:
    """Tell whether no file of a group replaces or deletes rows of another one."""
    return not any(file.tombstones for file in members) and all(
        (file.extra or {}).get(NEW_KEYS) for file in members[1:]
    )
