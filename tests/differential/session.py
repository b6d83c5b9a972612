"""Settings under which random histories run; what they answer is the same under all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.spark.local import COMPILED, INTERPRETED, session_with
from tests.spark.releases import SPARK

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def _row_groups(rows: int) -> dict[str, str]:
    """Hadoop settings by which a row group of a Parquet file has so many rows."""
    if SPARK >= (4, 1):
        return {"parquet.block.row.count.limit": str(rows)}
    # Of an earlier Parquet it ends where its size is looked at, if that is too large then.
    looks = {f"parquet.page.size.row.check.{bound}": str(rows) for bound in ("min", "max")}
    return {"parquet.block.size": "1", **looks}


@contextlib.contextmanager
def small(spark: Any, *, compiled: bool, row_groups: int = 0) -> Iterator[None]:
    """The session with settings for small tables, as long as the block runs; queries are compiled or interpreted.

    :param row_groups: so many rows make a row group of a Parquet file that Spark writes; its own size by default.
    """
    wanted = {**_SMALL, **(COMPILED if compiled else INTERPRETED)}
    settings = _row_groups(row_groups) if row_groups else {}
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration() if settings else None
    for name, value in settings.items():
        hadoop.set(name, value)
    try:
        with session_with(spark, wanted):
            yield
    finally:
        for name in settings:
            hadoop.unset(name)
