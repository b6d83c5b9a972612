"""Listing of a source's files, local or on an object store, without what Spark takes for hidden; its globs.

Local folders are read by the operating system: the object store library hides some names there, and a file passed over
is rows missing from an answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from spark_apps.sources.other_formats import Mark, check_plain, hidden_marks, mark_of, seen_in
from spark_apps.storage.errors import InvalidInput, StorageError, StorageUnavailable, UnsupportedSource, gone_file
from spark_apps.storage.store import HADOOP_SCHEMES, Store, etag_of, same_etag
from spark_apps.timeline.locations import Location


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Return a Hadoop glob as a pattern for paths relative to its base.

    The pattern matches a file or a folder above it.

    :raises InvalidInput: for a bracket or brace that is not closed.
    """
    regex, at, depth = "", 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            regex += re.escape(pattern[at])
        elif char == "[":
            end = pattern.find("]", at + 2)
            if end < 0:
                raise _unclosed(pattern, "[")
            inner = pattern[at + 1 : end]
            negated = inner[:1] in "!^"
            body = (inner[1:] if negated else inner).replace("\\", "\\\\").replace("[", "\\[")
            regex += f"(?!/)[{'^' if negated else ''}{body}]"
            at = end
        elif char == "{":
            depth, regex = depth + 1, regex + "(?:"
        elif char == "}" and depth:
            depth, regex = depth - 1, regex + ")"
        elif char == "," and depth:
            regex += "|"
        else:
            regex += re.escape(char)
        at += 1
    if depth:
        raise _unclosed(pattern, "{")
    return re.compile(f"(?s:{regex})(?:/.*)?\\Z", re.DOTALL)


def _unclosed(pattern: str, sign: str) -> InvalidInput:
    return InvalidInput(f"The pattern {pattern!r} has a {sign!r} that is not closed.", hint="Close it, or escape it.")


def check_apart(location: Location, log: str) -> None:
    """Check that neither the log is in the source nor the source in the log.

    :raises InvalidInput: if one is inside the other: sources are never written to, and what is cleaned must not be
        files of the source.
    """
    source, log_folder = f"{location.base.rstrip('/')}/", f"{log.rstrip('/')}/"
    if source.startswith(log_folder) or log_folder.startswith(source):
        raise InvalidInput(
            f"The log {log} and the source {location.base} are one inside the other.",
            hint="Give an index_root outside of the source.",
        )


# --- Lists the files of a folder ------------------------------------------------------------------------------------


_AT_ONCE = 16
_WORTH_A_LISTING = 64


class ListedFile(NamedTuple):
    """A file: its path below the base ("" if the base is the file), and what the store knows of it."""

    relative: str
    path: str
    bytes: int
    modified: float
    etag: str | None


class Folder(NamedTuple):
    """The files that a listing of a location found, and what shows that folders of it are another format's."""

    files: list[ListedFile]
    marks: list[Mark]

    def check_plain(self, location: Location, read: Iterable[ListedFile]) -> None:
        """Check that files which are read are plain ones. :raises OtherFormat: naming a folder that is a table."""
        check_plain(location, (file.relative for file in read), self.marks)


def list_files(location: Location, options: Mapping[str, Any] | None) -> list[ListedFile]:
    """Return all files of a location that are not hidden and not empty, by path.

    :raises UnsupportedSource: and the others: as :func:`list_folder` does.
    """
    return list_folder(location, options).files


def list_folder(location: Location, options: Mapping[str, Any] | None) -> Folder:
    """Return the files of a location that are not hidden and not empty, by path, with the marks of other formats.

    :raises UnsupportedSource: on a file system of Hadoop.
    :raises StorageUnavailable: if it cannot be listed. A local folder that is gone is an error, not an empty one: a
        disk that is not mounted looks the same.
    """
    if location.base.partition("://")[0] in HADOOP_SCHEMES:
        # A file that was replaced by one of its size would not be known by its parts: there are no etags.
        raise UnsupportedSource(
            f"{location.uri} is on a file system of Hadoop, where files have no identity that a listing shows.",
            hint="Write the rows into a table there (IndexedTable.create), or keep the source on an object store.",
        )
    marks: list[Mark] = []
    listed = _local(location.base, marks) if location.is_local else _remote(location.base, options, marks)
    files = list(listed)
    marks += seen_in(file.relative for file in files)
    if location.pattern is not None:
        matches = glob_regex(location.pattern).match
        files = [file for file in files if matches(file.relative)]
    # Spark reads no empty files either: there is no footer in them, and no line.
    return Folder(sorted((file for file in files if file.bytes), key=lambda file: file.path), marks)


