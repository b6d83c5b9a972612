"""The life of an index that is refreshed by a task of its own, then dropped; the table goes back and is cleaned."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, task

from airflow_provider_index.operators import (
    BuildIndexOperator,
    CleanTableOperator,
    DropIndexOperator,
    IncrementalRefreshOperator,
    RestoreTableOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)

HERE = {"table": "db.kept", "table_conn_id": "lake"}
INDEX = {"index": "by_city", **HERE}
ROWS = "SELECT id, concat('c', id % {2}) AS city FROM range({0}, {1})"
CREATE = {"schema": "id bigint, city string", "record_key": ["id"], "buckets": 2}

with DAG("upkeep"):
    load = WriteTableOperator(task_id="load", sql=ROWS.format(0, 100, 10), create=CREATE, **HERE)
    build = BuildIndexOperator(task_id="build", kind="secondary", columns=["city"], deferred=True, **INDEX)
    write = WriteTableOperator(task_id="write", sql=ROWS.format(50, 150, 7), **HERE)
    refresh = IncrementalRefreshOperator(task_id="refresh", **INDEX)
    verify = VerifyIndexOperator(task_id="verify", **INDEX)

    @task
    def damage(table: str) -> None:
        """Takes a file of the index away."""
        next(Path(table).rglob("_index/indexes/by_city/**/*.parquet")).unlink()

    damaged = damage("{{ conn.lake.extra_dejson['warehouse'] }}/db/kept")
    mend = VerifyIndexOperator(task_id="mend", repair=True, **INDEX)
    drop = DropIndexOperator(task_id="drop", **INDEX)
    restore = RestoreTableOperator(task_id="restore", version="{{ ti.xcom_pull(task_ids='load')['version'] }}", **HERE)
    plan = CleanTableOperator(task_id="plan", retain_versions=1, retain_hours=0, plan_only=True, **HERE)
    clean = CleanTableOperator(task_id="clean", retain_versions=1, retain_hours=0, **HERE)
    load >> build >> write >> refresh >> verify >> damaged >> mend >> drop >> restore >> plan >> clean
