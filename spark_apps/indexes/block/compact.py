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

from spark_apps.indexes.block.block_map import (
    StagedEntries,
    compare_blocks,
    entries_of_files,
    entry_tree,
    find_blocks,
    index_partition,
    index_partitions_of,
    stage_entries,
    stage_files,
)
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    Changes,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    PredicateProbe,
    VerificationReport,
)
from spark_apps.indexes.lineage import Coverage, carrier, carriers, entry_files, indexable, stage_id
from spark_apps.indexes.ranges import NOTHING
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
    IndexDefinition,
    MarkCovered,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    shard_scope,
)

MAX_VALUES = "most_values"
"""Property: so many distinct values are put to a predicate at most; above it the index is not used."""

_BLOCKS = "blocks"
"""In :attr:`AddFile.extra` of a carrier: how many blocks its files have."""

_DEFAULT_MAX_VALUES = 200_000
_SMALL_BYTES = 64 * 1024 * 1024
_MAX_SHARE_OF_BLOCKS = 0.9
_SCOPE = "entries"


class CompactHandler(IndexHandler):
    """The kind with one entry per value and block."""

    kind: ClassVar[str] = "compact"
    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False
    by_value = True
    partitioned: ClassVar[bool] = True
    changeable: ClassVar[frozenset[str]] = frozenset({MAX_VALUES})

    # --- Definition ---------------------------------------------------------------------------------------------------

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        label = f"The compact index {definition.name!r}"
        if definition.included:
            raise InvalidInput(f"{label} has no included columns.", hint="Use kind='covering' for those.")
        if not definition.columns:
            raise InvalidInput(f"{label} has no columns.", hint="Name those that queries filter by.")
        schema = struct_type(table.fields)
        columns = resolve(definition.columns, schema.names, label)
        for name in columns:
            if parse_type(schema[name].dataType.simpleString()).kind in ("other", "char"):
                raise InvalidSchema(
                    f"{label} names the column {name!r} of type {schema[name].dataType.simpleString()}, whose values "
                    "are not compared one by one.",
                    hint="Use columns of strings, numbers, booleans, dates, timestamps or binaries.",
                )
        partition_by = definition.partition_by
        if partition_by is None:
            partition_by = table.partition_by if _has_one_spelling(schema, table.partition_by) else ()
        check_partition_types(schema, partition_by)
        return replace(
            definition, columns=columns, addresses="file", partition_by=partition_by, shards=1,
            properties=_properties(definition.properties),
        )  # fmt: skip

    # --- Build and refresh --------------------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        name = context.definition.name
        if mode == "quick":
            return IndexPlan(name, mode, (), 0, 0, "a quick refresh reads and writes nothing")
        files = self._files_to_index(context, mode == "full", partitions)
        reason = "all files" if mode == "full" else f"{len(files)} files are not covered"
        return IndexPlan(name, mode, tuple(files), len(files), sum(f.bytes for f in files.values()), reason)

    def build(self, context: IndexContext) -> IndexWork:
        return self._index(context, self._files_to_index(context, True, None), None)

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
        files = self._files_to_index(context, False, partitions)
        if not files and not lag:
            return IndexWork()
        return self._index(context, files, partitions)

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        files = self._files(context)
        coverage, live = Coverage.of(files), self._live(context)
        gone = coverage.lineages - live
        by_partition: dict[str, list[DataFile]] = {}
        for file in entry_files(files):
            if mode == "full" or file.bytes < _SMALL_BYTES:
                by_partition.setdefault(file.partition, []).append(file)
        dead = bool(gone) and mode == "full"
        merged = [
            file
            for partition_files in by_partition.values()
            if len(partition_files) > 1 or dead
            for file in partition_files
        ]
        if not merged:
            return IndexWork()
        tree = entry_tree(context.table, context.definition)
        entries = read_files(context.snapshot, tree, merged, tree.columns)
        # A file of a source may come back as it was: then all of its entries must be there, or none and it be
        # left uncovered. Of a keyed table only a restore brings files back, and their entries with them.
        if gone and (dead or context.table.source is None):
            entries = entries_of_files(context.snapshot, entries, live)
        added = stage_entries(context, tree, entries, index_partitions_of(merged), sum(file.rows for file in merged))
        carrier_file = self._carrier(context, coverage.without(gone) if dead else coverage, _blocks(files))
        metrics = {"mode": mode, "files_before": len(merged), "files_after": len(added),
                   "dropped": len(gone) if dead else 0, "rows": sum(action.rows for action in added)}  # fmt: skip
        return _work(context, [*_remove_files([*merged, *carriers(files)]), *added, carrier_file], "fold", metrics)

    def drop_partitions(self, context: IndexContext, partitions: Collection[str]) -> IndexWork:
        if not context.table.partition_by or context.definition.partition_by != context.table.partition_by:
            return IndexWork()  # entries of files that are gone are passed over, until a compaction
        old = [file for file in entry_files(self._files(context)) if file.partition in partitions]
        # An append: whoever rewrites these entries meanwhile writes what is void, and need not be refused.
        return _work(context, _remove_files(old), "append", {"files": len(old)}) if old else IndexWork()

    def _index(
        self, context: IndexContext, files: Mapping[GroupKey, DataFile], partitions: Sequence[str] | None
    ) -> IndexWork:
        """Stage entries of these files beside those that there are."""
        tree, version = context.definition.tree, context.snapshot.state.version
        cover = MarkCovered(tree, version, None if partitions is None else tuple(partitions))
        if not files:
            return _work(context, [cover], "backdated", {"files": 0})
        staged = stage_files(context, list(files.values()))
        carrier_file = self._carrier(context, self._coverage_of(context, files.values()), staged.blocks)
        return _work(context, [*staged.files, carrier_file, cover], "backdated", _metrics(staged, len(files)))

    def _rebuild(self, context: IndexContext, partitions: Sequence[str] | None) -> IndexWork:
        """Stage the entries of all files anew, or of those in some partitions, and remove the earlier ones.

        One commit swaps them.
        """
        old = self._files(context)
        if partitions is None:
            built = self._index(context, self._files_to_index(context, True, None), None)
            return _work(context, [*_remove_files(old), *built.actions], "fold", built.metrics)
        snapshot, tree = context.snapshot, entry_tree(context.table, context.definition)
        files = self._files_to_index(context, True, partitions)
        if not files:
            return IndexWork()
        index_partitions = {index_partition(snapshot, context.definition, partition).path for partition, _ in files}
        swapped = [file for file in entry_files(old) if file.partition in index_partitions]
        # Entries of other files in the same index partitions stay as they are: of other partitions of the table, and of
        # files that are gone, which the index goes on telling of should they come back.
        others = Coverage.of(old).lineages - {file.lineage for file in files.values()}
        gone = others - self._live(context)
        kept = None
        if swapped and (gone or context.definition.partition_by != context.table.partition_by):
            kept = entries_of_files(snapshot, read_files(snapshot, tree, swapped, tree.columns), others)
        staged = stage_files(context, list(files.values()), kept)
        carrier_file = self._carrier(context, self._coverage_of(context, files.values()), staged.blocks)
        cover = MarkCovered(tree.name, snapshot.state.version, tuple(partitions))
        actions = [*_remove_files(swapped), *staged.files, carrier_file, cover]
        return _work(context, actions, "fold", _metrics(staged, len(files)))

    def _coverage_of(self, context: IndexContext, files: Iterable[DataFile]) -> Coverage:
        return Coverage.single(stage_id(context.directory), context.definition.columns, None, files)

    def _carrier(self, context: IndexContext, coverage: Coverage, blocks: int) -> AddFile:
        snapshot, tree = context.snapshot, context.definition.tree
        carrier_file = carrier(snapshot.store, tree, context.directory, coverage, snapshot.state.version)
        return replace(carrier_file, extra={**(carrier_file.extra or {}), _BLOCKS: blocks})

    # --- Coverage -----------------------------------------------------------------------------------------------------

    def _files(self, context: IndexContext) -> list[DataFile]:
        return context.snapshot.state.files(context.definition.tree)

    def _live(self, context: IndexContext) -> frozenset[int]:
        return frozenset(file.lineage for file in context.snapshot.state.files(DATA_TREE))

    def _files_to_index(
        self, context: IndexContext, all_files: bool, partitions: Sequence[str] | None
    ) -> dict[GroupKey, DataFile]:
        """Return the files to be indexed: all, or those that the index does not cover."""
        covered = frozenset[int]() if all_files else Coverage.of(self._files(context)).lineages
        return {
            group: file
            for group, file in indexable(context.snapshot).items()
            if file.lineage not in covered and (partitions is None or group[0] in partitions)
        }

    # --- Queries ------------------------------------------------------------------------------------------------------

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        named = any(name in probe.columns for name in definition.columns)
        if not named or probe.may_match(dict.fromkeys(definition.columns, NOTHING)):
            return CannotPrune("the predicate does not bound its columns", "no_keys")
        return None

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        files = self._files(context)
        coverage = Coverage.of(files)
        covered_groups: dict[int, GroupKey] = {}
        groups: set[GroupKey] = set()
        for group, members in context.snapshot.groups().items():
            if len(members) == 1 and not members[0].tombstones and members[0].lineage in coverage.lineages:
                covered_groups[members[0].lineage] = group
            else:
                groups.add(group)  # whatever the log says, of this one nothing is known here
        if groups and not covered_groups:
            return CannotPrune("it tells of none of the files", "covers_nothing")
        entry_files_to_read = [file for file in entry_files(files) if self._may_hold(context, file, probe)]
        matching = find_blocks(context, entry_files_to_read, probe, int(context.definition.properties[MAX_VALUES]))
        if isinstance(matching, CannotPrune):
            return matching
        live = {lineage: blocks for lineage, blocks in matching.blocks.items() if lineage in covered_groups}
        remaining, total = sum(map(len, live.values())), _blocks(files)
        if total and remaining >= _MAX_SHARE_OF_BLOCKS * total:
            return CannotPrune(f"it leaves {remaining:,} of {total:,} blocks, (nearly) all of them", "no_gain")
        groups.update(covered_groups[lineage] for lineage in live)
        selected_blocks = {
            lineage: frozenset(block_numbers)
            for lineage, block_numbers in live.items()
            if len(block_numbers) < matching.of[lineage]
        }
        return Candidates(frozenset(groups), None, matching.files, matching.bytes, selected_blocks)

    def verify(self, context: IndexContext) -> VerificationReport:
        return compare_blocks(context)

    def _may_hold(self, context: IndexContext, file: DataFile, probe: PredicateProbe) -> bool:
        types = {field.name: field.type for field in context.table.fields}
        try:
            values = parse_partition_path(file.partition, types)
        except InvalidInput:
            return True  # of a value that Python does not know, such as a day of the year 10000
        return probe.may_match(values)


