"""Reading file groups of a tree, merged: of each key the newest row, or none where that is a tombstone.

Groups that need no merging are scanned as they are. A file with deltas over it loses the deltas' keys by an anti-join,
or the rows that the deltas name by their positions; a window runs over these deltas only, and only where a group has
several. Files are named one by one, with the schema given, so nothing is inferred, listed or merged by Spark itself.

Positions say which rows of the file under a file group's deltas are replaced or deleted by them, one bit per row: a
reader that knows them leaves the old rows out of a scan without reading, hashing or looking up a single key. They are
beside each delta, and its entry in the log names the file that they refer to (:mod:`spark_apps.timeline.files`). They
say nothing that keys would not say. Where a delta lacks them, where they speak of a file that was replaced meanwhile,
and where they are gone or damaged, rows are merged by key as if there were none.

Arrow tables are merged as Spark merges: rows are entries of base files and delta files; a tombstone is an entry whose
column :data:`~spark_apps.mergetree.tree.DELETED` is true. Null keys equal each other.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F, SparkSession, T, Window
from spark_apps.engine.spark_utils import READ_OPTIONS, escape_globs, list_on_driver, load_files
from spark_apps.mergetree.external_files import add_file_columns, describe_scan, is_external, read_external
from spark_apps.mergetree.integrity import check_intact
from spark_apps.mergetree.limits import (
    BROADCAST_KEYS,
    BROADCAST_SHARE,
    BYTES_PER_BROADCAST_KEY,
    MAX_BROADCAST_POSITIONS_BYTES,
)
from spark_apps.mergetree.schema import column, quote, select_columns
from spark_apps.mergetree.tree import DELETED, GROUP_ID, LINEAGE, ROW, FileGroups, Snapshot, Tree
from spark_apps.storage.arrow_keys import last_matches, number_rows, rows_with_keys, rows_without_keys
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile, GroupKey, Positions, is_merged, lowest_files, positions_path
from spark_apps.timeline.model import DATA_TREE, TOMBSTONES_TREE
from spark_apps.timeline.tombstones import is_ordered

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

logger = logging.getLogger(__name__)

SEQUENCE_NUMBER = "__index_sequence_number"
"""Column with the sequence number of a row's file, by which rows of one key are merged; files do not hold it."""

_ATOMIC = re.compile(r"[a-z_]+(\(\d+(,\d+)?\))?")
"""Types whose short text means the same in SQL, but for that of a moment, which a setting may change."""

_WITH_ZONE = {"timestamp": "timestamp_ltz"}

_RANK = "__index_rank"
_HASH = "__index_hash"
_EMPTIED_AT = "__index_emptied"
_BY_COMMIT = "__index_by_commit"


