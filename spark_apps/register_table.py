"""Program: registers rows that somebody else writes as a table, so that they can be indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_apps.job import Job
from spark_apps.program import given, log, main
from spark_apps.storage.errors import TableExists
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_table(spark: SparkSession, job: Job) -> Any:
    """``IndexedTable.register`` with the job's arguments; where there is a log already, that is left as it is."""
    from spark_apps.table import IndexedTable

    try:
        table = IndexedTable.register(
            spark, job.table, **given(job), storage_options=job.storage_options, txn_id=job.txn_id
        )
    except TableExists as error:
        log.info("%s", error)
        return Receipt(None, job.txn_id or "", "create")
    first = table.history()[0]
    return Receipt(first.version, first.txn_id, first.operation)


if __name__ == "__main__":
    main(register_table)
