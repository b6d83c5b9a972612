"""The shape of a predicate: its text with ``?`` for each literal, in which queries that differ in literals are alike.

It is made of the words of the text, and not of what they mean: what is no name, keyword or sign is a literal, so that
none is left, whatever only Spark can read.
"""

from __future__ import annotations

import re
from functools import lru_cache

from spark_apps.workload.asked import UNKNOWN_SHAPE
from spark_apps.workload.limits import MAX_SHAPE_CHARACTERS, MAX_TOKENIZED_CHARACTERS

_REMEMBERED_CHARACTERS = 2_000
UNPREPARED = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError)
"""What the parser library raises, beside its own errors, of a text for which it is not prepared."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTS = re.compile(r"\(\?(?:, \?)+\)")
_SUFFIX = re.compile(r"\? :: \?")
"""A number with its type, as 5L and 1.5D, which the library takes for a cast."""
_BEFORE_A_SIGN = frozenset("(,=<>+-*/%|&^~") | {"<=", ">=", "<>", "!=", "<=>", "==", "||"}
_TIGHT_AFTER, _TIGHT_BEFORE = frozenset("(.["), frozenset("),.]")


def shape_of(sql: str) -> str:
    """Return the shape of a predicate; :data:`~spark_apps.workload.asked.UNKNOWN_SHAPE` if it cannot be made.

    :param sql: what follows WHERE, in Spark's SQL.
    """
    if len(sql) > MAX_TOKENIZED_CHARACTERS:
        return UNKNOWN_SHAPE
    return _remembered(sql) if len(sql) <= _REMEMBERED_CHARACTERS else _shape(sql)


def _shape(sql: str) -> str:
    # Its library takes a tenth of a second to import.
    import sqlglot
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import TokenType

    try:
        tokens = sqlglot.tokenize(sql, dialect="spark")
    except (SqlglotError, RecursionError, *UNPREPARED):
        return UNKNOWN_SHAPE
    words: list[str] = []
    for token in tokens:
        text = token.text
        if token.token_type is TokenType.IDENTIFIER:
            words.append(text if _PLAIN.fullmatch(text) else f"`{text.replace('`', '``')}`")
        elif token.token_type in (TokenType.TRUE, TokenType.FALSE):
            words.append("?")
        elif token.token_type is TokenType.VAR or (
            _PLAIN.fullmatch(text) and sql[token.start : token.end + 1].upper() == text.upper()
        ):
            words.append(text.upper() if text.upper() in _KEYWORDS else text)
        elif text and not any(sign.isalnum() or sign in "'\"" for sign in text):
            words.append(text)
        else:
            if words and words[-1] == "-" and (len(words) == 1 or words[-2] in _BEFORE_A_SIGN or words[-2].isupper()):
                words.pop()
            words.append("?")
    shape = _LISTS.sub("(?)", _SUFFIX.sub("?", _joined(_bare(words))))
    return shape if shape and len(shape) <= MAX_SHAPE_CHARACTERS else UNKNOWN_SHAPE


_remembered = lru_cache(maxsize=512)(_shape)

_KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END",
     "AS", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL", "EXISTS", "DISTINCT", "DIV",
     "ESCAPE", "ANY", "ALL", "SOME", "FROM")
)  # fmt: skip


def _bare(words: list[str]) -> list[str]:
    """Return words without parentheses that change nothing: around all of it, around others, around one comparison."""
    opened: list[int] = []
    joining = [False]
    pairs: list[tuple[int, int]] = []
    for number, word in enumerate(words):
        if word == "(":
            opened.append(number)
            joining.append(False)
        elif word == ")" and opened:
            begin, joins = opened.pop(), joining.pop()
            before = words[begin - 1] if begin else "("
            after = words[number + 1] if number + 1 < len(words) else ")"
            whole = before == "(" and after == ")" and (begin == 0 or (begin - 1) in opened)
            if whole or (not joins and before in ("(", "AND", "OR") and after in (")", "AND", "OR")):
                pairs.append((begin, number))
                joining[-1] |= joins
        elif word in ("AND", "OR", "BETWEEN"):
            joining[-1] = True
    gone = {number for pair in pairs for number in pair}
    return [word for number, word in enumerate(words) if number not in gone]


def _joined(words: list[str]) -> str:
    """Return words as one text, with one space where there is one."""
    text: list[str] = []
    for number, word in enumerate(words):
        before = words[number - 1] if number else "("
        called = word == "(" and _PLAIN.fullmatch(before) is not None and before not in _KEYWORDS
        if not (before[-1:] in _TIGHT_AFTER or word[:1] in _TIGHT_BEFORE or called or (word == "[" and number)):
            text.append(" ")
        text.append(word)
    return "".join(text)
