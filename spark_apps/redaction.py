"""Keeps what gives access out of what is written down: error texts, plans, and lines of a log on disk."""

from __future__ import annotations

import logging

import msgspec

from spark_apps.job import Job, Outcome
from spark_apps.storage.secrets import hide, hide_all, known_secrets


def secrets_of(job: Job) -> list[str]:
    """The values of a job that must stand nowhere: of its storage options, Spark settings and arguments; the longest
    first."""
    return known_secrets(job.storage_options, job.spark_conf, job.arguments)


def redact_outcome(outcome: Outcome, secrets: list[str]) -> Outcome:
    """The outcome with every text in it redacted."""
    return msgspec.convert(hide_all(msgspec.to_builtins(outcome), secrets), Outcome)


class RedactingFilter(logging.Filter):
    """Redacts the lines of a log."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        clean = hide(said, self._secrets)
        if clean != said:
            record.msg, record.args = clean, None
        if record.exc_info:
            # Written out here, since a formatter would write the error's own words.
            record.exc_text = hide(logging.Formatter().formatException(record.exc_info), self._secrets)
        return True
