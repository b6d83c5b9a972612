"""Triggers that wait on a table's timeline."""

from __future__ import annotations

from airflow_provider_index.triggers.timeline import TableCommitTrigger, TimelineTrigger, WritersDrainedTrigger

__all__ = ["TableCommitTrigger", "TimelineTrigger", "WritersDrainedTrigger"]
