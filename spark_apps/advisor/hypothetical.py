"""Indexes that a table does not have, answering queries as if they were there.

Such an index is tried over a sample of the table's file groups (:mod:`spark_apps.advisor.sample`): what its kind would
keep of these is computed in memory and asked by the planner in place of the kind's own code, so that a plan with it is
chosen as it will be. File groups outside of the sample are left out in the same share. Of a small table the index's
files are made in memory (:mod:`spark_apps.advisor.in_memory`), and the kind's own code looks into them. Nothing is
written.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import pairwise
from typing import Any, cast

from spark_apps.actions.indexing import CreateIndex
from spark_apps.advisor.in_memory import (
    CoveringFile,
    FilesInMemory,
    Staging,
    WithFiles,
    block_entries,
    block_files,
    covering_files,
    covering_tree,
    entries,
    entries_to_hold,
    entry_files,
    rows_by_bucket,
)
from spark_apps.advisor.packing import packed, row_group_bytes
from spark_apps.advisor.records_in_memory import record_files
from spark_apps.advisor.sample import Sample, read_sample
from spark_apps.engine.no_session import NeedsSpark
from spark_apps.indexes.block.compact import CompactHandler
from spark_apps.indexes.covering.covering import CoveringHandler
from spark_apps.indexes.covering.definition import LAYOUT, hash_of, held_columns
from spark_apps.indexes.covering.scan import RowGroupRanges, matching_fraction
from spark_apps.indexes.file_kinds import FileKind
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    CoveringScan,
    EntryFiles,
    IndexContext,
    IndexHandler,
    IndexPlan,
    Key,
    PredicateProbe,
    estimated_rows,
)
from spark_apps.indexes.keyed.entries import EntryHandler
from spark_apps.indexes.keyed.lookup import find_on_driver
from spark_apps.indexes.keyed.record import RecordHandler
from spark_apps.indexes.keyed.secondary import SecondaryHandler
from spark_apps.indexes.limits import MAX_DRIVER_KEYS, MAX_RETURNED_KEYS
from spark_apps.indexes.lineage import indexable
from spark_apps.indexes.ranges import Range, python_values, value_of
from spark_apps.indexes.registry import find
from spark_apps.indexes.skipping.skipping import SkippingHandler
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.blocks import column_bytes, stored_share
from spark_apps.mergetree.schema import column_share, column_types, resolve
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write_on_driver import order_of
from spark_apps.query.explain import Explanation, explain_plan
from spark_apps.query.planning import ParsedPredicateProbe, ReadPlan, Shuffle, filter_of, plan_read
from spark_apps.query.predicates import Filter, Predicate, of_columns
from spark_apps.storage.errors import InvalidInput, UnsupportedSource
from spark_apps.storage.parquet.files import read_footer
from spark_apps.storage.store import WHOLE_BYTES, ObjectStore
from spark_apps.timeline.files import DataFile, GroupKey, lowest_plain_file
from spark_apps.timeline.model import DATA_TREE, AddFile, IndexDefinition
from spark_apps.timeline.state import IndexEntry

logger = logging.getLogger(__name__)

_GIVEN = ("kind", "columns", "included", "properties", "name")
_ENOUGH = 8
"""So many file groups of the sample among those that a query reads are asked alone; of fewer, all of the sample."""

_Z = 1.96
_SORTED_ROWS = 100_000
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_MOST_KEYS = 10_000
_END_BYTES = 64 * 1024
"""Of an index's file, what opening it fetches: its end, with the footer; of a small one all."""
_PACKED_GROUP_BYTES = 400 * 1024
"""A row group of entries as it lies in the file, where none could be packed to know."""
_PACKED_BYTES = 16 * 1024 * 1024
"""So much of a large table is read to know what its rows take in a covering index."""
_PACKED_ROWS = 200_000
_PACKED_PIECES = 8
"""So many rows are packed as an index would, in so many pieces."""
_MOST_ORDERED = 2_000_000
_MOST_SHARE_OF_BLOCKS = 0.9


