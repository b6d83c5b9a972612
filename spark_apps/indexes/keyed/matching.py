"""Finding the rows whose key is among many given ones, on whole columns: no Python object is made of a row or a key.

Keys are held as Arrow columns in one form for each type of Spark. Where the looked-up column is sorted and read as a
numpy array (:mod:`spark_apps.storage.parquet.pages`) the keys are searched for in it; else Arrow looks the rows up
among the keys. Nulls equal each other, as in merging.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from spark_apps.indexes.handler import Key
from spark_apps.indexes.ranges import Range, python_values, value_of
from spark_apps.layout.hashing import by_length
from spark_apps.layout.types import ColumnType, arrow_type, parse_type
from spark_apps.mergetree.tree import Tree
from spark_apps.storage.arrow_keys import in_one_piece, match_keys
from spark_apps.storage.parquet.pages import Page

SORTED_KINDS = {"string", "binary", "tinyint", "smallint", "int", "bigint", "date"}
"""Types that are sorted in files as numpy sorts what :mod:`spark_apps.storage.parquet.pages` reads of them."""

_PYTHON_KINDS = {*SORTED_KINDS, "boolean"}
_MAX_VALUES_TO_COMPARE = 1000
_WORD_BYTES = 8
_MAX_ALIKE = 4
_MAX_TIES = 0.05


def kinds_of(tree: Tree, names: Sequence[str]) -> list[ColumnType]:
    """Return the types of some columns of a tree."""
    return [_kind(tree.type_of(name)) for name in names]


@lru_cache(maxsize=1024)
def _kind(text: str) -> ColumnType:
    return parse_type(text)


def comparable_type(kind: ColumnType) -> Any:
    """Return the Arrow type in which values of a type are compared: text for those that only Spark reads."""
    import pyarrow as pa

    exchanged = arrow_type(kind)
    return pa.string() if exchanged is None else exchanged


def normalize_column(values: Any, kind: ColumnType) -> Any:
    """Return a column in one piece and in the form in which values are compared.

    :raises pyarrow.ArrowInvalid: if a value does not fit the type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = in_one_piece(values)
    target = comparable_type(kind)
    values = values if values.type == target else values.cast(target)
    return pc.add(values, pa.scalar(0.0, target)) if kind.kind in ("float", "double") else values  # -0.0 equals 0.0


def keys_to_arrow(tree: Tree, keys: Collection[Key], names: Sequence[str] | None = None) -> Any:
    """Return keys, each the normalized values of some columns (the tree's ``hash_fields``), as an Arrow table."""
    import pyarrow as pa

    names = tree.hash_fields if names is None else names
    kinds = kinds_of(tree, names)
    columns: Any = zip(*keys, strict=True) if keys else [()] * len(kinds)
    arrays = [pa.array(values, comparable_type(kind)) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(names))


def keys_from_arrow(table: Any, tree: Tree, names: Sequence[str]) -> list[Key]:
    """Return columns of an Arrow table as tuples of normalized values.

    :raises ValueError: for one that Python does not know: of another year, no UTF-8.
    :raises OverflowError: for one that Python does not know: of another year, no UTF-8.
    """
    columns = []
    for name, kind in zip(names, kinds_of(tree, names), strict=True):
        values = table.column(name).to_pylist()
        columns.append(values if kind.kind in _PYTHON_KINDS else [value_of(value, kind) for value in values])
    return list(zip(*columns, strict=True))


