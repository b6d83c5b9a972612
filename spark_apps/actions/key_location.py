"""The partitions that record keys live in, by the ``record`` index where one is kept, else by the rows.

With a ``record`` index a key is unique in the whole table, so a row whose partition value changes moves: its old
partition gets a tombstone in the same commit. Without one a key is unique in its partition, and nothing moves. The
plan of the write decides when and by whom keys are looked up (:mod:`spark_apps.actions.upsert_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_apps.actions.partition_targets import NOWHERE, PartitionTargets, targets_for
from spark_apps.actions.replaced_rows import as_files, changes_of, rows_in, rows_of_staged, touched_groups
from spark_apps.actions.template import Attempt, StagedChanges
from spark_apps.actions.upsert_plan import UpsertPlan, unique_index
from spark_apps.indexes.handler import PARTITION, Changes, IndexContext
from spark_apps.indexes.keyed.matching import kinds_of, normalize_column
from spark_apps.indexes.registry import find
from spark_apps.layout.partitions import path_of_texts
from spark_apps.mergetree.buckets import value_texts
from spark_apps.mergetree.read import number_rows, read_files, same_key, scan, scan_keys, with_keys
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.spark_utils import from_arrow, inline
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.storage.errors import ConcurrentWrite
from spark_apps.timeline.model import AddFile, TableDefinition
from spark_apps.timeline.state import State, was_kept_current

Hold = Callable[[DataFrame], DataFrame]
"""Has Spark keep a frame that is read more than once, as long as the write needs it."""

_TARGET = "__index_own"
"""Column with the path of the partition that a row is written into."""


def locate_keys(
    attempt: Attempt, tree: Tree, keys: DataFrame, count: int | None = None, *, broadcast: bool = False
) -> DataFrame:
    """Return the rows that have one of these record keys, in whatever partition, by the columns that name them.

    :param keys: frame with the record key columns, each key once.
    :param count: how many there are, if known.
    :param broadcast: whether the keys are broadcast.
    """
    snapshot = attempt.snapshot
    keys = keys.select(*map(column, tree.key))
    if broadcast:
        keys = F.broadcast(keys)
    entry = unique_index(snapshot.state)
    indexed: DataFrame | None = None
    if entry is not None:
        context = IndexContext(snapshot, entry.definition, attempt.index_folder(entry.definition.name, "locate"))
        located = find(entry.definition.kind).locate(context, keys)
        if located is not None:
            indexed = _partition_columns(snapshot, tree, located)
            if not entry.lag:
                return indexed
    groups = snapshot.groups(only=None if indexed is None or entry is None else entry.lag)
    scanned = scan_keys(snapshot, tree, groups, tree.tombstone_columns, keys, tree.key, count)
    return scanned if indexed is None else indexed.unionByName(scanned).distinct()


@dataclass(frozen=True)
class RelocatedRows:
    """The rows of a batch, and tombstones for those that leave another partition.

    :param rows: the batch, without rows that lose against a newer one in another partition.
    :param leaving: tombstones for the partitions that are left; ``None`` if no row moves.
    :param targets: the partitions that are left.
    :param located: where keys of the batch live now; ``None`` if they were not looked for.
    """

    rows: DataFrame
    leaving: DataFrame | None = None
    targets: PartitionTargets = NOWHERE
    located: DataFrame | None = None


def relocated_rows(
    attempt: Attempt,
    tree: Tree,
    plan: UpsertPlan,
    rows: DataFrame,
    hold: Hold,
    replaced: Collection[str] = (),
) -> RelocatedRows:
    """Return which rows of a batch leave another partition.

    :param rows: the batch, one row a record key.
    :param hold: keeps a frame that is read more than once.
    :param replaced: partitions all of whose rows go anyway (an overwrite, which ordering does not stop).
    """
    if not attempt.snapshot.state.partitions:
        return RelocatedRows(rows)
    attempt.phase("find the keys")
    if plan.rows is not None and plan.looks_up(plan.rows) and not tree.by_id and _all_stay(attempt, tree, rows):
        return RelocatedRows(rows)
    located = locate_keys(attempt, tree, rows)
    if tree.by_id:
        located = hold(located)
    if not tree.partition_by:
        return RelocatedRows(rows, located=located)
    # What stays where it is has its new row in the same file group; only the others need a tombstone.
    elsewhere = hold(with_keys(located, rows, tree, tree.identity, without=True))
    values = [tuple(row) for row in elsewhere.select(*value_texts(tree).values()).distinct().collect()]
    targets = targets_for(attempt.snapshot, values)
    targets = targets.only({target.path for target in targets.targets} - targets.new - set(replaced))
    if not targets.targets:
        return RelocatedRows(rows, located=located)
    if tree.merge_by == "ordering" and not replaced:
        losing = hold(_losing(attempt.snapshot, tree, rows, elsewhere, targets))
        rows = with_keys(rows, losing, tree, tree.key, without=True)
        elsewhere = with_keys(elsewhere, losing, tree, tree.key, without=True)
    return RelocatedRows(rows, tombstones(elsewhere, tree), targets, located)


def _all_stay(attempt: Attempt, tree: Tree, rows: DataFrame) -> bool:
    """Return whether the index, asked by the driver, knows that no key of a batch lives in another partition."""
    import pyarrow.compute as pc

    entries = _entries_of(attempt, tree, _with_texts(tree, rows).toArrow())
    return entries is not None and not pc.any(_elsewhere(entries)).as_py()


def _with_texts(tree: Tree, rows: DataFrame) -> DataFrame:
    """Return the record key, and the texts that the names of partitions are made of."""
    return rows.select(*map(column, tree.key), *[text.alias(name) for name, text in value_texts(tree).items()])


def _entries_of(attempt: Attempt, tree: Tree, batch: Any) -> Any | None:
    """Return each record key of a batch that lives anywhere, with its partition and the one it is written into.

    :param batch: an Arrow table of :func:`_with_texts`.
    :returns: an Arrow table; ``None`` if the index declines, as it does where it would read too much.
    """
    import pyarrow as pa

    entry = unique_index(attempt.snapshot.state)
    if entry is None:
        return None
    kinds = kinds_of(tree, tree.key)
    keys = pa.table(
        [normalize_column(batch.column(name), kind) for name, kind in zip(tree.key, kinds, strict=True)],
        names=list(tree.key),
    )
    known = find(entry.definition.kind).places(IndexContext(attempt.snapshot, entry.definition, ""), keys)
    if known is None:
        return None
    targets = keys.append_column(_TARGET, _paths(attempt.snapshot.table, tree, batch))
    entries = known.select([*tree.key, PARTITION]).join(targets, list(tree.key), join_type="inner")
    # Arrow takes no null for another: keys that its join leaves out are Spark's to find.
    return entries if len(entries) == len(known) else None


def _paths(table: TableDefinition, tree: Tree, batch: Any) -> Any:
    """Return the path of the partition that each row of a batch is written into."""
    import numpy as np
    import pyarrow as pa

    if not tree.partition_by:
        return pa.repeat(path_of_texts(table, ()), len(batch))
    texts = batch.select(list(value_texts(tree))).combine_chunks()
    numbers = number_rows([column.combine_chunks() for column in texts.columns])
    _, first, numbered_paths = np.unique(numbers, return_index=True, return_inverse=True)
    paths = [path_of_texts(table, tuple(row.values())) for row in texts.take(first).to_pylist()]
    return pa.array(paths, pa.string()).take(pa.array(numbered_paths))


def _elsewhere(entries: Any) -> Any:
    """Return which entries name another partition than their key is written into."""
    import pyarrow.compute as pc

    return pc.not_equal(entries.column(PARTITION), entries.column(_TARGET))


def _located_at(snapshot: Snapshot, tree: Tree, entries: Any) -> DataFrame | None:
    """Return the record keys of entries with the columns of their partitions; ``None`` if no such partition exists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(list(snapshot.state.partitions), pa.string())
    there = entries.filter(pc.is_in(entries.column(PARTITION), value_set=known))
    if not len(there):
        return None
    fields = [T.StructField(name, tree.field(name).dataType) for name in tree.key]
    schema = T.StructType([*fields, T.StructField(PARTITION, T.StringType())])
    return _partition_columns(snapshot, tree, from_arrow(snapshot.spark, there.select(schema.names), schema))


