"""Holds files against the log before Spark reads them.

Spark takes an empty file for one without rows, and a compaction would make that last; so the size of every file is
compared with what the log says, once a snapshot. Damage inside a file of the right size is found by the checksums of
its pages; of index files footer and page index, which have none, are compared with their digests in the log, once as
long as the file is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial

from spark_apps.mergetree.footers import check_seal
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import ObjectNotFound, StorageError
from spark_apps.storage.ranged import RangedFile
from spark_apps.storage.store import ObjectInfo, ObjectStore
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE

Identity = tuple[int, datetime, str | None]
"""By which a file is known to be the one that was checked: size, time and etag."""

_AT_ONCE = 16
_WORTH_A_LISTING = 32
"""From so many files of one folder on, listing the folder takes fewer calls than asking for each."""


_MOST_REMEMBERED = 200_000
_sealed: dict[tuple[str, str], Identity] = {}
"""Index files whose ends were found to be as written: (store, path) -> what identified the file then."""


def check_intact(snapshot: Snapshot, tree: Tree, files: Iterable[DataFile]) -> None:
    """Compares the sizes of a tree's files with the log, and the ends of index files with what was written.

    :raises ObjectNotFound: if one is gone. :raises StorageError: if one has another size or end; both name it.
    """
    wanted = {file.path: file for file in files if file.path not in snapshot.intact}
    if not wanted:
        return
    found = _there(snapshot.store, wanted)
    for path, file in wanted.items():
        info = found.get(path)
        if info is None:
            raise ObjectNotFound(
                f"{_name(tree, path)} of the table {snapshot.store.uri} is gone, though version "
                f"{snapshot.state.version} needs it.",
                outcome="Nothing was changed.",
                hint=_hint(tree, "If that version was expired meanwhile, load the table again; else bring"),
            )
        if info.size != file.bytes:
            raise StorageError(
                f"{_name(tree, path)} of the table {snapshot.store.uri} is damaged: it has {info.size:,} bytes, and "
                f"the log says {file.bytes:,}.",
                outcome="Nothing was changed.",
                hint=_hint(tree, "Bring"),
            )
    if tree.name != DATA_TREE:
        _check_seals(snapshot, tree, [(file, found[path]) for path, file in wanted.items()])
    snapshot.intact.update(wanted)


def identity_of(snapshot: Snapshot, path: str) -> Identity | None:
    """What identified an index file when :func:`check_intact` found it as written."""
    return _sealed.get((snapshot.store.uri, path))


def _check_seals(snapshot: Snapshot, tree: Tree, files: Iterable[tuple[DataFile, ObjectInfo]]) -> None:
    store = snapshot.store
    fresh = [(file, _identity(info)) for file, info in files if identity_of(snapshot, file.path) != _identity(info)]

    def check(one: tuple[DataFile, Identity]) -> None:
        file = one[0]
        try:
            check_seal(RangedFile(partial(store.get_range, file.path), file.bytes), file.extra)
        except OSError as error:
            raise StorageError(
                f"{_name(tree, file.path)} of the table {store.uri} is damaged: {error}.",
                outcome="Nothing was changed.",
                hint=_hint(tree, ""),
            ) from error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(check, fresh))
    if len(_sealed) > _MOST_REMEMBERED:
        _sealed.clear()
    _sealed.update({(store.uri, file.path): identity for file, identity in fresh})


def _identity(info: ObjectInfo) -> Identity:
    return info.size, info.modified, info.etag


def _there(store: ObjectStore, paths: Iterable[str]) -> dict[str, ObjectInfo]:
    """Those of some files that are there."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        # Below the folder of one write each file group has folders of its own, or none has.
        above, _, _ = path.rpartition("/")
        folders.setdefault(above.split("/__index_", 1)[0], []).append(path)
    many = [folder for folder, names in folders.items() if len(names) >= _WORTH_A_LISTING]
    few = [name for folder, names in folders.items() if len(names) < _WORTH_A_LISTING for name in names]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = pool.map(store.list, many)
        asked = pool.map(store.head, few)
        found = [info for infos in listed for info in infos] + [info for info in asked if info is not None]
    return {info.key: info for info in found}


def _name(tree: Tree, path: str) -> str:
    return f"The file {path}" if tree.name == DATA_TREE else f"The index file {path}"


def _hint(tree: Tree, how: str) -> str:
    if tree.name != DATA_TREE:
        return "The rows are not affected. Rebuild the index: refresh_index(name, mode='full')."
    return f"{how} the file back from a backup, or restore an earlier version of the table."
