"""Heartbeat of an app: what it reports while it works, and how it learns that it is to stop.

Threads run beside the work: one asks Spark how far its tasks are and logs that in a line now and then; of a detached
app one leaves signs of life in the job's folder, and one reads there whether the job was cancelled, has a lease and is
within its time. Every app ends itself where a commit has ended its attempt: nothing it does could be published.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_apps.jobs.job import (
    DRIVER_LOG,
    HISTORY_SERVER,
    SPARK_HISTORY,
    SPARK_UI,
    ErrorDocument,
    Job,
    Outcome,
    redact_outcome,
    secrets_of,
    write_outcome,
)
from spark_apps.jobs.job_folder import (
    GRACE_SECONDS,
    HEARTBEAT_SECONDS,
    BegunAttempt,
    JobFolder,
    JobHeartbeat,
    end_attempts,
)
from spark_apps.storage.errors import AttemptAborted, LakeIndexError, StorageError
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Abort
from spark_apps.timeline.transactions import CURRENT, AttemptInProgress, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_apps")

BEFORE_END: list[Callable[[], None]] = []
"""What is done in a moment before a process ends in the middle of its work; none of it raises or waits for long."""

OBSERVE_SECONDS = 3.0
LOG_OBSERVE_SECONDS = 15.0
SAY_SECONDS = 10.0
# The waiting side acts first at the deadline.
_LATE_SECONDS = 15.0
_FAREWELL_SECONDS = 20.0


def history_page(spark: SparkSession) -> str:
    """Return the page of an application on its history server; "" where none is named, or no event log is written."""
    get = spark.conf.get
    try:
        server = get(HISTORY_SERVER, "") or get("spark.yarn.historyServer.address", "") or ""
        application, logged = get("spark.app.id", ""), get("spark.eventLog.enabled", "false")
    except Exception as error:  # noqa: BLE001 - a server that does not say is as good as none
        log.debug("%s", error)
        return ""
    if not server or not application or str(logged).lower() != "true":
        return ""
    address = server if "://" in server else f"http://{server}"
    return f"{address.rstrip('/')}/history/{application}/"


def container_log() -> str:
    """Return the page of what this driver writes, where it runs in a container of YARN's."""
    names = ("NM_HOST", "NM_HTTP_PORT", "CONTAINER_ID", "USER")
    host, port, container, user = (os.environ.get(name, "") for name in names)
    return f"http://{host}:{port}/node/containerlogs/{container}/{user}" if host and port and container else ""


