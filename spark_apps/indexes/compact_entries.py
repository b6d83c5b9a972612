"""Entries of a compact index: which blocks of which files hold a value. Written sorted by value, and looked up.

One entry is (values…, lineage of a file, number of a block in it, blocks that the file has, rows of it with these
values). The document keeps an array of offsets a value and file; flat rows say the same, and their statistics lead a
lookup to the few row groups that it needs. Follows Hive's Index Design ("compact" index).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.indexes.handler import CannotPrune, IndexContext, Question
from spark_apps.indexes.lookup import damaged, ranged
from spark_apps.indexes.ranges import Beyond, Range, python_values, range_of, value_of
from spark_apps.layout.partitions import parse_partition_path, partition_path
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blockfiles import BlockFile, read_footers
from spark_apps.mergetree.blocks import BLOCK, located
from spark_apps.mergetree.footers import check_footer
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.placing import Target
from spark_apps.mergetree.schema import column, struct_type
from spark_apps.mergetree.tree import GROUP_ID, LINEAGE, Snapshot, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.storage.errors import LakeIndexError, VerificationFailed
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import UNKNOWN_ROWS, AddFile, IndexDefinition, TableDefinition

BLOCKS = "__index_blocks"
"""Column with the number of blocks that the file has."""

ROWS = "__index_rows"
"""Column with the number of rows in the block that have the values."""

_ROW_GROUP_BYTES = 1024 * 1024
_ROWS_A_FILE = 50_000_000
_AT_ONCE = 16
_FEW = 1000
_MOST_ROWS = 4_000_000
"""So many entries, in row groups that can hold what is asked for, are read on the driver at most."""


def entry_tree(table: TableDefinition, definition: IndexDefinition) -> Tree:
    """The entries as a tree that readers and writers know; its files are never merged."""
    schema = struct_type(table.fields)
    kept_apart = definition.partition_by or ()
    names = dict.fromkeys([*definition.columns, *kept_apart])
    fields = [T.StructField(name, schema[name].dataType, True) for name in names]
    fields += [T.StructField(LINEAGE, T.LongType()), T.StructField(BLOCK, T.IntegerType())]
    fields += [T.StructField(BLOCKS, T.IntegerType()), T.StructField(ROWS, T.LongType())]
    return Tree(
        name=definition.tree,
        schema=T.StructType(fields),
        key=(*definition.columns, LINEAGE, BLOCK),
        hash_fields=(),
        partition_by=kept_apart,
        row_group_bytes=_ROW_GROUP_BYTES,
    )


def home(snapshot: Snapshot, definition: IndexDefinition, partition: str) -> Target:
    """The index partition that tells of a partition of the table."""
    table, kept_apart = snapshot.table, definition.partition_by or ()
    if not kept_apart:
        return Target("", (), None)
    texts = dict(zip(table.partition_by, snapshot.state.partitions[partition].values, strict=True))
    values = tuple(texts[name] for name in kept_apart)
    return Target(partition_path(kept_apart, values, ["string"] * len(values)), values, None)


def homes_of(files: Iterable[DataFile]) -> set[Target]:
    """The index partitions that entry files lie in, whether or not the table has such a partition still."""
    return {Target(path, tuple(parse_partition_path(path).values()), None) for path in {f.partition for f in files}}


# --- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """Entry files that were written, the entries in them, and the blocks of the data files they tell of."""

    files: list[AddFile]
    entries: int
    blocks: int


def expected_entries(
    snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile]
) -> DataFrame:
    """The entries that data files should have."""
    names = [name for name in tree.columns if name not in (LINEAGE, BLOCK, BLOCKS, ROWS)]
    rows = located(snapshot, snapshot.data, files, footers, names)
    counted = rows.groupBy(*map(column, [*names, LINEAGE, BLOCK])).agg(F.count(F.lit(1)).alias(ROWS))
    several = [(footer.file.lineage, footer.blocks) for footer in footers if footer.blocks > 1]
    known = inline(snapshot.spark, several, f"__index_l bigint, {BLOCKS} int")
    joined = counted.join(F.broadcast(known), F.col(LINEAGE) == F.col("__index_l"), "left")
    return joined.withColumn(BLOCKS, F.coalesce(F.col(BLOCKS), F.lit(1))).select(*map(column, tree.columns))


def stage_files(context: IndexContext, files: Sequence[DataFile], kept: DataFrame | None = None) -> Staged:
    """Writes the entries of data files, beside ``kept`` ones of others in the same index partitions.

    :raises VerificationFailed: if they tell of another number of rows than the files have.
    """
    snapshot = context.snapshot
    tree = entry_tree(context.table, context.definition)
    footers = read_footers(snapshot, files)
    entries = expected_entries(snapshot, tree, files, footers)
    if kept is not None:
        entries = entries.unionByName(kept)
    targets = {home(snapshot, context.definition, partition) for partition in {file.partition for file in files}}
    staged = stage_entries(context, tree, entries, targets, sum(f.rows for f in files))
    if kept is None:
        _check_rows(context, tree, staged, files, footers)
    by_lineage = {footer.file.lineage: footer.blocks for footer in footers}
    blocks = sum(by_lineage.get(file.lineage, 1) for file in files)
    return Staged(staged, sum(action.rows for action in staged), blocks)


def stage_entries(
    context: IndexContext, tree: Tree, entries: DataFrame, targets: Collection[Target], rows: int
) -> list[AddFile]:
    """Writes entries into index partitions.

    :param rows: of the table, about; decides on the number of files.
    """
    snapshot = context.snapshot
    pieces = max(1, -(-rows // _ROWS_A_FILE))
    group = F.pmod(F.xxhash64(LINEAGE), F.lit(pieces)).cast("string")
    added = stage_rows(
        snapshot.store,
        tree,
        entries.withColumn(GROUP_ID, group),
        f"{context.directory}/entries",
        sorted(targets, key=lambda target: target.path),
        kind="base",
        one_a_key=False,
    )
    return [replace(action, place=snapshot.state.version) for action in added]


def _check_rows(
    context: IndexContext,
    tree: Tree,
    staged: Sequence[AddFile],
    files: Sequence[DataFile],
    footers: Sequence[BlockFile],
) -> None:
    """What was written is counted again from the files, and held against what the log or the footers say."""
    known = {footer.file.lineage: sum(footer.rows) for footer in footers if footer.rows}
    wanted = [known.get(file.lineage, file.rows) for file in files]
    if UNKNOWN_ROWS in wanted:
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        told = sum(pool.map(lambda action: _sum(context, DataFile.of(action, 0), ROWS), staged))
    if told != sum(wanted):
        raise VerificationFailed(
            f"The index {context.definition.name!r} would tell of {told:,} rows in files that have {sum(wanted):,}; "
            "it is not committed.",
            outcome="Nothing was changed.",
            hint="Build it again; if the figures differ again, verify the table's files.",
        )


def _sum(context: IndexContext, file: DataFile, name: str) -> int:
    import pyarrow.compute as pc

    reader = EntryFile(context.snapshot, file)
    total = reader.read(range(reader.row_groups), [name]).column(name)
    return pc.sum(total).as_py() or 0


def of_files(snapshot: Snapshot, entries: DataFrame, lineages: Collection[int]) -> DataFrame:
    """The entries of some data files."""
    if len(lineages) <= _FEW:
        return entries.where(F.col(LINEAGE).isin(*sorted(lineages)))
    known = inline(snapshot.spark, [(lineage,) for lineage in sorted(lineages)], "__index_l bigint")
    return entries.join(F.broadcast(known), F.col(LINEAGE) == F.col("__index_l"), "left_semi")


# --- looking up -------------------------------------------------------------------------------------------------


class EntryFile:
    """An entry file, read on the driver. :raises StorageError: if it is not what the log says."""

    def __init__(self, snapshot: Snapshot, file: DataFile) -> None:
        self._file = file
        self._raw, self._parquet = self._guarded(lambda: self._open(snapshot))

    def _open(self, snapshot: Snapshot) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        raw = ranged(snapshot.store, self._file)
        check_footer(raw, self._file.extra)
        parquet = pq.ParquetFile(
            pa.PythonFile(raw, mode="r"),
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
        )
        if parquet.metadata.num_rows != self._file.rows:
            raise pa.ArrowInvalid(f"it has {parquet.metadata.num_rows} rows, the log says {self._file.rows}")
        return raw, parquet

    @property
    def row_groups(self) -> int:
        return int(self._parquet.num_row_groups)

    @property
    def fetched(self) -> int:
        """Bytes read of it."""
        return self._raw.fetched

    def ranges(self, number: int, types: Mapping[str, ColumnType]) -> dict[str, Range]:
        """What the columns can hold in a row group, as far as its statistics tell."""
        group = self._parquet.metadata.row_group(number)
        places = {name: self._parquet.schema_arrow.get_field_index(name) for name in types}
        found = {name: range_of(group.column(places[name]).statistics, kind) for name, kind in types.items()}
        return {name: held for name, held in found.items() if held is not None}

    def rows_of(self, numbers: Iterable[int]) -> int:
        return sum(self._parquet.metadata.row_group(number).num_rows for number in numbers)

    def read(self, numbers: Iterable[int], columns: Sequence[str]) -> Any:
        """Row groups as an Arrow table."""
        return self._guarded(
            lambda: self._parquet.read_row_groups(list(numbers), columns=list(columns), use_threads=False)
        )

    def _guarded(self, call: Callable[[], Any]) -> Any:
        import pyarrow as pa

        try:
            return call()
        except (pa.ArrowException, OSError, LakeIndexError) as error:
            raise damaged(self._file.path, error) from error


@dataclass
class FoundBlocks:
    """The blocks that can hold matching rows, by lineage, and how many blocks each of these files has."""

    blocks: dict[int, set[int]] = field(default_factory=dict)
    of: dict[int, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0

    def add(self, table: Any) -> None:
        columns = (table.column(name).to_pylist() for name in (LINEAGE, BLOCK, BLOCKS))
        for lineage, block, of in zip(*columns, strict=True):
            self.blocks.setdefault(lineage, set()).add(block)
            self.of[lineage] = of


def find_blocks(
    context: IndexContext, files: Sequence[DataFile], question: Question, most_values: int
) -> FoundBlocks | CannotPrune:
    """The blocks with values that can satisfy a predicate, from the entry files.

    :param most_values: so many distinct values are put to the question at most.
    :raises StorageError: if a file is missing or damaged.
    """
    lookup = _Lookup(context, question, most_values)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        readers = list(pool.map(lambda file: EntryFile(context.snapshot, file), files))
    wanted = [(reader, lookup.row_groups(reader)) for reader in readers]
    rows = sum(reader.rows_of(numbers) for reader, numbers in wanted)
    if rows > _MOST_ROWS:
        return CannotPrune(f"{rows:,} entries would have to be looked at", "too_many_values")
    found = FoundBlocks(files=len(files))
    for reader, numbers in wanted:
        if numbers:
            told = lookup.matching(reader.read(numbers, [*lookup.types, LINEAGE, BLOCK, BLOCKS]))
            if told is None:
                return CannotPrune(f"more than {most_values:,} values would have to be looked at", "too_many_values")
            found.add(told)
    found.bytes = sum(reader.fetched for reader in readers)
    return found


class _Lookup:
    """One question, put to row groups by their statistics and to entries by their values."""

    def __init__(self, context: IndexContext, question: Question, most_values: int) -> None:
        schema = struct_type(context.table.fields)
        self.types = {name: parse_type(schema[name].dataType.simpleString()) for name in context.definition.columns}
        self._question = question
        self._most = most_values
        self._points = {name: points for name in self.types if (points := self._points_of(name)) is not None}

    def _points_of(self, name: str) -> list[Any] | None:
        """The few values that a column can have, if the question says so."""
        keys = self._question.keys([name], _FEW)
        return None if isinstance(keys, CannotPrune) else [key[0] for key in keys]

    def row_groups(self, reader: EntryFile) -> list[int]:
        """Row groups that can hold matching entries."""
        return [n for n in range(reader.row_groups) if self._question.may_match(reader.ranges(n, self.types))]

    def matching(self, table: Any) -> Any:
        """The entries whose values can match; ``None`` if there are too many values to ask about."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, points in self._points.items():
            held = table.column(name)
            table = table.filter(pc.is_in(held, value_set=pa.array(points, type=held.type)))
        codes, values = _distinct(table, list(self.types))
        if len(values) > self._most:
            return None
        kinds = list(self.types.items())
        # An INT96 has no zone for Arrow, which takes its days before the year -4712 for days that are far ahead.
        unsure = {name for name, kind in kinds if kind.kind == "timestamp" and table.column(name).type.tz is None}

        def matches(row: Sequence[Any]) -> bool:
            told = {
                name: value_of(value, kind)
                for (name, kind), value in zip(kinds, row, strict=True)
                if not (name in unsure and isinstance(value, Beyond))
            }
            return self._question.may_match(told)

        hits = [code for code, row in enumerate(values) if matches(row)]
        return table.filter(pc.is_in(codes, value_set=pa.array(hits, pa.int64())))


def _distinct(table: Any, names: Sequence[str]) -> tuple[Any, list[tuple[Any, ...]]]:
    """A number a row that stands for its values in some columns, and the values that each number stands for."""
    import pyarrow as pa

    codes, rows = pa.array([0] * table.num_rows, pa.int64()), [()]
    for name in names:
        places, values = _encoded(table.column(name))
        count = max(1, len(values))
        # Numbered anew after each column, so that the product never overflows.
        codes, pairs = _encoded(_pair(codes, count, places))
        rows = [(*rows[pair // count], values[pair % count]) for pair in pairs]
    return codes, rows


def _pair(codes: Any, count: int, places: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(pc.multiply(codes, pa.scalar(count, pa.int64())), places)


def _encoded(values: Any) -> tuple[Any, list[Any]]:
    """Which of the distinct values each value is, and these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    encoded = pc.dictionary_encode(whole, null_encoding="encode")
    return encoded.indices.cast(pa.int64()), python_values(encoded.dictionary)
