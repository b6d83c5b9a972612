"""Reads the rows of a snapshot that satisfy a predicate, from the file groups that can hold them.

File groups whose matching record keys are known are read with these keys as a filter too, which Parquet uses to skip
row groups and pages, since files are sorted by key.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import sqrt
from typing import Any

from msgspec.structs import replace as changed
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_apps.indexes.candidates import HANDED_KEYS
from spark_apps.indexes.handler import Key, Substitute
from spark_apps.indexes.lineage import LINEAGE
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import read_blocks
from spark_apps.mergetree.read import empty, read_files, scan, with_keys
from spark_apps.mergetree.schema import arranged, chosen, column, quote, resolve
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.query.blocks import choose_blocks
from spark_apps.query.checking import check_predicate
from spark_apps.query.planning import ReadPlan
from spark_apps.query.predicates import of_whole_rows
from spark_apps.query.substituting import plan_rows
from spark_apps.timeline.files import DataFile, GroupKey

# Literals of other types may be compared in a form that keeps Parquet from using them, or that differs by session.
_FILTERED = ("string", "date", "boolean")

_VALUES_AN_IN = 10
"""Of a longer list Spark tells Parquet only the lowest and the highest, which rules no page out."""
_MOST_VALUES = 40
"""Up to so many are told in lists of that length; each row that is read is held against all of them."""
_ROWS_A_PAGE = 8192
_MOST_PARTITIONS = 32
"""Of more the filter does not say which it speaks of."""
_TERMS_A_PAGE = 16
"""So many comparisons of a filter are held against the statistics of a file in the time that a page is read (measured:
48 files, 112 comparisons, 0.27 s)."""
_PAGES_A_READ = 40
"""So many pages, with all their columns, are read in the time that one more read takes (measured: 80 ms)."""


def read_rows(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows as a DataFrame, columns in declared order or as named.

    :raises UnknownColumn: naming a column that the table lacks. :raises InvalidPredicate:
    """
    tree = snapshot.data
    names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
    plan = plan_rows(snapshot, where, names)
    needed = _needed(plan, names)
    parts = [*_scans(plan, needed), *(_substituted(plan, found, needed) for found in plan.substitutes)]
    rows = reduce(DataFrame.unionAll, parts) if parts else empty(snapshot, tree, needed)
    if where is not None:
        try:
            rows = rows.where(where)
        except PySparkException:
            check_predicate(snapshot, where)  # says it in our words, if it is the predicate that Spark refuses
            raise
    return rows if needed == list(names) else chosen(rows, names)


def _needed(plan: ReadPlan, names: Sequence[str]) -> list[str]:
    """The columns asked for and the predicate's, in declared order; all where the predicate may name one in a way not
    understood here. Where it is about whole rows it is applied to these, and not to columns as they were asked for."""
    declared = plan.snapshot.data.columns
    if plan.predicate is not None and of_whole_rows(plan.predicate):
        return list(declared)
    return list(dict.fromkeys([*names, *(name for name in declared if name in plan.columns)]))


def _scans(plan: ReadPlan, names: Sequence[str]) -> list[DataFrame]:
    snapshot, tree = plan.snapshot, plan.snapshot.data
    files = plan.files()
    keyed: dict[GroupKey, list[DataFile]] = {}
    keys: set[Key] = set()
    for group, wanted in plan.groups.items():
        if group in files and wanted and len(keys) + len(wanted) <= HANDED_KEYS:
            keys |= wanted
            keyed[group] = files.pop(group)
    choice = choose_blocks(plan, names)
    blocks = [] if choice is None else [read for read in choice.reads if read.file.group_key in files]
    for block in blocks:
        del files[block.file.group_key]
    parts = [scan(snapshot, tree, files, names)] if files else []
    if blocks:
        parts.append(read_blocks(snapshot, tree, blocks, names))
    for read in _keyed_reads(snapshot, keyed, {group: plan.groups[group] or frozenset() for group in keyed}):
        shown = list(dict.fromkeys([*names, *(tree.key if None in read.keys else tree.identity)]))
        rows = scan(snapshot, tree, read.files, shown).where(_one_of(snapshot, read.keys))
        parts.append(rows if shown == list(names) else chosen(rows, names))
    return parts


@dataclass(frozen=True)
class _KeyedRead:
    """File groups, and the keys to look for in those of each partition, or of all where it does not say which."""

    files: dict[GroupKey, list[DataFile]] = field(default_factory=dict)
    keys: dict[str | None, set[Key]] = field(default_factory=dict)


def _keyed_reads(
    snapshot: Snapshot, files: Mapping[GroupKey, list[DataFile]], keys: Mapping[GroupKey, frozenset[Key]]
) -> list[_KeyedRead]:
    """File groups whose keys are known, in as many reads as are worth while: a read looks in each of its files for all
    of its keys, or for those of the file's partition, and each key takes a page."""
    if not files:
        return []
    number = sum(map(len, files.values()))
    # A source's file does not tell its rows.
    pages = sum(max(file.rows, 0) for some in files.values() for file in some) / _ROWS_A_PAGE / number
    together: dict[GroupKey, str | None] = dict.fromkeys(files)
    partitions = {group[0] for group in files}
    # What the files of a source hold of a partition's values is theirs to say.
    if 1 < len(partitions) <= _MOST_PARTITIONS and snapshot.data.partition_by and snapshot.table.source is None:
        apart: dict[GroupKey, str | None] = {group: group[0] for group in files}
        spared = _pages(files, keys, together, pages) - _pages(files, keys, apart, pages)
        if spared * _TERMS_A_PAGE > number * (sum(map(len, keys.values())) + len(partitions)):
            return _dealt(files, keys, apart, pages)
    return _dealt(files, keys, together, pages)


