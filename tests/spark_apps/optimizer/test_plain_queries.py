"""Queries in plain SQL and by DataFrames find the indexes of registered sources, and answer as without them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import InvalidInput, StorageError, TableNotFound
from tests.spark.local import session_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

ROWS = 4_000
CUSTOMERS = 200


def write_orders(spark: SparkSession, path: Path, first: int, count: int, files: int = 1, mode: str = "append") -> None:
    ids = spark.range(first, first + count, 1, files)
    rows = ids.select(
        "id",
        (F.col("id") * 7 % CUSTOMERS).alias("cust"),
        (F.col("id") * F.lit(0.5)).alias("amount"),
        F.when(F.col("id") % 11 != 0, F.concat(F.lit("c"), F.col("id") % 5)).alias("city"),
        F.concat(F.lit("d"), F.col("id") % 2).alias("day"),
    )
    rows.write.mode(mode).partitionBy("day").parquet(str(path))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of orders with three indexes, and files that came since; a source of customers without any."""
    lake = tmp_path_factory.mktemp("plain-queries")
    write_orders(spark, lake / "orders", 0, ROWS, files=4)
    table = IndexedTable.register(spark, lake / "orders")
    table.create_index("by_cust", kind="covering", columns=["cust"], included=["amount", "day"])
    table.create_index("by_id", kind="secondary", columns=["id"])
    table.create_index("by_city", kind="compact", columns=["city"])
    write_orders(spark, lake / "orders", ROWS, 50)
    customers = spark.range(CUSTOMERS).select(F.col("id").alias("cust"), F.concat(F.lit("n"), "id").alias("name"))
    customers.write.parquet(str(lake / "customers"))
    return lake


@pytest.fixture
def views(spark: SparkSession, lake: Path) -> Iterator[None]:
    spark_apps.enable(spark)
    for name in ("orders", "customers"):
        spark.read.parquet(str(lake / name)).createOrReplaceTempView(name)
    yield
    spark_apps.disable(spark)


def answers(spark: SparkSession, query: str) -> list[str]:
    return sorted(map(str, spark.sql(query).collect()))


def used(explanation: Any) -> list[str | None]:
    """The index of each scan that was replaced; "" for one that reads no index, ``None`` for one left to Spark."""
    return [
        (scan.explanation.index_used or "") if scan.replaced and scan.explanation else None
        for scan in explanation.scans
    ]


QUERIES = {
    "SELECT count(*), sum(amount) FROM orders WHERE cust = 77": ["by_cust"],
    "SELECT * FROM orders WHERE id IN (5, 3999, 4049)": ["by_id"],
    "SELECT id FROM (SELECT id, cust AS id2 FROM orders) WHERE id = 7 OR id = 8": ["by_id"],
    "SELECT o.id, p.city FROM orders o JOIN orders p ON o.id = p.cust WHERE p.id = 5": ["by_id", None],
    "SELECT a.amount, b.amount FROM orders a JOIN orders b ON a.cust = b.cust WHERE a.cust = 7 AND b.amount < 100": [
        "by_cust",
        "by_cust",
    ],
    "SELECT o.id, c.name FROM orders o JOIN customers c USING (cust) WHERE o.id = 12": ["by_id"],
    "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.cust = c.cust AND o.id = 12)": ["by_id"],
    "SELECT name FROM customers WHERE cust IN (SELECT cust FROM orders WHERE id IN (1, 2, 3))": ["by_id"],
    "SELECT name FROM customers WHERE cust NOT IN (SELECT cust FROM orders WHERE id > 100)": [None],
    "SELECT name FROM customers WHERE cust = (SELECT max(cust) FROM orders WHERE id = 9)": ["by_id"],
    "WITH o AS (SELECT * FROM orders WHERE id < 20) SELECT x.id FROM o x JOIN o y ON x.id = y.id + 1 WHERE y.id = 4": [
        None,
        "by_id",
    ],
    "SELECT id FROM orders WHERE id = 1 UNION ALL SELECT id FROM orders WHERE id = 2": ["by_id", "by_id"],
    "SELECT id, row_number() OVER (ORDER BY amount DESC) FROM orders WHERE cust = 3": [None],
    "SELECT day, sum(amount) FROM orders WHERE cust BETWEEN 3 AND 5 GROUP BY day HAVING count(*) > 1": ["by_cust"],
    "SELECT o.id, c.name FROM customers c LEFT JOIN orders o ON o.cust = c.cust AND o.id = 14": ["by_id"],
    "SELECT count(*) FROM orders WHERE id <=> 5": ["by_id"],
    "SELECT count(*) FROM orders WHERE id = 5 AND city IS NULL": ["by_id"],
    "SELECT id AS cust, cust AS id FROM orders WHERE id = 5": ["by_id"],
    "SELECT count(*) FROM orders WHERE id = 5 AND rand() < 2": ["by_id"],
    "SELECT count(*) FROM orders": [None],
    "SELECT count(*) FROM orders WHERE id = 5 AND false": [],
    "SELECT DISTINCT city FROM orders WHERE hash(id) % 7 = 3": [None],
    "SELECT regexp_extract(input_file_name(), 'part-[0-9]*', 0), id FROM orders WHERE id = 5": [],
    "SELECT count(*) FROM customers WHERE cust = 5": [],
}


