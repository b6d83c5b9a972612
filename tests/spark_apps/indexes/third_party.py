"""A kind of a third party: the lowest and the highest value of one column in each data file."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from spark_apps.indexes.comparison import Comparison, Part
from spark_apps.indexes.file_kinds import Answer, Entries, FileKind, own_files
from spark_apps.indexes.lineage import LINEAGE, Coverage, entry_files, indexable
from spark_apps.indexes.ranges import Range
from spark_apps.mergetree.blocks import located, read_footers
from spark_apps.mergetree.schema import column, resolve, struct_type
from spark_apps.mergetree.write import lineage
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import AddFile


class ZoneHandler(FileKind):
    """Rules out files that have no value of those that a predicate asks for."""

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
        zones, version = [list(row) for row in self._ranges(context, files).collect()], context.snapshot.state.version
        path, data = f"{context.directory}/zones.json", msgspec.json.encode(zones)
        context.snapshot.store.put(path, data)
        tree = context.definition.tree
        staged = AddFile(tree, "", "zones", path, "base", len(zones), len(data), version, 0, lineage(path))
        return Entries([staged])

    def answer(self, context, probe):
        own = entry_files(own_files(context))
        name, store = context.definition.columns[0], context.snapshot.store
        zones = {zone[0]: Range(*zone[1:]) for file in own for zone in msgspec.json.decode(store.get(file.path))}

        def left(file):
            zone = zones.get(file.lineage)
            return None if zone is None else probe.may_match({name: zone})

        return Answer(left, len(own), lambda: sum(file.bytes for file in own))

    def comparison(self, context, reader=None):
        snapshot, own, names = context.snapshot, own_files(context), [LINEAGE, "low", "high"]
        live, known = indexable(snapshot).values(), Coverage.of(own).lineages
        covered = {file.lineage: file for file in live if file.lineage in known}
        zones = [zone for file in entry_files(own) for zone in msgspec.json.decode(snapshot.store.get(file.path))]
        zones = [zone[:3] for zone in zones if zone[0] in covered]
        if not covered:
            return Comparison([], {}, uncovered=len(live))
        if reader is None:
            expected = self._ranges(context, list(covered.values())).select(*names)
            stored = snapshot.spark.createDataFrame(zones, expected.schema)
        else:
            [name] = context.definition.columns
            rows = reader.unmerged(snapshot.data, list(covered.values()), [LINEAGE, name])
            expected = rows.group_by(LINEAGE).aggregate([(name, "min"), (name, "max")]).rename_columns(names)
            stored = pa.Table.from_pylist([dict(zip(names, zone, strict=True)) for zone in zones], expected.schema)
        parts = [Part((LINEAGE,), ("low", "high"), expected, stored)]
        return Comparison(parts, {LINEAGE: "lineage"}, uncovered=len(live) - len(covered))

    def _ranges(self, context, files):
        value = column(context.definition.columns[0])
        footers = read_footers(context.snapshot, files)
        rows = located(context.snapshot, context.snapshot.data, files, footers, context.definition.columns)
        ends = F.min(value).alias("low"), F.max(value).alias("high")
        return rows.groupBy(LINEAGE).agg(*ends, F.max(value.isNull()), F.count(value) > 0)
