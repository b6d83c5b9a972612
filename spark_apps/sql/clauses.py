"""The clauses of a statement, and how they are picked from what the grammar hands over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lark import Token

from spark_apps.sql.places import At, Refused


@dataclass(frozen=True)
class Clause:
    """A clause: what it is about, what it says, and the token that it begins with."""

    about: str
    value: Any
    token: Token


@dataclass(frozen=True)
class Flag:
    """``IF EXISTS`` or ``IF NOT EXISTS``."""

    token: Token


@dataclass(frozen=True)
class Columns:
    """The text of a column list, or of a type, and its tokens."""

    text: str
    tokens: tuple[Token, ...] = ()


Pairs = list[tuple[At[str], At[str]]]


def ats(children: Iterable[Any]) -> list[At[Any]]:
    """The values with a place, in order."""
    return [child for child in children if isinstance(child, At)]


def has(children: Iterable[Any], keyword: str) -> bool:
    """Whether a keyword stands there."""
    return any(isinstance(child, Token) and child.type == keyword for child in children)


def flagged(children: Iterable[Any]) -> bool:
    """Whether ``IF [NOT] EXISTS`` was said."""
    return any(isinstance(child, Flag) for child in children)


def clauses_of(children: Iterable[Any]) -> dict[str, Clause]:
    """The clauses by what they are about. :raises Refused: if one is given twice."""
    found: dict[str, Clause] = {}
    for child in children:
        if isinstance(child, Clause) and found.setdefault(child.about, child) is not child:
            what = "The kind of the index" if child.about == "kind" else child.about
            raise Refused(child.token, f"{what} is given twice.", "Keep one.")
    return found


def text_of(clauses: dict[str, Clause], about: str) -> str | None:
    """The text of a clause, if there is one."""
    return clauses[about].value.value if about in clauses else None


def names_in(clauses: dict[str, Clause], about: str) -> tuple[str, ...] | None:
    """The names of a clause, if there is one."""
    return tuple(at.value for at in clauses[about].value) if about in clauses else None


def pairs_of(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Keys and values without their places."""
    return tuple((key.value, value.value) for key, value in pairs)


def pairs_in(clause: Clause | None) -> tuple[tuple[str, str], ...]:
    """Those of a clause, or none."""
    return () if clause is None else pairs_of(clause.value)


def once(names: Iterable[At[str]], what: str) -> None:
    """:raises Refused: if two names differ in nothing, or in case only."""
    seen: set[str] = set()
    for at in names:
        if at.value.lower() in seen:
            raise Refused(at.token, f"{what} {at.value!r} is given twice.", "Keep one.")
        seen.add(at.value.lower())


def no_purge(children: Iterable[Any]) -> None:
    """:raises Refused: if PURGE was said."""
    for child in children:
        if isinstance(child, Token) and child.type == "PURGE":
            raise Refused(
                child,
                "PURGE cannot be had: files stay as long as a version that can be read needs them.",
                "Leave it out, and let the table be cleaned.",
            )
