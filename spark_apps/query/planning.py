"""Decides what a query reads, and why: by partition values, by the bucket layout, and by indexes.

:func:`plan_read` makes a :class:`ReadPlan`, once; nothing changes it afterwards, and what reads or explains only looks
at it. File groups are narrowed down first, by means that can be wrong in one direction only: they name too many. Then
indexes that hold rows are taken in place of files where they read less, and files of which few blocks are left are
read by blocks. What an index does not cover is read; an index that cannot be read, or whose code is not installed, is
left out with a warning. The predicate is applied to the rows in any case.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import and_, or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spark_apps.engine.spark_utils import cores, is_built_in, setting
from spark_apps.indexes.computed import indexed_by, is_computed, shown_key
from spark_apps.indexes.handler import (
    Buckets,
    CannotPrune,
    CoveringScan,
    IndexContext,
    IndexHandler,
    Key,
    PredicateProbe,
    estimated_rows,
)
from spark_apps.indexes.limits import MAX_DRIVER_KEYS, MAX_RETURNED_KEYS
from spark_apps.indexes.ranges import Range, range_of
from spark_apps.indexes.registry import asked_by, available, columns_gone
from spark_apps.layout.hashing import is_known
from spark_apps.layout.partitions import value_of
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blocks import BlockFile, BlockRead, is_readable, read_footers, stored_share
from spark_apps.mergetree.buckets import compute_buckets, is_computable
from spark_apps.mergetree.reader_settings import (
    TEXTS,
    corrupt_column,
    keeps_damaged_records,
    session_difference,
    unknown_time_zone,
)
from spark_apps.mergetree.schema import column_share
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.limits import (
    ALWAYS_CHARACTERS,
    ALWAYS_KEYS,
    MAX_BLOCK_FILES,
    MAX_BUCKET_KEYS,
    MAX_KEYS,
    MAX_SAMPLED_FILES,
    MIN_SAVED_BYTES,
)
from spark_apps.query.predicates import (
    And,
    Comparison,
    Filter,
    Fixed,
    In,
    IsNull,
    KeySet,
    NothingMatches,
    Opaque,
    Or,
    Predicate,
    always_matches,
    check_predicate,
    columns_of,
    conjuncts,
    keys_for,
    may_match,
    of_whole_rows,
    said_of,
    walk,
)
from spark_apps.storage.errors import InvalidInput, LakeIndexError, LogDamaged, StorageError
from spark_apps.storage.printing import Grid, Printed, View, counted
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import OWN_ENGINE, IndexDefinition, TableDefinition
from spark_apps.timeline.state import IndexEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_BYTES = 256 * 1024
"""What looking one record key up in a file reads at most, about: some pages of its row group, and the footer."""

# Benchmarks: `python -m benchmarks --only scan`.
_BYTES_A_SECOND = 60e6
_FILE_SECONDS = 0.002
_REMOTE_FILE_SECONDS = 0.05
_KEY_SECONDS = 0.00025
_JOB_SECONDS = 0.7
_JOINED_KEY_SECONDS = 0.00003
_CHARACTER_SECONDS = 3e-6


def scan_seconds(snapshot: Snapshot, files: Iterable[DataFile], share: float = 1.0) -> float:
    """Estimate how long Spark reads some files, beyond what any query takes.

    :param share: of their bytes that are read.
    """
    sizes = [file.bytes for file in files]
    at_once = cores(snapshot.spark) if snapshot.has_spark else 1
    return (share * sum(sizes) / _BYTES_A_SECOND + len(sizes) * _file_seconds(snapshot)) / at_once


def read_seconds(spark: SparkSession, size: int) -> float:
    """Estimate how long Spark reads a number of bytes, beyond what any query takes."""
    return size / _BYTES_A_SECOND / cores(spark)


def _scan_is_cheaper_than_parsing(snapshot: Snapshot, where: str) -> bool:
    """Return whether all files are read sooner than a predicate is parsed.

    A predicate that Spark refuses is parsed, for the parser knows the position of the error.
    """
    if len(where) <= ALWAYS_CHARACTERS:
        return False
    files = [file for files in snapshot.groups().values() for file in files]
    if scan_seconds(snapshot, files) >= len(where) * _CHARACTER_SECONDS:
        return False
    try:
        check_predicate(snapshot, where)
    except InvalidInput:
        return False
    return True


def scan_is_cheaper(
    snapshot: Snapshot, entry: IndexEntry, probe: PredicateProbe, groups: Iterable[GroupKey]
) -> str | None:
    """Return why an index of keys is not asked, if its answer would take longer than what it can save.

    :param groups: the file groups that would be read without it.
    """
    if entry.by_file:
        return None
    columns = tuple(one.key for one in indexed_by(snapshot.table, entry.definition))
    keys = probe.keys(columns or snapshot.table.record_key)
    if isinstance(keys, CannotPrune) or len(keys) <= ALWAYS_KEYS:
        return None
    groups_read = snapshot.groups(only=list(groups))
    files = [file for group in groups_read.values() for file in group]
    saved = scan_seconds(snapshot, files) - _remaining_seconds(snapshot, files, len(groups_read), len(keys))
    lookup_time = _lookup_seconds(snapshot, entry, len(keys))
    if lookup_time <= saved:
        return None
    return (
        f"looking {len(keys):,} keys up takes about {lookup_time:.2g} s and saves {max(0.0, saved):.2g} s of reading "
        f"the {sum(file.bytes for file in files):,} bytes that are left"
    )


def _remaining_seconds(snapshot: Snapshot, files: list[DataFile], groups: int, keys: int) -> float:
    """Estimate the seconds that reading takes once the index has answered, if each key has one row, anywhere."""
    if not groups:
        return 0.0
    share = 1 - (1 - 1 / groups) ** keys
    if keys > MAX_RETURNED_KEYS:
        return share * scan_seconds(snapshot, files)
    size = sum(file.bytes for file in files)
    return share * scan_seconds(snapshot, files, min(1.0, keys * KEY_BYTES / max(1.0, share * size)))


def _lookup_seconds(snapshot: Snapshot, entry: IndexEntry, keys: int) -> float:
    files = snapshot.state.files(entry.definition.tree)
    if keys > MAX_DRIVER_KEYS:
        return _JOB_SECONDS + keys * _JOINED_KEY_SECONDS + scan_seconds(snapshot, files)
    read = min(sum(file.bytes for file in files), keys * KEY_BYTES)
    return keys * _KEY_SECONDS + len(files) * _file_seconds(snapshot) + read / _BYTES_A_SECOND


def _file_seconds(snapshot: Snapshot) -> float:
    return _FILE_SECONDS if snapshot.store.spark_path("x").startswith("file:") else _REMOTE_FILE_SECONDS


# --- A predicate ----------------------------------------------------------------------------------------------------


class ParsedPredicateProbe:
    """See :class:`spark_apps.indexes.handler.PredicateProbe`."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.columns = columns_of(predicate)
        self._of_column: dict[str, Predicate] = {}

    def __str__(self) -> str:
        return str(self.predicate)

    def keys(self, columns: Sequence[str], limit: int = MAX_KEYS) -> Collection[Key] | CannotPrune:
        bound = keys_for(self.predicate, columns, limit)
        if isinstance(bound, KeySet):
            return bound.keys
        return frozenset() if isinstance(bound, NothingMatches) else CannotPrune(bound.reason, bound.code)

    def may_match(self, values: Mapping[str, Any]) -> bool:
        return may_match(self.predicate, values)

    def spares_none(self, column: str, values: Range) -> bool:
        if column not in self._of_column:
            self._of_column[column] = said_of(self.predicate, column)
        return always_matches(self._of_column[column], {column: values})

    def ends(self, column: str) -> tuple[Any, Any]:
        low: Any = None
        high: Any = None
        left = [self.predicate]
        while left:
            node = left.pop()
            if isinstance(node, And):
                left.extend(node.parts)
            if not isinstance(node, (Comparison, In)) or node.column != column:
                continue
            values = node.values if isinstance(node, In) else (node.literal,)
            try:
                least, most = min(values, default=None), max(values, default=None)
                if any(value != value for value in (least, most)):
                    continue  # no number is above NaN, and none equals it by Python
                if least is not None and (isinstance(node, In) or not node.op.startswith("<") or node.op == "<=>"):
                    low = least if low is None else max(low, least)
                if most is not None and (isinstance(node, In) or not node.op.startswith(">")):
                    high = most if high is None else min(high, most)
            except TypeError:
                continue  # values that have no order say nothing of ends
        return low, high


