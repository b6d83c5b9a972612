"""A job that was submitted and is not waited for in the process that did: how to find it again, watch it, and end it.

The operator, the trigger and the next try of the task all do this with the same few lines of text. What they know of
the job is in its folder on storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from airflow_provider_index.links import web_address
from airflow_provider_index.runners.choosing import make_runner
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.job_folder import LEASE_SECONDS, JobFolder, JobHeartbeat, end_job
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import LakeIndexError, LogDamaged
from spark_apps.storage.store import ObjectInfo, Store
from spark_apps.timeline.limits import SILENT_JOB_SECONDS

SAY_SECONDS = 10.0


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names a job that was handed to a runner: its id, its folder and its table's connection, without secrets.

    :param handle: of the runner; empty until it has been handed over.
    :param deadline: seconds since 1970 at which its time is over.
    :param tables: locations of the tables it works on, where they are not below ``jobs_at``.
    """

    job_id: str
    jobs_at: str
    table_conn_id: str
    handle: str = ""
    spark_conn_id: str | None = None
    runner: str | None = None
    deadline: float | None = None
    silent_seconds: float = SILENT_JOB_SECONDS
    start_seconds: float = SILENT_JOB_SECONDS
    tables: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the submission as JSON types."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_dict(cls, built: Mapping[str, Any]) -> Submission:
        """Return the submission that :meth:`to_dict` wrote."""
        return msgspec.convert(built, cls)

    def folder(self, options: Mapping[str, Any]) -> JobFolder:
        """Return the job's folder, reached with these storage options."""
        return JobFolder(Store(self.jobs_at, options), self.job_id)


def cancel(
    submission: Submission, options: Mapping[str, Any] | None, settings: SparkSettings | None, log: Any, reason: str
) -> None:
    """End a job by a mark, by commits that end its attempts, and by its processes.

    After the commits nothing of it can be published; its processes are ended as far as its runner reaches them.
    Other jobs of the same transaction are left alone.

    :param options: of the store; without them only its processes are ended.
    :param settings: of the Spark connection; without them only the app itself sees to its end.
    :raises LakeIndexError: if the mark or a commit could not be written; its processes were ended all the same.
    """
    try:
        if options is not None:
            reached = options
            ended = end_job(submission.folder(reached), lambda uri: Store(uri, reached), reason, submission.tables)
            for attempt in ended:
                log.info("Aborted attempt %s of transaction %s: %s.", attempt.attempt, attempt.txn_id, reason)
    finally:
        _end_processes(submission, settings, log)


def _end_processes(submission: Submission, settings: SparkSettings | None, log: Any) -> None:
    if not submission.handle or settings is None:
        return
    try:
        make_runner(settings, log, detached=True, runner=submission.runner).cancel(submission.handle)
    except (LakeIndexError, OSError) as error:
        # The mark reaches the app as well, and it looks every few seconds.
        log.warning("The runner could not end job %s: %s", submission.job_id, error)


class JobWatch:
    """Finds out from a job's folder whether the job is done, dead, or late.

    Knows no clock but this machine's: silence is measured from when it saw a sign of life.
    """

    def __init__(
        self,
        submission: Submission,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submission = submission
        self._clock = clock
        self._monotonic = monotonic
        self._beat: tuple[Any, ...] | None = None
        self._heard = monotonic()
        self._patience = max(submission.start_seconds, submission.silent_seconds)
        self._renewed = -LEASE_SECONDS
        self._last_line = ("", -SAY_SECONDS)
        self.ui = self.history = self.log = ""
        """Addresses of Spark's own page, of the page on the history server and of the driver's log, once reported."""

    def observe(self, objects: Mapping[str, ObjectInfo] | None) -> str | None:
        """Return ``done``, ``dead``, ``timeout``, or ``None`` while it works.

        :param objects: what the folder holds; ``None`` if the store did not answer. Then neither would the app's signs
            have arrived, and its silence counts from now.
        """
        if objects is None:
            self._heard = self._monotonic()
        elif "outcome.json" in objects:
            return "done"
        else:
            self._hear(objects.get("beat.json"))
        if self._submission.deadline is not None and self._clock() >= self._submission.deadline:
            return "timeout"
        return "dead" if self._monotonic() - self._heard > self._patience else None

    def tend(self, folder: JobFolder) -> str | None:
        """Renew the job's lease where that is due; return a line about the app's progress, if it is new."""
        now = self._monotonic()
        if now - self._renewed >= LEASE_SECONDS / 2:
            folder.renew_lease()
            self._renewed = now
        last, at = self._last_line
        if self._beat is None or self._heard <= at or now - at < SAY_SECONDS:
            return None
        beat = _readable_beat(folder)
        line = last if beat is None else beat.line()
        self._last_line = (line, now)
        self.history, self.log = (self.history, self.log) if beat is None else (beat.history, beat.log)
        page = "" if beat is None else web_address(beat.ui)
        if page and page != self.ui:
            self.ui = page
            return f"{line} (Spark's page: {page})"
        return None if line == last else line

    def _hear(self, beat: ObjectInfo | None) -> None:
        if beat is None:
            return
        seen = (beat.etag, beat.modified, beat.size)
        if seen != self._beat:
            self._beat = seen
            self._heard = self._monotonic()
            self._patience = self._submission.silent_seconds


def _readable_beat(folder: JobFolder) -> JobHeartbeat | None:
    """Return the app's sign of life, for people; one that cannot be read is as good as none."""
    try:
        return folder.heartbeat()
    except (LogDamaged, msgspec.MsgspecError):
        return None


prepare(Submission)