EASILY_WRONG = {
    "SELECT * FROM orders o WHERE o.ID = 5 AND amount > 1": ["by_id"],
    "SELECT o.amount FROM orders o WHERE o.CUST = 77 AND amount > 500": ["by_cust"],
    "SELECT count(v.x), count(*) FROM orders o LEFT JOIN (VALUES (5L)) v(x) ON o.id = v.x": [None],
}


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.by_turn(12)
def test_a_query_answers_as_without_indexes_and_uses_the_one_that_fits(spark: SparkSession, query: str) -> None:
    check(spark, query, QUERIES[query])


@pytest.mark.by_turn(1)
@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("query", EASILY_WRONG)
def test_a_query_that_is_easily_answered_wrong_is_not(spark: SparkSession, query: str) -> None:
    check(spark, query, EASILY_WRONG[query])


def check(spark: SparkSession, query: str, indexes: list[str | None]) -> None:
    """Compare a query with itself without the rule, and the index of each scan with those that should be used."""
    explained = spark_apps.explain(query, spark)
    answer = answers(spark, query)
    spark_apps.disable(spark)

    assert answer == answers(spark, query)
    assert sorted(used(explained), key=str) == sorted(indexes, key=str), explained
    assert not [scan for scan in explained.scans if scan.reason and "Error" in scan.reason], explained


