"""The log of a Delta table, commit by commit, from the JSON files in ``_delta_log``: no checkpoint is read.

A log goes on from a version if the file of that very commit is still there: a table that was made anew, or copied, has
another one of its number. Damaged files, and places outside of the table, are a gap as well; who then reads the list of
all files (:mod:`spark_apps.sources.delta`) finds what of it counts, and says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from spark_apps.sources.delta_places import LOG, check_links, is_inside
from spark_apps.sources.logs.commits import (
    MAX_COMMITS,
    MAX_COMMITS_BYTES,
    CommitInfo,
    Commits,
    Gap,
    LoggedFile,
    Look,
    Place,
    TableCommit,
    read_mark,
    said_by_log,
)
from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import LogDamaged, ObjectNotFound, ObjectTooLarge, TableNotFound, UnsupportedSource
from spark_apps.storage.store import ObjectInfo, ObjectStore
from spark_apps.timeline.allowed_sources import Folder
from spark_apps.timeline.model import UNKNOWN_ROWS

logger = logging.getLogger(__name__)

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_NUMBERED = re.compile(rf"{LOG}/(\d{{20}})\.[^/]+")
_AT_ONCE = 16

_COUNTED_BYTES = 4 << 20
"""Bytes of a commit that a watcher reads to count its files; of a larger one it reads both ends, for the operation."""

_OF_INFO = b'{"commitInfo":'
_END_BYTES = 1 << 16
"""Bytes of each end."""

_ANEW = "the table was made anew, or copied"
_GONE = "its log has no commits between them any more"


class _Vector(msgspec.Struct):
    """A deletion vector, as a commit names it."""

    kind: str = msgspec.field(name="storageType")
    place: str = msgspec.field(name="pathOrInlineDv")
    offset: int | None = None
    cardinality: int = 0

    @property
    def id(self) -> str:
        """The id, as the format makes it; empty if no row is deleted."""
        if self.cardinality == 0:
            return ""
        return f"{self.kind}{self.place}" + ("" if self.offset is None else f"@{self.offset}")


class _Add(msgspec.Struct):
    path: str
    size: int
    modified: int = msgspec.field(name="modificationTime")
    partition: dict[str, str | None] = msgspec.field(default_factory=dict, name="partitionValues")
    stats: str | None = None
    vector: _Vector | None = msgspec.field(default=None, name="deletionVector")


class _Remove(msgspec.Struct):
    path: str
    vector: _Vector | None = msgspec.field(default=None, name="deletionVector")


class _Info(msgspec.Struct):
    timestamp: int | None = None
    in_commit: int | None = msgspec.field(default=None, name="inCommitTimestamp")
    operation: str = ""

    @property
    def milliseconds(self) -> int | None:
        """The time at which the commit was made, since 1970."""
        return self.timestamp if self.in_commit is None else self.in_commit


class _Action(msgspec.Struct):
    """A line of a commit, which has one of these."""

    add: _Add | None = None
    remove: _Remove | None = None
    info: _Info | None = msgspec.field(default=None, name="commitInfo")
    metadata: dict[str, Any] | None = msgspec.field(default=None, name="metaData")
    protocol: dict[str, Any] | None = None


class _Statistics(msgspec.Struct):
    rows: int | None = msgspec.field(default=None, name="numRecords")


prepare(_Action, _Statistics)


class DeltaLog:
    """The log of the table in a store's folder."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folder = Folder(store.uri)

    def mark(self, version: int) -> str | None:
        """Return the mark of a version, by one request; ``None`` if its commit is not there by itself."""
        if not self._is_there():
            return None
        info = self._store.head(f"{LOG}/{version:020d}.json")
        return None if info is None else _mark(info)

    def place(self, version: str | None, mark: str | None) -> Place:
        """Return the place behind a version, as a listing of its files marked it."""
        return Place(version, None if mark is None else read_mark(mark).get("commit"))

    def after(self, place: Place, most: int = MAX_COMMITS) -> Look:
        """Return the commits behind a place, by one request for their names, and one or two for each of them.

        :param most: commits of one look.
        :raises TableNotFound: if there is no table.
        :raises StorageUnavailable: if the store does not answer.
        """
        known = -1 if place.version is None else int(place.version)
        files = self._from(max(known, 0)) if self._is_there() else {}
        anew = self._is_anew(files, known, place.file)
        if anew:
            known, files = -1, self._from(0)
        numbers = _behind(known, files)
        if numbers and numbers[-1] - known != len(numbers):
            # A list of a folder that is written to may leave out a name, and have a later one.
            files |= self._from(max(known, 0))
            numbers = _behind(known, files)
        taken, seen, before = numbers[:most], list[CommitInfo | Gap](), known
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number, info in zip(taken, pool.map(lambda one: self._info(one, files[one]), taken), strict=True):
                if anew and not seen:
                    seen.append(Gap(place.version, str(number), _ANEW))
                elif number != before + 1:
                    seen.append(Gap(None if before < 0 else str(before), str(number), _GONE))
                seen.append(info)
                before = number
        if not taken and known not in files:
            return Look((), place)
        return Look(tuple(seen), Place(str(before), _mark(files[before])), len(numbers) > len(taken))

    def _is_anew(self, files: dict[int, ObjectInfo], known: int, mark: str | None) -> bool:
        """Test whether the table is another one than that of which a version was known.

        :param files: of commits from that version on.
        :raises TableNotFound: if there is no table.
        """
        if known in files:
            return mark is not None and _mark(files[known]) != mark
        if files:
            return False  # its commit was cleaned up, and later ones are there
        infos = self._store.list(LOG) if self._is_there() else []
        newest = max((int(found[1]) for info in infos if (found := _NUMBERED.fullmatch(info.key))), default=None)
        if newest is None:
            raise TableNotFound(f"There is no Delta table at {self._store.uri}.", hint="Check the location.")
        return newest < known

    def since(self, version: str, mark: str | None = None) -> Commits | Gap:
        """Return the commits after a version, by one request for their names and one for each of them.

        :param mark: of the version, by which the commit of its number is known again; ``None`` to take any.
        :raises StorageUnavailable: if the store does not answer.
        """
        known = int(version)
        try:
            files = self._from(known) if self._is_there() else {}
            newest = max(files, default=known)
            gap = self._gap(files, known, newest, mark)
            if gap is not None:
                return Gap(version, str(newest), gap)
            numbers = range(known + 1, newest + 1)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                commits = tuple(pool.map(lambda number: self._read(number, files[number]), numbers))
        except (LogDamaged, ObjectNotFound, UnsupportedSource) as error:
            return Gap(version, None, error.message.rstrip("."))
        return Commits(commits, str(newest), _mark(files[newest]))

    def _gap(self, files: dict[int, ObjectInfo], version: int, newest: int, mark: str | None) -> str | None:
        if version not in files:
            return f"its log has no commit {version} any more"
        if mark is not None and _mark(files[version]) != mark:
            return f"its commit {version} is another one than it was: {_ANEW}"
        missing = next((number for number in range(version, newest + 1) if number not in files), None)
        if missing is not None:
            return f"its log has no commit {missing}"
        since = [info for number, info in files.items() if number > version]
        if len(since) > MAX_COMMITS or sum(info.size for info in since) > MAX_COMMITS_BYTES:
            return f"its log has {len(since):,} commits since version {version}"
        return None

    def _is_there(self) -> bool:
        # A look must not leave a folder behind.
        return "://" in self._store.uri or Path(self._store.uri, LOG).is_dir()

    def _from(self, version: int) -> dict[int, ObjectInfo]:
        """Return the files of commits from a version on."""
        check_links(self._store)
        # The name of the version's own file comes right after its number alone.
        infos = self._store.list(LOG, after=f"{LOG}/{version:020d}")
        return {int(found[1]): info for info in infos if (found := _COMMIT.fullmatch(info.key))}

    def _actions(self, info: ObjectInfo, most: int) -> list[_Action]:
        """Return the actions of a commit. :raises LogDamaged: if it is none."""
        body, what = self._store.get(info.key, most), f"{self._store.uri}/{info.key}"
        return [decode(line, _Action, what) for line in body.split(b"\n") if line.strip()]

    def _info(self, number: int, info: ObjectInfo) -> CommitInfo:
        """Return what a commit says of itself; the least of one that is damaged, which is a commit all the same."""
        said, counts = _Info(), dict[str, int]()
        try:
            if info.size > _COUNTED_BYTES:
                said = self._said_at_ends(info)
            else:
                actions = self._actions(info, _COUNTED_BYTES)
                said, counts = _said(actions), _counts(actions)
        except (LogDamaged, ObjectTooLarge) as error:
            logger.info("Commit %d is counted without what it says: %s", number, error.message)
        ms = said.milliseconds
        return CommitInfo(
            str(number),
            f"{number}" if ms is None else f"{number}:{ms}",
            info.modified.timestamp() if ms is None else ms / 1000,
            said_by_log(said.operation),
            counts=counts,
            may_change_files=not counts or any((counts["files_added"], counts["files_removed"])),
        )

    def _said_at_ends(self, info: ObjectInfo) -> _Info:
        """Return what a large commit says of itself: writers say it first or last."""
        first = self._store.get_range(info.key, 0, _END_BYTES).split(b"\n")[0]
        last = self._store.get_range(info.key, info.size - _END_BYTES, info.size).rstrip().rpartition(b"\n")[2]
        lines = [line for line in (first, last) if line.startswith(_OF_INFO)]
        return _said([decode(line, _Action, f"{self._store.uri}/{info.key}") for line in lines])

    def _read(self, number: int, info: ObjectInfo) -> TableCommit:
        actions = self._actions(info, MAX_COMMITS_BYTES)
        if _files(action.add for action in actions) & _files(action.remove for action in actions):
            # No writer may, and readers differ in what they make of it.
            raise UnsupportedSource(f"Its commit {number} adds and removes the same file.")
        said = _said(actions)
        return TableCommit(
            str(number),
            None if said.milliseconds is None else said.milliseconds / 1000,
            said.operation,
            tuple(self._added(actions)),
            # A file elsewhere was never one of those that are known.
            tuple(key for one in actions if one.remove and (key := self._folder.key(one.remove.path)) is not None),
            any(action.metadata is not None or action.protocol is not None for action in actions),
        )

    def _added(self, actions: Iterable[_Action]) -> Iterable[LoggedFile]:
        for action in actions:
            file = action.add
            if file is None:
                continue
            key, vector = self._folder.key(file.path), file.vector
            if key is None or (vector is not None and not is_inside(self._folder, vector.kind, vector.place)):
                raise UnsupportedSource("A commit of its log leads to a file outside of the table.")
            statistics = _statistics(file)
            yield LoggedFile(
                key,
                file.size,
                UNKNOWN_ROWS if statistics.rows is None else statistics.rows,
                file.modified / 1000,
                file.partition,
                "" if vector is None else vector.id,
                0 if vector is None else vector.cardinality,
            )


