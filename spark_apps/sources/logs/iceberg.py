"""Snapshots of an Iceberg table, by what they did: which files came and went, and which deletes are now on which.

Whoever reads the manifests (``pyiceberg``, or the connector of a Spark session) says what each snapshot added and
removed. Deletes that may be of several files, and a file that was written as of an earlier sequence number while others
deleted rows, are a gap: only a plan of the whole table says which deletes apply to which file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

import msgspec

from spark_apps.sources.logs.commits import (
    MAX_COMMITS,
    CommitInfo,
    Commits,
    Gap,
    LoggedDelete,
    LoggedFile,
    Look,
    Place,
    TableCommit,
    said_by_log,
)
from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import LakeIndexError, LogDamaged

NO_ANCESTOR = "the snapshot is none of those that its current one came from"
EXPIRED = "snapshots since were expired"
TOO_MANY = f"there are more than {MAX_COMMITS:,} snapshots since"


@dataclass(frozen=True)
class Start:
    """The snapshot after which commits are followed.

    :param sequence: its number; ``None`` if the metadata has it no more.
    :param deleted: whether it may have added deletes that are of several files.
    """

    sequence: int | None
    deleted: bool


@dataclass
class Effect:
    """The effect of commits on the files of a table.

    :param added: new files by path.
    :param deletes: path of each file whose deletes may have changed, also of new ones -> the deletes' locations.
    :param removed: paths of files that are gone. :param why: set where the effect cannot be known.
    """

    added: dict[str, LoggedFile] = field(default_factory=dict)
    deletes: dict[str, list[str]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    why: str | None = None


class KnownDeletes(Protocol):
    """The deletes of files before."""

    def of(self, path: str) -> Sequence[str] | None:
        """Return the locations of a file's deletes; ``None`` for one that was not the table's."""

    def holding(self, location: str) -> Iterable[str]:
        """Return the paths of the files that a file of deletes was on."""


def effect(commits: Sequence[TableCommit], start: Start, has_deletes: bool, known: KnownDeletes) -> Effect:
    """Return what commits did, oldest first.

    :param has_deletes: whether the newest of them has deletes at all.
    """
    found = Effect()
    for commit in commits:
        for path in commit.removed:
            found.added.pop(path, None)
            found.deletes.pop(path, None)
            found.removed.add(path)
        for file in commit.added:
            if has_deletes and not _came_last(file, commits[0], start):
                found.why = f"snapshot {commit.version} wrote files as of before, while others deleted rows"
                return found
            found.added[file.path] = file
            found.deletes[file.path] = []
            found.removed.discard(file.path)
        for delete in commit.deletes_removed:
            _take(found, delete, known)
        for delete in commit.deletes_added:
            found.why = _add(found, commit, delete, known)
            if found.why is not None:
                return found
    return found


def _came_last(file: LoggedFile, first: TableCommit, start: Start) -> bool:
    """Test whether no delete from before the commits can apply to a file."""
    if file.sequence is None or first.sequence is None:
        return False
    if file.sequence >= first.sequence:
        return True
    return start.sequence is not None and file.sequence >= start.sequence and not start.deleted


def _take(found: Effect, delete: LoggedDelete, known: KnownDeletes) -> None:
    """Note deletes that went, of whatever files they were on."""
    if delete.of is None:
        on = {*known.holding(delete.path), *(path for path, others in found.deletes.items() if delete.path in others)}
    else:
        on = {delete.of}
    for path in on:
        others = _deletes(found, path, known)
        if others is not None:
            found.deletes[path] = [location for location in others if location != delete.path]


def _add(found: Effect, commit: TableCommit, delete: LoggedDelete, known: KnownDeletes) -> str | None:
    """Note deletes that came; return why it cannot be known on which file they are, if it cannot."""
    if delete.of is None:
        return f"snapshot {commit.version} has deletes that may be of several files"
    others = _deletes(found, delete.of, known)
    if others is None:
        return None
    if delete.is_vector and set(others) - {delete.path}:
        return f"snapshot {commit.version} has a deletion vector beside other deletes of {delete.of}"
    found.deletes[delete.of] = sorted({*others, delete.path})
    return None


def _deletes(found: Effect, path: str, known: KnownDeletes) -> Sequence[str] | None:
    """Return the deletes of a file as far as they are noted; ``None`` for one that is not the table's."""
    if path in found.removed:
        return None
    return found.deletes[path] if path in found.deletes else known.of(path)


# --- of the metadata alone --------------------------------------------------------------------------------------------

MAX_METADATA_BYTES = 1 << 28
"""Bytes of a table's metadata, unpacked: a thousand snapshots take a megabyte or two."""

