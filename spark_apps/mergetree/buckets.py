"""Partition and file group of a row as Spark columns: the partition's number, and the bucket by its count.

Few partitions are distinguished by comparisons inside the generated code, many by a broadcast join; both compare with
null, and neither makes a path of a value.

The bucket is the twin of :mod:`spark_apps.layout.hashing`, in native expressions only. Both sides must agree for every
value; the tests compare them over generated keys of every type. A user's function is tried on some values when a table
is made with it.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from spark_apps.engine.pyspark_names import Column, DataFrame, F, SparkSession, T, spark_errors
from spark_apps.engine.spark_utils import inline
from spark_apps.engine.spark_versions import message_of
from spark_apps.layout import hashing
from spark_apps.layout.hash_functions import FUNCTIONS
from spark_apps.layout.hashing import (
    DEFAULT_HASH,
    SPARK_BUCKETS,
    bucket_id,
    check_bucket_count,
    check_hash_types,
    on_driver,
)
from spark_apps.layout.partitions import canonical_string
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.schema import column, parse_stored_type, quote
from spark_apps.mergetree.tree import GROUP_ID, Tree
from spark_apps.storage.errors import InvalidInput, InvalidRule

PART = "__index_part"
GROUP = "__index_bucket"
UNKNOWN_PARTITION = "[row of an unknown partition]"

_COUNT = "__index_count"
# Above these a broadcast join finds a row's partition faster than a chain of comparisons, and the generated code of a
# longer chain of texts would be too large for Java to compile.
_MAX_TEXT_CASES = 16
_MAX_TYPED_CASES = 32
# Types whose values and their texts correspond one to one, so that values are compared and no text is made of each.


@dataclass(frozen=True)
class Target:
    """A partition that rows are written into.

    Its path, its columns' values as text, its bucket count (``None`` where rows bring the id of their file group).
    """

    path: str
    values: tuple[str | None, ...]
    buckets: int | None


def single_target(buckets: int) -> tuple[Target, ...]:
    """Return the one partition of a tree that has no partition columns."""
    return (Target("", (), buckets),)


def partition_number(tree: Tree, values: Sequence[Sequence[str | None]], otherwise: Column) -> Column | None:
    """Return a column with the index in ``values`` of a row's partition.

    It is ``otherwise`` for a partition that is not there. ``None`` where there are too many of them to compare with one
    by one.

    :param tree: with partition columns.
    :param values: of the partition columns, as text.
    """
    exact = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.BooleanType)
    is_exact = [isinstance(tree.field(name).dataType, exact) for name in tree.partition_by]
    if len(values) > (_MAX_TYPED_CASES if all(is_exact) else _MAX_TEXT_CASES):
        return None

    def has_value(name: str, typed: bool, value: str | None) -> Column:
        if typed:
            return column(name).eqNullSafe(F.lit(value).cast(tree.field(name).dataType))
        return column(name).cast("string").eqNullSafe(F.lit(value))

    number = otherwise
    for index, texts in enumerate(values):
        conditions = [has_value(*column_value) for column_value in zip(tree.partition_by, is_exact, texts, strict=True)]
        number = F.when(reduce(Column.__and__, conditions), index).otherwise(number)
    return number


def value_texts(tree: Tree) -> dict[str, Column]:
    """Return the values of a row's partition columns as text, each with a name that no column has."""
    return {f"__index_v{number}": column(name).cast("string") for number, name in enumerate(tree.partition_by)}


def partition_condition(tree: Tree, partitions: DataFrame) -> Column:
    """Return the condition that a row is of the partition that a row of ``partitions`` names.

    That frame has the columns of :func:`value_texts`.
    """
    return reduce(Column.__and__, [text.eqNullSafe(partitions[name]) for name, text in value_texts(tree).items()])


