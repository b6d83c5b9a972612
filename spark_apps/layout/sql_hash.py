"""A hash function that a user writes as a SQL expression over the hash fields: ``sql:crc32(cast(id as binary))``.

Its text is persisted in the table's definition and must mean the same in every session for as long as the table lives,
so only what depends on nothing but its arguments is allowed: no random numbers, no clocks, no session time zone, no
user-defined functions, no queries. Spark evaluates it; this module knows the words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import InvalidRule

PREFIX = "sql:"

_MAX_LENGTH = 2_000
_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<text>'[^'\\]*'(?!'))"  # what a backslash or a doubled quote means depends on the session
    r"|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>\d+(?:\.\d+)?[LSY]?(?!\w))"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|\|\||>>>|<<|>>|[-+*%&|^~=<>(),])",
    re.IGNORECASE | re.DOTALL,
)
# upper, lower and their kin are missing on purpose: their tables change from one Java to the next.
_FUNCTIONS = frozenset(
    """abs ascii bit_count bit_length char_length character_length coalesce concat conv crc32 datediff day dayofmonth
    dayofyear greatest hash hex if ifnull instr least left length locate lpad md5 mod month nullif nvl octet_length
    pmod position quarter replace reverse right rpad sha sha1 sha2 shiftleft shiftright sign split_part substr
    substring translate unhex unix_date weekofyear xxhash64 year cast try_cast""".split()  # noqa: SIM905
)
_KEYWORDS = frozenset(
    """and as between case div else end false in is not null or then true when
    bigint binary boolean date int integer long short smallint string tinyint""".split()  # noqa: SIM905
)
_STABLE = ("string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "date")


def check(function: str, fields: Mapping[str, str]) -> None:
    """Check an expression against the hash fields (name -> Spark type) of a table.

    :raises InvalidRule: for the first word that is not allowed, or the type that has no stable meaning.
    """
    for name, text in fields.items():
        if parse_type(text).kind not in _STABLE:
            raise InvalidRule(
                f"The hash field {name!r} of type {text!r} cannot be used in a SQL hash function: what such a value "
                "looks like depends on the session.",
                hint="Hash string, integer, boolean, date or binary columns, or use xxhash64.",
            )
    columns = [name for kind, name in _tokens(function) if kind == "column"]
    known = {name.lower() for name in fields}
    unknown = [name for name in columns if name.lower() not in known]
    if unknown:
        raise _refused(function, f"{unknown[0]!r} is not a hash field ({', '.join(fields)}), nor known here")
    if not columns:
        raise _refused(function, "it names no hash field (a name that is a word of SQL too needs backquotes)")


def rendered(function: str, columns: Mapping[str, str]) -> str:
    """Return the expression for Spark, with each hash field replaced by its value in ``columns``."""
    by_name = {name.lower(): text for name, text in columns.items()}
    return "".join(f"({by_name[token.lower()]})" if kind == "column" else token for kind, token in _tokens(function))


def _tokens(function: str) -> Sequence[tuple[str, str]]:
    """Return (kind, text) of each token; names of columns without their backquotes."""
    text = function.removeprefix(PREFIX)
    if len(text) > _MAX_LENGTH:
        raise _refused(function[:40] + "…", f"it is longer than {_MAX_LENGTH} characters")
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (text.startswith("--", position)):
            raise _refused(function, f"{text[position : position + 10]!r} is not allowed")
        kind, word = str(token.lastgroup), token[0]
        position = token.end()
        if kind == "quoted":
            kind, word = "column", word[1:-1].replace("``", "`")
        elif kind == "word":
            called = text[position:].lstrip().startswith("(")
            if called and word.lower() not in _FUNCTIONS | _KEYWORDS:
                raise _refused(function, f"the function {word!r} is not among those that always give the same")
            kind = "word" if called or word.lower() in _KEYWORDS else "column"
        tokens.append((kind, word))
    return tokens


def _refused(function: str, reason: str) -> InvalidRule:
    return InvalidRule(
        f"The hash function {function!r} cannot be used: {reason}.",
        hint=f"Use operators, CASE, CAST and: {', '.join(sorted(_FUNCTIONS))}.",
    )
