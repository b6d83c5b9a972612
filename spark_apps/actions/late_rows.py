"""Rows that come late, and the ordering of deletes, in tables that are merged by an ordering column.

A row is late if its key was deleted with an ordering that is not below its own: it is not written, whatever writes it.
Tombstones that count are in deltas, and in files beside bases (:mod:`spark_apps.timeline.tombstones`); where keys are
unique in the whole table those of all partitions count. What two writers cannot know of each other, reading decides by
the same rule (:mod:`spark_apps.mergetree.read`).

A delete that has no ordering of its own takes the highest of the rows that it removes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from spark_apps.actions.key_location import Hold, by_group, opened_file, ordering_of
from spark_apps.actions.template import Attempt
from spark_apps.actions.upsert_plan import unique_index
from spark_apps.indexes.keyed.matching import kinds_of, normalize_column
from spark_apps.layout.partitions import path_of_texts
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.read import number_rows, read_files, same_key, scan, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.times import InexactTimes, exact
from spark_apps.mergetree.tree import DELETED, FileGroups, Snapshot, Tree
from spark_apps.mergetree.write import one_per_key
from spark_apps.storage.errors import ConcurrentWrite
from spark_apps.timeline.commit import Guard
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.model import TOMBSTONES_TREE, AddFile
from spark_apps.timeline.state import State
from spark_apps.timeline.tombstones import is_ordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HIGHEST = "__index_highest"
_NUMBER = "__index_number"
_PREFIX = "__index_k_"

Counts = Mapping[tuple[str | None, ...], int]


@dataclass(frozen=True)
class TimelyRows:
    """The rows of a batch that are written.

    :param late: how many were left out. :param reduced: whether each key is there once.
    :param relies: whether tombstones have the ordering of rows, which must stay as they are until the commit.
    """

    rows: Any
    late: int = 0
    reduced: bool = False
    relies: bool = False


def tombstone_files(snapshot: Snapshot, tree: Tree, partitions: Collection[str] | None) -> list[DataFile]:
    """Return the files with orderings of deletes.

    :param partitions: paths of those where keys are looked for; ``None`` for all.
    """
    if not ordering_of(tree):
        return []
    state = snapshot.state
    files = [*state.files(TOMBSTONES_TREE), *(file for file in state.files(tree.name) if is_ordered(file))]
    return [file for file in files if partitions is None or file.partition in partitions]


def kept_in(snapshot: Snapshot, tree: Tree, partitions: Collection[str] | None) -> dict[GroupKey, list[DataFile]]:
    """Return the files that keep the orderings of deletes in partitions; of all for ``None``."""
    if not ordering_of(tree):
        return {}
    files = snapshot.state.files(TOMBSTONES_TREE)
    return by_group(file for file in files if partitions is None or file.partition in partitions)


def _partitions(snapshot: Snapshot, counts: Iterable[tuple[str | None, ...]]) -> set[str] | None:
    """Return the partitions that the keys of a batch are looked for in; ``None`` for all."""
    if unique_index(snapshot.state) is not None:
        return None
    return {path_of_texts(snapshot.table, values) for values in counts}


def _names(snapshot: Snapshot, tree: Tree) -> tuple[str, ...]:
    return tree.identity if unique_index(snapshot.state) is None else tree.key


def timely_rows(attempt: Attempt, tree: Tree, rows: DataFrame, counts: Counts, hold: Hold) -> TimelyRows:
    """Return the rows of a batch without those that are late, and with an ordering of each delete.

    :param rows: perhaps with tombstones. :param counts: as of
        :func:`~spark_apps.mergetree.write.partition_counts`.
    :param hold: keeps a frame that is read more than once.
    """
    if tree.ordering is None or not ordering_of(tree):
        return TimelyRows(rows)
    snapshot, names = attempt.snapshot, _names(attempt.snapshot, tree)
    partitions = _partitions(snapshot, counts)
    files = tombstone_files(snapshot, tree, partitions)
    deletes = DELETED in rows.columns
    if not files and not deletes:
        return TimelyRows(rows)
    attempt.phase("look for rows that come late")
    rows, relies = hold(one_per_key(rows, tree, names)), False
    if deletes and rows.where(F.col(DELETED) & column(tree.ordering).isNull()).limit(1).count():
        rows, relies = hold(_with_orderings(snapshot, tree, rows, names, partitions)), True
    if not files:
        return TimelyRows(rows, reduced=True, relies=relies)
    entries = read_files(snapshot, tree, files, [*dict.fromkeys([*names, tree.ordering])], flag=True)
    entries = entries.where(F.col(DELETED) & column(tree.ordering).isNotNull())
    late = hold(_late(tree, rows, entries, names))
    count = late.count()
    if count:
        # Where the key has a row, that is above its tombstone.
        live = with_keys(scan(snapshot, tree, _groups_in(snapshot, partitions), names), late, tree, names, count)
        late = hold(with_keys(late, live, tree, names, without=True))
        count = late.count()
    if count:
        rows = with_keys(rows, late, tree, names, count, without=True)
    return TimelyRows(rows, count, True, relies)


def _groups_in(snapshot: Snapshot, partitions: Collection[str] | None) -> FileGroups:
    groups = snapshot.groups()
    return groups if partitions is None else {key: files for key, files in groups.items() if key[0] in partitions}


def _late(tree: Tree, rows: DataFrame, entries: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the keys of the rows that are late; each key is there once. :param entries: the tombstones that count."""
    assert tree.ordering is not None
    highest = entries.groupBy(*[column(name).alias(_PREFIX + name) for name in names]).agg(
        F.max(column(tree.ordering)).alias(_HIGHEST)
    )
    if DELETED in rows.columns:
        rows = rows.where(F.col(DELETED).isNull())
    joined = rows.join(highest, same_key(rows, highest, tree, names, _PREFIX))
    late = column(tree.ordering).isNull() | (column(tree.ordering) <= F.col(_HIGHEST))
    return joined.where(late).select(*map(column, names))