class Reporting:
    """Reports on one job as long as the ``with`` block runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.secrets = secrets_of(job)
        self.folder: JobFolder | None = None
        if job.detached and job.job_id is not None and job.jobs_at is not None:
            self.folder = JobFolder(Store(job.jobs_at, job.storage_options), job.job_id)
        self.tasks = SparkTasks()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._finished = False
        self._ui = self._history = self._log_page = ""
        self._logged = ("", 0.0)
        self._lease: float | None = None
        self._next_version: dict[BegunAttempt, int] = {}
        self._log_observed = time.monotonic()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Reporting:
        CURRENT.begun = self._note_attempt
        self._every(1.0, self._log_progress)
        self._every(OBSERVE_SECONDS, self._observe)
        if self.folder is not None:
            _guarded(self._leave_heartbeat)
            self._every(HEARTBEAT_SECONDS, self._leave_heartbeat)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        CURRENT.begun = None

    def check_not_cancelled(self) -> None:
        """Check, before Spark is started, that the job is still to be done.

        :raises AttemptAborted: if the job was cancelled while it waited for its turn.
        """
        if self.folder is not None and (reason := self.folder.cancelled()) is not None:
            raise AttemptAborted(f"The job was cancelled before it began: {reason}.")

    def watch(self, spark: SparkSession) -> None:
        """Report the progress of this session's tasks from now on."""
        self._ui, self._history, self._log_page = self.tasks.follow(spark), history_page(spark), container_log()
        pages = ((SPARK_UI, self._ui), (SPARK_HISTORY, self._history), (DRIVER_LOG, self._log_page))
        for beginning, page in pages:
            if page:
                log.info("%s%s", beginning, page)

    def finish(self, outcome: Outcome) -> bool:
        """Write how the app ended, once; return whether this was the time."""
        with self._lock:
            if self._finished:
                return False
            self._finished = True
        self._ended.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_FAREWELL_SECONDS)
        outcome_without_secrets = redact_outcome(outcome, self.secrets)
        if self.job.result is not None:
            write_outcome(self.job.result, outcome_without_secrets)
        if self.folder is not None:
            self._insist(lambda folder: folder.finish(outcome_without_secrets))
        return True

    # --- the threads ------------------------------------------------------------------------------------------

    def _every(self, seconds: float, call: Callable[[], None]) -> None:
        def loop() -> None:
            while not self._ended.wait(seconds):
                _guarded(call)

        thread = threading.Thread(target=loop, name=call.__name__.strip("_"), daemon=True)
        thread.start()
        self._threads.append(thread)

    def now(self) -> JobHeartbeat:
        """Return how far the app is."""
        phase, done, total = CURRENT.now()
        unit, rate, remaining = "", None, None
        if not done:
            tasks = self.tasks.now()
            if tasks is not None:
                done, total, rate, remaining = tasks
                unit = "tasks"
            elif done == 0:
                done = total = None
        return JobHeartbeat(
            time.time(),
            phase or "start",
            done,
            total,
            unit,
            rate,
            remaining,
            os.getpid(),
            socket.gethostname(),
            self._ui,
            self._history,
            self._log_page,
        )

    def _leave_heartbeat(self) -> None:
        assert self.folder is not None
        self.folder.write_heartbeat(self.now())

    def _log_progress(self) -> None:
        self.tasks.ask()
        line, (last, at) = self.now().line(), self._logged
        if line != last and time.monotonic() - at >= SAY_SECONDS:
            log.info("progress: %s", line)
            self._logged = (line, time.monotonic())

    def _observe(self) -> None:
        reason = self._reason_to_stop()
        if reason is not None:
            self._stop(reason)

    # --- reasons to stop --------------------------------------------------------------------------------------

    def _note_attempt(self, transaction: Transaction, shared: bool) -> None:
        """Note an attempt in the job's folder, then read the mark there: a canceller does it the other way round."""
        if self.folder is None:
            return
        attempt = BegunAttempt(transaction.timeline.store.uri, transaction.txn_id, transaction.attempt)
        if not shared:
            self.folder.note_attempt(attempt)
        reason = self.folder.cancelled()
        if reason is None:
            return
        if not shared:
            transaction.abort(reason)
        raise AttemptAborted(
            f"The job was cancelled, and its attempt {attempt.attempt} of {attempt.txn_id} ended: {reason}."
        )

    def _reason_to_stop(self) -> str | None:
        if self.job.deadline is not None and time.time() > self.job.deadline + _LATE_SECONDS:
            return "its time is over"
        if self.folder is not None:
            if (reason := self.folder.cancelled()) is not None:
                return f"the job was cancelled: {reason}"
            self._lease = self.folder.leased_until() or self._lease
            if self._lease is not None and time.time() > self._lease + GRACE_SECONDS:
                return "nobody waits for it any more"
        if time.monotonic() - self._log_observed >= LOG_OBSERVE_SECONDS:
            self._log_observed = time.monotonic()
            for work in CURRENT.in_progress():
                if self._was_ended(work):
                    return f"a commit has ended its attempt {work.attempt.attempt} of {work.attempt.txn_id}"
        return None

    def _was_ended(self, work: AttemptInProgress) -> bool:
        """Test whether the log has ended the attempt. Only its new commits are read, into no state."""
        running = work.attempt
        reader = Timeline(Store(running.log, self.job.storage_options))
        version = self._next_version.get(running, work.base) + 1
        while (commit := reader.read(version)) is not None:
            for action in commit.actions:
                if isinstance(action, Abort) and (action.txn_id, action.attempt) == (running.txn_id, running.attempt):
                    # The work may have ended it by itself since, and be about to report why.
                    return work in CURRENT.in_progress()
            self._next_version[running] = version
            version += 1
        return False

    def _stop(self, reason: str) -> None:
        log.error("The app ends: %s. It commits nothing more.", reason)
        unshared = [work.attempt for work in CURRENT.in_progress() if not work.shared]
        error = ErrorDocument(
            "AttemptAborted", f"The app was stopped: {reason}.", AttemptAborted.outcome, "See who ended it, and why."
        )
        try:
            end_attempts(unshared, lambda uri: Store(uri, self.job.storage_options), reason)
        except LakeIndexError as failure:
            # Then the next try ends it for its silence.
            log.warning("%s", failure.message)
        if self.finish(Outcome("error", error=error)):
            end_process_group(self.job.process_group)

    def _insist(self, call: Callable[[JobFolder], None]) -> None:
        assert self.folder is not None
        for pause in (1.0, 3.0, 9.0, None):
            try:
                return call(self.folder)
            except StorageError as error:
                log.warning("%s", error.message)
                if pause is not None:
                    time.sleep(pause)


