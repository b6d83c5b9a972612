"""Example DAGs that need no scheduler, and the DAG of the page "A first index", run by ``dag.test()`` on few rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dags_examples
from airflow_provider_index.testing import TemporaryLake, temporary_lake
from airflow_provider_index.testing.lake import SPARK_CONF
from spark_apps import IndexedTable
from spark_apps.jobs.environment import java_home
from tests.documents import DOCS, blocks
from tests.spark.local import INTERPRETED, JVM
from tests.spark_apps.small_tables import rows_of

pytestmark = [pytest.mark.airflow, pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryLake]:
    folder: Path = tmp_path_factory.mktemp("dags")
    own = ("orders_by_pyspark", "orders_by_submit", "orders_app")
    for name in ("waiting/report_of_orders.py", "maintenance/go_back.py", *(f"own_spark/{one}.py" for one in own)):
        source = dags_examples.folder() / name
        (folder / source.name).write_text(source.read_text())
    [first] = [block for block in blocks(DOCS / "first-index.md") if "with DAG(" in block.text]
    (folder / "first_index.py").write_text(first.text)
    # Beside each other, where Airflow's own tasks of Spark find them as well.
    conf = {**SPARK_CONF, **INTERPRETED, "spark.driver.extraJavaOptions": JVM}
    spark = {"conn_type": "spark", "host": "local[2]", "extra": {**conf, "driver-memory": "1g"}}
    with temporary_lake(folder, connections={"spark_default": spark}) as lake:
        yield lake


@pytest.fixture
def orders(lake: TemporaryLake) -> IndexedTable:
    """Orders of two cities, indexed; the second commit is one that should not have been."""
    location = lake.location("shop.orders")
    if Path(location).exists():
        return IndexedTable.load(lake.spark, location)
    table = IndexedTable.create(lake.spark, location, "id bigint, city string", ["id"], buckets=1)
    table.create_index("by_city", "secondary", ["city"])
    table.upsert(lake.spark.sql("SELECT id, if(id % 2 = 0, 'rome', 'oslo') AS city FROM range(10)"))
    return table


def test_the_dag_of_a_first_index_builds_folds_and_verifies_it(lake: TemporaryLake) -> None:
    location = lake.location("lake.trips")
    table = IndexedTable.create(lake.spark, location, "id bigint, city string", ["id"], buckets=1)
    table.upsert(lake.spark.sql("SELECT id, if(id % 2 = 0, 'rome', 'oslo') AS city FROM range(10)"))

    report = lake.run("first_index")

    assert set(report.tasks.values()) == {"success"}, report.log
    assert IndexedTable.load(lake.spark, location).verify("by_city").ok


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
    in_window = as_on_a_worker.run("orders_by_submit", {"warehouse": str(lake.warehouse)})

    assert by_session.xcoms["write_orders"]["operation"] == "upsert"
    assert set(in_window.tasks.values()) == {"success"}, in_window.log
    table = lake.table("shop.orders")
    assert rows_of(table, "id >= 100") == [
        (number, city) for start, city in ((100, "rome"), (200, "lima")) for number in range(start, start + 10)
    ]
    assert table.verify("by_city").ok and not lake.timeline("shop.orders").head.windows
