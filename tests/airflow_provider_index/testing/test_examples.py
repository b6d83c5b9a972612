"""Example DAGs that need no scheduler, and each DAG that a page shows whole, for two days, by ``dag.test()``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dags_examples
from airflow_provider_index.testing import TemporaryLake, temporary_lake
from airflow_provider_index.testing.lake import SPARK_CONF
from spark_apps import IndexedTable
from spark_apps.jobs.environment import java_home
from tests.documents import DOCS, PAGES, blocks
from tests.spark.local import INTERPRETED, JVM
from tests.spark_apps.small_tables import rows_of

pytestmark = [pytest.mark.airflow, pytest.mark.heavy, pytest.mark.timeout(900)]


TWO_CITIES = "SELECT id, if(id % 2 = 0, 'rome', 'oslo') AS city"

OF_PAGES = {
    "trips": DOCS.parent / "README.md",
    "first_index": DOCS / "first-index.md",
    "refresh_orders": DOCS / "events.md",
    "orders_daily": DOCS / "testing.md",
}
"""Every DAG that a page shows whole, and the page."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryLake]:
    folder: Path = tmp_path_factory.mktemp("dags")
    own = ("orders_by_pyspark", "orders_by_submit", "orders_app")
    for name in ("waiting/report_of_orders.py", "maintenance/go_back.py", *(f"own_spark/{one}.py" for one in own)):
        source = dags_examples.folder() / name
        (folder / source.name).write_text(source.read_text())
    for dag_id, page in OF_PAGES.items():
        [block] = [block for block in blocks(page) if f'DAG("{dag_id}"' in block.text]
        text = block.text.replace("s3://landing", str(folder.parent / "landing"))
        # Each DAG has tables of its own.
        (folder / f"{dag_id}.py").write_text(text.replace("shop.orders", f"shop.{dag_id}"))
    warehouse = folder.parent / "warehouse"
    of_readme = {"conn_type": "index_table_store", "extra": {"warehouse": str(warehouse)}}
    # Beside each other, where Airflow's own tasks of Spark find them as well.
    conf = {**SPARK_CONF, **INTERPRETED, "spark.driver.extraJavaOptions": JVM}
    spark = {"conn_type": "spark", "host": "local[2]", "extra": {**conf, "driver-memory": "1g"}}
    with temporary_lake(folder, connections={"lake": of_readme, "spark_default": spark}) as lake:
        yield lake


@pytest.fixture
def orders(lake: TemporaryLake) -> IndexedTable:
    """Orders of two cities, indexed; the second commit is one that should not have been."""
    location = lake.location("shop.orders")
    if Path(location).exists():
        return IndexedTable.load(lake.spark, location)
    table = IndexedTable.create(lake.spark, location, "id bigint, city string", ["id"], buckets=1)
    table.create_index("by_city", "secondary", ["city"])
    table.upsert(lake.spark.sql(f"{TWO_CITIES} FROM range(10)"))
    return table


def test_all_dags_of_pages_are_known() -> None:
    shown = [
        (match[1], page)
        for page in PAGES
        for block in blocks(page)
        for match in re.finditer(r'DAG\("(\w+)"', block.text)
        if block.language == "python"
    ]
    assert sorted(shown) == sorted(OF_PAGES.items())


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("dag_id", OF_PAGES)
def test_given_a_dag_of_a_page_when_run_for_one_day_and_the_next_then_both_runs_succeed(
    lake: TemporaryLake, dag_id: str
) -> None:
    root, spark = lake.dags.parent, lake.spark
    tables = {
        "trips": f"{root}/warehouse/lake/trips",
        "first_index": lake.location("lake.trips"),
        "refresh_orders": lake.location("shop.refresh_orders"),
    }
    if dag_id in tables:
        table = IndexedTable.create(spark, tables[dag_id], "id bigint, city string", ["id"], buckets=1)
        table.upsert(spark.sql(f"{TWO_CITIES} FROM range(10)"))
    if dag_id == "refresh_orders":
        table.create_index("by_city", "secondary", ["city"], deferred=True)
    for day in (20, 21):
        landed = spark.sql(f"{TWO_CITIES} FROM range({day}, {day + 5})")
        conf = {}
        if dag_id == "trips":
            landed.write.parquet(f"{root}/landing/trips/2026-11-{day}")
        elif dag_id == "refresh_orders":
            table.upsert(landed)
        elif dag_id == "orders_daily":
            (root / f"{day}.csv").write_text(f"id,city\n{day},rome\n")
            conf = {"day": f"2026-11-{day}", "files": f"{root}/{day}.csv"}

        report = lake.run(dag_id, conf, logical_date=datetime(2026, 11, day, tzinfo=UTC))

        assert set(report.tasks.values()) == {"success"}, report.log
    if dag_id in tables:
        assert IndexedTable.load(spark, tables[dag_id]).verify("by_city").ok


def test_given_orders_that_have_landed_then_the_report_is_of_all_of_them(lake: Any, orders: IndexedTable) -> None:
    report = lake.run("report_of_orders", {"city": "rome", "after": 1})

    assert set(report.tasks.values()) == {"success"}, report.log
    assert report.xcoms["landed"]["operation"] == "upsert"
    assert report.xcoms["report"][0]["rows"] == [[5]]


def test_given_a_load_that_should_not_have_been_then_rows_and_indexes_are_those_of_before(
    lake: Any, orders: IndexedTable
) -> None:
    before = orders.version
    rows = rows_of(orders)
    orders.upsert(lake.spark.sql("SELECT id, 'lima' AS city FROM range(5, 20)"))
    orders.create_index("wrong", "secondary", ["city"])

    report = lake.run("go_back", {"table": "shop.orders", "version": before, "drop": "wrong"})

    assert set(report.tasks.values()) == {"success"}, report.log
    now = IndexedTable.load(lake.spark, orders.uri)
    assert rows_of(now) == rows
    assert list(now.indexes) == ["by_city"] and now.verify("by_city").ok


def test_given_tasks_of_airflows_own_spark_provider_then_they_write_rows_with_their_indexes(
    lake: TemporaryLake, orders: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a worker: spark-submit and Java are found by its environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    as_on_a_worker = replace(lake, env={**lake.env, "PATH": path, "JAVA_HOME": str(java_home())})

    by_session = as_on_a_worker.run("orders_by_pyspark", {"city": "rome"})
    in_window = as_on_a_worker.run("orders_by_submit", {"location": lake.location("shop.orders")})

    assert by_session.xcoms["write_orders"]["operation"] == "upsert"
    assert set(in_window.tasks.values()) == {"success"}, in_window.log
    table = lake.table("shop.orders")
    assert rows_of(table, "id >= 100") == [
        (number, city) for start, city in ((100, "rome"), (200, "lima")) for number in range(start, start + 10)
    ]
    assert table.verify("by_city").ok and not lake.timeline("shop.orders").head.windows
