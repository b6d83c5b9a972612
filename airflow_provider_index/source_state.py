"""News of a registered source since a watcher looked at it last, found out without Spark.

A table with a log of its own has commits, which :mod:`spark_apps.sources.logs` lists one by one; of plain files the
list is compared with that of the log of indexes. What changed in the rows only a refresh finds out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from msgspec import convert, to_builtins

from spark_apps.layout.partitions import unescape
from spark_apps.sources.listing import ListedFile, list_folder
from spark_apps.sources.logs.commits import CommitInfo, Gap, Place, WatchedLog
from spark_apps.sources.logs.watching import FORMATS, watched_log
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.allowed_sources import RECURSIVE, check_allowed, is_set
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import DATA_TREE, SourceDefinition
from spark_apps.timeline.state import State

_MAX_PARTITIONS = 100
_NOTHING = "none"
"""The mark where nothing was new."""


@dataclass(frozen=True)
class News:
    """The news of a source.

    :param events: what events say of it, each as JSON types with an id ``commit``, the same whenever it is sent.
    :param mark: where the next look goes on, as JSON types.
    :param more: whether there is more, for a look that follows at once.
    """

    events: list[dict[str, Any]]
    mark: Any
    more: bool = False


class SourceState(Protocol):
    """A source of one kind."""

    def news(self, state: State, mark: Any) -> News:
        """Return what is new behind a mark, ``None`` at the very first look.

        :param state: of the log of its indexes, which says where a watcher begins.
        :raises TableNotFound: if the source is gone. :raises StorageUnavailable: if it cannot be looked at.
        """

    def behind(self, state: State) -> float:
        """Return how many commits of the source a state lacks that may have changed its files.

        Of plain files, which have none, it is 1 where the list is another one; after a gap it is infinite.

        :raises TableNotFound: if the source is gone. :raises StorageUnavailable: if it cannot be looked at.
        """


def source_state(
    state: State, log: str, options: Mapping[str, Any] | None = None, partition: str | None = None
) -> SourceState:
    """Return the source of a registered table.

    :param log: address of the table's log.
    :param options: how its store is reached, and the ``source_roots`` of the connection.
    :param partition: of plain files: take no notice of changes elsewhere.
    :raises SourceNotAllowed: if the connection does not allow the log to name it.
    :raises InvalidInput: if the table has no source, or one of a format whose partitions cannot be distinguished.
    """
    definition = state.table.source
    if definition is None:
        raise InvalidInput(
            "The table is no registered source: nobody but this package writes it.",
            hint="Watch its commits, with CommitEventTrigger.",
        )
    check_allowed(log, definition, options)
    if definition.format in FORMATS:
        if partition is not None:
            raise InvalidInput(
                f"Changes of a {definition.format} table are not told apart by partition.",
                hint="Leave partition out; a refresh of some partitions does the rest.",
            )
        return _Commits(definition, watched_log(definition, options, log))
    return _PlainFiles(definition, options, partition)


@dataclass(frozen=True)
class _Commits:
    """The commits that the table's own log lists."""

    source: SourceDefinition
    log: WatchedLog

    def news(self, state: State, mark: Any) -> News:
        assert state.table.source is not None
        place = _place_of(mark, self.source.format)
        if place is None:
            # A restart begins here too, whatever a refresh has taken in meanwhile.
            known = state.table.source
            return News([], to_builtins(self.log.place(known.version, known.mark)), True)
        look = self.log.after(place)
        events = [self._gap(one) if isinstance(one, Gap) else self._commit(one) for one in look.seen]
        return News(events, to_builtins(look.place), look.more)

    def behind(self, state: State) -> float:
        known, commits, more = state.table.source, 0, True
        assert known is not None
        place = self.log.place(known.version, known.mark)
        while more:
            look = self.log.after(place)
            if any(isinstance(one, Gap) for one in look.seen):
                return math.inf
            commits += sum(isinstance(one, CommitInfo) and one.may_change_files for one in look.seen)
            place, more = look.place, look.more
        return commits

    def _commit(self, commit: CommitInfo) -> dict[str, Any]:
        return {
            "commit": f"source:{self.source.format}:{commit.id}",
            "operation": "source",
            "format": self.source.format,
            "version": commit.version,
            "sequence": commit.sequence,
            "source_operation": commit.operation,
            "instant": _instant(commit.time),
            "completion": commit.completion,
            **commit.counts,
        }

    def _gap(self, gap: Gap) -> dict[str, Any]:
        return {
            "commit": f"source:{self.source.format}:gap:{gap.start}:{gap.end}",
            "operation": "gap",
            "format": self.source.format,
            "version": None,
            "from_version": gap.start,
            "to_version": gap.end,
            "why": gap.why,
        }


