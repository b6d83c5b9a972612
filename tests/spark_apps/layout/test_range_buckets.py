"""Ranges that values are dealt into: their bounds, and what is refused as such."""

from __future__ import annotations

import datetime as dt
import math

import pytest

from spark_apps.layout import hashing
from spark_apps.layout.hashing import bucket_id, check_hash
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidInput, InvalidRule

LONG = parse_type("bigint")


def test_given_values_at_random_then_each_range_holds_like_numbers_of_them() -> None:
    values = [(7919 * n) % 10_007 for n in range(10_007)]
    function = hashing.between_bounds(values, LONG, 16)
    placed = [bucket_id([value], 16, function, ["bigint"]) for value in values]
    assert {placed.count(number) for number in range(16)} <= {625, 626}
    assert [bucket for _, bucket in sorted(zip(values, placed, strict=True))] == sorted(placed)


def test_given_values_that_repeat_then_no_range_is_empty_by_definition_and_nulls_do_not_count() -> None:
    assert hashing.between_bounds([5] * 90 + [None] * 90 + [9] * 10, LONG, 4) == 'ranges:["5"]'
    assert hashing.between_bounds([None, None], LONG, 4) == hashing.between_bounds([], LONG, 4) == "ranges:[]"
    assert bucket_id([17], 4, "ranges:[]", ["bigint"]) == 0


def test_given_a_bound_then_it_begins_the_next_range_and_null_is_in_the_first() -> None:
    function = 'ranges:["-3", "10"]'
    buckets = [bucket_id([value], 3, function, ["int"]) for value in (None, -4, -3, 9, 10, 2**31 - 1)]
    assert buckets == [0, 0, 1, 1, 2, 2]
    assert bucket_id([10], 2, function, ["int"]) == 1, "never a bucket that is not there"


def test_given_long_texts_then_bounds_are_short() -> None:
    texts = [f"{number:05}" + "x" * 10_000 for number in range(100)]
    assert len(hashing.between_bounds(texts, parse_type("string"), 4)) < 300


def test_given_very_many_buckets_then_ranges_stay_few_enough_to_be_compared_with() -> None:
    function = hashing.between_bounds(range(50_000), LONG, 100_000)
    assert len(hashing.range_bounds(function, "bigint")) == 999
    with pytest.raises(InvalidRule):
        hashing.range_bounds(f"ranges:{list(map(str, range(1000)))}".replace("'", '"'), "bigint")


def test_given_moments_then_bounds_are_in_utc() -> None:
    berlin = dt.timezone(dt.timedelta(hours=1))
    moments = [dt.datetime(2024, 1, 1, hour, tzinfo=berlin) for hour in range(2)]
    assert hashing.between_bounds(moments, parse_type("timestamp"), 2) == 'ranges:["2024-01-01 00:00:00"]'


@pytest.mark.parametrize("text", ["", "3", '["b"', '["b", "a"]', '["a", "a"]', "[1, null]", '{"a": 1}x'])
def test_given_no_list_of_rising_values_then_it_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        hashing.range_bounds(f"ranges:{text}", "string")
    with pytest.raises(InvalidInput):
        bucket_id(["a"], 3, f"ranges:{text}", ["string"])


def test_given_a_list_without_its_prefix_or_deep_as_a_well_then_it_is_refused() -> None:
    for function in ('["a"]', "ranges:" + "[" * 100_000):
        with pytest.raises(InvalidInput):
            hashing.range_bounds(function, "string")


def test_given_ranges_then_a_table_does_not_take_them_as_its_hash() -> None:
    with pytest.raises(InvalidRule):
        check_hash({"id": "bigint"}, 'ranges:["1"]')


def test_given_floating_point_values_then_nan_is_in_the_last_range_and_zeros_are_in_one() -> None:
    values = [math.nan, *range(-50, 50), math.inf, math.nan, -0.0, -math.inf, math.nan, None] * 3
    for kind in ("float", "double"):
        function = hashing.between_bounds([None if n is None else float(n) for n in values], parse_type(kind), 8)
        bounds = hashing.range_bounds(function, kind)
        assert list(bounds) == sorted(bounds) and len(bounds) == 7
        placed = [bucket_id([float(n)], 8, function, [kind]) for n in (-math.inf, -3, 0, 3, math.inf, math.nan)]
        assert placed == sorted(placed) and placed[0] == 0 and placed[-2:] == [7, 7]
        assert bucket_id([-0.0], 8, function, [kind]) == bucket_id([0.0], 8, function, [kind])
    assert hashing.between_bounds([math.nan] * 9, parse_type("double"), 4) == "ranges:[]"
    with pytest.raises(InvalidRule):
        hashing.range_bounds('ranges:["1.0", "NaN"]', "double")


def test_given_a_zero_as_bound_then_both_zeros_are_above_it() -> None:
    for zero in (0.0, -0.0):
        function = hashing.between_bounds([-1.0, zero], parse_type("double"), 2)
        assert function == 'ranges:["0.0"]' and bucket_id([-0.0], 2, function, ["double"]) == 1