def definition_of(snapshot: Snapshot, given: Mapping[str, Any], number: int = 1) -> IndexDefinition:
    """Return the definition of an index as ``create_index`` would make it.

    :param given: ``kind`` and ``columns``, and perhaps ``included``, ``properties`` and ``name``, as of
        :meth:`~spark_apps.table.IndexedTable.create_index`. :param number: names it if it has no name.
    :raises InvalidInput: (or its kin) as ``create_index`` does; for a kind that is not one of this package.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"A hypothetical index is given as {given!r}.", hint='Give {"kind": …, "columns": […]}.')
    unknown = sorted(str(name) for name in given if name not in _GIVEN)
    if unknown or "kind" not in given:
        raise InvalidInput(
            f"A hypothetical index {f'has no {unknown[0]!r}' if unknown else 'is given without its kind'}.",
            hint=f"Give {', '.join(_GIVEN)} as of create_index.",
        )
    properties = given.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise InvalidInput(f"The properties are {properties!r}.", hint="Give a dictionary of names and values.")
    action = CreateIndex(
        str(given.get("name") or f"hypothetical_{number}"), given["kind"], given.get("columns") or (),
        given.get("included"), properties=properties,
    )  # fmt: skip
    handler = find(action.kind)
    if handler.kind not in _TRIED and not isinstance(handler, FileKind):
        raise InvalidInput(
            f"What an index of kind {action.kind!r} would save is not known before it is built.",
            hint=f"Kinds that can be tried: {', '.join(_TRIED)}, and others that are made from "
            "spark_apps.indexes.file_kinds.FileKind.",
        )
    try:
        action.validate(snapshot)
        definition = action.definition(snapshot)
    except NeedsSpark as error:
        raise InvalidInput(
            f"The index {action.name!r} keeps values of an expression, whose type only Spark can tell.",
            hint="Ask IndexedTable.load(spark, …).explain, or name columns alone.",
        ) from error
    if not handler.follows_files and handler.expressions(snapshot.table, definition):
        raise InvalidInput(
            f"What the index {action.name!r} over an expression would spare cannot be told before it is there.",
            hint="Name columns alone, or try kind 'skipping'.",
        )
    return definition


@dataclass(frozen=True, eq=False)
class Trial:
    """A hypothetical index, tried over a sample.

    :param build: what a build would write and how long it would take. :param handler: answers queries in its place.
    :param made: its files, which the handler looks into, where they were made in memory.
    """

    definition: IndexDefinition
    build: IndexPlan
    handler: Tried
    made: FilesInMemory | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def bytes(self) -> int:
        """The bytes that the index would hold, about."""
        return self.build.estimated_bytes


def trial_of(snapshot: Snapshot, definition: IndexDefinition, sample: Sample) -> Trial:
    """Return an index as it is tried over a sample."""
    context, handler = IndexContext(snapshot, definition, ""), find(definition.kind)
    build = handler.priced(context, handler.plan(context))
    if isinstance(handler, FileKind) and (handler.kind not in _TRIED or isinstance(handler, SkippingHandler)):
        of_table = len(snapshot.state.files(DATA_TREE))
        skips = isinstance(handler, SkippingHandler)  # whose records are made without Spark
        made, size = record_files(context, sample, of_table) if skips else _staged_in_memory(context, handler, sample)
        build = replaced(build, estimated_bytes=size)
        return Trial(definition, build, _TriedFiles.of(handler, definition, size, sample, made), made)
    if isinstance(handler, CoveringHandler):
        files = _covering_files(context, sample, build.estimated_bytes)
        build = replaced(build, estimated_bytes=round(sum(file.bytes for file in files)))
        return Trial(definition, build, _TriedCovering(definition, build.estimated_bytes, sample, files))
    assert isinstance(handler, (EntryHandler, CompactHandler))
    in_memory = _files_of(context, handler, sample) if sample.small else None
    group, files_there = _PACKED_GROUP_BYTES, definition.shards
    if in_memory is not None:
        build = replaced(build, estimated_bytes=in_memory.bytes)
    else:
        about = _packed_entries(context, handler, sample)
        if about is not None:
            build, group, files_there = replaced(build, estimated_bytes=about[0]), about[1], about[2]
    entries_tried = _TRIED_ENTRIES[handler.kind]
    tried = entries_tried(definition, build.estimated_bytes, sample, group, files_there, in_memory)
    return Trial(definition, build, tried, in_memory)


def _files_of(context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample) -> FilesInMemory | None:
    """Return the files that an index of a small table would have; ``None`` where they cannot be made here."""
    import pyarrow as pa

    try:
        if isinstance(handler, EntryHandler):
            return entry_files(context, handler, sample)
        return block_files(context, sample)
    except pa.ArrowException as error:  # a type that Arrow does not sort or write
        logger.info("What %s would hold is estimated: %s", context.definition.name, error)
        return None


def _staged_in_memory(context: IndexContext, handler: FileKind, sample: Sample) -> tuple[FilesInMemory, int]:
    """Return the files that an index would have of the files of a sample, made by the code of its kind.

    And about how many bytes those of all files of the table would have.

    :raises InvalidInput: if they cannot be made in memory.
    """
    snapshot, of_sample = context.snapshot, {file.lineage for _, file, _, _ in sample.files}
    folder = f"_index/hypothetical/{context.definition.tree}/{snapshot.state.version}"
    staging = Staging(snapshot.store, folder)
    trying = IndexContext(replaced(snapshot, store=cast(ObjectStore, staging)), context.definition, folder)
    files = [file for file in handler.coverable(snapshot) if file.lineage in of_sample]
    try:
        actions, _ = handler.indexed(trying, files)
    except (NeedsSpark, UnsupportedSource) as error:
        raise InvalidInput(
            f"What the index {context.definition.name!r} of kind {handler.kind!r} would keep is not known: {error}",
            hint="Ask in a Spark session; a kind that can be tried stages its files by the store.",
        ) from error
    staged = (DataFile.of(action, snapshot.state.version) for action in actions if isinstance(action, AddFile))
    made = FilesInMemory(tuple(staged), staging.staged)
    return made, made.bytes * sample.of // max(len(sample.groups), 1)


def _covering_files(context: IndexContext, sample: Sample, size: int) -> list[CoveringFile]:
    """Return the files that a covering index would have; exactly those of a build where the table is small.

    :param size: bytes that it would hold, for columns that only Spark reads rightly.
    """
    import pyarrow as pa

    if sample.small:
        try:
            files = covering_files(context, sample)
        except (UnsupportedSource, pa.ArrowException) as error:
            logger.info("What %s would hold is estimated: %s", context.definition.name, error)
            files = None
        if files is not None:
            return files
    return _sampled_covering(context, sample, size)


def _packed_entries(
    context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample
) -> tuple[int, int, int] | None:
    """Return about the bytes that the entries of an index would take, those of one row group, and how many files.

    By the entries of a sample; ``None`` where it has none of them.
    """
    import pyarrow as pa

    snapshot, files = context.snapshot, context.definition.shards
    try:
        tables: list[Any] = []
        if isinstance(handler, EntryHandler):
            told = entries(context, handler, sample)
            tables = [] if told is None else [told[1]]
        else:
            found = block_entries(context, sample)
            told, tables = found, [] if found is None else list(found[1].values())
            files = max(files, len(tables))
        if told is None or not any(map(len, tables)):
            return None
        tree, size, group = told[0], 0.0, 0
        for rows in tables:
            if len(rows):
                some = _side_by_side(tree, rows, _PACKED_ROWS // len(tables))
                size += len(packed(snapshot, tree, some)) / len(some) * len(rows)
                group = max(group, row_group_bytes(snapshot, tree, some))
        times = max(1.0, sum(map(estimated_rows, snapshot.state.files(DATA_TREE))) / sample.rows.num_rows)
        return round(size * times), group, files
    except pa.ArrowException as error:
        logger.info("What %s would hold is guessed: %s", context.definition.name, error)
        return None


def _side_by_side(tree: Tree, rows: Any, most: int) -> Any:
    """Return some of the rows of a tree in their order: pieces in which rows lie side by side as they will.

    Of rows here and there equal values would not lie together, and take more.
    """
    import numpy as np
    import pyarrow as pa

    if len(rows) > _MOST_ORDERED:
        rows = rows.take(np.linspace(0, len(rows) - 1, _MOST_ORDERED).astype(np.int64))
    zeros = np.zeros(len(rows), np.int64)
    order = order_of(tree, rows, zeros, zeros)
    if len(rows) > most:
        each = max(1, most // _PACKED_PIECES)
        starts = [number * len(rows) // _PACKED_PIECES for number in range(_PACKED_PIECES)]
        order = pa.concat_arrays([order.slice(start, each) for start in starts])
    return rows.take(order)


class Hypothetical:
    """A table with some indexes that it does not have, and perhaps without some that it has.

    :param snapshot: the table. :param trials: the indexes. :param sample: of the columns that they are over.
    :param without: names of indexes that are counted as if they were not there.
    """

    def __init__(
        self, snapshot: Snapshot, trials: Sequence[Trial], sample: Sample, without: Collection[str] = ()
    ) -> None:
        self._real = snapshot
        self.trials = tuple(trials)
        self.sample = sample
        self._handlers = {one.name: one.handler for one in trials}
        state = snapshot.state.copy()
        for name in without:
            del state.indexes[name]
        bodies: dict[str, bytes] = {}
        for one in trials:
            definition = one.definition
            state.indexes[definition.name] = IndexEntry(definition, "active")
            made = one.made or FilesInMemory(_pretended(one, state.version), {})
            for file in made.files:
                state.file_set.add(file)
            bodies.update(made.bodies)
        self.snapshot = replaced(snapshot, state=state, store=WithFiles.of(snapshot.store, bodies))

    def plan(
        self,
        where: Filter | None,
        columns: Sequence[str] | None,
        shuffled_by: Sequence[Shuffle] = (),
        without: ReadPlan | None = None,
    ) -> ReadPlan:
        """Return what a query would read; see :func:`~spark_apps.query.planning.plan_read`.

        The plan cannot be carried out.

        :param without: what it reads now, if that is known.
        """
        if without is None:
            without = plan_read(self._real, where, columns, shuffled_by=shuffled_by)
        for handler in self._handlers.values():
            handler.within = without.groups.keys()
        return plan_read(self.snapshot, where, columns, shuffled_by=shuffled_by, handlers=self._handlers)

    def explain(self, where: Filter | None, names: Sequence[str]) -> Explanation:
        """Return how a query would be answered, which says that these indexes are not there."""
        without = plan_read(self._real, where, names)
        plan = self.plan(where, names, without=without)
        told = explain_plan(plan, names, by_blocks=False)
        sampled, all_of_them = len(self.sample.groups), self.sample.of
        counted = "in all file groups" if self.sample.whole else f"in {sampled:,} of {all_of_them:,} file groups"
        used = [one.name for one in self.trials]
        return replaced(
            told,
            notes=(*told.notes, f"hypothetical: what {', '.join(used)} would leave was found by trying {counted}"),
            hypothetical=tuple(used),
            bytes_skipped_bounds=self._bounds(without, plan, told.bytes_skipped),
        )

    def _bounds(self, without: ReadPlan, plan: ReadPlan, skipped: int) -> tuple[int, int]:
        """Return between what the skipped bytes are: exactly, where all file groups were tried."""
        if self.sample.whole or plan.covering_scans:
            return skipped, skipped
        groups = self._real.groups(only=without.groups)
        tried = [group for group in without.groups if group in self.sample.groups]
        asked = tried if len(tried) >= _ENOUGH else list(self.sample.groups)
        left = sum(group in plan.groups for group in asked)
        others = sum(group not in self.sample.groups for group in groups)
        low, high = _between(left, len(asked), others)
        rest = sum(file.bytes for group, files in groups.items() if group not in self.sample.groups for file in files)
        read = sum(
            file.bytes for group, files in plan.files.items() if group not in self.sample.groups for file in files
        )
        known = skipped - (rest - read)
        return round(known + rest * (1 - high)), round(known + rest * (1 - low))


def explain_hypothetical(
    snapshot: Snapshot,
    where: Filter | str | None,
    columns: Sequence[str] | None,
    given: Sequence[Mapping[str, Any]],
) -> Explanation:
    """Return how a query would be answered if the table had some indexes more.

    Reads the columns of these indexes in a sample of file groups. Nothing is written.

    :param where: as it was read, or SQL, which the session reads by the expressions of these indexes too.
    :param columns: that are asked for; all by default. :param given: the indexes; see :func:`definition_of`.
    :raises InvalidInput: (or its kin) for what ``create_index`` refuses.
    :raises UnsupportedSource: naming what only Spark's own reader reads rightly.
    """
    names = snapshot.data.columns if columns is None else resolve(columns, snapshot.data.columns, "columns")
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise InvalidInput(f"The hypothetical indexes are {given!r}.", hint="Give a list of them.")
    definitions = [definition_of(snapshot, one, number) for number, one in enumerate(given, 1)]
    taken = [definition.name.lower() for definition in definitions]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"Two hypothetical indexes are called {twice!r}.", hint="Give each a name of its own.")
    sample = read_sample(snapshot, columns_to_sample(snapshot, definitions))
    trials = [trial_of(snapshot, definition, sample) for definition in definitions]
    table = Hypothetical(snapshot, trials, sample)
    return table.explain(filter_of(table.snapshot, where) if isinstance(where, str) else where, names)


def columns_to_sample(snapshot: Snapshot, definitions: Sequence[IndexDefinition]) -> tuple[str, ...]:
    """Return the table's columns that must be read to try some indexes."""
    table = snapshot.table
    columns: list[str] = []
    for definition in definitions:
        handler = find(definition.kind)
        columns += handler.asked_by(table, definition)
        if isinstance(handler, EntryHandler) and table.source is None:
            columns += table.record_key
    return tuple(dict.fromkeys(columns))


