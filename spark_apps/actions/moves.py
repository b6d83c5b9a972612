"""Where record keys live: asked of the ``record`` index where one is kept, else of the rows.

With a ``record`` index a key is unique in the whole table, so a row whose partition value changes moves: its
old partition gets a tombstone in the same commit. Without one a key is unique in its partition, and nothing
moves.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps.actions.maintenance import kept
from spark_apps.actions.template import Attempt
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.mergetree.inline import inline
from spark_apps.mergetree.read import scan, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.timeline.state import IndexEntry, State

RECORD_KIND = "record"


def unique_index(state: State) -> IndexEntry | None:
    """The index by which keys are unique in the whole table, if one is kept with the data."""
    return next((entry for entry in kept(state) if entry.definition.kind == RECORD_KIND), None)


def locate(attempt: Attempt, tree: Tree, keys: DataFrame) -> DataFrame:
    """Partition columns and record key of the rows that have one of these record keys, in whatever partition.

    :param keys: frame with the record key columns, each key once.
    """
    snapshot = attempt.snapshot
    keys = keys.select(*map(column, tree.key))
    groups = snapshot.groups()
    entry = unique_index(snapshot.state)
    found: DataFrame | None = None
    if entry is not None:
        from spark_apps.indexes.registry import find

        context = IndexContext(snapshot, entry.definition, attempt.index_folder(entry.definition.name, "locate"))
        located = find(entry.definition.kind).locate(context, keys)
        if located is not None:
            found = _partition_columns(snapshot, tree, located)
            groups = {key: files for key, files in groups.items() if not entry.covers(key)}
            if not groups:
                return found
    scanned = with_keys(scan(snapshot, tree, groups, tree.identity), keys, tree, tree.key)
    return scanned if found is None else found.unionByName(scanned).distinct()


def moved_away(attempt: Attempt, tree: Tree, rows: DataFrame, replaced: Collection[str] = ()) -> DataFrame | None:
    """Tombstones for the old places of rows that change their partition; ``None`` if rows of this table
    cannot.

    :param rows: the batch, one row a record key.
    :param replaced: partitions all of whose rows go anyway.
    """
    if not tree.partition_by or unique_index(attempt.snapshot.state) is None or not attempt.snapshot.groups():
        return None
    old = locate(attempt, tree, rows)
    if replaced:
        known = attempt.snapshot.state.partitions
        gone = inline(
            attempt.snapshot.spark,
            [known[path].values for path in replaced if path in known],
            ", ".join(f"v{n} string" for n in range(len(tree.partition_by))),
        )
        old = old.join(F.broadcast(gone), _same_partition(old, gone, tree), "left_anti")
    # What stays where it is has its new row in the same file group; only the others need a tombstone.
    stays = with_keys(old, rows, tree, tree.identity, without=True)
    return tombstones(stays, tree)


def tombstones(keys: DataFrame, tree: Tree) -> DataFrame:
    """Tombstones for rows named by partition columns and record key: all other columns are null."""
    names = set(tree.identity)
    return keys.select(
        *[
            column(field.name) if field.name in names else F.lit(None).cast(field.dataType).alias(field.name)
            for field in tree.schema.fields
        ],
        F.lit(True).alias(DELETED),
    )


def _same_partition(rows: DataFrame, values: DataFrame, tree: Tree):  # type: ignore[no-untyped-def]
    condition = F.lit(True)
    for n, name in enumerate(tree.partition_by):
        condition = condition & rows[f"`{name}`"].cast("string").eqNullSafe(values[f"v{n}"])
    return condition


def _partition_columns(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Record keys with a partition's path, turned into record keys with the partition's columns."""
    if not tree.partition_by:
        return located.select(*map(column, tree.identity))
    names = [f"__index_v{n}" for n in range(len(tree.partition_by))]
    known = inline(
        snapshot.spark,
        [(path, *entry.values) for path, entry in snapshot.state.partitions.items()],
        ", ".join(["__index_path string", *(f"{name} string" for name in names)]),
    )
    # A record key column may be a partition column too; the partition's own value is the one that counts.
    own = [column(name) for name in tree.key if name not in tree.partition_by]
    joined = located.join(F.broadcast(known), F.col(PARTITION) == F.col("__index_path"))
    values = [F.col(text).cast(tree.field(name).dataType).alias(name)
              for text, name in zip(names, tree.partition_by, strict=True)]  # fmt: skip
    return joined.select(*values, *own)
