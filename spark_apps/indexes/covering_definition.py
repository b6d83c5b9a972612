"""What a covering index is defined to hold: its columns, how they may change, and its properties.

Follows Hyperspace's proposal: indexed columns never change, included ones come and go with refreshes, and
one name never has two types in one index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace
from pyspark.sql import types as T

from spark_apps.indexes.columns import EXCLUDED, IncludedColumns, among, refuse_indexed
from spark_apps.layout import range_buckets
from spark_apps.layout.hashing import check_bucket_count, check_hash_types
from spark_apps.layout.types import parse_type as parse_kind
from spark_apps.mergetree.schema import check_key_types, parse_stored_type, quote, resolve, struct_type, table_fields
from spark_apps.storage.errors import InvalidInput, InvalidSchema, UnknownColumn
from spark_apps.timeline.model import Field, IndexDefinition, TableDefinition

MiB = 1024 * 1024

DEFAULTS = {
    "lineage": "true",
    "hybrid_appended_ratio": "0.3",
    "hybrid_deleted_ratio": "0.2",
    "optimize_schema": "merge",
    "small_bytes": str(256 * MiB),
}
CHANGEABLE = frozenset({"hybrid_appended_ratio", "hybrid_deleted_ratio", "optimize_schema", "small_bytes"})

SCHEMA = "schema"
"""Property: the columns that any entry file holds, with their types (the document's ``schemaString``)."""

LAYOUT = "layout"
"""Property: how entries are dealt among the buckets, by ``hash`` or by ``ranges`` of the first indexed column."""

BOUNDS = "bounds"
"""Property: what ends one range and begins the next (see :mod:`spark_apps.layout.range_buckets`); found in the rows."""

_KNOWN = frozenset({*DEFAULTS, "buckets", EXCLUDED, SCHEMA, LAYOUT, BOUNDS})


def completed(table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
    """The definition, checked and with all properties. :raises InvalidInput: (or its kin) naming what is wrong."""
    what = f"The index {definition.name!r}"
    schema = struct_type(table.fields)
    columns = resolve(definition.columns, schema.names, what)
    if not columns:
        raise InvalidInput(f"{what} has no indexed columns.", hint="Name at least one: columns=[…].")
    check_key_types(schema, columns, what)
    check_hash_types([schema[name].dataType.simpleString() for name in columns], definition.hash_function)
    refuse_indexed(definition.included, columns)
    included = resolve(definition.included, schema.names, what)
    properties = _properties(definition)
    if properties.get(LAYOUT) == "ranges":
        _check_ranges(definition.name, columns[0], schema[columns[0]].dataType.simpleString(), properties)
    buckets = int(properties["buckets"])
    found = replace(
        definition, columns=columns, included=included, shards=buckets, properties=properties, addresses="file"
    )
    merged = merged_schema(definition, _fields(schema, held(table, found)))
    return replace(found, properties={**properties, SCHEMA: text_of(merged)})


def _properties(definition: IndexDefinition) -> dict[str, str]:
    unknown = sorted(definition.properties.keys() - _KNOWN)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'covering'.",
            hint=f"Known are: {', '.join(sorted(_KNOWN - {EXCLUDED, SCHEMA, BOUNDS}))}.",
        )
    found = {"buckets": str(definition.shards), EXCLUDED: "[]", **DEFAULTS, **definition.properties}
    check_bucket_count(_whole(found, "buckets"), "The number of buckets")
    _whole(found, "small_bytes")
    for name in ("hybrid_appended_ratio", "hybrid_deleted_ratio"):
        _ratio(found, name)
    found["lineage"] = found["lineage"].lower()
    for name, allowed in (("lineage", ("true", "false")), ("optimize_schema", ("merge", "same")),
                          (LAYOUT, ("hash", "ranges"))):  # fmt: skip
        if found.get(name, allowed[0]) not in allowed:
            raise InvalidInput(
                f"The index property {name!r} is {found[name]!r}.", hint=f"Use one of: {', '.join(allowed)}."
            )
    return found


def _check_ranges(index: str, column: str, kind: str, properties: Mapping[str, str]) -> None:
    if not range_buckets.can_bound(parse_kind(kind)):
        raise InvalidInput(
            f"The index {index!r} cannot be laid by ranges of {column!r}, which is {kind}.",
            hint="Leave the property 'layout' out; ranges are of strings, integers, decimals, dates or timestamps.",
        )
    range_buckets.bounds_of(properties.get(BOUNDS, f"{range_buckets.PREFIX}[]"), kind)


def hash_of(definition: IndexDefinition) -> str:
    """The function that tells the bucket of an entry from its indexed columns."""
    if definition.properties.get(LAYOUT) != "ranges":
        return definition.hash_function
    return definition.properties.get(BOUNDS, f"{range_buckets.PREFIX}[]")


def _whole(properties: Mapping[str, str], name: str) -> int:
    try:
        number = int(properties[name])
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidInput(f"The index property {name!r} is {properties[name]!r}.", hint="Give a whole number.")
    return number


def _ratio(properties: Mapping[str, str], name: str) -> float:
    try:
        number = float(properties[name])
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidInput(f"The index property {name!r} is {properties[name]!r}.", hint="Give a number from 0 to 1.")
    return number


def has_lineage(definition: IndexDefinition) -> bool:
    """Whether rows tell the file that they were read from."""
    return definition.properties.get("lineage", "true") == "true"


def ratio(definition: IndexDefinition, name: str) -> float:
    """A threshold of the hybrid scan."""
    return float(definition.properties.get(name, DEFAULTS[name]))


def held(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """The columns that entries written now have: indexed, included; with lineage also partition columns that were not
    excluded; and the record key of a keyed table, by which later rows of a key take the place of an entry."""
    names = [*definition.columns, *definition.included]
    if has_lineage(definition):
        left_out = json.loads(definition.properties.get(EXCLUDED, "[]"))
        names += [name for name in table.partition_by if not among([name], left_out)]
    key = () if table.source is not None else table.record_key
    return tuple(dict.fromkeys([*names, *key]))


# --- schemas -----------------------------------------------------------------------------------------------------


def schema_of(definition: IndexDefinition) -> T.StructType:
    """The merged schema: columns of all entry files."""
    text = definition.properties.get(SCHEMA, "")
    return _struct(text) if text else T.StructType([])


@lru_cache(maxsize=256)
def _struct(text: str) -> T.StructType:
    struct = parse_stored_type(text)
    if not isinstance(struct, T.StructType):
        raise InvalidSchema(f"The index property {SCHEMA!r} is {text!r}, not a list of columns.", hint="Leave it out.")
    return struct


def merged_schema(definition: IndexDefinition, fields: Sequence[T.StructField]) -> T.StructType:
    """The schema with these columns. :raises InvalidSchema: if a name would have two types."""
    merged = {field.name.lower(): field for field in schema_of(definition).fields}
    for field in fields:
        there = merged.setdefault(field.name.lower(), T.StructField(field.name, field.dataType, True))
        if there.dataType != field.dataType:
            raise InvalidSchema(
                f"The index {definition.name!r} holds {there.name!r} as {there.dataType.simpleString()}, and it would "
                f"come as {field.dataType.simpleString()}: one name cannot have two types.",
                hint="A full refresh, which writes all entries anew, can take the new type.",
            )
    return T.StructType(list(merged.values()))


def with_schema(table: TableDefinition, definition: IndexDefinition, *, anew: bool) -> IndexDefinition:
    """The definition once entries with the columns held now are written: beside the old ones, or ``anew`` alone."""
    fields = _fields(struct_type(table.fields), held(table, definition))
    base = replace(definition, properties={**definition.properties, SCHEMA: ""}) if anew else definition
    return replace(definition, properties={**definition.properties, SCHEMA: text_of(merged_schema(base, fields))})


def text_of(schema: T.StructType) -> str:
    """A schema as DDL."""
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _fields(schema: T.StructType, names: Sequence[str]) -> list[T.StructField]:
    return [T.StructField(name, schema[name].dataType, True) for name in names]


# --- change of columns -------------------------------------------------------------------------------------------


def evolved(
    table: TableDefinition,
    definition: IndexDefinition,
    mode: Literal["incremental", "full", "quick"],
    included: IncludedColumns | None,
    schema: str | T.StructType | None,
) -> tuple[IndexDefinition, TableDefinition]:
    """The definition with columns added and removed, and the table with the columns it was told of.

    :param schema: types of added columns that a registered source's schema lacks.
    :raises InvalidInput: :raises InvalidSchema: :raises UnknownColumn: for each rule that is broken.
    """
    changes = included or IncludedColumns()
    what = f"The refresh of {definition.name!r}"
    if mode == "quick":
        raise InvalidInput(
            f"{what} is to change included columns in mode 'quick', which writes no entries.",
            hint="Use mode='incremental' (for entries of new files) or mode='full' (for all).",
        )
    refuse_indexed((*changes.added, *changes.removed), definition.columns)
    table = _told(table, what, changes, schema)
    struct = struct_type(table.fields)
    added = resolve(changes.added, struct.names, what)
    implied = [name for name in held(table, definition) if among([name], table.partition_by)]
    removed = _removed(definition, (*definition.included, *implied), changes, what)
    kept = [name for name in definition.included if name not in removed]
    left_out = [name for name in json.loads(definition.properties.get(EXCLUDED, "[]")) if not among([name], added)]
    left_out += [name for name in removed if among([name], table.partition_by) and name not in left_out]
    found = replace(
        definition,
        included=tuple(dict.fromkeys([*kept, *added])),
        properties={**definition.properties, EXCLUDED: json.dumps(left_out)},
    )
    return with_schema(table, found, anew=mode == "full"), table


def _removed(definition: IndexDefinition, there: Sequence[str], changes: IncludedColumns, what: str) -> tuple[str, ...]:
    stray = [name for name in changes.removed if not among([name], there)]
    if stray:
        raise UnknownColumn(
            f"{what} is to exclude {stray[0]!r}, which the index {definition.name!r} does not include.",
            hint=f"It includes: {', '.join(dict.fromkeys(there)) or 'none'}.",
        )
    return resolve(changes.removed, dict.fromkeys(there), what)


def _told(
    table: TableDefinition, what: str, changes: IncludedColumns, schema: str | T.StructType | None
) -> TableDefinition:
    """The table with the columns of ``schema`` that it lacks."""
    if schema is None:
        _refuse_unknown(table, what, changes.added)
        return table
    given = table_fields(schema, ())
    stray = [field.name for field in given if not among([field.name], changes.added)]
    if stray:
        raise InvalidInput(
            f"{what} is given a type for {stray[0]!r}, which is not a column to be included.",
            hint="List it in IncludedColumns(include=[…]), or leave it out of the schema.",
        )
    known = {field.name.lower(): field for field in struct_type(table.fields).fields}
    new: list[Field] = []
    for field, typed in zip(given, struct_type(given).fields, strict=True):
        there = known.get(field.name.lower())
        if there is None:
            new.append(field)
        elif there.dataType != typed.dataType:
            raise InvalidSchema(
                f"{what} is given {field.name!r} as {field.type}, and the table has it as "
                f"{there.dataType.simpleString()}: one name cannot have two types.",
                hint="Leave it out of the schema.",
            )
    if new and table.source is None:
        raise UnknownColumn(
            f"{what} names the column {new[0].name!r}, which the table lacks.",
            hint="Types are told only for registered sources; a column of this table is added to the table first.",
        )
    table = replace(table, fields=(*table.fields, *new)) if new else table
    _refuse_unknown(table, what, changes.added)
    return table


def _refuse_unknown(table: TableDefinition, what: str, names: Sequence[str]) -> None:
    known = [field.name for field in table.fields]
    unknown = [name for name in names if not among([name], known)]
    if unknown:
        hint = f"The columns are: {', '.join(known)}."
        if table.source is not None:
            hint += f" If its files have it by now, tell its type: schema='{unknown[0]} bigint'."
        raise UnknownColumn(f"{what} names the column {unknown[0]!r}, which the table lacks.", hint=hint)
