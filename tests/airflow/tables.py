"""Tables made without Spark: rows written by Arrow in the form that the package writes them, and committed to the log.

A test that only needs a table to be there saves a session of its own.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    TableDefinition,
    Write,
    group_scope,
    partition_scope,
)
from spark_apps.timeline.transactions import begin

ROWS = 40


def make(path: Path, writes: int) -> None:
    """A table of ids in two partitions of one bucket, with an index that was never refreshed; of ``writes`` upserts of
    one small file a partition, each with 10 new ids and 30 old ones."""
    store = Store(path)
    fields = (Field("id", "bigint"), Field("dt", "string"), Field("city", "string"))
    index = IndexDefinition("by_city", "secondary", ("city",), "1", deferred=True)
    actions = (PutHashingConfig(HashingConfig("", 1)), PutIndex(index, covered=True))
    timeline, _ = create_table(store, TableDefinition(path.name, fields, ("id",), ("dt",)), actions, txn_id="create")
    for number in range(writes):
        _upsert(timeline, path, number)


def _upsert(timeline: Timeline, root: Path, number: int) -> None:
    transaction = begin(timeline, operation="upsert", txn_id=f"upsert-{number}")
    actions: list[AnyAction] = []
    writes: list[Write] = []
    for day in ("d0", "d1"):
        ids = [at for at in range(number * 10, number * 10 + ROWS) if f"d{at % 2}" == day]
        cities = [f"c{at % 7}" for at in ids]
        columns = {"id": ids, "dt": [day] * len(ids), "city": cities, "__index_deleted": pa.nulls(len(ids), pa.bool_())}
        key = f"{transaction.data_folder('rows')}/{day}.parquet"
        target = root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), target)
        partition = f"dt={day}"
        size = target.stat().st_size
        actions += [
            PutPartition(partition, 1, (day,)),
            AddFile(DATA_TREE, partition, "0", key, "delta", len(ids), size, lineage=number * 2 + int(day[1]) + 1),
        ]
        writes += [Write(partition_scope(partition)), Write(group_scope(partition, "0"))]
    transaction.commit(actions, writes=writes)


def rows(path: Path) -> list[tuple[int, str, str]]:
    """The rows of a table whose groups are one base file each, read by Arrow."""
    head = Timeline.load(Store(path)).head
    rows_of_files: list[tuple[int, str, str]] = []
    for file in head.files(DATA_TREE):
        assert file.kind == "base", file
        table = pq.read_table(path / file.path, partitioning=None).select(["id", "dt", "city"])
        rows_of_files += [tuple(row.values()) for row in table.to_pylist()]
    return sorted(rows_of_files)


def expected(writes: int) -> list[tuple[int, str, str]]:
    """The rows of :func:`make`."""
    return [(at, f"d{at % 2}", f"c{at % 7}") for at in range((writes - 1) * 10 + ROWS)]
