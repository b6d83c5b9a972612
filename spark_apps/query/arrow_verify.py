"""The comparison of a keyed index with the rows of its table in this process, without Spark: for what is small.

It finds what :meth:`~spark_apps.indexes.handler.IndexHandler.verify` finds of the live entries of a keyed table's
``record`` and ``secondary`` indexes. Every row and entry becomes a Python object. Kinds that address files, and
registered sources, are compared by Spark alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_apps.indexes.handler import (
    EXAMPLES,
    PARTITION,
    Difference,
    IndexContext,
    VerificationReport,
    unreadable,
)
from spark_apps.indexes.keyed.entries import GROUP_COLUMNS, WRONG_SHARD, EntryHandler
from spark_apps.indexes.registry import find
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import nested_arrow_type
from spark_apps.mergetree.blocks import access_options
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.query.arrow_rows import ArrowFile, ArrowRows, ArrowShape
from spark_apps.storage.errors import InvalidInput, StorageError
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import DATA_TREE, TableDefinition

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
    """Compare a keyed index with the rows that it covers.

    :raises IndexNotFound: if there is none of that name.
    :raises InvalidInput: if only Spark can compare it.
    :raises StorageError: if a file of the table is gone or damaged.
    """
    definition = snapshot.state.index(name).definition
    handler = find(definition.kind)
    if not isinstance(handler, EntryHandler) or snapshot.table.source is not None:
        what = "of a registered source" if snapshot.table.source is not None else f"of kind {definition.kind}"
        raise InvalidInput(
            f"The index {name!r} {what} is compared with the rows by Spark alone.",
            hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
        )
    context = IndexContext(snapshot, definition, "")
    tree = handler.tree(snapshot.table, definition)
    try:
        return _compare(context, handler, tree)
    except StorageError as error:
        return unreadable(context, snapshot.state.files(tree.name), error)


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
    for group, files in snapshot.groups(tree.name).items():
        if only is not None and group not in only:
            continue
        described = [ArrowFile(file, snapshot.store.spark_path(file.path), "parquet") for file in files]
        for batch in reader.read(described):
            for row in batch.to_pylist():
                yield group, row
