"""What is known of the rows of a file, held against predicates: a file with a matching row is never ruled out."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from spark_apps.indexes.expressions import key_of, parse
from spark_apps.indexes.ranges import NOTHING, Range, Summary
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Opaque, may_match

SCHEMA = {"n": "int", "s": "string", "f": "double", "b": "boolean", "p": "struct<id:int>"}
LOWER, NESTED = "lower(`s`)", "`p`.`id`"
EXPRESSIONS = {LOWER: "string", NESTED: "int"}
TEXTS = ("", "a", "A", "abc", "abd", "xabcx", "Straße", "ÄB", "zz", "a%b", "\U0001f600b")
NUMBERS = (-1, 0, 1, 2, 7)
FLOATS = (math.nan, 0.0, -1.5, 2.0, math.inf)


def parsed(where: str) -> Any:
    return parse_predicate(where, SCHEMA, time_zone="UTC", expressions=EXPRESSIONS)


def _row(rng: random.Random) -> dict[str, Any]:
    text = rng.choice((*TEXTS, None))
    return {
        "n": rng.choice((*NUMBERS, None)),
        "s": text,
        "f": rng.choice((*FLOATS, None)),
        "b": rng.choice((True, False, None)),
        key_of(LOWER): None if text is None else text.lower(),
        key_of(NESTED): rng.choice((*NUMBERS, None)),
    }


def _atom(rng: random.Random) -> str:
    text, number = rng.choice(TEXTS), rng.choice(NUMBERS)
    op = rng.choice(("=", "<=>", "<", "<=", ">", ">=", "<>"))
    return rng.choice((
        f"n {op} {number}", f"n IN ({number}, {rng.choice(NUMBERS)})", f"n IN ({number}, NULL)", "n IS NULL",
        "s IS NOT NULL", f"s {op} '{text}'", f"s LIKE '{text[:2]}%'", f"s LIKE '%{text[1:3]}%'", f"s LIKE '{text}'",
        f"s LIKE '_{text[1:]}'", f"s NOT LIKE '%{text[:1]}%'", f"startswith(s, '{text[:2]}')",
        f"contains(s, '{text[1:]}')", f"endswith(s, '{text[-2:]}')", f"f {op} double('{rng.choice(FLOATS)}')".replace(
            "double('nan')", "double('NaN')").replace("double('inf')", "double('Infinity')"),
        f"f {op} {number}D", f"lower(s) {op} '{text.lower()}'", f"'{text.lower()}' = LOWER(s)",
        f"lower(s) IN ('{text.lower()}', 'q')", "lower(s) IS NULL", f"lower(s) LIKE '{text[:1].lower()}%'",
        f"p.id {op} {number}", f"P.ID IN ({number})", f"p.id BETWEEN {number} AND 3", "b", "NOT b", "b IS NOT TRUE",
        f"length(s) = {number}",
    ))  # fmt: skip


def _where(rng: random.Random, depth: int = 0) -> str:
    if depth < 3 and rng.random() < 0.5:
        joined = f" {rng.choice(('AND', 'OR'))} ".join(_where(rng, depth + 1) for _ in range(2))
        return f"({joined})" if rng.random() < 0.7 else f"NOT ({joined})"
    return _atom(rng)


def _less(value: Any) -> tuple[bool, Any]:
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else (False, value)


def _summary(rng: random.Random, values: list[Any]) -> Summary:
    """What is known of some values, each kind of it by chance."""
    filled = [value for value in values if value is not None]
    known: dict[str, Any] = {"nulls": len(filled) < len(values), "filled": bool(filled)}
    if filled and rng.random() < 0.5:
        known["span"] = Range(min(filled, key=_less), max(filled, key=_less), nulls=False)
    if rng.random() < 0.3:
        known["values"] = frozenset(filled)
    if rng.random() < 0.5:
        known["may_equal"] = lambda value: any(value == each or value is each for each in filled)
    if rng.random() < 0.5 and all(isinstance(value, str) for value in filled):
        known["may_contain"] = lambda text: any(text in each for each in filled)
    return Summary(**known)


@pytest.mark.by_turn(4)
def test_given_random_rows_and_predicates_then_rows_that_match_are_never_ruled_out_by_a_summary() -> None:
    ruled_out = 0
    for seed in range(3_000):
        rng = random.Random(seed)
        rows = [_row(rng) for _ in range(rng.randrange(1, 5))]
        where = _where(rng)
        predicate = parsed(where)
        summary = {name: _summary(rng, [row[name] for row in rows]) for name in rows[0] if rng.random() < 0.8}
        # A predicate of which nothing more is known is true of all rows here, so that nothing may rule these out.
        if any(may_match(predicate, row) for row in rows):
            assert may_match(predicate, summary), f"{seed}: {where} of {rows}"
        else:
            ruled_out += not may_match(predicate, summary)
    assert ruled_out > 300


@pytest.mark.parametrize(
    ("where", "values", "matches"),
    [
        ("s LIKE 'ab%'", ["aa", "ac"], False),
        ("s LIKE 'ab%'", ["aa", "abz"], True),
        ("s LIKE '%x%'", ["ab", "yy"], False),
        ("s NOT LIKE '%x%'", ["x"], True),  # nothing is told of where it is false
        ("NOT (s LIKE '%x%')", ["y"], True),
        ("s LIKE 'a_c%'", ["abc"], True),
        ("s LIKE '%b_d'", ["abcd"], True),
        ("s LIKE '_b%'", ["ab"], True),
        ("s LIKE '%'", [None], False),
        ("s LIKE 'a' ESCAPE 'b'", ["q"], True),
        ("s LIKE 'a\\\\%'", ["q"], True),
        ("s ILIKE 'a'", ["q"], True),
        ("s RLIKE 'a'", ["q"], True),
        ("s LIKE ANY ('a')", ["q"], True),
        ("contains(s, n)", ["q"], True),
        ("s LIKE concat('a', '%')", ["q"], True),
        ("n LIKE '1'", ["q"], True),
        ("s LIKE '\ufffda%'", ["q"], True),
    ],
)
def test_given_texts_to_be_found_then_only_what_like_says_for_sure_rules_out(
    where: str, values: list[Any], matches: bool
) -> None:
    filled = frozenset(value for value in values if value is not None)
    known = Summary(nulls=None in values, filled=bool(filled), values=filled)
    assert may_match(parsed(where), {"s": known, "n": known}) is matches


@pytest.mark.parametrize("where", ["lower(city) = 'x'", "upper(s) = 'x'", "lower(s) = s", "lower(s) = 1", "n + 1 = 2"])
def test_given_an_expression_that_no_index_holds_then_nothing_is_known_of_it(where: str) -> None:
    predicate = parse_predicate(where, {**SCHEMA, "city": "string"}, expressions=EXPRESSIONS)
    assert isinstance(predicate, Opaque) and predicate.same is None


@pytest.mark.parametrize(
    ("where", "known"),
    [
        ("lower(s) = 'x'", True),
        ("CAST(n AS string) = '1'", True),
        # Of a text of some length, and of another order, the library tells nothing.
        ("CAST(n AS varchar(2)) = '1'", False),
        ("CAST(n AS CHAR(2)) = '1 '", False),
        ("CAST(n AS string COLLATE n) = '1'", False),
        # The type is that of the session in which the index was made.
        ("p.id = 1.5", True),
        ("p.id <=> 1.5", False),
    ],
)
def test_given_what_another_session_or_type_would_make_of_it_then_nothing_is_known_of_an_expression(
    where: str, known: bool
) -> None:
    predicate = parse_predicate(where, SCHEMA, expressions={**EXPRESSIONS, "CAST(`n` AS string)": "string"})
    assert isinstance(predicate, Opaque) and (predicate.same is not None) is known


def test_given_an_expression_that_an_index_holds_then_a_predicate_depends_on_it_and_not_on_its_column() -> None:
    predicate = parsed("lower(s) = 'sfo'")
    assert not may_match(predicate, {key_of(LOWER): NOTHING})
    assert may_match(predicate, {"s": Summary(nulls=False, filled=True, values=frozenset({"SFO"}))})
    # The other way round nothing is known either: 'SFO' is one of several texts whose lower case this is.
    assert may_match(parsed("s = 'SFO'"), {key_of(LOWER): Summary(False, True, values=frozenset({"x"}))})


def test_given_no_session_then_nothing_is_known_of_expressions() -> None:
    predicate = parse_predicate("lower(s) = 'sfo'", SCHEMA)
    assert isinstance(predicate, Opaque) and (predicate.same, predicate.implied) == (None, None)


@pytest.mark.parametrize(
    ("kind", "same"), [("map<string,int>", False), ("struct<Key:int>", True), ("struct<m:map<string,int>>", False)]
)
def test_keys_of_maps_are_told_apart_by_their_case_as_fields_are_not(kind: str, same: bool) -> None:
    node = parse_predicate("p.Key = 5", {"p": kind}, expressions={"`p`.`key`": "int"})

    assert isinstance(node, Opaque)
    assert (node.same is not None) == same
    assert (parse("p.Key", {"p": kind}).text == "`p`.`key`") == same
