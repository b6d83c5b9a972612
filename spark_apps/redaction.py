"""Keeps what gives access out of what is written down: error texts, plans, and lines of a log on disk."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from spark_apps.job import Job, Outcome

STARS = "***"
# What Spark itself redacts, and the keys of the object stores.
_SECRET = re.compile(
    r"(?i)secret|password|passwd|token|access.?key|account.?key|private.?key|credential|\bsas\b|sas_|_sas"
)
# A shorter value would tear holes into ordinary words.
_SHORTEST = 4

T = TypeVar("T")


def secrets_of(job: Job) -> list[str]:
    """The values of a job that must stand nowhere: of its storage options and Spark settings, by their names; the
    longest first."""
    found = set(_secret_values(job.storage_options)) | set(_secret_values(job.spark_conf))
    return sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret as ``***``."""
    for secret in secrets:
        text = text.replace(secret, STARS)
    return text


def redact_outcome(outcome: Outcome, secrets: list[str]) -> Outcome:
    """The outcome with every text in it redacted."""
    if not secrets:
        return outcome
    return msgspec.convert(_redact_all(msgspec.to_builtins(outcome), secrets), Outcome)


class RedactingFilter(logging.Filter):
    """Redacts the lines of a log."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        clean = redact(said, self._secrets)
        if clean != said:
            record.msg, record.args = clean, None
        if record.exc_info:
            # Written out here, since a formatter would write the error's own words.
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info), self._secrets)
        return True


def _secret_values(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secret_values(value)
        elif isinstance(value, str) and _SECRET.search(key) is not None:
            yield value


def _redact_all(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, Mapping):
        return {redact(key, secrets) if isinstance(key, str) else key: _redact_all(one, secrets)
                for key, one in value.items()}  # fmt: skip
    return [_redact_all(one, secrets) for one in value] if isinstance(value, list | tuple) else value
