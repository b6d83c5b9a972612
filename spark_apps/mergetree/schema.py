"""Schemas: Spark types as text and back, what a table's columns may be, and whether a batch fits the table.

A batch is taken by column names (case does not matter), never by position. A type is accepted if it is the
table's, or if every one of its values is a value of the table's type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.mergetree.type_text import type_of
from spark_apps.storage.errors import InvalidInput, InvalidSchema, UnknownColumn
from spark_apps.storage.names import check_column_name
from spark_apps.timeline.model import Field

NULL_MARK = "[null in a required column]"
"""Begins the message that Spark raises for a null where the table takes none; the write looks for it."""

# A quoted name, or the type's name where it is not that of a nested field.
_TIMESTAMP = re.compile(r"`(?:[^`]|``)*`|\btimestamp\b(?!\s*:)", re.IGNORECASE)

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_INTEGER_DIGITS = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_KEY_TYPES = (*_INTEGERS, T.StringType, T.BooleanType, T.DecimalType, T.DateType, T.TimestampType,
              T.TimestampNTZType, T.BinaryType)  # fmt: skip
_PARTITION_TYPES = (*_INTEGERS, T.StringType, T.BooleanType, T.DateType)


def parse_type(text: str) -> T.DataType:
    """A Spark type from its text; a list of columns gives a struct. Needs a running session.

    :raises InvalidSchema: if Spark cannot parse it.
    """
    from pyspark.errors import PySparkException

    try:
        if hasattr(T.DataType, "fromDDL"):
            return T.DataType.fromDDL(text)
        return T._parse_datatype_string(text)  # the only way before Spark 4
    except PySparkException as error:
        raise InvalidSchema(
            f"{text!r} is not a schema that Spark can read.", hint="Write it as in 'id bigint, name string'."
        ) from error


def parse_stored_type(text: str) -> T.DataType:
    """The type of a text that was written down: a timestamp in it has a zone, whatever a session takes the word for.

    :raises InvalidSchema: if Spark cannot parse it.
    """
    zoned = _TIMESTAMP.sub(lambda found: found[0] if found[0].startswith("`") else "timestamp_ltz", text)
    return type_of(text) or parse_type(zoned)


@lru_cache(maxsize=256)
def struct_type(fields: tuple[Field, ...]) -> T.StructType:
    """The Spark schema of a table's fields."""
    types = [parse_stored_type(field.type) for field in fields]
    return T.StructType([T.StructField(f.name, kind, f.nullable) for f, kind in zip(fields, types, strict=True)])


def quote(name: str) -> str:
    """A column name as Spark SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """The column of that name, whatever characters it holds."""
    return F.col(quote(name))


def chosen(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Rows with the columns of these names, whatever characters they hold.

    As texts: a column made in Python takes twice the calls to the JVM, which a short query feels.
    """
    return rows.select(*map(quote, names))


