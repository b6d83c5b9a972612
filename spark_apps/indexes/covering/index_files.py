"""Entries of a covering index: rows read from data files, written to one file per bucket and stage, read back.

Each entry file says in the log which columns it has and which stages' rows it can hold. Files are read with exactly
their columns, those of like columns together, and the rest is added as nulls; Parquet's schema merging is never used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T, spark_errors
from spark_apps.engine.spark_utils import cached, inline
from spark_apps.indexes.computed import check_computes, columns_for, fields_in, indexed_by, values_for
from spark_apps.indexes.covering.definition import (
    fields_of,
    has_buckets,
    has_lineage,
    hash_of,
    indexed_columns,
    schema_of,
)
from spark_apps.indexes.handler import EXAMPLES, Difference, IndexContext, VerificationReport, unreadable
from spark_apps.indexes.included_columns import intersect_names
from spark_apps.indexes.keyed.lookup import damaged_file_error
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files, indexable
from spark_apps.mergetree.buckets import bucket_column, single_target
from spark_apps.mergetree.damaged_pages import Pages, damaged_pages
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column, column_share, column_types, quote, select_columns, struct_type
from spark_apps.mergetree.tree import GROUP_ID, Tree
from spark_apps.mergetree.write import stage_bucket_files, stage_rows
from spark_apps.storage.documents import reason
from spark_apps.storage.errors import LogDamaged, StorageError
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import COVERS, AddFile, Field

_COLUMNS = "columns"
_STAGES = "stages"

_MAX_LISTED = 1000
"""Up to so many lineages are a list in the filter, more a broadcast join."""


class _Held(msgspec.Struct, frozen=True):
    """The columns and stages of an entry file, as the log keeps them among what is extra of it."""

    columns: tuple[str, ...]
    stages: tuple[str, ...]


def _held(file: DataFile | AddFile) -> _Held:
    try:
        return msgspec.convert(file.extra or {}, _Held)
    except msgspec.ValidationError as error:
        raise StorageError(
            f"The log does not say what the index file {file.path} holds: {reason(error)}.",
            outcome="Nothing was changed.",
            hint="Build the index anew with refresh_index(name, mode='full'), or drop it and create it again.",
        ) from error


def columns_of(file: DataFile | AddFile) -> tuple[str, ...]:
    """Return the columns of an entry file, without the lineage.

    :raises StorageError: if the log does not say.
    """
    return _held(file).columns


def stages_of(file: DataFile | AddFile) -> frozenset[str]:
    """Return the stages whose rows an entry file can hold.

    :raises StorageError: if the log does not say.
    """
    return frozenset(_held(file).stages)


def entry_tree(context: IndexContext, columns: Sequence[str], known: Iterable[Field]) -> Tree:
    """Return entry files with these columns as a tree that readers and writers know.

    :param known: columns with their types, these among them.
    :raises LogDamaged: if these are not, or an indexed column is missing.
    """
    definition = context.definition
    types = column_types(known)
    for name in columns:
        if name not in types:
            raise damaged(context, f"holds a column {name!r}, which is none of its columns", _COLUMNS)
    indexed = indexed_columns(context.table, definition)
    for name in indexed:
        if name not in columns:
            raise damaged(context, f"holds entries without the column {name!r}", _COLUMNS)
    fields = [Field(name, types[name]) for name in columns]
    if has_lineage(definition):
        fields.append(Field(LINEAGE, "bigint"))
    return Tree(
        name=definition.tree,
        fields=tuple(fields),
        key=indexed,
        hash_fields=indexed,
        hash_function=hash_of(definition),
        unique=tuple(name for name in columns if (name,) == context.table.record_key),
    )


# --- Rows of data files -----------------------------------------------------------------------------------------------


def rows_of(context: IndexContext, files: Iterable[DataFile], columns: Sequence[str]) -> DataFrame:
    """Return the rows of data files as they lie there, with :data:`~spark_apps.indexes.lineage.LINEAGE`.

    :param columns: of entries: of the table, and values of indexed expressions.
    :raises InvalidInput: if this session may compute other values than the index holds.
    """
    check_computes(context.snapshot, context.definition)
    snapshot, found = context.snapshot, indexed_by(context.table, context.definition)
    # The reader adds the group of a row's file; here that is the file itself.
    single = [replace(file, group=str(file.lineage)) for file in files]
    rows = read_files(snapshot, snapshot.data, single, [*columns_for(found, columns), GROUP_ID])
    return rows.select(*values_for(found, columns), F.col(GROUP_ID).cast("bigint").alias(LINEAGE))


def find_null_columns(
    context: IndexContext, files: Sequence[DataFile], columns: Sequence[str]
) -> dict[int, tuple[str, ...]]:
    """Return lineage of each file -> those of the columns that are null in all its rows.

    One Spark job.
    """
    if not columns or not files:
        return {file.lineage: () for file in files}
    rows = rows_of(context, files, columns)
    has_values = [F.max(column(name).isNotNull()).alias(f"c{n}") for n, name in enumerate(columns)]
    by_lineage = {row[LINEAGE]: row for row in rows.groupBy(LINEAGE).agg(*has_values).collect()}
    return {
        file.lineage: tuple(
            name
            for n, name in enumerate(columns)
            if file.lineage not in by_lineage or not by_lineage[file.lineage][f"c{n}"]
        )
        for file in files
    }


# --- Writing ----------------------------------------------------------------------------------------------------------


def stage_entries(
    context: IndexContext,
    rows: DataFrame,
    columns: Sequence[str],
    folder: str,
    stages: Mapping[str, Collection[str]],
    expected: int = 0,
) -> list[AddFile]:
    """Write entries, one file per bucket, sorted by the indexed columns.

    :param folder: name of a folder below the context's directory that does not exist yet.
    :param stages: bucket -> the stages whose rows its file holds.
    :param expected: how many rows these are, about.
    """
    definition, version = context.definition, context.snapshot.state.version
    tree = entry_tree(context, columns, _entry_fields(context, columns))
    buckets = definition.shards
    store, directory = context.snapshot.store, f"{context.directory}/{folder}"
    if has_buckets(definition):
        actions = stage_bucket_files(store, tree, rows, directory, buckets, version, expected)
    else:
        actions = stage_rows(
            store, tree, rows, directory, single_target(buckets), kind="base", one_per_key=False, expected=expected,
            sequence_numbers={("", str(bucket)): version for bucket in range(buckets)},
        )  # fmt: skip
    return [
        replace(
            action,
            extra={**(action.extra or {}), _COLUMNS: list(columns), _STAGES: sorted(stages[action.group])},
        )
        for action in actions
    ]


def _entry_fields(context: IndexContext, columns: Sequence[str]) -> list[Field]:
    """Return entry columns with their types: those the index has for a name, else the table's."""
    known = {field.name: field for field in (*context.table.fields, *fields_of(context.definition))}
    return [known[name] for name in columns]


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_entries(
    context: IndexContext,
    files: Sequence[DataFile],
    columns: Sequence[str],
    *,
    only: Collection[int] | None = None,
    without: Collection[int] | None = None,
    types: T.StructType | None = None,
    together: bool = False,
) -> DataFrame:
    """Return the entries of some files.

    :param columns: in this order; what a file lacks is null; :data:`~spark_apps.indexes.lineage.LINEAGE` and
        :data:`~spark_apps.mergetree.tree.GROUP_ID` (the bucket that a file stands for) may be among them.
    :param only: only entries of these lineages.
    :param without: no entries of these.
    :param types: of the columns; those of the index by default.
    :param together: read files of all columns at once, as the buckets of one table; of columns that a file lacks
        Parquet's reader makes nulls.
    """
    if types is None:
        names = [name for name in columns if name not in (LINEAGE, GROUP_ID)]
        types = struct_type(tuple(_entry_fields(context, names)))
    by_columns: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        by_columns.setdefault(columns_of(file), []).append(file)
    if together and len(by_columns) > 1:
        by_columns = {tuple(dict.fromkeys(name for names in sorted(by_columns) for name in names)): list(files)}
    buckets = _buckets(context) if together else None
    parts = []
    for file_columns, group_files in sorted(by_columns.items()):
        tree = entry_tree(context, file_columns, fields_of(context.definition))
        existing = [name for name in columns if name in file_columns or name in (LINEAGE, GROUP_ID)]
        filtered = has_lineage(context.definition) and (only is not None or without)
        read = list(dict.fromkeys([*existing, *([LINEAGE] if filtered else ())])) or [file_columns[0]]
        rows = read_files(context.snapshot, tree, group_files, read, buckets=buckets)
        if filtered:
            rows = _filter_lineages(rows, only, without or ())
        if read != list(columns):
            is_complete = existing == list(columns)
            rows = (
                select_columns(rows, existing)
                if is_complete
                else rows.select(*[_column_or_null(name, existing, types) for name in columns])
            )
        parts.append(rows)
    return reduce(DataFrame.unionAll, parts)


