"""Program: builds an index over a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.job import Job
from spark_apps.program import columns_given, commit_as, given, load_table, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.timeline.model import Receipt


def build_index(spark: SparkSession, job: Job) -> Receipt:
    """``IndexedTable.create_index`` with the job's arguments."""
    return load_table(spark, job).create_index(**columns_given(given(job)), **commit_as(job))


if __name__ == "__main__":
    main(build_index)
