"""What sensors wait for, asked of timelines with a history."""

from __future__ import annotations

import pytest

from airflow_provider_index.conditions import index_fresh, index_in_state, new_commit
from spark_apps.storage.errors import IndexNotFound
from spark_apps.timeline.model import DropIndex, PutIndex, Write, definition_scope
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
    found = new_commit(job.timeline, 0, partition=B)
    assert found is not None and found["version"] == 2
    assert new_commit(job.timeline, 2) is None
