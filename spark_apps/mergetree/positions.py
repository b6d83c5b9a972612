"""Positions: which rows of the file under a file group's deltas are replaced or deleted by them, told bit by bit.

A reader that knows them leaves the old rows out of a scan without reading, hashing or looking up a single key. They lie
beside each delta, and its entry in the log tells of which file they speak (:mod:`spark_apps.timeline.positions`).

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

from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.opening import READ_OPTIONS, listed_here, literal
from spark_apps.mergetree.tree import LINEAGE, ROW, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, lowest
from spark_apps.timeline.positions import Positions, path_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

logger = logging.getLogger(__name__)

_OVER = "over"
_WORDS = "words"
_WORD_BITS = 64
_MOST_BYTES = 128 << 20
"""So many bytes of positions (a bit a row of the files) are broadcast at most."""


def encoded(over: int, rows: int, hidden: npt.NDArray[np.int64]) -> bytes:
    """A file of positions.

    :param rows: of the file that they speak of. :param hidden: numbers of its rows, from 0.
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


def beneath(files: Sequence[DataFile]) -> DataFile | None:
    """The file of a group (given in merge order) that positions of one more delta would speak of; ``None`` if a reader
    had no use for them."""
    under = lowest(files)
    # An insert of a key that the file holds a tombstone of does not hide that.
    if len(under) != 1 or not under[0].lineage or under[0].tombstones:
        return None
    told = [Positions.of(file) for file in files[1:] if file.kind == "delta"]
    if len(told) < len(files) - 1 or any(one is None or one.over != under[0].lineage for one in told):
        return None
    return under[0]


def positioned(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]]
) -> tuple[list[Sequence[DataFile]], list[Sequence[DataFile]]]:
    """File groups that are read by positions, and the others."""
    told = [files for files in groups if len(files) > 1 and beneath(files) is not None]
    if not told or sum(files[0].rows for files in told) > 8 * _MOST_BYTES:
        return [], list(groups)
    try:
        check_intact(snapshot, tree, [_as_file(file) for files in told for file in files[1:] if _bytes(file)])
    except StorageError as error:
        logger.warning("Rows are merged by key, for positions cannot be read: %s", error.message)
        return [], list(groups)
    chosen = {files[0].path for files in told}
    return told, [files for files in groups if files[0].path not in chosen]


def is_hidden(files: Sequence[DataFile]) -> bool:
    """Whether no row of the lowest file of a group, which has positions, is to be read."""
    return any(found is not None and found.hidden == files[0].rows for found in map(Positions.of, files[1:]))


def is_whole(files: Sequence[DataFile]) -> bool:
    """Whether every row of the lowest file of a group, which has positions, is to be read."""
    return not any(map(_bytes, files[1:]))


def standing(snapshot: Snapshot, rows: DataFrame, groups: Sequence[Sequence[DataFile]]) -> DataFrame:
    """The rows of the lowest files of groups without those that the deltas' positions tell.

    :param rows: with :data:`LINEAGE` and :data:`ROW`. :param groups: each with one hidden row at least.
    """
    several = any(sum(map(bool, map(_bytes, files[1:]))) > 1 for files in groups)
    paths = literal(
        snapshot.store.spark_path(path_of(file.path)) for files in groups for file in files[1:] if _bytes(file)
    )
    with listed_here(snapshot.spark, paths):
        reader = snapshot.spark.read.schema(f"{_OVER} bigint, {_WORDS} array<bigint>").options(**READ_OPTIONS)
        told = reader.parquet(*paths)
    if several:
        both = F.aggregate(
            F.slice(F.col(_WORDS), 2, 1 << 30),
            F.get(F.col(_WORDS), F.lit(0)),
            lambda one, other: F.zip_with(one, other, lambda a, b: a.bitwiseOR(b)),
        )
        told = told.groupBy(_OVER).agg(F.collect_list(_WORDS).alias(_WORDS)).select(_OVER, both.alias(_WORDS))
    found = rows.join(F.broadcast(told), F.col(LINEAGE) == F.col(_OVER), "left")
    word = F.get(F.col(_WORDS), F.shiftright(F.col(ROW), 6).cast("int"))
    bit = F.getbit(word, F.col(ROW).bitwiseAND(F.lit(_WORD_BITS - 1)).cast("int"))
    # A row that no bit speaks of would else be left out in silence.
    stray = F.raise_error(F.lit("positions do not speak of all rows of their file")).cast("boolean")
    return found.where(F.coalesce(bit == 0, stray)).select(*rows.columns)


def _bytes(file: DataFile) -> int:
    found = Positions.of(file)
    return 0 if found is None else found.bytes


def _as_file(delta: DataFile) -> DataFile:
    """The positions of a delta as a file whose size can be held against the log."""
    return replace(delta, path=path_of(delta.path), bytes=_bytes(delta))
