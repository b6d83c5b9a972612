"""The shapes of files that others publish, made anew by our own writer, and read by every kind of index."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.golden.reading import read_all

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

DAY, TIME = dt.date(2009, 4, 1), dt.datetime(2009, 4, 1, 12, 0, 0)


def nested() -> pa.Table:
    """Nested columns beside one that is asked for, as of the lists, maps and structs of others."""
    return pa.table(
        {
            "id": pa.array([1, 2, None], pa.int64()),
            "list": pa.array([["a", None], None, []], pa.list_(pa.string())),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
        }
    )


def plain() -> pa.Table:
    """Columns of every plain type, as of all types of Impala, with unsigned numbers and categories."""
    return pa.table(
        {
            "bool_col": [True, False, None],
            "tiny": pa.array([255, 0, None], pa.uint8()),
            "big": pa.array([2**32 - 1, 1, 1], pa.uint32()),
            "category": pa.array(["x", None, "x"], pa.dictionary(pa.int8(), pa.string())),
            "decimal": pa.array([Decimal("1.20"), None, Decimal("-3.40")], pa.decimal128(12, 2)),
            "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "day": pa.array([DAY, None, DAY], pa.date32()),
            "double": [float("nan"), -0.0, 1.5],
        }
    )


def test_given_files_of_the_shapes_that_others_write_then_every_answer_is_spark_s(spark: Any, tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    golden.mkdir()
    pq.write_table(nested(), golden / "nested.parquet", compression="zstd", data_page_version="2.0")
    pq.write_table(plain(), golden / "plain.parquet", write_statistics=False)
    times = pa.table({"at": pa.array([TIME, None], pa.timestamp("us"))})
    pq.write_table(times, golden / "int96.parquet", use_deprecated_int96_timestamps=True)

    counts = read_all(spark, golden, tmp_path / "scratch")
    assert not counts.differ, str(counts)
    assert (counts.tables, counts.columns, counts.columns_in_process) == (3, 13, 13), str(counts)
    assert counts.indexes["secondary"] == 3 and counts.asked > 9 and counts.in_process, str(counts)
