"""The session of processes that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from spark_apps.storage.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NeedsSpark(StorageError):
    """A request that only a Spark session can answer, where there is none."""


class _AbsentSession:
    """The placeholder for a Spark session in processes that have none; it refuses every request."""

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(f"This process has no Spark session, and {name!r} of one was asked for.")


NO_SPARK = cast("SparkSession", _AbsentSession())
"""The session of a snapshot that is planned and read without one."""