def _pretended(trial: Trial, version: int) -> tuple[DataFile, ...]:
    """Return files that an index would have, one a shard, which nobody reads."""
    definition, shards = trial.definition, trial.definition.shards
    return tuple(
        DataFile(definition.tree, "", str(shard), f"_index/hypothetical/{definition.tree}/{shard}", "base", 0,
                 trial.bytes // shards, version)
        for shard in range(shards)
    )  # fmt: skip


def _between(left: int, asked: int, others: int) -> tuple[float, float]:
    """Return between what the share of other file groups is that are left, in 95 of 100 cases, by Wilson's interval.

    :param left: so many are left of those ``asked``. :param others: so many were not asked.
    """
    if not asked or not others:
        return 0.0, 1.0
    # Both what was counted and what is told of are few of many.
    of = 1 / (1 / asked + 1 / others)
    share = left / asked
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of * of)) / (1 + _Z**2 / of)
    return math.floor(max(0.0, middle - half) * others) / others, math.ceil(min(1.0, middle + half) * others) / others


# --- what each kind would answer --------------------------------------------------------------------------------------


class Tried(IndexHandler):
    """A kind whose answers come from a sample.

    :param size: bytes that the index would hold.
    :ivar within: the file groups that the query reads without the index.
    """

    def __init__(self, definition: IndexDefinition, size: int, sample: Sample) -> None:
        self._definition = definition
        self._size = size
        self._sample = sample
        self.within: Collection[GroupKey] = ()

    def _predicate(self, probe: PredicateProbe, columns: Collection[str]) -> Predicate:
        """Return what a predicate demands of the index's columns."""
        assert isinstance(probe, ParsedPredicateProbe)
        return of_columns(probe.predicate, columns)

    def _extended(self, context: IndexContext, left: Collection[GroupKey]) -> tuple[set[GroupKey], float]:
        """Return the file groups that are left of all, and for how many of them each of the sample stands.

        :param left: those of the sample.
        """
        sampled = self._sample.groups
        if self._sample.whole:
            return set(left), 1.0
        asked = [group for group in self.within if group in sampled]
        if len(asked) < _ENOUGH:
            asked = list(sampled)
        share = sum(group in left for group in asked) / max(len(asked), 1)
        others = [group for group in context.snapshot.groups() if group not in sampled]
        inside = sorted((group for group in others if group in self.within), key=self._order)
        outside = [group for group in others if group not in self.within]
        drawn = inside[: round(share * len(inside))]
        return {*left, *drawn, *outside}, self._sample.of / max(len(sampled), 1)

    def _order(self, group: GroupKey) -> int:
        """Return a number by which file groups are drawn, for each index in another order."""
        return zlib.crc32(f"{self._definition.name}/{group[0]}/{group[1]}".encode())


