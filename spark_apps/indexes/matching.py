"""Finds the rows whose key is among many wanted ones, on whole columns: no Python object is made of a row or a key.

Keys are held as Arrow columns in one form for each type of Spark. Where the looked-up column is sorted and read as a
numpy array (:mod:`spark_apps.mergetree.plain_pages`) the keys are searched for in it; else Arrow looks the rows up
among the keys. Nulls equal each other, as in merging.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from spark_apps.indexes.handler import Key
from spark_apps.indexes.ranges import Range, python_values, value_of
from spark_apps.layout.hashing_arrays import by_length
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.plain_pages import Page
from spark_apps.mergetree.tree import Tree

SORTED_KINDS = {"string", "binary", "tinyint", "smallint", "int", "bigint", "date"}
"""Types that are sorted in files as numpy sorts what :mod:`spark_apps.mergetree.plain_pages` reads of them."""

_AS_THEY_ARE = {*SORTED_KINDS, "boolean"}
_FEW = 1000
_WORD = 8


def kinds_of(tree: Tree, names: Sequence[str]) -> list[ColumnType]:
    """The types of some columns of a tree."""
    return [_kind(tree.field(name).dataType.simpleString()) for name in names]


@lru_cache(maxsize=1024)
def _kind(text: str) -> ColumnType:
    return parse_type(text)


def arrow_type(kind: ColumnType) -> Any:
    """The Arrow type in which values of a type are compared."""
    import pyarrow as pa

    simple = {
        "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "binary": pa.binary(), "boolean": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return pa.decimal128(kind.precision, kind.scale) if kind.kind == "decimal" else simple.get(kind.kind, pa.string())


def uniform(values: Any, kind: ColumnType) -> Any:
    """A column, in one piece and in the form in which values are compared.

    :raises pyarrow.ArrowInvalid: if a value does not fit the type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    wanted = arrow_type(kind)
    values = values if values.type == wanted else values.cast(wanted)
    return pc.add(values, pa.scalar(0.0, wanted)) if kind.kind in ("float", "double") else values  # -0.0 equals 0.0


def as_arrow(tree: Tree, keys: Collection[Key]) -> Any:
    """Keys, each the normalized values of the tree's ``hash_fields``, as an Arrow table."""
    import pyarrow as pa

    kinds = kinds_of(tree, tree.hash_fields)
    columns: Any = zip(*keys, strict=True) if keys else [()] * len(kinds)
    arrays = [pa.array(values, arrow_type(kind)) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(tree.hash_fields))


def as_keys(table: Any, tree: Tree, names: Sequence[str]) -> list[Key]:
    """Columns of an Arrow table as tuples of normalized values.

    :raises ValueError: :raises OverflowError: for one that Python does not know: of another year, no UTF-8.
    """
    columns = []
    for name, kind in zip(names, kinds_of(tree, names), strict=True):
        values = table.column(name).to_pylist()
        columns.append(values if kind.kind in _AS_THEY_ARE else [value_of(value, kind) for value in values])
    return list(zip(*columns, strict=True))


def numbered(columns: Sequence[Any]) -> Any:
    """A number for each row: the same for rows that are equal in all of these Arrow arrays, nulls included."""
    import numpy as np

    numbers: Any = None
    for values in columns:
        encoded = values.dictionary_encode(null_encoding="encode")
        held = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers is None:
            numbers = held
        else:
            numbers = np.unique(numbers * len(encoded.dictionary) + held, return_inverse=True)[1]
    return numbers


def last_of_each(columns: Sequence[Any]) -> Any:
    """The last row of each key, as row numbers in their order."""
    import numpy as np

    numbers = numbered(columns)
    first = np.unique(numbers[::-1], return_index=True)[1]
    return np.sort(len(numbers) - 1 - first)


