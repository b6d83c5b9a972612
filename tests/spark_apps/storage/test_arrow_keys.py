"""Rows found by their keys: as a dictionary of Python tuples finds them, where None equals None."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_apps
from spark_apps.storage.arrow_keys import (
    last_matches,
    number_rows,
    positions_of_keys,
    rows_with_keys,
    rows_without_keys,
)

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
"""What a processor gives for 0.0 / 0.0; Spark and Python write another one."""

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, 2, -(2**62), None]),
    (pa.string(), ["a", "", "é", None]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, -0.0, math.nan, NEGATIVE_NAN, 1.5, None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-0.01"), None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None]),
    (pa.null(), [None]),
]


def plain(value: Any) -> Any:
    """As Spark compares: NaN equals NaN, and -0.0 is 0.0."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def made(kinds: list[int], rows: int, seed: random.Random) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    columns = [[seed.choice(VALUES[kind][1]) for _ in range(rows)] for kind in kinds]
    table = pa.table(
        {f"c{n}": pa.array(c, VALUES[kind][0]) for n, (c, kind) in enumerate(zip(columns, kinds, strict=True))}
    )
    halves = [table.slice(0, rows // 2), table.slice(rows // 2)]  # of two chunks
    return pa.concat_tables(halves), [tuple(map(plain, row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("number", range(40))
def test_given_keys_with_nulls_then_rows_are_found_as_by_a_dictionary(number: int) -> None:
    seed = random.Random(number)
    kinds = (
        [number % len(VALUES)]
        if number < len(VALUES)
        else [seed.randrange(len(VALUES)) for _ in range(seed.randint(1, 3))]
    )
    names = [f"c{n}" for n in range(len(kinds))]
    rows, of_rows = made(kinds, seed.choice([0, 1, 30]), seed)
    keys, of_keys = made(kinds, seed.choice([0, 1, 5]), seed)
    expected = [n for n, row in enumerate(of_rows) if row in set(of_keys)]

    assert positions_of_keys(rows, keys, names).tolist() == expected
    assert rows_with_keys(rows, keys, names).num_rows == len(expected)
    assert rows_without_keys(rows, keys, names).num_rows == len(of_rows) - len(expected)
    positions = {key: n for n, key in enumerate(of_keys)}
    assert last_matches(rows.columns, keys.columns).tolist() == [positions.get(row, -1) for row in of_rows]
    numbers = number_rows(rows.columns).tolist()
    assert len(set(numbers)) == len(set(of_rows)) == len(set(zip(numbers, of_rows, strict=True)))


def test_given_keys_of_another_type_then_they_are_compared_as_the_rows_are() -> None:
    rows = pa.table({"k": pa.array(["a", None, "b"], pa.string())})
    keys = pa.table({"k": pa.array(["b", None], pa.large_string())})

    assert positions_of_keys(rows, keys, ["k"]).tolist() == [1, 2]


def test_given_the_code_of_the_lake_s_side_then_no_arrow_join_is_made_elsewhere() -> None:
    folder = Path(spark_apps.__file__).parent
    joins = [path.relative_to(folder) for path in folder.rglob("*.py") if "join_type=" in path.read_text()]

    assert joins == [], "Arrow's join matches no null: use spark_apps.storage.arrow_keys"
