"""What a classic Spark session and one of Spark Connect do not do alike, in one place.

All else in the apps is public DataFrame and SQL calls, which both take. Nothing here is needed for right answers: what
Spark Connect does not tell is found out by a small job, or guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

logger = logging.getLogger(__name__)

_UNTOLD_CORES = 2
_known_cores: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def over_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: no JVM beside it and no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores(spark: SparkSession) -> int:
    """Tasks that run side by side, as Spark itself counts them; at least 1. Asked once a session."""
    found = _known_cores.get(spark)
    if found is None:
        found = _known_cores[spark] = max(1, _ask_cores(spark))
    return found


def with_columns(rows: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Rows with these columns; Spark Connect takes no empty set of them."""
    return rows.withColumns(dict(columns)) if columns else rows


def _ask_cores(spark: SparkSession) -> int:
    if not over_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    try:
        # A range of many rows is cut into as many pieces as Spark would by itself.
        pieces = spark.range(1 << 20).agg(F.max(F.spark_partition_id()))
        return int(pieces.collect()[0][0]) + 1
    except PySparkException as error:
        logger.warning("Spark Connect did not say how many tasks it runs at once: %s", error)
        return _UNTOLD_CORES
