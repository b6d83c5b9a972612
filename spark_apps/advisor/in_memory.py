"""The files that an index of a small table would have, made in memory of all its rows.

They are those of a build but for a few bytes: the same entries in the same order, in row groups that end about where
Spark's do. The kind's own code then looks into them (:class:`WithFiles`), so that what a query would read of the index
is counted and not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import pairwise
from typing import Any, cast

from msgspec.structs import replace

from spark_apps.advisor.packing import packed
from spark_apps.advisor.sample import Sample
from spark_apps.indexes.block import compact
from spark_apps.indexes.covering.definition import BOUNDS, LAYOUT, has_lineage, held_columns
from spark_apps.indexes.covering.index_files import entry_tree
from spark_apps.indexes.covering.scan import RowGroupRanges, ranges_of
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.indexes.keyed.entries import GROUP_COLUMNS, EntryHandler
from spark_apps.indexes.keyed.lookup import buckets_of_keys
from spark_apps.indexes.lineage import CARRIER_GROUP, LINEAGE, Coverage, indexable
from spark_apps.indexes.ranges import python_values
from spark_apps.layout.hashing import DEFAULT_HASH, between_bounds
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import BLOCK, BlockFile, column_bytes
from spark_apps.mergetree.schema import column_types
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.mergetree.write_on_driver import order_of
from spark_apps.storage.arrow_keys import in_one_piece
from spark_apps.storage.errors import UnsupportedSource
from spark_apps.storage.parquet.files import group_rows, read_footer
from spark_apps.storage.parquet.seals import seal
from spark_apps.storage.store import ObjectStore, RangedFile
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import IndexDefinition

_BOUND_VALUES = 20_000
_MOST_KEYS = 100_000
"""Of more different keys than these, whose hash Python has to take one by one, the buckets are not told."""


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


def entries(context: IndexContext, handler: EntryHandler, sample: Sample) -> tuple[Tree, Any] | None:
    """Return the entries that a secondary or record index would have of the rows of a sample, as an Arrow table.

    ``None`` where the sample lacks a column of theirs.
    """
    table = context.table
    tree = handler.tree(table, context.definition)
    names = [name for name in tree.columns if name not in GROUP_COLUMNS]
    live = sample.live
    if not set(names) <= set(live.rows.column_names):
        return None
    rows = live.rows.select(names)
    for position, name in enumerate((PARTITION, GROUP_ID)):
        if name in tree.columns:
            rows = rows.append_column(name, _of_blocks(live, [block.group[position] for block in live.blocks]))
    rows = rows.select(list(tree.columns))
    return tree, rows if table.source is None else rows.group_by(list(tree.columns)).aggregate([])


def entry_files(context: IndexContext, handler: EntryHandler, sample: Sample) -> FilesInMemory | None:
    """Return the files of a secondary or record index of a small table; ``None`` where they cannot be made here."""
    import numpy as np

    told = entries(context, handler, sample)
    if told is None:
        return None
    tree, rows = told
    buckets = _buckets(tree, rows, context.definition.shards)
    if buckets is None:
        return None
    rows = rows.take(order_of(tree, rows, np.zeros(len(rows), np.int64), buckets))
    parts = _split(rows, np.sort(buckets))
    return _files(context.snapshot, tree, {("", str(bucket)): part for bucket, part in parts.items()})


def block_files(context: IndexContext, sample: Sample) -> FilesInMemory | None:
    """Return the files of a compact index of a small table; ``None`` where they cannot be made here."""
    import numpy as np

    snapshot, definition = context.snapshot, context.definition
    told = block_entries(context, sample)
    if told is None:
        return None
    tree, by_partition = told
    ordered = {}
    for path, rows in by_partition.items():
        zeros = np.zeros(len(rows), np.int64)
        ordered[path, "0"] = rows.take(order_of(tree, rows, zeros, zeros))
    made = _files(snapshot, tree, ordered)
    covered = indexable(snapshot).values()
    extra = Coverage.single("hypothetical", definition.columns, None, covered).to_extra()
    of_covered = {file.lineage for file in covered}
    blocks = sum(block.file.lineage in of_covered for block in sample.blocks)
    carrier = _file(snapshot, tree, "", CARRIER_GROUP, 0, 0, {**extra, compact.COVERED_BLOCKS: blocks})
    return FilesInMemory((*made.files, carrier), made.bodies)


def block_entries(context: IndexContext, sample: Sample) -> tuple[Tree, dict[str, Any]] | None:
    """Return the entries that a compact index would have of a sample: partition of the index -> an Arrow table.

    ``None`` where the sample lacks a column of theirs.
    """
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
    count: dict[int, int] = {}
    for block in sample.blocks:
        count[block.file.lineage] = count.get(block.file.lineage, 0) + 1
    paths = {partition: compact.index_partition(snapshot, definition, partition).path
             for partition in {block.group[0] for block in sample.blocks}}  # fmt: skip
    rows = sample.rows.select(names)
    told: dict[str, tuple[Any, list[Any]]] = {
        LINEAGE: (pa.int64(), [block.file.lineage for block in sample.blocks]),
        BLOCK: (pa.int32(), [block.number for block in sample.blocks]),
        compact.BLOCKS: (pa.int32(), [count[block.file.lineage] for block in sample.blocks]),
        PARTITION: (pa.string(), [paths[block.group[0]] for block in sample.blocks]),
    }
    for name, (kind, values) in told.items():
        rows = rows.append_column(name, _of_blocks(sample, values, kind))
    known = np.repeat([block.file.lineage in covered for block in sample.blocks], _lengths(sample))
    rows = rows.filter(pa.array(known))
    by = [*names, *told]
    grouped = rows.group_by(by).aggregate([([], "count_all")])
    grouped = grouped.append_column(compact.ROWS, grouped.column("count_all"))
    found = {}
    for path in sorted(set(paths.values())):
        part = grouped.filter(pc.equal(grouped.column(PARTITION), path)).select(list(tree.columns))
        if len(part):
            found[path] = part
    return tree, found


def _of_blocks(sample: Sample, values: Sequence[Any], kind: Any = None) -> Any:
    """Return a column of a sample's rows that is the same in all rows of a block."""
    import numpy as np
    import pyarrow as pa

    numbers = np.repeat(np.arange(len(sample.blocks)), _lengths(sample))
    return pa.array(values, pa.string() if kind is None else kind).take(pa.array(numbers))


