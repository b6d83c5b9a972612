"""Program: drops an index of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, commit_options, load_table, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.timeline.model import Receipt


def drop_index(spark: SparkSession, job: Job) -> Receipt:
    """Run ``IndexedTable.drop_index`` with the job's arguments."""
    return load_table(spark, job).drop_index(**arguments_of(job), **commit_options(job))


if __name__ == "__main__":
    main(drop_index)
