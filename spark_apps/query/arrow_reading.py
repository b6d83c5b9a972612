"""The rows of a read plan as Arrow record batches, without Spark.

A plan becomes an :class:`ArrowPlan`: what to read, in parts, described so that any machine can read them. A part is a
file group, or a file of a covering index that replaces files. What later deltas replaced of these is left out;
:mod:`spark_apps.query.arrow_rows` reads and merges files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import Any

from spark_apps.indexes.handler import CoveringScan
from spark_apps.indexes.lineage import LINEAGE
from spark_apps.layout.types import nested_arrow_type
from spark_apps.mergetree.blocks import access_options, block_format
from spark_apps.mergetree.external_files import THROUGH, attached_values
from spark_apps.mergetree.read import with_kept_tombstones
from spark_apps.mergetree.reader_settings import rebase_of
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.query.arrow_text import NotPlain, TextFormat, text_format
from spark_apps.query.limits import MAX_READ_THREADS, MIN_THREADED_BYTES
from spark_apps.query.planning import ReadPlan
from spark_apps.query.predicates import Predicate, predicate_of_keys
from spark_apps.query.wanted_keys import WantedKeys
from spark_apps.storage.arrow_keys import rows_without_keys
from spark_apps.storage.errors import UnsupportedSource
from spark_apps.timeline.files import DataFile, GroupKey, is_merged

BY_SPARK = "Use IndexedTable.load(spark, …).read(where)."
_LINEAGE_TYPE = "bigint"
_WAIT_SECONDS = 0.05


@dataclass(frozen=True)
class ArrowPart:
    """A part of what is read.

    :param files: of a file group in merge order; or one file of an index.
    :param entries: which of the plan's covering scans it is of, ``None`` for files of the table.
    :param keys: what the record keys of its rows that are wanted satisfy, where an index gave them.
    :param wanted: the record keys asked for that it can hold, where that is known.
    """

    files: tuple[ArrowFile, ...]
    entries: int | None = None
    keys: Predicate | None = None
    wanted: WantedKeys | None = None

    @property
    def bytes(self) -> int:
        return sum(file.file.bytes for file in self.files)


@dataclass(frozen=True)
class ArrowEntries:
    """A covering index that is read in place of data files.

    :param lineages: of these files; of ``void`` no entry is to be read. :param marked: whether entries have lineages.
    :param deltas: lineage of such a file -> the deltas over it, whose keys are no longer its.
    """

    lineages: frozenset[int]
    void: frozenset[int]
    marked: bool
    deltas: Mapping[int, tuple[ArrowFile, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrowPlan:
    """A read plan in parts that any machine can read.

    :param schema: of the rows that come out. :param options: of the store that holds the files; may hold secrets.
    """

    schema: Any
    shape: ArrowShape
    parts: tuple[ArrowPart, ...]
    entries: tuple[ArrowEntries, ...]
    options: Mapping[str, Any] = field(repr=False)

    def read(self, part: ArrowPart, threaded: bool = False) -> Iterator[Any]:
        """Yield the rows of a part, as record batches with the plan's schema.

        :param threaded: whether Arrow may use threads for the columns of a row group.
        :raises StorageError: naming a file that is gone or damaged.
        :raises UnsupportedSource: naming one whose values Arrow would not read as Spark does, and what to use instead.
        """
        if part.entries is None:
            yield from ArrowRows(self.shape, self.schema, self.options, threaded).read(
                part.files, part.keys, part.wanted
            )
        else:
            yield from _read_entries(self, part.files[0], self.entries[part.entries], threaded)

    def batches(self) -> Iterator[Any]:
        """Yield all rows, as record batches; large parts are read by several threads side by side, in no order."""
        small = sum(part.bytes for part in self.parts) < MIN_THREADED_BYTES
        threads = 1 if small else min(MAX_READ_THREADS, os.cpu_count() or 1, len(self.parts))
        if threads > 1:
            yield from _side_by_side(self.parts, self.read, threads)
            return
        for part in self.parts:
            yield from self.read(part, not small)


def arrow_schema(snapshot: Snapshot, names: Sequence[str]) -> Any:
    """Return the Arrow schema of some columns, as Spark exchanges them; timestamps with a zone are in UTC.

    :raises UnsupportedSource: naming a column whose type only Spark knows.
    """
    import pyarrow as pa

    fields = []
    for name in names:
        kind = nested_arrow_type(snapshot.data.type_of(name))
        if kind is None:
            raise UnsupportedSource(
                f"The column {name!r} of type {snapshot.data.type_of(name)} cannot be read without Spark.",
                hint=BY_SPARK,
            )
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def arrow_plan(
    plan: ReadPlan,
    names: Sequence[str],
    exact: Predicate | None,
    wanted: WantedKeys | None = None,
    by_group: Mapping[GroupKey, WantedKeys] | None = None,
) -> ArrowPlan:
    """Return what a plan reads.

    :param names: the columns to give. :param exact: rows that do not satisfy it are left out; understood in every part.
    :param wanted: record keys: rows with others are left out. Its columns are among ``names``.
    :param by_group: which of them each file group can hold, if that is known; groups that are not in it hold none.
    :raises UnsupportedSource: naming what only Spark can read.
    :raises StorageError: if a file of a source is gone or was rewritten since it was listed.
    """
    snapshot, table = plan.snapshot, plan.snapshot.table
    every_file = [file for files in plan.files.values() for file in files]
    check_readable(snapshot, every_file)
    if snapshot.external is not None:
        snapshot.external.check(every_file)
    shape = ArrowShape(
        columns=tuple(names),
        types=snapshot.data.types,
        key=table.record_key if table.source is None else (),
        ordering=table.ordering_column if table.merge_by == "ordering" else None,
        stored=dict(snapshot.data.stored_names),
        external=table.source is not None,
        rebase=rebase_of(table.source),
        predicate=plan.predicate,
        exact=exact,
        wanted=wanted,
        text=text_format_of(snapshot),
    )
    parts = []
    for group, files in with_kept_tombstones(snapshot, plan.files).items():
        some = None if by_group is None else by_group.get(group)
        if some is None and by_group is not None:
            continue
        described = [_described(plan, file) for file in files]
        if is_merged(files):
            parts += [ArrowPart((one,), wanted=some) for one in described]
        else:
            known = plan.keyed.get(group)
            keys = None if known is None else predicate_of_keys(shape.key, known)
            parts.append(ArrowPart(tuple(described), None, keys, some))
    entries = []
    for number, scan in enumerate(plan.covering_scans):
        assert scan.entries is not None  # or it would not have been chosen without Spark
        entries.append(_entries_of(plan, scan))
        parts += [
            ArrowPart((ArrowFile(file, snapshot.store.spark_path(file.path), "parquet"),), number)
            for file in scan.entries.read
        ]
    return ArrowPlan(arrow_schema(snapshot, names), shape, tuple(parts), tuple(entries), access_options(snapshot))


def _described(plan: ReadPlan, file: DataFile) -> ArrowFile:
    return described_file(
        plan.snapshot, file, plan.blocks.get(file.lineage), plan.block_counts.get(file.lineage)
    )  # fmt: skip


def described_file(
    snapshot: Snapshot, file: DataFile, blocks: frozenset[int] | None = None, block_count: int | None = None
) -> ArrowFile:
    """Return the description of a data file: all of it, or some blocks of a file that has ``block_count`` of them."""
    source = snapshot.table.source
    form = block_format(snapshot, file) or ("" if source is None else source.format)  # or it was refused
    attached = {} if source is None else attached_values(snapshot, file)
    return ArrowFile(file, snapshot.store.spark_path(file.path), form, attached, blocks, block_count)


def check_readable(snapshot: Snapshot, files: Iterable[DataFile] | None = None) -> None:
    """Check that nothing in files of a table needs Spark's own reader.

    :param files: all of the table's and its columns by default.
    :raises UnsupportedSource: naming what only Spark can read.
    """
    if files is None:
        arrow_schema(snapshot, snapshot.data.columns)
        files = () if snapshot.table.source is None else snapshot.state.files(snapshot.data.name)
    for file in files:
        _check_file(snapshot, file)


def _check_file(snapshot: Snapshot, file: DataFile) -> None:
    source = snapshot.table.source
    if source is None or block_format(snapshot, file) is not None:
        return
    through = (file.extra or {}).get(THROUGH)
    why = f"{file.path} is read through {through}" if through else f"its files are {source.format}"
    try:
        if not through and text_format(source, snapshot.data.columns) is not None:
            return
    except NotPlain as reason:
        why = str(reason)
    raise UnsupportedSource(f"The source {source.location} cannot be read without Spark: {why}.", hint=BY_SPARK)


def text_format_of(snapshot: Snapshot) -> TextFormat | None:
    """Return how a table's files of lines are read without Spark; ``None`` for others, and if they are refused."""
    source = snapshot.table.source
    try:
        return None if source is None else text_format(source, snapshot.data.columns)
    except NotPlain:
        return None  # its files are not read, or they were refused


