"""Filters of Arrow as predicates: for every row for which one is true, the other may be."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_apps.query.arrow_expressions import predicate_of_expression
from spark_apps.query.predicates import And, Comparison, In, IsNull, Not, Opaque, may_match, reasons

TYPES = {
    "id": "bigint", "n": "int", "s": "string", "d": "date", "t": "timestamp", "u": "timestamp_ntz", "b": "boolean",
    "p": "decimal(10,2)", "x": "double", "l": "array<int>", "y": "binary",
}  # fmt: skip
SCHEMA = pa.schema(
    {
        "id": pa.int64(), "n": pa.int32(), "s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us", "UTC"),
        "u": pa.timestamp("us"), "b": pa.bool_(), "p": pa.decimal128(10, 2), "x": pa.float64(),
        "l": pa.list_(pa.int32()), "y": pa.binary(),
    }
)  # fmt: skip
MOMENT = dt.datetime(1890, 2, 3, 4, 5, 6, 7)
SAMPLES: dict[str, list[Any]] = {
    "id": [-(2**63), -1, 0, 7, 2**63 - 1], "n": [-3, 0, 5], "s": ["", "a", "ä", "b"],
    "d": [dt.date(1, 1, 1), dt.date(2024, 2, 29)], "t": [MOMENT.replace(tzinfo=dt.UTC)],
    "u": [MOMENT, dt.datetime(2024, 1, 1)], "b": [True, False], "p": [Decimal("-1.25"), Decimal("9.00")],
    "y": [b"", b"\xff\x00"],
}  # fmt: skip


def read(expression: pc.Expression) -> Any:
    return predicate_of_expression(expression, SCHEMA, TYPES)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_comparison_is_read_as_it_stands(name: str) -> None:
    for value in SAMPLES[name]:
        field, literal = pc.field(name), pa.scalar(value, SCHEMA.field(name).type)
        assert read(field == literal) == Comparison(name, "=", value)
        assert read(field != literal) == Not(Comparison(name, "=", value))
        # A literal of Arrow's own would be turned round by Python.
        assert read(pc.scalar(literal) >= field) == Comparison(name, "<=", value)
        assert read(pc.scalar(literal) < field) == Comparison(name, ">", value)
        assert read(field.isin([literal])) == And((Not(IsNull(name)), In(name, frozenset({value}))))
    assert read(pc.field(name).is_null()) == IsNull(name)
    assert read(pc.field(name).is_valid()) == Not(IsNull(name))


def test_an_in_as_duckdb_writes_it_is_one() -> None:
    field = pc.field("id")
    chosen = pc.if_else(field.is_valid(), field.isin([1, 2]), pa.scalar(None, pa.bool_()))
    assert read(chosen) == In("id", frozenset({1, 2}))
    assert isinstance(read(pc.if_else(pc.field("n").is_valid(), field.isin([1]), pa.scalar(None, pa.bool_()))), Opaque)


def test_what_is_not_understood_prunes_nothing() -> None:
    for odd in (
        pc.field("x") > 1.0, pc.starts_with(pc.field("s"), "a"), pc.field("id").isin([1, None]),
        pc.field("id") == pc.field("n"), pc.field("id") + 1 == 2, pc.list_value_length(pc.field("l")) == 1,
    ):  # fmt: skip
        predicate = read(odd)
        assert reasons(predicate) and may_match(predicate, {}) and may_match(Not(predicate), {}), odd
        both = read(odd & (pc.field("id") == 1))
        assert not may_match(both, {"id": 2}) or isinstance(both, Opaque)


def test_random_expressions_leave_out_no_row_that_they_are_true_for() -> None:
    chosen = random.Random(3)
    values = [None, -1, 0, 7]
    rows = pa.table({"id": pa.array([a for a in values for _ in values], pa.int64()),
                     "n": pa.array(values * len(values), pa.int32())})  # fmt: skip

    def draw(depth: int) -> pc.Expression:
        if depth and chosen.random() < 0.6:
            left, right = draw(depth - 1), draw(depth - 1)
            return chosen.choice([left & right, left | right, ~left])
        field, value = chosen.choice([(pc.field("id"), pa.int64()), (pc.field("n"), pa.int32())])
        literal = pa.scalar(chosen.choice([-1, 0, 7, 9]), value)
        compared = [field == literal, field != literal, field < literal, literal <= field]
        return chosen.choice([*compared, field.is_null(), field.isin([literal])])

    pruned = 0
    for _ in range(400):
        expression = draw(3)
        predicate = predicate_of_expression(expression, rows.schema, {"id": "bigint", "n": "int"})
        true = {tuple(row.values()) for row in rows.filter(expression).to_pylist()}
        for row in rows.to_pylist():
            kept = may_match(predicate, row)
            assert kept or tuple(row.values()) not in true, expression
            pruned += not kept
    assert pruned > 1000
