"""What a table should hold after some actions: an independent model of rows, columns and indexes.

Rows are those of :class:`tests.differential.model.RawRows`; this module adds which indexes there are, and how the
answer of a predicate is found without the code under test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.model import RawRows

Row = tuple[Any, ...]


class Impossible(Exception):
    """The action cannot be done on this state: it must have been refused."""


@dataclass
class Expected:
    """One table. ``first`` are the ids of the columns that batches have, in their order.

    :param indexes: name -> columns. :param uniques: names of those of unique keys, kept with the data.
    :param included: name -> columns carried beside, where the index has such.
    """

    rows: RawRows
    first: tuple[int, ...]
    indexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    uniques: set[str] = field(default_factory=set)
    included: dict[str, tuple[str, ...]] = field(default_factory=dict)
    properties: dict[str, dict[str, str]] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    """Partitions in which a stop-write window that is nobody's of the actions is open."""
    dropped: bool = False
    anew: bool = False

    def copy(self) -> Expected:
        return copy.deepcopy(self)

    def batch(self, rows: Iterable[Sequence[Any]]) -> list[Row]:
        """Rows as they were given to a writer that knew the first columns, in the columns of now."""
        return [
            tuple(row[self.first.index(one)] if one in self.first else None for one in self.rows.ids) for row in rows
        ]

    def check_there(self) -> None:
        if self.dropped:
            raise Impossible("the table was dropped")

    def name_of(self, column_id: int) -> str:
        """The name that a column has by now."""
        if column_id not in self.rows.ids:
            raise Impossible("the column is gone")
        return self.rows.names[self.rows.ids.index(column_id)]

    def create_index(
        self, name: str, columns: Sequence[int], included: Sequence[int] = (), unique: bool = False
    ) -> None:
        self.check_there()
        if name in self.indexes:
            raise Impossible(f"there is an index {name}")
        if unique:
            if self.uniques:
                raise Impossible("there is an index of unique keys")
            if self.rows.repeated_keys():
                raise Impossible("a key stands in several partitions")
            self.uniques.add(name)
            self.rows.unique = True
        self.indexes[name] = tuple(self.name_of(one) for one in columns)
        if included:
            self.included[name] = tuple(self.name_of(one) for one in included)

    def drop_index(self, name: str) -> None:
        self.check_index(name)
        del self.indexes[name]
        self.included.pop(name, None)
        self.properties.pop(name, None)
        self.uniques.discard(name)
        self.rows.unique = bool(self.uniques)

    def check_index(self, name: str) -> None:
        self.check_there()
        if name not in self.indexes:
            raise Impossible(f"there is no index {name}")

    def held(self) -> set[str]:
        """Columns that an index holds."""
        return {name for held in (*self.indexes.values(), *self.included.values()) for name in held}


@dataclass(frozen=True)
class PredicateProbe:
    """A predicate as text for the table, and as a function of a row for the model."""

    where: str
    matches: Callable[[dict[str, Any]], bool]


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def questions(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> list[PredicateProbe]:
    """Of each column: each value that it has or had, ranges, null; and some of several columns."""
    known_rows = list(rows)
    probes = []
    for name in names:
        values = sorted({row[name] for row in known_rows if row.get(name) is not None})
        probes += [PredicateProbe(f"`{name}` = {_literal(one)}", _equal(name, {one})) for one in values]
        probes.append(PredicateProbe(f"`{name}` IS NULL", lambda row, name=name: row[name] is None))
        if values:
            some = values[::2]
            probes.append(PredicateProbe(f"`{name}` IN ({', '.join(map(_literal, some))})", _equal(name, set(some))))
            middle = values[len(values) // 2]
            probes.append(
                PredicateProbe(
                    f"`{name}` >= {_literal(middle)}",
                    lambda row, name=name, least=middle: row[name] is not None and row[name] >= least,
                )
            )
    return probes


def _equal(name: str, values: set[Any]) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row[name] in values