def _with_orderings(
    snapshot: Snapshot, tree: Tree, rows: DataFrame, names: Sequence[str], partitions: Collection[str] | None
) -> DataFrame:
    """Return the rows of a batch, of which tombstones without an ordering have that of the rows that they remove."""
    (ordering,) = ordering_of(tree)
    without = F.col(DELETED) & column(ordering).isNull()
    stored = _orderings(snapshot, tree, _groups_in(snapshot, partitions), rows.where(without), names)
    joined = rows.join(stored, same_key(rows, stored, tree, names, _PREFIX), "left")
    taken = F.when(without, F.col(_HIGHEST)).otherwise(column(ordering))
    return joined.withColumn(ordering, taken).select(*map(column, rows.columns))


def _orderings(snapshot: Snapshot, tree: Tree, groups: FileGroups, keys: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the highest ordering of the rows of each key in some file groups; the columns of keys are prefixed."""
    assert tree.ordering is not None
    rows = scan(snapshot, tree, groups, [*dict.fromkeys([*names, tree.ordering])])
    return (
        with_keys(rows, keys, tree, names)
        .groupBy(*[column(name).alias(_PREFIX + name) for name in names])
        .agg(F.max(column(tree.ordering)).alias(_HIGHEST))
    )


def with_orderings_of_rows(snapshot: Snapshot, tree: Tree, keys: DataFrame) -> DataFrame:
    """Return keys that name rows, each with the ordering of its row; null where there is none.

    :param keys: with the columns that a tombstone must have.
    """
    assert tree.ordering is not None
    stored = _orderings(snapshot, tree, snapshot.groups(), keys, tree.tombstone_columns)
    joined = keys.join(stored, same_key(keys, stored, tree, tree.tombstone_columns, _PREFIX), "left")
    return joined.select(*map(column, tree.tombstone_columns), F.col(_HIGHEST).alias(tree.ordering))


# --- Few rows, by the driver ------------------------------------------------------------------------------------------


def is_timely(attempt: Attempt, tree: Tree, batch: Any, paths: Any) -> bool:
    """Return whether no row of a batch is late, and each delete has an ordering, so far as the driver can.

    :param batch: an Arrow table, each key once. :param paths: of the partition of each row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if tree.ordering is None or not ordering_of(tree):
        return True
    snapshot, names = attempt.snapshot, _names(attempt.snapshot, tree)
    if DELETED in batch.column_names:
        deleted = pc.fill_null(batch.column(DELETED), False)
        if pc.any(pc.and_(deleted, pc.is_null(batch.column(tree.ordering)))).as_py():
            return False
        batch = batch.filter(pc.invert(deleted))
    partitions = None if unique_index(snapshot.state) is not None else set(paths.to_pylist())
    files = tombstone_files(snapshot, tree, partitions)
    if not files or not len(batch):
        return True
    [kind] = kinds_of(tree, [tree.ordering])
    if kind.kind in ("float", "double"):  # of which Arrow orders NaN otherwise
        return False
    attempt.phase("look for rows that come late")
    try:
        return not pc.any(_late_on_driver(snapshot, tree, batch, files, names)).as_py()
    except (InexactTimes, pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False


def _late_on_driver(snapshot: Snapshot, tree: Tree, batch: Any, files: Sequence[DataFile], names: Sequence[str]) -> Any:
    """Return which rows of a batch have an ordering that is not above that of a tombstone of their key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assert tree.ordering is not None
    columns = [*dict.fromkeys([*names, tree.ordering])]
    kinds = dict(zip(columns, kinds_of(tree, columns), strict=True))
    check_intact(snapshot, tree, files)
    parts = [_normalized(batch, columns, kinds)]
    for file in files:
        with opened_file(snapshot, file) as opened:
            read = opened.read([*(tree.stored(name) for name in columns), DELETED], use_threads=False)
        gone = pc.fill_null(read.column(DELETED), False)
        read = read.filter(pc.and_(gone, pc.is_valid(read.column(tree.stored(tree.ordering)))))
        arrays = [exact(tree, name, read.column(tree.stored(name))) for name in columns]
        parts.append(_normalized(pa.table(arrays, names=columns), columns, kinds))
    together = pa.concat_tables(parts).combine_chunks()
    numbers = pa.array(number_rows([together.column(name).combine_chunks() for name in names]), pa.int64())
    orderings = together.column(tree.ordering)
    stored = pa.table({_NUMBER: numbers[len(batch) :], _HIGHEST: orderings[len(batch) :]})
    highest = stored.group_by(_NUMBER, use_threads=False).aggregate([(_HIGHEST, "max")])
    own = pc.index_in(numbers[: len(batch)], value_set=highest.column(_NUMBER).combine_chunks())
    of_key = highest.column(f"{_HIGHEST}_max").take(own)
    ordering = orderings[: len(batch)]
    below = pc.or_(pc.is_null(ordering), pc.fill_null(pc.less_equal(ordering, of_key), False))
    return pc.and_(pc.is_valid(of_key), below)


def _normalized(rows: Any, columns: Sequence[str], kinds: Mapping[str, Any]) -> Any:
    import pyarrow as pa

    return pa.table([normalize_column(rows.column(name), kinds[name]) for name in columns], names=list(columns))


# --- Until the commit -------------------------------------------------------------------------------------------------


def guard_of_late(base: State, tree: Tree, staged: Sequence[AddFile]) -> Guard | None:
    """Return a check that no delete is folded away unseen under rows that would be read as they are.

    A file group that a compaction left without rows, but with the orderings of deletes, has nothing that is merged: who
    writes into it must have seen them.
    """
    groups = {action.group_key for action in staged if action.rows > action.tombstones}
    if not ordering_of(tree) or not groups:
        return None

    def guard(head: State) -> None:
        for key in groups:
            kept = {file.path for file in head.files(TOMBSTONES_TREE, *key)}
            if kept - {file.path for file in base.files(TOMBSTONES_TREE, *key)} and not head.files(tree.name, *key):
                raise ConcurrentWrite(
                    f"Since version {base.version}, from which this write began, all rows of the file group "
                    f"{'/'.join(key)} were deleted and folded; rows of this write may be older than that.",
                    hint="Run it again: it will leave out those that are.",
                )

    return guard
