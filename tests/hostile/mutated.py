"""Files of every kind with mutated bytes, read as the product reads them: what the processes of ``test_mutated.py`` do.

``python -m tests.hostile.mutated FIRST LAST`` reads the mutants of these numbers and prints a line for each that went
wrong, and before each its number into the descriptor that the environment names: a process that is ended by a file says
so by the last one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_apps.indexes.ranges import range_of
from spark_apps.indexes.skipping import records
from spark_apps.jobs.job import Outcome, decode_outcome, encode_outcome
from spark_apps.layout.types import parse_type
from spark_apps.storage.errors import LakeIndexError
from spark_apps.storage.parquet import files as parquet_files
from spark_apps.storage.parquet.headers import open_bounded
from spark_apps.storage.parquet.page_index import PageIndex
from spark_apps.storage.parquet.pages import Chunk, NotPlain
from spark_apps.storage.parquet.statistics import bounds_of
from spark_apps.storage.store import RangedFile, Store
from spark_apps.timeline import hashing_config, log
from spark_apps.timeline.delta import checkpoints as delta_checkpoints
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.state import PartitionEntry
from spark_apps.workload.asked import from_document
from spark_apps.workload.event_logs import read_event_logs
from tests.hostile import lake
from tests.hostile import thrift_tree as thrift

SECONDS = 5.0
MEMORY = 3 << 30
"""Of addresses, beyond what a process has when it begins."""

ALLOWED = (LakeIndexError, OSError, pa.ArrowException)
"""Errors of ours, and of files that are read by Arrow, which each caller turns into ours."""

ROWS = pa.table(
    {
        "n": pa.array([*range(300)], pa.int64()),
        "s": [f"text {n % 7}" if n % 5 else None for n in range(300)],
        "u": [f"{n:05}" for n in range(300)],
        "d": pa.array([n / 2 for n in range(300)]),
        "t": pa.array([*range(300)], pa.timestamp("us", "UTC")),
        "f": pa.array([b"abcd"] * 300, pa.binary(4)),
        "l": [[n, None] if n % 3 else None for n in range(300)],
        "m": pa.array([[("k", n)] for n in range(300)], pa.map_(pa.string(), pa.int64())),
        "x": [{"y": n, "z": "a"} if n % 4 else None for n in range(300)],
    }
)


def _parquet(rows: pa.Table = ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


# --- readers ----------------------------------------------------------------------------------------------------------


def _data(body: bytes) -> None:
    """As readers of rows do: what the footer says of each column, the rows, and single pages."""
    metadata = parquet_files.read_footer(body)
    for group in range(metadata.num_row_groups):
        for number, chunk in enumerate(parquet_files.column_chunks(metadata, group)):
            bounds_of(chunk.statistics)
            range_of(chunk.statistics, parse_type("bigint" if chunk.physical_type == "INT64" else "string"))
            _ = chunk.compression, chunk.path_in_schema, metadata.schema.column(number).logical_type
    opened = parquet_files.open_file(body, metadata)
    _ = opened.schema_arrow
    next(opened.iter_batches(100, use_threads=False), None)


def _index(body: bytes) -> None:
    """As index files, deltas and positions are read: within bounds, whole row groups or pages."""
    opened = open_bounded(body)
    for group in range(opened.num_row_groups):
        opened.read_row_group(group, use_threads=False)
    for index in range(opened.metadata.num_columns if opened.num_row_groups else 0):
        with suppress(NotPlain):
            chunk = Chunk.of(opened.metadata, 0, index)
            for page in chunk.pages(body[chunk.start : chunk.end]):
                _ = page.first_value, page.values


def _pages(body: bytes) -> None:
    ranged = RangedFile(lambda start, end: body[start:end], len(body), whole_below=0)
    paged = PageIndex(parquet_files.footer_bytes(ranged))
    paged.candidates(ranged, 0, {"n": "bigint", "u": "string"}, lambda _name, _bounds: True)
    for rows in (np.array([1, 299]), np.arange(200, 220)):
        paged.read(ranged, 0, ["n", "s", "u"], rows)


def _skipping(body: bytes) -> None:
    store = Store("memory:///skipping")
    store.put("s", body)
    records._OPENED.clear()
    opened = records.RecordFile(store, DataFile("index/s@1", "", "", "s", "base", 1, len(body), 0))
    for known in opened.known():
        for number, column in enumerate(known.columns):
            for data in (column.low, column.high, *(column.values or ())):
                if data is not None:
                    opened.value(data, number)


def _events(name: str) -> Callable[[bytes], None]:
    def read(body: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, name).write_bytes(body)
            read_event_logs(folder)

    return read


def _table(key: str) -> Callable[[bytes], None]:
    """As a table is opened whose folder holds the bytes."""

    def read(body: bytes) -> None:
        store = Store("memory:///mutated")
        for other, document in LAKE.items():
            store.put(other, document)
        store.put(key, body)
        timeline = Timeline.load(store)
        list(timeline.commits())

    return read


LAKE = {commit_key(0): json.dumps(lake.FIRST).encode()}


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of file: bytes as they should be, and how they are read."""

    body: bytes
    read: Callable[[bytes], object]
    parquet: bool = False


