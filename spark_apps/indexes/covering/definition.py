"""The definition of a covering index: its columns, how they may change, and its properties.

Follows Hyperspace's proposal: indexed columns never change, included ones come and go with refreshes, and
one name never has two types in one index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import T
from spark_apps.indexes.computed import fields_in, indexed_by, read_columns, split_properties
from spark_apps.indexes.included_columns import EXCLUDED, IncludedColumns, intersect_names, refuse_indexed
from spark_apps.layout import hashing
from spark_apps.layout.hashing import SPARK_BUCKETS, check_bucket_count, check_hash_types
from spark_apps.layout.types import parse_type as parse_column_type
from spark_apps.mergetree.schema import (
    check_key_types,
    column_types,
    parse_stored_type,
    quote,
    resolve,
    struct_type,
    table_fields,
)
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
"""Property: how entries are dealt among the buckets.

By ``hash``, by ``ranges`` of the first indexed column, or as Spark's own ``buckets`` are.
"""

BOUNDS = "bounds"
"""Property: what ends one range and begins the next (see :mod:`spark_apps.layout.hashing`); found in the rows."""

_KNOWN_PROPERTIES = frozenset({*DEFAULTS, "buckets", EXCLUDED, SCHEMA, LAYOUT, BOUNDS})


def complete_definition(table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
    """Return the definition, checked and with all properties.

    What depends on the types of expressions is left to :func:`with_entry_types`, as long as these are not known.

    :raises InvalidInput: (or a subclass) naming what is wrong.
    """
    label = f"The index {definition.name!r}"
    schema = struct_type(table.fields)
    indexed = read_columns(definition, column_types(table.fields), label)
    names, columns = tuple(one.name for one in indexed), [one.name for one in indexed if one.expression is None]
    if not names:
        raise InvalidInput(f"{label} has no indexed columns.", hint="Name at least one: columns=[…].")
    check_key_types(schema, columns, label, floating=True)
    check_hash_types([schema[name].dataType.simpleString() for name in columns], definition.hash_function)
    refuse_indexed(definition.included, columns)
    included = resolve(definition.included, schema.names, label)
    given, written = split_properties(indexed, definition.properties)
    properties = _properties(replace(definition, properties=given))
    if properties.get(LAYOUT) == "buckets":
        _refuse_expressions(definition.name, [name for name in names if name not in columns])
        _refuse_floating(definition.name, columns, schema)
    complete = replace(
        definition, columns=names, included=included, shards=int(properties["buckets"]),
        properties={**properties, **written}, addresses="file",
    )  # fmt: skip
    if any(one.expression is not None and not one.type for one in indexed_by(table, complete)):
        return complete
    return with_entry_types(table, complete)


def with_entry_types(table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
    """Return a definition with the columns of its entry files, of which all types are known.

    :raises InvalidInput: (or a subclass) if they cannot have the index's layout, or one name would have two types.
    """
    if definition.properties.get(LAYOUT) == "ranges":
        first = indexed_by(table, definition)[0]
        kind = column_types(fields_in(table, definition))[first.stored]
        _check_ranges(definition.name, first.name, kind, definition.properties)
    return with_schema(table, definition, anew=False)


def _properties(definition: IndexDefinition) -> dict[str, str]:
    unknown = sorted(definition.properties.keys() - _KNOWN_PROPERTIES)
    if unknown:
        raise InvalidInput(
            f"The index property {unknown[0]!r} is not one of kind 'covering'.",
            hint=f"Known are: {', '.join(sorted(_KNOWN_PROPERTIES - {EXCLUDED, SCHEMA, BOUNDS}))}.",
        )
    # Spark joins buckets without a shuffle where one side's count is a multiple of the other's.
    buckets = 1 << (definition.shards - 1).bit_length() if has_buckets(definition) else definition.shards
    properties = {"buckets": str(buckets), EXCLUDED: "[]", **DEFAULTS, **definition.properties}
    check_bucket_count(_parse_whole_number(properties, "buckets"), "The number of buckets")
    _parse_whole_number(properties, "small_bytes")
    for name in ("hybrid_appended_ratio", "hybrid_deleted_ratio"):
        _parse_ratio(properties, name)
    properties["lineage"] = properties["lineage"].lower()
    for name, allowed in (("lineage", ("true", "false")), ("optimize_schema", ("merge", "same")),
                          (LAYOUT, ("hash", "ranges", "buckets"))):  # fmt: skip
        if properties.get(name, allowed[0]) not in allowed:
            raise InvalidInput(
                f"The index property {name!r} is {properties[name]!r}.", hint=f"Use one of: {', '.join(allowed)}."
            )
    return properties


def _check_ranges(index: str, column: str, type_text: str, properties: Mapping[str, str]) -> None:
    if not hashing.can_bound(parse_column_type(type_text)):
        raise InvalidInput(
            f"The index {index!r} cannot be laid by ranges of {column!r}, which is {type_text}.",
            hint="Leave the property 'layout' out; ranges are of strings, numbers, dates or timestamps.",
        )
    hashing.range_bounds(properties.get(BOUNDS, f"{hashing.RANGES}[]"), type_text)


def _refuse_expressions(index: str, expressions: Sequence[str]) -> None:
    """Refuse buckets by expressions: Spark knows a table's buckets by its columns alone."""
    for name in expressions:
        raise InvalidInput(
            f"The index {index!r} cannot be laid as Spark's buckets by {name!r}, which is no column of the table.",
            hint="Leave the property 'layout' out, or take 'ranges'.",
        )


