"""The ends that a predicate gives a column: what lies beyond them satisfies it in no row."""

from __future__ import annotations

import itertools

import pytest

from spark_apps.indexes.ranges import Range
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.planning import ParsedPredicateProbe

PREDICATES = {
    "a > 3": (3, None),
    "a >= 3 AND a < 7": (3, 7),
    "a = 5": (5, 5),
    "a <=> 5": (5, 5),
    "a IN (2, 8, 4)": (2, 8),
    "a IN (2, NULL, 4)": (2, 4),
    "a BETWEEN 3 AND 7 AND a <> 5 AND b = 1": (3, 7),
    "a > 3 AND a > 6 AND a IN (1, 8)": (6, 8),
    "a = 2 OR a = 7": (None, None),
    "NOT a > 3": (None, None),
    "a IS NULL": (None, None),
    "b = 4": (None, None),
    "a + 1 > 4": (None, None),
}


@pytest.mark.parametrize("text", PREDICATES)
def test_given_a_predicate_then_its_ends_are_right_and_no_range_beyond_them_can_match(text: str) -> None:
    probe = ParsedPredicateProbe(parse_predicate(text, {"a": "bigint", "b": "bigint"}, time_zone="UTC"))
    low, high = probe.ends("a")

    assert (low, high) == PREDICATES[text]
    for first, last in itertools.combinations_with_replacement(range(10), 2):
        beyond = (low is not None and last < low) or (high is not None and first > high)
        assert not (beyond and probe.may_match({"a": Range(first, last, nulls=low is None and high is None)})), text
