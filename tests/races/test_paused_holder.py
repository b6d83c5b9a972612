"""A holder of a stop-write window is stopped by the system, outlives its window, and comes back: refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_apps.storage.errors import StopWriteWindowOpen
from spark_apps.storage.store import Store
from spark_apps.timeline import windows
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, Field, TableDefinition
from tests.simulation.holding import write

SECONDS = 1.5


@pytest.mark.by_turn(3)
@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_a_holder_that_slept_past_its_window_is_refused_and_nothing_of_it_is_seen(round_: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    create_table(store, TableDefinition("t", (Field("k", "string"),), ("k",)), txn_id="create")
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.holding", store.uri, str(SECONDS)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        epoch = int(holder.stdout.readline())
        time.sleep(random.Random(round_).uniform(0.1, 0.4))  # somewhere within a commit
        os.kill(holder.pid, signal.SIGSTOP)
        timeline = Timeline.load(store)
        before = timeline.head.version
        with pytest.raises(StopWriteWindowOpen):
            write(timeline, "too early", None)
        time.sleep(SECONDS)
        taken = windows.open_window(timeline, "another")
        mine = write(timeline, "of the other", taken.epoch)
        os.kill(holder.pid, signal.SIGCONT)
        output = holder.communicate(timeout=60)[0].split()
    finally:
        if holder.poll() is None:
            holder.kill()
            holder.wait()
    assert output[-2:] == ["FencedOff", "WindowNotOpen"]
    timeline.refresh()
    ended = next(commit.version for commit in timeline.commits() if commit.operation == "end_window")
    assert before < ended < taken.epoch < mine.version
    log = list(timeline.commits())
    assert all(commit.version < ended for commit in log if commit.epoch == epoch)
    assert [commit.version for commit in log if commit.version > ended] == [taken.epoch, mine.version]
    seen = [store.get(file.path).decode() for file in timeline.head.files(DATA_TREE)]
    of_holder = [commit for commit in log if commit.epoch == epoch]
    assert sorted(seen) == sorted(["of the holder"] * len(of_holder) + ["of the other"])
    assert "too early" not in seen
