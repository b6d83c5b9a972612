"""Settings under which a hundred tiny queries take a minute instead of ten; what they answer is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Tiny queries take far longer to compile than to interpret; a long run compiles some.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_ROW_GROUPS = "parquet.block.row.count.limit"


@contextlib.contextmanager
def small(spark: Any, *, compiled: bool, row_groups: int = 0) -> Iterator[None]:
    """The session with settings for small tables, as long as the block runs; queries are compiled or interpreted.

    :param row_groups: so many rows make a row group of a Parquet file that Spark writes; its own size by default.
    """
    wanted = {key: value for key, value in _SMALL.items() if not compiled or "codegen" not in key}
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration() if row_groups else None
    if hadoop is not None:
        hadoop.set(_ROW_GROUPS, str(row_groups))
    try:
        yield
    finally:
        if hadoop is not None:
            hadoop.unset(_ROW_GROUPS)
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
