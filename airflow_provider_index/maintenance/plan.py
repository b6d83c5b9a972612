"""Chooses, of everything that is due on all tables, what a run does with its budget: the most valuable work first.

::

    value = table's weight x kind's weight x overdue x 2^waited / (1 + minutes)

``overdue`` is how many times a limit of the policy is exceeded (1 to 100), ``minutes`` the estimated time, ``waited``
how many runs before this one left the work undone. Since that doubles it each time, nothing starves: after
log2(100 x the weights' ratio x (1 + minutes)) runs at the latest a work is worth more than anything new, and the first
of a run is done whatever the budget.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_index.maintenance.due import ORDER, DueWork, due_works
from airflow_provider_index.maintenance.policies import Budget
from airflow_provider_index.maintenance.survey import Missed, TableSurvey
from airflow_provider_index.maintenance.units import human_bytes, human_seconds
from spark_apps.timeline.maintenance import LastPlans, PlannedWork, SkippedWork, TablePlan, work_key

WEIGHTS = {"refresh": 4.0, "compact": 3.0, "compact_index": 2.0, "verify": 1.0, "clean": 1.0}
"""What a kind of work is worth: rows that no index tells of cost every query, small files some, old versions none."""

START_SECONDS = 15.0
"""What a table costs beside its works: a task and a start of Spark."""

_MOST_WAITED = 30


@dataclass(frozen=True)
class Candidate:
    """Due work on a table, with what it is worth."""

    seen: TableSurvey
    work: DueWork
    waited: int
    value: float

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """Most valuable first; of equals, in an order that does not change."""
        return -self.value, self.seen.place.name, ORDER.index(self.work.kind), self.work.index or ""

    def planned(self, chosen: bool = True, code: str = "due", reason: str = "") -> PlannedWork:
        """As it is written down."""
        work = self.work
        told = f"{reason} {work.reason}".strip()
        return PlannedWork(
            work.kind, told, work.index, work.mode, work.bytes, work.seconds, work.overdue, self.waited,
            round(self.value, 4), chosen, code,
        )  # fmt: skip


@dataclass
class NightPlan:
    """What one run does, and why not the rest. ``tables`` are in the order in which they come first."""

    chosen: list[Candidate] = field(default_factory=list)
    left: list[tuple[Candidate, str, str]] = field(default_factory=list)
    skipped: list[tuple[str, SkippedWork]] = field(default_factory=list)
    seen: list[TableSurvey] = field(default_factory=list)
    at: float = 0.0
    budget: Budget = field(default_factory=Budget)

    @property
    def bytes(self) -> int:
        """What the chosen works will read, as estimated."""
        return sum(one.work.bytes for one in self.chosen)

    @property
    def seconds(self) -> float:
        """What they will take one after the other, starts of Spark included."""
        tables = {one.seen.place.location for one in self.chosen}
        return sum(one.work.seconds for one in self.chosen) + START_SECONDS * len(tables)

    def tables(self) -> list[dict[str, Any]]:
        """What each mapped task gets: a table with its ``steps``, in the order of work; most valuable table first."""
        by_table: dict[str, list[Candidate]] = {}
        for one in self.chosen:
            by_table.setdefault(one.seen.place.location, []).append(one)
        return [_task(works) for works in by_table.values()]

    def for_table(self, seen: TableSurvey, dag_id: str, run_id: str) -> TablePlan:
        """What is kept below a table."""
        location = seen.place.location
        work = [one.planned() for one in self.chosen if one.seen.place.location == location]
        left = [one.planned(False, code, why) for one, code, why in self.left if one.seen.place.location == location]
        skipped = tuple(skip for name, skip in self.skipped if name == seen.place.name)
        return TablePlan(dag_id, run_id, self.at, seen.statistics.version, (*work, *left), skipped)


def plan_night(
    seen: Sequence[TableSurvey],
    missed: Iterable[Missed],
    budget: Budget,
    dag_id: str,
    run_id: str | None = None,
    *,
    at_once: int = 1,
    most_tables: int = 1000,
    now: float | None = None,
) -> NightPlan:
    """The plan of a run.

    :param at_once: how many tables are worked on side by side; the budget of minutes is by the clock.
    :param most_tables: how many tables one run can take.
    """
    plan = NightPlan(seen=list(seen), at=time.time() if now is None else now, budget=budget)
    plan.skipped.extend((one.name, one.skipped) for one in missed)
    candidates: list[Candidate] = []
    for table in seen:
        for found in due_works(table):
            if isinstance(found, SkippedWork):
                plan.skipped.append((table.place.name, found))
            else:
                candidates.append(_candidate(table, found, dag_id, run_id))
    spent_bytes, spent_seconds, tables = 0, 0.0, set[str]()
    for one in sorted(candidates, key=lambda one: one.sort_key):
        location = one.seen.place.location
        seconds = one.work.seconds + (0.0 if location in tables else START_SECONDS)
        if location not in tables and len(tables) >= most_tables:
            plan.left.append((one, "too_many_tables", f"The run has {most_tables} tables already."))
            continue
        over = _over_budget(budget, spent_bytes + one.work.bytes, (spent_seconds + seconds) / at_once)
        if over and plan.chosen:
            plan.left.append((one, "over_budget", over))
            continue
        plan.chosen.append(one)
        tables.add(location)
        spent_bytes, spent_seconds = spent_bytes + one.work.bytes, spent_seconds + seconds
    return plan


def waited_for(last: LastPlans, dag_id: str, work: DueWork, done_at: float | None, run_id: str | None = None) -> int:
    """How many runs of this DAG in a row have left a work undone: for want of budget, or chosen and not done."""
    before = last.plans.get(dag_id)
    if before is None:
        return 0
    for old in before.work:
        if old.key == work.key:
            done = done_at is not None and done_at >= before.at
            # A run that plans again, being retried or cleared, has waited no longer for that.
            return 0 if done else min(old.waited + (before.run_id != run_id), _MOST_WAITED)
    return 0


def worth(work: DueWork, weight: float, waited: int) -> float:
    """The value function; see the top of the module."""
    return weight * WEIGHTS[work.kind] * work.overdue * 2.0**waited / (1 + work.seconds / 60)


def as_text(plan: NightPlan) -> str:
    """The plan as a table for the log."""
    head = ("", "table", "work", "reads", "takes", "value", "why")
    rows = [
        (str(at), one.seen.place.name, _named(one.work.kind, one.work.index), human_bytes(one.work.bytes),
         human_seconds(one.work.seconds), f"{one.value:.2f}", one.work.reason)
        for at, one in enumerate(plan.chosen, 1)
    ]  # fmt: skip
    left = [
        ("-", one.seen.place.name, _named(one.work.kind, one.work.index), human_bytes(one.work.bytes),
         human_seconds(one.work.seconds), f"{one.value:.2f}", f"[{code}] {why} {one.work.reason}")
        for one, code, why in plan.left
    ]  # fmt: skip
    skipped = [
        ("-", name, _named(skip.kind or "all", skip.index), "", "", "", f"[{skip.code}] {skip.reason}")
        for name, skip in plan.skipped
    ]
    summary = (
        f"{len(rows)} pieces of work on {len(plan.tables())} tables: {human_bytes(plan.bytes)}, "
        f"{human_seconds(plan.seconds)}; {len(left)} left to the next run, {len(skipped)} skipped"
    )
    return f"{summary}\n{_aligned([head, *rows, *left, *skipped])}"


def _candidate(seen: TableSurvey, work: DueWork, dag_id: str, run_id: str | None) -> Candidate:
    done = seen.done.get(work.key)
    waited = waited_for(seen.last, dag_id, work, None if done is None else done.at, run_id)
    return Candidate(seen, work, waited, worth(work, seen.place.entry.weight, waited))


def _over_budget(budget: Budget, size: int, seconds: float) -> str:
    if budget.bytes is not None and size > budget.bytes:
        return f"With it the run would read {human_bytes(size)}, over {human_bytes(budget.bytes)}."
    if budget.minutes is not None and seconds > budget.minutes * 60:
        return f"With it the run would take {human_seconds(seconds)}, over {budget.minutes:g} min."
    return ""


def _task(works: list[Candidate]) -> dict[str, Any]:
    place = works[0].seen.place
    steps = [_step(one.work) for one in works]
    refreshed = {step["index"] for step in steps if step["kind"] == "refresh"}
    for one in works:
        # Folded rows are new files to these indexes: without a refresh they would tell of less than before.
        steps += [
            {"kind": "refresh", "index": name, "mode": "incremental", "bytes": 0, "options": {}}
            for name in one.work.then
            if name not in refreshed
        ]
    steps.sort(key=lambda step: (ORDER.index(step["kind"]), step["index"] or ""))
    return {
        # By its location, from which a source whose log lies elsewhere is found too.
        "table": place.location,
        "name": place.name,
        "table_conn_id": place.conn_id,
        "spark_conn_id": place.entry.spark_conn_id,
        "steps": steps,
    }


def _step(work: DueWork) -> dict[str, Any]:
    return {"kind": work.kind, "index": work.index, "mode": work.mode, "bytes": work.bytes, "options": work.options}


def _named(kind: str, index: str | None) -> str:
    return kind if index is None else f"{kind} {index}"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    )


__all__ = ["NightPlan", "as_text", "plan_night", "waited_for", "work_key", "worth"]
