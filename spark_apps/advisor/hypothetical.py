"""Indexes that a table does not have, answering queries as if they were there.

Such an index is tried over a sample of the table's file groups (:mod:`spark_apps.advisor.sample`). Its files are made
in memory (:mod:`spark_apps.advisor.in_memory`), and the planner asks the kind's own code, which looks into them. File
groups outside of the sample are left out in the same share, and bytes are scaled. Of a large table the files of a keyed
or compact index would take too long to make: matching rows of the sample are counted in their place. Nothing is
written.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any, cast

from spark_apps.actions.indexing import CreateIndex
from spark_apps.advisor.in_memory import (
    Columns,
    FilesInMemory,
    Staging,
    WithFiles,
    covering_files,
    entries,
    entry_files,
    evenly,
)
from spark_apps.advisor.limits import MAX_ORDERED_ROWS, MAX_PACKED_ROWS, MIN_ASKED_GROUPS
from spark_apps.advisor.packing import packed, row_group_bytes
from spark_apps.advisor.records_in_memory import record_files
from spark_apps.advisor.sample import Sample, read_sample
from spark_apps.engine.no_session import NeedsSpark
from spark_apps.indexes.block.compact import CompactHandler
from spark_apps.indexes.covering.covering import CoveringHandler
from spark_apps.indexes.file_kinds import FileKind
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    CoveringScan,
    IndexContext,
    IndexHandler,
    IndexPlan,
    Key,
    PredicateProbe,
    estimated_rows,
)
from spark_apps.indexes.keyed.entries import EntryHandler
from spark_apps.indexes.keyed.lookup import find_on_driver
from spark_apps.indexes.limits import MAX_DRIVER_KEYS, MAX_RETURNED_KEYS
from spark_apps.indexes.registry import find
from spark_apps.indexes.skipping.skipping import SkippingHandler
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot, Tree
from spark_apps.mergetree.write_on_driver import order_of
from spark_apps.query.explain import Explanation, explain_plan
from spark_apps.query.planning import ParsedPredicateProbe, ReadPlan, filter_of, plan_read
from spark_apps.query.predicates import Filter, Predicate, of_columns
from spark_apps.storage.errors import InvalidInput, UnsupportedSource
from spark_apps.storage.store import WHOLE_BYTES, ObjectStore
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import DATA_TREE, AddFile, IndexDefinition
from spark_apps.timeline.state import IndexEntry

logger = logging.getLogger(__name__)

_GIVEN = ("kind", "columns", "included", "properties", "name")
_Z = 1.96
"""Standard errors of an interval that holds in 95 of 100 cases."""
_END_BYTES = 64 * 1024
"""Bytes that opening a file of an index fetches: its end, with the footer; of a small one all."""
_PACKED_GROUP_BYTES = 400 * 1024
"""Bytes in the file of a row group of entries, where none could be packed to know."""
_PACKED_PIECES = 8
"""Pieces of neighbours of which the entries are that are packed."""
_MAX_SHARE_OF_BLOCKS = 0.9
"""Part of the blocks from which on a compact index that leaves them is of no use."""


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
    action.allows_plain_copy = True  # what it would hold is stored nowhere
    handler = find(action.kind)
    if not isinstance(handler, (EntryHandler, FileKind)):
        raise InvalidInput(
            f"What an index of kind {action.kind!r} would save is not known before it is built.",
            hint="Kinds that can be tried: record, secondary, compact, covering, skipping, and others that are made "
            "from spark_apps.indexes.file_kinds.FileKind.",
        )
    try:
        action.validate(snapshot)
        definition = action.definition(snapshot)
    except NeedsSpark as error:
        raise InvalidInput(
            f"The index {action.name!r} keeps values of an expression, whose type only Spark knows.",
            hint="Ask IndexedTable.load(spark, …).explain, or name columns alone.",
        ) from error
    if not handler.follows_files and handler.expressions(snapshot.table, definition):
        raise InvalidInput(
            f"What the index {action.name!r} over an expression would save is not known before it is built.",
            hint="Name columns alone, or try kind 'skipping'.",
        )
    return definition


@dataclass(frozen=True, eq=False)
class Trial:
    """A hypothetical index, tried over a sample.

    :param build: what a build would write and how long it would take.
    :param handler: answers queries in place of the kind's own code; ``None`` where that code does.
    :param made: its files, which that code looks into, where they were made in memory.
    """

    definition: IndexDefinition
    build: IndexPlan
    handler: Tried | None = None
    made: FilesInMemory | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def bytes(self) -> int:
        """The bytes that the index would hold, about."""
        return self.build.estimated_bytes


def trial_of(snapshot: Snapshot, definition: IndexDefinition, sample: Sample) -> Trial:
    """Return an index as it is tried over a sample.

    :raises InvalidInput: if its files cannot be made in memory.
    """
    context, handler = IndexContext(snapshot, definition, ""), find(definition.kind)
    build = handler.priced(context, handler.plan(context))
    if isinstance(handler, (EntryHandler, CompactHandler)):
        return _trial_of_entries(context, handler, sample, build)
    assert isinstance(handler, FileKind)
    columns: Columns = {}
    if isinstance(handler, SkippingHandler):
        made, size = record_files(context, sample, len(snapshot.state.files(DATA_TREE)))
    elif isinstance(handler, CoveringHandler):
        definition, made, columns = covering_files(context, sample, build.estimated_bytes)
        size = max(made.bytes, round(sum(of_all for _, of_all in columns.values())))
    else:
        made, size = _staged_in_memory(context, handler, sample)
    tried = _TriedFiles.of(Facts(handler, definition, size, sample, made, columns))
    return Trial(definition, replaced(build, estimated_bytes=size), tried, made)


def _trial_of_entries(
    context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample, build: IndexPlan
) -> Trial:
    """Return an index of entries: its files of a small table, of a large one what they would take."""
    import pyarrow as pa

    definition, made = context.definition, None
    size, group, files = build.estimated_bytes, _PACKED_GROUP_BYTES, definition.shards
    try:
        if sample.small:
            made = entry_files(context, handler, sample)
        if made is not None:
            size = made.bytes
        elif about := _packed_entries(context, handler, sample):
            size, group, files = about
    except pa.ArrowException as error:  # a type that Arrow does not sort or write
        logger.info("What %s would hold is estimated: %s", definition.name, error)
    build = replaced(build, estimated_bytes=size)
    if made is not None and isinstance(handler, CompactHandler):
        return Trial(definition, build, None, made)
    kind = _TriedBlocks if isinstance(handler, CompactHandler) else _TriedKeys
    return Trial(definition, build, kind.of(Facts(handler, definition, size, sample, made, {}, group, files)), made)


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


def _packed_entries(
    context: IndexContext, handler: EntryHandler | CompactHandler, sample: Sample
) -> tuple[int, int, int] | None:
    """Return about the bytes that the entries of an index would take, those of one row group, and how many files.

    By the entries of a sample; ``None`` where it has none of them.
    """
    snapshot, found = context.snapshot, entries(context, handler, sample)
    tables = [] if found is None else [rows for rows in found[1].values() if len(rows)]
    if found is None or not tables:
        return None
    tree, size, group = found[0], 0.0, 0
    for rows in tables:
        some = _neighbours(tree, rows, MAX_PACKED_ROWS // len(tables))
        size += len(packed(snapshot, tree, some)) / len(some) * len(rows)
        group = max(group, row_group_bytes(snapshot, tree, some))
    times = max(1.0, sum(map(estimated_rows, snapshot.state.files(DATA_TREE))) / sample.rows.num_rows)
    return round(size * times), group, max(context.definition.shards, len(tables))


def _neighbours(tree: Tree, rows: Any, most: int) -> Any:
    """Return some of the rows of a tree in their order: pieces of rows that will be neighbours.

    Of rows taken one by one equal values would not be together, and take more.
    """
    import numpy as np
    import pyarrow as pa

    rows = evenly(rows, MAX_ORDERED_ROWS)
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
        self._handlers = {one.name: one.handler for one in trials if one.handler is not None}
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
        self.snapshot = replaced(
            snapshot, state=state, store=WithFiles.of(snapshot.store, bodies), intact={*snapshot.intact, *bodies}
        )

    def plan(
        self,
        where: Filter | None,
        columns: Sequence[str] | None,
        without: ReadPlan | None = None,
    ) -> ReadPlan:
        """Return what a query would read; see :func:`~spark_apps.query.planning.plan_read`.

        The plan cannot be executed.

        :param without: what it reads now, if that is known.
        """
        if without is None:
            without = plan_read(self._real, where, columns)
        for handler in self._handlers.values():
            handler.within = without.groups.keys()
        return plan_read(self.snapshot, where, columns, handlers=self._handlers)

    def explain(self, where: Filter | None, names: Sequence[str]) -> Explanation:
        """Return how a query would be answered, which says that these indexes are not there."""
        without = plan_read(self._real, where, names)
        plan = self.plan(where, names, without=without)
        explained = explain_plan(plan, names, by_blocks=False)
        sampled, all_of_them = len(self.sample.groups), self.sample.of
        counted = "in all file groups" if self.sample.whole else f"in {sampled:,} of {all_of_them:,} file groups"
        used = [one.name for one in self.trials]
        return replaced(
            explained,
            notes=(*explained.notes, f"hypothetical: what {', '.join(used)} would leave was found by trying {counted}"),
            hypothetical=tuple(used),
            bytes_skipped_bounds=self._bounds(without, plan, explained.bytes_skipped),
        )

    def _bounds(self, without: ReadPlan, plan: ReadPlan, skipped: int) -> tuple[int, int]:
        """Return the least and the most of the skipped bytes; the same where all file groups were tried."""
        if self.sample.whole or plan.covering_scans:
            return skipped, skipped
        groups = self._real.groups(only=without.groups)
        asked = asked_of_sample(self.sample, without.groups)
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
    """Return files that an index would have, one a shard, which are counted and not read."""
    definition, shards = trial.definition, trial.definition.shards
    return tuple(
        DataFile(definition.tree, "", str(shard), f"_index/hypothetical/{definition.tree}/{shard}", "base", 0,
                 trial.bytes // shards, version)
        for shard in range(shards)
    )  # fmt: skip


def _between(left: int, asked: int, others: int) -> tuple[float, float]:
    """Return the least and the most share of other file groups that is left, in 95 of 100 cases: Wilson's interval.

    :param left: file groups that are left of those ``asked``. :param others: file groups that were not asked.
    """
    if not asked or not others:
        return 0.0, 1.0
    # Both what was counted and what is estimated are few of many.
    of = 1 / (1 / asked + 1 / others)
    share = left / asked
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of * of)) / (1 + _Z**2 / of)
    return math.floor(max(0.0, middle - half) * others) / others, math.ceil(min(1.0, middle + half) * others) / others


# --- what each kind would answer --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of an index that is tried.

    :param handler: of its kind. :param size: bytes that it would hold. :param made: its files over the sample, if made.
    :param columns: of an index that holds rows.
    :param group: bytes of a row group of its entries, about. :param files: in which these are, about.
    """

    handler: IndexHandler
    definition: IndexDefinition
    size: int
    sample: Sample
    made: FilesInMemory | None = None
    columns: Columns = field(default_factory=dict)
    group: int = _PACKED_GROUP_BYTES
    files: int = 1

    def fetched(self, files: int, least: float, share: float) -> int:
        """Return the bytes that reading a part of the entries fetches, of which row groups are read as a whole.

        :param files: that are opened. :param least: row groups that are read at least.
        :param share: of the entries that are read.
        """
        each = self.size / self.files
        if each <= WHOLE_BYTES:
            return round(files * each)
        return round(min(files * each, files * _END_BYTES + least * self.group + share * self.size))


