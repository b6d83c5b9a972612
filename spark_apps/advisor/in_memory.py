"""The files that an index would have, made in memory of the rows of a sample.

Of a small table they are those of a build but for a few bytes: the same entries in the same order, in row groups that
end about where Spark's do. The kind's own code looks into them (:class:`WithFiles`), so that what a query would read of
the index is counted and not estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import pairwise
from typing import Any, cast

import xxhash
from msgspec.structs import replace

from spark_apps.advisor.limits import MAX_FILLER_BYTES, MAX_HASHED_KEYS, MAX_ORDERED_ROWS, PACKED_BYTES
from spark_apps.advisor.packing import packed
from spark_apps.advisor.sample import Sample, columns_only_spark_reads, read_sample
from spark_apps.indexes.block import compact
from spark_apps.indexes.block.compact import CompactHandler
from spark_apps.indexes.covering.definition import BOUNDS, LAYOUT, has_lineage, held_columns
from spark_apps.indexes.covering.index_files import entry_tree, holding
from spark_apps.indexes.handler import PARTITION, IndexContext, estimated_rows
from spark_apps.indexes.keyed.entries import GROUP_COLUMNS, EntryHandler
from spark_apps.indexes.keyed.lookup import buckets_of_keys
from spark_apps.indexes.lineage import CARRIER_GROUP, LINEAGE, Coverage, indexable
from spark_apps.indexes.ranges import python_values
from spark_apps.layout.hashing import DEFAULT_HASH, RANGES, between_bounds
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import BLOCK, column_bytes, stored_share
from spark_apps.mergetree.schema import column_share, column_types
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.mergetree.write_on_driver import order_of
from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.errors import UnsupportedSource
from spark_apps.storage.parquet.files import read_footer
from spark_apps.storage.parquet.seals import seal
from spark_apps.storage.store import ObjectStore, RangedFile
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import DATA_TREE, IndexDefinition

_STAGE = "hypothetical"
_BOUND_VALUES = 20_000
"""Values from which the bounds of ranges are taken."""
_ROW_GROUP_BYTES = 128 * 1024 * 1024
"""Bytes of a row group of a covering index, as Spark writes it."""


Columns = dict[str, tuple[int, float]]
"""Name of a column in lower case -> its bytes in files that were made, and about those over all of the table."""


@dataclass(frozen=True)
class FilesInMemory:
    """Files of an index, and the bytes of each by its path."""

    files: tuple[DataFile, ...]
    bodies: Mapping[str, bytes]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class WithFiles:
    """A store that has some files more, which are in memory."""

    def __init__(self, store: ObjectStore, bodies: Mapping[str, bytes]) -> None:
        self._store = store
        self._bodies = bodies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        body = self._bodies.get(key)
        return self._store.get_range(key, start, end) if body is None else body[start:end]

    def get(self, key: str, most: int | None = None) -> bytes:
        body = self._bodies.get(key)
        return self._store.get(key, most) if body is None else body

    @classmethod
    def of(cls, store: ObjectStore, bodies: Mapping[str, bytes]) -> ObjectStore:
        """Return a store with some files more; itself where there are none."""
        return cast(ObjectStore, cls(store, bodies)) if bodies else store


class Staging(WithFiles):
    """A store that keeps in memory what is put into it, for the code of a kind whose index is tried.

    :param folder: key of the folder that the kind stages its files in.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self.staged: dict[str, bytes] = {}
        super().__init__(store, self.staged)
        self._folder = folder

    def put(self, key: str, data: bytes) -> None:
        self.staged[key] = bytes(data)

    def spark_path(self, key: str = "") -> str:
        if key.startswith(self._folder):
            raise UnsupportedSource(
                "Files that Spark writes are not made in memory.", hint="Write the bytes of the files themselves."
            )
        return self._store.spark_path(key)


# --- indexes of keys and of blocks ------------------------------------------------------------------------------------


def entries(
    context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample
) -> tuple[Tree, dict[str, Any]] | None:
    """Return the entries that an index would have of the rows of a sample: its partition -> an Arrow table.

    ``None`` where the sample lacks a column of theirs.
    """
    if isinstance(handler, EntryHandler):
        return _entries_by_key(context, handler, sample.live)
    return _entries_by_block(context, sample)


