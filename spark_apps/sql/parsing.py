"""From the text of a script to its statements. A script is read whole before any of it is run.

What a document has and we have not is refused at its place with the reason, never passed over.
"""

from __future__ import annotations

import re
from functools import cache

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from spark_apps.sql.grammar import GRAMMAR, called
from spark_apps.sql.places import Refused, refusal
from spark_apps.sql.reading import Reader
from spark_apps.sql.statements import Statement
from spark_apps.storage.errors import InvalidStatement

_REFUSED_WORDS = {
    "ROW": (
        "ROW FORMAT cannot be given: index files are Parquet, whose rows have no format of their own.",
        "Leave the clause out.",
    ),
    "STORED_BY": (
        "STORED BY cannot be given: what stores an index is the handler of its kind.",
        "Name the handler instead: AS 'kind or class'.",
    ),
}
"""Keywords that are refused as soon as they are read, whatever follows them."""

_ROWS = re.compile(r"(?i)(select|insert|update|delete|merge|with|truncate|values)\b")

_WIDEST_TOKEN = 60

_OPENINGS = {"'": "A quotation", '"': "A quotation", "`": "A quoted name", "/*": "A comment"}


def parse(script: str) -> tuple[Statement, ...]:
    """The statements of a script, in order. Statements end with ``;``, the last one may go without.

    :raises InvalidStatement: with line, column, the text there and what was expected. Nothing was run.
    """
    try:
        tree = _parser().parse(script)
        statements: tuple[Statement, ...] = Reader(script).transform(tree)
    except UnexpectedInput as error:
        raise _unexpected(script, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, RecursionError):
            raise _too_deep(script) from None
        if not isinstance(error.orig_exc, Refused):
            raise error.orig_exc from None
        raise _refused(script, error.orig_exc) from None
    except Refused as error:
        raise _refused(script, error) from None
    except RecursionError:
        raise _too_deep(script) from None
    if not statements:
        raise refusal(script, 0, 1, "the script holds no statement.")
    return statements


def _too_deep(script: str) -> InvalidStatement:
    return refusal(script, 0, 1, "the script is nested too deeply to be read.")


def _refused(script: str, error: Refused) -> InvalidStatement:
    return refusal(script, error.token.start_pos or 0, len(error.token), error.message, error.hint)


def _unexpected(script: str, error: UnexpectedInput) -> InvalidStatement:
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        start, length, found = error.token.start_pos or 0, len(error.token), f"found {_short(error.token)}"
    elif isinstance(error, UnexpectedCharacters):
        start, length = error.pos_in_stream or 0, 1
        unclosed = next((what for sign, what in _OPENINGS.items() if script.startswith(sign, start)), None)
        if unclosed:
            return refusal(script, start, length, f"{unclosed} that begins here is not closed.")
        found = f"found {script[start]!r}"
    else:
        start, length, found = len(script.rstrip()), 1, "the script ends here"
    return refusal(script, start, length, f"expected {_expected(error)}, {found}.", _advice(script, start))


def _short(token: Token) -> str:
    return repr(str(token)) if len(token) <= _WIDEST_TOKEN else f"{str(token)[:_WIDEST_TOKEN]!r} …"


def _expected(error: UnexpectedInput) -> str:
    # What the parser itself can go on with; the tables of an LALR parser name more.
    state = getattr(error, "interactive_parser", None)
    words = called(state.accepts()) if state is not None else []
    if not words:
        return "a statement"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _advice(script: str, start: int) -> str:
    if script.startswith("-", start):
        return "A name with a hyphen is written in back-ticks."
    if _ROWS.match(script, start):
        return "Rows are read and written by Spark SQL and by the table's own methods; here are its indexes."
    return ""


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        start="script",
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
        lexer_callbacks=dict.fromkeys(_REFUSED_WORDS, _refuse_word),
    )


def _refuse_word(token: Token) -> Token:
    raise Refused(token, *_REFUSED_WORDS[token.type])