class _TriedInFiles(Tried):
    """A kind whose entries lie in files, in row groups that are read as a whole.

    :param group: bytes of a row group, about. :param files: in which the entries lie, about.
    :param made: the files, where they were made in memory.
    """

    def __init__(
        self,
        definition: IndexDefinition,
        size: int,
        sample: Sample,
        group: int,
        files: int,
        made: FilesInMemory | None,
    ) -> None:
        super().__init__(definition, size, sample)
        self._group = group
        self._of_files = files
        self._made = made is not None

    def _fetched(self, files: int, least: float, share: float) -> int:
        """Return the bytes that reading a part of the entries fetches.

        :param files: that are opened. :param least: row groups that are read for so small a ``share`` of the entries.
        """
        each = self._size / self._of_files
        if each <= WHOLE_BYTES:
            return round(files * each)
        return round(min(files * each, files * _END_BYTES + least * self._group + share * self._size))


class _TriedEntries(_TriedInFiles, EntryHandler):
    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        columns = self.lookup_columns(context.table, context.definition)
        keys = probe.keys(columns)
        if isinstance(keys, CannotPrune):
            return keys
        if self._made:
            found = find_on_driver(context, self.tree(context.table, context.definition), keys)
            if found is not None:
                return found
        if self._sample.seen < 1.0:
            return CannotPrune("its file groups are too large to be tried in memory", "no_gain")
        wanted = self._predicate(probe, columns)
        counts = self._sample.live.counts(wanted)
        by_group: dict[GroupKey, int] = {}
        for block, count in zip(self._sample.live.blocks, counts, strict=True):
            if count:
                by_group[block.group] = by_group.get(block.group, 0) + int(count)
        groups, each = self._extended(context, by_group)
        rows = round(each * sum(by_group.values()))
        known = self._record_keys(context, wanted, by_group, groups) if rows <= MAX_RETURNED_KEYS else None
        shards = min(context.definition.shards, len(keys))
        return Candidates(frozenset(groups), known, shards, self._looked_up(context, len(keys), rows))

    def _looked_up(self, context: IndexContext, keys: int, rows: int) -> int:
        """Return the bytes that looking keys up reads of the index, of whose entries so many are theirs.

        Entries of a key lie side by side, in row groups that are read as a whole.
        """
        if keys > MAX_DRIVER_KEYS:
            return self._size
        of_all = sum(map(estimated_rows, context.snapshot.state.files(DATA_TREE)))
        files = min(context.definition.shards, keys)
        return self._fetched(files, keys, rows / max(of_all, 1))

    def _record_keys(
        self, context: IndexContext, wanted: Predicate, by_group: Mapping[GroupKey, int], groups: Collection[GroupKey]
    ) -> dict[GroupKey, frozenset[Key]] | None:
        """Return the record keys of matching rows, by file group; of one that was not tried, as many as of others."""
        import numpy as np

        key = context.table.record_key
        if context.table.source is not None or not by_group or not set(key) <= set(self._sample.live.rows.column_names):
            return None
        positions = np.flatnonzero(self._sample.live.matching(wanted))
        taken = self._sample.live.rows.select(list(key)).take(positions)
        kinds = [parse_type(self._sample.types[name]) for name in key]
        values = zip(
            *(
                [value_of(value, kind) for value in python_values(taken.column(name))]
                for name, kind in zip(key, kinds, strict=True)
            ),
            strict=True,
        )
        starts = np.array([block.start for block in self._sample.live.blocks])
        found: dict[GroupKey, set[Key]] = {}
        for position, record_key in zip(positions, values, strict=True):
            group = self._sample.live.blocks[int(np.searchsorted(starts, position, side="right")) - 1].group
            found.setdefault(group, set()).add(record_key)
        usual = max(1, round(sum(map(len, found.values())) / len(found)))
        return {
            group: frozenset(found[group] if group in found else {(*group, number) for number in range(usual)})
            for group in groups
        }


