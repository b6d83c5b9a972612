"""Joins and sums by the columns that an index lays its rows by: no shuffle in Spark's plan, and the rows as without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_apps
from spark_apps import IncludedColumns, IndexedTable
from tests.spark.local import session_with
from tests.spark.releases import SPARK, since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

ALWAYS = {"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
_ORDERING = "spark.sql.legacy.bucketedTableScan.outputOrdering"
AT_SCALE = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "3"}


def write(spark: SparkSession, path: Path, first: int, count: int, mode: str = "append", step: int = 7) -> None:
    """Rows whose key is null now and then."""
    ids = spark.range(first, first + count, 1, 1)
    key = F.when(F.col("id") % 13 != 0, F.col("id") * step % 50)
    ids.select(key.alias("k"), F.col("id").alias("v"), F.concat(F.lit("t"), F.col("id") % 3).alias("t")).write.mode(
        mode
    ).parquet(str(path))


def laid(table: IndexedTable, buckets: int = 4, columns: tuple[str, ...] = ("k",)) -> IndexedTable:
    properties = {"layout": "buckets", "buckets": str(buckets), **ALWAYS}
    table.create_index("by_k", "covering", list(columns), included=["v"], properties=properties)
    return table


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources with an index in 4 buckets (``a``, ``b``), in 8 (``c``), by two columns (``d``), and without (``e``)."""
    lake = tmp_path_factory.mktemp("joins")
    for name, first in (("a", 0), ("b", 100), ("c", 50), ("d", 0), ("e", 30)):
        write(spark, lake / name, first, 200, step=7 if name != "e" else 11)
    for name, buckets in (("a", 4), ("b", 4), ("c", 8)):
        laid(IndexedTable.register(spark, lake / name), buckets)
    laid(IndexedTable.register(spark, lake / "d"), 4, ("k", "t"))
    return lake


@pytest.fixture(autouse=True)
def views(spark: SparkSession, lake: Path) -> Iterator[None]:
    with session_with(spark, AT_SCALE):
        spark_apps.enable(spark)
        for name in "abcde":
            spark.read.parquet(str(lake / name)).createOrReplaceTempView(name)
        yield
        spark_apps.disable(spark)


def answers(spark: SparkSession, query: str) -> list[str]:
    return sorted(map(str, spark.sql(query).collect()))


def nodes(query: Any) -> list[str]:
    """The names of a plan's nodes as Spark runs it, adaptively or not."""
    return [plan.nodeName() for plan in _walk(query._jdf.queryExecution().executedPlan())]


def _walk(plan: Any) -> Iterator[Any]:
    yield plan
    if plan.nodeName() == "AdaptiveSparkPlan":
        yield from _walk(plan.executedPlan())
    if plan.nodeName().endswith("QueryStage"):
        yield from _walk(plan.plan())
    children = plan.children()
    for number in range(children.size()):
        yield from _walk(children.apply(number))


def shuffles(spark: SparkSession, query: str) -> int:
    """How many shuffles a query has, whose answer is that without the rule."""
    planned = nodes(spark.sql(query))
    answer = answers(spark, query)
    spark_apps.disable(spark)
    try:
        assert answer == answers(spark, query), query
    finally:
        spark_apps.enable(spark)
    return planned.count("Exchange")


QUERIES = {
    "SELECT k, a.v, b.v FROM a JOIN b USING (k)": 0,
    "SELECT a.k, a.v, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.v": 0,
    "SELECT a.k, b.k, a.v, b.v FROM a RIGHT JOIN b ON a.k = b.k": 0,
    "SELECT a.k, b.k, a.v, b.v FROM a FULL JOIN b ON a.k = b.k WHERE coalesce(a.v, b.v) > 5": 0,
    "SELECT a.k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND b.v > 250)": 0,
    "SELECT v FROM a LEFT ANTI JOIN (SELECT k FROM b WHERE v > 280) b ON a.k = b.k": 0,
    "SELECT k, a.v, c.v FROM a JOIN c USING (k)": 0,
    "SELECT a.v, e.v FROM a JOIN e ON a.k = e.k": 1,
    "SELECT a.v, e.v FROM e LEFT JOIN a ON a.k = e.k": 1,
    "SELECT a.v, b.v FROM a JOIN b ON a.k <=> b.k WHERE a.v < 40": 2,
    "SELECT k, count(*), sum(v) FROM a GROUP BY k": 0,
    "SELECT DISTINCT k FROM a": 0,
    "SELECT key, max(v) FROM (SELECT k AS key, v FROM a WHERE v > 7) GROUP BY key": 0,
    "SELECT k, a.v, n FROM a JOIN (SELECT k, count(*) n FROM b GROUP BY k) USING (k)": 0,
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) FROM a": 0,
    "SELECT x.k, x.v, y.v FROM a x JOIN a y ON x.k = y.k AND x.v <> y.v": 0,
    "SELECT d.v, x.v FROM d JOIN d x ON d.k = x.k AND d.t = x.t": 0,
    "SELECT d.v, x.v FROM d JOIN d x ON d.k = x.k AND d.v = x.v": 2,
    "SELECT k, t, count(*) FROM d GROUP BY t, k": 0,
    "SELECT k, count(*) FROM (SELECT k FROM a UNION ALL SELECT k FROM b) GROUP BY k": 1,
    "SELECT k, sum(n) FROM (SELECT k, count(*) n FROM a GROUP BY k UNION ALL SELECT k, count(*) FROM b GROUP BY k) "
    "GROUP BY k": None,
    "SELECT t, count(*) FROM a GROUP BY t": 1,
    "SELECT k, a.v, b.v FROM a JOIN b USING (k) WHERE k IN (3, 17)": 0,
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_join_or_sum_by_the_columns_of_the_buckets_shuffles_nothing(spark: SparkSession, query: str) -> None:
    count = shuffles(spark, query)
    if QUERIES[query] is not None:
        assert count == QUERIES[query], spark_apps.explain(query, spark)


