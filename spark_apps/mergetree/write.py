"""Writing rows of a tree: each to its partition and bucket, one per key, sorted, one file per file group by default.

One shuffle and one sort serve the reduction to one row per key, the layout and the order inside the files.
Partitions are written under numbers that the driver gave them, so no value ever becomes a path; no file is visible
until a commit lists it.

A compaction folds the files of a file group into fewer: all into a base, or the deltas alone into one delta. A folded
file takes the highest sequence number of the files it replaces, so deltas that land meanwhile stay on top of it. Deltas
folded without the base under them keep their tombstones; a base never holds one. Where deletes have an ordering, it is
written into a file beside the base (:func:`stage_kept`).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as ObservationTimeout
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from itertools import accumulate
from typing import Any, Literal

from msgspec.structs import replace

from spark_apps.engine.pyspark_names import Column, DataFrame, F, Observation, SparkSession, T, Window, spark_errors
from spark_apps.engine.spark_utils import cores, over_connect, portable_times
from spark_apps.engine.spark_versions import failed_expression, refused_record, repartition_by_id, unreadable_file
from spark_apps.layout.hashing import SPARK_BUCKETS
from spark_apps.mergetree.buckets import (
    GROUP,
    PART,
    UNKNOWN_PARTITION,
    Target,
    assign_file_groups,
    bucket_column,
    single_target,
    value_texts,
)
from spark_apps.mergetree.limits import MAX_TASKS, ROWS_PER_TASK
from spark_apps.mergetree.read import kept_tombstones, ordered_tombstones, scan
from spark_apps.mergetree.schema import NULL_MARK, column
from spark_apps.mergetree.tree import DELETED, FileGroups, Snapshot, Tree
from spark_apps.storage.credentials import missing_file_system
from spark_apps.storage.errors import EnvironmentMismatch, InvalidInput, InvalidSchema, StorageError, UnsupportedSource
from spark_apps.storage.file_faults import fault_of
from spark_apps.storage.parquet.files import column_chunk, read_footer
from spark_apps.storage.parquet.seals import seal
from spark_apps.storage.store import ObjectStore, RangedFile, open_key
from spark_apps.timeline.field_types import INDEX_FILES
from spark_apps.timeline.files import DataFile, GroupKey, is_merged, lowest_files, replaced_rows
from spark_apps.timeline.model import (
    DATA_TREE,
    KEPT,
    REPLACED,
    TOMBSTONES_TREE,
    AddFile,
    AnyAction,
    Field,
    RemoveFile,
)
from spark_apps.timeline.tombstones import SECONDS_PER_DAY, is_ordered, mark_ordered, tombstone_days

logger = logging.getLogger(__name__)

_OBSERVATION_TIMEOUT_SECONDS = 60.0


class CountedRows:
    """The rows of one write, counted while they are written.

    ``frame`` is what must be written, in the order that it had.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._observation = Observation()
        self.frame = rows.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def check(self, counted_rows: int, directory: str) -> None:
        """Compare with the rows of the files listed.

        :raises StorageError: with both figures, if they differ.
        """
        written = self._written()
        if written is not None and written != counted_rows:
            raise StorageError(
                f"Spark wrote {written:,} rows below {directory}, and the files found there hold {counted_rows:,}.",
                outcome="Nothing was changed.",
                hint="If executors run on other machines, the table's location must be one that all of them share.",
            )

    def _written(self) -> int | None:
        # Spark sends the figure through a queue of events that drops some when it is full; then it never comes.
        pool = ThreadPoolExecutor(1)
        try:
            return int(pool.submit(lambda: self._observation.get).result(_OBSERVATION_TIMEOUT_SECONDS)["rows"])
        except ObservationTimeout:
            logger.warning("Spark did not report how many rows it wrote; the files were not compared with it.")
            return None
        finally:
            pool.shutdown(wait=False)


# --- Writing rows -----------------------------------------------------------------------------------------------------


_RANK = "__index_rank"
_SLOT = "__index_slot"
_PREVIOUS = "__index_was"
_MISPLACED_ROW = "[row of another task's file group]"


