"""Predicates judged by Arrow, against the same predicates judged value by value."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_apps.layout.types import arrow_type, parse_type
from spark_apps.query.arrow_filter import satisfying
from spark_apps.query.predicates import NAN, And, Comparison, Fixed, In, IsNull, Not, Or, Predicate, outcomes

UTC = dt.UTC
VALUES: dict[str, list[Any]] = {
    "int": [-5, 0, 1, 7, 2**31 - 1],
    "bigint": [-(2**63), 0, 3],
    "double": [-1.5, 0.0, 0.1, 2.0, float("inf"), NAN],
    "float": [-1.5, 0.0, 0.5, NAN],
    "string": ["", "a", "ä", "b", "\U0001f600"],
    "boolean": [True, False],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "timestamp": [dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(1890, 1, 1, 1, 2, 3, 4, tzinfo=UTC)],
    "timestamp_ntz": [dt.datetime(2024, 1, 1), dt.datetime(1890, 1, 1, 1, 2, 3, 4)],
    "decimal(10,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("12345678.90")],
    "binary": [b"", b"\x00", b"\xff"],
}
BEYOND: dict[str, list[Any]] = {
    "int": [2**31, Decimal("0.5")],
    "float": [0.1, 1],
    "double": [1, Decimal("0.1")],
    "decimal(10,2)": [Decimal("0.005"), 7],
}
"""Literals that are no values of the type."""


def predicates(kind: str, name: str) -> list[Predicate]:
    literals = [*VALUES[kind], *BEYOND.get(kind, ())]
    made: list[Predicate] = [
        Comparison(name, op, value) for op in ("=", "<=>", "<", "<=", ">", ">=") for value in literals
    ]
    made += [In(name, frozenset(some), null) for some in (literals[:1], literals[1:], []) for null in (False, True)]
    return [*made, IsNull(name), Fixed(None, frozenset((name,)))]


def expected(predicate: Predicate, rows: list[dict[str, Any]]) -> list[bool | None]:
    booleans = []
    for row in rows:
        [outcome] = outcomes(predicate, row)
        booleans.append(outcome)
    return booleans


@pytest.mark.parametrize("kind", VALUES)
def test_every_comparison_of_every_value_is_as_it_is_for_one(kind: str) -> None:
    values = [None, *VALUES[kind], *VALUES[kind][:1]]
    column = pa.array(values, arrow_type(parse_type(kind)))
    rows = pa.table({"c": pa.chunked_array([column.slice(0, 2), column.slice(2)])})
    for predicate in predicates(kind, "c"):
        for one in (predicate, Not(predicate)):
            judged = satisfying(one, rows, {"c": kind}).to_pylist()
            assert judged == expected(one, [{"c": value} for value in values]), one


def test_values_that_python_does_not_know_are_judged_too() -> None:
    days = pa.array([None, 0, 4_000_000, -800_000], pa.int32()).cast(pa.date32())
    judged = satisfying(Comparison("d", ">", dt.date(2024, 1, 1)), pa.table({"d": days}), {"d": "date"})
    assert judged.to_pylist() == [None, False, True, False]


def test_joined_predicates_are_of_three_values() -> None:
    chosen = random.Random(7)
    values = [None, 0, 1, 7]
    rows = [{"a": a, "b": b} for a, b in itertools.product(values, values)]
    table = pa.Table.from_pylist(rows, schema=pa.schema({"a": pa.int32(), "b": pa.int32()}))
    atoms = [*predicates("int", "a"), *predicates("int", "b"), Fixed(True), Fixed(False)]
    for _ in range(300):
        parts = tuple(chosen.sample(atoms, 3))
        joined = chosen.choice([And, Or])((*parts[:1], Not(Or(parts[1:])), chosen.choice(atoms)))
        assert satisfying(joined, table, {"a": "int", "b": "int"}).to_pylist() == expected(joined, rows), joined


def test_no_rows_are_judged_as_none() -> None:
    empty = pa.table({"c": pa.array([], pa.float64())})
    assert satisfying(Comparison("c", "=", 1), empty, {"c": "double"}).to_pylist() == []
