"""Program: registers rows of another writer as a table, so that they can be indexed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark_apps.jobs.job import Job
from spark_apps.jobs.program import arguments_of, log, main
from spark_apps.storage.errors import InvalidName, TableExists
from spark_apps.storage.store import Store
from spark_apps.timeline.catalog_names import PREFIX
from spark_apps.timeline.commit import new_txn_id
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.transactions import find_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_table(spark: SparkSession, job: Job) -> Receipt:
    """Run ``IndexedTable.register`` with the job's arguments; do nothing where the same is registered already.

    :raises TableExists: if what is registered differs from the job's arguments, naming how.
    :raises InvalidName: if the name is a catalog's and a folder's.
    """
    from spark_apps.actions.register import find_registration
    from spark_apps.table import IndexedTable

    arguments = arguments_of(job)
    form = arguments.pop("format", "parquet")
    txn_id = job.txn_id or new_txn_id("create")
    address, root = job.table, arguments.pop("warehouse", None)
    named = arguments.pop("catalog_name", None)
    if named is not None and address != named:
        address = named if _is_of_catalog(spark, named, address, job) else address
    warehouse = None if root is None else Warehouse(root, job.storage_options)

    def registered() -> Receipt | None:
        timeline = find_registration(
            spark, address, form, **arguments, storage_options=job.storage_options, warehouse=warehouse
        )
        return None if timeline is None else _receipt(timeline, txn_id)

    known = registered()
    if known is not None:
        return known
    try:
        table = IndexedTable.register(
            spark, address, form, **arguments, storage_options=job.storage_options, txn_id=txn_id, warehouse=root
        )
    except TableExists:
        known = registered()  # another process was faster
        if known is None:
            raise
        return known
    return _receipt(Timeline.load(Store(table.uri, job.storage_options)), txn_id)


def _is_of_catalog(spark: SparkSession, name: str, folder: str, job: Job) -> bool:
    """Tell whether a name is that of a table in the session's catalogs, and of no other one in a folder.

    :raises InvalidName: if it is both, naming them.
    """
    from spark_apps.sources.registry import place_in_catalogs

    place = place_in_catalogs(spark, name)
    if place is None or place == folder:
        return place is not None
    if ("://" in folder or Path(folder).is_dir()) and Store(folder, job.storage_options).has_any(""):
        raise InvalidName(
            f"{name!r} is a table of a catalog, at {place}, and a folder of the warehouse, {folder}.",
            hint=f"Write {PREFIX}{name} for the first, or give the address.",
        )
    return True


def _receipt(timeline: Timeline, txn_id: str) -> Receipt:
    """Return the receipt of this transaction's registration; else one of having nothing to do."""
    receipt = find_receipt(timeline, txn_id)
    if receipt is None:
        log.info("%s is registered already, as asked; nothing is done.", timeline.store.uri)
    return receipt or Receipt(None, txn_id, "create")


if __name__ == "__main__":
    main(register_table)
