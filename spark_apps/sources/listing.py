"""Lists the files of a folder, local or on an object store, passing over what Spark takes for hidden.

Local folders are read by the operating system: the object store library hides some names there, and a file passed over
is rows missing from an answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_apps.sources.locations import Location, glob_regex
from spark_apps.storage.errors import StorageError, StorageUnavailable
from spark_apps.storage.gone import gone_file
from spark_apps.storage.local import etag_of
from spark_apps.storage.store import Store, same_etag

_AT_ONCE = 16
_WORTH_A_LISTING = 64


@dataclass(frozen=True)
class Found:
    """A file: its path below the base ("" if the base is the file), and what the store tells of it."""

    relative: str
    path: str
    bytes: int
    modified: float
    etag: str | None


def list_files(location: Location, options: Mapping[str, Any] | None) -> list[Found]:
    """All files of a location that are not hidden and not empty, by path.

    :raises StorageUnavailable: if it cannot be listed. A local folder that is gone is an error, not an empty one: a
        disk that is not mounted looks the same.
    """
    found = _local(location.base) if location.is_local else _remote(location.base, options)
    if location.pattern is not None:
        matches = glob_regex(location.pattern).match
        found = (file for file in found if matches(file.relative))
    # Spark reads no empty files either: there is no footer in them, and no line.
    return sorted((file for file in found if file.bytes), key=lambda file: file.path)


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _local(base: str) -> Iterator[Found]:
    root = Path(base)
    if root.is_file():
        yield _stat("", base)
        return
    if not root.is_dir():
        raise StorageUnavailable(
            f"There is no folder {base}.", outcome="Nothing was changed.", hint="Check the location, or mount its disk."
        )
    seen = {os.path.realpath(base)}
    for folder, names, files in os.walk(base, followlinks=True, onerror=_cannot_list):
        names[:] = [name for name in names if not is_hidden(name) and _is_new(f"{folder}/{name}", seen)]
        for name in files:
            path = f"{folder.rstrip('/')}/{name}"
            if not is_hidden(name):
                yield _stat(os.path.relpath(path, base), path)


def _is_new(path: str, seen: set[str]) -> bool:
    """Whether a folder was not listed yet; links can go in circles."""
    real = os.path.realpath(path)
    if real in seen:
        return False
    seen.add(real)
    return True


def _cannot_list(error: OSError) -> None:
    raise StorageUnavailable(f"A folder of the source cannot be listed: {error}.", outcome="Nothing was changed.")


def _stat(relative: str, path: str) -> Found:
    try:
        told = Path(path).stat()
    except OSError as error:
        raise StorageUnavailable(
            f"{path} was listed and cannot be looked at: {error}.", outcome="Nothing was changed.", hint="Try again."
        ) from error
    return Found(relative, f"file://{path}", told.st_size, told.st_mtime_ns / 1e9, etag_of(told))


def _remote(base: str, options: Mapping[str, Any] | None) -> Iterator[Found]:
    store = Store(base, options)
    nothing = True
    for info in store.list(""):
        nothing = False
        if not any(is_hidden(part) for part in info.key.split("/")):
            yield Found(info.key, f"{base}/{info.key}", info.size, info.modified.timestamp(), info.etag)
    if nothing:
        head, _, name = base.rpartition("/")
        only = Store(head, options).head(name) if not head.endswith("/") else None
        if only is not None:
            yield Found("", base, only.size, only.modified.timestamp(), only.etag)


def check_unchanged(
    location: Location, files: Iterable[tuple[str, int, float | None, str | None]], options: Mapping[str, Any] | None
) -> None:
    """Looks at files again before they are read: one by one, or by listing the location where they are many and each
    look is a call over the network.

    :param files: path, bytes, time of change, and etag of each as they were listed.
    :raises ObjectNotFound: :raises StorageError: naming the first, by path, that is gone or another one by now.
    """
    files = sorted(files, key=lambda file: file[0])
    now: list[Found | None]
    if len(files) >= _WORTH_A_LISTING and not location.is_local:
        listed = {found.path: found for found in list_files(location, options)}
        now = [listed.get(file[0]) for file in files]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            now = list(pool.map(lambda file: _look(file[0], options), files))
    for (path, size, modified, etag), there in zip(files, now, strict=True):
        if there is None:
            raise gone_file(path, location.uri)
        if there.bytes != size or not _same_time(there.modified, modified) or not same_etag(there.etag, etag):
            raise StorageError(
                f"{path} of the source {location.uri} was rewritten after it was listed.",
                outcome="Nothing was changed.",
                hint="Load the table again, which lists the source anew.",
            )


def _same_time(one: float, other: float | None) -> bool:
    """Whether two times of change are one, as far as both are told: the header of a single object tells whole seconds,
    while a listing by the same store may tell milliseconds."""
    if other is None or abs(one - other) < 1e-6:
        return True
    return int(one) == int(other) and (one == int(one) or other == int(other))


def _look(path: str, options: Mapping[str, Any] | None) -> Found | None:
    if path.startswith("file://"):
        local = path.removeprefix("file://")
        return _stat("", local) if Path(local).is_file() else None
    head, _, name = path.rpartition("/")
    info = Store(head, options).head(name)
    return None if info is None else Found("", path, info.size, info.modified.timestamp(), info.etag)
