"""What a sensor keeps while Airflow reschedules it: each look is another process, which has only what is stored."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.sensors import TableCommitSensor, WritersDrainedSensor
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import begin
from tests.airflow_provider_index.operators.plain_table import Memory, context, make_table, stage_rows


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
