"""Iceberg's schemas in Spark's words, and whether a table's Parquet files can be read by the names of columns."""

from __future__ import annotations

from typing import Any

from spark_apps.mergetree.schema import quote
from spark_apps.storage.errors import UnsupportedSource
from spark_apps.timeline.model import Field

_SIMPLE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}


def fields_of(schema: Any, location: str) -> tuple[Field, ...]:
    """The columns of an Iceberg schema.

    :raises UnsupportedSource: naming a column of a type that Spark has not.
    """
    return tuple(Field(field.name, _spark(field.field_type, field.name, location), True) for field in schema.fields)


def _spark(kind: Any, name: str, location: str) -> str:
    from pyiceberg import types as I

    if isinstance(kind, I.StructType):
        inner = ",".join(f"{quote(f.name)}:{_spark(f.field_type, f'{name}.{f.name}', location)}" for f in kind.fields)
        return f"struct<{inner}>"
    if isinstance(kind, I.ListType):
        return f"array<{_spark(kind.element_type, name, location)}>"
    if isinstance(kind, I.MapType):
        return f"map<{_spark(kind.key_type, name, location)},{_spark(kind.value_type, name, location)}>"
    if isinstance(kind, I.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, I.FixedType):
        return "binary"
    text = str(kind)
    if text not in _SIMPLE:
        raise UnsupportedSource(
            f"The column {name!r} of {location} is of the Iceberg type {text}, which Spark has not.",
            hint="It cannot be registered.",
        )
    return _SIMPLE[text]


def same_names_and_types(table: Any, schema: Any) -> str | None:
    """Why the files cannot be read by the names of columns, or ``None``: in every schema that the table had, each
    column of ``schema`` went by its name and type, and nothing else went by that name."""
    now = {field_id: (name, _type(schema, field_id)) for name, field_id in _names(schema)}
    by_name = {name: field_id for field_id, (name, _) in now.items()}
    for other in table.schemas().values():
        for name, field_id in _names(other):
            if field_id in now and now[field_id][0] != name:
                return f"column {name!r} was renamed to {now[field_id][0]!r}"
            if field_id in now and now[field_id][1] != _type(other, field_id):
                return f"column {name!r} was of another type"
            if by_name.get(name, field_id) != field_id:
                return f"column {name!r} was dropped and added again"
    if any(getattr(field, "initial_default", None) is not None for field in schema.fields):
        return "columns with a default value"
    mapping = table.name_mapping()
    if mapping is not None and any(len(field.names) > 1 for field in mapping.root):
        return "a name mapping with several names for a column"
    return None


def become(table: Any, schema: Any) -> str:
    """The columns of ``schema`` whose names stood for something else in an earlier one, by id and type; "" if none.

    Whatever was told of files then tells nothing of these columns. Later schemas do not count, so that of a snapshot of
    the past the same is said as was then.
    """
    now = {name: (field_id, _type(schema, field_id)) for name, field_id in _names(schema)}
    names = {field_id: name for name, (field_id, _) in now.items()}
    found: set[str] = set()
    for other in table.schemas().values():
        if other.schema_id >= schema.schema_id:
            continue
        for name, field_id in _names(other):
            told = (field_id, _type(other, field_id))
            if now.get(name, told) != told:
                found.add(name)
            if names.get(field_id, name) != name:
                found.add(names[field_id])
    return "\n".join(f"{name!r}: {now[name][0]}, {now[name][1]}" for name in sorted(found))


def _names(schema: Any) -> list[tuple[str, int]]:
    from pyiceberg.schema import index_by_name

    return [(name, field_id) for name, field_id in index_by_name(schema).items()]


def _type(schema: Any, field_id: int) -> str:
    kind = schema.find_field(field_id).field_type
    return str(kind) if kind.is_primitive else type(kind).__name__
