"""Reads the rows of a snapshot that satisfy a predicate, from the file groups that can hold them.

File groups whose matching record keys are known are read with these keys as a filter too, which Parquet uses to skip
row groups and pages, since files are sorted by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_apps.indexes.candidates import DIRECT_KEYS
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.read import empty, scan
from spark_apps.mergetree.schema import column, resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.planning import ReadPlan, plan_read
from spark_apps.timeline.files import DataFile, GroupKey

# Literals of other types may be compared in a form that keeps Parquet from using them, or that differs by session.
_FILTERED = ("string", "date", "boolean")


def read_rows(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows as a DataFrame, columns in declared order or as named.

    :raises UnknownColumn: naming a column that the table lacks. :raises InvalidPredicate:
    """
    tree = snapshot.data
    names = tree.columns if columns is None else resolve(columns, tree.columns, "columns")
    plan = plan_read(snapshot, where)
    if not plan.groups:
        return empty(snapshot, tree, names)
    rows = _scan(plan, list(dict.fromkeys([*names, *_needed(plan)])))
    if where is not None:
        rows = rows.where(where)
    return rows.select(*map(column, names))


def _needed(plan: ReadPlan) -> list[str]:
    """The predicate's columns, in declared order; all where the predicate may name one in a way not understood here."""
    return [name for name in plan.snapshot.data.columns if name in plan.columns]


def _scan(plan: ReadPlan, names: Sequence[str]) -> DataFrame:
    snapshot, tree = plan.snapshot, plan.snapshot.data
    files = plan.files()
    keyed: dict[GroupKey, list[DataFile]] = {}
    keys: set[tuple[Any, ...]] = set()
    for group, wanted in plan.groups.items():
        if wanted is not None and len(keys) + len(wanted) <= DIRECT_KEYS:
            keys |= wanted
            keyed[group] = files.pop(group)
    parts = [scan(snapshot, tree, files, names)] if files else []
    if keyed:
        shown = list(dict.fromkeys([*names, *tree.key]))
        rows = scan(snapshot, tree, keyed, shown).where(_one_of(snapshot, keys))
        parts.append(rows.select(*map(column, names)))
    return reduce(DataFrame.unionAll, parts)


def _one_of(snapshot: Snapshot, keys: set[tuple[Any, ...]]) -> Column:
    """A filter that lets rows with these record keys pass, and perhaps others."""
    tree = snapshot.data
    passed = F.lit(True)
    for place, name in enumerate(tree.key):
        kind = parse_type(tree.field(name).dataType.simpleString())
        if kind.is_integer or kind.kind in _FILTERED:
            passed = passed & column(name).isin(*sorted({key[place] for key in keys}))
    return passed
