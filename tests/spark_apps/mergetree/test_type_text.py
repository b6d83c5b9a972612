"""Types read from their text, without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from spark_apps.mergetree.schema import parse_simple_string

STRUCT = T.StructType([T.StructField("a", T.ArrayType(T.DecimalType(10, 2))), T.StructField("b", T.TimestampNTZType())])


@pytest.mark.parametrize(
    "kind",
    [T.LongType(), T.StringType(), T.DecimalType(38, 18), T.TimestampType(), T.ArrayType(T.DateType()), STRUCT,
     T.MapType(T.StringType(), STRUCT), T.ArrayType(T.MapType(T.IntegerType(), T.ArrayType(T.BinaryType())))],
)  # fmt: skip
def test_given_the_text_that_a_type_has_for_itself_then_it_is_read_back(kind: T.DataType) -> None:
    assert parse_simple_string(kind.simpleString()) == kind


@pytest.mark.parametrize(
    "text",
    [
        "string collate UNICODE",
        "char(3)",
        "interval day",
        "array<variant>",
        "map<int>",
        "struct<a b:int>",
        "long",
        "array<int",
        "",
    ],
)
def test_given_a_text_that_is_not_read_here_then_it_is_left_to_spark(text: str) -> None:
    assert parse_simple_string(text) is None
