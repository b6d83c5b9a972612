"""The ``secondary`` index: values of some columns -> record keys and partitions of the rows that have them.

An entry is (columns…, record key, partition); values need not be unique and may be null. An update leaves a tombstone
for the old value (``tombstones`` ``eager``), or leaves the old entry to the next full compaction (``lazy``): a
predicate is always applied to the rows as well, so an entry too many costs a read and no wrong row. Follows Hudi's
RFC-77.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from spark_apps.indexes.computed import other_session
from spark_apps.indexes.handler import IndexContext, IndexWork
from spark_apps.indexes.keyed.entries import EntryHandler, entry_key, shard_parts
from spark_apps.mergetree.read import scan, with_keys
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import is_merged
from spark_apps.timeline.model import (
    AddFile,
    IndexDefinition,
    RemoveFile,
    TableDefinition,
    Write,
    definition_scope,
    shard_scope,
)

TOMBSTONES = ("eager", "lazy")


class SecondaryHandler(EntryHandler):
    """The kind with one entry per row."""

    kind: ClassVar[str] = "secondary"
    changeable = frozenset({"tombstones"})
    takes_expressions = True

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        if not definition.columns:
            raise InvalidInput(
                f"The secondary index {definition.name!r} has no columns.", hint="Name those that queries filter by."
            )
        return super().validate(table, definition)

    def options(self, table: TableDefinition, definition: IndexDefinition) -> dict[str, str]:
        tombstones = definition.properties.get("tombstones", "eager")
        if tombstones not in TOMBSTONES:
            raise InvalidInput(
                f"The index property 'tombstones' is {tombstones!r}.", hint=f"Use one of: {', '.join(TOMBSTONES)}."
            )
        return {"tombstones": tombstones}

    def alter(
        self, table: TableDefinition, definition: IndexDefinition, properties: Mapping[str, str]
    ) -> IndexDefinition:
        changed = super().alter(table, definition, properties)
        if is_lazy(definition) and not is_lazy(changed):
            raise InvalidInput(
                f"The index {definition.name!r} may hold entries of old values, which eager tombstones never come back "
                "for.",
                hint="Leave it lazy, or drop the index and create it anew.",
            )
        return changed

    def key(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return entry_key(table, self.lookup_columns(table, definition))

    def needs_rows(self, table: TableDefinition, definition: IndexDefinition) -> bool:
        return not is_lazy(definition)

    def keeps_old_entries(self, definition: IndexDefinition) -> bool:
        return is_lazy(definition)

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        comparable = other_session(context.snapshot, context.definition) is None
        if mode == "full" and is_lazy(context.definition) and comparable:
            return self._sweep(context)
        return super().compact(context, mode)

    def _sweep(self, context: IndexContext) -> IndexWork:
        """Stage new bases without the entries that no row confirms."""
        snapshot, tree = context.snapshot, self.tree(context.table, context.definition)
        index_groups = snapshot.groups(tree.name)
        newest = max((file.sequence_number for file in snapshot.state.files(snapshot.data.name)), default=0)
        groups = {
            key: files
            for key, files in index_groups.items()
            if not is_merged(files) or files[0].kind == "delta" or files[0].sequence_number < newest
        }
        if not groups:
            return IndexWork()
        entries = scan(snapshot, tree, groups)
        kept = with_keys(entries, self.expected(context, snapshot.groups()), tree, tree.key)
        # The bases are of this version: what was dropped was judged by its rows, and later commits merge on top.
        old = [file for files in groups.values() for file in files]
        rows, split = sum(file.rows for file in old), shard_parts(index_groups, context.definition.shards)
        added = self._stage(context, tree, kept, "base", snapshot.state.version, expected=rows, parts=split)
        metrics = {
            "mode": "full", "groups": len(groups), "files_before": len(old), "files_after": len(added),
            "entries_before": sum(file.rows - file.tombstones for file in old),
            "rows": sum(action.rows for action in added),
        }  # fmt: skip
        # A concurrent refresh may need entries that are dropped, for rows which came back since: of the two, the second
        # begins again. Writers add entries of their own on top, and conflict with neither.
        definition_write = Write(definition_scope(context.definition.name), "replace")
        writes = (definition_write, *(Write(shard_scope(tree.name, group), "fold") for _, group in groups))
        actions: list[RemoveFile | AddFile] = [RemoveFile(tree.name, file.path) for file in old]
        return IndexWork((*actions, *added), writes, metrics=metrics)


def is_lazy(definition: IndexDefinition) -> bool:
    """Return whether entries of old values stay until a full compaction."""
    return definition.properties.get("tombstones") == "lazy"