class Tried(IndexHandler):
    """A kind that is asked as it is, but for what it answers from a sample.

    :ivar within: the file groups that the query reads without the index.
    """

    facts: Facts
    within: Collection[GroupKey] = ()

    @classmethod
    def of(cls, facts: Facts) -> Tried:
        """Return a kind whose answers this class gives."""
        tried: Tried = type(f"Tried{type(facts.handler).__name__}", (cls, type(facts.handler)), {"facts": facts})()
        return tried

    def _extended(self, context: IndexContext, left: Collection[GroupKey]) -> set[GroupKey]:
        """Return the file groups that are left of all. :param left: those of the sample."""
        sample = self.facts.sample
        if sample.whole:
            return set(left)
        asked = asked_of_sample(sample, self.within)
        others = [group for group in context.snapshot.groups() if group not in sample.groups]
        inside = sorted((group for group in others if group in self.within), key=self._order)
        outside = [group for group in others if group not in self.within]
        share = sum(group in left for group in asked) / max(len(asked), 1)
        return {*left, *inside[: round(share * len(inside))], *outside}

    def _order(self, group: GroupKey) -> int:
        """Return a number by which file groups are drawn, for each index in another order."""
        return zlib.crc32(f"{self.facts.definition.name}/{group[0]}/{group[1]}".encode())


