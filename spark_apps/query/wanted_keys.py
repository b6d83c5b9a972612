"""Record keys whose rows are wanted, searched for in columns that were read of a file.

Keys and columns are compared as whole Arrow columns, in the form of :mod:`spark_apps.indexes.keyed.matching`; no Python
object is made of a row. Nothing is presumed of the order of the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from spark_apps.indexes.keyed.matching import FixedWidth, keys_to_arrow, kinds_of, normalize_column
from spark_apps.layout.hashing import DEFAULT_HASH, buckets_of_columns
from spark_apps.layout.types import ColumnType
from spark_apps.mergetree.tree import Tree
from spark_apps.query.limits import MAX_BOUNDED_KEYS, MAX_KEYS_PER_BUCKET, MAX_UNSORTED_KEYS
from spark_apps.query.planning import ReadPlan
from spark_apps.storage.arrow_keys import positions_of_keys
from spark_apps.storage.parquet.statistics import Bounds
from spark_apps.timeline.files import GroupKey

_BOUNDED = ("string", "tinyint", "smallint", "int", "bigint", "date")
"""Types of which a page's bounds are compared with keys, as Python values."""


class WantedKeys:
    """Some record keys.

    :param columns: name -> Arrow array, of the key's columns in order, in the form in which keys are compared; without
        nulls, or rows of such a key are not found. :param kinds: their types.
    """

    def __init__(self, columns: Mapping[str, Any], kinds: Sequence[ColumnType]) -> None:
        self._columns = dict(columns)
        self._kinds = tuple(kinds)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the record key."""
        return tuple(self._columns)

    def positions(self, rows: Any) -> Any:
        """Return the positions of the rows of an Arrow table that have one of the keys, as a numpy array, ascending.

        :param rows: with the columns of the key.
        """
        import numpy as np
        import pyarrow as pa

        columns = [
            normalize_column(rows.column(name), kind) for name, kind in zip(self.names, self._kinds, strict=True)
        ]
        if len(columns) > 1:
            names = list(self.names)
            return positions_of_keys(pa.table(columns, names=names), self._whole, names)
        if len(self) > MAX_UNSORTED_KEYS and (searched := self._searched) is not None:
            positions = searched.rows_among(columns[0])
            if positions is not None:
                return positions
        return np.flatnonzero(self._is_in(columns[0]))

    def _is_in(self, column: Any) -> Any:
        import pyarrow.compute as pc

        [keys] = self._columns.values()
        return pc.is_in(column, value_set=keys, skip_nulls=True).to_numpy(zero_copy_only=False)

    @cached_property
    def _whole(self) -> Any:
        import pyarrow as pa

        return pa.table(self._columns).drop_null()

    @cached_property
    def _searched(self) -> FixedWidth | None:
        [keys] = self._columns.values()
        return FixedWidth.of(keys, self._kinds[0])

    def may_be_within(self, bounds: Bounds) -> bool:
        """Tell whether a row can have one of the keys whose key column, if it is one, has a value within bounds."""
        values = self._values
        if values is None:
            return True
        if bounds.only_nulls or not values:
            return False
        if len(self) > MAX_BOUNDED_KEYS:  # of these only the least and the highest are known
            return bool(values[0] <= bounds.high and bounds.low <= values[-1])
        index = bisect_left(values, bounds.low)
        return index < len(values) and bool(values[index] <= bounds.high)

    @property
    def rules_pages_out(self) -> bool:
        """True if :meth:`may_be_within` can be false."""
        return self._values is not None

    @cached_property
    def _values(self) -> list[Any] | None:
        """The keys as Python values in order, of many the least and the highest; ``None`` where none is compared."""
        import pyarrow.compute as pc

        if len(self._columns) > 1 or self._kinds[0].kind not in _BOUNDED:
            return None
        [keys] = self._columns.values()
        try:
            values = list(pc.min_max(keys).as_py().values()) if len(self) > MAX_BOUNDED_KEYS else keys.to_pylist()
            return sorted(value for value in values if value is not None)
        except (OverflowError, ValueError):  # a day or a text that Python does not know
            return None

    def by_bucket(self, tree: Tree, buckets: int) -> dict[str, WantedKeys] | None:
        """Return the keys that each bucket of a partition can hold; ``None`` where that is not computed.

        :param tree: the table's own.
        """
        import numpy as np

        if tree.by_id or tree.hash_function != DEFAULT_HASH:
            return None
        kinds = dict(zip(self.names, self._kinds, strict=True))
        columns = [self._columns[name] for name in tree.hash_fields]
        numbers = buckets_of_columns(columns, [kinds[name] for name in tree.hash_fields], buckets)
        if numbers is None:
            return None
        order = np.argsort(numbers, kind="stable")
        each = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        return {
            str(numbers[rows[0]]): WantedKeys(
                {name: column.take(rows) for name, column in self._columns.items()}, self._kinds
            )
            for rows in each
            if len(rows)
        }


def keys_by_group(plan: ReadPlan, wanted: WantedKeys) -> dict[GroupKey, WantedKeys]:
    """Return which of some record keys each file group of a plan can hold; a group that can hold none is left out."""
    tree, partitions = plan.snapshot.data, plan.snapshot.state.partitions
    kinds = kinds_of(tree, tree.key)
    by_buckets: dict[int, dict[str, WantedKeys] | None] = {}
    found: dict[GroupKey, WantedKeys] = {}
    for group, known in plan.groups.items():
        if known is not None:
            columns = keys_to_arrow(tree, known, tree.key)
            found[group] = WantedKeys({name: columns.column(name).combine_chunks() for name in tree.key}, kinds)
            continue
        buckets = partitions[group[0]].buckets or 1
        if buckets not in by_buckets:
            is_worth = buckets > 1 and len(wanted) < MAX_KEYS_PER_BUCKET * buckets
            by_buckets[buckets] = wanted.by_bucket(tree, buckets) if is_worth else None
        of_bucket = by_buckets[buckets]
        if of_bucket is None:
            found[group] = wanted
        elif group[1] in of_bucket:
            found[group] = of_bucket[group[1]]
    return found