def _buckets(context: IndexContext) -> dict[str, Any]:
    """Return what Spark is told of entry files that it takes for buckets."""
    definition = context.definition
    return {"buckets": definition.shards, "by": list(definition.columns), "sorted": list(definition.columns)}


def _column_or_null(name: str, existing: Sequence[str], types: T.StructType) -> Column:
    if name not in existing:
        return F.lit(None).cast(types[name].dataType).alias(name)
    return column(name)


def _filter_lineages(rows: DataFrame, only: Collection[int] | None, without: Collection[int]) -> DataFrame:
    lineages = sorted(without if only is None else only)
    if len(lineages) <= _MAX_LISTED:
        condition = f"{quote(LINEAGE)} IN ({', '.join(map(str, lineages)) or 'NULL'})"
        return rows.where(f"NOT {condition}" if only is None else condition)
    lineage_rows = inline(rows.sparkSession, [(lineage,) for lineage in lineages], "__index_l bigint")
    join_type = "left_anti" if only is None else "left_semi"
    return rows.join(F.broadcast(lineage_rows), F.col(LINEAGE) == F.col("__index_l"), join_type)


def files_holding(context: IndexContext, files: Sequence[DataFile], lineages: Collection[int]) -> list[DataFile]:
    """Return the entry files in which a row of these lineages lies.

    One Spark job.
    """
    if not files or not lineages:
        return []
    numbered = [replace(file, group=str(number)) for number, file in enumerate(files)]
    holding = read_entries(context, numbered, [GROUP_ID], only=lineages).distinct().collect()
    return [files[int(row[0])] for row in holding]


