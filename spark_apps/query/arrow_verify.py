"""The comparison of an index with the rows of its table in this process, without Spark: for what is small.

It finds what :meth:`~spark_apps.indexes.handler.IndexHandler.verify` finds of live entries: of a keyed table's
``record`` and ``secondary`` indexes, and of ``compact`` and ``covering`` ones. Every row and entry becomes a Python
object. Other kinds, and indexes of keys over registered sources, are compared by Spark alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_apps.indexes.block.compact import BLOCKS, ROWS, CompactHandler
from spark_apps.indexes.block.compact import entry_tree as block_entry_tree
from spark_apps.indexes.covering import index_files as covering_files
from spark_apps.indexes.covering.covering import CoveringHandler
from spark_apps.indexes.covering.definition import has_lineage, hash_of
from spark_apps.indexes.handler import (
    EXAMPLES,
    PARTITION,
    Difference,
    IndexContext,
    VerificationReport,
    unreadable,
)
from spark_apps.indexes.keyed.entries import GROUP_COLUMNS, WRONG_SHARD, EntryHandler
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files, indexable
from spark_apps.indexes.registry import check_columns, find
from spark_apps.layout.hashing import bucket_id, on_driver
from spark_apps.layout.types import nested_arrow_type
from spark_apps.mergetree.blocks import BLOCK, access_options, read_footers
from spark_apps.mergetree.read import with_kept_tombstones
from spark_apps.mergetree.reader_settings import rebase_of
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.query.arrow_reading import check_readable, described_file, text_format_of
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.storage.parquet.seals import check_seal
from spark_apps.storage.store import open_key
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import COVERS, DATA_TREE, TableDefinition

_NAN = object()
"""In place of a NaN, which equals no other NaN in Python and all of them in Spark."""

Key = tuple[Any, ...]


@dataclass
class _Pair:
    """The rows and the entry of one key: how many rows, and where the rows and the entry say that they are."""

    rows: int = 0
    expected: str | None = None
    entries: int = 0
    said: str | None = None
    values: Mapping[str, Any] | None = None


def verify_entries(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compare an index with the rows that it covers.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: if only Spark can compare it.
    :raises InvalidSchema: if it is over a column that the table does not have.
    :raises UnsupportedSource: naming a file of a source that only Spark can read.
    :raises StorageError: if a file of the table is gone or damaged.
    """
    definition = snapshot.state.index(name).definition
    check_columns(snapshot.table, definition)
    handler = find(definition.kind)
    context = IndexContext(snapshot, definition, "")
    if snapshot.external is not None:
        snapshot.external.check(())
    check_readable(snapshot)
    computed = handler.expressions(snapshot.table, definition)
    try:
        if type(handler) is CompactHandler and not computed:
            return _compare_blocks(context)
        if type(handler) is CoveringHandler and on_driver(hash_of(definition)) and not computed:
            return _compare_covering(context)
        if isinstance(handler, EntryHandler) and snapshot.table.source is None and not computed:
            return _compare(context, handler, handler.tree(snapshot.table, definition))
    except StorageError as error:
        return unreadable(context, snapshot.state.files(definition.tree), error)
    what = f"of kind {definition.kind}" if snapshot.table.source is None else "of a registered source"
    what = "over expressions" if computed else what
    raise InvalidInput(
        f"The index {name!r} {what} is compared with the rows by Spark alone.",
        hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
    )


