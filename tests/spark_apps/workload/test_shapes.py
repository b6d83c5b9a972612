"""Shapes of predicates: no literal is left in one, and predicates that differ in literals alone have the same."""

from __future__ import annotations

import random

import pytest

from spark_apps.workload.asked import UNKNOWN_SHAPE
from spark_apps.workload.limits import MAX_SHAPE_CHARACTERS
from spark_apps.workload.shapes import shape_of

SHAPES = {
    "city = 'sfo' AND fare > -3.5e3": "city = ? AND fare > ?",
    "id IN (1,2 , 3)": "id IN (?)",
    "id in(7)": "id IN (?)",
    "((rider = 5L)) AND ((fare > 0.1D))": "rider = ? AND fare > ?",
    "((a = 1 OR b = 2)) AND c = 3": "(a = ? OR b = ?) AND c = ?",
    "NOT (a = true)": "NOT (a = ?)",
    "lower(city) like '%a\\'b%'": "lower(city) LIKE ?",
    "`my col` = \"secret\" or `d`>=date'2024-01-01'": "`my col` = ? OR d >= DATE ?",
    "a between 1 and -2 and b is not null": "a BETWEEN ? AND ? AND b IS NOT NULL",
    "cast(X'414243' AS string) = c -- 'secret'\n and d = /* secret */ 4": "cast(? AS string) = c AND d = ?",
    "'never closed": UNKNOWN_SHAPE,
    "": UNKNOWN_SHAPE,
}


@pytest.mark.parametrize("sql", SHAPES)
def test_a_predicate_has_its_shape(sql: str) -> None:
    assert shape_of(sql) == SHAPES[sql]


def test_given_literals_of_any_form_then_none_is_left_in_the_shape() -> None:
    rng = random.Random(5)
    forms = ("'{}'", '"{}"', "r'{}'", "'it''s {}'", "'a\\'{}'", "date'{}'", "X'{}'", "'{}' /* {} */", "'{}' -- {}\n",
             "concat('{}', name)", "'{}' || '{}'")  # fmt: skip
    for _ in range(300):
        secret = f"{rng.randrange(10**12):012d}"
        parts = [f"c{n} {rng.choice(('=', '<>', 'like', '<=>'))} {rng.choice(forms).replace('{}', secret)}"
                 for n in range(rng.randrange(1, 4))]  # fmt: skip
        sql = rng.choice((" AND ", " or ")).join(rng.choice(("{}", "({})", "NOT ({})")).format(part) for part in parts)
        assert secret not in shape_of(sql) and shape_of(sql) != UNKNOWN_SHAPE, sql
        assert shape_of(sql) == shape_of(sql.replace(secret, "123456789012")), sql
    assert "12345" not in shape_of(" AND ".join(f"x{n} = 12345" for n in range(2)))


def test_a_predicate_that_is_too_long_or_nested_has_a_shape_all_the_same() -> None:
    assert shape_of(f"id IN ({', '.join(map(str, range(10_000)))})") == "id IN (?)"
    for sql in (" AND ".join(f"column_{n} = {n}" for n in range(2_000)), "(" * 50_000 + "a", "a = 1 " * 40_000):
        assert len(shape_of(sql)) <= MAX_SHAPE_CHARACTERS
