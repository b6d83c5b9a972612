"""A disk that loses its power: which bytes and names were synced, worked out from the calls that the real code makes.

The calls of :mod:`spark_apps.storage.store` to the system go through here on their way. They are done, on a real
folder, and noted: what a file holds in memory and what on the platter, and likewise which names a folder holds. A power
cut keeps all that is on the platter, and of the rest whatever it likes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class _File:
    memory: bytes = b""
    platter: bytes = b""


@dataclass
class _Folder:
    memory: dict[str, _File | _Folder] = field(default_factory=dict)
    platter: dict[str, _File | _Folder] = field(default_factory=dict)


Kept = Callable[[], bool]
"""Asked for each name and for each file's bytes that were not synced: whether they survive all the same."""


def cuts(seed: int) -> dict[str, tuple[Kept, Kept]]:
    """Ways in which the power goes: what becomes of names, and of bytes, that were not synced."""
    die = random.Random(seed)
    return {
        "nothing more is kept": (lambda: False, lambda: False),
        "names are kept without their bytes": (lambda: True, lambda: False),
        "all is kept": (lambda: True, lambda: True),
        "some is kept": (lambda: die.random() < 0.5, lambda: die.random() < 0.5),
    }


class Disk:
    """Stands in the place of ``os`` in the module that writes.

    :param root: a real folder; what lies above it is not looked at.
    :ivar before: called before each call that is noted, with its name and its path; may raise in its place.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = _Folder()
        self.before: Callable[[str, Path], None] = lambda _call, _path: None
        self._open: dict[int, _File | _Folder] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    # --- the calls --------------------------------------------------------------------------------------------

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        self.before("open", path)
        handle = os.open(path, flags, mode)
        if path != self.root and self.root not in path.parents:
            return handle
        if flags & os.O_CREAT:
            self._folder(path.parent).memory[path.name] = _File()
        self._open[handle] = self._at(path)
        return handle

    def write(self, handle: int, data: bytes) -> int:
        count = os.write(handle, data)
        file = self._open[handle]
        assert isinstance(file, _File)
        file.memory += bytes(data[:count])
        return count

    def fsync(self, handle: int) -> None:
        node = self._open.get(handle)
        if node is None:
            return  # above the root
        self.before("fsync", self.root)
        if isinstance(node, _File):
            node.platter = node.memory
        else:
            node.platter = dict(node.memory)

    def close(self, handle: int) -> None:
        self._open.pop(handle, None)
        os.close(handle)

    def link(self, source: Path, target: Path) -> None:
        self.before("link", target)
        os.link(source, target)
        self._folder(target.parent).memory[target.name] = self._at(source)

    def replace(self, source: Path, target: Path) -> None:
        self.before("replace", target)
        os.replace(source, target)
        self._folder(target.parent).memory[target.name] = self._folder(source.parent).memory.pop(source.name)

    def unlink(self, path: Path) -> None:
        self.before("unlink", path)
        os.unlink(path)
        self._folder(path.parent).memory.pop(path.name)

    def removed(self, path: Path, remove: Callable[[], Any]) -> Any:
        """A file that is deleted by a library, past the calls above. The name goes as others come: until its folder is
        synced, a cut may bring it back, or not."""
        self.before("delete", path)
        done = remove()
        self._folder(path.parent).memory.pop(path.name, None)
        return done

    def mkdir(self, path: Path) -> None:
        self.before("mkdir", path)
        os.mkdir(path)
        self._folder(path.parent).memory[path.name] = _Folder()

    def left_by_spark(self, path: Path, data: bytes) -> None:
        """A file with its folders, written and left to the system."""
        for folder in [*reversed(path.parents), path]:
            if folder != self.root and self.root in folder.parents and folder != path and not folder.exists():
                self.mkdir(folder)
        handle = self.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
        self.write(handle, data)
        self.close(handle)

    # --- the loss of power ------------------------------------------------------------------------------------

    def cut(self, into: Path, names: Kept, contents: Kept) -> None:
        """Writes what is left into another folder."""
        _left(self.top, into, names, contents)

    def unnoted(self) -> list[str]:
        """Files that the folder holds and nobody was seen to write."""
        real = {str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()}
        return sorted(real - set(_names(self.top, "")))

    def _at(self, path: Path) -> _File | _Folder:
        return self.top if path == self.root else self._folder(path.parent).memory[path.name]

    def _folder(self, path: Path) -> _Folder:
        node = self.top
        for name in path.relative_to(self.root).parts:
            child = node.memory[name]
            assert isinstance(child, _Folder)
            node = child
        return node


def _left(folder: _Folder, into: Path, names: Kept, contents: Kept) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name in sorted(folder.memory.keys() | folder.platter.keys()):
        old, new = folder.platter.get(name), folder.memory.get(name)
        node = old if old is new or not names() else new
        if isinstance(node, _Folder):
            _left(node, into / name, names, contents)
        elif node is not None:
            same = node.platter == node.memory
            (into / name).write_bytes(node.memory if same or contents() else node.platter)


def _names(folder: _Folder, prefix: str) -> Iterator[str]:
    for name, node in folder.memory.items():
        if isinstance(node, _Folder):
            yield from _names(node, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"
