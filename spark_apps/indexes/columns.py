"""Which columns an index carries beside those it is looked up by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class IncludedColumns:
    """Columns to include and columns to leave out, by name.

    In ``create_index`` an ``exclude`` alone means all columns but these. In ``refresh_index``: what to add, what to
    remove.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def of(self, columns: Sequence[str], indexed: Sequence[str]) -> tuple[str, ...]:
        """The included columns of a new index: of the table's ``columns``, without the ``indexed`` ones."""
        without = {name.lower() for name in (*self.exclude, *indexed)}
        wanted = self.include or (columns if self.exclude else ())
        return tuple(dict.fromkeys(name for name in wanted if name.lower() not in without))
