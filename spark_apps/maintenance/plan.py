"""Chooses, of everything that is due on all tables, what a run does with its budget: the most valuable work first.

::

    value = table's weight x kind's weight x benefit x overdue x 2^waited / (1 + minutes)

``benefit`` of work on an index is 1 to 7 by the bytes that it saved queries lately, a quarter if none asked for it,
and 1 where there is no query log. ``overdue`` is how many times a limit of the policy is exceeded (1 to 100),
``minutes`` the estimated time, ``waited`` how many runs before this one left the work undone. Since that doubles it
each time, nothing starves: after log2(100 x the weights' and benefits' ratio x (1 + minutes)) runs at the latest a
work is worth more than anything new, and the first of a run is done whatever the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from spark_apps.maintenance.native_calls import CALLS
from spark_apps.maintenance.policies import Budget, CompactPolicy, NativePolicy, RefreshPolicy
from spark_apps.maintenance.survey import Missed, TableSurvey
from spark_apps.storage import printing
from spark_apps.storage.printing import Figure, Grid, Printed, View, size, span
from spark_apps.storage.units import format_bytes, format_seconds
from spark_apps.timeline.hudi_indexes import NOT_COMPARED
from spark_apps.timeline.maintenance_records import LastPlans, PlannedWork, SkippedWork, TablePlan, work_key
from spark_apps.timeline.model import DATA_TREE, HUDI
from spark_apps.timeline.operations import COMPACT, COMPACT_INDEX, MAINTAIN_SOURCE, REFRESH_INDEX
from spark_apps.timeline.statistics import IndexStatistics

_REWRITING, _DELETING = ([one.name for one in CALLS.values() if one.kind == kind] for kind in ("compact", "clean"))

ORDER = ("compact", *_REWRITING, "refresh", "compact_index", "verify", "clean", *_DELETING)
"""The order of works on one table: rows are folded before indexes read them, and indexes before they are compared."""

BYTES_PER_SECOND = 10e6
"""What a work reads a second until runs of this very work have shown its rate."""

WORK_SECONDS = 5.0
CLEAN_SECONDS = 20.0

_MAX_OVERDUE = 100.0
_OPERATION_OF_KIND = {
    "compact": COMPACT.name,
    "refresh": REFRESH_INDEX.name,
    "compact_index": COMPACT_INDEX.name,
    **dict.fromkeys((*_REWRITING, *_DELETING), MAINTAIN_SOURCE.name),
}

CODES = {
    "switched_off": "The table, or this kind of work, is switched off: in the description, the Variable, or the form.",
    "not_asked": "The run was asked for other tables.",
    "unreachable": "The table, or the listing of its warehouse, did not answer; the reason says how.",
    "no_such_table": "There is no table of that name, or none that fits the pattern, or it was dropped.",
    "not_due": "No limit of the policy is reached; the reason has the numbers.",
    "covered": "The index covers all rows; there is nothing to refresh.",
    "foreign_rows": "The rows are a registered source's: this package never folds them.",
    "other_format": "The call is one of another format than the table's.",
    "not_active": "The index is being created, or is disabled.",
    "not_asked_for": "No query asked for the index lately; it is refreshed when it is behind for longer.",
    "nothing_last_time": "The last run of this work found nothing to do, and nothing came since.",
    "being_done": "Another task does the same work on this table now.",
    "window_open": "Another writer holds a stop-write window over the whole table.",
    "over_budget": "Due, and left to the next run: other work was worth more. It comes first sooner or later.",
    "too_many_tables": "Due, and left to the next run: Airflow maps no task over more tables at once.",
}
"""Why something was not done: code -> what it means."""


@dataclass(frozen=True)
class DueWork:
    """Work that a table is due for.

    :param overdue: how many times over its limit; 1 to 100. :param bytes: what it will read.
    :param options: more arguments of the work. :param then: refreshes that it makes necessary, by index.
    """

    kind: str
    reason: str
    overdue: float
    bytes: int
    seconds: float
    index: str | None = None
    mode: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    then: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the work among the works on one table."""
        return work_key(self.kind, self.index)


Verdict = DueWork | SkippedWork


