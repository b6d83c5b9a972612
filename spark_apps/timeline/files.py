"""The set of files of a snapshot: a shared, never changed part from a checkpoint, and a small overlay of changes.

Copying a set copies only the overlay, so that a transaction can hold on to its base while the log goes on, whatever
the size of the table. The shared part is turned into Python objects tree by tree, when first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from spark_apps.timeline.model import AddFile, Struct

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


class _Tree:
    """Files of one tree by path, with an index by group."""

    __slots__ = ("by_path", "groups")

    def __init__(self, files: Iterable[DataFile] = ()) -> None:
        self.by_path: dict[str, DataFile] = {}
        self.groups: dict[GroupKey, dict[str, None]] = {}
        for file in files:
            self.add(file)

    def add(self, file: DataFile) -> None:
        self.by_path[file.path] = file
        self.groups.setdefault(file.group_key, {})[file.path] = None

    def discard(self, path: str) -> DataFile | None:
        file = self.by_path.pop(path, None)
        if file is not None:
            members = self.groups[file.group_key]
            del members[path]
            if not members:
                del self.groups[file.group_key]
        return file

    def of_group(self, key: GroupKey) -> Iterator[DataFile]:
        return (self.by_path[path] for path in self.groups.get(key, ()))

    def copy(self) -> _Tree:
        other = _Tree()
        other.by_path = dict(self.by_path)
        other.groups = {key: dict(paths) for key, paths in self.groups.items()}
        return other


class Shared:
    """The unchanging part of a file set, as a checkpoint holds it: an Arrow table or nothing."""

    def __init__(self, table: Any = None) -> None:
        self._table = table
        self._trees: dict[str, _Tree] = {}
        self._names: list[str] | None = None

    def __len__(self) -> int:
        return 0 if self._table is None else self._table.num_rows

    def names(self) -> list[str]:
        if self._names is None:
            self._names = [] if self._table is None else self._table.column("tree").unique().to_pylist()
        return self._names

    def tree(self, name: str) -> _Tree:
        if name not in self._trees:
            self._trees[name] = _Tree(self._read(name) if name in self.names() else ())
        return self._trees[name]

    def _read(self, name: str) -> Iterator[DataFile]:
        import msgspec
        import pyarrow.compute as pc

        rows = self._table.filter(pc.equal(self._table.column("tree"), name)).drop_columns(["tree"])
        for partition, group, path, kind, n, size, place, tombstones, lineage, extra in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            yield DataFile(name, partition, group, path, kind, n, size, place, tombstones, lineage,
                           msgspec.json.decode(extra) if extra else None)  # fmt: skip


class FileSet:
    """Live files by tree, partition and group."""

    __slots__ = ("_added", "_removed", "_shared")

    def __init__(self, shared: Shared | None = None) -> None:
        self._shared = Shared() if shared is None else shared
        self._added: dict[str, _Tree] = {}
        self._removed: dict[str, set[str]] = {}

    def copy(self) -> FileSet:
        other = FileSet(self._shared)
        other._added = {name: tree.copy() for name, tree in self._added.items()}
        other._removed = {name: set(paths) for name, paths in self._removed.items()}
        return other

    def changes(self) -> int:
        """Size of the overlay: what a checkpoint written now would spare the next reader."""
        return sum(len(tree.by_path) for tree in self._added.values()) + sum(map(len, self._removed.values()))

    def size(self) -> int:
        """About the number of live files, without looking at each."""
        return len(self._shared) + self.changes()

    def trees(self) -> list[str]:
        return sorted({*self._shared.names(), *self._added})

    def add(self, file: DataFile) -> None:
        self._removed.get(file.tree, set()).discard(file.path)
        self._added.setdefault(file.tree, _Tree()).add(file)

    def remove(self, tree: str, path: str) -> DataFile | None:
        """Takes a file out; returns it, or ``None`` if it was not there."""
        shared = self._shared.tree(tree).by_path.get(path)
        gone = self._removed.setdefault(tree, set())
        if shared is not None and path not in gone:
            gone.add(path)
        else:
            shared = None
        added = self._added[tree].discard(path) if tree in self._added else None
        return added or shared

    def remove_tree(self, tree: str) -> None:
        for file in list(self.files(tree)):
            self.remove(tree, file.path)

    def files(self, tree: str, partition: str | None = None, group: str | None = None) -> Iterator[DataFile]:
        """Files of a tree; of one partition, or of one group of it, where given."""
        gone = self._removed.get(tree, set())
        for part in (self._shared.tree(tree), self._added.get(tree)):
            if part is None:
                continue
            if partition is not None and group is not None:
                candidates: Iterable[DataFile] = part.of_group((partition, group))
            elif partition is not None:
                keys = [key for key in part.groups if key[0] == partition]
                candidates = (file for key in keys for file in part.of_group(key))
            else:
                candidates = part.by_path.values()
            is_shared = part is not self._added.get(tree)
            yield from (file for file in candidates if not (is_shared and file.path in gone))

    def has(self, tree: str, path: str) -> bool:
        if tree in self._added and path in self._added[tree].by_path:
            return True
        return path in self._shared.tree(tree).by_path and path not in self._removed.get(tree, set())

    def groups(self, tree: str) -> dict[GroupKey, list[DataFile]]:
        """(partition, group) -> its files in merge order."""
        found: dict[GroupKey, list[DataFile]] = {}
        for file in self.files(tree):
            found.setdefault(file.group_key, []).append(file)
        return {key: sorted(files, key=merge_order) for key, files in sorted(found.items())}

    def __iter__(self) -> Iterator[DataFile]:
        return (file for tree in self.trees() for file in self.files(tree))
