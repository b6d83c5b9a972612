"""Nightly upkeep of many tables, described in the YAML file beside this one."""

from __future__ import annotations

from airflow_provider_index.maintenance import index_maintenance

dag = index_maintenance("maintenance_from_yaml", schedule="0 2 * * *", config="nightly.yaml")
