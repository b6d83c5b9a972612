"""Loads each region's orders together with the index over them, in one commit a region.

Each region is a transaction of its own: its orders are staged by one Spark job, looked at, indexed by another job, and
then published in one commit, with the index in step. A region whose file is empty is refused by the check, and nothing
of it is seen, while the other regions go on. After the file has come, clear the region's tasks, ``begin`` included.

The table, partitioned by region, and its index ``by_status`` are there already.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_index.operators import RefreshIndexOperator, WriteTableOperator
from airflow_provider_index.task_groups import index_transaction

TABLE = "sales.regional_orders"
REGIONS = ("north", "east", "south")


@task
def check(staged: dict[str, Any]) -> None:
    """Refuse a region without orders. What was staged can be judged before anybody sees it."""
    rows = staged["metrics"].get("rows", 0)
    if not rows:
        raise ValueError("No orders have arrived; nothing of this region is published.")


with DAG("orders_by_region", schedule=None, tags=["orders"], doc_md=__doc__):
    for region in REGIONS:
        with index_transaction(region, table=TABLE, partitions=[f"region={region}"]):
            write = WriteTableOperator(
                task_id="write",
                table=TABLE,
                source=f"{{{{ var.value.orders_landing }}}}/{region}.json",
                format="json",
                schema="id bigint, region string, status string",
            )
            index = RefreshIndexOperator(task_id="by_status", table=TABLE, index="by_status")
            check(write.output) >> index
