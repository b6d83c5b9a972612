"""Bounds, values and filters of Parquet files, computed from one reading of each file, without a job over the rows.

Arrow reads the columns, numpy does the rest (:mod:`spark_apps.indexes.skipping.summaries`): in this process where there
is little to read, else in tasks of Spark. What an expression gives, Spark alone knows; so it evaluates it, once for
each different value of the columns in it where these are few. What is not known here is left to
:mod:`spark_apps.indexes.skipping.collecting`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from spark_apps.engine.pyspark_names import F, T
from spark_apps.engine.spark_utils import cores
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.indexes.handler import IndexContext, estimated_rows
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import WORDS, ColumnRecord, FilterKind
from spark_apps.indexes.skipping.summaries import NotKnownHere, blocks_at_first, first_of_each, summarize
from spark_apps.layout.types import arrow_type, parse_type
from spark_apps.mergetree.blocks import FileReader, access_options, block_format, on_driver_alone, stored_share
from spark_apps.mergetree.external_files import attached_values, is_external
from spark_apps.mergetree.tree import DELETED, Snapshot
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile

logger = logging.getLogger(__name__)

_MOST_BYTES_HERE = 256 << 20
"""Of columns as they are stored; of more, tasks make the records."""

_BYTES_AT_ONCE = 64 << 20
_ROWS_AT_ONCE = 2_000_000
_MOST_ROWS_OF_FILE = 8_000_000
"""A file of more rows is left to Spark, which needs no memory for all of them."""

_MOST_DIFFERENT, _MOST_DIFFERENT_HELD = 20_000, 1_000_000
"""So many different values Spark evaluates an expression for; of more, it reads the rows itself, if that may be."""

_SMALL_FILE = 1 << 20
_THREADS = 16
_FLOATING = ("float", "double")
_FILTERS: tuple[FilterKind, ...] = ("bloom", "ngrams")
_NUMBER, _VALUE = "__index_number", "__index_value"


class Facts(msgspec.Struct, array_like=True):
    """The facts found of a file or of a row group: records and filters by the numbers of the parts."""

    lineage: int
    rows: int
    columns: dict[int, ColumnRecord]
    filters: list[tuple[int, FilterKind, bytes]]

    def arrays(self) -> dict[tuple[int, FilterKind], Any]:
        """Return the filters as arrays of blocks by words."""
        import numpy as np

        return {(number, kind): np.frombuffer(data, "<i8").reshape(-1, WORDS) for number, kind, data in self.filters}

    def keep_only(self, parts: frozenset[int]) -> None:
        """Leave out what was found of other parts."""
        self.columns = {number: record for number, record in self.columns.items() if number in parts}
        self.filters = [made for made in self.filters if made[0] in parts]


class Found(Facts, array_like=True):
    """The facts found of a file, and those of its row groups where these are to have records."""

    row_groups: list[Facts] = []


@dataclass(frozen=True)
class _Reading:
    """The columns that are read of files, and the parts that are made of them; goes to tasks.

    :param types: column -> its name in the files, and its Spark type. :param exact_rows: whether the log knows the rows
        of each file.
    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    """

    parts: Mapping[int, Part]
    settings: Settings
    types: Mapping[str, tuple[str, str]]
    options: Mapping[str, Any]
    exact_rows: bool
    units: Mapping[int, Sequence[DataFile]]


def collect_here(
    context: IndexContext,
    parts: Sequence[Part],
    settings: Settings,
    files: Sequence[DataFile],
    units: Mapping[int, Sequence[DataFile]],
) -> tuple[list[Found], frozenset[int]]:
    """Return what is found of files, in their order, and the numbers of the parts of which it is.

    No part at all where all is left to Spark.

    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    :raises PySparkException: what Spark raises of an expression on a row.
    """
    import pyarrow as pa

    snapshot = context.snapshot
    possible = _possible(snapshot, parts, files)
    if not possible:
        return [], frozenset()
    columns = tuple(dict.fromkeys(name for part in possible.values() for name in part.expression.columns))
    types = {name: (snapshot.data.stored(name), snapshot.data.type_of(name)) for name in columns}
    if any(file.tombstones for file in files):
        types[DELETED] = (DELETED, "boolean")
    source = snapshot.table.source
    exact_rows = source is None or source.format == "parquet"
    reading = _Reading(possible, settings, types, access_options(snapshot), exact_rows, units)
    try:
        total = sum(file.bytes for file in files)
        if total <= _MOST_BYTES_HERE or total * (stored_share(snapshot, files, columns) or 1) <= _MOST_BYTES_HERE:
            return _in_this_process(snapshot, reading, files)
        plain = {number: part for number, part in possible.items() if part.expression.column is not None}
        if not plain or on_driver_alone(snapshot):
            return [], frozenset()
        return _in_tasks(snapshot, replace(reading, parts=plain), files), frozenset(plain)
    except (StorageError, OSError, NotKnownHere, pa.ArrowException) as error:
        logger.info("Records of %d files are left to Spark: %s", len(files), error)
        return [], frozenset()


def collect_of_rows(
    snapshot: Snapshot,
    part: Part,
    settings: Settings,
    files: Sequence[tuple[DataFile, Any]],
    units: Mapping[int, Sequence[DataFile]],
) -> list[Found] | None:
    """Return what is found of an expression in files whose rows are in memory, in their order; 0 is the part's number.

    ``None`` where only Spark, reading all rows, could tell.

    :param files: each with its rows as an Arrow table that has the columns of the expression.
    :param units: lineage of a file -> its row groups as files of their own, where they are to have records.
    :raises PySparkException: what Spark raises of an expression on a row.
    :raises NotKnownHere: of values that are left to Spark.
    """
    import pyarrow as pa

    reading = _Reading({0: part}, settings, {}, {}, False, units)
    found, answered = list[Found](), dict[int, _Answered]()
    for some in _at_once([file for file, _ in files]) if files else ():
        tables = [rows.select(list(part.expression.columns)) for _, rows in files[len(found) :][: len(some)]]
        whole = pa.concat_tables(tables).combine_chunks()
        reading, values = _with_expressions(snapshot, reading, whole, answered, _MOST_DIFFERENT_HELD)
        if not values:
            return None
        found += _found(reading, some, [table.num_rows for table in tables], values)
    return found


def _possible(snapshot: Snapshot, parts: Sequence[Part], files: Sequence[DataFile]) -> dict[int, Part]:
    """Return the parts, by their numbers, whose columns Arrow can read."""
    if not files or any(file.rows > _MOST_ROWS_OF_FILE for file in files):
        return {}
    if any(block_format(snapshot, file) != "parquet" for file in files):
        return {}
    external = is_external(snapshot, snapshot.data)
    attached = {name for file in files for name in attached_values(snapshot, file)} if external else set[str]()

    def readable(part: Part) -> bool:
        names, plain = part.expression.columns, part.expression.column is not None
        kinds = [parse_type(snapshot.data.type_of(name)) for name in names]
        # Of zeros of both signs an expression may give two things, and they are one value here.
        known = all(arrow_type(kind) is not None and (plain or kind.kind not in _FLOATING) for kind in kinds)
        return known and arrow_type(part.type) is not None and attached.isdisjoint(names)

    return {number: part for number, part in enumerate(parts) if readable(part)}


# --- In this process --------------------------------------------------------------------------------------------------


def _in_this_process(
    snapshot: Snapshot, reading: _Reading, files: Sequence[DataFile]
) -> tuple[list[Found], frozenset[int]]:
    """Read the files here, some at once; small ones of a local disk in one thread, which is the quickest."""
    local = snapshot.store.spark_path("").startswith("file:")
    threads = cores(snapshot.spark) if local else _THREADS
    if local and max(file.bytes for file in files) <= _SMALL_FILE:
        threads = 1
    found: list[Found] = []
    left, answered = reading, dict[int, _Answered]()
    reader = FileReader(reading.types, reading.options)
    read = partial(_rows, reading, reader)
    with ThreadPoolExecutor(threads) as pool:
        for some in _at_once(files):
            requests = [(file, snapshot.store.spark_path(file.path)) for file in some]
            tables = list(pool.map(read, requests) if threads > 1 else map(read, requests))
            left, values = _with_expressions(snapshot, left, reader.together(tables), answered)
            found += _found(left, some, [table.num_rows for table in tables], values)
    known = frozenset(left.parts)
    for file in found:  # what a later piece left to Spark is left for all files
        for each in (file, *file.row_groups):
            each.keep_only(known)
    return found, known


def _at_once(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield files in pieces that fit into memory together."""
    some: list[DataFile] = []
    size = rows = 0
    for file in files:
        if some and (size + file.bytes > _BYTES_AT_ONCE or rows + estimated_rows(file) > _ROWS_AT_ONCE):
            yield some
            some, size, rows = [], 0, 0
        some.append(file)
        size, rows = size + file.bytes, rows + estimated_rows(file)
    yield some


