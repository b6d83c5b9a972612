"""A runner as another package would bring it, by the public protocol alone: it keeps a queue of files that a daemon of
theirs would work off, and here works them off itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec.structs

from airflow_provider_index.runners import JobStatus, SparkSettings
from spark_apps.jobs.bundle import make_bundle
from spark_apps.jobs.job import Job, encode_job, read_outcome


class QueueRunner:
    """Starts an app by a file in a folder; ``runner_options`` of the connection name the folder."""

    start_seconds = 30.0

    def __init__(self, settings: SparkSettings, log: Any, *, detached: bool = False) -> None:
        self.detached = False
        self._settings, self._log = settings, log
        self._process: subprocess.Popen[bytes] | None = None
        self._queue = Path(settings.runner_options["queue"])

    def submit(self, job: Job) -> str:
        slot = Path(tempfile.mkdtemp(dir=self._queue))
        bundle = make_bundle()
        (slot / "job").touch(mode=0o600)
        server = {"spark.remote": self._settings.remote, "spark.connect.authenticate.token": self._settings.token or ""}
        conf = {**self._settings.conf, **job.spark_conf, **server}
        queued = msgspec.structs.replace(job, result=str(slot / "outcome"), spark_conf=conf)
        (slot / "job").write_bytes(encode_job(queued))
        command = [sys.executable, str(bundle.program(job.program)), str(slot / "job")]
        with (slot / "lines").open("wb") as lines:
            self._process = subprocess.Popen(
                command,
                stdout=lines,
                stderr=lines,
                env={**os.environ, "PYTHONPATH": str(bundle.archive)},
                start_new_session=True,
            )
        self._log.info("Queued as %s", slot.name)
        return str(slot)

    def status(self, handle: str) -> JobStatus:
        assert self._process is not None
        code = self._process.poll()
        lines = (Path(handle) / "lines").read_text(errors="replace").splitlines()
        said = lines[-1] if lines else ""
        return JobStatus(True, said) if code is None else JobStatus(False, said, read_outcome(Path(handle) / "outcome"))

    def cancel(self, handle: str) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def close(self) -> None:
        self.cancel("")
