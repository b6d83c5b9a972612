"""Writes rows of a tree: each to its partition and bucket, one a key, sorted, one file a file group unless told.

One shuffle and one sort serve the reduction to one row a key, the layout and the order inside the files.
Partitions are written under numbers that the driver gave them, so no value ever becomes a path; nothing
written here is visible until a commit lists it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.mergetree.counted import CountedRows
from spark_apps.mergetree.footers import fetch_footer, fetch_tail, footer_of, seal
from spark_apps.mergetree.opening import todays_calendar
from spark_apps.mergetree.placing import GROUP, PART, UNKNOWN_PARTITION, Target, placed, value_texts
from spark_apps.mergetree.schema import NULL_MARK, column
from spark_apps.mergetree.sessions import cores
from spark_apps.mergetree.tree import DELETED, Tree
from spark_apps.storage.errors import InvalidInput, InvalidSchema, StorageError
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import DATA_TREE, AddFile

_RANK = "__index_rank"
_SLOT = "__index_slot"
_WAS = "__index_was"
_ASTRAY = "[row of another task's file group]"

_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE[^\]]*\][^\n]*? file (\S[^\n]*?)\.(?:\s|$)")

_ROWS_A_TASK = 50_000
"""From so many rows a file group on, each group is a task of its own, which needs no telling of groups apart."""
_MOST_TASKS = 1_000
_FOOTER_THREADS = 8
# Small pages, so that the page index leads one key to a few KiB instead of a whole column chunk.
_PARQUET_OPTIONS = {
    "maxRecordsPerFile": "0",  # a session's own limit would split a file group
    "parquet.page.size": str(128 * 1024),
    "parquet.page.row.count.limit": "8192",
}


def partition_counts(rows: DataFrame, tree: Tree) -> dict[tuple[str | None, ...], int]:
    """The distinct values (as text) of the partition columns in the rows, in order, and how many rows have them; one
    Spark job. Without such columns there is none, and 0 stands for a number that is not known."""
    if not tree.partition_by:
        return {(): 0}
    with refused_nulls():
        found = {tuple(row[:-1]): row[-1] for row in rows.groupBy(*value_texts(tree).values()).count().collect()}
    return dict(sorted(found.items(), key=lambda item: [(value is not None, value or "") for value in item[0]]))


def stage_rows(
    store: ObjectStore,
    tree: Tree,
    rows: DataFrame,
    directory: str,
    targets: Sequence[Target],
    *,
    kind: Literal["base", "delta"] = "delta",
    one_a_key: bool = True,
    replaced: DataFrame | None = None,
    unknown: Literal["refuse", "drop"] = "refuse",
    places: Mapping[GroupKey, int] | None = None,
    expected: int = 0,
    parts: Mapping[GroupKey, int] | None = None,
) -> list[AddFile]:
    """Writes rows as files of the tree, not yet visible, and returns the actions that make them so.

    :param rows: the tree's columns; for deltas with tombstones also
        :data:`~spark_apps.mergetree.tree.DELETED`, and for a tree without hashed groups
        :data:`~spark_apps.mergetree.tree.GROUP_ID`.
    :param directory: key of a directory that does not exist yet.
    :param targets: every partition that a row can belong to.
    :param one_a_key: whether rows of the same key must be reduced to one: the highest ordering column, then
        the highest hash over all columns, so that the order of the input does not matter.
    :param replaced: rows as they were, for a delta: what is written is what turns them into ``rows``, which are those
        that are new or differ outside the key, and tombstones for those that are no more.
    :param unknown: what becomes of a row of no target: a tombstone for a partition that is not there can be
        dropped.
    :param places: place in the merge order by file group, for files that fold others; else the commit's
        version.
    :param expected: how many rows these are, about, if known: many are written by a task a file group, few by a task a
        core.
    :param parts: of file groups too large for one task, into how many files they are split, if there are many rows:
        each has some of the keys.
    :raises InvalidSchema: for a null in a column that takes none.
    :raises InvalidInput: for a row of a partition that is not among the targets.
    :raises StorageError: if the files found do not hold as many rows as Spark wrote.
    """
    if not targets:
        return []
    columns = [*tree.columns, *([DELETED] if kind == "delta" else [])]
    if kind == "delta" and DELETED not in rows.columns:
        rows = rows.withColumn(DELETED, F.lit(None).cast("boolean"))
    given = list(dict.fromkeys([*columns, *tree.given]))
    if replaced is not None:
        rows = rows.select(*map(column, given)).unionByName(
            replaced.withColumn(DELETED, F.lit(True)).select(*map(column, given))
        )
    found = placed(rows.select(*map(column, given)), tree, targets, unknown)
    slots = None if one_a_key or replaced is not None else _slots(targets, expected, parts or {})
    if slots is None:
        found = found.withColumns({PART: _opaque(PART), GROUP: _opaque(GROUP, text=tree.by_id)})
        found = found.repartition(*_few_tasks(rows.sparkSession, targets, expected), PART, GROUP)
        if replaced is not None:
            found = _changed(found, tree)
        elif one_a_key:
            found = _one_a_key(found, tree)
        else:
            found = found.sortWithinPartitions(PART, GROUP, *map(column, tree.key))
    else:
        found = _a_task_each(found, tree, targets, slots).sortWithinPartitions(*map(column, tree.key))
    counted = CountedRows(found)
    shown = [column(name).alias(tree.stored(name)) for name in columns]
    folders = [PART, GROUP] if slots is None else []
    stored = (counted.frame if slots is None else _checked(counted.frame)).select(*shown, *folders)
    with refused_nulls(), todays_calendar(rows.sparkSession):
        stored.write.options(**_options(tree)).partitionBy(*folders).parquet(
            store.spark_path(directory), mode="overwrite"
        )
    staged = list_staged(store, tree, directory, targets, kind, places, slots)
    counted.check(sum(action.rows for action in staged), directory)
    return staged


def _options(tree: Tree) -> dict[str, str]:
    """How Parquet writes files of a tree."""
    plain = {f"parquet.enable.dictionary#{name}": "false" for name in map(tree.stored, _without_dictionary(tree))}
    size = {} if tree.row_group_bytes is None else {"parquet.block.size": str(tree.row_group_bytes)}
    return {**_PARQUET_OPTIONS, **plain, **size}


def _slots(targets: Sequence[Target], expected: int, parts: Mapping[GroupKey, int]) -> list[tuple[int, str]] | None:
    """All file groups of the targets, in order, each as often as it has parts: (number of the target, group); ``None``
    where the rows are too few to take a task for each."""
    groups = sum(target.buckets or 0 for target in targets)
    if not 0 < groups <= min(_MOST_TASKS, expected // _ROWS_A_TASK) or any(t.buckets is None for t in targets):
        return None
    return [
        (number, str(bucket))
        for number, target in enumerate(targets)
        for bucket in range(target.buckets or 0)
        for _ in range(parts.get((target.path, str(bucket)), 1))
    ]


def _few_tasks(spark: SparkSession, targets: Sequence[Target], expected: int) -> list[int]:
    """How many tasks write few rows, if so many are to be told: Spark would give them all to one, by their size, but
    what takes time is the number of files."""
    groups = sum(target.buckets or 0 for target in targets)
    if not expected or not groups:
        return []
    side_by_side = cores(spark)
    return [min(groups, side_by_side)] if expected <= _ROWS_A_TASK * side_by_side else []


def _a_task_each(
    found: DataFrame, tree: Tree, targets: Sequence[Target], slots: Sequence[tuple[int, str]]
) -> DataFrame:
    """The rows shuffled so that the task of each number has the file group (or the part of one) of that number and
    nothing else.

    They are sorted by their key then, and need neither be told apart by partition and group while they are sorted (the
    first bytes of the key decide most comparisons) nor while they are written.
    """
    first = list(accumulate((target.buckets or 0 for target in targets), initial=0))
    # With one target too: its number is what refuses a row of another partition.
    slot = F.get(F.array(*map(F.lit, first)), F.col(PART)) + F.col(GROUP)
    parts = list(Counter(slots).values())
    if len(parts) < len(slots):
        starts = F.get(F.array(*map(F.lit, accumulate(parts, initial=0))), slot)
        spread = F.pmod(
            F.xxhash64(*[_hashable(found, name) for name in tree.key]), F.get(F.array(*map(F.lit, parts)), slot)
        )
        slot = starts + spread.cast("int")
    return found.withColumn(_SLOT, slot).drop(PART, GROUP).repartitionById(len(slots), F.col(_SLOT))


def _checked(rows: DataFrame) -> DataFrame:
    """Rows that are in the task of their file group, whose number the name of the task's file tells; another one fails
    the job."""
    here = F.spark_partition_id() == F.col(_SLOT)
    return rows.where(F.when(here, True).otherwise(F.raise_error(F.lit(_ASTRAY)).cast("boolean")))


def _without_dictionary(tree: Tree) -> list[str]:
    """Columns that are written plain: those whose values seldom repeat; and floating ones, for Parquet's reader looks
    0.0 up in a dictionary bit by bit, does not find the -0.0 that equals it, and passes over the row group."""
    floating = [name for name in tree.columns if isinstance(tree.field(name).dataType, (T.FloatType, T.DoubleType))]
    return list(dict.fromkeys([*tree.unique, *floating]))


def _opaque(name: str, text: bool = False) -> Column:
    """The column, in a form that the optimizer cannot see through.

    A partition or group that it knows to be constant (no partition columns; a batch of one day) it strikes out of the
    window's keys, and then shuffles again by the rest of them, which tears file groups apart.
    """
    if text:
        return F.concat(F.col(name), F.substring(F.spark_partition_id().cast("string"), 1, 0))
    return F.col(name) + F.spark_partition_id() * F.lit(0)


def one_a_key(rows: DataFrame, tree: Tree, key: Sequence[str]) -> DataFrame:
    """Rows reduced to one a key, by the rule of :func:`stage_rows`. One shuffle by key."""
    window = Window.partitionBy(*map(column, key)).orderBy(*_preference(rows, tree))
    return rows.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1).drop(_RANK)


def _one_a_key(placed: DataFrame, tree: Tree) -> DataFrame:
    # The rows of a window lie in one (partition, bucket), by which they are shuffled already, and the window's own
    # sort is the order that the files want: neither is done twice.
    window = Window.partitionBy(PART, GROUP, *map(column, tree.key)).orderBy(*_preference(placed, tree))
    return placed.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1)


def _changed(placed: DataFrame, tree: Tree) -> DataFrame:
    """Of rows as they were, told by :data:`DELETED`, and as they are to be, what turns the former into the latter."""
    values = F.struct(*[column(name) for name in tree.columns if name not in tree.key] or [F.lit(True)])
    window = Window.partitionBy(PART, GROUP, *map(column, tree.key)).orderBy(F.col(DELETED).isNotNull(), values.desc())
    was = F.max(F.when(F.col(DELETED), values))
    every = window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    found = placed.withColumns({_RANK: F.row_number().over(window), _WAS: was.over(every)}).where(F.col(_RANK) == 1)
    return found.where(F.col(DELETED) | ~F.col(_WAS).eqNullSafe(values))


def _preference(rows: DataFrame, tree: Tree) -> list[Column]:
    order = [column(tree.ordering).desc_nulls_last()] if tree.ordering in tree.columns else []
    return [*order, F.xxhash64(*[_hashable(rows, name) for name in tree.columns]).desc()]


def _hashable(rows: DataFrame, name: str) -> Column:
    kind = rows.schema[name].dataType
    # Spark refuses to hash maps, and types as young as variant.
    if isinstance(kind, (T.MapType, T.ArrayType, T.StructType)) and "map<" in kind.simpleString():
        return F.to_json(F.struct(column(name)))
    return column(name)


class refused_nulls:
    """Turns the failure of a Spark job over a null, over a row that came from nowhere, or over a file that cannot be
    read, into an error of ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        text = _spark_message(error)
        if NULL_MARK in text:
            name = text.split(NULL_MARK, 1)[1].lstrip().split("\n", 1)[0].split(" SQLSTATE", 1)[0].rstrip(" '\".")
            raise InvalidSchema(
                f"The batch holds a null in the column {name!r}, which takes none.",
                hint="Record key columns and columns declared NOT NULL need a value in every row.",
            ) from error
        if UNKNOWN_PARTITION in text:
            raise InvalidInput(
                "The batch holds a row of a partition that it did not hold a moment before.",
                hint="Its source changes while it is read, or is not deterministic: write it to files first.",
            ) from error
        if (unread := _UNREAD_FILE.search(text)) is not None:
            raise StorageError(
                f"Spark cannot read the file {unread[1]}: it is damaged, or of another format.",
                outcome="Nothing was changed.",
                hint="A file of a table comes back from a backup, or with a restore of a version before it; an index "
                "is built again with refresh_index(name, mode='full').",
            ) from error


