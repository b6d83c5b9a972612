"""Rows of Arrow tables found by their keys, where a null equals a null, as Spark's ``<=>`` has it.

Arrow's own joins match no null with another, so a key of which a part is null would never be found by them. All joins
of Arrow tables are made of :func:`match_keys`; nothing is presumed of the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def match_keys(rows: Sequence[Any], keys: Sequence[Any]) -> Any:
    """Return for each row the number of its key, as a numpy array; -1 where its key is none of those given.

    :param rows: columns of the key, Arrow arrays of any number of chunks.
    :param keys: the same columns of the keys that are looked for. Equal keys have one number.
    """
    return _matched(rows, keys)[0]


def last_matches(rows: Sequence[Any], keys: Sequence[Any]) -> Any:
    """Return for each row the position of the last of some keys that equals its own, as a numpy array; -1 for none."""
    import numpy as np

    row_numbers, key_numbers = _matched(rows, keys)
    if not len(key_numbers):
        return row_numbers
    positions = np.zeros(int(key_numbers.max()) + 1, np.int64)
    positions[key_numbers] = np.arange(len(key_numbers))
    return np.where(row_numbers < 0, -1, positions[row_numbers])


def rows_with_keys(rows: Any, keys: Any, names: Sequence[str]) -> Any:
    """Return the rows of an Arrow table whose key is among those of another, in their order."""
    return rows.take(positions_of_keys(rows, keys, names))


def rows_without_keys(rows: Any, keys: Any, names: Sequence[str]) -> Any:
    """Return the rows of an Arrow table whose key is not among those of another, in their order."""
    import numpy as np

    return rows.take(np.flatnonzero(_numbers(rows, keys, names) < 0))


def positions_of_keys(rows: Any, keys: Any, names: Sequence[str]) -> Any:
    """Return the positions, ascending, of the rows of an Arrow table whose key is among those of another."""
    import numpy as np

    return np.flatnonzero(_numbers(rows, keys, names) >= 0)


def number_rows(columns: Sequence[Any]) -> Any:
    """Return a number for each row: the same for rows that are equal in all of these arrays, nulls included."""
    import numpy as np

    numbers: Any = None
    for values in columns:
        encoded = _plain(values).dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers is None:
            numbers = indices
        else:
            numbers = np.unique(numbers * len(encoded.dictionary) + indices, return_inverse=True)[1]
    return numbers


def _numbers(rows: Any, keys: Any, names: Sequence[str]) -> Any:
    return match_keys([rows.column(name) for name in names], [keys.column(name) for name in names])


def _matched(rows: Sequence[Any], keys: Sequence[Any]) -> tuple[Any, Any]:
    """Return a number for each row, -1 if no key equals its own, and the number of each key."""
    import numpy as np

    row_numbers: Any = None
    key_numbers: Any = None
    for row_values, key_values in zip(rows, keys, strict=True):
        of_rows, of_keys, distinct = _codes(_plain(row_values), _plain(key_values))
        if row_numbers is None:
            row_numbers, key_numbers = of_rows, of_keys
            continue
        pairs, key_numbers = np.unique(key_numbers * distinct + of_keys, return_inverse=True)
        pairs_of_rows = np.where((row_numbers < 0) | (of_rows < 0), -1, row_numbers * distinct + of_rows)
        if not len(pairs):
            row_numbers = np.full(len(pairs_of_rows), -1, np.int64)
            continue
        positions = np.minimum(np.searchsorted(pairs, pairs_of_rows), len(pairs) - 1)
        row_numbers = np.where(pairs[positions] == pairs_of_rows, positions, -1)
    return row_numbers, key_numbers


def _codes(rows: Any, keys: Any) -> tuple[Any, Any, int]:
    """Return a number for each value of rows (-1 if it is none of the keys'), one for each of keys, and how many."""
    import numpy as np
    import pyarrow.compute as pc

    if keys.type != rows.type:
        keys = keys.cast(rows.type)
    distinct = keys.unique()

    def codes(values: Any) -> Any:
        found = pc.index_in(values, value_set=distinct).fill_null(-1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64)

    return codes(rows), codes(keys), len(distinct)


def in_one_piece(values: Any) -> Any:
    """Return an Arrow column as one array.

    :param values: an array, or one in pieces.
    """
    import pyarrow as pa

    if not isinstance(values, pa.ChunkedArray):
        return values
    whole = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _plain(values: Any) -> Any:
    """Return values in one piece, of a type that Arrow numbers (which is no dictionary), -0.0 as 0.0, each NaN as one.

    Arrow takes two NaN of different bits for two values; Spark, which writes one for all, does not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = in_one_piece(values)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return values.cast(kind.value_type)
    if not pa.types.is_floating(kind):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), pc.add(values, pa.scalar(0.0, kind)))