def missing_columns(columns: Iterable[str], others: Collection[str]) -> list[str]:
    """Return those of some columns that are not among others."""
    return [name for name in columns if not intersect_names([name], others)]


# --- Damage -----------------------------------------------------------------------------------------------------------


def check_readable(context: IndexContext, files: Sequence[DataFile]) -> None:
    """Refuse entry files that are gone or cut short, or whose footer or page index is garbled.

    :raises ObjectNotFound: naming the file.
    :raises StorageError: naming the file.
    """
    definition = context.definition
    tree = entry_tree(context, indexed_columns(context.table, definition), fields_of(definition))
    check_intact(context.snapshot, tree, files)


def check_pages(context: IndexContext, files: Sequence[DataFile], columns: Collection[str]) -> None:
    """Refuse garbled pages before a query is built on them.

    Those of the columns that it reads, once in a process.

    :raises StorageError: naming the file.
    """
    faults = damaged_pages(context.snapshot, [_pages(context, file, columns) for file in files if file.rows])
    for path, fault in sorted(faults.items()):
        raise damaged_file_error(path, OSError(fault))


def _pages(context: IndexContext, file: DataFile, columns: Collection[str]) -> Pages:
    file_columns = columns_of(file)
    held = (*file_columns, LINEAGE) if has_lineage(context.definition) else file_columns
    read = {name for name in columns if name in held} or {file_columns[0]}
    fields = entry_tree(context, file_columns, fields_of(context.definition)).fields
    return Pages(file, frozenset(read), round(file.bytes * column_share(fields, read)))


# --- Verification -----------------------------------------------------------------------------------------------------


_ROWS = "__index_rows"
_ENTRIES = "__index_entries"
_VALUES = "__index_values"


def verify(context: IndexContext) -> VerificationReport:
    """Compare a covering index with a full scan; see :meth:`~spark_apps.indexes.handler.IndexHandler.verify`."""
    index_files = context.snapshot.state.files(context.definition.tree)
    try:
        return _compare(context, index_files)
    except spark_errors(StorageError) as error:
        return unreadable(context, index_files, error)


