"""What sensors wait for, asked of timelines with a history."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.conditions import index_fresh, index_in_state, new_commit, windows_closed
from spark_apps.storage.errors import IndexNotFound, InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline import windows
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import (
    DropIndex,
    Field,
    PutIndex,
    TableDefinition,
    Write,
    definition_scope,
    partition_scope,
)
from spark_apps.timeline.transactions import begin
from tests.simulation import work
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert


@pytest.fixture
def job() -> work.Job:
    return new_job(work.World())


def test_an_index_is_fresh_once_it_lacks_no_commit_that_counts(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    job.timeline.refresh()
    assert index_fresh(job.timeline, "by_key") == {"index": "by_key", "version": 1, "lag": 0}

    upsert(job, "two", A, maintain=False, k0=2)
    upsert(job, "three", B, k0=2)
    job.timeline.refresh()

    assert index_fresh(job.timeline, "by_key") is None
    assert index_fresh(job.timeline, "by_key", within_commits=1) is None
    assert index_fresh(job.timeline, "by_key", within_commits=2) == {"index": "by_key", "version": 3, "lag": 2}
    assert index_fresh(job.timeline, "by_key", partitions=[B]) == {"index": "by_key", "version": 3, "lag": 0}

    upsert(job, "four", B, maintain=False, k0=3)
    job.timeline.refresh()
    assert index_fresh(job.timeline, "by_key", within_commits=2) is None, "the group that it lags in most counts"
    assert index_fresh(job.timeline, "by_key", within_commits=1, partitions=[B]) is not None
    with pytest.raises(IndexNotFound, match="no index 'lost'; it has by_key"):
        index_fresh(job.timeline, "lost")


def test_an_index_is_in_a_state_and_a_disabled_one_is_never_fresh(job: work.Job) -> None:
    scope = (Write(definition_scope("by_key"), "replace"),)
    definition = job.timeline.refresh().index("by_key").definition
    assert index_in_state(job.timeline, "by_key", ["active"]) == {"index": "by_key", "version": 0, "state": "active"}
    assert index_in_state(job.timeline, "by_key", ["absent", "disabled"]) is None

    job.begin("alter_index", "off").commit((PutIndex(definition, "disabled"),), writes=scope)
    job.timeline.refresh()
    assert index_in_state(job.timeline, "by_key", ["absent", "disabled"]) is not None
    assert index_fresh(job.timeline, "by_key") is None

    job.begin("drop_index", "drop").commit((DropIndex("by_key"),), writes=scope)
    job.timeline.refresh()
    assert index_in_state(job.timeline, "by_key", ["absent"]) == {"index": "by_key", "version": 2, "state": "absent"}


def test_a_commit_is_found_behind_the_version_that_was_looked_at(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", B, k0=1)
    job.timeline.refresh()
    receipt = new_commit(job.timeline, 0, partition=B)
    assert receipt is not None and receipt["version"] == 2
    assert new_commit(job.timeline, 2) is None


def test_a_partition_is_known_by_what_a_person_calls_it(tmp_path: Path) -> None:
    by_day = TableDefinition("t", (Field("id", "bigint"), Field("day", "int")), ("id",), ("day",))
    timeline, _ = create_table(Store(tmp_path / "t"), by_day)
    write = [Write(partition_scope("day=1"), "append")]
    begin(timeline, operation="upsert", txn_id="w").commit((), writes=write)
    windows.open_window(timeline, "somebody", partitions=["day=1"])

    for called in ("day=1", "day=01", "day=1/", "/day=1"):
        receipt = new_commit(timeline, 0, ["upsert"], called)
        assert receipt is not None and receipt["txn_id"] == "w", called
        assert windows_closed(timeline, partitions=[called]) is None, called
    assert windows_closed(timeline, partitions=["day=2"]) is not None
    for called in ("x=1", "1", "day=", "day=one", "day=1/x=2"):
        with pytest.raises(InvalidInput, match=r"partition|day"):
            windows_closed(timeline, partitions=[called])
