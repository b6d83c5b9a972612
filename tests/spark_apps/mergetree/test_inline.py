"""Tables made on the driver as DataFrames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.spark_apps.frames import of_arrow

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("pieces", [[[1, 2], [], [3], [4, 5]], [[], [1]], [[]], [[], []]])
def test_no_row_of_an_arrow_table_is_lost_behind_an_empty_piece_of_it(spark: Any, pieces: list[list[int]]) -> None:
    table = pa.table({"n": pa.chunked_array([pa.array(piece, pa.int64()) for piece in pieces])})
    collected = of_arrow(spark, table).collect()
    assert sorted(row.n for row in collected) == [n for piece in pieces for n in piece]
