"""Runs an app over Spark Connect: a plain Python process beside the task, and no JVM of its own.

The server is a long-lived one of the user's, at the Spark connection's address ``sc://…``. Everything else is as with
``spark-submit``: the job goes through a named pipe, the process group ends with the task or, detached, stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec.structs

from airflow_provider_index.import_shadowing import INSTALLED_APPS
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.by_provider import HookProcess
from airflow_provider_index.runners.settings import CONNECT, SparkSettings
from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner, SparkSubmitRunner
from spark_apps.jobs.bundle import Bundle
from spark_apps.jobs.job import Job
from spark_apps.storage.errors import InvalidInput

REMOTE = "spark.remote"
TOKEN = "spark.connect.authenticate.token"
"""The names, in a job's settings, of the server's address and of what it asks for."""


class _OverConnect(SparkSubmitRunner):
    """The common part: Python starts the program, which gets the server's address with its job."""

    by_hook = False

    def __init__(self, settings: SparkSettings, log: Any, bundle: Bundle | None = None) -> None:
        if not settings.master.startswith(CONNECT):
            raise InvalidInput(
                f"The runner 'connect' was asked for, and the Spark connection's master is {settings.master}.",
                hint=f"Give the address of a Spark Connect server as its host, {CONNECT}host with port 15002.",
            )
        super().__init__(settings, log, bundle)

    def _launch(self, job: Job, workdir: Path | None, output: Any) -> subprocess.Popen[str] | HookProcess:
        settings = self._settings
        conf = {**settings.conf, **job.spark_conf, REMOTE: settings.remote}
        if settings.token:
            conf[TOKEN] = settings.token
        return super()._launch(msgspec.structs.replace(job, spark_conf=conf), workdir, output)

    def _command(self, binary: str, job: Job, archive: Any, application: list[str], workdir: Path) -> list[str]:
        return [binary, *application]

    def _surroundings(self) -> tuple[str, dict[str, str]]:
        """Return the interpreter and its environment, in which the apps are found."""
        env = self._environment()
        interpreter = self._settings.environment.get("PYSPARK_DRIVER_PYTHON")
        if interpreter is None:
            # The installed package: it has been compiled, unlike the zip's.
            paths = [str(INSTALLED_APPS.parent), env.get("PYTHONPATH", "")]
            env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        env["PYTHONUNBUFFERED"] = "1"
        # Left behind by another Spark in this process, they would lead pyspark to a JVM.
        for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT"):
            env.pop(name, None)
        return interpreter or sys.executable, env


class ConnectRunner(_OverConnect):
    """Runs an app that works over Spark Connect and ends with the task.

    The app's Python is this process's own, or the connection's ``PYSPARK_DRIVER_PYTHON``. All settings of the
    connection go to the session; those that only a server's start can set are left out, with a warning.

    :raises InvalidInput: if the connection names no Spark Connect server.
    """

    start_seconds = 30.0

    def status(self, handle: str) -> JobStatus:
        """Return the status as the base class does; the process that ended is the app's own.

        :param handle: what ``submit`` returned.
        """
        status = super().status(handle)
        return replace(status, detail=status.detail.replace("spark-submit ended", "the app ended", 1))


class DetachedConnectRunner(_OverConnect, DetachedSparkSubmitRunner):
    """Runs an app that works over Spark Connect and stays on the worker's host when the task has left.

    :raises InvalidInput: if the connection names no Spark Connect server.
    """

    start_seconds = 30.0
