"""The same of small files on the driver, without a job of Spark's: what a commit of some hundred rows can wait for.

Only for columns, whose values are read here as Spark reads them; what an expression gives, Spark alone knows. Where a
value is met that Python does not know, the files are left to Spark.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.ranges import OutOfRange, RawString, python_values, value_of
from spark_apps.indexes.skipping.collecting import LONGEST, LONGEST_LISTED, blocks_at_first, rate_of
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import (
    WORDS,
    ColumnRecord,
    FilterKind,
    Known,
    Marks,
    bytes_of,
    folded,
    grams,
)
from spark_apps.layout.types import ColumnType, arrow_type, parse_type
from spark_apps.mergetree.blocks import BlockFile, access_options, on_driver_alone, read_block_batches, read_footers
from spark_apps.mergetree.tree import DELETED
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)

_MOST_ROWS = 20_000
_MOST_FILES = 64
_MOST_TEXT = 100_000
"""Characters of which n-grams are made here."""

_THREADS = 8
_BINARY = parse_type("binary")


class _LeftToSpark(Exception):
    """A value was met that Python does not know."""


def collect_here(
    context: IndexContext, parts: Sequence[Part], settings: Settings, files: Sequence[DataFile]
) -> list[Known] | None:
    """Return what is to be known of files that a commit adds; ``None`` where that is left to Spark."""
    snapshot = context.snapshot
    small = len(files) <= _MOST_FILES and all(file.rows >= 0 for file in files)
    if not small or sum(file.rows for file in files) > _MOST_ROWS or on_driver_alone(snapshot):
        return None
    if any(part.expression.column is None or arrow_type(part.type) is None for part in parts):
        return None
    try:
        footers = read_footers(snapshot, files)
        types = {_name(part): (snapshot.data.stored(_name(part)), part.type.text) for part in parts}
        if not all(footer.exact(dict(types.values())) for footer in footers):
            return None
        with ThreadPoolExecutor(min(_THREADS, len(files))) as pool:
            return list(pool.map(lambda footer: _known(context, footer, parts, settings, types), footers))
    except (StorageError, OSError, _LeftToSpark) as error:
        logger.info("Records of %d files are left to Spark: %s", len(files), error)
        return None


def _name(part: Part) -> str:
    assert part.expression.column is not None
    return part.expression.column


def _known(
    context: IndexContext,
    footer: BlockFile,
    parts: Sequence[Part],
    settings: Settings,
    types: dict[str, tuple[str, str]],
) -> Known:
    """Return what is to be known of a file.

    :raises _LeftToSpark: if Python does not know a value of it, or there are not as many rows as the log says.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    file = footer.file
    request = {"path": footer.address, "size": file.bytes, "etag": None, "lineage": file.lineage, "form": "parquet",
               "blocks": list(range(footer.blocks))}  # fmt: skip
    batches, _ = read_block_batches(request, {**types, DELETED: (DELETED, "boolean")}, access_options(context.snapshot))
    read = list(batches)
    if not read:
        raise _LeftToSpark("a file without rows")
    rows = pa.Table.from_batches(read)
    rows = rows.filter(pc.is_null(rows.column(DELETED)))
    if rows.num_rows != file.rows - file.tombstones:
        raise _LeftToSpark(f"{file.path} has {rows.num_rows} rows")
    columns: list[ColumnRecord] = []
    filters: dict[tuple[int, FilterKind], Any] = {}
    for number, part in enumerate(parts):
        values = _values(rows.column(_name(part)), part.type)
        distinct = set(values)
        columns.append(_record(distinct, len(values), part, settings))
        if "bloom" in part.kinds:
            filters[number, "bloom"] = _filter(distinct, part.type, file, "bloom", settings)
        if "ngrams" in part.kinds:
            if sum(map(len, distinct)) > _MOST_TEXT:
                raise _LeftToSpark("much text")
            found = {gram for text in distinct for gram in grams(text, settings.gram_bytes)}
            filters[number, "ngrams"] = _filter(found, _BINARY, file, "ngrams", settings)
    return Known(file.lineage, rows.num_rows, {}, tuple(columns), filters)


def _values(column: Any, kind: ColumnType) -> list[Any]:
    """Return the values that are not null, as they are compared; one NaN for all."""
    values = [value_of(value, kind) for value in python_values(column.drop_null())]
    if any(isinstance(value, (OutOfRange, RawString)) for value in values):
        raise _LeftToSpark("a value that Python does not know")
    return [math.nan if value != value else value for value in values]


def _record(distinct: set[Any], filled: int, part: Part, settings: Settings) -> ColumnRecord:
    kind = part.type
    low = high = values = None
    if "minmax" in part.kinds and distinct:
        least, most = min(distinct, key=_order), max(distinct, key=_order)
        cut = kind.kind in ("string", "binary")
        low = bytes_of(least[:LONGEST] if cut else least, kind)
        high = None if cut and len(most) > LONGEST else bytes_of(most, kind)
    if "values" in part.kinds and len(distinct) <= settings.most_values:
        found = [bytes_of(value, kind) for value in distinct]
        if all(data is not None and len(data) <= LONGEST_LISTED for data in found):
            values = tuple(sorted(data for data in found if data is not None))
    return ColumnRecord(filled, low, high, values)


def _order(value: Any) -> tuple[bool, Any]:
    """Return the sort key by which NaN is above all numbers."""
    return (True, 0) if value != value else (False, value)


def _filter(values: Iterable[Any], kind: ColumnType, file: DataFile, of: FilterKind, settings: Settings) -> Any:
    import numpy as np

    blocks = blocks_at_first(file, of, settings)
    bits = [[0] * WORDS for _ in range(blocks)]
    for value in values:
        marks = Marks.of(value, kind)
        block = bits[marks.block(blocks)]
        for word, mark in enumerate(marks.words):
            block[word] |= mark
    return folded(np.array(bits, dtype="<u8").view("<i8"), rate_of(of, settings))