class _TriedSecondary(_TriedEntries, SecondaryHandler):
    pass


class _TriedRecord(_TriedEntries, RecordHandler):
    pass


class _TriedCompact(_TriedInFiles, CompactHandler):
    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        if self._made:
            return CompactHandler.prune(self, context, probe)
        counts = self._sample.counts(self._predicate(probe, context.definition.columns))
        members = context.snapshot.groups(only=self._sample.groups)
        alone = {group for group, files in members.items() if len(files) == 1 and not files[0].tombstones}
        left: dict[GroupKey, set[int]] = {}
        total: dict[GroupKey, int] = {}
        for block, count in zip(self._sample.blocks, counts, strict=True):
            total[block.group] = total.get(block.group, 0) + 1
            if count and block.group in alone:
                left.setdefault(block.group, set()).add(block.number)
        of_all = sum(total[group] for group in alone)
        if sum(map(len, left.values())) >= _MOST_SHARE_OF_BLOCKS * of_all:
            return CannotPrune("it would leave (nearly) all blocks", "no_gain")
        groups, _ = self._extended(context, {*left, *(members.keys() - alone)})
        blocks = {
            members[group][0].lineage: frozenset(numbers)
            for group, numbers in left.items()
            if len(numbers) < total[group]
        }
        if self._sample.seen < 1.0:  # of blocks that were not read nothing is known but their share
            groups |= self._sample.groups
        files, rows = self._of_files, max(self._sample.rows.num_rows, 1)
        fetched = self._fetched(files, files, int(counts.sum()) / rows)
        return Candidates(frozenset(groups), None, files, fetched, blocks)