_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def scan(
    snapshot: Snapshot,
    tree: Tree,
    groups: FileGroups,
    columns: Sequence[str] | None = None,
    *,
    tombstones: bool = False,
    kept: Mapping[GroupKey, Sequence[DataFile]] | None = None,
) -> DataFrame:
    """Return the rows of file groups, merged.

    ::

        scan(snapshot, snapshot.data, snapshot.groups(), ["id", "fare"])  # all live rows of the table

    :param groups: (partition, group) -> its files in merge order: all of them, or the deltas above a
        sequence number.
    :param columns: which columns, in this order; all by default. With
        :data:`~spark_apps.mergetree.tree.GROUP_ID` among them rows name their file group.
    :param tombstones: whether keys whose newest entry is a tombstone come too, marked by
        :data:`~spark_apps.mergetree.tree.DELETED`. (With ``merge_by`` "ordering" a tombstone without an ordering
        may come with a row, or another tombstone, of its key.)
    :param kept: the orderings of deletes beside these groups, if all are to be seen; by default those of keys that the
        deltas hold.
    :raises ObjectNotFound: if a file is gone, naming it.
    """
    selected = list(tree.columns if columns is None else columns)
    plain, merged = _split_unmerged(groups)
    output_columns = [*selected, DELETED] if tombstones else selected
    parts = []
    if plain:
        rows = read_files(snapshot, tree, plain, selected)
        parts.append(rows.withColumn(DELETED, F.lit(None).cast("boolean")) if tombstones else rows)
    if merged:
        ordering = tree.ordering if tree.merge_by == "ordering" else None
        needed = list(
            dict.fromkeys([*selected, *names_within(tree, merged), *([] if ordering is None else [ordering])])
        )
        parts.extend(
            (rows if tombstones else rows.where(F.col(DELETED).isNull())).select(*map(column, output_columns))
            for rows in (
                _by_commit(snapshot, tree, merged, needed)
                if ordering is None
                else _by_ordering(snapshot, tree, merged, needed, kept)
            )
        )
    if not parts:
        return empty(snapshot, tree, selected, tombstones)
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
    """Return the rows of file groups, merged, whose key columns ``names`` are among ``keys``.

    What :func:`with_keys` gives of :func:`scan`; but files lose all other rows before they are merged, so that merging
    costs by the number of keys, and not by the size of the files.

    ::

        scan_keys(snapshot, snapshot.data, snapshot.groups(), ["id", "fare"], keys, ["id"])
    """
    plain, merged = _split_unmerged(groups)
    needed = list(dict.fromkeys([*columns, *names, *tree.identity]))

    def semi_join(rows: DataFrame) -> DataFrame:
        return with_keys(rows, keys, tree, names, key_count)

    if GROUP_ID in names or tree.merge_by == "ordering" or is_external(snapshot, tree) or not (plain or merged):
        return semi_join(scan(snapshot, tree, groups, needed)).select(*map(column, columns))
    parts = []
    if plain:
        parts.append(read_files(snapshot, tree, plain, needed, only=semi_join))
    if merged:
        all_files = [file for files in merged for file in files]
        events = read_files(snapshot, tree, all_files, needed, flag=True, sequence_number=True, only=semi_join)
        parts.append(_newest_per_key(events, names_within(tree, merged)).where(F.col(DELETED).isNull()))
    return reduce(DataFrame.unionAll, [rows.select(*map(column, columns)) for rows in parts])


def _split_unmerged(groups: FileGroups) -> tuple[list[DataFile], list[Sequence[DataFile]]]:
    """Split file groups into files that are read as they are, and groups whose files must be merged."""
    plain: list[DataFile] = []
    merged: list[Sequence[DataFile]] = []
    for files in groups.values():
        if is_merged(files):
            plain.extend(files)
        elif files:
            merged.append(files)
    return plain, merged


def _newest_per_key(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """Keep of each key the row with the highest sequence number."""
    window = Window.partitionBy(*map(column, names)).orderBy(F.col(SEQUENCE_NUMBER).desc())
    return events.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1)


def empty(snapshot: Snapshot, tree: Tree, columns: Sequence[str], tombstones: bool = False) -> DataFrame:
    """Return no rows, with these columns of the tree."""
    fields = _schema(tree, columns, tombstones).fields
    names = [*columns, DELETED] if tombstones else columns
    types = [field.dataType.simpleString() for field in fields]
    if not all(map(_ATOMIC.fullmatch, types)) or "$" in "".join(names):
        rows = snapshot.spark.createDataFrame([], T.StructType(fields))
        return rows.select(*(column(field.name).alias(name) for field, name in zip(fields, names, strict=True)))
    # A quarter of the calls to the JVM, and Spark drops what is joined with rows of which it knows that there are none.
    named = [(_WITH_ZONE.get(kind, kind), quote(name)) for kind, name in zip(types, names, strict=True)]
    return snapshot.spark.sql(
        f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {name}' for kind, name in named)} WHERE false"
    )