def assign_file_groups(
    rows: DataFrame, tree: Tree, targets: Sequence[Target], unknown_rows: Literal["refuse", "drop"]
) -> DataFrame:
    """Add the number of a row's partition among the targets, :data:`PART`, and its file group, :data:`GROUP`."""
    types = [tree.type_of(name) for name in tree.hash_fields]

    def bucket(count: int | Column | None) -> Column:
        if tree.by_id:
            return F.col(GROUP_ID)
        assert count is not None
        return bucket_column(tree.hash_fields, count, tree.hash_function, types)

    if not tree.partition_by:
        return rows.withColumns({PART: F.lit(0), GROUP: bucket(targets[0].buckets)})
    refuse = unknown_rows == "refuse"
    unknown = (F.raise_error(F.lit(UNKNOWN_PARTITION)) if refuse else F.lit(None)).cast("int")
    number = partition_number(tree, [target.values for target in targets], unknown)
    if number is not None:
        numbered = rows.withColumn(PART, number)
        numbered = numbered if refuse else numbered.where(F.col(PART).isNotNull())
        return numbered.withColumn(GROUP, bucket(_bucket_count(targets)))
    names = list(value_texts(tree))
    ddl = ", ".join([f"{PART} int", f"{_COUNT} int", *(f"{name} string" for name in names)])
    partitions = inline(rows.sparkSession, [(n, t.buckets, *t.values) for n, t in enumerate(targets)], ddl)
    joined = rows.join(F.broadcast(partitions), partition_condition(tree, partitions), "left" if refuse else "inner")
    return (
        joined.withColumn(PART, F.coalesce(F.col(PART), unknown))
        .withColumn(GROUP, bucket(F.col(_COUNT)))
        .drop(_COUNT, *names)
    )


def _bucket_count(targets: Sequence[Target]) -> int | Column | None:
    """Return the bucket count of the partition whose number :data:`PART` holds."""
    counts = [target.buckets for target in targets]
    if len(set(counts)) == 1:
        return counts[0]
    return F.get(F.array(*map(F.lit, counts)), F.col(PART))


# From the fields, their types if known, and the count (bigint) to a bucket.


# --- buckets ----------------------------------------------------------------------------------------------------------


BucketExpression = Callable[[Sequence[Column], Sequence[str] | None, Column], Column]

_INT32 = 0xFFFFFFFF


def bucket_column(
    hash_fields: Sequence[str | Column],
    count: int | Column,
    hash_function: str = DEFAULT_HASH,
    types: Sequence[str] | None = None,
) -> Column:
    """Return the bucket of each row, an int from 0 to ``count`` - 1.

    ::

        rows.withColumn("bucket", bucket_column(["id"], 16, types=["bigint"]))

    :param hash_fields: names (taken literally, a dot is part of the name) or columns, in the table's order.
    :param count: one count, or a column that holds the count of each row's partition.
    :param hash_function: ``xxhash64``, ``java``, ``sql:…`` (over fields given by name), or a user's class.
    :param types: the table's types of the fields; they are cast to them first, a ``timestamp`` to one with a zone in
        any session. ``java`` needs them, for the string of a value depends on its type.
    :raises InvalidRule: for a bad count or an unknown function.
    :raises InvalidSchema: for fields of a type that the function cannot hash.
    """
    if not hash_fields:
        raise InvalidInput("No hash fields were given.", hint="Name at least one field of the record key.")
    fields = [field if isinstance(field, Column) else column(field) for field in hash_fields]
    number = (count if isinstance(count, Column) else F.lit(check_bucket_count(count))).cast("bigint")
    if types is not None:
        check_hash_types(types, hash_function)
        fields = [field.cast(parse_stored_type(name)) for field, name in zip(fields, types, strict=True)]
    if hash_function in _EXPRESSIONS:
        return _EXPRESSIONS[hash_function](fields, types, number).cast("int")
    if hash_function.startswith(hashing.SQL):
        return _sql_bucket(hash_fields, types, hash_function, number).cast("int")
    if hash_function.startswith(hashing.RANGES):
        return _by_ranges(fields, types, hash_function, number).cast("int")
    user_bucket = F.coalesce(
        FUNCTIONS.find(hash_function).column(fields, list(types or []), number).cast("int"), F.lit(0)
    )
    out_of_range = F.raise_error(F.lit(f"the hash function {hash_function} gave no bucket below the count")).cast("int")
    checked = F.when((user_bucket >= 0) & (user_bucket < number), user_bucket).otherwise(out_of_range)
    return F.when(number.isNotNull(), checked)