def asked_of_sample(sample: Sample, within: Collection[GroupKey]) -> list[GroupKey]:
    """Return the file groups of a sample by which the others are judged.

    :param within: those that a query reads.
    """
    asked = [group for group in within if group in sample.groups]
    return asked if len(asked) >= MIN_ASKED_GROUPS else list(sample.groups)


def _demanded(probe: PredicateProbe, columns: Collection[str]) -> Predicate:
    """Return what a predicate demands of an index's columns."""
    assert isinstance(probe, ParsedPredicateProbe)
    return of_columns(probe.predicate, columns)


class _UnknownKeys(frozenset[Key]):
    """Record keys of which only the number is known: what they have in common with others is the fewer of both."""

    def __and__(self, other: AbstractSet[object]) -> frozenset[Key]:
        return min(self, cast("frozenset[Key]", other), key=len)

    def __or__(self, other: AbstractSet[Any]) -> frozenset[Key]:
        return _UnknownKeys(super().__or__(other))

    __rand__, __ror__ = __and__, __or__


class _TriedKeys(Tried):
    """A kind with an entry a row: matching rows of the sample are its entries."""

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        facts, sample, handler = self.facts, self.facts.sample, self.facts.handler
        assert isinstance(handler, EntryHandler)
        columns = handler.lookup_columns(context.table, context.definition)
        keys = probe.keys(columns)
        if isinstance(keys, CannotPrune):
            return keys
        if facts.made is not None:
            found = find_on_driver(context, handler.tree(context.table, context.definition), keys)
            if found is not None:
                return found
        if sample.seen < 1.0:
            return _TOO_LARGE
        by_group = Counter[GroupKey]()
        for block, count in zip(sample.live.blocks, sample.live.counts(_demanded(probe, columns)), strict=True):
            if count:
                by_group[block.group] += int(count)
        groups = self._extended(context, by_group)
        rows = round(sample.of / max(len(sample.groups), 1) * by_group.total())
        shards, of_all = min(context.definition.shards, len(keys)), context.snapshot.state.files(DATA_TREE)
        fetched = facts.size
        if len(keys) <= MAX_DRIVER_KEYS:
            # Entries of a key are neighbours.
            fetched = facts.fetched(shards, len(keys), rows / max(sum(map(estimated_rows, of_all)), 1))
        record_keys = None
        if by_group and rows <= MAX_RETURNED_KEYS and context.table.source is None:
            # A file group that was not tried has as many as others.
            usual = max(1, round(by_group.total() / len(by_group)))
            record_keys = {
                group: _UnknownKeys((*group, number) for number in range(by_group.get(group, usual)))
                for group in groups
            }
        return Candidates(frozenset(groups), record_keys, shards, fetched)