def keep_unique(
    attempt: Attempt,
    tree: Tree,
    staged: Sequence[AddFile],
    work: StagedChanges,
    replaced: Collection[str] = (),
    relies: bool = True,
) -> None:
    """Guard a commit against keys of other partitions that it could not know, and against the drop of its index.

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
        if entry is None or not written or (known is not None and was_kept_current(known, entry, base.version)):
            return
        newest = replace(attempt, snapshot=replace(attempt.snapshot, state=head))
        examples = _repeated_elsewhere(newest, tree, staged, written, replaced)
        if examples:
            raise ConcurrentWrite(
                f"Since version {base.version}, from which this write began, rows have landed that the record index "
                f"{entry.definition.name!r} does not hold, or it was made; rows of this write have keys of other "
                f"partitions: {examples}.",
                hint="Run it again: it will move those rows.",
            )

    work.guard = guard
    work.unique_by = "" if known is None else known.definition.tree


def _repeated_elsewhere(
    newest: Attempt, tree: Tree, staged: Sequence[AddFile], written: Sequence[AddFile], replaced: Collection[str]
) -> str:
    """Return examples of staged rows whose keys stand in other partitions too; an empty text if there are none."""
    snapshot, texts = newest.snapshot, value_texts(tree)
    rows = read_files(snapshot, tree, as_files(snapshot, written), tree.key, flag=True).where(F.col(DELETED).isNull())
    staged_keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    located = locate_keys(newest, tree, rows.select(*map(column, tree.key)).distinct())
    untouched = with_keys(located, staged_keys, tree, tree.identity, without=True)
    one = [F.first(column(name)).alias(name) for name in tree.key if name not in tree.partition_by]
    partitions = untouched.groupBy(*[text.alias(name) for name, text in texts.items()]).agg(F.count(F.lit(1)), *one)
    example = {
        path_of_texts(snapshot.table, tuple(row[name] for name in texts)): row.asDict() for row in partitions.collect()
    }
    return "; ".join(
        f"{', '.join(f'{name}={row[name]!r}' for name in tree.key if name in row)} in {path!r}"
        for path, row in sorted((path, row) for path, row in example.items() if path not in replaced)[:3]
    )


def _losing(
    snapshot: Snapshot, tree: Tree, rows: DataFrame, elsewhere: DataFrame, targets: PartitionTargets
) -> DataFrame:
    """Return record keys of the batch whose row in another partition has a higher ordering; null is the lowest."""
    assert tree.ordering is not None
    paths = {target.path for target in targets.targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    stored = scan(snapshot, tree, groups, list(dict.fromkeys([*tree.identity, tree.ordering])))
    stored = with_keys(stored, elsewhere, tree, tree.identity)
    # A tombstone of the batch has no ordering: it removes the row, whatever that holds.
    batch = rows.where(F.col(DELETED).isNull()) if DELETED in rows.columns else rows
    names = {name: f"__index_k_{name}" for name in tree.key}
    old = stored.select(*[column(n).alias(r) for n, r in names.items()], column(tree.ordering).alias("__index_old"))
    new = column(tree.ordering)
    higher = F.col("__index_old").isNotNull() & (new.isNull() | (F.col("__index_old") > new))
    joined = batch.join(old, same_key(batch, old, tree, tree.key, "__index_k_"))
    return joined.where(higher).select(*map(column, tree.key))


def existing_rows(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Return, of rows named by partition columns and record key, those that exist: an index may name one that did."""
    values = [tuple(row) for row in located.select(*value_texts(tree).values()).distinct().collect()]
    paths = {target.path for target in targets_for(snapshot, values).targets}
    groups = {key: files for key, files in snapshot.groups().items() if key[0] in paths}
    return with_keys(scan(snapshot, tree, groups, tree.tombstone_columns), located, tree, tree.tombstone_columns)


