"""What a sensor keeps while Airflow reschedules it: each look is another process, which has only what is stored."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.sensors import TableCommitSensor, TableRowSensor, WritersDrainedSensor
from airflow_provider_index.triggers.timeline import TableRowTrigger
from spark_apps.storage.errors import InvalidInput, InvalidPredicate
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import begin
from tests.airflow_provider_index.operators.plain_table import Memory, context, make_table, stage_rows
from tests.compatibility.lake import EXPECTED, unpack


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    return make_table(tmp_path / "t")


def commit(table: Timeline, txn_id: str) -> int:
    transaction = begin(table, operation="upsert", txn_id=txn_id, stages=["rows"])
    stage_rows(transaction, "rows", "p=a")
    version = transaction.commit().version
    assert version is not None
    return version


def poke(kind: Any, table: Timeline, memory: Memory, **fields: Any) -> Any:
    """One look of a sensor that is made for it."""
    sensor = kind(task_id="wait", table=table.store.uri, mode="reschedule", **fields)
    return sensor.poke(context("wait", memory=memory))


def test_a_commit_that_lands_between_two_looks_is_not_missed_and_none_from_before_counts(table: Timeline) -> None:
    commit(table, "before")
    memory = Memory()

    assert not poke(TableCommitSensor, table, memory).is_done
    landed = commit(table, "between")
    poked = poke(TableCommitSensor, table, memory)

    assert poked.is_done and poked.xcom_value["version"] == landed


def test_the_timeout_is_counted_from_the_first_look_on(table: Timeline) -> None:
    memory = Memory()

    def deadline() -> float:
        sensor = TableCommitSensor(task_id="wait", table=table.store.uri, timeout=60, after_version=0)
        return sensor._trigger(context("wait", memory=memory)).deadline

    first = deadline()
    time.sleep(0.01)

    assert deadline() == first == pytest.approx(time.time() + 60, abs=30)


def test_writers_that_are_left_when_patience_is_over_are_ended(table: Timeline) -> None:
    writer = begin(table, operation="upsert", txn_id="slow")
    epoch = windows.open_window(table, "holder", seconds=60).epoch
    memory = Memory()

    assert not poke(WritersDrainedSensor, table, memory, window=epoch, patience=60).is_done
    assert not poke(WritersDrainedSensor, table, memory, window=epoch).is_done
    poked = poke(WritersDrainedSensor, table, memory, window=epoch, patience=0)

    assert poked.is_done and poked.xcom_value == {"epoch": epoch, "aborted": 1}
    assert table.refresh().is_aborted("slow", writer.attempt)


def test_rows_that_satisfy_a_predicate_are_waited_for_and_read_by_the_hook_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}})
    )
    unpack(tmp_path)
    osl = [row["id"] for row in EXPECTED["tables"]["trips"]["rows"] if row["city"] == "osl"]

    def look(where: str, at_least: int, **more: Any) -> Any:
        given = {"table": "trips", "where": where, "at_least": at_least, **more}
        sensor = TableRowSensor(task_id="wait", table_conn_id="lake", **given)
        return sensor.poke(context("wait", memory=Memory()))

    assert look("city = 'osl'", len(osl)).xcom_value == {"version": 46, "rows": len(osl)}
    assert not look("city = 'osl'", len(osl) + 1).is_done and not look("id = -1", 1).is_done
    with pytest.raises(InvalidPredicate, match="only Spark can tell"):
        look("rand() < 1", 1)
    trips = TableStoreHook("lake").open("trips")
    assert sorted(trips.read("city = 'osl'", ["id"])["id"].to_pylist()) == sorted(osl)
    moment = "t = TIMESTAMP '2024-01-01 04:00:00'"
    zones = ("UTC", "+02:00", "-00:30")
    in_utc, later, never = (TableStoreHook("lake").open("whole", time_zone=zone).read(moment) for zone in zones)
    assert (in_utc.num_rows, never.num_rows) == (1, 0) and in_utc != later
    assert [look(moment, 1, table="whole", time_zone=zone).is_done for zone in zones] == [True, True, False]
    with pytest.raises(InvalidPredicate, match="only Spark can tell"):
        look(moment, 1, table="whole")
    with pytest.raises(InvalidInput, match="is not known"):
        look(moment, 1, table="whole", time_zone="Mars/North")
    shared = {"table": "trips", "table_conn_id": "lake", "poll_interval": 1, "deadline": 2}
    trigger = TableRowTrigger(where="id = 1", time_zone="Asia/Tokyo", **shared)
    path, arguments = trigger.serialize()
    assert path.endswith("TableRowTrigger") and arguments["where"] == "id = 1" and arguments["at_least"] == 1
    assert arguments["time_zone"] == "Asia/Tokyo"
