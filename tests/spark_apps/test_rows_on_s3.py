"""A table whose files lie on S3, for a Spark without Hadoop's S3 files: what needs none works, what does says so.

The table is written on a local disk and copied object by object, its log with it. With those files: ``make s3a``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.storage.errors import EnvironmentMismatch
from spark_apps.storage.store import Store
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark.releases import since

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ROWS = 4_000


@dataclass
class Lake:
    """One table twice: on a local disk, and on S3 with these options."""

    local: IndexedTable
    uri: str
    options: dict[str, str]

    def on_s3(self, spark: Any) -> IndexedTable:
        return IndexedTable.load(spark, self.uri, options=self.options)

    def source(self) -> dict[str, str]:
        return {"path": self.uri, **{f"storage.{name}": value for name, value in self.options.items()}}


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("lake") / "t"
    table = IndexedTable.create(spark, folder, "id string, p string, n int, note string", ["id"], ["p"], buckets=2)
    table.create_index("by_id", "record", [])
    table.create_index("by_n", "secondary", ["n"])
    rows = spark.range(ROWS).selectExpr(
        "concat('key-', id) AS id", "concat('a b/', id % 2) AS p", "cast(id AS int) AS n", "repeat(uuid(), 20) AS note"
    )
    table.upsert(rows)
    table.create_index("blocks", "compact", ["n"])
    table.create_index("covering", "covering", ["n"], included=["id"])
    table.upsert(rows.where("n < 20").selectExpr("id", "p", "n + 1000000 AS n", "note"))
    table.delete("id = 'key-25'")
    with s3_server() as options:
        uri = f"s3://{BUCKET}/lake/t"
        store = Store(uri, options)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                store.put(path.relative_to(folder).as_posix(), path.read_bytes())
        yield Lake(table, uri, options)


@since(4, 0, "data sources in Python")
@pytest.mark.parametrize(
    ("where", "count"),
    [("n = 1000005", 1), ("id = 'key-77'", 1), ("n BETWEEN 100 AND 119", 20), ("p = 'a b/1' AND n < 30", 4)],
)
def test_given_rows_on_s3_then_python_workers_read_by_indexes_what_a_local_table_has(
    spark: Any, lake: Lake, where: str, count: int
) -> None:
    spark.dataSource.register(IndexedDataSource)

    answer = spark.read.format("indexed").options(**lake.source(), where=where).load().collect()

    expected = lake.local.read(where).collect()
    assert len(answer) == count and sorted(map(tuple, answer)) == sorted(map(tuple, expected))


def test_given_rows_on_s3_then_the_driver_looks_keys_up_and_names_files_as_locally(spark: Any, lake: Lake) -> None:
    table = lake.on_s3(spark)
    keys = ["key-1", "key-3999", "key-25", "no such key"]

    assert table.lookup(keys).sort_by("id") == lake.local.lookup(keys).sort_by("id")
    for where in ("n = 1000005", "id = 'key-77'"):
        here, there = lake.local.explain(where), table.explain(where)
        assert here.indexes and [use.name for use in here.indexes] == [use.name for use in there.indexes]
        assert here.files_read == there.files_read and here.not_used.keys() == there.not_used.keys()
        assert [file.path for file in table.locate(where)] == [file.path for file in lake.local.locate(where)]
    assert [entry.operation for entry in table.history()] == [entry.operation for entry in lake.local.history()]


def test_given_one_key_then_a_small_part_of_the_files_is_fetched_by_ranges(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    whole = Store.get_range

    def counted(store: Store, key: str, start: int, end: int) -> bytes:
        if key.endswith(".parquet"):
            fetched.append(end - start)
        return whole(store, key, start, end)

    reader = IndexedDataSource({**lake.source(), "where": "id = 'key-77'"})
    monkeypatch.setattr(Store, "get_range", counted)
    planned = reader.reader(reader.schema())
    rows = [row for part in planned.partitions() for batch in planned.read(part) for row in batch.to_pylist()]

    stored = sum(file.bytes for file in lake.local.snapshot.state.files("data"))
    assert [row["n"] for row in rows] == [77]
    assert fetched and sum(fetched) < stored, (sum(fetched), stored)


def test_given_spark_without_s3_files_then_what_needs_them_says_what_is_missing_and_changes_nothing(
    spark: Any, lake: Lake
) -> None:
    table = lake.on_s3(spark)
    attempts = (
        lambda: table.read("n = 1000").collect(),
        lambda: table.upsert(spark.sql("SELECT 'x' AS id, 'y' AS p, 1 AS n, '' AS note")),
        lambda: table.compact(),
        lambda: table.verify("by_n"),
    )

    for attempt in attempts:
        with pytest.raises(EnvironmentMismatch, match=r"no class for s3a://.*hadoop-aws.*--packages"):
            attempt()

    # Ends of attempts are commits, too, and none has another file.
    files = {file.path for file in lake.local.snapshot.state.files("data")}
    assert {file.path for file in lake.on_s3(spark).snapshot.state.files("data")} == files
