"""Where record keys live: asked of the ``record`` index where one is kept, else of the rows.

With a ``record`` index a key is unique in the whole table, so a row whose partition value changes moves: its
old partition gets a tombstone in the same commit. Without one a key is unique in its partition, and nothing
moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.maintenance import as_files, kept
from spark_apps.actions.partitions import NOWHERE, Spread, path_of, spread
from spark_apps.actions.template import Attempt, Work
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.indexes.matching import kinds_of, numbered, uniform
from spark_apps.indexes.registry import find
from spark_apps.mergetree.inline import inline, of_arrow
from spark_apps.mergetree.placing import value_texts
from spark_apps.mergetree.read import broadcast_rows, read_files, same_key, scan, scan_keys, with_keys
from spark_apps.mergetree.repeated import countable, plain
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.storage.errors import ConcurrentWrite
from spark_apps.timeline.entries import all_told
from spark_apps.timeline.model import AddFile, TableDefinition
from spark_apps.timeline.state import IndexEntry, State

# Measured as for queries (see spark_apps.indexes.candidates), driver against Spark join: 1,000 keys 0.15 s against 1.6,
# 10,000 keys 0.27 against 1.5, 100,000 keys 1.2 against 2.4.
FEW = 10_000
"""Up to so many keys are looked up on the driver wherever the index lies: reading what can hold them takes less than a
Spark job over all."""
_OWN = "__index_own"


def unique_index(state: State) -> IndexEntry | None:
    """The index by which keys are unique in the whole table, if one is kept with the data."""
    return next((entry for entry in kept(state) if find(entry.definition.kind).unique_keys), None)


def locate(attempt: Attempt, tree: Tree, keys: DataFrame, count: int | None = None) -> DataFrame:
    """Place (:attr:`~spark_apps.mergetree.tree.Tree.place`) of the rows that have one of these record keys, in whatever
    partition.

    :param keys: frame with the record key columns, each key once.
    :param count: how many there are, if known.
    """
    snapshot = attempt.snapshot
    keys = keys.select(*map(column, tree.key))
    if count is not None and count <= broadcast_rows(snapshot.spark):
        keys = F.broadcast(keys)
    entry = unique_index(snapshot.state)
    found: DataFrame | None = None
    if entry is not None:
        context = IndexContext(snapshot, entry.definition, attempt.index_folder(entry.definition.name, "locate"))
        located = find(entry.definition.kind).locate(context, keys)
        if located is not None:
            found = _partition_columns(snapshot, tree, located)
            if not entry.lag:
                return found
    groups = snapshot.groups(only=None if found is None or entry is None else entry.lag)
    scanned = scan_keys(snapshot, tree, groups, tree.place, keys, tree.key, count)
    return scanned if found is None else found.unionByName(scanned).distinct()


@dataclass(frozen=True)
class Moves:
    """What a batch does to the old places of its rows.

    :param rows: the batch, without rows that lose against a newer one in another partition.
    :param leaving: tombstones for the places that are left; ``None`` if no row moves.
    :param targets: the partitions of those places.
    :param places: where keys of the batch live now; ``None`` if they were not looked for.
    """

    rows: DataFrame
    leaving: DataFrame | None = None
    targets: Spread = NOWHERE
    places: DataFrame | None = None


def moves_of(
    attempt: Attempt,
    tree: Tree,
    rows: DataFrame,
    hold: Callable[[DataFrame], DataFrame],
    replaced: Collection[str] = (),
) -> Moves:
    """Which rows of a batch leave another partition.

    :param rows: the batch, one row a record key.
    :param hold: keeps a frame that is read more than once.
    :param replaced: partitions all of whose rows go anyway (an overwrite, which ordering does not stop).
    """
    if not attempt.snapshot.state.partitions:
        return Moves(rows)
    attempt.phase("find the keys")
    if not tree.by_id and _all_stay(attempt, tree, rows):
        return Moves(rows)
    places = locate(attempt, tree, rows)
    if tree.by_id:
        places = hold(places)
    if not tree.partition_by:
        return Moves(rows, places=places)
    # What stays where it is has its new row in the same file group; only the others need a tombstone.
    elsewhere = hold(with_keys(places, rows, tree, tree.identity, without=True))
    values = [tuple(row) for row in elsewhere.select(*value_texts(tree).values()).distinct().collect()]
    targets = spread(attempt.snapshot, values)
    targets = targets.only({target.path for target in targets.targets} - targets.new - set(replaced))
    if not targets.targets:
        return Moves(rows, places=places)
    if tree.merge_by == "ordering" and not replaced:
        losing = hold(_losing(attempt.snapshot, tree, rows, elsewhere, targets))
        rows = with_keys(rows, losing, tree, tree.key, without=True)
        elsewhere = with_keys(elsewhere, losing, tree, tree.key, without=True)
    return Moves(rows, tombstones(elsewhere, tree), targets, places)


def _all_stay(attempt: Attempt, tree: Tree, rows: DataFrame) -> bool:
    """Whether a batch is so small that the index can be asked on the driver, and no key of it lives elsewhere."""
    import pyarrow.compute as pc

    if unique_index(attempt.snapshot.state) is None:
        return False
    batch = _with_texts(tree, rows).limit(FEW + 1).toArrow()
    places = _places_of(attempt, tree, batch) if len(batch) <= FEW else None
    return places is not None and not pc.any(_moved(places)).as_py()


@dataclass(frozen=True)
class Located:
    """Where record keys live that are written into some partition: Arrow tables of them and of partitions' paths.

    :param places: of all keys that live anywhere. :param gone: of those that live in another partition.
    """

    places: Any
    gone: Any


def look_up(attempt: Attempt, tree: Tree, rows: DataFrame, count: int) -> Located | None:
    """Where the keys of rows live, by the unique index and on the driver; ``None`` if it cannot be asked there, or
    Spark is quicker.

    :param rows: at least partition columns and record key. :param count: of the rows.
    """
    snapshot = attempt.snapshot
    here = countable(snapshot.store, tree) and count <= broadcast_rows(snapshot.spark)
    if not plain(tree) or (count > FEW and not here):
        return None
    places = _places_of(attempt, tree, _with_texts(tree, rows).toArrow())
    return None if places is None else Located(places, places.filter(_moved(places)))


def _with_texts(tree: Tree, rows: DataFrame) -> DataFrame:
    """Record key, and what the names of partitions are made of."""
    return rows.select(*map(column, tree.key), *[text.alias(name) for name, text in value_texts(tree).items()])


def _places_of(attempt: Attempt, tree: Tree, batch: Any) -> Any | None:
    """Of each record key of a batch that lives anywhere, the path of its partition, and of the one it is written into.

    :param batch: an Arrow table of :func:`_with_texts`.
    :returns: an Arrow table; ``None`` if the index cannot be asked, or not for so many keys.
    """
    import pyarrow as pa

    entry = unique_index(attempt.snapshot.state)
    if entry is None:
        return None
    kinds = kinds_of(tree, tree.key)
    keys = pa.table(
        [uniform(batch.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)], names=list(tree.key)
    )
    found = find(entry.definition.kind).places(IndexContext(attempt.snapshot, entry.definition, ""), keys)
    if found is None:
        return None
    own = keys.append_column(_OWN, _paths(attempt.snapshot.table, tree, batch))
    places = found.select([*tree.key, PARTITION]).join(own, list(tree.key), join_type="inner")
    # Arrow takes no null for another: what is left out here, Spark must tell.
    return places if len(places) == len(found) else None


def _paths(table: TableDefinition, tree: Tree, batch: Any) -> Any:
    """The path of the partition that each row of a batch is written into."""
    import numpy as np
    import pyarrow as pa

    if not tree.partition_by:
        return pa.repeat(path_of(table, ()), len(batch))
    texts = batch.select(list(value_texts(tree))).combine_chunks()
    numbers = numbered([column.combine_chunks() for column in texts.columns])
    _, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    paths = [path_of(table, tuple(row.values())) for row in texts.take(first).to_pylist()]
    return pa.array(paths, pa.string()).take(pa.array(places))


def _moved(places: Any) -> Any:
    import pyarrow.compute as pc

    return pc.not_equal(places.column(PARTITION), places.column(_OWN))


def located_at(snapshot: Snapshot, tree: Tree, places: Any) -> DataFrame | None:
    """Record keys and paths of partitions, in an Arrow table, as a frame of record keys with the partition's columns;
    ``None`` if no such partition is there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(list(snapshot.state.partitions), pa.string())
    there = places.filter(pc.is_in(places.column(PARTITION), value_set=known))
    if not len(there):
        return None
    fields = [T.StructField(name, tree.field(name).dataType) for name in tree.key]
    schema = T.StructType([*fields, T.StructField(PARTITION, T.StringType())])
    return _partition_columns(snapshot, tree, of_arrow(snapshot.spark, there.select(schema.names), schema))


