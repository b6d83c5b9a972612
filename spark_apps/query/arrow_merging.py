"""Merges the files of one file group in Arrow: what a key's newest row says, nothing of keys whose newest word is a
tombstone.

The same rules as :mod:`spark_apps.mergetree.read`, which does it in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from spark_apps.mergetree.tree import DELETED
from spark_apps.timeline.files import DataFile

_ROW = "__index_row"
_PLACE = "__index_place"
_EMPTIED = "__index_emptied"
_NAN = "__index_nan"


class MergedFile(Protocol):
    """A file of the group."""

    @property
    def file(self) -> DataFile: ...
    @property
    def delta(self) -> bool: ...


# From a file, the columns wanted, and whether row groups without matching rows may be left out, to its rows.
Opener = Callable[[Any, Sequence[str], bool], Iterator[Any]]


def merged(
    files: Sequence[MergedFile], key: Sequence[str], ordering: str | None, tables: Opener, columns: Sequence[str]
) -> Iterator[Any]:
    """The merged rows of a group, as tables.

    :param files: in merge order. :param key: columns that tell rows apart within the group, among ``columns``.
    :param ordering: the column by which rows win across commits; without one the newest file's row does.
    """
    if ordering is None:
        return _by_commit(files, key, tables, columns)
    return _by_ordering(files, key, ordering, tables, columns)


def _by_commit(
    files: Sequence[MergedFile], key: Sequence[str], tables: Opener, columns: Sequence[str]
) -> Iterator[Any]:
    """From the newest file to the oldest: rows whose key no newer file has told of."""
    seen: Any = None
    for file in reversed(files):
        lowest = file is files[0]
        told = []
        # A key that hides rows of older files must be known, also where its own row does not match.
        for table in tables(file, columns, lowest and not file.delta):
            rows = table if seen is None else _without(table, seen, key)
            if not lowest:
                told.append(table.select(list(key)))
            yield (_alive(rows) if file.delta else rows).select(list(columns))
        if told:
            seen = _distinct(told if seen is None else [seen, *told], key)


def _by_ordering(
    files: Sequence[MergedFile], key: Sequence[str], ordering: str, tables: Opener, columns: Sequence[str]
) -> Iterator[Any]:
    """Events in the order of commits: a tombstone empties a key, a row wins if its ordering is not lower than what is
    there. Of base rows those whose key a delta tells of are events too; the others pass through."""
    import pyarrow as pa

    deltas = [_placed(table, file) for file in files if file.delta for table in tables(file, columns, False)]
    keys = _distinct([table.select(list(key)) for table in deltas], key) if deltas else None
    events = list(deltas)
    for file in files:
        if file.delta:
            continue
        for table in tables(file, columns, False):
            if keys is None:
                yield table.select(list(columns))
                continue
            yield _without(table, keys, key).select(list(columns))
            touched = _semi(table, keys, key)
            events.append(_placed(touched.append_column(DELETED, pa.nulls(touched.num_rows, pa.bool_())), file))
    if events:
        yield _winners(pa.concat_tables(events), key, ordering).select(list(columns))


def _winners(events: Any, key: Sequence[str], ordering: str) -> Any:
    """Of the rows behind a key's last tombstone the one with the highest (ordering, place)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gone = events.filter(pc.is_valid(events.column(DELETED)))
    rows = _alive(events)
    if gone.num_rows:
        last = gone.select([*key, _PLACE]).group_by(list(key), use_threads=False).aggregate([(_PLACE, "max")])
        last = last.rename_columns([_EMPTIED if name == f"{_PLACE}_max" else name for name in last.column_names])
        numbered = _numbered(rows.select([*key, _PLACE]))
        joined = numbered.join(last, keys=list(key), join_type="left outer", use_threads=False)
        emptied = joined.column(_EMPTIED)
        stands = pc.or_(pc.is_null(emptied), pc.greater_equal(joined.column(_PLACE), pc.fill_null(emptied, 0)))
        rows = _taken(rows, joined.filter(stands).column(_ROW))
    order = rows.column(ordering)
    floating = pa.types.is_floating(order.type)
    # NaN is the highest number for Spark, and no number at all for a sort by Arrow.
    is_nan = pc.fill_null(pc.is_nan(order), False) if floating else None
    ranks = {ordering: order, _PLACE: rows.column(_PLACE)}
    if is_nan is not None:
        ranks[_NAN] = pc.cast(is_nan, pa.int8())
    by = [(name, "descending") for name in ((_NAN, ordering, _PLACE) if floating else (ordering, _PLACE))]
    rows = rows.take(pc.sort_indices(pa.table(ranks), sort_keys=by))
    first = _numbered(rows.select(list(key))).group_by(list(key), use_threads=False).aggregate([(_ROW, "min")])
    return _taken(rows, first.column(f"{_ROW}_min"))


def _alive(table: Any) -> Any:
    import pyarrow.compute as pc

    return table.filter(pc.is_null(table.column(DELETED)))


def _placed(table: Any, file: MergedFile) -> Any:
    import pyarrow as pa

    return table.append_column(_PLACE, pa.repeat(pa.scalar(file.file.place, pa.int64()), table.num_rows))


def _distinct(tables: Sequence[Any], key: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables).group_by(list(key), use_threads=False).aggregate([]).select(list(key))


def _numbered(table: Any) -> Any:
    import pyarrow as pa

    return table.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))


def _without(table: Any, keys: Any, key: Sequence[str]) -> Any:
    return _kept(table, keys, key, "left anti")


def _semi(table: Any, keys: Any, key: Sequence[str]) -> Any:
    return _kept(table, keys, key, "left semi")


def _kept(table: Any, keys: Any, key: Sequence[str], how: str) -> Any:
    """Only keys are joined: a join cannot carry every type along."""
    joined = _numbered(table.select(list(key))).join(keys, keys=list(key), join_type=how, use_threads=False)
    return _taken(table, joined.column(_ROW))


def _taken(table: Any, rows: Any) -> Any:
    import pyarrow.compute as pc

    return table.take(rows.take(pc.sort_indices(rows)))
