"""Program: brings an index up to date with its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, load_table, main, plan_or_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refresh_index(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.refresh_index`` with the job's arguments."""
    return plan_or_commit(job, load_table(spark, job).refresh_index, arguments_of(job))


if __name__ == "__main__":
    main(refresh_index)