def _entries_by_key(context: IndexContext, handler: EntryHandler, live: Sample) -> tuple[Tree, dict[str, Any]] | None:
    """Return the entries of a secondary or record index.

    :param live: the rows of a sample that are left once file groups are merged.
    """
    table, tree = context.table, handler.tree(context.table, context.definition)
    names = [name for name in tree.columns if name not in GROUP_COLUMNS]
    if not set(names) <= set(live.rows.column_names):
        return None
    rows = live.rows.select(names)
    for position, name in enumerate((PARTITION, GROUP_ID)):
        if name in tree.columns:
            rows = rows.append_column(name, _of_blocks(live, [block.group[position] for block in live.blocks]))
    rows = rows.select(list(tree.columns))
    return tree, {"": rows if table.source is None else rows.group_by(list(tree.columns)).aggregate([])}


def _entries_by_block(context: IndexContext, sample: Sample) -> tuple[Tree, dict[str, Any]] | None:
    """Return the entries of a compact index."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    snapshot, definition = context.snapshot, context.definition
    names = list(definition.columns)
    if not set(names) <= set(sample.rows.column_names):
        return None
    tree = compact.entry_tree(context.table, definition)
    left_out = {*(definition.partition_by or ())} - {*names}  # one value in all of a file
    tree = replaced(tree, fields=tuple(one for one in tree.fields if one.name not in left_out))
    covered = {file.lineage for file in indexable(snapshot).values()}
    count = Counter(block.file.lineage for block in sample.blocks)
    paths = {partition: compact.index_partition(snapshot, definition, partition).path
             for partition in {block.group[0] for block in sample.blocks}}  # fmt: skip
    rows = sample.rows.select(names)
    of_blocks: dict[str, tuple[Any, list[Any]]] = {
        LINEAGE: (pa.int64(), [block.file.lineage for block in sample.blocks]),
        BLOCK: (pa.int32(), [block.number for block in sample.blocks]),
        compact.BLOCKS: (pa.int32(), [count[block.file.lineage] for block in sample.blocks]),
        PARTITION: (pa.string(), [paths[block.group[0]] for block in sample.blocks]),
    }
    for name, (kind, values) in of_blocks.items():
        rows = rows.append_column(name, _of_blocks(sample, values, kind))
    known = np.repeat([block.file.lineage in covered for block in sample.blocks], _lengths(sample))
    grouped = rows.filter(pa.array(known)).group_by([*names, *of_blocks]).aggregate([([], "count_all")])
    grouped = grouped.append_column(compact.ROWS, grouped.column("count_all"))
    found = {}
    for path in sorted(set(paths.values())):
        part = grouped.filter(pc.equal(grouped.column(PARTITION), path)).select(list(tree.columns))
        if len(part):
            found[path] = part
    return tree, found


def entry_files(context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample) -> FilesInMemory | None:
    """Return the files of an index of entries of a small table; ``None`` where they cannot be made."""
    import numpy as np

    snapshot, definition, found = context.snapshot, context.definition, entries(context, handler, sample)
    if found is None:
        return None
    tree, tables = found[0], {}
    for path, rows in found[1].items():
        buckets = _buckets(tree, rows, definition.shards)
        if buckets is None:
            return None
        ordered = rows.take(order_of(tree, rows, np.zeros(len(rows), np.int64), buckets))
        tables.update({(path, str(bucket)): part for bucket, part in _split(ordered, np.sort(buckets)).items()})
    made = _files(snapshot, tree, tables)
    if isinstance(handler, EntryHandler):
        return made
    covered = indexable(snapshot).values()
    of_covered = {file.lineage for file in covered}
    blocks = sum(block.file.lineage in of_covered for block in sample.blocks)
    return _with_carrier(snapshot, tree, made, definition.columns, {compact.COVERED_BLOCKS: blocks})


def _with_carrier(
    snapshot: Snapshot, tree: Tree, made: FilesInMemory, columns: Sequence[str], extra: Mapping[str, Any]
) -> FilesInMemory:
    """Return files with the one that says which data files they cover: all that can be."""
    covered = Coverage.single(_STAGE, columns, None, indexable(snapshot).values()).to_extra()
    carrier = _file(snapshot, tree, "", CARRIER_GROUP, 0, b"", {**covered, **extra})
    return FilesInMemory((*made.files, carrier), made.bodies)


def _of_blocks(sample: Sample, values: Sequence[Any], kind: Any = None) -> Any:
    """Return a column of a sample's rows that is the same in all rows of a block."""
    import numpy as np
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(sample.blocks)), _lengths(sample))
    return pa.array(values, pa.string() if kind is None else kind).take(pa.array(numbers))


def _lengths(sample: Sample) -> list[int]:
    return [block.end - block.start for block in sample.blocks]