def due_works(survey: TableSurvey) -> list[Verdict]:
    """Return everything that could be done on a table, each due or with the reason why not, in the order of work."""
    if survey.window is not None:
        return [SkippedWork("window_open", f"{survey.window} holds a stop-write window over the whole table.")]
    verdicts = [
        *_compact(survey), *_refreshes(survey), *_compact_indexes(survey), *_verify(survey), *_clean(survey),
        *_native(survey),
    ]  # fmt: skip
    return [_unless_busy(survey, one) for one in verdicts]


def _unless_busy(survey: TableSurvey, verdict: Verdict) -> Verdict:
    if isinstance(verdict, SkippedWork):
        return verdict
    others = survey.busy.get(_OPERATION_OF_KIND.get(verdict.kind, ""), ())
    if others:
        return SkippedWork("being_done", f"{others[0]} is at it now.", verdict.kind, verdict.index)
    return verdict


# --- the kinds of work ----------------------------------------------------------------------------------------------


def _compact(survey: TableSurvey) -> Iterator[Verdict]:
    policy = survey.table.entry.policy.compact
    if survey.statistics.source is not None:
        yield SkippedWork("foreign_rows", f"The rows are a {survey.statistics.source} source's.", "compact")
    elif policy is None:
        yield _switched_off("compact")
    else:
        then = tuple(
            name for name, index in _indexes(survey) if index.addresses == "file" and index.state == "active"
        )  # fmt: skip
        yield _fold(survey, "compact", DATA_TREE, policy, then)


def _compact_indexes(survey: TableSurvey) -> Iterator[Verdict]:
    policy = survey.table.entry.policy.compact_indexes
    for name, index in _indexes(survey):
        if policy is None:
            yield _switched_off("compact_index", name)
        elif index.state != "active":
            yield SkippedWork("not_active", f"The index is {index.state}.", "compact_index", name)
        else:
            yield _fold(survey, "compact_index", name, policy, ())


def _fold(survey: TableSurvey, kind: str, name: str, policy: CompactPolicy, then: tuple[str, ...]) -> Verdict:
    tree, index = survey.compacting[name], None if name == DATA_TREE else name
    last = survey.done.get(work_key(kind, index))
    if last is not None and last.version is None and last.seen >= survey.newest.get(name, -1) and tree.foldable_groups:
        return SkippedWork("nothing_last_time", f"Version {last.seen} left nothing to fold.", kind, index)
    reached = [
        _times_over(tree.small_files, policy.small_files, f"{tree.small_files} small files"),
        _times_over(
            tree.small_share if tree.foldable_groups else 0, policy.small_share, f"{tree.small_share:.0%} small"
        ),
        _times_over(tree.tombstone_ratio, policy.tombstones, f"{tree.tombstone_ratio:.0%} tombstones"),
    ]
    overdue, reason = _worst(reached)
    if not overdue or not tree.foldable_groups:
        have = f"{tree.small_files} small files of {tree.files}, {tree.tombstone_ratio:.0%} tombstones"
        return SkippedWork("not_due", f"{have}.", kind, index)
    # A refresh of each index that addresses files reads the folded rows once more.
    size = tree.foldable_bytes * (1 + len(then))
    return DueWork(kind, reason, overdue, size, _seconds(survey, kind, index, size), index, policy.mode, then=then)


def _refreshes(survey: TableSurvey) -> Iterator[Verdict]:
    policy = survey.table.entry.policy.refresh
    for name, index in _indexes(survey):
        if policy is None:
            yield _switched_off("refresh", name)
        elif index.state != "active":
            yield SkippedWork("not_active", f"The index is {index.state}.", "refresh", name)
        elif index.kind.startswith(f"{HUDI}:") and survey.hudi is not None:
            yield _refresh_of_hudi(survey, name, survey.hudi[name])
        elif survey.statistics.source is not None:
            yield _refresh_of_source(survey, name, index, policy)
        elif index.lag.is_empty:
            yield SkippedWork("covered", "It covers all rows.", "refresh", name)
        else:
            yield _refresh(survey, name, index, policy)


