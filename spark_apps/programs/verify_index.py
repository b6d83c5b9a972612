"""Program: compares indexes with a full scan of their table, and rebuilds those that are wrong on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import commit_options, load_table, log, main, plain
from spark_apps.storage.errors import InvalidSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify_index(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.verify`` on the indexes named, or on all.

    :returns: the reports by name; with ``repair`` the receipt of the one commit that rebuilt what was wrong, which its
        metrics list.
    """
    table = load_table(spark, job)
    names = job.arguments.get("names")
    reports = []
    for name in sorted(table.indexes) if names is None else names:
        try:
            reports.append(table.verify(name))
        except InvalidSchema as error:  # one over a column that is gone says nothing of the others
            if names is not None:
                raise
            log.warning("verify %s: not compared: %s", name, error)
    for report in reports:
        log.info("verify %s: %s", report.index, "agrees" if report.ok else f"differs: {plain(report)}")
    if job.arguments.get("repair"):
        return table.repair_indexes(reports, **commit_options(job))[1]
    return Outcome("report", {report.index: {**plain(report), "ok": report.ok} for report in reports})


if __name__ == "__main__":
    main(verify_index)
