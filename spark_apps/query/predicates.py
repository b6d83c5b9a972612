"""Predicates, as the rest of the package uses them: parse one, ask which columns it needs and which keys it allows.

The parts: ``parsing`` reads the SQL, ``literals`` decides what a literal means beside a column, ``tree`` is
what comes out, ``keysets`` what it says about keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_apps.query.keysets import DEFAULT_LIMIT, CannotPrune, KeySet, NothingMatches, keys_for, may_match
from spark_apps.query.tree import (
    And,
    Comparison,
    Fixed,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    columns_of,
    of_whole_rows,
    reasons,
)

__all__ = [
    "DEFAULT_LIMIT",
    "And",
    "CannotPrune",
    "Comparison",
    "Fixed",
    "In",
    "IsNull",
    "KeySet",
    "Not",
    "NothingMatches",
    "Opaque",
    "Or",
    "Predicate",
    "columns_of",
    "keys_for",
    "may_match",
    "of_whole_rows",
    "parse_predicate",
    "reasons",
]


def parse_predicate(sql: str, schema: Mapping[str, str], **how: Any) -> Predicate:
    """See :func:`spark_apps.query.parsing.parse_predicate`; its library takes a tenth of a second to import, which
    work that is given no predicate is spared."""
    from spark_apps.query.parsing import parse_predicate as parse

    return parse(sql, schema, **how)
