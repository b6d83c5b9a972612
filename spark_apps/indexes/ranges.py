"""The values that a column can hold in some rows, by the statistics of a file: a range of values, nulls, or nothing.

A predicate is evaluated over a range as over a single value, so that blocks of rows are passed over without being
read. No Spark.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_apps.layout.types import ColumnType, normalize
from spark_apps.storage.errors import InvalidSchema
from spark_apps.storage.parquet.statistics import bounds_of


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a column may hold: from ``low`` to ``high``, both included, and null if ``nulls``.

    In the form of :func:`spark_apps.layout.types.normalize`. Without ``values`` there is nothing but nulls.
    """

    low: Any = None
    high: Any = None
    nulls: bool = True
    values: bool = True


NOTHING = Range(nulls=False, values=False)
"""No value and no null: a predicate that can be true all the same does not depend on the column."""

ONLY_NULLS = Range(values=False)


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts known of the values that a column or an expression has in some rows, each holding by itself.

    :param nulls: whether some are null. :param filled: whether some are not.
    :param span: the lowest and the highest of the others.
    :param values: all others.
    :param may_equal: returns whether a value may be among them.
    :param may_contain: returns whether one of them may contain a text.
    """

    nulls: bool
    filled: bool
    span: Range | None = None
    values: frozenset[Any] | None = None
    may_equal: Callable[[Any], bool] | None = None
    may_contain: Callable[[str], bool] | None = None


_BY_JAVA = re.compile(r"parquet-mr version 1\.1[0-7]\.")
"""Writers of Parquet that are known to take NaN for the highest number, as Java and Spark do."""


def has_nan_on_top(metadata: Any) -> bool:
    """Return whether the writer of a Parquet file gives NaN as the highest value of a column that holds one.

    Others leave NaN out of the bounds of a column.

    :param metadata: as :mod:`pyarrow.parquet` gives it.
    """
    return _BY_JAVA.match(metadata.created_by or "") is not None


def range_of(statistics: Any, kind: ColumnType, nan_on_top: bool = False) -> Range | None:
    """Return the range that the statistics of a Parquet column chunk give, ``None`` if the column may hold anything.

    :param statistics: as :mod:`pyarrow.parquet` gives them.
    :param nan_on_top: :func:`has_nan_on_top` of their file; without it floating point values may be anything.
    """
    bounds = bounds_of(statistics)
    if bounds is None:
        return None
    if bounds.values == 0 and bounds.nulls:
        return ONLY_NULLS
    if bounds.low is None or bounds.high is None or kind.kind in ("other", "char"):
        return None
    if kind.kind in ("float", "double") and not nan_on_top:
        return None
    try:
        low, high = value_of(bounds.low, kind), value_of(bounds.high, kind)
    except (InvalidSchema, OverflowError, ValueError):  # a value that is of another type than the column
        return None
    return Range(low, high, nulls=bounds.nulls != 0)


class OutOfRange:
    """A date or time outside of the years 1 to 9999: all others are on one side of it."""

    def __init__(self, above: bool) -> None:
        self._above = above

    def __lt__(self, other: Any) -> bool:
        return not self._above and other is not self

    def __gt__(self, other: Any) -> bool:
        return self._above and other is not self


class RawString:
    """A string that is no UTF-8.

    Spark orders all strings by their bytes.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, RawString) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __lt__(self, other: Any) -> bool:
        return self._content < _bytes(other)

    def __gt__(self, other: Any) -> bool:
        return self._content > _bytes(other)


_BELOW, _ABOVE = OutOfRange(above=False), OutOfRange(above=True)


def _bytes(value: Any) -> bytes:
    return value._content if isinstance(value, RawString) else value.encode("utf-8", "surrogatepass")


def python_values(array: Any) -> list[Any]:
    """Return the values of an Arrow array.

    Those that Python does not know come as :class:`OutOfRange` and :class:`RawString`, which compare with the others as
    Spark compares them.
    """
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):  # of a year, or of bytes that are no text
        return [_python_value(scalar) for chunk in getattr(array, "chunks", [array]) for scalar in chunk]
    return values


def _python_value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return RawString(scalar.as_buffer().to_pybytes())
    except (OverflowError, ValueError):
        return _ABOVE if scalar.value > 0 else _BELOW


def value_of(value: Any, kind: ColumnType) -> Any:
    """Return a value of a column as Arrow gives it, in the form of the package."""
    if isinstance(value, (OutOfRange, RawString)):
        return value
    if kind.kind == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)  # Spark's older physical type holds UTC and does not say so
    return normalize(value, kind)
