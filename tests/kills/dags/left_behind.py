"""A runner whose apps outlive the task that waits for them in its worker, as those in a cluster do."""

from __future__ import annotations

from typing import Any

from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner


class LeftBehindRunner(DetachedSparkSubmitRunner):
    """Leaves each driver in a process group of its own."""

    def __init__(self, settings: SparkSettings, log: Any, *, detached: bool = True) -> None:
        super().__init__(settings, log)
