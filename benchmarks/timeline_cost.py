"""What the log costs: loading a table and committing to it, by number of files and by length of the log.

The files of the tables exist only in the log, which is all that the timeline reads. Times are medians; a commit is a
whole transaction with one file (begin, write, check, publish), in a process that has the table loaded. At last 16
processes race on one table.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Timing, timed
from benchmarks.racing import lost, race
from benchmarks.report import Report
from spark_apps.storage.store import Store
from spark_apps.timeline import log
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.files import Columns, FileSet, path_hash, schema
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

if TYPE_CHECKING:
    import pyarrow as pa

FILES, MOST = (1_000, 100_000, 1_000_000), 10_000_000
LOGS, FULL_LOGS = (300, 1_000), (1_000, 10_000)
PARTITIONS = 365
BUCKETS = 64
WRITERS, EACH, FULL_EACH = 16, 8, 25
_COMMITS = 12
_SIDE_BY_SIDE = 200
"""So many that large tables write a checkpoint as well, as every 200th commit does."""


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Prints a table a question."""
    repeats = arguments.repeats
    with tempfile.TemporaryDirectory() as folder:
        counts = (*FILES, MOST) if arguments.full else FILES
        stores = {count: Store(Path(folder, str(count))) for count in counts}
        report_by_files(report, stores, repeats)
        for count in counts[2:]:
            report_side_by_side(report, {few: stores[few] for few in (FILES[0], count)})
    report_by_versions(report, FULL_LOGS if arguments.full else LOGS, repeats)
    report_races(report, FULL_EACH if arguments.full else EACH)


def report_by_files(report: Report, stores: dict[int, Store], repeats: int) -> None:
    rows = []
    for count, store in stores.items():
        load, partition, *rest = by_files(store, count, repeats)
        rows.append((f"{count:,}", milliseconds(load), milliseconds(partition), *rest))
        if count == FILES[-1]:
            report.verdict(8, "load", statistics.median(load))
        if count == MOST:
            report.verdict(8, "partition", statistics.median(partition))
    headings = (
        "files", "load ms", "load, one partition ms", "one group ms", "commit ms", "commit, first ms", "compact ms",
        "checkpoint ms", "MB",
    )  # fmt: skip
    report.table("A table's load and commit time, by its number of files", headings, rows)


def report_side_by_side(report: Report, stores: dict[int, Store]) -> None:
    """Commits on a small and a large table in turn, checkpoints among them."""
    timelines = {count: Timeline.load(store) for count, store in stores.items()}
    seconds: dict[int, list[float]] = {count: [] for count in stores}
    for number in range(_SIDE_BY_SIDE):
        for count, timeline in timelines.items():
            seconds[count].append(timed(lambda: commit(timeline, number)))  # noqa: B023 - called at once
    small, large = (
        Timing(f"{count:,} files", tuple(taken), f"mean {statistics.mean(taken) * 1000:.1f} ms")
        for count, taken in seconds.items()
    )
    report.timings(
        f"A commit on a table of {small.name} and on one of {large.name}, in turn", [small, large], small.name
    )
    report.verdict(8, f"commit: {large.name}", large.median / small.median)


def report_by_versions(report: Report, lengths: Sequence[int], repeats: int) -> None:
    rows = []
    for length in lengths:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((f"{length:,}", *by_versions(Store(folder), length, repeats)))
    headings = ("versions", "load ms", "load without a checkpoint ms", "commit ms")
    report.table("The same, by the length of the log", headings, rows)


def report_races(report: Report, commits: int) -> None:
    """Writers of one file group, each a process: as many commits of each, whoever loses a race tries again.

    :param commits: of each writer, where the most of them race; fewer writers make as many in all.
    """
    rows = []
    for writers in (1, 4, WRITERS):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            new_table(store)
            each = commits * WRITERS // writers
            versions, seconds = race(store, writers, each)
            missing, rate = lost(store, versions, writers * each), len(versions) / seconds
        rows.append((str(writers), str(writers * each), str(missing), f"{rate:.1f}"))
    report.table("Processes that race on one table", ("writers", "commits", "lost", "commits a second"), rows)
    report.verdict(8, "lost", missing)
    report.verdict(8, "rate", rate)


