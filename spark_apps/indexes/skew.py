"""Skew: which shards of an index hold far more entries than the others, as that of a value which very many rows have.

Their bases are split into parts that have some of the keys each, for else all tasks of a build would wait for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from pyspark.sql import DataFrame

from spark_apps.indexes.entry_rows import ROWS_A_SHARD
from spark_apps.mergetree.placing import GROUP, placed, single_target
from spark_apps.mergetree.tree import FileGroups, Tree
from spark_apps.timeline.files import GroupKey

_WORTH_ROWS = 4_000_000
"""Fewer entries are written in the time that looking takes."""
_SAMPLED_ROWS = 1_000_000
_SAMPLED_GROUPS = 4


def known_parts(groups: FileGroups, shards: int) -> dict[GroupKey, int]:
    """Of the shards that an index has, those whose base is split when it is written again, and into how many parts."""
    return _parts(
        {shard: sum(file.rows - file.tombstones for file in files) for shard, files in groups.items()}, shards
    )


def sampled_parts(
    tree: Tree, groups: FileGroups, entries_of: Callable[[FileGroups], DataFrame], shards: int
) -> dict[GroupKey, int]:
    """Of the shards that the entries of file groups will be in, those to split, told by some of the file groups."""
    sizes = {group: sum(max(file.rows, 0) for file in files) for group, files in groups.items()}
    rows = sum(sizes.values())
    if rows < _WORTH_ROWS or set(tree.key) <= set(tree.hash_fields):
        return {}
    # In order they are those of a partition, then of the next.
    step = max(1, min(rows // _SAMPLED_ROWS, len(groups) // _SAMPLED_GROUPS))
    some = dict(list(groups.items())[::step])
    times = rows / max(sum(sizes[group] for group in some), 1)
    found = placed(entries_of(some), tree, single_target(shards), "refuse").groupBy(GROUP).count().collect()
    return _parts({("", str(row[GROUP])): row["count"] * times for row in found}, shards)


def _parts(sizes: Mapping[GroupKey, float], shards: int) -> dict[GroupKey, int]:
    even = max(sum(sizes.values()) / shards, ROWS_A_SHARD)
    return {shard: ceil(size / even) for shard, size in sizes.items() if size > 2 * even}
