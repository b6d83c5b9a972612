"""The Spark of tests: a small session in this process, with what its workers need of the environment."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spark_apps.jobs.environment import class_sharing, java_home
from spark_apps.storage.supported import spark_release
from tests.spark import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tiny queries take far longer to compile than to run; what they answer is the same.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}

# A process that lives for minutes gains nothing from the JVM's second compiler, nor from a collector with threads of
# its own, and loads Spark's classes from an archive in half the time.
JVM = f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC {class_sharing()}"

# From the start as much memory as tests take in the end, most of it for what lives a query long: otherwise a fifteenth
# of the time goes into making room.
_HEAP = "-Xms1g -Xmn600m -XX:MetaspaceSize=256m"

# What a local Spark needs that runs a few rows for minutes.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JVM,
    # Each sort of a few rows would set 64 MB to zero, by the size of the heap.
    "spark.buffer.pageSize": "1m",
    # What pages would show of queries of before, if there were any.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "10",
    # Else each call of a method of Column looks through the stack and asks the JVM, for a line of an error.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    **INTERPRETED,
}


# What Spark 4 does by default; before, a query that meets such a date is refused, with or without an index.
AS_SPARK_4 = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}


def set_environment() -> None:
    """Which Java and which Python a Spark of this process, or of one that it starts, takes."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable


def local_session(
    *,
    cores: int = 2,
    partitions: int = 2,
    memory: str = "2g",
    quiet: str = "ERROR",
    plain_files: bool = False,
    **more: str,
) -> SparkSession:
    """Start a session as a user would have it, but small; its queries are interpreted, or compiled with ``COMPILED=1``.

    :param partitions: of a shuffle.
    :param quiet: the least serious messages that are shown: a log4j level.
    :param plain_files: whether files are made as Spark makes them elsewhere, permissions and all.
    :param more: further settings, their dots written as two underscores.
    """
    import pyspark
    from pyspark.sql import SparkSession

    set_environment()
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tests").config("spark.log.level", quiet)
    settings = {
        **SMALL,
        **(AS_SPARK_4 if spark_release(pyspark.__version__) < (4,) else {}),
        **(COMPILED if os.environ.get("COMPILED") == "1" else {}),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{JVM} {_HEAP}",
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    with contextlib.nullcontext({}) if plain_files else local_files.on_class_path() as files:
        for name, value in {**settings, **files}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def has_ended(spark: SparkSession) -> bool:
    """Tell whether a session's Spark was stopped or its JVM has ended, so that whatever is asked of it fails."""
    from py4j.protocol import Py4JError

    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        return True


@contextlib.contextmanager
def session_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give the session other settings as long as the block runs, and then those of before."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            # Unset first: what was set before may be Spark's default, which some settings cannot be set to.
            spark.conf.unset(name)
            if value is not None and spark.conf.get(name, None) != value:
                spark.conf.set(name, value)
