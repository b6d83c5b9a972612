"""Commits of a table of another format, in the words that all formats share: what each added, removed and changed.

The readers of this folder, one a format, ask a table's own log for the commits after a version, and say where it does
not have all of them. What they yield was read from files of another writer and is checked: each place is in the table.
They know neither Spark nor what an index holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from spark_apps.storage.documents import prepare
from spark_apps.storage.printing import printable
from spark_apps.timeline.model import UNKNOWN_ROWS

MAX_COMMITS = 1000
"""Commits that are read one by one: beyond that the list of all files is read in fewer requests."""

MAX_COMMITS_BYTES = 1 << 28
"""Bytes of their files together, as the log lists them: the driver has them in memory at once."""

_MAX_WORD = 100
"""Characters of a word that a log says of a commit."""


@dataclass(frozen=True)
class LoggedFile:
    """A data file as a commit adds it.

    :param path: below the table's folder, or an address. :param modified: seconds since 1970.
    :param partition: column, as the log calls it -> value as text.
    :param deletes: an id of the rows that are deleted in it; empty if none are. :param deleted_rows: how many.
    :param rows: with those that are deleted.
    :param sequence: by which deletes are told apart that apply to it, in formats that have such numbers.
    :param format_file: what the format's own library knows of it.
    """

    path: str
    bytes: int
    rows: int = UNKNOWN_ROWS
    modified: float | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    deletes: str = ""
    deleted_rows: int = 0
    sequence: int | None = None
    format_file: Any = None


@dataclass(frozen=True)
class LoggedDelete:
    """A file of deleted rows, in formats that keep them in files.

    :param of: path of the one data file that it is of; ``None`` where it may be of several.
    :param is_vector: whether it is all that is deleted in that file, and earlier ones count no more.
    """

    path: str
    of: str | None
    is_vector: bool = False


@dataclass(frozen=True)
class TableCommit:
    """A commit of a table.

    :param version: as the format calls it. :param time: seconds since 1970. :param operation: in the format's words.
    :param added: files, also those whose deletes alone changed. :param removed: paths of files that are no longer the
        table's, or that ``added`` has anew.
    :param schema_changed: whether columns, properties or the protocol may be others since.
    :param deletes_added: files of deleted rows that came. :param deletes_removed: those that went.
    :param sequence: the number of the commit, in formats that have such numbers.
    """

    version: str
    time: float | None
    operation: str
    added: tuple[LoggedFile, ...] = ()
    removed: tuple[str, ...] = ()
    schema_changed: bool = False
    deletes_added: tuple[LoggedDelete, ...] = ()
    deletes_removed: tuple[LoggedDelete, ...] = ()
    sequence: int | None = None

    @property
    def deletes_changed(self) -> frozenset[str] | None:
        """The paths of the files whose deleted rows alone the commit changed; ``None`` where it does not name them."""
        deletes = (*self.deletes_added, *self.deletes_removed)
        if any(delete.of is None for delete in deletes):
            return None
        added, removed = {file.path for file in self.added}, set(self.removed)
        by_files = {delete.of for delete in deletes if delete.of is not None} - added - removed
        return frozenset(by_files | (added & removed))


@dataclass(frozen=True)
class Commits:
    """The commits of a table after a version, oldest first.

    :param version: of the last one, or that asked for where there is none since.
    :param mark: what tells, the next time, whether the log still goes on from there (:mod:`.delta` and its kin).
    """

    commits: tuple[TableCommit, ...]
    version: str
    mark: str | None


@dataclass(frozen=True)
class Gap:
    """Commits that a log cannot tell one by one.

    :param start: the version asked for; ``None`` for all from the first on.
    :param end: the newest one, or, of a gap that a watcher meets, the first one that is listed again; ``None`` if that
        is not known.
    :param why: a clause, for people.
    """

    start: str | None
    end: str | None
    why: str


@dataclass(frozen=True)
class CommitInfo:
    """A commit as a log lists it, without its files, for a watcher.

    :param version: and ``time``, ``operation``, ``sequence``: as of :class:`TableCommit`.
    :param id: tells it from others of its version, in a table that was made anew.
    :param completion: the time at which it was completed as the format writes it, where commits are in that order.
    :param counts: ``files_added``, ``files_removed``, ``rows_added`` and ``rows_removed``, those that the log says.
    :param may_change_files: whether files, or deletes of files, may be others since: unless the log says that none are.
    """

    version: str
    id: str
    time: float | None = None
    operation: str = ""
    sequence: int | None = None
    completion: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    may_change_files: bool = True


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a table's log, behind the last commit that a watcher has seen; what it is known by is the format's.

    :param version: of that commit; ``None`` before the first one.
    :param file: of Delta, the file of the commit as it was (:meth:`.delta.DeltaLog.mark`).
    :param sequence: of Iceberg, the number of the snapshot. :param time: its milliseconds since 1970.
    :param completion: of Hudi, the newest time at which a commit was completed.
    :param pending: of Hudi, the instants up to this one that were not completed when it was looked at.
    """

    version: str | None = None
    file: str | None = None
    sequence: int | None = None
    time: int | None = None
    completion: str | None = None
    pending: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Look:
    """The commits that a log lists behind a place.

    :param seen: the commits in order, and the gaps between them. :param place: behind the last of them.
    :param more: whether there are more, for the next look.
    """

    seen: tuple[CommitInfo | Gap, ...]
    place: Place
    more: bool = False


class WatchedLog(Protocol):
    """The log of a table of any format as a watcher follows it: no commit is left out, whatever became of its files."""

    def place(self, version: str | None, mark: str | None) -> Place:
        """Return the place behind a version that a log of indexes holds, as its reader marked it."""

    def after(self, place: Place, most: int = MAX_COMMITS) -> Look:
        """Return the commits behind a place, and a gap where the log does not list them any more.

        :param most: commits of one look.
        :raises TableNotFound: if there is no table.
        :raises StorageUnavailable: if the store does not answer.
        """


class TableLog(Protocol):
    """The log of a table of any format."""

    def since(self, version: str, mark: str | None = None) -> Commits | Gap:
        """Return the commits after a version, in order; or a gap, where the log has not all of them.

        :param mark: tells whether the version is still the one that it was; ``None`` where that is not known.
        """


def net(commits: Iterable[TableCommit]) -> tuple[dict[str, LoggedFile], set[str]]:
    """Return the files that commits added and left, by path, and the paths of those that they took away."""
    added: dict[str, LoggedFile] = {}
    removed: set[str] = set()
    for commit in commits:
        for path in commit.removed:
            added.pop(path, None)
            removed.add(path)
        for file in commit.added:
            added[file.path] = file
            removed.discard(file.path)
    return added, removed


def said_by_log(text: str) -> str:
    """Return a word of a log, such as an operation, as it may be handed on."""
    return printable(text[:_MAX_WORD])


def write_mark(said: Mapping[str, str | None]) -> str:
    """Return the mark that a log of indexes keeps of a version: what its reader has to find as it was."""
    return msgspec.json.encode(said, order="sorted").decode()


def read_mark(mark: str) -> dict[str, str | None]:
    """Return what a mark says; nothing, which no reader finds as it was, if it is none."""
    try:
        return msgspec.json.decode(mark, type=dict[str, str | None])
    except (msgspec.DecodeError, RecursionError):
        return {}


prepare(Place)
