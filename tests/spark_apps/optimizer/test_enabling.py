"""Turning indexes on is for the session that is given, for all of it or nothing; what is said of a query is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import rule, session
from spark_apps.storage.errors import LakeIndexError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of two files with an index of its rows, and a keyed table ``lake.trips`` with one."""
    lake = tmp_path_factory.mktemp("enabling")
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "cast(id / 4 AS int) AS k", "repeat('x', 300) AS note")
    rows.write.parquet(str(lake / "facts"))
    source = IndexedTable.register(spark, lake / "facts")
    trips = IndexedTable.create(spark, lake / "lake" / "trips", "id bigint, k int, note string", ["id"], buckets=2)
    trips.upsert(rows)
    for table in (source, trips):
        table.create_index("by_k", kind="covering", columns=["k"], included=["id"])
    return lake


@pytest.fixture
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose parent is not enabled, and which is not the thread's active one."""
    own = spark.newSession()
    spark.sql("SELECT 1")
    yield own
    spark_apps.disable(own)


def kept(spark: SparkSession) -> tuple[Any, ...]:
    """Return what enabling changes in a session: rules, settings, catalogs, and whether it is known."""
    inner: Any = spark
    settings = {row.key: row.value for row in spark.sql("SET").collect()}
    names = [*session._TURNED_ON, *(name for name in settings if name.startswith("spark.sql.catalog."))]
    return (
        inner._jsparkSession.experimental().extraOptimizations().size(),
        {name: settings.get(name) for name in names},
        sorted(row.catalog for row in spark.sql("SHOW CATALOGS").collect()),
        session._ENABLED.get(session._key(spark)),
    )


def test_given_another_session_than_the_active_one_then_it_is_enabled_and_no_other(
    spark: SparkSession, own: SparkSession, lake: Path
) -> None:
    before, of_own = kept(spark), kept(own)

    spark_apps.enable(own, warehouse=lake)

    assert own.sql("SELECT count(*) FROM lake.trips WHERE k = 3").collect()[0][0] == 4
    assert kept(spark) == before and kept(own)[0] == of_own[0] + 1


def after(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that does its work, and fails then."""

    def failing(*arguments: Any) -> None:
        call(*arguments)
        raise RuntimeError("it fails")

    return failing


def test_given_any_failure_then_a_session_is_as_it_was_before(
    spark: SparkSession, own: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(**arguments: Any) -> None:
        before = kept(own)
        with pytest.raises((LakeIndexError, RuntimeError)):
            spark_apps.enable(own, **{"warehouse": lake, **arguments})
        assert kept(own) == before

    def each() -> None:
        checked(warehouse=lake / "none")
        checked(sources=[str(lake / "none")])
        checked(warehouse="s3://none/x", options={"endpoint": "http://127.0.0.1:9", "max_retries": "0"})
        for where, name in (
            (rule, "_compile"), (rule.InstalledRule, "catalog"), (session, "_install"),
        ):  # fmt: skip
            with monkeypatch.context() as patch:
                patch.setattr(where, name, after(getattr(where, name)))
                checked()

    each()
    spark_apps.enable(own, warehouse=lake)
    each()
    assert own.sql("SELECT count(*) FROM lake.trips WHERE k = 3").collect()[0][0] == 4


def test_files_of_a_frame_are_those_of_its_table_whatever_is_read_in_their_place(
    spark: SparkSession, own: SparkSession, lake: Path
) -> None:
    spark_apps.enable(own, warehouse=lake)
    query, address = "k = 3", str(lake / "facts")
    alone = sorted(spark.read.parquet(address).where(query).inputFiles())

    rows = own.read.parquet(address).where(query).select("id")
    assert [scan.explanation.index_used for scan in spark_apps.explain(rows).scans if scan.explanation] == ["by_k"]
    assert sorted(rows.inputFiles()) == alone
    assert rows.count() == 4
    assert sorted(rows.inputFiles()) == alone
    data = sorted((lake / "lake" / "trips" / "data").rglob("*.parquet"))
    for keyed in (own.table("lake.trips"), IndexedTable.load(own, lake / "lake" / "trips").frame()):
        found = keyed.where(query).select("id").inputFiles()
        assert sorted(name.removeprefix("file://") for name in found) == [str(path) for path in data]


def test_given_queries_of_several_threads_then_each_is_told_of_its_own(own: SparkSession, lake: Path) -> None:
    spark_apps.enable(own, warehouse=lake)
    facts, wrong = own.read.parquet(str(lake / "facts")), []

    def tell(k: int) -> None:
        for _ in range(4):
            (scan,) = spark_apps.explain(facts.where(f"k = {k}").select("id")).scans
            if scan.plan is None or f"= {k})" not in str(scan.plan.where):
                wrong.append(scan)

    def ask(k: int) -> None:
        for _ in range(4):
            facts.where(f"k = {k}").select("id").collect()

    threads = [threading.Thread(target=work, args=(k,)) for k, work in ((1, tell), (2, tell), (3, ask), (4, ask))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
