"""Reads file groups of a tree, merged: what a key's newest row says, and nothing of keys whose newest word is
a tombstone.

Groups that need no merging are scanned as they are. Where deltas lie over a file, that file loses the deltas'
keys by an anti-join, or the rows that the deltas tell by their positions; a window runs over these deltas only, and
only where a group has several. Files are named one by one, with the schema given, so nothing is inferred, listed or
merged by Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.mergetree.foreign import is_foreign, read_foreign
from spark_apps.mergetree.intact import check_intact
from spark_apps.mergetree.opening import READ_OPTIONS, listed_here, literal
from spark_apps.mergetree.positions import is_hidden, is_whole, positioned, standing
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.telling import told_of
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, ROW, FileGroups, Snapshot, Tree
from spark_apps.timeline.files import DataFile, is_merged, lowest

PLACE = "__index_place"
"""Column with the place of a row's file in the merge order; files do not hold it."""

_RANK = "__index_rank"
_HASH = "__index_hash"
_EMPTIED = "__index_emptied"

_BROADCAST_ROWS = 300_000
"""Up to so many keys are broadcast whatever Spark thinks of their size: it does not know how few rows a
footer states."""

_BROADCAST_SHARE, _KEY_BYTES = 0.1, 160
"""More keys, if they take no more than this share of the driver's memory, in which they pass; a key takes about so many
bytes there."""

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# Values of these types that Spark takes for equal have one hash; of floating ones 0.0 and -0.0 have two.
_HASHED = (
    T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BooleanType,
    T.BinaryType, T.DecimalType,
)  # fmt: skip


def scan(
    snapshot: Snapshot,
    tree: Tree,
    groups: FileGroups,
    columns: Sequence[str] | None = None,
    *,
    tombstones: bool = False,
) -> DataFrame:
    """The rows of file groups, merged.

    :param groups: (partition, group) -> its files in merge order: all of them, or the deltas above some
        place.
    :param columns: which columns, in this order; all by default. With
        :data:`~spark_apps.mergetree.tree.GROUP_ID` among them rows tell their file group.
    :param tombstones: whether keys whose newest word is a tombstone come too, told by
        :data:`~spark_apps.mergetree.tree.DELETED`. (With ``merge_by`` "ordering" a tombstone may be followed
            by a row.)
    :raises ObjectNotFound: if a file is gone, naming it.
    """
    wanted = list(tree.columns if columns is None else columns)
    plain, merged = _apart(groups)
    shown = [*wanted, DELETED] if tombstones else wanted
    parts = []
    if plain:
        rows = read_files(snapshot, tree, plain, wanted)
        parts.append(rows.withColumn(DELETED, F.lit(None).cast("boolean")) if tombstones else rows)
    if merged:
        ordering = tree.ordering if tree.merge_by == "ordering" else None
        needed = list(dict.fromkeys([*wanted, *names_within(tree, merged), *([] if ordering is None else [ordering])]))
        merge = _by_commit if ordering is None else _by_ordering
        parts.extend(
            (rows if tombstones else rows.where(F.col(DELETED).isNull())).select(*map(column, shown))
            for rows in merge(snapshot, tree, merged, needed)
        )
    if not parts:
        return empty(snapshot, tree, wanted, tombstones)
    return reduce(DataFrame.unionAll, parts)


