"""The ``compact`` index: values of some columns -> the blocks of the files that hold them.

Made for values that repeat close together: it says in which row groups (stripes) a value occurs, not in which row, and
so stays small; a query reads those blocks only and filters their rows. It addresses files, so it lags behind writes
until it is refreshed. Follows Hive's Index Design (its reference implementation).

One entry is (values…, lineage of a file, number of a block in it, blocks that the file has, rows of it with these
values), written sorted by value. The document keeps an array of offsets a value and file; flat rows say the same, and
their statistics lead a lookup to the few row groups that it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import DataFrame, F, StructType
from spark_apps.engine.spark_utils import inline
from spark_apps.indexes.comparison import ArrowReader, Comparison, Part, counted
from spark_apps.indexes.computed import (
    Indexed,
    cannot_use,
    check_computes,
    columns_for,
    expressions_in,
    fields_in,
    indexed_by,
    read_columns,
    split_properties,
    usable_of,
    values_for,
    with_types,
)
from spark_apps.indexes.file_kinds import Answer, Blocks, Entries, FileKind, groups_with, own_files
from spark_apps.indexes.handler import (
    CannotPrune,
    IndexContext,
    IndexWork,
    KeySearch,
    PredicateProbe,
)
from spark_apps.indexes.keyed.lookup import naming_damage
from spark_apps.indexes.limits import (
    DEFAULT_MAX_VALUES,
    ENTRY_FILE_THREADS,
    ENTRY_ROW_GROUP_BYTES,
    MAX_LISTED,
    MAX_LOOKUP_ROWS,
    MAX_SHARE_OF_BLOCKS,
    ROWS_PER_ENTRY_FILE,
    SMALL_ENTRY_FILE_BYTES,
)
from spark_apps.indexes.lineage import Coverage, carriers, entry_files
from spark_apps.indexes.ranges import (
    NOTHING,
    OutOfRange,
    Range,
    has_nan_on_top,
    python_values,
    range_of,
    value_of,
)
from spark_apps.layout.partitions import parse_partition_path, partition_path
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blocks import BLOCK, BlockFile, located, read_footers
from spark_apps.mergetree.buckets import Target
from spark_apps.mergetree.read import empty, read_files, with_keys
from spark_apps.mergetree.schema import check_partition_types, column, column_types, struct_type
from spark_apps.mergetree.tree import GROUP_ID, LINEAGE, Snapshot, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.errors import InvalidInput, InvalidSchema, VerificationFailed
from spark_apps.storage.parquet.files import column_chunk
from spark_apps.storage.parquet.listed import ParquetFiles
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import (
    DATA_TREE,
    UNKNOWN_ROWS,
    AddFile,
    Field,
    IndexDefinition,
    RemoveFile,
    TableDefinition,
)

# --- entries: which blocks hold a value -------------------------------------------------------------------------------


BLOCKS = "__index_blocks"
"""Column with the number of blocks that the file has."""

ROWS = "__index_rows"
"""Column with the number of rows in the block that have the values."""


def entry_tree(table: TableDefinition, definition: IndexDefinition) -> Tree:
    """Return the entries as a tree that readers and writers know; its files are never merged."""
    types = column_types(fields_in(table, definition))
    partition_by = definition.partition_by or ()
    indexed = [one.stored for one in indexed_by(table, definition)]
    names = dict.fromkeys([*indexed, *partition_by])
    fields = [Field(name, types[name]) for name in names]
    fields += [Field(LINEAGE, "bigint"), Field(BLOCK, "int"), Field(BLOCKS, "int"), Field(ROWS, "bigint")]
    return Tree(
        name=definition.tree,
        fields=tuple(fields),
        key=(*indexed, LINEAGE, BLOCK),
        hash_fields=(),
        partition_by=partition_by,
        row_group_bytes=ENTRY_ROW_GROUP_BYTES,
    )


def index_partition(snapshot: Snapshot, definition: IndexDefinition, partition: str) -> Target:
    """Return the index partition that holds the entries of a partition of the table."""
    table, partition_by = snapshot.table, definition.partition_by or ()
    if not partition_by:
        return Target("", (), None)
    texts = dict(zip(table.partition_by, snapshot.state.partitions[partition].values, strict=True))
    values = tuple(texts[name] for name in partition_by)
    return Target(partition_path(partition_by, values, ["string"] * len(values)), values, None)


def index_partitions_of(files: Iterable[DataFile]) -> set[Target]:
    """Return the index partitions of entry files, whether or not the table still has such a partition."""
    return {Target(path, tuple(parse_partition_path(path).values()), None) for path in {f.partition for f in files}}


# --- Writing ----------------------------------------------------------------------------------------------------------


def expected_entries(
    context: IndexContext, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile]
) -> DataFrame:
    """Return the entries that data files should have.

    :raises InvalidInput: if this session may compute other values than the index holds.
    """
    rows = _rows_by_block(context, tree, files, footers)
    return _with_blocks(rows.groupBy(*map(column, rows.columns)).agg(F.count(F.lit(1)).alias(ROWS)), tree, footers)


def _rows_by_block(
    context: IndexContext, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile]
) -> DataFrame:
    """Return the values of each row of data files, with its file's lineage and its block."""
    snapshot, found = context.snapshot, indexed_by(context.table, context.definition)
    check_computes(snapshot, context.definition)
    names = [name for name in tree.columns if name not in (LINEAGE, BLOCK, BLOCKS, ROWS)]
    rows = located(snapshot, snapshot.data, files, footers, columns_for(found, names))
    if expressions_in(context.table, context.definition):
        return rows.select(*values_for(found, names), LINEAGE, BLOCK)
    return rows.select(*map(column, [*names, LINEAGE, BLOCK]))


