"""The part that ``record`` and ``secondary`` indexes share: entries in a merge tree, by key and partition.

An entry names a row by its key and partition.

An index is brought up to date by comparing its entries of some file groups with the rows there, and
writing the difference; so building, refreshing after any history, and keeping it in a commit are one operation on
different sets of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from math import ceil
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import DataFrame, F
from spark_apps.indexes.comparison import COVERED, HELD, LAGS, MARK, SHARD, ArrowReader, Comparison, Part
from spark_apps.indexes.computed import (
    Indexed,
    cannot_use,
    check_computes,
    columns_in,
    expressions_in,
    indexed_by,
    read_columns,
    shown_key,
    split_properties,
    with_key_types,
)
from spark_apps.indexes.handler import (
    PARTITION,
    Candidates,
    CannotPrune,
    ChangedRows,
    Changes,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    KeySearch,
    PredicateProbe,
)
from spark_apps.indexes.keyed.lookup import (
    GroupLocator,
    buckets_of_keys,
    find_candidates,
    group_pairs,
    groups_of,
    with_group_marks,
    with_partition_path,
)
from spark_apps.indexes.limits import (
    ENTRY_ROW_GROUP_BYTES,
    MAX_SHARDS,
    MIN_ROWS_TO_SAMPLE,
    MIN_SAMPLED_GROUPS,
    ROWS_PER_SAMPLE_STEP,
    ROWS_PER_SHARD,
)
from spark_apps.layout.hashing import check_bucket_count, check_hash_types
from spark_apps.mergetree.buckets import GROUP, assign_file_groups, bucket_column, single_target
from spark_apps.mergetree.integrity import count_duplicates, is_exactly_comparable
from spark_apps.mergetree.read import read_files, scan, scan_keys, with_keys
from spark_apps.mergetree.schema import check_key_types, column, column_types, resolve, struct_type
from spark_apps.mergetree.tree import DELETED, GROUP_ID, FileGroups, Snapshot, Tree, stored_names
from spark_apps.mergetree.write import fold, plan_fold, stage_rows
from spark_apps.mergetree.write_on_driver import can_stage_on_driver, stage_table
from spark_apps.storage.arrow_keys import number_rows
from spark_apps.storage.errors import InvalidInput, VerificationFailed
from spark_apps.timeline.files import DataFile, GroupKey, is_merged
from spark_apps.timeline.model import (
    DATA_TREE,
    NEW_KEYS,
    AddFile,
    AnyAction,
    Field,
    IndexDefinition,
    MarkCovered,
    RemoveFile,
    TableDefinition,
    Write,
    WriteMode,
    shard_scope,
)
from spark_apps.timeline.state import NEVER

GROUP_COLUMNS = (PARTITION, GROUP_ID)
"""Columns of entries with the partition and group of a row; the group only where no hash of the key gives it."""


def entry_key(table: TableDefinition, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that distinguish the entries of an index over ``columns`` of a table.

    Record keys need not be unique in a registered source, so there an entry means that a file holds a value, once, and
    no more.
    """
    if table.source is not None:
        return tuple(dict.fromkeys([*columns, *GROUP_COLUMNS]))
    # The partition too: without a record index a record key is unique in its partition only.
    return tuple(dict.fromkeys([*columns, *table.record_key, PARTITION]))


def group_columns(table: TableDefinition) -> tuple[str, ...]:
    """Return the columns of :data:`GROUP_COLUMNS` that entries on a table have."""
    return (PARTITION,) if table.bucketed else GROUP_COLUMNS


def count_live_rows(snapshot: Snapshot, tree: Tree, groups: FileGroups | None = None) -> int:
    """Return how many rows file groups hold, merged: from the log where no merging is needed, else counted."""
    groups = snapshot.groups(tree.name) if groups is None else groups
    plain = [file for files in groups.values() if is_merged(files) and files[0].rows >= 0 for file in files]
    counted_groups = {file.group_key for file in plain}
    merged = {key: files for key, files in groups.items() if key not in counted_groups}
    counted = scan(snapshot, tree, merged, tree.key).count() if merged else 0
    return sum(file.rows for file in plain) + counted


