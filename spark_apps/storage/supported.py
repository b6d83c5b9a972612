"""The releases of Python and Spark that the package runs on, and why on no others; asked before anything else is done.

This module and the error tree run on any Python that Spark may start.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from spark_apps.storage.errors import EnvironmentMismatch

OLDEST_PYTHON = (3, 11)
OLDEST_SPARK = (3, 5)
FIRST_SPARK_BEYOND = (5,)
FIRST_SPARK_WITHOUT_DISTUTILS = (4,)
"""Spark 4.0 no longer imports ``distutils``, which Python 3.12 removed, and works with numpy 2."""
SPARK_RANGE = "3.5 to 4.3"
"""The minor releases that the tests are run on (``make matrix``); newer ones of Spark 4 are let through."""


NO_PYSPARK = "This works by Spark, and the Python package pyspark is not installed in this environment."
INSTALL_PYSPARK = f"pip install pyspark, of Spark {SPARK_RANGE}; open_table reads tables without it."


def import_with_pyspark(module: str) -> Any:
    """Return a module of this package that may need pyspark, or another library of the environment.

    :raises EnvironmentMismatch: if one is not installed; names it, and how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise EnvironmentMismatch(NO_PYSPARK, hint=INSTALL_PYSPARK) from error
        import_module("spark_apps.jobs")  # says so if the environment lacks a library
        raise


def spark_release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, at most three: ``(3, 5, 6)`` of ``3.5.6-amzn-1``."""
    return tuple(map(int, re.findall(r"\d+", version.partition("-")[0])[:3]))


def check_spark_release(version: str) -> None:
    """Refuse a Spark that the package does not run on, or that does not run on this Python.

    :raises EnvironmentMismatch: if it is too old, of a major release that was never tried, or older than this Python
        allows; names the range.
    """
    release = spark_release(version)
    if not release:
        return
    _check_pair(version, release)
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


def _check_pair(version: str, release: tuple[int, ...]) -> None:
    """Refuse a Spark of the range on a Python that is too new for it.

    :raises EnvironmentMismatch: names both.
    """
    python = sys.version_info[:2]
    if not OLDEST_SPARK <= release[:2] < FIRST_SPARK_WITHOUT_DISTUTILS or python < (3, 12):
        return
    if python >= (3, 13):
        reason = "it needs numpy below 2, of which there is no build for Python 3.13 and newer"
        instead = ""
    elif find_spec("distutils") is None:
        reason = "it imports distutils, which Python 3.12 removed and no installed package provides"
        instead = "; or install setuptools, which provides distutils: pip install setuptools"
    else:
        return
    raise EnvironmentMismatch(
        f"This is Spark {version} on Python {'.'.join(map(str, sys.version_info[:3]))} ({sys.executable}), and Spark"
        f" {'.'.join(map(str, release[:2]))} does not run on it: {reason}.",
        hint="Give Spark a Python 3.11 (PYSPARK_PYTHON, or spark.pyspark.python), on drivers and executors alike; or"
        f" use Spark 4: pip install 'pyspark>=4,<{FIRST_SPARK_BEYOND[0]}'{instead}.",
    )


def check_python() -> None:
    """Refuse a Python that is too old.

    :raises EnvironmentMismatch: names it and the range.
    """
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    raise EnvironmentMismatch(
        f"lakeindex runs on Python {oldest} and newer, and {sys.executable} is Python"
        f" {'.'.join(map(str, sys.version_info[:3]))}: older ones lack parts of the standard library that it uses"
        " (datetime.UTC).",
        hint=f"Give Spark a Python {oldest} or newer (PYSPARK_PYTHON, or spark.pyspark.python), on drivers and"
        " executors alike; for Airflow, install it in an environment of such a Python.",
    )