def _with_blocks(rows: DataFrame, tree: Tree, footers: Sequence[BlockFile]) -> DataFrame:
    """Add to rows or entries how many blocks their file has, and order their columns as the tree does."""
    several = [(footer.file.lineage, footer.blocks) for footer in footers if footer.blocks > 1]
    if several:
        block_counts = F.broadcast(inline(rows.sparkSession, several, f"__index_l bigint, {BLOCKS} int"))
        rows = rows.join(block_counts, F.col(LINEAGE) == F.col("__index_l"), "left")
    blocks = F.coalesce(F.col(BLOCKS), F.lit(1)) if several else F.lit(1)
    with_blocks = rows.withColumn(BLOCKS, blocks)
    return with_blocks.select(*(column(name) for name in tree.columns if name in with_blocks.columns))


def stage_files(context: IndexContext, files: Sequence[DataFile]) -> tuple[list[AddFile], int]:
    """Write the entries of data files; return their files, and how many blocks the data files have.

    :raises VerificationFailed: if they are of another number of rows than the files have.
    """
    snapshot = context.snapshot
    tree = entry_tree(context.table, context.definition)
    footers = read_footers(snapshot, files)
    entries = expected_entries(context, tree, files, footers)
    targets = {
        index_partition(snapshot, context.definition, partition) for partition in {file.partition for file in files}
    }
    staged = stage_entries(context, tree, entries, targets, sum(f.rows for f in files))
    _check_rows(context, tree, staged, files, footers)
    by_lineage = {footer.file.lineage: footer.blocks for footer in footers}
    return staged, sum(by_lineage.get(file.lineage, 1) for file in files)


