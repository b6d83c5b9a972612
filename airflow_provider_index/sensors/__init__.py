"""Sensors that wait on a table's timeline; all of them can be deferred."""

from __future__ import annotations

from airflow_provider_index.sensors.timeline import (
    IndexFreshnessSensor,
    IndexStateSensor,
    TableCommitSensor,
    WritersDrainedSensor,
)
from airflow_provider_index.sensors.windows import StopWriteWindowClosedSensor

__all__ = [
    "IndexFreshnessSensor",
    "IndexStateSensor",
    "StopWriteWindowClosedSensor",
    "TableCommitSensor",
    "WritersDrainedSensor",
]
