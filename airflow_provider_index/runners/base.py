"""The protocol between an operator and whatever runs Spark apps: submit, status, cancel.

A runner knows processes or a cluster manager; it knows nothing of tables. It never decides whether the work
was done: the table's timeline does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_apps.job import Job, Outcome


@dataclass(frozen=True)
class JobStatus:
    """Where an app stands.

    :param running: whether it may still do something.
    :param detail: one line for the log: an exit status, a cluster manager's word, the last line the app
        wrote.
    :param outcome: what the app answered, once it has ended and if it could.
    """

    running: bool
    detail: str = ""
    outcome: Outcome | None = None


class Runner(Protocol):
    """Runs apps. ``submit`` returns a handle, plain text, by which the other two find the app again."""

    def submit(self, job: Job) -> str:
        """Starts the app of ``job.program`` and returns at once.

        :raises SparkMissing: there is nothing to run it with.
        """
        ...

    def status(self, handle: str) -> JobStatus:
        """Asks how the app stands; does not wait."""
        ...

    def cancel(self, handle: str) -> None:
        """Ends the app and everything it started, within five seconds. No error if it has ended already."""
        ...
