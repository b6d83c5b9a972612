"""Work that all operators share: find the table, make the job, run it on Spark, and read the receipt in the log.

An operator of this package only says which app does its work and with which arguments. Success is the
commit found under the task's own transaction id; a status or a log line never is.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_index.arguments import (
    declares_arguments,
    epoch,
    mapping,
    spark_conf,
)
from airflow_provider_index.compat import AirflowTaskTimeout, goes_on
from airflow_provider_index.connected import OnTable
from airflow_provider_index.failures import read_error
from airflow_provider_index.identity import (
    id_of_task,
    is_last_try,
    prefix_of,
    prefix_of_task,
    recall,
    remember,
    transaction_id,
)
from airflow_provider_index.operators.staged import InTransaction, check_windows, transaction_of
from airflow_provider_index.reporting import Reporting
from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    InvalidInput,
    JobFailed,
    LakeIndexError,
    StorageUnavailable,
    TableNotFound,
)
from spark_apps.timeline.limits import SILENT_JOB_SECONDS

if TYPE_CHECKING:
    from airflow_provider_index.runners.base import JobStatus, Runner
    from airflow_provider_index.submission import Submission
    from spark_apps.jobs.job import Job, Outcome
    from spark_apps.storage.store import Store
    from spark_apps.timeline.log import Timeline
    from spark_apps.timeline.model import Receipt

TRIGGER_FAILED = "__fail__"
"""Airflow's name of the way that a task takes whose trigger failed."""
_MEMORY = "job"
_POLL_SECONDS = 5.0
_SOONEST_SECONDS = 0.1


