"""The row groups of Parquet files, each described as if it were a file of its own.

What is kept of files is then computed of row groups by the same code. A row group is identified by a hash of its file's
lineage and its number, which Spark computes as well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from spark_apps.indexes.limits import MAX_ROW_GROUPS
from spark_apps.layout.hashing import spark_xxhash64
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import BlockFile, block_format, read_footers
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.storage.parquet.files import group_bytes
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import UNKNOWN_ROWS

logger = logging.getLogger(__name__)

_ID = [parse_type("bigint"), parse_type("int")]


@dataclass(frozen=True)
class Divided:
    """A data file of several row groups, and these as files of their own.

    :param units: with their rows and about their bytes; each has a lineage that is no other's.
    """

    footer: BlockFile
    units: tuple[DataFile, ...]


def divide(snapshot: Snapshot, files: Sequence[DataFile]) -> dict[int, Divided]:
    """Return those of some data files that have several row groups, but not too many, by their lineages.

    None that holds tombstones, and none of which the log knows other rows.
    """
    whole = [
        file for file in files
        if file.lineage and not file.tombstones and block_format(snapshot, file) == "parquet"
    ]  # fmt: skip
    try:
        footers = read_footers(snapshot, whole) if whole else []
    except StorageError as error:
        logger.info("No records of row groups are made: %s", error)
        return {}
    return {
        footer.file.lineage: Divided(footer, _units(footer))
        for footer in footers
        if 1 < footer.blocks <= MAX_ROW_GROUPS and footer.file.rows in (UNKNOWN_ROWS, sum(footer.rows))
    }


def _units(footer: BlockFile) -> tuple[DataFile, ...]:
    sizes = [max(size, 0) for size in group_bytes(footer.parsed)]
    whole = max(sum(sizes), 1)
    return tuple(
        replace(
            footer.file,
            lineage=spark_xxhash64([footer.file.lineage, number], _ID),
            rows=rows,
            bytes=footer.file.bytes * size // whole,
            extra=None,
        )
        for number, (rows, size) in enumerate(zip(footer.rows, sizes, strict=True))
    )