# --- entries of a covering index in place of files --------------------------------------------------------------------


def _entries_of(plan: ReadPlan, scan: CoveringScan) -> ArrowEntries:
    assert scan.entries is not None
    over = {
        files[0].lineage: tuple(_described(plan, file) for file in files[1:])
        for files in plan.snapshot.groups(only=plan.groups).values()
        if files[0].lineage in scan.lineages and len(files) > 1
    }
    return ArrowEntries(scan.lineages, scan.entries.void, scan.entries.marked, over)


def _read_entries(plan: ArrowPlan, file: ArrowFile, entries: ArrowEntries, threaded: bool) -> Iterator[Any]:
    """Yield the rows of an entry file that replace data files, without those that deltas over these replace."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = plan.shape
    hidden = _hidden_keys(plan, entries) if entries.deltas else None
    added = [pa.field(LINEAGE, pa.int64())] if entries.marked else []
    added += [
        pa.field(name, nested_arrow_type(shape.types[name]))
        for name in (() if hidden is None else shape.key)
        if name not in shape.columns
    ]
    schema = pa.schema([*plan.schema, *added])
    read = ArrowShape(
        columns=tuple(schema.names),
        types={**shape.types, LINEAGE: _LINEAGE_TYPE},
        key=(),
        predicate=shape.predicate,
        exact=shape.exact,
        wanted=shape.wanted,
    )
    # Whichever list is the shorter; mostly there is nothing to filter at all.
    few = len(entries.lineages) < len(entries.void)
    listed = pa.array(sorted(entries.lineages if few else entries.void), pa.int64())
    for batch in ArrowRows(read, schema, plan.options, threaded).read([file]):
        rows = pa.Table.from_batches([batch])
        if entries.marked and len(listed):
            in_list = pc.is_in(rows.column(LINEAGE), value_set=listed)
            rows = rows.filter(in_list if few else pc.invert(in_list))
        if hidden is not None and rows.num_rows:
            rows = rows_without_keys(rows, hidden, (*shape.key, LINEAGE))
        yield from rows.select(plan.schema.names).cast(plan.schema).to_batches()


def _hidden_keys(plan: ArrowPlan, entries: ArrowEntries) -> Any:
    """Return the keys of the deltas over data files that an index replaces, with the lineage of their file."""
    import pyarrow as pa

    key = plan.shape.key
    schema = pa.schema([pa.field(name, nested_arrow_type(plan.shape.types[name])) for name in key])
    shape = ArrowShape(columns=key, types=plan.shape.types, key=(), stored=plan.shape.stored)
    rows = ArrowRows(shape, schema, plan.options)
    tables = []
    for lineage, files in entries.deltas.items():
        keys = pa.concat_tables([schema.empty_table(), *(table for file in files for table in rows.keys(file))])
        tables.append(keys.append_column(LINEAGE, pa.repeat(pa.scalar(lineage, pa.int64()), keys.num_rows)))
    return pa.concat_tables(tables)


# --- parts side by side -----------------------------------------------------------------------------------------------


def _side_by_side(
    parts: Sequence[ArrowPart], read: Callable[[ArrowPart], Iterator[Any]], threads: int
) -> Iterator[Any]:
    """Yield the batches of parts that some threads read; few of them wait, which bounds memory."""
    waiting: Queue[Any] = Queue(2 * threads)
    remaining, lock, ended = iter(parts), threading.Lock(), threading.Event()

    def put(item: Any) -> bool:
        while not ended.is_set():
            try:
                waiting.put(item, timeout=_WAIT_SECONDS)
                return True
            except Full:
                continue
        return False

    def work() -> None:
        whole = False
        try:
            while not ended.is_set():
                with lock:
                    part = next(remaining, None)
                if part is None:
                    break
                for batch in read(part):
                    if not put(batch):
                        return
            whole = put(None)
        finally:
            if not whole:
                ended.set()

    with ThreadPoolExecutor(threads, "rows") as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            running = threads
            while running and not ended.is_set():
                try:
                    item = waiting.get(timeout=_WAIT_SECONDS)
                except Empty:
                    continue
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            ended.set()
        for worker in workers:
            worker.result()