def _refresh(survey: TableSurvey, name: str, index: IndexStatistics, policy: RefreshPolicy) -> Verdict:
    lag, age = index.lag, survey.lag_ages.get(name) or 0.0
    overdue, reason = _worst(
        [
            _times_over(lag.commits, policy.lag_commits, f"{lag.commits} commits behind"),
            _times_over(lag.bytes, policy.lag_bytes, f"{format_bytes(lag.bytes)} behind"),
            _times_over(age, policy.lag_age, f"behind for {format_seconds(age)}"),
        ]
    )
    if not overdue:
        behind = f"{lag.commits} commits, {format_bytes(lag.bytes)}, {format_seconds(age)} behind"
        return SkippedWork("not_due", f"{behind}.", "refresh", name)
    if (unasked := _may_wait(survey, name, policy, age)) is not None:
        return unasked
    seconds = _seconds(survey, "refresh", name, lag.bytes)
    return DueWork("refresh", reason + _demand_text(survey, name), overdue, lag.bytes, seconds, name, policy.mode)


def _may_wait(survey: TableSurvey, name: str, policy: RefreshPolicy, age: float) -> SkippedWork | None:
    """Return why an index that no query asked for is not refreshed yet.

    :param age: seconds that it is behind.
    """
    demand = survey.demand
    if demand is None or policy.unasked_age is None or age >= policy.unasked_age or demand.of(name).queries:
        return None
    reason = (
        f"No query of {demand.queries:,.0f} in {demand.days:.3g} days asked for it; it is {format_seconds(age)} behind "
        f"and refreshed after {format_seconds(policy.unasked_age)}."
    )
    return SkippedWork("not_asked_for", reason, "refresh", name)


def _demand_text(survey: TableSurvey, name: str) -> str:
    """Return what queries had of an index, as the end of a reason."""
    if survey.demand is None:
        return ""
    wanted = survey.demand.of(name)
    return f", saves {format_bytes(round(wanted.bytes_a_day))} a day" if wanted.queries else ", no query asked for it"


def _refresh_of_hudi(survey: TableSurvey, name: str, state: str) -> Verdict:
    """Return the rebuild of an index of Hudi's own that is gone; one that is there Hudi keeps with each write."""
    if state == "active":
        return SkippedWork("covered", "Hudi keeps it with each write.", "refresh", name)
    size = survey.statistics.data.bytes
    reason = f"it is {state} in Hudi's metadata table, as after a write without its setting"
    return DueWork("refresh", reason, _MAX_OVERDUE, size, _seconds(survey, "refresh", name, size), name, "incremental")


def _refresh_of_source(survey: TableSurvey, name: str, index: IndexStatistics, policy: RefreshPolicy) -> Verdict:
    """Return the refresh of a source's index; what the source holds by now only the refresh itself finds out."""
    last = survey.done.get(work_key("refresh", name))
    age = survey.checked - last.at if last is not None else survey.built_ages.get(name) or 0.0
    overdue, reason = _worst([_times_over(age, policy.every, f"last looked at the source {format_seconds(age)} ago")])
    if not overdue:
        return SkippedWork("not_due", f"It looked at the source {format_seconds(age)} ago.", "refresh", name)
    if (unasked := _may_wait(survey, name, policy, age)) is not None:
        return unasked
    size = max(index.lag.bytes, last.bytes if last is not None else 0)
    seconds = _seconds(survey, "refresh", name, size)
    return DueWork("refresh", reason + _demand_text(survey, name), overdue, size, seconds, name, policy.mode)


def _verify(survey: TableSurvey) -> Iterator[Verdict]:
    policy = survey.table.entry.policy.verify
    comparable = ((name, index) for name, index in _indexes(survey) if index.kind not in NOT_COMPARED)
    names = [name for name, index in comparable if index.state == "active"]
    if policy is None or policy.every is None:
        yield _switched_off("verify")
    elif not names:
        yield SkippedWork("not_due", "It has no active index to compare.", "verify")
    else:
        last = survey.done.get("verify")
        age = survey.checked - last.at if last is not None else survey.age or 0.0
        when = f"{'last compared' if last else 'never compared, made'} {format_seconds(age)} ago"
        overdue, reason = _worst([_times_over(age, policy.every, when)])
        if last is not None and not last.ok:
            overdue, reason = max(overdue, 1.0), f"it did not agree {format_seconds(age)} ago"
        if not overdue:
            yield SkippedWork("not_due", f"{when[0].upper()}{when[1:]}.", "verify")
            return
        trees = sum(survey.statistics.indexes[name].tree.bytes for name in names)
        size = survey.statistics.data.bytes * len(names) + trees
        yield DueWork(
            "verify", reason, overdue, size, _seconds(survey, "verify", None, size), options={"indexes": names}
        )


