"""A table in the first version of the log's format, kept as files: every version to come must read it as here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from tests.simulation.reading import table_of
from tests.simulation.store import SimulatedStore

TABLE = Path(__file__).parent / "table_of_format_1"
ROWS = {("p=a", "0"): 6, ("p=a", "1"): 2, ("p=a", "3"): 7, ("p=b", "0"): 4, ("p=b", "1"): 5}
OPERATIONS = ("create", "upsert", "upsert", "upsert", "open_window", "rescale", "close_window", "abort", "overwrite",
              "restore", "expire", "open_window")  # fmt: skip


@pytest.mark.parametrize("checkpoint", [True, False], ids=["from its checkpoint", "from its first commit"])
def test_a_table_of_format_1_is_read(checkpoint: bool, tmp_path: Path) -> None:
    shutil.copytree(TABLE, tmp_path, dirs_exist_ok=True)
    if not checkpoint:
        shutil.rmtree(tmp_path / "_index/timeline/checkpoints")
    store = Store(tmp_path)
    timeline = Timeline.load(store)
    head = timeline.head
    assert (head.version, head.instant, head.expired_below) == (11, "20231114221720001", 4)
    assert tuple(commit.operation for commit in timeline.commits()) == OPERATIONS
    assert rows(store, timeline, 11) == rows(store, timeline, 4) == ROWS
    assert rows(store, timeline, 8) == {row: value for row, value in ROWS.items() if row[0] == "p=a"} | {
        ("p=b", "5"): 9
    }
    assert {path: entry.buckets for path, entry in head.partitions.items()} == {"p=a": 3, "p=b": 2}
    assert {path: entry.buckets for path, entry in timeline.at(4).partitions.items()} == {"p=a": 2, "p=b": 2}
    assert head.index("by_key").lag == {("p=a", "0"): 2, ("p=a", "1"): 2}
    assert head.windows.keys() == {11}
    assert head.windows[11].holder == "somebody"
    assert head.aborted == {"dead": [1]}
    assert [txn for txn, (version, _) in head.committed.items() if not head.is_in_effect(version)] == ["over-b"]


def rows(store: Store, timeline: Timeline, version: int) -> dict[tuple[str, str], int]:
    simulated: SimulatedStore = store  # type: ignore[assignment]
    return table_of(simulated, timeline.at(version))