def _sql_bucket(fields: Sequence[str | Column], types: Sequence[str] | None, function: str, count: Column) -> Column:
    """Return the bucket by a SQL expression.

    It gives any integer, which is reduced as xxhash64 is; null counts as 0.
    """
    names = [field for field in fields if isinstance(field, str)]
    if types is None or len(names) < len(fields):
        raise InvalidInput("A SQL hash function needs its fields by name, and their types.", hint="Give both.")
    columns = {name: f"cast({quote(name)} as {kind})" for name, kind in zip(names, types, strict=True)}
    hashed = F.expr(hashing.rendered_sql_hash(function, columns)).cast("bigint")
    return F.pmod(F.coalesce(hashed, F.lit(0).cast("bigint")), count)


def _by_ranges(fields: Sequence[Column], types: Sequence[str] | None, function: str, count: Column) -> Column:
    """Search the bounds in halves, so that a row is compared with few of them."""
    if types is None:
        raise InvalidInput("Ranges need the types of their fields.", hint="Give types=[…].")
    kind = parse_type(types[0])
    bounds = [_bound_column(bound, kind) for bound in hashing.range_bounds(function, types[0])]

    def search(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high) // 2
        # So that null, which is not above anything, comes into the first.
        return F.when(fields[0] >= bounds[middle], search(middle + 1, high)).otherwise(search(low, middle))

    return F.least(search(0, len(bounds)), count - 1)


def _bound_column(value: Any, kind: ColumnType) -> Column:
    text = canonical_string(value, kind)
    # Written in UTC, whatever the session's time zone.
    return F.lit(f"{text}Z" if kind.kind == "timestamp" else text).cast(parse_stored_type(kind.text))


def compute_buckets(
    spark: SparkSession,
    fields: Mapping[str, str],
    keys: Collection[Sequence[Any]],
    count: int,
    hash_function: str = DEFAULT_HASH,
) -> list[int]:
    """Return the buckets of keys, in their order.

    On the driver where the function has a twin there, else by a Spark job.

    ::

        compute_buckets(spark, {"id": "bigint"}, [(1,), (2,)], 16)

    :param fields: hash field -> its Spark type; a key has a value for each.
    """
    if is_computable(hash_function, keys):
        return [bucket_id(key, count, hash_function, list(fields.values())) for key in keys]
    return _by_spark(spark, fields, keys, count, hash_function)


def is_computable(hash_function: str, keys: Collection[Sequence[Any]]) -> bool:
    """Test whether :func:`compute_buckets` needs no Spark for these keys."""
    # A class need not know of nulls, which no key of a table has; a predicate may ask for one.
    nulls = hash_function not in _EXPRESSIONS and any(value is None for key in keys for value in key)
    return on_driver(hash_function) and not nulls


def _by_spark(
    spark: SparkSession, fields: Mapping[str, str], keys: Collection[Sequence[Any]], count: int, function: str
) -> list[int]:
    order = "__index_order"
    schema = T.StructType([T.StructField(name, parse_stored_type(kind)) for name, kind in fields.items()])
    schema = schema.add(order, T.IntegerType())
    rows = spark.createDataFrame([(*key, number) for number, key in enumerate(keys)], schema)
    bucket = bucket_column(list(fields), count, function, list(fields.values()))
    return [row[1] for row in sorted(rows.select(order, bucket).collect())]


