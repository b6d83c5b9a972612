"""An independent model of a keyed table: a dict of rows, with the merging rules of the design written out
plainly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spark_apps.layout.hashing import spark_xxhash64
from spark_apps.layout.types import column_types

Row = tuple[Any, ...]


@dataclass
class Model:
    """Rows by (partition values, record key). ``names`` and ``types`` are those of the columns, in order."""

    names: list[str]
    types: list[str]
    key: list[str]
    partition_by: list[str]
    ordering: str | None = None
    merge_by: str = "commit"
    unique: bool = False
    """Whether a record key is unique in the whole table, so that rows move between partitions."""
    rows: dict[tuple[Row, Row], Row] = field(default_factory=dict)
    versions: dict[int, dict[tuple[Row, Row], Row]] = field(default_factory=dict)
    deleted: dict[tuple[Row, Row], Any] = field(default_factory=dict)
    """Merged by ordering: the highest order with which a key was deleted that no row was above since."""
    deleted_in: dict[int, dict[tuple[Row, Row], Any]] = field(default_factory=dict)
    late: int = 0
    """How many rows the last upsert or overwrite left out because of that."""

    def identity(self, row: Row) -> tuple[Row, Row]:
        return self._pick(row, self.partition_by), self._pick(row, self.key)

    def _pick(self, row: Row, names: Iterable[str]) -> Row:
        return tuple(row[self.names.index(name)] for name in names)

    def _order(self, row: Row) -> tuple[bool, Any]:
        """Sorts nulls lowest."""
        if self.ordering is None:
            return (False, 0)
        value = row[self.names.index(self.ordering)]
        return (value is not None, value if value is not None else 0)

    def _hash(self, row: Row) -> int:
        return spark_xxhash64(row, column_types(row, self.types))

    def reduced(self, batch: Iterable[Row]) -> dict[tuple[Row, Row], Row]:
        """One row a key: the highest ordering, then the highest hash over all columns."""
        best: dict[Any, Row] = {}
        for row in batch:
            at = self.identity(row)[1] if self.unique else self.identity(row)
            if at not in best or (self._order(row), self._hash(row)) > (self._order(best[at]), self._hash(best[at])):
                best[at] = row
        return {self.identity(row): row for row in best.values()}

    def _there(self, at: tuple[Row, Row]) -> list[tuple[Row, Row]]:
        """Where the key stands now."""
        return [other for other in self.rows if other == at or (self.unique and other[1] == at[1])]

    def upsert(self, batch: Iterable[Row]) -> None:
        self.late = 0
        for at, row in self.reduced(batch).items():
            there = self._there(at)
            if self.merge_by == "ordering" and any(self._order(row) < self._order(self.rows[old]) for old in there):
                continue
            if self._is_late(at, row):
                continue
            self.remove(there)
            self.rows[at] = row
            self.deleted.pop(at, None)

    def _is_late(self, at: tuple[Row, Row], row: Row) -> bool:
        deletes = [order for key, order in self.deleted.items() if key == at or (self.unique and key[1] == at[1])]
        late = any(self._order(row) <= order for order in deletes)
        self.late += late
        return late

    def remove(self, identities: Iterable[tuple[Row, Row]]) -> None:
        """Rows go without a trace: they moved, or their partition went."""
        for at in identities:
            for there in self._there(at):
                del self.rows[there]

    def delete(self, at: tuple[Row, Row], order: tuple[bool, Any] = (False, 0)) -> None:
        """A key is deleted with an order; without a value that is the highest of the rows that go."""
        there = [one for one in self._there(at) if not order[0] or self._order(self.rows[one]) <= order]
        for one in there:
            found = order if order[0] else self._order(self.rows[one])
            del self.rows[one]
            self._note(one, found)
        if order[0] and not self.unique and at not in self.rows:
            self._note(at, order)

    def delete_ahead(self, row: Row) -> None:
        """A key is deleted with the order of a row, also if it has no row yet."""
        at, order = self.identity(row), self._order(row)
        self.delete(at, order)
        if order[0] and not self._there(at):
            self._note(at, order)

    def _note(self, at: tuple[Row, Row], order: tuple[bool, Any]) -> None:
        if self.merge_by == "ordering" and order[0]:
            self.deleted[at] = max(order, self.deleted.get(at, order))

    def holds_any(self, batch: Iterable[Row]) -> bool:
        return any(self._there(self.identity(row)) for row in batch)

    def delete_keys(self, keys: Iterable[Row]) -> None:
        gone = set(keys)
        self.delete_at([at for at in self.rows if at[1] in gone])

    def delete_at(self, identities: Iterable[tuple[Row, Row]]) -> None:
        for at in identities:
            self.delete(at)

    def delete_rows(self, identities: Iterable[tuple[Row, Row]]) -> None:
        self.delete_at(identities)

    def delete_batch(self, batch: Iterable[Row]) -> None:
        """Rows are deleted by their keys, in the order that they have themselves."""
        for row in batch:
            self.delete(self.identity(row), self._order(row) if self.merge_by == "ordering" else (False, 0))

    def delete_where(self, matches: Any) -> None:
        self.delete_at([at for at, row in self.rows.items() if matches(dict(zip(self.names, row, strict=True)))])

    def overwrite(self, batch: Iterable[Row], partitions: Iterable[Row] | None = None) -> None:
        reduced = self.reduced(batch)
        replaced = {at[0] for at in reduced} if partitions is None else set(partitions)
        self.late, timely = 0, {at: row for at, row in reduced.items() if not self._is_late(at, row)}
        self.rows = {at: row for at, row in self.rows.items() if at[0] not in replaced}
        self.remove(list(timely))
        self.rows.update(timely)
        self.deleted = {at: order for at, order in self.deleted.items() if at not in timely}

    def committed(self, version: int) -> None:
        self.versions[version], self.deleted_in[version] = dict(self.rows), dict(self.deleted)

    def expected(self, version: int | None = None) -> list[Row]:
        """All rows, in an order of their own."""
        return sorted((self.rows if version is None else self.versions[version]).values(), key=repr)
