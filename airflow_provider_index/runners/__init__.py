"""Ways of an app to Spark: a small protocol, and the runners that speak to ``spark-submit`` and to Spark Connect.

Whoever writes a runner needs :class:`Runner`, :class:`JobStatus` and :class:`SparkSettings` from here; whoever has an
operator that submits Spark apps already needs :func:`~airflow_provider_index.runners.wrapping.wrap_operator`.
"""

from __future__ import annotations

from airflow_provider_index.runners.base import JobStatus, Runner
from airflow_provider_index.runners.choosing import make_runner
from airflow_provider_index.runners.connect import ConnectRunner
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner

__all__ = ["ConnectRunner", "JobStatus", "Runner", "SparkSettings", "SparkSubmitRunner", "make_runner"]