def _lengths(sample: Sample) -> list[int]:
    return [block.end - block.start for block in sample.blocks]


def _files(snapshot: Snapshot, tree: Tree, tables: Mapping[tuple[str, str], Any]) -> FilesInMemory:
    """Return tables, each the rows of a partition and group of an index, as its files."""
    files, bodies = [], {}
    for (partition, group), rows in tables.items():
        body = packed(snapshot, tree, rows)
        file = _file(snapshot, tree, partition, group, len(rows), len(body))
        bodies[file.path] = body
        files.append(replace(file, extra=seal(RangedFile.of(body))))
    return FilesInMemory(tuple(files), bodies)


def _file(
    snapshot: Snapshot, tree: Tree, partition: str, group: str, rows: int, size: int, extra: Any = None
) -> DataFile:
    path = f"_index/hypothetical/{tree.name}/{partition}/{group}"
    return DataFile(tree.name, partition, group, path, "base", rows, size, snapshot.state.version, extra=extra)


# --- covering indexes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoveringFile:
    """A file that a covering index would have.

    :param bytes: of all of it. :param columns: a column's name in lower case -> its bytes, of all columns.
    :param ranges: of the indexed columns in each row group.
    """

    bucket: str
    bytes: float
    columns: Mapping[str, float]
    ranges: RowGroupRanges

    def read(self, names: Sequence[str]) -> float:
        """Return the bytes that some columns take; one is read at least."""
        total = sum(self.columns.values())
        wanted = sum(self.columns.get(name.lower(), 0.0) for name in names) or min(self.columns.values(), default=0.0)
        return self.bytes * wanted / total if total else 0.0


