"""Numbers, times, names and queries as the page shows them: short, in UTC, with thousands set apart, always escaped."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from spark_apps.storage.units import format_bytes, format_duration
from spark_apps.timeline.log import seconds_of


def size(count: float) -> str:
    """Return bytes in the unit that leaves few digits: ``0 B``, ``3.1 MB``, ``123 GB``."""
    return format_bytes(count, short=True)


def number(count: float) -> str:
    """Return ``12,345``."""
    return f"{count:,.0f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 file``, ``2,000 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ago(moment: datetime, now: float) -> str:
    """Return ``3 h ago``, or ``in 20 min`` for what is still to come."""
    seconds = now - moment.timestamp()
    if abs(seconds) < 1:
        return "just now"
    return f"{format_duration(seconds)} ago" if seconds > 0 else f"in {format_duration(-seconds)}"


def moment(seconds: float) -> datetime:
    """Return seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def of_instant(instant: str) -> datetime:
    """Return the log's ``yyyyMMddHHmmssSSS`` as a time in UTC."""
    return moment(seconds_of(instant))


def day_and_time(when: datetime) -> str:
    """Return ``2026-11-20 14:02:07``."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def when(moment: datetime) -> Markup:
    """Return a time as people say it, with the exact one to hover over."""
    exact = f"{day_and_time(moment)} UTC"
    text = ago(moment, time.time())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), exact, text)


def query(values: dict[str, Any], **others: Any) -> str:
    """Return the part of an address behind the question mark; what is ``None`` or empty is left out."""
    return urlencode({name: value for name, value in {**values, **others}.items() if value not in (None, "")})


def short(text: str, most: int = 40) -> str:
    """Return a long name with its middle left out, so that both of its ends can be seen."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[-(most - 1 - head) :]}"