_SAMPLES: dict[str, tuple[Any, ...]] = {
    "string": ("", "a", "k1", "0", "-17", "9" * 19, "2024-02-29", "é", "\U0001f600", " x ", "A" * 40),
    "binary": (b"", b"a", bytes(range(256))),
    "boolean": (True, False),
    "date": (dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=dt.UTC)),
    "timestamp_ntz": (dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 23, 59, 59, 999999)),
    "decimal": (decimal.Decimal(0),),
    **dict.fromkeys(("float", "double"), (0.0, 1.5, -2.0)),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (0, 1, -1, 17, 100, 127, -128)),
}
_SAMPLE_BUCKETS = 97


def check_user_function(spark: SparkSession, fields: Mapping[str, str], hash_function: str) -> None:
    """Try a user's function on some values, twice.

    It must give an integer, the same each time, in range, and on the driver what Spark gives. Built-in functions are
    not tried.

    :raises InvalidRule: naming what it gave.
    """
    if hash_function in _EXPRESSIONS:
        return
    values = [_SAMPLES.get(parse_type(kind).kind, (None,)) for kind in fields.values()]
    longest = max(map(len, values))
    keys = [tuple(samples[n % len(samples)] for samples in values) for n in range(longest)]
    try:
        _check_integer(spark, fields, hash_function)
        first_buckets, second_buckets = (
            _by_spark(spark, fields, keys, _SAMPLE_BUCKETS, hash_function) for _ in range(2)
        )
    except spark_errors() as error:
        raise InvalidRule(
            f"The hash function {hash_function!r} cannot be computed: {message_of(error)}",
            hint="It is tried on values such as '', 'a', 0 and -1: use try_cast where a value may not fit.",
        ) from error
    driver_buckets = (
        compute_buckets(spark, fields, keys, _SAMPLE_BUCKETS, hash_function)
        if on_driver(hash_function)
        else first_buckets
    )
    for key, one, two, on_driver_bucket in zip(keys, first_buckets, second_buckets, driver_buckets, strict=True):
        if not one == two == on_driver_bucket:
            raise InvalidRule(
                f"The hash function {hash_function!r} gives {key!r} the buckets {one} and {two} in Spark and "
                f"{on_driver_bucket} on the driver, of {_SAMPLE_BUCKETS}.",
                hint="A hash function must give the same bucket always and everywhere.",
            )


def _check_integer(spark: SparkSession, fields: Mapping[str, str], hash_function: str) -> None:
    if not hash_function.startswith(hashing.SQL):
        return
    schema = T.StructType([T.StructField(name, parse_stored_type(kind)) for name, kind in fields.items()])
    columns = {name: quote(name) for name in fields}
    hashed = spark.createDataFrame([], schema).select(F.expr(hashing.rendered_sql_hash(hash_function, columns)))
    kind = hashed.schema[0].dataType
    if not isinstance(kind, T.IntegralType):
        raise InvalidRule(
            f"The hash function {hash_function!r} gives a {kind.simpleString()}, not an integer.",
            hint="Wrap it in a hash, such as crc32(…), or cast it to bigint.",
        )


def _xxhash64(fields: Sequence[Column], types: Sequence[str] | None, count: Column) -> Column:
    return F.pmod(F.xxhash64(*fields), count)


def _murmur3(fields: Sequence[Column], types: Sequence[str] | None, count: Column) -> Column:
    return F.pmod(F.hash(*fields), count)


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
    """Return ``String.hashCode()`` as an unsigned 32-bit number in a bigint; null for null.

    A character beyond the Basic Multilingual Plane counts as its two UTF-16 code units.
    """

    def step(hashed: Column, character: Column) -> Column:
        point = F.ascii(character).cast("bigint")
        high = F.lit(0xD7C0) + F.shiftright(point, 10)
        low = F.lit(0xDC00) + point.bitwiseAND(F.lit(0x3FF))
        pair = (hashed * 31 + high) * 31 + low
        return F.when(point < 0x10000, hashed * 31 + point).otherwise(pair).bitwiseAND(F.lit(_INT32))

    return F.aggregate(F.split(text, ""), F.lit(0).cast("bigint"), step)


_EXPRESSIONS: dict[str, BucketExpression] = {"xxhash64": _xxhash64, "java": _java, SPARK_BUCKETS: _murmur3}