def _place_of(mark: Any, form: str) -> Place | None:
    """Return the place that a mark is of; ``None`` for a watcher that begins.

    Earlier versions of this package kept the format and the version, as ``delta:7``.
    """
    if isinstance(mark, dict):
        return convert(mark, Place)
    kept, _, version = str(mark).partition(":")
    return Place(version) if kept == form else None


def _instant(seconds: float | None) -> str | None:
    """Return a time as text; ``None`` for one that no calendar has."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class _PlainFiles:
    """The list of files, with their sizes and times, against those of the log."""

    source: SourceDefinition
    options: Mapping[str, Any] | None
    partition: str | None

    def news(self, state: State, mark: Any) -> News:
        change = self._change(state)
        # What a refresh has taken in since leaves its mark: the same state will not come again.
        if change is None or change[0] == mark:
            return News([], mark or _NOTHING)
        state_mark, event = change
        return News([{"commit": f"source:{state_mark}", "operation": "source", **event}], state_mark)

    def behind(self, state: State) -> float:
        return 0 if self._change(state) is None else 1

    def _change(self, state: State) -> tuple[str, dict[str, Any]] | None:
        """Return the mark of a state that the log does not know, and what an event says of it."""
        location = locate(self.source.location)
        recursive = is_set(self.source.options, RECURSIVE)
        columns = {name.lower() for name in state.table.partition_by}
        there: dict[str, tuple[Any, ...]] = {}
        where: dict[str, str] = {}
        listed, read = list_folder(location, self.options), []
        for file in listed.files:
            folder = "" if recursive else _partition(file)
            # As when the source is read: files beside the partitions, or in other folders, are no part of it.
            if columns and not recursive and {name for name, _ in _values(folder)} != columns:
                continue
            if not columns and location.pattern is None and not recursive and "/" in file.relative:
                continue
            read.append(file)
            there[file.path] = _contents(file.bytes, file.modified, file.etag)
            where[file.path] = folder
        listed.check_plain(location, read)
        logged = state.files(DATA_TREE)
        known = {
            one.path: _contents(one.bytes, (one.extra or {}).get("modified"), (one.extra or {}).get("etag"))
            for one in logged
        }
        where = {**{one.path: one.partition for one in logged}, **where}
        added = [
            path for path, contents in there.items() if known.get(path) != contents and self._is_watched(where[path])
        ]
        removed = [path for path, old in known.items() if there.get(path) != old and self._is_watched(where[path])]
        if not added and not removed:
            return None
        lines = [f"{path}\0{there.get(path)}\n" for path in sorted({*added, *removed})]
        partitions = sorted({where[path] for path in (*added, *removed)})
        event = {
            "format": self.source.format,
            "version": None,
            "files_added": len(added),
            "files_removed": len(removed),
            "partitions": partitions[:_MAX_PARTITIONS] if columns else [],
        }
        return f"files:{hashlib.sha256(''.join(lines).encode()).hexdigest()[:24]}", event

    def _is_watched(self, folder: str) -> bool:
        return self.partition is None or set(_values(self.partition)) <= set(_values(folder))


def _contents(size: int, modified: float | None, etag: str | None) -> tuple[Any, ...]:
    return size, None if modified is None else round(modified, 6), etag


def _partition(file: ListedFile) -> str:
    return "/".join(folder for folder in file.relative.split("/")[:-1] if "=" in folder)


def _values(folder: str) -> list[tuple[str, str]]:
    parts = (part.partition("=") for part in folder.split("/") if part)
    return [(unescape(name).lower(), unescape(text)) for name, _, text in parts]
