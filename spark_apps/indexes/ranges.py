"""What a column can hold in some rows, as the statistics of a file tell it: a range of values, nulls, or nothing.

A predicate can be asked about a range as about a single value, so that blocks of rows are passed over without being
read. No Spark.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from spark_apps.layout.types import ColumnType, normalize
from spark_apps.storage.errors import InvalidSchema


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a column may hold: from ``low`` to ``high``, both included, in the form of
    :func:`spark_apps.layout.types.normalize`, and null if ``nulls``. Without ``values`` there is nothing but nulls."""

    low: Any = None
    high: Any = None
    nulls: bool = True
    values: bool = True


NOTHING = Range(nulls=False, values=False)
"""No value and no null: a predicate that can be true all the same does not depend on the column."""

ONLY_NULLS = Range(values=False)


def range_of(statistics: Any, kind: ColumnType) -> Range | None:
    """The range that the statistics of a Parquet column chunk tell, ``None`` if the column may hold anything.

    :param statistics: as :mod:`pyarrow.parquet` gives them.
    """
    if statistics is None:
        return None
    counted = statistics.has_null_count
    if counted and statistics.num_values == 0 and statistics.null_count > 0:
        return ONLY_NULLS
    # NaN is above all numbers for Spark, and left out of the statistics.
    if not statistics.has_min_max or kind.kind in ("float", "double", "other", "char"):
        return None
    try:
        low, high = value_of(statistics.min, kind), value_of(statistics.max, kind)
    except (InvalidSchema, OverflowError, ValueError):  # the years that Python does not know
        return None
    return Range(low, high, nulls=not counted or statistics.null_count > 0)


class Beyond:
    """A date or time outside of the years 1 to 9999: all others are on one side of it."""

    def __init__(self, above: bool) -> None:
        self._above = above

    def __lt__(self, other: Any) -> bool:
        return not self._above and other is not self

    def __gt__(self, other: Any) -> bool:
        return self._above and other is not self


class Bytes:
    """A string that is no UTF-8. Spark orders all strings by their bytes."""

    def __init__(self, held: bytes) -> None:
        self._held = held

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Bytes) and self._held == other._held

    def __hash__(self) -> int:
        return hash(self._held)

    def __lt__(self, other: Any) -> bool:
        return self._held < _bytes(other)

    def __gt__(self, other: Any) -> bool:
        return self._held > _bytes(other)


_BELOW, _ABOVE = Beyond(above=False), Beyond(above=True)


def _bytes(value: Any) -> bytes:
    return value._held if isinstance(value, Bytes) else value.encode("utf-8", "surrogatepass")


def python_values(array: Any) -> list[Any]:
    """The values of an Arrow array; those that Python does not know as :class:`Beyond` and :class:`Bytes`, which
    compare with the others as Spark compares them."""
    try:
        found: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):  # of a year, or of bytes that are no text
        return [_python_value(scalar) for chunk in getattr(array, "chunks", [array]) for scalar in chunk]
    return found


def _python_value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return Bytes(scalar.as_buffer().to_pybytes())
    except (OverflowError, ValueError):
        return _ABOVE if scalar.value > 0 else _BELOW


def value_of(value: Any, kind: ColumnType) -> Any:
    """A value of a column as Arrow gives it, in the form of the package."""
    if isinstance(value, (Beyond, Bytes)):
        return value
    if kind.kind == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)  # Spark's older physical type holds UTC and does not say so
    return normalize(value, kind)
