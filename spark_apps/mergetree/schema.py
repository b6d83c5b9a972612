"""Schemas: Spark types as text and back, the columns that a table may have, and the fit of a batch to a table.

A batch is taken by column names (case does not matter), never by position. A type is accepted if it is the
table's, or if every one of its values is a value of the table's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from spark_apps.engine.pyspark_names import Column, DataFrame, F, T
from spark_apps.engine.spark_versions import type_of_ddl
from spark_apps.layout.types import build_type, parse_type
from spark_apps.storage.errors import InvalidInput, InvalidSchema, UnknownColumn
from spark_apps.storage.names import check_column_name
from spark_apps.storage.names import quote as quote
from spark_apps.timeline.model import Field

_SIMPLE = {
    "tinyint": "ByteType", "smallint": "ShortType", "int": "IntegerType", "bigint": "LongType", "float": "FloatType",
    "double": "DoubleType", "string": "StringType", "binary": "BinaryType", "boolean": "BooleanType",
    "date": "DateType", "timestamp": "TimestampType", "timestamp_ntz": "TimestampNTZType",
}  # fmt: skip
"""Type as Spark prints it -> its class in ``pyspark.sql.types``."""


def parse_simple_string(text: str) -> T.DataType | None:
    """Return the type that Spark prints so; ``None`` for a text that is left to Spark's own parser."""
    built: T.DataType | None = build_type(
        text,
        _simple_type,
        lambda element: T.ArrayType(element),
        lambda key, value: T.MapType(key, value),
        lambda fields: T.StructType([T.StructField(name, kind) for name, kind in fields]),
    )
    return built


def _simple_type(text: str) -> T.DataType | None:
    column_type = parse_type(text)
    if column_type.kind == "decimal" and text.startswith("decimal(") and column_type.scale >= 0:
        return T.DecimalType(column_type.precision, column_type.scale)
    # Other spellings of a type, and varchar, which only this package takes for a string, are left to Spark.
    name = _SIMPLE.get(column_type.kind) if column_type.kind == text else None
    return None if name is None else cast("T.DataType", getattr(T, name)())


# --- Schemas ----------------------------------------------------------------------------------------------------------


NULL_MARK = "[null in a required column]"
"""Begins the message that Spark raises for a null where the table takes none; the write looks for it."""

# A quoted name, or the type's name where it is not that of a nested field.
_TIMESTAMP = re.compile(r"`(?:[^`]|``)*`|\btimestamp\b(?!\s*:)", re.IGNORECASE)


def _integer_digits() -> dict[type[T.DataType], int]:
    """Return the integer types, from small to large, with the digits that their values have at most."""
    return {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}


def parse_ddl(text: str) -> T.DataType:
    """Return the Spark type of a DDL text; a list of columns gives a struct.

    Needs a running session.

    :raises InvalidSchema: if Spark cannot parse it.
    """
    from pyspark.errors import PySparkException

    try:
        return type_of_ddl(text)
    except PySparkException as error:
        raise InvalidSchema(
            f"{text!r} is not a schema that Spark can read.", hint="Write it as in 'id bigint, name string'."
        ) from error


def parse_stored_type(text: str) -> T.DataType:
    """Return the type of a text that was written down.

    A timestamp in it has a zone, whatever a session takes the word for.

    :raises InvalidSchema: if Spark cannot parse it.
    """
    zoned = _TIMESTAMP.sub(lambda match: match[0] if match[0].startswith("`") else "timestamp_ltz", text)
    return parse_simple_string(text) or parse_ddl(zoned)


@lru_cache(maxsize=256)
def struct_type(fields: tuple[Field, ...]) -> T.StructType:
    """Return the Spark schema of a table's fields.

    :raises InvalidSchema: if this Spark does not know a type, as a table of a newer one may have it; names the column.
    """
    return T.StructType([T.StructField(field.name, _type_of(field), field.nullable) for field in fields])


