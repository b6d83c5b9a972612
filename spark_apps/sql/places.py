"""Errors that point at their place in a script: line, column, the line itself and a caret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from lark import Token

from spark_apps.storage.errors import InvalidStatement

T = TypeVar("T")

_WIDEST = 160
"""A longer line is cut to about so many characters around the place."""

_SECRET = re.compile(
    r"(?i)((?:password|secret|token|credential|access[._-]?key)[\w.-]*['\"`]?\s*(?:=>|=)?\s*)(['\"]).*?\2"
)


@dataclass(frozen=True)
class At(Generic[T]):
    """A value and the token that it stands at."""

    value: T
    token: Token


class Refused(Exception):
    """What can be read but not be meant; becomes an :class:`InvalidStatement` where the script is known."""

    def __init__(self, token: Token, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.token = token
        self.message = message
        self.hint = hint


def refusal(script: str, start: int, length: int, message: str, hint: str = "") -> InvalidStatement:
    """The error for a place of a script.

    :param start: offset of the place. :param length: how many characters it has.
    """
    start = min(start, len(script))
    line = script.count("\n", 0, start) + 1
    begins = script.rfind("\n", 0, start) + 1
    ends = script.find("\n", start)
    text = script[begins : len(script) if ends < 0 else ends]
    column = start - begins + 1
    shown = f"\n{_excerpt(text, column, length)}\n"
    return InvalidStatement(f"Line {line}, column {column}: {message}{shown}", hint=hint, line=line, column=column)


def _excerpt(text: str, column: int, length: int) -> str:
    first = max(0, column - 1 - _WIDEST // 2) if len(text) > _WIDEST else 0
    cut = hide_secrets(text[first : first + _WIDEST]).replace("\t", " ")
    before = min(column - 1 - first, len(cut))
    width = max(1, min(length, len(cut) - before))
    return f"  {cut}\n  {' ' * before}{'^' * width}"


def hide_secrets(text: str) -> str:
    """The text with the values of what look like secrets taken out, each as long as it was."""
    return _SECRET.sub(lambda m: m[1] + m[2] + "*" * (len(m[0]) - len(m[1]) - 2) + m[2], text)