def _files(
    snapshot: Snapshot,
    tree: Tree,
    tables: Mapping[tuple[str, str], Any],
    extra: Mapping[str, Any] | None = None,
    row_groups: int = 1,
) -> FilesInMemory:
    """Return tables, each the rows of a partition and group of an index, as its files.

    :param extra: what the log keeps of each file, beside the digest of its footer.
    :param row_groups: that each file has, of a tree whose row groups have no size of their own.
    """
    files, bodies = [], {}
    for (partition, group), rows in tables.items():
        body = packed(snapshot, tree, rows, row_groups)
        file = _file(snapshot, tree, partition, group, len(rows), body, {**(extra or {}), **seal(RangedFile.of(body))})
        bodies[file.path] = body
        files.append(file)
    return FilesInMemory(tuple(files), bodies)


def _file(
    snapshot: Snapshot, tree: Tree, partition: str, group: str, rows: int, body: bytes, extra: dict[str, Any]
) -> DataFile:
    # What is read of a file is remembered by its path, and another state of the table has other files.
    path = f"_index/hypothetical/{tree.name}/{partition}/{group}-{xxhash.xxh3_128_hexdigest(body)}"
    return DataFile(tree.name, partition, group, path, "base", rows, len(body), snapshot.state.version, extra=extra)


# --- covering indexes -------------------------------------------------------------------------------------------------


def covering_files(context: IndexContext, sample: Sample, about: int) -> tuple[IndexDefinition, FilesInMemory, Columns]:
    """Return the files that a covering index would have, its definition with the bounds of ranges, and its columns.

    Of a small table all of its rows are in them. Of a large one it is some rows, which may take more or less if another
    writer packs them.

    :param about: bytes that it would hold, by the footers of the table's files; decides on row groups.
    """
    import numpy as np

    snapshot, definition = context.snapshot, context.definition
    held, shards = held_columns(context.table, definition), definition.shards
    rows, whole = _rows_to_hold(context, sample, held)
    if definition.properties.get(LAYOUT) == "ranges":
        definition = _with_bounds(
            definition, rows, parse_type(column_types(context.table.fields)[definition.columns[0]])
        )
    tree = entry_tree(IndexContext(snapshot, definition, ""), held, context.table.fields)
    buckets = _buckets(tree, rows, shards)
    buckets = _buckets_about(tree, rows, shards) if buckets is None else buckets
    in_table, rows = rows, rows.take(order_of(tree, rows, np.zeros(len(rows), np.int64), buckets))
    parts = {("", str(bucket)): part for bucket, part in _split(rows, np.sort(buckets)).items()}
    row_groups = max(1, round(about / shards / _ROW_GROUP_BYTES))
    made = _files(snapshot, tree, parts, holding(held, [_STAGE]), row_groups)
    made = _with_carrier(snapshot, tree, made, held, {})
    of_table = sum(map(estimated_rows, indexable(snapshot).values()))
    times = 1.0 if whole else max(1.0, of_table / max(len(rows), 1))
    return definition, made, _bytes_by_column(made, in_table, times)


def evenly(rows: Any, most: int) -> Any:
    """Return rows, or some of them from all of the table, in their order."""
    import numpy as np

    return rows if len(rows) <= most else rows.take(np.linspace(0, len(rows) - 1, most).astype(np.int64))


def _bytes_by_column(made: FilesInMemory, rows: Any, times: float) -> Columns:
    """Return the bytes of each column in files over some rows, and about those over all rows.

    :param rows: these, as they are in the table, by the indexed column first.
    :param times: how many times as many rows there are.
    """
    first, taken = rows.column_names[0], Counter[str]()
    for body in made.bodies.values():
        taken.update(column_bytes(read_footer(body)))
    # Of the column that entries are ordered by, equal values are neighbours and take hardly more than one.
    more = _times_more_values(rows.column(first), times) if times > 1.0 else 1.0
    return {name: (size, size * (more if name == first.lower() else times)) for name, size in taken.items()}


