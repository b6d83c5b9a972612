"""Keys looked up by whole columns in files that Spark wrote, beside what the rows themselves say."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import Row, SparkSession

from spark_apps import IndexedTable
from spark_apps.indexes.handler import PARTITION, IndexContext
from spark_apps.indexes.keyed.lookup import TooManyEntries, lookup, lookup_table
from spark_apps.indexes.keyed.matching import keys_to_arrow
from spark_apps.indexes.registry import find
from spark_apps.layout.types import normalize, parse_type
from spark_apps.mergetree.write import write_options
from spark_apps.storage.errors import InvalidInput, InvalidSchema

pytestmark = pytest.mark.by_turn(16, together=4)

ROWS, CHANGED = 400, 60
_EPOCH = dt.datetime(2024, 1, 1)
_TYPES: dict[str, tuple[str, Callable[[random.Random], Any]]] = {
    "odd": ("string", lambda r: "zéß😀\0"[: r.randrange(6)] * r.randrange(1, 4)),
    "num": ("int", lambda r: r.randrange(-50, 50)),
    "at": ("timestamp", lambda r: _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=r.randrange(60))),
    "price": ("decimal(10,2)", lambda r: Decimal(r.randrange(-5000, 5000, 100)).scaleb(-2)),
}
INDEXES = [("num",), ("price", "odd", "at")]
SCHEMA = "p string, id string, " + ", ".join(f"{name} {kind}" for name, (kind, _) in _TYPES.items())


def _rows(first: int, count: int, seed: int) -> list[tuple[Any, ...]]:
    r = random.Random(seed)
    return [
        (f"p{n % 2}", f"id-{n:06}", *(None if r.random() < 0.1 else make(r) for _, make in _TYPES.values()))
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedTable]:
    folder = tmp_path_factory.mktemp("lookup")
    made = IndexedTable.create(spark, folder / "t", SCHEMA, ["id"], partition_by=["p"], buckets=2)
    made.upsert(spark.createDataFrame(_rows(0, ROWS, 1), made.schema))
    made.create_index("record", "record", properties={"shards": "3"})
    for columns in INDEXES:
        made.create_index("_".join(columns), "secondary", list(columns), properties={"shards": "3"})
    made.upsert(spark.createDataFrame(_rows(ROWS - CHANGED, 2 * CHANGED, 2), made.schema))
    made.delete("id < 'id-000040'")
    yield made


@pytest.fixture(scope="module")
def rows(table: IndexedTable) -> list[Row]:
    return table.read().collect()


def _context(table: IndexedTable, name: str) -> Any:
    definition = table.snapshot.state.index(name).definition
    return IndexContext(table.snapshot, definition, ""), find(definition.kind).tree(table.definition, definition)


def _values(row: Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(normalize(row[name], parse_type(_TYPES[name][0])) for name in columns)


@pytest.mark.parametrize("columns", INDEXES, ids="_".join)
def test_given_keys_of_a_type_then_entries_are_those_of_the_rows_that_hold_them(
    table: IndexedTable, rows: list[Row], columns: tuple[str, ...]
) -> None:
    context, tree = _context(table, "_".join(columns))
    known = list({_values(row, columns) for row in rows})
    random.Random(3).shuffle(known)
    for asked in (known, known[: len(known) // 2], known[:1], [tuple(None for _ in columns)]):
        wanted = set(asked)
        expected = {
            (*_values(row, columns), row["id"], f"p={row['p']}") for row in rows if _values(row, columns) in wanted
        }

        looked_up = lookup(context.snapshot, tree, [*asked, *asked[:5]], context.definition.shards)

        assert sorted(map(repr, looked_up.entries)) == sorted(repr(((*key,), (key[-1], None))) for key in expected)


def test_given_record_keys_then_deleted_and_unknown_ones_are_not_found(table: IndexedTable, rows: list[Row]) -> None:
    context, _ = _context(table, "record")
    handler: Any = find("record")
    asked = [f"id-{n:06}" for n in range(ROWS + 2 * CHANGED)] + ["", "id-", "ü"]

    def places(keys: list[str]) -> dict[str, str]:
        entries = handler.places(context, pa.table({"id": pa.array(keys, pa.string())}))
        return dict(zip(entries["id"].to_pylist(), entries[PARTITION].to_pylist(), strict=True))

    assert places(asked) == {row["id"]: f"p={row['p']}" for row in rows}
    assert places(["id-000041"]) == {"id-000041": "p=p1"}
    assert places(["id-000001"]) == {} == places([])


def test_given_a_record_index_then_its_keys_stand_in_files_as_they_are_unless_told_otherwise(
    table: IndexedTable,
) -> None:
    context, tree = _context(table, "record")
    codecs = {
        pq.read_metadata(Path(table.uri) / file.path).row_group(0).column(0).compression
        for file in context.snapshot.state.files(tree.name)
    }
    assert codecs == {"UNCOMPRESSED"}

    handler, definition = find("record"), context.definition
    as_before = replace(definition, properties={"shards": "3"})  # of a release that compressed them
    as_told = handler.alter(table.definition, definition, {"compression": "session"})
    for other in (as_before, as_told):
        assert "compression" not in write_options(handler.tree(table.definition, other))
    with pytest.raises(InvalidInput, match=r"compression.*'best'"):
        handler.alter(table.definition, definition, {"compression": "best"})


def test_given_keys_as_arrow_or_as_values_then_the_answer_is_the_same(table: IndexedTable, rows: list[Row]) -> None:
    some = sorted(row["id"] for row in rows)[:50]
    expected = sorted((row["id"], f"p={row['p']}") for row in rows if row["id"] in some)
    arrow = pa.array([*some, "unknown", None, some[0]])
    for keys in (
        arrow,
        pa.chunked_array([arrow[:20], arrow[20:]]),
        arrow.dictionary_encode(),
        pa.table({"more": arrow, "id": arrow.cast("large_string")}),
        some,
        [(key,) for key in some],
    ):
        entries = table.lookup(keys)

        assert sorted(zip(entries["id"].to_pylist(), entries[PARTITION].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("keys", [pa.array([1, 2]), pa.table({"x": ["a"]}), [3], [("a", "b")]], ids=str)
def test_given_what_is_no_key_then_it_is_refused(table: IndexedTable, keys: Any) -> None:
    with pytest.raises(InvalidSchema):
        table.lookup(keys)
    with pytest.raises(InvalidInput, match="does not say where a key lives"):
        table.lookup(["a"], index="num")


def test_given_more_rows_or_entries_than_allowed_then_it_is_told(table: IndexedTable) -> None:
    context, tree = _context(table, "record")
    keys = keys_to_arrow(tree, [(f"id-{n:06}",) for n in range(200, 260)])

    assert len(lookup_table(context.snapshot, tree, keys, 3, 10_000, 60).table) == 60
    with pytest.raises(TooManyEntries):
        lookup_table(context.snapshot, tree, keys, 3, most_entries=59)
    with pytest.raises(TooManyEntries):
        lookup_table(context.snapshot, tree, keys, 3, most_rows=100)


def test_given_large_files_then_threads_and_pages_give_what_the_rows_say(spark: SparkSession, tmp_path: Path) -> None:
    made = IndexedTable.create(spark, tmp_path / "large", "id string, p string", ["id"], partition_by=["p"], buckets=1)
    numbers = spark.range(250_000).selectExpr("md5(cast(id AS string)) AS id", "cast(id % 3 AS string) AS p")
    made.upsert(numbers)
    made.create_index("record", "record")
    context, tree = _context(made, "record")
    everything = {row["id"]: f"p={row['p']}" for row in numbers.collect()}
    for count in (1, 3, 40, 5_000, 60_000):
        asked = random.Random(count).sample(sorted(everything), count)

        looked_up = lookup_table(
            context.snapshot, tree, keys_to_arrow(tree, [(key,) for key in [*asked, "no such key"]]), 1
        )

        partitions = dict(zip(looked_up.table["id"].to_pylist(), looked_up.table[PARTITION].to_pylist(), strict=True))
        assert partitions == {key: everything[key] for key in asked} and len(looked_up.table) == count
