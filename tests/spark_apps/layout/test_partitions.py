"""Partition paths: one path per value and one value per path, escaped like the directories that Spark makes."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.layout.partitions import check_partition_types, parse_partition_path, partition_path
from spark_apps.storage.errors import InvalidInput, InvalidSchema

NULL = "__HIVE_DEFAULT_PARTITION__"
TEXT = st.text(st.characters(codec="utf-8"))
VALUES = {
    "string": TEXT,
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(10,2)": st.decimals(-99999999, 99999999, places=2),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "float": st.floats(width=32),
    "double": st.floats(),
}


@pytest.mark.parametrize(
    ("value", "type_name", "text"),
    [
        ("eu", "string", "eu"),
        ("a/b=c%d\n", "string", "a%2Fb%3Dc%25d%0A"),
        ("Zürich 日本", "string", "Zürich 日本"),
        ("\x00", "string", "%00"),
        ("", "string", ""),
        (None, "string", NULL),
        (NULL, "string", "%5F_HIVE_DEFAULT_PARTITION__"),
        (dt.date(2024, 11, 11), "date", "2024-11-11"),
        (dt.date(33, 1, 2), "date", "0033-01-02"),
        (dt.datetime(2024, 11, 11, 9, 5, tzinfo=dt.UTC), "timestamp", "2024-11-11 09%3A05%3A00"),
        (dt.datetime(2024, 11, 11, 9, 5, 0, 120000), "timestamp_ntz", "2024-11-11 09%3A05%3A00.12"),
        (True, "boolean", "true"),
        (-7, "bigint", "-7"),
        (Decimal("1.5"), "decimal(10,3)", "1.500"),
        (3, "decimal(10,1)", "3.0"),
        (0.1, "double", "0.1"),
        (-0.0, "double", "0.0"),
        (1e7, "double", "1.0E7"),
        (1234567.5, "double", "1234567.5"),
        (0.001, "double", "0.001"),
        (0.00012, "double", "1.2E-4"),
        (1e23, "double", "1.0E23"),
        (0.1, "float", "0.1"),
        (3.4028234663852886e38, "float", "3.4028235E38"),
        (math.nan, "double", "NaN"),
        (-math.inf, "double", "-Infinity"),
    ],
)
def test_given_a_typed_value_then_its_path_is_canonical(value, type_name, text):
    assert partition_path(["c"], [value], [type_name]) == f"c={text}"


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("type_name", list(VALUES))
@given(st.data())
def test_given_any_value_then_the_path_gives_it_back(type_name, data):
    value = data.draw(st.none() | VALUES[type_name])
    path = partition_path(["c/=%", "d"], [value, value], [type_name, type_name])
    assert path.count("/") == 1
    for column, parsed in parse_partition_path(path, {"c/=%": type_name, "d": type_name}).items():
        assert column in ("c/=%", "d")
        assert parsed == value or (value != value and parsed != parsed)
        assert type(parsed) is type(value)


@given(st.lists(st.none() | TEXT, min_size=2, max_size=2, unique=True))
def test_given_two_different_strings_then_their_paths_differ(pair):
    assert partition_path(["c"], pair[:1], ["string"]) != partition_path(["c"], pair[1:], ["string"])


def test_given_no_partition_columns_then_the_path_is_empty():
    assert partition_path([], []) == ""
    assert parse_partition_path("") == {}


def test_given_an_instant_in_another_zone_then_the_path_is_the_same():
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    there = noon.astimezone(dt.timezone(dt.timedelta(hours=-5)))
    assert partition_path(["t"], [noon]) == partition_path(["t"], [there])


def test_given_no_types_then_values_tell_theirs_and_paths_stay_strings():
    assert partition_path(["a", "b"], [7, dt.date(2024, 1, 2)]) == "a=7/b=2024-01-02"
    assert parse_partition_path("a=7/b=2024-01-02") == {"a": "7", "b": "2024-01-02"}


@pytest.mark.parametrize("path", ["a", "=b", "a=1/", "/a=1", "a=1//b=2", "a=1/a=2", "a=b=c/d"])
def test_given_text_that_is_no_partition_path_then_it_is_refused(path):
    with pytest.raises(InvalidInput, match="not a partition path"):
        parse_partition_path(path)


@pytest.mark.parametrize(
    ("text", "type_name"),
    [
        ("x", "int"),
        ("300", "tinyint"),
        ("2024-13-01", "date"),
        ("1.234", "decimal(10,2)"),
        ("x", "double"),
        ("yes", "boolean"),
        ("soon", "timestamp"),
        ("NaN", "decimal(10,2)"),
    ],
)
def test_given_a_path_whose_value_is_not_of_the_type_then_column_or_value_is_named(text, type_name):
    with pytest.raises(InvalidInput, match="value"):
        parse_partition_path(f"c={text}", {"c": type_name})


def test_given_values_that_do_not_fit_the_columns_then_they_are_refused():
    with pytest.raises(InvalidInput, match="2 values"):
        partition_path(["a"], [1, 2])
    with pytest.raises(InvalidSchema):
        partition_path(["a"], ["1"], ["int"])
    with pytest.raises(InvalidSchema, match="binary"):
        partition_path(["a"], [b"x"], ["binary"])
    with pytest.raises(InvalidSchema, match="'m'"):
        check_partition_types({"a": "int", "m": "map<string,int>"})


@pytest.mark.spark
def test_given_the_directories_that_spark_makes_then_our_paths_are_the_same(spark, tmp_path):
    odd = "".join(map(chr, range(1, 128))) + "\x80 é日\U0001f600"
    rows = [
        (odd, 5, dt.date(2024, 11, 11), True, Decimal("1.50"), 0.1),
        (" .", -(2**63), dt.date(1, 1, 1), False, Decimal("-0.01"), 1.5e-5),
        (None, None, None, None, None, None),
        ("..", 0, dt.date(9999, 12, 31), True, Decimal("0.00"), 12345678.9),
    ]
    types = {"s": "string", "i": "bigint", "d": "date", "b": "boolean", "n": "decimal(10,2)", "f": "double"}
    frame = spark.createDataFrame(
        [(number, *row) for number, row in enumerate(rows)], "k int, " + ", ".join(f"{c} {t}" for c, t in types.items())
    )
    frame.coalesce(1).write.partitionBy(*types).parquet(str(tmp_path / "t"))
    made = {str(Path(file).parent.relative_to(tmp_path / "t")) for file in (tmp_path / "t").rglob("*.parquet")}
    assert made == {partition_path(list(types), row, list(types.values())) for row in rows}
    for path, row in ((partition_path(list(types), row, list(types.values())), row) for row in rows):
        assert tuple(parse_partition_path(path, types).values()) == row
