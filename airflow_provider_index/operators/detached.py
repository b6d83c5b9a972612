"""The part of a Spark operator that is about apps which outlive it: submit and leave, come back and read how it went.

The task defers to a trigger that watches the job's folder; where it does not defer and the runner's apps live
elsewhere all the same, it watches the folder itself. Jobs of earlier tries are ended before a new one begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_index.compat import AirflowTaskTimeout
from airflow_provider_index.failures import read_error
from airflow_provider_index.identity import make_id, recall, remember, round_of, transaction_id
from spark_apps.storage.errors import InvalidInput, JobFailed, LakeIndexError, StorageUnavailable
from spark_apps.timeline.limits import SILENT_JOB_SECONDS

if TYPE_CHECKING:
    from airflow_provider_index.hooks.table_store import TableStoreHook
    from airflow_provider_index.runners.base import Runner
    from airflow_provider_index.submission import Submission
    from spark_apps.jobs.job import Job, Outcome
    from spark_apps.jobs.job_folder import JobFolder
    from spark_apps.storage.store import Store

_MEMORY = "job"
TRIGGER_FAILED = "__fail__"
"""Airflow's name of the way that a task takes whose trigger failed."""
_POLL_SECONDS = 5.0


class DetachedJobs:
    """Mixed into the Spark operators."""

    silent_seconds: float = SILENT_JOB_SECONDS
    poll_interval: float | None
    deferrable: bool
    spark_conn_id: str | None
    runner: str | None
    table_conn_id: str
    program: ClassVar[str]

    round: int | str | None = None
    """What is another after every clear of the task."""
    _submission: Submission | None = None
    _killed: bool = False

    if TYPE_CHECKING:
        log: Any
        hook: TableStoreHook
        defer: Callable[..., Any]
        execution_timeout: timedelta | None

        def read_arguments(self, *, at_once: bool = False) -> None: ...
        def already_done(self, txn_id: str) -> Any: ...
        def commits(self) -> bool: ...
        def inputs(self) -> dict[str, Any]: ...
        def conclude(self, txn_id: str | None, outcome: Outcome | None) -> Any: ...
        def jobs_store(self) -> Store | None: ...
        def has_log(self) -> bool: ...
        def tables_of_jobs(self) -> tuple[str, ...]: ...
        def landed(self, txn_id: str | None) -> bool: ...
        def done(self, context: Mapping[str, Any], result: Any) -> Any: ...
        def failed(self, context: Mapping[str, Any], error: LakeIndexError) -> Exception: ...
        def show_spark_ui(self, context: Mapping[str, Any], url: str | None) -> None: ...

    # --- submit and leave -------------------------------------------------------------------------------------

    def submit_detached(self, context: Mapping[str, Any], runner: Runner, job: Job) -> Outcome | None:
        """Hand the job over and defer; where the task is not to defer, wait and return the answer."""
        from msgspec.structs import replace

        from airflow_provider_index.submission import Submission
        from airflow_provider_index.triggers.jobs import JobTrigger
        from spark_apps.jobs.job_folder import JobFolder, new_job_id

        store = self.jobs_store()
        if store is None:
            raise InvalidInput(
                f"The app has no folder to report to: the connection {self.table_conn_id!r} names no warehouse.",
                hint="Fill it in, or leave deferrable out.",
            )
        limit = self.execution_timeout
        deadline = None if limit is None else time.time() + limit.total_seconds()
        job_id = new_job_id(intent_of(context, job.txn_id), context["ti"].try_number)
        submission = Submission(
            job_id=job_id,
            jobs_at=store.uri,
            table_conn_id=self.table_conn_id,
            spark_conn_id=self.spark_conn_id,
            runner=self.runner,
            deadline=deadline,
            silent_seconds=self.silent_seconds,
            tables=self.tables_of_jobs(),
            start_seconds=runner.start_seconds,
        )
        folder = JobFolder(store, job_id)
        folder.renew_lease()
        # Before it is there: a worker that is lost from here on leaves a trace for the next try.
        self._remember(context, submission)
        job = replace(job, detached=True, job_id=job_id, jobs_at=store.uri, deadline=deadline)
        try:
            handle = runner.submit(job)
        except BaseException:
            folder.cancel("it was not handed over")
            raise
        submission = replace(submission, handle=handle)
        self._remember(context, submission)
        if not self.deferrable:
            return self._wait_in_worker(context, runner, submission, folder, job.txn_id)
        self.log.info("Job %s is on its way; the task leaves its slot and waits in the triggerer.", job_id)
        self.defer(
            trigger=JobTrigger(submission=submission.to_dict(), poll_interval=self.poll_interval or _POLL_SECONDS),
            method_name="execute_complete",
            kwargs={"submission": submission.to_dict(), "txn_id": job.txn_id},
        )
        return None

    def execute_complete(
        self, context: Mapping[str, Any], event: Mapping[str, Any], submission: Mapping[str, Any], txn_id: str | None
    ) -> Any:
        """Go on where the trigger has fired: reads how the app ended, and what stands in the timeline."""
        from airflow_provider_index.submission import Submission

        try:
            self.read_arguments()
            self._submission = Submission.from_dict(submission)
            outcome = self._end_of(self._submission, event["status"], txn_id, event.get("error"))
            return self.done(context, self.conclude(txn_id, outcome))
        except LakeIndexError as error:
            raise self.failed(context, error) from error

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]) -> Any:
        """Return Airflow's way back from a deferral.

        Of a trigger that failed it tells neither the trigger nor :meth:`execute_complete`: the job is ended here, and a
        commit that it has made counts.
        """
        if next_method == TRIGGER_FAILED:
            self.log.error("The trigger of this task failed: %s", (next_kwargs or {}).get("error"))
            try:
                self.read_arguments()
                self.round = round_of(context)
                txn_id = transaction_id(context, self.inputs) if self.commits() else None
                self.end_earlier_jobs(context, txn_id)
                if txn_id is not None and (done := self.already_done(txn_id)) is not None:
                    return self.done(context, done)
            except LakeIndexError as error:
                self.log.error("%s", error)
        return super().resume_execution(next_method, next_kwargs, context)  # type: ignore[misc]

    def _end_of(self, submission: Submission, status: str, txn_id: str | None, error: Any = None) -> Outcome | None:
        """Return how the app ended. One that has not, is ended here."""
        try:
            folder = submission.folder(self.hook.storage_options)
            outcome = folder.outcome()
        except LakeIndexError:
            self.cancel_job(submission, "how it ended cannot be read")
            raise
        if outcome is not None:
            if outcome.error is not None:
                self._log_last_lines(submission)
            folder.remove()
            return outcome
        if status == "done":
            raise JobFailed(f"The app {self.program} has ended, and its answer is gone from {folder.store.uri}.")
        reason = {"timeout": "its time was over", "dead": "it gave no sign of life"}.get(status, "it cannot be watched")
        self.cancel_job(submission, reason)
        if self.landed(txn_id):
            return None
        self._log_last_lines(submission)
        if status == "timeout":
            raise AirflowTaskTimeout(f"{self.program} was ended: execution_timeout is over.")
        if error is not None:
            raise read_error(error)
        raise JobFailed(
            f"The app {self.program} gave no sign of life for {submission.silent_seconds:g} s and was ended.",
            hint="See the driver's last lines above; a retry begins again under the same transaction.",
        )

    def _wait_in_worker(
        self,
        context: Mapping[str, Any],
        runner: Runner,
        submission: Submission,
        folder: JobFolder,
        txn_id: str | None,
    ) -> Outcome | None:
        from airflow_provider_index.submission import JobWatch
        from spark_apps.jobs.job_folder import list_jobs

        watch = JobWatch(submission)
        while True:
            time.sleep(self.poll_interval or 1.0)
            try:
                event = watch.observe(list_jobs(folder.store).get(submission.job_id, {}))
                line = None if event is not None else watch.tend(folder)
            except StorageUnavailable as error:
                self.log.warning("%s", error)
                event, line = watch.observe(None), None
            if line is not None:
                self.log.info("progress: %s", line)
                self.show_spark_ui(context, watch.ui)
            if self._killed:
                raise JobFailed(f"The task was killed while {self.program} ran; the app was ended.")
            if event is None and not runner.status(submission.handle).running and folder.outcome() is None:
                event = "dead"
            if event is not None:
                return self._end_of(submission, event, txn_id)

    # --- ends -------------------------------------------------------------------------------------------------

    def cancel_job(self, submission: Submission, reason: str) -> None:
        """End a job with its processes and, by commits, its attempts."""
        from airflow_provider_index.submission import cancel

        def read(what: Callable[[], Any]) -> Any:
            try:
                return what()
            except InvalidInput as error:
                # What is in reach without it is ended; the app ends itself when nobody waits for it any longer.
                self.log.warning("%s", error)
                return None

        options = read(lambda: self.hook.storage_options)
        settings = read(lambda: self.hook.spark_settings(submission.spark_conn_id))
        cancel(submission, options, settings, self.log, reason)

    def end_earlier_jobs(self, context: Mapping[str, Any], txn_id: str | None) -> None:
        """End what earlier tries of this task left at work, also those of other inputs, and sweep what is old."""
        from airflow_provider_index.submission import Submission
        from spark_apps.jobs.job_folder import list_jobs, sweep, unfinished
        from spark_apps.timeline.publish import REPLACED

        kept = recall(context, _MEMORY)
        ended = set()
        if isinstance(kept, Mapping):
            submission = Submission.from_dict(kept)
            folder = submission.folder(self.hook.storage_options)
            if submission.table_conn_id == self.table_conn_id and folder.leased_until() and folder.outcome() is None:
                self.log.info("Ending job %s of an earlier try.", submission.job_id)
                self.cancel_job(submission, REPLACED)
                ended.add(submission.job_id)
        store = self.jobs_store() if self.deferrable or self.has_log() else None
        if store is None:
            return
        listed = list_jobs(store)
        for job_id in unfinished(listed, intent_of(context, txn_id)):
            if job_id not in ended and "cancelled.json" not in listed[job_id]:
                self.log.info("Ending job %s of an earlier try.", job_id)
                earlier = Submission(job_id, store.uri, self.table_conn_id, tables=self.tables_of_jobs())
                self.cancel_job(earlier, REPLACED)
        sweep(store, listed)

    def _remember(self, context: Mapping[str, Any], submission: Submission) -> None:
        self._submission = submission
        remember(context, _MEMORY, submission.to_dict())

    def _log_last_lines(self, submission: Submission) -> None:
        from airflow_provider_index.runners.spark_submit import last_lines_of

        last_lines = last_lines_of(submission.handle)
        if last_lines:
            self.log.info("%s", last_lines)


def intent_of(context: Mapping[str, Any], txn_id: str | None) -> str:
    """Return what the jobs of one piece of work have in common in their names.

    That is the transaction, or of work that commits nothing, the task.
    """
    if txn_id is not None:
        return txn_id
    ti = context["ti"]
    return make_id(ti.dag_id, ti.run_id, ti.task_id, getattr(ti, "map_index", -1), "no commit")
