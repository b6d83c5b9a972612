"""Entries of a covering index: rows read from data files, written to one file a bucket and stage, read back.

Each entry file says in the log which columns it has and which stages' rows it can hold. Files are read with exactly
their columns, those of like columns together, and the rest is added as nulls; Parquet's schema merging is never used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.indexes.columns import among
from spark_apps.indexes.covering_definition import has_lineage, hash_of, schema_of
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.lineage import LINEAGE
from spark_apps.indexes.lookup import damaged
from spark_apps.indexes.shares import share
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.pages import Pages, damaged_pages
from spark_apps.mergetree.placing import single_target
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import chosen, column, quote, struct_type
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import AddFile

_COLUMNS = "columns"
_STAGES = "stages"

_LISTED = 1000
"""Up to so many lineages are a list in the filter, more a broadcast join."""


def columns_of(file: DataFile | AddFile) -> tuple[str, ...]:
    """The columns of an entry file, without the lineage."""
    return tuple((file.extra or {})[_COLUMNS])


def stages_of(file: DataFile | AddFile) -> frozenset[str]:
    """The stages whose rows an entry file can hold."""
    return frozenset((file.extra or {})[_STAGES])


def entry_tree(context: IndexContext, columns: Sequence[str], schema: T.StructType) -> Tree:
    """Entry files with these columns, as a tree that readers and writers know."""
    definition = context.definition
    fields = [T.StructField(name, schema[name].dataType, True) for name in columns]
    if has_lineage(definition):
        fields.append(T.StructField(LINEAGE, T.LongType(), True))
    return Tree(
        name=definition.tree,
        schema=T.StructType(fields),
        key=definition.columns,
        hash_fields=definition.columns,
        hash_function=hash_of(definition),
        unique=tuple(name for name in columns if (name,) == context.table.record_key),
    )


# --- rows of the data ----------------------------------------------------------------------------------------------


def rows_of(snapshot: Snapshot, files: Iterable[DataFile], columns: Sequence[str]) -> DataFrame:
    """The rows of data files as they lie there, with :data:`~spark_apps.indexes.lineage.LINEAGE`."""
    # The reader tells of a row the group of its file; here that is the file itself.
    single = [replace(file, group=str(file.lineage)) for file in files]
    rows = read_files(snapshot, snapshot.data, single, [*columns, GROUP_ID])
    return rows.select(*map(column, columns), F.col(GROUP_ID).cast("bigint").alias(LINEAGE))


def lacking(snapshot: Snapshot, files: Sequence[DataFile], columns: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Lineage of each file -> those of the columns that are null in all its rows. One Spark job."""
    if not columns or not files:
        return {file.lineage: () for file in files}
    rows = rows_of(snapshot, files, columns)
    there = [F.max(column(name).isNotNull()).alias(f"c{n}") for n, name in enumerate(columns)]
    found = {row[LINEAGE]: row for row in rows.groupBy(LINEAGE).agg(*there).collect()}
    return {
        file.lineage: tuple(
            name for n, name in enumerate(columns) if file.lineage not in found or not found[file.lineage][f"c{n}"]
        )
        for file in files
    }


# --- writing -------------------------------------------------------------------------------------------------------


def stage_entries(
    context: IndexContext,
    rows: DataFrame,
    columns: Sequence[str],
    folder: str,
    stages: Mapping[str, Collection[str]],
    expected: int = 0,
) -> list[AddFile]:
    """Writes entries, one file a bucket, sorted by the indexed columns.

    :param folder: name of a folder below the context's directory that does not exist yet.
    :param stages: bucket -> the stages whose rows its file holds.
    :param expected: how many rows these are, about.
    """
    definition, version = context.definition, context.snapshot.state.version
    tree = entry_tree(context, columns, _types(context, columns))
    buckets = definition.shards
    actions = stage_rows(
        context.snapshot.store, tree, rows, f"{context.directory}/{folder}", single_target(buckets), kind="base",
        one_a_key=False, places={("", str(bucket)): version for bucket in range(buckets)}, expected=expected,
    )  # fmt: skip
    return [
        replace(
            action,
            extra={**(action.extra or {}), _COLUMNS: list(columns), _STAGES: sorted(stages[action.group])},
        )
        for action in actions
    ]


def _types(context: IndexContext, columns: Sequence[str]) -> T.StructType:
    """The types of entry columns: those the index has for a name, else the table's."""
    own = {field.name: field for field in schema_of(context.definition).fields}
    table = struct_type(context.table.fields)
    return T.StructType([own[name] if name in own else table[name] for name in columns])