class Wanted:
    """Keys to look for in the files of a tree.

    :param keys: an Arrow table with the columns ``tree.hash_fields``; one that is given twice is found once.
    """

    def __init__(self, tree: Tree, keys: Any) -> None:
        self.names = tree.hash_fields
        self.kinds = kinds_of(tree, self.names)
        self.keys = [uniform(keys.column(name), kind) for name, kind in zip(self.names, self.kinds, strict=True)]
        self._repeated = tuple(tree.key) != tuple(self.names)

    def __len__(self) -> int:
        return len(self.keys[0])

    # --- sorted columns ---------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Sorts the keys, if they can be, for threads that ask for them later."""
        _ = self.sorted if self.sortable else None

    @property
    def sortable(self) -> bool:
        """Whether the keys are of one column, which is sorted in files as numpy sorts."""
        return len(self.names) == 1 and self.kinds[0].kind in SORTED_KINDS and not self.keys[0].null_count

    @cached_property
    def sorted(self) -> dict[int, Any]:
        """Sortable keys as sorted numpy arrays, by their length in bytes (0: integers)."""
        return {width: _distinct(values) for width, (values, _) in _as_numpy(self.keys[0], self.kinds[0]).items()}

    def rows_among(self, column: Any) -> Any:
        """Numbers of the rows of a sorted Arrow column without nulls that hold one of the keys; ascending."""
        import numpy as np

        found, first = [np.empty(0, np.int64)], 0
        for chunk in column.chunks:
            for width, (values, places) in _as_numpy(uniform(chunk, self.kinds[0]), self.kinds[0]).items():
                keys = self.sorted.get(width)
                if keys is not None and len(values):
                    found.append(first + places[self._search(values, keys)])
            first += len(chunk)
        return np.sort(np.concatenate(found))

    def rows_in(self, pages: Sequence[Page]) -> Any:
        """Numbers of the rows of a row group, read as pages in their order, that hold one of the keys; ascending.

        :raises NotPlain: :raises OSError: as the pages do.
        """
        import numpy as np

        found = [np.empty(0, np.int64)]
        for page in [pages[number] for number in self._pages(pages)]:
            values = page.values
            keys = self.sorted.get(values.dtype.itemsize if values.dtype.kind == "S" else 0)
            if keys is not None:
                found.append(page.first + self._search(values, keys))
        return np.concatenate(found)

    def _pages(self, pages: Sequence[Page]) -> Sequence[int]:
        """The pages that can hold a key, ascending; all of them where it is not worth finding out."""
        import numpy as np

        if len(self) >= 8 * len(pages):
            return range(len(pages))
        if 4 * len(self) < len(pages):
            return sorted({n for keys in self.sorted.values() for key in keys for n in _of(pages, key)})
        first = np.array([page.first_value for page in pages])
        held = np.zeros(len(pages), bool)
        for keys in self.sorted.values():
            low = np.searchsorted(keys, first)
            held |= np.append(np.searchsorted(keys, first[1:], "right"), len(keys)) > low
        return np.flatnonzero(held).tolist()

    def _search(self, values: Any, keys: Any) -> Any:
        import numpy as np

        low, high = np.searchsorted(keys, values[[0, -1]])
        keys = keys[low : high + 1]
        values = np.ascontiguousarray(values)
        if not self._repeated:
            left = np.searchsorted(*(_shortened(values, keys) or (values, keys)))
            left = left[left < len(values)]  # keys are sorted: those behind the last value are the last
            return left[values[left] == keys[: len(left)]]
        left = np.searchsorted(values, keys)
        counts = np.searchsorted(values, keys, "right") - left
        starts = np.repeat(left - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        return starts + np.arange(counts.sum())

    # --- any columns ------------------------------------------------------------------------------------------

    def rows_of(self, columns: Sequence[Any]) -> Any:
        """Numbers of the rows whose values in these Arrow columns are one of the keys; ascending."""
        import numpy as np
        import pyarrow.compute as pc

        held: Any = None
        asked: Any = None
        for kind, keys, column in zip(self.kinds, self.keys, columns, strict=True):
            known = keys.unique()
            here = pc.index_in(uniform(column, kind), value_set=known).fill_null(-1).to_numpy().astype(np.int64)
            if held is None:
                held = here
                asked = pc.index_in(keys, value_set=known).to_numpy()
                continue
            there = pc.index_in(keys, value_set=known).to_numpy()
            pairs, asked = np.unique(asked * len(known) + there, return_inverse=True)
            both = np.where((held < 0) | (here < 0), -1, held * len(known) + here)
            place = np.minimum(np.searchsorted(pairs, both), len(pairs) - 1)
            held = np.where(pairs[place] == both, place, -1)
        return np.flatnonzero(held >= 0)

    # --- statistics -------------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> list[tuple[list[Any], bool] | None]:
        """For each column its distinct values, sorted, and whether there is a null; ``None`` where they are many."""
        told: list[tuple[list[Any], bool] | None] = []
        for keys, kind in zip(self.keys, self.kinds, strict=True):
            if len(keys) > _FEW or kind.kind in ("float", "double"):
                told.append(None)
                continue
            listed = {value_of(value, kind) for value in python_values(keys)}
            told.append((sorted(value for value in listed if value is not None), None in listed))
        return told

    def can_stand(self, ranges: Sequence[Range | None]) -> bool:
        """Whether rows whose columns have these ranges (``None``: anything) can hold one of the keys."""
        for values, held in zip(self._values, ranges, strict=True):
            if values is not None and held is not None and not _overlaps(*values, held):
                return False
        return True


def _overlaps(values: list[Any], null: bool, held: Range) -> bool:
    if null and held.nulls:
        return True
    if not held.values:
        return False
    place = bisect_left(values, held.low)
    return place < len(values) and bool(values[place] <= held.high)


def _as_numpy(values: Any, kind: ColumnType) -> dict[int, tuple[Any, Any]]:
    """Values of a sortable type without nulls: length in bytes (0: integers) -> numpy array of them, their places."""
    import numpy as np

    if kind.kind in ("string", "binary"):
        return by_length(values)
    numbers = values.cast("int32") if kind.kind == "date" else values
    return {0: (numbers.to_numpy().astype(np.int64), np.arange(len(values)))}


def _distinct(values: Any) -> Any:
    """The values once each, sorted. (numpy's own ``unique`` hashes strings first, and takes four times as long.)"""
    import numpy as np

    if values.dtype.kind == "S" and values.dtype.itemsize > _WORD:
        words = _words(values, 0)
        order = np.argsort(words)
        if _all_differ(words[order]):
            return values[order]
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) > 1 else values


