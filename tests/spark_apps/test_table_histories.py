"""Random histories of a table, for every combination of layout and merging, against a model that is a
dict."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable
from spark_apps.layout.hashing import bucket_id
from spark_apps.storage.errors import KeysExist
from spark_apps.timeline.files import NO_ROWS, RowCount
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import locating_by_spark
from tests.spark_apps.table_model import Model, Row

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

STEPS = int(os.environ.get("TABLE_STEPS", "8"))
"""Steps of a history; each costs about two Spark jobs and a read."""


@dataclass(frozen=True)
class Shape:
    """A kind of table, and how its random rows are drawn."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    options: dict[str, Any]
    record_index: bool = False

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)


SHAPES = [
    Shape(
        "partitioned, merged by commit",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "ordering_column": "ts", "buckets": 2, "bucket_expressions": "p=a,3"},
    ),
    Shape(
        "two partition columns, composite key, merged by ordering",
        (("k1", "string"), ("k2", "int"), ("p", "string"), ("q", "int"), ("ts", "int"), ("v", "string")),
        ("k2", "k1"),
        {
            "partition_by": ["p", "q"],
            "ordering_column": "ts",
            "merge_by": "ordering",
            "buckets": 2,
            "hash_fields": ["k1"],
        },
    ),
    Shape(
        "with positions, some partitions with another count",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {
            "partition_by": ["p"],
            "ordering_column": "ts",
            "buckets": 2,
            "bucket_expressions": "p=a,3",
            "positions": True,
        },
    ),
    Shape(
        "with positions, without buckets",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "buckets": None, "properties": {"group_rows": "7"}, "positions": True},
        record_index=True,
    ),
    Shape(
        "unpartitioned, java hash, no ordering",
        (("id", "string"), ("v", "string")),
        ("id",),
        {"buckets": 3, "hash_function": "java"},
    ),
    Shape(
        "copy on write",
        (("id", "int"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "ordering_column": "ts", "write_mode": "copy_on_write", "buckets": 2},
    ),
    Shape(
        "copy on write, merged by ordering, unpartitioned",
        (("id", "int"), ("ts", "int"), ("v", "string")),
        ("id",),
        {"ordering_column": "ts", "merge_by": "ordering", "write_mode": "copy_on_write", "buckets": 2},
    ),
    Shape(
        "keys unique by a record index, merged by commit",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "ordering_column": "ts", "buckets": 2},
        record_index=True,
    ),
    Shape(
        "keys unique by a record index, merged by ordering",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "ordering_column": "ts", "merge_by": "ordering", "buckets": 2},
        record_index=True,
    ),
    Shape(
        "without buckets, keys found by the record index",
        (("id", "bigint"), ("p", "string"), ("v", "string"), ("ts", "int")),
        ("id",),
        {"partition_by": ["p"], "ordering_column": "ts", "buckets": None, "properties": {"group_rows": "7"}},
        record_index=True,
    ),
    Shape(
        "without buckets, merged by ordering, copy on write, unpartitioned",
        (("id", "bigint"), ("v", "string"), ("ts", "int")),
        ("id",),
        {
            "ordering_column": "ts",
            "merge_by": "ordering",
            "write_mode": "copy_on_write",
            "buckets": None,
            "properties": {"group_rows": "5"},
        },
        record_index=True,
    ),
]

_STRINGS = ["", "a", "ä/ö", "x\ny", "%2F", "100%", "emoji 🙂", "=", "'", '"q"', "__HIVE_DEFAULT_PARTITION__"]


