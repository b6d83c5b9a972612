"""The main that all programs share: take the job, watch the task, start Spark, do the work, answer.

A program is a function from a session and a job to a receipt, a plan or a report; :func:`main` does the rest. What
counts as success is the commit in the table's timeline; the answer carries what is not in there, above all the error.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from spark_apps.jobs.heartbeat import Reporting, end_process_group
from spark_apps.jobs.job import (
    PREFIX,
    Job,
    Outcome,
    RedactingFilter,
    TaskGone,
    describe_error,
    read_job_argument,
    receive_job,
)
from spark_apps.jobs.session import start_session
from spark_apps.storage.errors import AlreadyCommitted, EnvironmentMismatch, LakeIndexError
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable

log = logging.getLogger("spark_apps")

_STOP_SECONDS = 60.0

JobFunction = Callable[["SparkSession", Job], Any]


def main(work: JobFunction) -> None:
    """Run a program and end the process: status 0 if it answered with anything but an error.

    The one command line argument is the path of the pipe (or file) that carries the job, or a job without secrets
    itself (:mod:`spark_apps.jobs.job`).
    """
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if len(sys.argv) != 2:
        log.error("Usage: %s <path of the job>", sys.argv[0])
        sys.exit(2)
    try:
        is_argument = sys.argv[1].startswith(PREFIX)
        job, lifeline = (read_job_argument(sys.argv[1]), None) if is_argument else receive_job(sys.argv[1])
    except (TaskGone, EnvironmentMismatch) as error:
        log.error("%s", error)
        sys.exit(1)
    if lifeline is not None and job.detached:
        os.close(lifeline)
    elif lifeline is not None:
        watch(lifeline, job.process_group)
    code = run(work, job)
    if job.scratch is not None:
        shutil.rmtree(job.scratch, ignore_errors=True)
    sys.exit(code)


def watch(lifeline: int, process_group: int | None) -> threading.Thread:
    """End this process, its JVM and all of ``process_group`` when the other side of ``lifeline`` closes.

    The other side is held by the Airflow task alone. So a driver does not outlive a task that was killed by
    -9, and cannot commit behind the back of the try that follows.
    """

    def wait() -> None:
        os.set_blocking(lifeline, True)
        while os.read(lifeline, 1):
            continue
        log.error("The task that submitted this app is gone; the app ends and commits nothing more.")
        end_process_group(process_group)

    thread = threading.Thread(target=wait, name="lifeline", daemon=True)
    thread.start()
    return thread


def load_table(spark: SparkSession, job: Job) -> IndexedTable:
    """Return the newest version of the job's table, to be worked on in the job's stage if it has one.

    :raises TableNotFound: if there is none.
    """
    from spark_apps.table import IndexedTable

    table = IndexedTable.load(spark, job.table, options=job.storage_options)
    if job.transaction is None:
        return table
    from spark_apps.actions.template import Stage

    entry = job.transaction
    after, leave = tuple(entry.get("after", ())), tuple(entry.get("leave", ()))
    inputs = entry.get("inputs") or ""
    stage = Stage(entry["txn_id"], entry["attempt"], entry["stage"], after, leave, inputs, entry.get("number"))
    return table.in_stage(stage)


def use_indexes(spark: SparkSession, job: Job, warehouse: str | None) -> None:
    """Let the job's queries use indexes, in a classic session; what stands in the way of that is told, and no more."""
    from spark_apps.mergetree.spark_utils import over_connect
    from spark_apps.optimizer.session import enable

    if over_connect(spark):
        return
    try:
        enable(spark, warehouse, options=job.storage_options)
    except Exception:
        log.warning("Plain queries of this job are planned without indexes.", exc_info=True)


def arguments_of(job: Job) -> dict[str, Any]:
    """Return the job's arguments that have a value; what is left out takes the action's default.

    ``included``, where it was given, becomes an :class:`IncludedColumns`.
    """
    arguments = {name: value for name, value in job.arguments.items() if value is not None}
    if "included" not in arguments:
        return arguments
    from spark_apps.indexes.included_columns import IncludedColumns

    return {**arguments, "included": IncludedColumns(**arguments["included"])}


def plan_or_commit(job: Job, action: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run an action of a table, or where the job asks for a plan only, return that."""
    if job.plan_only:
        return Outcome("plan", plain(action(**arguments, plan_only=True)))
    return action(**arguments, **commit_options(job))


def commit_options(job: Job, txn_id: str | None = None) -> dict[str, Any]:
    """Return the transaction, and the stop-write window, under which the action commits."""
    return {"txn_id": txn_id or job.txn_id, "window": job.window}


def run(work: JobFunction, job: Job) -> int:
    """Run a program on a job, write how it ended, and return the status to exit with."""
    started = time.monotonic()
    spark = None
    with Reporting(job) as reporting:
        _redact_logs(reporting.secrets)
        try:
            reporting.check_not_cancelled()
            spark = start_session(job)
            reporting.watch(spark)
            outcome = answer(work(spark, job))
        except AlreadyCommitted as error:
            outcome = answer(error.receipt)
        except Exception as error:
            outcome = Outcome("error", error=describe_error(error))
            # An error of this package needs no stack; one that was not foreseen does.
            log.error("%s: %s", type(error).__name__, error, exc_info=not isinstance(error, LakeIndexError))
        reporting.finish(outcome)
    log.info("%s: %s after %.1f s", job.program, _describe(outcome), time.monotonic() - started)
    if spark is not None:
        _stop(spark, job)
    return 1 if outcome.kind == "error" else 0


def _redact_logs(secrets: list[str]) -> None:
    for handler in logging.getLogger().handlers:
        handler.addFilter(RedactingFilter(secrets))


def _stop(spark: SparkSession, job: Job) -> None:
    """End the session. That of a detached app, which no task watches any more, is ended by force where it hangs."""
    timer = threading.Timer(_STOP_SECONDS, end_process_group, (job.process_group,))
    timer.daemon = True
    if job.detached:
        timer.start()
    spark.stop()
    timer.cancel()


def answer(value: Any) -> Outcome:
    """Return the outcome that carries what a program returned."""
    if isinstance(value, Outcome):
        return value
    if isinstance(value, Receipt):
        return Outcome("receipt", value.to_dict())
    if isinstance(value, list) and value and all(isinstance(one, Receipt) for one in value):
        return Outcome("receipts", [one.to_dict() for one in value])
    return Outcome("report", plain(value))


def plain(value: Any) -> Any:
    """Return plans and reports as JSON types: by their own ``to_dict`` where they have one."""
    return value.to_dict() if hasattr(value, "to_dict") else msgspec.to_builtins(value, str_keys=True)


def _describe(outcome: Outcome) -> str:
    if outcome.kind == "receipt":
        version = outcome.value.get("version")
        if version is None:
            staged = outcome.value.get("metrics", {}).get("stage")
            return "nothing to do" if staged is None else f"staged {staged}"
        return f"committed version {version}"
    return {"error": "failed", "plan": "planned", "report": "reported"}.get(outcome.kind, "committed")