class _TriedFiles(Tried):
    """A kind whose own code looks into the files that it would have of a sample."""

    kind_tried: IndexHandler
    made: FilesInMemory

    @classmethod
    def of(
        cls, handler: IndexHandler, definition: IndexDefinition, size: int, sample: Sample, made: FilesInMemory
    ) -> _TriedFiles:
        """Return a kind that is asked as another one is, but for what it leaves of file groups.

        :param handler: of the kind. :param made: files of the index, with what it keeps of the sample.
        """
        tried: _TriedFiles = type(f"Tried{type(handler).__name__}", (cls, type(handler)), {})(definition, size, sample)
        tried.kind_tried, tried.made = handler, made
        return tried

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        if self._sample.seen < 1.0:
            return CannotPrune("its file groups are too large to be tried in memory", "no_gain")
        found = self.kind_tried.prune(context, probe)
        if self._sample.whole or isinstance(found, CannotPrune):
            return found
        groups, _ = self._extended(context, found.groups & self._sample.groups)
        # Of the others' row groups nothing is known, so that all are counted as read.
        return replaced(found, groups=frozenset(groups), bytes=min(self._size, round(found.bytes * self._times)))

    @property
    def _times(self) -> float:
        return self._size / max(self.made.bytes, 1)


def _sampled_covering(context: IndexContext, sample: Sample, size: int) -> list[CoveringFile]:
    """Return about the files that a covering index of a large table would have.

    Some rows are packed in the order of the index, and taken for all. By another writer, or in smaller files, they may
    take more or less.

    :param size: bytes that it would hold, for columns that only Spark reads rightly.
    """
    snapshot, definition = context.snapshot, context.definition
    held, shards = held_columns(context.table, definition), definition.shards
    try:
        read = read_sample(snapshot, held, _PACKED_BYTES, merged=False)
        rows = entries_to_hold(context, read, read.rows.select(list(held)))
    except UnsupportedSource:
        rows = None
    columns: dict[str, float] = {}
    if not rows:
        columns = {name.lower(): size * _share(snapshot, [name]) for name in held}
    else:
        tree = covering_tree(context, rows)
        some = _side_by_side(tree, rows, _PACKED_ROWS)
        body, first = packed(snapshot, tree, some), definition.columns[0]
        times = max(1.0, sum(map(estimated_rows, indexable(snapshot).values())) / len(rows))
        more = _times_more_values(rows.column(first), times)
        # Of the column that entries are ordered by, equal values lie side by side and take hardly more than one.
        for name, taken in column_bytes(read_footer(body)).items():
            columns[name] = taken * len(rows) / len(some) * (more if name == first.lower() else times)
        size = round(sum(columns.values()))
        by_bucket = None if definition.properties.get(LAYOUT) == "ranges" else rows_by_bucket(tree, rows, shards)
        if by_bucket is not None:  # of few values each lies in one bucket
            files = []
            for bucket, part in by_bucket.items():
                share = len(part) / len(rows)
                [(_, ranges)] = _laid(definition, part, sample.types, round(share * size), 1)
                each = {name: share * taken for name, taken in columns.items()}
                files.append(CoveringFile(str(bucket), share * size, each, ranges))
            return files
    each = {name: taken / shards for name, taken in columns.items()}
    laid = _laid(definition, sample.rows, sample.types, size, shards)
    return [CoveringFile(bucket, size / shards, each, ranges) for bucket, ranges in laid]


