"""Frames that are used twice: kept by Spark while they are needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

_SETTING = threading.Lock()
# Off by default, which leaves a kept frame in as many pieces as the session has shuffle partitions, however few rows.
_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Keeps the rows for the block, in pieces that fit their number, whatever the session's settings."""
    conf = rows.sparkSession.conf
    with _SETTING:
        before = conf.get(_ADAPTIVE, None)
        conf.set(_ADAPTIVE, "true")
        try:
            kept = rows.persist()
        finally:
            if before is None:
                conf.unset(_ADAPTIVE)
            else:
                conf.set(_ADAPTIVE, before)
    try:
        yield kept
    finally:
        kept.unpersist()
