"""Compares a covering index with the rows of the files that it covers: rows missing, too many, or with other values.

Rows and entries are counted by all their values, file by file where the index has lineage; a row of which there are
fewer entries is missing, and where the same record (or the same indexed values) has an entry too many instead, that
entry has wrong values. The bucket is compared like a value, for a query looks nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.indexes.candidates import SPARK_ERRORS
from spark_apps.indexes.covering_definition import has_lineage, hash_of, schema_of
from spark_apps.indexes.covering_entries import check_readable, read_entries, rows_of
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files, indexable
from spark_apps.indexes.verification import EXAMPLES, Difference, VerificationReport, unreadable
from spark_apps.mergetree.buckets import bucket_column
from spark_apps.mergetree.cached import cached
from spark_apps.mergetree.schema import column, struct_type
from spark_apps.mergetree.tree import GROUP_ID
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile

_ROWS = "__index_rows"
_ENTRIES = "__index_entries"
_VALUES = "__index_values"


def verify(context: IndexContext) -> VerificationReport:
    """See :meth:`~spark_apps.indexes.handler.IndexHandler.verify`."""
    index_files = context.snapshot.state.files(context.definition.tree)
    try:
        return _compared(context, index_files)
    except (*SPARK_ERRORS, StorageError) as error:
        return unreadable(context, index_files, error)


def _compared(context: IndexContext, index_files: Sequence[DataFile]) -> VerificationReport:
    known, files = Coverage.of(index_files), entry_files(index_files)
    check_readable(context, files)
    live = {file.lineage: file for file in indexable(context.snapshot).values()}
    covered = known.lineages & live.keys()
    if not has_lineage(context.definition) and covered != known.lineages:
        covered = frozenset()  # whose rows are whose cannot be told any more, and no query relies on it
    stale = sum(file.rows for file in files)
    if not covered:
        return _report(context, 0, 0, stale, len(live), {}, [])
    parts = [
        _values(context, rows_of(context.snapshot, [live[lineage] for lineage in lineages], columns), columns, None)
        for columns, lineages in _by_columns(context, known, covered).items()
    ]
    parts += [
        _values(context, read_entries(context, files, [*columns, *_told(context), GROUP_ID], only=lineages), columns, 1)
        for columns, lineages in _by_columns(context, known, covered).items()
        if files
    ]
    with cached(_differing(context, reduce(DataFrame.unionByName, parts))) as both:
        sums = both.agg(F.sum(_ROWS), F.sum(_ENTRIES), F.sum("missing"), F.sum("more"), F.sum("other")).collect()[0]
        rows, entries, *wrong = (int(value or 0) for value in sums)
        examples = both.where("missing + more + other > 0").limit(EXAMPLES).collect() if any(wrong) else []
    counts = dict(zip(("missing", "too many", "wrong values"), wrong, strict=True))
    return _report(context, rows, entries, stale - entries, len(live) - len(covered), counts, examples)


def _by_columns(context: IndexContext, known: Coverage, covered: frozenset[int]) -> dict[tuple[str, ...], list[int]]:
    """Columns to compare -> of which files. Without lineage these are compared at once, in what all entries have."""
    if not has_lineage(context.definition):
        common = [name for name in known.parts[0].columns if all(name in part.columns for part in known.parts)]
        return {tuple(common): sorted(covered)}
    found: dict[tuple[str, ...], list[int]] = {}
    for part in known.parts:
        some = [lineage for lineage in part.lineages if lineage in covered]
        if some:
            found.setdefault(part.columns, []).extend(some)
    return found


def _told(context: IndexContext) -> list[str]:
    return [LINEAGE] if has_lineage(context.definition) else []


def _identity(context: IndexContext) -> list[str]:
    """Columns by which an entry with other values is known to be of the same row."""
    # Of a source nobody keeps the record key unique, and its entries do without.
    key = context.table.record_key if context.table.source is None else ()
    return list(dict.fromkeys([*(key or context.definition.columns), *_told(context)]))


def _values(context: IndexContext, rows: DataFrame, columns: Sequence[str], entry: int | None) -> DataFrame:
    """Rows or entries as: the columns that name one, all its values and its bucket in one text."""
    definition, schema = context.definition, schema_of(context.definition)
    if entry is None:
        # By the table's types of today, as a query looks for them.
        table = struct_type(context.table.fields)
        types = [table[name].dataType.simpleString() for name in definition.columns]
        bucket = bucket_column(definition.columns, definition.shards, hash_of(definition), types)
        rows = rows.withColumn(GROUP_ID, bucket.cast("string"))
    texts = [_text(column(name), schema[name].dataType) for name in columns]
    values = F.to_json(F.array(*texts, F.col(GROUP_ID)), {"ignoreNullFields": "false"})
    return rows.select(
        *map(column, _identity(context)),
        values.alias(_VALUES),
        F.lit(1 - (entry or 0)).alias(_ROWS),
        F.lit(entry or 0).alias(_ENTRIES),
    )


def _text(value: Any, kind: T.DataType) -> Any:
    if isinstance(kind, T.BinaryType):
        return F.hex(value)
    if isinstance(kind, (T.ArrayType, T.StructType, T.MapType)):
        return F.to_json(F.struct(value.alias("v")))
    return value.cast("string")


def _differing(context: IndexContext, both: DataFrame) -> DataFrame:
    """One row an identity: how many rows and entries there are of it, and how many of these disagree how."""
    identity = [column(name) for name in _identity(context)]
    same = both.groupBy(*identity, _VALUES).agg(F.sum(_ROWS).alias(_ROWS), F.sum(_ENTRIES).alias(_ENTRIES))
    fewer, more = (F.greatest(F.col(a) - F.col(b), F.lit(0)) for a, b in ((_ROWS, _ENTRIES), (_ENTRIES, _ROWS)))
    told = same.groupBy(*identity).agg(
        F.sum(_ROWS).alias(_ROWS), F.sum(_ENTRIES).alias(_ENTRIES), F.sum(fewer).alias("fewer"),
        F.sum(more).alias("surplus"), F.max(F.when(F.col(_ROWS) > F.col(_ENTRIES), F.col(_VALUES))).alias("expected"),
        F.max(F.when(F.col(_ENTRIES) > F.col(_ROWS), F.col(_VALUES))).alias("said"),
    )  # fmt: skip
    other = F.least("fewer", "surplus")
    return told.withColumns({"other": other, "missing": F.col("fewer") - other, "more": F.col("surplus") - other})


def _report(
    context: IndexContext, rows: int, entries: int, stale: int, uncovered: int, counts: dict[str, int], examples: Any
) -> VerificationReport:
    found = []
    for row in examples:
        fault = "wrong values" if row["other"] else "missing" if row["missing"] else "too many"
        key = {name: row[name] for name in _identity(context) if name != LINEAGE}
        found.append(Difference(fault, key, row["said"], row["expected"]))
    return VerificationReport(
        index=context.definition.name, version=context.snapshot.state.version, rows=rows, entries=entries,
        missing=counts.get("missing", 0), too_many=counts.get("too many", 0), wrong_partition=0, stale=max(0, stale),
        uncovered=uncovered, differences=tuple(found), wrong_values=counts.get("wrong values", 0),
    )  # fmt: skip