_FOOTER_THREADS = 8
# Small pages, so that the page index leads one key to a few KiB instead of a whole column chunk.
_PARQUET_OPTIONS = {
    "maxRecordsPerFile": "0",  # a session's own limit would split a file group
    "parquet.page.size": str(128 * 1024),
    "parquet.page.row.count.limit": "8192",
}


def partition_counts(rows: DataFrame, tree: Tree) -> dict[tuple[str | None, ...], int]:
    """Return the distinct values (as text) of the partition columns in the rows, each with its row count.

    In order, by one Spark job. Without partition columns there is one entry, whose number is not counted and is 0.
    """
    if not tree.partition_by:
        return {(): 0}
    with translate_spark_errors():
        counts = {tuple(row[:-1]): row[-1] for row in rows.groupBy(*value_texts(tree).values()).count().collect()}
    return dict(sorted(counts.items(), key=lambda item: [(value is not None, value or "") for value in item[0]]))


def stage_rows(
    store: ObjectStore,
    tree: Tree,
    rows: DataFrame,
    directory: str,
    targets: Sequence[Target],
    *,
    kind: Literal["base", "delta"] = "delta",
    one_per_key: bool = True,
    replaced: DataFrame | None = None,
    unknown: Literal["refuse", "drop"] = "refuse",
    sequence_numbers: Mapping[GroupKey, int] | None = None,
    expected: int = 0,
    parts: Mapping[GroupKey, int] | None = None,
) -> list[AddFile]:
    """Write rows as files of the tree, not yet visible, and return the actions that make them so.

    ::

        stage_rows(store, tree, rows, "data/t.1/rows", [Target("dt=2026-11-27", ("2026-11-27",), 8)])

    :param rows: the tree's columns; for deltas with tombstones also
        :data:`~spark_apps.mergetree.tree.DELETED`, and for a tree without hashed groups
        :data:`~spark_apps.mergetree.tree.GROUP_ID`.
    :param directory: key of a directory that does not exist yet.
    :param targets: every partition that a row can belong to.
    :param one_per_key: whether rows of the same key must be reduced to one: the highest ordering column, then
        the highest hash over all columns, so that the order of the input does not matter.
    :param replaced: rows as they were, for a delta: what is written is what turns them into ``rows``, which are those
        that are new or differ outside the key, and tombstones for those that are no more.
    :param unknown: what becomes of a row of no target: a tombstone for a partition that is not there can be
        dropped.
    :param sequence_numbers: sequence number by file group, for files that fold others; else the commit's
        version.
    :param expected: how many rows these are, about, if known: many are written by a task per file group, few by a task
        per core.
    :param parts: of file groups too large for one task, into how many files they are split, if there are many rows:
        each has some of the keys.
    :raises InvalidSchema: for a null in a column that takes none.
    :raises InvalidInput: for a row of a partition that is not among the targets.
    :raises StorageError: if the files do not hold as many rows as Spark wrote.
    """
    if not targets:
        return []
    columns = [*tree.columns, *([DELETED] if kind == "delta" else [])]
    if kind == "delta" and DELETED not in rows.columns:
        rows = rows.withColumn(DELETED, F.lit(None).cast("boolean"))
    input_columns = list(dict.fromkeys([*columns, *tree.given]))
    if replaced is not None:
        rows = rows.select(*map(column, input_columns)).unionByName(
            replaced.withColumn(DELETED, F.lit(True)).select(*map(column, input_columns))
        )
    assigned = assign_file_groups(rows.select(*map(column, input_columns)), tree, targets, unknown)
    slots = None if one_per_key or replaced is not None else _slots(targets, expected, parts or {})
    if slots is None:
        assigned = assigned.withColumns({PART: _opaque(PART), GROUP: _opaque(GROUP, text=tree.by_id)})
        assigned = assigned.repartition(*_partitions_for_few_rows(rows.sparkSession, targets, expected), PART, GROUP)
        if replaced is not None:
            assigned = _keep_changes(assigned, tree)
        elif one_per_key:
            assigned = _reduce_to_one_per_key(assigned, tree)
        else:
            assigned = assigned.sortWithinPartitions(PART, GROUP, *map(column, tree.key))
    else:
        assigned = _shuffle_to_slots(assigned, tree, targets, slots).sortWithinPartitions(*map(column, tree.key))
    observed = CountedRows(assigned)
    stored_columns = [column(name).alias(tree.stored(name)) for name in columns]
    folders = [PART, GROUP] if slots is None else []
    stored = (observed.frame if slots is None else _check_slots(observed.frame)).select(*stored_columns, *folders)
    with translate_spark_errors(), portable_times(rows.sparkSession):
        stored.write.options(**write_options(tree)).partitionBy(*folders).parquet(
            store.spark_path(directory), mode="overwrite"
        )
    staged = list_staged(store, tree, directory, targets, kind, sequence_numbers, slots)
    observed.check(sum(action.rows for action in staged), directory)
    return staged


