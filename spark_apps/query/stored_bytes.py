"""How much of the data files some columns take: measured on the footers of a few files, for types alone tell little of
what is left of a column when it is encoded and compressed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from spark_apps.indexes.shares import share
from spark_apps.mergetree.blockfiles import BlockFile, read_footers
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)

_BY_LINE = ("json", "csv", "text", "xml", "avro")
"""Formats that are read whole, whatever columns are wanted."""

_SAMPLED = 4
_MOST_REMEMBERED = 20_000

_told: dict[tuple[str, str, int], dict[str, int]] = {}
"""(store, path, size) -> bytes of each column; empty of a file that tells none."""


def part(snapshot: Snapshot, files: Sequence[DataFile], columns: Collection[str]) -> float:
    """Which part of the bytes of data files a query reads that needs some columns, from 0 to 1, about."""
    source = snapshot.table.source
    if source is not None and source.format in _BY_LINE:
        return 1.0
    footers = _columns(snapshot, files[:: max(1, len(files) // _SAMPLED)][:_SAMPLED])
    if not footers:
        return share(snapshot.data.schema, set(columns))
    wanted = {snapshot.data.stored(name).lower() for name in columns}
    read = sum(size for found in footers for name, size in found.items() if name in wanted)
    return read / max(1, sum(size for found in footers for size in found.values()))


def _columns(snapshot: Snapshot, files: Sequence[DataFile]) -> list[dict[str, int]]:
    known = [_told.get(_key(snapshot, file)) for file in files]
    fresh = [file for file, found in zip(files, known, strict=True) if found is None]
    if not fresh:
        return [found for found in known if found]
    try:
        footers = read_footers(snapshot, fresh)
    except StorageError as error:
        logger.debug("Footers could not be read for an estimate: %s", error)
        return []  # what reads the rows will say what is wrong, if it matters
    read = {footer.file.path: _by_column(footer) for footer in footers}
    if len(_told) > _MOST_REMEMBERED:
        _told.clear()
    _told.update({_key(snapshot, file): read.get(file.path, {}) for file in fresh})
    return [found for found in (*known, *read.values()) if found]


def _key(snapshot: Snapshot, file: DataFile) -> tuple[str, str, int]:
    return snapshot.store.uri, file.path, file.bytes


def _by_column(footer: BlockFile) -> dict[str, int]:
    names = footer.schema.names if footer.format == "parquet" else []
    return {name.lower(): footer.bytes([name]) for name in names if names.count(name) == 1}
