"""The queries of a workload as questions to the planner: what was asked, of which columns, and how often a day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spark_apps.advisor.limits import MAX_EXPRESSIONS, MAX_PREDICATES, MAX_QUESTION_GROUPS
from spark_apps.indexes.computed import types_of
from spark_apps.indexes.expressions import Expression
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.parsing import expressions_in, parse_predicate
from spark_apps.query.planning import parse_for_session
from spark_apps.query.predicates import Filter, Predicate, columns_of, of_whole_rows
from spark_apps.storage.errors import InvalidInput
from spark_apps.workload.asked import AskedQuery, QueryGroup, Workload

_DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Question:
    """A query, or many that are alike.

    :param where: its predicate with one of its sets of literals; ``None`` for all rows.
    :param columns: that it reads. :param group: the number of its group. :param a_day: how often it is asked a day.
    """

    group: int
    where: Filter | None
    columns: tuple[str, ...]
    a_day: float
    join_keys: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def predicate(self) -> Predicate | None:
        return None if self.where is None else self.where.predicate


@dataclass(frozen=True)
class Questions:
    """The questions of a workload.

    :param expressions: of columns that are compared, by their canonical texts; none without a Spark session.
    :param shapes: of each group its predicate without literals, for people. :param queries: how many were asked.
    :param left_out: why queries could not be asked about -> how many. :param days: in how many days they were asked.
    """

    all: tuple[Question, ...]
    shapes: tuple[str, ...]
    queries: float
    days: float
    left_out: Mapping[str, float] = field(default_factory=dict)
    expressions: Mapping[str, Expression] = field(default_factory=dict)


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
    expressions = _expressions(snapshot, groups[:MAX_QUESTION_GROUPS]) if snapshot.has_spark else {}
    types = {text: kind for text, (_, kind) in expressions.items()}
    for group in groups:
        if len(shapes) == MAX_QUESTION_GROUPS:
            leave(f"of less weight than {MAX_QUESTION_GROUPS} others", group.weight)
            continue
        asked = _of_group(snapshot, group, len(shapes), days, types, leave)
        if asked:
            questions += asked
            shapes.append("all rows" if group.shape.shape is None else group.shape.shape)
    of_texts = {text: one for text, (one, _) in expressions.items()}
    return Questions(tuple(questions), tuple(shapes), workload.weight, days, left_out, of_texts)


def _expressions(snapshot: Snapshot, groups: Sequence[QueryGroup]) -> dict[str, tuple[Expression, str]]:
    """Return the expressions that predicates compare, by their texts, each with the type that Spark gives it."""
    types = snapshot.data.types
    found: dict[str, tuple[Expression, str]] = {}
    for where in (where for group in groups for where in _evenly(group.predicates, MAX_PREDICATES)):
        try:
            new = [one for one in expressions_in(where, types) if one.text not in found]
            for one in new[: MAX_EXPRESSIONS - len(found)]:
                found[one.text] = one, types_of(snapshot, [one], "An index")[0].simpleString()
        except InvalidInput:
            continue  # said where the predicate is read
    return found


def _of_group(
    snapshot: Snapshot,
    group: QueryGroup,
    number: int,
    days: float,
    types: Mapping[str, str],
    leave: Callable[[str, float], None],
) -> list[Question]:
    table_columns = snapshot.data.columns
    known = {name.lower(): name for name in table_columns}

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(known[name.lower()] for name in names if name.lower() in known))

    shape = group.shape
    if shape.shape is not None and not group.predicates:
        leave("without literals", group.weight)
        return []
    texts: list[str | None] = [None] if shape.shape is None else [*_evenly(group.predicates, MAX_PREDICATES)]
    wanted = table_columns if shape.columns is None else named(shape.columns)
    asked = []
    for text in texts:
        weight = group.weight / len(texts)
        try:
            where = None if text is None else Filter(_parsed(snapshot, text, types), text)
        except InvalidInput:
            leave("no predicate of this table", weight)
            continue
        if where is not None and of_whole_rows(where.predicate):
            wanted = table_columns
        needed = {*wanted, *(() if where is None else columns_of(where.predicate))}
        columns = tuple(name for name in table_columns if name in needed) or table_columns[:1]
        asked.append(
            Question(
                number, where, columns, weight / days,
                named(shape.join_keys), named(shape.group_keys), named(shape.order),
            )
        )  # fmt: skip
    return asked


def _evenly(values: Collection[str], most: int) -> list[str]:
    values = list(values)
    count = min(most, len(values))
    return [values[number * len(values) // count] for number in range(count)]


def _parsed(snapshot: Snapshot, where: str, expressions: Mapping[str, str]) -> Predicate:
    """Return a predicate as the session understands it, or as it is understood without Spark.

    It comes from a log, which others write: Spark is never given its text, which may name servers and files.

    :param expressions: of which it is to be known what the predicate says, with their types.
    :raises InvalidPredicate: if it cannot be read. :raises UnknownColumn: if it names what the table lacks.
    """
    if snapshot.has_spark:
        return parse_for_session(snapshot, where, expressions, ask_spark=False)
    types = snapshot.data.types
    return parse_predicate(where, types, time_zone="UTC", timestamps="timestamp", expressions=expressions)


def _days(groups: Sequence[QueryGroup]) -> float:
    """Return in how many days the queries were asked, one at least."""
    if not groups:
        return 1.0
    first = min((group.first for group in groups), default=datetime.now(UTC))
    last = max((group.last for group in groups), default=first)
    return max(1.0, (last - first).total_seconds() / _DAY)
