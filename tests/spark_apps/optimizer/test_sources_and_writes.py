"""Sources of each format in plain SQL, by address or by name, and statements that write what a query reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import spark_apps
from spark_apps import IndexedTable, sql
from tests.spark_apps.optimizer.test_plain_queries import files_of, used
from tests.spark_apps.sources.lake import people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(12)]


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[None]:
    spark_apps.enable(spark)
    yield
    spark_apps.disable(spark)


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("form", ["orc", "json", "csv"])
def test_code_that_reads_a_folder_of_another_format_finds_its_index(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    path, columns = str(tmp_path / form), "id bigint, city string"
    spark.range(0, 40, 1, 4).selectExpr("id", "concat('c', id) AS city").write.format(form).save(path)
    IndexedTable.register(spark, path, format=form, schema=columns).create_index("by_city", "secondary", ["city"])
    spark.sql(f"CREATE TEMPORARY VIEW folder ({columns}) USING {form} OPTIONS (path '{path}')")
    try:
        read = spark.read.schema(columns).format(form).load(path)
        for rows in (read.where("city = 'c7'"), spark.sql("SELECT * FROM folder WHERE city IN ('c7', 'none')")):
            assert [tuple(row) for row in rows.collect()] == [(7, "c7")]
            assert used(spark_apps.explain(rows)) == ["by_city"]
    finally:
        spark.catalog.dropTempView("folder")


def test_tables_of_delta_and_iceberg_have_names_in_sql_and_are_read_as_their_logs_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    for first in (0, 10, 20):
        write_deltalake(tmp_path / "delta", people(first, 5), mode="append")
    (tmp_path / "ice").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/ice"}
    theirs = load_catalog("test", **catalog)
    theirs.create_namespace("db")
    iceberg = theirs.create_table("db.people", schema=people(0, 1).schema)
    for first in (0, 10, 20):
        iceberg.append(people(first, 5))
    options = ", ".join(f"'catalog.{name}' '{value}'" for name, value in catalog.items())
    warehouse = str(tmp_path / "wh")
    sql.run(
        spark,
        f"CREATE TABLE raw.delta USING delta LOCATION '{tmp_path}/delta';"
        f"CREATE TABLE raw.ice USING iceberg OPTIONS (catalog 'test', identifier 'db.people', {options});"
        "CREATE INDEX by_note ON raw.delta (note); CREATE INDEX by_note ON raw.ice (note)",
        warehouse=warehouse,
    )
    spark_apps.enable(spark, warehouse)
    try:
        query = "SELECT d.id, i.city FROM raw.delta d JOIN raw.ice i ON d.id = i.id WHERE d.note = i.note AND d.note = "
        rows = spark.sql(f"{query} 'note 12'")
        assert [tuple(row) for row in rows.collect()] == [(12, "rome")]
        explained = spark_apps.explain(rows)
        assert used(explained) == ["by_note", "by_note"]
        assert [scan.explanation.files_read for scan in explained.scans if scan.explanation] == [1, 1]

        DeltaTable(tmp_path / "delta").delete("id = 12")
        iceberg.append(people(40, 5))
        assert spark.sql(f"{query} 'note 12'").collect() == []
        assert [row.id for row in spark.sql("SELECT id FROM raw.ice WHERE note = 'note 42'").collect()] == [42]
        twice = "SELECT count(*) AS n FROM raw.ice a JOIN raw.ice b ON a.id = b.id"
        assert [row.n for row in spark.sql(twice).collect()] == [20]
    finally:
        spark_apps.disable(spark)


class Plans:
    """Keeps the plans that a session has run."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def onSuccess(self, name: str, execution: Any, duration: int) -> None:
        self.kept.append(execution.executedPlan())

    def onFailure(self, name: str, execution: Any, error: Any) -> None:
        pass

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@contextmanager
def plans_of(spark: Any) -> Iterator[list[Any]]:
    listener, manager = Plans(), spark._jsparkSession.listenerManager()
    manager.register(listener)
    try:
        yield listener.kept
        spark._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        manager.unregister(listener)


@pytest.mark.usefixtures("enabled")
def test_statements_that_write_what_a_query_reads_read_the_files_that_its_index_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = str(tmp_path / "facts")
    spark.range(0, 80, 1, 8).selectExpr("id", "concat('c', id) AS city").write.parquet(source)
    IndexedTable.register(spark, source).create_index("by_city", "secondary", ["city"])
    spark.read.parquet(source).createOrReplaceTempView("facts")
    spark.sql(f"CREATE TABLE copied (id bigint, city string) USING parquet LOCATION '{tmp_path}/copied'")
    few = "SELECT id, city FROM facts WHERE city = 'c7'"
    try:
        with plans_of(spark) as plans:
            spark.sql(f"INSERT INTO copied {few}")
            spark.sql(few).write.mode("append").parquet(str(tmp_path / "copied"))
            spark.sql(f"CREATE TABLE made USING parquet LOCATION '{tmp_path}/made' AS {few}")
        spark.sql(f"INSERT OVERWRITE copied {few}")

        read = [files for plan in plans if (files := files_of(plan, "facts")[0])]
        assert (len(read) >= 3, set(read)) == (True, {1}), "each has read one file of eight"
        assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "copied")).collect()] == [(7, "c7")]
        assert [tuple(row) for row in spark.table("made").collect()] == [(7, "c7")]
    finally:
        for name in ("copied", "made"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_rules_that_others_put_into_the_optimizer_stay_and_work(spark: Any, tmp_path: Path) -> None:
    experimental, scala = spark._jsparkSession.experimental(), spark._jvm.scala
    before = experimental.extraOptimizations()
    theirs = getattr(spark._jvm.org.apache.spark.sql.catalyst.optimizer, "CombineFilters$").__getattr__("MODULE$")
    kept = spark._jvm.java.util.ArrayList()
    kept.add(theirs)
    getattr(experimental, "extraOptimizations_$eq")(scala.collection.JavaConverters.asScalaBuffer(kept).toSeq())
    try:
        spark_apps.enable(spark)
        rules = experimental.extraOptimizations()
        assert [rules.apply(n).ruleName() for n in range(rules.size())] == [theirs.ruleName(), "lakeindex.IndexRule"]
        spark_apps.disable(spark)
        assert experimental.extraOptimizations().apply(0).equals(theirs)
    finally:
        getattr(experimental, "extraOptimizations_$eq")(before)
