"""The binding of values to the parameters of a text of SQL, such as ``city = :city``.

A value is never read as SQL: it becomes one literal of its own type, put where the text, split into its words, has a
marker outside of quotations and comments. A text that a quotation could not hold whatever the settings of the session
is written as its bytes. So statements, predicates and Airflow's side have one binding, and whatever reads the text
after it finds a literal there.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from spark_apps.storage.errors import InvalidInput

LEXEMES = re.compile(
    r"(?P<SKIPPED>[\s\ufeff]+|--[^\n]*|/\*[\s\S]*?\*/)"
    r"|(?P<RAW_QUOTED>[rR]'[^']*'|[rR]\"[^\"]*\")|(?P<BYTES_TEXT>CAST\(X'(?:[0-9A-F]{2})*' AS STRING\))"
    r"|(?P<SINGLE_QUOTED>'(?:[^'\\]|''|\\[\s\S])*')|(?P<DOUBLE_QUOTED>\"(?:[^\"\\]|\"\"|\\[\s\S])*\")"
    r"|(?P<BACKTICKED>`(?:[^`]|``)+`)|(?P<UNCLOSED>(?:/\*|['\"`])[\s\S]*)|(?P<NAME>[^\W\d][\w$]*)"
    r"|(?P<NUMBER>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))|(?P<SIGN>[\s\S])"
)
"""The words, quotations, numbers and signs of a text of SQL, and what is between them.

What opens a quotation or comment that nothing closes is one with all behind it, so that a text is read in linear time.
"""

Parameters = Mapping[str, Any]

_APART = ("", " ", "\n", "(", ")", ",", ";")
_NAME = re.compile(r"[^\W\d]\w*\Z")
# Signs that end a quotation, escape in it, or that Spark puts a variable's value for.
_UNQUOTABLE = frozenset("'\"\\`$")


def bind(text: str, parameters: Parameters | None) -> str:
    """Return a text of SQL with a literal for each marker ``:name``.

    A colon within a word (``a:b``), a doubled one (``a::int``), and one in a quotation or comment begin no marker.

    :param parameters: name -> value: text, int, float, bool, Decimal, date, datetime (without a zone: that of the
        session), bytes or ``None``. Each must be asked for.
    :raises InvalidInput: for a parameter that is asked for and not given, or given and not asked for; for a value of
        another type.
    """
    return bind_all({"text": text}, parameters)["text"]


def bind_all(texts: Mapping[str, str], parameters: Parameters | None) -> dict[str, str]:
    """Return texts as :func:`bind` does; each parameter must be asked for by one of them.

    :raises InvalidInput: as :func:`bind` does.
    """
    given = _checked(parameters)
    asked: set[str] = set()
    bound = {name: _bound(text, given, asked) for name, text in texts.items()}
    if unknown := [name for name in given if name not in asked]:
        raise InvalidInput(
            f"The parameter {unknown[0]!r} is given, and the text nowhere asks for :{unknown[0]}.",
            hint="Parameters are bound where the text has them, outside of quotes: city = :city.",
        )
    return bound


def _bound(text: str, given: Parameters, asked: set[str]) -> str:
    """Return a text with its parameters bound, whose names are added to ``asked``."""
    parts, end = [], 0
    for start, stop, name in _markers(text):
        if name not in given:
            known = ", ".join(given) or "none"
            raise InvalidInput(
                f"The text asks for the parameter :{name}, which is not given; given: {known}.",
                hint=f"Give parameters={{{name!r}: …}}, or write a colon that is none in quotes.",
            )
        asked.add(name)
        # Apart from its neighbours: a sign before a negative number would begin a comment.
        before = "" if text[max(0, start - 1) : start] in _APART else " "
        after = "" if text[stop : stop + 1] in _APART else " "
        parts += [text[end:start], before, literal(given[name], name), after]
        end = stop
    return "".join([*parts, text[end:]])


def bind_where(where: str | None, parameters: Parameters | None) -> str | None:
    """Return a predicate as :func:`bind` does, if there is one. :raises InvalidInput: for parameters of none."""
    if parameters is None and not isinstance(where, str):
        return where  # none, or what its reader refuses
    return bind(where or "", parameters)


def _checked(parameters: Parameters | None) -> Parameters:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise InvalidInput(
            f"The parameters are {type(parameters).__name__}, and no mapping.", hint="Give {'city': 'sfo'}."
        )
    for name in parameters:
        if not isinstance(name, str) or _NAME.match(name) is None:
            raise InvalidInput(f"{name!r} is no name of a parameter.", hint="Use letters, digits and underscores.")
    return parameters


def _markers(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each marker begins and ends, and its name."""
    before, colon = None, None
    for match in LEXEMES.finditer(text):
        if colon is not None and match.lastgroup == "NAME":
            yield colon, match.end(), match[0]
        # A word, a number, a closing bracket or another colon in front of it makes the colon a part of what it follows.
        follows = before is not None and (before.lastgroup not in ("SKIPPED", "SIGN") or before[0] in ":)]")
        colon = match.start() if match[0] == ":" and not follows else None
        before = match


def literal(value: Any, name: str = "value") -> str:
    """Return a value as a literal of SQL.

    :param name: of the parameter, for an error.
    :raises InvalidInput: if values of its type cannot be given.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return (
                f"{float(value)!r}D" if math.isfinite(value) else f"CAST('{_NOT_FINITE[str(float(value))]}' AS DOUBLE)"
            )
        case Decimal() if value.is_finite():
            return f"{value:f}BD"
        case str():
            return _text(value, name)
        case dt.datetime():
            zoned = value if value.tzinfo is None else value.astimezone(dt.UTC)
            return f"TIMESTAMP'{zoned.isoformat(' ')}'"
        case dt.date():
            return f"DATE'{value.isoformat()}'"
        case bytes() | bytearray():
            return f"X'{value.hex().upper()}'"
    raise InvalidInput(
        f"The parameter {name!r} is {type(value).__name__}, which cannot be bound.",
        hint="Give text, an int, float, bool, Decimal, date, datetime, bytes or None.",
    )


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _text(value: str, name: str) -> str:
    if value.isprintable() and _UNQUOTABLE.isdisjoint(value):
        return f"'{value}'"
    try:
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    except UnicodeEncodeError as error:
        raise InvalidInput(f"The parameter {name!r} is no valid Unicode.", hint="Give it as bytes.") from error


def text_of_bytes(lexeme: str) -> str:
    """Return the text of a ``BYTES_TEXT``. :raises InvalidInput: if it is no UTF-8."""
    try:
        return bytes.fromhex(lexeme.split("'")[1]).decode()
    except ValueError as error:
        raise InvalidInput(f"The text {lexeme[:40]} is no UTF-8.", hint="Give its bytes as X'…'.") from error