def read_files(
    snapshot: Snapshot,
    tree: Tree,
    files: Iterable[DataFile],
    columns: Sequence[str],
    *,
    flag: bool = False,
    sequence_number: bool = False,
    row: bool = False,
    only: Callable[[DataFrame], DataFrame] | None = None,
    buckets: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the rows of files, unmerged.

    :param flag: add the column that marks tombstones.
    :param sequence_number: add :data:`SEQUENCE_NUMBER`.
    :param row: add :data:`~spark_apps.mergetree.tree.LINEAGE` and :data:`~spark_apps.mergetree.tree.ROW`.
    :param only: drops rows by their stored columns, before more columns are added.
    :param buckets: describes the files' layout to Spark, where it is to take them for buckets; see
        :func:`~spark_apps.engine.spark_utils.load_files`.
    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if one has another size than the log says.
    """
    files = list(files)
    if is_external(snapshot, tree):
        return read_external(snapshot, tree, files, columns)
    check_intact(snapshot, tree, files)
    paths = escape_globs([snapshot.store.spark_path(file.path) for file in files])
    stored = [name for name in columns if name in tree.columns]
    with list_on_driver(snapshot.spark, paths):
        scan_options = {**describe_scan(snapshot, tree, files, stored), **(buckets or {})}
        schema = _schema(tree, stored, flag)
        rows = load_files(snapshot.spark, "parquet", schema, READ_OPTIONS, paths, scan_options, written_once=True)
    file_columns: dict[str, tuple[str, list[Any]]] = {}
    if len(stored) < len(columns):
        file_columns[GROUP_ID] = ("string", [file.group for file in files])
    if sequence_number:
        file_columns[SEQUENCE_NUMBER] = ("bigint", [file.sequence_number for file in files])
    if row:
        file_columns[LINEAGE] = ("bigint", [file.lineage for file in files])
    if not file_columns and not tree.stored_names:
        return rows if only is None else only(rows)
    stored_columns = [column(tree.stored(name)).alias(name) for name in stored] + ([column(DELETED)] if flag else [])
    stored_columns += [F.col("_metadata.row_index").alias(ROW)] if row else []
    output_columns = [
        *columns,
        *([DELETED] if flag else []),
        *([SEQUENCE_NUMBER] if sequence_number else []),
        *([LINEAGE, ROW] if row else []),
    ]
    return add_file_columns(snapshot, rows, stored_columns, files, file_columns, only or (lambda frame: frame)).select(
        *map(column, output_columns)
    )


def same_key(left: DataFrame, right: DataFrame, tree: Tree, names: Sequence[str], renamed: str = "") -> Column:
    """Return the condition that two frames' key columns are equal, null with null.

    ``renamed`` is the prefix of the right ones.
    """
    conditions = []
    for name in names:
        left_column, right_column = left[quote(name)], right[quote(renamed + name)]
        nullable = name in tree.columns and tree.field(name).nullable
        conditions.append(left_column.eqNullSafe(right_column) if nullable else left_column == right_column)
    return reduce(Column.__and__, conditions)


def with_keys(
    rows: DataFrame,
    keys: DataFrame,
    tree: Tree,
    names: Sequence[str],
    key_count: int | None = None,
    *,
    without: bool = False,
) -> DataFrame:
    """Return the rows whose key columns ``names`` are (or, ``without``, are not) among ``keys``.

    ::

        with_keys(rows, keys, snapshot.data, ["id"], without=True)  # rows whose id is none of the keys

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
    """Return how many keys are broadcast at most, by the memory of the driver."""
    setting = str(spark.conf.get("spark.driver.memory", "1g")).strip().lower().removesuffix("b")
    number, unit = (setting[:-1], setting[-1]) if setting[-1:] in _UNITS else (setting, "m")
    memory = int(number) * _UNITS[unit] if number.isdecimal() else 0
    return max(BROADCAST_KEYS, int(memory * BROADCAST_SHARE) // BYTES_PER_BROADCAST_KEY)


def _hashable(left: DataFrame, right: DataFrame, names: Sequence[str]) -> bool:
    """Test whether equal keys of both frames have equal hashes, and a hash is less to compare than the key."""
    # Values of these types that Spark takes for equal have one hash; in some releases 0.0 and -0.0 have two.
    whole = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.BooleanType)
    hashed = (*whole, T.TimestampType, T.TimestampNTZType, T.BinaryType, T.DecimalType)
    kinds = [(left.schema[name].dataType, right.schema[f"__index_k_{name}"].dataType) for name in names]
    if any(
        left_type != right_type or not (type(left_type) in hashed or left_type == T.StringType())
        for left_type, right_type in kinds
    ):
        return False
    return len(kinds) > 1 or not isinstance(kinds[0][0], whole)


def _same_by_hash(left: DataFrame, right: DataFrame, names: Sequence[str]) -> Column:
    """Return the condition that keys are equal, null with null, in a form by which Spark joins on the hash alone.

    The hash is a number, which Spark finds several times as fast; keys are compared where it is the same.
    """
    conditions = [F.xxhash64(*[left[quote(name)] for name in names]) == right[_HASH]]
    for name in names:
        left_column, right_column = left[quote(name)], right[quote(f"__index_k_{name}")]
        conditions.append(
            F.coalesce(
                (left_column >= right_column) & (left_column <= right_column),
                left_column.isNull() & right_column.isNull(),
            )
        )
    return reduce(Column.__and__, conditions)


def names_within(tree: Tree, groups: Sequence[Sequence[DataFile]]) -> tuple[str, ...]:
    """Return the columns that distinguish keys within these groups.

    In one partition its columns say nothing.
    """
    names = tree.identity if len({files[0].partition for files in groups}) > 1 else tree.key
    # A key that was deleted in one group may live on in another.
    return (*names, GROUP_ID) if tree.by_id and len(groups) > 1 else names


def _has_base_lowest(files: Sequence[DataFile]) -> bool:
    return all(file.kind == "delta" for file in files[len(lowest_files(files)) :])


def _by_commit(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]], needed: Sequence[str]
) -> list[DataFrame]:
    regular = [files for files in groups if _has_base_lowest(files)]
    positioned, by_key = split_by_positions(snapshot, tree, regular)
    # Whatever kind the lowest file is of: a file holds a key once, so it only loses those of the files above it.
    bottom = [file for files in by_key for file in lowest_files(files)]
    above = [files[len(lowest_files(files)) :] for files in regular]
    single = [files[0] for files in above if len(files) == 1]
    # A file under a base (entries added late, of an earlier version) cannot be left to the anti-join: all are
    # events.
    irregular = [files for files in groups if not _has_base_lowest(files)]
    several = [files for files in above if len(files) > 1] + irregular
    parts = []
    if bottom:
        rows = read_files(snapshot, tree, bottom, needed, flag=True)
        over = [file for files in by_key for file in files[len(lowest_files(files)) :]]
        if over:
            names = names_within(tree, regular)
            keys = read_files(snapshot, tree, over, names)
            rows = with_keys(rows, keys, tree, names, sum(file.rows for file in over), without=True)
        parts.append(rows)
    parts.extend(_by_positions(snapshot, tree, positioned, needed))
    if single:
        parts.append(read_files(snapshot, tree, single, needed, flag=True))
    if several:
        events = read_files(
            snapshot, tree, [file for files in several for file in files], needed, flag=True, sequence_number=True
        )
        parts.append(_newest_per_key(events, names_within(tree, several)))
    return parts


