"""Writing files of a local disk so that they outlive a loss of power.

A file is written under another name and synced before it is linked to its own, so that no reader ever sees one whose
bytes may get lost; after it the folders are synced, which hold the names. ``obstore`` syncs nothing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_THREADS = 8

_settled: dict[str, int] = {}
"""Folders, with their inodes, whose own names are known to be synced."""
_doubtful: set[str] = set()
"""Folders that could not be synced once: the system reports that once, and answers "done" the next time."""


def etag_of(status: os.stat_result) -> str:
    """Return an identity of a file as long as no process replaces or writes it, as a store's etag is of an object."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def same_file(status: os.stat_result, etag: str) -> bool:
    """Test whether a file is the one of an etag, as every machine that mounts its disk sees it.

    Compared are the time of its last change and its size, and not its inode.
    """
    return etag_of(status).partition("-")[2] == etag.partition("-")[2]


def create(path: Path, data: bytes) -> None:
    """Write a file unless there is one: of several callers at once exactly one wins.

    :raises FileExistsError: if there is one.
    :raises OSError: if the file may be there or not; it may get lost with the power.
    """
    draft = _write_draft(path, data)
    try:
        os.link(draft, path)
    finally:
        os.unlink(draft)  # noqa: PTH108 - as the calls around it
    _sync_folder(path.parent)


def put(path: Path, data: bytes) -> None:
    """Write a file, replacing one that is there.

    :raises OSError: as :func:`create` does.
    """
    draft = _write_draft(path, data)
    try:
        os.replace(draft, path)  # noqa: PTH105
    except OSError:
        os.unlink(draft)  # noqa: PTH108
        raise
    _sync_folder(path.parent)


def sync(paths: Iterable[Path]) -> None:
    """Make files that others have written outlive a loss of power, with their folders.

    :raises FileNotFoundError: if one is gone.
    :raises OSError: if some may get lost.
    """
    files = list(paths)
    if len(files) == 1:
        _sync(files[0])
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(_sync, files))
    for folder in sorted({path.parent for path in files}):
        _sync_folder(folder)


def _write_draft(path: Path, data: bytes) -> Path:
    """Return a synced file with the data beside ``path``, under a name that ``obstore`` passes over in listings."""
    draft = path.with_name(f"{path.name}#{secrets.randbits(63)}")
    _make_folder(path.parent)
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(handle, unwritten) :]
        os.fsync(handle)
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise
    finally:
        os.close(handle)
    return draft


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileExistsError:
        if not folder.is_dir():
            raise
    _settled.pop(str(folder), None)


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder, and the names of the folders above it that are not known to be synced."""
    _sync(folder)
    while folder != folder.parent:
        inode = os.stat(folder).st_ino  # noqa: PTH116
        if _settled.get(str(folder)) == inode:
            return
        try:
            _sync(folder.parent)
        except PermissionError:
            return  # a folder of another owner, who made what is in it
        _settled[str(folder)] = inode
        folder = folder.parent


def _sync(path: Path) -> None:
    if str(path) in _doubtful:
        raise OSError(f"{path} could not be synced to its disk before; what was written there may get lost")
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        _doubtful.add(str(path))
        raise
    finally:
        os.close(handle)
