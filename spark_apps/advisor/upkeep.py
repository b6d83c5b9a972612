"""The cost of keeping an index a night, by what was written to the table in the days before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from spark_apps.advisor.limits import DAYS, MAX_COMMITS
from spark_apps.indexes.handler import IndexHandler, IndexPlan
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile

# Of two cores: starting a job, and what a commit of a few rows takes longer with an index that is kept with it.
_JOB_SECONDS = 2.0
_KEYED_SECONDS = 0.5
_FOLLOWED_SECONDS = 0.05


@dataclass(frozen=True)
class Changes:
    """The changes of a table, a day.

    :param commits: that wrote rows. :param bytes: of the files that all commits added.
    :param days: in which that was counted.
    """

    commits: float
    bytes: float
    days: float


def changes_of(timeline: Timeline, now: datetime | None = None) -> Changes:
    """Return what was written to a table in the days before its newest commit."""
    last = timeline.head.version
    until = datetime.now(UTC) if now is None else now
    commits = size = 0
    oldest = until
    for commit in timeline.commits(after=max(-1, last - MAX_COMMITS), until=last):
        at = datetime.strptime(commit.instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        if (until - at).days >= DAYS:
            continue
        added = [action.bytes for action in commit.actions if type(action) is AddFile and action.tree == DATA_TREE]
        if added:
            oldest = min(oldest, at)
            commits += 1
            size += sum(added)
    days = max(1.0, (until - oldest).total_seconds() / 86_400)
    return Changes(commits / days, size / days, days)


def nightly_minutes(handler: IndexHandler, build: IndexPlan, changes: Changes, table_bytes: int) -> float:
    """Return the minutes that keeping an index takes a day.

    What a commit keeps in step is paid by the commit, the rest by a refresh at night; neither is more than a build.

    :param build: of the whole index, with its estimate. :param table_bytes: of the table's files.
    """
    if not changes.commits:
        return 0.0
    work = max(0.0, build.estimated_seconds - _JOB_SECONDS) * min(1.0, changes.bytes / max(table_bytes, 1))
    if handler.follows_files:
        return (work + _FOLLOWED_SECONDS * changes.commits) / 60
    if handler.maintains:
        return (work + _KEYED_SECONDS * changes.commits) / 60
    return (_JOB_SECONDS + work) / 60