def _by_positions(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]], needed: Sequence[str]
) -> list[DataFrame]:
    """Return the rows of the lowest files of groups, without those that the deltas over them replace or delete."""
    whole = [files[0] for files in groups if hides_nothing(files)]
    partly = [files for files in groups if not hides_nothing(files) and not hides_everything(files)]
    parts = [read_files(snapshot, tree, whole, needed, flag=True)] if whole else []
    if partly:
        rows = read_files(snapshot, tree, [files[0] for files in partly], needed, flag=True, row=True)
        parts.append(without_hidden_rows(snapshot, rows, partly).drop(LINEAGE, ROW))
    return parts


def _by_ordering(
    snapshot: Snapshot,
    tree: Tree,
    groups: Sequence[Sequence[DataFile]],
    needed: Sequence[str],
    kept: Mapping[GroupKey, Sequence[DataFile]] | None,
) -> list[DataFrame]:
    """Merge by ordering: of the rows and tombstones of a key the highest ordering wins, null is the lowest.

    Of equal ones a tombstone wins over rows, so that what it deleted stays deleted when it comes again, and the later
    of two rows. A tombstone without an ordering removes the rows that were committed before it, whatever they hold. A
    row and such a tombstone of one sequence number come from a fold of deltas, where the row is the later one.
    """
    assert tree.ordering is not None
    names = names_within(tree, groups)
    bases = [file for files in groups for file in files if file.kind == "base"]
    deltas = [file for files in groups for file in files if file.kind == "delta"]
    keys, count = read_files(snapshot, tree, deltas, names), sum(file.rows for file in deltas)
    events = _ordered_entries(snapshot, tree, deltas, needed)
    beside = kept_tombstones(snapshot, tree, (files[0].group_key for files in groups)) if kept is None else kept
    if beside:
        own = {files[0].group_key for files in groups}
        files = [file for key, files in beside.items() if key in own for file in files]
        tombstones = read_files(snapshot, tree, files, needed, flag=True, sequence_number=True)
        if kept is None:
            tombstones = with_keys(tombstones, keys, tree, names, count)
        events = events.unionByName(tombstones)
    parts = []
    if bases:
        rows = read_files(snapshot, tree, bases, needed, flag=True)
        parts.append(with_keys(rows, keys, tree, names, count, without=True))
        base_rows = read_files(snapshot, tree, bases, needed, flag=True, sequence_number=True)
        events = events.unionByName(with_keys(base_rows, keys, tree, names, count))
    # Null for a row, whose flag is.
    unordered = F.lit(True) if tree.ordering in tree.identity else column(tree.ordering).isNull()
    by_commit = F.coalesce(F.col(DELETED) & unordered, F.lit(False))
    key = Window.partitionBy(*map(column, names))
    emptied = F.max(F.when(F.col(_BY_COMMIT), F.col(SEQUENCE_NUMBER))).over(key)
    survives = F.col(DELETED).isNotNull() | F.col(_EMPTIED_AT).isNull() | (F.col(SEQUENCE_NUMBER) >= F.col(_EMPTIED_AT))
    events = events.withColumn(_BY_COMMIT, by_commit).withColumn(_EMPTIED_AT, emptied).where(survives)
    by_ordering = Window.partitionBy(*map(column, names), F.col(_BY_COMMIT)).orderBy(
        column(tree.ordering).desc_nulls_last(), F.col(DELETED).desc_nulls_last(), F.col(SEQUENCE_NUMBER).desc()
    )
    parts.append(events.withColumn(_RANK, F.row_number().over(by_ordering)).where(F.col(_RANK) == 1))
    return parts