def keep_unique(
    attempt: Attempt,
    tree: Tree,
    staged: Sequence[AddFile],
    work: Work,
    replaced: Collection[str] = (),
    relies: bool = True,
) -> None:
    """Guards a commit against keys of other partitions that it could not know of, and against the drop of the index
    that it relied on.

    It looked its keys up in the unique index that the table had when it began, if there was one. Rows may land since
    that were not written by that index: by writers from before it, or because another was made in its place. Where that
    happened, the keys are looked up once more when the commit is made. Where the index is gone, keys are unique in
    their partitions only: what the commit takes out of other partitions, or left out of its batch, would be lost.

    :param staged: its deltas, those that take rows out of other partitions among them.
    :param replaced: partitions all of whose rows go.
    :param relies: which rows change depends on whether keys are unique in the whole table.
    """
    written = [action for action in staged if action.rows > action.tombstones]
    base, known = attempt.snapshot.state, unique_index(attempt.snapshot.state)
    if set(tree.partition_by) <= set(tree.key) or not (written or (relies and known is not None)):
        return

    def guard(head: State) -> None:
        entry = unique_index(head)
        if entry is None and known is not None and relies:
            raise ConcurrentWrite(
                f"Since version {base.version}, from which this write began, the record index "
                f"{known.definition.name!r} was dropped, and with it a key is unique in its partition only; this write "
                "took it to be unique in the table.",
                hint="Run it again: it will leave the rows of other partitions alone.",
            )
        if entry is None or not written or (known is not None and all_told(known, entry, base.version)):
            return
        newest = replace(attempt, snapshot=replace(attempt.snapshot, state=head))
        found = _elsewhere(newest, tree, staged, written, replaced)
        if found:
            raise ConcurrentWrite(
                f"Since version {base.version}, from which this write began, rows have landed that the record index "
                f"{entry.definition.name!r} was not told of, or it was made; rows of this write have keys of other "
                f"partitions: {found}.",
                hint="Run it again: it will move those rows.",
            )

    work.guard = guard
    work.unique_by = "" if known is None else known.definition.tree