def write_options(tree: Tree) -> dict[str, str]:
    """Return how Parquet writes files of a tree."""
    plain = {f"parquet.enable.dictionary#{name}": "false" for name in map(tree.stored, without_dictionary(tree))}
    size = {} if tree.row_group_bytes is None else {"parquet.block.size": str(tree.row_group_bytes)}
    codec = {} if tree.compressed else {"compression": "none"}  # else the session's
    return {**_PARQUET_OPTIONS, **plain, **size, **codec}


def _slots(targets: Sequence[Target], expected: int, parts: Mapping[GroupKey, int]) -> list[tuple[int, str]] | None:
    """Return the file groups of the targets in order, each as often as it has parts.

    Each is (number of the target, group). ``None`` where the rows are too few to take a task for each.
    """
    groups = sum(target.buckets or 0 for target in targets)
    if not 0 < groups <= min(MAX_TASKS, expected // ROWS_PER_TASK) or any(target.buckets is None for target in targets):
        return None
    return [
        (number, str(bucket))
        for number, target in enumerate(targets)
        for bucket in range(target.buckets or 0)
        for _ in range(parts.get((target.path, str(bucket)), 1))
    ]


def _partitions_for_few_rows(spark: SparkSession, targets: Sequence[Target], expected: int) -> list[int]:
    """Return into how many tasks few rows are shuffled, as arguments of ``repartition``.

    Spark would give them all to one task, by their size, but what takes time is the number of files.
    """
    groups = sum(target.buckets or 0 for target in targets)
    if not expected or not groups:
        return []
    side_by_side = cores(spark)
    return [min(groups, side_by_side)] if expected <= ROWS_PER_TASK * side_by_side else []


def _shuffle_to_slots(
    assigned: DataFrame, tree: Tree, targets: Sequence[Target], slots: Sequence[tuple[int, str]]
) -> DataFrame:
    """Shuffle rows so that each task has the file group (or the part of one) of its number and nothing else.

    They are sorted by their key then, and need neither be distinguished by partition and group while they are sorted
    (the first bytes of the key decide most comparisons) nor while they are written.
    """
    first_slots = list(accumulate((target.buckets or 0 for target in targets), initial=0))
    # With one target too: its number is what refuses a row of another partition.
    slot = F.get(F.array(*map(F.lit, first_slots)), F.col(PART)) + F.col(GROUP)
    parts = list(Counter(slots).values())
    if len(parts) < len(slots):
        starts = F.get(F.array(*map(F.lit, accumulate(parts, initial=0))), slot)
        part_of_group = F.pmod(
            F.xxhash64(*[hashable(assigned, name) for name in tree.key]), F.get(F.array(*map(F.lit, parts)), slot)
        )
        slot = starts + part_of_group.cast("int")
    return repartition_by_id(assigned.withColumn(_SLOT, slot).drop(PART, GROUP), len(slots), _SLOT)


def _check_slots(rows: DataFrame) -> DataFrame:
    """Fail the job at a row that is not in the task of its file group.

    The name of the task's file gives the group.
    """
    in_own_slot = F.spark_partition_id() == F.col(_SLOT)
    return rows.where(F.when(in_own_slot, True).otherwise(F.raise_error(F.lit(_MISPLACED_ROW)).cast("boolean")))


def without_dictionary(tree: Tree) -> list[str]:
    """Return the columns that are written plain.

    These are columns whose values seldom repeat; and floating ones, for Parquet's reader looks 0.0 up in a dictionary
    bit by bit, does not find the -0.0 that equals it, and passes over the row group.
    """
    floating = [name for name in tree.columns if isinstance(tree.field(name).dataType, (T.FloatType, T.DoubleType))]
    return list(dict.fromkeys([*tree.unique, *floating]))


def _opaque(name: str, text: bool = False) -> Column:
    """Return the column in a form that the optimizer cannot see through.

    A partition or group that it knows to be constant (no partition columns; a batch of one day) it strikes out of the
    window's keys, and then shuffles again by the rest of them, which tears file groups apart.
    """
    if text:
        return F.concat(F.col(name), F.substring(F.spark_partition_id().cast("string"), 1, 0))
    return F.col(name) + F.spark_partition_id() * F.lit(0)


def one_per_key(rows: DataFrame, tree: Tree, key: Sequence[str]) -> DataFrame:
    """Reduce rows to one per key, by the rule of :func:`stage_rows`.

    One shuffle by key.
    """
    window = Window.partitionBy(*map(column, key)).orderBy(*_preference(rows, tree))
    return rows.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1).drop(_RANK)


