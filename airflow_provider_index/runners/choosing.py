"""Which runner runs a job: the one that the operator or its Spark connection names."""

from __future__ import annotations

from typing import Any

from airflow_provider_index.runners.base import Runner
from airflow_provider_index.runners.detached import DetachedSparkSubmitRunner
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner


def make_runner(settings: SparkSettings, log: Any, *, detached: bool = False, runner: str | None = None) -> Runner:
    """The runner for one app.

    :param settings: which Spark, and with what.
    :param log: where the app's lines go.
    :param detached: the app is to outlive the task; a runner whose apps always do may be given either way.
    :param runner: its name, over what the connection names.
    """
    kind = DetachedSparkSubmitRunner if detached else SparkSubmitRunner
    return kind(settings, log)