def _clean(survey: TableSurvey) -> Iterator[Verdict]:
    policy = survey.table.entry.policy.clean
    if policy is None or policy.every is None:
        yield _switched_off("clean")
        return
    last = survey.done.get("clean")
    age = survey.checked - last.at if last is not None else survey.age or 0.0
    when = f"{'last cleaned' if last else 'never cleaned, made'} {format_seconds(age)} ago"
    overdue, reason = _worst([_times_over(age, policy.every, when)])
    if not overdue:
        yield SkippedWork("not_due", f"{when[0].upper()}{when[1:]}.", "clean")
        return
    seconds = CLEAN_SECONDS if last is None else max(last.seconds, 1.0)
    options = {"retain_versions": policy.retain_versions, "retain_seconds": policy.retain}
    yield DueWork("clean", reason, overdue, 0, seconds, options=options)


def _native(survey: TableSurvey) -> Iterator[Verdict]:
    """Return the calls of the table's own format that the policy names."""
    for name, policy in (survey.table.entry.policy.native or {}).items():
        form = survey.statistics.source
        if form != CALLS[name].format:
            has = "this package's own" if form is None else f"a {form} table"
            yield SkippedWork("other_format", f"It is a call of {CALLS[name].format}, and the table is {has}.", name)
        elif CALLS[name].kind == "compact":
            yield _native_rewrite(survey, name, policy)
        else:
            yield _native_call(survey, name, policy, _since(survey, name, policy), CLEAN_SECONDS)


def _native_rewrite(survey: TableSurvey, name: str, policy: NativePolicy) -> Verdict:
    small, last = survey.small[name], survey.done.get(name)
    if last is not None and last.version is None and last.seen >= survey.newest.get(DATA_TREE, -1):
        return SkippedWork("nothing_last_time", f"Version {last.seen} left nothing to rewrite.", name)
    reached = [
        _times_over(small.files, policy.small_files, f"{small.files} small files"),
        _times_over(small.share, policy.small_share, f"{small.share:.0%} small"),
        _since(survey, name, policy),
    ]
    read = small.bytes if policy.every is None else survey.statistics.data.bytes
    # A refresh of each index reads the rewritten rows once more.
    then = tuple(one for one, index in _indexes(survey) if index.state == "active")
    return _native_call(survey, name, policy, _worst(reached), WORK_SECONDS, read * (1 + len(then)), then)


def _native_call(
    survey: TableSurvey,
    name: str,
    policy: NativePolicy,
    due: tuple[float, str],
    first_seconds: float,
    size: int = 0,
    then: tuple[str, ...] = (),
) -> Verdict:
    overdue, reason = due
    if not overdue:
        small = survey.small[name]
        return SkippedWork("not_due", f"{small.files} small files of {small.of}; no limit is reached.", name)
    last = survey.done.get(name)
    seconds = first_seconds if last is None and not size else _seconds(survey, name, None, size)
    return DueWork(name, reason, overdue, size, seconds, options=dict(policy.arguments), then=then)


def _since(survey: TableSurvey, name: str, policy: NativePolicy) -> tuple[float, str]:
    """Return how many times over its time a call is, with the words for it."""
    last = survey.done.get(name)
    age = survey.checked - last.at if last is not None else survey.age or 0.0
    when = f"{'last made' if last else 'never made, registered'} {format_seconds(age)} ago"
    return _times_over(age, policy.every, when)


# --- what they share ------------------------------------------------------------------------------------------------


def _indexes(survey: TableSurvey) -> Iterator[tuple[str, IndexStatistics]]:
    for name, index in survey.statistics.indexes.items():
        if survey.table.entry.covers_index(name):
            yield name, index


def _switched_off(kind: str, index: str | None = None) -> SkippedWork:
    return SkippedWork("switched_off", "The description switches it off.", kind, index)


