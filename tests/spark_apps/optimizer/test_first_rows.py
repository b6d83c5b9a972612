"""The first rows of an order, and the highest and lowest of a column, are read from the files that can hold them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import spark_apps
from spark_apps import IndexedTable
from tests.differential.session import small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

COLUMNS = {"source": ("id", "k", "n", "ts", "d", "m", "x"), "keyed": ("id", "n", "d")}
PARTS = [f"minmax({name})" for name in COLUMNS["source"]]


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: SparkSession) -> Iterator[None]:
    with small(spark, compiled=False):
        yield


def rows(spark: SparkSession, first: int, count: int, files: int = 1) -> DataFrame:
    return spark.range(first, first + count, 1, files).selectExpr(
        "id",
        "id * 7 % 10 k",
        "IF(id % 13 = 0, NULL, id) n",
        "TIMESTAMP'2026-01-01' + make_interval(0, 0, 0, 0, id) ts",
        "DATE'2026-01-01' + int(id / 50) d",
        "CAST(id - 900 AS decimal(12, 2)) m",
        "IF(id % 2 = 0, double('NaN'), double(id)) x",
    )


@pytest.fixture(scope="module")
def lake(interpreted: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source in the order of its ids, with a file that came since; a keyed table by days, of which some have deltas
    that replace, delete and insert rows."""
    lake = tmp_path_factory.mktemp("first-rows")
    rows(spark, 0, 1000, files=8).write.parquet(str(lake / "source"))
    IndexedTable.register(spark, lake / "source").create_index("ends", "skipping", PARTS)
    rows(spark, 500, 20).withColumn("id", F.col("id") + 10_000).write.mode("append").parquet(str(lake / "source"))
    keyed = IndexedTable.create(
        spark, lake / "keyed", "id bigint, n bigint, d date", ["id"], partition_by=["d"], buckets=1
    )
    given = rows(spark, 0, 500).select("id", "n", "d")
    keyed.create_index("ends", "skipping", ["minmax(n)", "minmax(id)"])
    keyed.upsert(given)
    keyed.upsert(given.where("id > 490").withColumn("n", F.col("id") - 490))
    keyed.delete(spark.range(0, 3).selectExpr("id", "DATE'2026-01-01' d"))
    return lake


def questions(die: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        table = die.choice(list(COLUMNS))
        column, other = die.choice(COLUMNS[table]), die.choice(COLUMNS[table])
        order = f"{die.choice(['ASC', 'DESC'])} {die.choice(['', 'NULLS FIRST', 'NULLS LAST'])}"
        limit = f"LIMIT {die.choice([1, 3, 130, 999])} {die.choice(['', '', 'OFFSET 5'])}"
        yield die.choice(
            [
                f"SELECT {other}, id FROM {table} ORDER BY {column} {order}, id {limit}",
                f"SELECT {other}, id FROM {table} ORDER BY {column} {order}, id {limit}",
                f"SELECT max({column}), min({other}) FROM {table}",
                f"SELECT id FROM {table} WHERE {column} = (SELECT max({column}) FROM {table}) ORDER BY id",
                f"SELECT count(*), max({column}) FROM {table}",
                f"SELECT max({column}) FROM {table} WHERE id < 77",
                f"SELECT {other}, max({column}) FROM {table} GROUP BY ALL ORDER BY 1, 2",
                f"SELECT id FROM (SELECT id, {column} z FROM {table} ORDER BY id DESC LIMIT 99) ORDER BY z, id LIMIT 3",
            ]
        )


@pytest.mark.by_turn(4)
def test_random_questions_for_first_rows_are_answered_as_by_a_scan(spark: SparkSession, lake: Path) -> None:
    seed = random.randrange(1 << 30)
    # Of the 50 rows of the last day, eleven had the highest values before a delta changed them.
    asked = ["SELECT n FROM keyed ORDER BY n DESC LIMIT 45", "SELECT n FROM source ORDER BY n LIMIT 80"]
    asked += ["SELECT count(*), max(ts) FROM source", "SELECT max(ts) FILTER (WHERE id < 500) FROM source"]
    asked += dict.fromkeys(questions(random.Random(seed), 9))
    spark.read.parquet(str(lake / "source")).createOrReplaceTempView("source")
    IndexedTable.load(spark, lake / "keyed").read().createOrReplaceTempView("keyed")
    alone = [str(spark.sql(query).collect()) for query in asked]
    spark_apps.enable(spark, sources=[str(lake / "source")])
    try:
        spark.read.parquet(str(lake / "source")).createOrReplaceTempView("source")
        IndexedTable.load(spark, lake / "keyed").frame().createOrReplaceTempView("keyed")
        for query, rows in zip(asked, alone, strict=True):
            assert str(spark.sql(query).collect()) == rows, f"seed {seed}: {query}"
    finally:
        spark_apps.disable(spark)


@pytest.mark.parametrize(
    ("query", "files", "skipped"),
    [
        ("SELECT * FROM source ORDER BY ts DESC LIMIT 10", 2, 7),
        ("SELECT * FROM source ORDER BY n LIMIT 5", 9, 0),  # each file has rows without a value, which come first
        ("SELECT * FROM source ORDER BY n NULLS LAST LIMIT 5", 2, 7),
        ("SELECT max(m), min(d) FROM source", 4, 5),
        ("SELECT max(x) FROM source", 9, 0),  # NaN is more than any number
        ("SELECT max(id) FROM keyed", 3, 9),  # of a file under a delta rows may be gone
    ],
)
def test_files_that_hold_none_of_the_first_rows_are_not_read(
    spark: SparkSession, lake: Path, query: str, files: int, skipped: int
) -> None:
    spark_apps.enable(spark, sources=[str(lake / "source")])
    try:
        spark.read.parquet(str(lake / "source")).createOrReplaceTempView("source")
        IndexedTable.load(spark, lake / "keyed").frame().createOrReplaceTempView("keyed")
        [scan] = spark_apps.explain(query, spark).scans
        read = scan.explanation
        assert read is not None
        assert (read.files_read, read.files_skipped) == (files, skipped)
    finally:
        spark_apps.disable(spark)
