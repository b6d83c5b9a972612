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
        for at, row in self.reduced(batch).items():
            there = self._there(at)
            if self.merge_by == "ordering" and any(self._order(row) < self._order(self.rows[old]) for old in there):
                continue
            self.delete_rows(there)
            self.rows[at] = row

    def holds_any(self, batch: Iterable[Row]) -> bool:
        return any(self._there(self.identity(row)) for row in batch)

    def delete_keys(self, keys: Iterable[Row]) -> None:
        gone = set(keys)
        self.rows = {at: row for at, row in self.rows.items() if at[1] not in gone}

    def delete_rows(self, identities: Iterable[tuple[Row, Row]]) -> None:
        for at in identities:
            for there in self._there(at):
                del self.rows[there]

    def delete_where(self, matches: Any) -> None:
        self.rows = {at: row for at, row in self.rows.items() if not matches(dict(zip(self.names, row, strict=True)))}

    def overwrite(self, batch: Iterable[Row], partitions: Iterable[Row] | None = None) -> None:
        reduced = self.reduced(batch)
        replaced = {at[0] for at in reduced} if partitions is None else set(partitions)
        self.rows = {at: row for at, row in self.rows.items() if at[0] not in replaced}
        self.delete_rows(list(reduced))
        self.rows.update(reduced)

    def committed(self, version: int) -> None:
        self.versions[version] = dict(self.rows)

    def expected(self, version: int | None = None) -> list[Row]:
        """All rows, in an order of their own."""
        return sorted((self.rows if version is None else self.versions[version]).values(), key=repr)