def _times_over(measured: float, limit: float | None, reason: str) -> tuple[float, str]:
    """Return how many times a limit is reached, 0 if not; with the words for it."""
    if limit is None or measured < limit or not measured:
        return 0.0, ""
    return min(measured / limit if limit else _MAX_OVERDUE, _MAX_OVERDUE), reason


def _worst(reached: list[tuple[float, str]]) -> tuple[float, str]:
    overdue = max(times for times, _ in reached)
    reasons = [reason for times, reason in sorted(reached, reverse=True) if times]
    return round(overdue, 3), ", ".join(reasons)


def _seconds(survey: TableSurvey, kind: str, index: str | None, size: int) -> float:
    """Return the seconds from the rate of this work's last run on this table, if that was large enough."""
    last = survey.done.get(work_key(kind, index))
    rate = BYTES_PER_SECOND
    if last is not None and last.bytes >= BYTES_PER_SECOND and last.seconds > 0:
        rate = last.bytes / last.seconds
    return round(WORK_SECONDS + size / rate, 1)


# --- Chooses --------------------------------------------------------------------------------------------------------


WEIGHTS = {
    "refresh": 4.0, "compact": 3.0, "compact_index": 2.0, "verify": 1.0, "clean": 1.0,
    **dict.fromkeys(_REWRITING, 3.0), **dict.fromkeys(_DELETING, 1.0),
}  # fmt: skip
"""What a kind of work is worth: rows that no index covers cost every query, small files some, old versions none."""

UNASKED = 0.25
"""What work on an index that no query asks for is worth, of other work on an index."""

_MEGABYTE = 1_000_000

START_SECONDS = 15.0
"""What a table costs beside its works: a task and a start of Spark."""

_MAX_WAITED = 30
"""Runs that count as waited, at the most: the value of a work doubles with each."""
_MAX_LOGGED_ROWS = 10_000
"""Rows of each table of a plan in the log."""


@dataclass(frozen=True)
class Candidate:
    """Due work on a table, with what it is worth."""

    survey: TableSurvey
    work: DueWork
    waited: int
    value: float

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """Most valuable first; of equals, in an order that does not change."""
        return -self.value, self.survey.table.name, ORDER.index(self.work.kind), self.work.index or ""

    def planned(self, chosen: bool = True, code: str = "due", reason: str = "") -> PlannedWork:
        """Return the work as it is written down."""
        work = self.work
        reason_with_place = f"{reason} {work.reason}".strip()
        return PlannedWork(
            work.kind, reason_with_place, work.index, work.mode, work.bytes, work.seconds, work.overdue, self.waited,
            round(self.value, 4), chosen, code,
        )  # fmt: skip


