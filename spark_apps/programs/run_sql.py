"""Program: runs a script of statements; its table is the warehouse that the names in it are below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import main, use_indexes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_sql(spark: SparkSession, job: Job) -> Outcome:
    """Return the answers to all statements, each with its receipt where it can commit."""
    from spark_apps.sql import parse, run

    if any(statement.of_rows for statement in parse(job.arguments["sql"])):
        use_indexes(spark, job, job.table or None)
    results = run(
        spark,
        job.arguments["sql"],
        warehouse=job.table or None,
        options=job.storage_options,
        txn_id=job.txn_id,
        window=job.window,
        **{name: job.arguments[name] for name in ("max_rows", "output_path") if name in job.arguments},
    )
    return Outcome("report", [result.to_dict() for result in results])


if __name__ == "__main__":
    main(run_sql)
