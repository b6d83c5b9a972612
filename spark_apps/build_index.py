"""Program: builds an index over a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import columns_given, given, load_table, main, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_index(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.create_index`` with the job's arguments."""
    return planned(job, load_table(spark, job).create_index, columns_given(given(job)))


if __name__ == "__main__":
    main(build_index)
