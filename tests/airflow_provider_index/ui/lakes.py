"""Warehouses to look at, made by the log's own calls without Spark: quiet tables, a busy one, and broken ones."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.maintenance_records import PlannedWork, SkippedWork, TablePlan, write_plan
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
    RemoveFile,
    SourceDefinition,
    TableDefinition,
    Write,
    definition_scope,
    group_scope,
    shard_scope,
    table_scope,
)
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import abort, begin
from spark_apps.timeline.windows import close, open_window
from spark_apps.workload.asked import AskedQuery
from spark_apps.workload.query_log import FOLDER

MB = 1_000_000
FIELDS = (
    Field("id", "bigint", False),
    Field("city", "string"),
    Field("amount", "decimal(10,2)"),
    Field("dt", "date"),
)
BY_CITY = IndexDefinition("by_city", "secondary", ("city",), "i1", shards=4)
BY_KEY = IndexDefinition("by_key", "record", ("id",), "i0", shards=8)

PLANNED = (
    PlannedWork("refresh", "37 commits are not in the index, 12 are allowed.", "by_city", None, 900 * MB, 260),
    PlannedWork("compact", "144 small files in 16 buckets.", None, "quick", 480 * MB, 95),
    PlannedWork(
        "compact_index",
        "The 20 minutes of this run are spent on work that is worth more.",
        "by_key",
        None,
        1200 * MB,
        1300,
        waited=2,
        chosen=False,
        code="over_budget",
    ),
)
SKIPPED = (SkippedWork("not_due", "It was verified 2 days ago; every 7 days are asked for.", "verify", "by_key"),)


class Clock:
    """Time that goes as fast as a history needs it to."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def goes_on(self, seconds: float) -> None:
        self.at += seconds


def make(
    folder: Path | str,
    *,
    indexes: Iterable[IndexDefinition] = (),
    clock: Clock | None = None,
    buckets: int = 4,
    properties: Mapping[str, str] | None = None,
) -> Timeline:
    """An empty table."""
    store = Store(folder)
    definition = TableDefinition(
        "t", FIELDS, ("id",), partition_by=("dt",), hash_fields=("id",), properties=dict(properties or {})
    )
    actions = (PutHashingConfig(HashingConfig("", buckets)), *(PutIndex(index, covered=True) for index in indexes))
    return create_table(store, definition, actions, timeline=Timeline(store, clock or time.time))[0]


def _file(
    timeline: Timeline,
    tree: str,
    partition: str,
    group: str,
    path: str,
    size: int,
    rows: int,
    kind: Literal["base", "delta"] = "delta",
    sequence_number: int | None = None,
    tombstones: int = 0,
) -> AddFile:
    """A file of that size, which takes no room: nobody reads what is in it."""
    there = Path(timeline.store.uri) / path
    there.parent.mkdir(parents=True, exist_ok=True)
    there.touch()
    os.truncate(there, size)
    return AddFile(tree, partition, group, path, kind, rows, size, sequence_number, tombstones)


def register(log: Path | str, location: Path | str, rows: Iterable[int]) -> Timeline:
    """A registered source of files with so many rows each (-1: nobody has counted), with an index that lags."""
    fields = (Field("id", "bigint"), Field("city", "string"))
    definition = TableDefinition("s", fields, (), source=SourceDefinition("parquet", str(location)), bucketed=False)
    files = [
        AddFile(DATA_TREE, "", str(number), f"file://{location}/{number}.parquet", "base", count, MB, lineage=number)
        for number, count in enumerate(rows, 1)
    ]
    by_city = IndexDefinition("by_city", "secondary", ("city",), "i9", deferred=True, addresses="file")
    return create_table(Store(log), definition, (PutPartition(""), *files, PutIndex(by_city)))[0]


