"""Bounds, values and filters of data files, computed by Spark from each file alone.

This is for what :mod:`spark_apps.indexes.skipping.collecting_here` leaves: files that Arrow does not read as Spark
does, nested fields, expressions of many values. One pass over the rows gives bounds and counts, one more the filters,
one more the sets of values; what a build of not too many rows has read is kept between them. Spark itself compares and
hashes, so that what it would find is what is known. Tombstones of delta files are no rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F
from spark_apps.engine.spark_utils import cached, inline
from spark_apps.engine.spark_versions import to_arrow
from spark_apps.indexes.handler import IndexContext, estimated_rows
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import ColumnRecord, FilterKind, Known, folded
from spark_apps.indexes.skipping.row_groups import Divided
from spark_apps.indexes.skipping.summaries import LONGEST, LONGEST_LISTED, blocks_at_first, rate_of
from spark_apps.indexes.stamps import stamp_of
from spark_apps.layout.types import ColumnType
from spark_apps.mergetree.blocks import BLOCK, located
from spark_apps.mergetree.external_files import is_external
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, Snapshot
from spark_apps.storage.errors import VerificationFailed
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)

_MOST_KEPT_ROWS = 20_000_000
"""Up to so many rows Spark keeps what was read of the files between the passes over it."""

_MOST_AT_ONCE = 2_000
"""Row groups of which records are made by one job."""

_FILE, _PART, _BLOCK = "__index_lineage", "__index_part", "__index_in_block"
_BLOCKS, _HASH, _VALUE = "__index_blocks", "__index_hash", "__index_value"
_ROWS = "__index_rows"


# --- Rows -------------------------------------------------------------------------------------------------------------


def _rows(snapshot: Snapshot, files: Sequence[DataFile], parts: Sequence[Part]) -> DataFrame:
    """Return the lineage of each row's file, and the values of the parts' expressions as ``v0``, ``v1``, …."""
    columns = _columns(parts)
    single = [replace(file, group=str(file.lineage)) for file in files]
    if is_external(snapshot, snapshot.data):
        rows = read_files(snapshot, snapshot.data, single, [*columns, GROUP_ID])
    else:
        rows = read_files(snapshot, snapshot.data, single, [*columns, GROUP_ID], flag=True)
        rows = rows.where(F.col(DELETED).isNull())
    return rows.select(column(GROUP_ID).cast("bigint").alias(_FILE), *_values(parts))


def _rows_of_row_groups(snapshot: Snapshot, divided: Sequence[Divided], parts: Sequence[Part]) -> DataFrame:
    """Return what :func:`_rows` does, with the lineage of each row's row group."""
    footers = [each.footer for each in divided]
    rows = located(snapshot, snapshot.data, [footer.file for footer in footers], footers, _columns(parts))
    unit = F.xxhash64(F.col(LINEAGE).cast("bigint"), F.col(BLOCK).cast("int"))
    return rows.select(unit.alias(_FILE), *_values(parts))


def _columns(parts: Sequence[Part]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.expression.columns))


def _values(parts: Sequence[Part]) -> list[Column]:
    return [F.expr(part.expression.text).alias(f"v{number}") for number, part in enumerate(parts)]


def encoded(value: Column, kind: ColumnType) -> Column:
    """Return the bytes of values, as :func:`~spark_apps.indexes.skipping.records.value_from` reads them."""
    if kind.kind == "binary":
        return value
    match kind.kind:
        case "boolean":
            value = value.cast("int")
        case "float" | "double":
            value = value.cast("double") + F.lit(0.0)  # -0.0 becomes 0.0
        case "date":
            value = F.unix_date(value)
        case "timestamp":
            value = F.unix_micros(value)
        case "timestamp_ntz":
            value = _local_micros(value)
    return value.cast("string").cast("binary")


def _local_micros(value: Column) -> Column:
    """Return the microseconds since 1970 of times without a zone, as if they were of UTC, whatever the session's is."""
    day = F.unix_date(value.cast("date")).cast("bigint")
    minutes = (day * 24 + F.hour(value)) * 60 + F.minute(value)
    return minutes * 60_000_000 + (F.date_part(F.lit("SECOND"), value) * 1_000_000).cast("bigint")


@dataclass(frozen=True)
class _Bounds:
    rows: int
    columns: tuple[ColumnRecord, ...]


def _bounds(rows: DataFrame, parts: Sequence[Part]) -> dict[int, _Bounds]:
    """Return the rows of each file, and counts and bounds of each expression."""
    sums = [F.count(F.lit(1)).alias(_ROWS)]
    for number, part in enumerate(parts):
        value = F.col(f"v{number}")
        sums.append(F.count(value).alias(f"n{number}"))
        if "minmax" in part.kinds:
            sums += [F.min(value).alias(f"l{number}"), F.max(value).alias(f"h{number}")]
    grouped = rows.groupBy(_FILE).agg(*sums)
    selected = [F.col(_FILE), F.col(_ROWS)]
    for number, part in enumerate(parts):
        selected.append(F.col(f"n{number}"))
        if "minmax" in part.kinds:
            low, high = F.col(f"l{number}"), F.col(f"h{number}")
            if part.type.kind in ("string", "binary"):
                # What is cut off of the highest would stand above it.
                high = F.when(F.length(high) <= LONGEST, high)
                low = F.substring(low, 1, LONGEST)
            selected += [encoded(low, part.type).alias(f"l{number}"), encoded(high, part.type).alias(f"h{number}")]
    found: dict[int, _Bounds] = {}
    for row in grouped.select(*selected).collect():
        records = tuple(_record(row, number, part) for number, part in enumerate(parts))
        found[row[_FILE]] = _Bounds(row[_ROWS], records)
    return found