_COUNTS = {"files_added": "added-data-files", "files_removed": "deleted-data-files", "rows_added": "added-records",
           "rows_removed": "deleted-records"}  # fmt: skip


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot as a table's metadata lists it.

    :param time: milliseconds since 1970.
    """

    id: int = msgspec.field(name="snapshot-id")
    time: int = msgspec.field(name="timestamp-ms")
    parent: int | None = msgspec.field(default=None, name="parent-snapshot-id")
    sequence: int | None = msgspec.field(default=None, name="sequence-number")
    summary: dict[str, str] | None = None

    @property
    def info(self) -> CommitInfo:
        """The snapshot as a watcher has it."""
        summary = self.summary or {}
        numbers = ((name, _number(summary.get(said))) for name, said in _COUNTS.items())
        counts = {name: number for name, number in numbers if number is not None}
        return CommitInfo(
            str(self.id),
            str(self.id),
            self.time / 1000,
            said_by_log(summary.get("operation", "")),
            self.sequence,
            counts=counts,
            # So says a rewrite of manifests; one of files counts them.
            may_change_files=bool(counts) or summary.get("operation") != "replace",
        )

    @property
    def place(self) -> Place:
        """The place behind the snapshot."""
        return Place(str(self.id), sequence=self.sequence, time=self.time)


class TableMetadata(msgspec.Struct, frozen=True):
    """The part of a table's metadata that says which snapshots its current one came from.

    :param updated: milliseconds since 1970.
    """

    id: str | None = msgspec.field(default=None, name="table-uuid")
    location: str = ""
    updated: int | None = msgspec.field(default=None, name="last-updated-ms")
    current: int | None = msgspec.field(default=None, name="current-snapshot-id")
    snapshots: list[Snapshot] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, body: bytes, what: str) -> TableMetadata:
        """Decode a metadata file. :raises LogDamaged: if it is none."""
        return decode(body, cls, what)

    @classmethod
    def of_table(cls, table: Any) -> TableMetadata:
        """Return the metadata of a table that ``pyiceberg`` has loaded."""
        said = table.metadata
        snapshots = [
            Snapshot(one.snapshot_id, one.timestamp_ms, one.parent_snapshot_id, one.sequence_number, _summary(one))
            for one in said.snapshots
        ]
        return cls(str(said.table_uuid), said.location, said.last_updated_ms, said.current_snapshot_id, snapshots)

    def after(self, place: Place, most: int = MAX_COMMITS) -> Look:
        """Return the snapshots from which the current one came behind a place, oldest first.

        A table that went back to a snapshot of before has a commit ``rollback`` of that one; what it left is no gap.

        :param most: snapshots of one look.
        :raises LogDamaged: if a snapshot came from itself.
        """
        listed = {one.id: one for one in self.snapshots}
        known = None if place.version is None else int(place.version)
        line, end = _line(listed, self.current, known)
        before: list[CommitInfo | Gap] = []
        if not line:
            return Look((), listed[known].place if known in listed and known == self.current else place)
        last = line[-1].place
        if end != known:
            back = [] if known not in listed else [one.id for one in _line(listed, known, None)[0]]
            shared = next((one for one in reversed(line) if one.id in back), None)
            if shared is not None:
                before = [self._went_back(shared, place)]
                line = [*takewhile(lambda one: one is not shared, reversed(line))][::-1]
                last = line[-1].place if line else shared.place
            else:
                line = [one for one in line if end is None or _is_later(one, place)]
                first = str(line[0].id if line else self.current)
                before = [Gap(place.version, first, NO_ANCESTOR if end is None else EXPIRED)]
        taken = line[:most]
        seen = (*before, *(one.info for one in taken))
        return Look(seen, taken[-1].place if taken else last, len(line) > len(taken))

    def _went_back(self, to: Snapshot, place: Place) -> CommitInfo:
        moment = None if self.updated is None else self.updated / 1000
        return CommitInfo(str(to.id), f"{to.id}:after:{place.version}", moment, "rollback", to.sequence)


prepare(TableMetadata)


def _line(listed: Mapping[int, Snapshot], at: int | None, until: int | None) -> tuple[list[Snapshot], int | None]:
    """Return the snapshots from which one came, itself too, oldest first, and the id of the first that is left out.

    :param until: left out, with those before it.
    """
    line: dict[int, Snapshot] = {}
    while at is not None and at != until and (snapshot := listed.get(at)) is not None:
        if at in line:
            raise LogDamaged(f"The snapshot {at} came from itself, by the table's metadata.")
        line[at] = snapshot
        at = snapshot.parent
    return [*line.values()][::-1], None if at == -1 else at


def _is_later(snapshot: Snapshot, place: Place) -> bool:
    """Test whether a snapshot may be one of those behind a place: one that comes twice is not lost."""
    if place.time is None:
        return True
    later = place.sequence is not None and snapshot.sequence is not None and snapshot.sequence > place.sequence
    return later or snapshot.time > place.time


def _summary(snapshot: Any) -> dict[str, str]:
    """Return the summary of a snapshot that ``pyiceberg`` has loaded."""
    if snapshot.summary is None:
        return {}
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


# --- by pyiceberg -----------------------------------------------------------------------------------------------------


_FILE_PATH = 2147483546
"""The id of the column of a position delete's file that names the data file."""