def _skipping_body() -> bytes:
    column = records.ColumnRecord(3, b"1", b"9", (b"1", b"5", b"9"))
    import numpy as np

    filters = {(0, "bloom"): np.ones((4, 4), "<i8")}
    known = [records.Known(n, 9, {"a": "b"}, (column,), filters) for n in range(5)]
    return records.written(["n"], ["bigint"], 3, known)


def _delta_checkpoint() -> bytes:
    added = {"path": "p", "partitionValues": {"a": "b"}, "size": 1, "modificationTime": 1, "dataChange": False,
             "stats": "{}"}  # fmt: skip
    return delta_checkpoints._encode([{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}, {"add": added}] * 5)


def _event_log() -> bytes:
    node = {"nodeName": "Scan parquet t", "simpleString": "FileScan parquet [n#1L] Batched: true", "children": [],
            "metadata": {"Location": "InMemoryFileIndex(1 paths)[file:/t]", "ReadSchema": "struct<n:bigint>",
                         "PushedFilters": "[IsNotNull(n), EqualTo(n,1)]", "DataFilters": "[(n#1L = 1)]"},
            "metrics": [{"name": "number of files read", "accumulatorId": 1}]}  # fmt: skip
    ui = "org.apache.spark.sql.execution.ui.SparkListener"
    events = [
        {"Event": "SparkListenerApplicationStart", "App Name": "a"},
        {"Event": f"{ui}SQLExecutionStart", "executionId": 1, "time": 1_700_000_000_000, "sparkPlanInfo": node},
        {"Event": f"{ui}DriverAccumUpdates", "executionId": 1, "accumUpdates": [[1, 5]]},
        {"Event": f"{ui}SQLExecutionEnd", "executionId": 1, "time": 1_700_000_001_000},
    ]
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def kinds() -> dict[str, Kind]:
    """By name."""
    plain = ROWS.select(["n", "u"])
    documents = lake.documents()
    [checkpoint] = [body for key, body in documents["checkpoint"].files(documents["checkpoint"].value).items()
                    if key.endswith(".parquet")]  # fmt: skip
    [sidecar] = [body for key, body in documents["sidecar with add"].files(documents["sidecar with add"].value).items()
                 if key.endswith(".parquet")]  # fmt: skip
    counts = {f"p={n}": PartitionEntry(buckets=n + 1, since="20260101000000000") for n in range(5)}
    events = _event_log()
    return {
        "data": Kind(_parquet(row_group_size=100, write_page_index=True), _data, True),
        "data of version 2": Kind(_parquet(data_page_version="2.0", compression="zstd"), _data, True),
        "an index": Kind(_parquet(plain, use_dictionary=False, write_page_checksum=True), _index, True),
        "an index with dictionaries": Kind(_parquet(row_group_size=100, compression="gzip"), _index, True),
        "pages": Kind(_parquet(write_page_index=True, data_page_size=300, write_batch_size=20), _pages, True),
        "a sidecar": Kind(sidecar, lambda body: list(log._sidecar_actions(body, "it")), True),
        "a checkpoint": Kind(checkpoint, log.decode_checkpoint, True),
        "a checkpoint of a Delta log": Kind(_delta_checkpoint(), delta_checkpoints._decode, True),
        "a skipping index": Kind(_skipping_body(), _skipping),
        "an outcome": Kind(encode_outcome(Outcome("receipt", {"a": [1, 2]})), decode_outcome),
        "a meta of hashing": Kind(hashing_config.meta_body(counts), hashing_config.read_meta),
        "a config of hashing": Kind(b'{"0": {"expression": "a,8", "rule": "regex", "default": 4}}',
                                    hashing_config.read_config),
        "an origin": Kind(
            b'{"commitInfo":{"airflowProviderIndex":{"log":"a","version":1}}}\n', delta_log.origin_of),
        "a line of the query log": Kind(
            json.dumps(lake.BESIDE["_index/queries/20260101T000000-0123456789abcdef.jsonl"]).encode(), from_document),
        "an event log": Kind(events, _events("log")),
        "a packed event log": Kind(pa.compress(events, codec="zstd", asbytes=True), _events("log.zstd")),
        "a commit": Kind(json.dumps(lake.FULL).encode(), _table(commit_key(1))),
    }  # fmt: skip


