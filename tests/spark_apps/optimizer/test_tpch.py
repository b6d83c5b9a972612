"""The 22 queries of TPC-H in plain SQL, over Parquet sources, keyed tables with deltas, and JSON, with suited
indexes: the answers are DuckDB's over the generator's files.

By each eighth commit some of the queries over one of the three; ``TURN=all`` runs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import spark_apps
from benchmarks.data import generate_tpch
from benchmarks.tpch import INDEXES, KEYS, QUERIES, TABLES, alike, query
from spark_apps import IncludedColumns, IndexedTable
from tests.spark.local import COMPILED, session_with
from tests.turns import of_this_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EACH = 8
FORMS = ["parquet", "keyed", "json"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.by_turn(EACH, whole=True, first=3),
]

SCALE = 0.01
SERVED = {3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 20}
"""Queries with a filter that one of the indexes bounds."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generate_tpch(SCALE, folder, TABLES)
    return folder


@pytest.fixture(scope="module", params=of_this_turn(FORMS, len(FORMS), each=EACH))
def form(request: pytest.FixtureRequest, spark: SparkSession, files: Path) -> Iterator[str]:
    """All tables in one form, as views of their names, in a session that uses their indexes."""
    lake = files.parent / str(request.param)
    spark_apps.enable(spark)
    with session_with(spark, COMPILED):
        for name in TABLES:
            rows = spark.read.parquet(str(files / f"{name}.parquet"))
            {"parquet": _parquet, "json": _json, "keyed": _keyed}[request.param](
                spark, lake / name, name, rows
            ).createOrReplaceTempView(name)
        yield request.param
    spark_apps.disable(spark)


def _indexed(table: IndexedTable, name: str) -> None:
    for suited in INDEXES:
        if suited.table == name:
            included = IncludedColumns(include=list(suited.included))
            properties = suited.properties(SCALE)
            table.create_index(suited.name, "covering", list(suited.columns), included=included, properties=properties)


def _parquet(spark: SparkSession, path: Path, name: str, rows: DataFrame) -> DataFrame:
    rows.repartition(3).write.parquet(str(path))
    _indexed(IndexedTable.register(spark, path), name)
    return spark.read.parquet(str(path))


def _json(spark: SparkSession, path: Path, name: str, rows: DataFrame) -> DataFrame:
    rows.repartition(3).write.json(str(path))
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
    _indexed(IndexedTable.register(spark, path, format="json", schema=ddl), name)
    return spark.read.schema(ddl).json(str(path))


def _keyed(spark: SparkSession, path: Path, name: str, rows: DataFrame) -> DataFrame:
    """Some rows are of an older commit's values until a delta is merged, some are not of the table any more."""
    key, ddl = KEYS[name], ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
    table = IndexedTable.create(spark, path, ddl, list(key), buckets=2)
    if name not in ("lineitem", "orders"):
        table.upsert(rows)
        return table.frame()
    third = f"{key[0]} % 3 = 0"
    dates = [field.name for field in rows.schema if field.dataType.typeName() == "date"]
    older = rows.selectExpr(*(
        f"CASE WHEN {third} THEN {one} - INTERVAL 2 YEARS ELSE {one} END AS {one}" if one in dates else one
        for one in rows.columns
    ))  # fmt: skip
    more = rows.where("false").unionByName(rows.withColumn(key[0], -rows[key[0]]).where(f"{key[0]} % 7 = 0"))
    table.upsert(older.unionByName(more))
    _indexed(table, name)
    table.upsert(rows.where(third))
    table.delete(more.select(*key))
    return table.frame()


@pytest.mark.parametrize("number", of_this_turn(list(QUERIES), 4, each=EACH * len(FORMS)))
def test_a_query_of_tpc_h_is_answered_as_duckdb_answers_it(
    spark: SparkSession, files: Path, form: str, number: int
) -> None:
    text = query(number, SCALE)
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{files}/{name}.parquet'")
        expected = connection.execute(text).fetchall()

    explained = spark_apps.explain(text, spark)
    answer = [tuple(row) for row in spark.sql(text).collect()]

    assert alike(answer, expected), (answer[:3], expected[:3])
    assert not any(scan.failed for scan in explained.scans), explained
    if form == "json" and number in SERVED:
        assert any(scan.replaced for scan in explained.scans), explained