@pytest.mark.usefixtures("views")
def test_dataframes_cached_frames_and_writes_use_indexes_and_the_plan_reads_few_files(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    orders = spark.read.parquet(str(lake / "orders"))
    one = orders.where(F.col("id") == 5).select("id", "city")
    cached = orders.where("id = 6").cache()
    try:
        assert used(spark_apps.explain(one)) == ["by_id"]
        assert [row.id for row in one.collect()] == [5]
        assert read_of(one)[0] < len(orders.inputFiles())
        assert [row.id for row in cached.collect()] == [6]
        orders.where("id = 7").write.parquet(str(tmp_path / "copy"))
        assert [row.id for row in spark.read.parquet(str(tmp_path / "copy")).collect()] == [7]
    finally:
        cached.unpersist()


@pytest.mark.usefixtures("views")
def test_a_view_finds_its_index_after_it_stood_in_a_subquery_that_none_served(spark: SparkSession) -> None:
    spark.sql("SELECT name FROM customers WHERE cust NOT IN (SELECT cust FROM orders WHERE amount > 9)").collect()

    for _ in range(2):
        assert used(spark_apps.explain("SELECT city FROM orders WHERE id = 5", spark)) == ["by_id"]


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize(
    ("query", "index"),
    {
        "SELECT * FROM orders WHERE id = 5": "by_id",
        "SELECT amount FROM orders WHERE cust = 77": "by_cust",
        "SELECT amount FROM orders WHERE cust = 77 AND day = 'd1'": "by_cust",
        "SELECT name FROM customers c WHERE cust IN (SELECT cust FROM orders WHERE id IN (5, 3999))": "by_id",
    }.items(),
)
def test_spark_opens_the_files_that_the_explanation_tells_of(spark: SparkSession, query: str, index: str) -> None:
    # Whether keys of a join come in time is another query's luck than its explanation's.
    spark.conf.set("spark.lakeindex.joinKeys.enabled", "false")
    rows = spark.sql(query)
    explanation = next(scan.explanation for scan in spark_apps.explain(rows).scans if scan.replaced)
    rows.collect()
    spark.conf.unset("spark.lakeindex.joinKeys.enabled")
    others = read_of(rows, "customers")
    spark_apps.disable(spark)
    alone = spark.sql(query)
    alone.collect()

    assert explanation is not None
    assert explanation.index_used == index
    entries = sum(use.files for use in explanation.indexes if use.replaces)
    files, size = read_of(rows)
    assert files == explanation.files_read + entries + others[0]
    assert files < read_of(alone)[0]
    if not entries:
        assert size == explanation.bytes_read + others[1], "of index files a plan knows the bytes by estimate"
    assert size < read_of(alone)[1]


def read_of(rows: DataFrame, folder: str = "") -> tuple[int, int]:
    """How many files, and of how many bytes, the scans of a plan that ran have opened, by Spark's own metrics.

    :param folder: count scans of a folder of this name alone.
    """
    frame: Any = rows
    return files_of(frame._jdf.queryExecution().executedPlan(), folder)


def files_of(plan: Any, folder: str = "") -> tuple[int, int]:
    """How many files, and of how many bytes, the scans of a plan have opened; see :func:`read_of`."""
    scans = [scan for scan in _scans_of(plan) if folder in scan.relation().location().rootPaths().mkString()]
    metrics = [(scan.metrics().get("numFiles"), scan.metrics().get("filesSize")) for scan in scans]
    return (
        sum(files.get().value() for files, _ in metrics if files.isDefined()),
        sum(size.get().value() for _, size in metrics if size.isDefined()),
    )


def _scans_of(plan: Any) -> Iterator[Any]:
    if "FileScan" in plan.nodeName() or plan.nodeName().startswith("Scan "):
        yield plan
    if plan.nodeName() == "AdaptiveSparkPlan":
        yield from _scans_of(plan.executedPlan())
    children = plan.children()
    for number in range(children.size()):
        yield from _scans_of(children.apply(number))
    if plan.nodeName().endswith("QueryStage"):
        yield from _scans_of(plan.plan())


@pytest.mark.by_turn(1)
def test_files_that_came_or_went_are_those_that_spark_lists(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_orders(spark, source, 0, 200, files=2)
    IndexedTable.register(spark, source).create_index("by_id", kind="secondary", columns=["id"])
    spark_apps.enable(spark)
    try:
        before = spark.read.parquet(str(source))
        write_orders(spark, source, 1_000, 10)
        after = spark.read.parquet(str(source))
        query = "id IN (5, 1005)"

        assert [row.id for row in before.where(query).collect()] == [5], "as Spark listed it then"
        assert sorted(row.id for row in after.where(query).collect()) == [5, 1005]
        assert [row.id for row in before.where(query).collect()] == [5], "and does not list again"
        assert (
            used(spark_apps.explain(before.where(query))) == used(spark_apps.explain(after.where(query))) == ["by_id"]
        )

        shutil.rmtree(source / "day=d1")
        fewer = spark.read.parquet(str(source))
        assert [row.id for row in fewer.where("id IN (4, 5)").collect()] == [4]
        assert used(spark_apps.explain(fewer.where("id IN (4, 5)"))) == ["by_id"]
        assert used(spark_apps.explain(after.where(query))) == ["by_id"], "what Spark listed is what counts"
        with pytest.raises(Exception, match=r"day=d1.*parquet"):
            after.where(query).collect()
    finally:
        spark_apps.disable(spark)


@pytest.mark.by_turn(1)
@pytest.mark.usefixtures("views")
def test_what_is_read_otherwise_than_it_was_registered_is_left_to_spark(spark: SparkSession, lake: Path) -> None:
    path = str(lake / "orders")
    cases = {
        "ignorecorruptfiles": spark.read.option("ignoreCorruptFiles", "true").parquet(path),
        "'amount'": spark.read.schema("id bigint, amount float, day string").parquet(path),
        "_metadata": spark.read.parquet(path).select("id", "_metadata.file_size"),
        "datetimeRebaseMode": spark.read.option("datetimeRebaseMode", "LEGACY").parquet(path),
    }
    for words, rows in cases.items():
        explained = spark_apps.explain(rows.where("id = 5"))
        assert used(explained) == [None], words
        assert words.lower() in str(explained).lower(), explained
    with session_with(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        explained = spark_apps.explain(spark.read.parquet(path).where("id = 5"))
    assert used(explained) == [None]
    assert "datetimeRebaseModeInRead is LEGACY" in str(explained)


@pytest.mark.usefixtures("views")
def test_an_index_that_is_damaged_leaves_the_files_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "orders"
    write_orders(spark, source, 0, 100, files=2)
    IndexedTable.register(spark, source).create_index("by_id", kind="secondary", columns=["id"])
    for file in (tmp_path / "_indexes/orders/_index/indexes").rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    rows = spark.read.parquet(str(source)).where("id = 5")

    explained = spark_apps.explain(rows)

    assert used(explained) == [None]
    assert "unreadable" in str(explained)
    assert [row.id for row in rows.collect()] == [5]


def test_enabled_twice_is_once_and_rules_of_others_stay(spark: SparkSession, lake: Path) -> None:
    session: Any = spark
    experimental = session._jsparkSession.experimental()
    before = experimental.extraOptimizations().size()
    spark_apps.enable(spark)
    spark_apps.enable(spark, sources=[lake / "orders"])
    assert experimental.extraOptimizations().size() == before + 1
    rows = spark.read.parquet(str(lake / "orders")).where("id = 5")
    assert used(spark_apps.explain(rows)) == ["by_id"]
    spark_apps.disable(spark)
    spark_apps.disable(spark)
    assert experimental.extraOptimizations().size() == before
    with pytest.raises(InvalidInput, match="enable"):
        spark_apps.explain(rows)


def test_what_cannot_be_enabled_says_why(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        spark_apps.enable(spark, sources=[tmp_path / "nowhere"])
    with pytest.raises(StorageError):
        spark_apps.enable(spark, warehouse=tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="enable"):
        spark_apps.explain("SELECT 1", spark)
