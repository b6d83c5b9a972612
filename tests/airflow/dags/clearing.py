"""Operators that commit, in tasks whose first try is lost behind its commit: writes and windows, then upkeep; a daily
DAG; a transaction.

``clearing_base`` makes the table, and writes into it what its run says, as another owner would meanwhile;
``clearing_others`` runs the statements of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, chain

from airflow_provider_index.operators import (
    BucketRescaleOperator,
    BuildIndexOperator,
    CleanTableOperator,
    CloseStopWriteWindowOperator,
    CompactIndexOperator,
    CompactTableOperator,
    DropIndexOperator,
    IncrementalRefreshOperator,
    IndexSQLOperator,
    MaintainTableOperator,
    OpenStopWriteWindowOperator,
    RegisterTableOperator,
    RestoreTableOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)
from airflow_provider_index.task_groups import index_transaction

CREATE = {"schema": "id bigint, note string, p string", "record_key": ["id"], "partition_by": ["p"], "buckets": 1}
OF_TABLE = {"table": "db.cleared", "table_conn_id": "lake"}


def values(*rows: tuple[Any, ...]) -> str:
    return f"SELECT CAST(id AS bigint) AS id, note, p FROM VALUES {', '.join(map(str, rows))} AS t(id, note, p)"


class LostTry:
    """An operator whose first try is lost behind what it has committed."""

    def execute(self, context: Mapping[str, Any]) -> Any:
        result = super().execute(context)  # type: ignore[misc]
        if context["ti"].try_number == 1:
            raise RuntimeError("lost behind its commit")
        return result


def task(operator: type, task_id: str, **arguments: Any) -> Any:
    lost: Any = type(f"Lost{operator.__name__}", (LostTry, operator), {"__module__": __name__})
    return lost(task_id=task_id, retries=1, retry_delay=timedelta(0), **{**OF_TABLE, **arguments})


with DAG("clearing_base", params={"rows": ""}):
    WriteTableOperator(task_id="write", create=CREATE, sql="{{ params.rows }}", **OF_TABLE)

with DAG("clearing"):
    opened = task(OpenStopWriteWindowOperator, "opened")
    chain(
        task(WriteTableOperator, "overwrite", sql=values((3, "new", "y")), operation="insert_overwrite"),
        task(WriteTableOperator, "delete", where="id = 1", operation="delete"),
        task(BuildIndexOperator, "build", index="by_note", kind="secondary", columns=["note"]),
        task(CompactTableOperator, "compact", mode="full"),
        opened,
        task(CloseStopWriteWindowOperator, "closed", window=opened.output["epoch"]),
        task(CleanTableOperator, "clean", retain_versions=1, retain_hours=0),
        task(WriteTableOperator, "insert", sql=values((7, "seven", "x")), operation="insert"),
    )

with DAG("clearing_others", params={"sql": ""}):
    IndexSQLOperator(task_id="others", sql="{{ params.sql }}", table_conn_id="lake")

UPKEPT = {"table": "db.upkept"}
COMPACTION = {"kind": "compact", "index": None, "mode": "full", "bytes": 0, "options": {}}
with DAG("clearing_upkeep", params={"version": 0}):
    # Side by side, but for what would take another's work away.
    chain(
        task(IncrementalRefreshOperator, "refresh", index="late", **UPKEPT),
        task(CompactIndexOperator, "compact_index", index="kept", mode="full", **UPKEPT),
        task(VerifyIndexOperator, "verify", index="kept", **UPKEPT),
        task(MaintainTableOperator, "maintain", steps=[COMPACTION], **UPKEPT),
        task(BucketRescaleOperator, "rescale", buckets=2, **UPKEPT),
        task(DropIndexOperator, "drop", index="gone", **UPKEPT),
    )
    task(RestoreTableOperator, "restore", version="{{ params.version }}", table="db.restored")
    landed = "{{ var.value.orders_landing }}/of_others"
    task(RegisterTableOperator, "register", record_key=["id"], table=landed)
    lost_sql: Any = type("LostSQL", (LostTry, IndexSQLOperator), {"__module__": __name__})
    statements = "DELETE FROM db.stated WHERE id = 1; DELETE FROM db.stated WHERE id = 2"
    lost_sql(task_id="sql", sql=statements, table_conn_id="lake", retries=1, retry_delay=timedelta(0))

# Nothing is scheduled any more, and a backfill may run any of its days.
MONTH = {"start_date": datetime(2024, 1, 1, tzinfo=UTC), "end_date": datetime(2024, 1, 31, tzinfo=UTC)}
with DAG("clearing_daily", schedule="@daily", catchup=False, **MONTH):
    WriteTableOperator.partial(
        task_id="several", table="db.days", table_conn_id="lake", create=CREATE, max_active_tis_per_dag=1
    ).expand(sql=[values((number, "{{ run_id }}", "a")) for number in (1, 2)])

with DAG("clearing_stages"), index_transaction("load", table="db.cleared", table_conn_id="lake", retries=2):
    for partition in ("v", "w"):
        WriteTableOperator(task_id=partition, sql=values((f"1{ord(partition)}", partition, partition)), **OF_TABLE)
