"""The rows of a walk's table, by the rules of the documents: what a delete remembers of its ordering, what a late row
does, what a commit of files leaves as it is.

Where the documents do not say what a row would do that arrives below some value, the key is *vague* up to that value,
and walks write no such row. Null is the lowest ordering, and a delete of rows without one leaves none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.differential.model import RawRows
from tests.spark_apps.table_model import Row

Identity = tuple[Row, Row]
Order = tuple[bool, Any]
_LOWEST: Order = (False, 0)


@dataclass
class WalkRows(RawRows):
    """Rows, and under ``merge_by="ordering"`` the orderings of deletes: ``graves``, by the place of the row."""

    graves: dict[Identity, Order] = field(default_factory=dict)
    vague: dict[Row, Order] = field(default_factory=dict)
    graves_at: dict[int, dict[Identity, Order]] = field(default_factory=dict)

    @property
    def ordered(self) -> bool:
        return self.merge_by == "ordering"

    # --- what is known of a key -----------------------------------------------------------------------------------

    def grave(self, at: Identity) -> Order | None:
        """The highest ordering of a delete that concerns a place, by the table's scope of uniqueness."""
        orders = [order for other, order in self.graves.items() if other == at or (self.unique and other[1] == at[1])]
        return max(orders, default=None)

    def is_late(self, row: Row) -> bool:
        """Whether a row is not above a delete of its key."""
        grave = self.grave(self.identity(row)) if self.ordered else None
        return grave is not None and self._order(row) <= grave

    def is_vague(self, row: Row) -> bool:
        """Whether the documents leave open what writing this row does."""
        at = self.identity(row)
        return at[1] in self.vague and self._order(row) <= self.vague[at[1]]

    def set_unique(self, unique: bool) -> None:
        """Whether keys are unique in the whole table from now on.

        If they are no more, it is open in which partition a key was deleted that was another's then.
        """
        if self.unique and not unique:
            for at, order in self.graves.items():
                self.vague[at[1]] = max(order, self.vague.get(at[1], order))
        self.unique = unique

    # --- rows -----------------------------------------------------------------------------------------------------

    def reduced(self, batch: Iterable[Row]) -> dict[Identity, Row]:
        return {self.identity(row): row for row in self._newest(batch)}

    def _newest(self, batch: Iterable[Row]) -> list[Row]:
        """One row a key: that of the highest ordering, of which a batch of a walk has no two."""
        best: dict[Any, Row] = {}
        for row in batch:
            at = self.identity(row) if not self.unique else self.identity(row)[1]
            if at not in best or self._order(row) > self._order(best[at]):
                best[at] = row
        return list(best.values())

    def upsert(self, batch: Iterable[Row], gone: Iterable[Row] = ()) -> None:
        """Write rows; those that are ``gone`` too are deletes."""
        deletes = list(gone)
        for row in self._newest(batch):
            self._arrive(row, row in deletes)

    def _arrive(self, row: Row, deleted: bool) -> None:
        at, order = self.identity(row), self._order(row)
        there = self._there(at)
        if deleted and order == _LOWEST:
            self._bury(there)  # it has no ordering of its own
            return
        if self.ordered and deleted and order == _LOWEST:
            return self._bury(there)
        if self.ordered:
            if any(order < self._order(self.rows[old]) for old in there):
                return
            if deleted:
                self._note(at, order)
            elif self.is_late(row):
                return
        for old in there:
            del self.rows[old]
        if not deleted:
            self.rows[at] = row

    def update(self, changes: Iterable[tuple[Identity, Row]]) -> None:
        """Give rows that are there other values."""
        fresh = []
        for at, row in changes:
            self.rows.pop(at, None)
            fresh.append(row)
        self.rows.update({self.identity(row): row for row in fresh})

    def delete_rows(self, identities: Iterable[Identity]) -> None:
        self._bury({there for at in identities for there in self._there(at)})

    def delete_keys(self, keys: Iterable[Row]) -> None:
        gone = set(keys)
        self._bury({at for at in self.rows if at[1] in gone})

    def _bury(self, places: Iterable[Identity]) -> None:
        """Delete rows without an ordering of the delete's own: it takes that of the row."""
        for at in places:
            self._note(at, self._order(self.rows.pop(at)))

    def _note(self, at: Identity, order: Order) -> None:
        if self.ordered and order != _LOWEST:
            self.graves[at] = max(order, self.graves.get(at, order))

    def delete_until(self, places: Iterable[Identity], until: Any) -> None:
        """Delete the rows whose ordering is not above a value, which is that of the delete."""
        for at in places:
            if self._order(self.rows[at]) <= (True, until):
                del self.rows[at]
                self._note(at, (True, until))

    # --- whole partitions, and versions ---------------------------------------------------------------------------

    def drop_partitions(self, partitions: Iterable[Row]) -> None:
        """Rows go without a trace, and the orderings of deletes stay."""
        gone = set(partitions)
        self.rows = {at: row for at, row in self.rows.items() if at[0] not in gone}

    def every_partition(self) -> set[Row]:
        return {at[0] for at in [*self.rows, *self.graves]}

    def overwrite(self, batch: Iterable[Row], partitions: Iterable[Row] | None = None) -> None:
        reduced = self.reduced(batch)
        self.drop_partitions({at[0] for at in reduced} if partitions is None else partitions)
        for at, row in reduced.items():
            if not self.is_late(row):
                for there in self._there(at):
                    del self.rows[there]
                self.rows[at] = row

    def committed(self, version: int) -> None:
        super().committed(version)
        self.graves_at[version] = dict(self.graves)

    def restore(self, version: int) -> None:
        super().restore(version)
        self.graves = dict(self.graves_at[version])
