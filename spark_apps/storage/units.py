"""Sizes and lengths of time as text, for logs, plans and pages.

Units are decimal (``MB``) unless binary ones (``MiB``) are wanted.
"""

from __future__ import annotations

DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def format_bytes(count: float, *, binary: bool = False, short: bool = False) -> str:
    """Return a size with one decimal: ``12.3 MB``.

    :param binary: in units of 1024: ``11.7 MiB``.
    :param short: without the decimal from a hundred on: ``123 GB``.
    """
    step, units = (1024, BINARY) if binary else (1000, DECIMAL)
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
