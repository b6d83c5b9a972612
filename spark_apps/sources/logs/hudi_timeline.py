"""The timeline of a Hudi table, instant by instant, from the files in ``.hoodie``: no reader of Hudi is needed.

The names of the files say which instants were completed, and since tables of version 8 when. An instant that was
completed is never changed; the oldest are archived, and are a gap then. Of what the files say their counts are taken;
which slices an instant wrote, the reader of a Spark session says (:mod:`.hudi`).
"""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from spark_apps.sources.logs.avro import first_record
from spark_apps.sources.logs.commits import MAX_COMMITS, CommitInfo, Gap, Look, Place, read_mark, said_by_log
from spark_apps.sources.logs.hudi import FIRST_VERSION
from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import LogDamaged, ObjectTooLarge, UnsupportedSource
from spark_apps.storage.printing import printable
from spark_apps.storage.store import ObjectInfo, Store
from spark_apps.timeline.hudi_indexes import FOLDER, read_properties, table_version

logger = logging.getLogger(__name__)

_COUNTED_BYTES = 1 << 20
"""Bytes of what an instant says that a watcher reads for its counts; a larger one has none."""
_AT_ONCE = 16
_MAX_PENDING = 1000
"""Instants that are remembered as not completed, the newest: a writer has one or two at a time."""

_WRITES = {"commit", "deltacommit", "replacecommit"}
_CHANGES = {*_WRITES, "rollback", "restore"}
"""Actions after which a table may have other rows or files; cleans, savepoints and indexes are none."""
_BEGUN = {*_WRITES, "compaction", "logcompaction", "clustering", "inflight"}
"""What a write is called until it is completed."""

_INSTANT = re.compile(
    r"(?P<time>\d{8,17})(?:_(?P<completion>\d{8,17}))?\.(?P<action>[a-z]+)(?P<pending>\.requested|\.inflight)?"
)
_NAME = re.compile(r"[A-Za-z0-9_\-]{1,100}")
_ARCHIVED = "instants since were archived"


_UPKEEP = {"compact", "cluster", "log_compact"}
"""Operations that write rows which were there before."""


class _Stat(msgspec.Struct, rename="camel"):
    """A file that an instant wrote, as it says."""

    path: str | None = None
    num_inserts: int | None = None
    num_update_writes: int | None = None
    num_deletes: int | None = None


