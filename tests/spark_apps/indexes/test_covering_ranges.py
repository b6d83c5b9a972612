"""Which part of an entry file a predicate leaves, by the file's own min and max; no Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from spark_apps.indexes.covering.scan import matching_fraction
from spark_apps.indexes.ranges import Range
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.planning import ParsedPredicateProbe

TYPES = {"n": "bigint", "d": "date", "p": "decimal(10,2)", "s": "string", "other": "int"}


def part(where: str, first: str, *ranges: Range) -> float:
    probe = ParsedPredicateProbe(parse_predicate(where, TYPES))
    return matching_fraction(probe, tuple({first: held} for held in ranges), first)


@pytest.mark.parametrize(
    ("where", "first", "held", "expected"),
    [
        ("n BETWEEN 100 AND 199", "n", Range(0, 999), 0.1),
        ("n >= 500", "n", Range(0, 999), 0.5),
        ("n < 250 OR n >= 750", "n", Range(0, 999), 0.5),
        ("d >= DATE'2024-07-01'", "d", Range(dt.date(2024, 1, 1), dt.date(2024, 12, 31)), 0.5),
        ("p <= 25.00", "p", Range(Decimal("0.00"), Decimal("100.00")), 0.25),
        ("s >= 'm'", "s", Range("a", "z"), 0.52),
        ("s = 'customer-7'", "s", Range("customer-1", "customer-99"), 1 / 128),
        ("s >= 'ab'", "s", Range("a", "a\U0010ffff"), 1.0),
        ("s >= 'b'", "s", Range("a", "a\x00"), 0.0),
        ("other = 3", "n", Range(0, 999), 1.0),
        ("n >= 500 AND other = 3", "n", Range(0, 999), 0.5),
        ("n >= 500 OR other = 3", "n", Range(0, 999), 1.0),
        ("NOT (n < 500 OR other = 3)", "n", Range(0, 999), 0.5),
        ("n IN (0, 999)", "n", Range(0, 999), 2 / 128),
        ("n <> 5", "n", Range(0, 999), 1.0),
    ],
)
def test_a_range_of_the_first_indexed_column_leaves_about_its_part(
    where: str, first: str, held: Any, expected: float
) -> None:
    assert part(where, first, held) == pytest.approx(expected, abs=0.02)


def test_a_range_that_matches_wholly_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date that splits an index leaves most of its files whole, and a query waits for each question."""
    asked = []
    may_match = ParsedPredicateProbe.may_match
    monkeypatch.setattr(
        ParsedPredicateProbe, "may_match", lambda probe, values: asked.append(values) or may_match(probe, values)
    )
    for where in ("n >= 0", "n > -1 AND other = 3", "n >= 0 AND n IS NOT NULL", "n <> 2000"):
        asked.clear()
        assert part(where, "n", Range(0, 999)) == 1.0
        assert len(asked) <= 2


def test_a_file_that_its_min_and_max_rule_out_is_left_out() -> None:
    assert part("n = 1000", "n", Range(0, 999)) == 0
    assert part("n = 1000 AND other = 3", "n", Range(0, 999)) == 0


def test_a_file_with_one_row_that_may_match_is_never_ruled_out() -> None:
    for wanted in (0, 1, 333, 500, 998, 999):
        assert 0 < part(f"n = {wanted}", "n", Range(0, 999)) <= 0.01
    assert part("n IS NULL", "n", Range(0, 999, nulls=True)) > 0
    assert part("n IS NULL", "n", Range(0, 999, nulls=False)) == 0


def test_each_row_group_counts_by_itself() -> None:
    assert part("n = 1500", "n", Range(0, 999), Range(1000, 1999)) == pytest.approx(0.5 / 128, abs=0.005)


def test_a_row_group_that_tells_nothing_may_hold_anything() -> None:
    probe = ParsedPredicateProbe(parse_predicate("n = 5", TYPES))
    assert matching_fraction(probe, ({},), "n") == 1.0
    assert matching_fraction(probe, (), "n") == 1.0
    assert matching_fraction(None, ({"n": Range(0, 9)},), "n") == 1.0
