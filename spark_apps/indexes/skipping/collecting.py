"""Bounds, values and filters of data files and of their row groups: rows are read once, and numpy does the rest.

What is found of rows is the same whoever reads them (:mod:`spark_apps.indexes.skipping.summaries`). Where there is
little to read, Arrow reads Parquet files in this process, without a job over the rows; what an expression gives, Spark
alone knows, so it evaluates it once for each different value of the columns in it, where these are few. All else Spark
reads and evaluates, and each of its tasks hands its rows over in Arrow batches; what tasks find of pieces of a file is
joined. Tombstones of delta files are no rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial, reduce
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T
from spark_apps.engine.spark_utils import cores
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.indexes.handler import IndexContext, estimated_rows
from spark_apps.indexes.limits import (
    BUILD_THREADS,
    BYTES_AT_ONCE,
    MAX_DISTINCT,
    MAX_DISTINCT_IN_MEMORY,
    MAX_DRIVER_BYTES,
    MAX_FILE_ROWS,
    MAX_FILTER_BYTES,
    MAX_ROW_GROUPS_PER_JOB,
    ROWS_AT_ONCE,
    SMALL_FILE_BYTES,
)
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import BLOCK_BYTES, WORDS, ColumnRecord, FilterKind, Known, folded
from spark_apps.indexes.skipping.row_groups import Divided
from spark_apps.indexes.skipping.summaries import (
    blocks_at_first,
    finished,
    first_of_each,
    joined,
    rate_of,
    summarize,
)
from spark_apps.indexes.stamps import stamp_of
from spark_apps.layout.types import arrow_type, parse_type
from spark_apps.mergetree.blocks import BLOCK, FileReader, access_options, block_format, located, stored_share
from spark_apps.mergetree.external_files import attached_values, is_external
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, Snapshot
from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.errors import StorageError, VerificationFailed
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_SPLIT_BYTES = 128 << 20
"""Bytes of a file that one task reads, by Spark's default."""

_FLOATING = ("float", "double")
_FILTERS: tuple[FilterKind, ...] = ("bloom", "ngrams")
_NUMBER, _VALUE = "__index_number", "__index_value"
_FILE = "__index_lineage"


class OnlyBySpark(Exception):
    """Files or values were met that Arrow does not read as Spark does."""


