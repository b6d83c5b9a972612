"""The SQL text of a predicate that is a tree: as :mod:`spark_apps.query.parsing` reads it, and as a person reads it."""

from __future__ import annotations

import datetime as dt
import math
import re
import textwrap
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from spark_apps.mergetree.schema import quote
from spark_apps.query.predicates import And, Comparison, Fixed, In, IsNull, Not, Or, Predicate
from spark_apps.storage.errors import InvalidPredicate
from spark_apps.storage.printing import printable


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


# --- for a person who decides by it -----------------------------------------------------------------------------------

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDTH = 100
"""Characters of a line that any form shows without scrolling."""


def lines_of_predicate(predicate: Predicate) -> list[str]:
    """Return a predicate as lines for a person: all that was read of its text, and nothing else.

    Each part of an AND or OR begins a line, and no line is longer than a form is wide, so that no part is out of sight.
    Texts are shown with an escape for what cannot be seen, and for each of several blanks in a row.

    :raises InvalidPredicate: for a part that was not understood.
    """
    return list(_lines(predicate, ""))


def _lines(predicate: Predicate, indent: str) -> Iterator[str]:
    match predicate:
        case And() | Or():
            word = "AND" if isinstance(predicate, And) else "OR"
            for number, part in enumerate(predicate.parts):
                before = f"{word} " if number else ""
                if isinstance(part, And | Or):
                    yield f"{indent}{before}("
                    yield from _lines(part, f"{indent}    ")
                    yield f"{indent})"
                else:
                    yield from _within(f"{before}{_shown(part)}", indent)
        case Not(part=And() | Or()):
            yield f"{indent}NOT ("
            yield from _lines(predicate.part, f"{indent}    ")
            yield f"{indent})"
        case _:
            yield from _within(_shown(predicate), indent)


def _within(text: str, indent: str) -> Iterator[str]:
    if len(indent) + len(text) <= _WIDTH:
        yield indent + text
        return
    width = max(_WIDTH - len(indent), 40)
    yield from textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False,
        expand_tabs=False, replace_whitespace=False,
    )  # fmt: skip


def _shown(predicate: Predicate) -> str:
    match predicate:
        case Comparison():
            return f"{_name(predicate.column)} {predicate.op} {_value(predicate.literal)}"
        case In():
            values = [_value(value) for value in _sorted(predicate.values)] + ["NULL"] * predicate.has_null
            return f"{_name(predicate.column)} IN ({', '.join(values)})" if values else "FALSE"
        case IsNull():
            return f"{_name(predicate.column)} IS NULL"
        case Fixed():
            return "NULL" if predicate.outcome is None else str(predicate.outcome).upper()
        case Not(part=And() | Or()):
            return " ".join(line.strip() for line in _lines(predicate, ""))
        case Not():
            return f"NOT ({_shown(predicate.part)})"
    raise InvalidPredicate(
        "A part of the predicate cannot be shown as it was read.",
        hint="Write it as comparisons of columns with values, IN and IS NULL.",
    )


def _sorted(values: Iterable[Any]) -> list[Any]:
    values = list(values)
    try:
        return sorted(values)
    except TypeError:
        return values


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else printable(quote(name))


def _value(value: Any) -> str:
    if isinstance(value, str):
        text = printable(value.replace("\\", "\\\\").replace("'", "\\'"))
        text = re.sub(r"  +|^ +$", lambda blanks: "\\x20" * len(blanks[0]), text)
        return f"'{text}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"DOUBLE '{value}'"
    written = _literal(value)
    return printable(str(value)) if written is None else written
