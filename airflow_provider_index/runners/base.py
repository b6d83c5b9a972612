"""The protocol between an operator and whatever runs Spark apps: submit, status, cancel, close.

A runner knows processes or a cluster manager; it knows nothing of tables. It never decides whether the work
was done: the table's timeline does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_apps.jobs.job import Job, Outcome


@dataclass(frozen=True)
class JobStatus:
    """Status of an app.

    :param running: whether it may still do something.
    :param detail: one line for the log: an exit status, a cluster manager's word, the last line the app
        wrote.
    :param outcome: what the app answered, once it has ended and if it answers to the runner. The answer of
        a detached app is in its job folder, where the operator reads it.
    :param ui: address of Spark's own page, once the app has said where it is.
    :param history: of its page on a history server, and ``log`` of what its driver writes, likewise.
    """

    running: bool
    detail: str = ""
    outcome: Outcome | None = None
    ui: str = ""
    history: str = ""
    log: str = ""


class Runner(Protocol):
    """Runs apps. ``submit`` returns a handle, by which the other calls find the app.

    One runner serves one app at a time. A handle is plain text without secrets. The handle of a detached runner can be
    used in another process; for ``cancel`` and ``status``, a new runner made from the same connection is enough.

    :param job: the program, its arguments and its settings.
    :param handle: what ``submit`` returned.
    """

    detached: bool
    """Whether the app outlives the process that submitted it, and so reports on storage: then the job carries
    ``job_id`` and ``jobs_at``, and the app looks there whether it is still wanted."""

    start_seconds: float
    """For how long after ``submit`` a detached app may leave no sign of life: queues, images, machines."""

    def submit(self, job: Job) -> str:
        """Start the app of ``job.program`` and return as soon as it is on its way.

        The job may hold credentials, so it must be on no command line, and in no file that is kept after the app has
        read it.

        :raises SparkMissing: there is nothing to run it with.
        :raises JobFailed: the job could not be submitted; nothing of it runs.
        """
        ...

    def status(self, handle: str) -> JobStatus:
        """Return the state of the app, without waiting. If the state cannot be known, the app counts as running.

        :returns: whether it runs, and how it ended.
        """
        ...

    def cancel(self, handle: str) -> None:
        """End the app and everything that it started, within five seconds, as far as this process can reach it.

        No error if it has ended already.

        :param handle: empty where ``submit`` of this runner has not returned yet.
        """
        ...

    def close(self) -> None:
        """Release what ``submit`` took. An attached app ends then; a detached one runs on."""
        ...