# --- The plan ---------------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

UNREADABLE_INDEX = (StorageError, InvalidInput, LookupError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What handlers meet in damaged files of an index, and in a definition that was not written by a build: the
log is input, and a property that is missing or no number makes a query slower."""

BUCKETS = "bucket layout"
"""The name of the table's own layout among the indexes that a plan used."""

Keys = frozenset[Key] | None


@dataclass(frozen=True)
class Narrowed:
    """The part of a table that is left to read.

    :param groups: file groups that can hold matching rows, each with the record keys that these can have (``None``:
        any).
    :param blocks: lineage of a data file -> the blocks of it that can hold such rows; of files not in it, all.
    :param block_counts: lineage of a data file -> how many blocks it has, where that is known.
    """

    groups: dict[GroupKey, Keys]
    blocks: dict[int, frozenset[int]] = field(default_factory=dict)
    block_counts: dict[int, int] = field(default_factory=dict)

    def __and__(self, other: Narrowed) -> Narrowed:
        met: dict[GroupKey, Keys] = {}
        for group in self.groups.keys() & other.groups.keys():
            first, second = self.groups[group], other.groups[group]
            keys = second if first is None else first if second is None else first & second
            if keys is None or keys:
                met[group] = keys
        blocks = dict(self.blocks)
        for lineage, numbers in other.blocks.items():
            blocks[lineage] = blocks.get(lineage, numbers) & numbers
        return Narrowed(dict(sorted(met.items())), blocks, self._counts_with(other))

    def __or__(self, other: Narrowed) -> Narrowed:
        joined = dict(self.groups)
        for group, keys in other.groups.items():
            known = joined.get(group, frozenset())
            joined[group] = None if keys is None or known is None else known | keys
        blocks = {
            lineage: self.blocks[lineage] | other.blocks[lineage] for lineage in self.blocks.keys() & other.blocks
        }
        return Narrowed(joined, blocks, self._counts_with(other))

    def _counts_with(self, other: Narrowed) -> dict[int, int]:
        """Return the blocks of each file, and a number that no file has where two indexes disagree."""
        counts = {**self.block_counts, **other.block_counts}
        for lineage in self.block_counts.keys() & other.block_counts.keys():
            if self.block_counts[lineage] != other.block_counts[lineage]:
                counts[lineage] = -1
        return counts


@dataclass(frozen=True)
class IndexUse:
    """An index that was asked: files read of it, bytes read, and file groups of the data that were left.

    :param replaces: data files whose rows are read from the index instead; ``files`` and ``bytes`` are then what the
        query itself reads of it, by estimate, and ``instead_of`` the bytes that it would read of those files.
    """

    name: str
    files: int
    bytes: int
    groups: int
    replaces: int = 0
    instead_of: int = 0


@dataclass(frozen=True)
class NotUsed:
    """The reason for which an index was not used.

    ``code`` is one of: ``no_keys`` (the predicate does not bound its columns),
    ``not_active``, ``covers_nothing``, ``unreadable``, ``no_handler``, ``too_many_keys``, ``too_many_values``,
    ``scan_is_cheaper``, ``cannot_prune``; of an index that holds rows also: ``lacks_columns``, ``too_much_appended``,
    ``too_much_deleted``, ``merged_rows``, ``no_lineage``, ``costs_more``, ``nothing_left``,
    ``connector_reads`` (its connector must read the rows itself); of a source's
    ``session_differs``, ``session_unknown``, the first of one over expressions too, and ``damaged_records`` (which
    depend on the query); where there is no Spark session ``no_session``.
    """

    code: str
    reason: str


@dataclass(frozen=True)
class BlockChoice:
    """Files of which some blocks are read.

    :param bytes: of the needed columns in these blocks. :param instead_of: what a scan by Spark would read of them.
    """

    reads: tuple[BlockRead, ...]
    bytes: int
    instead_of: int

    @property
    def lineages(self) -> frozenset[int]:
        return frozenset(read.file.lineage for read in self.reads)

    @property
    def blocks(self) -> int:
        """The number of blocks that are read."""
        return sum(len(read.blocks) for read in self.reads)

    @property
    def skipped(self) -> int:
        """The number of blocks of these files that are not read."""
        return sum(read.footer.blocks for read in self.reads) - self.blocks

    @property
    def rows(self) -> tuple[int, int] | None:
        """The rows in these blocks, and those of these files, where footers tell them."""
        if not all(read.footer.rows for read in self.reads):
            return None
        left = sum(read.footer.rows[block] for read in self.reads for block in read.blocks)
        return left, sum(sum(read.footer.rows) for read in self.reads)


@dataclass(frozen=True, repr=False)
class ReadPlan(Printed):
    """The file groups, indexes in place of files, and blocks of files that a query reads.

    :param columns: the columns that are read of the rows: those asked for, and the predicate's.
    :param groups: file groups to read, with the record keys to look for in them where they are known and few.
    :param files: the files to read, by file group; where an index holds the rows of a file, only those over it.
    :param keyed: file groups of ``files`` that are read with their record keys as a filter.
    :param blocks: the blocks that can hold matching rows, of data files (by lineage) of which that is known.
    :param block_choice: files that are read block by block, ``None`` if Spark reads all of them as a whole.
    :param covering_scans: rows that come from indexes in place of files; no two replace one file.
    :param nothing_matches: the predicate is false or null for every row whatever.
    :param partitions: how many partitions are left, by their values alone.
    :param bucketed: that of ``covering_scans`` whose buckets are kept, so that the query shuffles its rows no more.
    :param kept_partitions: the paths of those partitions, ``None`` where none is ruled out.
    :param block_counts: how many blocks the files have of which ``blocks`` tells, where that is known; a file with
        another number of blocks is read as a whole.
    """

    snapshot: Snapshot
    where: Filter | None
    columns: tuple[str, ...]
    groups: Mapping[GroupKey, Keys]
    files: Mapping[GroupKey, Sequence[DataFile]]
    keyed: Mapping[GroupKey, frozenset[Key]]
    blocks: Mapping[int, frozenset[int]]
    block_choice: BlockChoice | None
    covering_scans: tuple[CoveringScan, ...]
    nothing_matches: bool
    partitions: int
    used: tuple[IndexUse, ...]
    not_used: Mapping[str, NotUsed]
    warnings: tuple[str, ...]
    bucketed: CoveringScan | None = None
    kept_partitions: Collection[str] | None = None
    block_counts: Mapping[int, int] = field(default_factory=dict)

    @property
    def predicate(self) -> Predicate | None:
        """The tree of ``where``."""
        return None if self.where is None else self.where.predicate

    def view(self) -> View:
        files = [file for group in self.files.values() for file in group]
        facts = [
            ("columns", self.columns),
            ("reads", f"{counted(len(files), 'file')} of {counted(len(self.files), 'file group')}"),
            ("indexes", [use.name for use in self.used] or "none"),
            *(("warning", text) for text in self.warnings),
        ]
        unused = [(name, why.code, why.reason) for name, why in self.not_used.items()]
        grids = [Grid(("not used", "code", "why"), unused)]
        return View(f"version {self.snapshot.state.version}: {self.where or 'all rows'}", facts, grids)


@dataclass(frozen=True)
class Shuffle:
    """Columns by which a query shuffles rows that are not distributed by them.

    :param whole: rows must be distributed by all of them, as those of a join's other side are; else by some is enough.
    """

    columns: frozenset[str]
    whole: bool

    def is_avoided(self, buckets: Buckets) -> bool:
        """Tell whether rows in these buckets need not be shuffled."""
        bucketed = frozenset(buckets.columns)
        return bucketed == self.columns if self.whole else bucketed <= self.columns


def plan_read(
    snapshot: Snapshot,
    where: Filter | None = None,
    columns: Sequence[str] | None = None,
    *,
    shuffled_by: Sequence[Shuffle] = (),
    handlers: Mapping[str, IndexHandler] | None = None,
    among: Collection[GroupKey] | None = None,
) -> ReadPlan:
    """Return what a query reads for the rows that satisfy a predicate.

    :param where: as :func:`filter_of` reads it from SQL; ``None`` for all rows.
    :param columns: those wanted of the rows. ``None`` for what looks for files and reads them by itself: then no index
        replaces files, and no blocks are chosen.
    :param shuffled_by: how the query would shuffle these rows; an index whose buckets avoid that is read in place
        of files that take as many bytes, and its buckets are kept.
    :param handlers: what answers for some indexes in place of the code of their kinds, by their names.
    :param among: the file groups that have rows which count, where that is known otherwise; ``None`` for all.
    :raises OtherFormat: if the table is a source whose folder is another format's by now.
    """
    if snapshot.external is not None:
        snapshot.external.check(())
    draft = _Draft(snapshot, None if where is None else where.predicate)
    draft.shuffled_by = tuple(shuffled_by)
    draft.handlers = handlers or {}
    if among is not None:
        draft.groups = {group: None for group in draft.groups if group in among}
    if where is None:
        draft.refuse_all(NotUsed("no_keys", "there is no predicate"))
    elif not where.parsed:
        why = "the table is scanned sooner than a predicate of this length is parsed"
        draft.refuse_all(NotUsed("scan_is_cheaper", why))
    else:
        damaged = _damaged_records(snapshot, draft.predicate, columns or ())
        if damaged is not None:
            draft.refuse_all(damaged)
        _prune(draft, where.predicate, by_indexes=damaged is None)
    names = _columns_to_read(draft, columns or ())
    damaged = _damaged_records(snapshot, draft.predicate, columns or ())
    if damaged is not None:
        for name, entry in snapshot.state.indexes.items():
            handler = draft.handler(entry.definition)
            if handler is not None and handler.holds_rows:
                draft.not_used.setdefault(name, damaged)
    elif columns is not None:
        _use_covering_indexes(draft, [name for name in snapshot.data.columns if name in names])
    return ReadPlan(
        snapshot=snapshot,
        where=where,
        columns=tuple(names),
        groups=MappingProxyType(draft.groups),
        files=MappingProxyType(draft.files()),
        keyed=MappingProxyType(_keyed_groups(draft)),
        blocks=MappingProxyType(draft.blocks),
        block_choice=None if columns is None else _choose_blocks(draft, names),
        covering_scans=tuple(draft.covering_scans),
        nothing_matches=draft.nothing_matches,
        partitions=draft.partitions,
        used=tuple(draft.used),
        not_used=MappingProxyType(draft.not_used),
        warnings=tuple(draft.warnings),
        bucketed=_bucketed(draft),
        kept_partitions=draft.kept_partitions,
        block_counts=MappingProxyType(draft.block_counts),
    )


def hold_rows(plan: ReadPlan, shown: Snapshot, columns: Sequence[str], shuffled_by: Sequence[Shuffle] = ()) -> ReadPlan:
    """Return a plan that reads rows from indexes, where that reads less, in place of files that it names.

    The table's own files are not opened, and those that no index holds stay as they are in the plan.

    :param plan: of what looks for files and reads them by itself.
    :param shown: the table with those of its files alone in whose place a copy may be read.
    :param columns: those wanted of the rows, and the predicate's. :param shuffled_by: see :func:`plan_read`.
    """
    draft = _Draft(shown, plan.predicate)
    draft.groups = {group: None for group in draft.groups if group in plan.groups}
    draft.shuffled_by, draft.opens_files = tuple(shuffled_by), False
    draft.used, draft.not_used, draft.warnings = list(plan.used), dict(plan.not_used), list(plan.warnings)
    _use_covering_indexes(draft, [name for name in shown.data.columns if name in columns])
    held = frozenset[int]().union(*(scan.lineages for scan in draft.covering_scans))
    left = ((group, [file for file in files if file.lineage not in held]) for group, files in plan.files.items())
    return replace(
        plan,
        columns=tuple(columns),
        files=MappingProxyType({group: files for group, files in left if files} if held else plan.files),
        covering_scans=tuple(draft.covering_scans),
        used=tuple(draft.used),
        not_used=MappingProxyType(draft.not_used),
        warnings=tuple(draft.warnings),
        bucketed=_bucketed(draft),
    )


def plan_seconds(plan: ReadPlan) -> float:
    """Estimate how long Spark reads what a plan names, beyond what any query takes."""
    snapshot = plan.snapshot
    files = [file for group in plan.files.values() for file in group]
    held = sum(scan.bytes for scan in plan.covering_scans)
    return scan_seconds(snapshot, files, _part_of_rows(snapshot, files, plan.columns)) + read_seconds(
        snapshot.spark, held
    )


def plan_bytes(plan: ReadPlan) -> int:
    """Estimate the bytes that a query reads: of files what its columns take there, and of indexes what they are asked.

    Of a file whose record keys are known what looking these up takes, of one that is read by blocks these.
    """
    choice = plan.block_choice
    chosen = frozenset[int]() if choice is None else choice.lineages
    files = [(group, file) for group, members in plan.files.items() for file in members if file.lineage not in chosen]
    part = _part_of_rows(plan.snapshot, [file for _, file in files], plan.columns)
    whole = round(sum(_bytes(file, part, plan.groups[group], {}) for group, file in files))
    return whole + (0 if choice is None else choice.bytes) + sum(use.bytes for use in plan.used)


def prunes_by(
    snapshot: Snapshot, predicate: Predicate | None, columns: Collection[str], needed: Collection[str] = ()
) -> bool:
    """Tell whether finite sets of values of some columns, beside a predicate, may leave less to read.

    Nothing is read for it.

    :param needed: columns that are read of the rows; an index that holds rows is of use only if it holds these.
    """
    table = snapshot.table
    if not columns:
        return False
    if table.source is None and not set(columns).isdisjoint(table.partition_by):
        return True
    # The query's own conditions on these columns would rule out the nulls that this probe has for values.
    others = [part for part in conjuncts(predicate) if columns_of(part).isdisjoint(columns)]
    probe = ParsedPredicateProbe(And((Fixed(True), *map(IsNull, columns), *others)))
    hashed = table.hash_fields or table.record_key
    if table.bucketed and not set(columns).isdisjoint(hashed) and not isinstance(probe.keys(hashed), CannotPrune):
        return True
    for entry in snapshot.state.indexes.values():
        try:
            if entry.active and _index_prunes_by(table, entry.definition, probe, columns, needed):
                return True
        except UNREADABLE_INDEX as error:
            logger.warning("Whether index %r is of use is not known: %s", entry.definition.name, error)
    return False


def _index_prunes_by(
    table: TableDefinition,
    definition: IndexDefinition,
    probe: PredicateProbe,
    columns: Collection[str],
    needed: Collection[str],
) -> bool:
    """Tell whether an index may leave less to read by values of some columns; see :func:`prunes_by`."""
    handler = available(definition.kind)
    if handler is None or columns_gone(table, definition):
        return False
    indexed = handler.asked_by(table, definition)
    if set(columns).isdisjoint(indexed):
        return False
    if not handler.holds_rows:
        return handler.can_prune(table, definition, probe) is None
    if not {*indexed, *definition.included, *table.partition_by, *table.record_key}.issuperset(needed):
        return False
    # Its buckets are by all of its columns, its files and row groups by the first.
    keys = [one.key for one in indexed_by(table, definition)] or list(indexed)
    return keys[0] in columns or not isinstance(probe.keys(keys), CannotPrune)


class _Draft:
    """A read plan while it is made. See :class:`ReadPlan` for its fields."""

    def __init__(self, snapshot: Snapshot, predicate: Predicate | None) -> None:
        self.snapshot = snapshot
        self.predicate = predicate
        self.all_groups = snapshot.groups()
        self.groups: dict[GroupKey, Keys] = dict.fromkeys(self.all_groups, None)
        self.shuffled_by: tuple[Shuffle, ...] = ()
        self.opens_files = True
        self.handlers: Mapping[str, IndexHandler] = {}
        self.blocks: dict[int, frozenset[int]] = {}
        self.block_counts: dict[int, int] = {}
        self.covering_scans: list[CoveringScan] = []
        self.nothing_matches = False
        self.partitions = len(snapshot.state.partitions)
        self.kept_partitions: Collection[str] | None = None
        self.used: list[IndexUse] = []
        self.not_used: dict[str, NotUsed] = {}
        self.warnings: list[str] = []

    def files(self) -> dict[GroupKey, list[DataFile]]:
        """Return the files to read, by file group, without those whose rows an index holds."""
        if not self.covering_scans:
            if len(self.groups) == len(self.all_groups):
                return self.all_groups
            return {key: self.all_groups[key] for key in self.groups}
        replaced = frozenset[int]().union(*(scan.lineages for scan in self.covering_scans))
        remaining = (
            (key, [file for file in self.all_groups[key] if file.lineage not in replaced]) for key in self.groups
        )
        return {key: files for key, files in remaining if files}

    def handler(self, definition: IndexDefinition) -> IndexHandler | None:
        """Return what answers for an index; ``None`` where its code is not installed."""
        return self.handlers.get(definition.name) or available(definition.kind)

    def refuse_all(self, why: NotUsed) -> None:
        """Note for every index why it is not used."""
        self.not_used.update(dict.fromkeys(self.snapshot.state.indexes, why))
        self.not_used.update(self.gone)

    @cached_property
    def gone(self) -> dict[str, NotUsed]:
        """Indexes over a column that the table does not have (any more): they tell nothing of its rows."""
        return _indexes_without_columns(self.snapshot)

    @cached_property
    def unfit(self) -> dict[str, NotUsed]:
        """Indexes that tell nothing of these rows to this session, each with why."""
        return unfit_indexes(self.snapshot, self.gone)


def _damaged_records(snapshot: Snapshot, predicate: Predicate | None, columns: Sequence[str]) -> NotUsed | None:
    """Return why no index answers a query of text files, where rows of damaged records depend on how it is read.

    Spark's parser drops a damaged record whose fields before the fault do not satisfy the filters that it is handed,
    else its row is one of nulls; and whether a record counts as damaged depends on the columns that are parsed.

    :param columns: those asked for. :returns: ``None`` where the rows do not depend on it.
    """
    source = snapshot.table.source
    if source is None or source.format not in TEXTS:
        return None
    corrupt = corrupt_column(source, snapshot)
    named = {*columns, *(() if predicate is None else columns_of(predicate))}
    if corrupt in snapshot.data.columns and corrupt in named:
        return NotUsed("damaged_records", f"what {corrupt!r} holds depends on the columns that a query reads")
    if not keeps_damaged_records(source):
        return None
    if predicate is not None and not may_match(predicate, _of_damaged(snapshot, predicate)):
        return None
    return NotUsed("damaged_records", "of damaged JSON lines Spark's parser drops some where nulls are asked for")


def _of_damaged(snapshot: Snapshot, predicate: Predicate) -> dict[str, None]:
    """Return the columns and expressions of a predicate that are null in the row of a damaged record."""
    parsed = set(snapshot.data.columns) - set(snapshot.data.partition_by)
    nulls = dict.fromkeys(parsed)
    said_of_expressions = (node.same for node in walk(predicate) if isinstance(node, Opaque) and node.same is not None)
    for name in {name for same in said_of_expressions for name in columns_of(same) if is_computed(name)}:
        from spark_apps.indexes.expressions import columns_named, functions_in  # its library is slow to import

        text = shown_key(name)
        # All others of the functions that an index can hold are null where one of their arguments is.
        if "coalesce" not in functions_in(text) and not parsed.isdisjoint(columns_named(text)):
            nulls[name] = None
    return nulls


def _columns_to_read(draft: _Draft, names: Sequence[str]) -> list[str]:
    """Return the columns asked for and the predicate's.

    All columns, where the predicate may name one in a way that is not understood. A predicate on whole rows is applied
    to all columns, and not to those that were asked for.
    """
    declared = draft.snapshot.data.columns
    if draft.predicate is None:
        return list(names)
    if of_whole_rows(draft.predicate):
        return list(declared)
    named = columns_of(draft.predicate)
    return list(dict.fromkeys([*names, *(name for name in declared if name in named)]))


def _keyed_groups(draft: _Draft) -> dict[GroupKey, frozenset[Key]]:
    """Return the file groups whose record keys are known, as long as all keys are few enough to be a filter."""
    keyed: dict[GroupKey, frozenset[Key]] = {}
    keys: set[Key] = set()
    if not any(draft.groups.values()):
        return keyed
    files = draft.files()
    for group, group_keys in draft.groups.items():
        if group in files and group_keys and len(keys) + len(group_keys) <= MAX_RETURNED_KEYS:
            keys |= group_keys
            keyed[group] = group_keys
    return keyed


def filter_of(snapshot: Snapshot, where: str | None) -> Filter | None:
    """Return a predicate in Spark's SQL as the session reads it, ``None`` for none.

    One that is long is not parsed where the table is scanned sooner.

    :raises InvalidPredicate: if neither this package nor Spark can read the predicate.
    :raises UnknownColumn: if the predicate names a column that the table lacks.
    """
    if where is None:
        return None
    if _scan_is_cheaper_than_parsing(snapshot, where):
        names = frozenset(snapshot.data.columns)
        unread = Opaque(f"{where[:60]} …", names, "it is long, and the table small", whole="*" in where)
        return Filter(unread, where, parsed=False)
    return Filter(parse_for_session(snapshot, where), where)


def parse_for_session(
    snapshot: Snapshot, where: str, more: Mapping[str, str] | None = None, *, ask_spark: bool = True
) -> Predicate:
    """Return the predicate, as the session reads it.

    :param more: canonical texts of expressions beside those that indexes hold values of, with their Spark types; what
        indexes that are not there could make use of is found out too, where it is given.
    :param ask_spark: whether Spark is given a text that this package cannot read: it opens what a subquery in it names,
        so a text that nobody in this process asked is not handed on.
    :raises InvalidPredicate: if the predicate cannot be read.
    :raises UnknownColumn: if a name is that of no column of the table.
    """
    spark = snapshot.spark
    names = frozenset(field.name for field in snapshot.table.fields)
    if "`" in where and _is_on(spark, "spark.sql.parser.quotedRegexColumnNames"):
        return Opaque(where, names, "a name in backquotes is a pattern in this session", whole=True)
    if '"' in where and _is_on(spark, "spark.sql.ansi.doubleQuotedIdentifiers"):
        return Opaque(where, names, "a text in double quotes is a name in this session", whole="*" in where)
    if ("'" in where or '"' in where) and _is_on(spark, "spark.sql.legacy.typeCoercion.datetimeToString.enabled"):
        return Opaque(where, names, "this session compares dates and times with texts as texts", whole="*" in where)
    # Its library takes a tenth of a second to import, for which a query without a predicate does not wait.
    from spark_apps.query.parsing import parse_predicate

    return parse_predicate(
        where,
        snapshot.data.types,
        time_zone=setting(spark, "spark.sql.session.timeZone", None),
        timestamps=_TIMESTAMPS.get(str(setting(spark, "spark.sql.timestampType", "TIMESTAMP_LTZ")).upper()),
        case_sensitive=_is_on(spark, "spark.sql.caseSensitive"),
        check_with_spark=partial(check_predicate, snapshot) if ask_spark else None,
        expressions=_expressions(snapshot, where, more),
    )


_TIMESTAMPS = {"TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}
_CALLED = re.compile(r"(\w+)\s*\(")
# A name in backquotes, and a comment, may be between the name of a function and what it is called with.
_HIDDEN = re.compile(r"`\s*\(|/\*|--")


def _expressions(snapshot: Snapshot, where: str, more: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the expressions that indexes hold values of, with their types.

    ``None`` where no index can make use of more than comparisons of columns, and where a function that the text calls
    is not Spark's own in this session.
    """
    expressions = None if more is None else dict(more)
    of_two_types = set[str]()
    for entry in snapshot.state.indexes.values():
        handler = available(entry.definition.kind)
        if handler is None or not entry.active:
            continue
        if columns_gone(snapshot.table, entry.definition):
            continue
        try:
            found = handler.expressions(snapshot.table, entry.definition)
            if not found and not handler.follows_files:
                continue  # it is asked for values of columns alone
            expressions = {} if expressions is None else expressions
            for text, kind in found.items():
                if expressions.setdefault(text, kind) != kind:
                    of_two_types.add(
                        text
                    )  # as sessions of other settings make it: values of one say nothing of the other
        except UNREADABLE_INDEX as error:
            logger.warning("What index %r holds is not known: %s", entry.definition.name, error)
    if expressions is None or _HIDDEN.search(where):
        return None
    named = {name.lower() for name in _CALLED.findall(where)} - {"in", "and", "or", "not", "cast"}
    if not all(is_built_in(snapshot.spark, name) for name in named):
        return None
    return {text: kind for text, kind in expressions.items() if text not in of_two_types}


def _is_on(spark: SparkSession, name: str) -> bool:
    return str(setting(spark, name, "false")).lower() == "true"


# --- File groups that can hold matching rows ------------------------------------------------------------------------


def _prune(draft: _Draft, predicate: Predicate, *, by_indexes: bool) -> None:
    """Narrow the file groups down to those that can hold rows which satisfy a predicate.

    :param by_indexes: and not by the values of partitions alone.
    """
    snapshot = draft.snapshot
    if isinstance(keys_for(predicate, snapshot.table.record_key), NothingMatches):
        draft.groups, draft.nothing_matches, draft.partitions = {}, True, 0
        return
    kept = draft.kept_partitions = matching_partitions(snapshot, predicate)
    draft.partitions = len(kept)
    if len(kept) < len(snapshot.state.partitions):
        draft.groups = {group: None for group in draft.groups if group[0] in kept}
    if not by_indexes:
        return
    narrowed = _Narrowing(draft, _pruners(draft)).narrow(predicate)
    if narrowed is not None:
        narrowed = Narrowed(draft.groups) & narrowed
        draft.groups, draft.blocks, draft.block_counts = narrowed.groups, narrowed.blocks, narrowed.block_counts


def matching_partitions(snapshot: Snapshot, predicate: Predicate) -> set[str]:
    """Return the partitions that can hold rows which satisfy a predicate, by their values alone.

    :raises LogDamaged: if a partition has other values than the table has partition columns.
    """
    table = snapshot.table
    types = {field.name: parse_type(field.type) for field in table.fields}
    kept = set()
    for path, entry in snapshot.state.partitions.items():
        if len(entry.values) != len(table.partition_by):
            raise LogDamaged(
                f"The log of {snapshot.store.uri} cannot be read: the partition {path!r} has "
                f"{len(entry.values)} 'values', and 'partition_by' {len(table.partition_by)} columns.",
                hint="Restore the log from a backup, or find out who wrote to it.",
            )
        if may_match(predicate, _partition_values(dict(zip(table.partition_by, entry.values, strict=True)), types)):
            kept.add(path)
    return kept


def _partition_values(texts: Mapping[str, str | None], types: Mapping[str, ColumnType]) -> dict[str, Any]:
    """Return the values of a partition, but for those that Python does not know, such as a day of the year 10000."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = None if text is None else value_of(text, types[name], name)
        except InvalidInput:
            logger.debug("The partition value %s=%s is left to the rows.", name, text)
    return values


@dataclass(frozen=True)
class _Pruner:
    """A means of narrowing file groups down by the values of some columns."""

    name: str
    narrow: Callable[[PredicateProbe], Narrowed | NotUsed]
    cannot: Callable[[PredicateProbe], CannotPrune | None]
    """Return why the means would be of no use, without reading anything."""
    by_whole_files: bool = False
    """Whether it holds a predicate as a whole against what it knows of files: asked of parts it tells nothing more."""


def _pruners(draft: _Draft) -> list[_Pruner]:
    snapshot = draft.snapshot
    table = snapshot.table
    pruners = (
        [_Pruner(BUCKETS, partial(_prune_by_buckets, draft), partial(_why_no_bucket, draft))] if table.bucketed else []
    )
    for name, entry in sorted(snapshot.state.indexes.items()):
        handler = draft.handler(entry.definition)
        if not entry.active:
            draft.not_used[name] = NotUsed("not_active", f"its state is {entry.state!r}")
        elif name in draft.unfit:
            draft.not_used[name] = draft.unfit[name]
        elif handler is None:
            own = entry.definition.engine == OWN_ENGINE
            why = (
                f"the code of kind {entry.definition.kind!r} is not installed"
                if own
                else "Hudi's reader uses it itself"
            )
            draft.not_used[name] = NotUsed("no_handler", why)
        elif not entry.by_file and draft.groups and not any(entry.covers(group) for group in draft.groups):
            draft.not_used[name] = NotUsed("covers_nothing", "it covers no file group that the query could read")
        else:
            pruners.append(
                _Pruner(
                    name,
                    partial(_prune_by_index, draft, entry),
                    partial(_why_no_index, draft, entry, handler),
                    handler.follows_files,
                )
            )
    return pruners


def _indexes_without_columns(snapshot: Snapshot) -> dict[str, NotUsed]:
    """Return which active indexes are over a column that the table does not have, as after its owner dropped it."""
    gone: dict[str, NotUsed] = {}
    for name, entry in snapshot.state.indexes.items():
        columns = columns_gone(snapshot.table, entry.definition) if entry.active else ()
        if columns:
            gone[name] = NotUsed("column_gone", f"it is over the column {columns[0]!r}, which the table does not have")
    return gone


def unfit_indexes(snapshot: Snapshot, gone: Mapping[str, NotUsed] | None = None) -> dict[str, NotUsed]:
    """Return the indexes that tell nothing of a table's rows to this session, each with why.

    :param gone: those over a column that the table does not have, where that is known.
    """
    gone = _indexes_without_columns(snapshot) if gone is None else gone
    return {**_session_mismatches(snapshot, gone), **gone}


def _session_mismatches(snapshot: Snapshot, gone: Collection[str]) -> dict[str, NotUsed]:
    """Return why indexes of a source may hold other values than this session reads from the files, by index.

    :param gone: indexes that are not used whatever they hold.
    """
    if snapshot.table.source is None:
        return {}
    differs = session_difference(snapshot)
    mismatches: dict[str, NotUsed] = {}
    for name, entry in snapshot.state.indexes.items():
        definition = entry.definition
        if differs is not None:
            mismatches[name] = NotUsed("session_differs", differs)
        elif (
            name not in gone
            and (
                why := unknown_time_zone(snapshot.table, [*asked_by(snapshot.table, definition), *definition.included])
            )
            is not None
        ):
            mismatches[name] = NotUsed("session_unknown", why)
    return mismatches


def _bucket_keys(draft: _Draft, probe: PredicateProbe) -> Collection[Key] | CannotPrune:
    table = draft.snapshot.table
    return probe.keys(table.hash_fields or table.record_key, MAX_BUCKET_KEYS)


def _why_no_bucket(draft: _Draft, probe: PredicateProbe) -> CannotPrune | None:
    keys = _bucket_keys(draft, probe)
    return keys if isinstance(keys, CannotPrune) else None


def _prune_by_buckets(draft: _Draft, probe: PredicateProbe) -> Narrowed | NotUsed:
    keys = _bucket_keys(draft, probe)
    if isinstance(keys, CannotPrune):
        return NotUsed(keys.code, keys.reason)
    table = draft.snapshot.table
    if not is_known(table.hash_function):
        return NotUsed("no_handler", f"the code of hash function {table.hash_function!r} is not installed")
    if not draft.snapshot.has_spark and not is_computable(table.hash_function, keys):
        return NotUsed("no_session", f"only Spark computes the hash function {table.hash_function!r}")
    fields = {name: draft.snapshot.data.type_of(name) for name in table.hash_fields or table.record_key}
    buckets: dict[int, set[str]] = {}
    for entry in draft.snapshot.state.partitions.values():
        count = entry.buckets or 1
        if count not in buckets:
            matching = compute_buckets(draft.snapshot.spark, fields, list(keys), count, table.hash_function)
            buckets[count] = {str(bucket) for bucket in matching}
    partitions = draft.snapshot.state.partitions
    return Narrowed({group: None for group in draft.groups if group[1] in buckets[partitions[group[0]].buckets or 1]})


def _why_no_index(draft: _Draft, entry: IndexEntry, handler: IndexHandler, probe: PredicateProbe) -> CannotPrune | None:
    try:
        return handler.can_prune(draft.snapshot.table, entry.definition, probe)
    except UNREADABLE_INDEX as error:
        refused = _note_unreadable(draft, entry.definition.name, error)
        return CannotPrune(refused.reason, refused.code)


def _prune_by_index(draft: _Draft, entry: IndexEntry, probe: PredicateProbe) -> Narrowed | NotUsed:
    definition = entry.definition
    handler = draft.handler(definition)
    assert handler is not None
    try:
        cheaper = scan_is_cheaper(draft.snapshot, entry, probe, draft.groups)
        if cheaper is not None:
            return NotUsed("scan_is_cheaper", cheaper)
        pruning = handler.prune(IndexContext(draft.snapshot, definition, ""), probe)
    except UNREADABLE_INDEX as error:
        return _note_unreadable(draft, definition.name, error)
    if isinstance(pruning, CannotPrune):
        return NotUsed(pruning.code, pruning.reason)
    groups: dict[GroupKey, Keys] = {}
    # Of many groups few are named or not covered: not each is asked for.
    for group in draft.groups.keys() & (entry.lag.keys() | pruning.groups):
        if not entry.covers(group):
            groups[group] = None
        elif group in pruning.groups:
            groups[group] = None if pruning.keys is None else pruning.keys.get(group)
    draft.used.append(IndexUse(definition.name, pruning.files, pruning.bytes, len(groups)))
    return Narrowed(groups, dict(pruning.blocks or {}), dict(pruning.block_counts or {}))


def _note_unreadable(draft: _Draft, name: str, error: Exception) -> NotUsed:
    """Note that an index is damaged and the rows are scanned."""
    if not isinstance(error, LakeIndexError):
        error = StorageError(f"What the log says of it cannot be understood ({type(error).__name__}: {error}).")
    message = f"Index {name!r} is not used, the rows are scanned instead: {error}"
    logger.warning("%s: %s", draft.snapshot.store.uri, message)
    draft.warnings.append(message)
    return NotUsed("unreadable", error.message)


class _Narrowing:
    """Asks the sources about a predicate and its parts: AND is the intersection of what they say, OR the union."""

    def __init__(self, draft: _Draft, sources: Collection[_Pruner]) -> None:
        self._draft = draft
        self._pruners = list(sources)

    def narrow(self, node: Predicate, whole: bool = True) -> Narrowed | None:
        """Return what can hold rows for which ``node`` is true, or ``None`` if no means bounds them.

        :param whole: whether it is the whole predicate.
        """
        answers: list[Narrowed] = []
        by_parts = 0
        probe = ParsedPredicateProbe(node)
        for source in list(self._pruners):
            if source.by_whole_files and not whole:
                continue
            cannot = source.cannot(probe)
            if cannot is not None:
                self._note_refusal(source, cannot)
                continue
            answer = self._ask_pruner(source, probe)
            if answer is not None:
                answers.append(answer)
                by_parts += not source.by_whole_files
        if isinstance(node, And):
            parts = [self.narrow(part, whole=False) for part in node.parts if isinstance(part, Or)]
            answers.extend(part for part in parts if part is not None)
        elif isinstance(node, Or) and not by_parts and self._bounded(node):
            parts = [self.narrow(part, whole=False) for part in node.parts]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                answers.append(reduce(or_, known))
        return reduce(and_, answers) if answers else None

    def _bounded(self, node: Predicate) -> bool:
        """Return whether some means bounds a predicate.

        None is asked, for an answer on half of an OR is of no use.
        """
        probe = ParsedPredicateProbe(node)
        if any(source.cannot(probe) is None for source in self._pruners if not source.by_whole_files):
            return True
        if isinstance(node, Or):
            return all(self._bounded(part) for part in node.parts)
        return isinstance(node, And) and any(self._bounded(part) for part in node.parts if isinstance(part, Or))

    def _ask_pruner(self, source: _Pruner, probe: PredicateProbe) -> Narrowed | None:
        answer = source.narrow(probe)
        if isinstance(answer, NotUsed):
            # It will not answer another question of this query either.
            self._pruners.remove(source)
            self._draft.not_used[source.name] = answer
            return None
        self._draft.not_used.pop(source.name, None)
        if source.name == BUCKETS:
            self._draft.used = [use for use in self._draft.used if use.name != BUCKETS]
            self._draft.used.append(IndexUse(BUCKETS, 0, 0, len(answer.groups)))
        return answer

    def _note_refusal(self, source: _Pruner, cannot: CannotPrune) -> None:
        used = {use.name for use in self._draft.used}
        if source.name not in used and source.name != BUCKETS:
            # What is refused before an index is read is the predicate, whatever a handler calls it.
            code = "no_keys" if cannot.code == "cannot_prune" else cannot.code
            self._draft.not_used.setdefault(source.name, NotUsed(code, cannot.reason))


# --- Rows that indexes hold, in place of files ----------------------------------------------------------------------

_BLOCK_BYTES = 32 * 1024 * 1024
"""What a block of a file holds, about."""

_SHUFFLE_BYTES = 4 * 1024 * 1024
"""Bytes that are read in the time that a shuffle takes whatever its size."""

_BY_LINE = ("json", "csv", "text", "xml", "avro")
"""Formats that are read whole, whatever columns are wanted."""


def _use_covering_indexes(draft: _Draft, needed: Sequence[str]) -> None:
    """Take rows from indexes that hold them where that reads less.

    Each index is asked what it can give for the files that are left; the one that saves most is taken, then the others
    for what remains.

    :param needed: the columns that are read.
    """
    snapshot = draft.snapshot
    candidates = [entry for _, entry in sorted(snapshot.state.indexes.items()) if entry.active]
    unfit = draft.unfit if candidates else {}
    names = [entry.definition.name for entry in candidates]
    draft.not_used.update({name: unfit[name] for name in names if name in unfit})
    candidates = [entry for entry in candidates if entry.definition.name not in unfit]
    while candidates and draft.groups:
        offers = [
            offer for entry in list(candidates) if (offer := _offer_of(draft, entry, needed, candidates)) is not None
        ]
        if not offers:
            break
        best = max(offers, key=lambda offer: (offer.saves, offer.name))
        candidates = [entry for entry in candidates if entry.definition.name != best.name]
        try:
            best.scan.check()
        except UNREADABLE_INDEX as error:
            draft.not_used[best.name] = _note_unreadable(draft, best.name, error)
            continue
        draft.covering_scans.append(best.scan)
        draft.used.append(
            IndexUse(
                best.name, best.scan.files, best.scan.bytes, len(draft.files()), len(best.scan.lineages),
                best.instead_of,
            )
        )  # fmt: skip
        draft.not_used.pop(best.name, None)


@dataclass(frozen=True)
class _Offer:
    name: str
    scan: CoveringScan
    instead_of: int
    avoids_shuffle: bool = False

    @property
    def saves(self) -> int:
        # A shuffle writes and reads once more what is read, and takes a stage of its own.
        shuffle = self.instead_of + _SHUFFLE_BYTES if self.avoids_shuffle else 0
        return self.instead_of + shuffle - self.scan.bytes


def _avoids_shuffle(draft: _Draft, scan: CoveringScan) -> bool:
    return scan.buckets is not None and any(shuffle.is_avoided(scan.buckets) for shuffle in draft.shuffled_by)


def _bucketed(draft: _Draft) -> CoveringScan | None:
    """Return the scan whose buckets are kept: the largest of those that avoid a shuffle."""
    scans = [scan for scan in draft.covering_scans if _avoids_shuffle(draft, scan)]
    return max(scans, key=lambda scan: scan.bytes, default=None)


def _offer_of(draft: _Draft, entry: IndexEntry, needed: Sequence[str], candidates: list[IndexEntry]) -> _Offer | None:
    """Return what an index gives in place of the files that are left.

    An index that gives nothing is not asked again.
    """
    name, handler = entry.definition.name, draft.handler(entry.definition)
    probe = None if draft.predicate is None else ParsedPredicateProbe(draft.predicate)
    refused: NotUsed | None = None
    if handler is not None and handler.holds_rows:
        whole_groups = _whole_groups(draft)
        try:
            context = IndexContext(draft.snapshot, entry.definition, "")
            scan = handler.substitute(context, probe, needed, list(whole_groups))
        except UNREADABLE_INDEX as error:
            scan = CannotPrune("")
            refused = _note_unreadable(draft, name, error)
        if isinstance(scan, CoveringScan) and not draft.snapshot.has_spark and scan.entries is None:
            scan = CannotPrune("its rows are read by Spark, and there is no session", "no_session")
        if isinstance(scan, CoveringScan):
            if draft.opens_files:
                cost = _cost(draft, whole_groups, needed, scan.lineages)
            else:
                cost = _cost_unopened(draft, entry.definition, whole_groups, needed, scan.lineages)
            offer = _Offer(name, scan, cost, _avoids_shuffle(draft, scan))
            if offer.saves > 0:
                return offer
            text = f"it would read about {scan.bytes:,} bytes, the files that it replaces {offer.instead_of:,}"
            refused = NotUsed("costs_more", text)
        elif refused is None and not whole_groups:
            refused = NotUsed("nothing_left", "other indexes hold all rows that are left to read")
        elif refused is None:
            refused = NotUsed(scan.code, scan.reason)
    if refused is not None:
        draft.not_used[name] = refused
    candidates.remove(entry)
    return None


def _whole_groups(draft: _Draft) -> dict[GroupKey, list[DataFile]]:
    """Return the file groups that are still read with all their files."""
    return {key: files for key, files in draft.files().items() if len(files) == len(draft.all_groups[key])}


def _cost(
    draft: _Draft, groups: dict[GroupKey, list[DataFile]], needed: Iterable[str], lineages: frozenset[int]
) -> int:
    """Estimate the bytes that the query would read of data files."""
    counted = [(group, file) for group, files in groups.items() for file in files if file.lineage in lineages]
    part = _part_of_rows(draft.snapshot, [file for _, file in counted], needed)
    blocks: Mapping[int, frozenset[int]] = draft.blocks
    if draft.snapshot.has_spark:  # which reads files that it merges as a whole
        alone = {file.lineage for file in _unmerged_files(draft)}
        blocks = {lineage: some for lineage, some in blocks.items() if lineage in alone}
    return round(sum(_bytes(file, part, draft.groups[group], blocks) for group, file in counted))


def _cost_unopened(
    draft: _Draft,
    definition: IndexDefinition,
    groups: Mapping[GroupKey, list[DataFile]],
    needed: Sequence[str],
    lineages: frozenset[int],
) -> int:
    """Estimate as :func:`_cost` does, of files that are not opened: a row takes there what it does in the index."""
    snapshot = draft.snapshot
    files = [file for members in groups.values() for file in members if file.lineage in lineages]
    entries = [file for file in snapshot.state.files(definition.tree) if file.rows > 0]
    share = stored_share(snapshot, entries, needed, own=True) if entries else None
    if share is None:
        return round(column_share(snapshot.data.fields, set(needed)) * sum(file.bytes for file in files))
    a_row = share * sum(file.bytes for file in entries) / sum(file.rows for file in entries)
    return round(a_row * sum(map(estimated_rows, files)))


def _part_of_rows(snapshot: Snapshot, files: Sequence[DataFile], needed: Iterable[str]) -> float:
    """Return which part of the files' bytes is read for some columns: as their footers tell, else by types."""
    source, needed = snapshot.table.source, set(needed)
    if source is not None and source.format in _BY_LINE:
        return 1.0
    share = stored_share(snapshot, files, [snapshot.data.stored(name) for name in needed])
    return column_share(snapshot.data.fields, needed) if share is None else share


def _bytes(file: DataFile, part: float, keys: Keys, known_blocks: Mapping[int, frozenset[int]]) -> float:
    """Estimate the bytes read of a file.

    :param part: of its bytes that the columns take. :param keys: record keys of the rows that are wanted, if known.
    :param known_blocks: lineage of a file -> its blocks that can hold such rows.
    """
    size, blocks = file.bytes * part, known_blocks.get(file.lineage)
    if keys is not None:
        size = min(size, KEY_BYTES * len(keys))
    if blocks is not None:
        size = min(size, _BLOCK_BYTES * len(blocks) * part)
    return size


# --- Blocks of files ------------------------------------------------------------------------------------------------

# Spark reads a file as a whole, save what its min and max values rule out. Reading blocks by themselves goes through
# Python workers, so it must save enough; the rest is left to Spark.

_NO_GAIN = 0.9
"""The share of the blocks left by the files' own statistics, from which on indexes are no better."""


def _choose_blocks(draft: _Draft, names: Sequence[str]) -> BlockChoice | None:
    """Return the files that are better read block by block, or ``None``.

    :param names: the columns that are read.
    """
    files = [file for file in _unmerged_files(draft) if file.lineage in draft.blocks] if draft.blocks else []
    files = sorted(files, key=lambda file: -file.bytes)[:MAX_BLOCK_FILES]
    if not files or sum(file.bytes for file in files) < MIN_SAVED_BYTES:
        return None
    reads: list[BlockRead] = []
    chosen = scanned = 0
    for footer in _footers(draft.snapshot, files):
        if not is_readable(draft.snapshot, draft.snapshot.data, footer, names):
            continue
        if draft.block_counts.get(footer.file.lineage, footer.blocks) != footer.blocks:
            continue  # what is known is of another file than this one
        candidates = _blocks_by_statistics(draft.snapshot, draft.predicate, footer)
        blocks = tuple(sorted(draft.blocks[footer.file.lineage] & candidates))
        stored = [draft.snapshot.data.stored(name) for name in names]
        few, all_of_them = footer.bytes(stored, blocks), footer.bytes(stored, candidates)
        if 2 * few <= all_of_them:
            reads.append(BlockRead(footer, blocks))
            chosen, scanned = chosen + few, scanned + all_of_them
    return BlockChoice(tuple(reads), chosen, scanned) if reads and scanned - chosen >= MIN_SAVED_BYTES else None


def known_blocks(plan: ReadPlan) -> BlockChoice | None:
    """Return the blocks that can hold matching rows of the files that are read, where indexes tell them.

    Whoever reads files by Arrow reads these alone; Spark does only if that is worth while. By the footers of the
    largest such files. ``None`` if nothing is known.
    """
    if not plan.blocks:
        return None
    files = [file for members in plan.files.values() for file in members if file.lineage in plan.blocks]
    stored = [plan.snapshot.data.stored(name) for name in plan.columns]
    reads: list[BlockRead] = []
    chosen = scanned = 0
    for footer in _footers(plan.snapshot, sorted(files, key=lambda file: -file.bytes)[:MAX_BLOCK_FILES]):
        if plan.block_counts.get(footer.file.lineage, footer.blocks) == footer.blocks:
            blocks = tuple(sorted(plan.blocks[footer.file.lineage] & frozenset(range(footer.blocks))))
            reads.append(BlockRead(footer, blocks))
            chosen, scanned = chosen + footer.bytes(stored, blocks), scanned + footer.bytes(stored)
    return BlockChoice(tuple(reads), chosen, scanned) if reads else None


def _unmerged_files(draft: _Draft) -> list[DataFile]:
    """Return the files that are alone in their file group."""
    return [files[0] for files in draft.files().values() if len(files) == 1 and not files[0].tombstones]


def _footers(snapshot: Snapshot, files: Sequence[DataFile]) -> list[BlockFile]:
    try:
        return read_footers(snapshot, files)
    except StorageError:
        return []  # Spark will say what is wrong with the file, if it is read


def _blocks_by_statistics(snapshot: Snapshot, predicate: Predicate | None, footer: BlockFile) -> frozenset[int]:
    """Return the blocks that the file's own min and max do not rule out."""
    assert predicate is not None
    probe, tree = ParsedPredicateProbe(predicate), snapshot.data
    kinds = {tree.stored(name): (name, parse_type(tree.type_of(name))) for name in probe.columns}
    usable = {stored: column for stored, column in kinds.items() if footer.exact({stored: column[1].text})}
    return frozenset(block for block in range(footer.blocks) if probe.may_match(_ranges(footer, block, usable)))


def _ranges(footer: BlockFile, block: int, kinds: Mapping[str, tuple[str, ColumnType]]) -> dict[str, Range]:
    ranges = {name: range_of(footer.statistics(block, stored), kind) for stored, (name, kind) in kinds.items()}
    return {name: values for name, values in ranges.items() if values is not None}


def compare_with_statistics(plan: ReadPlan) -> str | None:
    """Return a note if indexes leave about as many blocks as the files' own min and max do.

    By the footers of some of the files.
    """
    entries = [plan.snapshot.state.indexes.get(use.name) for use in plan.used if not use.replaces]
    if plan.predicate is None or not any(entry is not None and entry.by_file for entry in entries):
        return None
    groups = plan.snapshot.groups()
    files = [files[0] for files in groups.values() if len(files) == 1 and not files[0].tombstones]
    step = max(1, len(files) // MAX_SAMPLED_FILES)
    by_index = by_statistics = total = 0
    for footer in _footers(plan.snapshot, files[::step]):
        candidates = _blocks_by_statistics(plan.snapshot, plan.predicate, footer)
        total, by_statistics = total + footer.blocks, by_statistics + len(candidates)
        if footer.file.group_key in plan.groups:
            by_index += len(plan.blocks.get(footer.file.lineage, candidates) & candidates)
    if not by_statistics or by_index < _NO_GAIN * by_statistics:
        return None
    return (
        f"no_better_than_statistics: of {total:,} blocks looked at, the files' own min and max leave {by_statistics:,} "
        f"and the indexes {by_index:,}"
    )
