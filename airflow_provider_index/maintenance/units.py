"""Sizes, times and shares as people write them: ``256MB``, ``1.5GiB``, ``90s``, ``20h``, ``7d``, ``20%``.

Used where a configuration is read, so what cannot be understood is refused with the place it stands at.
"""

from __future__ import annotations

import re
from typing import Any

from spark_apps.storage.errors import InvalidInput

_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z%]*)$")
_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def bytes_of(value: Any, where: str) -> int:
    """A size in bytes: a whole number, or text with a unit. :raises InvalidInput: naming ``where``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    number, unit = _split(value)
    if number is None or unit.lower() not in _BYTES:
        raise _unfit(value, where, "a size", "256MB, 1.5GiB, or a number of bytes")
    return int(number * _BYTES[unit.lower()])


def seconds_of(value: Any, where: str) -> float:
    """A time in seconds: text with a unit (``s m h d w``). A bare number is refused: nobody can tell what it counts."""
    number, unit = _split(value)
    if number is None or unit.lower() not in _SECONDS:
        raise _unfit(value, where, "a time", "90s, 30m, 20h or 7d")
    return number * _SECONDS[unit.lower()]


def minutes_of(value: Any, where: str) -> float:
    """A time in minutes: a number of them, or text with a unit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return seconds_of(value, where) / 60


def share_of(value: Any, where: str) -> float:
    """A share from 0 to 1: a number, or a percentage as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    number, unit = _split(value) if isinstance(value, str) else (None, "")
    if number is None or unit not in ("%", "") or not 0 <= (share := number / (100 if unit else 1)) <= 1:
        raise _unfit(value, where, "a share", "20% or 0.2")
    return share


def count_of(value: Any, where: str, least: int = 1) -> int:
    """A whole number, ``least`` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _unfit(value, where, f"a whole number from {least} on", str(max(least, 5)))
    return value


def human_bytes(size: float) -> str:
    """``12.3 MB``"""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} PB"


def human_seconds(seconds: float) -> str:
    """``42 s``, ``13 min``, ``5.2 h``, ``3.1 d``"""
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}" if unit == "h" else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"


def _split(value: Any) -> tuple[float | None, str]:
    found = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return (None, "") if found is None else (float(found[1]), found[2])


def _unfit(value: Any, where: str, what: str, example: str) -> InvalidInput:
    return InvalidInput(f"{where} is {value!r}, which is not {what}.", hint=f"Write it like {example}.")
