"""Waiting for a Spark app without a worker: the trigger looks at the job's folder on storage, whatever runs the app.

One listing a table and round serves all jobs of the table that this triggerer waits for. A trigger carries no
credentials and keeps nothing: a triggerer that is started anew goes on looking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Annotated, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_index.arguments import SerializesArguments, declares_arguments, mapping, required
from airflow_provider_index.compat import ask_supervisor, left_by_its_task
from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.submission import JobWatch, Submission, cancel
from airflow_provider_index.triggers.polling import as_event, polled, sooner_at_first
from spark_apps.jobs.job_folder import JobFolder, list_jobs
from spark_apps.storage.errors import LakeIndexError, StorageUnavailable
from spark_apps.storage.store import ObjectInfo, Store

_TELLS_OF_KILLS = hasattr(BaseTrigger, "on_kill")
"""Whether Airflow calls this method: from 3.3 on. An older one only cancels the trigger."""

Listing = tuple[Store, dict[str, dict[str, ObjectInfo]]]

_ENDING: set[asyncio.Future[None]] = set()
"""Jobs that are being ended: the event loop alone would not keep them."""


def _submission(name: str, given: Any) -> Submission:
    return Submission.from_dict(required(mapping)(name, given))


class JobTrigger(SerializesArguments, BaseTrigger):
    """Fires once, when a job has ended, is taken for dead, or its time is over.

    Its event is ``{"status": "done" | "dead" | "timeout"}``, or ``{"status": "error", "error": …}``.

    :param submission: :class:`~airflow_provider_index.submission.Submission` as a dictionary.
    :param poll_interval: seconds between two looks at most; at first it looks every second.
    """

    @declares_arguments
    def __init__(self, *, submission: Annotated[Mapping[str, Any], _submission], poll_interval: float) -> None:
        super().__init__()

    def serialized_arguments(self) -> dict[str, Any]:
        return {**super().serialized_arguments(), "submission": self.submission.to_dict()}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the job, and report it once."""
        try:
            async for event in self._events():
                yield event
        except asyncio.CancelledError:
            # A triggerer that stops leaves the job to the next one.
            if not _TELLS_OF_KILLS and await left_by_its_task(self.task_instance):
                await self.on_kill()
            raise

    async def _events(self) -> AsyncIterator[TriggerEvent]:
        job, watch = self.submission, JobWatch(self.submission)
        observe = partial(_observe, watch, job.job_id)
        reached, interval = True, partial(sooner_at_first, self.poll_interval)
        async with polled((job.jobs_at, job.table_conn_id), self._open, _list, observe, interval) as rounds:
            async for answer in rounds:
                if isinstance(answer, StorageUnavailable):
                    # It may pass, and there is a deadline.
                    if reached:
                        self.log.warning("%s", answer)
                    reached, event, line = False, watch.observe(None), None
                elif isinstance(answer, Exception):
                    # The task goes on and ends the job: one that is not watched must not commit behind its back.
                    yield TriggerEvent(as_event(answer))
                    return
                else:
                    reached, (event, line) = True, answer
                if line is not None:
                    self.log.info("progress: %s", line)
                if event is not None:
                    yield TriggerEvent({"status": event})
                    return

    async def on_kill(self) -> None:
        """End this job, and no other of its task: the next try may have begun already."""
        # A triggerer cancels again, each second, what is not over yet, and would break this off in silence.
        ending = asyncio.ensure_future(self._end())
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)

    async def _end(self) -> None:
        job, hook = self.submission, TableStoreHook(self.submission.table_conn_id)
        options = await ask_supervisor(lambda: hook.storage_options)
        try:
            settings = await ask_supervisor(hook.spark_settings, job.spark_conn_id)
        except LakeIndexError as error:
            self.log.warning("%s", error)
            settings = None
        await asyncio.to_thread(cancel, job, options, settings, self.log, "the task was killed while it was deferred")

    async def _open(self) -> Store:
        hook = TableStoreHook(self.submission.table_conn_id)
        options = await ask_supervisor(lambda: hook.storage_options)
        return Store(self.submission.jobs_at, options)


def _list(store: Store) -> Listing:
    return store, list_jobs(store)


def _observe(watch: JobWatch, job_id: str, listing: Listing) -> tuple[str | None, str | None]:
    store, listed = listing
    event = watch.observe(listed.get(job_id, {}))
    return event, None if event is not None else watch.tend(JobFolder(store, job_id))
