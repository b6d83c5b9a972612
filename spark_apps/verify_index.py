"""Program: compares indexes with a full scan of their table and reports on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.job import Job, Outcome
from spark_apps.program import load_table, log, main, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify_index(spark: SparkSession, job: Job) -> Outcome:
    """``IndexedTable.verify`` of the indexes named, or of all."""
    table = load_table(spark, job)
    names = job.arguments.get("names")
    reports = {}
    for name in sorted(table.indexes) if names is None else names:
        report = table.verify(name)
        log.info("verify %s: %s", name, "agrees" if report.ok else "differs")
        reports[name] = {**plain(report), "ok": bool(report.ok)}
    return Outcome("report", reports)


if __name__ == "__main__":
    main(verify_index)
