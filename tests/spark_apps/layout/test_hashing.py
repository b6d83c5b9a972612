"""The bucket on the driver, against published digests, Java's own definition, and refusals of what cannot be hashed.

Equality with Spark itself is tested in ``tests/spark_apps/mergetree/test_buckets.py``.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.layout import hash_functions, hashing
from spark_apps.layout.hash_functions import HashFunction
from spark_apps.layout.hashing import bucket_id, check_hash, on_driver, spark_xxhash64
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidInput, InvalidRule, InvalidSchema
from spark_apps.timeline.limits import MAX_BUCKETS


def java_list_hash(strings: list[str | None]) -> int:
    """``List<String>.hashCode()`` as the Java documentation writes it, with true int32 arithmetic."""

    def int32(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    total = 1
    for text in strings:
        hashed = 0
        for unit in memoryview((text or "").encode("utf-16-le")).cast("H"):
            hashed = int32(31 * hashed + unit)
        total = int32(31 * total + (0 if text is None else hashed))
    return total


def xxhash64(value: object, type_name: str) -> int:
    return spark_xxhash64([value], [parse_type(type_name)])


def test_given_values_of_spark_s_own_documentation_then_the_hash_is_the_documented_one():
    # xxhash64('Spark', array(123), 2) is documented; these were printed by Spark's SELECT xxhash64(...).
    assert xxhash64(None, "string") == 42
    assert xxhash64("Spark", "string") == -4294468057691064905
    assert xxhash64(1, "int") == -6698625589789238999
    assert xxhash64(1, "bigint") == -7001672635703045582


def test_given_well_known_java_hash_codes_then_the_bucket_follows_them():
    assert java_list_hash(["hello"]) - 31 == 99162322  # "hello".hashCode() is in every Java textbook
    assert bucket_id(["hello"], 1000, "java") == (31 + 99162322) % 1000
    assert bucket_id([None], 1000, "java") == 31
    assert bucket_id(["polygenelubricants"], 97, "java") == ((31 - 2**31) & 0x7FFFFFFF) % 97


@given(st.lists(st.none() | st.text(), min_size=1, max_size=4), st.integers(1, MAX_BUCKETS))
def test_given_any_unicode_strings_and_nulls_then_java_buckets_equal_java_s_definition(strings, count):
    assert bucket_id(strings, count, "java") == (java_list_hash(strings) & 0x7FFFFFFF) % count


@pytest.mark.parametrize(
    ("value", "type_name", "string"),
    [
        (True, "boolean", "true"),
        (-5, "smallint", "-5"),
        (dt.date(2024, 11, 11), "date", "2024-11-11"),
        (Decimal("1.50"), "decimal(10,2)", "1.50"),
        (Decimal("-0.000001"), "decimal(10,6)", "-0.000001"),
        (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "timestamp", "1000000"),
        (dt.datetime(1970, 1, 1, 0, 0, 1), "timestamp_ntz", "1000000"),
    ],
)
def test_given_a_value_of_another_type_then_java_hashes_its_string(value, type_name, string):
    assert bucket_id([value], 9973, "java", [type_name]) == bucket_id([string], 9973, "java")


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(), min_size=1),
    st.integers(1, MAX_BUCKETS),
)
def test_given_any_key_then_the_bucket_lies_below_the_count(values, count):
    assert 0 <= bucket_id(values, count) < count


def test_given_equal_values_in_different_form_then_they_share_a_bucket():
    utc = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    elsewhere = utc.astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert bucket_id([utc], 997) == bucket_id([elsewhere], 997)
    assert bucket_id([-0.0], 997) == bucket_id([0.0], 997)
    assert bucket_id([float("nan")], 997) == bucket_id([-float("nan")], 997)
    assert bucket_id([Decimal("1.5")], 997, types=["decimal(30,4)"]) == bucket_id(
        [Decimal("1.5000")], 997, types=["decimal(30,4)"]
    )
    assert bucket_id([5], 997) == bucket_id([5], 997, types=["LONG"]) != bucket_id([5], 997, types=["int"])


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "8", None, MAX_BUCKETS + 1])
def test_given_a_count_that_is_none_then_it_is_refused_by_name(count):
    with pytest.raises(InvalidRule, match="bucket count"):
        bucket_id(["k"], count)


def test_given_an_unknown_function_then_the_known_ones_are_named():
    with pytest.raises(InvalidRule, match=r"murmur.*java, sql:<expression>.*xxhash64"):
        bucket_id(["k"], 8, "murmur")


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (200, "tinyint"),
        (True, "int"),
        ("5", "int"),
        (5, "string"),
        (Decimal("1.234"), "decimal(10,2)"),
        (Decimal("123456789"), "decimal(10,2)"),
        (Decimal("NaN"), "decimal(10,2)"),
        (1e39, "float"),
        ("\ud800", "string"),
        (dt.datetime(2024, 1, 1), "date"),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "timestamp_ntz"),
        ([1], "array<int>"),
        ("a", "string collate UTF8_LCASE"),
        ("a", "char(3)"),
    ],
)
def test_given_a_value_that_is_not_one_of_its_type_then_it_is_refused(value, type_name):
    with pytest.raises(InvalidSchema):
        bucket_id([value], 8, types=[type_name])


@pytest.mark.parametrize("values", ["k1", b"k1", 5, [], None])
def test_given_no_sequence_of_values_then_the_mistake_is_named(values):
    with pytest.raises(InvalidInput):
        bucket_id(values, 8)


def test_given_a_decimal_without_its_type_then_the_type_is_asked_for():
    with pytest.raises(InvalidInput, match="types"):
        bucket_id([Decimal("1.5")], 8)
    with pytest.raises(InvalidInput, match=r"2 values.*1 types"):
        bucket_id([1, 2], 8, types=["int"])


@pytest.mark.parametrize(("value", "type_name"), [(1.5, "double"), (b"x", "binary"), (Decimal("1"), "decimal(20,7)")])
def test_given_a_type_without_one_java_string_then_java_refuses_it(value, type_name):
    with pytest.raises(InvalidSchema, match="xxhash64"):
        bucket_id([value], 8, "java", [type_name])


class FirstLetter(HashFunction):
    """A function of a user's, with a twin on the driver."""

    def column(self, fields, types, count):
        from pyspark.sql import functions as F

        return F.ascii(fields[0]) % count

    def bucket(self, values, types, count):
        return ord(values[0][0]) % count