@pytest.mark.by_turn(1)
def test_a_union_of_two_scans_keeps_its_rows_where_spark_reads_by_columns(spark: SparkSession) -> None:
    # Of such a union Spark promises buckets that it does not keep (SPARK-59141).
    by_columns = {"spark.sql.parquet.enableVectorizedReader": "true", "spark.sql.codegen.wholeStage": "true"}
    query = "SELECT k, count(*) FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) GROUP BY k"
    with session_with(spark, by_columns):
        by_batch = spark.sql("SELECT k, count(*) FROM a GROUP BY k")
        by_batch.collect()
        assert "ColumnarToRow" in nodes(by_batch)
        assert shuffles(spark, query) == 1


@pytest.mark.by_turn(1)
def test_a_replaced_scan_tells_its_name_and_size_and_a_small_side_is_broadcast(spark: SparkSession) -> None:
    few, whole = spark.sql("SELECT k, v FROM a WHERE k = 3"), spark.sql("SELECT k, v FROM e")
    with session_with(spark, {"spark.sql.cbo.enabled": "true"}):
        counted: Any = spark.sql("SELECT a.k FROM a JOIN b USING (k)")
        rows = [leaf.stats().rowCount() for leaf in _leaves(counted._jdf.queryExecution().optimizedPlan())]
    assert [str(each.get()) for each in rows] == ["200", "200"]

    assert "Scan parquet a.by_k" in nodes(few)
    assert 0 < _size(few) < _size(whole)
    query = "SELECT e.v, a.v FROM e JOIN a ON e.k = a.k"
    with session_with(spark, {"spark.sql.autoBroadcastJoinThreshold": "10000000"}):
        assert "BroadcastHashJoin" in nodes(spark.sql(query))
        assert [scan.shuffle for scan in spark_apps.explain(query, spark).scans] == [None]
        assert shuffles(spark, query) == 0
    with session_with(spark, {"spark.sql.autoBroadcastJoinThreshold": str(_size(few))}):
        assert "BroadcastHashJoin" in nodes(spark.sql("SELECT e.v, a.v FROM e JOIN a ON e.k = a.k WHERE a.k = 3"))
        assert "BroadcastHashJoin" not in nodes(spark.sql(query))