def _refuse_floating(index: str, columns: Sequence[str], schema: T.StructType) -> None:
    """Refuse buckets by floating point columns.

    Spark joins and groups by such a value made one of its kind (one NaN, one zero), which it does not take for the
    column that the buckets are of, and so shuffles all the same.
    """
    for name in columns:
        if isinstance(schema[name].dataType, (T.FloatType, T.DoubleType)):
            raise InvalidInput(
                f"The index {index!r} cannot be laid as Spark's buckets by {name!r}, which is "
                f"{schema[name].dataType.simpleString()}: Spark shuffles for a join or GROUP BY of floating point "
                "values in any case, for it compares their normalized form.",
                hint="Leave the property 'layout' out, or take 'ranges'; or cast the values to a decimal or bigint.",
            )


def hash_of(definition: IndexDefinition) -> str:
    """Return the function that gives the bucket of an entry from its indexed columns."""
    if has_buckets(definition):
        return SPARK_BUCKETS
    if definition.properties.get(LAYOUT) != "ranges":
        return definition.hash_function
    return definition.properties.get(BOUNDS, f"{hashing.RANGES}[]")


def has_buckets(definition: IndexDefinition) -> bool:
    """Return whether Spark takes the entry files for the buckets of a table."""
    return definition.properties.get(LAYOUT) == "buckets"


def _parse_whole_number(properties: Mapping[str, str], name: str) -> int:
    try:
        number = int(properties[name])
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidInput(f"The index property {name!r} is {properties[name]!r}.", hint="Give a whole number.")
    return number


def _parse_ratio(properties: Mapping[str, str], name: str) -> float:
    try:
        number = float(properties[name])
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidInput(f"The index property {name!r} is {properties[name]!r}.", hint="Give a number from 0 to 1.")
    return number


def has_lineage(definition: IndexDefinition) -> bool:
    """Return whether entries hold the file that they were read from."""
    return definition.properties.get("lineage", "true") == "true"


def threshold(definition: IndexDefinition, name: str) -> float:
    """Return a threshold of the hybrid scan."""
    return float(definition.properties.get(name, DEFAULTS[name]))


