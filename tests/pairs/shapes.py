"""The tables that pairs start from: small, with every kind of index, deltas over bases, and some that lag."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_apps import IndexedTable
from spark_apps.indexes.included_columns import IncludedColumns
from spark_apps.storage.store import Store
from tests.differential.model import RawRows
from tests.pairs.expected import Expected
from tests.spark_apps.frames import frame

NAMES = ["id", "p", "city", "n", "note", "v"]
TYPES = ["bigint", "string", "string", "int", "string", "int"]
DDL = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, TYPES, strict=True))
ID, P, CITY, N, NOTE, V = range(6)

FIRST = [(i, "a", ["rome", "oslo", None][i % 3], i % 4, f"first {i % 2}", i % 3) for i in range(8)]
SECOND = [(i, "b", ["oslo", "lima"][i % 2], i % 3, f"second {i % 2}", i % 2) for i in range(10, 14)]
OVER = [(1, "a", "lima", 2, "over", 1), (2, "a", None, 0, "over", None), (10, "b", "rome", 3, "over", 2)]
AGAIN = [(0, "a", "oslo", 1, "again", 2), (10, "b", "lima", 0, "again", 2), (15, "b", "rome", 1, "again", 0)]
LATE = [(3, "a", "bonn", 1, "late", 0), (11, "b", "bonn", None, "late", 1), (14, "b", "rome", 2, "late", 2)]


@dataclasses.dataclass
class Ground:
    """A starting table, where it lies, and what it holds.

    :param world: the folder that all of it lies in: the table, or the source and its log.
    :param restored: a version that a restore may go back to.
    """

    spark: Any
    shape: str
    world: Path
    expected: Expected
    restored: int = 0

    @property
    def source(self) -> bool:
        return self.shape == "source"

    @property
    def uri(self) -> Path:
        return self.world / "rows"

    def table(self) -> IndexedTable:
        return IndexedTable.load(self.spark, self.uri)

    def table_store(self) -> Any:
        """The store of the log, also of a table that was dropped."""
        return Store(str(self.world / "_indexes" / "rows" if self.source else self.uri))

    def frame(self, rows: list[Any]) -> Any:
        return frame(self.spark, rows, DDL)


KEYED: Mapping[str, Mapping[str, Any]] = {
    "buckets": {"buckets": 2},
    "unique": {"buckets": 1},
    "groups": {"buckets": None, "properties": {"group_rows": "6"}},
}
"""Arguments of ``create``. ``unique`` has an index of record keys beside its buckets, ``groups`` instead of them."""

SKIPPING: Mapping[str, Any] = {
    "kind": "skipping", "columns": ["minmax(n)", "bloom(city)"], "properties": {"granularity": "row_group"},
}  # fmt: skip

SHAPES = (*KEYED, "source")


def build(spark: Any, shape: str, world: Path) -> Ground:
    """Makes the starting table of a shape below ``world``."""
    return _source(spark, world) if shape == "source" else _keyed(spark, shape, world)


def _keyed(spark: Any, shape: str, world: Path) -> Ground:
    rows = RawRows(list(NAMES), list(TYPES), ["id"], ["p"], unique=shape != "buckets")
    ground = Ground(spark, shape, world, Expected(rows, tuple(rows.ids)))
    table = IndexedTable.create(spark, ground.uri, DDL, ["id"], ["p"], **KEYED[shape])
    expected = ground.expected
    if shape == "groups":
        expected.indexes["record"], expected.uniques = ("id",), {"record"}
    table.upsert(ground.frame(FIRST + SECOND))
    rows.upsert(FIRST + SECOND)
    if shape == "unique":
        table.create_index("keys", kind="record")
        expected.create_index("keys", [ID], unique=True)
    kept = shape == "groups"
    table.create_index("by_city", kind="secondary", columns=["city"])
    table.create_index("by_n", kind="secondary", columns=["n"], deferred=True, properties={"tombstones": "lazy"})
    table.create_index("cov", kind="covering", columns=["city"], included=["note"], deferred=not kept)
    table.create_index("blocks", kind="compact", columns=["n"], deferred=not kept)
    table.create_index("skips", **SKIPPING)
    _expect_indexes(expected)
    for batch in (OVER, AGAIN):
        for name in ("by_n", "cov", "blocks"):
            table.refresh_index(name)
        table.upsert(ground.frame(batch))
        rows.upsert(batch)
        if batch is OVER:
            table.compact()
    for name in ("by_n", "cov", "blocks"):
        table.refresh_index(name)
    ground.restored = table.version
    rows.committed(table.version)
    table.upsert(ground.frame(LATE))
    rows.upsert(LATE)
    rows.committed(table.version)
    return ground


def _expect_indexes(expected: Expected) -> None:
    for name, columns, included in (
        ("by_city", [CITY], []),
        ("by_n", [N], []),
        ("cov", [CITY], [NOTE]),
        ("blocks", [N], []),
        ("skips", [N, CITY], []),
    ):
        expected.create_index(name, columns, included)


# --- a source -----------------------------------------------------------------------------------------------------

FIELDS = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("n", pa.int32()), ("note", pa.string()), ("v", pa.int32())]
)


def write_file(ground: Ground, p: str, name: str, rows: list[Any]) -> None:
    """A file of the source, put in its place at once, as its owner would."""
    folder = ground.uri / f"p={p}"
    folder.mkdir(parents=True, exist_ok=True)
    columns = {field: [row[NAMES.index(field)] for row in rows] for field in FIELDS.names}
    pq.write_table(pa.table(columns, schema=FIELDS), ground.world / "new.parquet", row_group_size=2)
    (ground.world / "new.parquet").replace(folder / f"{name}.parquet")


def _source(spark: Any, world: Path) -> Ground:
    rows = RawRows(list(NAMES), list(TYPES), ["id"], ["p"])
    ground = Ground(spark, "source", world, Expected(rows, tuple(rows.ids)))
    write_file(ground, "a", "first", FIRST)
    write_file(ground, "b", "second", SECOND)
    table = IndexedTable.register(spark, ground.uri, record_key=["id"])
    expected = ground.expected
    table.create_index("by_city", kind="secondary", columns=["city"])
    table.create_index("by_n", kind="secondary", columns=["n"], properties={"tombstones": "lazy"})
    table.create_index("cov", kind="covering", columns=["city"], included=IncludedColumns(include=["note"]))
    table.create_index("blocks", kind="compact", columns=["n"])
    table.create_index("skips", **SKIPPING)
    _expect_indexes(expected)
    for name, batch in (("third", OVER), ("again", AGAIN)):
        write_file(ground, "b", name, batch)
        for index in expected.indexes:
            table.refresh_index(index)
    # A file that has gone, and that its owner may bring back.
    (ground.uri / "p=b" / "third.parquet").rename(ground.world / "third.aside")
    for name in expected.indexes:
        table.refresh_index(name, mode="quick")
    write_file(ground, "a", "fourth", LATE)
    return ground
