"""Merging on the driver and in Python workers: of the rows of a key the one that is newest, in Arrow tables.

Gives what :mod:`spark_apps.mergetree.read` gives with Spark. Rows are entries of base files and delta files; a
tombstone is an entry whose column :data:`~spark_apps.mergetree.tree.DELETED` is true. Null keys equal each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from spark_apps.mergetree.tree import DELETED
from spark_apps.timeline.files import DataFile

_ROW = "__index_row"
_SEQUENCE_NUMBER = "__index_sequence_number"
_DELETED_AT = "__index_deleted_at"
_NAN = "__index_nan"


class MergedFile(Protocol):
    """A file of a group."""

    @property
    def file(self) -> DataFile: ...
    @property
    def delta(self) -> bool: ...


# From a file, the columns to read, and whether row groups without matching rows may be left out, to its rows.
Opener = Callable[[Any, Sequence[str], bool], Iterator[Any]]


def merge_files(
    files: Sequence[MergedFile], key: Sequence[str], ordering: str | None, tables: Opener, columns: Sequence[str]
) -> Iterator[Any]:
    """Return the merged rows of a file group, as tables. Deltas are held in memory; the base passes through.

    :param files: in merge order.
    :param key: columns that tell rows apart within the group, among ``columns``.
    :param ordering: the column by which rows win across commits; without one the newest file's row does.
    """
    import pyarrow as pa

    base = None if files[0].delta else files[0]
    deltas = files if base is None else files[1:]
    # A key that hides rows of older files must be known, also where its own row does not match.
    entries = [_as_entries(table, file) for file in deltas for table in tables(file, columns, False)]
    keys = _distinct_keys(pa.concat_tables([table.select(list(key)) for table in entries]), key) if entries else None
    # By ordering a row of the base can win, so those with a key of the deltas are entries too.
    for table in () if base is None else tables(base, columns, ordering is None):
        if keys is None:
            yield table.select(list(columns))
            continue
        yield _join_on_keys(table, keys, key, "left anti").select(list(columns))
        if ordering is not None:
            entries.append(_as_entries(_join_on_keys(table, keys, key, "left semi"), base))
    if entries:
        yield live_rows(newest_rows(pa.concat_tables(entries), key, ordering)).select(list(columns))


def newest_rows(rows: Any, key: Sequence[str], ordering: str | None = None) -> Any:
    """Return the newest row of each key; where none decides by an ordering, its tombstone if that is newest.

    :param rows: a table in merge order.
    :param ordering: the column that decides before the merge order does, among the rows behind a key's last tombstone.
    """
    if ordering is not None:
        return _newest_rows_by_ordering(rows, key, ordering)
    import numpy as np

    numbers = number_rows([rows.column(name).combine_chunks() for name in key])
    last = np.unique(numbers[::-1], return_index=True)[1]
    return rows.take(np.sort(len(numbers) - 1 - last))


def live_rows(rows: Any) -> Any:
    """Return the rows of a table that are no tombstones."""
    import pyarrow.compute as pc

    if DELETED not in rows.column_names:
        return rows
    return rows.filter(pc.invert(pc.fill_null(rows.column(DELETED), False)))


def number_rows(columns: Sequence[Any]) -> Any:
    """Return a number for each row: the same for rows that are equal in all of these arrays, nulls included."""
    import numpy as np

    numbers: Any = None
    for values in columns:
        encoded = values.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers is None:
            numbers = indices
        else:
            numbers = np.unique(numbers * len(encoded.dictionary) + indices, return_inverse=True)[1]
    return numbers


def _newest_rows_by_ordering(entries: Any, key: Sequence[str], ordering: str) -> Any:
    """Return of the rows behind a key's last tombstone the one with the highest (ordering, sequence number)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tombstones = entries.filter(pc.fill_null(entries.column(DELETED), False))
    rows = live_rows(entries)
    if tombstones.num_rows:
        ranked = tombstones.select([*key, _SEQUENCE_NUMBER]).group_by(list(key), use_threads=False)
        last = ranked.aggregate([(_SEQUENCE_NUMBER, "max")])
        highest = f"{_SEQUENCE_NUMBER}_max"
        last = last.rename_columns([_DELETED_AT if name == highest else name for name in last.column_names])
        positions = _with_row_positions(rows.select([*key, _SEQUENCE_NUMBER]))
        joined = positions.join(last, keys=list(key), join_type="left outer", use_threads=False)
        deleted_at = joined.column(_DELETED_AT)
        later = pc.greater_equal(joined.column(_SEQUENCE_NUMBER), pc.fill_null(deleted_at, 0))
        rows = _take_in_order(rows, joined.filter(pc.or_(pc.is_null(deleted_at), later)).column(_ROW))
    order = rows.column(ordering)
    ranks = {ordering: order, _SEQUENCE_NUMBER: rows.column(_SEQUENCE_NUMBER)}
    by = [ordering, _SEQUENCE_NUMBER]
    if pa.types.is_floating(order.type):
        # NaN is the highest number for Spark, and no number at all for a sort by Arrow.
        ranks[_NAN] = pc.cast(pc.fill_null(pc.is_nan(order), False), pa.int8())
        by.insert(0, _NAN)
    rows = rows.take(pc.sort_indices(pa.table(ranks), sort_keys=[(name, "descending") for name in by]))
    grouped = _with_row_positions(rows.select(list(key))).group_by(list(key), use_threads=False)
    return _take_in_order(rows, grouped.aggregate([(_ROW, "min")]).column(f"{_ROW}_min"))


def _as_entries(rows: Any, file: Any) -> Any:
    """Return the rows of a file with its sequence number, and with the column that tells tombstones."""
    import pyarrow as pa

    if DELETED not in rows.column_names:
        rows = rows.append_column(DELETED, pa.nulls(rows.num_rows, pa.bool_()))
    number = pa.scalar(file.file.sequence_number, pa.int64())
    return rows.append_column(_SEQUENCE_NUMBER, pa.repeat(number, rows.num_rows))


def _distinct_keys(rows: Any, key: Sequence[str]) -> Any:
    return rows.group_by(list(key), use_threads=False).aggregate([]).select(list(key))


def _with_row_positions(rows: Any) -> Any:
    import pyarrow as pa

    return rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))


def _join_on_keys(rows: Any, keys: Any, key: Sequence[str], how: str) -> Any:
    """Return the rows that a join with keys keeps. Only keys are joined: a join cannot carry every type along."""
    joined = _with_row_positions(rows.select(list(key))).join(keys, keys=list(key), join_type=how, use_threads=False)
    return _take_in_order(rows, joined.column(_ROW))


def _take_in_order(rows: Any, positions: Any) -> Any:
    import pyarrow.compute as pc

    return rows.take(positions.take(pc.sort_indices(positions)))
