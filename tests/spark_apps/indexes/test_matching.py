"""Keys searched for in sorted columns, against each value compared with each key; no Spark."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_apps.indexes.keyed.matching import KeyMatcher, _distinct
from spark_apps.mergetree.tree import Tree
from spark_apps.timeline.model import Field

MAKERS: dict[str, Callable[[random.Random], str]] = {
    "random": lambda c: f"{c.getrandbits(128):032x}",
    "alike in the first bytes": lambda c: f"{'x' * 20}{c.randrange(4_000):08d}",
    "some alike in eight bytes": lambda c: f"{c.randrange(900_000):08d}--------{c.randrange(4)}",
    "many alike in eight bytes": lambda c: f"{c.randrange(20):08d}--------{c.randrange(500):04d}",
    "few bytes": lambda c: f"{c.randrange(3_000):06d}",
    "of two lengths": lambda c: f"{c.randrange(3_000):0{c.choice([9, 12])}d}",
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("whole_key", [True, False])
def test_given_a_sorted_column_then_the_rows_with_a_key_are_found(name: str, whole_key: bool) -> None:
    columns = ("k",) if whole_key else ("k", "n")
    tree = Tree("t", tuple(Field(each, "string") for each in columns), columns, ("k",))
    for seed in range(6):
        chance = random.Random(seed)
        held = sorted({MAKERS[name](chance) for _ in range(2_000)})
        if not whole_key:  # a key of a secondary index has several entries
            held = sorted(held + chance.choices(held, k=500))
        keys = chance.sample(held, 300) + [MAKERS[name](chance) for _ in range(300)] + ["~" * 28, " " * 28]
        keys += keys[:50]
        matcher = KeyMatcher(tree, pa.table({"k": keys}))
        column = pa.chunked_array([pa.array(held[:700]), pa.array(held[700:])])

        found = matcher.rows_among(column)

        assert found.tolist() == [n for n, value in enumerate(held) if value in set(keys)], seed


@pytest.mark.parametrize("name", MAKERS)
def test_distinct_values_are_sorted_as_strings(name: str) -> None:
    chance = random.Random(1)
    for count in (1, 2, 3_000):
        values = [MAKERS[name](chance)[:9] + ("" if count < 5 else "-" * 9) for _ in range(count)]
        values += values[: count // 10]
        assert _distinct(np.array(values, "S")).tolist() == sorted({value.encode() for value in values})
