"""Compares the entries of a compact index with the rows of the files that it tells of: an entry missing would lose
rows, one too many costs a read.

Entries of files that are gone are passed over by queries; they are counted, and are no fault.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.indexes.candidates import SPARK_ERRORS
from spark_apps.indexes.compact_entries import BLOCKS, ROWS, entry_tree, expected_entries, of_files
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.lineage import Coverage, entry_files
from spark_apps.indexes.verification import EXAMPLES, Difference, VerificationReport, unreadable
from spark_apps.mergetree.blockfiles import read_footers
from spark_apps.mergetree.blocks import BLOCK
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.read import empty, read_files
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import LINEAGE, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.model import DATA_TREE

_SIDE = "__index_entry"
_FAULT = "__index_fault"


def compare_blocks(context: IndexContext) -> VerificationReport:
    """What differs between the entries and the rows of the files covered."""
    try:
        return _compare(context, entry_tree(context.table, context.definition))
    except (*SPARK_ERRORS, StorageError) as error:
        return unreadable(context, context.snapshot.state.files(context.definition.tree), error)


def _compare(context: IndexContext, tree: Tree) -> VerificationReport:
    snapshot, own = context.snapshot, context.snapshot.state.files(tree.name)
    coverage = Coverage.of(own)
    files = [file for file in snapshot.state.files(DATA_TREE) if file.lineage in coverage.lineages]
    written = entry_files(own)
    held = read_files(snapshot, tree, written, tree.columns) if written else empty(snapshot, tree, tree.columns)
    expected = (
        expected_entries(snapshot, tree, files, read_footers(snapshot, files))
        if files
        else empty(snapshot, tree, tree.columns)
    )
    entries = of_files(snapshot, held, {file.lineage for file in files})
    with cached(_paired(tree, expected, entries)) as both:
        counts = {row[0]: row for row in both.groupBy(_FAULT).agg(
            F.count("*").alias("n"), F.sum(ROWS).alias("rows"), F.sum(_SIDE).alias("entries")).collect()}  # fmt: skip
        wrong = both.where(F.col(_FAULT) != "agree").limit(EXAMPLES).collect()
    found = {fault: row["n"] for fault, row in counts.items()}
    live = sum(row["entries"] or 0 for row in counts.values())
    total = sum(file.rows for file in written)
    return VerificationReport(
        index=context.definition.name,
        version=snapshot.state.version,
        rows=sum(row["rows"] or 0 for row in counts.values()),
        entries=live,
        missing=found.get("missing", 0),
        too_many=found.get("too many", 0),
        wrong_partition=0,
        wrong_values=found.get("wrong values", 0),
        stale=total - live,
        uncovered=sum(not any(file.lineage in coverage.lineages for file in group)
                      for group in snapshot.groups().values()),
        differences=tuple(_difference(tree, row) for row in wrong),
    )  # fmt: skip


def _paired(tree: Tree, expected: DataFrame, entries: DataFrame) -> DataFrame:
    """One row a value and block: the rows that there are, the entries that tell of them, and what is wrong."""
    names = [*tree.key, BLOCKS, ROWS]
    both = expected.select(*map(column, names), F.lit(0).alias(_SIDE)).unionByName(
        entries.select(*map(column, names), F.lit(1).alias(_SIDE))
    )
    said = F.struct(BLOCKS, ROWS)
    paired = both.groupBy(*map(column, tree.key)).agg(
        F.max(F.when(F.col(_SIDE) == 0, said)).alias("__index_there"),
        F.max(F.when(F.col(_SIDE) == 1, said)).alias("__index_said"),
        F.sum(_SIDE).cast("bigint").alias(_SIDE),
    )
    there, told = F.col("__index_there"), F.col("__index_said")
    fault = (
        F.when(told.isNull(), "missing")
        .when(there.isNull(), "too many")
        .when((there != told) | (F.col(_SIDE) > 1), "wrong values")
        .otherwise("agree")
    )
    return paired.withColumns({_FAULT: fault, ROWS: there[ROWS]})


def _difference(tree: Tree, row: Any) -> Difference:
    key = {name: row[name] for name in tree.key if name not in (LINEAGE, BLOCK)}
    said, there = row["__index_said"], row["__index_there"]
    told = None if said is None else f"block {row[BLOCK]} of {said[BLOCKS]}, {said[ROWS]} rows"
    right = None if there is None else f"block {row[BLOCK]} of {there[BLOCKS]}, {there[ROWS]} rows"
    return Difference(row[_FAULT], {**key, "lineage": row[LINEAGE]}, told, right)
