"""The operators with ``native=`` on a Delta table, by a real ``spark-submit``: a plan, a run, a retry, a clear."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from tests.connectors.releases import settings
from tests.connectors.test_delta_maintenance import FILES, age, made, of
from tests.spark.local import JVM

pytest.importorskip("airflow")  # not in every environment that has a connector

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.identity import prefix_of_task
from airflow_provider_index.operators import (
    CleanTableOperator,
    CompactTableOperator,
    MaintainTableOperator,
    RestoreTableOperator,
)
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.airflow_provider_index.operators.plain_table import Memory, context
from tests.connectors.killed import run_killed

pytestmark = pytest.mark.usefixtures("delta")


@pytest.fixture
def table(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexedTable:
    """A registered table, and the connections by which a task finds it and a Spark of its own with delta-spark."""
    conf = {
        **settings(spark.version, ["delta"], str(tmp_path / "warehouse")),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.shuffle.partitions": "2",
    }
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[2]", "extra": {"conf": conf}})
    )
    lake = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path), "spark_conn_id": "spark_here"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    table = IndexedTable.register(spark, made(spark, tmp_path / "trips"), "delta")
    table.create_index("by_key", "secondary", ["key"])
    return table


def task(kind: type, **arguments: Any) -> Any:
    return kind(task_id="t", table="trips", table_conn_id="lake", deferrable=False, **arguments)


def test_given_a_compaction_by_name_then_it_is_planned_made_once_a_round_and_the_indexes_are_fresh(
    spark, table, monkeypatch
):
    native, memory = {"optimize": {"zorder_by": ["key"]}}, Memory()
    plan = task(CompactTableOperator, native=native, plan_only=True).execute(context("t", memory=memory))
    assert plan["optimize"]["files"] == FILES and not of(table, "OPTIMIZE")

    optimize, refresh = task(CompactTableOperator, native=native).execute(context("t", memory=memory))
    assert (optimize["metrics"]["commit"], refresh["operation"]) == ("1", "refresh_index")
    [commit] = of(table, "OPTIMIZE")
    assert json.loads(commit["userMetadata"])["lakeindex.transaction"] == optimize["txn_id"]
    assert optimize["txn_id"].startswith(prefix_of_task(context("t")))
    assert not IndexedTable.load(spark, table.uri).indexes["by_key"].lagging

    here = os.environ["AIRFLOW_CONN_SPARK_HERE"]
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_HERE")  # a retry needs no Spark to find what has landed
    again = task(CompactTableOperator, native=native).execute(context("t", memory=memory, number=2))
    assert again == [optimize, refresh]
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", here)
    task(CompactTableOperator, native=native).execute(context("t", memory=memory, tries=1, number=3))
    assert len(of(table, "OPTIMIZE")) == 2  # a clear makes the call again


def test_given_an_app_that_died_before_its_receipt_then_the_next_try_finds_the_commit(spark, table):
    memory = Memory()
    first = task(CompactTableOperator, native={"optimize": {}})
    txn_id = f"{txn_of(first, memory)}.optimize"
    run_killed(spark, table, "optimize", {}, txn_id, "after the call")
    receipt, _ = first.execute(context("t", memory=memory))
    assert len(of(table, "OPTIMIZE")) == 1 and receipt["metrics"]["found"] and receipt["txn_id"] == txn_id


def txn_of(operator: Any, memory: Memory) -> str:
    from airflow_provider_index.identity import transaction_id

    return transaction_id(context("t", memory=memory), operator.inputs)


def test_given_a_cleaning_without_native_then_it_never_vacuums(spark, table, tmp_path, monkeypatch):
    table.maintain_source("optimize")
    age(tmp_path / "trips", 30 * 86400)
    files = set(tmp_path.glob("trips/*.parquet"))
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_HERE")  # nor does it ask for a Spark
    task(CleanTableOperator, retain_versions=1, retain_hours=0).execute(context("t"))
    task(MaintainTableOperator, steps=[], until=time.time() + 60)
    assert set(tmp_path.glob("trips/*.parquet")) == files and len(files) == FILES + 1


def test_given_vacuum_by_name_then_the_tables_own_retention_decides(spark, table, tmp_path):
    table.maintain_source("optimize")
    age(tmp_path / "trips", 30 * 86400)
    versions = Timeline.load(Store(table.uri)).head.version
    [vacuum] = task(CleanTableOperator, native={"vacuum": True}, refresh=False).execute(context("t"))
    assert len(set(tmp_path.glob("trips/*.parquet"))) == 1 and vacuum["operation"] == "maintain_source"
    assert Timeline.load(Store(table.uri)).head.expired_below == 0 and vacuum["version"] == versions + 1


def test_given_a_restore_by_name_then_the_table_goes_back_and_the_index_follows(spark, table):
    spark.sql(f"DELETE FROM delta.`{table.definition.source.location}` WHERE n = 3")
    restore, _ = task(RestoreTableOperator, native={"restore": {"version": "0"}}).execute(context("t"))
    assert restore["operation"] == "restore_source" and len(of(table, "RESTORE")) == 1
    assert IndexedTable.load(spark, table.uri).verify("by_key").ok


def test_given_what_cannot_be_meant_then_the_dag_is_not_taken_or_the_task_fails_without_spark(table, monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_HERE")
    for kind, arguments, said in (
        (CompactTableOperator, {"native": {"vacuum": True}}, "asked for elsewhere"),
        (CleanTableOperator, {"native": {"vacum": True}}, "Did you mean 'vacuum'"),
        (RestoreTableOperator, {}, "takes version"),
    ):
        with pytest.raises(Exception, match=said):
            task(kind, **arguments)
    with pytest.raises(AirflowFailException, match="takes version"):
        task(RestoreTableOperator, version=3, native={"restore": {"version": 3}}).execute(context("t"))
    late = task(CompactTableOperator, native="{{ 'x' }}")
    late.native = {"vacuum": True}
    with pytest.raises(AirflowFailException, match="asked for elsewhere"):
        late.execute(context("t"))