def _reduce_to_one_per_key(assigned: DataFrame, tree: Tree) -> DataFrame:
    # The rows of a window are of one (partition, bucket), by which they are shuffled already, and the window's own
    # sort is the order that the files want: neither is done twice.
    window = Window.partitionBy(PART, GROUP, *map(column, tree.key)).orderBy(*_preference(assigned, tree))
    return assigned.withColumn(_RANK, F.row_number().over(window)).where(F.col(_RANK) == 1)


def _keep_changes(assigned: DataFrame, tree: Tree) -> DataFrame:
    """Keep what turns the rows as they were, marked by :data:`DELETED`, into the rows as they are to be."""
    values = F.struct(*[column(name) for name in tree.columns if name not in tree.key] or [F.lit(True)])
    window = Window.partitionBy(PART, GROUP, *map(column, tree.key)).orderBy(F.col(DELETED).isNotNull(), values.desc())
    previous = F.max(F.when(F.col(DELETED), values))
    whole_window = window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    latest = assigned.withColumns({_RANK: F.row_number().over(window), _PREVIOUS: previous.over(whole_window)}).where(
        F.col(_RANK) == 1
    )
    return latest.where(F.col(DELETED) | ~F.col(_PREVIOUS).eqNullSafe(values))


def _preference(rows: DataFrame, tree: Tree) -> list[Column]:
    order = [column(tree.ordering).desc_nulls_last()] if tree.ordering in tree.columns else []
    if DELETED in rows.columns and tree.merge_by == "ordering":
        order.append(F.col(DELETED).desc_nulls_last())  # as among commits
    return [*order, F.xxhash64(*[hashable(rows, name) for name in tree.columns]).desc()]


def hashable(rows: DataFrame, name: str) -> Column:
    """Return a column in a form that Spark can hash."""
    kind = rows.schema[name].dataType
    # Spark refuses to hash maps, and types as young as variant.
    if isinstance(kind, (T.MapType, T.ArrayType, T.StructType)) and "map<" in kind.simpleString():
        return F.to_json(F.struct(column(name)))
    return column(name)


_OWN_FILE_HINT = (
    "A file of a table comes back from a backup, or with a restore of a version before it; an index is built again "
    "with refresh_index(name, mode='full')."
)


