"""Queries and changes of rows over Spark Connect, where the text alone says what can be pruned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from spark_apps import IndexedTable, enable, sql
from spark_apps.storage.errors import EnvironmentMismatch
from tests.spark.clusters import ConnectServer

ROWS = [(n, f"p{n % 3}", f"c{n % 7}" if n % 5 else None, n * 10) for n in range(40)]
RIDERS = [(f"c{n}", n * n, n) for n in range(0, 9, 2)]


@pytest.fixture(scope="module")
def spark(server: ConnectServer) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as in a process that began with Spark Connect
        builder: Any = SparkSession.builder
        session = builder.remote(f"{server.address}/;token={server.token}").create()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def warehouse(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("wh")
    trips = IndexedTable.create(spark, root / "lake/trips", "id bigint, p string, city string, n int", ["id"], ["p"])
    trips.upsert(spark.createDataFrame(ROWS[:20], "id bigint, p string, city string, n int"))
    trips.create_index("by_city", "secondary", ["city"])
    trips.upsert(spark.createDataFrame(ROWS[10:], "id bigint, p string, city string, n int"))
    spark.createDataFrame(RIDERS, "city string, worth int, id bigint").write.parquet(str(root / "raw/riders"))
    riders = IndexedTable.register(spark, root / "raw/riders")
    riders.create_index("covered", "covering", ["city"], included=["worth"])
    spark.createDataFrame(RIDERS, "city string, worth int, id bigint").createOrReplaceTempView("plain")
    return root


@pytest.fixture(scope="module")
def oracle() -> Any:
    db = duckdb.connect()
    db.execute("CREATE SCHEMA lake; CREATE SCHEMA raw")
    db.execute("CREATE TABLE lake.trips (id bigint, p varchar, city varchar, n int)")
    db.executemany("INSERT INTO lake.trips VALUES (?, ?, ?, ?)", ROWS)
    for name in ("raw.riders", "plain"):
        db.execute(f"CREATE TABLE {name} (city varchar, worth int, id bigint)")
        db.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", RIDERS)
    return db


# All need the same server.
pytestmark = pytest.mark.by_turn(16, whole=True, first=1)

QUERIES = [
    "SELECT * FROM lake.trips WHERE city = 'c3' AND n > 50",
    "SELECT t.id, r.worth FROM lake.trips t JOIN raw.riders r ON t.city = r.city AND r.worth > 3 WHERE t.p = 'p1'",
    """SELECT t.id, r.worth FROM lake.trips t LEFT JOIN raw.riders r ON t.city = r.city AND r.city = 'c2' AND t.n < 300
       WHERE t.n >= 100 AND (r.worth IS NULL OR r.worth = 4)""",
    """SELECT t.id, r.city FROM lake.trips t RIGHT JOIN raw.riders r ON t.city = r.city AND t.p = 'p0'
       WHERE t.id IS NULL""",
    "SELECT t.id, r.city FROM lake.trips t FULL JOIN raw.riders r ON t.city = r.city WHERE r.city = 'c4' OR t.id = 1",
    "SELECT city, count(*) AS c FROM lake.trips WHERE NOT (city = 'c1') GROUP BY city HAVING count(*) > 4",
    """SELECT id FROM lake.trips t
       WHERE EXISTS (SELECT 1 FROM plain r WHERE r.city = t.city AND id > 2) AND p IN ('p0', 'p2')""",
    """SELECT id FROM lake.trips WHERE city NOT IN (SELECT city FROM raw.riders WHERE city = 'c2')
       AND id BETWEEN 3 AND 30""",
    """WITH trips AS (SELECT * FROM lake.trips WHERE id < 9)
       SELECT a.id, b.n FROM trips a JOIN lake.trips b ON a.id = b.id + 1""",
    """SELECT lake.trips.id FROM lake.trips WHERE lake.trips.n = -10 OR lake.trips.city = 'c5'
       UNION SELECT worth FROM plain""",
]


@pytest.mark.parametrize("query", QUERIES)
def test_given_a_query_over_connect_then_its_rows_are_those_of_another_engine(
    spark: Any, warehouse: Path, oracle: Any, query: str
) -> None:
    def key(row: Any) -> Any:
        return [(value is None, value if value is not None else 0) for value in row]

    result = sql.run(spark, query, warehouse=str(warehouse))

    assert sorted(result.rows, key=key) == sorted(oracle.execute(query).fetchall(), key=key)


def test_given_literals_behind_where_and_on_then_they_choose_the_index(
    spark: Any, warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_apps")
    result = sql.run(
        spark,
        "SELECT t.id FROM lake.trips t JOIN raw.riders r ON t.city = r.city AND r.worth = 4 "
        "WHERE t.city = 'c2' AND t.n > 7",
        warehouse=str(warehouse),
    )
    read = [record.getMessage() for record in caplog.records if " is read where " in record.getMessage()]
    assert any("trips is read where (`city` = 'c2') AND (`n` > 7), columns id, city, n" in line for line in read), read
    assert any("riders is read where (`worth` = 4), columns city, worth" in line for line in read), read
    assert result.to_df().count() == len(result.rows) > 0
    assert sql.run(spark, "SELECT * FROM lake.trips", str(warehouse), max_rows=0).to_df().where("id < 5").count() == 5


def test_given_changes_over_connect_then_they_are_committed(spark: Any, warehouse: Path) -> None:
    with pytest.raises(EnvironmentMismatch, match=r"spark_apps\.sql\.run"):
        enable(spark)
    results = sql.run(
        spark,
        """
        CREATE TABLE lake.copy USING indexed TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM lake.trips WHERE id < 5;
        UPDATE lake.copy SET n = n + (SELECT max(id) FROM lake.copy) WHERE id = 1;
        DELETE FROM lake.copy c WHERE c.id = 2;
        MERGE INTO lake.copy c USING (SELECT id + 3 AS id, worth FROM raw.riders WHERE city < 'c4') r ON c.id = r.id
            WHEN MATCHED THEN UPDATE SET n = r.worth WHEN NOT MATCHED THEN INSERT (id, n) VALUES (r.id, r.worth);
        INSERT INTO lake.copy (n, id) SELECT n, id + 100 FROM lake.copy WHERE id = 1;
        SELECT id, n FROM lake.copy
        """,
        warehouse=str(warehouse),
    )
    assert sorted(results.rows) == [(0, 0), (1, 14), (3, 0), (4, 40), (5, 4), (101, 14)]
