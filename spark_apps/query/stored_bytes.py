"""How much of the data files some columns take: measured on the footers of a few files, for types alone tell little of
what is left of a column when it is encoded and compressed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from spark_apps.indexes.shares import share
from spark_apps.mergetree.blockfiles import read_footers
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
    footers = [found for found in _columns(snapshot, files[:: max(1, len(files) // _SAMPLED)][:_SAMPLED]) if found]
    if not footers:
        return share(snapshot.data.schema, set(columns))
    wanted = {snapshot.data.stored(name).lower() for name in columns}
    read = sum(size for found in footers for name, size in found.items() if name in wanted)
    return read / max(1, sum(size for found in footers for size in found.values()))


def _columns(snapshot: Snapshot, files: Sequence[DataFile]) -> list[dict[str, int]]:
    keys = [(snapshot.store.uri, file.path, file.bytes) for file in files]
    fresh = [file for key, file in zip(keys, files, strict=True) if key not in _told]
    if len(_told) > _MOST_REMEMBERED:
        _told.clear()
    try:
        footers = read_footers(snapshot, fresh) if fresh else []
    except StorageError as error:
        logger.debug("Footers could not be read for an estimate: %s", error)
        return []  # what reads the rows will say what is wrong, if it matters
    found = {
        footer.file.path: {name.lower(): footer.bytes([name]) for name in footer.schema.names}
        for footer in footers
        if footer.format == "parquet"
    }
    _told.update({(snapshot.store.uri, file.path, file.bytes): found.get(file.path, {}) for file in fresh})
    return [_told[key] for key in keys]
