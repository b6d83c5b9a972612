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


def value_of(value: Any, kind: ColumnType) -> Any:
    """A value of a column as Arrow gives it, in the form of the package."""
    if kind.kind == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)  # Spark's older physical type holds UTC and does not say so
    return normalize(value, kind)
