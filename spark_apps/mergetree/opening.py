"""How Spark is handed files one by one: paths it takes as they stand, options that forgive nothing, and a short way
through its planning."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

READ_OPTIONS = {
    "mergeSchema": "false",
    # A session that forgives missing or broken files would lose rows in silence.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Not on by default; without it an altered page can read as other values.
    "parquet.page.verify-checksum.enabled": "true",
}

_CALENDARS = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")

# A location may hold what Hadoop takes for a pattern.
_GLOB = re.compile(r"([\[\]{}*?\\])")

_LISTING = threading.Lock()
_LISTING_SETTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_LISTED = 32
"""Up to so many files Spark looks itself, unless it was told otherwise; asking and telling it takes as long."""


def literal(paths: Iterable[str]) -> list[str]:
    """Paths in which Hadoop finds no pattern."""
    return [_GLOB.sub(r"\\\1", path) for path in paths]


@contextmanager
def listed_here(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Has Spark look at local files itself while it plans, not in a job with one task a file, which takes far
    longer.

    On an object store, where every look is a call of many milliseconds, the job is worth its while.
    """
    if len(paths) <= _LISTED or not paths[0].startswith("file:"):
        yield
        return
    conf = spark.conf
    with _LISTING:
        before = conf.get(_LISTING_SETTING, None)
        conf.set(_LISTING_SETTING, str(len(paths) + 1))
        try:
            yield
        finally:
            if before is None:
                conf.unset(_LISTING_SETTING)
            else:
                conf.set(_LISTING_SETTING, before)


@contextmanager
def todays_calendar(spark: SparkSession) -> Iterator[None]:
    """Has Spark write days and times by the calendar that all readers share. A session may say that it is to write them
    by the old one, in which drivers, data sources and other engines would find another day.

    What other threads of the session write meanwhile is written so, too.
    """
    conf = spark.conf
    before = {name: conf.get(name) for name in _CALENDARS if conf.get(name, "CORRECTED") != "CORRECTED"}
    for name in before:
        conf.set(name, "CORRECTED")
    try:
        yield
    finally:
        for name, mode in before.items():
            conf.set(name, mode)