class History:
    """Draws steps, does them to the table and to the model, and compares."""

    def __init__(self, spark: Any, shape: Shape, path: Path, seed: int) -> None:
        self.spark, self.shape, self.random = spark, shape, random.Random(f"{shape.name}/{seed}")
        self.table = IndexedTable.create(spark, path, shape.ddl, list(shape.key), **shape.options)
        if shape.record_index and "record" not in self.table.indexes:
            self.table.create_index("key", "record")
        definition = self.table.definition
        self.model = Model(
            [name for name, _ in shape.columns], [kind for _, kind in shape.columns], list(shape.key),
            list(definition.partition_by), definition.ordering_column, definition.merge_by, shape.record_index,
        )  # fmt: skip
        self.model.committed(self.table.version)
        self.days: list[list[tuple[Row, bool]]] = []
        self.exact = 0
        """After how many steps the log knew the number of rows."""

    def value(self, name: str, kind: str) -> Any:
        if name == "p":
            return self.random.choice([None, "a", "b/c", ""])
        if name == "q":
            return self.random.choice([None, 1])
        if name == "ts":
            return self.random.choice([None, *range(6)])
        if name == "v":
            return f"{self.random.randrange(1000)}"
        return self.random.choice(_STRINGS) if kind == "string" else self.random.randrange(12)

    def batch(self, size: int | None = None) -> list[Row]:
        count = self.random.randrange(1, 20) if size is None else size
        return [tuple(self.value(name, kind) for name, kind in self.shape.columns) for _ in range(count)]

    def frame(self, rows: list[Row], names: list[str] | None = None) -> Any:
        wanted = [name for name, _ in self.shape.columns] if names is None else names
        kinds = dict(self.shape.columns)
        return frame(self.spark, rows, ", ".join(f"{name} {kinds[name]}" for name in wanted))

    def step(self) -> str:
        steps = ["upsert"] * 4 + ["insert", "delete_keys", "delete_rows", "delete_where", "compact", "quick",
                 "restore", "overwrite", "rescale", "drop_partition"]  # fmt: skip
        if self.model.merge_by == "ordering":
            steps += ["upsert_deleted"] * 3 + ["replay"] * 2 + ["delete_until"]
        name = self.random.choice(steps)
        getattr(self, name)()
        if self.table.version not in self.model.versions:
            self.model.committed(self.table.version)
        return name

    def upsert(self) -> None:
        rows = self.batch()
        self.table.upsert(self.frame(rows))
        self.model.upsert(rows)

    def upsert_deleted(self) -> None:
        """Rows, some of them deletes; each key once."""
        rows = list({self.model.identity(row)[1]: row for row in self.batch()}.values())
        self.days.append([(row, self.random.random() < 0.5) for row in rows])
        self.deliver(self.days[-1])

    def replay(self) -> None:
        """Deliver again what was delivered before."""
        if self.days:
            self.deliver(self.random.choice(self.days))

    def deliver(self, day: list[tuple[Row, bool]]) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.shape.columns)
        rows = frame(self.spark, [(*row, gone) for row, gone in day], f"{columns}, gone boolean")
        receipt, late = self.table.upsert(rows, deleted="gone"), 0
        for row, gone in day:
            if gone:
                self.model.delete_ahead(row)
            else:
                self.model.upsert([row])
                late += self.model.late
        assert receipt.metrics.get("late", 0) == late

    def delete_until(self) -> None:
        until, low = self.random.randrange(6), self.random.randrange(800)
        self.table.delete(f"v >= {low} AND v < {low + 150}", until=until)
        at = self.model.names.index("v")
        for identity, row in list(self.model.rows.items()):
            if low <= int(row[at]) < low + 150:
                self.model.delete(identity, (True, until))

    def insert(self) -> None:
        rows = self.batch(3)
        if self.model.holds_any(rows):
            before = self.table.version
            with pytest.raises(KeysExist):
                self.table.insert(self.frame(rows))
            assert self.table.version == before
        else:
            self.table.insert(self.frame(rows))
            self.model.upsert(rows)

    def delete_keys(self) -> None:
        keys = list({self.model.identity(row)[1] for row in self.batch(4)})
        self.table.delete(self.frame(keys, list(self.shape.key)))
        self.model.delete_keys(keys)

    def delete_rows(self) -> None:
        rows = self.batch(6) + self.random.sample(
            sorted(self.model.rows.values(), key=repr), min(3, len(self.model.rows))
        )
        self.table.delete(self.frame(rows))
        self.model.delete_batch(rows)

    def delete_where(self) -> None:
        low = self.random.randrange(800)
        self.table.delete(f"v >= {low} AND v < {low + 150}")
        self.model.delete_where(lambda row: low <= int(row["v"]) < low + 150)

    def compact(self) -> None:
        self.table.compact()

    def quick(self) -> None:
        self.table.compact(mode="quick")

    def restore(self) -> None:
        version = self.random.choice(sorted(self.model.versions))
        self.table.restore(version)
        self.model.rows, self.model.deleted = dict(self.model.versions[version]), dict(self.model.deleted_in[version])

    def overwrite(self) -> None:
        rows = self.batch(5)
        self.table.insert_overwrite(self.frame(rows))
        self.model.overwrite(rows)

    def rescale(self) -> None:
        if not self.table.definition.bucketed:
            return
        self.table.rescale(buckets=self.random.randrange(1, 5), bucket_expressions="p=b%2F,2")

    def drop_partition(self) -> None:
        if self.model.partition_by and self.table.partitions:
            path = self.random.choice(sorted(self.table.partitions))
            values = self.table._state.partitions[path].values
            self.table.drop_partition(path)
            self.model.remove(
                [at for at in self.model.rows if tuple(None if v is None else str(v) for v in at[0]) == values]
            )

    def check(self, at: str) -> None:
        assert read(self.table) == self.model.expected(), at
        count = rows_of(self.table)
        assert count.most is not None and count.least <= len(self.model.rows) <= count.most, (at, count)
        self.exact += count.exact is not None