def _elsewhere(
    newest: Attempt, tree: Tree, staged: Sequence[AddFile], written: Sequence[AddFile], replaced: Collection[str]
) -> str:
    """Examples of staged rows whose keys stand in other partitions, where the staged deltas leave them; empty if there
    are none."""
    snapshot, texts = newest.snapshot, value_texts(tree)
    rows = read_files(snapshot, tree, as_files(snapshot, written), tree.key, flag=True).where(F.col(DELETED).isNull())
    own = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    there = locate(newest, tree, rows.select(*map(column, tree.key)).distinct())
    left = with_keys(there, own, tree, tree.identity, without=True)
    one = [F.first(column(name)).alias(name) for name in tree.key if name not in tree.partition_by]
    found = left.groupBy(*[text.alias(name) for name, text in texts.items()]).agg(F.count(F.lit(1)), *one).collect()
    named = {path_of(snapshot.table, tuple(row[name] for name in texts)): row.asDict() for row in found}
    return "; ".join(
        f"{', '.join(f'{name}={row[name]!r}' for name in tree.key if name in row)} in {path!r}"
        for path, row in sorted((path, row) for path, row in named.items() if path not in replaced)[:3]
    )


def _losing(snapshot: Snapshot, tree: Tree, rows: DataFrame, elsewhere: DataFrame, targets: Spread) -> DataFrame:
    """Record keys of the batch whose row in another partition has a higher ordering, null being the
    lowest."""
    assert tree.ordering is not None
    paths = {target.path for target in targets.targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    there = scan(snapshot, tree, groups, list(dict.fromkeys([*tree.identity, tree.ordering])))
    there = with_keys(there, elsewhere, tree, tree.identity)
    # A tombstone of the batch has no ordering: it removes the row, whatever that says.
    mine = rows.where(F.col(DELETED).isNull()) if DELETED in rows.columns else rows
    names = {name: f"__index_k_{name}" for name in tree.key}
    old = there.select(*[column(n).alias(r) for n, r in names.items()], column(tree.ordering).alias("__index_old"))
    new = column(tree.ordering)
    higher = F.col("__index_old").isNotNull() & (new.isNull() | (F.col("__index_old") > new))
    joined = mine.join(old, same_key(mine, old, tree, tree.key, "__index_k_"))
    return joined.where(higher).select(*map(column, tree.key))


def rows_at(snapshot: Snapshot, tree: Tree, places: DataFrame) -> DataFrame:
    """Of rows named by partition columns and record key, those that are really there: an index may name one
    that was."""
    values = [tuple(row) for row in places.select(*value_texts(tree).values()).distinct().collect()]
    paths = {target.path for target in spread(snapshot, values).targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    return with_keys(scan(snapshot, tree, groups, tree.place), places, tree, tree.place)


def tombstones(keys: DataFrame, tree: Tree) -> DataFrame:
    """Tombstones for rows named by their place: all other columns are null."""
    return keys.select(
        *[
            column(name) if name in tree.place else F.lit(None).cast(tree.field(name).dataType).alias(name)
            for name in tree.given
        ],
        F.lit(True).alias(DELETED),
    )


def _partition_columns(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Record keys with a partition's path, turned into record keys with the partition's columns."""
    if not tree.partition_by:
        return located.select(*map(column, tree.place))
    names = list(value_texts(tree))
    known = inline(
        snapshot.spark,
        [(path, *entry.values) for path, entry in snapshot.state.partitions.items()],
        ", ".join(["__index_path string", *(f"{name} string" for name in names)]),
    )
    # A record key column may be a partition column too; the partition's own value is the one that counts.
    own = [column(name) for name in tree.place if name not in tree.partition_by]
    joined = located.join(F.broadcast(known), F.col(PARTITION) == F.col("__index_path"))
    values = [F.col(text).cast(tree.field(name).dataType).alias(name)
              for text, name in zip(names, tree.partition_by, strict=True)]  # fmt: skip
    return joined.select(*values, *own)
