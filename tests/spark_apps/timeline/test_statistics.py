"""The numbers of a snapshot, against small tables whose files are known one by one."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import IndexNotFound
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.statistics import (
    Lag,
    age_of_lag,
    age_of_version,
    index_statistics,
    partition_statistics,
    table_statistics,
    tree_statistics,
)
from tests.simulation import work
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert


def test_given_deltas_on_a_base_when_counted_then_only_crowded_groups_hold_small_files(job: work.Job) -> None:
    upsert(job, "one", A, k0=1, k1=1)  # a delta in each of the two buckets
    upsert(job, "two", A, k0=2)  # and a second one in the first
    state = job.timeline.refresh()
    files = state.files(DATA_TREE)
    first = [file for file in files if file.group == "0"]

    numbers = tree_statistics(state, DATA_TREE, small_bytes=10**6)
    assert (numbers.files, numbers.groups, numbers.delta_files) == (3, 2, 3)
    assert numbers.bytes == sum(file.bytes for file in files)
    assert (numbers.small_files, numbers.small_bytes) == (2, sum(file.bytes for file in first))
    assert (numbers.foldable_groups, numbers.foldable_files) == (1, 2)
    assert numbers.small_share == pytest.approx(2 / 3)
    # Nothing is small where the size asked for is below that of every file.
    assert tree_statistics(state, DATA_TREE, small_bytes=1).small_files == 0


def test_given_a_deletion_when_counted_then_its_tombstone_makes_the_group_foldable(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, k0=None)
    numbers = tree_statistics(job.timeline.refresh(), DATA_TREE)
    assert (numbers.rows, numbers.tombstones, numbers.tombstone_ratio) == (2, 1, 0.5)
    assert numbers.foldable_groups == 1

    upsert(job, "alone", B, k0=None)
    numbers = tree_statistics(job.timeline.refresh(), DATA_TREE)
    assert (numbers.foldable_groups, numbers.foldable_files) == (2, 3)


def test_given_writes_that_an_index_was_not_told_of_when_asked_then_its_lag_is_those_files(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    assert index_statistics(job.timeline.refresh(), "by_key").lag == Lag()
    upsert(job, "two", A, maintain=False, k0=2, k1=3)
    upsert(job, "three", B, maintain=False, k0=2)
    state = job.timeline.refresh()
    uncovered = [file for file in state.files(DATA_TREE) if file.sequence_number >= 2]

    lag = index_statistics(state, "by_key").lag
    assert (lag.groups, lag.files, lag.commits) == (3, 3, 2)
    assert lag.bytes == sum(file.bytes for file in uncovered)
    assert lag.covered_through == 1 and not lag.is_empty


def test_given_a_refresh_when_asked_then_nothing_lags(job: work.Job) -> None:
    upsert(job, "one", A, maintain=False, k0=1)
    work.refresh_index(job, "refresh")
    numbers = index_statistics(job.timeline.refresh(), "by_key")
    assert numbers.lag.is_empty and numbers.refreshed == job.timeline.head.version
    assert age_of_lag(job.timeline, numbers.lag) is None


def test_given_time_passes_when_asked_then_the_lag_is_as_old_as_the_first_commit_untold(
    world: work.World, job: work.Job
) -> None:
    upsert(job, "one", A, maintain=False, k0=1)
    world.objects.now += 100
    upsert(job, "two", A, maintain=False, k0=2)
    world.objects.now += 50
    state = job.timeline.refresh()
    age = age_of_lag(job.timeline, index_statistics(state, "by_key").lag)
    assert age == pytest.approx(150, abs=5)
    assert age_of_version(job.timeline, state.version) == pytest.approx(50, abs=5)
    assert age_of_version(job.timeline, state.version + 1) is None


def test_given_a_partition_when_pictured_then_each_bucket_has_its_bytes_and_empty_ones_none(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    state = job.timeline.refresh()
    size = sum(file.bytes for file in state.files(DATA_TREE))

    [statistics] = partition_statistics(state)
    assert (statistics.path, statistics.buckets, statistics.bucket_bytes) == (A, 2, (size, 0))
    assert statistics.skew == 2.0
    assert partition_statistics(state, ["p=none"]) == []


def test_given_another_process_when_it_asks_for_the_table_then_it_gets_the_same_numbers(
    world: work.World, job: work.Job
) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", B, k3=1)
    other = new_job(world)
    mine, theirs = table_statistics(job.timeline.refresh()), table_statistics(other.timeline.refresh())
    assert mine == theirs
    assert mine.partitions == 2 and set(mine.indexes) == {"by_key"}
    assert mine.index_bytes == mine.indexes["by_key"].tree.bytes > 0
    with pytest.raises(IndexNotFound):
        index_statistics(other.timeline.head, "by_no")