# --- mutations --------------------------------------------------------------------------------------------------------


def mutant(number: int, files: dict[str, Kind]) -> tuple[str, bytes]:
    """The kind and the bytes of a mutant."""
    draw = random.Random(number)
    name = draw.choice(list(files))
    kind = files[name]
    body = kind.body
    if kind.parquet and draw.random() < 0.6:
        before, footer = thrift.footer_of(body)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            footer = thrift.mutated(footer, draw)
        return name, thrift.with_footer(before, footer)
    changed = bytearray(body)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(changed))
        match draw.randrange(5):
            case 0:
                changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 1:
                changed[at] ^= 1 << draw.randrange(8)
            case 2:
                del changed[at : at + draw.randrange(1, 9)]
            case 3:
                changed[at:at] = changed[at : at + draw.randrange(1, 40)] * draw.randrange(1, 20)
            case _:
                changed[at : at + 9] = bytes(draw.choice((0xFF, 0, 0x9F, 0x39)) for _ in range(9))
        if not changed:
            break
    return name, bytes(changed)


def faults(first: int, last: int, note: Callable[[int], object]) -> Iterator[str]:
    """What goes wrong, of the mutants of some numbers."""
    files = kinds()
    for kind in files.values():
        kind.read(kind.body)
    seen: Counter[str] = Counter()
    for number in range(first, last):
        note(number)
        name, body = mutant(number, files)
        began = time.process_time()
        try:
            files[name].read(body)
            seen["read"] += 1
        except ALLOWED:
            seen["refused"] += 1
        except BaseException as error:  # noqa: BLE001 - what must not be
            yield f"{number}: {name}: {type(error).__name__}: {error!s:.200}"
        if (seconds := time.process_time() - began) > SECONDS:
            yield f"{number}: {name}: took {seconds:.1f} s"
    yield json.dumps(seen)


def main() -> None:
    """Read the mutants that the command line names."""
    logging.disable(logging.CRITICAL)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    descriptor = int(os.environ["NOTE"])
    for line in faults(int(sys.argv[1]), int(sys.argv[2]), lambda number: os.pwrite(descriptor, b"%20d" % number, 0)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
