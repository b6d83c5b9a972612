"""Targets of a write: which partitions with how many buckets, or which file group where there are no buckets.

An existing key stays in its file group, which the ``record`` index holds; new keys fill the smallest group of their
partition, or groups of their own once that is full. The ids of groups have no meaning and are never used again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.layout.partitions import path_of_texts, types_of
from spark_apps.layout.rules import HashingConfig
from spark_apps.mergetree.buckets import Target, partition_condition, value_texts
from spark_apps.mergetree.read import same_key
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.spark_utils import inline
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline import model


@dataclass(frozen=True)
class PartitionTargets:
    """The partitions of a write. ``new`` are the paths of those that the table does not have yet."""

    targets: tuple[Target, ...]
    new: frozenset[str]

    @property
    def puts(self) -> list[model.PutPartition]:
        """The actions that state each partition's bucket count, by which the timeline refuses a writer with another."""
        return [model.PutPartition(target.path, target.buckets, target.values) for target in self.targets]

    @property
    def reads(self) -> list[model.Scope]:
        return [model.CONFIG_SCOPE] if self.new else []

    def with_more(self, more: PartitionTargets) -> PartitionTargets:
        """Return these partitions, and those of ``more`` that are not among them."""
        known = {target.path for target in self.targets}
        return PartitionTargets(
            (*self.targets, *(target for target in more.targets if target.path not in known)), self.new
        )

    def only(self, paths: Iterable[str]) -> PartitionTargets:
        """Return those of these partitions that are named."""
        named = set(paths)
        return PartitionTargets(tuple(t for t in self.targets if t.path in named), self.new & named)


NOWHERE = PartitionTargets((), frozenset())


def targets_for(snapshot: Snapshot, values: Iterable[tuple[str | None, ...]]) -> PartitionTargets:
    """Return the partitions with these values of the partition columns (as text)."""
    table, known = snapshot.table, snapshot.state.partitions
    types = types_of(table)
    config = HashingConfig.of(snapshot.state.configs) if table.bucketed else None
    targets, new = [], set()
    for texts in values:
        path = path_of_texts(table, texts, types)
        entry = known.get(path)
        if entry is None:
            new.add(path)
            targets.append(Target(path, texts, None if config is None else config.count_for(path)))
        else:
            targets.append(Target(path, texts, entry.buckets))
    return PartitionTargets(tuple(targets), frozenset(new))


def existing_targets(snapshot: Snapshot, paths: Iterable[str] | None = None) -> PartitionTargets:
    """Return the partitions that the table has, or those of them that are named."""
    known = snapshot.state.partitions
    named = known if paths is None else [path for path in dict.fromkeys(paths) if path in known]
    return PartitionTargets(tuple(Target(path, known[path].values, known[path].buckets) for path in named), frozenset())


# --- Tables without a bucket layout ---------------------------------------------------------------------------------


GROUP_ROWS = "group_rows"
"""Property of a table: how many rows a file group takes before new keys go into another one."""

_DEFAULT_ROWS = 1_000_000
_PREFIX = "__index_k_"


def group_rows(properties: dict[str, str]) -> int:
    """Return the value of :data:`GROUP_ROWS`.

    :raises InvalidInput: if it is not a positive number.
    """
    text = properties.get(GROUP_ROWS, str(_DEFAULT_ROWS))
    if not text.isdigit() or not int(text):
        raise InvalidInput(f"The table property {GROUP_ROWS!r} is {text!r}.", hint="Give a positive number of rows.")
    return int(text)


def with_groups(
    snapshot: Snapshot,
    tree: Tree,
    rows: DataFrame,
    located: DataFrame | None,
    hold: Callable[[DataFrame], DataFrame],
    *,
    fresh: bool = False,
) -> DataFrame:
    """Return the rows, each with the id of its file group; tombstones of keys without a row are left out.

    :param rows: one row a record key.
    :param located: where keys of the batch live now, if anywhere.
    :param hold: keeps a frame that is read more than once.
    :param fresh: whether groups that are there are left alone.
    """
    if located is None:
        grouped = rows.withColumn(GROUP_ID, F.lit(None).cast("string"))
    else:
        names = [column(name).alias(_PREFIX + name) for name in tree.identity]
        current = located.select(*names, GROUP_ID)
        grouped = rows.join(current, same_key(rows, current, tree, tree.identity, _PREFIX), "left")
        grouped = grouped.drop(*[_PREFIX + name for name in tree.identity])
    if DELETED in rows.columns:
        grouped = grouped.where(F.col(GROUP_ID).isNotNull() | F.col(DELETED).isNull())
    grouped = hold(grouped)
    homeless = grouped.where(F.col(GROUP_ID).isNull()).groupBy(*value_texts(tree).values()).count().collect()
    opened = []
    for *values, count in homeless:
        if count:
            path = path_of_texts(snapshot.table, values)
            opened.append((",".join(_open(snapshot, tree, path, count, fresh)), *values))
    return _assigned(grouped, tree, opened) if opened else grouped


def _open(snapshot: Snapshot, tree: Tree, path: str, count: int, fresh: bool) -> list[str]:
    """Return the groups that so many new keys of a partition go into."""
    limit = group_rows(snapshot.table.properties)
    sizes: dict[str, int] = {}
    for file in () if fresh else snapshot.state.files(tree.name, path):
        sizes[file.group] = sizes.get(file.group, 0) + file.rows
    smallest = min(sizes, key=lambda group: (sizes[group], group), default=None)
    if smallest is not None and sizes[smallest] + count <= limit:
        return [smallest]
    return [secrets.token_hex(8) for _ in range(-(-count // limit))]


def _assigned(grouped: DataFrame, tree: Tree, opened: Sequence[tuple[str | None, ...]]) -> DataFrame:
    """Give each row without a group one of those opened for its partition, by the hash of its key."""
    names = list(value_texts(tree))
    ddl = ", ".join(["__index_open string", *(f"{name} string" for name in names)])
    known = inline(grouped.sparkSession, opened, ddl)
    same = partition_condition(tree, known) if names else F.lit(True)
    ids = F.split(F.col("__index_open"), ",")
    position = F.pmod(F.xxhash64(*map(column, tree.key)), F.size(ids)) + 1
    chosen = F.coalesce(F.col(GROUP_ID), F.element_at(ids, position.cast("int")))
    joined = grouped.join(F.broadcast(known), same, "left").withColumn(GROUP_ID, chosen)
    return joined.drop("__index_open", *names)