def _has_one_spelling(schema: StructType, names: Sequence[str]) -> bool:
    """Tell whether values of these columns are written in one way, so that entries can be kept apart by them."""
    try:
        check_partition_types(schema, names)
    except InvalidSchema:
        return False
    return True


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties, checked and completed; those with a point in their name are the user's own."""
    unknown = sorted(name for name in given if name != MAX_VALUES and "." not in name)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'compact'.",
            hint=f"Known is {MAX_VALUES!r}; notes of your own have a point in their name, as 'team.owner'.",
        )
    max_values = given.get(MAX_VALUES, str(_DEFAULT_MAX_VALUES))
    if not max_values.isdecimal() or int(max_values) < 1:
        raise InvalidInput(f"The index property {MAX_VALUES!r} is {max_values!r}.", hint="Give a number above 0.")
    return {**given, MAX_VALUES: max_values}


def _blocks(files: Iterable[DataFile]) -> int:
    return sum((file.extra or {}).get(_BLOCKS, 0) for file in carriers(files))


def _remove_files(files: Iterable[DataFile]) -> list[AnyAction]:
    return [RemoveFile(file.tree, file.path) for file in files]


def _metrics(staged: StagedEntries, files: int) -> dict[str, Any]:
    return {"files": files, "blocks": staged.blocks, "entries": staged.entries}


def _work(
    context: IndexContext, actions: Sequence[AnyAction], mode: WriteMode, metrics: Mapping[str, Any]
) -> IndexWork:
    return IndexWork(tuple(actions), (Write(shard_scope(context.definition.tree, _SCOPE), mode),), metrics=metrics)