def stage_entries(
    context: IndexContext, tree: Tree, entries: DataFrame, targets: Collection[Target], rows: int
) -> list[AddFile]:
    """Write entries into index partitions.

    :param rows: of the table, about; decides on the number of files.
    """
    snapshot = context.snapshot
    pieces = max(1, -(-rows // ROWS_PER_ENTRY_FILE))
    group = F.pmod(F.xxhash64(LINEAGE), F.lit(pieces)).cast("string")
    added = stage_rows(
        snapshot.store,
        tree,
        entries.withColumn(GROUP_ID, group),
        f"{context.directory}/entries",
        sorted(targets, key=lambda target: target.path),
        kind="base",
        one_per_key=False,
    )
    return [replace(action, sequence_number=snapshot.state.version) for action in added]


def _check_rows(
    context: IndexContext,
    tree: Tree,
    staged: Sequence[AddFile],
    files: Sequence[DataFile],
    footers: Sequence[BlockFile],
) -> None:
    """Count what was written again from the files, and compare it with the log or the footers."""
    footer_rows = {footer.file.lineage: sum(footer.rows) for footer in footers if footer.rows}
    row_counts = [footer_rows.get(file.lineage, file.rows) for file in files]
    if UNKNOWN_ROWS in row_counts:
        return
    with ThreadPoolExecutor(ENTRY_FILE_THREADS) as pool:
        entry_rows = sum(pool.map(lambda action: _sum_column(context, DataFile.of(action, 0), ROWS), staged))
    if entry_rows != sum(row_counts):
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold entries of {entry_rows:,} rows in files that have "
            f"{sum(row_counts):,}; it is not committed.",
            outcome="Nothing was changed.",
            hint="Build it again; if the figures differ again, verify the table's files.",
        )


def _sum_column(context: IndexContext, file: DataFile, name: str) -> int:
    import pyarrow.compute as pc

    reader = BlockEntryFile(context.snapshot, file)
    total = reader.read(range(reader.row_groups), [name]).column(name)
    return pc.sum(total).as_py() or 0


def entries_of_files(snapshot: Snapshot, entries: DataFrame, lineages: Collection[int]) -> DataFrame:
    """Return the entries of some data files."""
    if len(lineages) <= MAX_LISTED:
        return entries.where(F.col(LINEAGE).isin(*sorted(lineages)))
    lineage_rows = inline(snapshot.spark, [(lineage,) for lineage in sorted(lineages)], "__index_l bigint")
    return entries.join(F.broadcast(lineage_rows), F.col(LINEAGE) == F.col("__index_l"), "left_semi")


# --- Lookup -----------------------------------------------------------------------------------------------------------


class BlockEntryFile:
    """An entry file, read on the driver.

    :raises StorageError: if it is not what the log says.
    """

    def __init__(self, snapshot: Snapshot, file: DataFile) -> None:
        self._path = file.path
        with naming_damage(file.path):
            self._opened = ParquetFiles(snapshot.store, snapshot.state).open(file)

    @property
    def row_groups(self) -> int:
        return len(self._opened.footer.rows)

    @property
    def fetched(self) -> int:
        """Bytes read of it."""
        return self._opened.fetched

    def ranges(self, number: int, types: Mapping[str, ColumnType]) -> dict[str, Range]:
        """Return the ranges of the columns in a row group, as far as its statistics give them."""
        footer = self._opened.footer
        on_top = has_nan_on_top(footer.metadata)
        ranges = {
            name: range_of(column_chunk(footer.metadata, number, footer.flat[name]).statistics, kind, on_top)
            for name, kind in types.items()
        }
        return {name: column_range for name, column_range in ranges.items() if column_range is not None}

    def rows_of(self, numbers: Iterable[int]) -> int:
        return sum(self._opened.footer.rows[number] for number in numbers)

    def read(self, numbers: Iterable[int], columns: Sequence[str]) -> Any:
        """Return row groups as an Arrow table."""
        with naming_damage(self._path):
            return self._opened.read_groups(list(numbers), columns)


@dataclass
class MatchingBlocks:
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
    context: IndexContext,
    files: Sequence[DataFile],
    probe: PredicateProbe,
    max_values: int,
    compared: Sequence[Indexed],
) -> MatchingBlocks | CannotPrune:
    """Return the blocks with values that can satisfy a predicate, from the entry files.

    :param compared: what of the index the predicate is held against.
    :param max_values: the most distinct values that are compared with the predicate.
    :raises StorageError: if a file is missing or damaged.
    """
    lookup = _Lookup(context, probe, max_values, compared)
    with ThreadPoolExecutor(ENTRY_FILE_THREADS) as pool:
        readers = list(pool.map(lambda file: BlockEntryFile(context.snapshot, file), files))
    selected = [(reader, lookup.row_groups(reader)) for reader in readers]
    rows = sum(reader.rows_of(numbers) for reader, numbers in selected)
    if rows > MAX_LOOKUP_ROWS:
        return CannotPrune(f"{rows:,} entries would have to be looked at", "too_many_values")
    blocks = MatchingBlocks(files=len(files))
    for reader, numbers in selected:
        if numbers:
            matches = lookup.matching(reader.read(numbers, [*lookup.types, LINEAGE, BLOCK, BLOCKS]))
            if matches is None:
                return CannotPrune(f"more than {max_values:,} values would have to be looked at", "too_many_values")
            blocks.add(matches)
    blocks.bytes = sum(reader.fetched for reader in readers)
    return blocks


