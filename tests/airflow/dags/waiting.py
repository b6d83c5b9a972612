"""Sensors for a commit: deferred, in a worker, and one that waits in vain."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.sensors import TableCommitSensor

HERE = {"table": "db.awaited", "table_conn_id": "lake", "poke_interval": 1}

with DAG("waiting"):
    TableCommitSensor(task_id="deferred", deferrable=True, timeout=60, operations=["clean_me"], **HERE)
    TableCommitSensor(task_id="poked", after_version=0, timeout=60, partition="part=p1", **HERE)
    TableCommitSensor(task_id="in_vain", deferrable=True, timeout=3, partition="part=p7", **HERE)
    TableCommitSensor(task_id="lost", deferrable=True, table="db.nowhere", table_conn_id="lake", retries=5)
