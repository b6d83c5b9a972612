"""Jobs and outcomes of Spark apps: two small documents, and how they travel.

The task writes a :class:`Job` as one line of JSON; the app answers with an :class:`Outcome`. Neither is ever part of a
command line, since both may hold credentials. No Spark: Airflow's side writes what the apps read.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import selectors
import stat
import traceback
import zlib
from pathlib import Path
from typing import Any, Literal

import msgspec

from spark_apps.storage import errors
from spark_apps.storage.documents import decode, prepare
from spark_apps.storage.errors import EnvironmentMismatch, JobFailed, LakeIndexError
from spark_apps.storage.secrets import hide, hide_all, known_secrets

FORMAT = 1
"""Version of both documents; an app refuses a newer one."""


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of an app.

    :param program: name of the bundled app, ``build_index`` for ``build_index.py``.
    :param table: URI or local path of the table.
    :param arguments: what the app's action takes, in plain JSON.
    :param storage_options: how to reach the table's store; may hold credentials.
    :param txn_id: the transaction under which the app commits.
    :param window: epoch of the stop-write window that the work is done in.
    :param plan_only: answer with a plan and commit nothing.
    :param spark_conf: settings of the Spark session that must not be part of a command line.
    :param result: local path for the :class:`Outcome`.
    :param process_group: the group that the app's processes share and no others; it is ended as a whole when the task
        is gone.
    :param version: version of this package on the side that submits.
    :param detached: the app outlives the task and reports on storage: signs of life, progress and its end go into the
        job's folder (:mod:`spark_apps.jobs.job_folder`).
    :param job_id: name of that folder, drawn anew for every submission.
    :param jobs_at: URI or path of the store below which the folder is.
    :param deadline: seconds since 1970 after which the app ends itself.
    :param scratch: local folder that the app removes when it ends.
    :param transaction: the transaction of several tasks that the app works for: ``txn_id``, ``attempt``, ``stage`` and
        the stages it comes ``after``.
    """

    program: str
    table: str
    arguments: dict[str, Any] = {}
    storage_options: dict[str, Any] = {}
    txn_id: str | None = None
    window: int | None = None
    plan_only: bool = False
    app_name: str = ""
    spark_conf: dict[str, str] = {}
    result: str | None = None
    process_group: int | None = None
    version: str | None = None
    detached: bool = False
    job_id: str | None = None
    jobs_at: str | None = None
    deadline: float | None = None
    scratch: str | None = None
    transaction: dict[str, Any] | None = None
    format: int = FORMAT


class ErrorDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception that crosses from the app to the task. ``type`` is the name of its class."""

    type: str
    message: str
    outcome: str = ""
    hint: str = ""
    receipt: dict[str, Any] | None = None
    trace: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an app: with a ``receipt`` (or ``receipts``), a ``plan``, a ``report``, or an ``error``."""

    kind: Literal["receipt", "receipts", "plan", "report", "error"]
    value: Any = None
    error: ErrorDocument | None = None
    format: int = FORMAT


SPARK_UI = "Spark UI: "
"""Beginning of an app's line with the address of Spark's own page."""

SPARK_HISTORY = "Spark history: "
"""Beginning of an app's line with the address of its page on a history server, which stays when the app has ended."""

DRIVER_LOG = "Driver log: "
"""Beginning of an app's line with the address of what its driver writes, where the cluster manager keeps that."""

HISTORY_SERVER = "spark.lakeindex.historyServer"
"""Setting: the address of the history server that reads the app's event log."""


class TaskGone(Exception):
    """The task that was to hand over the job is not there any more."""


_JAVA_STACK = re.compile(r"\nJVM stacktrace:|\n\tat ")
"""Where it begins in the text of an error: of PySpark's, and of py4j's."""


def describe_error(error: BaseException) -> ErrorDocument:
    """Return the document of an exception; of Spark's own only what a person can read, not the Java stack."""
    trace = "".join(traceback.format_exception(error))[-20_000:]
    if not isinstance(error, LakeIndexError):
        text = _JAVA_STACK.split(str(error), 1)[0].strip() or type(error).__name__
        text = "\n".join([*getattr(error, "__notes__", ()), text])
        return ErrorDocument(type(error).__name__, text[:4000], trace=trace)
    receipt = getattr(error, "receipt", None)
    return ErrorDocument(
        type=type(error).__name__,
        message=error.message,
        outcome=error.outcome,
        hint=error.hint,
        receipt=msgspec.to_builtins(receipt) if receipt is not None else None,
        trace=trace,
    )


def rebuild_error(document: ErrorDocument) -> LakeIndexError:
    """Return the exception of a document: of the same class if that is this package's, else :class:`JobFailed`."""
    kind = getattr(errors, document.type, None)
    if not (isinstance(kind, type) and issubclass(kind, LakeIndexError)) or document.type.startswith("_"):
        return JobFailed(f"The Spark app failed with {document.type}: {document.message}")
    if issubclass(kind, errors.AlreadyCommitted | errors.CommitUndone):
        return kind(document.message, document.receipt, outcome=document.outcome, hint=document.hint)
    return kind(document.message, outcome=document.outcome, hint=document.hint)