def _rows(reading: _Reading, reader: FileReader, request: tuple[DataFile, str]) -> Any:
    """Return the columns of the rows of a file.

    :raises NotKnownHere: if Arrow does not read them as Spark does, or they are not as many as the log says.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    file, address = request
    try:
        table = reader.read(file, address)
    except pa.ArrowException as error:
        raise NotKnownHere(f"{file.path} cannot be read: {error}") from error
    if table is None:
        raise NotKnownHere(f"{file.path} is read by Spark alone")
    if DELETED in reading.types:
        if table.column(DELETED).null_count < table.num_rows:
            table = reader.together([table])  # Arrow filters no views
            table = table.filter(pc.is_null(table.column(DELETED)))
        table = table.drop_columns([DELETED])
    if reading.exact_rows and file.rows >= 0 and table.num_rows != file.rows - file.tombstones:
        raise NotKnownHere(f"{file.path} has {table.num_rows} rows")
    units = reading.units.get(file.lineage, ())
    if units and table.num_rows != sum(unit.rows for unit in units):
        raise NotKnownHere(f"{file.path} has {table.num_rows} rows, and other ones in its row groups")
    return table


@dataclass(frozen=True)
class _Answered:
    """The different values of an expression's columns that Spark was asked of, and what it has made of each."""

    rows: Any
    answers: Any