def rows_of(table: IndexedTable) -> RowCount:
    """What the log says of the number of rows."""
    return sum((partition.count for partition in table.partitions.values()), NO_ROWS)


def read(table: IndexedTable) -> list[Row]:
    return sorted((tuple(row) for row in table.read().collect()), key=repr)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.by_turn(24)
def test_a_table_reads_as_the_model_after_every_step_of_a_random_history(
    spark: Any, tmp_path: Path, shape: Shape
) -> None:
    history = History(spark, shape, tmp_path / "table", seed=1)
    if SHAPES.index(shape) % 2:
        locating_by_spark(history.table)
    done = []
    # A step with an index costs thrice as much.
    for _ in range(STEPS * 5 // 8 if shape.record_index else STEPS):
        done.append(history.step())
        history.check(" > ".join(done))

    earlier = random.Random(2).sample(sorted(history.model.versions), 2)
    for version in earlier:
        table = IndexedTable.load(spark, history.table.uri, version=version)
        assert read(table) == history.model.expected(version), version
    check_files(history.table)
    assert len(history.table.indexes) == shape.record_index
    assert all(history.table.verify(name).ok for name in history.table.indexes)
    for shown in (history.table, history.table.partitions, history.table.indexes, history.table.history()):
        assert len(str(shown).split("\n")) > (2 if shown else 0) and shown._repr_html_().startswith("<div><strong>")
    assert history.exact > (len(done) // 2 if shape.record_index and history.model.merge_by == "commit" else 0)


def check_files(table: IndexedTable) -> None:
    """What holds of every live file, read without Spark: rows in their bucket, in order, one a key; counts as
    committed."""
    definition = table.definition
    types = {field.name: field.type for field in definition.fields}
    for file in table._state.files(DATA_TREE):
        rows = pq.ParquetFile(Path(table.uri) / file.path).read().to_pylist()
        buckets = table.partitions[file.partition].buckets
        assert (buckets is not None) == definition.bucketed
        keys = [tuple(row[name] for name in definition.record_key) for row in rows]
        assert keys == sorted(keys)
        flags = [row.get("__index_deleted") for row in rows]
        assert len({(key, flag) for key, flag in zip(keys, flags, strict=True)}) == len(keys)
        assert (len(rows), flags.count(True)) == (file.rows, file.tombstones)
        assert file.kind == "delta" or all("__index_deleted" not in row for row in rows)
        hashed = [types[name] for name in definition.hash_fields]
        for row in rows:
            if buckets is None:
                continue
            values = [row[name] for name in definition.hash_fields]
            assert bucket_id(values, buckets, definition.hash_function, hashed) == int(file.group)
        entry = table._state.partitions[file.partition]
        texts = {
            tuple(None if (v := row[name]) is None else str(v) for name in definition.partition_by) for row in rows
        }
        assert texts == {entry.values}