def by_files(store: Store, count: int, repeats: int) -> tuple[list[float], list[float], *tuple[str, ...]]:
    """Times of a table whose newest checkpoint holds so many files: those of loading in seconds, others as text."""
    timeline = new_table(store)
    state = timeline.head.copy()
    for partition in range(PARTITIONS):
        state.partitions[partition_name(partition)] = PartitionEntry(BUCKETS, (str(partition),))
    state.file_set = FileSet(Columns(files(count)))
    key = log.write_checkpoint(store, state)
    size = Path(store.uri, key).stat().st_size
    load = [timed(lambda: Timeline.load(store)) for _ in range(repeats)]
    partition_7 = [timed(lambda: Timeline.load(store).head.files(DATA_TREE, partition_name(7))) for _ in range(repeats)]
    group = []
    for _ in range(repeats):
        timeline = Timeline.load(store)
        group.append(timed(lambda: timeline.head.files(DATA_TREE, partition_name(3), "3")))  # noqa: B023 - called at once
    commits = [timed(lambda n=n: commit(timeline, n)) for n in range(_COMMITS)]
    folds = [timed(lambda n=n: compact(timeline, n)) for n in range(_COMMITS)]
    flat = [timed(lambda: log.write_checkpoint(store, timeline.head)) for _ in range(min(repeats, 3))]
    return (
        load,
        partition_7,
        milliseconds(group),
        milliseconds(commits[1:]),
        milliseconds(commits[:1]),
        milliseconds(folds[1:]),
        milliseconds(flat),
        f"{size / 1e6:.1f}",
    )


def by_versions(store: Store, length: int, repeats: int) -> list[str]:
    """Times of a small table with so many versions."""
    timeline = new_table(store)
    for number in range(length):
        commit(timeline, number)
    load = [timed(lambda: Timeline.load(store)) for _ in range(repeats)]
    commits = [timed(lambda n=n: commit(timeline, length + n)) for n in range(_COMMITS)]
    store.delete([info.key for info in store.list(log.CHECKPOINTS)])
    bare = [timed(lambda: Timeline.load(store)) for _ in range(min(repeats, 3))]
    return [milliseconds(load), milliseconds(bare), milliseconds(commits)]


def new_table(store: Store) -> Timeline:
    definition = TableDefinition("t", (Field("dt", "string"), Field("k", "string")), ("k",), partition_by=("dt",))
    return create_table(store, definition)[0]


def partition_name(number: int) -> str:
    return f"dt={number:03d}"


def files(count: int) -> pa.Table:
    """Files as Spark names them, a thousand to a commit, as a checkpoint holds them."""
    import pyarrow as pa

    numbers = range(count)
    paths = [path for first in range(0, count, 1_000) for path in _paths(range(first, min(first + 1_000, count)))]
    hashes = pa.array(map(path_hash, paths), pa.int64(), size=count)
    columns = {
        "tree": _coded((0 for _ in numbers), [DATA_TREE], count),
        "partition": _coded((n % PARTITIONS for n in numbers), map(partition_name, range(PARTITIONS)), count),
        "group": _coded((n // PARTITIONS % BUCKETS for n in numbers), map(str, range(BUCKETS)), count),
        "path": pa.array(paths),
        "kind": _coded((0 for _ in numbers), ["delta"], count),
        "rows": pa.repeat(1_000, count),
        "bytes": pa.repeat(1 << 20, count),
        "place": pa.repeat(0, count),
        "tombstones": pa.repeat(0, count),
        "lineage": pa.array((n << 20 for n in numbers), pa.int64(), size=count),
        "extra": pa.nulls(count, pa.binary()),
        "path_hash": hashes,
    }
    return pa.table(columns, schema=schema())


def _paths(numbers: range) -> list[str]:
    """The paths of files that one commit adds."""
    name = hashlib.md5(str(numbers[0] // 1_000).encode()).hexdigest()
    folder = f"data/upsert-{name[:16]}.1/work"
    return [
        f"{folder}/{n % PARTITIONS}/{n // PARTITIONS % BUCKETS}/part-{n % 1_000:05d}-{name}.c000.zstd.parquet"
        for n in numbers
    ]


def _coded(codes: Iterable[int], values: Iterable[str], count: int) -> pa.Array:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), size=count), pa.array(values))


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
    sequence_number = max((file.sequence_number for file in old), default=0)
    actions = [RemoveFile(DATA_TREE, file.path) for file in old]
    added = AddFile(DATA_TREE, partition, bucket, path, "base", 1, 4, sequence_number)
    transaction.commit((*actions, added), writes=(Write(group_scope(partition, bucket), "fold"),))


def milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:,.1f}"
