"""Triggers that wait for Spark apps and on a table's timeline."""

from __future__ import annotations

from airflow_provider_index.triggers.events import CommitEventTrigger, SourceEventTrigger
from airflow_provider_index.triggers.jobs import JobTrigger
from airflow_provider_index.triggers.timeline import (
    IndexFreshnessTrigger,
    IndexStateTrigger,
    TableCommitTrigger,
    TimelineTrigger,
    WritersDrainedTrigger,
)

__all__ = [
    "CommitEventTrigger",
    "IndexFreshnessTrigger",
    "IndexStateTrigger",
    "JobTrigger",
    "SourceEventTrigger",
    "TableCommitTrigger",
    "TimelineTrigger",
    "WritersDrainedTrigger",
]
