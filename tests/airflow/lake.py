"""What the tests here look at: the Airflow that runs, and the tables that its DAGs write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_provider_index.testing import AirflowClient, LocalAirflow
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline

SECRET = "planted-5b1c77"
"""Stands in the Spark connection, and may stand nowhere else."""

STORAGE_SECRET = "planted-c40d19"
"""Stands in the storage options of the tables' connection, and may stand nowhere else."""


@dataclass(frozen=True)
class Lake:
    """The Airflow that runs, and the warehouse that its DAGs write to."""

    airflow: LocalAirflow
    warehouse: Path
    landing: Path
    """Folder that raw flights arrive in."""

    @property
    def client(self) -> AirflowClient:
        return self.airflow.client

    def timeline(self, table: str) -> Timeline:
        """A table's timeline, read anew."""
        return Timeline.load(Store(self.warehouse / table))
