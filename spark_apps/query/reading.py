"""Reads the rows of a snapshot that satisfy a predicate, from the file groups that can hold them.

File groups whose matching record keys are known are read with these keys as a filter too, which Parquet uses to skip
row groups and pages, since files are sorted by key.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from math import ceil, sqrt
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
from spark_apps.mergetree.tree import GROUP_ID, Snapshot
from spark_apps.query.blocks import choose_blocks
from spark_apps.query.checking import check_predicate
from spark_apps.query.planning import ReadPlan
from spark_apps.query.substituting import plan_rows
from spark_apps.timeline.files import DataFile, GroupKey

# Literals of other types may be compared in a form that keeps Parquet from using them, or that differs by session.
_FILTERED = ("string", "date", "boolean")

_VALUES_AN_IN = 10
"""Of a longer list Spark tells Parquet only the lowest and the highest, which rules no page out."""
_MOST_VALUES = 40
"""Up to so many are told in lists of that length; each row that is read is held against all of them."""
_ROWS_A_PAGE = 8192
_PAGES_A_READ = 40
"""So many pages, with all their columns, are read in the time that one more read takes (measured: 80 ms)."""


def read_rows(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows as a DataFrame, columns in declared order or as named.

    :raises UnknownColumn: naming a column that the table lacks. :raises InvalidPredicate:
    """
    tree = snapshot.data
    names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
    plan = plan_rows(snapshot, where, names)
    if not plan.groups:
        return empty(snapshot, tree, names)
    needed = list(dict.fromkeys([*names, *_needed(plan)]))
    parts = [*_scans(plan, needed), *(_substituted(plan, found, needed) for found in plan.substitutes)]
    rows = reduce(DataFrame.unionAll, parts) if parts else empty(snapshot, tree, needed)
    if where is not None:
        try:
            rows = rows.where(where)
        except PySparkException:
            check_predicate(snapshot, where)  # says it in our words, if it is the predicate that Spark refuses
            raise
    return rows if needed == list(names) else chosen(rows, names)


def _needed(plan: ReadPlan) -> list[str]:
    """The predicate's columns, in declared order; all where the predicate may name one in a way not understood here."""
    return [name for name in plan.snapshot.data.columns if name in plan.columns]


def _scans(plan: ReadPlan, names: Sequence[str]) -> list[DataFrame]:
    snapshot, tree = plan.snapshot, plan.snapshot.data
    files = plan.files()
    keyed: dict[GroupKey, list[DataFile]] = {}
    keys: set[Key] = set()
    for group, wanted in plan.groups.items():
        if group in files and wanted is not None and len(keys) + len(wanted) <= HANDED_KEYS:
            keys |= wanted
            keyed[group] = files.pop(group)
    choice = choose_blocks(plan, names)
    reads = [] if choice is None else [read for read in choice.reads if read.file.group_key in files]
    for read in reads:
        del files[read.file.group_key]
    parts = [scan(snapshot, tree, files, names)] if files else []
    if reads:
        parts.append(read_blocks(snapshot, tree, reads, names))
    shown = list(dict.fromkeys([*names, *tree.key]))
    for some, sought in _apart(keyed, {group: plan.groups[group] or frozenset() for group in keyed}):
        rows = scan(snapshot, tree, some, shown).where(_one_of(snapshot, sought))
        parts.append(rows if shown == list(names) else chosen(rows, names))
    return parts


def _apart(
    files: Mapping[GroupKey, list[DataFile]], keys: Mapping[GroupKey, frozenset[Key]]
) -> list[tuple[dict[GroupKey, list[DataFile]], set[Key]]]:
    """File groups, with the keys to look for in them, in as many reads as are worth while: a read looks in each of its
    files for all of its keys, and each key takes a page."""
    every = [file for some in files.values() for file in some]
    number, asked = len(every), sum(map(len, keys.values()))
    # A source's file does not tell its rows.
    pages = sum(max(file.rows, 0) for file in every) / _ROWS_A_PAGE / max(number, 1)
    reads = max(1, int(sqrt(number * min(asked, pages) / _PAGES_A_READ)))
    most = ceil(asked / reads)
    if most >= min(pages, _MOST_VALUES):  # then nearly every page holds one of them, or Parquet is not told of each
        most = asked
    found: list[tuple[dict[GroupKey, list[DataFile]], set[Key]]] = []
    for group, wanted in keys.items():
        if not found or len(found[-1][1] | wanted) > most:
            found.append(({}, set()))
        found[-1][0][group] = files[group]
        found[-1][1].update(wanted)
    return found


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


def _one_of(snapshot: Snapshot, keys: Collection[Key]) -> Column:
    """A filter that lets rows with these record keys pass, and perhaps others."""
    tree = snapshot.data
    passed = F.lit(True)
    for place, name in enumerate(tree.key):
        kind = parse_type(tree.field(name).dataType.simpleString())
        if kind.is_integer or kind.kind in _FILTERED:
            # One text: a call to the JVM for each value would take longer than reading the files.
            listed = [_literal(value) for value in sorted({key[place] for key in keys})]
            step = _VALUES_AN_IN if len(listed) <= _MOST_VALUES else len(listed)
            each = [f"{quote(name)} IN ({', '.join(listed[n : n + step])})" for n in range(0, len(listed), step)]
            passed = passed & F.expr(" OR ".join(each))
    return passed


def _literal(value: Any) -> str:
    """A value in Spark's SQL, whatever its settings say of backslashes."""
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' AS string)"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    return str(value).lower() if isinstance(value, bool) else f"{value:d}"
