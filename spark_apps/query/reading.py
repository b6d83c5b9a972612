"""Reads the rows of a snapshot that satisfy a predicate, from the file groups that can hold them.

File groups whose matching record keys are known are read with these keys as a filter too, which Parquet uses to skip
row groups and pages, since files are sorted by key.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import sqrt
from typing import Any

from msgspec.structs import replace as changed
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_apps.engine.spark_utils import setting
from spark_apps.engine.spark_versions import UNION_PARTITIONING, union_keeps_buckets
from spark_apps.indexes.handler import Buckets, CoveringScan, Key
from spark_apps.indexes.lineage import LINEAGE
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blocks import read_blocks
from spark_apps.mergetree.read import empty, read_files, scan, with_keys
from spark_apps.mergetree.schema import arrange_columns, column, quote, resolve, select_columns
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.query.limits import MAX_FILTER_PARTITIONS, MAX_FILTER_VALUES, MAX_PUSHED_VALUES
from spark_apps.query.logged import Asked, note_query
from spark_apps.query.planning import ReadPlan, filter_of, plan_read
from spark_apps.query.predicates import check_predicate
from spark_apps.storage.parameters import literal
from spark_apps.timeline.files import DataFile, GroupKey

# Literals of other types may be compared in a form that keeps Parquet from using them, or that differs by session.
_FILTERED = ("string", "date", "boolean")

_ROWS_PER_PAGE = 8192
_TERMS_PER_PAGE = 16
"""Comparisons of a filter with the statistics of a file in the time that a page is read (measured: 48 files, 112
comparisons, 0.27 s)."""
_PAGES_PER_READ = 40
"""Pages, with all their columns, that are read in the time that one more read takes (measured: 80 ms)."""


def read_rows(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """Return the rows as a DataFrame, columns in declared order or as named.

    :raises UnknownColumn: naming a column that the table lacks.
    :raises InvalidPredicate: if the predicate cannot be read.
    """
    tree = snapshot.data
    names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
    started = time.perf_counter()
    plan = plan_read(snapshot, filter_of(snapshot, where), names)
    note_query(plan, Asked(names), started)
    rows = planned_rows(plan)
    if where is not None:
        try:
            rows = rows.where(where)
        except PySparkException:
            check_predicate(snapshot, where)  # says it in our words, if it is the predicate that Spark refuses
            raise
    return rows if plan.columns == names else select_columns(rows, names)


def planned_rows(plan: ReadPlan) -> DataFrame:
    """Return the rows that a plan reads, with its columns, before its predicate is applied to them.

    Where the buckets of an index are kept, only the other rows are shuffled.
    """
    kept = plan.bucketed
    if kept is not None and kept.buckets is not None:
        return _in_buckets(plan, kept, kept.buckets)
    parts = [*_scan_files(plan), *(_rows_of_index(plan, index_scan) for index_scan in plan.covering_scans)]
    return reduce(DataFrame.unionAll, parts) if parts else empty(plan.snapshot, plan.snapshot.data, plan.columns)


def _in_buckets(plan: ReadPlan, kept: CoveringScan, buckets: Buckets) -> DataFrame:
    others = [_rows_of_index(plan, index_scan) for index_scan in plan.covering_scans if index_scan is not kept]
    parts = [*_scan_files(plan), *others]
    rows = _rows_of_index(plan, replace(kept, rows=buckets.rows))
    if not parts:
        return rows
    shuffled = reduce(DataFrame.unionAll, parts).repartition(buckets.count, *map(column, buckets.columns))
    # In this order Spark finds both alike: the first gives the union its columns, and whether they can be null. And a
    # union with a shuffle is by rows, for one of two scans by columns forgets the buckets it promised (SPARK-59141).
    return shuffled.unionAll(rows)


def keeps_buckets(plan: ReadPlan) -> bool:
    """Tell whether this Spark keeps the buckets of an index through a union, if the plan needs one."""
    alone = len(plan.covering_scans) == 1 and not plan.files
    spark = plan.snapshot.spark
    return alone or (union_keeps_buckets(spark) and str(setting(spark, UNION_PARTITIONING, "true")).lower() == "true")


def _scan_files(plan: ReadPlan) -> list[DataFrame]:
    """Return the rows of the files that a plan reads: whole groups, some blocks, and groups with known keys."""
    snapshot, tree, names = replace(plan.snapshot, by_query=True), plan.snapshot.data, plan.columns
    files = {group: list(some) for group, some in plan.files.items() if group not in plan.keyed}
    choice = plan.block_choice
    blocks = [] if choice is None else [read for read in choice.reads if read.file.group_key in files]
    for block in blocks:
        del files[block.file.group_key]
    parts = [scan(snapshot, tree, files, names)] if files else []
    if blocks:
        parts.append(read_blocks(snapshot, tree, blocks, names))
    for read in _keyed_reads(snapshot, {group: list(plan.files[group]) for group in plan.keyed}, plan.keyed):
        columns = list(dict.fromkeys([*names, *(tree.key if None in read.keys else tree.identity)]))
        rows = scan(snapshot, tree, read.files, columns).where(_key_filter(snapshot, read.keys))
        parts.append(rows if columns == list(names) else select_columns(rows, names))
    return parts


@dataclass(frozen=True)
class _KeyedRead:
    """File groups, and the keys to look for in those of each partition, or of all where it does not say which."""

    files: dict[GroupKey, list[DataFile]] = field(default_factory=dict)
    keys: dict[str | None, set[Key]] = field(default_factory=dict)


def _keyed_reads(
    snapshot: Snapshot, files: Mapping[GroupKey, list[DataFile]], keys: Mapping[GroupKey, frozenset[Key]]
) -> list[_KeyedRead]:
    """Return file groups whose keys are known, in as many reads as are worth while.

    A read looks in each of its files for all of its keys, or for those of the file's partition, and each key takes a
    page.
    """
    if not files:
        return []
    number = sum(map(len, files.values()))
    # The number of rows of a source's file may be unknown.
    pages = sum(max(file.rows, 0) for some in files.values() for file in some) / _ROWS_PER_PAGE / number
    together: dict[GroupKey, str | None] = dict.fromkeys(files)
    partitions = {group[0] for group in files}
    # Files of a source may hold other partition values than their path.
    if 1 < len(partitions) <= MAX_FILTER_PARTITIONS and snapshot.data.partition_by and snapshot.table.source is None:
        apart: dict[GroupKey, str | None] = {group: group[0] for group in files}
        saved = _pages(files, keys, together, pages) - _pages(files, keys, apart, pages)
        if saved * _TERMS_PER_PAGE > number * (sum(map(len, keys.values())) + len(partitions)):
            return _deal_keys(files, keys, apart, pages)
    return _deal_keys(files, keys, together, pages)


def _pages(
    files: Mapping[GroupKey, list[DataFile]],
    keys: Mapping[GroupKey, frozenset[Key]],
    partition_of: Mapping[GroupKey, str | None],
    most: float,
) -> float:
    """Estimate how many pages one read takes.

    :param partition_of: of which partition's keys the filter speaks.
    """
    keys_read, read = Counter[str | None](), Counter[str | None]()
    for group, some in files.items():
        keys_read[partition_of[group]] += len(keys[group])
        read[partition_of[group]] += len(some)
    return sum(read[partition] * min(count, most) for partition, count in keys_read.items())


def _deal_keys(
    files: Mapping[GroupKey, list[DataFile]],
    keys: Mapping[GroupKey, frozenset[Key]],
    partition_of: Mapping[GroupKey, str | None],
    pages: float,
) -> list[_KeyedRead]:
    """Return the reads, each with an equal part of the keys of each partition that the filter speaks of."""
    reads = max(1, int(sqrt(_pages(files, keys, partition_of, pages) / _PAGES_PER_READ)))
    key_counts, assigned = Counter[str | None](), Counter[str | None]()
    for group in files:
        key_counts[partition_of[group]] += len(keys[group])
    dealt = [_KeyedRead() for _ in range(reads)]
    for group, some in files.items():
        partition, group_keys = partition_of[group], keys[group]
        read = dealt[assigned[partition] * reads // key_counts[partition]]
        assigned[partition] += len(group_keys)
        read.files[group] = some
        read.keys.setdefault(partition, set()).update(group_keys)
    if reads > 1 and max(len(some) for read in dealt for some in read.keys.values()) >= min(pages, MAX_FILTER_VALUES):
        # Nearly every page holds a key then, or Spark does not hand each to Parquet.
        return [_KeyedRead(dict(files), {None: {key for group in files for key in keys[group]}})]
    return [read for read in dealt if read.files]


def _rows_of_index(plan: ReadPlan, index_scan: CoveringScan) -> DataFrame:
    """Return the rows of files that an index holds, without those whose key is in deltas over their file too.

    What these deltas hold is read with the other files.
    """
    snapshot, tree, names = plan.snapshot, plan.snapshot.data, plan.columns
    groups = snapshot.groups(only=plan.groups)
    over = {files[0].lineage: files[1:] for files in groups.values() if files[0].lineage in index_scan.lineages}
    # Keys are unique in their file group only: the file under a delta identifies the group on both sides.
    deltas = [changed(file, group=str(lineage)) for lineage, files in over.items() for file in files]
    if not deltas:
        return arrange_columns(index_scan.rows(names), names)
    columns = list(dict.fromkeys([*names, *tree.key]))
    rows = index_scan.rows([*columns, LINEAGE])
    rows = rows.select(*map(column, columns), F.col(LINEAGE).cast("string").alias(GROUP_ID))
    keys = read_files(snapshot, tree, deltas, [*tree.key, GROUP_ID])
    count = sum(file.rows for file in deltas)
    remaining = with_keys(rows, keys, tree, [*tree.key, GROUP_ID], count, without=True)
    return select_columns(remaining, names)


def _key_filter(snapshot: Snapshot, keys: Mapping[str | None, Collection[Key]]) -> Column:
    """Return a filter that lets rows of partitions with these record keys pass, and perhaps others.

    By the partition's values, which files hold too, Parquet reads of each file the pages of its own keys alone. One
    text: a call to the JVM for each value would take longer than reading the files.
    """
    tree, known = snapshot.data, snapshot.state.partitions
    each = [
        _key_condition(tree, some)
        if partition is None
        else f"{_partition_filter(tree, known[partition].values)} AND {_key_condition(tree, some)}"
        for partition, some in keys.items()
    ]
    return F.expr(" OR ".join(f"({condition})" for condition in each))


def _partition_filter(tree: Tree, values: Sequence[str | None]) -> str:
    """Return the SQL condition that a row is of the partition with these values, as text."""
    each = []
    for name, value in zip(tree.partition_by, values, strict=True):
        # A partition's values and their texts correspond one to one (see check_partition_types).
        text = "NULL" if value is None else f"CAST({literal(value)} AS {tree.type_of(name)})"
        each.append(f"{quote(name)} {'IS' if value is None else '='} {text}")
    return " AND ".join(each)


def _key_condition(tree: Tree, keys: Collection[Key]) -> str:
    """Return the SQL condition that a row can have one of these keys, of which there is one at least."""
    each = []
    for position, name in enumerate(tree.key):
        kind = parse_type(tree.type_of(name))
        if kind.is_integer or kind.kind in _FILTERED:
            listed = [literal(value) for value in sorted({key[position] for key in keys})]
            each.append(_among(name, listed, MAX_PUSHED_VALUES if len(listed) <= MAX_FILTER_VALUES else len(listed)))
    return " AND ".join(each) or "true"


def _among(name: str, listed: Sequence[str], step: int) -> str:
    """Return the SQL condition that a column has one of some literals, in lists of a length."""
    lists = [f"{quote(name)} IN ({', '.join(listed[n : n + step])})" for n in range(0, len(listed), step)]
    return f"({' OR '.join(lists)})"


def any_of(name: str, kind: ColumnType, values: Collection[Any]) -> str | None:
    """Return the SQL condition that a column has one of some values.

    ``None`` if Parquet rules no page out by it, for they are too many, or of a type whose literals it may not use.
    """
    if not 0 < len(values) <= MAX_FILTER_VALUES or not (kind.is_integer or kind.kind in _FILTERED):
        return None
    return _among(name, [literal(value) for value in sorted(values)], MAX_PUSHED_VALUES)
