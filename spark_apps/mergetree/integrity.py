"""Checks of files: against the log before Spark reads them, and for repeated keys after Spark wrote them.

Spark takes an empty file for one without rows, and a compaction would make that last; so the size of every file is
compared with what the log says, once per snapshot. Damage inside a file of the right size is found by the checksums of
its pages; of index files footer and page index, which have none, are compared with their digests in the log, once as
long as the file is the same.

Repeated keys are counted in files sorted by their key: a few passes over the key columns on the driver, where the files
are on its own disk, take a small part of what it takes Spark to look at each row's neighbours while it writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import reduce
from typing import Any, TypeVar

from spark_apps.layout.types import parse_type
from spark_apps.mergetree.limits import MAX_SEALED_FILES
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.storage.errors import ObjectNotFound, StorageError
from spark_apps.storage.parquet.files import open_file
from spark_apps.storage.parquet.seals import check_seal
from spark_apps.storage.store import ObjectInfo, ObjectStore, open_key
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE, AddFile

_T = TypeVar("_T")
_R = TypeVar("_R")

# --- Files against the log --------------------------------------------------------------------------------------------


Identity = tuple[int, datetime, str | None]
"""By which a file is known to be the one that was checked: size, time and etag."""

_THREADS = 16
_MIN_FILES_TO_LIST = 32
"""Files of one folder from which on listing the folder takes fewer calls than asking for each."""


_SEALED: dict[tuple[str, str], Identity] = {}
"""Index files whose ends were found to be as written: (store, path) -> what identified the file then."""


def check_intact(snapshot: Snapshot, tree: Tree, files: Iterable[DataFile]) -> None:
    """Compare the sizes of a tree's files with the log, and the ends of index files with what was written.

    :raises ObjectNotFound: if one is gone.
    :raises StorageError: if one has another size or end; both name it.
    """
    unchecked = {file.path: file for file in files if file.path not in snapshot.intact}
    if not unchecked:
        return
    infos = _existing_files(snapshot.store, unchecked)
    for path, file in unchecked.items():
        info = infos.get(path)
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
        _check_seals(snapshot, tree, [(file, infos[path]) for path, file in unchecked.items()])
    snapshot.intact.update(unchecked)


def identity_of(snapshot: Snapshot, path: str) -> Identity | None:
    """Return what identified an index file when :func:`check_intact` found it as written."""
    return _SEALED.get((snapshot.store.uri, path))


def _check_seals(snapshot: Snapshot, tree: Tree, files: Iterable[tuple[DataFile, ObjectInfo]]) -> None:
    store = snapshot.store
    fresh = [(file, _identity(info)) for file, info in files if identity_of(snapshot, file.path) != _identity(info)]

    def check(checked: tuple[DataFile, Identity]) -> None:
        file = checked[0]
        try:
            check_seal(open_key(store, file.path, file.bytes), file.extra)
        except OSError as error:
            raise StorageError(
                f"{_name(tree, file.path)} of the table {store.uri} is damaged: {error}.",
                outcome="Nothing was changed.",
                hint=_hint(tree, ""),
            ) from error

    _side_by_side(store, check, fresh)
    if len(_SEALED) > MAX_SEALED_FILES:
        _SEALED.clear()
    _SEALED.update({(store.uri, file.path): identity for file, identity in fresh})


def _identity(info: ObjectInfo) -> Identity:
    return info.size, info.modified, info.etag


def _existing_files(store: ObjectStore, paths: Iterable[str]) -> dict[str, ObjectInfo]:
    """Return those of some files that exist."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        # Below the folder of one write each file group has folders of its own, or none has.
        above, _, _ = path.rpartition("/")
        folders.setdefault(above.split("/__index_", 1)[0], []).append(path)
    listed_folders = [folder for folder, names in folders.items() if len(names) >= _MIN_FILES_TO_LIST]
    single_files = [name for folder, names in folders.items() if len(names) < _MIN_FILES_TO_LIST for name in names]
    listed = _side_by_side(store, store.list, listed_folders)
    headed = _side_by_side(store, store.head, single_files)
    infos = [info for infos in listed for info in infos] + [info for info in headed if info is not None]
    return {info.key: info for info in infos}


def _side_by_side(store: ObjectStore, call: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Return what calls to a store answer; a local disk answers sooner than threads begin."""
    if len(items) < 2 or store.spark_path("").startswith("file:"):
        return [call(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(call, items))


def _name(tree: Tree, path: str) -> str:
    return f"The file {path}" if tree.name == DATA_TREE else f"The index file {path}"


def _hint(tree: Tree, how: str) -> str:
    if tree.name != DATA_TREE:
        return "The rows are not affected. Rebuild the index: refresh_index(name, mode='full')."
    return f"{how} the file back from a backup, or restore an earlier version of the table."


# --- keys that are repeated in files just written ---------------------------------------------------------------------


_BATCH_ROWS = 1 << 14


_EXACT = frozenset(
    ("string", "binary", "tinyint", "smallint", "int", "bigint", "date", "boolean", "timestamp", "timestamp_ntz")
)


def is_exact(kind: str) -> bool:
    """Test whether values of a Spark type, given as text, are equal to Arrow exactly if they are to Spark.

    Of others (floating ones, say) they are perhaps not. Times are if Arrow reads them as they are
    (:mod:`spark_apps.mergetree.times`).
    """
    return parse_type(kind).kind in _EXACT


def is_exactly_comparable(tree: Tree) -> bool:
    """Test whether all columns of the key are of such types."""
    return all(is_exact(tree.type_of(name)) for name in tree.key)


def is_countable(store: ObjectStore, tree: Tree) -> bool:
    """Test whether :func:`count_duplicates` can and should be called: for files on a disk that the driver has."""
    return is_exactly_comparable(tree) and store.spark_path("").startswith("file:")


def count_duplicates(store: ObjectStore, tree: Tree, files: Sequence[AddFile], key: Sequence[str] | None = None) -> int:
    """Return how many rows of files have the key of the row before them in their file.

    :param files: base files of a tree. A key of which a part is null counts as no other's.
    :param key: the first columns of the tree's key, if not all of them.
    :raises StorageError: naming a file that cannot be read.
    """
    names = [tree.stored(name) for name in (tree.key if key is None else key)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return sum(pool.map(lambda file: _count_in_file(store, file, names), files))


def _count_in_file(store: ObjectStore, file: AddFile, names: Sequence[str]) -> int:
    import pyarrow as pa

    duplicates, previous = 0, None
    try:
        path = store.spark_path(file.path).removeprefix("file://")
        # Times that Arrow takes for others are equal if they were.
        with open_file(path) as opened:
            for batch in opened.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False):
                columns = [batch.column(name) for name in names]
                duplicates += _count_equal([column[1:] for column in columns], [column[:-1] for column in columns])
                if previous is not None:
                    duplicates += _count_equal([column[:1] for column in columns], previous)
                previous = [column[-1:] for column in columns]
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"The file {file.path} that Spark just wrote cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Try again; if it happens again, the storage damages files.",
        ) from error
    return duplicates


def _count_equal(left_columns: Sequence[Any], right_columns: Sequence[Any]) -> int:
    import pyarrow.compute as pc

    same = reduce(pc.and_, [pc.equal(left, right) for left, right in zip(left_columns, right_columns, strict=True)])
    return int(pc.sum(same).as_py() or 0)