class TableOperator(OnTable, Reporting, BaseOperator):
    """An operator on one table, whether or not it needs Spark.

    :param rerun: not needed any more, and ignored: to do the work again, clear the task.
    """

    @declares_arguments
    def __init__(self, *, rerun: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if rerun is not None:
            from airflow.exceptions import AirflowProviderDeprecationWarning

            warnings.warn(
                "rerun is ignored: a cleared task does its work again. Leave it out, and clear the task.",
                AirflowProviderDeprecationWarning,
                stacklevel=2,
            )

    def execute(self, context: Mapping[str, Any]) -> Any:
        """Do the work. If a retry cannot help, an error fails the task at once."""
        with self.reading(context):
            self.show_table(context)
            return self.done(context, self.work(context))

    def done(self, context: Mapping[str, Any], result: Any) -> Any:
        """Report what the task has done and return what goes to XCom."""
        return self.report(context, result)

    def failed(self, context: Mapping[str, Any], error: LakeIndexError) -> Exception:
        self.report_error(error)
        return super().failed(context, error)

    def work(self, context: Mapping[str, Any]) -> Any:
        """Do the operator's work and return what goes to XCom."""
        raise NotImplementedError

    def inputs(self) -> dict[str, Any]:
        """Return the inputs on which the transaction's id depends, as JSON types."""
        return {"table": self.location()}

    def location(self) -> str:
        """Return the location of what the app works on."""
        return self.hook.locate(self.table)


class SparkTableOperator(InTransaction, TableOperator):
    """An operator whose work is done by one of the bundled apps.

    With ``deferrable``, the app runs detached, and the task leaves its slot until the app has ended: it defers to a
    trigger that watches the job's folder. If it does not defer, but the runner's apps run elsewhere, the task watches
    the folder itself. A living job of an earlier try of the same round with the same inputs is taken up; all others of
    earlier tries are ended before a new one begins.

    :param spark_conn_id: a Spark connection; by default the one that the table's connection names.
    :param conf: Spark settings, which take precedence over those of the connection.
    :param window: epoch of the stop-write window in which the work is done.
    :param transaction: stage the work for a transaction of several tasks instead of committing it, as the stage
        ``stage``, built from the stages in ``after``
        (:class:`~airflow_provider_index.operators.staged.InTransaction`).
    :param poll_interval: seconds between two checks of the app, at most: 1, and less while the app has run for less
        than 20 seconds; in the triggerer 5, and less while it has run for less than 100.
    :param plan_only: return a plan of the work and commit nothing.
    :param runner: the runner of the app, instead of the one that the Spark connection names.
    :param silent_seconds: seconds without a sign of life after which an app that is watched on storage counts as dead.
    """

    program: str
    _submission: Submission | None = None
    can_plan: ClassVar[bool] = False
    asks_for_earlier: ClassVar[bool] = False
    """Whether the app asks what earlier rounds of the task have committed, since that cannot be done twice."""

    @declares_arguments
    def __init__(
        self,
        *,
        spark_conn_id: str | None = None,
        conf: Annotated[Mapping[str, Any] | None, spark_conf] = None,
        window: Annotated[int | str | None, epoch] = None,
        poll_interval: float | None = None,
        plan_only: bool = False,
        runner: str | None = None,
        silent_seconds: float = SILENT_JOB_SECONDS,
        transaction: Annotated[Any, mapping] = None,
        stage: str | None = None,
        after: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._runner: Runner | None = None
        self._handle = ""
        self._txn_id: str | None = None
        self._killed = False
        self._handed_over = False
        self._left = False
        self._not_ended: LakeIndexError | None = None
        self._deciding: Thread | None = None
        self._retry_follows = False
        self._task_instance: Any = None

    def check_arguments(self) -> None:
        super().check_arguments()
        if self.plan_only is True and not self.can_plan:
            raise InvalidInput(f"{type(self).__name__} makes no plan.", hint="Leave plan_only out.")

    # --- what an operator of its own says -------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the app, as JSON types: those of the class that names the program.

        What every Spark operator has is not among them, nor what a class below declares for itself or does not take.
        """
        kind = next(one for one in type(self).__mro__ if "program" in one.__dict__)
        others = {*SparkTableOperator.readers, *self.takes_no}
        return {name: getattr(self, name) for name in kind.readers if name not in others}

    def source_fingerprint(self) -> Any:
        """Return a fingerprint of the state of the task's source; ``None`` if only the table is read."""
        return None

    def commits(self) -> bool:
        """Return whether the work ends with a commit, rather than with a plan or a report."""
        return not self.plan_only

    def transactions(self, txn_id: str) -> list[str]:
        """Return the transactions that the task commits, in order."""
        return [txn_id]

    def finish(self, outcome: Outcome) -> Any:
        """Return what goes to XCom for work that ends with a plan or a report."""
        return outcome.value

    # --- what they share ------------------------------------------------------------------------------------

    def inputs(self) -> dict[str, Any]:
        return {**self._stated(), "source": self.source_fingerprint()}

    def _stated(self) -> dict[str, Any]:
        """Return the inputs that the DAG states; the files that its source holds at a moment are not among them."""
        return {
            **super().inputs(),
            "program": self.program,
            "arguments": self.arguments(),
            "window": self.window,
            **({} if self.transaction is None else {"transaction": self.stage_argument(None)}),
        }

    def work(self, context: Mapping[str, Any]) -> Any:
        self._task_instance, self._retry_follows = context["ti"], not is_last_try(context)
        if not self.commits():
            return self.conclude(None, self._outcome(context, None))
        self._txn_id = txn_id = transaction_id(context, self.inputs)
        done = self.already_done(txn_id)
        if done is not None:
            self.log.info("Transaction %s has committed already; nothing is written again.", txn_id)
            return done
        return self.conclude(txn_id, self._outcome(context, txn_id))

    def check_before_spark(self) -> None:
        """Find out by the table's log what the app would find out after Spark has started.

        :raises LakeIndexError: what the app would raise.
        """
        from spark_apps.jobs.checks import check_job

        # What a stage names may come from another stage.
        if self.transaction is None:
            state = self.hook.timeline(self.table).head
            check_job(self.program, self.arguments(), state, here=self._spark_is_here())

    def _spark_is_here(self) -> bool:
        """Return whether Spark runs on this machine; where no connection says so, it will not be started elsewhere."""
        try:
            master: str = self.hook.spark_settings(self.spark_conn_id).master
        except InvalidInput:
            return True
        return master.startswith("local")

    def already_done(self, txn_id: str) -> Any:
        """Return what goes to XCom if earlier tries have committed everything, otherwise ``None``."""
        if self.transaction is not None:
            return self.staged_already(txn_id)
        receipts = self._receipts(txn_id)
        return self._hand_on(receipts) if len(receipts) == len(self.transactions(txn_id)) else None

    def conclude(self, txn_id: str | None, outcome: Outcome | None) -> Any:
        """Return what goes to XCom after the app has ended.

        :param txn_id: ``None`` for work that commits nothing.
        :param outcome: what the app answered; the table's log takes precedence over it.
        :raises LakeIndexError: the app's own error, or :class:`JobFailed`.
        """
        if txn_id is None:
            return self.finish(outcome_of(outcome))
        if self.transaction is not None:
            return self.staged_already(txn_id) or self.not_staged(outcome_of(outcome))
        committed = self._receipts(txn_id)
        if len(committed) == len(self.transactions(txn_id)):
            return self._hand_on(committed)
        answered = outcome_of(outcome)
        # What there was nothing to do for has no commit; everything else the app speaks of must be in the
        # log.
        reported = answered.value if answered.kind == "receipts" else [answered.value]
        known = {receipt.txn_id for receipt in committed}
        if answered.kind in ("receipt", "receipts") and all(
            one.get("version") is None or one["txn_id"] in known for one in reported
        ):
            self.log.info("There was nothing to do%s.", " for some of it" if committed else "")
            return answered.value
        raise JobFailed(
            f"The app {self.program} ended, and the timeline holds no commit of transaction {txn_id}.",
            hint="See the app's lines above; a retry begins again under the same transaction.",
        )

    def landed(self, txn_id: str | None) -> bool:
        """Return whether everything that the task should commit is in the table's log."""
        return txn_id is not None and self.already_done(txn_id) is not None

    def jobs_store(self) -> Store | None:
        """Return the store of this task's job folders, which are beside its table's log; ``None`` if it has none."""
        return self.hook.log_store(self.table)

    def tables_of_jobs(self) -> tuple[str, ...]:
        """Return the locations of the tables that a job of this task works on.

        Only where :meth:`jobs_store` is not their log's.
        """
        return ()

    def has_log(self) -> bool:
        """Return whether earlier tries may have left jobs beside the log.

        Looking would make the folder of a table that is not.
        """
        from spark_apps.timeline.locations import Warehouse

        return Warehouse(options=self.hook.storage_options).log_of(self.location()) is not None

    def on_kill(self) -> None:
        """End the app with all its processes and abort its attempt, so that nothing of it can commit any more.

        A detached job goes on where only the worker is asked to stop and Airflow will try the task again: the next try
        takes it up.
        """
        self._killed = True
        if not self._handed_over or not self._retry_follows or isinstance(sys.exception(), AirflowTaskTimeout):
            return self._end_job()
        # Airflow is asked by a thread: this one may be in the middle of another question.
        self._deciding = Thread(target=self._end_job_unless_worker_stops, name="on-kill", daemon=True)
        self._deciding.start()

    def _end_job_unless_worker_stops(self) -> None:
        if goes_on(self._task_instance):
            self._left = True
            return
        try:
            self._end_job()
        except LakeIndexError as error:  # which nobody would see in this thread
            self._not_ended = error

    def _end_job(self) -> None:
        if self._submission is not None:
            self.cancel_job(self._submission, "the task was killed")
        if self._runner is not None and not self._handed_over:
            self._runner.cancel(self._handle)
        if self._submission is None:
            self._abort_attempts("the task was killed")

    def _was_killed(self) -> LakeIndexError:
        """Return the error with which a task ends that was killed while it waited for a job."""
        if self._deciding is not None:
            self._deciding.join()
        if self._not_ended is not None:
            return self._not_ended
        if self._left:
            return JobFailed(
                f"The worker was asked to stop while {self.program} ran.",
                outcome="The app goes on, and may commit.",
                hint="The next try of the task takes it up.",
            )
        return JobFailed(f"The task was killed while {self.program} ran; the app was ended.")

    def _outcome(self, context: Mapping[str, Any], txn_id: str | None) -> Outcome | None:
        """Return what the app answers: the living one of an earlier try, or one that is begun."""
        living = self.end_earlier_jobs(context, but_living=self._intent(context, txn_id))
        if living is not None:
            self.log.info("Job %s of an earlier try is at work; this try takes it up.", living.job_id)
            return self._wait_for(context, self._runner_of(living), living, txn_id)
        if txn_id is not None:
            from spark_apps.timeline.commit import REPLACED

            self._end_earlier_attempts(context, REPLACED)
            self._check_windows(txn_id)
        self.check_before_spark()
        return self._run(context, txn_id)

    def _run(self, context: Mapping[str, Any], txn_id: str | None) -> Outcome | None:
        from airflow_provider_index.runners.choosing import make_runner
        from airflow_provider_index.runners.lineage import with_lineage

        given = self.hook.spark_settings(self.spark_conn_id).with_conf(self.conf)
        settings = with_lineage(given, context, self.log)
        self._runner = runner = make_runner(settings, self.log, detached=self.deferrable, runner=self.runner)
        job = self.job(context, txn_id)
        try:
            if runner.detached:
                return self.submit_detached(context, runner, job)
            self._handle, submitted = runner.submit(job), time.monotonic()
            while (status := runner.status(self._handle)).running:
                self.show_pages(context, status)
                # A second is a third of the time of a short app over Spark Connect.
                sooner = max(_SOONEST_SECONDS, (time.monotonic() - submitted) / 20)
                time.sleep(min(self.poll_interval or 1.0, sooner))
            self.show_pages(context, status)
        finally:
            runner.close()
        if self._killed:
            raise self._was_killed()
        if status.outcome is None:
            raise JobFailed(f"The app {self.program} gave no answer; {status.detail}.")
        return status.outcome

    def job(self, context: Mapping[str, Any], txn_id: str | None) -> Job:
        """Return the arguments of the app."""
        from spark_apps.jobs.job import Job

        ti = context["ti"]
        earlier = {"earlier": self.prefix_of_commits(context)} if self.asks_for_earlier else {}
        return Job(
            program=self.program,
            table=self.location(),
            arguments={**self.arguments(), **earlier},
            storage_options=self.hook.storage_options,
            txn_id=txn_id,
            window=self.window,
            plan_only=self.plan_only,
            app_name=f"{ti.dag_id}.{ti.task_id}",
            transaction=None if txn_id is None else self.attempt_argument(context, txn_id),
        )

    def prefix_of_commits(self, context: Mapping[str, Any]) -> str:
        """Return what the ids of the transactions begin with that commit the task's work, whatever their round."""
        if self.transaction is None:
            return prefix_of_task(context)
        return prefix_of(transaction_of(self.transaction)[0])

    def timelines(self, txn_id: str) -> Iterator[tuple[Timeline, list[str]]]:
        """Yield the log of each table that there is, with the transactions that the task commits in it."""
        timeline = self._timeline()
        if timeline is not None:
            yield timeline, self.transactions(txn_id)

    def _receipts(self, txn_id: str) -> list[Receipt]:
        """Return the receipts of those transactions of the task that have committed."""
        from spark_apps.timeline.transactions import find_receipt

        found = (find_receipt(timeline, one) for timeline, its in self.timelines(txn_id) for one in its)
        return [receipt for receipt in found if receipt is not None]

    def _abort_attempts(self, reason: str) -> None:
        """End by commits what earlier tries, or this one, left unfinished."""
        from spark_apps.timeline.transactions import abort, live_attempts_of

        for timeline, txn_ids in self.timelines(self._txn_id) if self._txn_id is not None else ():
            for txn_id in txn_ids:
                for attempt in live_attempts_of(timeline, txn_id):
                    try:
                        abort(timeline, txn_id, attempt, reason)
                        self.log.info("Aborted attempt %s of transaction %s: %s.", attempt, txn_id, reason)
                    except AlreadyCommitted as error:
                        self.log.info("%s", error)

    def _end_earlier_attempts(self, context: Mapping[str, Any], reason: str) -> None:
        """End by commits what earlier tries of the task left unfinished, also those of earlier rounds."""
        if self._txn_id is None or self.transaction is not None:
            return  # of a stage, the transaction's own tasks end the attempts
        for timeline, _ in self.timelines(self._txn_id):
            end_attempts(timeline, prefix_of_task(context), reason, self.log)

    def _check_windows(self, txn_id: str) -> None:
        """Find out before Spark starts what the commit would find out after the work: see :func:`check_windows`."""
        for timeline, _ in self.timelines(txn_id) if self.transaction is None else ():
            check_windows(timeline, self.program, txn_id, self.window)

    def _timeline(self) -> Timeline | None:
        try:
            return self.hook.timeline(self.table)
        except TableNotFound:
            return None

    def _hand_on(self, receipts: list[Receipt]) -> Any:
        for receipt in receipts:
            self.log.info("Version %s: %s %s", receipt.version, receipt.operation, receipt.metrics)
        return receipts[0].to_dict() if len(receipts) == 1 else [receipt.to_dict() for receipt in receipts]

    # --- apps that outlive the task: submit and leave, come back and read how it went ---------------------------------

    def submit_detached(self, context: Mapping[str, Any], runner: Runner, job: Job) -> Outcome | None:
        """Submit the job and defer; if the task does not defer, wait and return the answer."""
        from msgspec.structs import replace

        from spark_apps.jobs.job_folder import JobFolder, new_job_id

        store = self.jobs_store()
        if store is None:
            raise InvalidInput(
                f"The app has no folder to report to: the connection {self.table_conn_id!r} names no warehouse.",
                hint="Give the connection a warehouse, or the task deferrable=False.",
            )
        job_id = new_job_id(self._intent(context, job.txn_id), context["ti"].try_number)
        submission = replace(self._submission_in(store), job_id=job_id, start_seconds=runner.start_seconds)
        folder = JobFolder(store, job_id)
        # Before there is a job: a worker that is lost from now on leaves a trace for the next try.
        folder.renew_lease()
        self._remember(context, submission)
        job = replace(job, detached=True, job_id=job_id, jobs_at=store.uri, deadline=submission.deadline)
        try:
            handle = runner.submit(job)
        except BaseException:
            folder.cancel("it was not handed over")
            raise
        return self._wait_for(context, runner, replace(submission, handle=handle), job.txn_id)

    def _submission_in(self, store: Store) -> Submission:
        """Return what all submissions of this task have in common whose folders are there."""
        from airflow_provider_index.submission import Submission

        limit = self.execution_timeout
        return Submission(
            job_id="",
            jobs_at=store.uri,
            table_conn_id=self.table_conn_id,
            spark_conn_id=self.spark_conn_id,
            runner=self.runner,
            deadline=None if limit is None else time.time() + limit.total_seconds(),
            silent_seconds=self.silent_seconds,
            tables=self.tables_of_jobs(),
        )

    def _wait_for(
        self, context: Mapping[str, Any], runner: Runner, submission: Submission, txn_id: str | None
    ) -> Outcome | None:
        """Defer until a job has ended; if the task does not defer, wait in the worker and return the answer."""
        from airflow_provider_index.triggers.jobs import JobTrigger

        self._remember(context, submission)
        self._handed_over = True
        if not self.deferrable:
            return self._wait_in_worker(context, runner, submission, txn_id)
        self.log.info("Job %s is on its way; the task leaves its slot and waits in the triggerer.", submission.job_id)
        self.defer(
            trigger=JobTrigger(submission=submission.to_dict(), poll_interval=self.poll_interval or _POLL_SECONDS),
            method_name="execute_complete",
            kwargs={"submission": submission.to_dict(), "txn_id": txn_id},
        )
        return None

    def execute_complete(
        self,
        context: Mapping[str, Any],
        event: Mapping[str, Any],
        submission: Mapping[str, Any] | None = None,
        txn_id: str | None = None,
    ) -> Any:
        """Resume after the trigger has fired: read how the app ended, and what is in the table's log.

        :param submission: and ``txn_id``: of the job. ``dag.test()`` of Airflow up to 3.3 hands on neither; then what
            the task remembers counts.
        """
        from airflow_provider_index.submission import Submission

        with self.reading(context):
            if submission is None:
                submission = self._remembered_submission(context)
                txn_id = transaction_id(context, self.inputs) if self.commits() else None
            self._submission = Submission.from_dict(submission)
            with suppress(LakeIndexError):  # a connection that is gone must not keep the job from being ended
                self.table_location = self.location() or None
            self._show_last_pages(context, self._submission)
            outcome = self._end_of(self._submission, event["status"], txn_id, event.get("error"))
            return self.done(context, self.conclude(txn_id, outcome))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]) -> Any:
        """Resume after a deferral.

        Airflow does not call :meth:`execute_complete` if the trigger failed. In that case this method ends the job, and
        a commit that it has made counts.
        """
        if next_method == TRIGGER_FAILED:
            self.log.error("The trigger of this task failed: %s", (next_kwargs or {}).get("error"))
            try:
                self.read_arguments()
                txn_id = transaction_id(context, self.inputs) if self.commits() else None
                self.end_earlier_jobs(context)
                if txn_id is not None and (done := self.already_done(txn_id)) is not None:
                    return self.done(context, done)
            except LakeIndexError as error:
                self.log.error("%s", error)
        return super().resume_execution(next_method, next_kwargs, context)

    def _remembered_submission(self, context: Mapping[str, Any]) -> Mapping[str, Any]:
        kept = recall(context, _MEMORY)
        if isinstance(kept, Mapping):
            return kept
        raise InvalidInput(
            "The task was resumed without the job that it waited for, as dag.test() of some releases of Airflow does.",
            hint="Run it with deferrable=False there, or by a scheduler: LocalAirflow starts one.",
        )

    def _show_last_pages(self, context: Mapping[str, Any], submission: Submission) -> None:
        """Show the pages that an app reported while nobody but the triggerer watched it."""
        from msgspec import MsgspecError

        try:
            beat = submission.folder(self.hook.storage_options).heartbeat()
        except (LakeIndexError, MsgspecError) as error:
            self.log.info("Spark's page is not known: %s", error)
            return
        if beat is not None:
            self.show_pages(context, beat)

    def _end_of(self, submission: Submission, status: str, txn_id: str | None, error: Any = None) -> Outcome | None:
        """Return how the app ended; end one that has not."""
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
            late = submission.deadline is not None and time.time() > submission.deadline
            if late and outcome.error is not None and outcome.error.type == AttemptAborted.__name__:
                # The app looks at the clock as well, and was the first to see.
                raise AirflowTaskTimeout(f"{self.program} has ended: execution_timeout is over.")
            return outcome
        if status == "done":
            if self.landed(txn_id):  # an earlier try that lives still has read the answer
                return None
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
        txn_id: str | None,
    ) -> Outcome | None:
        from airflow_provider_index.submission import JobWatch
        from spark_apps.jobs.job_folder import list_jobs

        folder, watch = submission.folder(self.hook.storage_options), JobWatch(submission)
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
                self.show_pages(context, watch)
            if self._killed:
                raise self._was_killed()
            status = runner.status(submission.handle) if submission.handle and event is None else None
            if status is not None and not status.running and folder.outcome() is None:
                self.log.warning("The app has ended without an answer: %s", status.detail)
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

    def end_earlier_jobs(self, context: Mapping[str, Any], but_living: str | None = None) -> Submission | None:
        """End the jobs that earlier tries of this task left running, of all its rounds; remove old folders.

        :param but_living: an intent, so a round and its inputs; its job that is at work is left alone, and returned.
        """
        from airflow_provider_index.earlier_jobs import EarlierJobs
        from airflow_provider_index.submission import Submission
        from spark_apps.jobs.job_folder import sweep
        from spark_apps.timeline.commit import REPLACED

        kept = recall(context, _MEMORY)
        remembered = Submission.from_dict(kept) if isinstance(kept, Mapping) else None
        store = self.jobs_store() if self.deferrable or self.has_log() else None
        earlier = None if store is None else EarlierJobs.find(store, self._submission_in(store), remembered)
        living, ending = None, []
        if earlier is not None:
            living = None if but_living is None else earlier.living(but_living, self._status_of)
            ending = [one for one in earlier.of_task(prefix_of_task(context)) if one != living]
        elsewhere = remembered is not None and (earlier is None or remembered.job_id not in earlier.listed)
        if remembered is not None and elsewhere and self._is_at_work(remembered):
            ending.append(remembered)
        for submission in ending:
            self.log.info("Ending job %s of an earlier try.", submission.job_id)
            self.cancel_job(submission, REPLACED)
        if earlier is not None:
            sweep(earlier.store, earlier.listed)
        return living

    def _is_at_work(self, submission: Submission) -> bool:
        """Test whether a job in another folder than this task's own has not ended, as far as this task may look."""
        folder = submission.folder(self.hook.storage_options)
        return submission.table_conn_id == self.table_conn_id and bool(folder.leased_until()) and not folder.outcome()

    def _runner_of(self, submission: Submission) -> Runner:
        from airflow_provider_index.runners.choosing import make_runner

        settings = self.hook.spark_settings(submission.spark_conn_id)
        return make_runner(settings, self.log, detached=True, runner=submission.runner)

    def _status_of(self, submission: Submission) -> JobStatus:
        return self._runner_of(submission).status(submission.handle)

    def _intent(self, context: Mapping[str, Any], txn_id: str | None) -> str:
        """Return what the jobs of one piece of work have in common in their names.

        The transaction alone does not tell them apart: it stays as the first try of the round made it, also where the
        DAG was changed since. A commit made of earlier files counts, and so does a job.
        """
        work = ["no commit", self.inputs()] if txn_id is None else [txn_id, self._stated()]
        return id_of_task(context, work)

    def _remember(self, context: Mapping[str, Any], submission: Submission) -> None:
        self._submission = submission
        remember(context, _MEMORY, submission.to_dict())

    def _log_last_lines(self, submission: Submission) -> None:
        from airflow_provider_index.runners.spark_submit import last_lines_of

        last_lines = last_lines_of(submission.handle)
        if last_lines:
            self.log.info("%s", last_lines)


