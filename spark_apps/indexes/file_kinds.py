"""The template of kinds that address files: what an index keeps of a data file is made of that file alone.

Such a file is never changed, so neither is what is kept of it: writes leave the index behind until a refresh, which
reads the files that are new. The template knows which files those are, what is covered, which scopes a commit writes
and which file groups a query may leave out. A kind says what it keeps of data files (:meth:`FileKind.entries`) and what
that says of a predicate (:meth:`FileKind.answer`); one that merges its files or takes entries out of them says how.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec.structs import replace

from spark_apps.indexes.computed import columns_in, expressions_in, indexed_by
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    Changes,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    PredicateProbe,
)
from spark_apps.indexes.lineage import Coverage, carrier, carriers, indexable, stage_id
from spark_apps.indexes.ranges import NOTHING
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.files import DataFile, GroupKey, is_merged, lowest_plain_file
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    IndexDefinition,
    MarkCovered,
    PutIndex,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    shard_scope,
)


@dataclass(frozen=True)
class Entries:
    """Files of an index that a kind has staged.

    :param files: that hold the entries. :param metrics: for the receipt.
    :param coverage: what a carrier is to say that is covered; ``None`` for the data files that were asked for, with the
        columns of the definition, and nothing where the files say it themselves.
    :param extra: what the carrier keeps beside it.
    :param removed: files whose entries are in these now, or nowhere. ``coverage`` is then that of the whole index.
    """

    files: Sequence[AddFile]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    coverage: Coverage | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    removed: Sequence[DataFile] = ()


class Blocks(NamedTuple):
    """The numbers of the blocks (row groups, stripes) of a data file that may hold a match, and how many it has."""

    numbers: frozenset[int]
    of: int


@dataclass(frozen=True)
class Answer:
    """The data files, or parts of them, that an index leaves to a predicate.

    :param left: from a data file to what of it may hold a match: all of it, nothing, or some blocks; ``None`` where the
        index does not know the file.
    :param files: index files read. :param fetched: returns the bytes read of them, once all files were asked for.
    """

    left: Callable[[DataFile], Blocks | bool | None]
    files: int = 0
    fetched: Callable[[], int] = lambda: 0


class FileKind(IndexHandler):
    """A kind that keeps something of each data file, by its lineage."""

    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False

    scope: ClassVar[str] = "entries"
    """The one scope of its files: two commits that rewrite entries exclude each other."""

    # --- What a kind says ---------------------------------------------------------------------------------------------

    @abstractmethod
    def entries(self, context: IndexContext, files: Sequence[DataFile]) -> Entries:
        """Stage what the index keeps of some data files.

        :returns: the files that were staged.
        """

    def answer(self, context: IndexContext, probe: PredicateProbe) -> Answer | CannotPrune:
        """Return what the index says of a predicate.

        :raises StorageError: if a file of the index is missing or damaged.
        """
        return CannotPrune("it does not point into files")

    def without(self, context: IndexContext, lineages: AbstractSet[int]) -> Entries | None:
        """Stage what remains of the index when the entries of some data files are taken out.

        :param lineages: of data files that are gone or will be read again.
        :returns: the files that were staged; ``None`` if the whole index is to be built anew instead.
        """
        return None

    def merged(self, context: IndexContext, mode: Literal["quick", "full"], gone: AbstractSet[int]) -> Entries | None:
        """Stage fewer, larger files with the same entries.

        :param gone: data files that are covered and that the table has no more.
        :returns: the files that were staged; ``None`` if there is nothing to do.
        """
        return None

    def coverable(self, snapshot: Snapshot) -> list[DataFile]:
        """Return the data files of which the index can keep something.

        :param snapshot: the table at the version that the index is made over.
        """
        return list(indexable(snapshot).values())

    def void(self, coverage: Coverage, live: AbstractSet[int]) -> AbstractSet[int]:
        """Return the data files whose entries a refresh takes out, for a kind that does not wait for a compaction.

        :param coverage: of the index. :param live: data files that can be covered.
        """
        return frozenset()

    def redefined(self, context: IndexContext, files: Sequence[DataFile], anew: bool) -> IndexDefinition:
        """Return the definition for a build or refresh.

        :param files: that are read. :param anew: whether all entries are made again.
        """
        return context.definition

    def writes(self, context: IndexContext, actions: Sequence[AnyAction], mode: WriteMode) -> tuple[Write, ...]:
        """Return the scopes that a commit with these actions writes."""
        return (Write(shard_scope(context.definition.tree, self.scope), mode),)

    def keys(self, table: TableDefinition, definition: IndexDefinition) -> Sequence[str]:
        """Return the names under which the index's values are held against a predicate."""
        return [one.key for one in indexed_by(table, definition)]

    # --- Definition ---------------------------------------------------------------------------------------------------

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return (*self.asked_by(table, definition), *definition.included)

    def asked_by(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return columns_in(table, definition)

    def expressions(self, table: TableDefinition, definition: IndexDefinition) -> Mapping[str, str]:
        return expressions_in(table, definition)

    # --- Build and refresh --------------------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        name = context.definition.name
        if mode == "quick":
            return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes no entries")
        live = self.coverable(context.snapshot)
        covered = frozenset[int]() if mode == "full" else covered_by(context).lineages
        new = [file for file in live if file.lineage not in covered and _is_within(file, partitions)]
        gone = covered - {file.lineage for file in live}
        reason = f"{len(new)} of {len(live)} files are not covered"
        if gone:
            reason += f", {len(gone)} that it covers are gone"
        groups = tuple(dict.fromkeys(file.group_key for file in new))
        reason = "all files" if mode == "full" and partitions is None else reason
        return IndexPlan(name, mode, groups, len(new), sum(file.bytes for file in new), reason)

    def build(self, context: IndexContext) -> IndexWork:
        return self._index_all_files(context, anew=False)

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        return IndexWork()

    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        lag = context.snapshot.state.index(context.definition.name).lag
        if mode == "quick":
            return IndexWork(metrics={"lagging_groups": len(lag)})
        if mode == "full" and partitions is None:
            return self._index_all_files(context, anew=True)
        return self._catch_up(context, partitions, again=mode == "full")

    def _index_all_files(self, context: IndexContext, *, anew: bool) -> IndexWork:
        """Stage what the index keeps of all data files, in place of what it has; one commit swaps them."""
        files, old = self.coverable(context.snapshot), own_files(context) if anew else []
        context = changed(context, definition=self.redefined(context, files, anew))
        actions, metrics = self.indexed(context, files)
        return self._work(context, [*_removals(old), *_changed_definition(context), *actions], metrics)

    def _catch_up(self, context: IndexContext, partitions: Sequence[str] | None, *, again: bool) -> IndexWork:
        """Stage what the index keeps of files that are new, and take out what is void.

        :param again: whether files that are covered are read again, in these partitions.
        """
        known, live = covered_by(context), {file.lineage: file for file in self.coverable(context.snapshot)}
        mine = {lineage for lineage, file in live.items() if _is_within(file, partitions)}
        out = self.void(known, live.keys()) | (mine & known.lineages if again else frozenset())
        new = [
            file
            for lineage, file in live.items()
            if lineage in mine and (lineage not in known.lineages or lineage in out)
        ]
        context = changed(context, definition=self.redefined(context, new, False))
        definition = _changed_definition(context)
        lag = context.snapshot.state.index(context.definition.name).lag
        behind = any(partitions is None or group[0] in partitions for group in lag)
        if not (new or out or definition or behind):
            return IndexWork()
        kept_folder = changed(context, directory=f"{context.directory}/kept")
        rest = self.without(kept_folder, out) if out or definition else None
        if rest is None and out:
            return self._index_all_files(context, anew=True)
        actions, metrics = self.indexed(context, new, partitions)
        if rest is not None:
            actions += self._swap(kept_folder, rest)
        return self._work(context, [*definition, *actions], {**metrics, "removed_files": len(out)})

    def indexed(
        self, context: IndexContext, files: Sequence[DataFile], partitions: Sequence[str] | None = None
    ) -> tuple[list[AnyAction], Mapping[str, Any]]:
        """Stage what the index keeps of data files, and what says that it covers them.

        :returns: the actions, and figures for the receipt.
        """
        version = context.snapshot.state.version
        cover = MarkCovered(context.definition.tree, version, None if partitions is None else tuple(partitions))
        if not files:
            return [cover], {"files": 0}
        staged = self.entries(context, files)
        covers = staged.coverage
        if covers is None:
            covers = Coverage.single(stage_id(context.directory), context.definition.columns, None, files)
        return [*staged.files, *_carrier(context, covers, staged.extra), cover], {"files": len(files), **staged.metrics}

    def _swap(self, context: IndexContext, rest: Entries, *, into_one: bool = False) -> list[AnyAction]:
        """Return the actions that put files in place of others, and a carrier in place of those that say otherwise.

        :param into_one: whether several carriers become one in any case.
        """
        removed, added, covers = list(rest.removed), list(rest.files), rest.coverage or Coverage()
        old = carriers(own_files(context))
        if covers.parts != Coverage.of(old).parts or (into_one and len(old) > 1):
            removed += old
            added += _carrier(context, covers, rest.extra)
        return [*_removals(removed), *added]

    # --- Compaction ---------------------------------------------------------------------------------------------------

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        # A file that cannot be covered just now may be later, and what is known of it stays right.
        gone = covered_by(context).lineages - {file.lineage for file in context.snapshot.state.files(DATA_TREE)}
        merged = self.merged(context, mode, gone)
        if merged is None:
            return IndexWork()
        metrics = {
            "mode": mode, "files_before": len(merged.removed), "files_after": len(merged.files),
            "bytes_before": sum(file.bytes for file in merged.removed),
            "bytes_after": sum(action.bytes for action in merged.files),
            "rows": sum(action.rows for action in merged.files), **merged.metrics,
        }  # fmt: skip
        return self._work(context, self._swap(context, merged, into_one=True), metrics)

    def _work(self, context: IndexContext, actions: Sequence[AnyAction], metrics: Mapping[str, Any]) -> IndexWork:
        rewrites = any(isinstance(action, RemoveFile) for action in actions)
        writes = self.writes(context, actions, "fold" if rewrites else "backdated")
        return IndexWork(tuple(actions), writes, metrics=metrics)

    # --- Queries ------------------------------------------------------------------------------------------------------

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        named = not probe.columns.isdisjoint(self.asked_by(table, definition))
        if not named or probe.may_match(dict.fromkeys(self.keys(table, definition), NOTHING)):
            return CannotPrune("the predicate does not bound its columns", "no_keys")
        return None

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        answer = self.answer(context, probe)
        if isinstance(answer, CannotPrune):
            return answer
        known = unknown = 0
        blocks_left: dict[int, Blocks] = {}

        def may_match(file: DataFile) -> bool:
            nonlocal known, unknown
            found = answer.left(file) if file.lineage else None
            if found is None:
                unknown += 1
                return True
            known += 1
            if isinstance(found, bool):
                return found
            blocks_left[file.lineage] = found
            return bool(found.numbers)

        # What a delta replaces or deletes can only go: the rows of a group are among those of its files.
        groups = context.snapshot.groups()
        left = {group: members for group, members in groups.items() if any(map(may_match, members))}
        if unknown and not known:
            return CannotPrune("it covers none of the files", "covers_nothing")
        blocks = {
            file.lineage: some
            for members in left.values()
            for file in _read_by_blocks(context.table, members)
            if (some := blocks_left.get(file.lineage)) is not None and len(some.numbers) < some.of
        }
        if len(left) == len(groups) and groups and not blocks:
            return CannotPrune(f"it rules out none of the {known:,} files that it covers", "no_gain")
        return Candidates(
            frozenset(left), None, answer.files, answer.fetched(),
            {lineage: some.numbers for lineage, some in blocks.items()} or None,
            {lineage: some.of for lineage, some in blocks.items()} or None,
        )  # fmt: skip


def groups_with(context: IndexContext, known: AbstractSet[int], found: AbstractSet[int]) -> frozenset[GroupKey]:
    """Return the file groups that have a file of some, or one of which nothing is known.

    :param context: of the call. :param known: lineages of data files of which the index tells.
    :param found: of these, the ones wanted.
    """
    return frozenset(
        group
        for group, members in context.snapshot.groups().items()
        if any(not file.lineage or file.lineage not in known or file.lineage in found for file in members)
    )


def own_files(context: IndexContext) -> list[DataFile]:
    """Return the files of the index.

    :param context: of the call.
    """
    return context.snapshot.state.files(context.definition.tree)


def covered_by(context: IndexContext) -> Coverage:
    """Return what the index covers.

    :param context: of the call.
    """
    return Coverage.of(own_files(context))


def _is_within(file: DataFile, partitions: Collection[str] | None) -> bool:
    return partitions is None or file.partition in partitions


def _removals(files: Sequence[DataFile]) -> list[AnyAction]:
    return [RemoveFile(file.tree, file.path) for file in files]


def _changed_definition(context: IndexContext) -> list[AnyAction]:
    """Return the definition, where it is not what the log has."""
    entry = context.snapshot.state.index(context.definition.name)
    return [] if entry.definition == context.definition else [PutIndex(context.definition, entry.state)]


def _carrier(context: IndexContext, covers: Coverage, extra: Mapping[str, Any]) -> list[AddFile]:
    """Stage the file that keeps a coverage, unless there is nothing to keep."""
    if not covers:
        return []
    version = context.snapshot.state.version
    staged = carrier(context.snapshot.store, context.definition.tree, context.directory, covers, version)
    return [replace(staged, extra={**(staged.extra or {}), **extra})]


def _read_by_blocks(table: TableDefinition, members: Sequence[DataFile]) -> Sequence[DataFile]:
    """Return the files of a file group of which blocks without a match may be left out.

    A row that does not match may hide one that does: in a delta, and by an ordering in the file below as well.
    """
    if is_merged(members):
        return members
    lowest = lowest_plain_file(members)
    return () if lowest is None or table.merge_by == "ordering" else (lowest,)
