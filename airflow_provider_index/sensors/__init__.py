"""Sensors that wait on a table's timeline; all of them can be deferred."""

from __future__ import annotations

from airflow_provider_index.sensors.timeline import (
    IndexFreshnessSensor,
    IndexStateSensor,
    StopWriteWindowClosedSensor,
    TableCommitSensor,
    TableRowSensor,
    WritersDrainedSensor,
)

__all__ = [
    "IndexFreshnessSensor",
    "IndexStateSensor",
    "StopWriteWindowClosedSensor",
    "TableCommitSensor",
    "TableRowSensor",
    "WritersDrainedSensor",
]