class KeyMatcher:
    """Keys to look for in the files of a tree.

    :param keys: an Arrow table with the columns ``tree.hash_fields``; one that is given twice is found once.
    """

    def __init__(self, tree: Tree, keys: Any) -> None:
        self.names = tree.hash_fields
        self.kinds = kinds_of(tree, self.names)
        self.keys = [
            normalize_column(keys.column(name), kind) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        self._may_repeat = tuple(tree.key) != tuple(self.names)

    def __len__(self) -> int:
        return len(self.keys[0])

    # --- Sorted columns -----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Sort the keys, if they can be, for threads that use them later."""
        _ = self.sorted if self.sortable else None

    @property
    def sortable(self) -> bool:
        """True if the keys are of one column, which is sorted in files as numpy sorts."""
        return len(self.names) == 1 and self.kinds[0].kind in SORTED_KINDS and not self.keys[0].null_count

    @cached_property
    def sorted(self) -> dict[int, Any]:
        """Sortable keys as sorted numpy arrays, by their length in bytes (0: integers)."""
        return {width: _distinct(values) for width, (values, _) in _as_numpy(self.keys[0], self.kinds[0]).items()}

    def rows_among(self, column: Any) -> Any:
        """Return the row numbers of a sorted Arrow column without nulls that hold one of the keys; ascending."""
        import numpy as np

        row_numbers, offset = [np.empty(0, np.int64)], 0
        for chunk in column.chunks:
            for width, (values, positions) in _as_numpy(normalize_column(chunk, self.kinds[0]), self.kinds[0]).items():
                keys = self.sorted.get(width)
                if keys is not None and len(values):
                    row_numbers.append(offset + positions[self._search(values, keys)])
            offset += len(chunk)
        return np.sort(np.concatenate(row_numbers))

    def rows_in(self, pages: Sequence[Page]) -> Any:
        """Return the numbers of the rows of a row group, read as pages in order, that hold one of the keys; ascending.

        :raises NotPlain: as the pages do.
        :raises OSError: as the pages do.
        """
        import numpy as np

        row_numbers = [np.empty(0, np.int64)]
        for page in [pages[number] for number in self._pages(pages)]:
            values = page.values
            keys = self.sorted.get(values.dtype.itemsize if values.dtype.kind == "S" else 0)
            if keys is not None:
                row_numbers.append(page.first + self._search(values, keys))
        return np.concatenate(row_numbers)

    def _pages(self, pages: Sequence[Page]) -> Sequence[int]:
        """Return the pages that can hold a key, ascending; all of them where it is not worth finding out."""
        import numpy as np

        if len(self) >= 8 * len(pages):
            return range(len(pages))
        if 4 * len(self) < len(pages):
            return sorted({n for keys in self.sorted.values() for key in keys for n in _pages_with(pages, key)})
        first = np.array([page.first_value for page in pages])
        may_hold = np.zeros(len(pages), bool)
        for keys in self.sorted.values():
            low = np.searchsorted(keys, first)
            may_hold |= np.append(np.searchsorted(keys, first[1:], "right"), len(keys)) > low
        return np.flatnonzero(may_hold).tolist()

    def _search(self, values: Any, keys: Any) -> Any:
        import numpy as np

        low, high = np.searchsorted(keys, values[[0, -1]])
        keys = keys[low : high + 1]
        if not self._may_repeat:
            words = _as_words(values, keys)
            of_values, of_keys, alike = (values, keys, 1) if words is None else words
            first = np.searchsorted(of_values, of_keys)
            row_numbers = []
            for offset in range(alike):
                inside = first + offset < len(values)
                row_numbers.append((first + offset)[inside])
                row_numbers[-1] = row_numbers[-1][values[row_numbers[-1]] == keys[inside]]
            return row_numbers[0] if alike == 1 else np.sort(np.concatenate(row_numbers))
        values = np.ascontiguousarray(values)
        starts_at = np.searchsorted(values, keys)
        counts = np.searchsorted(values, keys, "right") - starts_at
        starts = np.repeat(starts_at - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        return starts + np.arange(counts.sum())

    # --- Any columns --------------------------------------------------------------------------------------------------

    def rows_of(self, columns: Sequence[Any]) -> Any:
        """Return the numbers of the rows whose values in these Arrow columns are one of the keys; ascending."""
        import numpy as np

        normalized = [normalize_column(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]
        return np.flatnonzero(match_keys(normalized, self.keys) >= 0)

    # --- Statistics ---------------------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> list[tuple[list[Any], bool] | None]:
        """For each column its distinct values, sorted, and whether there is a null; ``None`` where they are many."""
        values_of_columns: list[tuple[list[Any], bool] | None] = []
        for keys, kind in zip(self.keys, self.kinds, strict=True):
            if len(keys) > _MAX_VALUES_TO_COMPARE or kind.kind in ("float", "double"):
                values_of_columns.append(None)
                continue
            distinct = {value_of(value, kind) for value in python_values(keys)}
            values_of_columns.append((sorted(value for value in distinct if value is not None), None in distinct))
        return values_of_columns

    def can_occur(self, ranges: Sequence[Range | None]) -> bool:
        """Return whether rows whose columns have these ranges (``None``: anything) can hold one of the keys."""
        for values, column_range in zip(self._values, ranges, strict=True):
            if values is not None and column_range is not None and not _overlaps(*values, column_range):
                return False
        return True


class FixedWidth:
    """Keys of one column that are all integers, or strings of one length, in an order in which rows' are looked up.

    :param values: of the keys. :param words: numbers in ascending order, one a key: of strings some bytes, from
        ``start`` on. :param alike: the most keys that have the same number.
    """

    def __init__(self, kind: ColumnType, values: Any, words: Any, start: int, alike: int) -> None:
        self._kind, self._values, self._words, self._start, self._alike = kind, values, words, start, alike

    @classmethod
    def of(cls, keys: Any, kind: ColumnType) -> FixedWidth | None:
        """Return the keys of an Arrow array in this form; ``None`` if they do not fit, or too many look alike in it."""
        import numpy as np

        if kind.kind not in SORTED_KINDS or keys.null_count or not len(keys):
            return None
        by_width = _as_numpy(keys, kind)
        if len(by_width) > 1:
            return None
        [(width, (values, _))] = by_width.items()
        if values.dtype.kind != "S":
            values = np.sort(values)
            return cls(kind, values, values, 0, 1)
        if width < _WORD_BYTES:
            return None
        matrix = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
        start = min(int((matrix != matrix[0]).any(axis=0).argmax()), width - _WORD_BYTES)
        words = _words(values, start)
        order = np.argsort(words)
        words = words[order]
        alike = _most_alike(words)
        if alike is None:
            distinct = keys.unique()
            return cls.of(distinct, kind) if len(distinct) < len(keys) else None
        return cls(kind, values[order], words, start, alike)

    def rows_among(self, column: Any) -> Any:
        """Return the positions of the rows of an Arrow array that hold one of the keys; ascending.

        :returns: a numpy array; ``None`` where the column holds nulls, or strings of several lengths.
        """
        import numpy as np

        if column.null_count or not _has_one_width(column, self._kind):
            return None
        if not len(column):
            return np.empty(0, np.int64)
        [(width, (rows, _))] = _as_numpy(column, self._kind).items()
        of_text = self._values.dtype.kind == "S"
        if of_text and width != self._values.dtype.itemsize:
            return np.empty(0, np.int64)
        words = _words(rows, self._start) if of_text else rows
        last = len(self._words) - 1
        nearest = np.minimum(np.searchsorted(self._words, words), last)
        like = np.flatnonzero(self._words[nearest] == words)
        if not of_text:
            return like
        nearest, rows = nearest[like], rows[like]
        same = self._values[nearest] == rows
        for offset in range(1, self._alike):
            same |= self._values[np.minimum(nearest + offset, last)] == rows
        return like[same]


def _has_one_width(column: Any, kind: ColumnType) -> bool:
    """Return whether the values of an Arrow array without nulls, of a sortable type, all have the same length."""
    import numpy as np

    if kind.kind not in ("string", "binary") or not len(column):
        return True
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4))
    return bool((lengths == lengths[0]).all())


def _overlaps(values: list[Any], null: bool, column_range: Range) -> bool:
    if null and column_range.nulls:
        return True
    if not column_range.values:
        return False
    index = bisect_left(values, column_range.low)
    return index < len(values) and bool(values[index] <= column_range.high)


def _as_numpy(values: Any, kind: ColumnType) -> dict[int, tuple[Any, Any]]:
    """Return length in bytes (0: integers) -> numpy array of values, their positions.

    Of values of a sortable type without nulls.
    """
    import numpy as np

    if kind.kind in ("string", "binary"):
        return by_length(values)
    numbers = values.cast("int32") if kind.kind == "date" else values
    return {0: (numbers.to_numpy().astype(np.int64), np.arange(len(values)))}


def _distinct(values: Any) -> Any:
    """Return the values once each, sorted.

    Strings are sorted by their first bytes as numbers, and those alike in them once more: as strings it takes four
    times as long, and so does numpy's own ``unique``, which hashes them first.
    """
    import numpy as np

    if values.dtype.kind == "S" and values.dtype.itemsize > _WORD_BYTES:
        words = _words(values, 0)
        order = np.argsort(words)
        words, ordered = words[order], values[order]
        ties = np.flatnonzero(words[1:] == words[:-1])
        if len(ties) <= _MAX_TIES * len(values):
            tied = np.union1d(ties, ties + 1)
            ordered[tied] = np.sort(ordered[tied])
            again = 1 + ties[ordered[ties] == ordered[ties + 1]]
            return np.delete(ordered, again) if len(again) else ordered
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) > 1 else values


