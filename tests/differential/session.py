"""Settings under which random histories run; what they answer is the same under all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.spark.local import COMPILED, INTERPRETED, session_with

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}

_ROW_GROUPS = "parquet.block.row.count.limit"


@contextlib.contextmanager
def small(spark: Any, *, compiled: bool, row_groups: int = 0) -> Iterator[None]:
    """The session with settings for small tables, as long as the block runs; queries are compiled or interpreted.

    :param row_groups: so many rows make a row group of a Parquet file that Spark writes; its own size by default.
    """
    wanted = {**_SMALL, **(COMPILED if compiled else INTERPRETED)}
    hadoop = spark.sparkContext._jsc.hadoopConfiguration() if row_groups else None
    if hadoop is not None:
        hadoop.set(_ROW_GROUPS, str(row_groups))
    try:
        with session_with(spark, wanted):
            yield
    finally:
        if hadoop is not None:
            hadoop.unset(_ROW_GROUPS)