def held_columns(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the columns that entries written now have.

    Indexed and included ones; the columns of indexed expressions, for a predicate over one is applied to the rows too;
    with lineage also partition columns that were not excluded; and the record key of a keyed table, by which later rows
    of a key replace an entry.
    """
    indexed = indexed_by(table, definition)
    names = [*(one.stored for one in indexed), *definition.included]
    names += [name for one in indexed if one.expression is not None for name in one.columns]
    if has_lineage(definition):
        excluded = json.loads(definition.properties.get(EXCLUDED, "[]"))
        names += [name for name in table.partition_by if not intersect_names([name], excluded)]
    key = () if table.source is not None else table.record_key
    return tuple(dict.fromkeys([*names, *key]))


def indexed_columns(table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
    """Return the names that indexed columns, and values of indexed expressions, have in entry files."""
    return tuple(one.stored for one in indexed_by(table, definition))


# --- Schemas ----------------------------------------------------------------------------------------------------------


_COLUMN = re.compile(r"\s*`((?:[^`]|``)+)`\s+")


def schema_of(definition: IndexDefinition) -> T.StructType:
    """Return the merged schema: columns of all entry files."""
    text = definition.properties.get(SCHEMA, "")
    return _struct(text) if text else T.StructType([])


def fields_of(definition: IndexDefinition) -> tuple[Field, ...]:
    """Return what :func:`schema_of` does, without Spark."""
    return _fields_of_ddl(definition.properties.get(SCHEMA, ""))


@lru_cache(maxsize=256)
def _fields_of_ddl(text: str) -> tuple[Field, ...]:
    """Return the columns of a text that :func:`schema_ddl` wrote.

    :raises InvalidSchema: for any other.
    """
    fields, end = [], 0
    while end < len(text):
        match = _COLUMN.match(text, end)
        if match is None:
            raise InvalidSchema(f"The index property {SCHEMA!r} is {text!r}, not a list of columns.")
        end, depth = match.end(), 0
        while end < len(text) and (depth or text[end] != ","):
            depth += (text[end] in "<(") - (text[end] in ">)")
            end += 1
        fields.append(Field(match[1].replace("``", "`"), text[match.end() : end].strip()))
        end += 1
    return tuple(fields)


@lru_cache(maxsize=256)
def _struct(text: str) -> T.StructType:
    struct = parse_stored_type(text)
    if not isinstance(struct, T.StructType):
        raise InvalidSchema(f"The index property {SCHEMA!r} is {text!r}, not a list of columns.", hint="Leave it out.")
    return struct


def merged_schema(definition: IndexDefinition, fields: Sequence[T.StructField]) -> T.StructType:
    """Return the schema with these columns.

    :raises InvalidSchema: if a name would have two types.
    """
    merged = {field.name.lower(): field for field in schema_of(definition).fields}
    for field in fields:
        merged_field = merged.setdefault(field.name.lower(), T.StructField(field.name, field.dataType, True))
        if merged_field.dataType != field.dataType:
            raise InvalidSchema(
                f"The index {definition.name!r} holds {merged_field.name!r} as {merged_field.dataType.simpleString()}, "
                f"and it would come as {field.dataType.simpleString()}: one name cannot have two types.",
                hint="A full refresh, which writes all entries anew, can take the new type.",
            )
    return T.StructType(list(merged.values()))


def with_schema(table: TableDefinition, definition: IndexDefinition, *, anew: bool) -> IndexDefinition:
    """Return the definition once entries with the columns held now are written, beside the old ones or ``anew``.

    :raises InvalidSchema: naming a column that the table has not any more, or one of two types.
    """
    schema, held = struct_type(fields_in(table, definition)), held_columns(table, definition)
    gone = next((name for name in held if name not in schema.fieldNames()), None)
    if gone is not None:
        raise InvalidSchema(
            f"The table has no column {gone!r} any more, which the index {definition.name!r} holds.",
            hint=f"Drop the index, drop_index({definition.name!r}), and create it again over columns that are there; "
            "or give the column its name back.",
        )
    fields = [T.StructField(name, schema[name].dataType, True) for name in held]
    base = replace(definition, properties={**definition.properties, SCHEMA: ""}) if anew else definition
    return replace(definition, properties={**definition.properties, SCHEMA: schema_ddl(merged_schema(base, fields))})


def schema_ddl(schema: T.StructType) -> str:
    """Return a schema as DDL."""
    return ", ".join(f"{quote(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


# --- Change of columns ------------------------------------------------------------------------------------------------


def evolve_definition(
    table: TableDefinition,
    definition: IndexDefinition,
    mode: Literal["incremental", "full", "quick"],
    included: IncludedColumns | None,
    schema: str | T.StructType | None,
) -> tuple[IndexDefinition, TableDefinition]:
    """Return the definition with columns added and removed, and the table with the columns learned of.

    :param schema: types of added columns that a registered source's schema lacks.
    :raises InvalidInput: for each rule that is broken.
    :raises InvalidSchema: for each rule that is broken.
    :raises UnknownColumn: for each rule that is broken.
    """
    changes = included or IncludedColumns()
    label = f"The refresh of {definition.name!r}"
    if mode == "quick":
        raise InvalidInput(
            f"{label} is to change included columns in mode 'quick', which writes no entries.",
            hint="Use mode='incremental' (for entries of new files) or mode='full' (for all).",
        )
    refuse_indexed((*changes.added, *changes.removed), definition.columns)
    table = _with_new_columns(table, label, changes, schema)
    struct = struct_type(table.fields)
    added = resolve(changes.added, struct.names, label)
    implied = [name for name in held_columns(table, definition) if intersect_names([name], table.partition_by)]
    removed = _excluded_names(definition, (*definition.included, *implied), changes, label)
    kept = [name for name in definition.included if name not in removed]
    excluded = [
        name for name in json.loads(definition.properties.get(EXCLUDED, "[]")) if not intersect_names([name], added)
    ]
    excluded += [name for name in removed if intersect_names([name], table.partition_by) and name not in excluded]
    evolved = replace(
        definition,
        included=tuple(dict.fromkeys([*kept, *added])),
        properties={**definition.properties, EXCLUDED: json.dumps(excluded)},
    )
    return with_schema(table, evolved, anew=mode == "full"), table


def _excluded_names(
    definition: IndexDefinition, included: Sequence[str], changes: IncludedColumns, label: str
) -> tuple[str, ...]:
    unknown = [name for name in changes.removed if not intersect_names([name], included)]
    if unknown:
        raise UnknownColumn(
            f"{label} is to exclude {unknown[0]!r}, which the index {definition.name!r} does not include.",
            hint=f"It includes: {', '.join(dict.fromkeys(included)) or 'none'}.",
        )
    return resolve(changes.removed, dict.fromkeys(included), label)


def _with_new_columns(
    table: TableDefinition, label: str, changes: IncludedColumns, schema: str | T.StructType | None
) -> TableDefinition:
    """Return the table with the columns of ``schema`` that it lacks."""
    if schema is None:
        _refuse_unknown(table, label, changes.added)
        return table
    given_fields = table_fields(schema, ())
    unasked = [field.name for field in given_fields if not intersect_names([field.name], changes.added)]
    if unasked:
        raise InvalidInput(
            f"{label} is given a type for {unasked[0]!r}, which is not a column to be included.",
            hint="List it in IncludedColumns(include=[…]), or leave it out of the schema.",
        )
    table_columns = {field.name.lower(): field for field in struct_type(table.fields).fields}
    new: list[Field] = []
    for field, typed in zip(given_fields, struct_type(given_fields).fields, strict=True):
        table_column = table_columns.get(field.name.lower())
        if table_column is None:
            new.append(field)
        elif table_column.dataType != typed.dataType:
            raise InvalidSchema(
                f"{label} is given {field.name!r} as {field.type}, and the table has it as "
                f"{table_column.dataType.simpleString()}: one name cannot have two types.",
                hint="Leave it out of the schema.",
            )
    if new and table.source is None:
        raise UnknownColumn(
            f"{label} names the column {new[0].name!r}, which the table lacks.",
            hint="Types are given for registered sources only; a column of this table is added to the table first.",
        )
    table = replace(table, fields=(*table.fields, *new)) if new else table
    _refuse_unknown(table, label, changes.added)
    return table


def _refuse_unknown(table: TableDefinition, label: str, names: Sequence[str]) -> None:
    columns = [field.name for field in table.fields]
    unknown = [name for name in names if not intersect_names([name], columns)]
    if unknown:
        hint = f"The columns are: {', '.join(columns)}."
        if table.source is not None:
            hint += f" If its files have it by now, give its type: schema='{unknown[0]} bigint'."
        raise UnknownColumn(f"{label} names the column {unknown[0]!r}, which the table lacks.", hint=hint)