class _Said(msgspec.Struct, rename="camel"):
    """The part of an instant's file that is counted."""

    operation_type: str | None = None
    partition_to_write_stats: dict[str, list[_Stat]] | None = None

    @property
    def operation(self) -> str:
        """The operation in the words of Hudi's settings; empty if it is not said."""
        return (self.operation_type or "").lower()

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of files and rows that were written."""
        stats = [stat for each in (self.partition_to_write_stats or {}).values() for stat in each]
        counts = {"files_added": sum(stat.path is not None for stat in stats)}
        if self.operation in _UPKEEP:
            return counts
        return {
            **counts,
            "rows_added": sum(stat.num_inserts or 0 for stat in stats),
            "rows_updated": sum(stat.num_update_writes or 0 for stat in stats),
            "rows_removed": sum(stat.num_deletes or 0 for stat in stats),
        }


prepare(_Said)


@dataclass(frozen=True)
class _Instant:
    """An instant of the timeline, which a file of it shows in one of its states."""

    time: str
    action: str
    completion: str | None
    file: ObjectInfo


@dataclass(frozen=True)
class _Instants:
    """The instants that are listed: those that were completed, and the times of writes that were not yet."""

    completed: list[_Instant]
    pending: list[str]


class HudiTimeline:
    """The timeline of the table in a store's folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def place(self, version: str | None, mark: str | None) -> Place:
        """Return the place behind an instant, as a listing of its slices marked it."""
        said = {} if mark is None else read_mark(mark)
        oldest = said.get("oldest")
        pending = [oldest] if oldest and version is not None and oldest < version else []
        return Place(version, completion=said.get("latest") or None, pending=pending)

    def after(self, place: Place, most: int = MAX_COMMITS) -> Look:
        """Return the commits behind a place, by a request for the table's properties and one for the names.

        They come in the order in which they were completed, of tables before version 8 in that of their instants.

        :param most: commits of one look.
        :raises TableNotFound: if there is no table.
        :raises UnsupportedSource: if its timeline is in another folder than one of its own.
        :raises StorageUnavailable: if the store does not answer.
        """
        folder, in_order = self._folder()
        instants = self._listed(folder)
        new = [one for one in instants.completed if _is_new(one, place, in_order)]
        new.sort(key=lambda one: (one.completion or "", one.time) if in_order else (one.time, ""))
        seen: list[CommitInfo | Gap] = []
        if new and self._archived(instants, place):
            seen.append(Gap(place.version, new[0].time, _ARCHIVED))
        taken = new[:most]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            seen += pool.map(self._info, taken)
        version = max((one.time for one in taken), default=place.version)
        if version is not None and place.version is not None:
            version = max(version, place.version)
        pending = [] if version is None else [time for time in instants.pending if time <= version][-_MAX_PENDING:]
        ended = taken[-1].completion if taken and in_order else place.completion
        return Look(tuple(seen), Place(version, completion=ended, pending=pending), len(new) > len(taken))

    def completed(self) -> list[tuple[str, str]]:
        """Return the time and the action of each instant that is listed as completed.

        :raises TableNotFound: if there is no table.
        """
        return [(one.time, one.action) for one in self._listed(self._folder()[0]).completed]

    def pending(self) -> list[tuple[str, str]]:
        """Return the time and the action of each instant that is listed as planned and not completed, oldest first.

        :raises TableNotFound: if there is no table.
        """
        folder = self._folder()[0]
        found = (_INSTANT.fullmatch(info.key.rpartition("/")[2]) for info in self._store.files(folder))
        there = [one for one in found if one is not None]
        done = {one["time"] for one in there if not one["pending"] and one["action"] != "inflight"}
        return sorted({(one["time"], one["action"]) for one in there if one["pending"] and one["time"] not in done})

    def _folder(self) -> tuple[str, bool]:
        """Return the folder of the timeline, and whether its names say when instants were completed."""
        said = read_properties(self._store)
        if table_version(said, self._store) < FIRST_VERSION:
            return FOLDER, False
        name = said.get("hoodie.timeline.path", "timeline")
        if _NAME.fullmatch(name) is None:
            raise UnsupportedSource(
                f"The Hudi table {self._store.uri} has its timeline in {printable(name[:100])!r}, which is no folder "
                f"of {FOLDER}.",
                hint="See who wrote its hoodie.properties.",
            )
        return f"{FOLDER}/{name}", True

    def _listed(self, folder: str) -> _Instants:
        completed: list[_Instant] = []
        begun, ended = set[str](), set[str]()
        for info in self._store.files(folder):
            found = _INSTANT.fullmatch(info.key.rpartition("/")[2])
            if found is None:
                continue
            time, action = found["time"], found["action"]
            if not found["pending"] and action != "inflight":
                completed.append(_Instant(time, action, found["completion"], info))
                ended.add(time)
            elif action in _BEGUN:
                begun.add(time)
        return _Instants(completed, sorted(begun - ended))

    def _archived(self, instants: _Instants, place: Place) -> bool:
        """Test whether commits behind a place may be listed no more: the oldest are archived first."""
        saved = {one.time for one in instants.completed if one.action == "savepoint"}
        # A commit with a savepoint may stay when later ones are archived.
        writes = (one.time for one in instants.completed if one.action in _WRITES and one.time not in saved)
        oldest = min([*writes, *instants.pending], default=None)
        return oldest is not None and place.version is not None and oldest > min([place.version, *place.pending])

    def _info(self, instant: _Instant) -> CommitInfo:
        """Return what an instant says of itself; the least of one that cannot be read, which is an instant as well."""
        said = _Said()
        if instant.action in _WRITES:
            try:
                said = self._said(instant)
            except (LogDamaged, ObjectTooLarge) as error:
                logger.info("The instant %s comes without counts: %s", instant.time, error.message)
        return CommitInfo(
            instant.time,
            instant.time,
            instant.file.modified.timestamp(),
            said_by_log(said.operation or instant.action),
            completion=instant.completion,
            counts={} if said.partition_to_write_stats is None else said.counts,
            # It takes back what a writer left that failed, mostly, and that was never the table's.
            may_change_files=instant.action != "rollback",
        )

    def _said(self, instant: _Instant) -> _Said:
        body, what = self._store.get(instant.file.key, _COUNTED_BYTES), f"{self._store.uri}/{instant.file.key}"
        if instant.completion is None:
            return decode(body, _Said, what) if body.strip() else _Said()
        record: Any = first_record(body, what)
        try:
            return msgspec.convert(record, _Said)
        except msgspec.ValidationError as error:
            raise LogDamaged(f"{what} cannot be read: {error}.") from error


def _is_new(instant: _Instant, place: Place, in_order: bool) -> bool:
    """Test whether an instant was completed since a place."""
    if instant.action not in _CHANGES:
        return False
    if in_order and place.completion is not None and instant.completion is not None:
        return instant.completion > place.completion
    return place.version is None or instant.time > place.version or instant.time in place.pending