def _as_words(values: Any, keys: Any) -> tuple[Any, Any, int] | None:
    """Return sorted values, and sorted keys to search for among them, as numbers made of some of their bytes.

    These are searched in half the time. A key that is not there may match then. With them comes how many values have
    the same number at most; ``None`` if these are too many.
    """
    width = values.dtype.itemsize
    if values.dtype.kind != "S" or width <= _WORD_BYTES or not len(keys):
        return None
    start = _first_difference(values)
    words = _words(values, start)
    alike = _most_alike(words)
    return None if alike is None else (words, _words(keys, start), alike)


def _most_alike(words: Any) -> int | None:
    """Return how many of sorted numbers are equal at most; ``None`` if more than :data:`_MAX_ALIKE`."""
    for alike in range(1, _MAX_ALIKE + 1):
        if alike >= len(words) or not (words[alike:] == words[:-alike]).any():
            return alike
    return None


def _first_difference(values: Any) -> int:
    """Return from which byte on sorted strings of one length, of a word at least, are to be compared as words."""
    import numpy as np

    width = values.dtype.itemsize
    # What the first and the last have in common, all between them do.
    first, last = values[[0, -1]].view(np.uint8).reshape(2, width)
    return min(int((first != last).argmax()), width - _WORD_BYTES)


def _words(values: Any, start: int) -> Any:
    """Return some bytes of each string as a number, which orders as they do."""
    import numpy as np

    word: Any = {"names": ["word"], "formats": [">u8"], "offsets": [start], "itemsize": values.dtype.itemsize}
    return values.view(np.dtype(word))["word"].astype(np.uint64)


def _pages_with(pages: Sequence[Page], key: Any) -> Iterator[int]:
    """Yield the pages that can hold a key: the last that begins below it, and those that begin with it."""
    index = bisect_left(pages, key, key=lambda page: page.first_value)
    yield max(index - 1, 0)
    while index < len(pages) and pages[index].first_value == key:
        yield index
        index += 1
