"""The small tree that a predicate becomes: only what can be decided from a column's own values, and
``Opaque`` rest.

Every node is true, false or null for a row, as in SQL. Literals are already in the form in which they compare
exactly with values of their column (see ``literals.py``), so nothing here knows about casts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# One NaN for all: sets and tuples compare by identity first, so keys that hold it are equal as in Spark.
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Fixed:
    """Has one outcome whatever the row: ``True``, ``False`` or null (``col = NULL``)."""

    outcome: bool | None
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op literal``; ``op`` is one of ``= <=> < <= > >=`` and the literal is not null."""

    column: str
    op: str
    literal: Any


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (values)``. With ``has_null`` the list held a null too, so the outcome is never false.

    Without values it is what a comparison becomes that no value of the column's type can meet (``int =
    1.5``).
    """

    column: str
    values: frozenset[Any]
    has_null: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; null stays null."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two or more parts."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two or more parts."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that is not decided here: it may be true, false or null for any row.

    :param text: its SQL, for people.
    :param columns: the table's columns in it.
    :param reason: why it was not understood.
    :param whole: it is about rows as a whole (``hash(*)``), so it means what it says only where the table's columns,
        and no others, stand in their declared order.
    """

    text: str
    columns: frozenset[str]
    reason: str
    whole: bool = False


Predicate = Fixed | Comparison | In | IsNull | Not | And | Or | Opaque


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """All nodes, parents before their parts."""
    stack = [predicate]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (And, Or)):
            stack.extend(reversed(node.parts))
        elif isinstance(node, Not):
            stack.append(node.part)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The columns that a reader needs to apply the predicate, by their names in the table."""
    found: set[str] = set()
    for node in walk(predicate):
        if isinstance(node, (Comparison, In, IsNull)):
            found.add(node.column)
        elif isinstance(node, (Fixed, Opaque)):
            found |= node.columns
    return frozenset(found)


def of_whole_rows(predicate: Predicate) -> bool:
    """Whether a part of the predicate is about rows as a whole; see :attr:`Opaque.whole`."""
    return any(isinstance(node, Opaque) and node.whole for node in walk(predicate))


def reasons(predicate: Predicate) -> tuple[str, ...]:
    """Why parts of the predicate cannot prune, each once, for ``explain``."""
    found = (f"{node.text}: {node.reason}" for node in walk(predicate) if isinstance(node, Opaque))
    return tuple(dict.fromkeys(found))


def less(left: Any, right: Any) -> bool:
    """``left < right`` as Spark orders values of one column: NaN is equal to itself and above every number."""
    if isinstance(left, float) and math.isnan(left):
        return False
    if isinstance(right, float) and math.isnan(right):
        return True
    return bool(left < right)