class _Lookup:
    """A predicate, compared with row groups by their statistics and with entries by their values."""

    def __init__(
        self, context: IndexContext, probe: PredicateProbe, max_values: int, compared: Sequence[Indexed]
    ) -> None:
        types = column_types(fields_in(context.table, context.definition))
        self._keys = {one.stored: one.key for one in compared}
        self.types = {name: parse_type(types[name]) for name in self._keys}
        self._probe = probe
        self._max_values = max_values
        self._values_by_column = {
            name: points for name in self.types if (points := self._possible_values(name)) is not None
        }

    def _possible_values(self, name: str) -> list[Any] | None:
        """Return the few values that a column can have, if the predicate bounds them."""
        keys = self._probe.keys([self._keys[name]], MAX_LISTED)
        return None if isinstance(keys, CannotPrune) else [key[0] for key in keys]

    def row_groups(self, reader: BlockEntryFile) -> list[int]:
        """Return the row groups that can hold matching entries."""
        return [
            n for n in range(reader.row_groups)
            if self._probe.may_match({self._keys[name]: span for name, span in reader.ranges(n, self.types).items()})
        ]  # fmt: skip

    def matching(self, table: Any) -> Any:
        """Return the entries whose values can match; ``None`` if there are too many values to compare."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, possible in self._values_by_column.items():
            values_of_column = table.column(name)
            table = table.filter(pc.is_in(values_of_column, value_set=pa.array(possible, type=values_of_column.type)))
        codes, values = _distinct(table, list(self.types))
        if len(values) > self._max_values:
            return None
        kinds = list(self.types.items())
        # An INT96 has no zone for Arrow, which takes its days before the year -4712 for days that are far ahead.
        without_zone = {name for name, kind in kinds if kind.kind == "timestamp" and table.column(name).type.tz is None}

        def matches(row: Sequence[Any]) -> bool:
            row_values = {
                self._keys[name]: value_of(value, kind)
                for (name, kind), value in zip(kinds, row, strict=True)
                if not (name in without_zone and isinstance(value, OutOfRange))
            }
            return self._probe.may_match(row_values)

        hits = [code for code, row in enumerate(values) if matches(row)]
        return table.filter(pc.is_in(codes, value_set=pa.array(hits, pa.int64())))


def _distinct(table: Any, names: Sequence[str]) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return a number per row for its values in some columns, and the values of each number."""
    import pyarrow as pa

    codes, rows = pa.array([0] * table.num_rows, pa.int64()), [()]
    for name in names:
        column_codes, values = _encode(table.column(name))
        count = max(1, len(values))
        # Numbered anew after each column, so that the product never overflows.
        codes, pairs = _encode(_pair(codes, count, column_codes))
        rows = [(*rows[pair // count], values[pair % count]) for pair in pairs]
    return codes, rows


def _pair(codes: Any, count: int, column_codes: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(pc.multiply(codes, pa.scalar(count, pa.int64())), column_codes)


def _encode(values: Any) -> tuple[Any, list[Any]]:
    """Return which of the distinct values each value is, and these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(in_one_piece(values), null_encoding="encode")
    return encoded.indices.cast(pa.int64()), python_values(encoded.dictionary)


# --- Verification -----------------------------------------------------------------------------------------------------


def compared_blocks(context: IndexContext, reader: ArrowReader | None) -> Comparison | None:
    """Return the entries that the files covered should have, and those that there are of them."""
    snapshot, definition = context.snapshot, context.definition
    if reader is not None and expressions_in(context.table, definition):
        return None
    check_computes(snapshot, definition)
    tree = entry_tree(context.table, definition)
    index_files = snapshot.state.files(tree.name)
    coverage, entry = Coverage.of(index_files), entry_files(index_files)
    files = [file for file in snapshot.state.files(DATA_TREE) if file.lineage in coverage.lineages]
    lineages, footers = {file.lineage for file in files}, read_footers(snapshot, files)
    uncounted = None
    if reader is None:
        expected, stored = (empty(snapshot, tree, tree.columns) for _ in range(2))
        if files:
            expected = expected_entries(context, tree, files, footers)
            uncounted = _with_blocks(_rows_by_block(context, tree, files, footers), tree, footers)
        if entry:
            stored = entries_of_files(snapshot, read_files(snapshot, tree, entry, tree.columns), lineages)
    else:
        expected = _counted_blocks(snapshot, tree, files, footers, reader)
        stored = _of_lineages(reader.unmerged(tree, entry, tree.columns), lineages)

    def text(identity: Mapping[str, Any], texts: Sequence[str | None]) -> str:
        return f"block {identity[BLOCK]} of {texts[0]}, {texts[1]} rows"

    shown = {one.stored: one.name for one in indexed_by(context.table, definition)}
    return Comparison(
        (Part(tree.key, (BLOCKS, ROWS), expected, stored, uncounted),),
        shown={**{name: shown[name] for name in tree.key if name not in (LINEAGE, BLOCK)}, LINEAGE: "lineage"},
        text=text,
        other="wrong values",
        uncovered=sum(
            not any(file.lineage in coverage.lineages for file in group) for group in snapshot.groups().values()
        ),
        held=sum(file.rows for file in entry),
        rows=ROWS,
    )


def _counted_blocks(
    snapshot: Snapshot, tree: Tree, files: Sequence[DataFile], footers: Sequence[BlockFile], reader: ArrowReader
) -> Any:
    """Return what :func:`expected_entries` does, as an Arrow table."""
    import pyarrow as pa

    names = [name for name in tree.columns if name not in (BLOCKS, ROWS)]
    entries = counted(reader.unmerged(snapshot.data, files, names), ROWS)
    blocks = {footer.file.lineage: footer.blocks for footer in footers}
    of_entries = [blocks.get(lineage, 1) for lineage in entries[LINEAGE].to_pylist()]
    return entries.append_column(BLOCKS, pa.array(of_entries, pa.int32())).select(tree.columns)


def _of_lineages(entries: Any, lineages: Collection[int]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return entries.filter(pc.is_in(entries[LINEAGE], value_set=pa.array(sorted(lineages), pa.int64())))


# --- the handler ------------------------------------------------------------------------------------------------------


MAX_VALUES = "most_values"
"""Property: the most distinct values that are compared with a predicate; with more, the index is not used."""

COVERED_BLOCKS = "blocks"
"""In :attr:`AddFile.extra` of a carrier: how many blocks its files have."""


class CompactHandler(FileKind):
    """The kind with one entry per value and block."""

    kind: ClassVar[str] = "compact"
    by_value = True
    partitioned: ClassVar[bool] = True
    changeable: ClassVar[frozenset[str]] = frozenset({MAX_VALUES})

    # --- Definition ---------------------------------------------------------------------------------------------------

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        label = f"The compact index {definition.name!r}"
        if definition.included:
            raise InvalidInput(f"{label} has no included columns.", hint="Use kind='covering' for those.")
        if not definition.columns:
            raise InvalidInput(f"{label} has no columns.", hint="Name those that queries filter by.")
        schema, types = struct_type(table.fields), column_types(table.fields)
        indexed = read_columns(definition, types, label)
        _check_comparable(label, {one.name: types[one.name] for one in indexed if one.expression is None})
        given, written = split_properties(indexed, definition.properties)
        partition_by = definition.partition_by
        if partition_by is None:
            partition_by = table.partition_by if _has_one_spelling(schema, table.partition_by) else ()
        check_partition_types(schema, partition_by)
        return replace(
            definition, columns=tuple(one.name for one in indexed), addresses="file", partition_by=partition_by,
            shards=1, properties={**_properties(given), **written},
        )  # fmt: skip

    def complete(self, snapshot: Snapshot, definition: IndexDefinition) -> IndexDefinition:
        label = f"The compact index {definition.name!r}"
        completed, types = with_types(snapshot, definition, label)
        _check_comparable(label, {name: kind.simpleString() for name, kind in types.items()})
        return completed

    # --- Build, refresh, compaction -----------------------------------------------------------------------------------

    def entries(self, context: IndexContext, files: Sequence[DataFile]) -> Entries:
        staged, blocks = stage_files(context, files)
        metrics = {"blocks": blocks, "entries": sum(action.rows for action in staged)}
        return Entries(staged, metrics, extra={COVERED_BLOCKS: blocks})

    def without(self, context: IndexContext, lineages: AbstractSet[int]) -> Entries:
        snapshot, definition, files = context.snapshot, context.definition, own_files(context)
        coverage, live = Coverage.of(files), {file.lineage: file for file in snapshot.state.files(DATA_TREE)}
        of_index = {index_partition(snapshot, definition, live[lineage].partition).path for lineage in lineages}
        removed = [file for file in entry_files(files) if file.partition in of_index]
        remaining, added = coverage.without(lineages), list[AddFile]()
        # Entries of other files in the same index partitions stay: of other partitions of the table, and of files that
        # are gone, which keep their entries in case they come back.
        gone = remaining.lineages - live.keys()
        if removed and (gone or definition.partition_by != context.table.partition_by):
            tree = entry_tree(context.table, definition)
            kept = entries_of_files(snapshot, read_files(snapshot, tree, removed, tree.columns), remaining.lineages)
            added = stage_entries(context, tree, kept, index_partitions_of(removed), sum(f.rows for f in removed))
        return Entries(added, coverage=remaining, extra=_blocks_of(files, remaining), removed=removed)

    def merged(self, context: IndexContext, mode: Literal["quick", "full"], gone: AbstractSet[int]) -> Entries | None:
        files, dead = own_files(context), bool(gone) and mode == "full"
        by_partition: dict[str, list[DataFile]] = {}
        for file in entry_files(files):
            if mode == "full" or file.bytes < SMALL_ENTRY_FILE_BYTES:
                by_partition.setdefault(file.partition, []).append(file)
        merged = [file for some in by_partition.values() if len(some) > 1 or dead for file in some]
        if not merged:
            return None
        coverage, tree = Coverage.of(files), entry_tree(context.table, context.definition)
        entries = read_files(context.snapshot, tree, merged, tree.columns)
        # A file of a source may come back as it was: then all of its entries must be there, or none and it be
        # left uncovered. Of a keyed table only a restore brings files back, and their entries with them.
        if gone and (dead or context.table.source is None):
            live = frozenset(file.lineage for file in context.snapshot.state.files(DATA_TREE))
            entries = entries_of_files(context.snapshot, entries, live)
        added = stage_entries(context, tree, entries, index_partitions_of(merged), sum(file.rows for file in merged))
        remaining = coverage.without(gone) if dead else coverage
        metrics = {"dropped": len(gone) if dead else 0}
        return Entries(added, metrics, remaining, _blocks_of(files, remaining), merged)

    def drop_partitions(self, context: IndexContext, partitions: Collection[str]) -> IndexWork:
        if not context.table.partition_by or context.definition.partition_by != context.table.partition_by:
            return IndexWork()  # entries of files that are gone are passed over, until a compaction
        old = [file for file in entry_files(own_files(context)) if file.partition in partitions]
        if not old:
            return IndexWork()
        actions = tuple(RemoveFile(file.tree, file.path) for file in old)
        # An append: whoever rewrites these entries meanwhile writes what is void, and need not be refused.
        return IndexWork(actions, self.writes(context, actions, "append"), metrics={"files": len(old)})

    # --- Queries ------------------------------------------------------------------------------------------------------

    def answer(self, context: IndexContext, probe: PredicateProbe) -> Answer | CannotPrune:
        compared = usable_of(context.snapshot, context.definition)
        if isinstance(compared, CannotPrune):
            return compared
        refused = cannot_use(context.snapshot, context.definition)
        if refused is not None and probe.may_match(dict.fromkeys((one.key for one in compared), NOTHING)):
            return refused
        files, data_files = own_files(context), context.snapshot.state.files(DATA_TREE)
        covered = self._covered(context, files)
        if data_files and not covered:
            return CannotPrune("it covers none of the files", "covers_nothing")
        entry_files_to_read = [file for file in entry_files(files) if self._may_hold(context, file, probe)]
        most_values = int(context.definition.properties[MAX_VALUES])
        matching = find_blocks(context, entry_files_to_read, probe, most_values, compared)
        if isinstance(matching, CannotPrune):
            return matching
        remaining, total = sum(len(matching.blocks.get(lineage, ())) for lineage in covered), _blocks(files)
        if total and remaining >= MAX_SHARE_OF_BLOCKS * total:
            return CannotPrune(f"it leaves {remaining:,} of {total:,} blocks, (nearly) all of them", "no_gain")

        def left(file: DataFile) -> Blocks | bool | None:
            if file.lineage not in covered:
                return None  # whatever the log says, the index does not cover this file
            numbers = matching.blocks.get(file.lineage)
            return False if numbers is None else Blocks(frozenset(numbers), matching.of[file.lineage])

        return Answer(left, matching.files, lambda: matching.bytes)

    def key_search(self, context: IndexContext, columns: Collection[str]) -> KeySearch | None:
        snapshot, definition = context.snapshot, context.definition
        plain = [one.name for one in indexed_by(context.table, definition) if one.expression is None]
        names = [name for name in plain if name in columns]
        if not names:
            return None
        own, tree = own_files(context), entry_tree(context.table, definition)
        files, known = entry_files(own), self._covered(context, own)

        def places(keys: DataFrame, count: int) -> DataFrame:
            held = [*names, LINEAGE]
            entries = read_files(snapshot, tree, files, held) if files else empty(snapshot, tree, held)
            return with_keys(entries, keys, tree, names, count).select(LINEAGE).distinct()

        return KeySearch(
            tuple(names), tuple(tree.field(name).dataType for name in names), places,
            lambda rows: groups_with(context, known, {lineage for (lineage,) in rows}),
            len(files), sum(file.bytes for file in files),
        )  # fmt: skip

    def comparison(self, context: IndexContext, reader: ArrowReader | None = None) -> Comparison | None:
        return compared_blocks(context, reader)

    def _covered(self, context: IndexContext, own: Sequence[DataFile]) -> AbstractSet[int]:
        """Return the lineages of data files of which entries tell: rows of others are in none, or are not all rows."""
        files = context.snapshot.state.files(DATA_TREE)
        return Coverage.of(own).lineages & {file.lineage for file in files if not file.tombstones}

    def _may_hold(self, context: IndexContext, file: DataFile, probe: PredicateProbe) -> bool:
        types = {field.name: field.type for field in context.table.fields}
        try:
            values = parse_partition_path(file.partition, types)
        except InvalidInput:
            return True  # of a value that Python does not know, such as a day of the year 10000
        return probe.may_match(values)


def _check_comparable(label: str, types: Mapping[str, str]) -> None:
    """Refuse columns and expressions of types whose values are not compared one by one.

    :raises InvalidSchema: naming the first.
    """
    for name, kind in types.items():
        if parse_type(kind).kind in ("other", "char"):
            raise InvalidSchema(
                f"{label} names the column {name!r} of type {kind}, whose values are not compared one by one.",
                hint="Use columns of strings, numbers, booleans, dates, timestamps or binaries.",
            )


def _has_one_spelling(schema: StructType, names: Sequence[str]) -> bool:
    """Return whether values of these columns are written in one way, so that entries can be kept apart by them."""
    try:
        check_partition_types(schema, names)
    except InvalidSchema:
        return False
    return True


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties, checked and completed; those with a point in their name are the user's own."""
    unknown = sorted(name for name in given if name != MAX_VALUES and "." not in name)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'compact'.",
            hint=f"Known is {MAX_VALUES!r}; notes of your own have a point in their name, as 'team.owner'.",
        )
    max_values = given.get(MAX_VALUES, str(DEFAULT_MAX_VALUES))
    if not max_values.isdecimal() or int(max_values) < 1:
        raise InvalidInput(f"The index property {MAX_VALUES!r} is {max_values!r}.", hint="Give a number above 0.")
    return {**given, MAX_VALUES: max_values}


def _blocks(files: Iterable[DataFile]) -> int:
    counts = [(file.extra or {}).get(COVERED_BLOCKS) for file in carriers(files)]
    return sum(count for count in counts if isinstance(count, int))


def _blocks_of(files: Iterable[DataFile], remaining: Coverage) -> dict[str, int]:
    """Return about how many blocks the data files have that remain covered, as a carrier keeps that."""
    files = list(files)
    return {COVERED_BLOCKS: _blocks(files) * len(remaining.lineages) // max(len(Coverage.of(files).lineages), 1)}
