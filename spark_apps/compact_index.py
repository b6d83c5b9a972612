"""Program: folds delta files into base files, of an index or, without an index's name, of the table
itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import commit_as, given, load_table, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_index(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.compact`` with the job's arguments."""
    return load_table(spark, job).compact(**given(job), **commit_as(job))


if __name__ == "__main__":
    main(compact_index)
