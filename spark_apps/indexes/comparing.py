"""Compares the entries of an index that names rows by key with a full scan of the rows: entries missing, too many,
pointing to the wrong partition, or lying in a shard in which nobody looks for them.

Entries that a kind leaves behind on purpose (``tombstones`` ``lazy``), and those of partitions that are gone, cost
reads and no rows; they are counted, and are no fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.indexes.candidates import SPARK_ERRORS
from spark_apps.indexes.entry_rows import PLACE
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.indexes.locating import marked
from spark_apps.indexes.verification import EXAMPLES, Difference, VerificationReport, unreadable
from spark_apps.mergetree.buckets import bucket_column
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import GROUP_ID, Tree
from spark_apps.storage.errors import StorageError

if TYPE_CHECKING:
    from spark_apps.indexes.entries import EntryHandler

_ROW = "__index_row"
_ENTRY = "__index_entry"
_MARK = "__index_mark"
_FAULT = "__index_fault"
_SHARD = "__index_shard"

WRONG_SHARD = "wrong shard"


def compare(context: IndexContext, handler: EntryHandler) -> VerificationReport:
    """What differs between the entries and the rows of the file groups that the index covers."""
    tree = handler.tree(context.table, context.definition)
    try:
        return _compare(context, handler, tree)
    except (*SPARK_ERRORS, StorageError) as error:
        return unreadable(context, context.snapshot.state.files(tree.name), error)


def _compare(context: IndexContext, handler: EntryHandler, tree: Tree) -> VerificationReport:
    snapshot, definition = context.snapshot, context.definition
    index = snapshot.state.index(definition.name)
    groups = snapshot.groups()
    covered = {key: files for key, files in groups.items() if index.covers(key)}
    marks = {key: "covered" if key in covered else "lags" for key in groups}
    entries = marked(handler.entries(context), snapshot, marks, _MARK)
    rows = handler.expected(context, covered).withColumn(_MARK, F.lit("covered"))
    with cached(_paired(tree, rows, entries)) as both:
        counts = {
            row[0]: (row["n"], row["rows"], row["entries"])
            for row in both.groupBy(_FAULT)
            .agg(F.count("*").alias("n"), F.sum(_ROW).alias("rows"), F.sum(_ENTRY).alias("entries"))
            .collect()
        }
        lazy = handler.lingering(definition)
        faults = [fault for fault in ("missing", "too many", "wrong partition") if not (lazy and fault == "too many")]
        wrong = both.where(F.col(_FAULT).isin(*faults)).limit(EXAMPLES).collect()
    count = {fault: n for fault, (n, _, _) in counts.items()}
    too_many = count.get("too many", 0)
    misplaced = _misplaced(context, tree)
    astray = 0 if misplaced is None else misplaced.count()
    found = [_difference(tree, row) for row in wrong]
    if misplaced is not None and astray:
        found += [Difference(WRONG_SHARD, *_told(tree, row)) for row in misplaced.limit(EXAMPLES).collect()]
    return VerificationReport(
        index=definition.name,
        version=snapshot.state.version,
        rows=sum(rows or 0 for _, rows, _ in counts.values()),
        entries=sum(entries or 0 for _, _, entries in counts.values()),
        missing=count.get("missing", 0),
        too_many=0 if lazy else too_many,
        wrong_partition=count.get("wrong partition", 0),
        stale=count.get("of no group", 0) + (too_many if lazy else 0),
        uncovered=len(groups) - len(covered),
        differences=tuple(found),
        wrong_shard=astray,
    )


def _misplaced(context: IndexContext, tree: Tree) -> DataFrame | None:
    """Entries and tombstones, as they lie in the files, that a lookup of their values would not come by; ``None`` if
    there are no files. Lookups hash by the table's types of today."""
    files = context.snapshot.state.files(tree.name)
    if not files:
        return None
    names = [name for name in tree.columns if name not in PLACE]
    # Without the columns of the place, of which one is called as the reader calls the shard.
    bare = replace(tree, schema=T.StructType([tree.field(name) for name in names]))
    types = [tree.field(name).dataType.simpleString() for name in tree.hash_fields]
    shard = bucket_column(tree.hash_fields, context.definition.shards, tree.hash_function, types)
    rows = read_files(context.snapshot, bare, files, [*names, GROUP_ID]).withColumn(_SHARD, shard.cast("string"))
    return rows.where(F.col(_SHARD) != F.col(GROUP_ID))


def _told(tree: Tree, row: Any) -> tuple[dict[str, Any], str, str]:
    """The key of a misplaced entry, where it lies, and where it should."""
    key = {name: row[name] for name in tree.key if name not in PLACE}
    return key, f"shard {row[GROUP_ID]}", f"shard {row[_SHARD]}"


def _paired(tree: Tree, rows: DataFrame, entries: DataFrame) -> DataFrame:
    """One row a key of an entry: how many rows and entries there are, where they say it lives, and what is wrong."""
    names = [*tree.columns, _MARK]
    place = F.concat_ws(" group ", *[column(name) for name in (PARTITION, GROUP_ID) if name in tree.columns])
    both = rows.select(*map(column, names), F.lit(1).alias(_ROW), F.lit(0).alias(_ENTRY)).unionByName(
        entries.select(*map(column, names), F.lit(0).alias(_ROW), F.lit(1).alias(_ENTRY))
    )
    said = both.groupBy(*map(column, tree.key)).agg(
        F.sum(_ROW).alias(_ROW),
        F.sum(_ENTRY).alias(_ENTRY),
        F.max(F.when(F.col(_ROW) == 1, place)).alias("__index_expected"),
        F.max(F.when(F.col(_ENTRY) == 1, place)).alias("__index_said"),
        F.max(F.when(F.col(_ENTRY) == 1, F.coalesce(F.col(_MARK), F.lit("gone")))).alias(_MARK),
    )
    fault = (
        F.when((F.col(_ROW) == 1) & (F.col(_ENTRY) == 0), "missing")
        .when((F.col(_ROW) == 0) & (F.col(_MARK) == "gone"), "of no group")
        .when((F.col(_ROW) == 0) & (F.col(_MARK) == "lags"), "not compared")
        .when(F.col(_ROW) == 0, "too many")
        .when((F.col(_ROW) > 1) | (F.col("__index_expected") != F.col("__index_said")), "wrong partition")
        .otherwise("agree")
    )
    return said.withColumn(_FAULT, fault)


def _difference(tree: Tree, row: Any) -> Difference:
    key = {name: row[name] for name in tree.key if name not in PLACE}
    return Difference(row[_FAULT], key, row["__index_said"], row["__index_expected"])
