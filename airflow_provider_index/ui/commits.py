"""Commits as the page draws and lists them: the kind of work, what was added and removed, whether it is in effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_index.ui.formatting import of_instant, plural, size
from spark_apps.timeline.model import (
    DATA_TREE,
    Abort,
    AddFile,
    CloseWindow,
    Commit,
    EndWindow,
    OpenWindow,
    RemoveFile,
    RenewWindow,
)
from spark_apps.timeline.operations import Category, operation_of
from spark_apps.timeline.state import State

LANES = ("rows", "indexes", "upkeep", "windows", "log")
"""Kinds of work, in the order in which they are drawn from top to bottom."""

LANE_WORDS = {
    "rows": "Rows written",
    "indexes": "Indexes",
    "upkeep": "Compaction, rescale",
    "windows": "Stop-write windows",
    "log": "Table and log",
}

_LANE_OF: dict[Category, str] = {
    "write": "rows",
    "index": "indexes",
    "maintenance": "upkeep",
    "layout": "upkeep",
    "window": "windows",
}

_WINDOW_ACTIONS = (RenewWindow, CloseWindow, EndWindow)


@dataclass(frozen=True)
class Entry:
    """A commit for people.

    :param epoch: of the window that it opened, renewed, closed or ended. :param ended: whether it ended one.
    :param stands: whether neither a restore nor a drop of the table has taken it back.
    :param note: what else is worth saying in a few words.
    """

    version: int
    at: datetime
    operation: str
    lane: str
    txn_id: str
    attempt: int
    base: int
    data_bytes: int = 0
    index_bytes: int = 0
    rows: int = 0
    tombstones: int = 0
    added: int = 0
    removed: int = 0
    epoch: int | None = None
    ended: bool = False
    stands: bool = True
    note: str = ""
    metrics: tuple[tuple[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        """Written by it, indexes included."""
        return self.data_bytes + self.index_bytes

    @property
    def title(self) -> str:
        """Text that hovering over its mark shows, and that a screen reader says."""
        parts = [f"Version {self.version}: {self.operation}", f"{self.at:%Y-%m-%d %H:%M:%S} UTC"]
        if self.added:
            parts.append(f"{plural(self.added, 'file')} added, {size(self.bytes)}")
        if self.removed:
            parts.append(f"{plural(self.removed, 'file')} removed")
        if self.note:
            parts.append(self.note)
        if not self.stands:
            parts.append("taken back by a restore, or dropped with its table")
        return " · ".join(parts)


def entries(commits: Iterable[Commit], state: State) -> Iterator[Entry]:
    """Yield the commits of a stretch of the log, in their order, as of a state."""
    for commit in commits:
        yield _entry(commit, state)


def lane_of(operation: str) -> str:
    """Return the kind of work that an operation is; what is not known is the log's own."""
    return _LANE_OF.get(operation_of(operation).category, "log")


def _entry(commit: Commit, state: State) -> Entry:
    added = [action for action in commit.actions if isinstance(action, AddFile)]
    data = [action for action in added if action.tree == DATA_TREE]
    epoch, ended = _window(commit)
    return Entry(
        commit.version,
        of_instant(commit.instant),
        commit.operation,
        lane_of(commit.operation),
        commit.txn_id,
        commit.attempt,
        commit.base,
        sum(action.bytes for action in data),
        sum(action.bytes for action in added if action.tree != DATA_TREE),
        sum(max(action.rows, 0) - action.tombstones for action in data),
        sum(action.tombstones for action in data),
        len(added),
        sum(isinstance(action, RemoveFile) for action in commit.actions),
        epoch,
        ended,
        state.is_in_effect(commit.version),
        _note(commit),
        tuple(_plain(commit.metrics)),
    )


def _window(commit: Commit) -> tuple[int | None, bool]:
    for action in commit.actions:
        if isinstance(action, OpenWindow):
            return commit.version, False
        if isinstance(action, _WINDOW_ACTIONS):
            return action.epoch, not isinstance(action, RenewWindow)
    return None, False


def _note(commit: Commit) -> str:
    for action in commit.actions:
        if isinstance(action, OpenWindow):
            return f"held by {action.holder}"
        if isinstance(action, EndWindow):
            return f"ended by {action.ended_by}"
        if isinstance(action, Abort):
            return f"attempt {action.attempt} of {action.txn_id} ended{': ' + action.reason if action.reason else ''}"
    return ""


def _plain(metrics: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield metrics as lines of text; those inside others under both names, long lists by their length."""
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from _plain(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            few = ", ".join(map(str, value[:5]))
            yield f"{before}{name}", few if len(value) <= 5 else f"{few}, … ({len(value)} in all)"
        elif isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{before}{name}", str(value)
        else:
            yield f"{before}{name}", f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
