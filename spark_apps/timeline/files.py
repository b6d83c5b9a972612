"""The set of files of a snapshot: a shared, never changed part from a checkpoint, and a small overlay of changes.

Copying a set copies nothing until one of the two is changed, and then only the overlay, so that a transaction can hold
on to its base while the log goes on, whatever the size of the table. The shared part stays in Arrow's columns
(:mod:`spark_apps.timeline.columns`); of it only the files that somebody asks for become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from spark_apps.timeline.columns import Columns
from spark_apps.timeline.model import COVERS, AddFile, Struct

GroupKey = tuple[str, str]
"""(partition, group)."""


class DataFile(Struct, frozen=True):
    """A live file; as :class:`~spark_apps.timeline.model.AddFile`, with its place in the merge order resolved."""

    tree: str
    partition: str
    group: str
    path: str
    kind: Literal["base", "delta"]
    rows: int
    bytes: int
    place: int
    tombstones: int = 0
    lineage: int = 0
    extra: dict[str, Any] | None = None

    @classmethod
    def of(cls, add: AddFile, version: int) -> DataFile:
        place = version if add.place is None else add.place
        return cls(add.tree, add.partition, add.group, add.path, add.kind, add.rows, add.bytes, place,
                   add.tombstones, add.lineage, add.extra)  # fmt: skip

    def to_add(self) -> AddFile:
        """The action that brings this very file back, at its place."""
        return AddFile(self.tree, self.partition, self.group, self.path, self.kind, self.rows, self.bytes, self.place,
                       self.tombstones, self.lineage, self.extra)  # fmt: skip

    @property
    def group_key(self) -> GroupKey:
        return self.partition, self.group


def merge_order(file: DataFile) -> tuple[int, bool, str]:
    """Sort key of the files of a group: lowest place first, a base before the deltas of its place."""
    return file.place, file.kind == "delta", file.path


def covered_lineages(files: Iterable[DataFile]) -> frozenset[int]:
    """The data files that an index which addresses files tells of, by lineage; from its own files."""
    parts = [part for file in files if file.extra for part in file.extra.get(COVERS, ())]
    return frozenset(lineage for part in parts for lineage in part["lineages"])


def lowest(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """What lies under all others of a group (given in merge order): one file, or the parts of one base, which have one
    place and no key in common."""
    parts = sum(file.kind == "base" and file.place == files[0].place for file in files)
    return files[: max(parts, 1)]


def is_merged(files: Sequence[DataFile]) -> bool:
    """Whether there are files in a group (given in merge order) and they are its rows as they stand: a key is there
    once, none is deleted."""
    return 0 < len(files) == len(lowest(files)) and not any(file.tombstones for file in files)


def lowest_plain(files: Sequence[DataFile]) -> DataFile | None:
    """The file under all others of a group (given in merge order), if its rows stand where no later one says
    otherwise: a base, or a delta without tombstones, with nothing but deltas over it."""
    if not files or files[0].tombstones or not files[0].lineage:
        return None
    return files[0] if all(file.kind == "delta" for file in files[1:]) else None


class _Tree:
    """Files of one tree by path, with the paths of each group."""

    __slots__ = ("by_path", "groups")

    def __init__(self) -> None:
        self.by_path: dict[str, DataFile] = {}
        # Tuples, so that copying the outer dict is enough.
        self.groups: dict[GroupKey, tuple[str, ...]] = {}

    def add(self, file: DataFile) -> None:
        if file.path not in self.by_path:
            self.groups[file.group_key] = (*self.groups.get(file.group_key, ()), file.path)
        self.by_path[file.path] = file

    def discard(self, path: str) -> DataFile | None:
        file = self.by_path.pop(path, None)
        if file is not None:
            left = tuple(other for other in self.groups[file.group_key] if other != path)
            if left:
                self.groups[file.group_key] = left
            else:
                del self.groups[file.group_key]
        return file

    def select(self, partition: str | None, group: str | None) -> Iterable[DataFile]:
        if partition is None:
            return self.by_path.values()
        keys = [(partition, group)] if group is not None else [key for key in self.groups if key[0] == partition]
        return [self.by_path[path] for key in keys for path in self.groups.get(key, ())]

    def copy(self) -> _Tree:
        other = _Tree()
        other.by_path, other.groups = dict(self.by_path), dict(self.groups)
        return other


class FileSet:
    """Live files by tree, partition and group."""

    __slots__ = ("_added", "_borrowed", "_removed", "_shared")

    def __init__(self, shared: Columns | None = None) -> None:
        self._shared = Columns() if shared is None else shared
        self._added: dict[str, _Tree] = {}
        self._removed: set[int] = set()
        self._borrowed = False

    def copy(self) -> FileSet:
        """A set that can be changed while this one stays, and the other way round."""
        other = FileSet(self._shared)
        other._added, other._removed = self._added, self._removed
        self._borrowed = other._borrowed = True
        return other

    def _own(self) -> None:
        if self._borrowed:
            self._added = {name: tree.copy() for name, tree in self._added.items()}
            self._removed = set(self._removed)
            self._borrowed = False

    def changes(self) -> int:
        """Size of the overlay: what a checkpoint written now would spare the next reader."""
        return sum(len(tree.by_path) for tree in self._added.values()) + len(self._removed)

    def size(self) -> int:
        """The number of live files, without looking at each."""
        return len(self._shared) - len(self._removed) + sum(len(tree.by_path) for tree in self._added.values())

    def trees(self) -> list[str]:
        shared = (name for name in self._shared.trees() if self._live_rows(name))
        return sorted({*shared, *(name for name, tree in self._added.items() if tree.by_path)})

    def add(self, file: DataFile) -> None:
        self._own()
        self._added.setdefault(file.tree, _Tree()).add(file)

    def remove(self, tree: str, path: str) -> DataFile | None:
        """Takes a file out; returns it, or ``None`` if it was not there."""
        self._own()
        added = self._added[tree].discard(path) if tree in self._added else None
        row = self._shared.find(tree, path)
        if row is None or row in self._removed:
            return added
        self._removed.add(row)
        return added or next(self._read([row]))

    def remove_tree(self, tree: str) -> None:
        self._own()
        self._added.pop(tree, None)
        self._removed.update(self._shared.rows(tree))

    def files(self, tree: str, partition: str | None = None, group: str | None = None) -> Iterator[DataFile]:
        """Files of a tree; of one partition, or of one group of it, where given."""
        yield from self._read(self._live_rows(tree, partition, group))
        if tree in self._added:
            yield from self._added[tree].select(partition, group)

    def paths(self) -> Iterator[str]:
        """The paths of all files of all trees."""
        for tree in self.trees():
            yield from self._shared.paths(self._live_rows(tree))
            if tree in self._added:
                yield from self._added[tree].by_path

    def has(self, tree: str, path: str) -> bool:
        if tree in self._added and path in self._added[tree].by_path:
            return True
        row = self._shared.find(tree, path)
        return row is not None and row not in self._removed

    def groups(self, tree: str) -> dict[GroupKey, list[DataFile]]:
        """(partition, group) -> its files in merge order."""
        found: dict[GroupKey, list[DataFile]] = {}
        for file in self.files(tree):
            found.setdefault(file.group_key, []).append(file)
        return {key: sorted(files, key=merge_order) for key, files in sorted(found.items())}

    def __iter__(self) -> Iterator[DataFile]:
        return (file for tree in self.trees() for file in self.files(tree))

    def flattened(self) -> Columns:
        """The same files as columns alone, without an overlay: what a checkpoint holds."""
        if not self.changes() and self._shared.table is not None:
            return self._shared
        added = (file for tree in self._added.values() for file in tree.by_path.values())
        return self._shared.changed(self._removed, added)

    def _live_rows(self, tree: str, partition: str | None = None, group: str | None = None) -> list[int]:
        rows = self._shared.rows(tree, partition, group)
        return [row for row in rows if row not in self._removed] if self._removed else rows

    def _read(self, rows: list[int]) -> Iterator[DataFile]:
        return (DataFile(*values) for values in self._shared.read(rows))
