"""Estimates of what a build would write and how long it would take, made before it is begun.

They come from the footers of some data files, and from reading a piece of one.

Rows are those that the log states. The bytes of the columns that an index holds are taken from the column chunks of a
sample of files, a row's worth each; reading is timed on one row group; what shuffling, sorting and writing a row takes
was measured. The truth stands beside the estimate in the receipt of the build.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spark_apps.mergetree.blocks import BlockFile, access_options, open_blocks, read_footers
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.spark_utils import cores
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey

# --- Estimates --------------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_SAMPLED_FILES = 8
"""So many files are sampled."""

_MAX_TIMED_BYTES = 16 * 1024 * 1024
"""Of a row group larger than this nothing is read to time it."""

# Set by builds of a record and a secondary index over 1,000,000 rows, 5.1 and 6.2 s on two cores that had other work.
_START_SECONDS = 2.0
_CORE_SECONDS_PER_ROW = 5e-6
"""Of shuffling, sorting, writing and counting a row."""

_BYTES_PER_SECOND = 50e6
"""Of reading, where no piece of a file could be timed."""

_ROW_BYTES = 100
_PATH_BYTES = 0.2
"""What the path of a row's partition takes in an entry: a dictionary holds it."""


@dataclass(frozen=True)
class Estimate:
    """The cost of a build: what it would read and write.

    :param rows: that it would read.
    :param read: bytes of the columns that it would read of the data files.
    :param bytes: that it would write.
    :param seconds: that it would take.
    :param sampled: files sampled.
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


def estimated_rows(file: DataFile) -> int:
    """Return the rows of a file.

    Of a source's file whose format does not give them, about as many as its bytes let expect.
    """
    return file.bytes // _ROW_BYTES if file.rows < 0 else file.rows - file.tombstones


def estimate(
    snapshot: Snapshot, groups: Collection[GroupKey], columns: Sequence[str], *, values: bool = False
) -> Estimate:
    """Return the cost of an index over some file groups.

    :param columns: of the table, that the index holds.
    :param values: whether it holds each value once a block and not once a row.
    """
    files = [file for group_files in snapshot.groups(only=groups).values() for file in group_files]
    rows = sum(map(estimated_rows, files))
    total = sum(file.bytes for file in files)
    if not files or not rows:
        return Estimate(rows, total, 0, 0.0 if not files else _START_SECONDS, 0)
    footers = _footers(snapshot, files)
    sampled_bytes = sum(footer.file.bytes for footer in footers)
    stored = [snapshot.data.stored(name) for name in columns]
    if sampled_bytes:
        column_bytes = sum(footer.bytes(stored) for footer in footers)
        index_bytes = sum(_dictionary_bytes(footer, stored) for footer in footers) if values else column_bytes
        read, written = total * column_bytes / sampled_bytes, total * index_bytes / sampled_bytes
    else:
        read = total * column_share(snapshot.data.schema, set(columns))
        written = read / 10 if values else read
    written += rows * _PATH_BYTES if not values else 0
    parallelism = cores(snapshot.spark) if snapshot.has_spark else 2
    speed = _bytes_per_second(snapshot, footers, stored)
    seconds = _START_SECONDS + (read / speed + rows * _CORE_SECONDS_PER_ROW) / parallelism
    return Estimate(rows, round(read), round(written), round(seconds, 1), len(footers))


def _footers(snapshot: Snapshot, files: Sequence[DataFile]) -> list[BlockFile]:
    step = max(1, len(files) // _SAMPLED_FILES)
    try:
        return read_footers(snapshot, files[::step][:_SAMPLED_FILES])
    except StorageError as error:
        logger.warning("Footers could not be read for an estimate: %s", error)
        return []  # the build itself will raise what is wrong, if it matters


def _dictionary_bytes(footer: BlockFile, names: Sequence[str]) -> int:
    """Return the bytes of the dictionaries of some columns, which hold each value of a row group once.

    Of a column without a dictionary, all that it takes.
    """
    if footer.format != "parquet":
        return footer.bytes(names) // 10
    total = 0
    stored_names = {footer.held(name) for name in names}
    for block in range(footer.blocks):
        group = footer.parsed.row_group(block)
        for number in range(group.num_columns):
            chunk = group.column(number)
            if chunk.path_in_schema.split(".", 1)[0] in stored_names:
                start = chunk.dictionary_page_offset
                total += chunk.total_compressed_size if start is None else max(0, chunk.data_page_offset - start)
    return total


def _bytes_per_second(snapshot: Snapshot, footers: Sequence[BlockFile], names: Sequence[str]) -> float:
    """Return the bytes of these columns that one core reads in a second, timed on one row group."""
    for footer in footers:
        stored = [name for name in names if footer.format == "parquet" and footer.held(name) is not None]
        if not stored or not footer.blocks or not 0 < footer.bytes(stored, [0]) <= _MAX_TIMED_BYTES:
            continue
        start = time.perf_counter()
        try:
            reader, _ = open_blocks(footer.format, footer.address, footer.file.bytes, access_options(snapshot))
            reader.read_row_group(0, columns=[footer.held(name) for name in stored], use_threads=False)
        except OSError:
            break
        return footer.bytes(stored, [0]) / max(time.perf_counter() - start, 1e-3)
    return _BYTES_PER_SECOND