def arranged(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """As :func:`chosen`, but without another analysis by Spark where the rows have just these columns already."""
    return rows if rows.columns == list(names) else chosen(rows, names)


def table_fields(schema: T.StructType | str, required: Sequence[str]) -> tuple[Field, ...]:
    """The fields of a table from a StructType or a DDL string; the columns in ``required`` take no null.

    :raises InvalidSchema: if there is no column, two share a name (case aside), or a type cannot be stored.
    :raises InvalidName: if a name cannot be used.
    """
    struct = parse_type(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, T.StructType) or not struct.fields:
        raise InvalidSchema(f"{schema!r} names no columns.", hint="Give a StructType, or text as 'id bigint'.")
    seen: dict[str, str] = {}
    for field in struct.fields:
        check_column_name(field.name)
        if field.name.lower() in seen:
            raise InvalidSchema(
                f"The columns {seen[field.name.lower()]!r} and {field.name!r} differ in case only.",
                hint="Spark cannot tell them apart; rename one.",
            )
        seen[field.name.lower()] = field.name
        if isinstance(field.dataType, T.NullType):
            raise InvalidSchema(f"The column {field.name!r} has no type.", hint="Cast it in the schema.")
    return tuple(Field(f.name, f.dataType.simpleString(), f.nullable and f.name not in required) for f in struct.fields)


def resolve(names: Iterable[str], known: Iterable[str], what: str) -> tuple[str, ...]:
    """The table's own spelling of column names.

    :raises UnknownColumn: naming the column and those there are.
    :raises InvalidInput: if one is named twice.
    """
    by_lower = {name.lower(): name for name in known}
    found: list[str] = []
    for name in names:
        own = by_lower.get(name.lower()) if isinstance(name, str) else None
        if own is None:
            raise UnknownColumn(
                f"{what} names the column {name!r}, which the table lacks.",
                hint=f"Its columns are: {', '.join(by_lower.values())}.",
            )
        if own in found:
            raise InvalidInput(f"{what} names the column {own!r} twice.", hint="Name it once.")
        found.append(own)
    return tuple(found)


def check_key_types(schema: T.StructType, names: Sequence[str], what: str) -> None:
    """Refuses types whose values have no one spelling, order or hash. :raises InvalidSchema: naming the
    column."""
    _check_types(schema, names, what, _KEY_TYPES)


def check_partition_types(schema: T.StructType, names: Sequence[str]) -> None:
    """Refuses types whose text depends on the session, so that a path would. :raises InvalidSchema: naming
    the column."""
    _check_types(schema, names, "partition_by", _PARTITION_TYPES)


def _check_types(schema: T.StructType, names: Sequence[str], what: str, allowed: tuple[Any, ...]) -> None:
    for name in names:
        kind = schema[name].dataType
        if not isinstance(kind, allowed) or getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY":
            raise InvalidSchema(
                f"{what} names the column {name!r} of type {kind.simpleString()}, which cannot be used there.",
                hint="Allowed: " + ", ".join(sorted(t.typeName() for t in allowed)) + ".",
            )


def conform(batch: DataFrame, schema: T.StructType, only: Sequence[str] | None = None) -> DataFrame:
    """The batch with the columns of ``schema`` (or ``only`` some of them) in its order and types.

    With ``only``, other columns of the batch are ignored; else they are refused. A null in a column that
    takes none makes the Spark job fail with :data:`NULL_MARK`.

    :raises InvalidSchema: naming the columns that are missing, too many, or of another type.
    """
    wanted = [field for field in schema.fields if only is None or field.name in only]
    given: dict[str, T.StructField] = {}
    for field in batch.schema.fields:
        if field.name.lower() in given:
            raise InvalidSchema(f"The batch has the column {field.name!r} twice (case aside).", hint="Rename one.")
        given[field.name.lower()] = field
    missing = [field.name for field in wanted if field.name.lower() not in given]
    known = {field.name.lower() for field in schema.fields}
    extra = [field.name for low, field in given.items() if low not in known] if only is None else []
    if missing or extra:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        raise InvalidSchema(
            "The batch does not have the table's columns"
            + (f"; it lacks {_listed(missing)}" if missing else "")
            + (f"; the table lacks {_listed(extra)}" if extra else "")
            + ".",
            hint=f"The table's columns are: {columns}.",
        )
    return batch.select(*[_conformed(given[field.name.lower()], field) for field in wanted])


def _conformed(given: T.StructField, wanted: T.StructField) -> Column:
    value = column(given.name)
    if _plain(given.dataType) != _plain(wanted.dataType):
        if not _widens(given.dataType, wanted.dataType):
            raise InvalidSchema(
                f"The column {wanted.name!r} of the batch is {given.dataType.simpleString()}, "
                f"but the table's is {wanted.dataType.simpleString()}.",
                hint=f"Cast it: df.withColumn({wanted.name!r}, col({wanted.name!r}).cast("
                f"{wanted.dataType.simpleString()!r})).",
            )
        value = value.cast(wanted.dataType)
    if not wanted.nullable:
        value = F.coalesce(value, F.raise_error(F.lit(f"{NULL_MARK} {wanted.name}")).cast(wanted.dataType))
    return value.alias(wanted.name)


def _plain(kind: T.DataType) -> str:
    return kind.simpleString()


def _widens(given: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(given, T.NullType):
        return True
    if isinstance(given, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(given)) <= _INTEGERS.index(type(wanted))
    if isinstance(wanted, T.DecimalType):
        if isinstance(given, T.DecimalType):
            return given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale
        return isinstance(given, _INTEGERS) and _INTEGER_DIGITS[type(given)] <= wanted.precision - wanted.scale
    if isinstance(wanted, T.DoubleType):
        return isinstance(given, (T.FloatType, T.ByteType, T.ShortType, T.IntegerType))
    return False


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