class translate_spark_errors:
    """A context in which failures of Spark jobs become errors of this package.

    These are failures over a null, over a row of an unknown partition, over a file or a record that cannot be read, and
    over an expression that has no value for a row.

    :param computed: what Spark computes of the rows by expressions, for a message: an index, and what it is over.
    :param source: the location of the source that the rows are read from, if another writer owns them.
    """

    def __init__(self, computed: str = "", source: str = "") -> None:
        self._computed = computed
        self._source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (StorageError, UnsupportedSource)) and self._source:
            error = error.__cause__  # a context within has translated it, and did not know of the source
        if error is None or not isinstance(error, Exception):
            return
        text = str(error) if isinstance(error, spark_errors()) else ""
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
        if (missing := missing_file_system(text)) is not None:
            raise EnvironmentMismatch(missing[0], hint=missing[1]) from error
        file = unreadable_file(text)
        of_source = f" of the source {self._source}" if self._source and INDEX_FILES not in (file or "") else ""
        if (refused := refused_record(text)) is not None:
            raise UnsupportedSource(
                f"Spark cannot read a record in {f'the file {file}' if file else 'a file'}{of_source}, and has to fail "
                "at such a record by the option mode = 'FAILFAST'.",
                hint=f"Spark says: {refused} Correct the file, or register the source with another mode.",
            ) from error
        if file is not None:
            fault = fault_of(text)
            raise StorageError(
                f"Spark cannot read the file {file}{of_source}: it {fault.what}.",
                outcome="Nothing was changed.",
                hint=fault.hint if of_source else _OWN_FILE_HINT,
            ) from error
        if self._computed and (failure := failed_expression(text)) is not None:
            name, said = failure
            # What Spark says holds a value of the row, and the message of an error goes into the log, which is kept.
            raise InvalidInput(
                f"{self._computed} cannot be computed for a row: {name}.",
                outcome="Nothing was changed.",
                hint=f"Spark says: {said} Correct the row, or use an expression that has a value for every row. With "
                "spark.sql.ansi.enabled=false Spark gives a value (null, or a number that wrapped around) instead of "
                "failing; only sessions with that setting use such an index.",
            ) from error


