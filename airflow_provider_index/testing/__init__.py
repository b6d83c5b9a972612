"""Helpers for people who test DAGs.

There are a lake for one test, a whole Airflow on this machine, a small client to drive it, and a Spark Connect server.

The operators import nothing of it; it may be used from tests, from demos and from a notebook.
"""

from __future__ import annotations

from airflow_provider_index.testing.client import AirflowClient, DagRunFailed, DagRunReport, SchedulerDead
from airflow_provider_index.testing.connect_server import ConnectServerDidNotStart, LocalConnectServer
from airflow_provider_index.testing.lake import DagTestReport, TemporaryLake, temporary_lake
from airflow_provider_index.testing.local_airflow import AirflowDidNotStart, LocalAirflow

__all__ = [
    "AirflowClient",
    "AirflowDidNotStart",
    "ConnectServerDidNotStart",
    "DagRunFailed",
    "DagRunReport",
    "DagTestReport",
    "LocalAirflow",
    "LocalConnectServer",
    "SchedulerDead",
    "TemporaryLake",
    "temporary_lake",
]
