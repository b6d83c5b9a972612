"""What the bounds of floating point columns tell in files of different writers; no Spark."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.indexes.covering.scan import matching_fraction
from spark_apps.indexes.ranges import Range, has_nan_on_top, range_of
from spark_apps.layout.types import parse_type
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.planning import ParsedPredicateProbe

DOUBLE = parse_type("double")


def _told(low: float, high: float, by: str = "parquet-mr version 1.15.2 (build x)") -> Range | None:
    statistics = SimpleNamespace(
        has_null_count=True, null_count=0, num_values=3, has_min_max=True, min=low, max=high, physical_type="DOUBLE"
    )
    return range_of(statistics, DOUBLE, has_nan_on_top(SimpleNamespace(created_by=by)))


def _part(where: str, held: Range) -> float:
    probe = ParsedPredicateProbe(parse_predicate(where, {"x": "double"}))
    return matching_fraction(probe, ({"x": held},), "x")


def test_given_a_writer_that_leaves_nan_out_then_its_bounds_are_not_relied_on(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, math.nan, 2.0]}), tmp_path / "f.parquet")
    metadata = pq.ParquetFile(tmp_path / "f.parquet").metadata
    assert not has_nan_on_top(metadata)
    statistics = metadata.row_group(0).column(0).statistics
    assert statistics.max == 2.0, "NaN is left out"
    assert range_of(statistics, DOUBLE, has_nan_on_top(metadata)) is None


@pytest.mark.parametrize(
    "by", ["parquet-mr version 1.8.1", "parquet-mr version 1.18.0 (build x)", "", "other 1.15", None]
)
def test_given_a_writer_that_is_not_known_then_its_bounds_are_not_relied_on(by: Any) -> None:
    assert _told(1.0, 2.0, by) is None


def test_given_bounds_by_java_then_nan_is_above_all_and_zeros_are_one() -> None:
    assert _told(1.0, 2.0) == Range(1.0, 2.0, nulls=False)
    zero = _told(-0.0, -0.0)
    assert zero is not None and math.copysign(1, zero.low) == math.copysign(1, zero.high) == 1
    for where, low, high, may in (
        ("x > 2.0D", 1.0, 2.0, False), ("x > 2.0D", 1.0, math.nan, True), ("x = double('NaN')", 1.0, 2.0, False),
        ("x = double('NaN')", 1.0, math.nan, True), ("x < 1.0D", 1.0, math.nan, False),
        ("x < 9.0D", math.nan, math.nan, False),
        ("x >= double('NaN')", math.nan, math.nan, True), ("x = -0.0D", 0.0, 0.0, True),
        ("x IN (0.0D, 5.0D)", -0.0, -0.0, True),
        ("x < 0.0D", -0.0, 0.0, False), ("x > double('Infinity')", -math.inf, math.inf, False),
        ("x <= double('-Infinity')", -math.inf, math.inf, True), ("x BETWEEN 3.0D AND 4.0D", 1.0, 2.0, False),
        ("NOT x <= 2.0D", 1.0, 2.0, False), ("NOT x <= 2.0D", 1.0, math.nan, True),
    ):  # fmt: skip
        held = _told(low, high)
        assert held is not None
        assert (_part(where, held) > 0) == may, (where, low, high)
