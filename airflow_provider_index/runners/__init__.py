"""How an app reaches Spark: a small protocol, and the runner that speaks to ``spark-submit``."""

from __future__ import annotations

from airflow_provider_index.runners.base import JobStatus, Runner
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner

__all__ = ["JobStatus", "Runner", "SparkSettings", "SparkSubmitRunner"]
