"""What ``record`` and ``secondary`` indexes share: entries in a merge tree of their own, that name rows by key and
partition.

An index is brought up to date by comparing what its entries say of some file groups with what the rows there say, and
writing the difference; so building, refreshing after any history, and keeping it in a commit are one operation on
different sets of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_apps.indexes.candidates import candidates
from spark_apps.indexes.comparing import compare
from spark_apps.indexes.counts import check_counts
from spark_apps.indexes.entry_rows import (
    PLACE,
    appended,
    place_columns,
    split_lagging,
)
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
from spark_apps.indexes.locating import marked, with_path
from spark_apps.indexes.skew import known_parts, sampled_parts
from spark_apps.indexes.verification import VerificationReport
from spark_apps.layout.hashing import check_bucket_count, check_hash_types
from spark_apps.mergetree.compact import fold, plan_fold
from spark_apps.mergetree.placing import single_target
from spark_apps.mergetree.read import scan, with_keys
from spark_apps.mergetree.repeated import count_repeated
from spark_apps.mergetree.schema import check_key_types, column, resolve, struct_type
from spark_apps.mergetree.tree import DELETED, FileGroups, Tree, stored_names
from spark_apps.mergetree.write import stage_rows
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import (
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

_ROW_GROUP_BYTES = 1024 * 1024
_MARK = "__index_mark"


class EntryHandler(IndexHandler):
    """A kind whose entries are rows of a merge tree in one partition, with a shard of the looked-up columns as
    group."""

    follows_renames = True

    # --- what a kind says -------------------------------------------------------------------------------------

    @abstractmethod
    def key(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """Columns that tell entries apart, those that are looked up first."""

    def options(self, table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
        """The kind's own properties, checked and completed. :raises InvalidInput:"""
        return {}

    def lingering(self, definition: IndexDefinition) -> bool:
        """Whether entries of rows that changed may stay until a compaction."""
        return False

    def alike(self, context: IndexContext, tree: Tree) -> Literal["none", "merge", "count"]:
        """Whether rows of a snapshot can make the same entry twice: no; yes, and they must become one; yes, which would
        be a fault, found by counting."""
        return "none" if context.table.source is None else "merge"

    def check_entries(self, context: IndexContext, entries: int) -> None:
        """Refuses a build that came to so many different entries, where fewer than there are rows means something."""
        return None

    def check_additions(self, context: IndexContext, new: DataFrame, others: DataFrame) -> None:
        """Refuses entries that contradict each other or ``others``, which stay."""
        return None

    def check_appended(self, context: IndexContext, tree: Tree, added: Sequence[AddFile]) -> None:
        """Refuses staged entries of keys that are new in their file groups, where ``check_additions`` would."""
        return None

    # --- definition -------------------------------------------------------------------------------------------

    def looks_up(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        """The columns whose values lead to entries, in their order."""
        return definition.columns

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return definition.columns

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        if definition.included:
            raise InvalidInput(
                f"An index of kind {self.kind!r} has no included columns.", hint="Use kind='covering' for those."
            )
        schema = struct_type(table.fields)
        columns = resolve(definition.columns, schema.names, f"The index {definition.name!r}")
        check_key_types(schema, columns, f"The index {definition.name!r}")
        check_hash_types([schema[name].dataType.simpleString() for name in columns], definition.hash_function)
        known = {"shards", *self.options(table, definition)}
        unknown = sorted(definition.properties.keys() - known)
        if unknown:
            raise InvalidInput(
                f"The index property {unknown[0]!r} is not one of kind {self.kind!r}.",
                hint=f"Known are: {', '.join(sorted(known))}.",
            )
        properties = {**definition.properties, **self.options(table, definition)}
        shards = definition.shards
        if "shards" in properties:
            shards = _number("shards", properties["shards"])
        check_bucket_count(shards, "The number of shards")
        properties["shards"] = str(shards)
        return replace(definition, columns=columns, shards=shards, properties=properties)

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> Tree:
        schema = struct_type(table.fields)
        key = self.key(table, definition)
        required = set() if table.source is not None else set(table.record_key)
        fields = [StructField(name, schema[name].dataType, name not in required) for name in key if name not in PLACE]
        return Tree(
            name=definition.tree,
            schema=StructType([*fields, *(StructField(name, StringType(), False) for name in place_columns(table))]),
            key=key,
            hash_fields=self.looks_up(table, definition),
            hash_function=definition.hash_function,
            unique=table.record_key if len(table.record_key) == 1 else (),
            row_group_bytes=_ROW_GROUP_BYTES,
            stored_names=stored_names(table.fields),
        )

    # --- bringing up to date ----------------------------------------------------------------------------------

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        groups = context.snapshot.groups()
        if mode == "quick":
            return IndexPlan(context.definition.name, mode, (), 0, 0, "a quick refresh reads and writes nothing")
        lagging = None if mode == "full" else context.snapshot.state.index(context.definition.name).lag
        wanted = [
            key
            for key in groups
            if (lagging is None or key in lagging) and (partitions is None or key[0] in partitions)
        ]
        files = [file for key in wanted for file in groups[key]]
        reason = "all file groups" if mode == "full" else f"{len(wanted)} of {len(groups)} file groups are not covered"
        return IndexPlan(
            context.definition.name, mode, tuple(wanted), len(files), sum(file.bytes for file in files), reason
        )

    def build(self, context: IndexContext) -> IndexWork:
        tree = self.tree(context.table, context.definition)
        entries = self._entries_of(context, context.snapshot.groups())
        version = context.snapshot.state.version
        rows = sum(max(file.rows, 0) for file in context.snapshot.state.files(context.snapshot.data.name))
        alike = self.alike(context, tree)
        split = {} if alike == "merge" else self._split(context, tree)
        added = self._stage(
            context, tree, entries, "base", version, one_a_key=alike == "merge", expected=rows, parts=split
        )
        count = sum(action.rows for action in added)
        if alike != "none":
            twice = count_repeated(context.snapshot.store, tree, added) if alike == "count" else 0
            self.check_entries(context, count - twice)
        return _work(tree, [*added, Cover(tree.name, version)], "backdated", {"entries": count})

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        tree = self.tree(context.table, context.definition)
        paths = {partition for partition, _ in changes.groups} | changes.replaced
        old = None if self.lingering(context.definition) else changes.before
        before, after = (
            None if rows is None else self._from_rows(context, rows, paths) for rows in (old, changes.after)
        )
        if before is None and after is None:
            return IndexWork()
        return _work(tree, self._stage(context, tree, after, "delta", None, replaced=before), "append")

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
        return self._catch_up(context, lag, partitions)

    def _rebuild(self, context: IndexContext) -> IndexWork:
        """New bases for all shards, made from the rows alone. What lands meanwhile stays on top of them."""
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
        """Brings the entries of lagging file groups up to date."""
        snapshot, version = context.snapshot, context.snapshot.state.version
        tree = self.tree(context.table, context.definition)
        since = appended(snapshot, lag)
        added = self._differing(context, tree, lag) if since is None else self._adding(context, tree, since)
        metrics = {"groups": len(lag), "entries": sum(a.rows - a.tombstones for a in added),
                   "tombstones": sum(a.tombstones for a in added)}  # fmt: skip
        cover = Cover(tree.name, version, None if partitions is None else tuple(partitions))
        return _work(tree, [*added, cover], "backdated", metrics)

    def _adding(self, context: IndexContext, tree: Tree, since: FileGroups) -> list[AddFile]:
        """Stages the entries of rows whose keys have none: what the index holds is not looked at."""
        new = self._entries_of(context, since)
        added = self._stage(context, tree, new, "delta", context.snapshot.state.version)
        self.check_appended(context, tree, added)
        return added

    def _differing(self, context: IndexContext, tree: Tree, lag: Mapping[GroupKey, int | None]) -> list[AddFile]:
        """Compares the entries of lagging file groups with the rows there, and stages the difference."""
        snapshot = context.snapshot
        whole, deltas = split_lagging(snapshot, lag)
        new, changed = self._rows_of(context, whole, deltas)
        marks = {**dict.fromkeys(snapshot.groups(), "covered"), **dict.fromkeys(whole, "whole")}
        marks.update(dict.fromkeys(deltas, "delta"))
        entries = marked(self.entries(context), snapshot, marks, _MARK)
        # Null marks are entries of file groups that are gone; they go too.
        old = entries.where(F.col(_MARK).isNull() | (F.col(_MARK) == "whole"))
        rest = entries.where(F.col(_MARK).isin("covered", "delta"))
        if changed is not None:
            count = sum(file.rows for files in deltas.values() for file in files)
            keys = [*context.table.record_key, *place_columns(context.table)]
            in_deltas = entries.where(F.col(_MARK) == "delta")
            old = old.unionByName(with_keys(in_deltas, changed, tree, keys, count))
            rest = with_keys(rest, changed, tree, keys, count, without=True)
        self.check_additions(context, new, rest)
        return self._stage(context, tree, new, "delta", snapshot.state.version, replaced=old)

    def _rows_of(
        self, context: IndexContext, whole: FileGroups, deltas: Mapping[GroupKey, Sequence[DataFile]]
    ) -> tuple[DataFrame, DataFrame | None]:
        """Entries of the rows to compare: of all rows of ``whole``, of the rows changed by ``deltas``; and those
        changed keys, with the paths of their partitions."""
        snapshot = context.snapshot
        new = self._entries_of(context, whole)
        if not deltas:
            return new, None
        data = snapshot.data
        keys = scan(snapshot, data, deltas, data.place, tombstones=True).drop(DELETED)
        if data.merge_by == "ordering":
            # Whether the delta's row or an older one stands is decided by the whole group.
            groups = snapshot.groups()
            rows = scan(snapshot, data, {key: groups[key] for key in deltas}, self._columns(context))
            changed_rows = with_keys(rows, keys, data, data.place)
        else:
            changed_rows = scan(snapshot, data, deltas, self._columns(context))
        paths = {partition for partition, _ in deltas}
        located = with_path(keys, data, paths)
        located = located.select(*map(column, [*context.table.record_key, *place_columns(context.table)]))
        return new.unionByName(self._from_rows(context, changed_rows, paths)), located

    # --- entries ----------------------------------------------------------------------------------------------

    def _columns(self, context: IndexContext) -> list[str]:
        return list(dict.fromkeys([*context.snapshot.data.place, *self.reads(context.table, context.definition)]))

    def _entries_of(self, context: IndexContext, groups: FileGroups) -> DataFrame:
        """The entries that the rows of file groups should have."""
        rows = scan(context.snapshot, context.snapshot.data, groups, self._columns(context))
        return self._from_rows(context, rows, {partition for partition, _ in groups})

    def _from_rows(self, context: IndexContext, rows: DataFrame, paths: Iterable[str]) -> DataFrame:
        tree = self.tree(context.table, context.definition)
        return with_path(rows, context.snapshot.data, paths).select(*map(column, tree.columns))

    def expected(self, context: IndexContext, groups: FileGroups) -> DataFrame:
        """The entries that an index without fault has of the rows of file groups; for those who verify."""
        entries = self._entries_of(context, groups)
        return entries if context.table.source is None else entries.distinct()

    def check_built(self, context: IndexContext) -> Mapping[str, Any]:
        return check_counts(context, self)

    def entries(self, context: IndexContext) -> DataFrame:
        """The live entries. :raises StorageError: if a file of the index is missing or has another size."""
        tree = self.tree(context.table, context.definition)
        return scan(context.snapshot, tree, context.snapshot.groups(tree.name))

    def _stage(
        self,
        context: IndexContext,
        tree: Tree,
        entries: DataFrame | None,
        kind: Literal["base", "delta"],
        place: int | None,
        *,
        one_a_key: bool = False,
        replaced: DataFrame | None = None,
        expected: int = 0,
        parts: Mapping[GroupKey, int] | None = None,
    ) -> list[AddFile]:
        if entries is None:
            assert replaced is not None
            entries, replaced, one_a_key = replaced.withColumn(DELETED, F.lit(True)), None, True
        shards = context.definition.shards
        places = None if place is None else {("", str(shard)): place for shard in range(shards)}
        return stage_rows(
            context.snapshot.store, tree, entries, f"{context.directory}/{kind}", single_target(shards),
            kind=kind, one_a_key=one_a_key, replaced=replaced, places=places, expected=expected, parts=parts,
        )  # fmt: skip

    def _split(self, context: IndexContext, tree: Tree) -> Mapping[GroupKey, int]:
        """The shards whose base, made from the rows, is split, and into how many parts."""
        groups, shards = context.snapshot.groups(), context.definition.shards
        return sampled_parts(tree, groups, lambda some: self._entries_of(context, some), shards)

    def verify(self, context: IndexContext) -> VerificationReport:
        return compare(context, self)

    # --- compaction -------------------------------------------------------------------------------------------

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        tree = self.tree(context.table, context.definition)
        plan = plan_fold(context.snapshot.groups(tree.name), mode)
        if not plan.groups:
            return IndexWork()
        shards = context.definition.shards
        split = known_parts(context.snapshot.groups(tree.name), shards)
        actions, metrics = fold(context.snapshot, tree, plan, context.directory, single_target(shards), split)
        writes = tuple(Write(shard_scope(tree.name, group), "fold") for _, group in plan.groups)
        return IndexWork(tuple(actions), writes, metrics={"mode": mode, **metrics})

    # --- answering --------------------------------------------------------------------------------------------

    def can_prune(self, table: TableDefinition, definition: IndexDefinition, question: Question) -> CannotPrune | None:
        keys = question.keys(self.looks_up(table, definition))
        return keys if isinstance(keys, CannotPrune) else None

    def prune(self, context: IndexContext, question: Question) -> Candidates | CannotPrune:
        keys = question.keys(self.looks_up(context.table, context.definition))
        if isinstance(keys, CannotPrune):
            return keys
        return candidates(context, self.tree(context.table, context.definition), keys)


def _work(
    tree: Tree, actions: Sequence[AnyAction], mode: WriteMode, metrics: Mapping[str, Any] | None = None
) -> IndexWork:
    added = [action for action in actions if isinstance(action, AddFile)]
    told = metrics or {
        "entries": sum(action.rows - action.tombstones for action in added),
        "tombstones": sum(action.tombstones for action in added),
    }
    writes = dict.fromkeys(Write(shard_scope(tree.name, action.group), mode) for action in added)
    return IndexWork(tuple(actions), tuple(writes), metrics=told)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInput(f"The index property {name!r} is {text!r}, not a number.", hint="Give a number.") from error