def list_staged(
    store: ObjectStore,
    tree: Tree,
    directory: str,
    targets: Sequence[Target],
    kind: Literal["base", "delta"],
    sequence_numbers: Mapping[GroupKey, int] | None,
    slots: Sequence[tuple[int, str]] | None = None,
    bucket_of: Callable[[str], str] | None = None,
) -> list[AddFile]:
    """Return the files that a Spark job left in ``directory``, with rows and tombstones counted from their footers.

    :param slots: the file group of each task, where each had one, or a part of one; else folders name it.
    :param bucket_of: returns it from a file's name, where that holds the bucket in the only partition.
    """
    staged = []
    for info in store.list(directory):
        folders, _, name = info.key.removeprefix(directory).strip("/").rpartition("/")
        if not name.startswith(("_", ".")) and name.endswith(".parquet"):
            if bucket_of is not None:
                number, group = 0, bucket_of(name)
            elif slots is None:
                part, group = (folder.split("=", 1)[1] for folder in folders.split("/"))
                number = int(part)
            else:
                number, group = slots[int(name.split("-")[1])]
            staged.append((targets[number].path, group, info))
    unexpected = (
        {staged_file[:2] for staged_file in staged} - sequence_numbers.keys() if sequence_numbers is not None else set()
    )
    if unexpected:
        raise StorageError(
            f"Rows read from their file groups hash to others, such as {min(unexpected)}.",
            outcome="Nothing was changed.",
            hint="The hash function gives other buckets than where the table was written: compare the versions.",
        )
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        ends = list(pool.map(lambda item: _read_end(store, item[2].key, item[2].size, kind), staged))
    actions = []
    for (partition, group, info), (rows, tombstones, end) in zip(staged, ends, strict=True):
        if not rows and slots is not None:
            store.delete([info.key])  # Spark's first task leaves a file even if it had no row
            continue
        sequence_number = None if sequence_numbers is None else sequence_numbers[partition, group]
        # Of the rows' files there are too many to keep more of each in the log; Spark reads them, not the driver.
        extra = None if tree.name in (DATA_TREE, TOMBSTONES_TREE) else seal(end)
        actions.append(
            AddFile(tree.name, partition, group, info.key, kind, rows, info.size, sequence_number, tombstones,
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
    """Return a 63-bit id of a file.

    Paths hold the attempt's id, so parallel attempts never share one.

    :param path: of the file, below the table.
    """
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "big") >> 1


def count_rows(store: ObjectStore, key: str, size: int, kind: str) -> tuple[int, int]:
    """Return the rows and tombstones of a Parquet file, from its footer.

    :raises StorageError: if the footer cannot be read: the file is damaged.
    """
    return _read_end(store, key, size, kind)[:2]


def _read_end(store: ObjectStore, key: str, size: int, kind: str) -> tuple[int, int, RangedFile]:
    """Return the rows and tombstones of a Parquet file, and the file with its end, which was fetched."""
    import pyarrow as pa

    try:
        file = open_key(store, key, size, whole_below=0)
        metadata = read_footer(file)
        live_rows = metadata.num_rows
        if kind == "delta":
            flags = (column_chunk(metadata, n, metadata.num_columns - 1) for n in range(metadata.num_row_groups))
            live_rows = sum(flag.statistics.null_count for flag in flags)
    except (pa.ArrowException, OSError, AttributeError) as error:
        raise StorageError(
            f"The file {key} that Spark just wrote cannot be read: {error}.",
            outcome="Nothing was changed.",
            hint="Try again; if it happens again, the storage damages files.",
        ) from error
    return metadata.num_rows, metadata.num_rows - live_rows, file


# --- files that Spark takes for the buckets of a table ----------------------------------------------------------------


_BUCKET = re.compile(r".*_(\d+)(?:\..*)?$")
"""How Spark finds the bucket in a file's name."""


def stage_bucket_files(
    store: ObjectStore,
    tree: Tree,
    rows: DataFrame,
    directory: str,
    buckets: int,
    sequence_number: int,
    expected: int = 0,
) -> list[AddFile]:
    """Write rows as one file per bucket, sorted by the tree's key, and return the actions that make them visible.

    :param directory: key of a directory that does not exist yet.
    :param expected: how many rows these are, about, if known: few are written by a task per core.
    :raises EnvironmentMismatch: over Spark Connect, whose clients cannot reach that writer.
    :raises StorageError: if the files do not hold as many rows as Spark wrote.
    """
    spark = rows.sparkSession
    if over_connect(spark):
        raise EnvironmentMismatch(
            f"Over Spark Connect no files can be written for the layout 'buckets' of {tree.name}.",
            outcome="Nothing was changed.",
            hint="Maintain this index from a classic session (a job by spark-submit), or give it the layout 'hash'.",
        )
    rows = rows.select(*map(column, tree.columns))
    if 0 < expected <= ROWS_PER_TASK * cores(spark):
        tasks = min(buckets, cores(spark))
        dealt = rows.repartition(tasks, bucket_column(tree.hash_fields, buckets, SPARK_BUCKETS))
    else:
        dealt = rows.repartition(buckets, *map(column, tree.hash_fields))
    counted = CountedRows(dealt)
    with translate_spark_errors(), portable_times(spark):
        _write(spark, counted.frame, store.spark_path(directory), buckets, tree, write_options(tree))
    staged = list_staged(
        store, tree, directory, single_target(buckets), "base",
        {("", str(bucket)): sequence_number for bucket in range(buckets)}, bucket_of=bucket_of,
    )  # fmt: skip
    counted.check(sum(action.rows for action in staged), directory)
    return staged


def bucket_of(name: str) -> str:
    """Return the bucket that Spark reads in a file's name.

    :raises ValueError: if there is none.
    """
    match = _BUCKET.match(name)
    if match is None:
        raise ValueError(f"{name} names no bucket")
    return str(int(match[1]))


def _write(
    spark: SparkSession, rows: DataFrame, path: str, buckets: int, tree: Tree, options: Mapping[str, str]
) -> None:
    """Write rows as a bucketed table's, which Spark's public writers do only for tables of a catalog."""
    context: Any = spark.sparkContext
    session: Any = spark
    frame: Any = rows
    jvm, java_session = context._jvm, session._jsparkSession
    settings = jvm.java.util.HashMap()
    for name, text in {**options, "path": path}.items():
        settings.put(name, text)
    sequence, none = _sequence_of(jvm), jvm.scala.Option.empty()
    spec = jvm.org.apache.spark.sql.catalyst.catalog.BucketSpec(buckets, sequence(tree.hash_fields), sequence(tree.key))
    source = _with_defaults(
        jvm,
        "org.apache.spark.sql.execution.datasources.DataSource",
        java_session, "parquet", sequence(()), none, sequence(()), jvm.scala.Option.apply(spec),
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(settings),
    )  # fmt: skip
    command = source.planForWriting(jvm.org.apache.spark.sql.SaveMode.Overwrite, frame._jdf.queryExecution().analyzed())
    mode = jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()
    java_session.sessionState().executePlan(command, mode).commandExecuted()


def _sequence_of(jvm: Any) -> Any:
    def sequence(values: Sequence[str]) -> Any:
        kept = jvm.java.util.ArrayList()
        for value in values:
            kept.add(value)
        return jvm.scala.collection.JavaConverters.asScalaBuffer(kept).toSeq()

    return sequence


def _with_defaults(jvm: Any, name: str, *arguments: Any) -> Any:
    """Make an object of a Scala class whose last arguments, which differ by Spark's version, have defaults."""
    loaded = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    (constructor,) = loaded.getConstructors()
    values = jvm.java.util.ArrayList()
    for argument in arguments:
        values.add(argument)
    for number in range(len(arguments) + 1, len(constructor.getParameterTypes()) + 1):
        values.add(loaded.getMethod(f"$lessinit$greater$default${number}", None).invoke(None, None))
    return constructor.newInstance(values.toArray())


# --- compaction -------------------------------------------------------------------------------------------------------


CompactMode = Literal["quick", "full"]
"""``full``: every group into one base. ``quick``: only deltas with deltas, so that no base is written
again."""


@dataclass(frozen=True)
class FoldPlan:
    """The files that are folded: ``whole`` groups into a base, ``deltas`` of groups into a delta."""

    whole: dict[GroupKey, list[DataFile]]
    deltas: dict[GroupKey, list[DataFile]]

    @property
    def groups(self) -> dict[GroupKey, list[DataFile]]:
        return {**self.whole, **self.deltas}

    @property
    def inputs(self) -> list[DataFile]:
        return [file for files in self.groups.values() for file in files]


def plan_fold(groups: FileGroups, mode: CompactMode = "full", earlier: Collection[str] = ()) -> FoldPlan:
    """Return what a compaction of these groups would fold.

    A group that is a base alone is left alone.

    :param earlier: paths of files of a form that is no longer written: a full compaction writes them anew.
    """
    whole: dict[GroupKey, list[DataFile]] = {}
    deltas: dict[GroupKey, list[DataFile]] = {}
    for key, files in groups.items():
        if is_merged(files) and not (mode == "full" and any(file.path in earlier for file in files)):
            continue
        above = [file for file in files if file.kind == "delta"]
        if mode == "full" or len(above) == len(files):
            whole[key] = list(files)
        elif len(above) > 1 and files[0].kind == "base" and len(above) == len(files) - len(lowest_files(files)):
            deltas[key] = above
    return FoldPlan(whole, deltas)


def fold(
    snapshot: Snapshot,
    tree: Tree,
    plan: FoldPlan,
    directory: str,
    targets: Sequence[Target],
    parts: Mapping[GroupKey, int] | None = None,
    now: float = 0.0,
) -> tuple[list[AnyAction], dict[str, Any]]:
    """Stage the folded files below ``directory``; return the actions that swap them for their inputs, and metrics.

    :param targets: the partitions of the groups, with their bucket counts.
    :param parts: of groups too large for one task, into how many files their base is split.
    :param now: seconds since 1970, from which the time of deletes counts whose tombstones are folded away.
    """
    added: list[AddFile] = []
    for name, kind, groups in (("whole", "base", plan.whole), ("deltas", "delta", plan.deltas)):
        if groups:
            rows = scan(snapshot, tree, groups, tree.given, tombstones=kind == "delta")
            sequence_numbers = {key: max(file.sequence_number for file in files) for key, files in groups.items()}
            paths = {key[0] for key in groups}
            added += stage_rows(
                snapshot.store,
                tree,
                rows,
                f"{directory}/{name}",
                [target for target in targets if target.path in paths],
                kind=kind,  # type: ignore[arg-type]
                one_per_key=False,
                sequence_numbers=sequence_numbers,
                expected=sum(file.rows for files in groups.values() for file in files),
                parts=parts if kind == "base" else None,
            )
    added = [_with_count(action, plan.deltas.get(action.group_key, ())) for action in added]
    if any(map(is_ordered, plan.inputs)):
        added = [
            *(action for action in added if action.kind == "base"),
            *mark_ordered(action for action in added if action.kind == "delta"),
        ]
    removed = [RemoveFile(tree.name, file.path) for file in plan.inputs]
    beside = kept_tombstones(snapshot, tree, plan.whole) if plan.whole else {}
    kept = stage_kept(snapshot, tree, plan.whole, beside, f"{directory}/tombstones", targets, now)
    return [*removed, *added, *kept], folding_metrics(plan.inputs, added, len(plan.groups))


KEPT_SINCE = "__index_kept_since"
"""Column of files with the orderings of deletes: since when each is kept, in whole seconds since 1970."""


def stage_kept(
    snapshot: Snapshot,
    tree: Tree,
    groups: FileGroups,
    beside: Mapping[GroupKey, Sequence[DataFile]],
    directory: str,
    targets: Sequence[Target],
    now: float,
) -> list[AnyAction]:
    """Stage the orderings of deletes that count on when file groups are folded; return what lists them instead.

    :param groups: those that are folded or go, with the deltas whose tombstones go with them.
    :param beside: the files with orderings that there are beside them, which are replaced.
    :param directory: key of a directory that does not exist yet.
    :param targets: the partitions of the groups, with their bucket counts from now on.
    :param now: seconds since 1970; what was kept for longer than the table says is left out.
    """
    if tree.merge_by != "ordering" or tree.ordering is None:
        return []
    removed = [RemoveFile(TOMBSTONES_TREE, file.path) for files in beside.values() for file in files]
    days = tombstone_days(snapshot.table.properties)
    if not days or not (beside or any(is_ordered(file) for files in groups.values() for file in files)):
        return list(removed)
    wide = dataclass_replace(tree, fields=(*tree.fields, Field(KEPT_SINCE, "bigint")))
    names = [*dict.fromkeys([*tree.tombstone_columns, tree.ordering]), KEPT_SINCE]
    rows = ordered_tombstones(snapshot, wide, groups, beside, names)
    rows = rows.withColumn(KEPT_SINCE, F.coalesce(column(KEPT_SINCE), F.lit(int(now))))
    rows = rows.where(column(KEPT_SINCE) > int(now - days * SECONDS_PER_DAY))
    fields = tuple(field for field in wide.fields if field.name in names)
    kept_tree = dataclass_replace(wide, name=TOMBSTONES_TREE, fields=fields, merge_by="commit")
    staged = stage_rows(snapshot.store, kept_tree, rows, directory, targets)
    return [*removed, *(replace(action, extra={KEPT: now}) for action in staged)]


def _with_count(folded: AddFile, deltas: Sequence[DataFile]) -> AddFile:
    """Return a folded delta with the number of rows that it replaces, where that of each of its inputs was counted."""
    counts = [replaced_rows(delta) for delta in deltas]
    known = [count for count in counts if count is not None]
    if folded.kind == "base" or not deltas or len(known) < len(counts):
        return folded
    # Rows come and go by the same number, whether in one step or in several.
    came = folded.rows - folded.tombstones - sum(delta.rows - delta.tombstones for delta in deltas)
    return replace(folded, extra={**(folded.extra or {}), REPLACED: sum(known) + came})


def folding_metrics(inputs: Sequence[DataFile], added: Sequence[AddFile], groups: int) -> dict[str, Any]:
    """Return what the receipt of a compaction holds: groups, files, bytes and rows."""
    return {
        "groups": groups,
        "files_before": len(inputs),
        "files_after": len(added),
        "bytes_before": sum(file.bytes for file in inputs),
        "bytes_after": sum(file.bytes for file in added),
        "rows": sum(file.rows - file.tombstones for file in added),
    }
