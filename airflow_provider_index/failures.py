"""Errors that a retry may help, and how an error of this package becomes one that Airflow acts on."""

from __future__ import annotations

from typing import Any

from airflow_provider_index.compat import AirflowFailException
from spark_apps.storage.errors import (
    AlreadyExists,
    AttemptReplaced,
    CommitUndone,
    EnvironmentMismatch,
    FencedOff,
    InvalidInput,
    LakeIndexError,
    LeadsOutside,
    LogDamaged,
    NotFound,
    ObjectTooLarge,
    PublishRefused,
    SparkMissing,
    StageMismatch,
    TransactionEnded,
    VerificationFailed,
    WindowNotOpen,
)

FINAL = (
    InvalidInput,
    NotFound,
    AlreadyExists,
    FencedOff,
    AttemptReplaced,
    TransactionEnded,
    WindowNotOpen,
    StageMismatch,
    CommitUndone,
    LogDamaged,
    ObjectTooLarge,
    LeadsOutside,
    PublishRefused,
    VerificationFailed,
    EnvironmentMismatch,
    SparkMissing,
)
"""What stays as it is however often the task is tried: the task fails at once."""


def as_airflow_error(error: LakeIndexError) -> Exception:
    """Return the error to raise from a task: one that ends it without a retry where a retry cannot help."""
    if isinstance(error, FINAL):
        return AirflowFailException(f"{type(error).__name__}: {error}")
    return error


def read_error(document: Any) -> LakeIndexError:
    """Return the error that an app or a trigger reported as JSON types."""
    import msgspec

    from spark_apps.jobs.job import ErrorDocument, rebuild_error

    return rebuild_error(msgspec.convert(document, ErrorDocument))
