"""What comparisons of a column say of expressions of it: no file with a matching row is ruled out, in any time zone."""

from __future__ import annotations

import datetime as dt
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from spark_apps.indexes.expressions import key_of, parse
from spark_apps.indexes.ranges import NOTHING, Range, Summary
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import KeySet, keys_for, may_match

pytestmark = pytest.mark.by_turn(6)

SCHEMA = {"ts": "timestamp", "z": "timestamp_ntz", "d": "date", "n": "int", "s": "string"}
Zone = Callable[[dt.datetime], dt.datetime]
SET_BACK = dt.datetime(2006, 10, 29, 2, 31, tzinfo=dt.UTC)
"""Then the clocks of Newfoundland were set back from one minute past midnight to the day before."""


def _newfoundland(moment: dt.datetime) -> dt.datetime:
    return moment.replace(tzinfo=None) - dt.timedelta(minutes=150 if moment < SET_BACK else 210)


def _all_over(moment: dt.datetime) -> dt.datetime:
    """A zone that moves from one end to the other, again and again: worse than any."""
    return moment.replace(tzinfo=None) + dt.timedelta(hours=18 if moment.hour % 2 else -18)


ZONES: dict[str, Zone] = {
    "UTC": lambda moment: moment.replace(tzinfo=None), "America/St_Johns": _newfoundland, "Far/AndBack": _all_over
}  # fmt: skip
EXPRESSIONS: dict[str, tuple[str, str, Callable[[Any, Zone], Any]]] = {
    "to_date(ts)": ("date", "ts", lambda value, zone: zone(value).date()),
    "year(ts)": ("int", "ts", lambda value, zone: zone(value).year),
    "year(to_date(ts))": ("int", "ts", lambda value, zone: zone(value).year),
    "to_date(z)": ("date", "z", lambda value, _: value.date()),
    "year(z)": ("int", "z", lambda value, _: value.year),
    "year(d)": ("int", "d", lambda value, _: value.year),
    "left(s, 2)": ("string", "s", lambda value, _: value[:2]),
    "substring(s, 1, 1)": ("string", "s", lambda value, _: value[:1]),
    "CAST(n AS bigint)": ("bigint", "n", lambda value, _: value),
}
OTHERS = ("month(d)", "day(d)", "hour(ts)", "upper(s)", "length(s)", "CAST(n AS tinyint)", "(n * n)", "abs(n)",
          "substring(s, 2, 1)", "trim(s)", "CAST(s AS date)", "(- n)")  # fmt: skip
OPERATORS = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<>": operator.ne
}  # fmt: skip
TEXTS = ("", "a", "ab", "abc", "b", "ba", "Ä", "Äé", "\U0001f600x", "zz")


def _canonical(expression: str) -> str:
    return parse(expression, SCHEMA).text


def _value(rng: random.Random, column: str) -> Any:
    moment = SET_BACK + dt.timedelta(
        seconds=rng.choice((rng.randrange(-60, 60), rng.randrange(-200_000, 200_000), rng.randrange(-(10**8), 10**8)))
    )
    return {
        "ts": moment, "z": moment.replace(tzinfo=None), "d": moment.date(), "n": rng.randrange(-5, 300),
        "s": rng.choice(TEXTS),
    }[column]  # fmt: skip


def _literal(value: Any) -> str:
    match value:
        case dt.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind}'{value.isoformat(' ').replace('+00:00', 'Z')}'"
        case dt.date():
            return f"DATE'{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _drawn(rng: random.Random, column: str, depth: int = 0) -> tuple[str, Callable[[Any], bool | None]]:
    """A predicate over a column, and what it is for a value."""
    if depth < 2 and rng.random() < 0.4:
        (left, of_left), (right, of_right) = (_drawn(rng, column, depth + 1) for _ in range(2))
        if rng.random() < 0.3:
            return f"NOT ({left})", lambda value: None if of_left(value) is None else not of_left(value)
        if rng.random() < 0.5:
            return f"({left}) AND ({right})", lambda value: of_left(value) and of_right(value)
        return f"({left}) OR ({right})", lambda value: of_left(value) or of_right(value)
    literal, other = _value(rng, column), _value(rng, column)
    if rng.random() < 0.2:
        return (
            f"{column} IN ({_literal(literal)}, {_literal(other)})",
            lambda value: None if value is None else value in (literal, other),
        )
    name = rng.choice(list(OPERATORS))
    return (
        f"{column} {name} {_literal(literal)}",
        lambda value: None if value is None else bool(OPERATORS[name](value, literal)),
    )