class Elsewhere(HashFunction):
    """One without a twin."""

    def column(self, fields, types, count):
        raise NotImplementedError


def test_given_a_registered_function_then_it_is_used_and_its_name_stays_taken():
    hash_functions.register("first_letter", FirstLetter())
    hash_functions.register("elsewhere", Elsewhere())
    assert bucket_id(["apple"], 26, "first_letter") == ord("a") % 26
    assert on_driver("first_letter") and not on_driver("elsewhere")
    with pytest.raises(InvalidRule, match="computed by Spark only"):
        bucket_id(["apple"], 26, "elsewhere")
    for name in ("first_letter", "java", "xxhash64"):
        with pytest.raises(InvalidRule, match="exists already"):
            hash_functions.register(name, FirstLetter())


def test_given_a_function_that_gives_no_bucket_then_it_is_refused():
    class Wild(FirstLetter):
        def bucket(self, values, types, count):
            return count

    hash_functions.register("wild", Wild())
    with pytest.raises(InvalidRule, match="bucket 8 of 8"):
        bucket_id(["a"], 8, "wild")


# --- a SQL expression -----------------------------------------------------------------------------------------------

FIELDS = {"id": "string", "part of": "int"}


@pytest.mark.parametrize(
    "expression",
    [
        "crc32(cast(id as binary))",
        "conv(substring(md5(id), 1, 15), 16, 10) % 1000 * `part of`",
        "CASE WHEN ID IS NULL THEN 0 WHEN `Part Of` < 10 THEN 1 ELSE length(concat(id, 'x', '')) END",
        "pmod(hash(id, `part of`), 64) + (`part of` & 1)",
    ],
)
def test_given_an_expression_of_its_arguments_alone_then_it_is_taken(expression):
    check_hash(FIELDS, f"sql:{expression}")
    assert not on_driver(f"sql:{expression}")


def test_given_an_expression_then_fields_are_replaced_and_nothing_else():
    rendered = hashing.rendered_sql_hash("sql:concat(id, 'id', `ID`) || ID", {"id": "cast(`id` as string)"})
    field = "(cast(`id` as string))"
    assert rendered == f"concat({field}, 'id', {field}) || {field}"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("rand()", "'rand'"),
        ("uuid()", "'uuid'"),
        ("unix_timestamp() + length(id)", "unix_timestamp"),
        ("my_function(id)", "my_function"),
        ("java_method('java.util.UUID', 'randomUUID')", "java_method"),
        ("length(upper(id))", "'upper'"),
        ("(select max(n) from t)", "'select' is not a hash field|'max'"),
        ("length(name)", "'name' is not a hash field"),
        ("current_date", "'current_date' is not a hash field"),
        ("length(id) -- more", "'-- more'"),
        ("length(id) /* more */", "not allowed"),
        ("length(id) / 2", "not allowed"),
        ("length(id); drop table t", "not allowed"),
        (r"length(concat(id, '\x41'))", "not allowed"),
        ("length(concat(id, 'a''b'))", "not allowed"),
        ('length(concat(id, "x"))', "not allowed"),
        ("length('constant')", "names no hash field"),
        ("", "names no hash field"),
        ("length(id)" + " + 1" * 1000, "longer"),
    ],
)
def test_given_an_expression_that_may_mean_something_else_tomorrow_then_it_is_refused(expression, said):
    with pytest.raises(InvalidRule, match=said):
        check_hash(FIELDS, f"sql:{expression}")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "double", "decimal(10,2)", "array<int>"])
def test_given_a_field_whose_text_depends_on_the_session_then_no_expression_is_taken_over_it(kind):
    with pytest.raises(InvalidRule, match="depends on the session"):
        check_hash({"id": kind}, "sql:hash(id)")