def _ordered_entries(snapshot: Snapshot, tree: Tree, deltas: Sequence[DataFile], needed: Sequence[str]) -> DataFrame:
    """Return the entries of deltas, whose tombstones have an ordering where their file says that it counts."""
    assert tree.ordering is not None
    unordered = [file for file in deltas if file.tombstones and not is_ordered(file)]
    others = [file for file in deltas if not file.tombstones or is_ordered(file)]
    parts = [read_files(snapshot, tree, some, needed, flag=True, sequence_number=True) for some in (others, unordered)
             if some]  # fmt: skip
    if unordered and tree.ordering not in tree.identity:
        of_rows = F.when(F.col(DELETED).isNull(), column(tree.ordering))
        parts[-1] = parts[-1].withColumn(tree.ordering, of_rows)
    return reduce(DataFrame.unionByName, parts)


def kept_tombstones(snapshot: Snapshot, tree: Tree, groups: Iterable[GroupKey]) -> dict[GroupKey, list[DataFile]]:
    """Return the files with the orderings of deletes beside file groups, of groups that have such."""
    if tree.name != DATA_TREE or tree.merge_by != "ordering":
        return {}
    return snapshot.groups(TOMBSTONES_TREE, groups)


def ordered_tombstones(
    snapshot: Snapshot,
    tree: Tree,
    groups: FileGroups,
    beside: Mapping[GroupKey, Sequence[DataFile]],
    columns: Sequence[str],
) -> DataFrame:
    """Return the tombstones with an ordering that no row of their key is above.

    :param groups: (partition, group) -> its files in merge order; of those without such tombstones nothing is read.
    :param beside: the files with the orderings of deletes that are seen, beside these groups or others.
    :param columns: the column of the ordering among them.
    """
    assert tree.ordering is not None
    merged = {key: files for key, files in groups.items() if key in beside or any(map(is_ordered, files))}
    parts = [scan(snapshot, tree, merged, columns, tombstones=True, kept=beside)]
    alone = [file for key, files in beside.items() if key not in merged or is_merged(merged[key]) for file in files]
    if alone:
        parts.append(read_files(snapshot, tree, alone, columns, flag=True))
    rows = reduce(DataFrame.unionByName, parts)
    return rows.where(F.col(DELETED) & column(tree.ordering).isNotNull())


