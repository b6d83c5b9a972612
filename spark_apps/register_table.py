"""Program: registers rows that somebody else writes as a table, so that they can be indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_apps.job import Job
from spark_apps.program import given, log, main
from spark_apps.storage.errors import TableExists
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.publish import new_txn_id
from spark_apps.timeline.transactions import find_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_table(spark: SparkSession, job: Job) -> Receipt:
    """``IndexedTable.register`` with the job's arguments. Where the same is registered already, nothing is done.

    :raises TableExists: if what is registered differs from what is asked, naming how.
    """
    from spark_apps.actions.reregistering import standing
    from spark_apps.table import IndexedTable

    arguments = given(job)
    form = arguments.pop("format", "parquet")
    txn_id = job.txn_id or new_txn_id("create")

    def there() -> Receipt | None:
        timeline = standing(spark, job.table, form, **arguments, storage_options=job.storage_options)
        return None if timeline is None else _receipt(timeline, txn_id)

    known = there()
    if known is not None:
        return known
    try:
        table = IndexedTable.register(
            spark, job.table, form, **arguments, storage_options=job.storage_options, txn_id=txn_id
        )
    except TableExists:
        known = there()  # somebody else was faster
        if known is None:
            raise
        return known
    return _receipt(Timeline.load(Store(table.uri, job.storage_options)), txn_id)


def _receipt(timeline: Timeline, txn_id: str) -> Receipt:
    """Of the commit that registered it, if that was this transaction's; else of having nothing to do."""
    receipt = find_receipt(timeline, txn_id)
    if receipt is None:
        log.info("%s is registered already, as asked; nothing is done.", timeline.store.uri)
    return receipt or Receipt(None, txn_id, "create")


if __name__ == "__main__":
    main(register_table)
