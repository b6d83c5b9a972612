"""Buckets of the driver against buckets of Spark, over generated values of every type, in one Spark job."""

from __future__ import annotations

import datetime as dt
import random
import struct
import zlib
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.layout import hash_functions, hashing
from spark_apps.layout.hash_functions import HashFunction
from spark_apps.layout.hashing import SPARK_BUCKETS, bucket_id
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.buckets import bucket_column, check_user_function, compute_buckets
from spark_apps.storage.errors import InvalidInput, InvalidRule, InvalidSchema
from tests.spark.local import session_with

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8, together=99, first=2)]

ROWS = 400
COUNT = 9973
ZONE = "spark.sql.session.timeZone"
RANGED = 3
ODD_TEXT = [
    "",
    "a",
    "\x00",
    "é",
    "e\u0301",
    "\uffff",
    "\U0001f600",
    "a\U00010000b",
    "\U0010ffff",
    "日本",
    "'\"`\\",
]
JAVA = ["s", "i8", "i16", "i32", "i64", "flag", "day", "at", "local", "small", "plain"]
TYPES = {
    "s": "string",
    "i8": "tinyint",
    "i16": "smallint",
    "i32": "int",
    "i64": "bigint",
    "flag": "boolean",
    "f32": "float",
    "f64": "double",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "small": "decimal(10,2)",
    "plain": "decimal(38,6)",
    "wide": "decimal(38,20)",
    "b": "binary",
}
EXACT = [name for name in TYPES if name not in ("f32", "f64")]
"""Columns of types that an index can be laid by."""


def text(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(ODD_TEXT)
    letters = [
        chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
        for _ in range(rng.randrange(40))
    ]
    return "".join(letters)


def integer(rng: random.Random, bits: int) -> int:
    half = 1 << (bits - 1)
    return rng.choice([0, -1, 1, half - 1, -half, rng.randrange(-half, half)])


def single(rng: random.Random) -> float:
    while True:
        number = struct.unpack("<f", rng.randbytes(4))[0]
        if abs(number) < 3.4e38:
            return rng.choice([number, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5])


def double(rng: random.Random) -> float:
    number = struct.unpack("<d", rng.randbytes(8))[0]
    return rng.choice([number, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5])


def moment(rng: random.Random) -> dt.datetime:
    seconds = rng.choice([0, -1, rng.randrange(-(10**9), 4 * 10**9), rng.randrange(-62135596800, 253402300800)])
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds, microseconds=rng.choice([0, 1, 999999]))


def number(rng: random.Random, precision: int, scale: int) -> Decimal:
    digits = rng.choice(
        [0, 1, -1, 10**precision - 1, 1 - 10**precision, rng.randrange(10 ** rng.randrange(1, precision))]
    )
    return Decimal(digits).scaleb(-scale)


def row(rng: random.Random) -> list[object]:
    values = {
        "s": text(rng),
        "i8": integer(rng, 8),
        "i16": integer(rng, 16),
        "i32": integer(rng, 32),
        "i64": integer(rng, 64),
        "flag": rng.random() < 0.5,
        "f32": single(rng),
        "f64": double(rng),
        "day": moment(rng).date(),
        "at": moment(rng).replace(tzinfo=dt.UTC),
        "local": moment(rng),
        "small": number(rng, 10, 2),
        "plain": number(rng, 20, 6),
        "wide": number(rng, 28, 20),
        "b": rng.randbytes(rng.randrange(20)),
    }
    return [None if rng.random() < 0.1 else values[name] for name in TYPES]


def ranges_of(name: str, rows: list[list[object]]) -> str:
    """Ranges of some of the values, of which there is one a row, so that many rows are a bound themselves."""
    place = 2 + list(TYPES).index(name)
    return hashing.between_bounds([values[place] for values in rows[::3]], parse_type(TYPES[name]), RANGED)


@pytest.fixture(scope="module")
def keys(spark):
    """Generated rows, with the buckets that Spark gives each column alone and several together."""
    rng = random.Random(20241111)
    rows = [[index, rng.randrange(1, 50), *row(rng)] for index in range(ROWS)]
    schema = "row int, n int, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    frame = spark.createDataFrame(rows, schema)
    columns = [F.col("row")]
    for name, kind in TYPES.items():
        columns += [bucket_column([name], COUNT, types=[kind]).alias(f"xx_{name}")]
    for name in JAVA:
        columns += [bucket_column([name], COUNT, "java", [TYPES[name]]).alias(f"java_{name}")]
    functions = {name: ranges_of(name, rows) for name in TYPES if hashing.can_bound(parse_type(TYPES[name]))}
    columns += [bucket_column([n], RANGED, f, [TYPES[n]]).alias(f"ranged_{n}") for n, f in functions.items()]
    columns += [
        bucket_column(list(TYPES), F.col("n"), types=list(TYPES.values())).alias("xx_all"),
        bucket_column(JAVA, F.col("n"), "java", [TYPES[name] for name in JAVA]).alias("java_all"),
        F.expr("pmod(xxhash64(s, i32, wide), 64)").cast("int").alias("plain_sql"),
        *(bucket_column([name], COUNT, SPARK_BUCKETS, [TYPES[name]]).alias(f"m_{name}") for name in EXACT),
        F.expr("pmod(hash(s, i32, wide), 64)").cast("int").alias("shuffled"),
    ]
    buckets_by_row = {got["row"]: got.asDict() for got in frame.select(*columns).collect()}
    names = {"functions": functions}
    return [
        (dict(zip(["row", "n", *TYPES], values, strict=True)), buckets_by_row[values[0]] | names) for values in rows
    ]


