"""Errors that point at their place in a script: line, column, the line itself and a caret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from lark import Token

from spark_apps.storage.errors import InvalidStatement
from spark_apps.storage.secrets import hide, hide_in_statement, secrets_in_statement

T = TypeVar("T")

_WIDEST = 160
"""A longer line is cut to about so many characters around the place."""


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
    # Of the whole script: a value may stand on another line than its name, or far from it on the same.
    text = hide_in_statement(script)[begins : len(script) if ends < 0 else ends]
    column = start - begins + 1
    shown = f"\n{_excerpt(text, column, length)}\n"
    secrets = secrets_in_statement(script)
    said = f"Line {line}, column {column}: {hide(message, secrets)}{shown}"
    return InvalidStatement(said, hint=hide(hint, secrets), line=line, column=column)


def _excerpt(text: str, column: int, length: int) -> str:
    first = max(0, column - 1 - _WIDEST // 2) if len(text) > _WIDEST else 0
    cut = text[first : first + _WIDEST].replace("\t", " ")
    before = min(column - 1 - first, len(cut))
    width = max(1, min(length, len(cut) - before))
    return f"  {cut}\n  {' ' * before}{'^' * width}"