def is_hidden(name: str) -> bool:
    """Return whether Spark passes over a file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _local(base: str, marks: list[Mark]) -> Iterator[ListedFile]:
    root = Path(base)
    if root.is_file():
        yield _stat("", base)
        return
    if not root.is_dir():
        raise StorageUnavailable(
            f"There is no folder {base}.", outcome="Nothing was changed.", hint="Check the location, or mount its disk."
        )
    seen = {os.path.realpath(base)}
    below = len(base.rstrip("/")) + 1
    for folder, names, files in os.walk(base, followlinks=True, onerror=_cannot_list):
        marks += hidden_marks(folder, folder[below:], (*names, *files))
        names[:] = [name for name in names if not is_hidden(name) and _is_new(f"{folder}/{name}", seen)]
        for name in files:
            path = f"{folder.rstrip('/')}/{name}"
            if not is_hidden(name):
                yield _stat(path[below:], path)


def _is_new(path: str, seen: set[str]) -> bool:
    """Return whether a folder was not listed yet; links can go in circles."""
    real = os.path.realpath(path)
    if real in seen:
        return False
    seen.add(real)
    return True


def _cannot_list(error: OSError) -> None:
    raise StorageUnavailable(f"A folder of the source cannot be listed: {error}.", outcome="Nothing was changed.")


def _stat(relative: str, path: str) -> ListedFile:
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of files: a Path takes longer than the call
    except OSError as error:
        raise StorageUnavailable(
            f"{path} was listed and cannot be looked at: {error}.", outcome="Nothing was changed.", hint="Try again."
        ) from error
    return ListedFile(relative, f"file://{path}", status.st_size, status.st_mtime_ns / 1e9, etag_of(status))


def _remote(base: str, options: Mapping[str, Any] | None, marks: list[Mark]) -> Iterator[ListedFile]:
    store = Store(base, options)
    nothing, seen = True, set[Mark]()
    for info in store.list(""):
        nothing = False
        if any(is_hidden(part) for part in info.key.split("/")):
            mark = mark_of(info.key)
            if mark is not None and mark not in seen:
                seen.add(mark)
                marks.append(mark)
        else:
            yield ListedFile(info.key, f"{base}/{info.key}", info.size, info.modified.timestamp(), info.etag)
    if nothing:
        head, _, name = base.rpartition("/")
        only = Store(head, options).head(name) if not head.endswith("/") else None
        if only is not None:
            yield ListedFile("", base, only.size, only.modified.timestamp(), only.etag)


def check_unchanged(
    location: Location, files: Iterable[tuple[str, int, float | None, str | None]], options: Mapping[str, Any] | None
) -> None:
    """Check that files are still as they were listed, before they are read.

    One by one, or by listing the location where they are many and each look is a call over the network.

    :param files: path, bytes, time of change, and etag of each as they were listed.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: naming the first, by path, that is gone or another one by now.
    """
    files = sorted(files, key=lambda file: file[0])
    if not files:
        return
    now: list[ListedFile | None]
    if len(files) >= _WORTH_A_LISTING and not location.is_local:
        listed = {file.path: file for file in list_files(location, options)}
        now = [listed.get(file[0]) for file in files]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            now = list(pool.map(lambda file: _stat_again(file[0], options), files))
    for (path, size, modified, etag), current in zip(files, now, strict=True):
        if current is None:
            raise gone_file(path, location.uri)
        if current.bytes != size or not _same_time(current.modified, modified) or not same_etag(current.etag, etag):
            raise StorageError(
                f"{path} of the source {location.uri} was rewritten after it was listed.",
                outcome="Nothing was changed.",
                hint="Load the table again, which lists the source again.",
            )


def _same_time(first: float, second: float | None) -> bool:
    """Return whether two times of change are one, as far as both are known.

    The header of a single object has whole seconds, while a listing by the same store may have milliseconds.
    """
    if second is None or abs(first - second) < 1e-6:
        return True
    return int(first) == int(second) and (first == int(first) or second == int(second))


def _stat_again(path: str, options: Mapping[str, Any] | None) -> ListedFile | None:
    if path.startswith("file://"):
        local = path.removeprefix("file://")
        return _stat("", local) if Path(local).is_file() else None
    head, _, name = path.rpartition("/")
    info = Store(head, options).head(name)
    return None if info is None else ListedFile("", path, info.size, info.modified.timestamp(), info.etag)
