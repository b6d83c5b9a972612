"""An upsert of few rows, all of it by the driver: one Spark job hands it the batch, and no other is run.

What takes the time of a small write are Spark's jobs: to plan and start one takes longer than to write a thousand rows.
So the driver takes a batch that is small as an Arrow table, asks the ``record`` index where its keys live, and writes
the deltas, the tombstones of rows that leave another partition, and what indexes keep of both. Places, files and the
commit are those of the write by Spark (:mod:`spark_apps.actions.write`), which takes whatever the driver declines:
other types, other stores than the driver's disk, a key twice in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_apps.actions.key_location import entries_of, is_elsewhere, newest_with_keys, paths_of, touched_groups
from spark_apps.actions.limits import MAX_BATCH_BYTES, MAX_ESTIMATED_BYTES
from spark_apps.actions.template import Attempt
from spark_apps.actions.upsert_plan import (
    NOWHERE,
    PartitionTargets,
    UpsertPlan,
    existing_targets,
    keys_are_located,
    targets_for,
)
from spark_apps.engine.spark_utils import estimated_bytes
from spark_apps.engine.spark_versions import to_arrow
from spark_apps.indexes.handler import PARTITION, ChangedRows
from spark_apps.indexes.keyed.lookup import buckets_of_keys
from spark_apps.indexes.keyed.matching import KeyMatcher, kinds_of, normalize_column
from spark_apps.layout.partitions import value_of
from spark_apps.layout.types import arrow_type
from spark_apps.mergetree.buckets import Target, value_texts
from spark_apps.mergetree.read import live_rows
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.times import InexactTimes
from spark_apps.mergetree.tree import DELETED, Snapshot, Tree
from spark_apps.mergetree.write_on_driver import can_stage_on_driver, stage_table
from spark_apps.storage.arrow_keys import number_rows
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import AddFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HASHES = {"xxhash64", "java"}


@dataclass(frozen=True)
class StagedByDriver:
    """The files that the driver staged, their partitions, and what they change; ``None`` where Spark must say that."""

    files: list[AddFile]
    targets: PartitionTargets
    rows: ChangedRows | None


def takes_few_rows(attempt: Attempt, tree: Tree) -> bool:
    """Return whether the driver may write a batch by itself, if that has few rows."""
    snapshot = attempt.snapshot
    return (
        attempt.limits.staged_rows > 0
        and attempt.limits.local_files
        and tree.hash_function in _HASHES
        and can_stage_on_driver(snapshot.spark, snapshot.store, tree)
    )


def collect_few(attempt: Attempt, tree: Tree, rows: DataFrame, *, counted: bool = False) -> Any | None:
    """Return a batch as an Arrow table, with the texts that the names of partitions are made of.

    :param counted: whether it is known to have few rows; else Spark estimates whether it may, and no more are fetched.
    :returns: ``None`` if it is not small.
    """
    most, flag = attempt.limits.staged_rows, [DELETED] if DELETED in rows.columns else []
    texts = [text.alias(name) for name, text in value_texts(tree).items()]
    rows = rows.select(*map(column, [*tree.columns, *flag]), *texts)
    attempt.phase("fetch the rows")
    if not counted:
        size = estimated_bytes(rows)
        if size is None or size > MAX_ESTIMATED_BYTES:
            return None
        rows = rows.limit(most + 1)
    batch = to_arrow(rows)
    return batch.combine_chunks() if len(batch) <= most and batch.nbytes <= MAX_BATCH_BYTES else None


def has_each_key_once(attempt: Attempt, tree: Tree, batch: Any) -> bool:
    """Return whether no two rows of a batch are of one key, so that none has to be chosen."""
    import numpy as np

    key = tree.key if keys_are_located(attempt.snapshot) else tree.identity
    columns = [normalize_column(batch.column(name), kind) for name, kind in zip(key, kinds_of(tree, key), strict=True)]
    return len(np.unique(number_rows(columns))) == len(batch)


def stage_few(attempt: Attempt, tree: Tree, plan: UpsertPlan, batch: Any) -> StagedByDriver | None:
    """Stage the rows of a batch, and tombstones where keys of it lived in other partitions.

    :param batch: of :func:`collect_few`, each key once.
    :returns: ``None``, with nothing staged, for a batch that Spark has to take.
    """
    snapshot, located, entries = attempt.snapshot, keys_are_located(attempt.snapshot), None
    if not len(batch):
        return StagedByDriver([], NOWHERE, None)
    if located and snapshot.state.partitions:
        attempt.phase("find the keys")
        entries = entries_of(attempt, tree, batch)
        if entries is None:
            return None
        entries = _of_known_partitions(snapshot, entries)
        moved = entries.filter(is_elsewhere(entries))
        if len(moved) and tree.merge_by != "commit":
            return None  # a join decides which of old and new row stays
    paths = paths_of(snapshot.table, tree, batch)
    targets = targets_for(snapshot, _partition_values(tree, batch))
    placed = _place(tree, _typed(tree, batch), paths, targets.targets)
    if placed is None:
        return None
    vacated = None
    if entries is not None and len(moved):
        vacated = _leaving(snapshot, tree, moved)
        if vacated is None:
            return None
    attempt.phase("write the rows")
    files = _stage(attempt, tree, placed, "rows")
    if vacated is not None:
        files += _stage(attempt, tree, vacated, "left")
        targets = targets.with_more(existing_targets(snapshot, {target.path for target in vacated.targets}))
    if not plan.indexes:
        return StagedByDriver(files, targets, None)
    changes = _changes(attempt, tree, plan, files, [placed, *([] if vacated is None else [vacated])], entries)
    if changes is not None and located:
        stays = entries is not None and len(entries) == len(batch) and not len(moved)
        changes = replace(changes, settled=stays and not any(file.tombstones for file in files))
    return StagedByDriver(files, targets, changes)


@dataclass(frozen=True)
class _Placed:
    """Rows with the number of each one's partition among ``targets``, its path, and its bucket."""

    rows: Any
    paths: Any
    targets: Sequence[Target]
    numbers: Any
    buckets: Any

    def by_group(self) -> dict[GroupKey, Any]:
        """Return the rows of each file group."""
        import numpy as np

        pairs = np.stack([self.numbers, self.buckets])
        found, of_rows = np.unique(pairs, axis=1, return_inverse=True)
        order = np.argsort(of_rows.reshape(-1), kind="stable")
        bounds = np.flatnonzero(np.diff(of_rows.reshape(-1)[order])) + 1
        return {
            (self.targets[int(number)].path, str(int(bucket))): self.rows.take(rows)
            for number, bucket, rows in zip(*found, np.split(order, bounds), strict=True)
        }


