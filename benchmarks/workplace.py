"""The Spark session in which ours and plain Spark are measured, and a folder for what a question writes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import WORK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def workplace(memory: str = "6g", **conf: str) -> Iterator[tuple[SparkSession, Path]]:
    """A Spark of two cores with default settings but for ``conf`` (dots as ``__``); it and the folder go afterwards.

    The folder is below ``.bench``, on the disk that holds the data sets.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers need what this process has
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", os.environ.get("BENCH_MEMORY", memory))
        .config("spark.log.level", "ERROR")
    )
    for name, value in conf.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    try:
        with folder() as place:
            yield spark, place
    finally:
        spark.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for what a question writes, which goes afterwards."""
    (WORK / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK / "tmp", ignore_cleanup_errors=True) as place:
        yield Path(place)
