"""Groups of tasks that belong together."""

from __future__ import annotations

from airflow_provider_index.task_groups.transactions import IndexTransaction, index_transaction
from airflow_provider_index.task_groups.windows import StopWriteWindow, stop_write_window

__all__ = ["IndexTransaction", "StopWriteWindow", "index_transaction", "stop_write_window"]
