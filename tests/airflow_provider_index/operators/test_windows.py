"""Waiting for windows, and ending those that were left open."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.compat import TaskDeferred
from airflow_provider_index.operators import EndExpiredWindowsOperator, OpenStopWriteWindowOperator
from airflow_provider_index.sensors import StopWriteWindowClosedSensor
from airflow_provider_index.task_groups import stop_write_window
from spark_apps.storage.errors import FencedOff, InvalidInput, JobFailed, StopWriteWindowOpen
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DropTable, Write, table_scope
from spark_apps.timeline.transactions import begin
from tests.airflow_provider_index.operators.plain_table import Memory, context, make_table


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    return make_table(tmp_path / "t")


def opening(table: Timeline, **fields: Any) -> OpenStopWriteWindowOperator:
    return OpenStopWriteWindowOperator(task_id="open", table=table.store.uri, **fields)


def closed_later(table: Timeline, epoch: int, after: float) -> threading.Thread:
    def close() -> None:
        time.sleep(after)
        windows.close(Timeline.load(table.store), epoch)

    thread = threading.Thread(target=close)
    thread.start()
    return thread


def test_given_another_window_when_opening_then_it_is_refused_by_holder_or_waited_for(table: Timeline) -> None:
    other = windows.open_window(table, "nightly rescale", partitions=["p=a"], seconds=60)
    with pytest.raises(StopWriteWindowOpen, match=r"nightly rescale .*p=a.* until \d+ UTC"):
        opening(table).execute(context("open"))

    closing = closed_later(table, other.epoch, 0.5)
    opened = opening(table, wait_seconds=30, poll_interval=0.1).execute(context("open"))
    closing.join()

    assert opened["epoch"] > other.epoch


def test_given_a_drain_as_long_as_the_window_may_last_then_nothing_is_opened(table: Timeline) -> None:
    for drain, lasts in ((60, {"at_most": 60}), (6 * 3600, {}), (7200, {"seconds": 60, "at_most": 3600})):
        with pytest.raises(InvalidInput, match="at_most more than drain_seconds"):
            opening(table, drain_seconds=drain, **lasts)
    late = opening(table, drain_seconds="{{ params.drain }}", at_most=60)
    late.drain_seconds = "90"  # as rendered
    with pytest.raises(Exception, match="at_most more than drain_seconds"):
        late.execute(context("open"))
    assert table.refresh().version == 0
    with (
        pytest.raises(InvalidInput, match="at_most more than patience"),
        stop_write_window("w", table="t", at_most=600, patience=600),
    ):
        raise AssertionError("the group was made")
    assert opening(table, drain_seconds=0, at_most=60, seconds=60).execute(context("open"))["epoch"] == 1
    assert opening(table, drain_seconds=7 * 3600, seconds=8 * 3600).drain_seconds == 7 * 3600


def test_given_deferrable_when_another_window_is_open_then_it_waits_in_the_triggerer_until_its_time_is_up(
    table: Timeline,
) -> None:
    other = windows.open_window(table, "nightly rescale", seconds=60)
    operator = opening(table, wait_seconds=0.3, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context("open"))
    trigger, until = deferred.value.trigger, deferred.value.kwargs["until"]
    assert trigger.evaluate(Timeline.load(table.store)) is None
    assert trigger.deadline == until

    time.sleep(max(until - time.time(), 0))
    with pytest.raises(StopWriteWindowOpen):
        operator.execute_complete(context("open"), {"status": "timeout"}, until)
    windows.close(table, other.epoch)
    assert trigger.evaluate(Timeline.load(table.store)) == {"version": 2}
    assert operator.execute_complete(context("open"), {"status": "done"}, until)["epoch"] == 3


def test_given_a_clear_while_its_window_is_open_then_that_is_closed_and_another_opened_and_the_old_work_fenced_off(
    table: Timeline,
) -> None:
    memory = Memory()
    first = opening(table).execute(context("open", memory=memory))["epoch"]
    assert opening(table).execute(context("open", memory=memory))["epoch"] == first, "a retry gets the same one"
    work = begin(Timeline.load(table.store), operation="upsert", txn_id="work", window=first)

    second = opening(table).execute(context("open", tries=1, memory=memory))["epoch"]

    assert second > first and set(table.refresh().windows) == {second}
    with pytest.raises(FencedOff):
        work.commit([], writes=[Write(table_scope())])


def test_given_a_retry_when_the_window_of_its_first_try_has_ended_then_another_one_is_opened(table: Timeline) -> None:
    memory = Memory()
    first = opening(table, seconds=0.2).execute(context("open", memory=memory))["epoch"]
    time.sleep(0.3)
    windows.end_expired(table, "the next writer")

    second = opening(table).execute(context("open", memory=memory))["epoch"]
    again = opening(table).execute(context("open", memory=memory))["epoch"]

    assert second == again > first
    assert set(table.refresh().windows) == {second}
    third = opening(table).execute(context("open", tries=1, memory=memory))["epoch"]
    assert set(table.refresh().windows) == {third}, "a clear closes the newest that this task opened"


def test_a_writer_waits_for_windows_over_its_partitions_only_and_not_past_their_deadline(table: Timeline) -> None:
    windows.open_window(table, "a", partitions=["p=a"], seconds=60)
    windows.open_window(table, "late", partitions=["p=b"], seconds=0.2)
    time.sleep(0.3)

    def free(**fields: Any) -> bool:
        sensor = StopWriteWindowClosedSensor(task_id="wait", table=table.store.uri, **fields)
        return bool(sensor.poke(context("wait")).is_done)

    assert not free()
    assert not free(partitions=["p=a", "p=c"])
    assert free(partitions=["p=c"])
    assert free(partitions=["p=b"])
    assert free(window=99)


def test_the_reaper_ends_what_was_left_open_in_a_warehouse_and_leaves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}})
    )
    one, two = make_table(tmp_path / "db" / "one"), make_table(tmp_path / "two")
    left = windows.open_window(one, "left", seconds=0.2)
    windows.open_window(two, "at work", seconds=60)
    now = time.time()
    past = Timeline(one.store, lambda: now - 7200)
    begin(past, operation="upsert", txn_id="silent", window=left.epoch)
    begin(past, operation="transaction", txn_id="patient", window=left.epoch, patience=36000)
    time.sleep(0.3)

    ended = EndExpiredWindowsOperator(task_id="reap", table_conn_id="lake").execute(context("reap"))

    assert [(window["epoch"], window["holder"]) for window in ended["windows"]] == [(left.epoch, "left")]
    assert [attempt["txn_id"] for attempt in ended["attempts"]] == ["silent"]
    assert Timeline.load(one.store).head.windows == {}
    assert "d.reap" in Timeline.load(one.store).head.ended_windows[left.epoch]
    assert len(Timeline.load(two.store).head.windows) == 1
    gone = EndExpiredWindowsOperator(task_id="reap", tables=["gone", "two"], table_conn_id="lake")
    with pytest.raises(JobFailed, match="1 tables could not be looked at: 'gone'"):
        gone.execute(context("reap"))


@pytest.mark.parametrize("damage", ["cut files", "an error that nobody foresaw"])
def test_the_reaper_does_the_other_tables_though_one_is_damaged_and_names_that(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}})
    )
    bad, dropped, good = (make_table(tmp_path / name) for name in ("bad", "dropped", "good"))
    epochs = [windows.open_window(one, "left", seconds=0.1).epoch for one in (bad, good)]
    begin(dropped, operation="drop", txn_id="drop").commit((DropTable(),), writes=(Write(table_scope(), "replace"),))
    cut = begin(bad, operation="upsert", txn_id="cut", window=epochs[0])
    for name in ("requested.json", "heartbeat.json"):
        bad.store.put(f"{cut.folder}/{name}", b"")
    if damage != "cut files":
        real = windows.end_expired
        monkeypatch.setattr(
            windows, "end_expired", lambda log, by: real(log, by) if "bad" not in log.store.uri else 1 / 0
        )
    time.sleep(0.2)

    reaper = EndExpiredWindowsOperator(task_id="reap", table_conn_id="lake", silent_seconds=0.0)
    if damage == "cut files":
        ended = reaper.execute(context("reap"))
        assert {window["table"].rpartition("/")[2] for window in ended["windows"]} == {"bad", "good"}
        assert [attempt["txn_id"] for attempt in ended["attempts"]] == ["cut"]
    else:
        with pytest.raises(JobFailed, match=r"1 tables could not be looked at: '[^']*/bad'"):
            reaper.execute(context("reap"))
    assert Timeline.load(good.store).head.windows == {}


@pytest.mark.parametrize("path", ["p=a/", "/p=a", "p", "a", "p=a/q=b", "", "=a"])
def test_a_window_over_what_is_no_partition_is_refused(table: Timeline, path: str) -> None:
    with pytest.raises(InvalidInput, match=r"would protect nothing.*Write it as p=…"):
        windows.open_window(table, "somebody", partitions=[path])
    assert table.refresh().windows == {}
