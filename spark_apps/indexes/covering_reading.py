"""Answers from a covering index: for which data files it knows all columns of a query, and their rows.

A file's rows are taken from the index only if every column needed is held for it or known to be missing in it; else
the file is read. Rows are told apart by lineage, so whatever share of the table has come or gone, none is wrong; the
thresholds only say when the detour is no longer worth it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from spark_apps.indexes.columns import among
from spark_apps.indexes.covering_definition import has_lineage, hash_of, ratio, schema_of
from spark_apps.indexes.covering_entries import (
    check_pages,
    check_readable,
    columns_of,
    entry_tree,
    read_entries,
    stages_of,
)
from spark_apps.indexes.covering_ranges import left, told
from spark_apps.indexes.handler import CannotPrune, IndexContext, Question, Substitute
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files
from spark_apps.indexes.shares import share
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.schema import struct_type
from spark_apps.timeline.files import DataFile, GroupKey, lowest_plain
from spark_apps.timeline.model import DATA_TREE

_MOST_KEYS = 10_000


def substitute(
    context: IndexContext, question: Question | None, columns: Sequence[str], groups: Collection[GroupKey]
) -> Substitute | CannotPrune:
    """See :meth:`~spark_apps.indexes.handler.IndexHandler.substitute`."""
    index_files = context.snapshot.state.files(context.definition.tree)
    known = Coverage.of(index_files)
    worth = _worth_it(context, known)
    if worth is not None:
        return worth
    needed = [name for name in columns if name != LINEAGE]
    usable = _usable(context, known, needed, groups)
    if isinstance(usable, CannotPrune):
        return usable
    stages = {known.stage(lineage) for lineage in usable}
    files = [file for file in entry_files(index_files) if stages & stages_of(file)]
    files = _of_buckets(context, question, files)
    check_readable(context, files)
    files, size = _left(context, question, files, needed)
    lineages = frozenset(usable)

    def rows(names: Sequence[str]) -> DataFrame:
        return _rows(context, files, names, lineages)

    # Of a keyed table the key is read too where deltas lie over a file.
    key = context.table.record_key if context.table.source is None else ()
    return Substitute(lineages, rows, len(files), size, lambda: check_pages(context, files, {*needed, *key}))


def _worth_it(context: IndexContext, known: Coverage) -> CannotPrune | None:
    """Why so little of the table is as the index knows it that it is not asked."""
    if not known.lineages:
        return CannotPrune("it holds rows of no file", "covers_nothing")
    sizes = {file.lineage: file.bytes for file in context.snapshot.state.files(DATA_TREE)}
    total, told = sum(sizes.values()), sum(known.bytes(lineage) for lineage in known.lineages)
    appended = sum(size for lineage, size in sizes.items() if lineage not in known.lineages)
    deleted = sum(known.bytes(lineage) for lineage in known.lineages - sizes.keys())
    for name, code, part, whole, what in (
        ("hybrid_appended_ratio", "too_much_appended", appended, total, "of the table's bytes are new to it"),
        ("hybrid_deleted_ratio", "too_much_deleted", deleted, told, "of the bytes that it tells of are gone"),
    ):
        limit = ratio(context.definition, name)
        if part > limit * whole:
            return CannotPrune(f"{part / whole:.0%} {what}, more than {name}={limit:g}; refresh it", code)
    return None


@dataclass
class _Declined:
    """Why files are not answered for."""

    covered: int = 0
    ordering: int = 0
    lineage: int = 0
    lacking: frozenset[str] = frozenset()

    def reason(self) -> CannotPrune:
        if self.lacking:
            names = ", ".join(sorted(self.lacking))
            return CannotPrune(f"it does not hold {names} for the files that are left to read", "lacks_columns")
        if self.ordering:
            return CannotPrune("later deltas decide by the ordering column between their rows and it", "merged_rows")
        if self.lineage:
            return CannotPrune("without lineage it can answer for all its files only, as they were", "no_lineage")
        return CannotPrune("it holds rows of no file that is left to read", "covers_nothing")


def _usable(
    context: IndexContext, known: Coverage, needed: Sequence[str], groups: Collection[GroupKey]
) -> list[int] | CannotPrune:
    """The data files whose rows come from the index."""
    snapshot, declined = context.snapshot, _Declined()
    typed = _of_other_types(context, needed)
    usable: list[int] = []
    for files in snapshot.groups(only=groups).values():
        file = lowest_plain(files)
        if file is None or file.lineage not in known.lineages:
            continue
        lacking = [name for name in needed if name in typed or not known.answers(file.lineage, name)]
        if lacking:
            declined.lacking |= frozenset(lacking)
        elif len(files) > 1 and snapshot.data.merge_by == "ordering":
            declined.ordering += 1
        else:
            usable.append(file.lineage)
    if usable and not has_lineage(context.definition) and not _untouched(context, known, needed, typed):
        declined.lineage, usable = len(usable), []
    return usable or declined.reason()


def _untouched(context: IndexContext, known: Coverage, needed: Sequence[str], typed: Collection[str]) -> bool:
    """Whether every file that the index tells of is there as it was, alone in its group, and answered for."""
    alone = {files[0].lineage for files in context.snapshot.groups().values() if len(files) == 1}
    return known.lineages <= alone and all(
        name not in typed and known.answers(lineage, name) for lineage in known.lineages for name in needed
    )


def _of_other_types(context: IndexContext, needed: Sequence[str]) -> frozenset[str]:
    """Columns that the index holds with another type than the table has by now."""
    own = {field.name.lower(): field.dataType for field in schema_of(context.definition).fields}
    table = struct_type(context.table.fields)
    return frozenset(name for name in needed if own.get(name.lower(), table[name].dataType) != table[name].dataType)


def _of_buckets(context: IndexContext, question: Question | None, files: list[DataFile]) -> list[DataFile]:
    """The entry files of the buckets in which rows that satisfy the predicate can lie."""
    if question is None:
        return files
    definition = context.definition
    keys = question.keys(definition.columns, _MOST_KEYS)
    if isinstance(keys, CannotPrune):
        return files
    table = struct_type(context.table.fields)
    types = [table[name].dataType.simpleString() for name in definition.columns]
    buckets = {str(bucket_id(key, definition.shards, hash_of(definition), types)) for key in keys}
    return [file for file in files if file.group in buckets]


def _left(
    context: IndexContext, question: Question | None, files: list[DataFile], needed: Collection[str]
) -> tuple[list[DataFile], int]:
    """The entry files that the predicate does not rule out by their min and max, and the bytes read of them, about."""
    table, indexed = struct_type(context.table.fields), context.definition.columns
    kinds = {name: parse_type(table[name].dataType.simpleString()) for name in indexed}
    kept, size = [], 0.0
    for file, footer in zip(files, told(context.snapshot, files, kinds), strict=True):
        part = left(question, footer, indexed[0])
        if part:
            kept.append(file)
            schema = entry_tree(context, columns_of(file), schema_of(context.definition)).schema
            # By types, as the table's files are counted that it is compared with.
            size += part * file.bytes * share(schema, {*needed, LINEAGE})
    return kept, round(size)


def _rows(
    context: IndexContext, files: Sequence[DataFile], names: Sequence[str], lineages: frozenset[int]
) -> DataFrame:
    table = struct_type(context.table.fields)
    types = T.StructType([table[name] for name in names if name != LINEAGE and among([name], table.names)])
    if not files:
        fields = [T.StructField(LINEAGE, T.LongType()) if name == LINEAGE else types[name] for name in names]
        nullable = [T.StructField(field.name, field.dataType, True) for field in fields]
        return context.snapshot.spark.createDataFrame([], T.StructType(nullable))
    return read_entries(context, files, names, only=lineages, types=types)