class IcebergLog:
    """The snapshots of a table that ``pyiceberg`` has loaded.

    :param check: raises where an address is outside of the table.
    """

    def __init__(self, table: Any, check: Callable[..., None]) -> None:
        self._table = table
        self._check = check

    def since(self, version: str, mark: str | None = None) -> Commits | Gap:
        """Return the commits of the snapshots after one, from the manifests alone that these wrote.

        :param mark: not needed: no other snapshot has the id.
        """
        newest = None
        try:
            listed = TableMetadata.of_table(self._table)
            newest = None if listed.current is None else str(listed.current)
            line, end = _line({one.id: one for one in listed.snapshots}, listed.current, int(version))
            if end != int(version):
                return Gap(version, newest, NO_ANCESTOR if end is None else EXPIRED)
            if len(line) > MAX_COMMITS:
                return Gap(version, newest, TOO_MANY)
            snapshots = [self._table.snapshot_by_id(one.id) for one in line]
            commits = tuple(_commit(self._table, snapshot, self._check) for snapshot in snapshots)
        except (LakeIndexError, ValueError, NotImplementedError, OSError) as error:
            # Who plans the whole table finds whether that counts, and says it.
            said = error.message if isinstance(error, LakeIndexError) else str(error)
            return Gap(version, newest, said.rstrip("."))
        return Commits(commits, version if newest is None else newest, None)

    def start(self, version: str) -> Start:
        """Return what counts of the snapshot after which commits are followed."""
        snapshot = self._table.snapshot_by_id(int(version))
        if snapshot is None:
            return Start(None, True)
        if _counted(snapshot.summary, "added-delete-files") in (None, 0):
            return Start(snapshot.sequence_number, False)
        try:
            deletes = _commit(self._table, snapshot, self._check).deletes_added
        except (LakeIndexError, ValueError, NotImplementedError, OSError):
            return Start(snapshot.sequence_number, True)
        return Start(snapshot.sequence_number, any(delete.of is None for delete in deletes))

    def has_deletes(self) -> bool:
        """Test whether the current snapshot may have deletes."""
        current = self._table.current_snapshot()
        return current is not None and _counted(current.summary, "total-delete-files") != 0


def _commit(table: Any, snapshot: Any, check: Callable[..., None]) -> TableCommit:
    from pyiceberg.manifest import DataFileContent, ManifestEntryStatus

    check(snapshot.manifest_list)
    own = [one for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
    check(*(manifest.manifest_path for manifest in own))
    added, removed, deletes = list[LoggedFile](), list[str](), (list[LoggedDelete](), list[LoggedDelete]())
    for manifest in own:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.status == ManifestEntryStatus.EXISTING or entry.snapshot_id != snapshot.snapshot_id:
                continue
            file, came = entry.data_file, entry.status == ManifestEntryStatus.ADDED
            check(file.file_path)
            path = absolute_path(file.file_path)
            if file.content != DataFileContent.DATA:
                deletes[0 if came else 1].append(LoggedDelete(str(file.file_path), _of(file)))
            elif came:
                size, rows = int(file.file_size_in_bytes), int(file.record_count)
                added.append(LoggedFile(path, size, rows, sequence=entry.sequence_number, format_file=file))
            else:
                removed.append(path)
    operation = "" if snapshot.summary is None else snapshot.summary.operation.value
    return TableCommit(
        str(snapshot.snapshot_id),
        snapshot.timestamp_ms / 1000,
        operation,
        tuple(added),
        tuple(removed),
        deletes_added=tuple(deletes[0]),
        deletes_removed=tuple(deletes[1]),
        sequence=snapshot.sequence_number,
    )


def _of(file: Any) -> str | None:
    """Return the data file that a file of positions is of, if it is of one alone; not of a deletion vector."""
    low, high = ((bounds or {}).get(_FILE_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or low != high or str(file.file_format).rpartition(".")[2].upper() == "PUFFIN":
        return None
    return absolute_path(low.decode(errors="replace"))


def _counted(summary: Any, name: str) -> int | None:
    """Return a number of a snapshot's summary; ``None`` where it says none."""
    return None if summary is None else _number(summary.additional_properties.get(name))


def _number(text: str | None) -> int | None:
    """Return a number of a summary; ``None`` for what is none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


def absolute_path(path: str) -> str:
    """Return the location of a file as a log has it, with a scheme."""
    if path.startswith("file:"):
        return "file:///" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else f"file://{path}"
