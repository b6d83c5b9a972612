"""How numbers and times are said on the page: short, in UTC, with thousands set apart."""

from __future__ import annotations

from datetime import UTC, datetime

_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def size(count: float) -> str:
    """Bytes in the unit that leaves few digits: ``0 B``, ``3.1 MB``."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.1f} {unit}" if count < 99.95 else f"{count:.0f} {unit}"
    return f"{count / 1000:,.1f} PB"


def number(count: float) -> str:
    """``12,345``."""
    return f"{count:,.0f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """A length of time in one or two units: ``45 s``, ``3 h 20 min``, ``12 d``."""
    left = max(0.0, seconds)
    for place, (length, unit) in enumerate(_STEPS):
        if left >= length or unit == "s":
            whole = int(left // length)
            rest = f" {int(left % length // _STEPS[place + 1][0])} {_STEPS[place + 1][1]}" if unit in "dh" else ""
            return f"{whole} {unit}{'' if whole >= 10 or rest.startswith(' 0 ') else rest}"
    raise AssertionError("unreachable")


def ago(moment: datetime, now: float) -> str:
    """``3 h ago``, or ``in 20 min`` for what is still to come."""
    seconds = now - moment.timestamp()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def of_instant(instant: str) -> datetime:
    """The log's ``yyyyMMddHHmmssSSS`` as a time in UTC."""
    return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC, microsecond=int(instant[14:17]) * 1000)


def day_and_time(when: datetime) -> str:
    """``2026-11-20 14:02:07``."""
    return f"{when:%Y-%m-%d %H:%M:%S}"
