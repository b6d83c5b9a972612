"""What a build would write and how long it would take, told before it is begun: from the footers of some data files,
and from reading a piece of one.

Rows are those that the log states. The bytes of the columns that an index holds are taken from the column chunks of a
sample of files, a row's worth each; reading is timed on one row group; what shuffling, sorting and writing a row takes
was measured. The truth stands beside the estimate in the receipt of the build.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spark_apps.indexes.shares import share
from spark_apps.mergetree.blockfiles import BlockFile, open_blocks, read_footers, store_options
from spark_apps.mergetree.sessions import cores
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey

logger = logging.getLogger(__name__)

_FILES = 8
"""So many files are looked at."""

_PIECE_BYTES = 16 * 1024 * 1024
"""Of a row group larger than this nothing is read to time it."""

# Set by builds of a record and a secondary index over 1,000,000 rows, 5.1 and 6.2 s on two cores that had other work.
_START_SECONDS = 2.0
_CORE_SECONDS_A_ROW = 5e-6
"""Of shuffling, sorting, writing and counting a row."""

_BYTES_A_SECOND = 50e6
"""Of reading, where no piece of a file could be timed."""

_ROW_BYTES = 100
_PATH_BYTES = 0.2
"""What the path of a row's partition takes in an entry: a dictionary holds it."""


@dataclass(frozen=True)
class Estimate:
    """What a build would read and write.

    :param rows: that it would read. :param read: bytes of the columns that it would read of the data files.
    :param bytes: that it would write. :param seconds: that it would take. :param sampled: files looked at.
    """

    rows: int
    read: int
    bytes: int
    seconds: float
    sampled: int

    @property
    def text(self) -> str:
        return (
            f"about {self.bytes:,} bytes and {self.seconds:.1f} s, for {self.rows:,} rows in {self.read:,} bytes of "
            f"columns; from {self.sampled} files"
        )


def rows_about(file: DataFile) -> int:
    """Rows of a file; of a source's, whose format does not tell them, about as many as its bytes let expect."""
    return file.bytes // _ROW_BYTES if file.rows < 0 else file.rows - file.tombstones


def estimate(
    snapshot: Snapshot, groups: Collection[GroupKey], columns: Sequence[str], *, values: bool = False
) -> Estimate:
    """The cost of an index over some file groups.

    :param columns: of the table, that the index holds.
    :param values: whether it holds each value once a block and not once a row.
    """
    files = [file for found in snapshot.groups(only=groups).values() for file in found]
    rows = sum(map(rows_about, files))
    total = sum(file.bytes for file in files)
    if not files or not rows:
        return Estimate(rows, total, 0, 0.0 if not files else _START_SECONDS, 0)
    footers = _footers(snapshot, files)
    looked = sum(footer.file.bytes for footer in footers)
    stored = [snapshot.data.stored(name) for name in columns]
    if looked:
        held = sum(footer.bytes(stored) for footer in footers)
        told = sum(_dictionaries(footer, stored) for footer in footers) if values else held
        read, written = total * held / looked, total * told / looked
    else:
        read = total * share(snapshot.data.schema, set(columns))
        written = read / 10 if values else read
    written += rows * _PATH_BYTES if not values else 0
    at_once = cores(snapshot.spark) if snapshot.has_spark else 2
    speed = _speed(snapshot, footers, stored)
    seconds = _START_SECONDS + (read / speed + rows * _CORE_SECONDS_A_ROW) / at_once
    return Estimate(rows, round(read), round(written), round(seconds, 1), len(footers))


def _footers(snapshot: Snapshot, files: Sequence[DataFile]) -> list[BlockFile]:
    step = max(1, len(files) // _FILES)
    try:
        return read_footers(snapshot, files[::step][:_FILES])
    except StorageError as error:
        logger.warning("Footers could not be read for an estimate: %s", error)
        return []  # the build itself will say what is wrong, if it matters


def _dictionaries(footer: BlockFile, names: Sequence[str]) -> int:
    """Bytes of the dictionaries of some columns, which hold each value of a row group once; of a column without, all
    that it takes."""
    if footer.format != "parquet":
        return footer.bytes(names) // 10
    found = 0
    held = {footer.held(name) for name in names}
    for block in range(footer.blocks):
        group = footer.parsed.row_group(block)
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.split(".", 1)[0] in held:
                start = chunk.dictionary_page_offset
                found += chunk.total_compressed_size if start is None else max(0, chunk.data_page_offset - start)
    return found


def _speed(snapshot: Snapshot, footers: Sequence[BlockFile], names: Sequence[str]) -> float:
    """Bytes of these columns that one core reads in a second, timed on one row group."""
    for footer in footers:
        held = [name for name in names if footer.format == "parquet" and footer.held(name) is not None]
        if not held or not footer.blocks or not 0 < footer.bytes(held, [0]) <= _PIECE_BYTES:
            continue
        begun = time.perf_counter()
        try:
            reader, _ = open_blocks(footer.format, footer.address, footer.file.bytes, store_options(snapshot))
            reader.read_row_group(0, columns=[footer.held(name) for name in held], use_threads=False)
        except OSError:
            break
        return footer.bytes(held, [0]) / max(time.perf_counter() - begun, 1e-3)
    return _BYTES_A_SECOND
