"""What a table is due for, by the limits of its policy: each piece of work with how far over its limit it is and what
it will cost, and for everything else the reason why not.

Pure: from what was seen of a table to what could be done. What *is* done with a night's budget, another module decides
(:mod:`airflow_provider_index.maintenance.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_index.maintenance.policies import CompactPolicy, RefreshPolicy
from airflow_provider_index.maintenance.survey import TableSurvey
from airflow_provider_index.maintenance.units import human_bytes, human_seconds
from spark_apps.timeline.maintenance import SkippedWork, work_key
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.statistics import IndexStatistics

ORDER = ("compact", "refresh", "compact_index", "verify", "clean")
"""The order of works on one table: rows are folded before indexes read them, and indexes before they are compared."""

BYTES_PER_SECOND = 10e6
"""What a work reads a second until runs of this very work have shown its rate."""

WORK_SECONDS = 5.0
CLEAN_SECONDS = 20.0

_MOST_OVERDUE = 100.0
_OWN_OPERATION = {"compact": "compact", "refresh": "refresh_index", "compact_index": "compact_index"}

CODES = {
    "switched_off": "The table, or this kind of work, is switched off: in the description, the Variable, or the form.",
    "not_asked": "The run was asked for other tables.",
    "unreachable": "The table, or the listing of its warehouse, did not answer; the reason says how.",
    "no_such_table": "There is no table of that name, or none that fits the pattern, or it was dropped.",
    "not_due": "No limit of the policy is reached; the reason has the numbers.",
    "covered": "The index tells of all rows; there is nothing to refresh.",
    "foreign_rows": "The rows are a registered source's: they are never folded here.",
    "not_active": "The index is being created, or is disabled.",
    "nothing_last_time": "The last run of this work found nothing to do, and nothing came since.",
    "being_done": "Somebody else is at the same work on this table now.",
    "window_open": "Somebody holds a stop-write window over the whole table.",
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
        """What names it among the works on one table."""
        return work_key(self.kind, self.index)


Found = DueWork | SkippedWork


def due_works(seen: TableSurvey) -> list[Found]:
    """Everything that could be done on a table, each due or with the reason why not, in the order of work."""
    if seen.window is not None:
        return [SkippedWork("window_open", f"{seen.window} holds a stop-write window over the whole table.")]
    found = [*_compact(seen), *_refreshes(seen), *_compact_indexes(seen), *_verify(seen), *_clean(seen)]
    return [_unless_busy(seen, one) for one in found]


def _unless_busy(seen: TableSurvey, found: Found) -> Found:
    if isinstance(found, SkippedWork):
        return found
    others = seen.busy.get(_OWN_OPERATION.get(found.kind, ""), ())
    if others:
        return SkippedWork("being_done", f"{others[0]} is at it now.", found.kind, found.index)
    return found


# --- the kinds of work ----------------------------------------------------------------------------------------------


def _compact(seen: TableSurvey) -> Iterator[Found]:
    policy = seen.place.entry.policy.compact
    if seen.statistics.source is not None:
        yield SkippedWork("foreign_rows", f"The rows are a {seen.statistics.source} source's.", "compact")
    elif policy is None:
        yield _off("compact")
    else:
        then = tuple(
            name for name, index in _indexes(seen) if index.addresses == "file" and index.state == "active"
        )  # fmt: skip
        yield _fold(seen, "compact", DATA_TREE, policy, then)


def _compact_indexes(seen: TableSurvey) -> Iterator[Found]:
    policy = seen.place.entry.policy.compact_indexes
    for name, index in _indexes(seen):
        if policy is None:
            yield _off("compact_index", name)
        elif index.state != "active":
            yield SkippedWork("not_active", f"The index is {index.state}.", "compact_index", name)
        else:
            yield _fold(seen, "compact_index", name, policy, ())


def _fold(seen: TableSurvey, kind: str, name: str, policy: CompactPolicy, then: tuple[str, ...]) -> Found:
    tree, index = seen.compacting[name], None if name == DATA_TREE else name
    last = seen.done.get(work_key(kind, index))
    if last is not None and last.version is None and last.seen >= seen.newest.get(name, -1) and tree.foldable_groups:
        return SkippedWork("nothing_last_time", f"Version {last.seen} left nothing to fold.", kind, index)
    reached = [
        _over(tree.small_files, policy.small_files, f"{tree.small_files} small files"),
        _over(tree.small_share if tree.foldable_groups else 0, policy.small_share, f"{tree.small_share:.0%} small"),
        _over(tree.tombstone_ratio, policy.tombstones, f"{tree.tombstone_ratio:.0%} tombstones"),
    ]
    overdue, reason = _worst(reached)
    if not overdue or not tree.foldable_groups:
        have = f"{tree.small_files} small files of {tree.files}, {tree.tombstone_ratio:.0%} tombstones"
        return SkippedWork("not_due", f"{have}.", kind, index)
    # A refresh of each index that addresses files reads the folded rows once more.
    size = tree.foldable_bytes * (1 + len(then))
    return DueWork(kind, reason, overdue, size, _seconds(seen, kind, index, size), index, policy.mode, then=then)


def _refreshes(seen: TableSurvey) -> Iterator[Found]:
    policy = seen.place.entry.policy.refresh
    for name, index in _indexes(seen):
        if policy is None:
            yield _off("refresh", name)
        elif index.state != "active":
            yield SkippedWork("not_active", f"The index is {index.state}.", "refresh", name)
        elif seen.statistics.source is not None:
            yield _look_at_source(seen, name, index, policy)
        elif index.lag.none:
            yield SkippedWork("covered", "It tells of all rows.", "refresh", name)
        else:
            yield _refresh(seen, name, index, policy)


def _refresh(seen: TableSurvey, name: str, index: IndexStatistics, policy: RefreshPolicy) -> Found:
    lag, age = index.lag, seen.lag_ages.get(name) or 0.0
    overdue, reason = _worst(
        [
            _over(lag.commits, policy.lag_commits, f"{lag.commits} commits behind"),
            _over(lag.bytes, policy.lag_bytes, f"{human_bytes(lag.bytes)} behind"),
            _over(age, policy.lag_age, f"behind for {human_seconds(age)}"),
        ]
    )
    if not overdue:
        told = f"{lag.commits} commits, {human_bytes(lag.bytes)}, {human_seconds(age)} behind"
        return SkippedWork("not_due", f"{told}.", "refresh", name)
    seconds = _seconds(seen, "refresh", name, lag.bytes)
    return DueWork("refresh", reason, overdue, lag.bytes, seconds, name, policy.mode)


def _look_at_source(seen: TableSurvey, name: str, index: IndexStatistics, policy: RefreshPolicy) -> Found:
    """What a source holds by now only a look at it tells, and that look is the refresh."""
    last = seen.done.get(work_key("refresh", name))
    age = seen.checked - last.at if last is not None else seen.built_ages.get(name) or 0.0
    overdue, reason = _worst([_over(age, policy.every, f"last looked at the source {human_seconds(age)} ago")])
    if not overdue:
        return SkippedWork("not_due", f"It looked at the source {human_seconds(age)} ago.", "refresh", name)
    size = max(index.lag.bytes, last.bytes if last is not None else 0)
    return DueWork("refresh", reason, overdue, size, _seconds(seen, "refresh", name, size), name, policy.mode)


def _verify(seen: TableSurvey) -> Iterator[Found]:
    policy = seen.place.entry.policy.verify
    names = [name for name, index in _indexes(seen) if index.state == "active"]
    if policy is None or policy.every is None:
        yield _off("verify")
    elif not names:
        yield SkippedWork("not_due", "It has no active index to compare.", "verify")
    else:
        last = seen.done.get("verify")
        age = seen.checked - last.at if last is not None else seen.age or 0.0
        when = f"{'last compared' if last else 'never compared, made'} {human_seconds(age)} ago"
        overdue, reason = _worst([_over(age, policy.every, when)])
        if last is not None and not last.ok:
            overdue, reason = max(overdue, 1.0), f"it did not agree {human_seconds(age)} ago"
        if not overdue:
            yield SkippedWork("not_due", f"{when[0].upper()}{when[1:]}.", "verify")
            return
        trees = sum(seen.statistics.indexes[name].tree.bytes for name in names)
        size = seen.statistics.data.bytes * len(names) + trees
        yield DueWork("verify", reason, overdue, size, _seconds(seen, "verify", None, size), options={"indexes": names})


def _clean(seen: TableSurvey) -> Iterator[Found]:
    policy = seen.place.entry.policy.clean
    if policy is None or policy.every is None:
        yield _off("clean")
        return
    last = seen.done.get("clean")
    age = seen.checked - last.at if last is not None else seen.age or 0.0
    when = f"{'last cleaned' if last else 'never cleaned, made'} {human_seconds(age)} ago"
    overdue, reason = _worst([_over(age, policy.every, when)])
    if not overdue:
        yield SkippedWork("not_due", f"{when[0].upper()}{when[1:]}.", "clean")
        return
    seconds = CLEAN_SECONDS if last is None else max(last.seconds, 1.0)
    options = {"retain_versions": policy.retain_versions, "retain_seconds": policy.retain}
    yield DueWork("clean", reason, overdue, 0, seconds, options=options)


# --- what they share ------------------------------------------------------------------------------------------------


def _indexes(seen: TableSurvey) -> Iterator[tuple[str, IndexStatistics]]:
    for name, index in seen.statistics.indexes.items():
        if seen.place.entry.covers_index(name):
            yield name, index


def _off(kind: str, index: str | None = None) -> SkippedWork:
    return SkippedWork("switched_off", "The description switches it off.", kind, index)


def _over(measured: float, limit: float | None, told: str) -> tuple[float, str]:
    """How many times a limit is reached, 0 if not; with the words for it."""
    if limit is None or measured < limit or not measured:
        return 0.0, ""
    return min(measured / limit if limit else _MOST_OVERDUE, _MOST_OVERDUE), told


def _worst(reached: list[tuple[float, str]]) -> tuple[float, str]:
    overdue = max(times for times, _ in reached)
    told = [told for times, told in sorted(reached, reverse=True) if times]
    return round(overdue, 3), ", ".join(told)


def _seconds(seen: TableSurvey, kind: str, index: str | None, size: int) -> float:
    """From the rate of this very work's last run on this table, if it was large enough to tell."""
    last = seen.done.get(work_key(kind, index))
    rate = BYTES_PER_SECOND
    if last is not None and last.bytes >= BYTES_PER_SECOND and last.seconds > 0:
        rate = last.bytes / last.seconds
    return round(WORK_SECONDS + size / rate, 1)
