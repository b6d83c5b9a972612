"""Candidates of a keyed index: from looked-up keys and their entries to the file groups that can hold the rows.

Entries name the partition of a row, not its file; the bucket follows from the record key and the partition's count, so
neither compaction nor a rescale makes an entry wrong. In Spark for many entries, on the driver for few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_apps.indexes.handler import PARTITION, Candidates, CannotPrune, IndexContext, Key
from spark_apps.indexes.keyed.lookup import LookupResult, TooManyEntries, damaged_file_error, lookup, shards_of
from spark_apps.layout.hashing import is_known, on_driver
from spark_apps.layout.partitions import parse_partition_path
from spark_apps.mergetree.buckets import (
    bucket_column,
    compute_buckets,
    partition_condition,
    partition_number,
    value_texts,
)
from spark_apps.mergetree.read import scan, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.spark_utils import inline
from spark_apps.mergetree.spark_versions import SPARK_ERRORS
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import GroupKey

BUCKET = "__index_bucket"
"""Column that holds the bucket an entry points into; null if its partition is gone."""

_COUNT = "__index_count"
_PATH = "__index_path"


def with_partition_path(rows: DataFrame, tree: Tree, paths: Iterable[str]) -> DataFrame:
    """Add :data:`~spark_apps.indexes.handler.PARTITION` to rows, from the table's partition columns.

    :param tree: the table's own.
    :param paths: all partitions that a row can be of; another one fails the Spark job.
    """
    if not tree.partition_by:
        return rows.withColumn(PARTITION, F.lit(""))
    names = list(value_texts(tree))
    values = {path: tuple(parse_partition_path(path).values()) for path in sorted(set(paths))}
    unexpected = F.raise_error(F.lit("a row of a partition that the commit does not touch"))
    number = partition_number(tree, list(values.values()), unexpected.cast("int"))
    if number is not None:
        return rows.withColumn(PARTITION, F.get(F.array(*map(F.lit, values)), number))
    partitions = inline(
        rows.sparkSession,
        [(path, *texts) for path, texts in values.items()],
        ", ".join([f"{_PATH} string", *(f"{name} string" for name in names)]),
    )
    joined = rows.join(F.broadcast(partitions), partition_condition(tree, partitions), "left")
    return joined.withColumn(PARTITION, F.coalesce(F.col(_PATH), unexpected.cast("string"))).drop(_PATH, *names)


def with_bucket(entries: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Add :data:`BUCKET` to entries: the file group (as text) in which the snapshot keeps their row."""
    tree = snapshot.data
    if tree.by_id:
        return entries.withColumn(BUCKET, column(GROUP_ID))
    counts = [(path, entry.buckets or 1) for path, entry in sorted(snapshot.state.partitions.items())]
    partitions = inline(snapshot.spark, counts, f"{_PATH} string, {_COUNT} int")
    types = [tree.field(name).dataType.simpleString() for name in tree.hash_fields]
    # A null count gives no bucket: the hash functions divide by it.
    bucket = bucket_column(tree.hash_fields, F.col(_COUNT), tree.hash_function, types)
    joined = entries.join(F.broadcast(partitions), entries[PARTITION] == partitions[_PATH], "left")
    return joined.withColumn(BUCKET, bucket.cast("string")).drop(_PATH, _COUNT)


def with_group_marks(entries: DataFrame, snapshot: Snapshot, marks: Mapping[GroupKey, str], name: str) -> DataFrame:
    """Add the mark of the file group that entries refer to in column ``name``; null for groups without one."""
    located = with_bucket(entries, snapshot)
    rows = [(partition, group, mark) for (partition, group), mark in sorted(marks.items())]
    mark_rows = inline(snapshot.spark, rows, f"__index_p string, __index_g string, {name} string")
    in_group = (located[PARTITION] == mark_rows["__index_p"]) & (located[BUCKET] == mark_rows["__index_g"])
    return located.join(F.broadcast(mark_rows), in_group, "left").drop("__index_p", "__index_g", BUCKET)


def groups_of(entries: DataFrame, snapshot: Snapshot) -> frozenset[GroupKey]:
    """Return the file groups that entries refer to.

    One Spark job.
    """
    locator = GroupLocator(snapshot)
    if not snapshot.data.by_id and not locator.is_known:
        partitions = entries.select(PARTITION).distinct().collect()
        return frozenset(group for row in partitions for group in locator.all_groups(row[0]))
    pairs = with_bucket(entries, snapshot).where(column(BUCKET).isNotNull()).select(PARTITION, BUCKET).distinct()
    return frozenset((row[0], row[1]) for row in pairs.collect())


