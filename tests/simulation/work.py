"""What the jobs do to a simulated table: the operations of the package with rows of a few keys instead of Spark's.

Each follows the rules of the Spark side (places, scopes, modes), so that what the timeline promises is seen in rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_apps.storage.errors import AlreadyCommitted
from spark_apps.timeline import cleaning, windows
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DATA_TREE,
    AddFile,
    AnyAction,
    DropTable,
    Field,
    HashingConfig,
    IndexDefinition,
    MarkCovered,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    Receipt,
    RemoveFile,
    Scope,
    TableDefinition,
    Write,
    group_scope,
    partition_scope,
    shard_scope,
    table_scope,
)
from spark_apps.timeline.restore import restore
from spark_apps.timeline.state import State
from spark_apps.timeline.transactions import Transaction, abort, begin, live_requests, resume
from tests.simulation.checker import INDEX_TREE, Checker, Rows
from tests.simulation.reading import rows_of
from tests.simulation.store import Objects, SimulatedStore

PARTITIONS = ("p=a", "p=b")
KEYS = tuple("012345")
BUCKETS = 2
SHARDS = 2

Changes = dict[str, int | None]


@dataclass
class World:
    """A table with its store, its checker and the intents of all transactions."""

    objects: Objects = field(default_factory=Objects)
    effects: dict[str, Callable[[Rows], None]] = field(default_factory=dict)
    names: int = 0

    created: bool = True
    sleeping: Any = None

    def __post_init__(self) -> None:
        self.checker = Checker(self.objects, self.effects)
        if self.created:
            store = SimulatedStore(self.objects)
            create(store, Timeline(store, lambda: self.objects.now), "create")

    def name(self, operation: str) -> str:
        self.names += 1
        return f"{operation}-{self.names}"


@dataclass
class Job:
    """One process's hold on the world: what the operations below need of it.

    ``attempt`` is the attempt it runs as, once it has one.
    """

    world: World
    store: SimulatedStore
    timeline: Any
    attempt: int | None = None

    def begin(self, operation: str, txn: str, **options: Any) -> Transaction:
        self.attempt = None
        transaction = begin(self.timeline, operation=operation, txn_id=txn, **options)
        self.attempt = transaction.attempt
        self.world.checker.relies(txn, transaction.attempt, transaction.base.version)
        return transaction

    def write_file(self, folder: str, name: str, rows: Mapping[str, object]) -> tuple[str, int]:
        body = json.dumps(rows).encode()
        path = f"{folder}/{name}.json"
        self.store.put(path, body)
        return path, len(body)


def create(store: SimulatedStore, timeline: Timeline, txn: str) -> Receipt:
    """The table, with an index that covers it."""
    definition = TableDefinition(
        f"table of {txn}", (Field("p", "string"), Field("k", "string"), Field("v", "bigint")), ("k",), ("p",)
    )
    index = IndexDefinition("by_key", "record", ("k",), "1", shards=SHARDS)
    actions = (PutIndex(index, covered=True), PutHashingConfig(HashingConfig("", BUCKETS)))
    return create_table(store, definition, actions, txn_id=txn, timeline=timeline)[1]


def bucket(key: str, count: int) -> str:
    return str(int(key) % count)


# --- writing rows --------------------------------------------------------------------------------------------------


def upsert(job: Job, txn: str, partition: str, changes: Changes, *, maintain: bool = True, **options: Any) -> Receipt:
    """Deltas on top: new values, ``None`` deletes. With ``maintain`` the index gets its entries in the same commit."""
    transaction = job.begin("upsert", txn, **options)
    actions, reads, writes = deltas(job, transaction, "work", partition, changes)
    maintained: tuple[str, ...] = ()
    if maintain:
        more, shard_writes = entries(job, transaction, "work", partition, changes)
        actions, writes, maintained = actions + more, writes + shard_writes, (INDEX_TREE,)
    transaction.heartbeat("commit")
    return transaction.commit(actions, reads=reads, writes=writes, maintained=maintained)


def upsert_in_stages(job: Job, txn: str, partition: str, changes: Changes) -> Receipt:
    """The same in three tasks: rows, index entries made from them, and a commit by a process that resumes it."""
    transaction = job.begin("upsert", txn, stages=("rows", "index", "count"))
    actions, reads, writes = deltas(job, transaction, "rows", partition, changes)
    rows = transaction.stage("rows", actions, reads=reads, writes=writes)
    transaction = resume(job.timeline, txn, transaction.attempt)
    more, shard_writes = entries(job, transaction, "index", partition, changes)
    index = transaction.stage("index", more, writes=shard_writes, maintained=(INDEX_TREE,), made_from={"rows": rows})
    transaction.stage("count", (), made_from={"rows": rows, "index": index}, metrics={"rows": len(changes)})
    return resume(job.timeline, txn, transaction.attempt).commit()


def increment(job: Job, txn: str, partition: str, key: str) -> Receipt:
    """Reads a row and writes it one higher: two at once must not lose one."""
    transaction = job.begin("increment", txn)
    count = count_of(transaction.base, partition)
    there = rows_of(job.store, transaction.base, DATA_TREE, partition, bucket(key, count)).get(key)
    changes: Changes = {key: (there if isinstance(there, int) else 0) + 1}
    actions, reads, writes = deltas(job, transaction, "work", partition, changes)
    return transaction.commit(actions, reads=(*reads, group_scope(partition, bucket(key, count))), writes=writes)


def overwrite(job: Job, txn: str, partition: str, rows: Mapping[str, int]) -> Receipt:
    """All rows of a partition go, others come in their place, as base files."""
    transaction = job.begin("overwrite", txn)
    base = transaction.base
    count = count_of(base, partition)
    actions: list[AnyAction] = [RemoveFile(DATA_TREE, file.path) for file in base.files(DATA_TREE, partition)]
    actions += [PutPartition(partition, count), *bases(job, transaction, partition, rows, count, None)]
    reads = () if partition in base.partitions else (CONFIG_SCOPE,)
    return transaction.commit(actions, reads=reads, writes=(Write(partition_scope(partition), "replace"),))


def compact(job: Job, txn: str, partition: str, group: str) -> Receipt:
    """One base file instead of the files of a group, at the highest sequence number of these."""
    transaction = job.begin("compact", txn)
    files = transaction.base.files(DATA_TREE, partition, group)
    if len(files) < 2:
        return withdraw(job, transaction)
    rows = rows_of(job.store, transaction.base, DATA_TREE, partition, group)
    actions: list[AnyAction] = [RemoveFile(DATA_TREE, file.path) for file in files]
    kept = {key: value for key, value in rows.items() if value is not None}
    path, size = job.write_file(transaction.data_folder("work"), f"base-{group}", kept)
    sequence_number = max(file.sequence_number for file in files)
    actions.append(AddFile(DATA_TREE, partition, group, path, "base", len(kept), size, sequence_number))
    return transaction.commit(actions, writes=(Write(group_scope(partition, group), "fold"),))


def refresh_index(job: Job, txn: str) -> Receipt:
    """Brings the index up to the version that the attempt started from, group by group that lags."""
    transaction = job.begin("refresh_index", txn)
    base = transaction.base
    changes: dict[str, object] = {}
    for partition, group in base.index("by_key").lag:
        rows = rows_of(job.store, base, DATA_TREE, partition, group)
        changes |= {f"{partition}|{key}": True for key, value in rows.items() if value is not None}
    if not base.index("by_key").lag:
        return withdraw(job, transaction)
    actions, writes = entry_files(job, transaction, "work", changes, base.version, "backdated")
    return transaction.commit((*actions, MarkCovered(INDEX_TREE, base.version)), writes=writes)


def compact_index(job: Job, txn: str, shard: str) -> Receipt:
    """One base file for a shard of the index."""
    transaction = job.begin("compact_index", txn)
    files = transaction.base.files(INDEX_TREE, "", shard)
    if len(files) < 2:
        return withdraw(job, transaction)
    rows = rows_of(job.store, transaction.base, INDEX_TREE, "", shard)
    kept = {key: value for key, value in rows.items() if value is not None}
    path, size = job.write_file(transaction.index_folder("by_key", "work"), f"base-{shard}", kept)
    sequence_number = max(file.sequence_number for file in files)
    actions: list[AnyAction] = [RemoveFile(INDEX_TREE, file.path) for file in files]
    actions.append(AddFile(INDEX_TREE, "", shard, path, "base", len(kept), size, sequence_number))
    return transaction.commit(actions, writes=(Write(shard_scope(INDEX_TREE, shard), "fold"),))


def rescale(
    job: Job, txn: str, partition: str, count: int, window: int | None = None, *, rules: bool = False
) -> Receipt:
    """The same rows in another number of buckets, at the highest sequence number; with ``rules`` these change too."""
    transaction = job.begin("rescale", txn, window=window)
    base = transaction.base
    files = base.files(DATA_TREE, partition)
    if not files or base.partitions[partition].buckets == count:
        return withdraw(job, transaction)
    rows: dict[str, int] = {}
    for group in sorted({file.group for file in files}):
        rows_of_group = rows_of(job.store, base, DATA_TREE, partition, group)
        rows |= {key: value for key, value in rows_of_group.items() if isinstance(value, int)}
    sequence_number = max(file.sequence_number for file in files)
    actions: list[AnyAction] = [RemoveFile(DATA_TREE, file.path) for file in files]
    actions += [PutPartition(partition, count), *bases(job, transaction, partition, rows, count, sequence_number)]
    writes = [Write(partition_scope(partition), "replace")]
    if rules:
        actions.append(PutHashingConfig(HashingConfig("", count)))
        writes.append(Write(CONFIG_SCOPE, "replace"))
    return transaction.commit(actions, reads=(partition_scope(partition),), writes=writes)


def withdraw(job: Job, transaction: Transaction) -> Receipt:
    """There was nothing to do."""
    job.world.checker.withdrawn.add((transaction.txn_id, transaction.attempt))
    transaction.withdraw()
    return Receipt(None, transaction.txn_id, transaction.requested.operation)


# --- windows, aborts, restore, cleaning ----------------------------------------------------------------------------


def rescale_in_window(job: Job, txn: str, partition: str, count: int, seconds: float = 100.0) -> Receipt:
    """Opens a window, waits for the writers from before, rescales, closes. Every step can be tried again."""
    window = windows.open_window(
        job.timeline, txn, partitions=(partition,), seconds=seconds, at_most=300.0, txn_id=f"{txn}.open"
    )
    windows.drain(job.timeline, window.epoch, seconds=5, poll=2, silent_seconds=3, then_abort=True)
    windows.renew(job.timeline, window.epoch, seconds)
    try:
        receipt = rescale(job, txn, partition, count, window.epoch)
    except AlreadyCommitted as error:
        receipt = error.receipt
    windows.close(job.timeline, window.epoch, f"{txn}.close")
    return receipt


def abort_somebody(job: Job, which: int) -> Receipt | None:
    """Ends one of the attempts that are live, by a commit."""
    live = live_requests(job.timeline)
    if not live:
        return None
    chosen = live[which % len(live)]
    return abort(job.timeline, chosen.txn_id, chosen.attempt, "taken for dead")


def drop(job: Job, txn: str) -> Receipt:
    """The table goes; its log stays."""
    return job.begin("drop_table", txn).commit((DropTable(),), writes=(Write(table_scope(), "replace"),))


def drop_and_create(job: Job, txn: str) -> Receipt:
    """The table goes, and another comes in its place."""
    try:
        drop(job, f"{txn}.drop")
    except AlreadyCommitted as error:
        assert error.receipt.operation == "drop_table"
    return create(job.store, job.timeline, f"{txn}.create")


def restore_back(job: Job, txn: str, back: int) -> Receipt:
    """Takes the last ``back`` versions back."""
    version = max(job.timeline.refresh().version - back, 0)
    return restore(job.timeline, version, txn_id=txn)


def clean(job: Job, txn: str, keep: int, seconds: float, silent: float) -> Receipt:
    return cleaning.clean(
        job.timeline, retain_versions=keep, retain_seconds=seconds, presumed_dead_seconds=silent, txn_id=txn
    )


# --- files ---------------------------------------------------------------------------------------------------------


def count_of(state: State, partition: str) -> int:
    entry = state.partitions.get(partition)
    return BUCKETS if entry is None or entry.buckets is None else entry.buckets


def deltas(
    job: Job, transaction: Transaction, stage: str, partition: str, changes: Changes
) -> tuple[list[AnyAction], tuple[Scope, ...], tuple[Write, ...]]:
    """One delta file for each bucket that the changes touch."""
    count = count_of(transaction.base, partition)
    groups: dict[str, Changes] = {}
    for key, value in changes.items():
        groups.setdefault(bucket(key, count), {})[key] = value
    actions: list[AnyAction] = [PutPartition(partition, count)]
    for group, rows in groups.items():
        path, size = job.write_file(transaction.data_folder(stage), f"delta-{partition}-{group}", rows)
        gone = sum(value is None for value in rows.values())
        actions.append(AddFile(DATA_TREE, partition, group, path, "delta", len(rows), size, tombstones=gone))
    reads = () if partition in transaction.base.partitions else (CONFIG_SCOPE,)
    return actions, reads, tuple(Write(group_scope(partition, group)) for group in groups)


def bases(
    job: Job, transaction: Transaction, partition: str, rows: Mapping[str, int], count: int, sequence_number: int | None
) -> list[AnyAction]:
    """One base file for each bucket that has rows."""
    groups: dict[str, dict[str, int]] = {}
    for key, value in rows.items():
        groups.setdefault(bucket(key, count), {})[key] = value
    actions: list[AnyAction] = []
    for group, part in groups.items():
        path, size = job.write_file(transaction.data_folder("work"), f"base-{partition}-{group}", part)
        actions.append(AddFile(DATA_TREE, partition, group, path, "base", len(part), size, sequence_number))
    return actions


def entries(
    job: Job, transaction: Transaction, stage: str, partition: str, changes: Changes
) -> tuple[list[AnyAction], tuple[Write, ...]]:
    """The index entries of changes: present, or a tombstone."""
    entry_rows = {f"{partition}|{key}": None if value is None else True for key, value in changes.items()}
    return entry_files(job, transaction, stage, entry_rows, None, "append")


def entry_files(
    job: Job, transaction: Transaction, stage: str, states: Mapping[str, object], sequence_number: int | None, mode: Any
) -> tuple[list[AnyAction], tuple[Write, ...]]:
    shards: dict[str, dict[str, object]] = {}
    for entry, value in states.items():
        shards.setdefault(bucket(entry.split("|")[1], SHARDS), {})[entry] = value
    actions: list[AnyAction] = []
    for shard, rows in shards.items():
        path, size = job.write_file(transaction.index_folder("by_key", stage), f"delta-{shard}", rows)
        actions.append(AddFile(INDEX_TREE, "", shard, path, "delta", len(rows), size, sequence_number))
    return actions, tuple(Write(shard_scope(INDEX_TREE, shard), mode) for shard in shards)


# --- what each must do to the rows ---------------------------------------------------------------------------------


def changing(partition: str, changes: Changes) -> Callable[[Rows], None]:
    def effect(rows: Rows) -> None:
        for key, value in changes.items():
            if value is None:
                rows.pop((partition, key), None)
            else:
                rows[partition, key] = value

    return effect


def incrementing(partition: str, key: str) -> Callable[[Rows], None]:
    def effect(rows: Rows) -> None:
        rows[partition, key] = rows.get((partition, key), 0) + 1

    return effect


def overwriting(partition: str, new: Mapping[str, int]) -> Callable[[Rows], None]:
    def effect(rows: Rows) -> None:
        for row in [row for row in rows if row[0] == partition]:
            del rows[row]
        rows.update({(partition, key): value for key, value in new.items()})

    return effect