def _compare(context: IndexContext, index_files: Sequence[DataFile]) -> VerificationReport:
    check_computes(context.snapshot, context.definition)
    coverage, files = Coverage.of(index_files), entry_files(index_files)
    _check_held(context, coverage)
    check_readable(context, files)
    live = {file.lineage: file for file in indexable(context.snapshot).values()}
    covered = coverage.lineages & live.keys()
    if not has_lineage(context.definition) and covered != coverage.lineages:
        covered = frozenset()  # of which file a row is cannot be known any more, and no query relies on it
    stale = sum(file.rows for file in files)
    if not covered:
        return _report(context, 0, 0, stale, len(live), {}, [])
    compared = []
    for columns, lineages in by_columns(context, coverage, covered).items():
        lying = rows_of(context, [live[lineage] for lineage in lineages], columns)
        compared.append((columns, 0, _with_bucket(context, lying)))
        if files:
            names = [*columns, *_lineage_columns(context), GROUP_ID]
            compared.append((columns, 1, read_entries(context, files, names, only=lineages)))
    equal = _count_equal(context, compared)
    if equal is not None:
        return _report(context, equal, equal, stale - equal, len(live) - len(covered), {}, [])
    parts = [_as_values(context, *part) for part in compared]
    with cached(_differences_by_identity(context, reduce(DataFrame.unionByName, parts))) as differing:
        sums = differing.agg(F.sum(_ROWS), F.sum(_ENTRIES), F.sum("missing"), F.sum("more"), F.sum("other")).collect()[
            0
        ]
        rows, entries, *fault_counts = (int(value or 0) for value in sums)
        examples = differing.where("missing + more + other > 0").limit(EXAMPLES).collect() if any(fault_counts) else []
    counts = dict(zip(("missing", "too many", "wrong values"), fault_counts, strict=True))
    return _report(context, rows, entries, stale - entries, len(live) - len(covered), counts, examples)


def _check_held(context: IndexContext, coverage: Coverage) -> None:
    """Check that the log says of no file that the index holds a column of it which the index does not have.

    :raises LogDamaged: naming the column.
    """
    known = set(schema_of(context.definition).names)
    stray = sorted({name for part in coverage.parts for name in part.columns} - known)
    if stray:
        raise damaged(context, f"holds a column {stray[0]!r}, which is none of its columns", COVERS)


def damaged(context: IndexContext, what: str, field: str) -> LogDamaged:
    """Return the error of a log that says of the index what cannot be.

    :param what: the log says of the index: ``"holds a column …"``.
    :param field: of the log.
    """
    return LogDamaged(
        f"The log of {context.snapshot.store.uri} says that the index {context.definition.name!r} {what} (field "
        f"{field!r}).",
        hint="Drop the index and create it again.",
    )


def by_columns(context: IndexContext, coverage: Coverage, covered: frozenset[int]) -> dict[tuple[str, ...], list[int]]:
    """Return columns to compare -> of which files.

    Without lineage these are compared at once, in what all entries have.
    """
    if not has_lineage(context.definition):
        common = [name for name in coverage.parts[0].columns if all(name in part.columns for part in coverage.parts)]
        return {tuple(common): sorted(covered)}
    lineages_by_columns: dict[tuple[str, ...], list[int]] = {}
    for part in coverage.parts:
        lineages = [lineage for lineage in part.lineages if lineage in covered]
        if lineages:
            lineages_by_columns.setdefault(part.columns, []).extend(lineages)
    return lineages_by_columns


def _lineage_columns(context: IndexContext) -> list[str]:
    return [LINEAGE] if has_lineage(context.definition) else []


def identity_columns(context: IndexContext) -> list[str]:
    """Return the columns by which an entry with other values is known to be of the same row."""
    # In a source the record key need not be unique, and its entries do without.
    key = context.table.record_key if context.table.source is None else ()
    indexed = indexed_columns(context.table, context.definition)
    return list(dict.fromkeys([*(key or indexed), *_lineage_columns(context)]))


def _with_bucket(context: IndexContext, rows: DataFrame) -> DataFrame:
    """Return rows with the bucket that a query looks for each in: by the table's types of today."""
    definition, types = context.definition, column_types(fields_in(context.table, context.definition))
    indexed = indexed_columns(context.table, definition)
    kinds = [types[name] for name in indexed]
    bucket = bucket_column(indexed, definition.shards, hash_of(definition), kinds)
    return rows.withColumn(GROUP_ID, bucket.cast("string"))


