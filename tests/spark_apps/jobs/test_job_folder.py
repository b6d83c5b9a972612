"""The folder in which an app and who waits for it meet, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps.jobs.job import ErrorDocument, Outcome
from spark_apps.jobs.job_folder import (
    BegunAttempt,
    JobFolder,
    JobHeartbeat,
    end_job,
    list_jobs,
    new_job_id,
    sweep,
    unfinished,
)
from spark_apps.storage.errors import AttemptAborted
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline, left_by_a_table
from spark_apps.timeline.model import Field, TableDefinition
from spark_apps.timeline.transactions import Progress, Transaction, begin

DEFINITION = TableDefinition("t", (Field("id", "bigint"),), ("id",), ())


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return create_table(Store(tmp_path / "t"), DEFINITION)[0]


def note(folder: JobFolder, transaction: Transaction) -> None:
    """What the app does before it works on an attempt."""
    folder.note_attempt(BegunAttempt(transaction.timeline.store.uri, transaction.txn_id, transaction.attempt))


def test_given_a_beat_when_read_by_another_then_it_tells_phase_rate_and_what_is_left(tmp_path: Path) -> None:
    folder = JobFolder(Store(tmp_path), "j.1.aa")
    folder.write_heartbeat(JobHeartbeat(7.0, "write the rows", 12, 40, "tasks", 3.1, 9.2))

    seen = JobFolder(Store(tmp_path), "j.1.aa").heartbeat()

    assert seen is not None
    assert seen.line() == "write the rows: 12 of 40 tasks, 3.1/s, about 9 s left"


def test_given_a_job_at_work_when_ended_then_its_attempts_are_ended_and_those_of_the_next_try_are_not(
    timeline: Timeline,
) -> None:
    first, second = (JobFolder(timeline.store, new_job_id("x", number)) for number in (1, 2))
    mine = begin(timeline, operation="upsert", txn_id="x")
    note(first, mine)
    theirs = begin(timeline, operation="upsert", txn_id="x")
    note(second, theirs)

    ended = end_job(first, Store, "cleared")

    assert [one.attempt for one in ended] == [mine.attempt]
    assert first.cancelled() == "cleared" and second.cancelled() is None
    state = timeline.refresh()
    assert state.is_aborted("x", mine.attempt) and not state.is_aborted("x", theirs.attempt)
    with pytest.raises(AttemptAborted):
        mine.check_alive()
    theirs.commit(())


def test_given_a_job_that_had_not_begun_when_ended_then_it_meets_the_mark_before_it_works(timeline: Timeline) -> None:
    folder = JobFolder(timeline.store, "x.1.aa")
    assert end_job(folder, Store, "killed") == []
    late = begin(timeline, operation="upsert", txn_id="x")

    note(folder, late)

    assert folder.cancelled() == "killed"


def test_given_a_job_that_committed_when_ended_then_its_commit_stands(timeline: Timeline) -> None:
    folder = JobFolder(timeline.store, "x.1.aa")
    transaction = begin(timeline, operation="upsert", txn_id="x")
    note(folder, transaction)
    receipt = transaction.commit(())

    assert end_job(folder, Store, "too late") == []
    assert timeline.refresh().version == receipt.version


def test_jobs_are_found_by_what_their_intents_begin_with_and_swept_once_nothing_happens_in_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    at_work, ended, cancelled, another = (
        JobFolder(store, new_job_id(intent, 1)) for intent in ("a.b", "a.c", "a.d", "ab.c")
    )
    at_work.renew_lease()
    another.renew_lease()
    ended.finish(Outcome("error", error=ErrorDocument("JobFailed", "x")))
    cancelled.cancel("killed")

    assert unfinished(list_jobs(store), "a.") == [at_work.job_id]
    assert sweep(store, list_jobs(store)) == 0
    assert sweep(store, list_jobs(store), seconds=-5) == 4
    assert list_jobs(store) == {}


def test_given_only_a_jobs_folder_when_a_table_is_made_there_then_it_is_no_leftover_of_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "t")
    JobFolder(store, "x.1.aa").renew_lease()

    assert not left_by_a_table(store)
    create_table(store, DEFINITION)
    Timeline.load(store)


def test_given_a_reporter_that_refuses_when_an_attempt_begins_then_it_is_not_held(timeline: Timeline) -> None:
    progress = Progress()
    transaction = begin(timeline, operation="upsert", txn_id="x")

    def refuse(_transaction: Transaction, _shared: bool) -> None:
        raise AttemptAborted("cancelled")

    progress.begun = refuse
    with pytest.raises(AttemptAborted):
        progress.hold(transaction)
    assert progress.in_progress() == []
    progress.begun = None
    progress.hold(transaction)
    assert [held.attempt.attempt for held in progress.in_progress()] == [transaction.attempt]
    progress.release(transaction)
    assert progress.in_progress() == []
