"""Runs an app by ``spark-submit`` with a driver that stays on the worker's host when the task has left.

The job goes through a named pipe as always; ``submit`` returns once the driver has read it. From then on the driver
reports on storage, and stops when it is told so there. The handle names host, process group and start, so that
who cancels on the same host ends the processes as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import msgspec.structs

from airflow_provider_index.compat import conf
from airflow_provider_index.runners import spark_submit
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner
from spark_apps.jobs.environment import cache_directory
from spark_apps.jobs.job import Job
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import JobFailed

HANDOVER_SECONDS = 60.0
"""For how long ``submit`` waits until the driver has read its job."""
KEPT_DAYS = 7
"""For how long the logs of drivers stay."""
_MARK = ".index-driver.log"
_FOLDER_NAME = re.compile(rf"\.?\d{{8}}T\d{{6}}-.+{re.escape(_MARK)}")
_LAST_LINES = 20
_LAST_BYTES = 16_384


class Handle(msgspec.Struct, frozen=True):
    """Place of a driver: ``started`` tells its process group from a later one of that number."""

    host: str
    pid: int
    started: str | None
    log: str


class DetachedSparkSubmitRunner(SparkSubmitRunner):
    """Submits in client mode and leaves the driver behind, in a process group of its own.

    Its lines go to a file below ``driver-logs`` of the Spark connection's extra, by default ``index_drivers`` below
    Airflow's log folder. For workers that live on when a task has ended: not for a pod a task.
    """

    detached = True

    def submit(self, job: Job) -> str:
        logs = self._logs()
        _remove_old(logs)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{job.job_id or job.program}"
        self._path = logs / f"{name}{_MARK}"
        scratch = _scratch_of(self._path)
        scratch.mkdir(mode=0o700)
        try:
            self._path.touch(mode=0o600, exist_ok=False)
            with self._path.open("wb") as output:
                self._launch(msgspec.structs.replace(job, scratch=str(scratch)), scratch, output)
            self._log.info("The driver's lines go to %s on %s.", self._path, spark_submit.this_host().partition("/")[0])
            self._wait_until_read()
        except BaseException:
            self._end()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        finally:
            self._let_go()
        assert self._process is not None
        handle = Handle(
            spark_submit.this_host(), self._process.pid, spark_submit.started_at(self._process.pid), str(self._path)
        )
        return msgspec.json.encode(handle).decode()

    def status(self, handle: str) -> JobStatus:
        """Return whether the driver's processes are there, if they are on this host; elsewhere it counts as running."""
        where = _read(handle)
        if where.host != spark_submit.this_host():
            return JobStatus(True, f"on {where.host.partition('/')[0]}, log {where.log}")
        if _is_there(where):
            return JobStatus(True, f"process group {where.pid}, log {where.log}")
        return JobStatus(False, f"its processes are gone; the last lines of {where.log}:\n{last_lines(where.log)}")

    def cancel(self, handle: str) -> None:
        """End the process group, if it is on this host and still the one that was started.

        :param handle: empty while ``submit`` is at work in this process.
        """
        if not handle:
            return self._end()
        where = _read(handle)
        if where.host != spark_submit.this_host():
            return
        if _is_there(where):
            spark_submit.end_group(where.pid, self.polite_seconds)
        shutil.rmtree(_scratch_of(Path(where.log)), ignore_errors=True)

    def close(self) -> None:
        """Do nothing: the driver runs on."""
        self._let_go()

    def _wait_until_read(self) -> None:
        """Wait until the driver has taken the pipe away, which it does when it has read the job."""
        assert self._process is not None and self._folder is not None
        deadline = time.monotonic() + HANDOVER_SECONDS
        while (self._folder / "job").exists():
            code = self._process.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            why = f"did not read its job within {HANDOVER_SECONDS:g} s" if code is None else f"ended with status {code}"
            raise JobFailed(
                f"spark-submit {why}; its last lines:\n{last_lines(self._path)}",
                hint=f"All of them are in {self._path} on {spark_submit.this_host().partition('/')[0]}.",
            )

    def _end(self) -> None:
        if self._process is not None:
            spark_submit.end_group(self._process.pid, 0)
            self._process.wait()

    def _logs(self) -> Path:
        configured = self._settings.driver_logs
        if configured is None:
            base = conf.get("logging", "base_log_folder", fallback=None)
            configured = str(Path(base) / "index_drivers") if base else str(cache_directory() / "drivers")
        folder = Path(configured)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def last_lines(path: str | os.PathLike[str]) -> str:
    """Return the end of a driver's log; empty if it is not on this host."""
    try:
        with Path(path).open("rb") as lines:
            lines.seek(max(0, os.fstat(lines.fileno()).st_size - _LAST_BYTES))
            text = lines.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LAST_LINES:])


def last_lines_of(handle: str) -> str:
    """Return what to show of a driver that failed: where its log is, and its end, if that can be read here."""
    try:
        where = _read(handle)
    except msgspec.MsgspecError:
        return ""  # of another runner
    host = where.host.partition("/")[0]
    if where.host != spark_submit.this_host():
        return f"The driver's lines are in {where.log} on {host}."
    return f"The last lines of the driver, of {where.log} on {host}:\n{last_lines(where.log)}"


def _scratch_of(log: Path) -> Path:
    """Return the folder in which the driver of that log works. It takes it away at its end, or who ends it does."""
    return log.with_name(f".{log.name}")


def _read(handle: str) -> Handle:
    return msgspec.json.decode(handle, type=Handle)


def _is_there(where: Handle) -> bool:
    started = spark_submit.started_at(where.pid)
    if started is not None:
        return started == where.started
    # The first process has ended. While others of its group live, no new process gets its number.
    return bool(spark_submit.members(where.pid))


def _remove_old(folder: Path) -> None:
    """Remove old logs of drivers, and the folders in which they worked.

    What does not carry their mark is another program's, though it lies in the same folder.
    """
    before = time.time() - KEPT_DAYS * 86_400
    for entry in folder.glob(f"*{_MARK}"):
        with contextlib.suppress(OSError):
            if not _FOLDER_NAME.fullmatch(entry.name) or entry.is_symlink() or entry.stat().st_mtime >= before:
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


prepare(Handle)
