"""Globs of sources, and what keeps a source apart from its log; where both lie is told in
:mod:`spark_apps.timeline.locations`."""

from __future__ import annotations

import re

from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.locations import INDEXES, Location, locate

__all__ = ["INDEXES", "Location", "check_apart", "glob_regex", "locate"]


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A Hadoop glob as a pattern for paths relative to its base; it matches a file or a folder above it.

    :raises InvalidInput: for a bracket or brace that is not closed.
    """
    found, at, depth = "", 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            found += "[^/]*"
        elif char == "?":
            found += "[^/]"
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            found += re.escape(pattern[at])
        elif char == "[":
            end = pattern.find("]", at + 2)
            if end < 0:
                raise _unclosed(pattern, "[")
            inner = pattern[at + 1 : end]
            negated = inner[:1] in "!^"
            body = (inner[1:] if negated else inner).replace("\\", "\\\\").replace("[", "\\[")
            found += f"(?!/)[{'^' if negated else ''}{body}]"
            at = end
        elif char == "{":
            depth, found = depth + 1, found + "(?:"
        elif char == "}" and depth:
            depth, found = depth - 1, found + ")"
        elif char == "," and depth:
            found += "|"
        else:
            found += re.escape(char)
        at += 1
    if depth:
        raise _unclosed(pattern, "{")
    return re.compile(f"(?s:{found})(?:/.*)?\\Z", re.DOTALL)


def _unclosed(pattern: str, sign: str) -> InvalidInput:
    return InvalidInput(f"The pattern {pattern!r} has a {sign!r} that is not closed.", hint="Close it, or escape it.")


def check_apart(location: Location, log: str) -> None:
    """:raises InvalidInput: if log and source lie one inside the other: sources are never written to, and what is
    cleaned must not be theirs."""
    one, other = f"{location.base.rstrip('/')}/", f"{log.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        raise InvalidInput(
            f"The log {log} and the source {location.base} lie one inside the other.",
            hint="Give an index_root outside of the source.",
        )
