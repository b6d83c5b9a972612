"""Program: builds an index over a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, load_table, log, log_of, main, plan_or_commit
from spark_apps.timeline.hudi_indexes import names_hudi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable


def build_index(spark: SparkSession, job: Job) -> Any:
    """Run ``IndexedTable.create_index`` with the job's arguments.

    The argument ``earlier`` is what the transactions of earlier rounds of the same task begin with. An index that one
    of them made is built again instead, by a full refresh, if it has the definition that is asked for.
    """
    table, arguments = load_table(spark, job), arguments_of(job)
    earlier = arguments.pop("earlier", None)
    if earlier is None or not _made_before(table, job, earlier, arguments):
        return plan_or_commit(job, table.create_index, arguments)
    name = arguments["name"]
    if names_hudi(arguments["kind"]):
        log.info("An earlier run of this task had Hudi make the index %r: it is built again only if it is gone.", name)
        return plan_or_commit(job, table.create_index, {**arguments, "if_not_exists": True})
    if arguments.get("deferred"):
        log.info("An earlier run of this task made the index %r, which is filled by refreshes only.", name)
        return plan_or_commit(job, table.create_index, {**arguments, "if_not_exists": True})
    log.info("An earlier run of this task made the index %r: it is built again.", name)
    return plan_or_commit(job, table.refresh_index, {"name": name, "mode": "full"})


def _made_before(table: IndexedTable, job: Job, prefix: str, arguments: dict[str, Any]) -> bool:
    """Return whether a transaction whose id begins so has made the index, and as it is asked for now."""
    from spark_apps.actions.indexing import CreateIndex
    from spark_apps.timeline.model import PutIndex
    from spark_apps.timeline.transactions import commits_below

    entry = table.snapshot.state.indexes.get(arguments["name"])
    if entry is None:
        return False
    by_them = any(
        isinstance(action, PutIndex) and action.definition.tree == entry.definition.tree
        for commit in commits_below(log_of(table, job), prefix)
        for action in commit.actions
    )
    if names_hudi(arguments["kind"]):
        return by_them and entry.definition.kind == arguments["kind"]
    return by_them and CreateIndex(**arguments).is_made(table.snapshot)


if __name__ == "__main__":
    main(build_index)
