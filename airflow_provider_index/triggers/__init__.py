"""Triggers that wait for Spark apps and on a table's timeline."""

from __future__ import annotations

from airflow_provider_index.triggers.jobs import JobTrigger
from airflow_provider_index.triggers.timeline import (
    IndexFreshnessTrigger,
    IndexStateTrigger,
    TableCommitTrigger,
    TimelineTrigger,
    WritersDrainedTrigger,
)

__all__ = [
    "IndexFreshnessTrigger",
    "IndexStateTrigger",
    "JobTrigger",
    "TableCommitTrigger",
    "TimelineTrigger",
    "WritersDrainedTrigger",
]