class IndexOperator(SparkTableOperator):
    """An operator on one index of a table.

    :param index: name of the index.
    """

    @declares_arguments
    def __init__(self, *, index: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def arguments(self) -> dict[str, Any]:
        others = super().arguments()
        return {"name": others.pop("index"), **others}


def outcome_of(outcome: Outcome | None) -> Outcome:
    """Return what an app answered. :raises LakeIndexError: the app's own error, or :class:`JobFailed` for no answer."""
    from spark_apps.jobs.job import rebuild_error

    if outcome is None:
        raise JobFailed("The app gave no answer.")
    if outcome.error is not None:
        raise rebuild_error(outcome.error)
    return outcome


def end_attempts(timeline: Timeline, prefix: str, reason: str, log: Any, *, but: str = "") -> None:
    """End by commits the attempts of a task instance that may still commit.

    :param prefix: what the ids of its transactions begin with.
    :param but: a transaction whose attempts are left alone.
    """
    from spark_apps.timeline.transactions import abort, live_attempts_below

    for txn_id, attempt in live_attempts_below(timeline, prefix):
        if txn_id == but:
            continue
        try:
            abort(timeline, txn_id, attempt, reason)
            log.info("Aborted attempt %s of transaction %s: %s.", attempt, txn_id, reason)
        except AlreadyCommitted as error:
            log.info("%s", error)