def _rows_to_hold(context: IndexContext, sample: Sample, held: Sequence[str]) -> tuple[Any, bool]:
    """Return the rows that a covering index would hold, or some, and whether these are all.

    With their file's lineage, where it keeps that.
    """
    import numpy as np
    import pyarrow as pa

    snapshot, by_spark = context.snapshot, frozenset[str]()

    def read(names: Sequence[str]) -> tuple[Sample, Any]:
        if sample.small and (rows := sample.with_columns(snapshot, names)) is not None:
            return sample, rows
        some = read_sample(snapshot, names, PACKED_BYTES, merged=False)
        return some, some.rows.select(list(names))

    try:
        some, rows = read(held)
    except UnsupportedSource:
        by_spark = columns_only_spark_reads(snapshot, held)
        try:
            some, rows = read([name for name in held if name not in by_spark])
        except UnsupportedSource:  # in other files it is more columns
            by_spark = frozenset(held) - frozenset(sample.rows.column_names)
            some, rows = sample, sample.rows
    rows = rows.select([name for name in held if name not in by_spark])
    if has_lineage(context.definition):
        rows = rows.append_column(LINEAGE, _of_blocks(some, [one.file.lineage for one in some.blocks], pa.int64()))
    covered = {file.lineage for file in indexable(snapshot).values()}
    known = np.repeat([block.file.lineage in covered for block in some.blocks], _lengths(some))
    rows = evenly(rows if known.all() else rows.filter(pa.array(known)), MAX_ORDERED_ROWS)
    if by_spark:
        widths = {name: _width(snapshot, name) for name in by_spark}
        if not some.small:  # else they are no more than the files of a small table
            rows = evenly(rows, max(1, MAX_FILLER_BYTES // sum(widths.values())))
        for name, width in widths.items():
            rows = rows.append_column(name, _filler(width, len(rows)))
        rows = rows.select([*held, *(name for name in rows.column_names if name not in held)])
    return rows, some.small


def _width(snapshot: Snapshot, name: str) -> int:
    """Return about how many bytes a value of a column takes in the table's files."""
    files = snapshot.state.files(DATA_TREE)
    share = stored_share(snapshot, files, [snapshot.data.stored(name)])
    share = column_share(snapshot.data.fields, [name]) if share is None else share
    return max(1, round(share * sum(file.bytes for file in files) / max(sum(map(estimated_rows, files)), 1)))


def _filler(width: int, rows: int) -> Any:
    """Return a column that takes as many bytes as one of the table's which only Spark reads rightly."""
    import numpy as np
    import pyarrow as pa

    offsets = np.arange(rows + 1, dtype=np.int32) * width
    noise = np.random.default_rng(0).bytes(rows * width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(noise)])


def _times_more_values(column: Any, times: float) -> float:
    """Return about how many times as many different values a column has as some of its rows, by capture and recapture.

    :param column: of rows from all of the table, in its order. :param times: how many times as many rows there are.
    """
    import pyarrow.compute as pc

    half = len(column) // 2
    one, other = (pc.unique(part) for part in (column.slice(0, half), column.slice(half)))
    again = pc.sum(pc.is_in(one, value_set=other)).as_py() or 0
    seen = len(one) + len(other) - again
    return float(min(times, max(1.0, len(one) * len(other) / max(again, 1) / max(seen, 1))))


def _with_bounds(definition: IndexDefinition, rows: Any, kind: Any) -> IndexDefinition:
    """Return a definition with bounds that deal rows in like numbers."""
    import numpy as np
    import pyarrow as pa

    values = rows.column(definition.columns[0]).drop_null()
    some = values.take(pa.array(np.arange(0, len(values), max(1, len(values) // _BOUND_VALUES))))
    bounds = between_bounds(list(python_values(in_one_piece(some))), kind, definition.shards)
    return replace(definition, properties={**definition.properties, BOUNDS: bounds})


# --- buckets ----------------------------------------------------------------------------------------------------------


def _buckets(tree: Tree, rows: Any, count: int) -> Any | None:
    """Return the bucket of each row, as a numpy array; ``None`` where they are not found quickly."""
    import numpy as np
    import pyarrow as pa

    if count == 1 or not len(rows):
        return np.zeros(len(rows), np.int64)
    keys = rows.select(list(tree.hash_fields))
    if len(tree.hash_fields) > 1:
        return None if len(rows) > MAX_HASHED_KEYS else buckets_of_keys(tree, keys, count)
    encoded = in_one_piece(keys.column(0)).dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) > MAX_HASHED_KEYS and tree.hash_function != DEFAULT_HASH:
        return None
    found = buckets_of_keys(tree, pa.table([encoded.dictionary], names=list(tree.hash_fields)), count)
    return None if found is None else np.asarray(found)[encoded.indices.to_numpy(zero_copy_only=False)]


def _buckets_about(tree: Tree, rows: Any, count: int) -> Any:
    """Return buckets of like numbers of rows: by the order of values where it decides, else any."""
    import numpy as np
    import pyarrow.compute as pc

    buckets = np.arange(len(rows), dtype=np.int64) % count
    if tree.hash_function.startswith(RANGES):
        order = pc.sort_indices(in_one_piece(rows.column(tree.key[0])), null_placement="at_start")
        buckets[order.to_numpy()] = np.arange(len(rows), dtype=np.int64) * count // len(rows)
    return buckets


def _split(rows: Any, buckets: Any) -> dict[int, Any]:
    """Return bucket -> its rows, of rows in the order of their buckets."""
    import numpy as np

    starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(rows)]
    return {int(buckets[start]): rows.slice(start, end - start) for start, end in pairwise(starts) if end > start}