def _with_expressions(
    snapshot: Snapshot,
    reading: _Reading,
    rows: Any,
    answered: dict[int, _Answered],
    most: int = _MOST_DIFFERENT,
) -> tuple[_Reading, dict[int, Any]]:
    """Return the values of each part in all rows, and without the parts that have too many for Spark to be asked.

    :param answered: by the numbers of parts, what Spark was asked before; what it is asked now is added.
    """
    values: dict[int, Any] = {}
    for number, part in reading.parts.items():
        if part.expression.column is not None:
            values[number] = _one_array(rows.column(part.expression.column))
            continue
        before = answered.pop(number, None)
        computed = None if before is None else _evaluated(snapshot, part, rows, most, before)
        if computed is None:  # the values are too many only together with the earlier ones, if at all
            computed = _evaluated(snapshot, part, rows, most, None)
        if computed is not None:
            values[number], answered[number] = computed
    parts = {number: part for number, part in reading.parts.items() if number in values}
    return replace(reading, parts=parts), values


def _one_array(column: Any) -> Any:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


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
    for column in together.columns:
        pieces = column.dictionary_encode(null_encoding="encode").chunks
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
    answers = _one_array(table.column(_VALUE))
    return answers if answers.type == kind and len(answers) == rows.num_rows else None


def _found(reading: _Reading, files: Sequence[DataFile], rows: Sequence[int], values: Mapping[int, Any]) -> list[Found]:
    """Return what is found of files, from the values of the parts in all of their rows."""
    found = [Found(file.lineage, count, {}, []) for file, count in zip(files, rows, strict=True)]
    _summarize_all(reading, files, rows, values, found)
    if any(file.lineage in reading.units for file in files):
        # A file without them stands between the others as it is.
        units = [unit for file in files for unit in reading.units.get(file.lineage, (file,))]
        for each in found:
            each.row_groups = [Facts(u.lineage, u.rows, {}, []) for u in reading.units.get(each.lineage, ())]
        of_units = [one for each in found for one in each.row_groups or [Facts(each.lineage, each.rows, {}, [])]]
        _summarize_all(reading, units, [one.rows for one in of_units], values, of_units)
    return found


