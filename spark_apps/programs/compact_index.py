"""Program: folds delta files into base files, of an index or, without an index's name, of the table itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, load_table, main, plan_or_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_index(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.compact`` with the job's arguments."""
    return plan_or_commit(job, load_table(spark, job).compact, arguments_of(job))


if __name__ == "__main__":
    main(compact_index)
