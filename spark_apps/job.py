"""What a Spark app is told and what it answers: two small documents, and how they travel.

The task writes a :class:`Job` as one line of JSON; the app answers with an :class:`Outcome`. Neither ever
stands on a command line, since both may hold credentials. No Spark in here: Airflow's side writes what the
apps read.
"""

from __future__ import annotations

import os
import selectors
import stat
import traceback
from pathlib import Path
from typing import Any, Literal

import msgspec

from spark_apps.storage import errors
from spark_apps.storage.documents import prepare
from spark_apps.storage.errors import EnvironmentMismatch, JobFailed, LakeIndexError

FORMAT = 1
"""Version of both documents; an app refuses a newer one."""


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an app is to do.

    :param program: name of the bundled app, ``build_index`` for ``build_index.py``.
    :param table: URI or local path of the table.
    :param arguments: what the app's action takes, in plain JSON.
    :param storage_options: how to reach the table's store; may hold credentials.
    :param txn_id: the transaction under which the app commits.
    :param window: epoch of the stop-write window that the work is done in.
    :param plan_only: answer with a plan and commit nothing.
    :param spark_conf: settings of the Spark session that must not stand on a command line.
    :param result: local path for the :class:`Outcome`.
    :param process_group: the group that the app's processes share and nobody else is in; it is ended as a
        whole when the task is gone.
    :param version: version of this package on the side that submits.
    :param detached: the app outlives the task and reports on storage: signs of life, progress and its end go
        into the job's folder (:mod:`spark_apps.timeline.jobs`).
    :param job_id: name of that folder, drawn anew for every submission.
    :param jobs_at: URI or path of the store below which the folder lies.
    :param deadline: seconds since 1970 after which the app ends itself.
    :param scratch: local folder that the app removes when it ends.
    :param transaction: the transaction of several tasks that the app works for: ``txn_id``, ``attempt``,
        ``stage`` and the stages it comes ``after``.
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
    """How an app ended: with a ``receipt`` (or ``receipts``), a ``plan``, a ``report``, or an ``error``."""

    kind: Literal["receipt", "receipts", "plan", "report", "error"]
    value: Any = None
    error: ErrorDocument | None = None
    format: int = FORMAT


SPARK_UI = "Spark UI: "
"""How an app's line begins that says where Spark's own page is."""


class TaskGone(Exception):
    """Whoever was to hand over the job is not there any more."""


def describe_error(error: BaseException) -> ErrorDocument:
    """The document of an exception; of Spark's own only what a person can read, not the Java stack."""
    trace = "".join(traceback.format_exception(error))[-20_000:]
    if not isinstance(error, LakeIndexError):
        text = str(error).split("\nJVM stacktrace:")[0].strip() or type(error).__name__
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
    """The exception of a document: of the same class where it is one of ours, else :class:`JobFailed`."""
    kind = getattr(errors, document.type, None)
    if not (isinstance(kind, type) and issubclass(kind, LakeIndexError)) or document.type.startswith("_"):
        return JobFailed(f"The Spark app failed with {document.type}: {document.message}")
    if issubclass(kind, errors.AlreadyCommitted | errors.CommitUndone):
        return kind(document.message, document.receipt, outcome=document.outcome, hint=document.hint)
    return kind(document.message, outcome=document.outcome, hint=document.hint)


def write_outcome(path: str, outcome: Outcome) -> None:
    """Puts the outcome in place in one step: who reads the file reads all of it."""
    target = Path(path)
    draft = target.with_name(target.name + ".part")
    draft.touch(mode=0o600)
    draft.write_bytes(encode_outcome(outcome))
    draft.replace(target)


def read_outcome(path: str | os.PathLike[str]) -> Outcome | None:
    """The outcome that an app left, or ``None`` if it left none. :raises EnvironmentMismatch: it is of a
    newer format."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    return decode_outcome(data)


def encode_outcome(outcome: Outcome) -> bytes:
    """The outcome as bytes."""
    return msgspec.json.encode(outcome)


def decode_outcome(data: bytes) -> Outcome:
    """:raises EnvironmentMismatch: it is of a newer format."""
    _check_format(msgspec.json.decode(data, type=dict).get("format", FORMAT))
    return msgspec.json.decode(data, type=Outcome)


def encode_job(job: Job) -> bytes:
    """The job as one line, newline included."""
    return msgspec.json.encode(job) + b"\n"


def decode_job(data: bytes) -> Job:
    """:raises EnvironmentMismatch: the job is of a newer format."""
    raw = msgspec.json.decode(data, type=dict)
    _check_format(raw.get("format", FORMAT))
    return msgspec.convert(raw, Job)


def receive_job(path: str | os.PathLike[str]) -> tuple[Job, int | None]:
    """Takes the job from a named pipe or a file, which is gone afterwards.

    :returns: the job and, of a pipe, the open descriptor: it reads as ended once the task is no more,
        however it ended, because the kernel closes the other side.
    :raises TaskGone: nobody holds the other side of the pipe.
    :raises EnvironmentMismatch: the job is of a newer format.
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


def _check_format(found: Any) -> None:
    if not isinstance(found, int) or found > FORMAT:
        raise EnvironmentMismatch(
            f"The job is written in format {found}; this side of the package reads up to {FORMAT}.",
            hint="Install the same version of airflow-provider-index for Airflow's workers and for Spark.",
        )


prepare(Job, ErrorDocument, Outcome)
