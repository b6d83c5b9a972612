"""Positions: which rows of the file under a file group's deltas are replaced or deleted by them, one bit per row.

A reader that knows them leaves the old rows out of a scan without reading, hashing or looking up a single key. They lie
beside each delta, and its entry in the log names the file that they refer to (:mod:`spark_apps.timeline.files`).

They say nothing that keys would not say. Where a delta lacks them, where they speak of a file that was replaced
meanwhile, and where they are gone or damaged, rows are merged by key as if there were none.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.spark_utils import READ_OPTIONS, escape_globs, list_on_driver
from spark_apps.mergetree.tree import LINEAGE, ROW, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, Positions, lowest_files, positions_path

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

logger = logging.getLogger(__name__)

_OVER = "over"
_WORDS = "words"
_WORD_BITS = 64
_MAX_BROADCAST_BYTES = 128 << 20
"""So many bytes of positions (one bit per row of the files) are broadcast at most."""


def encode_positions(over: int, rows: int, hidden: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of a file of positions.

    :param rows: of the file that they speak of.
    :param hidden: numbers of its rows, from 0.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = np.zeros(-(-rows // _WORD_BITS), np.int64)
    np.bitwise_or.at(words, hidden // _WORD_BITS, np.int64(1) << hidden % _WORD_BITS)
    table = pa.table({_OVER: pa.array([over], pa.int64()), _WORDS: pa.array([words], pa.list_(pa.int64()))})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    return sink.getvalue()


def positions_target(files: Sequence[DataFile]) -> DataFile | None:
    """Return the file of a group that positions of one more delta would refer to.

    ``None`` if a reader had no use for them. ``files`` are in merge order.
    """
    bottom = lowest_files(files)
    # An insert of a key that the file holds a tombstone of does not hide that.
    if len(bottom) != 1 or not bottom[0].lineage or bottom[0].tombstones:
        return None
    positions = [Positions.of(file) for file in files[1:] if file.kind == "delta"]
    if len(positions) < len(files) - 1 or any(p is None or p.over != bottom[0].lineage for p in positions):
        return None
    return bottom[0]


def split_by_positions(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]]
) -> tuple[list[Sequence[DataFile]], list[Sequence[DataFile]]]:
    """Split file groups into those that are read by positions, and the others."""
    candidates = [files for files in groups if len(files) > 1 and positions_target(files) is not None]
    if not candidates or sum(files[0].rows for files in candidates) > 8 * _MAX_BROADCAST_BYTES:
        return [], list(groups)
    try:
        check_intact(
            snapshot, tree, [_positions_file(file) for files in candidates for file in files[1:] if _bytes(file)]
        )
    except StorageError as error:
        logger.warning("Rows are merged by key, for positions cannot be read: %s", error.message)
        return [], list(groups)
    paths = {files[0].path for files in candidates}
    return candidates, [files for files in groups if files[0].path not in paths]


def hides_everything(files: Sequence[DataFile]) -> bool:
    """Tell whether no row of the lowest file of a group, which has positions, is to be read."""
    return any(
        positions is not None and positions.hidden == files[0].rows for positions in map(Positions.of, files[1:])
    )


def hides_nothing(files: Sequence[DataFile]) -> bool:
    """Tell whether every row of the lowest file of a group, which has positions, is to be read."""
    return not any(map(_bytes, files[1:]))


def without_hidden_rows(snapshot: Snapshot, rows: DataFrame, groups: Sequence[Sequence[DataFile]]) -> DataFrame:
    """Return the rows of the lowest files of groups without those that the deltas' positions hide.

    :param rows: with :data:`LINEAGE` and :data:`ROW`.
    :param groups: each with one hidden row at least.
    """
    several = any(sum(map(bool, map(_bytes, files[1:]))) > 1 for files in groups)
    paths = escape_globs(
        snapshot.store.spark_path(positions_path(file.path)) for files in groups for file in files[1:] if _bytes(file)
    )
    with list_on_driver(snapshot.spark, paths):
        reader = snapshot.spark.read.schema(f"{_OVER} bigint, {_WORDS} array<bigint>").options(**READ_OPTIONS)
        positions = reader.parquet(*paths)
    if several:
        both = F.aggregate(
            F.slice(F.col(_WORDS), 2, 1 << 30),
            F.get(F.col(_WORDS), F.lit(0)),
            lambda one, other: F.zip_with(one, other, lambda a, b: a.bitwiseOR(b)),
        )
        positions = positions.groupBy(_OVER).agg(F.collect_list(_WORDS).alias(_WORDS)).select(_OVER, both.alias(_WORDS))
    joined = rows.join(F.broadcast(positions), F.col(LINEAGE) == F.col(_OVER), "left")
    word = F.get(F.col(_WORDS), F.shiftright(F.col(ROW), 6).cast("int"))
    bit = F.getbit(word, F.col(ROW).bitwiseAND(F.lit(_WORD_BITS - 1)).cast("int"))
    # A row that no bit speaks of would else be left out in silence.
    stray = F.raise_error(F.lit("positions do not speak of all rows of their file")).cast("boolean")
    return joined.where(F.coalesce(bit == 0, stray)).select(*rows.columns)


def _bytes(file: DataFile) -> int:
    positions = Positions.of(file)
    return 0 if positions is None else positions.bytes


def _positions_file(delta: DataFile) -> DataFile:
    """Return the positions of a delta as a file whose size can be compared with the log."""
    return replace(delta, path=positions_path(delta.path), bytes=_bytes(delta))
