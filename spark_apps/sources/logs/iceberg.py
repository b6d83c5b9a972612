"""Snapshots of an Iceberg table, by what they did: which files came and went, and which deletes are now on which.

Whoever reads the manifests (``pyiceberg``, or the connector of a Spark session) says what each snapshot added and
removed. Deletes that may be of several files, and a file that was written as of an earlier sequence number while others
deleted rows, are a gap: only a plan of the whole table says which deletes apply to which file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spark_apps.sources.logs.commits import MAX_COMMITS, Commits, Gap, LoggedDelete, LoggedFile, TableCommit
from spark_apps.storage.errors import LakeIndexError

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
        snapshots = self._between(version)
        if isinstance(snapshots, Gap):
            return snapshots
        newest = str(snapshots[-1].snapshot_id) if snapshots else version
        try:
            commits = tuple(_commit(self._table, snapshot, self._check) for snapshot in snapshots)
        except (LakeIndexError, ValueError, NotImplementedError, OSError) as error:
            # Who plans the whole table finds whether that counts, and says it.
            said = error.message if isinstance(error, LakeIndexError) else str(error)
            return Gap(version, newest, said.rstrip("."))
        return Commits(commits, newest, None)

    def _between(self, since: str) -> list[Any] | Gap:
        """Return the snapshots from which the current one came after another, oldest first."""
        current = self._table.current_snapshot()
        at, found, end = current, list[Any](), None if current is None else str(current.snapshot_id)
        while at is None or str(at.snapshot_id) != since:
            if at is None:
                return Gap(since, end, NO_ANCESTOR)
            if len(found) == MAX_COMMITS:
                return Gap(since, end, TOO_MANY)
            found.append(at)
            parent = at.parent_snapshot_id
            if parent is not None and str(parent) == since:
                break
            at = None if parent is None else self._table.snapshot_by_id(parent)
            if at is None and parent is not None:
                return Gap(since, end, EXPIRED)
        return found[::-1]

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
    text = None if summary is None else summary.additional_properties.get(name)
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None


def absolute_path(path: str) -> str:
    """Return the location of a file as a log has it, with a scheme."""
    if path.startswith("file:"):
        return "file:///" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else f"file://{path}"
