"""A predicate, as index handlers may ask it: they stand below this package and know nothing of its tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spark_apps.indexes.handler import CannotPrune, Key
from spark_apps.query import predicates
from spark_apps.query.predicates import KeySet, NothingMatches, Predicate, columns_of, keys_for, may_match


class PredicateQuestion:
    """See :class:`spark_apps.indexes.handler.Question`."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.columns = columns_of(predicate)

    def __str__(self) -> str:
        return str(self.predicate)

    def keys(self, columns: Sequence[str], limit: int = predicates.DEFAULT_LIMIT) -> Collection[Key] | CannotPrune:
        found = keys_for(self.predicate, columns, limit)
        if isinstance(found, KeySet):
            return found.keys
        return frozenset() if isinstance(found, NothingMatches) else CannotPrune(found.reason)

    def may_match(self, values: Mapping[str, Any]) -> bool:
        return may_match(self.predicate, values)
