"""The syntax of scripts: tokens, quotes and literals, and what every reader of a statement reads by.

A word is a keyword only where a statement expects it, so that columns may be called ``comment`` or ``date``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NoReturn, TypeVar

from spark_apps.sql.statements import PartitionSpec, Value
from spark_apps.storage.errors import InvalidStatement
from spark_apps.storage.parameters import LEXEMES, text_of_bytes
from spark_apps.storage.secrets import hide, hide_in_statement, secrets_in_statement

T = TypeVar("T")

_MAX_LINE = 160
"""Characters of a line that an error shows, around the position."""

_MAX_TOKEN = 60
"""Characters of a token that an error shows."""

_MAX_DEPTH = 400
"""Parentheses within each other that columns, types and expressions of an index may have."""

_MAX_NUMBER = 400
"""Characters of a number."""


# --- Tokens ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Token:
    """A word, literal or sign of a script, and the offset where it begins.

    :param type: as :data:`~spark_apps.storage.parameters.LEXEMES` names it; ``UNCLOSED`` for what opens a quotation or
        comment that nothing closes, ``END`` for what follows the last token.
    """

    type: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @cached_property
    def says(self) -> str:
        """The keyword, in capitals, or the sign that the token can be; nothing for a literal or a quoted name."""
        return self.text.upper() if self.type == "NAME" else self.text if self.type == "SIGN" else ""


@dataclass(frozen=True)
class Positioned(Generic[T]):
    """A value and the token that it begins with."""

    value: T
    token: Token


class Refused(Exception):
    """A statement that cannot be read or meant; becomes an :class:`InvalidStatement` where the script is known."""

    def __init__(self, token: Token, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.token = token
        self.message = message
        self.hint = hint


_OPENINGS = {"'": "A quotation", '"': "A quotation", "`": "A quoted name", "/*": "A comment"}


def tokens_of(script: str) -> Iterator[list[Token]]:
    """Yield the tokens of each statement of a script that is not empty, without comments, and its end.

    What opens a quotation or comment that nothing closes is the last token: no statement can be read beyond it.
    """
    tokens: list[Token] = []
    for match in LEXEMES.finditer(script):
        text, kind, start = match[0], match.lastgroup, match.start()
        if kind == "SIGN" and text == ";":
            if tokens:
                yield [*tokens, Token("END", text, start)]
            tokens = []
        elif kind == "UNCLOSED":
            tokens.append(Token(kind, text[0], start))
        elif kind is not None and kind != "SKIPPED":
            tokens.append(Token(kind, text, start))
    if tokens:
        yield [*tokens, Token("END", "", len(script) if tokens[-1].type == "UNCLOSED" else tokens[-1].end)]


def refusal(script: str, error: Refused) -> InvalidStatement:
    """Return the error with its line, its column and the text there."""
    start, length = error.token.start, len(error.token.text)
    line = script.count("\n", 0, start) + 1
    begins = script.rfind("\n", 0, start) + 1
    ends = script.find("\n", start)
    # Of the whole script: a value may be on another line than its name, or far from it on the same.
    text = hide_in_statement(script)[begins : len(script) if ends < 0 else ends]
    column = start - begins + 1
    secrets = secrets_in_statement(script)
    message = f"Line {line}, column {column}: {hide(error.message, secrets)}\n{_excerpt(text, column, length)}\n"
    return InvalidStatement(message, hint=hide(error.hint, secrets), line=line, column=column)


def _excerpt(text: str, column: int, length: int) -> str:
    first = max(0, column - 1 - _MAX_LINE // 2) if len(text) > _MAX_LINE else 0
    cut = text[first : first + _MAX_LINE].replace("\t", " ")
    before = min(column - 1 - first, len(cut))
    width = max(1, min(length, len(cut) - before))
    return f"  {cut}\n  {' ' * before}{'^' * width}"


# --- What is written in a script -> what it means -------------------------------------------------------------------


NAMES = ("NAME", "BACKTICKED")
TEXTS = ("SINGLE_QUOTED", "DOUBLE_QUOTED", "RAW_QUOTED", "BYTES_TEXT")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}

_DOUBLED_OR_ESCAPED = {
    "'": re.compile(r"''|\\(['\"`\\])"),
    '"': re.compile(r"\"\"|\\(['\"`\\])"),
}


def unquoted(token: Token) -> str:
    r"""Return the text of a name or quotation.

    A doubled quote is one; a backslash only takes the meaning from a quote or a backslash, so that patterns such as
    ``\d`` may be written with one backslash or with two.
    """
    text = token.text
    match token.type:
        case "BACKTICKED":
            return text[1:-1].replace("``", "`")
        case "RAW_QUOTED":
            return text[2:-1]
        case "BYTES_TEXT":
            return text_of_bytes(text)
        case "SINGLE_QUOTED" | "DOUBLE_QUOTED":
            return _DOUBLED_OR_ESCAPED[text[0]].sub(lambda match: match[1] or text[0], text[1:-1])
    return text


def _number(token: Token) -> int | float:
    if len(token.text) > _MAX_NUMBER or not math.isfinite(float(token.text)):
        raise Refused(token, "The number is larger than any type holds.")
    return int(token.text) if re.fullmatch(r"[+-]?\d+", token.text) else float(token.text)


def as_text(at: Positioned[Value]) -> str:
    if isinstance(at.value, bool):
        return "true" if at.value else "false"
    return at.value if isinstance(at.value, str) else at.token.text


def without_comments(text: str) -> str:
    """Return the text with a blank for each comment; what looks like one inside quotes stays."""
    lexemes = (match[0] for match in LEXEMES.finditer(text))
    return "".join(" " if lexeme.startswith(("--", "/*")) else lexeme for lexeme in lexemes).strip()


def check_no_duplicates(names: Iterable[Positioned[str]], what: str) -> None:
    """Check that no two names are the same in any case. :raises Refused: at the second of two that are."""
    seen: set[str] = set()
    for at in names:
        if at.value.lower() in seen:
            raise Refused(at.token, f"{what} {at.value!r} is given twice.", "Keep one.")
        seen.add(at.value.lower())


# --- Reading tokens -------------------------------------------------------------------------------------------------


_COLUMNS = "the columns and their types"
_END = "the end"
_CALLED = {
    "NAME": "a name", "BACKTICKED": "a name", "NUMBER": "a number", **dict.fromkeys(TEXTS, "a quoted text"),
}  # fmt: skip
_LISTED_LAST = ("a name", "a quoted text", "a number", "name => value", "(", ")", ",", ";", "=", ".", "*", _END)

_HINTS = {
    "-": "A name with a hyphen is written in back-ticks.",
    "TRUNCATE": "DELETE FROM the table removes all its rows.",
}
"""What is found instead of what is expected -> how to go on."""


@dataclass(frozen=True)
class Clause:
    """A clause: what it says, and the token that it begins with."""

    value: Any
    token: Token


class TokenReader:
    """Reads one statement token by token, and keeps what was expected in the place of the next."""

    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        self._script = script
        self._tokens = tokens
        self._next = 0
        self._wanted: set[str] = set()

    @property
    def current(self) -> Token:
        """The token that is read next."""
        return self._tokens[self._next]

    @property
    def previous(self) -> Token:
        """The token that was read last."""
        return self._tokens[self._next - 1]

    def is_next(self, *words: str, ahead: int = 0) -> bool:
        """Return whether one of these keywords and signs is next, though it is not expected."""
        position = self._next + ahead
        return position < len(self._tokens) and self._tokens[position].says in words

    def at(self, *words: str) -> bool:
        """Return whether one of these keywords and signs, which are expected, is next."""
        self._wanted.update(words)
        return self.current.says in words

    def advance(self) -> Token:
        """Return the next token, and go on behind it. :raises Refused: if it opens what is not closed."""
        if self.current.type == "UNCLOSED":
            self.fail()
        self._wanted.clear()
        self._next += 1
        return self.previous

    def skip(self, *words: str) -> Token | None:
        """Return one of these keywords and signs if it is next, and go on behind it."""
        return self.advance() if self.at(*words) else None

    def take(self, *words: str) -> Token:
        """Return one of these keywords and signs, and go on behind it. :raises Refused: if another token is next."""
        return self.skip(*words) or self.fail()

    def phrase(self, words: str) -> Token | None:
        """Return the first of keywords that must follow each other, if it is next, and go on behind the last."""
        first, *others = words.split()
        begins = self.skip(first)
        for word in others if begins else ():
            self.take(word)
        return begins

    def one_of(self, *types: str) -> Token:
        """Return a name or a literal, and go on behind it. :raises Refused: if another token is next."""
        self._wanted.update(_CALLED[one] for one in types)
        return self.advance() if self.current.type in types else self.fail()

    def end(self) -> None:
        """Check that the statement ends. :raises Refused: if it does not."""
        if self.current.type != "END":
            self.fail(";", _END)

    def fail(self, *wanted: str) -> NoReturn:
        """Refuse the next token.

        :param wanted: what is expected beside what was asked for.
        :raises Refused: with all that was expected in its place.
        """
        token, words = self.current, {*self._wanted, *wanted}
        if token.type == "UNCLOSED":
            opened = next(what for sign, what in _OPENINGS.items() if sign.startswith(token.text))
            raise Refused(token, f"{opened} that begins here is not closed.")
        if _COLUMNS in words:  # nearly anything may come there
            words &= {_COLUMNS, ")"}
        others = [word if word.isalpha() or " " in word else f"'{word}'" for word in _LISTED_LAST if word in words]
        listed = [*sorted(words.difference(_LISTED_LAST)), *others]
        expected = " or ".join(part for part in (", ".join(listed[:-1]), listed[-1]) if part)
        found = "the script ends here"
        if token.text:
            found = f"found {token.text[:_MAX_TOKEN]!r}{' …' if len(token.text) > _MAX_TOKEN else ''}"
        raise Refused(token, f"expected {expected}, {found}.", _HINTS.get(token.says or token.text[:1], ""))

    def text_between(self, begin: int, end: int) -> str:
        """Return the text of some tokens, by their numbers."""
        return self._script[self._tokens[begin].start : self._tokens[end - 1].end] if begin < end else ""

    # --- Parts of statements --------------------------------------------------------------------------------------

    def listed(self, item: Callable[[], T], may_be_empty: bool = False) -> list[T]:
        """Read ``(item, item, …)``."""
        self.take("(")
        if may_be_empty and self.skip(")"):
            return []
        items = [item()]
        while self.skip(","):
            items.append(item())
        self.take(")")
        return items

    def clauses(self, readers: Mapping[str, tuple[str, Callable[[Any], Any]]]) -> dict[str, Clause]:
        """Read clauses in any order.

        :param readers: the words that a clause begins with -> what it is about, and what reads the rest.
        :returns: by what they are about.
        :raises Refused: if one is given twice.
        """
        found: dict[str, Clause] = {}
        while begun := next(((words, token) for words in readers if (token := self.phrase(words))), None):
            words, token = begun
            about, read = readers[words]
            if about in found:
                hint = "Refresh the others by statements of theirs." if about == "PARTITION" else "Keep one."
                raise Refused(token, f"{about} is given twice.", hint)
            found[about] = Clause(read(self), token)
        return found

    def name(self) -> Positioned[str]:
        token = self.one_of(*NAMES, "DOUBLE_QUOTED")
        return Positioned(unquoted(token), token)

    def dotted(self) -> Positioned[str]:
        parts = [self.name()]
        while self.skip("."):
            parts.append(self.name())
        return Positioned(".".join(part.value for part in parts), parts[0].token)

    def names(self) -> list[Positioned[str]]:
        names = self.listed(self.name, may_be_empty=True)
        check_no_duplicates(names, "The column")
        return names

    def text(self) -> Positioned[str]:
        token = self.one_of(*TEXTS)
        return Positioned(unquoted(token), token)

    def table(self) -> Positioned[str]:
        """Read ``db.table``, which is kept as it is, or ``indexed.<path>``, of which the path is."""
        parts = [self._table_part()]
        while self.skip("."):
            parts.append(self._table_part())
        begin = parts[0].token
        located = [part for part in parts if "/" in part.value]
        if not located:
            return Positioned(".".join(part.value for part in parts), begin)
        if len(parts) > 1 and (len(parts) != 2 or located != [parts[1]] or parts[0].value.lower() != "indexed"):
            raise Refused(begin, "A table is named by db.table, by `path`, or by indexed.`path`.")
        return Positioned(parts[-1].value, begin)

    def _table_part(self) -> Positioned[str]:
        token = self.one_of(*NAMES, *TEXTS)
        if not unquoted(token).strip():
            raise Refused(token, "The name of a table is not blank.")
        return Positioned(unquoted(token), token)

    def literal(self) -> Positioned[Value]:
        if token := self.skip(*_CONSTANTS):
            return Positioned(_CONSTANTS[token.says], token)
        token = self.one_of(*TEXTS, "NUMBER")
        return Positioned(_number(token) if token.type == "NUMBER" else unquoted(token), token)

    def partition(self, dynamic: bool = False) -> tuple[PartitionSpec, tuple[str, ...]]:
        """Read ``(column = value, …)``.

        :param dynamic: whether a column may come without a value.
        :returns: columns with their values, and those without.
        """
        values: list[tuple[str, Value]] = []
        without: list[str] = []

        def column() -> Positioned[str]:
            name = self.name()
            if dynamic and not self.at("="):
                without.append(name.value)
            else:
                self.take("=")
                value = self.text() if self.skip("DATE", "TIMESTAMP") else self.literal()
                values.append((name.value, value.value))
            return name

        check_no_duplicates(self.listed(column), "The partition column")
        return tuple(values), tuple(without)

    def property(self) -> tuple[Positioned[str], Positioned[str]]:
        """Read ``key = value``, or ``key value``."""
        key = self.text() if self.current.type in ("SINGLE_QUOTED", "RAW_QUOTED") else self.dotted()
        self.skip("=")
        value = self.literal()
        if value.value is None:
            raise Refused(value.token, f"The property {key.value!r} cannot be NULL.", "Leave it out.")
        return key, Positioned(as_text(value), value.token)

    def properties(self) -> list[tuple[Positioned[str], Positioned[str]]]:
        pairs = self.listed(self.property)
        check_no_duplicates([key for key, _ in pairs], "The property")
        return pairs

    def columns(self, begin_with_name: bool = False, may_end: bool = False) -> tuple[str, Sequence[Token]]:
        """Read columns and their types, which are Spark's to read: up to the parenthesis around them, or the end.

        :param may_end: whether a name may be all.
        :returns: their text, and their tokens.
        """
        begin = self._next
        if begin_with_name:
            self.one_of(*NAMES)
        self.nested("<>:", _COLUMNS, may_be_empty=may_end)
        return without_comments(self.text_between(begin, self._next)), self._tokens[begin : self._next]

    def nested(self, signs: str, *wanted: str, may_be_empty: bool = False) -> None:
        """Go on to the parenthesis that closes what is around, or to the end.

        :param signs: those that may come; :param wanted: for an error, what may.
        """
        begin, depth = self._next, 0
        while self.current.type != "END" and (self.current.type != "SIGN" or self.current.text in f"(,){signs}"):
            depth += (self.current.says == "(") - (self.current.says == ")")
            if depth < 0:
                break
            if depth > _MAX_DEPTH:
                raise Refused(self.current, "the script is nested too deeply to be read.")
            self.advance()
        self._wanted.update(wanted)
        if depth > 0 or (self._next == begin and not may_be_empty):
            self.fail(*[")"] * (depth > 0))
