"""Values of rows in plain JSON, so that rows kept in a file compare with rows read from a table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Return a value, or a row of values, as JSON holds it; times in UTC."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:.3f}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value
