"""Holds files against the log before Spark reads them.

Spark takes an empty file for one without rows, and a compaction would make that last; so the size of every file is
compared with what the log says, once a snapshot. Damage inside a file of the right size is found by the checksums of
its pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import ObjectNotFound, StorageError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE

_AT_ONCE = 16
_WORTH_A_LISTING = 32
"""From so many files of one folder on, listing the folder takes fewer calls than asking for each."""


def check_intact(snapshot: Snapshot, tree: Tree, files: Iterable[DataFile]) -> None:
    """Compares the sizes of a tree's files with the log.

    :raises ObjectNotFound: if one is gone. :raises StorageError: if one has another size; both name it.
    """
    wanted = {file.path: file for file in files if file.path not in snapshot.intact}
    if not wanted:
        return
    found = _sizes(snapshot.store, wanted)
    for path, file in wanted.items():
        size = found.get(path)
        if size is None:
            raise ObjectNotFound(
                f"{_name(tree, path)} of the table {snapshot.store.uri} is gone, though version "
                f"{snapshot.state.version} needs it.",
                outcome="Nothing was changed.",
                hint=_hint(tree, "If that version was expired meanwhile, load the table again; else bring"),
            )
        if size != file.bytes:
            raise StorageError(
                f"{_name(tree, path)} of the table {snapshot.store.uri} is damaged: it has {size:,} bytes, and the log "
                f"says {file.bytes:,}.",
                outcome="Nothing was changed.",
                hint=_hint(tree, "Bring"),
            )
    snapshot.intact.update(wanted)


def _sizes(store: ObjectStore, paths: Iterable[str]) -> dict[str, int]:
    """Path -> bytes, of those that are there."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        # Below the folder of one write each file group has folders of its own.
        folders.setdefault(path.split("/__index_", 1)[0], []).append(path)
    many = [folder for folder, names in folders.items() if len(names) >= _WORTH_A_LISTING]
    few = [name for folder, names in folders.items() if len(names) < _WORTH_A_LISTING for name in names]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        listed = pool.map(store.list, many)
        asked = pool.map(store.head, few)
        found = [info for infos in listed for info in infos] + [info for info in asked if info is not None]
    return {info.key: info.size for info in found}


def _name(tree: Tree, path: str) -> str:
    return f"The file {path}" if tree.name == DATA_TREE else f"The index file {path}"


def _hint(tree: Tree, how: str) -> str:
    if tree.name != DATA_TREE:
        return "The rows are not affected. Rebuild the index: refresh_index(name, mode='full')."
    return f"{how} the file back from a backup, or restore an earlier version of the table."
