"""Marks of a folder of plain files that is another format's table: its log, its metadata, names of its folders.

Which of such a table's files hold its rows, and which of these rows live, its own log says, so as plain files it would
be read with old versions and deleted rows. What is in the folder shows in the listing that is made anyway; folders
above are looked at by calls of their own, on a local disk by the operating system.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spark_apps.storage.errors import InvalidInput, OtherFormat, StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import Location
from spark_apps.timeline.log import TIMELINE, commit_key

logger = logging.getLogger(__name__)

HUDI, DELTA, ICEBERG, ACID = "a Hudi table", "a Delta table", "an Iceberg table", "a transactional table of Hive"
OURS = "a table of this package"

_HUDI, _DELTA_LOG, _METADATA = ".hoodie", "_delta_log", "metadata"
_INDEX = TIMELINE.partition("/")[0]
# As Hive writes them, with the ids of statements and of compactions.
_ACID_FOLDER = re.compile(r"(base_\d+|(delete_)?delta_\d+_\d+(_\d+)?)(_v\d+)?")
_HINTS = {
    HUDI: "Give its format and the folder of its timeline: format='hudi'.",
    DELTA: "Give its format and the folder of its log: format='delta'.",
    ICEBERG: "Give its format and the folder of its metadata: format='iceberg'.",
    ACID: "Have Hive write its rows as plain files into another folder, and register that.",
    OURS: "Load it: IndexedTable.load(…).",
}


class Mark(NamedTuple):
    """A folder, relative to what was listed or absolute, the format whose table it is, and what shows that."""

    folder: str
    format: str
    sign: str


def mark_of(key: str) -> Mark | None:
    """Return what the name of a file below a folder shows, hidden or not; ``None`` if that is nothing.

    :param key: its path below the folder.
    """
    parts = key.split("/")
    for number, part in enumerate(parts):
        above = "/".join(parts[:number])
        if part.startswith(_HUDI):
            return Mark(above, HUDI, part)
        if part == _DELTA_LOG and number + 1 < len(parts):
            return Mark(above, DELTA, f"{part}/")
        if part == _INDEX and "/".join(parts[number:]).startswith(f"{TIMELINE}/"):
            return Mark(above, OURS, f"{TIMELINE}/")
        if part.startswith(("_", ".")) and "=" not in part:
            return None
    if len(parts) > 1 and parts[-2] == _METADATA and _is_metadata(parts[-1]):
        return Mark("/".join(parts[:-2]), ICEBERG, f"{_METADATA}/{parts[-1]}")
    if len(parts) > 1 and _ACID_FOLDER.fullmatch(parts[-2]):
        return Mark("/".join(parts[:-2]), ACID, f"{parts[-2]}/")
    return None


def _is_metadata(name: str) -> bool:
    return name.endswith((".metadata.json", ".metadata.json.gz"))


def hidden_marks(folder: str, relative: str, names: Iterable[str]) -> Iterator[Mark]:
    """Yield what the names in a local folder show, of those that a listing passes over.

    :param folder: its path. :param relative: the same, below what is listed.
    """
    inside = f"{relative}/" if relative else ""
    for name in names:
        if name.startswith(_HUDI) or (name == _DELTA_LOG and Path(folder, name).is_dir()):
            yield from filter(None, [mark_of(f"{inside}{name}/log")])
        elif name == _INDEX and Path(folder, TIMELINE).is_dir():
            yield Mark(relative, OURS, f"{TIMELINE}/")


def check_plain(location: Location, files: Iterable[str], marks: Collection[Mark]) -> None:
    """Check that neither the folder of a location nor one with files that are read is another format's.

    :param files: paths of those that are read, below the location's base.
    :param marks: what its listing showed.
    :raises OtherFormat: naming the folder and the format.
    """
    if not marks:
        return
    folders = {""}
    for path in files:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for mark in sorted(marks):
        if mark.folder in folders:
            raise _refused(location, mark._replace(folder=f"{location.base}/{mark.folder}".rstrip("/")))


def check_above(location: Location, options: Mapping[str, Any] | None) -> None:
    """Check that a location is in no table of another format, by looking into the folders above.

    :raises OtherFormat: naming the folder and the format.
    """
    folder, _, name = location.base.rstrip("/").rpartition("/")
    holders = [(folder, name)]
    if "." in name or name.startswith("bucket_"):  # it may be a file
        holders.append((folder.rpartition("/")[0], folder.rpartition("/")[2]))
    for holder, last in holders:
        if _ACID_FOLDER.fullmatch(last):
            raise _refused(location, Mark(holder, ACID, f"{last}/"))
    above = _local_above(location.base) if location.is_local else _remote_above(location.base, options)
    for mark in above:
        raise _refused(location, mark)


def check_folder(location: Location, options: Mapping[str, Any] | None) -> None:
    """Check a location whose files are not listed: its own folder, and on a local disk those above.

    :raises OtherFormat: naming the folder and the format.
    """
    if location.is_local:
        check_above(location, options)
    marks_in = _marks_in_local if location.is_local else _marks_in_remote
    for mark in marks_in(location.base, options):
        raise _refused(location, mark)


def _local_above(base: str) -> Iterator[Mark]:
    # A link into a table is a way into it too.
    paths = dict.fromkeys([Path(base), Path(os.path.realpath(base))])
    for folder in dict.fromkeys(folder for path in paths for folder in path.parents):
        yield from _marks_in_local(str(folder), None)


def _marks_in_local(folder: str, _options: Mapping[str, Any] | None) -> Iterator[Mark]:
    path = Path(folder)
    if (path / _HUDI).is_dir():
        yield Mark(folder, HUDI, f"{_HUDI}/")
    if (path / _DELTA_LOG).is_dir():
        yield Mark(folder, DELTA, f"{_DELTA_LOG}/")
    if (path / TIMELINE).is_dir():
        yield Mark(folder, OURS, f"{TIMELINE}/")
    if not (path / _METADATA).is_dir():
        return  # not listed: of folders outside of the source no more is asked than whether they are there
    try:
        names = sorted(entry.name for entry in (path / _METADATA).iterdir() if _is_metadata(entry.name))
    except OSError:
        return
    if names:
        yield Mark(folder, ICEBERG, f"{_METADATA}/{names[-1]}")


def _remote_above(base: str, options: Mapping[str, Any] | None) -> Iterator[Mark]:
    scheme, _, rest = base.partition("://")
    parts = rest.rstrip("/").split("/")
    for count in range(len(parts) - 1, 0, -1):
        try:
            yield from _marks_in_remote(f"{scheme}://{'/'.join(parts[:count])}", options)
        except (StorageError, InvalidInput) as error:
            # Who may read a folder need not be allowed to look into those above.
            logger.info("The folders above %s cannot be looked at: %s", base, error)
            return


def _marks_in_remote(folder: str, options: Mapping[str, Any] | None) -> Iterator[Mark]:
    store = Store(folder, options)
    if store.head(f"{_HUDI}/hoodie.properties") is not None or store.has_any(_HUDI):
        yield Mark(folder, HUDI, f"{_HUDI}/")
    if store.has_any(_DELTA_LOG):
        yield Mark(folder, DELTA, f"{_DELTA_LOG}/")
    if store.head(commit_key(0)) is not None:
        yield Mark(folder, OURS, f"{TIMELINE}/")
    if store.has_any(_METADATA, _is_metadata):
        yield Mark(folder, ICEBERG, f"{_METADATA}/")


def _refused(location: Location, mark: Mark) -> OtherFormat:
    where = "is" if mark.folder == location.base else f"cannot be read as plain files: {mark.folder} is"
    return OtherFormat(
        f"{location.uri} {where} {mark.format}, as {mark.sign} in it shows. Read as plain files it would give rows "
        "that the table does not have, such as old versions and deleted ones.",
        outcome="Nothing was changed, and nothing was read.",
        hint=_HINTS[mark.format],
    )


def seen_in(keys: Iterable[str]) -> list[Mark]:
    """Return the marks in the names of files that a listing shows, once each."""
    folders: dict[str, str] = {}
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in folders or _is_metadata(name):
            folders[folder] = key
    return list(dict.fromkeys(mark for mark in map(mark_of, folders.values()) if mark is not None))
