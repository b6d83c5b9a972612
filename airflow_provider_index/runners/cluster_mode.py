"""Submits with the driver in the cluster, on YARN and on Kubernetes: ``spark-submit --deploy-mode cluster``.

The driver runs on a machine that this one shares neither pipe nor disk with, so the job goes along as a file and may
hold no secret; the driver reports through the job's folder on storage, like any detached app.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec.structs

from airflow_provider_index.runners import by_provider, spark_submit
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.by_provider import ClusterOperator, HookProcess
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

_ALWAYS = {
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.yarn.submit.waitAppCompletion": "false",
    # A second driver would run under the same application id; the next try is the task's.
    "spark.yarn.maxAppAttempts": "1",
}
_YARN_ID = re.compile(r"\bapplication_\d+_\d+\b")
_STOP_SECONDS = 4.0
_ASK_SECONDS = 5.0
"""How often the cluster is asked how an app is doing, at most."""


class ClusterModeRunner(SparkSubmitRunner):
    """Submits to YARN or Kubernetes and leaves; the driver is the cluster's.

    Where the operator of Airflow's Spark provider can (from its release 6.2 on, for YARN with the address of its REST
    API, for Kubernetes with that provider), it submits and says how the app is doing; elsewhere ``spark-submit`` is
    run, and an app runs until its signs of life end.

    :param settings: with ``bundle``, the URI of a folder made by ``python -m spark_apps bundle``, the apps are taken
        from there; without one ``spark-submit`` uploads them.
    """

    detached = True
    by_hook = False
    start_seconds = 900.0
    submit_seconds = 600.0
    """For how long ``spark-submit`` may take to hand the app over."""

    def __init__(self, settings: SparkSettings, log: Any, bundle: Bundle | None = None) -> None:
        super().__init__(settings, log, bundle)
        self._name = ""
        self._application = ""
        self._operator: ClusterOperator | None = None
        self._seen = (-_ASK_SECONDS, JobStatus(True))

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
            archive, application = self._where(job)
            self._log.info("Submitting %s to %s, in cluster mode", job.program, self._settings.master)
            followed = by_provider.follows(self._settings)
            launch = by_provider.Launch(folder, binary, surroundings, folder) if followed else None
            if launch is not None and launch.starts:
                return self._submit_by_operator(launch, job, archive, application, folder)
            command = self._command(binary, job, archive, application, folder)
            process = self._run(command, subprocess.PIPE, surroundings, folder)
            self._start(self._relay, process.stdout)
            self._wait_until_handed_over(process)
            self._threads.pop().join(timeout=5)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._folder = None
        if self._kubernetes:
            return f"{self._settings.conf.get('spark.kubernetes.namespace', 'default')}:{self._name}"
        return self._application or job.job_id or self._name

    def status(self, handle: str) -> JobStatus:
        """Return what the cluster says, where it can be asked.

        Elsewhere, and where it does not answer, the app runs: its signs of life say what it does. That the cluster
        calls an app ended does not prove that its driver is dead: the task's commits end its attempts.
        """
        if not by_provider.follows(self._settings) or (not self._kubernetes and not _YARN_ID.fullmatch(handle)):
            return JobStatus(True, handle)
        at, seen = self._seen
        if time.monotonic() - at >= _ASK_SECONDS:
            seen = self._ask(handle)
            self._seen = (time.monotonic(), seen)
        return seen

    def _ask(self, handle: str) -> JobStatus:
        try:
            operator = self._operator or ClusterOperator(self._settings, {})
            running, state = operator.status(handle)
        except Exception as error:  # noqa: BLE001 - of another system: what cannot be known counts as running
            return JobStatus(True, f"{handle}: {type(error).__name__}")
        return JobStatus(running, f"{handle}: {state}")

    def cancel(self, handle: str) -> None:
        """Ask the cluster to end the driver.

        Where this host cannot ask it, the app ends itself: it looks every few seconds whether its job was
        cancelled.
        """
        if not handle:
            return super().cancel(handle)
        address = self._settings.cluster.get("yarn_resourcemanager_webapp_address")
        try:
            if self._kubernetes:
                binary, surroundings = self._surroundings()
                self._call([binary, "--master", self._settings.master, "--kill", handle], surroundings)
            elif _YARN_ID.fullmatch(handle) is None:
                return
            elif address:
                # The operator's on_kill sends nothing from another process than the one that submitted.
                by_provider.end_on_yarn(address, handle, _STOP_SECONDS)
            elif yarn := shutil.which("yarn"):
                self._call([yarn, "application", "-kill", handle], self._environment())
        except (subprocess.TimeoutExpired, OSError) as error:
            self._log.warning("The cluster was not asked to end %s: %s", handle, type(error).__name__)

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

    def _arguments(self, job: Job, archive: Any, workdir: Path) -> dict[str, Any]:
        given = super()._arguments(job, archive, workdir)
        apps = given.pop("py_files")
        conf = {**given["conf"], **_ALWAYS}
        for name, value in self._settings.environment.items():
            conf[f"spark.kubernetes.driverEnv.{name}"] = conf[f"spark.yarn.appMasterEnv.{name}"] = value
        if self._kubernetes:
            conf["spark.kubernetes.driver.pod.name"] = self._name
        files = ",".join(part for part in (self._settings.options.get("files"), str(workdir / JOB_FILE)) if part)
        return {**given, "conf": conf, "files": files, "py_files": apps}

    def _submit_by_operator(
        self, launch: by_provider.Launch, job: Job, archive: Any, application: list[str], folder: Path
    ) -> str:
        """Let the provider's operator submit, and return the id by which it follows the app."""
        program, *arguments = application
        given = {**self._arguments(job, archive, folder), "application": program, "application_args": arguments}
        self._operator = operator = ClusterOperator(self._settings, {**given, "spark_binary": str(launch.binary)})
        self._process = process = HookProcess(operator.submit, launch)
        self._wait_until_handed_over(process)
        return str(process.answer)

    def _wait_until_handed_over(self, process: subprocess.Popen[str] | HookProcess) -> None:
        """Wait for the end of ``spark-submit``. :raises JobFailed: it failed, or took too long and was ended."""
        try:
            code: int | None = process.wait(self.submit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.pid is not None:
                spark_submit.end_group(process.pid, 0)
            process.wait()
        if code != 0:
            why = f"did not end within {self.submit_seconds:g} s" if code is None else f"ended with status {code}"
            raise JobFailed(f"spark-submit {why}: {self._last_words()}", hint="See its lines above.")

    @staticmethod
    def _call(command: list[str], env: dict[str, str]) -> None:
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_STOP_SECONDS)

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
