"""From rows to the paths of their partitions, and from index entries to the file groups that they point to.

Entries name the partition of a row, not its file; the bucket follows from the record key and the partition's count, so
neither compaction nor a rescale makes an entry wrong. In Spark for many entries, on the driver for few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.indexes.handler import PARTITION
from spark_apps.layout.hashing import is_known, on_driver
from spark_apps.layout.partitions import parse_partition_path
from spark_apps.mergetree.buckets import bucket_column, buckets_of
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.placing import number_of, same_values, value_texts
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import GROUP_ID, Snapshot, Tree
from spark_apps.timeline.files import GroupKey

BUCKET = "__index_bucket"
"""Column that holds the bucket an entry points into; null if its partition is gone."""

_COUNT = "__index_count"
_PATH = "__index_path"


def with_path(rows: DataFrame, tree: Tree, paths: Iterable[str]) -> DataFrame:
    """The rows with :data:`~spark_apps.indexes.handler.PARTITION`, from the table's partition columns.

    :param tree: the table's own.
    :param paths: all partitions that a row can be of; another one fails the Spark job.
    """
    if not tree.partition_by:
        return rows.withColumn(PARTITION, F.lit(""))
    names = list(value_texts(tree))
    values = {path: tuple(parse_partition_path(path).values()) for path in sorted(set(paths))}
    stray = F.raise_error(F.lit("a row of a partition that the commit does not touch"))
    number = number_of(tree, list(values.values()), stray.cast("int"))
    if number is not None:
        return rows.withColumn(PARTITION, F.get(F.array(*map(F.lit, values)), number))
    known = inline(
        rows.sparkSession,
        [(path, *texts) for path, texts in values.items()],
        ", ".join([f"{_PATH} string", *(f"{name} string" for name in names)]),
    )
    found = rows.join(F.broadcast(known), same_values(tree, known), "left")
    return found.withColumn(PARTITION, F.coalesce(F.col(_PATH), stray.cast("string"))).drop(_PATH, *names)


def with_bucket(entries: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Entries with :data:`BUCKET`, the file group (as text) in which the snapshot keeps their row."""
    tree = snapshot.data
    if tree.by_id:
        return entries.withColumn(BUCKET, column(GROUP_ID))
    counts = [(path, entry.buckets or 1) for path, entry in sorted(snapshot.state.partitions.items())]
    known = inline(snapshot.spark, counts, f"{_PATH} string, {_COUNT} int")
    types = [tree.field(name).dataType.simpleString() for name in tree.hash_fields]
    # A null count gives no bucket: the hash functions divide by it.
    bucket = bucket_column(tree.hash_fields, F.col(_COUNT), tree.hash_function, types)
    joined = entries.join(F.broadcast(known), entries[PARTITION] == known[_PATH], "left")
    return joined.withColumn(BUCKET, bucket.cast("string")).drop(_PATH, _COUNT)


def marked(entries: DataFrame, snapshot: Snapshot, marks: Mapping[GroupKey, str], name: str) -> DataFrame:
    """Entries with the mark of the file group that they point to in column ``name``; null for groups without one."""
    located = with_bucket(entries, snapshot)
    rows = [(partition, group, mark) for (partition, group), mark in sorted(marks.items())]
    known = inline(snapshot.spark, rows, f"__index_p string, __index_g string, {name} string")
    here = (located[PARTITION] == known["__index_p"]) & (located[BUCKET] == known["__index_g"])
    return located.join(F.broadcast(known), here, "left").drop("__index_p", "__index_g", BUCKET)


def groups_of(entries: DataFrame, snapshot: Snapshot) -> frozenset[GroupKey]:
    """The file groups that entries point to. One Spark job."""
    locator = Locator(snapshot)
    if not snapshot.data.by_id and not locator.known:
        partitions = entries.select(PARTITION).distinct().collect()
        return frozenset(group for row in partitions for group in locator.all_groups(row[0]))
    found = with_bucket(entries, snapshot).where(column(BUCKET).isNotNull()).select(PARTITION, BUCKET).distinct()
    return frozenset((row[0], row[1]) for row in found.collect())


class Locator:
    """Finds the file groups of record keys on the driver. ``known`` tells whether it can: whether the code of the
    table's hash function is here."""

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        types = {field.name: field.type for field in table.fields}
        fields = table.hash_fields or table.record_key
        self.known = is_known(table.hash_function) and (snapshot.has_spark or on_driver(table.hash_function))
        self._spark = snapshot.spark
        self._counts = {path: entry.buckets or 1 for path, entry in snapshot.state.partitions.items()}
        self._places = [table.record_key.index(name) for name in fields]
        self._fields = {name: types[name] for name in fields}
        self._function = table.hash_function

    def buckets(self, partition: str) -> int:
        """How many buckets a partition has; 0 if there is no such partition."""
        return self._counts.get(partition, 0)

    def all_groups(self, partition: str) -> list[GroupKey]:
        """Every file group of a partition."""
        return [(partition, str(bucket)) for bucket in range(self.buckets(partition))]

    def groups(self, partition: str, keys: Sequence[Sequence[Any]]) -> list[GroupKey]:
        """The file group of each key; none at all if there is no such partition."""
        count = self._counts.get(partition)
        if count is None:
            return []
        values = [[key[place] for place in self._places] for key in keys]
        return [(partition, str(b)) for b in buckets_of(self._spark, self._fields, values, count, self._function)]
