"""Restoring: rows, bucket counts and the state of indexes come back; ids, windows and aborts do not."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import ConcurrentWrite, InvalidInput, SnapshotExpired, TableNotFound, VersionNotFound
from spark_apps.timeline.model import DropIndex, IndexDefinition, PutIndex, Write, definition_scope
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import live_requests
from tests.simulation import work
from tests.simulation.checker import INDEX_TREE
from tests.simulation.reading import check_all, table_of
from tests.simulation.store import OK
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert, write_checkpoint


def test_rows_and_bucket_counts_come_back(job: work.Job) -> None:
    upsert(job, "one", A, k0=1, k1=2)
    work.rescale(job, "rescale", A, 3)
    upsert(job, "two", B, k0=1)
    receipt = restore(job.timeline, 1)
    assert table_of(job.store, job.timeline.refresh()) == {(A, "0"): 1, (A, "1"): 2}
    assert {path: entry.buckets for path, entry in job.timeline.head.partitions.items()} == {A: 2}
    assert receipt.metrics == {"restored_version": 1, "rows": 2}
    check_all(job.world.checker)


def test_a_restore_can_be_restored(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, k0=2)
    restore(job.timeline, 1)
    restore(job.timeline, 2)
    head = job.timeline.refresh()
    assert table_of(job.store, head) == {(A, "0"): 2}
    assert [head.is_in_effect(version) for version in range(5)] == [True, True, True, False, True]


def test_a_retry_finds_its_restore_though_the_version_has_been_expired_since(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, k0=2)
    receipt = restore(job.timeline, 1, txn_id="back")
    job.world.objects.now += 60
    work.clean(job, "clean", 1, 0.0, 1e9)
    assert restore(new_job(job.world).timeline, 1, txn_id="back") == receipt
    with pytest.raises(SnapshotExpired):
        restore(job.timeline, 1)
    with pytest.raises(VersionNotFound):
        restore(job.timeline, 99)


def test_restoring_the_newest_version_does_nothing(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    assert not restore(job.timeline, 1).committed


def test_a_writer_from_before_the_restore_is_refused(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    writer = new_job(job.world)
    transaction = writer.begin("upsert", "late")
    actions, reads, writes = work.deltas(writer, transaction, "work", A, {"0": 5})
    restore(job.timeline, 0)
    with pytest.raises(ConcurrentWrite, match="restore"):
        transaction.commit(actions, reads=reads, writes=writes)


@pytest.mark.parametrize("version", [0, 1, 2], ids=["its creation", "its rows", "its drop"])
@pytest.mark.parametrize("checkpoint", ["none", "of today", "of before drops were told"])
def test_a_version_of_a_dropped_table_is_not_restored_into_its_successor(
    job: work.Job, version: int, checkpoint: str
) -> None:
    upsert(job, "one", A, k0=1)
    work.drop_and_create(job, "anew")
    upsert(job, "two", A, k0=2)
    if checkpoint != "none":
        write_checkpoint(job, tells_of_drops=checkpoint == "of today")
    other = new_job(job.world)
    with pytest.raises(InvalidInput, match=rf"Version {version} is of a table that was dropped.*Nothing was changed"):
        restore(other.timeline, version)
    assert live_requests(other.timeline) == []
    upsert(job, "three", A, k1=3)
    assert restore(other.timeline, 4).metrics == {"restored_version": 4, "rows": 1}
    check_all(job.world.checker)


def test_a_table_dropped_and_made_anew_while_a_restore_begins_is_left_alone(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, k0=2)
    slow = new_job(job.world)
    slow.store.gate = lambda verb, key: anew() if verb == "list" else OK  # it looks at the version

    def anew() -> str:
        slow.store.gate = lambda *_: OK
        work.drop_and_create(job, "anew")
        return OK

    with pytest.raises(InvalidInput, match="of a table that was dropped"):
        restore(slow.timeline, 1)
    assert table_of(job.store, job.timeline.refresh()) == {}
    assert live_requests(job.timeline) == []


def test_nothing_is_restored_into_a_dropped_table(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    work.drop(job, "drop")
    with pytest.raises(TableNotFound, match="dropped"):
        restore(job.timeline, 1)


def test_an_index_comes_back_to_what_it_covered_then(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, maintain=False, k0=2)
    assert job.timeline.refresh().index("by_key").lag == {(A, "0"): 1}
    restore(job.timeline, 1)
    assert job.timeline.refresh().index("by_key").lag == {}
    check_all(job.world.checker)


def test_a_newer_index_stays_empty_and_uncovered_and_a_dropped_one_stays_dropped(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    newer = IndexDefinition("newer", "secondary", ("v",), "2")
    for txn, action in (("make", PutIndex(newer)), ("drop", DropIndex("by_key"))):
        job.begin("index", txn).commit((action,), writes=(Write(definition_scope("newer"), "replace"),))
    restore(job.timeline, 1)
    head = job.timeline.refresh()
    assert list(head.indexes) == ["newer"]
    assert head.index("newer").lag == {(A, "0"): -1}
    assert head.files(INDEX_TREE) == []