def _record(row: Any, number: int, part: Part) -> ColumnRecord:
    filled = row[f"n{number}"]
    if "minmax" not in part.kinds:
        return ColumnRecord(filled)
    low, high = (None if row[name] is None else bytes(row[name]) for name in (f"l{number}", f"h{number}"))
    return ColumnRecord(filled, low, high)


def _value_sets(
    rows: DataFrame, parts: Sequence[Part], numbers: Sequence[int], most: int
) -> dict[tuple[int, int], tuple[bytes, ...]]:
    """Return the values of expressions in each file, where they are few: (lineage, number of the part) -> bytes."""
    from pyspark.sql import Window

    each = []
    for number in numbers:
        value = encoded(F.col(f"v{number}"), parts[number].type)
        short = F.when(F.octet_length(value) <= LONGEST_LISTED, value)
        kept = rows.where(F.col(f"v{number}").isNotNull())
        each.append(kept.select(_FILE, F.lit(number).alias(_PART), short.alias(_VALUE)))
    distinct = reduce(DataFrame.unionAll, each).distinct()
    ranked = distinct.withColumn(
        "__index_rank", F.row_number().over(Window.partitionBy(_FILE, _PART).orderBy(F.col(_VALUE)))
    )
    few = ranked.where(F.col("__index_rank") <= most + 1)
    listed = few.groupBy(_FILE, _PART).agg(F.count(F.lit(1)).alias(_ROWS), F.collect_list(_VALUE).alias(_VALUE))
    return {
        (row[_FILE], row[_PART]): tuple(sorted(map(bytes, row[_VALUE])))
        for row in listed.where(F.col(_ROWS) <= most).collect()
        if len(row[_VALUE]) == row[_ROWS]  # none was too long
    }


# --- Filters ----------------------------------------------------------------------------------------------------------


def _hashes(rows: DataFrame, part: Part, number: int, kind: FilterKind, gram: int) -> DataFrame:
    """Return the lineage of each row's file with the hash of a value, or of each n-gram of a value."""
    value = F.col(f"v{number}")
    kept = rows.where(value.isNotNull())
    if kind == "bloom":
        if part.type.kind in ("float", "double"):
            value = value + F.lit(0.0).cast(part.type.kind)  # -0.0 becomes 0.0
        return kept.select(_FILE, F.xxhash64(value).alias(_HASH))
    data = f"cast(v{number} as binary)"
    each = f"transform(sequence(1, octet_length({data}) - {gram - 1}), at -> xxhash64(substring({data}, at, {gram})))"
    long = kept.where(F.expr(f"octet_length({data}) >= {gram}"))
    return long.select(_FILE, F.explode(F.array_distinct(F.expr(each))).alias(_HASH))


def _filters(
    snapshot: Snapshot,
    rows: DataFrame,
    parts: Sequence[Part],
    wanted: Sequence[tuple[int, FilterKind]],
    files: Sequence[DataFile],
    settings: Settings,
) -> dict[tuple[int, int, FilterKind], Any]:
    """Return a filter of each file and part: (lineage, number of the part, kind) -> blocks by words."""
    import numpy as np

    sizes = [
        (file.lineage, place, blocks_at_first(file, kind, settings))
        for place, (_, kind) in enumerate(wanted)
        for file in files
    ]
    each = [
        _hashes(rows, parts[number], number, kind, settings.gram_bytes).withColumn(_PART, F.lit(place))
        for place, (number, kind) in enumerate(wanted)
    ]
    hashes = reduce(DataFrame.unionByName, each)
    if len({blocks for *_, blocks in sizes}) == 1:
        hashes = hashes.withColumn(_BLOCKS, F.lit(sizes[0][2]).cast("bigint"))
    else:
        known = inline(snapshot.spark, sizes, f"l bigint, p int, {_BLOCKS} bigint")
        hashes = hashes.join(F.broadcast(known), (F.col("l") == F.col(_FILE)) & (F.col("p") == F.col(_PART)))
    block = F.expr(f"cast(shiftright(shiftrightunsigned({_HASH}, 32) * {_BLOCKS}, 32) as int)")
    marked = hashes.select(_FILE, _PART, block.alias(_BLOCK), F.expr(f"xxhash64({_HASH})").alias("g"))
    words = [F.expr(f"bit_or({_bit(2 * n)} | {_bit(2 * n + 1)})").alias(f"w{n}") for n in range(4)]
    table = to_arrow(marked.groupBy(_FILE, _PART, _BLOCK).agg(*words))
    filters = {(lineage, *wanted[place]): np.zeros((blocks, 4), dtype="<i8") for lineage, place, blocks in sizes}
    if table.num_rows:
        lineages, places, blocks = (table.column(name).to_numpy() for name in (_FILE, _PART, _BLOCK))
        bits = np.stack([table.column(f"w{n}").to_numpy() for n in range(4)], axis=1)
        order = np.lexsort((places, lineages))
        lineages, places, blocks, bits = lineages[order], places[order], blocks[order], bits[order]
        changes = np.flatnonzero((np.diff(lineages) != 0) | (np.diff(places) != 0)) + 1
        for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(lineages)], strict=True):
            key = (int(lineages[begin]), *wanted[int(places[begin])])
            filters[key][blocks[begin:end]] = bits[begin:end]
    return {
        (lineage, number, kind): folded(bits, rate_of(kind, settings))
        for (lineage, number, kind), bits in filters.items()
    }


