"""Program: brings an index up to date with its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import columns_given, given, load_table, main, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refresh_index(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.refresh_index`` with the job's arguments."""
    return planned(job, load_table(spark, job).refresh_index, columns_given(given(job)))


if __name__ == "__main__":
    main(refresh_index)
