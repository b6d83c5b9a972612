"""Submits with the driver in the cluster, on YARN and on Kubernetes: ``spark-submit --deploy-mode cluster``.

The driver runs on a machine that this one shares neither pipe nor disk with, so the job goes along as a file and may
hold no secret; the driver reports through the job's folder on storage, like any detached app.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec.structs

from airflow_provider_index.runners import spark_submit
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner
from spark_apps.jobs.bundle import Bundle, make_bundle
from spark_apps.jobs.job import Job, encode_job
from spark_apps.storage.errors import InvalidInput, JobFailed
from spark_apps.storage.secrets import holds_secret, paths_of_secrets, secrets_in_text
from spark_apps.storage.store import SOURCE_ROOTS, WAREHOUSE_ROOT
from spark_apps.version import __version__

JOB_FILE = "job.json"
"""Name of the file with the job in the driver's working directory."""

_NOT_WAITING = {
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.yarn.submit.waitAppCompletion": "false",
}
_YARN_ID = re.compile(r"\bapplication_\d+_\d+\b")
_STOP_SECONDS = 4.0


class ClusterModeRunner(SparkSubmitRunner):
    """Submits to YARN or Kubernetes and leaves; the driver is the cluster's.

    :param settings: with ``bundle``, the URI of a folder made by ``python -m spark_apps bundle``, the apps are taken
        from there; without one ``spark-submit`` uploads them.
    """

    detached = True
    start_seconds = 900.0
    submit_seconds = 600.0
    """For how long ``spark-submit`` may take to hand the app over."""

    def __init__(self, settings: SparkSettings, log: Any, bundle: Bundle | None = None) -> None:
        super().__init__(settings, log, bundle)
        self._name = ""
        self._application = ""

    def submit(self, job: Job) -> str:
        """Hand the app over and return the driver's pod or application.

        :raises InvalidInput: if the job would have to carry a secret.
        :raises JobFailed: if ``spark-submit`` fails; nothing was started.
        """
        job = for_elsewhere(job, self._settings)
        binary, surroundings = self._surroundings()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="index-job-"))
        try:
            path = folder / JOB_FILE
            path.touch(mode=0o600)
            path.write_bytes(encode_job(job))
            self._name = _pod_name(job)
            command = self._command(binary, job, *self._where(job), folder)
            self._log.info("Submitting %s to %s, in cluster mode", job.program, self._settings.master)
            self._submit(command, surroundings, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._folder = None
        if self._kubernetes:
            return f"{self._settings.conf.get('spark.kubernetes.namespace', 'default')}:{self._name}"
        return self._application or job.job_id or self._name

    def status(self, handle: str) -> JobStatus:
        """Return that the app runs: its signs of life say what it does, the cluster is not asked."""
        return JobStatus(True, handle)

    def cancel(self, handle: str) -> None:
        """Ask the cluster to end the driver.

        Where this host cannot ask it, the app ends itself: it looks every few seconds whether its job was
        cancelled.
        """
        if self._kubernetes:
            binary, surroundings = self._surroundings()
            command = [binary, "--master", self._settings.master, "--kill", handle]
        else:
            yarn = shutil.which("yarn")
            if yarn is None or _YARN_ID.fullmatch(handle) is None:
                return
            command, surroundings = [yarn, "application", "-kill", handle], self._environment()
        try:
            subprocess.run(
                command, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, timeout=_STOP_SECONDS
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            self._log.warning("The cluster was not told to end %s: %s", handle, type(error).__name__)

    def close(self) -> None:
        """Do nothing: the driver runs on."""

    @property
    def _kubernetes(self) -> bool:
        return self._settings.master.startswith("k8s://")

    def _where(self, job: Job) -> tuple[Any, list[str]]:
        """Return the apps' zip, and the program with its argument: those of the connection, or of this host."""
        at = self._settings.bundle
        if at is not None:
            return f"{at}/spark_apps.zip", [f"{at}/{job.program}.py", JOB_FILE]
        bundle = self._bundle or make_bundle()
        return bundle.archive, [str(bundle.program(job.program)), JOB_FILE]

    def _command(self, binary: str, job: Job, archive: Any, application: list[str], workdir: Path) -> list[str]:
        command = super()._command(binary, job, archive, application, workdir)
        at = len(command) - len(application) - 2
        conf = dict(_NOT_WAITING)
        for name, value in self._settings.environment.items():
            conf[f"spark.kubernetes.driverEnv.{name}"] = conf[f"spark.yarn.appMasterEnv.{name}"] = value
        if self._kubernetes:
            conf["spark.kubernetes.driver.pod.name"] = self._name
        more = [part for key, value in sorted(conf.items()) for part in ("--conf", f"{key}={value}")]
        files = ",".join(part for part in (self._settings.options.get("files"), str(workdir / JOB_FILE)) if part)
        return [*command[:at], *more, "--files", files, *command[at:]]

    def _submit(self, command: list[str], surroundings: dict[str, str], folder: Path) -> None:
        """Run ``spark-submit`` to its end, with its lines in the task's log."""
        process = self._run(command, subprocess.PIPE, surroundings, folder)
        self._start(self._relay, process.stdout)
        try:
            code: int | None = process.wait(self.submit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            spark_submit.end_group(process.pid, 0)
            process.wait()
        self._threads.pop().join(timeout=5)
        if code != 0:
            why = f"did not end within {self.submit_seconds:g} s" if code is None else f"ended with status {code}"
            raise JobFailed(f"spark-submit {why}: {self._last_words()}", hint="See its lines above.")

    def _hear(self, line: str) -> None:
        """Take from a line the first application of YARN that it names."""
        match = None if self._application else _YARN_ID.search(line)
        self._application = match[0] if match else self._application


def for_elsewhere(job: Job, settings: SparkSettings) -> Job:
    """Return the job as it goes to a driver on another machine, in a file or an argument that others may see.

    Storage options in ``runner_options`` of the Spark connection replace those of the table's connection, for a
    driver that has a role of its own where Airflow has keys.

    :raises InvalidInput: names every secret that it would hold.
    """
    settings.check_spoken()
    options = dict(settings.runner_options.get("storage_options", job.storage_options))
    for name in (SOURCE_ROOTS, WAREHOUSE_ROOT):
        if name in job.storage_options:
            options[name] = job.storage_options[name]
    with_secrets = sorted(
        [f"storage option {name}" for name, value in options.items() if holds_secret(name, value)]
        + [
            f"setting {name}"
            for name, value in {**settings.conf, **job.spark_conf}.items()
            if holds_secret(name, value)
        ]
        + [f"argument {path}" for path in paths_of_secrets(job.arguments)]
        + [
            f"the address of the {what}"
            for what, address in (("table", job.table), ("job's folder", job.jobs_at or ""))
            if secrets_in_text(address)
        ]
    )
    if with_secrets:
        raise InvalidInput(
            f"The driver will not run on this machine, and its job would carry secrets in a file or on a command line: "
            f"{', '.join(with_secrets)}.",
            hint="Give the driver and the executors a role (a service account of Kubernetes, an instance profile) and "
            'the Spark connection "runner_options": {"storage_options": {…}} without keys; or use Spark\'s own ways: '
            "spark.kubernetes.driver.secretKeyRef.* and executor.secretKeyRef.*, or Hadoop's credential store.",
        )
    return msgspec.structs.replace(
        job, storage_options=options, detached=True, result=None, process_group=None, scratch=None, version=__version__
    )


def _pod_name(job: Job) -> str:
    """Return a name that Kubernetes takes: short, only lower-case letters, digits and dashes, and this job's alone."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"{job.program}-{job.job_id or job.txn_id or ''}".lower()).strip("-")
    return f"index-{plain[-50:].strip('-')}-driver"
