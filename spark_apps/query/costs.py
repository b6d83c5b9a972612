"""When asking an index costs more than it can spare: small tables are read faster than many keys are looked up.

The figures are seconds, measured on two cores and local disk, with a request to an object store as a guess; they need
only be right within a factor of a few, for what they decide about lies wider apart than that on either side.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_apps.indexes.candidates import DIRECT_KEYS, HANDED_KEYS
from spark_apps.indexes.handler import CannotPrune, Question
from spark_apps.mergetree.sessions import cores
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.checking import check_predicate
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.state import IndexEntry

ALWAYS_KEYS = 100
"""Up to so many keys an index is asked whatever it may spare, for that takes some hundredths of a second."""

ALWAYS_CHARACTERS = 8_000
"""Up to this length a predicate is always parsed: that is some 200 keys of 36 characters."""

KEY_BYTES = 256 * 1024
"""What looking one record key up in a file reads at most, about: some pages of its row group, and the footer."""

# Benchmarks: `python -m benchmarks --only scan`.
_BYTES_A_SECOND = 60e6
_FILE_SECONDS = 0.002
_REMOTE_FILE_SECONDS = 0.05
_KEY_SECONDS = 0.00025
_JOB_SECONDS = 0.7
_JOINED_KEY_SECONDS = 0.00003
_CHARACTER_SECONDS = 3e-6


def scan_seconds(snapshot: Snapshot, files: Iterable[DataFile], share: float = 1.0) -> float:
    """How long Spark reads some files, beyond what any query takes.

    :param share: of their bytes that are read.
    """
    sizes = [file.bytes for file in files]
    at_once = cores(snapshot.spark) if snapshot.has_spark else 1
    return (share * sum(sizes) / _BYTES_A_SECOND + len(sizes) * _file_seconds(snapshot)) / at_once


def is_read_sooner(snapshot: Snapshot, where: str) -> bool:
    """Whether all files are read sooner than a predicate is parsed; not of one that Spark refuses, for the parser
    tells the place."""
    if len(where) <= ALWAYS_CHARACTERS:
        return False
    files = [file for files in snapshot.groups().values() for file in files]
    if scan_seconds(snapshot, files) >= len(where) * _CHARACTER_SECONDS:
        return False
    try:
        check_predicate(snapshot, where)
    except InvalidInput:
        return False
    return True


def scan_is_cheaper(
    snapshot: Snapshot, entry: IndexEntry, question: Question, groups: Iterable[GroupKey]
) -> str | None:
    """Why an index of keys is not asked, if its answer would take longer than what it can spare.

    :param groups: the file groups that would be read without it.
    """
    if entry.by_file:
        return None
    keys = question.keys(entry.definition.columns or snapshot.table.record_key)
    if isinstance(keys, CannotPrune) or len(keys) <= ALWAYS_KEYS:
        return None
    held = snapshot.groups(only=list(groups))
    files = [file for group in held.values() for file in group]
    spared = scan_seconds(snapshot, files) - _left(snapshot, files, len(held), len(keys))
    asked = _lookup_seconds(snapshot, entry, len(keys))
    if asked <= spared:
        return None
    return (
        f"looking {len(keys):,} keys up takes about {asked:.2g} s and spares {max(0.0, spared):.2g} s of reading the "
        f"{sum(file.bytes for file in files):,} bytes that are left"
    )


def _left(snapshot: Snapshot, files: list[DataFile], groups: int, keys: int) -> float:
    """Seconds that reading takes when the index has answered, if each key has one row, anywhere."""
    if not groups:
        return 0.0
    share = 1 - (1 - 1 / groups) ** keys
    if keys > HANDED_KEYS:
        return share * scan_seconds(snapshot, files)
    size = sum(file.bytes for file in files)
    return share * scan_seconds(snapshot, files, min(1.0, keys * KEY_BYTES / max(1.0, share * size)))


def _lookup_seconds(snapshot: Snapshot, entry: IndexEntry, keys: int) -> float:
    files = snapshot.state.files(entry.definition.tree)
    if keys > DIRECT_KEYS:
        return _JOB_SECONDS + keys * _JOINED_KEY_SECONDS + scan_seconds(snapshot, files)
    read = min(sum(file.bytes for file in files), keys * KEY_BYTES)
    return keys * _KEY_SECONDS + len(files) * _file_seconds(snapshot) + read / _BYTES_A_SECOND


def _file_seconds(snapshot: Snapshot) -> float:
    return _FILE_SECONDS if snapshot.store.spark_path("x").startswith("file:") else _REMOTE_FILE_SECONDS