def _behind(known: int, numbers: Iterable[int]) -> list[int]:
    """Return the numbers after a known one, in order."""
    return sorted(number for number in numbers if number > known)


def _said(actions: Iterable[_Action]) -> _Info:
    """Return what a commit says of itself."""
    return next((action.info for action in actions if action.info is not None), _Info())


def _counts(actions: Iterable[_Action]) -> dict[str, int]:
    """Return how many files a commit adds and removes, and rows it adds if its statistics say it of each file."""
    added, removed, rows = 0, 0, list[int | None]()
    for action in actions:
        removed += action.remove is not None
        if action.add is not None:
            added += 1
            rows.append(_statistics(action.add).rows)
    known = [one for one in rows if one is not None]
    counts = {"files_added": added, "files_removed": removed}
    return {**counts, "rows_added": sum(known)} if len(known) == added else counts


def _statistics(file: _Add) -> _Statistics:
    """Return the statistics of a file. :raises LogDamaged: if they cannot be read."""
    return decode(file.stats.encode(), _Statistics, "Statistics") if file.stats else _Statistics()


def _files(actions: Iterable[_Add | _Remove | None]) -> set[tuple[str, str]]:
    """Return path and deletion vector of the files that actions are of: together they are a file, by the format."""
    return {(one.path, "" if one.vector is None else one.vector.id) for one in actions if one is not None}


def _mark(info: ObjectInfo) -> str:
    return f"{info.size} {info.modified.timestamp():.6f} {info.etag or ''}".rstrip()
