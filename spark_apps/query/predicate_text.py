"""The SQL text of a predicate that was handed over as a tree, as :mod:`spark_apps.query.parsing` reads it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from spark_apps.mergetree.schema import quote
from spark_apps.query.predicates import And, Comparison, Fixed, In, IsNull, Not, Or, Predicate


def text_of_predicate(predicate: Predicate) -> str | None:
    """Return the text of what a predicate demands; ``None`` if nothing of it can be written.

    Parts of an AND that cannot be written are left out, so that it holds for every row for which the predicate does.
    """
    match predicate:
        case Comparison():
            return _of_values(f"{quote(predicate.column)} {predicate.op} ", [predicate.literal])
        case In():
            if not predicate.values:
                return "false"
            try:
                values = sorted(predicate.values)
            except TypeError:
                values = list(predicate.values)
            return _of_values(f"{quote(predicate.column)} IN (", values, ")")
        case IsNull():
            return f"{quote(predicate.column)} IS NULL"
        case Fixed():
            return "true" if predicate.outcome else "false"
        case Not(part=And() | Or()):
            return None
        case Not():
            part = text_of_predicate(predicate.part)
            return None if part is None else f"NOT ({part})"
        case And() | Or():
            parts = [text_of_predicate(part) for part in predicate.parts]
            known = [part for part in parts if part is not None]
            if not known or (isinstance(predicate, Or) and len(known) < len(parts)):
                return None
            word = " AND " if isinstance(predicate, And) else " OR "
            nested = [type(part) in (And, Or) for part, text in zip(predicate.parts, parts, strict=True) if text]
            return word.join(f"({part})" if inner else part for part, inner in zip(known, nested, strict=True))
    return None


def _of_values(before: str, values: Iterable[Any], after: str = "") -> str | None:
    written = [_literal(value) for value in values]
    return None if None in written else f"{before}{', '.join(map(str, written))}{after}"


def _literal(value: Any) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            return f"{value!r}D" if math.isfinite(value) else None
        case str():
            # A doubled quotation mark or a backslash means one thing or another by Spark's version and settings.
            return None if "'" in value or "\\" in value else f"'{value}'"
        case dt.datetime():
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ'{value.isoformat(' ')}'"
            return f"TIMESTAMP'{value.astimezone(dt.UTC).isoformat(' ')}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
    return None
