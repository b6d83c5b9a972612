"""The columns that an index carries beside those it is looked up by, and how they change.

Follows Hyperspace's proposal (variable schema for included columns).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_apps.storage.errors import InvalidInput

EXCLUDED = "excluded"
"""Index property: JSON list of the partition columns that an index does not hold although it has lineage."""


@dataclass(frozen=True)
class IncludedColumns:
    """Columns to include and columns to leave out, by name (case does not matter).

    In ``create_index``: ``include=[…]`` these columns (``include=[]`` none); ``exclude=[…]`` all columns but these (an
    explicit ``exclude=[]`` all); neither: none. With both, ``include`` names the columns, and ``exclude`` can only
    keep partition columns out. In ``refresh_index``: the columns to add, and those to remove.

    :raises InvalidInput: if a column is in both, or a list is a string.
    """

    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name, names in (("include", self.include), ("exclude", self.exclude)):
            if isinstance(names, str):
                raise InvalidInput(f"{name!r} is the string {names!r}.", hint="Give a list of names.")
        contradictory = intersect_names(self.added, self.removed)
        if contradictory:
            raise InvalidInput(
                f"The column {contradictory[0]!r} is both to be included and to be excluded.", hint="Name it once."
            )

    @classmethod
    def given(cls, given_columns: IncludedColumns | Iterable[str] | None) -> IncludedColumns | None:
        """Return what a caller gave as an instance: a list of names is what to include.

        :param given_columns: what the caller gave.
        :raises InvalidInput: if it is a string.
        """
        if given_columns is None or isinstance(given_columns, IncludedColumns):
            return given_columns
        return cls(include=given_columns if isinstance(given_columns, str) else list(given_columns))

    @property
    def added(self) -> tuple[str, ...]:
        return tuple(self.include or ())

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(self.exclude or ())

    def of(self, columns: Sequence[str], indexed: Sequence[str]) -> tuple[str, ...]:
        """Return the included columns of a new index on a table with these columns.

        :raises InvalidInput: if an indexed column is included or excluded, or the table does not have a column.
        """
        refuse_indexed((*self.added, *self.removed), indexed)
        unknown = [name for name in self.removed if not intersect_names([name], columns)]
        if unknown:
            raise InvalidInput(
                f"The column {unknown[0]!r} is to be excluded, and the table lacks it.",
                hint=f"Its columns are: {', '.join(columns)}.",
            )
        all_others = bool(self.exclude) or (self.include is None and self.exclude is not None)
        if self.added or not all_others:
            return self.added
        return tuple(name for name in columns if not intersect_names([name], (*self.removed, *indexed)))


def refuse_indexed(names: Iterable[str], indexed: Sequence[str]) -> None:
    """Refuse an indexed column among the names.

    :raises InvalidInput: if an indexed column is among the names.
    """
    conflicting = intersect_names(names, indexed)
    if conflicting:
        raise InvalidInput(
            f"The column {conflicting[0]!r} is an indexed column; these are always held and never change.",
            hint="Leave it out of include and exclude; for other indexed columns create another index.",
        )


def intersect_names(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return those of some names that are among others, whatever their case."""
    lowered = {name.lower() for name in others}
    return [name for name in names if isinstance(name, str) and name.lower() in lowered]
