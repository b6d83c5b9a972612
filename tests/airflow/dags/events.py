"""Brings rows into a table that others watch; it names no outlet."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import WriteTableOperator

with DAG("land_orders"):
    WriteTableOperator(task_id="land", table="shop.orders", sql="SELECT id, concat('c', id % 7) AS city FROM range(40)")
