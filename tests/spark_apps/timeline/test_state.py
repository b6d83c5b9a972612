"""What a commit does to the coverage of the indexes that it did not keep in step."""

from __future__ import annotations

from msgspec.structs import replace

from spark_apps.timeline import log
from spark_apps.timeline.model import DropPartition, MarkCovered, PutIndex, Write, definition_scope, partition_scope
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import Transaction
from tests.simulation import work
from tests.simulation.checker import INDEX_TREE
from tests.simulation.reading import check_all
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert


def lag(job: work.Job) -> dict[tuple[str, str], int]:
    return job.timeline.refresh().index("by_key").lag


def test_groups_that_a_commit_did_not_keep_in_step_lag_from_the_version_before(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, maintain=False, k0=2, k1=3)
    assert lag(job) == {(A, "0"): 1, (A, "1"): 1}
    upsert(job, "three", A, k0=4)  # keeping it in step now does not make up for what was missed
    assert lag(job) == {(A, "0"): 1, (A, "1"): 1}


def test_compaction_carries_coverage_over(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    upsert(job, "two", A, k0=2)
    work.compact(job, "compact", A, "0")
    assert lag(job) == {}


def test_rescale_carries_coverage_over_and_spreads_what_lagged(job: work.Job) -> None:
    upsert(job, "one", A, k0=1, k1=1, k2=1)
    work.rescale(job, "same", A, 3)
    assert lag(job) == {}
    upsert(job, "two", A, maintain=False, k1=2)
    work.rescale(job, "other", A, 2)
    assert lag(job) == {(A, "0"): 2, (A, "1"): 2}
    check_all(job.world.checker)


def test_a_refresh_covers_what_it_read_and_not_what_landed_meanwhile(job: work.Job) -> None:
    upsert(job, "one", A, maintain=False, k0=1)
    upsert(job, "two", B, maintain=False, k0=1)
    refresher = new_job(job.world)
    transaction = refresher.begin("refresh_index", "r")
    upsert(job, "three", A, maintain=False, k0=2)
    transaction.commit((MarkCovered(INDEX_TREE, transaction.base.version),), writes=())
    assert lag(job) == {(A, "0"): 2}


def dropped(job: work.Job, txn: str, partition: str = A) -> None:
    """A partition goes, and nothing of it is written to the index."""
    job.world.effects[txn] = work.overwriting(partition, {})
    gone = Write(partition_scope(partition), "replace")
    job.begin("drop_partition", txn).commit((DropPartition(partition),), writes=(gone,))


def covered(job: work.Job, transaction: Transaction) -> dict[tuple[str, str], int]:
    """What lags once a refresh has committed that wrote no entry."""
    transaction.commit((MarkCovered(INDEX_TREE, transaction.base.version),), writes=())
    state = job.timeline.refresh()
    decoded = log.decode_checkpoint(log.encode_checkpoint(state))
    assert decoded is not None and decoded.indexes == state.indexes
    return lag(job)


def test_a_refresh_from_before_rows_went_does_not_take_their_entries_for_right(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    early = new_job(job.world).begin("refresh_index", "early")
    dropped(job, "drop")
    assert covered(job, early) == {(A, "0"): -1}
    upsert(job, "again", A, maintain=False, k0=2)
    assert lag(job) == {(A, "0"): -1}

    # Only who saw the group without its rows knows which entries are left over; later changes do not undo that.
    late = new_job(job.world).begin("refresh_index", "late")
    upsert(job, "more", A, maintain=False, k0=3)
    assert covered(job, late) == {(A, "0"): late.base.version}
    assert covered(job, new_job(job.world).begin("refresh_index", "last")) == {}


def test_what_went_is_remembered_through_a_rescale_and_a_restore(job: work.Job) -> None:
    upsert(job, "one", A, k0=1, k1=1)
    dropped(job, "drop")
    upsert(job, "again", A, maintain=False, k0=2, k1=2)
    early = new_job(job.world).begin("refresh_index", "early")
    version = job.timeline.refresh().version
    dropped(job, "drop-again")
    upsert(job, "and-again", A, maintain=False, k0=2, k1=2)
    work.rescale(job, "other", A, 3)
    assert set(covered(job, early).values()) == {-1}
    restore(job.timeline, version)
    assert set(lag(job).values()) == {-1}
    assert covered(job, new_job(job.world).begin("refresh_index", "last")) == {}


def test_a_checkpoint_from_before_takes_what_went_for_as_late_as_it_can_be(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    dropped(job, "drop")
    upsert(job, "again", A, maintain=False, k0=2)
    entry = job.timeline.refresh().index("by_key")
    old = log._IndexHeader(entry, ((A, "0", -1, 3),))
    assert old.rows_gone == {(A, "0"): 3}


def test_writers_that_keep_it_in_step_do_not_hold_a_refresh_up(job: work.Job) -> None:
    upsert(job, "one", A, maintain=False, k0=1)
    refresher = new_job(job.world)
    transaction = refresher.begin("refresh_index", "r")
    upsert(job, "two", A, k0=2)
    entries = {f"{A}|0": True}
    actions, writes = work.entry_files(refresher, transaction, "work", entries, transaction.base.version, "backdated")
    transaction.commit((*actions, MarkCovered(INDEX_TREE, transaction.base.version)), writes=writes)
    assert lag(job) == {}
    check_all(job.world.checker)


def test_a_new_index_covers_nothing_of_a_table_with_rows(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    definition = job.timeline.head.index("by_key").definition
    action = PutIndex(replace(definition, index_id="2"))
    job.begin("index", "make").commit((action,), writes=(Write(definition_scope("by_key"), "replace"),))
    assert lag(job) == {(A, "0"): -1}
    assert job.timeline.head.files(INDEX_TREE) == []


def test_a_snapshot_stays_as_it_is_while_the_log_goes_on(job: work.Job) -> None:
    upsert(job, "one", A, k0=1)
    before = job.timeline.refresh()
    files, partitions = before.files("data"), dict(before.partitions)
    upsert(job, "two", B, k0=2)
    assert (before.version, before.files("data"), before.partitions) == (1, files, partitions)