def _shortened(values: Any, keys: Any) -> tuple[Any, Any] | None:
    """Of sorted values, and keys to search for among them, the bytes that tell the values apart, as numbers, which are
    searched in half the time; ``None`` if one word of bytes does not. A key that is not there may be found then."""
    import numpy as np

    width = values.dtype.itemsize
    if values.dtype.kind != "S" or width <= _WORD or not len(keys):
        return None
    # What the first and the last have in common, all between them do.
    first, last = values[[0, -1]].view(np.uint8).reshape(2, width)
    start = min(int((first != last).argmax()), width - _WORD)
    words = _words(values, start)
    return (words, _words(keys, start)) if _all_differ(words) else None


def _words(values: Any, start: int) -> Any:
    """Some bytes of each string as a number, which orders as they do."""
    import numpy as np

    held = np.ascontiguousarray(values)
    place = np.ndarray(len(held), ">u8", held.view(np.uint8).data, start, (held.dtype.itemsize,))
    return place.astype(np.uint64)


def _all_differ(words: Any) -> bool:
    """Whether no two of sorted numbers are equal."""
    return bool((words[1:] != words[:-1]).all())


def _of(pages: Sequence[Page], key: Any) -> Iterator[int]:
    """The pages that can hold a key: the last that begins below it, and those that begin with it."""
    place = bisect_left(pages, key, key=lambda page: page.first_value)
    yield max(place - 1, 0)
    while place < len(pages) and pages[place].first_value == key:
        yield place
        place += 1