def _summarize_all(
    reading: _Reading, files: Sequence[DataFile], rows: Sequence[int], values: Mapping[int, Any], found: Sequence[Facts]
) -> None:
    """Add to what is found of files, or row groups, what the values of the parts in their rows tell.

    :param rows: how many of the values are of each.
    """
    for number, part in reading.parts.items():
        kinds = [kind for kind in _FILTERS if kind in part.kinds]
        blocks = {kind: [blocks_at_first(file, kind, reading.settings) for file in files] for kind in kinds}
        made = summarize(values[number], rows, part, reading.settings, blocks)
        for each, record in zip(found, made.records, strict=True):
            each.columns[number] = record
        for kind, filters in made.filters.items():
            for each, bits in zip(found, filters, strict=True):
                each.filters.append((number, kind, bits.tobytes()))


# --- In tasks ---------------------------------------------------------------------------------------------------------


def _in_tasks(snapshot: Snapshot, reading: _Reading, files: Sequence[DataFile]) -> list[Found]:
    """Have tasks of Spark read the files, as many to each as fit into its memory together."""
    encode = msgspec.msgpack.encode
    requests = [
        (bytearray(encode([
            (file, snapshot.store.spark_path(file.path), reading.units.get(file.lineage, ())) for file in some
        ])),)
        for some in _at_once(files)
    ]  # fmt: skip
    reading = replace(reading, units={})  # a task is told of its own files' alone
    asked = snapshot.spark.createDataFrame(requests, f"{_VALUE} binary").repartition(len(requests))
    answers = to_arrow(asked.mapInArrow(partial(_of_requests, reading), f"{_VALUE} binary")).column(_VALUE)
    decoder = msgspec.msgpack.Decoder(Found | str)
    found: dict[int, Found] = {}
    for answer in answers.to_pylist():
        each = decoder.decode(answer)
        if isinstance(each, str):
            raise NotKnownHere(each)
        found[each.lineage] = each
    return [found[file.lineage] for file in files]


def _of_requests(reading: _Reading, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield, in a task, what is found of the files in each row, or why it is left to Spark."""
    import pyarrow as pa

    decoder = msgspec.msgpack.Decoder(list[tuple[DataFile, str, tuple[DataFile, ...]]])
    reader = FileReader(reading.types, reading.options)
    for batch in batches:
        for data in batch.column(0).to_pylist():
            requests = decoder.decode(data)
            reading = replace(reading, units={file.lineage: units for file, _, units in requests if units})
            try:
                tables = [_rows(reading, reader, (file, address)) for file, address, _ in requests]
                whole = reader.together(tables)
                values = {
                    number: _one_array(whole.column(part.expression.column)) for number, part in reading.parts.items()
                }
                files = [file for file, _, _ in requests]
                answers: list[Any] = _found(reading, files, [table.num_rows for table in tables], values)
            except (StorageError, OSError, NotKnownHere, pa.ArrowException) as error:
                answers = [str(error)]
            encoded = [msgspec.msgpack.encode(answer) for answer in answers]
            yield pa.record_batch([pa.array(encoded, pa.binary())], names=[_VALUE])