@dataclass(frozen=True)
class Making:
    """The records that are made of rows, and how; goes to tasks."""

    parts: Sequence[Part]
    settings: Settings

    def records(
        self, files: Sequence[DataFile], rows: Sequence[int], values: Sequence[Any], whole: Sequence[bool] | None = None
    ) -> list[Known]:
        """Return what is known of files, or row groups, from the values of the parts in their rows.

        :param rows: how many of the values are of each. :param values: by the numbers of the parts.
        :param whole: which of the files these are all rows of; by default all.
        """
        columns: list[list[ColumnRecord]] = [[] for _ in files]
        filters: list[dict[tuple[int, FilterKind], Any]] = [{} for _ in files]
        for number, part in enumerate(self.parts):
            kinds = [kind for kind in _FILTERS if kind in part.kinds]
            blocks = {kind: [blocks_at_first(file, kind, self.settings) for file in files] for kind in kinds}
            made = summarize(values[number], rows, part, self.settings, blocks, whole)
            for at, record in enumerate(made.records):
                columns[at].append(record)
                filters[at].update({(number, kind): bits[at] for kind, bits in made.filters.items()})
        return [
            Known(file.lineage, count, {}, tuple(records), bits)
            for file, count, records, bits in zip(files, rows, columns, filters, strict=True)
        ]

    def together(self, one: Known, other: Known) -> Known:
        """Return what is known of two pieces of a file together, to be finished once all are."""
        each = zip(one.columns, other.columns, self.parts, strict=True)
        most = self.settings.most_values
        return changed(
            one,
            rows=one.rows + other.rows,
            columns=tuple(joined(mine, its, part.type, most) for mine, its, part in each),
            filters={key: bits | other.filters[key] for key, bits in one.filters.items()},
        )

    def finished(self, known: Known) -> Known:
        """Return what is known of a file, from what is known of all pieces of it together."""
        return changed(
            known,
            columns=tuple(finished(one, part.type) for one, part in zip(known.columns, self.parts, strict=True)),
            filters={key: folded(bits, rate_of(key[1], self.settings)) for key, bits in known.filters.items()},
        )

    def joined(self, file: DataFile, pieces: Sequence[Piece]) -> Known:
        """Return what is known of a file, from the pieces of its rows that tasks have found, each unpacked in turn."""
        if len(pieces) == 1 and _is_whole(file, pieces[0].rows):
            return pieces[0].known()
        known = (
            map(Piece.known, pieces)
            if pieces
            else self.records([file], [0], list(map(_no_values, self.parts)), [False])
        )
        return self.finished(reduce(self.together, known))

    def bytes_of(self, file: DataFile) -> int:
        """Return about how many bytes the filters take that tasks find of a file, each of a part of its rows."""
        blocks = sum(blocks_at_first(file, kind, self.settings)
                     for part in self.parts for kind in _FILTERS if kind in part.kinds)  # fmt: skip
        return blocks * BLOCK_BYTES * (1 + file.bytes // _SPLIT_BYTES)


def collect(
    context: IndexContext,
    parts: Sequence[Part],
    settings: Settings,
    files: Sequence[DataFile],
    divided: Mapping[int, Divided],
) -> list[Known]:
    """Return what is to be known of data files, in their order.

    :param divided: lineage of a file -> its row groups, where they are to have records.
    :raises VerificationFailed: if there are not as many rows in a file as the log knows.
    :raises PySparkException: what Spark raises of an expression on a row.
    """
    if not files:
        return []
    making = Making(parts, settings)
    found = _by_driver(context.snapshot, making, files, {key: each.units for key, each in divided.items()})
    if found is None:
        found = _in_tasks(context.snapshot, making, files, divided)
    _check_rows(context, files, found)
    stamped = stamp_of(context.snapshot.spark, [part.expression for part in parts])
    return [_stamped(each, stamped) for each in found]


def _stamped(known: Known, stamp: Mapping[str, str]) -> Known:
    row_groups = tuple(_stamped(each, stamp) for each in known.row_groups)
    return changed(known, stamp=stamp, row_groups=row_groups)


def _check_rows(context: IndexContext, files: Sequence[DataFile], found: Sequence[Known]) -> None:
    """Compare the rows that were read with those that the log knows of each file.

    :raises VerificationFailed: naming a file with another number.
    """
    if context.table.source is not None and context.table.source.format not in ("parquet", "orc"):
        return
    for file, known in zip(files, found, strict=True):
        if file.rows >= 0 and known.rows != file.rows - file.tombstones:
            raise VerificationFailed(
                f"The index {context.definition.name!r} would cover {known.rows:,} rows of {file.path}, which has "
                f"{file.rows - file.tombstones:,}; it is not committed.",
                outcome="Nothing was changed.",
                hint="Build it again; if the figures differ again, verify the table's files.",
            )


# --- In tasks: rows that Spark reads ----------------------------------------------------------------------------------


class Piece(msgspec.Struct, array_like=True):
    """The facts that a task has found of some rows of a file, or of a row group."""

    lineage: int
    rows: int
    columns: tuple[ColumnRecord, ...]
    filters: list[tuple[int, FilterKind, int, bytes]]

    @classmethod
    def of(cls, known: Known) -> Piece:
        # Of a piece of a file most bits of its filters are not set.
        filters = [(number, kind, len(bits), _packed(bits)) for (number, kind), bits in known.filters.items()]
        return cls(known.lineage, known.rows, known.columns, filters)

    def known(self) -> Known:
        import numpy as np

        arrays = {
            (number, kind): np.frombuffer(_unpacked(data, blocks), "<i8").reshape(blocks, WORDS)
            for number, kind, blocks, data in self.filters
        }
        return Known(self.lineage, self.rows, {}, self.columns, arrays)


def _packed(bits: Any) -> bytes:
    import pyarrow as pa

    data: bytes = pa.compress(bits.tobytes(), codec="lz4", asbytes=True)
    return data


def _unpacked(data: bytes, blocks: int) -> bytes:
    import pyarrow as pa

    whole: bytes = pa.decompress(data, decompressed_size=blocks * BLOCK_BYTES, codec="lz4", asbytes=True)
    return whole


def _in_tasks(
    snapshot: Snapshot, making: Making, files: Sequence[DataFile], divided: Mapping[int, Divided]
) -> list[Known]:
    """Have Spark read the rows, and return what is found of files and of their row groups."""
    found: list[Known] = []
    for few in _portions(files, making.bytes_of, MAX_FILTER_BYTES):
        found += _found_by_tasks(_rows(snapshot, few, making.parts), making, few)
    row_groups: dict[int, tuple[Known, ...]] = {}
    for some in _portions(list(divided.values()), partial(_share_of_job, making), 1):
        units = [unit for each in some for unit in each.units]
        known = iter(_found_by_tasks(_rows_of_row_groups(snapshot, some, making.parts), making, units))
        for each in some:
            mine = tuple(next(known) for _ in each.units)
            # Nothing of files of which Spark reads other rows than their footers state.
            if all(one.rows == unit.rows for one, unit in zip(mine, each.units, strict=True)):
                row_groups[each.footer.file.lineage] = mine
    return [changed(each, row_groups=row_groups.get(each.lineage, ())) for each in found]


def _share_of_job(making: Making, divided: Divided) -> float:
    """Return which part of one job the row groups of a file are, by their number or the bytes of their filters."""
    filters = sum(map(making.bytes_of, divided.units))
    return max(len(divided.units) / MAX_ROW_GROUPS_PER_JOB, filters / MAX_FILTER_BYTES)


def _portions(items: Sequence[Item], weight: Callable[[Item], float], most: float) -> Iterator[list[Item]]:
    """Yield some of the items at a time, in their order, that weigh no more together; or one."""
    some: list[Item] = []
    total = 0.0
    for item in items:
        if some and total + weight(item) > most:
            yield some
            some, total = [], 0.0
        some.append(item)
        total += weight(item)
    if some:
        yield some


def _rows(snapshot: Snapshot, files: Sequence[DataFile], parts: Sequence[Part]) -> DataFrame:
    """Return the lineage of each row's file, and the values of the parts' expressions as ``v0``, ``v1``, …."""
    single = [replace(file, group=str(file.lineage)) for file in files]
    names = [*_columns(parts), GROUP_ID]
    if is_external(snapshot, snapshot.data):
        rows = read_files(snapshot, snapshot.data, single, names)
    else:
        rows = read_files(snapshot, snapshot.data, single, names, flag=True).where(F.col(DELETED).isNull())
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
    values = [F.expr(part.expression.text) for part in parts]
    # Of values that are only counted Arrow need not know the type.
    exchanged = [
        value if part.comparable else F.when(value.isNotNull(), True) for part, value in zip(parts, values, strict=True)
    ]
    return [value.alias(f"v{number}") for number, value in enumerate(exchanged)]


def _found_by_tasks(rows: DataFrame, making: Making, files: Sequence[DataFile]) -> list[Known]:
    """Return what tasks find of files, or of row groups that are described as such, whose rows these are."""
    described = {file.lineage: replace(file, path="", extra=None) for file in files}
    answers = to_arrow(rows.mapInArrow(partial(_found_in_batches, making, described), f"{_VALUE} binary"))
    pieces: dict[int, list[Piece]] = {}
    for piece in _pieces_of(answers.to_batches()):
        pieces.setdefault(piece.lineage, []).append(piece)
    return [making.joined(file, pieces.get(file.lineage, [])) for file in files]


def _pieces_of(answers: Iterable[Any]) -> Iterator[Piece]:
    """Yield what tasks have found, each piece of a file by itself."""
    decoder = msgspec.msgpack.Decoder(Piece)
    for batch in answers:
        for answer in batch.column(0):
            yield decoder.decode(answer.as_buffer())


def _is_whole(file: DataFile, rows: int) -> bool:
    return file.rows >= 0 and rows == file.rows - file.tombstones


def _found_in_batches(making: Making, files: Mapping[int, DataFile], batches: Iterable[Any]) -> Iterator[Any]:
    """Yield, in a task, what is found of the files in its rows, of as many rows at once as fit into its memory."""
    waiting: dict[int, Known] = {}
    for some in _large_batches(batches):
        for known in _found_in_rows(making, files, some):
            file, before = files[known.lineage], waiting.pop(known.lineage, None)
            if before is not None:
                known = making.together(before, known)
                known = making.finished(known) if _is_whole(file, known.rows) else known
            if _is_whole(file, known.rows):
                yield _encoded([known])
            else:
                waiting[known.lineage] = known
    if waiting:
        yield _encoded(waiting.values())


def _large_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of batches as tables of many rows."""
    import pyarrow as pa

    some, size, rows = list[Any](), 0, 0
    for batch in batches:
        if some and (size + batch.nbytes > BYTES_AT_ONCE or rows + batch.num_rows > ROWS_AT_ONCE):
            yield pa.Table.from_batches(some)
            some, size, rows = [], 0, 0
        some.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
    if rows:
        yield pa.Table.from_batches(some)


def _found_in_rows(making: Making, files: Mapping[int, DataFile], table: Any) -> list[Known]:
    """Return what is found of the files of some rows."""
    import numpy as np

    lineages, first, counts = np.unique(table.column(_FILE).to_numpy(), return_index=True, return_counts=True)
    if not (np.sort(first)[1:] == np.sort(first + counts)[:-1]).all():  # rows of several files are mixed
        table = table.take(np.argsort(table.column(_FILE).to_numpy(), kind="stable"))
        first = np.cumsum(counts) - counts
    order = np.argsort(first)
    mine, rows = [files[lineage] for lineage in lineages[order].tolist()], counts[order].tolist()
    values = [_as_hashed(table.column(f"v{number}"), part) for number, part in enumerate(making.parts)]
    return making.records(mine, rows, values, [_is_whole(file, count) for file, count in zip(mine, rows, strict=True)])


def _as_hashed(values: Any, part: Part) -> Any:
    """Return the values of a part in the type that is hashed; a session may have them exchanged with longer offsets."""
    whole = in_one_piece(values)
    return whole.cast(arrow_type(part.type)) if part.comparable else whole


def _encoded(found: Iterable[Known]) -> Any:
    import pyarrow as pa

    pieces = [msgspec.msgpack.encode(Piece.of(known)) for known in found]
    return pa.record_batch([pa.array(pieces, pa.binary())], names=[_VALUE])


def _no_values(part: Part) -> Any:
    import pyarrow as pa

    return pa.nulls(0, arrow_type(part.type) if part.comparable else pa.bool_())


# --- In this process: files that Arrow reads --------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The columns that are read of files.

    :param types: column -> its name in the files, and its Spark type. :param exact_rows: whether the log knows the rows
        of each file.
    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    """

    making: Making
    types: Mapping[str, tuple[str, str]]
    options: Mapping[str, Any]
    exact_rows: bool
    units: Mapping[int, Sequence[DataFile]]


def _by_driver(
    snapshot: Snapshot, making: Making, files: Sequence[DataFile], units: Mapping[int, Sequence[DataFile]]
) -> list[Known] | None:
    """Return what is found of files that Arrow reads, a few at once; ``None`` where all is left to tasks.

    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    :raises PySparkException: what Spark raises of an expression on a row.
    """
    import pyarrow as pa

    if not _is_readable(snapshot, making.parts, files):
        return None
    columns = _columns(making.parts)
    types = {name: (snapshot.data.stored(name), snapshot.data.type_of(name)) for name in columns}
    if any(file.tombstones for file in files):
        types[DELETED] = (DELETED, "boolean")
    source = snapshot.table.source
    exact_rows = source is None or source.format == "parquet"
    reading = Reading(making, types, access_options(snapshot), exact_rows, units)
    try:
        total = sum(file.bytes for file in files)
        if total <= MAX_DRIVER_BYTES or total * (stored_share(snapshot, files, columns) or 1) <= MAX_DRIVER_BYTES:
            return _read_and_found(snapshot, reading, files)
    except (StorageError, OSError, OnlyBySpark, pa.ArrowException) as error:
        logger.info("Records of %d files are left to Spark: %s", len(files), error)
    return None


def _is_readable(snapshot: Snapshot, parts: Sequence[Part], files: Sequence[DataFile]) -> bool:
    """Return whether Arrow can read what the parts need of the files."""
    if any(file.rows > MAX_FILE_ROWS or block_format(snapshot, file) != "parquet" for file in files):
        return False
    external = is_external(snapshot, snapshot.data)
    attached = {name for file in files for name in attached_values(snapshot, file)} if external else set[str]()

    def readable(part: Part) -> bool:
        names, plain = part.expression.columns, part.expression.column is not None
        kinds = [parse_type(snapshot.data.type_of(name)) for name in names]
        # An expression may give two results for zeros of different signs, which are one value in this code.
        known = all(arrow_type(kind) is not None and (plain or kind.kind not in _FLOATING) for kind in kinds)
        return known and arrow_type(part.type) is not None and attached.isdisjoint(names)

    return all(map(readable, parts))


def _read_and_found(snapshot: Snapshot, reading: Reading, files: Sequence[DataFile]) -> list[Known]:
    """Read the files, some at once; small ones of a local disk in one thread, which is the quickest.

    :raises OnlyBySpark: if Arrow does not read them as Spark does, or Spark would be asked of too many values.
    """
    local = snapshot.store.spark_path("").startswith("file:")
    threads = cores(snapshot.spark) if local else BUILD_THREADS
    if local and max(file.bytes for file in files) <= SMALL_FILE_BYTES:
        threads = 1
    found, answered = list[Known](), dict[int, _Answered]()
    reader = FileReader(reading.types, reading.options)
    read = partial(_rows_of_file, reading, reader)
    with ThreadPoolExecutor(threads) as pool:
        for some in _in_pieces(files):
            requests = [(file, snapshot.store.spark_path(file.path)) for file in some]
            tables = list(pool.map(read, requests) if threads > 1 else map(read, requests))
            values = _values_of_parts(snapshot, reading.making, reader.together(tables), answered)
            found += _with_row_groups(reading, some, [table.num_rows for table in tables], values)
    return found


def _in_pieces(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield files in pieces that fit into memory together."""
    some: list[DataFile] = []
    size = rows = 0
    for file in files:
        if some and (size + file.bytes > BYTES_AT_ONCE or rows + estimated_rows(file) > ROWS_AT_ONCE):
            yield some
            some, size, rows = [], 0, 0
        some.append(file)
        size, rows = size + file.bytes, rows + estimated_rows(file)
    yield some


def _rows_of_file(reading: Reading, reader: FileReader, request: tuple[DataFile, str]) -> Any:
    """Return the columns of the rows of a file.

    :raises OnlyBySpark: if Arrow does not read them as Spark does, or they are not as many as the log says.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    file, address = request
    try:
        table = reader.read(file, address)
    except pa.ArrowException as error:
        raise OnlyBySpark(f"{file.path} cannot be read: {error}") from error
    if table is None:
        raise OnlyBySpark(f"{file.path} is read by Spark alone")
    if DELETED in reading.types:
        if table.column(DELETED).null_count < table.num_rows:
            table = reader.together([table])  # Arrow filters no views
            table = table.filter(pc.is_null(table.column(DELETED)))
        table = table.drop_columns([DELETED])
    if reading.exact_rows and file.rows >= 0 and table.num_rows != file.rows - file.tombstones:
        raise OnlyBySpark(f"{file.path} has {table.num_rows} rows")
    units = reading.units.get(file.lineage, ())
    if units and table.num_rows != sum(unit.rows for unit in units):
        raise OnlyBySpark(f"{file.path} has {table.num_rows} rows, and other ones in its row groups")
    return table


def _with_row_groups(
    reading: Reading, files: Sequence[DataFile], rows: Sequence[int], values: Sequence[Any]
) -> list[Known]:
    """Return what is found of files and of their row groups, from the values of the parts in all of their rows."""
    found = reading.making.records(files, rows, values)
    if not any(file.lineage in reading.units for file in files):
        return found
    # A file without them is a unit of its own among the others.
    units = [
        reading.units.get(file.lineage, (replace(file, rows=count),)) for file, count in zip(files, rows, strict=True)
    ]
    flat = [unit for each in units for unit in each]
    known = iter(reading.making.records(flat, [unit.rows for unit in flat], values))
    row_groups = [tuple(next(known) for _ in each) for each in units]
    return [
        changed(each, row_groups=mine) if each.lineage in reading.units else each
        for each, mine in zip(found, row_groups, strict=True)
    ]


# --- Expressions, evaluated for each different value ------------------------------------------------------------------


@dataclass(frozen=True)
class _Answered:
    """The different values of an expression's columns that Spark was asked of, and what it has made of each."""

    rows: Any
    answers: Any


def _values_of_parts(
    snapshot: Snapshot, making: Making, rows: Any, answered: dict[int, _Answered], most: int = MAX_DISTINCT
) -> list[Any]:
    """Return the values of each part in all rows.

    :param answered: by the numbers of parts, what Spark was asked before; what it is asked now is added.
    :raises OnlyBySpark: if Spark would be asked of too many values.
    """
    values = []
    for number, part in enumerate(making.parts):
        if part.expression.column is not None:
            values.append(in_one_piece(rows.column(part.expression.column)))
            continue
        before = answered.pop(number, None)
        computed = None if before is None else _evaluated(snapshot, part, rows, most, before)
        if computed is None:  # the values are too many only together with the earlier ones, if at all
            computed = _evaluated(snapshot, part, rows, most, None)
        if computed is None:
            raise OnlyBySpark(f"{part.expression.shown} is of more than {most:,} different values")
        values.append(computed[0])
        answered[number] = computed[1]
    return values


def _evaluated(
    snapshot: Snapshot, part: Part, rows: Any, most: int, before: _Answered | None
) -> tuple[Any, _Answered] | None:
    """Return what Spark makes of an expression in all rows, and all that it was asked.

    :param before: what it was asked before, which it is not asked again.
    :return: ``None`` if it would be asked of too many values.
    """
    import numpy as np
    import pyarrow as pa

    rows = rows.select(list(part.expression.columns))
    known = 0 if before is None else before.rows.num_rows
    together = rows if before is None else pa.concat_tables([before.rows, rows])
    codes: Any = np.zeros(together.num_rows, np.int64)
    examples: Any = codes[:0]
    for values in together.columns:
        pieces = values.dictionary_encode(null_encoding="encode").chunks
        width = len(pieces[-1].dictionary) if pieces else 0
        if width > most:
            return None
        numbers = [piece.indices.to_numpy(zero_copy_only=False) for piece in pieces]
        codes = codes * max(width, 1) + np.concatenate([codes[:0], *numbers])
        examples, codes = first_of_each(codes, max(len(examples), 1) * max(width, 1))
        if len(examples) > most:
            return None
    new = examples >= known  # of values that were known the first example is one of those
    answers = _answers(snapshot, part, together.take(pa.array(examples[new])))
    if answers is None:
        return None
    if before is None:
        before = _Answered(together.schema.empty_table(), pa.nulls(0, answers.type))
    answered = _Answered(
        pa.concat_tables([before.rows, together.take(pa.array(examples[new]))]).combine_chunks(),
        pa.concat_arrays([before.answers, answers]),
    )
    places = np.where(new, known + np.cumsum(new) - 1, examples)
    return answered.answers.take(pa.array(places[codes[known:]])), answered


def _answers(snapshot: Snapshot, part: Part, rows: Any) -> Any | None:
    """Return what Spark makes of an expression in each of a few rows; ``None`` if that is not of the part's type."""
    import pyarrow as pa

    kind = arrow_type(part.type)
    if not rows.num_rows:
        return pa.nulls(0, kind)
    fields = [T.StructField(name, snapshot.data.field(name).dataType, True) for name in part.expression.columns]
    schema = T.StructType([*fields, T.StructField(_NUMBER, T.LongType(), False)])
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    asked = from_arrow(snapshot.spark, numbered, schema)
    table = to_arrow(asked.select(_NUMBER, F.expr(part.expression.text).alias(_VALUE))).sort_by(_NUMBER)
    answers = in_one_piece(table.column(_VALUE))
    return answers if answers.type == kind and len(answers) == rows.num_rows else None


def collect_of_rows(
    snapshot: Snapshot,
    part: Part,
    settings: Settings,
    files: Sequence[tuple[DataFile, Any]],
    units: Mapping[int, Sequence[DataFile]],
) -> list[Known] | None:
    """Return what is found of an expression in files whose rows are in memory, in their order; 0 is the part's number.

    ``None`` where only Spark could find it, by reading all rows.

    :param files: each with its rows as an Arrow table that has the columns of the expression.
    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    :raises PySparkException: what Spark raises of an expression on a row.
    """
    import pyarrow as pa

    reading = Reading(Making([part], settings), {}, {}, False, units)
    found, answered = list[Known](), dict[int, _Answered]()
    for some in _in_pieces([file for file, _ in files]) if files else ():
        tables = [rows.select(list(part.expression.columns)) for _, rows in files[len(found) :][: len(some)]]
        whole = pa.concat_tables(tables).combine_chunks()
        try:
            values = _values_of_parts(snapshot, reading.making, whole, answered, MAX_DISTINCT_IN_MEMORY)
        except OnlyBySpark:
            return None
        found += _with_row_groups(reading, some, [table.num_rows for table in tables], values)
    return found
