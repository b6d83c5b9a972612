"""Answers from a covering index: for which data files it knows all columns of a query, and their rows.

A file's rows are taken from the index only if every column needed is held for it or known to be missing in it; else
the file is read. Rows are distinguished by lineage, so whatever share of the table has come or gone, none is wrong; the
thresholds only say when the detour is no longer worth it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from spark_apps.engine.pyspark_names import DataFrame, T
from spark_apps.indexes.computed import Indexed, cannot_use, fields_in, is_computed, usable_of
from spark_apps.indexes.covering.definition import fields_of, has_buckets, has_lineage, hash_of, threshold
from spark_apps.indexes.covering.index_files import (
    check_pages,
    check_readable,
    columns_of,
    entry_tree,
    read_entries,
    stages_of,
)
from spark_apps.indexes.handler import Buckets, CannotPrune, CoveringScan, EntryFiles, IndexContext, PredicateProbe
from spark_apps.indexes.included_columns import intersect_names
from spark_apps.indexes.limits import MAX_COVERING_KEYS, MAX_REMEMBERED_RANGES
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files
from spark_apps.indexes.ranges import Range, has_nan_on_top, range_of
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blocks import BlockFile, note_column_bytes, read_footers, stored_share
from spark_apps.mergetree.integrity import Identity, identity_of
from spark_apps.mergetree.schema import column_share, column_types, struct_type
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile, GroupKey, lowest_plain_file
from spark_apps.timeline.model import DATA_TREE

_MAX_HALVINGS = 7
"""How finely a range is divided: to a hundredth of it."""


RowGroupRanges = tuple[Mapping[str, Range], ...]
"""The ranges of the indexed columns in each row group of an entry file, as far as its footer has them."""

_RANGES: dict[tuple[str, str, Identity | None], RowGroupRanges] = {}


def row_group_ranges(
    snapshot: Snapshot, files: Sequence[DataFile], indexed: Mapping[str, ColumnType]
) -> list[RowGroupRanges]:
    """Return the ranges in the footers of entry files, read once as long as a file is the same.

    The files must have passed :func:`~spark_apps.mergetree.integrity.check_intact`.

    :param indexed: the indexed columns and their types.
    :raises StorageError: naming a file whose footer cannot be read.
    """
    keys = [(snapshot.store.uri, file.path, identity_of(snapshot, file.path)) for file in files]
    cached_ranges = {key: ranges for key in keys if (ranges := _RANGES.get(key)) is not None}
    uncached = {key: file for key, file in zip(keys, files, strict=True) if key not in cached_ranges}
    if uncached:
        footers = read_footers(snapshot, list(uncached.values()), own=True)
        for footer in footers:
            note_column_bytes(snapshot, footer)
        cached_ranges.update({key: ranges_of(footer, indexed) for key, footer in zip(uncached, footers, strict=True)})
        if len(_RANGES) > MAX_REMEMBERED_RANGES:
            _RANGES.clear()
        _RANGES.update({key: cached_ranges[key] for key in uncached})
    return [cached_ranges[key] for key in keys]


def ranges_of(footer: BlockFile, indexed: Mapping[str, ColumnType]) -> RowGroupRanges:
    """Return the ranges of the indexed columns in each row group of an entry file."""
    usable = {name: kind for name, kind in indexed.items() if footer.exact({name: kind.text})}
    on_top, ranges = has_nan_on_top(footer.parsed), []
    for block in range(footer.blocks):
        ranges_of_columns = {
            name: range_of(footer.statistics(block, name), kind, on_top) for name, kind in usable.items()
        }
        ranges.append(
            {name: column_range for name, column_range in ranges_of_columns.items() if column_range is not None}
        )
    return tuple(ranges)


def matching_fraction(probe: PredicateProbe | None, row_groups: RowGroupRanges, first: str) -> float:
    """Return which part of a file's rows can satisfy a predicate, from 0 (none of them, for certain) to 1, about.

    :param first: the first of the indexed columns, by which the file is sorted before all.
    """
    if probe is None or not row_groups:
        return 1.0
    parts = [_part(probe, ranges, first) for ranges in row_groups]
    return sum(parts) / len(parts)


def _part(probe: PredicateProbe, ranges: Mapping[str, Range], first: str) -> float:
    if not probe.may_match(ranges):
        return 0.0
    first_range = ranges.get(first)
    if first_range is None or not (first in probe.columns or is_computed(first)):
        return 1.0

    def part(half_range: Range, depth: int) -> float:
        if not probe.may_match({**ranges, first: half_range}):
            return 0.0
        if probe.spares_none(first, half_range):
            return 1.0
        halves = _halves(half_range) if depth else None
        return 1.0 if halves is None else sum(part(half, depth - 1) for half in halves) / 2

    # What remains when nothing is left of its halves is a page or two: the smallest part that is considered.
    return max(part(replace(first_range, nulls=False), _MAX_HALVINGS), 0.5**_MAX_HALVINGS)


def _halves(column_range: Range) -> tuple[Range, Range] | None:
    """Return a range cut in the middle; ``None`` where there is no middle, or none can be computed."""
    low, high = column_range.low, column_range.high
    middle: Any
    if low is None or isinstance(low, (bool, bytes)) or not low < high:
        return None
    if isinstance(low, str):
        middle = above = _between(low, high)
        if not low < middle < high:
            return None
    elif isinstance(low, dt.date) and not isinstance(low, dt.datetime):
        middle = low + dt.timedelta(days=(high - low).days // 2)
        above = middle + dt.timedelta(days=1)
    elif isinstance(low, int):
        middle = low + (high - low) // 2
        above = middle + 1
    else:
        middle = above = low + (high - low) / 2
        if isinstance(middle, float) and not math.isfinite(middle):
            return None
    return replace(column_range, high=middle), replace(column_range, low=above)


_CHARACTERS = 6
"""Characters after a common beginning by which the place of a text between two others is estimated."""

_LAST = 0x110000
_SURROGATES = range(0xD800, 0xE000)


def _between(low: str, high: str) -> str:
    """Return a text about halfway between two others, in the order of their characters; it may be one of them."""
    same = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    number = sum(_number(text[same:]) for text in (low, high)) // 2
    codes = []
    for _ in range(_CHARACTERS):
        number, code = divmod(number, _LAST)
        codes.append(_SURROGATES.start - 1 if code in _SURROGATES else code)
    return low[:same] + "".join(map(chr, reversed(codes)))


def _number(text: str) -> int:
    number = 0
    for character in text[:_CHARACTERS].ljust(_CHARACTERS, "\0"):
        number = number * _LAST + ord(character)
    return number


# --- Answers from a covering index ------------------------------------------------------------------------------------


def substitute(
    context: IndexContext, probe: PredicateProbe | None, columns: Sequence[str], groups: Collection[GroupKey]
) -> CoveringScan | CannotPrune:
    """Return the rows that the index holds; see :meth:`~spark_apps.indexes.handler.IndexHandler.substitute`."""
    compared = _compared(context)
    if isinstance(compared, CannotPrune):
        return compared
    index_files = context.snapshot.state.files(context.definition.tree)
    covered = Coverage.of(index_files)
    refusal = _beyond_thresholds(context, covered)
    if refusal is not None:
        return refusal
    needed = [name for name in columns if name != LINEAGE]
    usable = _usable(context, covered, needed, groups)
    if isinstance(usable, CannotPrune):
        return usable
    stages = {covered.stage(lineage) for lineage in usable}
    files = [file for file in entry_files(index_files) if stages & stages_of(file)]
    files = _in_matching_buckets(context, probe, files, compared)
    check_readable(context, files)
    lineages = frozenset(usable)
    void = _void_lineages(covered, files, lineages)
    read = [*needed, LINEAGE] if void else needed
    files, size = _in_matching_ranges(context, probe, files, read, compared)
    definition = context.definition

    def rows(names: Sequence[str]) -> DataFrame:
        return _rows(context, files, names, lineages, void)

    def rows_in_buckets(names: Sequence[str]) -> DataFrame:
        return _rows(context, files, names, lineages, void, together=True)

    # Of a keyed table the key is read too where a file has later deltas, and the file itself.
    key = (*context.table.record_key, LINEAGE) if context.table.source is None else ()
    buckets = Buckets(definition.shards, definition.columns, rows_in_buckets) if has_buckets(definition) else None
    check = partial(check_pages, context, files, {*read, *key})
    entries = EntryFiles(tuple(files), void, has_lineage(definition))
    return CoveringScan(lineages, rows, len(files), size, check, entries, buckets if files else None)


def _void_lineages(coverage: Coverage, files: Sequence[DataFile], lineages: frozenset[int]) -> frozenset[int]:
    """Return the data files whose entries may be in some entry files, and are not to be read.

    An entry file holds entries of the data files of its stages only, which are covered, or were and are gone: a refresh
    takes entries out of all files of their stages before it forgets them or writes them again, a compaction out of all
    that it merges, and what may be elsewhere is remembered (:attr:`Part.dropped`).
    """
    stages = frozenset[str]().union(*(stages_of(file) for file in files))
    parts = [part for part in coverage.parts if part.stage in stages]
    return frozenset(lineage for part in parts for lineage in (*part.lineages, *part.dropped)) - lineages


def _beyond_thresholds(context: IndexContext, coverage: Coverage) -> CannotPrune | None:
    """Return why so little of the table is as the index knows it that it is not used."""
    if not coverage.lineages:
        return CannotPrune("it holds rows of no file", "covers_nothing")
    if context.snapshot.partial:
        return None
    sizes = {file.lineage: file.bytes for file in context.snapshot.state.files(DATA_TREE)}
    total, covered = sum(sizes.values()), sum(coverage.bytes(lineage) for lineage in coverage.lineages)
    appended = sum(size for lineage, size in sizes.items() if lineage not in coverage.lineages)
    deleted = sum(coverage.bytes(lineage) for lineage in coverage.lineages - sizes.keys())
    for name, code, part, whole, condition in (
        ("hybrid_appended_ratio", "too_much_appended", appended, total, "of the table's bytes are new to it"),
        (
            "hybrid_deleted_ratio",
            "too_much_deleted",
            deleted,
            covered,
            "of the bytes that it covers are gone",
        ),
    ):
        limit = threshold(context.definition, name)
        if part > limit * whole:
            return CannotPrune(f"{part / whole:.0%} {condition}, more than {name}={limit:g}; refresh it", code)
    return None


@dataclass
class _Declined:
    """The reasons why files are not answered for."""

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
    context: IndexContext, coverage: Coverage, needed: Sequence[str], groups: Collection[GroupKey]
) -> list[int] | CannotPrune:
    """Return the data files whose rows come from the index."""
    snapshot, declined = context.snapshot, _Declined()
    retyped = _retyped_columns(context, needed)
    usable: list[int] = []
    lacking_in: dict[int, list[str]] = {}
    for files in snapshot.groups(only=groups).values():
        file = lowest_plain_file(files)
        part = None if file is None else coverage.part(file.lineage)
        if file is None or part is None:
            continue
        # Of the files of one part the same is known.
        lacking = lacking_in.get(id(part))
        if lacking is None:
            lacking = [name for name in needed if name in retyped or name.lower() not in part.known]
            lacking_in[id(part)] = lacking
        if lacking:
            declined.lacking |= frozenset(lacking)
        elif len(files) > 1 and snapshot.data.merge_by == "ordering":
            declined.ordering += 1
        else:
            usable.append(file.lineage)
    if usable and not has_lineage(context.definition) and not _all_untouched(context, coverage, needed, retyped):
        declined.lineage, usable = len(usable), []
    return usable or declined.reason()


def _all_untouched(context: IndexContext, coverage: Coverage, needed: Sequence[str], retyped: Collection[str]) -> bool:
    """Return whether every file that the index covers is there as it was, alone in its group, and answered for."""
    alone = {files[0].lineage for files in context.snapshot.groups().values() if len(files) == 1}
    return coverage.lineages <= alone and all(
        name not in retyped and coverage.answers(lineage, name) for lineage in coverage.lineages for name in needed
    )


def _retyped_columns(context: IndexContext, needed: Sequence[str]) -> frozenset[str]:
    """Return the columns that the index holds with another type than the table has by now."""
    index_types = {field.name.lower(): field.type for field in fields_of(context.definition)}
    table = column_types(context.table.fields)
    return frozenset(name for name in needed if index_types.get(name.lower(), table[name]) != table[name])


def _compared(context: IndexContext) -> tuple[Indexed, ...] | CannotPrune:
    """Return what the index is over that a predicate of this session is held against: its first, at the least."""
    usable = usable_of(context.snapshot, context.definition)
    refused = cannot_use(context.snapshot, context.definition)
    if refused is None or isinstance(usable, CannotPrune):
        return usable
    return usable if usable[0].name == context.definition.columns[0] else refused


def _in_matching_buckets(
    context: IndexContext, probe: PredicateProbe | None, files: list[DataFile], indexed: Sequence[Indexed]
) -> list[DataFile]:
    """Return the entry files of the buckets that can hold rows which satisfy the predicate."""
    definition = context.definition
    if probe is None or len(indexed) < len(definition.columns):
        return files
    keys = probe.keys([one.key for one in indexed], MAX_COVERING_KEYS)
    if isinstance(keys, CannotPrune):
        return files
    known = column_types(fields_in(context.table, definition))
    types = [known[one.stored] for one in indexed]
    buckets = {str(bucket_id(key, definition.shards, hash_of(definition), types)) for key in keys}
    return [file for file in files if file.group in buckets]


def _in_matching_ranges(
    context: IndexContext,
    probe: PredicateProbe | None,
    files: list[DataFile],
    needed: Collection[str],
    indexed: Sequence[Indexed],
) -> tuple[list[DataFile], int]:
    """Return the entry files that the predicate does not rule out by min and max, and their bytes read, about."""
    types = column_types(fields_in(context.table, context.definition))
    keys = {one.stored: one.key for one in indexed}
    kinds, first = {name: parse_type(types[name]) for name in keys}, next(iter(keys.values()))
    kept, size = [], 0.0
    for file, row_groups in zip(files, row_group_ranges(context.snapshot, files, kinds), strict=True):
        ranges = tuple({keys[name]: span for name, span in group.items()} for group in row_groups)
        part = matching_fraction(probe, ranges, first)
        if part:
            kept.append(file)
            share = stored_share(context.snapshot, [file], needed, own=True)
            if share is None:
                held = entry_tree(context, columns_of(file), fields_of(context.definition)).fields
                share = column_share(held, needed)
            size += part * file.bytes * share
    return kept, round(size)


def _rows(
    context: IndexContext,
    files: Sequence[DataFile],
    names: Sequence[str],
    lineages: frozenset[int],
    void: frozenset[int],
    *,
    together: bool = False,
) -> DataFrame:
    table = struct_type(context.table.fields)
    types = T.StructType([table[name] for name in names if name != LINEAGE and intersect_names([name], table.names)])
    if not files:
        fields = [T.StructField(LINEAGE, T.LongType()) if name == LINEAGE else types[name] for name in names]
        nullable = [T.StructField(field.name, field.dataType, True) for field in fields]
        return context.snapshot.spark.createDataFrame([], T.StructType(nullable))
    # Whichever list is the shorter; mostly there is nothing to filter at all.
    only = lineages if len(lineages) < len(void) else None
    return read_entries(context, files, names, only=only, without=void, types=types, together=together)