def _compare(context: IndexContext, handler: EntryHandler, tree: Tree) -> VerificationReport:
    snapshot, definition = context.snapshot, context.definition
    index, groups = snapshot.state.index(definition.name), snapshot.groups()
    covered = {group for group in groups if index.covers(group)}
    pairs: dict[Key, _Pair] = {}
    own = [name for name in tree.columns if name not in GROUP_COLUMNS]
    for group, row in _rows(snapshot, snapshot.data, own, covered):
        row |= {PARTITION: group[0], GROUP_ID: group[1]}
        pair = pairs.setdefault(_key(tree, row), _Pair())
        pair.rows, pair.expected = pair.rows + 1, _location(tree, row)
    misplaced: list[Difference] = []
    types = [tree.type_of(name) for name in tree.hash_fields]
    wrong_shard = 0
    for group, entry in _rows(snapshot, tree, tree.columns, None):
        pair = pairs.setdefault(_key(tree, entry), _Pair())
        pair.entries, pair.said, pair.values = pair.entries + 1, _location(tree, entry), entry
        hashed = [entry[name] for name in tree.hash_fields]
        shard = str(bucket_id(hashed, definition.shards, tree.hash_function, types))
        if shard != group[1]:
            wrong_shard += 1
            if len(misplaced) < EXAMPLES:
                key = {name: entry[name] for name in tree.key if name not in GROUP_COLUMNS}
                misplaced.append(Difference(WRONG_SHARD, key, f"shard {group[1]}", f"shard {shard}"))
    counts = dict.fromkeys(("missing", "too many", "wrong partition", "of no group", "not compared", "agree"), 0)
    lazy = handler.keeps_old_entries(definition)
    examples: list[Difference] = []
    for values, pair in pairs.items():
        fault = _fault(snapshot.table, snapshot, pair, groups.keys(), covered)
        counts[fault] += 1
        told = fault in ("missing", "wrong partition") or (fault == "too many" and not lazy)
        if told and len(examples) < EXAMPLES:
            named = {name: value for name, value in zip(tree.key, values, strict=True) if name not in GROUP_COLUMNS}
            examples.append(Difference(fault, named, pair.said, pair.expected))
    return VerificationReport(
        index=definition.name,
        version=snapshot.state.version,
        rows=sum(pair.rows for pair in pairs.values()),
        entries=sum(pair.entries for pair in pairs.values()),
        missing=counts["missing"],
        too_many=0 if lazy else counts["too many"],
        wrong_partition=counts["wrong partition"],
        stale=counts["of no group"] + (counts["too many"] if lazy else 0),
        uncovered=len(groups) - len(covered),
        differences=(*examples, *misplaced),
        wrong_shard=wrong_shard,
    )


def _fault(table: TableDefinition, snapshot: Snapshot, pair: _Pair, groups: Any, covered: set[GroupKey]) -> str:
    if pair.rows == 0:
        assert pair.values is not None
        group = _group_of(table, snapshot, pair.values)
        return "of no group" if group not in groups else "too many" if group in covered else "not compared"
    if pair.entries == 0:
        return "missing"
    return "wrong partition" if pair.rows > 1 or pair.expected != pair.said else "agree"


def _group_of(table: TableDefinition, snapshot: Snapshot, entry: Mapping[str, Any]) -> GroupKey | None:
    """Return the file group that an entry points into, ``None`` if its partition is gone."""
    partition = entry[PARTITION]
    if GROUP_ID in entry:
        return partition, entry[GROUP_ID]
    known = snapshot.state.partitions.get(partition)
    if known is None or known.buckets is None:
        return None
    names = table.hash_fields or table.record_key
    types = [snapshot.data.type_of(name) for name in names]
    bucket = bucket_id([entry[name] for name in names], known.buckets, table.hash_function, types)
    return partition, str(bucket)


def _key(tree: Tree, row: Mapping[str, Any]) -> Key:
    return tuple(_NAN if row[name] != row[name] else row[name] for name in tree.key)


def _location(tree: Tree, row: Mapping[str, Any]) -> str:
    return " group ".join(str(row[name]) for name in GROUP_COLUMNS if name in tree.columns)


def _rows(
    snapshot: Snapshot, tree: Tree, names: Sequence[str], only: set[GroupKey] | None
) -> Iterator[tuple[GroupKey, dict[str, Any]]]:
    """Yield the merged rows of the file groups of a tree, each with its group."""
    import pyarrow as pa

    table = snapshot.table
    shape = ArrowShape(
        columns=tuple(names),
        types={field.name: field.type for field in tree.fields},
        key=tree.key,
        ordering=table.ordering_column if tree.name == DATA_TREE and table.merge_by == "ordering" else None,
        stored=dict(tree.stored_names),
    )
    schema = pa.schema([pa.field(name, nested_arrow_type(tree.type_of(name))) for name in names])
    reader = ArrowRows(shape, schema, access_options(snapshot))
    groups = snapshot.groups(tree.name)
    for group, files in (with_kept_tombstones(snapshot, groups) if tree.name == DATA_TREE else groups).items():
        if only is not None and group not in only:
            continue
        described = [ArrowFile(file, snapshot.store.spark_path(file.path), "parquet") for file in files]
        for batch in reader.read(described):
            for row in batch.to_pylist():
                yield group, row


