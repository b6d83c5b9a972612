"""Whoever works in a stop-write window keeps it open by signs of life, up to its last moment. No Spark is needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest

from spark_apps.actions.template import Action, Attempt, StagedChanges, TableHandle, run
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.storage.errors import FencedOff, WindowNotOpen
from spark_apps.timeline import windows
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile, PutPartition, Write, group_scope
from spark_apps.timeline.operations import Operation
from tests.airflow_provider_index.operators.plain_table import make_table


class Slow(Action):
    """Writes one file, and takes its time."""

    operation: ClassVar[Operation] = Operation("slow", "log")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def work(self, attempt: Attempt) -> StagedChanges:
        path = f"{attempt.folder('rows')}/part.parquet"
        attempt.snapshot.store.put(path, b"row")
        time.sleep(self.seconds)
        added = AddFile(DATA_TREE, "p=a", "0", path, "delta", 1, 3)
        return StagedChanges([PutPartition("p=a", 1, ("a",)), added], writes=[Write(group_scope("p=a", "0"))])


def test_given_work_longer_than_the_windows_deadline_when_it_is_alive_then_it_commits_in_its_window(
    tmp_path: Path,
) -> None:
    timeline = make_table(tmp_path / "t")
    window = windows.open_window(timeline, "rescale", seconds=1.2)
    assert windows.length(timeline, window.epoch) == pytest.approx(1.2, abs=0.1)

    receipt = run(TableHandle(NO_SPARK, timeline), Slow(2.5), window=window.epoch)

    assert receipt.committed
    assert windows.find(timeline, window.epoch).deadline > window.deadline
    windows.close(timeline, window.epoch)


def test_given_a_last_moment_when_work_goes_on_behind_it_then_anybody_may_end_the_window_and_the_work_is_fenced_off(
    tmp_path: Path,
) -> None:
    timeline = make_table(tmp_path / "t")
    window = windows.open_window(timeline, "rescale", seconds=1, at_most=1.5)

    class Overtaken(Slow):
        def work(self, attempt: Attempt) -> StagedChanges:
            work = super().work(attempt)
            ended = windows.end_expired(Timeline.load(timeline.store), "reaper")
            assert [one.deadline for one in ended] == [window.last_moment]
            return work

    with pytest.raises((FencedOff, WindowNotOpen)) as refused:
        run(TableHandle(NO_SPARK, timeline), Overtaken(2), window=window.epoch)
    assert "reaper" in str(refused.value) and "Nothing was changed" in str(refused.value)
    assert Timeline.load(timeline.store).head.files(DATA_TREE) == []