class GroupLocator:
    """The file groups of record keys, computed on the driver.

    ``is_known`` tells whether that can be done: whether the code of the table's hash function is there.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        types = {field.name: field.type for field in table.fields}
        fields = table.hash_fields or table.record_key
        self.is_known = is_known(table.hash_function) and (snapshot.has_spark or on_driver(table.hash_function))
        self._spark = snapshot.spark
        self._counts = {path: entry.buckets or 1 for path, entry in snapshot.state.partitions.items()}
        self._key_indexes = [table.record_key.index(name) for name in fields]
        self._fields = {name: types[name] for name in fields}
        self._function = table.hash_function

    def buckets(self, partition: str) -> int:
        """Return how many buckets a partition has; 0 if there is no such partition."""
        return self._counts.get(partition, 0)

    def all_groups(self, partition: str) -> list[GroupKey]:
        """Return every file group of a partition."""
        return [(partition, str(bucket)) for bucket in range(self.buckets(partition))]

    def groups(self, partition: str, keys: Sequence[Sequence[Any]]) -> list[GroupKey]:
        """Return the file group of each key; none at all if there is no such partition."""
        count = self._counts.get(partition)
        if count is None:
            return []
        values = [[key[index] for index in self._key_indexes] for key in keys]
        return [(partition, str(b)) for b in compute_buckets(self._spark, self._fields, values, count, self._function)]


# --- From keys to file groups -----------------------------------------------------------------------------------------


# Measured on local disk with 2 cores, keys at random among 1,000,000 entries, driver against Spark job, medians: 1 key
# 0.01 s against 0.9, 100 keys 0.2 against 0.7, 1,000 keys 0.15 against 0.7, 10,000 keys 0.23 against 0.8, 100,000 keys
# 1.2 against 1.8. From there on the driver works for a second alone, and the more so the larger the index.
MAX_DRIVER_KEYS = 10_000
"""Up to so many keys are looked up on the driver, more by a Spark job."""

MAX_RETURNED_KEYS = 1000
"""So many record keys are handed on to readers, which filter by them."""

# In a partition with so many entries per bucket, each bucket will have one: no need to compute which.
_ENTRIES_PER_CROWDED_BUCKET = 20


def find_candidates(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates | CannotPrune:
    """Return where the rows can be that the entries with these keys refer to.

    Without a Spark session for few keys only.

    :param tree: of the index; the keys are values of its ``hash_fields``.
    :raises StorageError: if a file of the index is missing or damaged.
    """
    if len(keys) <= MAX_DRIVER_KEYS:
        try:
            return _group_entries(context, tree, lookup(context.snapshot, tree, keys, context.definition.shards))
        except TooManyEntries:
            pass
    if not context.snapshot.has_spark:
        return CannotPrune(f"{len(keys):,} keys are looked up by a Spark job, and there is no session", "no_session")
    return _find_by_spark(context, tree, keys)


def _find_by_spark(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates:
    snapshot = context.snapshot
    shards = shards_of(tree, keys, context.definition.shards)
    shard_groups = {key: files for key, files in snapshot.groups(tree.name).items() if key[1] in shards}
    files = [file for group_files in shard_groups.values() for file in group_files]
    fields = [StructField(name, tree.field(name).dataType, True) for name in tree.hash_fields]
    try:
        key_rows = snapshot.spark.createDataFrame(list(keys), StructType(fields))
        entries = with_keys(scan(snapshot, tree, shard_groups), key_rows, tree, tree.hash_fields, len(keys))
        groups = groups_of(entries, snapshot)
    except (*SPARK_ERRORS, StorageError) as error:
        raise damaged_file_error(f"of {context.definition.name}", error) from error
    return Candidates(groups, None, len(files), sum(file.bytes for file in files))


def _group_entries(context: IndexContext, tree: Tree, result: LookupResult) -> Candidates:
    if context.snapshot.data.by_id:
        return _group_entries_by_id(context, tree, result)
    locator = GroupLocator(context.snapshot)
    columns = [tree.key.index(name) for name in context.table.record_key]
    by_partition: dict[str, list[Key]] = {}
    for key, (partition, _) in result.entries:
        by_partition.setdefault(partition, []).append(tuple(key[n] for n in columns))
    groups: set[GroupKey] = set()
    are_few = len(result.entries) <= MAX_RETURNED_KEYS and locator.is_known
    keys: dict[GroupKey, set[Key]] | None = {} if are_few else None
    for partition, record_keys in by_partition.items():
        crowded = keys is None and len(record_keys) >= _ENTRIES_PER_CROWDED_BUCKET * locator.buckets(partition)
        if crowded or not locator.is_known:
            groups.update(locator.all_groups(partition))
            continue
        for record_key, group in zip(record_keys, locator.groups(partition, record_keys), strict=False):
            groups.add(group)
            if keys is not None:
                keys.setdefault(group, set()).add(record_key)
    record_keys_of_groups = (
        None if keys is None else {group: frozenset(group_keys) for group, group_keys in keys.items()}
    )
    return Candidates(frozenset(groups), record_keys_of_groups, result.files, result.bytes)


def _group_entries_by_id(context: IndexContext, tree: Tree, result: LookupResult) -> Candidates:
    if context.table.source is not None:
        # There an entry means that a file holds the value, and no more.
        groups = frozenset((partition, group) for _, (partition, group) in result.entries if group is not None)
        return Candidates(groups, None, result.files, result.bytes)
    columns = [tree.key.index(name) for name in context.table.record_key]
    keys: dict[GroupKey, set[Key]] = {}
    for key, (partition, group) in result.entries:
        assert group is not None
        keys.setdefault((partition, group), set()).add(tuple(key[n] for n in columns))
    record_keys_of_groups = {group: frozenset(group_keys) for group, group_keys in keys.items()}
    are_few = len(result.entries) <= MAX_RETURNED_KEYS
    return Candidates(frozenset(keys), record_keys_of_groups if are_few else None, result.files, result.bytes)
