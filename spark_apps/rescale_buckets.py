"""Program: gives partitions the bucket counts that the rules say, takes a change of the rules back, or tells what
either would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import given, load_table, main, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale_buckets(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.rescale`` with the job's arguments, or ``rollback_rescale`` where there is one to take back."""
    table, arguments = load_table(spark, job), given(job)
    if "rollback" not in arguments:
        return planned(job, table.rescale, arguments)
    instant = arguments["rollback"]
    return planned(job, table.rollback_rescale, {} if instant is True else {"instant": instant})


if __name__ == "__main__":
    main(rescale_buckets)
