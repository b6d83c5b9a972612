"""The filters of a scan, as texts that the rule gives, as one predicate of the planner's."""

from __future__ import annotations

from collections.abc import Sequence

from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.planning import filter_of, parse_for_session
from spark_apps.query.predicates import Filter
from spark_apps.storage.errors import InvalidPredicate, UnknownColumn


def predicate_of(snapshot: Snapshot, filters: Sequence[str]) -> Filter | None:
    """Return the predicate that filters are together.

    A filter that cannot be read prunes nothing. (Spark applies all of them to the rows.)
    """
    try:
        return filter_of(snapshot, joined(filters))
    except (InvalidPredicate, UnknownColumn):
        return filter_of(snapshot, joined([text for text in filters if _is_readable(snapshot, text)]))


def joined(filters: Sequence[str]) -> str | None:
    """Return filters as one text; ``None`` for none."""
    return " AND ".join(f"({text})" for text in filters) or None


def _is_readable(snapshot: Snapshot, text: str) -> bool:
    try:
        parse_for_session(snapshot, text)
    except (InvalidPredicate, UnknownColumn):
        return False
    return True