def tombstones(keys: DataFrame, tree: Tree) -> DataFrame:
    """Return tombstones for rows named by partition columns and record key; all other columns are null."""
    return keys.select(
        *[
            column(name) if name in tree.tombstone_columns else F.lit(None).cast(tree.field(name).dataType).alias(name)
            for name in tree.given
        ],
        F.lit(True).alias(DELETED),
    )


def _partition_columns(snapshot: Snapshot, tree: Tree, located: DataFrame) -> DataFrame:
    """Return record keys with the columns of their partition, from record keys with its path."""
    if not tree.partition_by:
        return located.select(*map(column, tree.tombstone_columns))
    names = list(value_texts(tree))
    known = inline(
        snapshot.spark,
        [(path, *entry.values) for path, entry in snapshot.state.partitions.items()],
        ", ".join(["__index_path string", *(f"{name} string" for name in names)]),
    )
    # A record key column may be a partition column too; the partition's own value is the one that counts.
    others = [column(name) for name in tree.tombstone_columns if name not in tree.partition_by]
    joined = located.join(F.broadcast(known), F.col(PARTITION) == F.col("__index_path"))
    values = [F.col(text).cast(tree.field(name).dataType).alias(name)
              for text, name in zip(names, tree.partition_by, strict=True)]  # fmt: skip
    return joined.select(*values, *others)


# --- Where the keys of a staged upsert live -------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyLocations:
    """The keys of staged files, as far as they are located.

    :param before: their rows as they were in the file groups that the files go into; ``None`` if there were none, or
        no index needs them.
    :param located: partition columns and record key of all keys that live anywhere; ``None`` if ``settled``, or if none
        does.
    :param settled: whether every key lives in the partition that it was written into.
    :param relocated: the rows that leave another partition.
    """

    before: DataFrame | None
    located: DataFrame | None
    settled: bool
    relocated: RelocatedRows