def _size(query: Any) -> int:
    return int(str(query._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(number) for number in range(leaves.size())]


def test_a_sort_is_saved_of_one_sorted_file_a_bucket_unless_the_session_does_not_trust_it(
    spark: SparkSession,
) -> None:
    query = "SELECT k, a.v, b.v FROM a JOIN b USING (k)"
    assert nodes(spark.sql(query)).count("Sort") == 0
    assert shuffles(spark, query) == 0
    with session_with(spark, {_ORDERING: "false"}):
        assert nodes(spark.sql(query)).count("Sort") == 2
    spark_apps.disable(spark)
    assert spark.conf.get(_ORDERING, None) is None


JOIN = "SELECT k, s.v, b.v FROM s JOIN b USING (k)"
SUM = "SELECT k, count(*), sum(v) FROM s GROUP BY k"


@pytest.mark.by_turn(4)
@since(4, 1, "a union that keeps the buckets of its parts")
def test_files_that_came_are_shuffled_alone_and_rows_of_those_gone_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "s"
    for first in (0, 60, 120):
        write(spark, source, first, 60)
    table = laid(IndexedTable.register(spark, source))
    [gone, *_] = sorted(source.glob("*.parquet"))

    def check(expected: int, words: str = "avoided: 4 buckets by k") -> None:
        spark.read.parquet(str(source)).createOrReplaceTempView("s")
        for query in (JOIN, SUM, JOIN.replace("JOIN", "LEFT JOIN", 1)):
            assert shuffles(spark, query) == expected, spark_apps.explain(query, spark)
        assert words in str(spark_apps.explain(SUM, spark))

    check(0)
    assert "__index_lineage" not in _text(spark.sql("SELECT k, v FROM a WHERE k = 3")), "nothing is gone"
    write(spark, source, 300, 40)
    check(1, "avoided: 4 buckets by k; rows of other files are shuffled to them")
    gone.unlink()
    check(1)
    assert "__index_lineage" in _text(spark.sql(SUM))
    table = IndexedTable.load(spark, source)
    table.refresh_index("by_k")
    check(0)
    assert "__index_lineage" not in _text(spark.sql(SUM))
    with session_with(spark, {"spark.sql.unionOutputPartitioning": "false"}):
        write(spark, source, 400, 40)
        spark.read.parquet(str(source)).createOrReplaceTempView("s")
        assert shuffles(spark, SUM) == 1
    IndexedTable.load(spark, source).refresh_index("by_k")
    spark.read.parquet(str(source)).createOrReplaceTempView("s")
    assert nodes(spark.sql(JOIN)).count("Sort") == 1, "a bucket of several files"
    table = IndexedTable.load(spark, source)
    table.compact("by_k", mode="full")
    assert table.verify("by_k").ok
    check(0)


def _text(query: Any) -> str:
    return str(query._jdf.queryExecution().optimizedPlan().toString())


@pytest.mark.by_turn(8)
def test_rows_of_a_keyed_table_are_merged_beside_the_buckets_of_its_index(spark: SparkSession, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "t", "id bigint, k bigint, v bigint", ["id"], buckets=2)
    table.upsert(spark.range(200).selectExpr("id", "IF(id % 13 = 0, NULL, id % 50) AS k", "id AS v"))
    laid(table)
    table.frame().createOrReplaceTempView("s")
    assert nodes(spark.sql(JOIN)).count("Exchange") == 0
    table.upsert(spark.range(190, 230).selectExpr("id", "id % 40 AS k", "-id AS v"))
    table.delete("id < 5")
    table.frame().createOrReplaceTempView("s")
    expected = {row.id: (row.k, row.v) for row in table.read().collect()}
    united = SPARK >= (4, 1)  # else no union keeps the buckets of its parts
    message = "avoided" if united else "shuffled: files that the index does not hold are read too"
    assert message in str(spark_apps.explain(SUM, spark))
    shuffled = nodes(spark.sql(JOIN))
    got = sorted(
        (row[0], row[1]) for row in spark.sql("SELECT s.k, s.v FROM s LEFT SEMI JOIN b ON s.k = b.k").collect()
    )
    others = {row.k for row in spark.table("b").collect()}
    assert got == sorted(pair for pair in expected.values() if pair[0] in others and pair[0] is not None)
    sums = {row[0]: row[1] for row in spark.sql("SELECT k, count(*) FROM s GROUP BY k").collect()}
    assert sums == {key: sum(pair[0] == key for pair in expected.values()) for key in {k for k, _ in expected.values()}}
    assert "Union" in shuffled
    table.compact()
    table.refresh_index("by_k")
    table.frame().createOrReplaceTempView("s")
    assert "__index_lineage" not in _text(spark.sql(SUM))
    assert nodes(spark.sql(SUM)).count("Exchange") == 0


def test_entries_of_other_columns_are_read_as_buckets_of_one_table(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "s"
    write(spark, source, 0, 80)
    table = laid(IndexedTable.register(spark, source))
    write(spark, source, 80, 80)
    table = IndexedTable.load(spark, source)
    table.refresh_index("by_k", included=IncludedColumns(include=["t"], exclude=["v"]))
    spark.read.parquet(str(source)).createOrReplaceTempView("s")
    assert shuffles(spark, "SELECT k, count(*) FROM s GROUP BY k") == 0
    assert shuffles(spark, "SELECT k, t, count(*) FROM s GROUP BY k, t") == 1, "what came before lacks t"
    assert table.verify("by_k").ok
    IndexedTable.load(spark, source).refresh_index("by_k", mode="full")
    assert shuffles(spark, "SELECT k, t, count(*) FROM s GROUP BY k, t") == 0


@pytest.mark.by_turn(1)
def test_a_view_that_was_asked_in_a_subquery_uses_its_indexes_in_the_next_query_too(spark: SparkSession) -> None:
    for _ in range(2):
        assert shuffles(spark, "SELECT a.v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)") == 0
        assert nodes(spark.sql("SELECT k, count(*) FROM b GROUP BY k")).count("Exchange") == 0
