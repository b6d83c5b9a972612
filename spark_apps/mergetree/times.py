"""Times as Arrow reads them from Spark's older physical type, INT96.

Such a time names a day and the nanoseconds of it. Arrow takes the days before the year -4712 for days that are far
ahead, so a column that holds times of other years than Spark's own literals know is left to Spark.
"""

from __future__ import annotations

from typing import Any

from spark_apps.engine.pyspark_names import T
from spark_apps.mergetree.tree import Tree

# Microseconds since 1970.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


class InexactTimes(Exception):
    """Arrow may have read times as others: Spark is to read them."""


def is_within_years(times: Any) -> bool:
    """Test whether all times of an Arrow column, in microseconds, are of the years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    limits = pc.min_max(times.cast(pa.int64()))
    low, high = limits["min"].as_py(), limits["max"].as_py()
    return low is None or (low >= _FIRST and high <= _LAST)


def may_be_inexact(column: Any) -> bool:
    """Test whether a column of a file, whose type in the table has a zone, holds times that Arrow may take for others.

    :param column: in microseconds; only of an INT96 it has no zone.
    """
    import pyarrow as pa

    return pa.types.is_timestamp(column.type) and column.type.tz is None and not is_within_years(column)


def exact(tree: Tree, name: str, column: Any) -> Any:
    """Return a column of a file of a tree, in microseconds if it is one of times.

    :raises InexactTimes: if Arrow may have taken times in it for others.
    """
    if isinstance(tree.field(name).dataType, T.TimestampType) and may_be_inexact(column):
        raise InexactTimes
    return column
