"""Tells whether the files that a task reads are still the same, without opening them: by path, size and
time."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spark_apps.storage.errors import InvalidName
from spark_apps.storage.store import Store, path_of

_WILD = re.compile(r"[*?\[{]")


def fingerprint(paths: Iterable[str], options: Mapping[str, Any] | None = None) -> str | None:
    """A hash over all files below ``paths`` (files, folders or patterns).

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


def _files(path: str, options: Mapping[str, Any] | None) -> Iterator[str]:
    if "://" in path and not path.lower().startswith("file:"):
        yield from _remote(path, options)
        return
    local = path_of(path)
    # Path.glob wants a folder and a pattern apart; here they come as one.
    found = sorted(glob.glob(local)) if _WILD.search(local) else [local]  # noqa: PTH207
    for name in found:
        entry = Path(name)
        inside = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
        for file in inside:
            if file.is_file():
                stat = file.stat()
                yield f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n"


def _remote(path: str, options: Mapping[str, Any] | None) -> Iterator[str]:
    scheme, rest = path.split("://", 1)
    root, _, key = rest.partition("/")
    # A pattern is taken for everything below its fixed part: to notice too much is safe.
    wild = _WILD.search(key)
    fixed = key[: wild.start()].rpartition("/")[0] if wild else key.rstrip("/")
    store = Store(f"{scheme}://{root}", options)
    one = None if wild or not fixed else store.head(fixed)
    for info in [one] if one is not None else store.list(fixed):
        yield f"{info.key}\0{info.size}\0{info.modified.isoformat()}\0{info.etag}\n"
