"""What is written in a script -> what it means: quotes, doubled quotes, escapes, numbers, comments."""

from __future__ import annotations

import math
import re

from lark import Token

from spark_apps.sql.places import At, Refused
from spark_apps.sql.statements import Value

_LONGEST_NUMBER = 400

_DOUBLED_OR_ESCAPED = {
    "'": re.compile(r"''|\\(['\"`\\])"),
    '"': re.compile(r"\"\"|\\(['\"`\\])"),
}
_COMMENT_OR_QUOTED = re.compile(
    r"('(?:[^'\\]|''|\\[\s\S])*'|\"(?:[^\"\\]|\"\"|\\[\s\S])*\"|`(?:[^`]|``)+`)|--[^\n]*|/\*[\s\S]*?\*/"
)


def unquoted(token: Token) -> str:
    """The text of a name or quotation. A doubled quote is one; a backslash only takes the meaning from a quote or a
    backslash, so that patterns such as ``\\d`` may be written with one backslash or with two."""
    text = str(token)
    match token.type:
        case "BACKTICKED":
            return text[1:-1].replace("``", "`")
        case "RAW_QUOTED":
            return text[2:-1]
        case "SINGLE_QUOTED" | "DOUBLE_QUOTED":
            return _DOUBLED_OR_ESCAPED[text[0]].sub(lambda match: match[1] or text[0], text[1:-1])
    return text


def literal_of(token: Token) -> Value:
    match token.type:
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case "NULL":
            return None
        case "NUMBER":
            return _number(token)
    return unquoted(token)


def _number(token: Token) -> int | float:
    if len(token) > _LONGEST_NUMBER or not math.isfinite(float(token)):
        raise Refused(token, "The number is larger than any type holds.")
    return int(token) if re.fullmatch(r"[+-]?\d+", token) else float(token)


def as_text(at: At[Value]) -> str:
    if isinstance(at.value, bool):
        return "true" if at.value else "false"
    return at.value if isinstance(at.value, str) else str(at.token)


def without_comments(text: str) -> str:
    """The text with a blank for each comment; what looks like one inside quotes stays."""
    return _COMMENT_OR_QUOTED.sub(lambda match: match[1] or " ", text).strip()