# --- indexes that address files ---------------------------------------------------------------------------------------


def _compare_blocks(context: IndexContext) -> VerificationReport:
    """Compare a compact index: each value of each block of the files covered, with how often it stands there."""
    snapshot, tree = context.snapshot, block_entry_tree(context.table, context.definition)
    index_files = snapshot.state.files(tree.name)
    coverage = Coverage.of(index_files)
    files = [file for file in snapshot.state.files(DATA_TREE) if file.lineage in coverage.lineages]
    names = [name for name in tree.columns if name not in (LINEAGE, BLOCK, BLOCKS, ROWS)]
    expected: dict[Key, tuple[int, int]] = {}
    blocks = {footer.file.lineage: footer.blocks for footer in read_footers(snapshot, files)}
    for file in files:
        count = blocks.get(file.lineage, 1)
        for number in range(count):
            rows = Counter(_plain_rows(snapshot, file, names, None if file.lineage not in blocks else number))
            expected |= {(*values, file.lineage, number): (count, times) for values, times in rows.items()}
    live, types = {file.lineage for file in files}, {field.name: field.type for field in tree.fields}
    said: dict[Key, list[tuple[int, int]]] = {}
    stale = 0
    for file in entry_files(index_files):
        for entry in _entry_rows(snapshot, types, file, [*names, LINEAGE, BLOCK, BLOCKS, ROWS]):
            *key, of_blocks, rows_told = entry
            if key[-2] in live:
                said.setdefault(tuple(key), []).append((of_blocks, rows_told))
            else:
                stale += 1
    counts = dict.fromkeys(("missing", "too many", "wrong values", "agree"), 0)
    examples: list[Difference] = []
    for values in dict.fromkeys([*expected, *said]):
        there, told = expected.get(values), said.get(values)
        fault = (
            "missing" if told is None else "too many" if there is None
            else "agree" if told == [there] else "wrong values"
        )  # fmt: skip
        counts[fault] += 1
        if fault != "agree" and len(examples) < EXAMPLES:
            one = max(told) if told else None
            named = {**dict(zip(names, values, strict=False)), "lineage": values[-2]}
            examples.append(Difference(fault, named, _block_text(values[-1], one), _block_text(values[-1], there)))
    return VerificationReport(
        index=context.definition.name, version=snapshot.state.version, rows=sum(n for _, n in expected.values()),
        entries=sum(map(len, said.values())), missing=counts["missing"], too_many=counts["too many"], wrong_partition=0,
        stale=stale, differences=tuple(examples), wrong_values=counts["wrong values"],
        uncovered=sum(
            not any(file.lineage in coverage.lineages for file in group) for group in snapshot.groups().values()
        ),
    )  # fmt: skip


def _block_text(block: int, told: tuple[int, int] | None) -> str | None:
    return None if told is None else f"block {block} of {told[0]}, {told[1]} rows"


