"""The queries of a workload as questions to the planner: what was asked, of which columns, and how often a day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spark_apps.mergetree.spark_utils import setting
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Predicate, columns_of, of_whole_rows
from spark_apps.storage.errors import InvalidInput
from spark_apps.workload.asked import AskedQuery, QueryGroup, Workload

MOST_GROUPS = 200
"""So many groups of queries are asked about, those with most bytes read; the others are counted."""
MOST_PREDICATES = 4
"""Of each group so many predicates, evenly from those that are known."""

_DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Question:
    """A query, or many that are alike.

    :param where: its predicate with one of its sets of literals; ``None`` for all rows.
    :param columns: that it reads. :param group: the number of its group. :param a_day: how often it is asked a day.
    """

    group: int
    where: str | None
    predicate: Predicate | None
    columns: tuple[str, ...]
    a_day: float
    join_keys: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Questions:
    """The questions of a workload.

    :param shapes: of each group its predicate without literals, for people. :param queries: how many were asked.
    :param left_out: why queries could not be asked about -> how many. :param days: in how many days they were asked.
    """

    all: tuple[Question, ...]
    shapes: tuple[str, ...]
    queries: float
    days: float
    left_out: Mapping[str, float] = field(default_factory=dict)


def workload_of(given: Workload | Iterable[AskedQuery]) -> Workload:
    """Return a workload of what was given as one.

    :raises InvalidInput: if it is none.
    """
    if isinstance(given, Workload):
        return given
    try:
        queries = list(given)
    except TypeError:
        queries = [given]  # type: ignore[list-item]
    wrong = next((one for one in queries if not isinstance(one, AskedQuery)), None)
    if wrong is not None:
        raise InvalidInput(f"The workload holds {wrong!r:.200}, which is no asked query.", hint="Give a Workload.")
    return Workload(queries)


def questions_of(snapshot: Snapshot, workload: Workload) -> Questions:
    """Return what is asked of a table, those groups first that read most.

    :param workload: of the table.
    """
    groups = sorted(workload, key=lambda one: -(one.bytes_read + one.bytes_skipped or one.weight))
    days = _days(groups)
    left_out: dict[str, float] = {}

    def leave(reason: str, queries: float) -> None:
        left_out[reason] = left_out.get(reason, 0.0) + queries

    if workload.left_out:
        leave("asked too seldom to be kept", workload.left_out)
    for reason, lines in workload.refused.items():
        leave(reason, lines)
    questions: list[Question] = []
    shapes: list[str] = []
    for group in groups:
        if len(shapes) == MOST_GROUPS:
            leave(f"of less weight than {MOST_GROUPS} others", group.weight)
            continue
        asked = _of_group(snapshot, group, len(shapes), days, leave)
        if asked:
            questions += asked
            shapes.append("all rows" if group.shape.shape is None else group.shape.shape)
    return Questions(tuple(questions), tuple(shapes), workload.weight, days, left_out)


def _of_group(
    snapshot: Snapshot, group: QueryGroup, number: int, days: float, leave: Callable[[str, float], None]
) -> list[Question]:
    table_columns = snapshot.data.columns
    known = {name.lower(): name for name in table_columns}

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(known[name.lower()] for name in names if name.lower() in known))

    shape = group.shape
    if shape.shape is not None and not group.predicates:
        leave("without literals", group.weight)
        return []
    chosen: list[str | None] = [None] if shape.shape is None else [*_evenly(group.predicates, MOST_PREDICATES)]
    wanted = table_columns if shape.columns is None else named(shape.columns)
    asked = []
    for where in chosen:
        weight = group.weight / len(chosen)
        try:
            predicate = None if where is None else _parsed(snapshot, where)
        except InvalidInput:
            leave("no predicate of this table", weight)
            continue
        if predicate is not None and of_whole_rows(predicate):
            wanted = table_columns
        needed = {*wanted, *(() if predicate is None else columns_of(predicate))}
        columns = tuple(name for name in table_columns if name in needed) or table_columns[:1]
        asked.append(
            Question(
                number, where, predicate, columns, weight / days,
                named(shape.join_keys), named(shape.group_keys), named(shape.order),
            )
        )  # fmt: skip
    return asked


def _evenly(values: Collection[str], most: int) -> list[str]:
    values = list(values)
    count = min(most, len(values))
    return [values[number * len(values) // count] for number in range(count)]


def _parsed(snapshot: Snapshot, where: str) -> Predicate:
    """Return a predicate as it is understood without Spark; what is not understood is left to the rows.

    :raises InvalidPredicate: if it cannot be read. :raises UnknownColumn: if it names what the table lacks.
    """
    zone = setting(snapshot.spark, "spark.sql.session.timeZone", "UTC") if snapshot.has_spark else "UTC"
    types = {one.name: one.type for one in snapshot.table.fields}
    return parse_predicate(where, types, time_zone=zone, timestamps="timestamp")


def _days(groups: Sequence[QueryGroup]) -> float:
    """Return in how many days the queries were asked, one at least."""
    if not groups:
        return 1.0
    first = min((group.first for group in groups), default=datetime.now(UTC))
    last = max((group.last for group in groups), default=first)
    return max(1.0, (last - first).total_seconds() / _DAY)
