"""The releases of Python and Spark that the package runs on, and why on no others; asked before anything else is done.

What is here, and the error tree, run on any Python that Spark may start.
"""

from __future__ import annotations

import re
import sys

from spark_apps.storage.errors import EnvironmentMismatch

OLDEST_PYTHON = (3, 11)
OLDEST_SPARK = (3, 5)
FIRST_SPARK_BEYOND = (5,)
SPARK_RANGE = "3.5 to 4.3"
"""The minor releases that the tests are run on (``make matrix``); newer ones of Spark 4 are let through."""


def spark_release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, at most three: ``(3, 5, 6)`` of ``3.5.6-amzn-1``."""
    return tuple(map(int, re.findall(r"\d+", version.partition("-")[0])[:3]))


def check_spark_release(version: str) -> None:
    """Refuse a Spark that the package does not run on.

    :raises EnvironmentMismatch: if it is too old, or of a major release that was never tried; names the range.
    """
    release = spark_release(version)
    if not release:
        return
    if release[:2] < OLDEST_SPARK:
        reason = "older ones get no corrections any more, and lack functions by which rows are placed and read"
    elif release[:1] >= FIRST_SPARK_BEYOND:
        reason = "a new major release may read and place rows otherwise, and none was tried"
    else:
        return
    raise EnvironmentMismatch(
        f"This is Spark {version}; the package runs on Spark {SPARK_RANGE}: {reason}.",
        hint=f"Use a Spark of that range: pip install 'pyspark>={OLDEST_SPARK[0]}.{OLDEST_SPARK[1]}"
        f",<{FIRST_SPARK_BEYOND[0]}', or a newer release of this package.",
    )


def check_python() -> None:
    """Refuse a Python that is too old.

    :raises EnvironmentMismatch: names it and the range.
    """
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    raise EnvironmentMismatch(
        f"airflow-provider-index runs on Python {oldest} and newer, and {sys.executable} is Python"
        f" {'.'.join(map(str, sys.version_info[:3]))}: older ones lack parts of the standard library that it uses"
        " (datetime.UTC).",
        hint=f"Give Spark a Python {oldest} or newer (PYSPARK_PYTHON, or spark.pyspark.python), on drivers and"
        " executors alike; for Airflow, install it in an environment of such a Python.",
    )
