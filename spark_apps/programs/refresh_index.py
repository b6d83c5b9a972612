"""Program: brings an index up to date with its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, load_table, log, main, plan_or_commit
from spark_apps.storage.errors import ConcurrentWrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_REFRESHES = 8
"""How often a refresh of some partitions is tried that meets others; each time one of these has committed."""


def refresh_index(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.refresh_index`` with the job's arguments.

    A refresh of some partitions that meets one of others is done again, on what that one has committed: only where both
    do no more than add entries do they go together.
    """
    arguments, again = arguments_of(job), MAX_REFRESHES if _is_confined(job) else 1
    while True:
        again -= 1
        try:
            return plan_or_commit(job, load_table(spark, job).refresh_index, dict(arguments))
        except ConcurrentWrite as error:
            if not again:
                raise
            log.info("The refresh begins again: %s", error.message)


def _is_confined(job: Job) -> bool:
    return job.arguments.get("partitions") is not None and job.transaction is None


if __name__ == "__main__":
    main(refresh_index)
