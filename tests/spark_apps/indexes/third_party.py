"""A kind of a third party: the lowest and the highest value of one column in each data file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec
from pyspark.sql import functions as F

from spark_apps.indexes.handler import Candidates, CannotPrune, IndexContext, IndexHandler, IndexPlan, IndexWork
from spark_apps.indexes.lineage import LINEAGE, Coverage, indexable, stage_id
from spark_apps.indexes.ranges import NOTHING, Range
from spark_apps.mergetree.blocks import located, read_footers
from spark_apps.mergetree.schema import column, resolve, struct_type
from spark_apps.mergetree.write import lineage
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import AddFile, MarkCovered, RemoveFile, Write, shard_scope


class ZoneHandler(IndexHandler):
    """Rules out files whose values all lie outside of what a predicate asks for."""

    kind: ClassVar[str] = "zone"
    by_key: ClassVar[bool] = False  # its entries name files,
    maintains: ClassVar[bool] = False  # so that writes leave it behind until a refresh

    def validate(self, table, definition):
        schema = struct_type(table.fields)
        columns = resolve(definition.columns, schema.names, f"The index {definition.name!r}")
        if len(columns) != 1 or schema[columns[0]].dataType.typeName() not in ("integer", "long", "string"):
            raise InvalidInput("A zone index is over one column of integers or strings.", hint="Name one.")
        return msgspec.structs.replace(definition, columns=columns, addresses="file")

    def plan(self, context, mode="full", partitions=None):
        files = self._files(context, mode, partitions)
        size = sum(file.bytes for file in files.values())
        return IndexPlan(context.definition.name, mode, tuple(files), len(files), size)

    def build(self, context):
        return self._stage(context, self._files(context, "full", None), None)

    def maintain(self, context, changes):
        return IndexWork()

    def refresh(self, context, mode: Literal["incremental", "full", "quick"] = "incremental", partitions=None):
        files = {} if mode == "quick" else self._files(context, mode, partitions)
        whole = mode == "full" and partitions is None
        old = context.snapshot.state.files(context.definition.tree) if whole else []
        return self._stage(context, files, partitions, old) if files or old else IndexWork()

    def can_prune(self, table, definition, probe):
        depends = not probe.may_match({definition.columns[0]: NOTHING})
        return None if depends else CannotPrune("the predicate does not bound its column")

    def prune(self, context, probe):
        own = context.snapshot.state.files(context.definition.tree)
        name, store = context.definition.columns[0], context.snapshot.store
        zones = {zone[0]: Range(*zone[1:]) for file in own for zone in msgspec.json.decode(store.get(file.path))}

        def may_hold(files: list[DataFile]) -> bool:
            # Nothing is known of a file without a zone, nor of one with deltas over it.
            zone = zones.get(files[0].lineage) if len(files) == 1 and not files[0].tombstones else None
            return zone is None or probe.may_match({name: zone})

        groups = frozenset(group for group, files in context.snapshot.groups().items() if may_hold(files))
        return Candidates(groups, files=len(own), bytes=sum(file.bytes for file in own))

    def _files(self, context: IndexContext, mode: str, partitions: Any) -> Mapping[GroupKey, DataFile]:
        covered = Coverage.of(context.snapshot.state.files(context.definition.tree)).lineages if mode != "full" else ()
        return {
            group: file
            for group, file in indexable(context.snapshot).items()
            if file.lineage not in covered and (partitions is None or group[0] in partitions)
        }

    def _stage(self, context: IndexContext, files: Mapping[GroupKey, DataFile], partitions: Any, old=()) -> IndexWork:
        snapshot, definition = context.snapshot, context.definition
        tree, data_files, value = definition.tree, list(files.values()), column(definition.columns[0])
        zones = []
        if data_files:
            footers = read_footers(snapshot, data_files)
            rows = located(snapshot, snapshot.data, data_files, footers, definition.columns)
            ranges = rows.groupBy(LINEAGE).agg(F.min(value), F.max(value), F.max(value.isNull()), F.count(value) > 0)
            zones = [list(row) for row in ranges.collect()]
        path, data = f"{context.directory}/zones.json", msgspec.json.encode(zones)
        snapshot.store.put(path, data)
        extra = Coverage.single(stage_id(context.directory), definition.columns, None, data_files).to_extra()
        version = snapshot.state.version
        added = AddFile(tree, "", "zones", path, "base", len(zones), len(data), version, 0, lineage(path), extra)
        removed = [RemoveFile(tree, file.path) for file in old]
        actions = (*removed, added, MarkCovered(tree, version, None if partitions is None else tuple(partitions)))
        return IndexWork(actions, (Write(shard_scope(tree, "zones"), "backdated"),), metrics={"files": len(zones)})
