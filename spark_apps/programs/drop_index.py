"""Program: drops an index of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, commit_options, load_table, log, log_of, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable
    from spark_apps.timeline.model import Receipt


def drop_index(spark: SparkSession, job: Job) -> Receipt:
    """Run ``IndexedTable.drop_index`` with the job's arguments.

    The argument ``earlier`` is what the transactions of earlier rounds of the same task begin with. If one of them has
    dropped the index, and no index of this name was made since, there is nothing to do.
    """
    table, arguments = load_table(spark, job), arguments_of(job)
    earlier = arguments.pop("earlier", None)
    if earlier is not None and _dropped_before(table, job, earlier, arguments["name"]):
        arguments["if_exists"] = True
    return table.drop_index(**arguments, **commit_options(job))


def _dropped_before(table: IndexedTable, job: Job, prefix: str, name: str) -> bool:
    """Return whether the index is not there, and a transaction whose id begins so has dropped it."""
    from spark_apps.timeline.model import DropIndex
    from spark_apps.timeline.transactions import commits_below

    if name in table.snapshot.state.indexes:
        return False
    for commit in commits_below(log_of(table, job), prefix):
        if any(isinstance(action, DropIndex) and action.name == name for action in commit.actions):
            log.info("An earlier run of this task dropped the index %r, in version %s.", name, commit.version)
            return True
    return False


if __name__ == "__main__":
    main(drop_index)