def covering_files(context: IndexContext, sample: Sample) -> list[CoveringFile] | None:
    """Return the files of a covering index of a small table; ``None`` where they cannot be made here.

    :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
    """
    import numpy as np

    snapshot, definition = context.snapshot, context.definition
    rows = entries_to_hold(context, sample, sample.with_columns(snapshot, held_columns(context.table, definition)))
    tree = covering_tree(context, rows)
    buckets = _buckets(tree, rows, definition.shards)
    if buckets is None:
        return None
    rows = rows.take(order_of(tree, rows, np.zeros(len(rows), np.int64), buckets))
    types = column_types(context.table.fields)
    indexed = {name: parse_type(types[name]) for name in definition.columns}
    files = []
    for bucket, part in _split(rows, np.sort(buckets)).items():
        body = packed(snapshot, tree, part)
        metadata = read_footer(body)
        file = _file(snapshot, tree, "", str(bucket), len(part), len(body))
        counts = group_rows(metadata)
        schema = metadata.schema.to_arrow_schema()
        footer = BlockFile(file, file.path, "parquet", len(counts), counts, metadata, schema)
        files.append(CoveringFile(str(bucket), len(body), column_bytes(metadata), ranges_of(footer, indexed)))
    return files


def entries_to_hold(context: IndexContext, sample: Sample, rows: Any) -> Any:
    """Return those of a sample's rows that a covering index would hold, each with its file's lineage where it keeps it.

    :param rows: the columns of them that it holds.
    """
    import numpy as np
    import pyarrow as pa

    if has_lineage(context.definition):
        rows = rows.append_column(LINEAGE, _of_blocks(sample, [one.file.lineage for one in sample.blocks], pa.int64()))
    covered = {file.lineage for file in indexable(context.snapshot).values()}
    known = np.repeat([block.file.lineage in covered for block in sample.blocks], _lengths(sample))
    return rows if known.all() else rows.filter(pa.array(known))


def covering_tree(context: IndexContext, rows: Any) -> Tree:
    """Return the tree of entries; of one by ranges with bounds that deal the rows in like numbers."""
    snapshot, definition = context.snapshot, context.definition
    if definition.properties.get(LAYOUT) == "ranges":
        definition = _with_bounds(
            definition, rows, parse_type(column_types(context.table.fields)[definition.columns[0]])
        )
    held = held_columns(context.table, definition)
    return entry_tree(IndexContext(snapshot, definition, ""), held, context.table.fields)


def _with_bounds(definition: IndexDefinition, rows: Any, kind: Any) -> IndexDefinition:
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
        return None if len(rows) > _MOST_KEYS else buckets_of_keys(tree, keys, count)
    encoded = in_one_piece(keys.column(0)).dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) > _MOST_KEYS and tree.hash_function != DEFAULT_HASH:
        return None
    found = buckets_of_keys(tree, pa.table([encoded.dictionary], names=list(tree.hash_fields)), count)
    return None if found is None else np.asarray(found)[encoded.indices.to_numpy(zero_copy_only=False)]


def rows_by_bucket(tree: Tree, rows: Any, count: int) -> dict[int, Any] | None:
    """Return bucket -> its rows, in no order; ``None`` where the buckets are not found quickly."""
    import numpy as np
    import pyarrow as pa

    buckets = _buckets(tree, rows, count)
    if buckets is None:
        return None
    order = np.argsort(buckets, kind="stable")
    return _split(rows.take(pa.array(order)), buckets[order])


def _split(rows: Any, buckets: Any) -> dict[int, Any]:
    """Return bucket -> its rows, of rows in the order of their buckets."""
    import numpy as np

    starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(rows)]
    return {int(buckets[start]): rows.slice(start, end - start) for start, end in pairwise(starts) if end > start}
