"""A kind of a third party: the lowest and the highest value of one column in each data file."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from pyspark.sql import functions as F

from spark_apps.indexes.file_kinds import Answer, Entries, FileKind, own_files
from spark_apps.indexes.lineage import LINEAGE, entry_files
from spark_apps.indexes.ranges import Range
from spark_apps.mergetree.blocks import located, read_footers
from spark_apps.mergetree.schema import column, resolve, struct_type
from spark_apps.mergetree.write import lineage
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import AddFile


class ZoneHandler(FileKind):
    """Rules out files whose values all lie outside of what a predicate asks for."""

    kind: ClassVar[str] = "zone"

    def validate(self, table, definition):
        schema = struct_type(table.fields)
        columns = resolve(definition.columns, schema.names, f"The index {definition.name!r}")
        if len(columns) != 1 or schema[columns[0]].dataType.typeName() not in ("integer", "long", "string"):
            raise InvalidInput("A zone index is over one column of integers or strings.", hint="Name one.")
        return msgspec.structs.replace(definition, columns=columns, addresses="file")

    def proposed(self, table, equal, bounded):
        return [(name,) for name in (*equal, *bounded)]  # those that cannot be are refused by validate

    def entries(self, context, files):
        snapshot, definition = context.snapshot, context.definition
        value, version = column(definition.columns[0]), snapshot.state.version
        rows = located(snapshot, snapshot.data, files, read_footers(snapshot, files), definition.columns)
        ranges = rows.groupBy(LINEAGE).agg(F.min(value), F.max(value), F.max(value.isNull()), F.count(value) > 0)
        zones = [list(row) for row in ranges.collect()]
        path, data = f"{context.directory}/zones.json", msgspec.json.encode(zones)
        snapshot.store.put(path, data)
        staged = AddFile(definition.tree, "", "zones", path, "base", len(zones), len(data), version, 0, lineage(path))
        return Entries([staged])

    def answer(self, context, probe):
        own = entry_files(own_files(context))
        name, store = context.definition.columns[0], context.snapshot.store
        zones = {zone[0]: Range(*zone[1:]) for file in own for zone in msgspec.json.decode(store.get(file.path))}

        def left(file):
            zone = zones.get(file.lineage)
            return None if zone is None else probe.may_match({name: zone})

        return Answer(left, len(own), lambda: sum(file.bytes for file in own))
