"""The ``compact`` index: values of some columns -> the blocks of the files that hold them.

Made for values that repeat close together: it says in which row groups (stripes) a value stands, not in which row, and
so stays small; a query reads those blocks only and filters their rows. It addresses files, so it lags behind writes
until it is refreshed. Follows Hive's Index Design (its reference implementation).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec.structs import replace
from pyspark.sql.types import StructType

from spark_apps.indexes.compact_entries import (
    Staged,
    entry_tree,
    find_blocks,
    home,
    homes_of,
    of_files,
    stage_entries,
    stage_files,
)
from spark_apps.indexes.comparing_blocks import compare_blocks
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    Changes,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    Question,
)
from spark_apps.indexes.lineage import Coverage, carrier, carriers, entry_files, indexable, stage_id
from spark_apps.indexes.ranges import NOTHING
from spark_apps.indexes.verification import VerificationReport
from spark_apps.layout.partitions import parse_partition_path
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.read import read_files
from spark_apps.mergetree.schema import check_partition_types, resolve, struct_type
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Cover,
    IndexDefinition,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    shard_scope,
)

MOST_VALUES = "most_values"
"""Property: so many distinct values are put to a predicate at most; above it the index is not used."""

_BLOCKS = "blocks"
"""In :attr:`AddFile.extra` of a carrier: how many blocks its files have."""

_DEFAULT_VALUES = 200_000
_SMALL = 64 * 1024 * 1024
_NEARLY_ALL = 0.9
_SCOPE = "entries"


class CompactHandler(IndexHandler):
    """One entry a value and block."""

    kind: ClassVar[str] = "compact"
    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False
    by_value = True
    partitioned: ClassVar[bool] = True
    changeable: ClassVar[frozenset[str]] = frozenset({MOST_VALUES})

    # --- definition -------------------------------------------------------------------------------------------

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        what = f"The compact index {definition.name!r}"
        if definition.included:
            raise InvalidInput(f"{what} has no included columns.", hint="Use kind='covering' for those.")
        if not definition.columns:
            raise InvalidInput(f"{what} has no columns.", hint="Name those that queries filter by.")
        schema = struct_type(table.fields)
        columns = resolve(definition.columns, schema.names, what)
        for name in columns:
            if parse_type(schema[name].dataType.simpleString()).kind in ("other", "char"):
                raise InvalidSchema(
                    f"{what} names the column {name!r} of type {schema[name].dataType.simpleString()}, whose values "
                    "are not compared one by one.",
                    hint="Use columns of strings, numbers, booleans, dates, timestamps or binaries.",
                )
        kept_apart = definition.partition_by
        if kept_apart is None:
            kept_apart = table.partition_by if _plain_text(schema, table.partition_by) else ()
        check_partition_types(schema, kept_apart)
        return replace(
            definition, columns=columns, addresses="file", partition_by=kept_apart, shards=1,
            properties=_properties(definition.properties),
        )  # fmt: skip

    # --- bringing up to date ----------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        name = context.definition.name
        if mode == "quick":
            return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes nothing")
        files = self._wanted(context, mode == "full", partitions)
        reason = "all files" if mode == "full" else f"{len(files)} files are not told of"
        return IndexPlan(name, mode, tuple(files), len(files), sum(f.bytes for f in files.values()), reason)

    def build(self, context: IndexContext) -> IndexWork:
        return self._index(context, self._wanted(context, True, None), None)

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
        if mode == "full":
            return self._rebuild(context, partitions)
        files = self._wanted(context, False, partitions)
        if not files and not lag:
            return IndexWork()
        return self._index(context, files, partitions)

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        files = self._files(context)
        coverage, live = Coverage.of(files), self._live(context)
        gone = coverage.lineages - live
        by_partition: dict[str, list[DataFile]] = {}
        for file in entry_files(files):
            if mode == "full" or file.bytes < _SMALL:
                by_partition.setdefault(file.partition, []).append(file)
        dead = bool(gone) and mode == "full"
        several = [file for found in by_partition.values() if len(found) > 1 or dead for file in found]
        if not several:
            return IndexWork()
        tree = entry_tree(context.table, context.definition)
        entries = read_files(context.snapshot, tree, several, tree.columns)
        # A file of a source may come back as it was: then all of its entries must be there, or none and nobody be told
        # that it is covered. Of a keyed table only a restore brings files back, and their entries with them.
        if gone and (dead or context.table.source is None):
            entries = of_files(context.snapshot, entries, live)
        added = stage_entries(context, tree, entries, homes_of(several), sum(file.rows for file in several))
        told = self._carrier(context, coverage.without(gone) if dead else coverage, _blocks(files))
        metrics = {"mode": mode, "files_before": len(several), "files_after": len(added),
                   "dropped": len(gone) if dead else 0, "rows": sum(action.rows for action in added)}  # fmt: skip
        return _work(context, [*_removed([*several, *carriers(files)]), *added, told], "fold", metrics)

    def drop_partitions(self, context: IndexContext, partitions: Collection[str]) -> IndexWork:
        if not context.table.partition_by or context.definition.partition_by != context.table.partition_by:
            return IndexWork()  # entries of files that are gone are passed over, until a compaction
        old = [file for file in entry_files(self._files(context)) if file.partition in partitions]
        # An append: whoever rewrites these entries meanwhile writes what is void, and need not be refused.
        return _work(context, _removed(old), "append", {"files": len(old)}) if old else IndexWork()

    def _index(
        self, context: IndexContext, files: Mapping[GroupKey, DataFile], partitions: Sequence[str] | None
    ) -> IndexWork:
        """Entries of these files beside those that there are."""
        tree, version = context.definition.tree, context.snapshot.state.version
        cover = Cover(tree, version, None if partitions is None else tuple(partitions))
        if not files:
            return _work(context, [cover], "backdated", {"files": 0})
        staged = stage_files(context, list(files.values()))
        told = self._carrier(context, self._told(context, files.values()), staged.blocks)
        return _work(context, [*staged.files, told, cover], "backdated", _metrics(staged, len(files)))

    def _rebuild(self, context: IndexContext, partitions: Sequence[str] | None) -> IndexWork:
        """The entries of all files anew, or of those in some partitions; one commit swaps them for what there was."""
        old = self._files(context)
        if partitions is None:
            built = self._index(context, self._wanted(context, True, None), None)
            return _work(context, [*_removed(old), *built.actions], "fold", built.metrics)
        snapshot, tree = context.snapshot, entry_tree(context.table, context.definition)
        files = self._wanted(context, True, partitions)
        if not files:
            return IndexWork()
        homes = {home(snapshot, context.definition, partition).path for partition, _ in files}
        swapped = [file for file in entry_files(old) if file.partition in homes]
        # What the same index partitions say of other files stays as it is: of other partitions of the table, and of
        # files that are gone, which the index goes on telling of should they come back.
        others = Coverage.of(old).lineages - {file.lineage for file in files.values()}
        gone = others - self._live(context)
        kept = None
        if swapped and (gone or context.definition.partition_by != context.table.partition_by):
            kept = of_files(snapshot, read_files(snapshot, tree, swapped, tree.columns), others)
        staged = stage_files(context, list(files.values()), kept)
        told = self._carrier(context, self._told(context, files.values()), staged.blocks)
        cover = Cover(tree.name, snapshot.state.version, tuple(partitions))
        actions = [*_removed(swapped), *staged.files, told, cover]
        return _work(context, actions, "fold", _metrics(staged, len(files)))

    def _told(self, context: IndexContext, files: Iterable[DataFile]) -> Coverage:
        return Coverage.single(stage_id(context.directory), context.definition.columns, None, files)

    def _carrier(self, context: IndexContext, coverage: Coverage, blocks: int) -> AddFile:
        snapshot, tree = context.snapshot, context.definition.tree
        told = carrier(snapshot.store, tree, context.directory, coverage, snapshot.state.version)
        return replace(told, extra={**(told.extra or {}), _BLOCKS: blocks})

    # --- what it tells of -------------------------------------------------------------------------------------

    def _files(self, context: IndexContext) -> list[DataFile]:
        return context.snapshot.state.files(context.definition.tree)

    def _live(self, context: IndexContext) -> frozenset[int]:
        return frozenset(file.lineage for file in context.snapshot.state.files(DATA_TREE))

    def _wanted(
        self, context: IndexContext, everything: bool, partitions: Sequence[str] | None
    ) -> dict[GroupKey, DataFile]:
        """The files to be indexed: all, or those that the index does not tell of."""
        told = frozenset[int]() if everything else Coverage.of(self._files(context)).lineages
        return {
            group: file
            for group, file in indexable(context.snapshot).items()
            if file.lineage not in told and (partitions is None or group[0] in partitions)
        }

    # --- queries ----------------------------------------------------------------------------------------------

    def can_prune(self, table: TableDefinition, definition: IndexDefinition, question: Question) -> CannotPrune | None:
        named = any(name in question.columns for name in definition.columns)
        if not named or question.may_match(dict.fromkeys(definition.columns, NOTHING)):
            return CannotPrune("the predicate does not bound its columns", "no_keys")
        return None

    def prune(self, context: IndexContext, question: Question) -> Candidates | CannotPrune:
        files = self._files(context)
        coverage = Coverage.of(files)
        told: dict[int, GroupKey] = {}
        groups: set[GroupKey] = set()
        for group, members in context.snapshot.groups().items():
            if len(members) == 1 and not members[0].tombstones and members[0].lineage in coverage.lineages:
                told[members[0].lineage] = group
            else:
                groups.add(group)  # whatever the log says, of this one nothing is known here
        if groups and not told:
            return CannotPrune("it tells of none of the files", "covers_nothing")
        asked = [file for file in entry_files(files) if self._may_hold(context, file, question)]
        found = find_blocks(context, asked, question, int(context.definition.properties[MOST_VALUES]))
        if isinstance(found, CannotPrune):
            return found
        live = {lineage: blocks for lineage, blocks in found.blocks.items() if lineage in told}
        left, total = sum(map(len, live.values())), _blocks(files)
        if total and left >= _NEARLY_ALL * total:
            return CannotPrune(f"it leaves {left:,} of {total:,} blocks, (nearly) all of them", "no_gain")
        groups.update(told[lineage] for lineage in live)
        few = {lineage: frozenset(held) for lineage, held in live.items() if len(held) < found.of[lineage]}
        return Candidates(frozenset(groups), None, found.files, found.bytes, few)

    def verify(self, context: IndexContext) -> VerificationReport:
        return compare_blocks(context)

    def _may_hold(self, context: IndexContext, file: DataFile, question: Question) -> bool:
        types = {field.name: field.type for field in context.table.fields}
        try:
            values = parse_partition_path(file.partition, types)
        except InvalidInput:
            return True  # of a value that Python does not know, such as a day of the year 10000
        return question.may_match(values)


def _plain_text(schema: StructType, names: Sequence[str]) -> bool:
    """Whether values of these columns are written in one way, so that entries can be kept apart by them."""
    try:
        check_partition_types(schema, names)
    except InvalidSchema:
        return False
    return True


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties, checked and completed; those with a point in their name are the user's own."""
    unknown = sorted(name for name in given if name != MOST_VALUES and "." not in name)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'compact'.",
            hint=f"Known is {MOST_VALUES!r}; notes of your own have a point in their name, as 'team.owner'.",
        )
    most = given.get(MOST_VALUES, str(_DEFAULT_VALUES))
    if not most.isdecimal() or int(most) < 1:
        raise InvalidInput(f"The index property {MOST_VALUES!r} is {most!r}.", hint="Give a number above 0.")
    return {**given, MOST_VALUES: most}


def _blocks(files: Iterable[DataFile]) -> int:
    return sum((file.extra or {}).get(_BLOCKS, 0) for file in carriers(files))


def _removed(files: Iterable[DataFile]) -> list[AnyAction]:
    return [RemoveFile(file.tree, file.path) for file in files]


def _metrics(staged: Staged, files: int) -> dict[str, Any]:
    return {"files": files, "blocks": staged.blocks, "entries": staged.entries}


def _work(
    context: IndexContext, actions: Sequence[AnyAction], mode: WriteMode, metrics: Mapping[str, Any]
) -> IndexWork:
    return IndexWork(tuple(actions), (Write(shard_scope(context.definition.tree, _SCOPE), mode),), metrics=metrics)
