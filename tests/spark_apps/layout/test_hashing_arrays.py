"""Buckets of whole columns, beside those of single keys, which are held against Spark's own elsewhere."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_apps.indexes.keyed.matching import comparable_type
from spark_apps.layout.hashing import bucket_id, buckets_of_columns
from spark_apps.layout.types import parse_type

ROWS = 2_000
_EPOCH = dt.datetime(1970, 1, 1)
MAKE: dict[str, Callable[[random.Random], Any]] = {
    "string": lambda r: "".join(r.choice("aZ0é\0😀 ß") for _ in range(r.randrange(70))),
    "binary": lambda r: r.randbytes(r.randrange(70)),
    "tinyint": lambda r: r.randrange(-(2**7), 2**7),
    "smallint": lambda r: r.randrange(-(2**15), 2**15),
    "int": lambda r: r.randrange(-(2**31), 2**31),
    "bigint": lambda r: r.randrange(-(2**63), 2**63),
    "date": lambda r: dt.date(1, 1, 1) + dt.timedelta(days=r.randrange(3_000_000)),
    "timestamp": lambda r: (_EPOCH + dt.timedelta(microseconds=r.randrange(-(10**16), 10**16))).replace(tzinfo=dt.UTC),
    "timestamp_ntz": lambda r: _EPOCH + dt.timedelta(microseconds=r.randrange(-(10**16), 10**16)),
}


def _column(kind: str, seed: int) -> list[Any]:
    r = random.Random(seed)
    return [None if r.random() < 0.1 else MAKE[kind](r) for _ in range(ROWS)]


@pytest.mark.parametrize("names", [*((name,) for name in MAKE), tuple(MAKE), ("bigint", "string")])
def test_given_columns_then_each_row_gets_the_bucket_that_its_key_has(names: tuple[str, ...]) -> None:
    kinds = [parse_type(name) for name in names]
    columns = [_column(name, seed) for seed, name in enumerate(names)]
    arrays = [pa.array(values, comparable_type(kind)) for values, kind in zip(columns, kinds, strict=True)]

    buckets = buckets_of_columns(arrays, kinds, 997)

    assert buckets.tolist() == [bucket_id(key, 997, "xxhash64", list(names)) for key in zip(*columns, strict=True)]


def test_given_a_part_of_a_larger_column_then_its_own_rows_count() -> None:
    values = _column("string", 5)
    kind = parse_type("string")

    buckets = buckets_of_columns([pa.array(values).slice(100, 50)], [kind], 31)

    assert buckets.tolist() == [bucket_id([value], 31, "xxhash64", ["string"]) for value in values[100:150]]


@pytest.mark.parametrize("name", ["decimal(10,2)", "double", "boolean"])
def test_given_a_type_that_is_hashed_key_by_key_then_it_is_left_alone(name: str) -> None:
    kind = parse_type(name)

    assert buckets_of_columns([pa.array([None], comparable_type(kind))], [kind], 8) is None