def scan_keys(
    snapshot: Snapshot,
    tree: Tree,
    groups: FileGroups,
    columns: Sequence[str],
    keys: DataFrame,
    names: Sequence[str],
    key_count: int | None = None,
) -> DataFrame:
    """The rows of file groups, merged, whose key columns ``names`` are among ``keys``.

    What :func:`with_keys` gives of :func:`scan`; but files lose all other rows before they are merged, so that merging
    costs what the keys are, and not what lies in the files.
    """
    plain, merged = _apart(groups)
    needed = list(dict.fromkeys([*columns, *names, *tree.identity]))

    def chosen(rows: DataFrame) -> DataFrame:
        return with_keys(rows, keys, tree, names, key_count)

    if GROUP_ID in names or tree.merge_by == "ordering" or is_foreign(snapshot, tree) or not (plain or merged):
        return chosen(scan(snapshot, tree, groups, needed)).select(*map(column, columns))
    parts = []
    if plain:
        parts.append(read_files(snapshot, tree, plain, needed, only=chosen))
    if merged:
        every = [file for files in merged for file in files]
        events = read_files(snapshot, tree, every, needed, flag=True, place=True, only=chosen)
        parts.append(_newest(events, names_within(tree, merged)).where(F.col(DELETED).isNull()))
    return reduce(DataFrame.unionAll, [rows.select(*map(column, columns)) for rows in parts])


def _apart(groups: FileGroups) -> tuple[list[DataFile], list[Sequence[DataFile]]]:
    """The files that are read as they are, and the file groups whose files must be merged."""
    plain: list[DataFile] = []
    merged: list[Sequence[DataFile]] = []
    for files in groups.values():
        if is_merged(files):
            plain.extend(files)
        elif files:
            merged.append(files)
    return plain, merged


def _newest(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """Of rows with their places the one with the highest, of each key."""
    window = Window.partitionBy(*map(column, names)).orderBy(F.col(PLACE).desc())
    return events.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1)


def empty(snapshot: Snapshot, tree: Tree, columns: Sequence[str], tombstones: bool = False) -> DataFrame:
    """No rows, with these columns of the tree."""
    named = [column(tree.stored(name)).alias(name) for name in columns] + ([column(DELETED)] if tombstones else [])
    return snapshot.spark.createDataFrame([], _schema(tree, columns, tombstones)).select(*named)


