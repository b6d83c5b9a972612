"""Jobs that earlier tries of a task have left behind: which of them goes on with this try's work, and which are ended.

Before a job is submitted its folder is made in the table's log, named by the work and the try. So the next try
finds it there whatever happened in between: a worker that is lost, an Airflow that remembers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.submission import Submission
from spark_apps.jobs.job_folder import JobFolder, list_jobs, unfinished
from spark_apps.storage.store import ObjectInfo, Store


@dataclass(frozen=True)
class EarlierJobs:
    """The jobs of one task that have not reported their end, by one listing.

    :param store: where their folders are.
    :param listed: all folders there, of other tasks as well.
    :param blank: what a submission of this task has in common with theirs.
    :param remembered: the submission that Airflow keeps, which alone has a handle: what is written in a folder could be
        anyone's word, and must not name a process to be ended.
    """

    store: Store
    listed: dict[str, dict[str, ObjectInfo]]
    blank: Submission
    remembered: Submission | None = None

    @classmethod
    def find(cls, store: Store, blank: Submission, remembered: Submission | None) -> EarlierJobs:
        """List them."""
        return cls(store, list_jobs(store), blank, remembered)

    def of_task(self, prefix: str) -> Iterator[Submission]:
        """Yield the jobs whose intents begin with a prefix: that of the task, for all its rounds and inputs."""
        for job_id in unfinished(self.listed, prefix):
            kept = self.remembered
            yield kept if kept is not None and kept.job_id == job_id else replace(self.blank, job_id=job_id)

    def living(self, intent: str, status: Callable[[Submission], JobStatus]) -> Submission | None:
        """Return the job of the same round and the same inputs that is at work, if there is one.

        It lives if its last sign of life, by the store's own clock, is not older than the patience with a job that is
        watched. One that has given none may wait for a machine, if it is known that it was handed over.

        :param intent: what the names of the jobs of this work begin with.
        :param status: asks the runner of a submission that has a handle.
        """
        for submission in sorted(self.of_task(f"{intent}."), key=self._last_change, reverse=True):
            if submission.handle and not status(submission).running:
                continue
            if self._silence(submission) <= self._patience(submission):
                return submission
        return None

    def _patience(self, submission: Submission) -> float:
        if "beat.json" in self.listed[submission.job_id]:
            return submission.silent_seconds
        return submission.start_seconds if submission.handle else 0

    def _silence(self, submission: Submission) -> float:
        """Return the seconds since the job's last sign of life; of one without, since it was waited for last."""
        objects = self.listed[submission.job_id]
        last = objects.get("beat.json") or objects.get("wanted.json")
        folder = JobFolder(self.store, submission.job_id)
        folder.renew_lease()
        now = self.store.head(folder.key("wanted.json"))
        return math.inf if last is None or now is None else (now.modified - last.modified).total_seconds()

    def _last_change(self, submission: Submission) -> datetime:
        return max(info.modified for info in self.listed[submission.job_id].values())