def _type_of(field: Field) -> T.DataType:
    try:
        return parse_stored_type(field.type)
    except InvalidSchema as error:
        import pyspark

        raise InvalidSchema(
            f"The column {field.name!r} is of type {field.type}, which this Spark, {pyspark.__version__}, does not"
            " know.",
            hint="Collated strings and variants came with Spark 4.0, times of day with 4.1: use a Spark that has it. "
            "The fields of a struct need names of letters, digits and _.",
        ) from error


def column_types(fields: Iterable[Field]) -> dict[str, str]:
    """Return column -> its Spark type, as text."""
    return {field.name: field.type for field in fields}


def column(name: str) -> Column:
    """Return the column of that name, whatever characters it holds."""
    return F.col(quote(name))


def select_columns(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return rows with the columns of these names, whatever characters they hold.

    As texts: a column made in Python takes twice the calls to the JVM, which a short query feels.
    """
    return rows.select(*map(quote, names))


def arrange_columns(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return rows with these columns, without another analysis by Spark where they have just these already."""
    return rows if rows.columns == list(names) else select_columns(rows, names)


def table_fields(
    schema: T.StructType | str, required: Sequence[str], check_name: Callable[[str], str] | None = None
) -> tuple[Field, ...]:
    """Return the fields of a table from a StructType or a DDL string; the columns in ``required`` take no null.

    :param check_name: of a column; by default that of a column of a table of our own.
    :raises InvalidSchema: if there is no column, two share a name (case aside), or a type cannot be stored.
    :raises InvalidName: if a name cannot be used.
    """
    struct = parse_ddl(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, T.StructType) or not struct.fields:
        raise InvalidSchema(f"{schema!r} names no columns.", hint="Give a StructType, or text as 'id bigint'.")
    seen: dict[str, str] = {}
    for field in struct.fields:
        (check_name or check_column_name)(field.name)
        if field.name.lower() in seen:
            raise InvalidSchema(
                f"The columns {seen[field.name.lower()]!r} and {field.name!r} differ in case only.",
                hint="Spark cannot distinguish them; rename one.",
            )
        seen[field.name.lower()] = field.name
        if isinstance(field.dataType, T.NullType):
            raise InvalidSchema(f"The column {field.name!r} has no type.", hint="Cast it in the schema.")
    return tuple(Field(f.name, f.dataType.simpleString(), f.nullable and f.name not in required) for f in struct.fields)


def resolve(names: Iterable[str], known: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the table's own spelling of column names.

    :param known: the names that there are. :param what: who asks, for the message.
    :raises UnknownColumn: naming the column and those there are.
    :raises InvalidInput: if one is named twice.
    """
    by_lower = {name.lower(): name for name in known}
    resolved: list[str] = []
    for name in names:
        table_name = by_lower.get(name.lower()) if isinstance(name, str) else None
        if table_name is None:
            raise UnknownColumn(
                f"{what} names the column {name!r}, which the table lacks.",
                hint=f"Its columns are: {', '.join(by_lower.values())}.",
            )
        if table_name in resolved:
            raise InvalidInput(f"{what} names the column {table_name!r} twice.", hint="Name it once.")
        resolved.append(table_name)
    return tuple(resolved)


def check_key_types(schema: T.StructType, names: Sequence[str], what: str, floating: bool = False) -> None:
    """Refuse types whose values have no one spelling, order or hash.

    :param floating: whether floats and doubles are allowed, of which NaN equals NaN, and -0.0 equals 0.0.
    :raises InvalidSchema: naming the column.
    """
    allowed = (*_integer_digits(), T.StringType, T.BooleanType, T.DecimalType, T.DateType, T.TimestampType,
               T.TimestampNTZType, T.BinaryType, *((T.FloatType, T.DoubleType) if floating else ()))  # fmt: skip
    _check_types(schema, names, what, allowed)


def check_partition_types(schema: T.StructType, names: Sequence[str]) -> None:
    """Refuse types whose text depends on the session, so that a path would.

    :raises InvalidSchema: naming the column.
    """
    _check_types(schema, names, "partition_by", (*_integer_digits(), T.StringType, T.BooleanType, T.DateType))


def _check_types(schema: T.StructType, names: Sequence[str], what: str, allowed: tuple[Any, ...]) -> None:
    for name in names:
        kind = schema[name].dataType
        if not isinstance(kind, allowed) or getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY":
            raise InvalidSchema(
                f"{what} names the column {name!r} of type {kind.simpleString()}, which cannot be used there.",
                hint="Allowed: " + ", ".join(sorted(t.typeName() for t in allowed)) + ".",
            )


def conform_batch(batch: DataFrame, schema: T.StructType, only: Sequence[str] | None = None) -> DataFrame:
    """Return the batch with the columns of ``schema`` (or ``only`` some of them) in its order and types.

    With ``only``, other columns of the batch are ignored; else they are refused. A null in a column that
    takes none makes the Spark job fail with :data:`NULL_MARK`.

    :raises InvalidSchema: naming the columns that are missing, too many, or of another type.
    """
    target = [field for field in schema.fields if only is None or field.name in only]
    batch_fields: dict[str, T.StructField] = {}
    for field in batch.schema.fields:
        if field.name.lower() in batch_fields:
            raise InvalidSchema(f"The batch has the column {field.name!r} twice (case aside).", hint="Rename one.")
        batch_fields[field.name.lower()] = field
    missing = [field.name for field in target if field.name.lower() not in batch_fields]
    table_columns = {field.name.lower() for field in schema.fields}
    extra = [field.name for low, field in batch_fields.items() if low not in table_columns] if only is None else []
    if missing or extra:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        raise InvalidSchema(
            "The batch does not have the table's columns"
            + (f"; it lacks {_join_names(missing)}" if missing else "")
            + (f"; the table lacks {_join_names(extra)}" if extra else "")
            + ".",
            hint=f"The table's columns are: {columns}.",
        )
    return batch.select(*[_conform_column(batch_fields[field.name.lower()], field) for field in target])


def _conform_column(batch_field: T.StructField, table_field: T.StructField) -> Column:
    value = column(batch_field.name)
    if _type_text(batch_field.dataType) != _type_text(table_field.dataType):
        if not _can_widen(batch_field.dataType, table_field.dataType):
            raise InvalidSchema(
                f"The column {table_field.name!r} of the batch is {batch_field.dataType.simpleString()}, "
                f"but the table's is {table_field.dataType.simpleString()}.",
                hint=f"Cast it: df.withColumn({table_field.name!r}, col({table_field.name!r}).cast("
                f"{table_field.dataType.simpleString()!r})).",
            )
        value = value.cast(table_field.dataType)
    if not table_field.nullable:
        value = F.coalesce(value, F.raise_error(F.lit(f"{NULL_MARK} {table_field.name}")).cast(table_field.dataType))
    return value.alias(table_field.name)


def _type_text(kind: T.DataType) -> str:
    return kind.simpleString()


def _can_widen(source: T.DataType, target: T.DataType) -> bool:
    if isinstance(source, T.NullType):
        return True
    digits = _integer_digits()
    if type(source) in digits and type(target) in digits:
        return digits[type(source)] <= digits[type(target)]
    if isinstance(target, T.DecimalType):
        if isinstance(source, T.DecimalType):
            return source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale
        return type(source) in digits and digits[type(source)] <= target.precision - target.scale
    if isinstance(target, T.DoubleType):
        return isinstance(source, (T.FloatType, T.ByteType, T.ShortType, T.IntegerType))
    return False


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


# --- The width of columns ---------------------------------------------------------------------------------------------


_WIDTHS = {
    "boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "date": 4,
    "timestamp": 8, "timestamp_ntz": 8, "decimal": 8, "string": 20, "binary": 40,
}  # fmt: skip
_NESTED = 60


def column_share(fields: Iterable[Field], columns: Collection[str]) -> float:
    """Return the part of a columnar file's bytes that some of its columns take, from 0 to 1.

    One column at least is read, be it to count rows.
    """
    widths = {field.name: _WIDTHS.get(parse_type(field.type).kind, _NESTED) for field in fields}
    if not widths:
        return 1.0
    selected = sum(width for name, width in widths.items() if name in columns) or min(widths.values())
    return selected / sum(widths.values())
