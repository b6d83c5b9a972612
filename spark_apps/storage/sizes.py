"""Sizes and lengths of time, read from what people wrote: decimal (``MB``) and binary units (``MiB``)."""

from __future__ import annotations

import re
from typing import Any

from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.units import BINARY, DECIMAL

_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z%]*)$")
_BYTES = {
    "": 1,
    **{unit.lower(): 1000**power for power, unit in enumerate(DECIMAL)},
    **{unit.lower(): 1024**power for power, unit in enumerate(BINARY)},
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_bytes(value: Any, where: str) -> int:
    """Return a size in bytes: of a whole number, or of text with a unit.

    :raises InvalidInput: if it is no size, naming ``where`` it was given.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    number, unit = split_unit(value)
    if number is None or unit.lower() not in _BYTES:
        raise unreadable(value, where, "a size", "256MB, 1.5GiB, or a number of bytes")
    return int(number * _BYTES[unit.lower()])


def parse_seconds(value: Any, where: str) -> float:
    """Return a time in seconds, of text with a unit (``s m h d w``).

    :raises InvalidInput: if it is no time, or a bare number, whose unit nobody knows.
    """
    number, unit = split_unit(value)
    if number is None or unit.lower() not in _SECONDS:
        raise unreadable(value, where, "a time", "90s, 30m, 20h or 7d")
    return number * _SECONDS[unit.lower()]


def parse_minutes(value: Any, where: str) -> float:
    """Return a time in minutes: of a number of them, or of text with a unit.

    :raises InvalidInput: if it is neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return parse_seconds(value, where) / 60


def split_unit(value: Any) -> tuple[float | None, str]:
    """Return the number and the unit of a text; no number if it is no text of this form."""
    match = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return (None, "") if match is None else (float(match[1]), match[2])


def unreadable(value: Any, where: str, what: str, example: str) -> InvalidInput:
    """Return the error of a value that is not ``what`` it should be, with an example of it."""
    return InvalidInput(f"{where} is {value!r}, which is not {what}.", hint=f"Write it like {example}.")