def _times_more_values(column: Any, times: float) -> float:
    """Return about how many times as many different values a column has as some of its rows, by capture and recapture.

    :param column: of rows from all of the table, in its order. :param times: how many times as many rows there are.
    """
    import pyarrow.compute as pc

    half = len(column) // 2
    one, other = (pc.unique(part) for part in (column.slice(0, half), column.slice(half)))
    again = pc.sum(pc.is_in(one, value_set=other)).as_py() or 0
    seen = len(one) + len(other) - again
    return float(min(times, max(1.0, len(one) * len(other) / max(again, 1) / max(seen, 1))))


class _TriedCovering(Tried, CoveringHandler):
    """:param files: that the index would have."""

    def __init__(self, definition: IndexDefinition, size: int, sample: Sample, files: Sequence[CoveringFile]) -> None:
        super().__init__(definition, size, sample)
        self._files = files

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        table, definition = context.table, context.definition
        held = held_columns(table, definition)
        lacking = sorted(set(columns) - set(held))
        if lacking:
            return CannotPrune(f"it would not hold {', '.join(lacking)}", "lacks_columns")
        lineages = set()
        for files in context.snapshot.groups(only=groups).values():
            file = lowest_plain_file(files)
            if file is not None and (len(files) == 1 or context.snapshot.data.merge_by != "ordering"):
                lineages.add(file.lineage)
        if not lineages:
            return CannotPrune("it would hold rows of no file that is left to read", "covers_nothing")
        buckets = None if probe is None else self._buckets(context, probe)
        read, size = 0, 0.0
        for each in self._files:
            if buckets is None or each.bucket in buckets:
                part = matching_fraction(probe, each.ranges, definition.columns[0])
                read += part > 0
                size += part * each.read(columns)

        def rows(names: Sequence[str]) -> Any:
            raise AssertionError(f"{definition.name} is hypothetical")

        return CoveringScan(frozenset(lineages), rows, read, round(size), entries=EntryFiles((), frozenset(), False))

    def _buckets(self, context: IndexContext, probe: PredicateProbe) -> set[str] | None:
        """Return the buckets in which matching rows would lie; ``None`` if they can lie in all, or in ranges."""
        definition = context.definition
        if definition.properties.get(LAYOUT) == "ranges":
            return None
        keys = probe.keys(definition.columns, _MOST_KEYS)
        if isinstance(keys, CannotPrune):
            return None
        types = column_types(context.table.fields)
        kinds = [types[name] for name in definition.columns]
        return {str(bucket_id(key, definition.shards, hash_of(definition), kinds)) for key in keys}