def _place(tree: Tree, rows: Any | None, paths: Any, targets: Sequence[Target]) -> _Placed | None:
    """Return where rows of an Arrow table go; ``None`` if the driver cannot compute it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows is None:
        return None
    known = pa.array([target.path for target in targets], pa.string())
    numbers = pc.index_in(paths, value_set=known).to_numpy(zero_copy_only=False).astype(np.int64)
    counts, buckets = np.array([target.buckets or 1 for target in targets])[numbers], np.zeros(len(rows), np.int64)
    for count in np.unique(counts[counts > 1]).tolist():
        chosen = np.flatnonzero(counts == count)
        found = buckets_of_keys(tree, rows.take(chosen), count)
        if found is None:
            return None
        buckets[chosen] = found
    return _Placed(rows, paths, targets, numbers, buckets)


def _stage(attempt: Attempt, tree: Tree, placed: _Placed, folder: str) -> list[AddFile]:
    snapshot = attempt.snapshot
    return stage_table(
        snapshot.spark, snapshot.store, tree, placed.rows, attempt.folder(folder),
        placed.targets, placed.numbers, placed.buckets,
    )  # fmt: skip


def _typed(tree: Tree, batch: Any) -> Any | None:
    """Return the columns of a tree in the types in which they are written; ``None`` if a value does not fit."""
    import pyarrow as pa

    names = [*tree.columns, *([DELETED] if DELETED in batch.column_names else [])]
    types = [*map(arrow_type, kinds_of(tree, tree.columns)), pa.bool_()]
    try:
        columns = [batch.column(name).cast(kind) for name, kind in zip(names, types, strict=False)]
    except pa.ArrowInvalid:
        return None
    return pa.table(columns, names=names).combine_chunks()


def _partition_values(tree: Tree, batch: Any) -> list[tuple[str | None, ...]]:
    """Return the different values, as text, of the partition columns in a batch, in order."""
    names = list(value_texts(tree))
    if not names:
        return [()]
    rows = batch.select(names).group_by(names).aggregate([]).to_pylist()
    return sorted(
        (tuple(row.values()) for row in rows), key=lambda row: [(text is not None, text or "") for text in row]
    )


def _of_known_partitions(snapshot: Snapshot, entries: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(list(snapshot.state.partitions), pa.string())
    return entries.filter(pc.is_in(entries.column(PARTITION), value_set=known))


def _leaving(snapshot: Snapshot, tree: Tree, moved: Any) -> _Placed | None:
    """Return tombstones for the rows that leave a partition, in file groups that exist."""
    import numpy as np
    import pyarrow as pa

    known, paths = snapshot.state.partitions, moved.column(PARTITION).combine_chunks()
    targets = existing_targets(snapshot, sorted(set(paths.to_pylist()))).targets
    columns = []
    for name, kind in zip(tree.columns, kinds_of(tree, tree.columns), strict=True):
        if name in tree.partition_by:
            texts = [known[path].values[tree.partition_by.index(name)] for path in paths.to_pylist()]
            values = pa.array([None if text is None else value_of(text, kind) for text in texts], arrow_type(kind))
        elif name in tree.key:
            values = moved.column(name).cast(arrow_type(kind))
        else:
            values = pa.nulls(len(moved), arrow_type(kind))
        columns.append(values)
    rows = pa.table([*columns, pa.array([True] * len(moved))], names=[*tree.columns, DELETED]).combine_chunks()
    placed = _place(tree, rows, paths, targets)
    if placed is None:
        return None
    groups = [(targets[n].path, str(b)) for n, b in zip(placed.numbers.tolist(), placed.buckets.tolist(), strict=True)]
    there = snapshot.groups(only=groups)
    stay = np.array([group in there for group in groups])
    return _Placed(rows.filter(pa.array(stay)), paths.filter(pa.array(stay)), targets,
                   placed.numbers[stay], placed.buckets[stay])  # fmt: skip


def _changes(
    attempt: Attempt, tree: Tree, plan: UpsertPlan, files: Sequence[AddFile], placed: Sequence[_Placed], entries: Any
) -> ChangedRows | None:
    """Return what the staged rows change; ``None`` if the driver does not search for old rows."""
    import pyarrow as pa

    snapshot, names = attempt.snapshot, list(dict.fromkeys([*tree.tombstone_columns, *plan.columns]))
    if not plan.searches(sum(file.rows for file in files), names):
        return None
    before, counts = None, None
    if plan.reads_old_rows or entries is None:
        attempt.phase("read the old values")
        parts_of_groups = [part.by_group() for part in placed]
        by_key = replace(tree, hash_fields=tree.key)

        def sought(key: GroupKey) -> KeyMatcher:
            return KeyMatcher(
                by_key, pa.concat_tables([part[key].select(tree.key) for part in parts_of_groups if key in part])
            )

        try:
            found = newest_with_keys(snapshot, tree, touched_groups(snapshot, files), sought, names)
        except InexactTimes:
            return None
        counts = {key: len(rows) for key, rows in found.items()}
        parts = [_with_partition(rows.select(names), pa.repeat(key[0], len(rows))) for key, rows in found.items()]
        before = pa.concat_tables([*parts, _empty(tree, names)])
    kinds = dict(zip(names, kinds_of(tree, names), strict=True))
    batch = placed[0].rows.append_column(PARTITION, placed[0].paths)
    live = live_rows(batch)
    columns = [normalize_column(live.column(name), kind) for name, kind in kinds.items()]
    after = pa.table([*columns, live.column(PARTITION)], names=[*names, PARTITION])
    located = None if entries is None else entries.select([*tree.key, PARTITION])
    groups = frozenset(file.group_key for file in files)
    return ChangedRows(before, after, groups, located, counts=counts)


def _with_partition(rows: Any, paths: Any) -> Any:
    import pyarrow as pa

    return pa.table([*rows.columns, paths], names=[*rows.column_names, PARTITION])


def _empty(tree: Tree, names: Sequence[str]) -> Any:
    import pyarrow as pa

    columns = [pa.array([], arrow_type(kind)) for kind in kinds_of(tree, names)]
    return _with_partition(pa.table(columns, names=list(names)), pa.array([], pa.string()))
