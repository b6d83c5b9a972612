"""Instants of a Hudi table, by what they did to its slices, from what the reader of a Spark session says of each.

A slice is a base file and the log files since. A base file that is written anew takes over the log files whose instants
were completed after its own was requested (tables of version 8 and later); all others are in it. What a rollback took
back, and a file group of log files alone, is a gap: only a list of the slices tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_VERSION = 8
"""Of tables: since then the times at which instants were completed say which log is of which base file."""
_OF_LOG = re.compile(r"\.(?P<group>[^_/]+)_(?P<instant>\d+)\.log\.[^ /]+")


@dataclass(frozen=True)
class Slice:
    """A base file, and the names and bytes of its log files."""

    path: str
    bytes: int
    logs: Mapping[str, int] = field(default_factory=dict)

    def lines(self, settings: str) -> str:
        """Return what of a slice and of a reader's settings decides on its rows, as ``hudi_tables.java`` writes it."""
        logs = sorted(f"{name} {size}" for name, size in self.logs.items())
        return "\n".join([settings, *logs] if settings else logs)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return self.bytes + sum(self.logs.values())

    @classmethod
    def known(cls, path: str, size: int, state: str) -> Slice:
        """Return a slice as a log of indexes has it."""
        lines = (line.rpartition(" ") for line in state.split("\n") if line.startswith("."))
        logs = {name: int(text) for name, _, text in lines}
        return cls(path, size - sum(logs.values()), logs)


def group_of(path: str) -> str | None:
    """Return the file group of a base file; ``None`` for a log file."""
    name = path.rpartition("/")[2]
    return None if name.startswith(".") else name.partition("_")[0]


@dataclass
class Effect:
    """The effect of instants on the slices of a table.

    :param slices: file group -> its slice now, ``None`` if it is gone. :param why: set where it cannot be known.
    """

    slices: dict[str, Slice | None] = field(default_factory=dict)
    why: str | None = None


def effect(
    instants: Iterable[Mapping[str, Any]], completed: Mapping[str, str], known: Callable[[str], Slice | None]
) -> Effect:
    """Return what instants did, in the order in which they were completed.

    :param instants: as ``HudiTable.changes`` says them. :param completed: requested time -> time of completion.
    :param known: the slice of a file group before.
    """
    found = Effect()
    for instant in instants:
        for group in instant["replaced"]:
            found.slices[group] = None
        # A group's base file comes before its log files.
        for group, path, size, logs in sorted(instant["written"], key=lambda each: len(each[3])):
            before = found.slices[group] if group in found.slices else known(group)
            after = _written(before, instant, completed, path, size, logs)
            if isinstance(after, str):
                found.why = after
                return found
            found.slices[group] = after
    return found


def _written(
    before: Slice | None,
    instant: Mapping[str, Any],
    completed: Mapping[str, str],
    path: str,
    size: int,
    logs: list[str],
) -> Slice | str:
    """Return a slice after a file of it was written, or why it is not known."""
    if logs:
        if before is None or len(logs) > 1:
            return f"the instant {instant['version']} wrote log files whose base file or sizes it does not name"
        return Slice(before.path, before.bytes, {**before.logs, logs[0]: size})
    kept = {}
    for name, length in ({} if before is None else before.logs).items():
        said = _OF_LOG.fullmatch(name)
        ended = None if said is None else completed.get(said["instant"])
        if ended is None:
            return f"the instant {instant['version']} wrote a base file over a log file of an unknown instant"
        if ended > instant["version"]:
            kept[name] = length
    return Slice(path, size, kept)