@dataclass(frozen=True)
class _IndexedKeys:
    """The keys without a row in the touched file groups, as the index locates them.

    :param located: those that live anywhere. :param staying: how many live where they were written into.
    :param elsewhere: those that live in another partition. :param vacated: the values of these partitions.
    """

    located: DataFrame | None = None
    staying: int = 0
    elsewhere: DataFrame | None = None
    vacated: Sequence[tuple[str | None, ...]] = ()


def locate_staged(
    attempt: Attempt, tree: Tree, plan: UpsertPlan, staged: Sequence[AddFile], hold: Hold
) -> KeyLocations:
    """Return where the keys of staged files live.

    :param hold: keeps a frame that is read more than once.
    """
    snapshot = attempt.snapshot
    count = sum(action.rows for action in staged)
    touched = touched_groups(snapshot, staged)
    keys = read_files(snapshot, tree, as_files(snapshot, staged), tree.identity)
    before, existed, others = None, 0, keys
    if touched and plan.reads_old_rows:
        attempt.phase("read the old values")
        names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
        before = hold(rows_of_staged(snapshot, tree, plan, staged, touched, names))
        existed = before.count()
        if 0 < existed < count:
            others = with_keys(keys, before, tree, tree.identity, existed, without=True)
    indexed = _IndexedKeys()
    if existed < count and snapshot.state.partitions:
        attempt.phase("find the keys")
        looked_up = _look_up(attempt, tree, others) if plan.looks_up(count - existed) else None
        indexed = looked_up or _join(attempt, tree, plan, hold(others) if existed else others, count - existed, hold)
    settled = existed + indexed.staying == count and not any(action.tombstones for action in staged)
    parts = [] if before is None else [before.select(*map(column, tree.identity))]
    parts += [] if indexed.located is None else [indexed.located]
    located = None if settled or not parts else reduce(DataFrame.unionByName, parts)
    targets = targets_for(snapshot, indexed.vacated)
    targets = targets.only({target.path for target in targets.targets} - targets.new)
    relocated = RelocatedRows(keys)
    if indexed.elsewhere is not None and targets.targets:
        relocated = RelocatedRows(keys, tombstones(indexed.elsewhere, tree), targets)
    return KeyLocations(before if existed else None, located, settled, relocated)


def _look_up(attempt: Attempt, tree: Tree, rows: DataFrame) -> _IndexedKeys | None:
    """Return where the index, read by the driver, locates the keys of rows; ``None`` if it declines."""
    snapshot = attempt.snapshot
    entries = _entries_of(attempt, tree, _with_texts(tree, rows).toArrow())
    if entries is None:
        return None
    elsewhere = entries.filter(_elsewhere(entries))
    known = snapshot.state.partitions
    paths = set(elsewhere.column(PARTITION).to_pylist())
    vacated = sorted((known[path].values for path in paths if path in known), key=repr)
    staying = len(entries) - len(elsewhere)
    return _IndexedKeys(_located_at(snapshot, tree, entries), staying, _located_at(snapshot, tree, elsewhere), vacated)


def _join(attempt: Attempt, tree: Tree, plan: UpsertPlan, rows: DataFrame, count: int, hold: Hold) -> _IndexedKeys:
    """Return where the keys of rows live, by a join of Spark's with the entries of the index."""
    located = hold(locate_keys(attempt, tree, rows, count, broadcast=plan.broadcasts(count)))
    elsewhere = hold(with_keys(located, rows, tree, tree.identity, count, without=True))
    vacated = [tuple(row) for row in elsewhere.groupBy(*value_texts(tree).values()).count().collect()]
    staying = located.count() - sum(row[-1] for row in vacated)
    return _IndexedKeys(located, staying, elsewhere if vacated else None, [row[:-1] for row in vacated])


def changes_by(
    snapshot: Snapshot,
    tree: Tree,
    plan: UpsertPlan,
    staged: Sequence[AddFile],
    vacated: Sequence[AddFile],
    locations: KeyLocations,
    hold: Hold,
) -> Changes:
    """Return what an upsert does to the rows of its keys, from what is known of them.

    :param vacated: the tombstones for partitions that are left.
    """
    names = list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
    before = locations.before
    if vacated and plan.reads_old_rows:
        moved = changes_of(snapshot, tree, plan, vacated).before
        if moved is not None:
            before = hold(moved) if before is None else before.unionByName(hold(moved))
    groups = frozenset((action.partition, action.group) for action in (*staged, *vacated))
    after = rows_in(snapshot, tree, staged, names)
    return Changes(before, after, groups, located=locations.located, settled=locations.settled)
