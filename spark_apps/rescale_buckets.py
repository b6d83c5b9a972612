"""Program: gives partitions the bucket counts that the rules say, or tells which it would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job, Outcome
from spark_apps.program import commit_as, given, load_table, main, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale_buckets(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.rescale`` with the job's arguments."""
    table = load_table(spark, job)
    if job.plan_only:
        return Outcome("plan", plain(table.rescale(**given(job), plan_only=True)))
    return table.rescale(**given(job), **commit_as(job))


if __name__ == "__main__":
    main(rescale_buckets)