def write_outcome(path: str, outcome: Outcome) -> None:
    """Write the outcome in one step: a reader of the file reads all of it."""
    target = Path(path)
    draft = target.with_name(target.name + ".part")
    draft.touch(mode=0o600)
    draft.write_bytes(encode_outcome(outcome))
    draft.replace(target)


def read_outcome(path: str | os.PathLike[str]) -> Outcome | None:
    """Return the outcome that an app left, or ``None`` if it left none.

    :raises EnvironmentMismatch: if it is of a newer format.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    return decode_outcome(data)


def encode_outcome(outcome: Outcome) -> bytes:
    """Return the outcome as bytes."""
    return msgspec.json.encode(outcome)


def decode_outcome(data: bytes) -> Outcome:
    """Return the outcome in these bytes.

    :raises EnvironmentMismatch: if it is of a newer format.
    :raises LogDamaged: if they are no outcome.
    """
    what, hint = "What the Spark app answered", "Look into the table's log and the app's for how it ended."
    _check_format(decode(data, dict, what, hint=hint).get("format", FORMAT))
    return decode(data, Outcome, what, hint=hint)


def encode_job(job: Job) -> bytes:
    """Return the job as one line, newline included."""
    return msgspec.json.encode(job) + b"\n"


def decode_job(data: bytes) -> Job:
    """Return the job in a line.

    :raises EnvironmentMismatch: if the job is of a newer format.
    """
    raw = msgspec.json.decode(data, type=dict)
    _check_format(raw.get("format", FORMAT))
    return msgspec.convert(raw, Job)


def receive_job(path: str | os.PathLike[str]) -> tuple[Job, int | None]:
    """Take the job from a named pipe or a file, which is gone afterwards.

    :returns: the job and, of a pipe, the open descriptor: it reads as ended once the task is no more, however it ended,
        because the kernel closes the other side.
    :raises TaskGone: if no process holds the other side of the pipe.
    :raises EnvironmentMismatch: if the job is of a newer format.
    """
    # Opened without waiting for a writer: there may be none left, and waiting would be for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    piped = stat.S_ISFIFO(os.fstat(handle).st_mode)
    try:
        line = _read_line(handle, piped)
        Path(path).unlink(missing_ok=True)
        job = decode_job(line)
    except BaseException:
        os.close(handle)
        raise
    if not piped:
        os.close(handle)
        return job, None
    return job, handle


def _read_line(handle: int, piped: bool) -> bytes:
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        if piped:
            selector.register(handle, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            # Read before waiting: the kernel wakes nobody for a pipe that had lost its writer before it was
            # opened.
            try:
                chunk = os.read(handle, 1 << 16)
            except BlockingIOError:
                selector.select()
                continue
            if not chunk:
                break
            data += chunk
    if not data.endswith(b"\n"):
        raise TaskGone("The task that submitted this app ended before it had handed over the job.")
    return bytes(data)


def _check_format(form: Any) -> None:
    if not isinstance(form, int) or form > FORMAT:
        raise EnvironmentMismatch(
            f"The job is written in format {form}; this side of the package reads up to {FORMAT}.",
            hint="Install the same version of lakeindex for Airflow's workers and for Spark.",
        )


prepare(Job, ErrorDocument, Outcome)


# --- A job as one argument of a command line ------------------------------------------------------------------------


PREFIX = "job:"


def job_argument(job: Job) -> str:
    """Return the job as an argument of its program: letters, digits and dashes behind ``job:``."""
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(job), 9)).decode()


def read_job_argument(text: str) -> Job:
    """Return the job of an argument by :func:`job_argument`.

    :raises EnvironmentMismatch: if it is damaged, or of a newer format.
    """
    try:
        data = zlib.decompress(base64.urlsafe_b64decode(text.removeprefix(PREFIX)))
    except (binascii.Error, ValueError, zlib.error) as error:
        raise EnvironmentMismatch(
            f"The argument of the app is no job: {error}.",
            hint="Hand it on as it was given; a service that cuts or changes long arguments cannot be used.",
        ) from error
    return decode_job(data)


# --- What of a job gives access -------------------------------------------------------------------------------------


def secrets_of(job: Job) -> list[str]:
    """Return the values of a job that must not be shown anywhere, the longest first.

    They are those of its storage options, Spark settings and arguments.
    """
    return known_secrets(job.storage_options, job.spark_conf, job.arguments)


def redact_outcome(outcome: Outcome, secrets: list[str]) -> Outcome:
    """Return the outcome with every text in it redacted."""
    return msgspec.convert(hide_all(msgspec.to_builtins(outcome), secrets), Outcome)


class RedactingFilter(logging.Filter):
    """A filter that redacts the lines of a log."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        clean = hide(message, self._secrets)
        if clean != message:
            record.msg, record.args = clean, None
        if record.exc_info:
            # Formatted at once, since a formatter would write the error's own words.
            record.exc_text = hide(logging.Formatter().formatException(record.exc_info), self._secrets)
        return True
