"""Program: gives partitions the bucket counts that the rules say, or tells which it would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import given, load_table, main, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale_buckets(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.rescale`` with the job's arguments."""
    return planned(job, load_table(spark, job).rescale, given(job))


if __name__ == "__main__":
    main(rescale_buckets)
