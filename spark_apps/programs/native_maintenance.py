"""Program: makes calls of the own maintenance of a registered table, and brings its indexes up to date after them.

Each call, and each refresh, is a transaction of its own, so a retry goes on behind the last one that landed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job, Outcome
from spark_apps.jobs.program import commit_options, load_table, log, log_of, main, plain
from spark_apps.maintenance.native_calls import transactions_of
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def native_maintenance(spark: SparkSession, job: Job) -> Any:
    """Make the calls of ``native`` (name -> arguments) in their order; with ``refresh``, refresh all active indexes.

    :returns: a receipt for each; with ``plan_only`` the plan of each call, by name.
    """
    calls, table = job.arguments["native"], load_table(spark, job)
    if job.plan_only:
        plans = {
            name: plain(table.maintain_source(name, arguments, plan_only=True)) for name, arguments in calls.items()
        }
        return Outcome("plan", plans)
    refreshed = log_of(table, job).head.active_indexes if job.arguments.get("refresh") else []
    txn_ids = iter(transactions_of(job.txn_id or "", calls, refreshed))
    receipts: list[Receipt] = []
    for name, arguments in calls.items():
        receipts.append(table.maintain_source(name, arguments, **commit_options(job, next(txn_ids))))
        log.info("%s: %s", name, receipts[-1].metrics)
    for name in refreshed:
        receipts.append(table.refresh_index(name, **commit_options(job, next(txn_ids))))
    return receipts


if __name__ == "__main__":
    main(native_maintenance)
