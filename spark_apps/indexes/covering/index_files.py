"""Entries of a covering index: rows read from data files, written to one file per bucket and stage, read back.

Each entry file says in the log which columns it has and which stages' rows it can hold. Files are read with exactly
their columns, those of like columns together, and the rest is added as nulls; Parquet's schema merging is never used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T
from spark_apps.engine.spark_utils import inline
from spark_apps.indexes.comparison import ArrowReader, Comparison, Part
from spark_apps.indexes.computed import (
    check_computes,
    columns_for,
    expressions_in,
    fields_in,
    indexed_by,
    values_for,
)
from spark_apps.indexes.covering.definition import (
    fields_of,
    has_buckets,
    has_lineage,
    hash_of,
    indexed_columns,
)
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.included_columns import intersect_names
from spark_apps.indexes.keyed.lookup import buckets_of_keys, damaged_file_error
from spark_apps.indexes.limits import MAX_LISTED
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files, indexable
from spark_apps.layout.hashing import on_driver
from spark_apps.mergetree.buckets import bucket_column, single_target
from spark_apps.mergetree.damaged_pages import Pages, damaged_pages
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import column, column_share, column_types, quote, select_columns, struct_type
from spark_apps.mergetree.tree import GROUP_ID, Tree
from spark_apps.mergetree.write import stage_bucket_files, stage_rows
from spark_apps.storage.documents import reason
from spark_apps.storage.errors import InvalidInput, LogDamaged, StorageError
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import COVERS, AddFile, Field

_COLUMNS = "columns"
_STAGES = "stages"


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


def holding(columns: Iterable[str], stages: Iterable[str]) -> dict[str, Any]:
    """Return what the log keeps among what is extra of an entry file.

    :param columns: that it has. :param stages: whose rows it can hold.
    """
    return {_COLUMNS: list(columns), _STAGES: sorted(stages)}


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
    """Return the rows that data files hold, without their deltas, with :data:`~spark_apps.indexes.lineage.LINEAGE`.

    :param columns: of entries: of the table, and values of indexed expressions.
    :raises InvalidInput: if this session may compute other values than the index holds.
    """
    check_computes(context.snapshot, context.definition)
    snapshot, found = context.snapshot, indexed_by(context.table, context.definition)
    # The reader adds the group of a row's file: with a group for each file, that is the file itself.
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
            extra={**(action.extra or {}), **holding(columns, stages[action.group])},
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
        :data:`~spark_apps.mergetree.tree.GROUP_ID` (the bucket of a file) may be among them.
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
    """Return the bucketing that Spark is to assume of entry files."""
    definition = context.definition
    return {"buckets": definition.shards, "by": list(definition.columns), "sorted": list(definition.columns)}


def _column_or_null(name: str, existing: Sequence[str], types: T.StructType) -> Column:
    if name not in existing:
        return F.lit(None).cast(types[name].dataType).alias(name)
    return column(name)


def _filter_lineages(rows: DataFrame, only: Collection[int] | None, without: Collection[int]) -> DataFrame:
    lineages = sorted(without if only is None else only)
    if len(lineages) <= MAX_LISTED:
        condition = f"{quote(LINEAGE)} IN ({', '.join(map(str, lineages)) or 'NULL'})"
        return rows.where(f"NOT {condition}" if only is None else condition)
    lineage_rows = inline(rows.sparkSession, [(lineage,) for lineage in lineages], "__index_l bigint")
    join_type = "left_anti" if only is None else "left_semi"
    return rows.join(F.broadcast(lineage_rows), F.col(LINEAGE) == F.col("__index_l"), join_type)


def files_holding(context: IndexContext, files: Sequence[DataFile], lineages: Collection[int]) -> list[DataFile]:
    """Return the entry files that hold a row of these lineages.

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


