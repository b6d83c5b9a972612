"""Stop-write windows: who may commit while one is open, how they end, and how writers from before are waited for."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import (
    DrainTimeout,
    FencedOff,
    InvalidInput,
    StopWriteWindowOpen,
    TableNotFound,
    WindowNotOpen,
)
from spark_apps.timeline import windows
from spark_apps.timeline.commit import commit_changes, housekeeping
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import OpenWindow, group_scope, partition_scope
from spark_apps.timeline.operations import OPEN_WINDOW
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import abort, begin
from tests.simulation import work
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert


def test_only_the_holder_commits_in_the_scope_of_an_open_window(job: work.Job) -> None:
    window = windows.open_window(job.timeline, "nightly rescale", partitions=(A,))
    with pytest.raises(StopWriteWindowOpen, match=r"nightly rescale holds .* 'p=a' \(epoch 1\).*Wait until"):
        upsert(job, "outside", A, k0=1)
    assert upsert(job, "elsewhere", B, k0=1) == 2
    job.world.effects["inside"] = work.changing(A, {"0": 1})
    assert work.upsert(job, "inside", A, {"0": 1}, window=window.epoch).version == 3


def test_a_writer_that_began_before_the_window_cannot_slip_in(job: work.Job) -> None:
    transaction = job.begin("upsert", "w")
    actions, reads, writes = work.deltas(job, transaction, "work", A, {"0": 1})
    windows.open_window(new_job(job.world).timeline, "holder")
    with pytest.raises(StopWriteWindowOpen, match="the whole table"):
        transaction.commit(actions, reads=reads, writes=writes)


def test_aborts_expiries_and_other_windows_are_allowed_in_a_window(job: work.Job, world: work.World) -> None:
    upsert(job, "w", A, k0=1)
    job.begin("upsert", "sleeper")
    windows.open_window(job.timeline, "holder", partitions=(A,))
    windows.open_window(job.timeline, "other", partitions=(B,))
    abort(job.timeline, "sleeper", 1)
    world.objects.now += 60
    assert work.clean(job, "clean", 1, 0.0, 1000.0).committed


def test_a_second_window_over_the_same_partition_is_refused(job: work.Job) -> None:
    windows.open_window(job.timeline, "first", partitions=(A,))
    for partitions in ((A, B), None):
        with pytest.raises(StopWriteWindowOpen, match="first holds"):
            windows.open_window(job.timeline, "second", partitions=partitions)


def test_no_window_is_opened_over_a_table_that_was_dropped(job: work.Job) -> None:
    work.drop(job, "drop")
    for partitions in ((A,), None):
        with pytest.raises(TableNotFound, match="was dropped"):
            windows.open_window(job.timeline, "late", partitions=partitions)
    assert not job.timeline.refresh().windows


def test_past_its_deadline_anyone_ends_it_and_its_holder_is_fenced_off(job: work.Job, world: work.World) -> None:
    window = windows.open_window(job.timeline, "holder", seconds=10, at_most=20)
    transaction = job.begin("rescale", "r", window=window.epoch)
    world.objects.now += 11
    assert upsert(new_job(world), "w", A, k0=1) == 3  # version 2 ended the window
    with pytest.raises(FencedOff, match=r"epoch 1, which is not open: .* ended by w in version 2.*Do not retry"):
        transaction.commit(())
    with pytest.raises(WindowNotOpen, match="passed its deadline"):
        windows.renew(job.timeline, window.epoch)
    with pytest.raises(WindowNotOpen):
        windows.close(job.timeline, window.epoch)


def test_a_holder_past_its_deadline_commits_as_long_as_nobody_ended_it(job: work.Job, world: work.World) -> None:
    window = windows.open_window(job.timeline, "holder", seconds=10)
    world.objects.now += 11
    assert job.begin("rescale", "r", window=window.epoch).commit(()).committed


def test_renewing_moves_the_deadline_up_to_the_last_moment_and_never_back(job: work.Job, world: work.World) -> None:
    window = windows.open_window(job.timeline, "holder", seconds=10, at_most=30)
    assert windows.renew(job.timeline, window.epoch, 5) == window
    assert windows.renew(job.timeline, window.epoch, 15).deadline == world.objects.now + 15
    assert windows.renew(job.timeline, window.epoch, 500).deadline == window.last_moment
    world.objects.now += 31
    assert windows.end_expired(job.timeline, "anyone") != []
    with pytest.raises(WindowNotOpen):
        windows.renew(job.timeline, window.epoch)


def test_a_closed_window_closed_again_is_an_error_and_a_retry_is_not(job: work.Job) -> None:
    window = windows.open_window(job.timeline, "holder", txn_id="open")
    assert windows.open_window(new_job(job.world).timeline, "holder", txn_id="open") == window
    receipt = windows.close(job.timeline, window.epoch, "close")
    assert windows.close(new_job(job.world).timeline, window.epoch, "close") == receipt
    with pytest.raises(WindowNotOpen, match=r"closed by its holder in version 2.*Nothing was changed"):
        windows.close(job.timeline, window.epoch)
    with pytest.raises(WindowNotOpen):
        windows.open_window(job.timeline, "holder", txn_id="open")
    assert windows.open_window(job.timeline, "holder").epoch == 3


def test_an_epoch_that_never_was_is_told(job: work.Job) -> None:
    windows.open_window(job.timeline, "holder")
    with pytest.raises(WindowNotOpen, match=r"version 0 opened no window that is remembered\. Open epochs: 1"):
        windows.find(job.timeline, 0)
    with pytest.raises(FencedOff, match="no window was opened in version 7"):
        job.begin("rescale", "r", window=7).commit(())


@pytest.mark.parametrize("options", [{"seconds": 0}, {"seconds": 10, "at_most": 5}, {"partitions": ()}])
def test_a_window_that_makes_no_sense_is_refused(job: work.Job, options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="Nothing was changed"):
        windows.open_window(job.timeline, "holder", **options)  # type: ignore[arg-type]


def test_draining_waits_for_writers_from_before_in_the_scope_only(job: work.Job, world: work.World) -> None:
    other = new_job(world)
    begin(other.timeline, operation="upsert", txn_id="elsewhere", scopes=(partition_scope(B),))
    begin(other.timeline, operation="upsert", txn_id="before", scopes=(group_scope(A, "0"),))
    window = windows.open_window(job.timeline, "holder", partitions=(A,))
    begin(other.timeline, operation="upsert", txn_id="after")
    job.begin("rescale", "own", window=window.epoch)
    assert [request.txn_id for request in windows.undrained(job.timeline, window.epoch)] == ["before"]
    with pytest.raises(DrainTimeout, match=r"1 writers .*before \(attempt 1, upsert\)"):
        windows.drain(job.timeline, window.epoch, seconds=3)
    assert windows.drain(job.timeline, window.epoch, seconds=3, then_abort=True) == 1
    assert windows.drain(job.timeline, window.epoch) == 0


def test_draining_ends_writers_without_a_sign_of_life(job: work.Job, world: work.World) -> None:
    begin(new_job(world).timeline, operation="upsert", txn_id="silent")
    alive = begin(new_job(world).timeline, operation="upsert", txn_id="alive")
    world.objects.now += 100
    alive.heartbeat("writing", 1, 2)
    window = windows.open_window(job.timeline, "holder")
    with pytest.raises(DrainTimeout, match="alive"):
        windows.drain(job.timeline, window.epoch, seconds=1, silent_seconds=50)
    assert job.timeline.refresh().aborted == {"silent": [1]}


def test_a_restore_does_not_bring_a_window_back_or_end_one(job: work.Job) -> None:
    closed = windows.open_window(job.timeline, "gone")
    windows.close(job.timeline, closed.epoch)
    upsert(job, "w", A, k0=1)
    window = windows.open_window(job.timeline, "holder")
    with pytest.raises(StopWriteWindowOpen):
        restore(job.timeline, 1)
    restore(job.timeline, 1, window=window.epoch)
    assert set(job.timeline.refresh().windows) == {window.epoch}


def test_a_log_whose_instants_are_ahead_of_the_clock_makes_no_window_shorter(job: work.Job) -> None:
    ahead = Timeline(job.store, lambda: job.world.objects.now + 7200)
    windows.close(ahead, windows.open_window(ahead, "somebody whose clock is ahead").epoch)
    window = windows.open_window(job.timeline, "holder", seconds=900)
    assert windows.length(job.timeline, window.epoch) == 900
    windows.close(job.timeline, window.epoch)
    now = job.world.objects.now
    old = OpenWindow("of before openings told their length", now + 900, now + 1800)
    receipt = commit_changes(job.timeline, housekeeping(OPEN_WINDOW, old, base=job.timeline.head.version))
    assert windows.length(job.timeline, receipt.version) == 3600


def test_a_holder_that_drains_for_longer_than_its_deadline_keeps_its_window(job: work.Job) -> None:
    sleeper = new_job(job.world).begin("upsert", "sleeper", patience=1e6)
    window = windows.open_window(job.timeline, "holder", seconds=900, at_most=9000)
    began = job.world.objects.now
    assert windows.drain(job.timeline, window.epoch, seconds=3000, poll=30, then_abort=True, renew_seconds=900) == 1
    assert job.world.objects.now - began >= 3000
    assert windows.find(job.timeline, window.epoch).deadline > job.world.objects.now
    assert job.timeline.head.is_aborted("sleeper", sleeper.attempt)
    assert job.timeline.head.version <= 12  # ten renewals and the abort


def test_tries_of_one_work_have_windows_of_their_own_and_who_gives_up_closes_only_his(job: work.Job) -> None:
    slow = new_job(job.world)
    first = windows.open_for_try(slow.timeline, "rescale x", "window-x", partitions=(A,))
    transaction = slow.begin("rescale", "x", window=first.epoch)
    windows.open_window(job.timeline, "somebody else", partitions=(B,))

    second = windows.open_for_try(job.timeline, "rescale x", "window-x", partitions=(A,))

    with pytest.raises(WindowNotOpen, match="was closed by its holder"):
        windows.close(slow.timeline, first.epoch)
    with pytest.raises(FencedOff):
        transaction.commit((), writes=())
    assert windows.find(job.timeline, second.epoch).partitions == (A,)
    assert len(job.timeline.head.windows) == 2
    with pytest.raises(StopWriteWindowOpen, match="somebody else"):
        windows.open_for_try(job.timeline, "rescale y", "window-y", partitions=(B,))