class _TriedBlocks(Tried):
    """The kind with an entry a value and block: blocks of the sample with matching rows are those that it names."""

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        facts, sample = self.facts, self.facts.sample
        counts = sample.counts(_demanded(probe, context.definition.columns))
        members = context.snapshot.groups(only=sample.groups)
        alone = {group for group, files in members.items() if len(files) == 1 and not files[0].tombstones}
        left: dict[GroupKey, set[int]] = {}
        total = Counter(block.group for block in sample.blocks)
        for block, count in zip(sample.blocks, counts, strict=True):
            if count and block.group in alone:
                left.setdefault(block.group, set()).add(block.number)
        if sum(map(len, left.values())) >= _MAX_SHARE_OF_BLOCKS * sum(total[group] for group in alone):
            return CannotPrune("it would leave (nearly) all blocks", "no_gain")
        groups = self._extended(context, {*left, *(members.keys() - alone)})
        blocks = {
            members[group][0].lineage: frozenset(numbers)
            for group, numbers in left.items()
            if len(numbers) < total[group]
        }
        if sample.seen < 1.0:  # of blocks that were not read nothing is known but their share
            groups |= sample.groups
        fetched = facts.fetched(facts.files, facts.files, int(counts.sum()) / max(sample.rows.num_rows, 1))
        return Candidates(frozenset(groups), None, facts.files, fetched, blocks)


class _TriedFiles(Tried):
    """A kind whose own code looks into the files that it would have of a sample."""

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        facts, sample = self.facts, self.facts.sample
        if sample.seen < 1.0:
            return _TOO_LARGE
        found = facts.handler.prune(context, probe)
        if sample.whole or isinstance(found, CannotPrune) or facts.made is None:
            return found
        groups = self._extended(context, found.groups & sample.groups)
        fetched = min(facts.size, round(found.bytes * facts.size / max(facts.made.bytes, 1)))
        # Of the others' row groups nothing is known, so that all are counted as read.
        return replaced(found, groups=frozenset(groups), bytes=fetched)

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        found = self.facts.handler.substitute(context, probe, columns, groups)
        if isinstance(found, CannotPrune):
            return found
        return replaced(found, bytes=round(found.bytes * self._times(columns)), check=lambda: None, buckets=None)

    def _times(self, columns: Sequence[str]) -> float:
        """Return how many times as many bytes some columns have over all of the table."""
        named, known = {name.lower() for name in columns}, self.facts.columns
        sizes = [size for name, size in known.items() if name in named] or list(known.values())
        return sum(of_all for _, of_all in sizes) / max(sum(made for made, _ in sizes), 1) if sizes else 1.0


_TOO_LARGE = CannotPrune("its file groups are too large to be tried in memory", "no_gain")
