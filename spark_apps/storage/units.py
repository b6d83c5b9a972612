"""Sizes and lengths of time as text: written for logs, plans and pages, and read from what people wrote.

Sizes have decimal units (``MB``) unless binary ones (``MiB``) are wanted; both are read.
"""

from __future__ import annotations

import re
from typing import Any

from spark_apps.storage.errors import InvalidInput

_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z%]*)$")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_BYTES = {
    "": 1,
    **{unit.lower(): 1000**power for power, unit in enumerate(_DECIMAL)},
    **{unit.lower(): 1024**power for power, unit in enumerate(_BINARY)},
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


# --- written --------------------------------------------------------------------------------------------------------


def format_bytes(count: float, *, binary: bool = False, short: bool = False) -> str:
    """Return a size with one decimal: ``12.3 MB``.

    :param binary: in units of 1024: ``11.7 MiB``.
    :param short: without the decimal from a hundred on: ``123 GB``.
    """
    step, units = (1024, _BINARY) if binary else (1000, _DECIMAL)
    if abs(count) < step:
        return f"{count:.0f} B"
    for unit in units[1:]:
        count /= step
        if abs(count) < step - 0.5 * short or unit == units[-1]:
            digits = 0 if short and abs(count) >= 99.95 else 1
            return f"{count:.1e} {unit}" if abs(count) >= step else f"{count:.{digits}f} {unit}"
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """Return a length of time in one unit: ``42 s``, ``13 min``, ``5.2 h``, ``3.1 d``."""
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}" if unit == "h" else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"


def format_duration(seconds: float) -> str:
    """Return a length of time in one or two whole units: ``45 s``, ``3 h 20 min``, ``12 d``."""
    seconds = max(0.0, seconds)
    for index, (length, unit) in enumerate(_STEPS):
        if seconds >= length or unit == "s":
            whole = int(seconds // length)
            rest = f" {int(seconds % length // _STEPS[index + 1][0])} {_STEPS[index + 1][1]}" if unit in "dh" else ""
            return f"{whole} {unit}{'' if whole >= 10 or rest.startswith(' 0 ') else rest}"
    raise AssertionError("unreachable")


# --- read -----------------------------------------------------------------------------------------------------------


def parse_bytes(value: Any, where: str) -> int:
    """Return a size in bytes: of a whole number, or of text with a unit.

    :raises InvalidInput: if it is no size, naming ``where`` it stands.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    number, unit = split_unit(value)
    if number is None or unit.lower() not in _BYTES:
        raise unreadable(value, where, "a size", "256MB, 1.5GiB, or a number of bytes")
    return int(number * _BYTES[unit.lower()])


def parse_seconds(value: Any, where: str) -> float:
    """Return a time in seconds, of text with a unit (``s m h d w``).

    :raises InvalidInput: if it is no time, or a bare number, of which nobody can tell what it counts.
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
