"""Sensors on a table's timeline, deferred and not."""

from __future__ import annotations

import time

import pytest

from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import Field, TableDefinition, Write, partition_scope
from spark_apps.timeline.transactions import begin
from tests.airflow.lake import Lake

pytestmark = pytest.mark.by_turn(16, whole=True, first=6)

DEFINITION = TableDefinition("t", (Field("id", "bigint"), Field("part", "string")), ("id",), ("part",))


def test_sensors_fire_at_the_commit_they_wait_for_and_give_up_in_time(lake: Lake) -> None:
    timeline, _ = create_table(Store(lake.warehouse / "db/awaited"), DEFINITION)
    run_id = lake.trigger("waiting")

    assert lake.client.wait_for_task("waiting", run_id, "in_vain") == "failed"
    assert lake.client.wait_for_task("waiting", run_id, "deferred", frozenset({"deferred"})) == "deferred"
    assert lake.client.task_states("waiting", run_id)["poked"] == "running"

    for operation, partition in (("upsert", "part=p0"), ("clean_me", "part=p0"), ("upsert", "part=p1")):
        attempt = begin(timeline, operation=operation, txn_id=f"{operation}.{partition[-2:]}")
        attempt.commit((), writes=[Write(partition_scope(partition))])
        time.sleep(0.1)
    report = lake.client.wait("waiting", run_id, timeout=60)

    assert report.tasks == {"deferred": "success", "poked": "success", "in_vain": "failed", "lost": "failed"}
    assert lake.client.xcom("waiting", run_id, "deferred")["txn_id"] == "clean_me.p0"
    assert lake.client.xcom("waiting", run_id, "poked")["txn_id"] == "upsert.p1"
    assert "in vain" in lake.client.log("waiting", run_id, "in_vain")
    assert "TableNotFound" in lake.client.log("waiting", run_id, "lost")
