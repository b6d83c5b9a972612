"""Files of a task's source: whether there are any, and a fingerprint by which another try finds them changed."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import InvalidName, SourceNotFound, StorageError
from spark_apps.storage.secrets import hide_address

_WILD = re.compile(r"[*?\[{]")
_OF_SPARK = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE)
"""How an address begins that is of no store and no local path: ``dbfs:/mnt/x``, ``hdfs:/x``."""


def fingerprint(paths: Iterable[str], options: Mapping[str, Any] | None = None) -> str | None:
    """Return a hash over all files below ``paths`` (files, folders or patterns).

    :param options: how their store is reached.
    :returns: ``None`` where a path is in a store that only Spark can list, such as HDFS.
    """
    digest = hashlib.sha256()
    for path in paths:
        try:
            for line in _files(path, options):
                digest.update(line.encode())
        except InvalidName:
            return None
    return digest.hexdigest()


def check_there(paths: Iterable[str], options: Mapping[str, Any] | None = None, *, here: bool = True) -> None:
    """Check that there is something to read at each path: a file, a folder, or what a pattern fits.

    :param options: how their store is reached.
    :param here: whether Spark reads a path without a scheme from this machine's disk. In a cluster it may be one of
        HDFS, or of a disk that the cluster's machines share.
    :raises SourceNotFound: naming the first where there is nothing; not where only Spark can look.
    """
    for path in paths:
        try:
            missing = _is_missing(path, options, here)
        except (InvalidName, StorageError):
            continue  # Spark may reach it in another way
        if missing:
            raise SourceNotFound(
                f"There is nothing to read at {hide_address(path)!r}.",
                hint="Correct the path, or let a sensor before this task wait for the files.",
            )


def _is_missing(path: str, options: Mapping[str, Any] | None, here: bool) -> bool:
    from spark_apps.storage.store import path_of

    if "://" in path and not path.lower().startswith("file:"):
        return next(_remote(path, options), None) is None
    if not here or _OF_SPARK.match(path):
        return False
    local = path_of(path)
    if not _WILD.search(local):
        return not Path(local).exists()
    # Hadoop's patterns know more than Python's.
    unlike = any(mark in local for mark in ("{", "[^", "\\"))
    return not unlike and not glob.glob(local)  # noqa: PTH207


def _files(path: str, options: Mapping[str, Any] | None) -> Iterator[str]:
    from spark_apps.storage.store import path_of

    if "://" in path and not path.lower().startswith("file:"):
        yield from _remote(path, options)
        return
    local = path_of(path)
    # Path.glob wants a folder and a pattern apart; these come as one.
    names = sorted(glob.glob(local)) if _WILD.search(local) else [local]  # noqa: PTH207
    for name in names:
        entry = Path(name)
        inside = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
        for file in inside:
            if file.is_file():
                stat = file.stat()
                yield f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n"


def _remote(path: str, options: Mapping[str, Any] | None) -> Iterator[str]:
    from spark_apps.storage.store import Store

    scheme, rest = path.split("://", 1)
    root, _, key = rest.partition("/")
    # A pattern is taken for everything below its fixed part: to notice too much is safe.
    wild = _WILD.search(key)
    fixed = key[: wild.start()].rpartition("/")[0] if wild else key.rstrip("/")
    store = Store(f"{scheme}://{root}", options)
    one = None if wild or not fixed else store.head(fixed)
    for info in [one] if one is not None else store.list(fixed):
        yield f"{info.key}\0{info.size}\0{info.modified.isoformat()}\0{info.etag}\n"
