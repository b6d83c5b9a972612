"""Program: compares indexes with a full scan of their table, and rebuilds those that are wrong on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import commit_options, load_table, log, main, plain
from spark_apps.storage.errors import InvalidInput, InvalidSchema
from spark_apps.timeline.hudi_indexes import names_hudi

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
    there = (
        {name: one.kind for name, one in sorted(table.indexes.items())} if names is None else dict.fromkeys(names, "")
    )
    for name, kind in there.items():
        try:
            reports.append(table.verify(name))
        except InvalidInput as error:
            # One over a column that is gone says nothing of the others, nor one of Hudi's that cannot be compared.
            if names is not None or not (isinstance(error, InvalidSchema) or names_hudi(kind)):
                raise
            log.warning("verify %s: not compared: %s", name, error)
    for report in reports:
        log.info("verify %s: %s", report.index, "agrees" if report.ok else f"differs: {plain(report)}")
    if job.arguments.get("repair"):
        return table.repair_indexes(reports, **commit_options(job))[1]
    return Outcome("report", {report.index: {**plain(report), "ok": report.ok} for report in reports})


if __name__ == "__main__":
    main(verify_index)