@dataclass(repr=False)
class MaintenancePlan(Printed):
    """Works that one run does, and why not the rest.

    ``tables`` are in the order in which they come first.
    """

    chosen: list[Candidate] = field(default_factory=list)
    postponed: list[tuple[Candidate, str, str]] = field(default_factory=list)
    skipped: list[tuple[str, SkippedWork]] = field(default_factory=list)
    surveys: list[TableSurvey] = field(default_factory=list)
    at: float = 0.0
    budget: Budget = field(default_factory=Budget)

    @property
    def bytes(self) -> int:
        """Bytes that the chosen works will read, as estimated."""
        return sum(one.work.bytes for one in self.chosen)

    @property
    def seconds(self) -> float:
        """Seconds that the chosen works will take one after the other, starts of Spark included."""
        tables = {one.survey.table.location for one in self.chosen}
        return sum(one.work.seconds for one in self.chosen) + START_SECONDS * len(tables)

    def view(self) -> View:
        rows = [(number, *_cells(one), one.work.reason) for number, one in enumerate(self.chosen, 1)]
        rows += [("-", *_cells(one), f"[{code}] {why} {one.work.reason}") for one, code, why in self.postponed]
        rows += [
            ("-", name, _label(skip.kind or "all", skip.index), None, None, None, f"[{skip.code}] {skip.reason}")
            for name, skip in self.skipped
        ]
        heading = (
            f"{len(self.chosen)} pieces of work on {len(self.tables())} tables: {format_bytes(self.bytes)}, "
            f"{format_seconds(self.seconds)}; {len(self.postponed)} left to the next run, {len(self.skipped)} skipped"
        )
        return View(heading, grids=[Grid(("", "table", "work", "reads", "takes", "value", "why"), rows)])

    def tables(self) -> list[dict[str, Any]]:
        """Return what each mapped task gets: a table with its ``steps``, in the order of work.

        The most valuable table comes first.
        """
        return [_task(works) for works in self._by_table()]

    def tasks(self, most_tables: int, most_seconds: float, first_alone: bool = False) -> list[dict[str, Any]]:
        """Return what each mapped task gets, if tables with little work share a task and its start of Spark.

        A table joins the first task of the same connections and the same store that has room for it. The task's entry
        is that of its most valuable table; ``more_tables`` has the others.

        :param most_tables: the most tables in a task.
        :param most_seconds: the most seconds that their works are estimated to take together.
        :param first_alone: no table shares the task of the most valuable one.
        """
        tasks: list[tuple[list[dict[str, Any]], Any, float]] = []
        for works in self._by_table():
            entry, seconds = _task(works), sum(one.work.seconds for one in works)
            address = urlsplit(entry["table"])
            alike = (entry["table_conn_id"], entry["spark_conn_id"], address.scheme, address.netloc)
            for place, (tables, its, spent) in enumerate(tasks):
                fits = its == alike and len(tables) < most_tables and spent + seconds <= most_seconds
                if fits and not (first_alone and place == 0):
                    tables.append(entry)
                    tasks[place] = (tables, its, spent + seconds)
                    break
            else:
                tasks.append(([entry], alike, seconds))
        return [_joined(tables) for tables, _, _ in tasks]

    def _by_table(self) -> list[list[Candidate]]:
        by_table: dict[str, list[Candidate]] = {}
        for one in self.chosen:
            by_table.setdefault(one.survey.table.location, []).append(one)
        return list(by_table.values())

    def for_table(self, survey: TableSurvey, dag_id: str, run_id: str) -> TablePlan:
        """Return what is kept below a table."""
        location = survey.table.location
        work = [one.planned() for one in self.chosen if one.survey.table.location == location]
        postponed = [
            one.planned(False, code, why) for one, code, why in self.postponed if one.survey.table.location == location
        ]
        skipped = tuple(skip for name, skip in self.skipped if name == survey.table.name)
        return TablePlan(dag_id, run_id, self.at, survey.statistics.version, (*work, *postponed), skipped)


def plan_maintenance(
    surveys: Sequence[TableSurvey],
    missed: Iterable[Missed],
    budget: Budget,
    dag_id: str,
    run_id: str | None = None,
    *,
    at_once: int = 1,
    most_tables: int = 1000,
    now: float | None = None,
) -> MaintenancePlan:
    """Return the plan of a run.

    ::

        plan_maintenance(surveys, missed, Budget(bytes=10**12, minutes=60), "nightly", at_once=4)

    :param at_once: how many tables are worked on side by side; the budget of minutes is by the clock.
    :param most_tables: how many tables one run can take.
    """
    plan = MaintenancePlan(surveys=list(surveys), at=time.time() if now is None else now, budget=budget)
    plan.skipped.extend((one.name, one.skipped) for one in missed)
    candidates: list[Candidate] = []
    for survey in surveys:
        for verdict in due_works(survey):
            if isinstance(verdict, SkippedWork):
                plan.skipped.append((survey.table.name, verdict))
            else:
                candidates.append(_candidate(survey, verdict, dag_id, run_id))
    spent_bytes, spent_seconds, tables = 0, 0.0, set[str]()
    for one in sorted(candidates, key=lambda one: one.sort_key):
        location = one.survey.table.location
        seconds = one.work.seconds + (0.0 if location in tables else START_SECONDS)
        if location not in tables and len(tables) >= most_tables:
            plan.postponed.append((one, "too_many_tables", f"The run has {most_tables} tables already."))
            continue
        over = _over_budget(budget, spent_bytes + one.work.bytes, (spent_seconds + seconds) / at_once)
        if over and plan.chosen:
            plan.postponed.append((one, "over_budget", over))
            continue
        plan.chosen.append(one)
        tables.add(location)
        spent_bytes, spent_seconds = spent_bytes + one.work.bytes, spent_seconds + seconds
    return plan