def read_files(
    snapshot: Snapshot,
    tree: Tree,
    files: Iterable[DataFile],
    columns: Sequence[str],
    *,
    flag: bool = False,
    place: bool = False,
    row: bool = False,
    only: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """The rows of files as they lie there, unmerged.

    :param flag: add the column that tells tombstones.
    :param place: add the place of a row's file in the merge order.
    :param row: add :data:`~spark_apps.mergetree.tree.LINEAGE` and :data:`~spark_apps.mergetree.tree.ROW`.
    :param only: drops rows by their stored columns, before more is found out about them.
    :raises ObjectNotFound: if a file is gone. :raises StorageError: if one has another size than the log says.
    """
    files = list(files)
    if is_foreign(snapshot, tree):
        return read_foreign(snapshot, tree, files, columns)
    check_intact(snapshot, tree, files)
    paths = literal(snapshot.store.spark_path(file.path) for file in files)
    stored = [name for name in columns if name in tree.columns]
    reader = snapshot.spark.read.schema(_schema(tree, stored, flag)).options(**READ_OPTIONS)
    with listed_here(snapshot.spark, paths):
        rows = reader.parquet(*paths)
    told: dict[str, tuple[str, list[Any]]] = {}
    if len(stored) < len(columns):
        told[GROUP_ID] = ("string", [file.group for file in files])
    if place:
        told[PLACE] = ("bigint", [file.place for file in files])
    if row:
        told[LINEAGE] = ("bigint", [file.lineage for file in files])
    if not told and not tree.stored_names:
        return rows if only is None else only(rows)
    named = [column(tree.stored(name)).alias(name) for name in stored] + ([column(DELETED)] if flag else [])
    named += [F.col("_metadata.row_index").alias(ROW)] if row else []
    shown = [*columns, *([DELETED] if flag else []), *([PLACE] if place else []), *([LINEAGE, ROW] if row else [])]
    return told_of(snapshot, rows, named, files, told, only or (lambda frame: frame)).select(*map(column, shown))


def same_key(left: DataFrame, right: DataFrame, tree: Tree, names: Sequence[str], renamed: str = "") -> Column:
    """The condition that two frames' key columns are equal, null with null. ``renamed`` prefixes the right
    ones."""
    found = []
    for name in names:
        one, other = left[f"`{name}`"], right[f"`{renamed}{name}`"]
        nullable = name in tree.columns and tree.field(name).nullable
        found.append(one.eqNullSafe(other) if nullable else one == other)
    return reduce(Column.__and__, found)


def with_keys(
    rows: DataFrame,
    keys: DataFrame,
    tree: Tree,
    names: Sequence[str],
    key_count: int | None = None,
    *,
    without: bool = False,
) -> DataFrame:
    """The rows whose key columns ``names`` are (or, ``without``, are not) among ``keys``.

    :param key_count: how many rows ``keys`` has at most, if known; few are broadcast.
    """
    right = keys.select(*[column(name).alias(f"__index_k_{name}") for name in names])
    condition = same_key(rows, right, tree, names, "__index_k_")
    if key_count is not None and key_count <= broadcast_rows(rows.sparkSession):
        if _hashable(rows, right, names):
            right = right.withColumn(_HASH, F.xxhash64(*[column(f"__index_k_{name}") for name in names]))
            condition = _same_by_hash(rows, right, names)
        right = F.broadcast(right)
    return rows.join(right, condition, "left_anti" if without else "left_semi")


def broadcast_rows(spark: SparkSession) -> int:
    """How many keys are broadcast at most, by the memory of the driver."""
    told = str(spark.conf.get("spark.driver.memory", "1g")).strip().lower().removesuffix("b")
    number, unit = (told[:-1], told[-1]) if told[-1:] in _UNITS else (told, "m")
    memory = int(number) * _UNITS[unit] if number.isdecimal() else 0
    return max(_BROADCAST_ROWS, int(memory * _BROADCAST_SHARE) // _KEY_BYTES)


def _hashable(left: DataFrame, right: DataFrame, names: Sequence[str]) -> bool:
    """Whether equal keys of both frames have equal hashes, and a hash is less to compare than the key."""
    kinds = [(left.schema[name].dataType, right.schema[f"__index_k_{name}"].dataType) for name in names]
    if any(one != other or not (type(one) in _HASHED or one == T.StringType()) for one, other in kinds):
        return False
    return len(kinds) > 1 or not isinstance(kinds[0][0], (*_HASHED[:5], T.BooleanType))


def _same_by_hash(left: DataFrame, right: DataFrame, names: Sequence[str]) -> Column:
    """The condition that keys are equal, null with null, in a form by which Spark joins on the hash alone, a number,
    which it finds several times as fast, and compares the keys where that is the same."""
    alike = [F.xxhash64(*[left[f"`{name}`"] for name in names]) == right[_HASH]]
    for name in names:
        one, other = left[f"`{name}`"], right[f"`__index_k_{name}`"]
        alike.append(F.coalesce((one >= other) & (one <= other), one.isNull() & other.isNull()))
    return reduce(Column.__and__, alike)


def names_within(tree: Tree, groups: Sequence[Sequence[DataFile]]) -> tuple[str, ...]:
    """The columns that tell keys apart within these groups: in one partition its columns say nothing."""
    names = tree.identity if len({files[0].partition for files in groups}) > 1 else tree.key
    # A key that was deleted in one group may live on in another.
    return (*names, GROUP_ID) if tree.by_id and len(groups) > 1 else names


def _is_regular(files: Sequence[DataFile]) -> bool:
    return all(file.kind == "delta" for file in files[len(lowest(files)) :])


def _by_commit(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]], needed: Sequence[str]
) -> list[DataFrame]:
    regular = [files for files in groups if _is_regular(files)]
    placed, keyed = positioned(snapshot, tree, regular)
    # Whatever kind the lowest file is of: a file holds a key once, so it only loses those that are told of above it.
    bottom = [file for files in keyed for file in lowest(files)]
    above = [files[len(lowest(files)) :] for files in regular]
    single = [files[0] for files in above if len(files) == 1]
    # A file under a base (entries told late, of an earlier version) cannot be left to the anti-join: all are
    # events.
    irregular = [files for files in groups if not _is_regular(files)]
    several = [files for files in above if len(files) > 1] + irregular
    parts = []
    if bottom:
        rows = read_files(snapshot, tree, bottom, needed, flag=True)
        over = [file for files in keyed for file in files[len(lowest(files)) :]]
        if over:
            names = names_within(tree, regular)
            keys = read_files(snapshot, tree, over, names)
            rows = with_keys(rows, keys, tree, names, sum(file.rows for file in over), without=True)
        parts.append(rows)
    parts.extend(_by_positions(snapshot, tree, placed, needed))
    if single:
        parts.append(read_files(snapshot, tree, single, needed, flag=True))
    if several:
        events = read_files(
            snapshot, tree, [file for files in several for file in files], needed, flag=True, place=True
        )
        parts.append(_newest(events, names_within(tree, several)))
    return parts