def _spark_message(error: Exception) -> str:
    return str(error) if isinstance(error, PySparkException) or "py4j" in type(error).__module__ else ""


def list_staged(
    store: ObjectStore,
    tree: Tree,
    directory: str,
    targets: Sequence[Target],
    kind: Literal["base", "delta"],
    places: Mapping[GroupKey, int] | None,
    slots: Sequence[tuple[int, str]] | None = None,
) -> list[AddFile]:
    """The files that a Spark job left in ``directory``, with rows and tombstones counted from their footers.

    :param slots: the file group of each task, where each had one, or a part of one; else folders tell it.
    """
    found = []
    for info in store.list(directory):
        folders, _, name = info.key.removeprefix(directory).strip("/").rpartition("/")
        if not name.startswith(("_", ".")) and name.endswith(".parquet"):
            if slots is None:
                part, group = (folder.split("=", 1)[1] for folder in folders.split("/"))
                number = int(part)
            else:
                number, group = slots[int(name.split("-")[1])]
            found.append((targets[number].path, group, info))
    stray = {key[:2] for key in found} - places.keys() if places is not None else set()
    if stray:
        raise StorageError(
            f"Rows read from their file groups hash to others, such as {min(stray)}.",
            outcome="Nothing was changed.",
            hint="The hash function behaves differently here than where the table was written: compare the versions.",
        )
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        tails = list(pool.map(lambda item: fetch_tail(store, item[2].key, item[2].size), found))
    actions = []
    for (partition, group, info), tail in zip(found, tails, strict=True):
        rows, tombstones = _counted(info.key, footer_of(tail), kind)
        if not rows and slots is not None:
            store.delete([info.key])  # Spark's first task leaves a file even if it had no row
            continue
        place = None if places is None else places[partition, group]
        # Of the rows' files there are too many to keep more of each in the log; Spark reads them, not the driver.
        extra = None if tree.name == DATA_TREE else seal(store, info.key, info.size, tail)
        actions.append(
            AddFile(tree.name, partition, group, info.key, kind, rows, info.size, place, tombstones,
                    lineage(info.key), extra)
        )  # fmt: skip
    allowed = Counter((targets[number].path, group) for number, group in slots or ())
    written = Counter((action.partition, action.group) for action in actions)
    if any(count > max(1, allowed[group]) for group, count in written.items()):
        raise StorageError(
            f"Spark wrote more files for a file group than it should have, below {directory}.",
            outcome="Nothing was changed.",
            hint="A setting of the session splits files; retry without spark.sql.files.* settings of its own.",
        )
    return actions


def lineage(path: str) -> int:
    """A 63-bit id of a file. Paths hold the attempt's id, so parallel attempts never share one."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "big") >> 1


def count_rows(store: ObjectStore, key: str, size: int, kind: str) -> tuple[int, int]:
    """Rows and tombstones of a Parquet file, from its footer.

    :raises StorageError: if the footer cannot be read: the file is damaged.
    """
    return _counted(key, fetch_footer(store, key, size), kind)


def _counted(key: str, footer: bytes, kind: str) -> tuple[int, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        read = pq.read_metadata(pa.BufferReader(footer))
        live = read.num_rows
        if kind == "delta":
            flags = [read.row_group(n).column(read.num_columns - 1) for n in range(read.num_row_groups)]
            live = sum(flag.statistics.null_count for flag in flags)
    except (pa.ArrowException, OSError, AttributeError) as error:
        raise StorageError(
            f"The file {key} that Spark just wrote cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Try again; if it happens again, the storage damages files.",
        ) from error
    return read.num_rows, read.num_rows - live