def _count_equal(context: IndexContext, compared: Sequence[tuple[Sequence[str], int, DataFrame]]) -> int | None:
    """Return how many rows there are if the entries are as many with the same sums of two hashes, else ``None``.

    One pass without a shuffle, where finding each difference sorts both sides. Rows that differ have the same sums once
    in 2**64 or so.
    """
    schema = schema_of(context.definition)
    digests = []
    for columns, entry, rows in compared:
        values = [_hashed(column(name), schema[name].dataType) for name in columns]
        values += [column(name) for name in (*_lineage_columns(context), GROUP_ID)]
        nulls = [column(name).isNull() for name in columns]  # which Spark's hash leaves out
        hashes = [F.xxhash64(F.lit(seed), *values, *nulls).cast("decimal(20,0)").alias(f"h{seed}") for seed in (0, 1)]
        digests.append(rows.select(F.lit(entry).alias(_ENTRIES), *hashes))
    sums = (F.count("*").alias("n"), F.sum("h0").alias("h0"), F.sum("h1").alias("h1"))
    sides = reduce(DataFrame.union, digests).groupBy(_ENTRIES).agg(*sums).collect()
    distinct = {(row["n"], row["h0"], row["h1"]) for row in sides}
    return int(sides[0]["n"]) if len(sides) == 2 and len(distinct) == 1 else None


def _hashed(value: Any, kind: T.DataType) -> Any:
    """Return what is hashed of a value: as it lies there where Spark hashes each value of the type differently."""
    exact = (T.BinaryType, T.BooleanType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType)
    return value if isinstance(kind, exact) else _text(value, kind)


def _as_values(context: IndexContext, columns: Sequence[str], entry: int, rows: DataFrame) -> DataFrame:
    """Return rows or entries as the columns that name one, with all its values and its bucket in one text."""
    schema = schema_of(context.definition)
    texts = [_text(column(name), schema[name].dataType) for name in columns]
    values = F.to_json(F.array(*texts, F.col(GROUP_ID)), {"ignoreNullFields": "false"})
    return rows.select(
        *map(column, identity_columns(context)),
        values.alias(_VALUES),
        F.lit(1 - entry).alias(_ROWS),
        F.lit(entry).alias(_ENTRIES),
    )


def _text(value: Any, kind: T.DataType) -> Any:
    if isinstance(kind, T.BinaryType):
        return F.hex(value)
    if isinstance(kind, (T.ArrayType, T.StructType, T.MapType)):
        return F.to_json(F.struct(value.alias("v")))
    return value.cast("string")


def _differences_by_identity(context: IndexContext, rows_and_entries: DataFrame) -> DataFrame:
    """Return one row per identity: its rows and entries counted, and how many of these disagree how."""
    identity = [column(name) for name in identity_columns(context)]
    by_values = rows_and_entries.groupBy(*identity, _VALUES).agg(
        F.sum(_ROWS).alias(_ROWS), F.sum(_ENTRIES).alias(_ENTRIES)
    )
    fewer, more = (F.greatest(F.col(a) - F.col(b), F.lit(0)) for a, b in ((_ROWS, _ENTRIES), (_ENTRIES, _ROWS)))
    by_identity = by_values.groupBy(*identity).agg(
        F.sum(_ROWS).alias(_ROWS), F.sum(_ENTRIES).alias(_ENTRIES), F.sum(fewer).alias("fewer"),
        F.sum(more).alias("surplus"), F.max(F.when(F.col(_ROWS) > F.col(_ENTRIES), F.col(_VALUES))).alias("expected"),
        F.max(F.when(F.col(_ENTRIES) > F.col(_ROWS), F.col(_VALUES))).alias("actual"),
    )  # fmt: skip
    wrong_values = F.least("fewer", "surplus")
    return by_identity.withColumns(
        {"other": wrong_values, "missing": F.col("fewer") - wrong_values, "more": F.col("surplus") - wrong_values}
    )


def _report(
    context: IndexContext, rows: int, entries: int, stale: int, uncovered: int, counts: dict[str, int], examples: Any
) -> VerificationReport:
    differences = []
    shown = {one.stored: one.name for one in indexed_by(context.table, context.definition)}
    for row in examples:
        fault = "wrong values" if row["other"] else "missing" if row["missing"] else "too many"
        key = {shown.get(name, name): row[name] for name in identity_columns(context) if name != LINEAGE}
        differences.append(Difference(fault, key, row["actual"], row["expected"]))
    return VerificationReport(
        index=context.definition.name, version=context.snapshot.state.version, rows=rows, entries=entries,
        missing=counts.get("missing", 0), too_many=counts.get("too many", 0), wrong_partition=0, stale=max(0, stale),
        uncovered=uncovered, differences=tuple(differences), wrong_values=counts.get("wrong values", 0),
    )  # fmt: skip