def _by_positions(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]], needed: Sequence[str]
) -> list[DataFrame]:
    """The rows of the lowest files of groups, without those that the deltas over them replace or delete."""
    whole = [files[0] for files in groups if is_whole(files)]
    partly = [files for files in groups if not is_whole(files) and not is_hidden(files)]
    parts = [read_files(snapshot, tree, whole, needed, flag=True)] if whole else []
    if partly:
        rows = read_files(snapshot, tree, [files[0] for files in partly], needed, flag=True, row=True)
        parts.append(standing(snapshot, rows, partly).drop(LINEAGE, ROW))
    return parts


def _by_ordering(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]], needed: Sequence[str]
) -> list[DataFrame]:
    """Events in the order of commits: a tombstone empties a key; a row wins if its ordering is not lower than
    what is there.

    So of the rows behind a key's last tombstone the one with the highest (ordering, place) stands. A row and
    a tombstone of one place come from a fold of deltas, where the row is the later one.
    """
    assert tree.ordering is not None
    names = names_within(tree, groups)
    bases = [file for files in groups for file in files if file.kind == "base"]
    deltas = [file for files in groups for file in files if file.kind == "delta"]
    events = read_files(snapshot, tree, deltas, needed, flag=True, place=True)
    parts = []
    if bases:
        keys = read_files(snapshot, tree, deltas, names)
        count = sum(file.rows for file in deltas)
        rows = read_files(snapshot, tree, bases, needed, flag=True)
        parts.append(with_keys(rows, keys, tree, names, count, without=True))
        bases_placed = read_files(snapshot, tree, bases, needed, flag=True, place=True)
        touched = with_keys(bases_placed, keys, tree, names, count)
        events = events.unionByName(touched)
    key = Window.partitionBy(*map(column, names))
    best = Window.partitionBy(*map(column, names), F.col(DELETED)).orderBy(
        column(tree.ordering).desc_nulls_last(), F.col(PLACE).desc()
    )
    emptied = F.max(F.when(F.col(DELETED), F.col(PLACE)))
    stands = F.col(DELETED).isNotNull() | F.col(_EMPTIED).isNull() | (F.col(PLACE) >= F.col(_EMPTIED))
    events = events.withColumn(_EMPTIED, emptied.over(key)).where(stands)
    parts.append(events.withColumn(_RANK, F.row_number().over(best)).where(F.col(_RANK) == 1))
    return parts


def _schema(tree: Tree, columns: Sequence[str], flag: bool) -> T.StructType:
    fields = [
        T.StructField(tree.stored(name), tree.field(name).dataType if name in tree.columns else T.StringType(), True)
        for name in columns
    ]
    return T.StructType([*fields, T.StructField(DELETED, T.BooleanType(), True)] if flag else fields)