@pytest.mark.parametrize("name", list(TYPES))
def test_given_any_value_of_a_type_then_driver_and_spark_agree_on_its_xxhash64_bucket(keys, name):
    for values, by_spark in keys:
        assert bucket_id([values[name]], COUNT, types=[TYPES[name]]) == by_spark[f"xx_{name}"], values[name]


@pytest.mark.by_turn(4, together=99, first=2)
@pytest.mark.parametrize("name", EXACT)
def test_given_any_value_of_a_type_then_driver_and_spark_agree_on_the_bucket_of_its_shuffles(keys, name):
    for values, by_spark in keys:
        assert bucket_id([values[name]], COUNT, SPARK_BUCKETS, [TYPES[name]]) == by_spark[f"m_{name}"], values[name]
        several = [values["s"], values["i32"], values["wide"]]
        types = [TYPES["s"], TYPES["i32"], TYPES["wide"]]
        assert bucket_id(several, 64, SPARK_BUCKETS, types) == by_spark["shuffled"]


@pytest.mark.parametrize("name", JAVA)
def test_given_any_value_of_a_type_then_driver_and_spark_agree_on_its_java_bucket(keys, name):
    for values, by_spark in keys:
        assert bucket_id([values[name]], COUNT, "java", [TYPES[name]]) == by_spark[f"java_{name}"], values[name]


@pytest.mark.parametrize("name", [name for name in TYPES if name not in ("flag", "b")])
def test_given_any_value_of_a_type_then_driver_and_spark_agree_on_its_range(keys, name):
    for values, by_spark in keys:
        assert (
            bucket_id([values[name]], RANGED, by_spark["functions"][name], [TYPES[name]]) == by_spark[f"ranged_{name}"]
        )
    assert {by_spark[f"ranged_{name}"] for _, by_spark in keys} == set(range(RANGED))


def test_given_several_fields_and_a_count_per_row_then_driver_and_spark_agree(keys):
    for values, by_spark in keys:
        count = values["n"]
        assert bucket_id([values[name] for name in TYPES], count, types=list(TYPES.values())) == by_spark["xx_all"]
        java = bucket_id([values[name] for name in JAVA], count, "java", [TYPES[name] for name in JAVA])
        assert java == by_spark["java_all"]


def test_given_plain_spark_sql_then_the_driver_equals_pmod_of_xxhash64(keys):
    for values, by_spark in keys:
        three = [values["s"], values["i32"], values["wide"]]
        assert bucket_id(three, 64, types=["string", "int", "decimal(38,20)"]) == by_spark["plain_sql"]


def test_given_another_session_time_zone_then_java_buckets_of_timestamps_stay(spark):
    at, local = dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC), dt.datetime(2024, 3, 10, 2, 30)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # where 02:30 of that day does not exist
    try:
        frame = spark.createDataFrame([(at, local)], "at timestamp, local timestamp_ntz")
        buckets = frame.select(
            bucket_column(["at"], COUNT, "java", ["timestamp"]),
            bucket_column(["local"], COUNT, "java", ["timestamp_ntz"]),
        ).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert buckets[0] == bucket_id([at], COUNT, "java", ["timestamp"])
    assert buckets[1] == bucket_id([local], COUNT, "java", ["timestamp_ntz"])