def _pages(
    files: Mapping[GroupKey, list[DataFile]],
    keys: Mapping[GroupKey, frozenset[Key]],
    told: Mapping[GroupKey, str | None],
    most: float,
) -> float:
    """How many pages one read takes. :param told: of which partition's keys the filter speaks."""
    asked, read = Counter[str | None](), Counter[str | None]()
    for group, some in files.items():
        asked[told[group]] += len(keys[group])
        read[told[group]] += len(some)
    return sum(read[partition] * min(count, most) for partition, count in asked.items())


def _dealt(
    files: Mapping[GroupKey, list[DataFile]],
    keys: Mapping[GroupKey, frozenset[Key]],
    told: Mapping[GroupKey, str | None],
    pages: float,
) -> list[_KeyedRead]:
    """The reads, each with an equal part of the keys of each partition that the filter speaks of."""
    reads = max(1, int(sqrt(_pages(files, keys, told, pages) / _PAGES_A_READ)))
    asked, placed = Counter[str | None](), Counter[str | None]()
    for group in files:
        asked[told[group]] += len(keys[group])
    found = [_KeyedRead() for _ in range(reads)]
    for group, some in files.items():
        partition, wanted = told[group], keys[group]
        read = found[placed[partition] * reads // asked[partition]]
        placed[partition] += len(wanted)
        read.files[group] = some
        read.keys.setdefault(partition, set()).update(wanted)
    if reads > 1 and max(len(some) for read in found for some in read.keys.values()) >= min(pages, _MOST_VALUES):
        # Nearly every page holds a key then, or Parquet is not told of each.
        return [_KeyedRead(dict(files), {None: {key for group in files for key in keys[group]}})]
    return [read for read in found if read.files]


def _substituted(plan: ReadPlan, found: Substitute, names: Sequence[str]) -> DataFrame:
    """The rows of files that an index holds, without those whose key is told of again in the deltas over their file;
    what these say is read with the other files."""
    snapshot, tree = plan.snapshot, plan.snapshot.data
    groups = snapshot.groups(only=plan.groups)
    over = {files[0].lineage: files[1:] for files in groups.values() if files[0].lineage in found.lineages}
    # Keys are unique in their file group only: the file under a delta stands for the group on both sides.
    deltas = [changed(file, group=str(lineage)) for lineage, files in over.items() for file in files]
    if not deltas:
        return arranged(found.rows(names), names)
    shown = list(dict.fromkeys([*names, *tree.key]))
    rows = found.rows([*shown, LINEAGE])
    rows = rows.select(*map(column, shown), F.col(LINEAGE).cast("string").alias(GROUP_ID))
    keys = read_files(snapshot, tree, deltas, [*tree.key, GROUP_ID])
    count = sum(file.rows for file in deltas)
    left = with_keys(rows, keys, tree, [*tree.key, GROUP_ID], count, without=True)
    return chosen(left, names)


def _one_of(snapshot: Snapshot, keys: Mapping[str | None, Collection[Key]]) -> Column:
    """A filter that lets rows of partitions with these record keys pass, and perhaps others.

    By the partition's values, which files hold too, Parquet reads of each file the pages of its own keys alone. One
    text: a call to the JVM for each value would take longer than reading the files.
    """
    tree, known = snapshot.data, snapshot.state.partitions
    each = [
        _with_key(tree, some)
        if partition is None
        else f"{_of(tree, known[partition].values)} AND {_with_key(tree, some)}"
        for partition, some in keys.items()
    ]
    return F.expr(" OR ".join(f"({one})" for one in each))


def _of(tree: Tree, values: Sequence[str | None]) -> str:
    """Whether a row is of the partition with these values, as text."""
    each = []
    for name, value in zip(tree.partition_by, values, strict=True):
        # A partition's values and their texts correspond one to one (see check_partition_types).
        told = "NULL" if value is None else f"CAST({_literal(value)} AS {tree.field(name).dataType.simpleString()})"
        each.append(f"{quote(name)} {'IS' if value is None else '='} {told}")
    return " AND ".join(each)


def _with_key(tree: Tree, keys: Collection[Key]) -> str:
    """Whether a row can have one of these keys, of which there is one at least."""
    each = []
    for place, name in enumerate(tree.key):
        kind = parse_type(tree.field(name).dataType.simpleString())
        if kind.is_integer or kind.kind in _FILTERED:
            listed = [_literal(value) for value in sorted({key[place] for key in keys})]
            step = _VALUES_AN_IN if len(listed) <= _MOST_VALUES else len(listed)
            lists = [f"{quote(name)} IN ({', '.join(listed[n : n + step])})" for n in range(0, len(listed), step)]
            each.append(f"({' OR '.join(lists)})")
    return " AND ".join(each) or "true"


def _literal(value: Any) -> str:
    """A value in Spark's SQL, whatever its settings say of backslashes."""
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS string)"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    return str(value).lower() if isinstance(value, bool) else f"{value:d}"
