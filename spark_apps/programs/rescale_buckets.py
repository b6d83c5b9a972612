"""Program: gives partitions the bucket counts of the rules, takes a change of the rules back, or plans either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, load_table, main, plan_or_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale_buckets(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.rescale`` with the job's arguments, or ``rollback_rescale`` to take one back."""
    table, arguments = load_table(spark, job), arguments_of(job)
    if "rollback" not in arguments:
        return plan_or_commit(job, table.rescale, arguments)
    instant = arguments["rollback"]
    return plan_or_commit(job, table.rollback_rescale, {} if instant is True else {"instant": instant})


if __name__ == "__main__":
    main(rescale_buckets)