class SparkTasks:
    """The tasks of Spark's running stages: how many are done, and how fast it goes."""

    def __init__(self) -> None:
        self._tracker: Any = None
        self._lock = threading.Lock()
        self._stages: frozenset[int] = frozenset()
        self._since = 0.0
        self._done = self._total = self._begun_with = 0

    def follow(self, spark: SparkSession) -> str:
        """Follow this session from now on; return the address of its page, if it has one."""
        if "connect" in type(spark).__module__:
            spark.registerProgressHandler(self._heard)
            return ""
        context = spark.sparkContext
        self._tracker = context.statusTracker()
        return context.uiWebUrl or ""

    def ask(self) -> None:
        """Ask a session of this process; one on a server reports by itself."""
        if self._tracker is None:
            return
        try:
            infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except Exception as error:  # noqa: BLE001 - the gateway closes while the session ends, with errors of any kind
            log.debug("%s", error)
            self._tracker = None
            return
        self._take({one.stageId: (one.numCompletedTasks, one.numTasks) for one in infos if one is not None})

    def now(self) -> tuple[int, int, float | None, float | None] | None:
        """Return tasks done, of how many, a second, and the seconds that remain; ``None`` while no stage runs."""
        with self._lock:
            if not self._total:
                return None
            seconds, new = time.monotonic() - self._since, self._done - self._begun_with
            rate = new / seconds if new > 0 and seconds > 0 else None
            return self._done, self._total, rate, (self._total - self._done) / rate if rate else None

    def _heard(
        self, stages: Any, inflight_tasks: int = 0, operation_id: Any = None, done: bool = False, **_: Any
    ) -> None:
        running = {} if done else {one.stage_id: one for one in stages or () if not one.done}
        self._take({stage: (one.num_completed_tasks, one.num_tasks) for stage, one in running.items()})

    def _take(self, stages: dict[int, tuple[int, int]]) -> None:
        with self._lock:
            self._done = sum(done for done, _ in stages.values())
            self._total = sum(total for _, total in stages.values())
            if frozenset(stages) != self._stages:
                self._stages, self._since, self._begun_with = frozenset(stages), time.monotonic(), self._done


def _guarded(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - a thread that ended would make a job at work look dead
        # One sign or look may be lost; only a long silence counts.
        log.warning("%s", error.message if isinstance(error, LakeIndexError) else f"{type(error).__name__}: {error}")


def end_process_group(process_group: int | None) -> None:
    """End this process and everything that shares its group; does not return."""
    for call in BEFORE_END:
        call()
    if process_group is not None and os.getpgrp() == process_group:
        os.killpg(process_group, signal.SIGKILL)
    os._exit(1)