def comparison(context: IndexContext, reader: ArrowReader | None) -> Comparison | None:
    """Return the rows of the files covered as entries, each with its bucket, and the entries that there are of them."""
    table, definition = context.table, context.definition
    if reader is not None and (expressions_in(table, definition) or not on_driver(hash_of(definition))):
        return None
    check_computes(context.snapshot, definition)
    index_files = context.snapshot.state.files(definition.tree)
    coverage, files = Coverage.of(index_files), entry_files(index_files)
    _check_held(context, coverage)
    if reader is None:
        check_readable(context, files)
    live = {file.lineage: file for file in indexable(context.snapshot).values()}
    covered = coverage.lineages & live.keys()
    if not has_lineage(definition) and covered != coverage.lineages:
        covered = frozenset()  # of which file a row is cannot be known any more, and no query relies on it
    identity = _identity_columns(context)
    parts = []
    for columns, lineages in _by_columns(context, coverage, covered).items() if covered else ():
        of_lineages = [live[lineage] for lineage in lineages]
        expected, stored = (
            _in_spark(context, columns, of_lineages, files)
            if reader is None
            else _in_arrow(context, columns, of_lineages, files, reader)
        )
        parts.append(Part(identity, (*columns, GROUP_ID), expected, stored))
    shown = {one.stored: one.name for one in indexed_by(table, definition)}
    return Comparison(
        parts,
        shown={name: shown.get(name, name) for name in identity if name != LINEAGE},
        text=lambda _, texts: json.dumps(texts, separators=(",", ":"), ensure_ascii=False),
        other="wrong values",
        uncovered=len(live) - len(covered),
        once=False,
        held=sum(file.rows for file in files),
    )


def _in_spark(
    context: IndexContext, columns: Sequence[str], of: Sequence[DataFile], files: Sequence[DataFile]
) -> tuple[DataFrame, DataFrame]:
    """Return the entries that data files should have, and those that index files hold of them."""
    definition, types = context.definition, column_types(fields_in(context.table, context.definition))
    indexed = indexed_columns(context.table, definition)
    bucket = bucket_column(indexed, definition.shards, hash_of(definition), [types[name] for name in indexed])
    expected = rows_of(context, of, columns).withColumn(GROUP_ID, bucket.cast("string"))
    names = [*columns, *_lineage_columns(context), GROUP_ID]
    lineages = [file.lineage for file in of]
    return expected, read_entries(context, files, names, only=lineages) if files else expected.where("false")


def _in_arrow(
    context: IndexContext,
    columns: Sequence[str],
    of: Sequence[DataFile],
    files: Sequence[DataFile],
    reader: ArrowReader,
) -> tuple[Any, Any]:
    """Return what :func:`_in_spark` does, as Arrow tables."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tree = entry_tree(context, columns, context.table.fields)
    expected = reader.unmerged(context.snapshot.data, of, [*columns, *_lineage_columns(context)])
    buckets = buckets_of_keys(tree, expected, context.definition.shards) if len(expected) else []
    if buckets is None:
        raise InvalidInput(
            f"The index {context.definition.name!r} holds a value that Python does not know.",
            hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
        )
    expected = expected.append_column(GROUP_ID, pa.array(map(str, buckets), pa.string()))
    stored = reader.unmerged(tree, files, expected.column_names, columns_of)
    if has_lineage(context.definition):
        lineages = pa.array([file.lineage for file in of], pa.int64())
        stored = stored.filter(pc.is_in(stored[LINEAGE], value_set=lineages))
    return expected, stored


def _check_held(context: IndexContext, coverage: Coverage) -> None:
    """Check that the log says of no file that the index holds a column of it which the index does not have.

    :raises LogDamaged: naming the column.
    """
    known = {field.name for field in fields_of(context.definition)}
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


def _by_columns(context: IndexContext, coverage: Coverage, covered: frozenset[int]) -> dict[tuple[str, ...], list[int]]:
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


def _identity_columns(context: IndexContext) -> tuple[str, ...]:
    """Return the columns by which an entry with other values is known to be of the same row."""
    # In a source the record key need not be unique, and its entries do without.
    key = context.table.record_key if context.table.source is None else ()
    indexed = indexed_columns(context.table, context.definition)
    return tuple(dict.fromkeys([*(key or indexed), *_lineage_columns(context)]))