def _compare_covering(context: IndexContext) -> VerificationReport:
    """Compare a covering index: the rows of the files covered, each with its bucket, and the entries."""
    snapshot, definition = context.snapshot, context.definition
    index_files = snapshot.state.files(definition.tree)
    coverage, files = Coverage.of(index_files), entry_files(index_files)
    live = {file.lineage: file for file in indexable(snapshot).values()}
    covered = coverage.lineages & live.keys()
    if not has_lineage(definition) and covered != coverage.lineages:
        covered = frozenset()  # of which file a row is cannot be known any more, and no query relies on it
    identity = covering_files.identity_columns(context)
    types = {**{field.name: field.type for field in context.table.fields}, LINEAGE: "bigint"}
    rows: dict[Key, Counter[Key]] = {}
    entries: dict[Key, Counter[Key]] = {}
    stray = sorted({name for part in coverage.parts for name in part.columns} - types.keys())
    if stray:
        raise covering_files.damaged(context, f"holds a column {stray[0]!r}, which is none of the table's", COVERS)
    for columns, lineages in covering_files.by_columns(context, coverage, covered).items():
        held = [*columns, *([LINEAGE] if has_lineage(definition) else [])]
        places, hashed = [held.index(name) for name in identity], [columns.index(name) for name in definition.columns]
        kinds = [types[name] for name in definition.columns]
        for lineage in lineages:
            for values in _rows_as_they_lie(snapshot, live[lineage], columns):
                key = [values[place] for place in hashed]
                bucket = bucket_id(key, definition.shards, hash_of(definition), kinds)
                row = (*map(_hashable, values), *([lineage] if has_lineage(definition) else []), str(bucket))
                rows.setdefault(tuple(row[place] for place in places), Counter())[row] += 1
        wanted = frozenset(lineages)
        for file in files:
            known = [name for name in held if name == LINEAGE or name in covering_files.columns_of(file)]
            for values in _entry_rows(snapshot, types, file, known):
                entry = dict(zip(known, values, strict=True))
                if has_lineage(definition) and entry[LINEAGE] not in wanted:
                    continue
                row = (*(entry.get(name) for name in held), file.group)
                entries.setdefault(tuple(row[place] for place in places), Counter())[row] += 1
    counts = dict.fromkeys(("missing", "too many", "wrong values"), 0)
    examples: list[Difference] = []
    for values in dict.fromkeys([*rows, *entries]):
        there, told = rows.get(values, Counter()), entries.get(values, Counter())
        fewer, more = there - told, told - there
        other = min(fewer.total(), more.total())
        found = {"missing": fewer.total() - other, "too many": more.total() - other, "wrong values": other}
        for fault, count in found.items():
            counts[fault] += count
        if fewer or more:
            fault = "wrong values" if other else "missing" if fewer else "too many"
            named = {name: value for name, value in zip(identity, values, strict=True) if name != LINEAGE}
            if len(examples) < EXAMPLES:
                told_of, expected = (str(next(iter(some))) if some else None for some in (more, fewer))
                examples.append(Difference(fault, named, told_of, expected))
    compared, count = (sum(counter.total() for counter in some.values()) for some in (rows, entries))
    return VerificationReport(
        index=definition.name, version=snapshot.state.version, rows=compared, entries=count,
        missing=counts["missing"], too_many=counts["too many"], wrong_partition=0,
        stale=max(0, sum(file.rows for file in files) - count), uncovered=len(live) - len(covered),
        differences=tuple(examples), wrong_values=counts["wrong values"],
    )  # fmt: skip


def _rows_as_they_lie(
    snapshot: Snapshot, file: DataFile, names: Sequence[str], block: int | None = None
) -> Iterator[Key]:
    """Yield the values of a data file's rows, of all of them or of one block, merged with nothing."""
    described = described_file(snapshot, file)
    if block is not None:
        described = replace(described, blocks=frozenset((block,)))
    types = {field.name: field.type for field in snapshot.table.fields}
    shape = ArrowShape(
        tuple(names), types, (), stored=dict(snapshot.data.stored_names), text=text_format_of(snapshot),
        external=snapshot.table.source is not None, rebase=rebase_of(snapshot.table.source),
    )  # fmt: skip
    yield from _values(snapshot, shape, described)


def _plain_rows(snapshot: Snapshot, file: DataFile, names: Sequence[str], block: int | None) -> Iterator[Key]:
    return (tuple(map(_hashable, values)) for values in _rows_as_they_lie(snapshot, file, names, block))


def _entry_rows(snapshot: Snapshot, types: Mapping[str, str], file: DataFile, names: Sequence[str]) -> Iterator[Key]:
    """Yield the values of the entries of a file of an index."""
    shape = ArrowShape(tuple(names), types, ())
    described = ArrowFile(file, snapshot.store.spark_path(file.path), "parquet")
    try:
        check_seal(open_key(snapshot.store, file.path, file.bytes), file.extra)
    except OSError as error:
        raise StorageError(f"The index file {file.path} cannot be read: {error}.") from error
    return (tuple(map(_hashable, values)) for values in _values(snapshot, shape, described))


def _values(snapshot: Snapshot, shape: ArrowShape, file: ArrowFile) -> Iterator[Key]:
    import pyarrow as pa

    schema = pa.schema([pa.field(name, nested_arrow_type(shape.types[name])) for name in shape.columns])
    for batch in ArrowRows(shape, schema, access_options(snapshot)).read([file]):
        try:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except (OverflowError, ValueError) as error:
            raise InvalidInput(
                f"{file.file.path} holds a value that Python does not know: {error}.",
                hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
            ) from error


def _hashable(value: Any) -> Any:
    if isinstance(value, dict | list):
        return repr(value)
    return _NAN if value != value else value
