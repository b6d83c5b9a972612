"""What a predicate can say of a range of values, against what it says of each value in it."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.indexes.ranges import NOTHING, ONLY_NULLS, Range, range_of
from spark_apps.layout.types import parse_type
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Predicate, may_match, outcomes

SCHEMA = {"a": "int", "b": "int"}
LEAVES = ["a = 3", "a <> 2", "a < 4", "a <= 1", "a > 2", "a >= 5", "a <=> 2", "a in (1, 4)", "a in (2, null)",
          "a is null", "a is not null", "a between 2 and 4", "a not in (1, 2)", "b = 1", "length(b) = 1"]  # fmt: skip
RANGES = [
    *(Range(low, high, nulls) for low, high in itertools.combinations_with_replacement(range(7), 2)
      for nulls in (True, False)),
    ONLY_NULLS,
]  # fmt: skip


def parsed(text: str) -> Predicate:
    return parse_predicate(text, SCHEMA)


def values(held: Range) -> list[int | None]:
    return [*(range(held.low, held.high + 1) if held.values else ()), *([None] if held.nulls else ())]


def random_predicate(rng: random.Random, depth: int = 3) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(LEAVES)
    parts = [random_predicate(rng, depth - 1) for _ in range(2)]
    return rng.choice(["({} and {})", "({} or {})", "not ({0})"]).format(*parts)


def test_given_any_predicate_and_range_then_no_outcome_of_a_value_in_it_is_missing() -> None:
    rng = random.Random(7)
    for _ in range(400):
        predicate = parsed(random_predicate(rng))
        for held in rng.sample(RANGES, 12):
            possible = outcomes(predicate, {"a": held})
            for value in values(held):
                assert outcomes(predicate, {"a": value}) <= possible, (predicate, held, value)


@pytest.mark.parametrize("leaf", LEAVES[:13])
def test_given_a_single_comparison_then_a_range_is_passed_over_wherever_no_value_of_it_matches(leaf: str) -> None:
    predicate = parsed(leaf)
    for held in RANGES:
        some = any(may_match(predicate, {"a": value}) for value in values(held))
        # A range that holds a value of a list is not looked into for others.
        some = some or (leaf == "a not in (1, 2)" and not {1, 2}.isdisjoint(values(held)))
        assert may_match(predicate, {"a": held}) == some, (leaf, held)


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ("a = 1", True),
        ("a <> 1", True),
        ("a = 1 and b = 2", True),
        ("a = 1 or b = 2", False),
        ("b = 2", False),
        ("(a = 1 or a = 2) and length(b) = 1", True),
        ("not (a = 1 and b = 2)", False),
        ("a is null", True),
    ],
)
def test_given_a_predicate_then_no_value_at_all_shows_whether_it_depends_on_a_column(text: str, depends: bool) -> None:
    assert may_match(parsed(text), {"a": NOTHING}) is not depends


class OlderStatistics:
    """Statistics of an older pyarrow, which does not give decimals that are stored as integers."""

    def __init__(self, statistics: Any) -> None:
        self._statistics = statistics

    def __getattr__(self, name: str) -> Any:
        if name in ("min", "max"):
            raise pa.ArrowNotImplementedError("Cannot extract statistics for type ")
        return getattr(self._statistics, name)


@pytest.mark.parametrize("precision", [5, 14])
@pytest.mark.parametrize("of", [lambda statistics: statistics, OlderStatistics], ids=["this pyarrow", "an older one"])
def test_given_decimals_stored_as_integers_then_their_range_is_known(precision: int, of: Callable[[Any], Any]) -> None:
    held = pa.array([Decimal("-1.50"), None, Decimal("12.25")], pa.decimal128(precision, 2))
    file = io.BytesIO()
    pq.write_table(pa.table({"d": held}), file, store_decimal_as_integer=True)
    statistics = pq.ParquetFile(file).metadata.row_group(0).column(0).statistics

    bounds = range_of(of(statistics), parse_type(f"decimal({precision},2)"))

    assert bounds == Range(Decimal("-1.50"), Decimal("12.25"), True)


class StatisticsOfInt96(OlderStatistics):
    """What pyarrow 22 to 25 says of a column whose times are all one, in the form that Spark writes by default."""

    has_min_max = True
    physical_type = "INT96"


def test_given_a_time_in_the_form_of_before_then_an_older_pyarrow_that_says_it_knows_bounds_is_not_asked_for_them() -> (
    None
):
    file = io.BytesIO()
    pq.write_table(pa.table({"t": pa.array([0], pa.timestamp("us"))}), file)
    statistics = pq.ParquetFile(file).metadata.row_group(0).column(0).statistics

    assert range_of(StatisticsOfInt96(statistics), parse_type("timestamp_ntz")) is None