def test_given_another_session_time_zone_then_ranges_of_timestamps_stay(spark):
    moments = [dt.datetime(2024, 3, 10, hour, 30, tzinfo=dt.UTC) for hour in range(24)]
    function = hashing.between_bounds(moments, parse_type("timestamp"), 4)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.createDataFrame([(at,) for at in moments], "at timestamp")
        buckets = [row[0] for row in frame.select(bucket_column(["at"], 4, function, ["timestamp"])).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert buckets == [bucket_id([at], 4, function, ["timestamp"]) for at in moments]
    assert buckets == sorted(buckets) and set(buckets) == {0, 1, 2, 3}


def test_given_a_field_name_with_dots_and_backticks_then_it_is_taken_literally(spark):
    frame = spark.createDataFrame([("k",)], ["a.b`c"])
    assert frame.select(bucket_column(["a.b`c"], 64)).first()[0] == bucket_id(["k"], 64)


def test_given_fields_that_cannot_be_placed_then_they_are_refused(spark):
    with pytest.raises(InvalidInput, match="types"):
        bucket_column(["s"], 8, "java")
    with pytest.raises(InvalidSchema, match="double"):
        bucket_column(["s"], 8, "java", ["double"])
    with pytest.raises(InvalidSchema, match="array<int>"):
        bucket_column(["s"], 8, types=["array<int>"])
    with pytest.raises(InvalidRule, match="0"):
        bucket_column(["s"], 0)
    with pytest.raises(InvalidRule, match="murmur"):
        bucket_column(["s"], 8, "murmur")
    with pytest.raises(InvalidInput, match="hash fields"):
        bucket_column([], 8)


# --- functions of a user's ------------------------------------------------------------------------------------------


class Length(HashFunction):
    def column(self, fields, types, count):
        return F.length(fields[0]) % count

    def bucket(self, values, types, count):
        return len(values[0]) % count


class LengthInBytes(Length):
    """Its twin counts something else."""

    def bucket(self, values, types, count):
        return len(values[0].encode()) % count


class TooHigh(HashFunction):
    def column(self, fields, types, count):
        return count


for name, function in {"length": Length(), "bytes": LengthInBytes(), "too_high": TooHigh()}.items():
    hash_functions.register(f"test_buckets.{name}", function)


def test_given_a_sql_expression_then_keys_get_the_bucket_that_rows_get(spark):
    function = "sql:crc32(cast(id as binary)) - 3 * `N`"
    fields = {"id": "string", "n": "int"}
    keys = [("a", 1), ("b", -1), (None, 5), ("c", None), ("", 2**29)]
    buckets = compute_buckets(spark, fields, keys, 64, function)
    for (text, number), bucket in zip(keys, buckets, strict=True):
        known = text is not None and number is not None
        assert bucket == ((zlib.crc32(text.encode()) - 3 * number) % 64 if known else 0)
    # Columns of another width are cast to the table's types first.
    wide = spark.createDataFrame(keys, "id string, n bigint")
    rows = wide.select(bucket_column(["id", "n"], F.lit(64), function, list(fields.values()))).collect()
    assert [row[0] for row in rows] == buckets


def test_given_a_class_then_rows_and_keys_get_its_buckets(spark):
    frame = spark.createDataFrame([("a",), ("abc",), ("\U0001f600",)], "id string")
    rows = frame.select(bucket_column(["id"], 2, "test_buckets.length", ["string"])).collect()
    assert [row[0] for row in rows] == compute_buckets(
        spark, {"id": "string"}, frame.collect(), 2, "test_buckets.length"
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("sql:id", "gives a string, not an integer"),
        ("sql:length(id) * 1.5", "gives a decimal.*not an integer"),
        ("sql:length(id", "cannot be computed"),
        ("sql:length(id, 5)", "cannot be computed"),
        ("test_buckets.bytes", r"buckets 1 and 1 in Spark and 2 on the driver|'é'"),
        ("test_buckets.too_high", "cannot be computed.*no bucket below the count"),
    ],
)
def test_given_a_function_that_gives_no_stable_bucket_then_it_is_refused_when_a_table_is_made(spark, function, said):
    with pytest.raises(InvalidRule, match=said):
        check_user_function(spark, {"id": "string"}, function)


def test_given_functions_that_hold_then_they_are_taken(spark):
    check_user_function(spark, {"id": "string"}, "test_buckets.length")
    kinds = {"id": "string", "t": "timestamp", "l": "timestamp_ntz", "x": "decimal(2,2)", "y": "double"}
    check_user_function(spark, kinds, "test_buckets.length")
    assert compute_buckets(spark, {"id": "string"}, [(None,), ("abc",)], 2, "test_buckets.length") == [0, 1]
    check_user_function(spark, {"id": "string", "n": "int", "d": "date", "b": "boolean"}, "sql:hash(id, n, d, b)")


@pytest.mark.parametrize(
    "function",
    ["xxhash64", "java", SPARK_BUCKETS, 'ranges:["2024-06-01 03:00:00", "2024-06-01 08:00:00"]'],
)
def test_given_a_session_whose_timestamps_have_no_zone_then_those_of_a_table_are_placed_as_ever(
    spark: Any, function: str
) -> None:
    moments = [dt.datetime(2024, 6, 1, hour, tzinfo=dt.UTC) for hour in range(12)]
    rows = spark.createDataFrame(
        [(moment,) for moment in moments], T.StructType([T.StructField("at", T.TimestampType())])
    )
    expected = [bucket_id((moment,), 3, function, ["timestamp"]) for moment in moments]
    assert len(set(expected)) > 1
    with session_with(spark, {ZONE: "Asia/Tokyo", "spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        buckets = rows.select(bucket_column(["at"], 3, function, ["timestamp"])).collect()
    assert [row[0] for row in buckets] == expected