def write(
    timeline: Timeline,
    partition: str,
    sizes: Iterable[int],
    *,
    txn_id: str | None = None,
    maintained: Iterable[IndexDefinition] = (),
    tombstones: int = 0,
    operation: str = "upsert",
) -> int:
    """A commit that adds a delta to each bucket of a partition; returns its version."""
    sizes = list(sizes)
    transaction = begin(timeline, operation=operation, txn_id=txn_id)
    folder = transaction.data_folder("work")
    actions: list[AnyAction] = [PutPartition(partition, len(sizes), (partition.partition("=")[2],))]
    writes = []
    for bucket, size in enumerate(sizes):
        if size:
            path = f"{folder}/{partition}-{bucket}.parquet"
            rows = size // 90
            file = _file(timeline, DATA_TREE, partition, str(bucket), path, size, rows, tombstones=tombstones)
            actions.append(file)
            writes.append(Write(group_scope(partition, str(bucket))))
    trees = []
    for index in maintained:
        trees.append(index.tree)
        for shard in range(index.shards):
            path = f"{transaction.index_folder(index.name, 'work')}/{shard}.parquet"
            size = sum(sizes) // 12 // index.shards
            file = _file(timeline, index.tree, "", str(shard), path, size, size // 20, tombstones=tombstones)
            actions.append(file)
            writes.append(Write(shard_scope(index.tree, str(shard))))
    receipt = transaction.commit(
        actions,
        reads=(CONFIG_SCOPE,),
        writes=writes,
        maintained=trees,
        metrics={"rows": sum(sizes) // 90, "seconds": 4.2},
    )
    assert receipt.version is not None
    return receipt.version


def compact(timeline: Timeline, partition: str, window: int | None = None) -> None:
    """One base a bucket in place of what is there, inside a window if one is given by its epoch."""
    transaction = begin(timeline, operation="compact", window=window)
    actions: list[AnyAction] = []
    writes = []
    for (_, group), files in timeline.head.groups(DATA_TREE).items():
        files = [file for file in files if file.partition == partition]
        if len(files) > 1:
            path = f"{transaction.data_folder('work')}/base-{partition}-{group}.parquet"
            rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
            actions += [RemoveFile(DATA_TREE, file.path) for file in files]
            sequence_number = max(file.sequence_number for file in files)
            actions.append(_file(timeline, DATA_TREE, partition, group, path, size, rows, "base", sequence_number))
            writes.append(Write(group_scope(partition, group), "fold"))
    transaction.commit(actions, writes=writes)


def refresh(timeline: Timeline, index: IndexDefinition, size: int) -> None:
    """The index tells of all again."""
    transaction = begin(timeline, operation="refresh_index")
    version = transaction.base.version
    actions: list[AnyAction] = [MarkCovered(index.tree, version)]
    for shard in range(index.shards):
        path = f"{transaction.index_folder(index.name, 'work')}/{shard}.parquet"
        actions.append(_file(timeline, index.tree, "", str(shard), path, size, size // 20, sequence_number=version))
    transaction.commit(actions, writes=(Write(shard_scope(index.tree, "0"), "backdated"),))


def busy(folder: Path, now: float, days: int = 6) -> Timeline:
    """A table of a few days: hourly writes, nightly compaction, an index behind, a window, attempts at work, a restore,
    and the plan of the last maintenance."""
    dice = random.Random(7)
    clock = Clock(now - days * 86_400)
    timeline = make(folder, indexes=(BY_KEY,), clock=clock, buckets=16, properties={"query_log": "on"})
    deferred = begin(timeline, operation="create_index")
    deferred.commit(
        (PutIndex(BY_CITY, covered=True),), reads=(table_scope(),), writes=(Write(definition_scope("by_city")),)
    )
    for day in range(days):
        partition = f"dt=2026-11-{15 + day:02d}"
        hours = 24 if day < days - 1 else 9
        buckets = 16 if day % 3 else 8
        for hour in range(0, hours, 2):
            clock.goes_on(7000 if hour else 6000)
            weight = 1 + 8 * (day == 3)
            sizes = [int(dice.uniform(1, 6) * MB * (weight if bucket == 5 else 1)) for bucket in range(buckets)]
            kept = (BY_KEY, BY_CITY) if day < 3 else (BY_KEY,)
            write(timeline, partition, sizes, txn_id=f"sales.hourly.{day}.{hour}", maintained=kept, tombstones=hour % 4)
        if day < days - 1:
            clock.goes_on(400)
            window = open_window(timeline, "nightly_rescale (maria@example.org)", partitions=[partition], seconds=900)
            clock.goes_on(500)
            compact(timeline, partition, window.epoch)
            close(timeline, window.epoch)
        if day == 2:
            refresh(timeline, BY_CITY, MB // 3)
    clock.goes_on(300)
    bad = write(timeline, "dt=2026-11-20", [9 * MB] * 16, txn_id="sales.by_mistake")
    restore(timeline, bad - 1)
    clock.at = now - 100
    silent = begin(timeline, operation="compact", txn_id="sales.nightly.compact")
    silent.heartbeat("merge the files", 3, 16)
    at_work = begin(timeline, operation="upsert", txn_id="sales.hourly.manual__2026-11-21T08.00.00.write.3f9a1c")
    clock.at = now - 3
    at_work.heartbeat("write the rows", 11, 16)
    ended = begin(timeline, operation="delete", txn_id="sales.erase")
    abort(timeline, ended.txn_id, ended.attempt, "its task was marked failed")
    open_window(timeline, "rescale_2026 (tomás@example.org)", partitions=["dt=2026-11-18"], seconds=1500)
    plan = TablePlan("maintain_sales", "scheduled__2026-11-21T02:00:00+00:00", now - 27_000, 50, PLANNED, SKIPPED)
    write_plan(timeline.store, plan)
    for day in range(days):
        used = (("by_city", "secondary"),) if day < 3 else ()
        unused = () if used else (("by_city", "secondary", "too_much_appended"),)
        spared = {"by_city": (day + 1) * 40 * MB} if used else {}
        asked(timeline, now - (days - day) * 80_000, weight=120.0, used=used, unused=unused, spared=spared)
    return timeline


def asked(timeline: Timeline, at: float, **said: Any) -> None:
    """A line of the table's query log."""
    moment = datetime.fromtimestamp(at, UTC)
    line = AskedQuery(table=timeline.store.uri, asked=moment, shape="city = ?", **said).to_document()
    timeline.store.put(f"{FOLDER}/{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(8)}.jsonl", line + b"\n")


def many(warehouse: Path, count: int) -> None:
    """Small tables in folders as databases have them: copies of one with an index behind, and of one without."""
    patterns = (warehouse / "db0" / "table_0000", warehouse / "db1" / "table_0001")
    for folder, indexes in zip(patterns, ((BY_CITY,), ()), strict=True):
        write(make(folder, indexes=indexes), "dt=2026-11-20", [40_000, 50_000, 30_000, 60_000])
    for number in range(2, count):
        _link(patterns[number % 3 > 0], warehouse / f"db{number % 10}" / f"table_{number:04d}")


def _link(pattern: Path, folder: Path) -> None:
    """The same log once more; its files are immutable, so both may have the same ones."""
    (folder / "_index" / "timeline").mkdir(parents=True)
    for path in (pattern / "_index" / "timeline").glob("*.json"):
        os.link(path, folder / "_index" / "timeline" / path.name)


def damage(folder: Path) -> None:
    """A log with a hole in it."""
    timeline = make(folder)
    for _ in range(3):
        write(timeline, "dt=2026-11-20", [MB] * 4)
    (folder / "_index" / "timeline" / f"{2:020d}.json").unlink()


def load(folder: Path) -> Timeline:
    """The log of a table, read anew."""
    return Timeline.load(Store(folder))


def several(warehouse: Path) -> None:
    """What else a shop has: a table whose indexes are fresh, one without any, one that was dropped, one whose window
    is past its deadline."""
    customers = make(warehouse / "shop" / "customers", indexes=(BY_KEY, BY_CITY), buckets=8)
    for day in (18, 19, 20):
        write(customers, f"dt=2026-11-{day}", [3 * MB] * 8, maintained=(BY_KEY, BY_CITY), tombstones=2)
    write(make(warehouse / "shop" / "returns"), "dt=2026-11-20", [200_000] * 4)
    gone = make(warehouse / "shop" / "coupons")
    begin(gone, operation="drop_table").commit((DropTable(),), writes=(Write(table_scope(), "replace"),))
    clock = Clock(time.time() - 7200)
    late = make(warehouse / "ops" / "events", indexes=(BY_KEY,), clock=clock)
    write(late, "dt=2026-11-20", [30 * MB, 28 * MB, 33 * MB, 31 * MB], maintained=(BY_KEY,))
    open_window(late, "backfill_events", seconds=1800)