def _known(rng: random.Random, values: list[Any]) -> Any:
    filled = [value for value in values if value is not None]
    nulls = len(filled) < len(values)
    if not filled:
        return Range(values=False) if rng.random() < 0.5 else Summary(nulls=True, filled=False)
    span = Range(min(filled), max(filled), nulls=nulls)
    listed = frozenset(filled)
    return rng.choice((span, Summary(nulls, True, span), Summary(nulls, True, values=listed),
                       Summary(nulls, True, may_equal=lambda value: value in listed)))  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_given_any_file_then_it_is_kept_if_a_row_matches_and_some_others_are_ruled_out(
    expression: str, zone: str
) -> None:
    rng, ruled_out, bounded = random.Random(f"{expression} {zone}"), 0, 0
    kind, column, compute = EXPRESSIONS[expression]
    text = _canonical(expression)
    for _ in range(300):
        near = _value(rng, column)
        rows = [near, *(_value(rng, column) for _ in range(rng.choice((0, 0, 1, 3)))), *rng.choice(([], [None]))]
        where, judged = _drawn(rng, column)
        predicate = parse_predicate(where, SCHEMA, time_zone=zone, timestamps="timestamp", expressions={text: kind})
        known = _known(rng, [None if value is None else compute(value, ZONES[zone]) for value in rows])
        kept = may_match(predicate, {key_of(text): known})
        assert kept or not any(judged(value) for value in rows), (where, rows, known)
        ruled_out += not kept
        allowed = keys_for(predicate, [key_of(text)])
        if isinstance(allowed, KeySet):
            matching = [value for value in rows if judged(value)]
            assert {(compute(value, ZONES[zone]),) for value in matching} <= allowed.keys, (where, rows)
            bounded += 1
    assert ruled_out > 10 and (bounded > 10 or zone != "UTC")


@pytest.mark.by_turn(1)
def test_given_a_clock_set_back_over_midnight_then_the_day_before_is_kept() -> None:
    text = _canonical("to_date(ts)")
    where = "ts >= TIMESTAMP'2006-10-29 02:30:00Z'"  # the first half minute of the 29th, and then again of the 28th
    predicate = parse_predicate(
        where, SCHEMA, time_zone="America/St_Johns", timestamps="timestamp", expressions={text: "date"}
    )
    assert may_match(predicate, {key_of(text): Range(dt.date(2006, 10, 28), dt.date(2006, 10, 28), nulls=False)})
    assert not may_match(predicate, {key_of(text): Range(dt.date(2006, 10, 20), dt.date(2006, 10, 27), nulls=False)})


@pytest.mark.parametrize("expression", OTHERS)
def test_given_an_expression_that_may_fall_or_fail_then_nothing_is_concluded(expression: str) -> None:
    text = _canonical(expression)
    column = parse(expression, SCHEMA).columns[0]
    literal = _literal(_value(random.Random(1), column))
    for where in (f"{column} >= {literal}", f"{column} = {literal}", f"NOT {column} IN ({literal})"):
        predicate = parse_predicate(where, SCHEMA, time_zone="UTC", timestamps="timestamp", expressions={text: "int"})
        assert may_match(predicate, {key_of(text): NOTHING}), where


def test_given_a_predicate_over_an_expression_then_nothing_is_concluded_of_its_column_or_of_another_expression() -> (
    None
):
    days, years = _canonical("to_date(ts)"), _canonical("year(ts)")
    predicate = parse_predicate(
        "to_date(ts) >= DATE'2024-01-01'", SCHEMA, time_zone="UTC", timestamps="timestamp",
        expressions={days: "date", years: "int"},
    )  # fmt: skip
    assert may_match(predicate, {"ts": NOTHING, key_of(years): NOTHING})
    assert not may_match(predicate, {key_of(days): NOTHING})


def test_given_times_at_the_ends_of_the_calendar_then_nothing_is_concluded_and_nothing_fails() -> None:
    text = _canonical("to_date(ts)")
    for literal in ("0001-01-01 00:00:00Z", "9999-12-31 23:59:59Z"):
        predicate = parse_predicate(
            f"ts >= TIMESTAMP'{literal}'", SCHEMA, time_zone="Asia/Tokyo", timestamps="timestamp",
            expressions={text: "date"},
        )  # fmt: skip
        assert may_match(predicate, {key_of(text): NOTHING})
