"""Some file groups of a table in memory: the rows over which indexes are tried that the table does not have.

File groups are taken evenly from all of the table, as many as their columns' bytes allow; of a small table all. Files
are read one by one, in this process and without merging, as an index that keeps something of each file sees them; those
of a file group that are merged once more together, as an index of rows sees them. All of it stays in memory for all
questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spark_apps.advisor.limits import (
    MAX_BYTES,
    MAX_COUNTS,
    MAX_GROUPS,
    MAX_HELD_BYTES,
    MIN_GROUPS,
    SMALL_BYTES,
    SMALL_GROUPS,
    SMALL_ROWS,
)
from spark_apps.indexes.handler import estimated_rows
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import access_options, read_footers, stored_share
from spark_apps.mergetree.read import with_kept_tombstones
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.arrow_filter import satisfying
from spark_apps.query.arrow_reading import arrow_schema, check_readable, described_file, text_format_of
from spark_apps.query.arrow_rows import ArrowRows, ArrowShape
from spark_apps.query.predicates import Predicate
from spark_apps.storage.errors import UnsupportedSource
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import DATA_TREE

_SHORT = ("boolean", "date", "timestamp", "timestamp_ntz", "float", "double", "decimal")
_THREADS = 4


@dataclass(frozen=True)
class Block:
    """A row group or stripe of a sampled file; of one that has none, all of it.

    :param start: position of its first row in the sample's, and ``end`` of the first behind its last.
    """

    group: GroupKey
    file: DataFile
    number: int
    start: int
    end: int


class Sample:
    """File groups of a table, with the rows of their files.

    :param rows: an Arrow table of all rows, file by file. :param blocks: their positions in it, in their order.
    :param groups: that were read. :param of: how many the table has. :param types: Spark types of the columns.
    :param seen: which part of their blocks was read, from 0 to 1; less than 1 only of large ones.
    :param live: the rows that are left of these once the files of each file group are merged; itself where none are.
    :param small: whether the table is small, so that all of it was read.
    :param depth: as ``seen``, of those files of which a block was read.
    """

    def __init__(
        self,
        rows: Any,
        blocks: Sequence[Block],
        groups: Collection[GroupKey],
        of: int,
        types: Mapping[str, str],
        seen: float = 1.0,
        live: Sample | None = None,
        small: bool = False,
        depth: float = 1.0,
    ) -> None:
        self.rows = rows
        self.blocks = tuple(blocks)
        self.groups = frozenset(groups)
        self.of = of
        self.types = types
        self.seen = seen
        self.depth = depth
        self.live = self if live is None else live
        self.small = small
        self.found: dict[Any, Any] = {}
        """What was computed of the rows once for several indexes."""
        self._counts: dict[Predicate, Any] = {}
        self._files: dict[str, list[Block]] = {}
        for block in blocks:
            self._files.setdefault(block.file.path, []).append(block)

    @property
    def whole(self) -> bool:
        """True if it holds all rows of the table."""
        return len(self.groups) == self.of and self.seen == 1.0

    @property
    def files(self) -> list[tuple[GroupKey, DataFile, int, int]]:
        """Each file with its file group, and where its rows begin and end."""
        return [(of[0].group, of[0].file, of[0].start, of[-1].end) for of in self._files.values()]

    def with_columns(self, snapshot: Snapshot, names: Sequence[str]) -> Any:
        """Return all rows of a small table with some columns; those that were not read yet are, and kept.

        ``None`` where these take more memory than may be held.

        :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
        :raises StorageError: naming a file that is gone or damaged.
        """
        missing = [name for name in names if name not in self.rows.column_names]
        if missing:
            more = read_sample(snapshot, missing, merged=False)
            if not more.small:
                return None
            for name in missing:
                self.rows = self.rows.append_column(name, more.rows.column(name))
        return self.rows.select(list(names))

    def column(self, name: str, start: int, end: int) -> Any:
        """Return the values of a column in some rows, as an Arrow array."""
        return self.rows.column(name).slice(start, end - start)

    def matching(self, predicate: Predicate) -> Any:
        """Return for each row whether a predicate is true for it, as a numpy array.

        :param predicate: understood in every part, over columns of the sample.
        """
        import numpy as np
        import pyarrow.compute as pc

        outcome = satisfying(predicate, self.rows, self.types)
        return np.asarray(pc.fill_null(outcome, False).to_numpy(zero_copy_only=False), dtype=bool)

    def counts(self, predicate: Predicate) -> Any:
        """Return for each block how many of its rows satisfy a predicate, as a numpy array; see :meth:`matching`."""
        import numpy as np

        if predicate not in self._counts:
            until = np.concatenate([[0], np.cumsum(self.matching(predicate))])
            bounds = np.array([(block.start, block.end) for block in self.blocks], dtype=np.int64).reshape(-1, 2)
            if len(self._counts) >= MAX_COUNTS:
                self._counts.clear()
            self._counts[predicate] = until[bounds[:, 1]] - until[bounds[:, 0]]
        return self._counts[predicate]


def read_sample(
    snapshot: Snapshot, columns: Sequence[str], most_bytes: int = MAX_BYTES, *, merged: bool = True
) -> Sample:
    """Read some columns of some file groups of a table.

    :param columns: of the table. :param merged: whether file groups of several files are read merged, too.
    :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
    :raises StorageError: naming a file that is gone or damaged.
    """
    import pyarrow as pa

    groups = snapshot.groups()
    names = tuple(name for name in snapshot.data.columns if name in columns)
    held = _held(snapshot, names)
    small = is_small(snapshot, most_bytes) and held <= MAX_HELD_BYTES
    chosen, seen = (sorted(groups), 1.0) if small else _chosen(snapshot, groups, names, most_bytes, held)
    files = [file for key in chosen for file in groups[key]]
    check_readable(snapshot, files)
    if snapshot.external is not None:
        snapshot.external.check(files)
    numbers = {footer.file.path: footer.blocks for footer in read_footers(snapshot, files)}
    wanted = [(file, number) for file in files for number in _blocks_of(file, numbers.get(file.path, 1))]
    depth = 1.0
    if seen < 1.0:
        count = max(1, round(seen * len(wanted)))
        seen = count / len(wanted)
        every = Counter(file.path for file, _ in wanted)
        wanted = [wanted[(2 * number + 1) * len(wanted) // (2 * count)] for number in range(count)]
        depth = count / sum(every[path] for path in {file.path for file, _ in wanted})
    with ThreadPoolExecutor(_THREADS) as pool:
        tables = list(pool.map(lambda one: _read(snapshot, [one[0]], names, one[1]), wanted))
        merging = {key: groups[key] for key in chosen if len(groups[key]) > 1} if merged and seen == 1.0 else {}
        together = list(
            pool.map(lambda members: _read(snapshot, members, names), with_kept_tombstones(snapshot, merging).values())
        )
    types = {field.name: field.type for field in snapshot.table.fields}

    def made(parts: Sequence[tuple[DataFile, int | None, Any]], live: Sample | None = None) -> Sample:
        blocks, start = [], 0
        for file, number, table in parts:
            blocks.append(Block(file.group_key, file, number or 0, start, start + table.num_rows))
            start += table.num_rows
        rows = pa.concat_tables([arrow_schema(snapshot, names).empty_table(), *(table for _, _, table in parts)])
        return Sample(rows, blocks, chosen, len(groups), types, seen, live, small, depth)

    parts = [(file, number, table) for (file, number), table in zip(wanted, tables, strict=True)]
    if not merging:
        return made(parts)
    live = [part for part in parts if part[0].group_key not in merging]
    live += [(members[0], None, table) for members, table in zip(merging.values(), together, strict=True)]
    return made(parts, made(live))


def columns_only_spark_reads(snapshot: Snapshot, columns: Sequence[str]) -> frozenset[str]:
    """Return those of some columns that only Spark reads rightly, by the smallest file of the table."""
    found = set()
    smallest = min(snapshot.state.files(DATA_TREE), key=lambda file: file.bytes)
    for name in columns:
        try:
            _read(snapshot, [smallest], [name])
        except UnsupportedSource:
            found.add(name)
    return frozenset(found)


def is_small(snapshot: Snapshot, most_bytes: int = MAX_BYTES) -> bool:
    """Tell whether all of a table is read, so that what an index would hold of it is known and not estimated."""
    files = snapshot.state.files(DATA_TREE)
    return (
        sum(file.bytes for file in files) <= min(SMALL_BYTES, most_bytes)
        and sum(map(estimated_rows, files)) <= SMALL_ROWS
        and len(snapshot.groups()) <= SMALL_GROUPS
    )


def _blocks_of(file: DataFile, blocks: int) -> list[int | None]:
    """Return the numbers of the blocks that are read one by one; ``None`` for the file as a whole."""
    return [None] if blocks < 2 or file.tombstones else list(range(blocks))


def _chosen(
    snapshot: Snapshot, groups: dict[GroupKey, list[DataFile]], names: Sequence[str], most_bytes: float, held: float
) -> tuple[list[GroupKey], float]:
    """Return the file groups that are read, evenly from all of them, and which part of their blocks.

    :param held: bytes that all of their columns would take in memory.
    """
    files = [file for members in groups.values() for file in members]
    share = stored_share(snapshot, files, [snapshot.data.stored(name) for name in names])
    if share is None:
        share = column_share(snapshot.data.fields, names)
    total = share * sum(file.bytes for file in files)
    most_bytes = min(most_bytes, total * MAX_HELD_BYTES / max(held, 1))
    most = max(MIN_GROUPS, min(MAX_GROUPS, int(len(groups) * most_bytes / max(total, 1))))
    keys = sorted(groups)
    count = min(most, len(keys))
    chosen = [keys[(2 * number + 1) * len(keys) // (2 * count)] for number in range(count)]
    read = share * sum(file.bytes for key in chosen for file in groups[key])
    return chosen, min(1.0, most_bytes / max(read, 1))


def _held(snapshot: Snapshot, names: Sequence[str]) -> float:
    """Return about what some columns of all rows take in memory, by one block of the largest file."""
    files = snapshot.state.files(DATA_TREE)
    kinds = [parse_type(snapshot.data.type_of(name)) for name in names]
    if not files or all(kind.is_integer or kind.kind in _SHORT for kind in kinds):
        return 0.0
    largest = max(files, key=lambda file: file.bytes)
    check_readable(snapshot, [largest])
    if snapshot.external is not None:
        snapshot.external.check([largest])
    [blocks] = [footer.blocks for footer in read_footers(snapshot, [largest])] or [1]
    some = _read(snapshot, [largest], names, _blocks_of(largest, blocks)[0])
    return some.nbytes / max(some.num_rows, 1) * sum(map(estimated_rows, files))


def _read(snapshot: Snapshot, files: Sequence[DataFile], names: Sequence[str], block: int | None = None) -> Any:
    """Return the rows of the files of a file group, merged, or of one block of one file."""
    import pyarrow as pa

    table = snapshot.table
    schema = arrow_schema(snapshot, names)
    shape = ArrowShape(
        columns=tuple(names),
        types={one.name: one.type for one in table.fields},
        key=table.record_key if table.source is None else (),
        ordering=table.ordering_column if table.merge_by == "ordering" else None,
        stored=dict(snapshot.data.stored_names),
        external=table.source is not None,
        text=text_format_of(snapshot),
    )
    rows = ArrowRows(shape, schema, access_options(snapshot))
    described = [described_file(snapshot, file, None if block is None else frozenset((block,))) for file in files]
    return pa.Table.from_batches(rows.read(described), schema)