def runs_waited(last: LastPlans, dag_id: str, work: DueWork, done_at: float | None, run_id: str | None = None) -> int:
    """Return how many runs of this DAG in a row have left a work undone: for want of budget, or chosen and not done."""
    before = last.plans.get(dag_id)
    if before is None:
        return 0
    for old in before.work:
        if old.key == work.key:
            done = done_at is not None and done_at >= before.at
            # A run that plans again, being retried or cleared, has waited no longer for that.
            return 0 if done else min(old.waited + (before.run_id != run_id), _MAX_WAITED)
    return 0


def worth(work: DueWork, weight: float, waited: int, benefit: float = 1.0) -> float:
    """Return the value function; see the top of the module."""
    return weight * WEIGHTS[work.kind] * benefit * work.overdue * 2.0**waited / (1 + work.seconds / 60)


def benefit_of(survey: TableSurvey, index: str | None) -> float:
    """Return what work on an index is worth more than on one of which nothing is known; 1 for other work."""
    if survey.demand is None or index is None:
        return 1.0
    wanted = survey.demand.of(index)
    return 1 + min(6.0, math.log10(1 + wanted.bytes_a_day / _MEGABYTE)) if wanted.queries else UNASKED


def as_text(plan: MaintenancePlan) -> str:
    """Return the plan as a table for the log, whose lines do not hang on a worker's terminal."""
    return printing.as_text(plan.view(), printing.ANY_WIDTH, _MAX_LOGGED_ROWS)


def _candidate(survey: TableSurvey, work: DueWork, dag_id: str, run_id: str | None) -> Candidate:
    done = survey.done.get(work.key)
    waited = runs_waited(survey.last, dag_id, work, None if done is None else done.at, run_id)
    value = worth(work, survey.table.entry.weight, waited, benefit_of(survey, work.index))
    return Candidate(survey, work, waited, value)


def _over_budget(budget: Budget, size: int, seconds: float) -> str:
    if budget.bytes is not None and size > budget.bytes:
        return f"With it the run would read {format_bytes(size)}, over {format_bytes(budget.bytes)}."
    if budget.minutes is not None and seconds > budget.minutes * 60:
        return f"With it the run would take {format_seconds(seconds)}, over {budget.minutes:g} min."
    return ""


def _task(works: list[Candidate]) -> dict[str, Any]:
    table = works[0].survey.table
    steps: list[dict[str, Any]] = [
        {"kind": work.kind, "index": work.index, "mode": work.mode, "bytes": work.bytes, "options": work.options}
        for work in (one.work for one in works)
    ]
    refreshed = {step["index"] for step in steps if step["kind"] == "refresh"}
    for one in works:
        # Folded rows are new files to these indexes: without a refresh they would cover less than before.
        steps += [
            {"kind": "refresh", "index": name, "mode": "incremental", "bytes": 0, "options": {}}
            for name in one.work.then
            if name not in refreshed
        ]
    steps.sort(key=lambda step: (ORDER.index(step["kind"]), step["index"] or ""))
    return {
        # By its location, from which a source whose log is elsewhere is found too.
        "table": table.location,
        "name": table.name,
        "table_conn_id": table.conn_id,
        "spark_conn_id": table.entry.spark_conn_id,
        "steps": steps,
    }


def _joined(tables: list[dict[str, Any]]) -> dict[str, Any]:
    first, *more = tables
    if not more:
        return first
    others = [{name: table[name] for name in ("table", "name", "steps")} for table in more]
    return {**first, "name": f"{first['name']} and {len(more)} more", "more_tables": others}


def _cells(one: Candidate) -> tuple[Any, ...]:
    work = one.work
    name = one.survey.table.name
    return name, _label(work.kind, work.index), size(work.bytes), span(work.seconds), Figure(f"{one.value:.2f}")


def _label(kind: str, index: str | None) -> str:
    return kind if index is None else f"{kind} {index}"


__all__ = ["MaintenancePlan", "as_text", "plan_maintenance", "runs_waited", "work_key", "worth"]
