"""The bucket of a row as a Spark column: the twin of ``spark_apps.layout.hashing``, in native expressions only.

Both sides must agree for every value; the tests compare them over generated keys of every type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_apps.layout.hashing import DEFAULT_HASH, check_bucket_count, check_hash_types
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidInput, InvalidRule

# From the fields, their types if known, and the count (bigint) to a bucket.
BucketExpression = Callable[[Sequence[Column], Sequence[str] | None, Column], Column]

_INT32 = 0xFFFFFFFF


def bucket_column(
    hash_fields: Sequence[str | Column],
    count: int | Column,
    hash_function: str = DEFAULT_HASH,
    types: Sequence[str] | None = None,
) -> Column:
    """The bucket of each row, an int from 0 to ``count`` - 1.

    :param hash_fields: names (taken literally, a dot is part of the name) or columns, in the table's order.
    :param count: one count, or a column that holds the count of each row's partition.
    :param hash_function: ``xxhash64``, ``java`` or a registered one.
    :param types: the table's types of the fields; they are cast to them first. ``java`` needs them, for the
        string of a value depends on its type.
    :raises InvalidRule: for a bad count or an unknown function.
    :raises InvalidSchema: for fields of a type that the function cannot place.
    """
    if not hash_fields:
        raise InvalidInput("No hash fields were given.", hint="Name at least one field of the record key.")
    fields = [field if isinstance(field, Column) else F.col(quoted(field)) for field in hash_fields]
    if types is not None:
        check_hash_types(types, hash_function)
        fields = [field.cast(name) for field, name in zip(fields, types, strict=True)]
    number = count if isinstance(count, Column) else F.lit(check_bucket_count(count))
    try:
        expression = _EXPRESSIONS[hash_function]
    except KeyError:
        raise InvalidRule(
            f"There is no hash function named {hash_function!r} for Spark.",
            hint=f"Known are: {', '.join(sorted(_EXPRESSIONS))}.",
        ) from None
    return expression(fields, types, number.cast("bigint")).cast("int")


def register_bucket_expression(name: str, expression: BucketExpression) -> None:
    """Add the Spark twin of a function registered with ``hashing.register_hash_function``.

    :raises InvalidRule: when the name is taken.
    """
    if _EXPRESSIONS.setdefault(name, expression) is not expression:
        raise InvalidRule(f"The hash function {name!r} exists already.", hint="Choose another name.")


def quoted(name: str) -> str:
    """A column name as one identifier, whatever stands in it."""
    return "`" + name.replace("`", "``") + "`"


def _xxhash64(fields: Sequence[Column], types: Sequence[str] | None, count: Column) -> Column:
    return F.pmod(F.xxhash64(*fields), count)


def _java(fields: Sequence[Column], types: Sequence[str] | None, count: Column) -> Column:
    if types is None:
        raise InvalidInput(
            "The java hash was asked for without the types of the hash fields.",
            hint="Give types=[...]: the hash is that of the values' strings, which depend on the type.",
        )
    hashed = F.lit(1).cast("bigint")
    for field, name in zip(fields, types, strict=True):
        hashed = (hashed * 31 + F.coalesce(_java_hash(_java_string(field, name)), F.lit(0))).bitwiseAND(F.lit(_INT32))
    return hashed.bitwiseAND(F.lit(0x7FFFFFFF)) % count


def _java_string(field: Column, name: str) -> Column:
    match parse_type(name).kind:
        case "timestamp":
            return F.unix_micros(field).cast("string")
        case "timestamp_ntz":
            # Its microseconds as if they were UTC's, which is what Spark stores; no session time zone comes
            # in.
            return _ntz_micros(field).cast("string")
    return field.cast("string")


def _ntz_micros(field: Column) -> Column:
    day = F.datediff(field.cast("date"), F.lit("1970-01-01").cast("date")).cast("bigint")
    whole = (day * 24 + F.hour(field)) * 60 + F.minute(field)
    second = F.date_format(field, "s").cast("bigint")
    return (whole * 60 + second) * 1_000_000 + F.date_format(field, "SSSSSS").cast("bigint")


def _java_hash(text: Column) -> Column:
    """``String.hashCode()`` as an unsigned 32-bit number in a bigint; null for null.

    A character beyond the Basic Multilingual Plane counts as its two UTF-16 code units.
    """

    def step(hashed: Column, character: Column) -> Column:
        point = F.ascii(character).cast("bigint")
        high = F.lit(0xD7C0) + F.shiftright(point, 10)
        low = F.lit(0xDC00) + point.bitwiseAND(F.lit(0x3FF))
        pair = (hashed * 31 + high) * 31 + low
        return F.when(point < 0x10000, hashed * 31 + point).otherwise(pair).bitwiseAND(F.lit(_INT32))

    return F.aggregate(F.split(text, ""), F.lit(0).cast("bigint"), step)


_EXPRESSIONS: dict[str, BucketExpression] = {"xxhash64": _xxhash64, "java": _java}
