"""Entries compared with rows as Arrow tables: values that Spark takes for one, and values that Python does not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from spark_apps.indexes.comparison import Comparison, Part, compare, counted
from spark_apps.indexes.handler import IndexContext, VerificationReport
from spark_apps.storage.errors import InvalidInput

NANS = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64)
"""Two NaN: that of Spark and Python, and the one that a processor gives for 0.0 / 0.0."""

CONTEXT = cast(
    IndexContext,
    SimpleNamespace(
        definition=SimpleNamespace(name="idx"),
        snapshot=SimpleNamespace(has_spark=False, state=SimpleNamespace(version=1)),
    ),
)


def compared(expected: list[Any] | pa.Array, stored: list[Any] | pa.Array, kind: pa.DataType) -> VerificationReport:
    sides = [
        pa.table({"k": pa.array(values, kind), "said": pa.array(["a"] * len(values), pa.string())})
        for values in (expected, stored)
    ]
    return compare(CONTEXT, Comparison([Part(("k",), ("said",), *sides)], {"k": "k"}))


def test_given_nan_of_other_bits_in_the_rows_then_entries_of_nan_agree() -> None:
    assert compared(NANS[1:], NANS[:1], pa.float64()).ok
    assert counted(pa.table({"k": NANS}), "n")["n"].to_pylist() == [2]


def test_given_an_entry_of_a_date_beyond_python_s_then_it_is_shown_by_its_number() -> None:
    day = pa.array([1 << 24], pa.int32()).cast(pa.date32())

    report = compared(pa.array([], pa.date32()), day, pa.date32())

    assert (report.too_many, report.differences[0].key) == (1, {"k": 1 << 24})


def test_given_a_nested_value_that_python_does_not_know_then_it_is_left_to_spark() -> None:
    kind = pa.struct([("at", pa.timestamp("us"))])

    with pytest.raises(InvalidInput, match="that Python does not know"):
        compared([{"at": 1 << 62}], [], kind)
