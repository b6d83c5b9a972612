"""What the log costs: loading a table and committing to it, by number of files and by length of the log.

The files of the tables exist only in the log, which is all that the timeline reads. Times are medians; a commit is a
whole transaction with one file (begin, write, check, publish), in a process that has the table loaded.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import timed
from benchmarks.report import Report
from spark_apps.storage.store import Store
from spark_apps.timeline import checkpoints
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Field,
    PutPartition,
    RemoveFile,
    TableDefinition,
    Write,
    group_scope,
)
from spark_apps.timeline.state import PartitionEntry
from spark_apps.timeline.transactions import begin

FILES = (1_000, 100_000, 1_000_000)
LOGS = (1_000, 10_000)
PARTITIONS = 365
BUCKETS = 64
_COMMITS = 12


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Prints both tables."""
    repeats = arguments.repeats
    rows = []
    for count in FILES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((f"{count:,}", *by_files(Store(folder), count, repeats)))
    headings = (
        "files", "load ms", "one group ms", "commit ms", "commit, first ms", "compact ms", "checkpoint ms", "MB"
    )  # fmt: skip
    report.table("A table's load and commit time, by its number of files", headings, rows)
    rows = []
    for length in LOGS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((f"{length:,}", *by_versions(Store(folder), length, repeats)))
    headings = ("versions", "load ms", "load without a checkpoint ms", "commit ms")
    report.table("The same, by the length of the log", headings, rows)


def by_files(store: Store, count: int, repeats: int) -> list[str]:
    """Times of a table whose newest checkpoint holds so many files."""
    timeline = new_table(store)
    state = timeline.head.copy()
    for partition in range(PARTITIONS):
        state.partitions[partition_name(partition)] = PartitionEntry(BUCKETS, (str(partition),))
    for file in files(count):
        state.file_set.add(file)
    key = checkpoints.write(store, state)
    size = Path(store.uri, key).stat().st_size
    load = [timed(lambda: Timeline.load(store)) for _ in range(repeats)]
    group = []
    for _ in range(repeats):
        timeline = Timeline.load(store)
        group.append(timed(lambda: timeline.head.files(DATA_TREE, partition_name(3), "3")))  # noqa: B023 - called at once
    commits = [timed(lambda n=n: commit(timeline, n)) for n in range(_COMMITS)]
    folds = [timed(lambda n=n: compact(timeline, n)) for n in range(_COMMITS)]
    flat = [timed(lambda: checkpoints.write(store, timeline.head)) for _ in range(min(repeats, 3))]
    return [
        milliseconds(load),
        milliseconds(group),
        milliseconds(commits[1:]),
        milliseconds(commits[:1]),
        milliseconds(folds[1:]),
        milliseconds(flat),
        f"{size / 1e6:.1f}",
    ]


def by_versions(store: Store, length: int, repeats: int) -> list[str]:
    """Times of a small table with so many versions."""
    timeline = new_table(store)
    for number in range(length):
        commit(timeline, number)
    load = [timed(lambda: Timeline.load(store)) for _ in range(repeats)]
    commits = [timed(lambda n=n: commit(timeline, length + n)) for n in range(_COMMITS)]
    store.delete([info.key for info in store.list(checkpoints.CHECKPOINTS)])
    bare = [timed(lambda: Timeline.load(store)) for _ in range(min(repeats, 3))]
    return [milliseconds(load), milliseconds(bare), milliseconds(commits)]


def new_table(store: Store) -> Timeline:
    definition = TableDefinition("t", (Field("dt", "string"), Field("k", "string")), ("k",), partition_by=("dt",))
    return create_table(store, definition)[0]


def partition_name(number: int) -> str:
    return f"dt={number:03d}"


def files(count: int) -> Iterator[DataFile]:
    """Files as Spark names them, a thousand to a commit."""
    for number in range(count):
        partition, bucket = number % PARTITIONS, (number // PARTITIONS) % BUCKETS
        name = hashlib.md5(str(number // 1000).encode()).hexdigest()
        path = f"data/upsert-{name[:16]}.1/work/{partition}/{bucket}/part-{number % 1000:05d}-{name}.c000.zstd.parquet"
        yield DataFile(
            DATA_TREE, partition_name(partition), str(bucket), path, "delta", 1000, 1 << 20, 0, lineage=number << 20
        )


def commit(timeline: Timeline, number: int) -> None:
    """A transaction with one file."""
    transaction = begin(timeline, operation="upsert")
    path = f"{transaction.data_folder('work')}/part-0.parquet"
    timeline.store.put(path, b"rows")
    partition, bucket = partition_name(number % PARTITIONS), str(number % BUCKETS)
    actions = [PutPartition(partition, BUCKETS), AddFile(DATA_TREE, partition, bucket, path, "delta", 1, 4)]
    transaction.commit(actions, writes=(Write(group_scope(partition, bucket)),))


def compact(timeline: Timeline, number: int) -> None:
    """A transaction that folds the files of one group into one."""
    transaction = begin(timeline, operation="compact")
    partition, bucket = partition_name(number % PARTITIONS), str(number % BUCKETS)
    old = transaction.base.files(DATA_TREE, partition, bucket)
    path = f"{transaction.data_folder('work')}/part-0.parquet"
    timeline.store.put(path, b"rows")
    place = max((file.place for file in old), default=0)
    actions = [RemoveFile(DATA_TREE, file.path) for file in old]
    added = AddFile(DATA_TREE, partition, bucket, path, "base", 1, 4, place)
    transaction.commit((*actions, added), writes=(Write(group_scope(partition, bucket), "fold"),))


def milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:,.1f}"
