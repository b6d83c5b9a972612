"""From looked-up keys to the file groups that can hold their rows: on the driver for few keys, by a Spark job for
many."""

from __future__ import annotations

from collections.abc import Collection

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from spark_apps.indexes.handler import Candidates, CannotPrune, IndexContext, Key
from spark_apps.indexes.locating import Locator, groups_of
from spark_apps.indexes.lookup import Found, TooMany, damaged, lookup, shards_of
from spark_apps.mergetree.read import scan, with_keys
from spark_apps.mergetree.tree import Tree
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import GroupKey

# Measured on local disk with 2 cores, keys at random among 1,000,000 entries, driver against Spark job, medians: 1 key
# 0.01 s against 0.9, 100 keys 0.2 against 0.7, 1,000 keys 0.15 against 0.7, 10,000 keys 0.23 against 0.8, 100,000 keys
# 1.2 against 1.8. From there on the driver works for a second alone, and the more so the larger the index.
DIRECT_KEYS = 10_000
"""Up to so many keys are looked up on the driver, more by a Spark job."""

HANDED_KEYS = 1000
"""So many record keys are handed on to readers, which filter by them."""

SPARK_ERRORS = (PySparkException, Py4JError)
"""What a Spark job that fails raises: errors of the JVM that pyspark has no class for come as py4j's."""

# In a partition with so many entries a bucket, each bucket will have one: no need to compute which.
_CROWDED = 20


def candidates(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates | CannotPrune:
    """Where the rows can be that the entries with these keys point to; without a Spark session told for few keys only.

    :param tree: of the index; the keys are values of its ``hash_fields``.
    :raises StorageError: if a file of the index is missing or damaged.
    """
    if len(keys) <= DIRECT_KEYS:
        try:
            return _of_few(context, tree, lookup(context.snapshot, tree, keys, context.definition.shards))
        except TooMany:
            pass
    if not context.snapshot.has_spark:
        return CannotPrune(f"{len(keys):,} keys are looked up by a Spark job, and there is no session", "no_session")
    return _of_many(context, tree, keys)


def _of_many(context: IndexContext, tree: Tree, keys: Collection[Key]) -> Candidates:
    snapshot = context.snapshot
    shards = shards_of(tree, keys, context.definition.shards)
    wanted = {key: files for key, files in snapshot.groups(tree.name).items() if key[1] in shards}
    files = [file for found in wanted.values() for file in found]
    fields = [StructField(name, tree.field(name).dataType, True) for name in tree.hash_fields]
    try:
        given = snapshot.spark.createDataFrame(list(keys), StructType(fields))
        entries = with_keys(scan(snapshot, tree, wanted), given, tree, tree.hash_fields, len(keys))
        groups = groups_of(entries, snapshot)
    except (*SPARK_ERRORS, StorageError) as error:
        raise damaged(f"of {context.definition.name}", error) from error
    return Candidates(groups, None, len(files), sum(file.bytes for file in files))


def _of_few(context: IndexContext, tree: Tree, found: Found) -> Candidates:
    if context.snapshot.data.by_id:
        return _by_id(context, tree, found)
    locator = Locator(context.snapshot)
    columns = [tree.key.index(name) for name in context.table.record_key]
    by_partition: dict[str, list[Key]] = {}
    for key, (partition, _) in found.entries:
        by_partition.setdefault(partition, []).append(tuple(key[n] for n in columns))
    groups: set[GroupKey] = set()
    few = len(found.entries) <= HANDED_KEYS and locator.known
    keys: dict[GroupKey, set[Key]] | None = {} if few else None
    for partition, record_keys in by_partition.items():
        crowded = keys is None and len(record_keys) >= _CROWDED * locator.buckets(partition)
        if crowded or not locator.known:
            groups.update(locator.all_groups(partition))
            continue
        for record_key, group in zip(record_keys, locator.groups(partition, record_keys), strict=False):
            groups.add(group)
            if keys is not None:
                keys.setdefault(group, set()).add(record_key)
    told = None if keys is None else {group: frozenset(those) for group, those in keys.items()}
    return Candidates(frozenset(groups), told, found.files, found.bytes)


def _by_id(context: IndexContext, tree: Tree, found: Found) -> Candidates:
    if context.table.source is not None:
        # There an entry says that a file holds the value, and no more.
        groups = frozenset((partition, group) for _, (partition, group) in found.entries if group is not None)
        return Candidates(groups, None, found.files, found.bytes)
    columns = [tree.key.index(name) for name in context.table.record_key]
    keys: dict[GroupKey, set[Key]] = {}
    for key, (partition, group) in found.entries:
        assert group is not None
        keys.setdefault((partition, group), set()).add(tuple(key[n] for n in columns))
    told = {group: frozenset(those) for group, those in keys.items()}
    few = len(found.entries) <= HANDED_KEYS
    return Candidates(frozenset(keys), told if few else None, found.files, found.bytes)
