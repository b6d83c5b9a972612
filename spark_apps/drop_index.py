"""Program: drops an index of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.job import Job
from spark_apps.program import commit_as, given, load_table, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.timeline.model import Receipt


def drop_index(spark: SparkSession, job: Job) -> Receipt:
    """``IndexedTable.drop_index`` with the job's arguments."""
    return load_table(spark, job).drop_index(**given(job), **commit_as(job))


if __name__ == "__main__":
    main(drop_index)