def _laid(
    definition: IndexDefinition, rows: Any, types: Mapping[str, str], size: int, shards: int
) -> list[tuple[str, RowGroupRanges]]:
    """Return the bucket and the ranges of row groups of each file that a covering index would have, about.

    :param rows: that are like those it would hold. :param types: of their columns. :param size: bytes in all.
    """
    import numpy as np
    import pyarrow.compute as pc

    first = definition.columns[0]
    by_ranges = definition.properties.get(LAYOUT) == "ranges"
    groups = max(1, round(size / shards / _ROW_GROUP_BYTES))
    if rows.num_rows > _SORTED_ROWS:
        rows = rows.take(np.linspace(0, rows.num_rows - 1, _SORTED_ROWS).astype(np.int64))
    if not rows.num_rows:
        return []
    # Spark puts nulls first; the others lie as Arrow sorts them, NaN behind all numbers.
    filled = rows.column(first).drop_null()
    ordered, nulls = filled.take(pc.sort_indices(filled)), rows.column(first).null_count
    kind = parse_type(types[first])
    others = {name: _range_within(rows.column(name), types[name]) for name in definition.columns[1:]}

    def ranges(start: int, end: int) -> Mapping[str, Range]:
        if end <= nulls or not len(ordered):
            return {first: Range(values=False), **others}
        ends = (max(0, start - nulls), min(max(start + 1, end) - nulls, len(ordered)) - 1)
        low, high = (value_of(python_values(ordered.slice(at, 1))[0], kind) for at in ends)
        return {first: Range(low, high, nulls=start < nulls), **others}

    pieces = shards if by_ranges else 1
    cuts = [number * rows.num_rows // (pieces * groups) for number in range(pieces * groups + 1)]
    laid = [ranges(start, end) for start, end in pairwise(cuts)]
    if not by_ranges:  # each bucket has values of the whole range
        return [(str(number), tuple(laid)) for number in range(shards)]
    return [(str(number), tuple(laid[number * groups : (number + 1) * groups])) for number in range(shards)]


def _share(snapshot: Snapshot, columns: Collection[str]) -> float:
    """Return which part of the bytes of the table's files some columns take."""
    files = snapshot.state.files(DATA_TREE)
    share = stored_share(snapshot, files, [snapshot.data.stored(name) for name in columns])
    return column_share(snapshot.data.fields, columns) if share is None else share


def _range_within(column: Any, type_text: str) -> Range:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = parse_type(type_text)
    ends = pc.min_max(column)
    low, high = (value_of(python_values(pa.array([ends[end]]))[0], kind) for end in ("min", "max"))
    return Range(values=False) if low is None else Range(low, high, nulls=column.null_count > 0)


_TRIED_ENTRIES: dict[str, type[_TriedEntries | _TriedCompact]] = {
    "record": _TriedRecord,
    "secondary": _TriedSecondary,
    "compact": _TriedCompact,
}
_TRIED = (*_TRIED_ENTRIES, "covering", "skipping")
