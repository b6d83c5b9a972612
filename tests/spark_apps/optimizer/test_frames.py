"""A keyed table as a frame: merged whatever the query is, planned when it is used, at one version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import spark_apps
from spark_apps import IndexedTable
from tests.spark_apps.optimizer.test_plain_queries import answers, used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

COLUMNS = "id bigint, part string, city string, amount double"


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A keyed table with deltas that were not compacted, a tombstone among them, and two indexes."""
    uri = str(tmp_path_factory.mktemp("frames") / "trips")
    table = IndexedTable.create(spark, uri, COLUMNS, ["id"], ["part"], buckets=4)
    rows = [(n, f"p{n % 2}", f"c{n % 7}", n * 1.5) for n in range(400)]
    table.upsert(spark.createDataFrame(rows, COLUMNS))
    table.create_index("by_city", kind="secondary", columns=["city"])
    table.upsert(spark.createDataFrame([(5, "p1", "moved", 0.5), (6, "p0", None, None)], COLUMNS))
    table.delete(spark.createDataFrame([(7,)], "id bigint"))
    return uri


@pytest.fixture
def table(spark: SparkSession, uri: str) -> Iterator[IndexedTable]:
    spark_apps.enable(spark)
    yield IndexedTable.load(spark, uri)
    spark_apps.disable(spark)


QUERIES = [
    "SELECT * FROM trips",
    "SELECT count(*) FROM trips",
    "SELECT * FROM trips WHERE id = 5",
    "SELECT id, amount FROM trips WHERE city = 'moved' OR city = 'c3'",
    "SELECT id FROM trips WHERE city IS NULL",
    "SELECT part, count(*), sum(amount) FROM trips GROUP BY part HAVING count(*) > 3",
    "SELECT id FROM trips WHERE amount = (SELECT max(amount) FROM trips WHERE part = 'p1')",
    "SELECT id FROM trips t WHERE NOT EXISTS (SELECT 1 FROM trips u WHERE u.id = t.id + 1)",
    "SELECT id, lag(id) OVER (PARTITION BY part ORDER BY id) FROM trips WHERE id < 20",
    "SELECT id FROM trips WHERE id IN (5, 6, 7) UNION SELECT id FROM trips WHERE city = 'c1' AND part = 'p0'",
    "SELECT trips.id AS part FROM trips WHERE `part` = 'p0' AND id > 390",
]


def test_a_view_that_stood_in_subqueries_is_read_by_later_queries_too(spark: SparkSession, table: IndexedTable) -> None:
    table.frame().createOrReplaceTempView("trips")
    query = (
        "SELECT id FROM trips t WHERE id IN (SELECT id FROM trips WHERE city = 'moved') AND EXISTS "
        "(SELECT 1 FROM trips u WHERE u.id = t.id) AND id > (SELECT min(id) FROM trips)"
    )
    for _ in range(2):
        assert answers(spark, query) == ["Row(id=5)"]
    explained = spark_apps.explain("SELECT id FROM trips WHERE city = 'moved'", spark)
    assert used(explained) == ["by_city"]