def with_kept_tombstones(snapshot: Snapshot, groups: FileGroups) -> dict[GroupKey, Sequence[DataFile]]:
    """Return file groups of the table's rows, of which those that are merged have the orderings of deletes as well.

    They are in merge order: over the base, under all deltas.
    """
    found = dict(groups)
    merged = [key for key, files in groups.items() if files and not is_merged(files)]
    for key, kept in kept_tombstones(snapshot, snapshot.data, merged).items():
        lowest = lowest_files(groups[key])
        found[key] = [*lowest, *kept, *groups[key][len(lowest) :]]
    return found


def _schema(tree: Tree, columns: Sequence[str], flag: bool) -> T.StructType:
    fields = [
        T.StructField(tree.stored(name), tree.field(name).dataType if name in tree.columns else T.StringType(), True)
        for name in columns
    ]
    return T.StructType([*fields, T.StructField(DELETED, T.BooleanType(), True)] if flag else fields)


# --- positions of replaced rows ---------------------------------------------------------------------------------------


_OVER = "over"
_WORDS = "words"
_WORD_BITS = 64


def encode_positions(over: int, rows: int, hidden: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of a file of positions.

    :param rows: of the file that they speak of.
    :param hidden: numbers of its rows, from 0.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = np.zeros(-(-rows // _WORD_BITS), np.int64)
    np.bitwise_or.at(words, hidden // _WORD_BITS, np.int64(1) << hidden % _WORD_BITS)
    table = pa.table({_OVER: pa.array([over], pa.int64()), _WORDS: pa.array([words], pa.list_(pa.int64()))})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    return sink.getvalue()


def positions_target(files: Sequence[DataFile]) -> DataFile | None:
    """Return the file of a group that positions of one more delta would refer to.

    ``None`` if a reader had no use for them. ``files`` are in merge order.
    """
    bottom = lowest_files(files)
    # An insert of a key that the file holds a tombstone of does not hide that.
    if len(bottom) != 1 or not bottom[0].lineage or bottom[0].tombstones:
        return None
    positions = [Positions.of(file) for file in files[1:] if file.kind == "delta"]
    if len(positions) < len(files) - 1 or any(p is None or p.over != bottom[0].lineage for p in positions):
        return None
    return bottom[0]


def split_by_positions(
    snapshot: Snapshot, tree: Tree, groups: Sequence[Sequence[DataFile]]
) -> tuple[list[Sequence[DataFile]], list[Sequence[DataFile]]]:
    """Split file groups into those that are read by positions, and the others."""
    candidates = [files for files in groups if len(files) > 1 and positions_target(files) is not None]
    if not candidates or sum(files[0].rows for files in candidates) > 8 * MAX_BROADCAST_POSITIONS_BYTES:
        return [], list(groups)
    try:
        check_intact(
            snapshot, tree, [_positions_file(file) for files in candidates for file in files[1:] if _bytes(file)]
        )
    except StorageError as error:
        logger.warning("Rows are merged by key, for positions cannot be read: %s", error.message)
        return [], list(groups)
    paths = {files[0].path for files in candidates}
    return candidates, [files for files in groups if files[0].path not in paths]


def hides_everything(files: Sequence[DataFile]) -> bool:
    """Test whether no row of the lowest file of a group, which has positions, is to be read."""
    return any(
        positions is not None and positions.hidden == files[0].rows for positions in map(Positions.of, files[1:])
    )


def hides_nothing(files: Sequence[DataFile]) -> bool:
    """Test whether every row of the lowest file of a group, which has positions, is to be read."""
    return not any(map(_bytes, files[1:]))


def without_hidden_rows(snapshot: Snapshot, rows: DataFrame, groups: Sequence[Sequence[DataFile]]) -> DataFrame:
    """Return the rows of the lowest files of groups without those that the deltas' positions hide.

    :param rows: with :data:`LINEAGE` and :data:`ROW`.
    :param groups: each with one hidden row at least.
    """
    several = any(sum(map(bool, map(_bytes, files[1:]))) > 1 for files in groups)
    paths = escape_globs(
        snapshot.store.spark_path(positions_path(file.path)) for files in groups for file in files[1:] if _bytes(file)
    )
    with list_on_driver(snapshot.spark, paths):
        reader = snapshot.spark.read.schema(f"{_OVER} bigint, {_WORDS} array<bigint>").options(**READ_OPTIONS)
        positions = reader.parquet(*paths)
    if several:
        both = F.aggregate(
            F.slice(F.col(_WORDS), 2, 1 << 30),
            F.get(F.col(_WORDS), F.lit(0)),
            lambda one, other: F.zip_with(one, other, lambda a, b: a.bitwiseOR(b)),
        )
        positions = positions.groupBy(_OVER).agg(F.collect_list(_WORDS).alias(_WORDS)).select(_OVER, both.alias(_WORDS))
    joined = rows.join(F.broadcast(positions), F.col(LINEAGE) == F.col(_OVER), "left")
    word = F.get(F.col(_WORDS), F.shiftright(F.col(ROW), 6).cast("int"))
    bit = F.getbit(word, F.col(ROW).bitwiseAND(F.lit(_WORD_BITS - 1)).cast("int"))
    # A row that no bit speaks of would else be left out in silence.
    stray = F.raise_error(F.lit("positions do not speak of all rows of their file")).cast("boolean")
    return select_columns(joined.where(F.coalesce(bit == 0, stray)), rows.columns)


def _bytes(file: DataFile) -> int:
    positions = Positions.of(file)
    return 0 if positions is None else positions.bytes


def _positions_file(delta: DataFile) -> DataFile:
    """Return the positions of a delta as a file whose size can be compared with the log."""
    return replace(delta, path=positions_path(delta.path), bytes=_bytes(delta))


# --- merging on the driver and in Python workers ----------------------------------------------------------------------


_ROW = "__index_row"
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
    """Return the merged rows of a file group, as tables. The lowest file passes through; those over it are held.

    :param files: in merge order.
    :param key: columns that distinguish rows within the group, among ``columns``.
    :param ordering: the column by which rows win across commits; without one the newest file's row does.
    """
    import pyarrow as pa

    lowest, deltas = files[0], files[1:]
    orders_deletes = None if ordering in key else ordering
    # A key that hides rows of older files must be known, also where its own row does not match.
    entries = [_as_entries(table, file, orders_deletes) for file in deltas for table in tables(file, columns, False)]
    keys = _distinct_keys(pa.concat_tables([table.select(list(key)) for table in entries]), key) if entries else None
    # By ordering a row of the lowest file can win, so those with a key of the files over it are entries too.
    for table in tables(lowest, columns, ordering is None):
        if keys is None:
            yield live_rows(table).select(list(columns))
            continue
        yield live_rows(rows_without_keys(table, keys, key)).select(list(columns))
        if ordering is not None:
            entries.append(_as_entries(rows_with_keys(table, keys, key), lowest, orders_deletes))
    if entries:
        yield live_rows(newest_rows(pa.concat_tables(entries), key, ordering)).select(list(columns))


def newest_rows(rows: Any, key: Sequence[str], ordering: str | None = None) -> Any:
    """Return the newest row of each key; where none decides by an ordering, its tombstone if that is newest.

    :param rows: a table in merge order.
    :param ordering: the column that decides before the merge order does.
    """
    if ordering is not None:
        return _newest_rows_by_ordering(rows, key, ordering)
    import numpy as np

    numbers = number_rows([rows.column(name) for name in key])
    last = np.unique(numbers[::-1], return_index=True)[1]
    return rows.take(np.sort(len(numbers) - 1 - last))


def live_rows(rows: Any) -> Any:
    """Return the rows of a table that are no tombstones."""
    import pyarrow.compute as pc

    if DELETED not in rows.column_names:
        return rows
    return rows.filter(pc.invert(pc.fill_null(rows.column(DELETED), False)))


def _newest_rows_by_ordering(entries: Any, key: Sequence[str], ordering: str) -> Any:
    """Return of each key the row or tombstone that wins, as :func:`_by_ordering` says."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = pc.fill_null(entries.column(DELETED), False)
    # A column that names rows orders no deletes.
    by_commit = deleted if ordering in key else pc.and_(deleted, pc.is_null(entries.column(ordering)))
    tombstones, rows = entries.filter(by_commit), entries.filter(pc.invert(by_commit))
    if tombstones.num_rows:
        tombstones = tombstones.take(pc.sort_indices(tombstones.column(SEQUENCE_NUMBER)))
        last = last_matches([rows.column(name) for name in key], [tombstones.column(name) for name in key])
        deleted_at = tombstones.column(SEQUENCE_NUMBER).to_numpy()[last]
        numbers = rows.column(SEQUENCE_NUMBER).to_numpy()
        ordered = pc.fill_null(rows.column(DELETED), False).to_numpy()
        rows = rows.take(np.flatnonzero(ordered | (last < 0) | (numbers >= deleted_at)))
    order = rows.column(ordering)
    # Of equal orderings a tombstone wins over rows, then what was committed last.
    gone = pc.cast(pc.fill_null(rows.column(DELETED), False), pa.int8())
    ranks = {ordering: order, DELETED: gone, SEQUENCE_NUMBER: rows.column(SEQUENCE_NUMBER)}
    by = [ordering, DELETED, SEQUENCE_NUMBER]
    if pa.types.is_floating(order.type):
        # NaN is the highest number for Spark, and no number at all for a sort by Arrow.
        ranks[_NAN] = pc.cast(pc.fill_null(pc.is_nan(order), False), pa.int8())
        by.insert(0, _NAN)
    rows = rows.take(pc.sort_indices(pa.table(ranks), sort_keys=[(name, "descending") for name in by]))
    grouped = _with_row_positions(rows.select(list(key))).group_by(list(key), use_threads=False)
    return _take_in_order(rows, grouped.aggregate([(_ROW, "min")]).column(f"{_ROW}_min"))


def _as_entries(rows: Any, file: Any, ordering: str | None) -> Any:
    """Return the rows of a file with its sequence number, and with the column that marks tombstones.

    Tombstones have an ordering only where their file says that it counts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if DELETED not in rows.column_names:
        rows = rows.append_column(DELETED, pa.nulls(rows.num_rows, pa.bool_()))
    elif ordering is not None and file.file.tree == DATA_TREE and not is_ordered(file.file):
        values = rows.column(ordering)
        of_rows = pc.if_else(pc.fill_null(rows.column(DELETED), False), pa.scalar(None, values.type), values)
        rows = rows.set_column(rows.column_names.index(ordering), ordering, of_rows)
    number = pa.scalar(file.file.sequence_number, pa.int64())
    return rows.append_column(SEQUENCE_NUMBER, pa.repeat(number, rows.num_rows))


def _distinct_keys(rows: Any, key: Sequence[str]) -> Any:
    return rows.group_by(list(key), use_threads=False).aggregate([]).select(list(key))


def _with_row_positions(rows: Any) -> Any:
    import pyarrow as pa

    return rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))


def _take_in_order(rows: Any, positions: Any) -> Any:
    import pyarrow.compute as pc

    return rows.take(positions.take(pc.sort_indices(positions)))
