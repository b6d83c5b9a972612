"""What a covering index would take, by some rows of its table: how many different values all rows have."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from spark_apps.advisor.hypothetical import _times_more_values

ROWS, PARTS, PART = 400_000, 20, 1_000


@pytest.mark.parametrize("kind", ["anywhere", "side by side", "few"])
def test_given_some_rows_then_it_is_known_about_how_many_values_all_have(kind: str) -> None:
    dice = random.Random(7)
    column = {
        "anywhere": [dice.randrange(30_000) for _ in range(ROWS)],
        "side by side": [number // 4 for number in range(ROWS)],
        "few": [dice.randrange(50) for _ in range(ROWS)],
    }[kind]
    starts = range(0, ROWS, ROWS // PARTS)
    some = [value for start in starts for value in column[start : start + PART]]
    told = _times_more_values(pa.chunked_array([some]), ROWS / len(some))
    assert told == pytest.approx(len(set(column)) / len(set(some)), rel=0.1)
