"""The log of a Delta table, commit by commit, from the JSON files in ``_delta_log``: no checkpoint is read.

A log goes on from a version if the file of that very commit is still there: a table that was made anew, or copied, has
another one of its number. Damaged files, and places outside of the table, are a gap as well; who then reads the list of
all files (:mod:`spark_apps.sources.delta`) finds what of it counts, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from spark_apps.sources.delta_places import LOG, check_links, is_inside
from spark_apps.sources.logs.commits import MAX_COMMITS, MAX_COMMITS_BYTES, Commits, Gap, LoggedFile, TableCommit
from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import LogDamaged, ObjectNotFound, UnsupportedSource
from spark_apps.storage.store import ObjectInfo, ObjectStore
from spark_apps.timeline.allowed_sources import Folder
from spark_apps.timeline.model import UNKNOWN_ROWS

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json")
_AT_ONCE = 16


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

    def newest(self, known: int) -> int:
        """Return the newest version after a known one, by one request; that one if there is none."""
        return max(self._from(known + 1), default=known) if self._is_there() else known

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
            return f"its commit {version} is another one than it was: the table was made anew, or copied"
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

    def _read(self, number: int, info: ObjectInfo) -> TableCommit:
        what = f"{self._store.uri}/{info.key}"
        body = self._store.get(info.key, MAX_COMMITS_BYTES)
        actions = [decode(line, _Action, what) for line in body.split(b"\n") if line.strip()]
        if _files(action.add for action in actions) & _files(action.remove for action in actions):
            # No writer may, and readers differ in what they make of it.
            raise UnsupportedSource(f"Its commit {number} adds and removes the same file.")
        said = next((action.info for action in actions if action.info is not None), _Info())
        moment = said.timestamp if said.in_commit is None else said.in_commit
        return TableCommit(
            str(number),
            None if moment is None else moment / 1000,
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
            statistics = decode(file.stats.encode(), _Statistics, "Statistics") if file.stats else _Statistics()
            yield LoggedFile(
                key,
                file.size,
                UNKNOWN_ROWS if statistics.rows is None else statistics.rows,
                file.modified / 1000,
                file.partition,
                "" if vector is None else vector.id,
                0 if vector is None else vector.cardinality,
            )


def _files(actions: Iterable[_Add | _Remove | None]) -> set[tuple[str, str]]:
    """Return path and deletion vector of the files that actions are of: together they are a file, by the format."""
    return {(one.path, "" if one.vector is None else one.vector.id) for one in actions if one is not None}


def _mark(info: ObjectInfo) -> str:
    return f"{info.size} {info.modified.timestamp():.6f} {info.etag or ''}".rstrip()
