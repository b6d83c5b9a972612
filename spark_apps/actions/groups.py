"""Tables without a bucket layout: which file group a row is written into.

A key that is there stays in its file group, which the ``record`` index tells; new keys fill the smallest group of their
partition, or groups of their own once that is full. The ids of groups say nothing and are never used again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.actions.partitions import path_of
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.placing import same_values, value_texts
from spark_apps.mergetree.read import same_key
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, GROUP_ID, Snapshot, Tree
from spark_apps.storage.errors import InvalidInput

GROUP_ROWS = "group_rows"
"""Property of a table: how many rows a file group takes before new keys go into another one."""

_DEFAULT_ROWS = 1_000_000
_PREFIX = "__index_k_"


def group_rows(properties: dict[str, str]) -> int:
    """The value of :data:`GROUP_ROWS`. :raises InvalidInput: if it is not a positive number."""
    text = properties.get(GROUP_ROWS, str(_DEFAULT_ROWS))
    if not text.isdigit() or not int(text):
        raise InvalidInput(f"The table property {GROUP_ROWS!r} is {text!r}.", hint="Give a positive number of rows.")
    return int(text)


def with_groups(
    snapshot: Snapshot,
    tree: Tree,
    rows: DataFrame,
    places: DataFrame | None,
    hold: Callable[[DataFrame], DataFrame],
    *,
    fresh: bool = False,
) -> DataFrame:
    """The rows, each with the id of its file group; tombstones of keys that are nowhere are left out.

    :param rows: one row a record key.
    :param places: where keys of the batch live now, if anywhere.
    :param hold: keeps a frame that is read more than once.
    :param fresh: whether groups that are there are left alone.
    """
    if places is None:
        found = rows.withColumn(GROUP_ID, F.lit(None).cast("string"))
    else:
        names = [column(name).alias(_PREFIX + name) for name in tree.identity]
        there = places.select(*names, GROUP_ID)
        found = rows.join(there, same_key(rows, there, tree, tree.identity, _PREFIX), "left")
        found = found.drop(*[_PREFIX + name for name in tree.identity])
    if DELETED in rows.columns:
        found = found.where(F.col(GROUP_ID).isNotNull() | F.col(DELETED).isNull())
    found = hold(found)
    homeless = found.where(F.col(GROUP_ID).isNull()).groupBy(*value_texts(tree).values()).count().collect()
    opened = []
    for *values, count in homeless:
        if count:
            path = path_of(snapshot.table, values)
            opened.append((",".join(_open(snapshot, tree, path, count, fresh)), *values))
    return _assigned(found, tree, opened) if opened else found


def _open(snapshot: Snapshot, tree: Tree, path: str, count: int, fresh: bool) -> list[str]:
    """The groups that so many new keys of a partition go into."""
    limit = group_rows(snapshot.table.properties)
    sizes: dict[str, int] = {}
    for file in () if fresh else snapshot.state.files(tree.name, path):
        sizes[file.group] = sizes.get(file.group, 0) + file.rows
    smallest = min(sizes, key=lambda group: (sizes[group], group), default=None)
    if smallest is not None and sizes[smallest] + count <= limit:
        return [smallest]
    return [secrets.token_hex(8) for _ in range(-(-count // limit))]


def _assigned(found: DataFrame, tree: Tree, opened: Sequence[tuple[str | None, ...]]) -> DataFrame:
    """Gives the rows without a group one of those opened for their partition, by the hash of their key."""
    names = list(value_texts(tree))
    ddl = ", ".join(["__index_open string", *(f"{name} string" for name in names)])
    known = inline(found.sparkSession, opened, ddl)
    same = same_values(tree, known) if names else F.lit(True)
    ids = F.split(F.col("__index_open"), ",")
    place = F.pmod(F.xxhash64(*map(column, tree.key)), F.size(ids)) + 1
    chosen = F.coalesce(F.col(GROUP_ID), F.element_at(ids, place.cast("int")))
    joined = found.join(F.broadcast(known), same, "left").withColumn(GROUP_ID, chosen)
    return joined.drop("__index_open", *names)