# --- reading -------------------------------------------------------------------------------------------------------


def read_entries(
    context: IndexContext,
    files: Sequence[DataFile],
    columns: Sequence[str],
    *,
    only: Collection[int] | None = None,
    without: Collection[int] | None = None,
    types: T.StructType | None = None,
) -> DataFrame:
    """The entries of some files.

    :param columns: in this order; what a file lacks is null; :data:`~spark_apps.indexes.lineage.LINEAGE` and
        :data:`~spark_apps.mergetree.tree.GROUP_ID` (the bucket that a file stands for) may be among them.
    :param only: only entries of these lineages. :param without: no entries of these.
    :param types: of the columns; those of the index by default.
    """
    types = types or _types(context, [name for name in columns if name not in (LINEAGE, GROUP_ID)])
    alike: dict[tuple[str, ...], list[DataFile]] = {}
    for file in files:
        alike.setdefault(columns_of(file), []).append(file)
    parts = []
    for there, some in sorted(alike.items()):
        tree = entry_tree(context, there, schema_of(context.definition))
        wanted = [name for name in columns if name in there or name in (LINEAGE, GROUP_ID)]
        filtered = has_lineage(context.definition) and (only is not None or without)
        read = list(dict.fromkeys([*wanted, *([LINEAGE] if filtered else ())])) or [there[0]]
        rows = read_files(context.snapshot, tree, some, read)
        if filtered:
            rows = _of_lineages(rows, only, without or ())
        if read != list(columns):
            made = wanted == list(columns)
            rows = chosen(rows, wanted) if made else rows.select(*[_present(name, wanted, types) for name in columns])
        parts.append(rows)
    return reduce(DataFrame.unionAll, parts)


def _present(name: str, there: Sequence[str], types: T.StructType) -> Column:
    if name not in there:
        return F.lit(None).cast(types[name].dataType).alias(name)
    return column(name)


def _of_lineages(rows: DataFrame, only: Collection[int] | None, without: Collection[int]) -> DataFrame:
    lineages = sorted(without if only is None else only)
    if len(lineages) <= _LISTED:
        listed = f"{quote(LINEAGE)} IN ({', '.join(map(str, lineages)) or 'NULL'})"
        return rows.where(f"NOT {listed}" if only is None else listed)
    known = inline(rows.sparkSession, [(lineage,) for lineage in lineages], "__index_l bigint")
    how = "left_anti" if only is None else "left_semi"
    return rows.join(F.broadcast(known), F.col(LINEAGE) == F.col("__index_l"), how)


def holders(context: IndexContext, files: Sequence[DataFile], lineages: Collection[int]) -> list[DataFile]:
    """The entry files in which a row of these lineages lies. One Spark job."""
    if not files or not lineages:
        return []
    numbered = [replace(file, group=str(number)) for number, file in enumerate(files)]
    found = read_entries(context, numbered, [GROUP_ID], only=lineages).distinct().collect()
    return [files[int(row[0])] for row in found]


def missing_columns(columns: Iterable[str], there: Collection[str]) -> list[str]:
    """Those of some columns that are not among others."""
    return [name for name in columns if not among([name], there)]


# --- damage --------------------------------------------------------------------------------------------------------


def check_readable(context: IndexContext, files: Sequence[DataFile]) -> None:
    """Finds entry files that are gone or cut short, or whose footer or page index is garbled.

    :raises ObjectNotFound: :raises StorageError: naming the file.
    """
    check_intact(context.snapshot, entry_tree(context, (), T.StructType([])), files)


def check_pages(context: IndexContext, files: Sequence[DataFile], columns: Collection[str]) -> None:
    """Finds garbled pages before a query is built on them: those of the columns that it reads, once in a process.

    :raises StorageError: naming the file.
    """
    faults = damaged_pages(context.snapshot, [_pages(context, file, columns) for file in files if file.rows])
    for path, fault in sorted(faults.items()):
        raise damaged(path, OSError(fault))


def _pages(context: IndexContext, file: DataFile, columns: Collection[str]) -> Pages:
    there = columns_of(file)
    told = [LINEAGE] if has_lineage(context.definition) else []
    read = {*told, *(name for name in columns if name in there)} or {there[0]}
    schema = entry_tree(context, there, schema_of(context.definition)).schema
    return Pages(file, frozenset(read), round(file.bytes * share(schema, read)))