def _bit(number: int) -> str:
    """Return the SQL of the word with one bit, of the eighth of a block of that number."""
    place = f"cast(shiftright(g, {5 * number}) & 31 as int) + {32 * (number % 2)}"
    return f"shiftleft(cast(1 as bigint), {place})"


# --- All of it --------------------------------------------------------------------------------------------------------


def collect(context: IndexContext, parts: Sequence[Part], settings: Settings, files: Sequence[DataFile]) -> list[Known]:
    """Return what is to be known of data files.

    :raises VerificationFailed: if there are not as many rows in one as the log knows.
    """
    if not files:
        return []
    found = _collected(context.snapshot, _rows(context.snapshot, files, parts), parts, settings, files)
    _check_rows(context, files, found)
    return found


def collect_row_groups(
    context: IndexContext, parts: Sequence[Part], settings: Settings, divided: Sequence[Divided]
) -> dict[int, list[Known]]:
    """Return what is to be known of the row groups of data files, in their order, by the lineage of the file.

    Nothing of files of which Spark does not read the rows that their footers tell.
    """
    found: dict[int, list[Known]] = {}
    some: list[Divided] = []
    for number, each in enumerate(divided):
        some.append(each)
        if number + 1 < len(divided) and sum(len(one.units) for one in some) < _MOST_AT_ONCE:
            continue
        units = [unit for one in some for unit in one.units]
        rows = _rows_of_row_groups(context.snapshot, some, parts)
        known = iter(_collected(context.snapshot, rows, parts, settings, units))
        for one in some:
            mine = [next(known) for _ in one.units]
            if all(told.rows == unit.rows for told, unit in zip(mine, one.units, strict=True)):
                found[one.footer.file.lineage] = mine
        some = []
    return found


def _collected(
    snapshot: Snapshot, rows: DataFrame, parts: Sequence[Part], settings: Settings, files: Sequence[DataFile]
) -> list[Known]:
    """Return what is to be known of data files, or of row groups that are described as such."""
    stamped = stamp_of(snapshot.spark, [part.expression for part in parts])
    listed = [number for number, part in enumerate(parts) if "values" in part.kinds]
    wanted: list[tuple[int, FilterKind]] = [
        (number, kind) for number, part in enumerate(parts) for kind in ("bloom", "ngrams") if kind in part.kinds
    ]
    several = bool(listed) + bool(wanted) > 0
    with ExitStack() as held:
        if several and sum(map(estimated_rows, files)) <= _MOST_KEPT_ROWS:
            rows = held.enter_context(cached(rows))  # opening many small files takes longer than all the rest
        bounds = _bounds(rows, parts)
        values = _value_sets(rows, parts, listed, settings.most_values) if listed else {}
        filters = _filters(snapshot, rows, parts, wanted, files, settings) if wanted else {}
    empty = _Bounds(0, (ColumnRecord(0),) * len(parts))
    found = []
    for file in files:
        known = bounds.get(file.lineage, empty)
        columns = tuple(
            replace(record, values=_set_of(values, file, number, record)) if number in listed else record
            for number, record in enumerate(known.columns)
        )
        own = {(number, kind): filters[file.lineage, number, kind] for number, kind in wanted}
        found.append(Known(file.lineage, known.rows, stamped, columns, own))
    return found


def _set_of(
    values: dict[tuple[int, int], tuple[bytes, ...]], file: DataFile, number: int, record: ColumnRecord
) -> tuple[bytes, ...] | None:
    return values.get((file.lineage, number), None if record.filled else ())


def _check_rows(context: IndexContext, files: Sequence[DataFile], found: Sequence[Known]) -> None:
    """Compare the rows that were read with those that the log knows of each file.

    :raises VerificationFailed: naming a file with another number.
    """
    if context.table.source is not None and context.table.source.format not in ("parquet", "orc"):
        return
    for file, known in zip(files, found, strict=True):
        if file.rows >= 0 and known.rows != file.rows - file.tombstones:
            raise VerificationFailed(
                f"The index {context.definition.name!r} would tell of {known.rows:,} rows of {file.path}, which has "
                f"{file.rows - file.tombstones:,}; it is not committed.",
                outcome="Nothing was changed.",
                hint="Build it again; if the figures differ again, verify the table's files.",
            )