def default_shards(rows: int) -> int:
    """Return how many shards an index gets over this number of rows."""
    return max(1, min(MAX_SHARDS, -(-rows // ROWS_PER_SHARD)))


def appended_files(snapshot: Snapshot, lag: Mapping[GroupKey, int | None]) -> dict[GroupKey, list[DataFile]] | None:
    """Return the files that lagging file groups lag by, where these only hold keys without an entry.

    Such are groups that came since, and inserts, of which each found that none of its keys was there. ``None`` where
    another change is among them, so that entries may have to go.
    """
    # Of a source it is not known what a file of a known name held before.
    if snapshot.table.source is not None:
        return None
    groups = snapshot.groups(only=lag.keys())
    appended_by_group: dict[GroupKey, list[DataFile]] = {}
    for group, through in lag.items():
        files = groups.get(group, [])
        since = [] if through is None or through < 0 else [file for file in files if file.sequence_number > through]
        if not since or any(file.kind == "base" for file in since):
            return None
        inserts = all((file.extra or {}).get(NEW_KEYS) and not file.tombstones for file in since)
        if len(since) < len(files) and not inserts:
            return None
        appended_by_group[group] = since
    return appended_by_group


def nothing_covered(snapshot: Snapshot, lag: Mapping[GroupKey, int | None]) -> bool:
    """Return whether all files of a source are others than those that an index has entries of, or say other things.

    Its entry files are then of no use to anyone, and may hold a column under the name that it had in files before.
    """
    if snapshot.table.source is None:
        return False
    return all(lag.get(group, 0) in (None, NEVER) for group in snapshot.groups())


def split_lagging(
    snapshot: Snapshot, lag: Mapping[GroupKey, int | None]
) -> tuple[dict[GroupKey, list[DataFile]], dict[GroupKey, list[DataFile]]]:
    """Split lagging file groups into those to compare as a whole, and those to compare by their deltas since."""
    groups = snapshot.groups()
    whole: dict[GroupKey, list[DataFile]] = {}
    deltas: dict[GroupKey, list[DataFile]] = {}
    for group, through in lag.items():
        files = groups.get(group, [])
        since = [] if through is None else [file for file in files if file.sequence_number > through]
        # A base written since, or rows that went without a trace, say nothing of what changed.
        if through is None or through < 0 or not since or any(file.kind == "base" for file in since):
            whole[group] = files
        else:
            deltas[group] = since
    return {group: files for group, files in whole.items() if files}, deltas


# --- Skew -------------------------------------------------------------------------------------------------------------


def shard_parts(groups: FileGroups, shards: int) -> dict[GroupKey, int]:
    """Return the shards of an index to split when they are written again, and into how many parts."""
    return _parts(
        {shard: sum(file.rows - file.tombstones for file in files) for shard, files in groups.items()}, shards
    )


def sampled_shard_parts(
    tree: Tree, groups: FileGroups, entries_of: Callable[[FileGroups], DataFrame], shards: int
) -> dict[GroupKey, int]:
    """Return the shards to split of those that the entries of file groups will be in, by a sample of the groups."""
    sizes = {group: sum(max(file.rows, 0) for file in files) for group, files in groups.items()}
    rows = sum(sizes.values())
    if rows < MIN_ROWS_TO_SAMPLE or set(tree.key) <= set(tree.hash_fields):
        return {}
    # In order they are those of a partition, then of the next.
    step = max(1, min(rows // ROWS_PER_SAMPLE_STEP, len(groups) // MIN_SAMPLED_GROUPS))
    sample = dict(list(groups.items())[::step])
    scale = rows / max(sum(sizes[group] for group in sample), 1)
    counts = (
        assign_file_groups(entries_of(sample), tree, single_target(shards), "refuse").groupBy(GROUP).count().collect()
    )
    return _parts({("", str(row[GROUP])): row["count"] * scale for row in counts}, shards)


def _parts(sizes: Mapping[GroupKey, float], shards: int) -> dict[GroupKey, int]:
    even_share = max(sum(sizes.values()) / shards, ROWS_PER_SHARD)
    return {shard: ceil(size / even_share) for shard, size in sizes.items() if size > 2 * even_share}


# --- Indexes of entries by key ----------------------------------------------------------------------------------------


_MARK = "__index_mark"


class EntryHandler(IndexHandler):
    """A kind whose entries are rows of a merge tree in one partition, with a shard of looked-up columns as group."""

    follows_renames = True

    takes_expressions: ClassVar[bool] = False
    """Whether an expression may be indexed in place of a column."""

    # --- What each kind defines ---------------------------------------------------------------------------------------

    @abstractmethod
    def key(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Return the columns that distinguish entries, those that are looked up first."""

    def options(self, table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
        """Return the kind's own properties, checked and completed.

        :raises InvalidInput: if one is not known, or not what it can be.
        """
        return {}

    def keeps_old_entries(self, definition: IndexDefinition) -> bool:
        """Return whether entries of rows that changed may stay until a compaction."""
        return False

    def repetition(self, context: IndexContext, tree: Tree) -> Literal["none", "merge", "count"]:
        """Return whether rows of a snapshot can make the same entry twice.

        "none": no; "merge": yes, and they must become one; "count": yes, which would be a fault, found by counting.
        """
        return "none" if context.table.source is None else "merge"

    def check_entries(self, context: IndexContext, entries: int) -> None:
        """Refuse a build whose number of different entries shows that keys repeat, where they must not."""
        return None

    def repeated_keys(
        self, context: IndexContext, tree: Tree, added: Sequence[AddFile], entries: DataFrame
    ) -> Mapping[str, int]:
        """Warn of keys that should name one row and name several, and return figures of them; none if there are none.

        :param added: the files of a build. :param entries: what they were made of.
        """
        return {}

    def check_additions(self, context: IndexContext, new: DataFrame, others: DataFrame) -> None:
        """Refuse entries that contradict each other or ``others``, which stay."""
        return None

    def check_appended(self, context: IndexContext, tree: Tree, added: Sequence[AddFile]) -> None:
        """Refuse staged entries of keys that are new in their file groups, where ``check_additions`` would."""
        return None

    # --- Definition ---------------------------------------------------------------------------------------------------

    def lookup_columns(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Return the columns whose values lead to entries, in their order."""
        return tuple(one.key for one in indexed_by(table, definition))

    def asked_by(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return self.holds(table, definition) or table.record_key

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return self.holds(table, definition)

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        if definition.included:
            raise InvalidInput(
                f"An index of kind {self.kind!r} has no included columns.", hint="Use kind='covering' for those."
            )
        schema, label = struct_type(table.fields), f"The index {definition.name!r}"
        if self.takes_expressions:
            indexed = read_columns(definition, column_types(table.fields), label)
        else:
            indexed = tuple(map(Indexed, resolve(definition.columns, schema.names, label)))
        columns = [one.name for one in indexed if one.expression is None]
        check_key_types(schema, columns, label)
        check_hash_types([schema[name].dataType.simpleString() for name in columns], definition.hash_function)
        given, written = split_properties(indexed, definition.properties)
        known_properties = {"shards", *self.options(table, definition)}
        unknown = sorted(given.keys() - known_properties)
        if unknown:
            raise InvalidInput(
                f"The index property {unknown[0]!r} is not one of kind {self.kind!r}.",
                hint=f"Known are: {', '.join(sorted(known_properties))}.",
            )
        properties = {**given, **written, **self.options(table, definition)}
        shards = definition.shards
        if "shards" in properties:
            shards = _parse_number("shards", properties["shards"])
        check_bucket_count(shards, "The number of shards")
        properties["shards"] = str(shards)
        return replace(definition, columns=tuple(one.name for one in indexed), shards=shards, properties=properties)

    def complete(self, snapshot: Snapshot, definition: IndexDefinition) -> IndexDefinition:
        return with_key_types(snapshot, definition, f"The index {definition.name!r}")

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return columns_in(table, definition)

    def expressions(self, table: TableDefinition, definition: IndexDefinition) -> Mapping[str, str]:
        return expressions_in(table, definition)

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> Tree:
        types, stored = column_types(table.fields), stored_names(table.fields)
        for one in indexed_by(table, definition):
            if one.expression is not None:
                types[one.key], stored[one.key] = one.type, one.stored
        key = self.key(table, definition)
        required = set() if table.source is not None else set(table.record_key)
        fields = [Field(name, types[name], name not in required) for name in key if name not in GROUP_COLUMNS]
        return Tree(
            name=definition.tree,
            fields=(*fields, *(Field(name, "string", False) for name in group_columns(table))),
            key=key,
            hash_fields=self.lookup_columns(table, definition),
            hash_function=definition.hash_function,
            unique=table.record_key if len(table.record_key) == 1 else (),
            row_group_bytes=ENTRY_ROW_GROUP_BYTES,
            stored_names=stored,
        )

    # --- Build and refresh --------------------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        groups = context.snapshot.groups()
        if mode == "quick":
            return IndexPlan(context.definition.name, mode, (), 0, 0, "a quick refresh reads and writes nothing")
        lagging = None if mode == "full" else context.snapshot.state.index(context.definition.name).lag
        selected = [
            key
            for key in groups
            if (lagging is None or key in lagging) and (partitions is None or key[0] in partitions)
        ]
        files = [file for key in selected for file in groups[key]]
        reason = (
            "all file groups" if mode == "full" else f"{len(selected)} of {len(groups)} file groups are not covered"
        )
        return IndexPlan(
            context.definition.name, mode, tuple(selected), len(files), sum(file.bytes for file in files), reason
        )

    def build(self, context: IndexContext) -> IndexWork:
        tree = self.tree(context.table, context.definition)
        entries = self._entries_of(context, context.snapshot.groups())
        version = context.snapshot.state.version
        rows = sum(max(file.rows, 0) for file in context.snapshot.state.files(context.snapshot.data.name))
        repetition = self.repetition(context, tree)
        split = {} if repetition == "merge" else self._shard_parts(context, tree)
        added = self._stage(
            context, tree, entries, "base", version, one_per_key=repetition == "merge", expected=rows, parts=split
        )
        count = sum(action.rows for action in added)
        if repetition != "none":
            duplicates = count_duplicates(context.snapshot.store, tree, added) if repetition == "count" else 0
            self.check_entries(context, count - duplicates)
        metrics = {"entries": count, **self.repeated_keys(context, tree, added, entries)}
        return _work(tree, [*added, MarkCovered(tree.name, version)], "backdated", metrics)

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        tree = self.tree(context.table, context.definition)
        paths = {partition for partition, _ in changes.groups} | changes.replaced
        before_rows = None if self.keeps_old_entries(context.definition) else changes.before
        before, after = (
            None if rows is None else self._entries_from_rows(context, rows, paths)
            for rows in (before_rows, changes.after)
        )
        if before is None and after is None:
            return IndexWork()
        return _work(tree, self._stage(context, tree, after, "delta", None, replaced=before), "append")

    def maintain_rows(self, context: IndexContext, changes: ChangedRows) -> IndexWork | None:
        tree, snapshot = self.tree(context.table, context.definition), context.snapshot
        if self.expressions(context.table, context.definition):
            return None  # Spark computes them
        if not is_exactly_comparable(tree) or not can_stage_on_driver(snapshot.spark, snapshot.store, tree):
            return None
        lazy = self.keeps_old_entries(context.definition)
        if changes.before is None and not lazy:
            return None
        entries = changes.after.select(tree.columns)
        if changes.before is not None and not lazy:
            entries = difference(tree, changes.before.select(tree.columns), entries)
        if not len(entries):
            return IndexWork() if lazy else _work(tree, (), "append")
        shards = context.definition.shards
        buckets = buckets_of_keys(tree, entries, shards)
        if buckets is None:
            return None
        added = stage_table(
            snapshot.spark, snapshot.store, tree, entries, f"{context.directory}/delta", single_target(shards),
            0 * buckets, buckets,
        )  # fmt: skip
        return _work(tree, added, "append")

    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        entry = context.snapshot.state.index(context.definition.name)
        if mode == "quick":
            return IndexWork(metrics={"lagging_groups": len(entry.lag)})
        if mode == "full" and partitions is None:
            return self._rebuild(context)
        lag: dict[GroupKey, int | None] = dict(entry.lag)
        if mode == "full":
            lag = dict.fromkeys(context.snapshot.groups(), None)
        if partitions is not None:
            lag = {group: through for group, through in lag.items() if group[0] in partitions}
        if not lag:
            return IndexWork()
        if partitions is None and nothing_covered(context.snapshot, lag):
            return self._rebuild(context)
        return self._catch_up(context, lag, partitions)

    def _rebuild(self, context: IndexContext) -> IndexWork:
        """Stage new bases for all shards, made from the rows alone.

        What lands meanwhile stays on top of them.
        """
        tree = self.tree(context.table, context.definition)
        built = self.build(context)
        old = [file for files in context.snapshot.groups(tree.name).values() for file in files]
        removed = [RemoveFile(tree.name, file.path) for file in old]
        scopes = [shard_scope(tree.name, str(shard)) for shard in range(context.definition.shards)]
        return IndexWork(
            (*removed, *built.actions), tuple(Write(scope, "fold") for scope in scopes), metrics=built.metrics
        )

    def _catch_up(
        self, context: IndexContext, lag: Mapping[GroupKey, int | None], partitions: Sequence[str] | None
    ) -> IndexWork:
        """Bring the entries of lagging file groups up to date."""
        snapshot, version = context.snapshot, context.snapshot.state.version
        tree = self.tree(context.table, context.definition)
        since = appended_files(snapshot, lag)
        added = (
            self._stage_differences(context, tree, lag)
            if since is None
            else self._stage_additions(context, tree, since)
        )
        metrics = {"groups": len(lag), "entries": sum(action.rows - action.tombstones for action in added),
                   "tombstones": sum(action.tombstones for action in added)}  # fmt: skip
        cover = MarkCovered(tree.name, version, None if partitions is None else tuple(partitions))
        return _work(tree, [*added, cover], "backdated", metrics)

    def _stage_additions(self, context: IndexContext, tree: Tree, since: FileGroups) -> list[AddFile]:
        """Stage the entries of rows whose keys have none; the entries of the index are not read."""
        new = self._entries_of(context, since)
        added = self._stage(context, tree, new, "delta", context.snapshot.state.version)
        self.check_appended(context, tree, added)
        return added

    def _stage_differences(
        self, context: IndexContext, tree: Tree, lag: Mapping[GroupKey, int | None]
    ) -> list[AddFile]:
        """Compare the entries of lagging file groups with the rows there, and stage the difference."""
        snapshot = context.snapshot
        whole, deltas = split_lagging(snapshot, lag)
        new, changed = self._entries_to_compare(context, whole, deltas)
        marks = {**dict.fromkeys(snapshot.groups(), "covered"), **dict.fromkeys(whole, "whole")}
        marks.update(dict.fromkeys(deltas, "delta"))
        entries = with_group_marks(self.entries(context), snapshot, marks, _MARK)
        # Null marks are entries of file groups that are gone; they go too.
        old = entries.where(F.col(_MARK).isNull() | (F.col(_MARK) == "whole"))
        rest = entries.where(F.col(_MARK).isin("covered", "delta"))
        if changed is not None:
            count = sum(file.rows for files in deltas.values() for file in files)
            keys = [*context.table.record_key, *group_columns(context.table)]
            in_deltas = entries.where(F.col(_MARK) == "delta")
            old = old.unionByName(with_keys(in_deltas, changed, tree, keys, count))
            rest = with_keys(rest, changed, tree, keys, count, without=True)
        self.check_additions(context, new, rest)
        return self._stage(context, tree, new, "delta", snapshot.state.version, replaced=old)

    def _entries_to_compare(
        self, context: IndexContext, whole: FileGroups, deltas: Mapping[GroupKey, Sequence[DataFile]]
    ) -> tuple[DataFrame, DataFrame | None]:
        """Return the entries of the rows to compare, and the keys changed by deltas.

        The entries are of all rows of ``whole`` and of the rows changed by ``deltas``; the keys come with the paths of
        their partitions.
        """
        snapshot = context.snapshot
        new = self._entries_of(context, whole)
        if not deltas:
            return new, None
        data = snapshot.data
        keys = scan(snapshot, data, deltas, data.tombstone_columns, tombstones=True).drop(DELETED)
        if data.merge_by == "ordering":
            # The whole group decides whether the delta's row or an older one stays.
            groups = snapshot.groups()
            rows = scan(snapshot, data, {key: groups[key] for key in deltas}, self._row_columns(context))
            changed_rows = with_keys(rows, keys, data, data.tombstone_columns)
        else:
            changed_rows = scan(snapshot, data, deltas, self._row_columns(context))
        paths = {partition for partition, _ in deltas}
        changed_keys = with_partition_path(keys, data, paths)
        changed_keys = changed_keys.select(*map(column, [*context.table.record_key, *group_columns(context.table)]))
        return new.unionByName(self._entries_from_rows(context, changed_rows, paths)), changed_keys

    # --- Entries ------------------------------------------------------------------------------------------------------

    def _row_columns(self, context: IndexContext) -> list[str]:
        return list(
            dict.fromkeys([*context.snapshot.data.tombstone_columns, *self.reads(context.table, context.definition)])
        )

    def _entries_of(self, context: IndexContext, groups: FileGroups) -> DataFrame:
        """Return the entries that the rows of file groups should have."""
        rows = scan(context.snapshot, context.snapshot.data, groups, self._row_columns(context))
        return self._entries_from_rows(context, rows, {partition for partition, _ in groups})

    def _entries_from_rows(self, context: IndexContext, rows: DataFrame, paths: Iterable[str]) -> DataFrame:
        tree = self.tree(context.table, context.definition)
        check_computes(context.snapshot, context.definition)
        indexed = indexed_by(context.table, context.definition)
        values = {one.key: F.expr(one.expression.text) for one in indexed if one.expression is not None}
        located = with_partition_path(rows, context.snapshot.data, paths)
        return located.select(*(values[name].alias(name) if name in values else column(name) for name in tree.columns))

    def expected(self, context: IndexContext, groups: FileGroups) -> DataFrame:
        """Return the entries that an index without fault has of the rows of file groups; for verification."""
        entries = self._entries_of(context, groups)
        return entries if context.table.source is None else entries.distinct()

    def check_built(self, context: IndexContext) -> Mapping[str, Any]:
        return check_counts(context, self)

    def entries(self, context: IndexContext) -> DataFrame:
        """Return the live entries.

        :raises StorageError: if a file of the index is missing or has another size.
        """
        tree = self.tree(context.table, context.definition)
        return scan(context.snapshot, tree, context.snapshot.groups(tree.name))

    def _stage(
        self,
        context: IndexContext,
        tree: Tree,
        entries: DataFrame | None,
        kind: Literal["base", "delta"],
        sequence_number: int | None,
        *,
        one_per_key: bool = False,
        replaced: DataFrame | None = None,
        expected: int = 0,
        parts: Mapping[GroupKey, int] | None = None,
    ) -> list[AddFile]:
        if entries is None:
            assert replaced is not None
            entries, replaced, one_per_key = replaced.withColumn(DELETED, F.lit(True)), None, True
        shards = context.definition.shards
        sequence_numbers = (
            None if sequence_number is None else {("", str(shard)): sequence_number for shard in range(shards)}
        )
        return stage_rows(
            context.snapshot.store, tree, entries, f"{context.directory}/{kind}", single_target(shards),
            kind=kind, one_per_key=one_per_key, replaced=replaced, sequence_numbers=sequence_numbers, expected=expected,
            parts=parts,
        )  # fmt: skip

    def _shard_parts(self, context: IndexContext, tree: Tree) -> Mapping[GroupKey, int]:
        """Return the shards whose base, made from the rows, is split, and into how many parts."""
        groups, shards = context.snapshot.groups(), context.definition.shards
        return sampled_shard_parts(tree, groups, lambda sampled: self._entries_of(context, sampled), shards)

    def comparison(self, context: IndexContext, reader: ArrowReader | None = None) -> Comparison | None:
        snapshot, definition = context.snapshot, context.definition
        if reader is not None and (context.table.source is not None or self.expressions(context.table, definition)):
            return None
        tree, index = self.tree(context.table, definition), snapshot.state.index(definition.name)
        groups, locator, unmerged = snapshot.groups(), GroupLocator(snapshot), None
        covered = {group: files for group, files in groups.items() if index.covers(group)}
        marks = {group: COVERED if group in covered else LAGS for group in groups}
        if reader is None:
            expected = self.expected(context, covered)
            entries, unmerged = _unmerged_entries(context, tree)
            stored = self.entries(context) if entries is None else entries
        else:
            expected = reader.merged(snapshot.data, covered, tree.columns)
            entries = reader.merged(tree, snapshot.groups(tree.name), [*tree.columns, HELD])
            stored = _with_shards(tree, entries, definition)
        places = [name for name in GROUP_COLUMNS if name in tree.columns]
        said = tuple(name for name in places if name not in tree.key)

        def text(identity: Mapping[str, Any], texts: Sequence[str | None]) -> str:
            values = {**identity, **dict(zip(said, texts, strict=True))}
            return " group ".join(values[name] for name in places)

        return Comparison(
            (Part(tree.key, said, expected, stored),),
            shown={name: shown_key(name) for name in tree.key if name not in GROUP_COLUMNS},
            text=text,
            other="wrong partition",
            uncovered=len(groups) - len(covered),
            merged=True,
            keeps_old=self.keeps_old_entries(definition),
            unmerged=unmerged,
            marked=lambda entries: with_group_marks(entries, snapshot, marks, MARK),
            mark=lambda entry: marks.get(_group_of(locator, context.table.record_key, entry)),
        )

    # --- Compaction ---------------------------------------------------------------------------------------------------

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        tree = self.tree(context.table, context.definition)
        plan = plan_fold(context.snapshot.groups(tree.name), mode)
        if not plan.groups:
            return IndexWork()
        shards = context.definition.shards
        split = shard_parts(context.snapshot.groups(tree.name), shards)
        actions, metrics = fold(context.snapshot, tree, plan, context.directory, single_target(shards), split)
        writes = tuple(Write(shard_scope(tree.name, group), "fold") for _, group in plan.groups)
        return IndexWork(tuple(actions), writes, metrics={"mode": mode, **metrics})

    # --- Queries ------------------------------------------------------------------------------------------------------

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        keys = probe.keys(self.lookup_columns(table, definition))
        return keys if isinstance(keys, CannotPrune) else None

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        keys = probe.keys(self.lookup_columns(context.table, context.definition))
        if isinstance(keys, CannotPrune):
            return keys
        if (refused := cannot_use(context.snapshot, context.definition)) is not None:
            return refused
        return find_candidates(context, self.tree(context.table, context.definition), keys)

    def key_search(self, context: IndexContext, columns: Collection[str]) -> KeySearch | None:
        snapshot, definition = context.snapshot, context.definition
        table, looked_up = snapshot.table, self.lookup_columns(snapshot.table, definition)
        if not looked_up or not set(looked_up) <= set(columns) or self.expressions(table, definition):
            return None
        if not (snapshot.data.by_id or GroupLocator(snapshot).is_known):
            return None
        tree = self.tree(table, definition)
        names, shards = tree.hash_fields, snapshot.groups(tree.name)
        located = [*group_columns(table), *([] if snapshot.data.by_id else table.record_key)]

        def places(keys: DataFrame, count: int) -> DataFrame:
            entries = scan_keys(snapshot, tree, shards, list(dict.fromkeys(located)), keys, names, count)
            return group_pairs(entries, snapshot)

        files = [file for members in shards.values() for file in members]
        return KeySearch(
            tuple(names), tuple(tree.field(name).dataType for name in names), places,
            lambda rows: {(partition, group) for partition, group in rows}, len(files), sum(f.bytes for f in files),
        )  # fmt: skip


def difference(tree: Tree, before: Any, after: Any) -> Any:
    """Return what turns entries into others: those that are new or differ outside the key, and tombstones.

    :param before: an Arrow table with the tree's columns, each key once; as ``after``.
    """
    import numpy as np
    import pyarrow as pa

    def numbers(names: Sequence[str]) -> tuple[Any, Any]:
        both = [pa.chunked_array([*before.column(n).chunks, *after.column(n).chunks], after.schema.field(n).type)
                for n in names]  # fmt: skip
        found = number_rows(both)
        return found[: len(before)], found[len(before) :]

    keys_before, keys_after = numbers(tree.key)
    rows_before, rows_after = numbers(tree.columns)
    gone = before.filter(pa.array(~np.isin(keys_before, keys_after)))
    new = after.filter(pa.array(~np.isin(rows_after, rows_before)))
    flags = pa.array([None] * len(new) + [True] * len(gone), pa.bool_())
    return pa.concat_tables([new, gone]).append_column(DELETED, flags)


def _work(
    tree: Tree, actions: Sequence[AnyAction], mode: WriteMode, metrics: Mapping[str, Any] | None = None
) -> IndexWork:
    added = [action for action in actions if isinstance(action, AddFile)]
    figures = metrics or {
        "entries": sum(action.rows - action.tombstones for action in added),
        "tombstones": sum(action.tombstones for action in added),
    }
    writes = dict.fromkeys(Write(shard_scope(tree.name, action.group), mode) for action in added)
    return IndexWork(tuple(actions), tuple(writes), metrics=figures)


def _parse_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInput(f"The index property {name!r} is {text!r}, not a number.", hint="Give a number.") from error


# --- Verification -----------------------------------------------------------------------------------------------------


_STORED_GROUP = "__index_stored_group"


def _unmerged_entries(context: IndexContext, tree: Tree) -> tuple[DataFrame | None, DataFrame | None]:
    """Return the entries with the shards that hold them and those in which lookups of their values read.

    First the live ones, if none are to be merged; else all, and tombstones, unmerged. Lookups hash by the table's
    types of today.
    """
    groups, snapshot = context.snapshot.groups(tree.name), context.snapshot
    if not groups:
        return None, None
    # The reader gives the shard the name that a column of entries may have.
    renamed = [replace(field, name=_STORED_GROUP) if field.name == GROUP_ID else field for field in tree.fields]
    stored = (
        {**tree.stored_names, _STORED_GROUP: GROUP_ID} if tree.by_id or GROUP_ID in tree.columns else tree.stored_names
    )
    unmerged_tree = replaced(tree, fields=tuple(renamed), stored_names=stored)
    files = [file for group_files in groups.values() for file in group_files]
    types = [tree.type_of(name) for name in tree.hash_fields]
    shard = bucket_column(tree.hash_fields, context.definition.shards, tree.hash_function, types)
    rows = read_files(snapshot, unmerged_tree, files, [*unmerged_tree.columns, GROUP_ID])
    rows = rows.withColumnRenamed(GROUP_ID, HELD).withColumnRenamed(_STORED_GROUP, GROUP_ID)
    rows = rows.withColumn(SHARD, shard.cast("string"))
    return (rows, None) if all(map(is_merged, groups.values())) else (None, rows)


def _with_shards(tree: Tree, entries: Any, definition: IndexDefinition) -> Any:
    """Return an Arrow table of entries with the shard in which a lookup of their values reads.

    :raises InvalidInput: if that cannot be computed without Spark.
    """
    import pyarrow as pa

    shards = buckets_of_keys(tree, entries, definition.shards) if len(entries) else []
    if shards is None:
        raise InvalidInput(
            f"The index {definition.name!r} holds a value that Python does not know.",
            hint="Use IndexedTable.load(spark, …).verify(name), or VerifyIndexOperator.",
        )
    return entries.append_column(SHARD, pa.array(map(str, shards), pa.string()))


def _group_of(locator: GroupLocator, key: Sequence[str], entry: Mapping[str, Any]) -> GroupKey:
    """Return the file group that an entry points into; if its partition is gone, one that is not there."""
    if GROUP_ID in entry:
        return entry[PARTITION], entry[GROUP_ID]
    groups = locator.groups(entry[PARTITION], [[entry[name] for name in key]])
    return groups[0] if groups else (entry[PARTITION], "")


# --- Check of a whole build -------------------------------------------------------------------------------------------


def check_counts(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:
    """Compare the number of entries with that of the rows (or files) they should cover; return the figures.

    :raises VerificationFailed: with both figures; such an index does not become active.
    """
    return (
        _check_counts_by_row(context, handler)
        if context.table.source is None
        else _check_counts_by_file(context, handler)
    )


def _check_counts_by_row(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:

    snapshot = context.snapshot
    entries = count_live_rows(snapshot, handler.tree(context.table, context.definition))
    rows = count_live_rows(snapshot, snapshot.data)
    if entries != rows:
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold {entries:,} entries for {rows:,} rows of version "
            f"{snapshot.state.version}; it does not become active.",
            outcome="Nothing was changed.",
            hint="Build it again; if the figures differ again, verify the table's files.",
        )
    return {"entries": entries, "rows": rows}


def _check_counts_by_file(context: IndexContext, handler: EntryHandler) -> dict[str, Any]:
    """Compare which files have entries.

    Over a source an entry is one of a value and a file, so no more can be compared.
    """

    snapshot = context.snapshot
    data = snapshot.state.files(DATA_TREE)
    groups_with_entries = groups_of(handler.entries(context), snapshot)
    without_entries = [file for file in data if file.rows > 0 and file.group_key not in groups_with_entries]
    if without_entries:
        raise VerificationFailed(
            f"The index {context.definition.name!r} would hold no entry for {len(without_entries):,} of {len(data):,} "
            f"files, such as {without_entries[0].path} with {without_entries[0].rows:,} rows; it does not "
            "become active.",
            outcome="Nothing was changed.",
            hint="Build it again; if it happens again, verify the source's files.",
        )
    return {"entries": count_live_rows(snapshot, handler.tree(context.table, context.definition)), "files": len(data)}