EASILY_WRONG = [
    "SELECT a.id, b.city FROM trips a JOIN trips b ON a.id = b.id + 1 WHERE b.city = 'moved'",
    "SELECT t.id FROM trips t JOIN (VALUES ('moved'), (NULL)) v(c) ON t.city <=> v.c",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.by_turn(24)
def test_a_query_over_a_frame_is_one_over_the_rows_that_read_gives(
    spark: SparkSession, table: IndexedTable, query: str
) -> None:
    check(spark, table, query)


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("query", EASILY_WRONG)
def test_a_query_over_a_frame_that_is_easily_answered_wrong_is_not(
    spark: SparkSession, table: IndexedTable, query: str
) -> None:
    check(spark, table, query)


def check(spark: SparkSession, table: IndexedTable, query: str) -> None:
    """Compare a query over a table's frame with one over the rows that ``read`` gives."""
    table.frame().createOrReplaceTempView("trips")
    answer = answers(spark, query)
    table.read().createOrReplaceTempView("trips")

    assert answer == answers(spark, query)


def test_a_frame_finds_its_index_and_reads_few_files(spark: SparkSession, table: IndexedTable) -> None:
    explained = spark_apps.explain(table.frame().where("city = 'moved'").select("id"))

    assert used(explained) == ["by_city"]
    explanation = explained.scans[0].explanation
    assert explanation is not None
    assert explanation.files_skipped > 0
    assert "by_city" in str(explained)


@pytest.mark.by_turn(1)
def test_frames_of_versions_show_their_own_rows_in_one_query(
    spark: SparkSession, uri: str, table: IndexedTable
) -> None:
    first = IndexedTable.load(spark, uri, version=1).frame()
    newest = table.frame()

    moved = first.alias("a").join(newest.alias("b"), "id").where("a.city <> b.city").select("id", "b.city").collect()

    assert [tuple(row) for row in moved] == [(5, "moved")]
    assert first.count() == 400
    assert newest.count() == 399


def test_a_frame_stays_at_its_version_while_writers_go_on(
    spark: SparkSession, table: IndexedTable, tmp_path: Path
) -> None:
    other = IndexedTable.create(spark, tmp_path / "t", COLUMNS, ["id"], buckets=2)
    other.upsert(spark.createDataFrame([(1, "p", "a", 1.0)], COLUMNS))
    frame = other.frame()
    kept = frame.cache()
    other.upsert(spark.createDataFrame([(1, "p", "b", 2.0), (2, "p", "c", 3.0)], COLUMNS))

    assert [row.city for row in frame.alias("x").join(frame.alias("y"), "id").select("x.city").collect()] == ["a"]
    assert [row.city for row in kept.collect()] == ["a"]
    assert sorted(row.city for row in other.frame().collect()) == ["b", "c"]
    kept.unpersist()


def test_without_the_rule_a_frame_says_what_to_do(spark: SparkSession, table: IndexedTable) -> None:
    frame = table.frame()
    spark_apps.disable(spark)

    with pytest.raises((PySparkException, Exception), match="not enabled in this session"):
        frame.where("id = 1").collect()


@pytest.mark.by_turn(8)
def test_tables_of_a_warehouse_have_names_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    trips = IndexedTable.create(spark, tmp_path / "lake" / "trips", COLUMNS, ["id"], ["part"], buckets=2)
    trips.upsert(spark.createDataFrame([(n, f"p{n % 2}", f"c{n}", 1.0) for n in range(20)], COLUMNS))
    trips.create_index("by_city", kind="secondary", columns=["city"])
    spark.range(10).selectExpr("id", "id * 2 AS rider").write.parquet(str(tmp_path / "lake" / "riders"))
    IndexedTable.register(spark, tmp_path / "lake" / "riders").create_index("r", kind="covering", columns=["id"])
    spark_apps.enable(spark, tmp_path)
    try:
        query = "SELECT t.city, r.rider FROM lake.trips t JOIN lake.riders r ON t.id = r.id WHERE t.city = 'c4'"
        assert answers(spark, query) == ["Row(city='c4', rider=8)"]
        assert "by_city" in used(spark_apps.explain(query, spark))
        trips.upsert(spark.createDataFrame([(4, "p0", "moved", 1.0)], COLUMNS))
        assert answers(spark, query) == []
        assert answers(spark, "SELECT count(*) n FROM lake.trips VERSION AS OF 1 WHERE city = 'c4'") == ["Row(n=1)"]
        assert [row.tableName for row in spark.sql("SHOW TABLES IN lake").collect()] == ["riders", "trips"]
        both = "SELECT count(*) n FROM lake.trips a JOIN lake.trips b ON a.id = b.id AND a.city = b.city"
        assert answers(spark, both) == ["Row(n=20)"]
        for refused, words in {
            "SELECT * FROM lake.nothing": "TABLE_OR_VIEW_NOT_FOUND",
            "DROP TABLE lake.trips": "Nothing was changed",
            "SELECT * FROM lake.trips VERSION AS OF 99": "99",
            "INSERT INTO lake.trips VALUES (1, 'p', 'c', 1.0)": "(?i)append|insert|unsupported",
        }.items():
            with pytest.raises(Exception, match=words):
                spark.sql(refused).collect()
    finally:
        spark_apps.disable(spark)
    with pytest.raises(Exception, match="not enabled in this session"):
        spark.sql("SELECT * FROM lake.trips").collect()
