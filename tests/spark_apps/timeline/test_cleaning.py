"""Expiring versions, and deleting only what nothing needs any more."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import AttemptAborted, DrainTimeout, LogDamaged, StopWriteWindowOpen
from spark_apps.timeline import cleaning, windows
from spark_apps.timeline.features import ORDERED_DELETES
from spark_apps.timeline.limits import TOMBSTONE_DAYS
from spark_apps.timeline.model import DATA_TREE, KEPT, TOMBSTONES_TREE, AddFile, Write, group_scope
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import abort, attempts, resume
from tests.simulation import work
from tests.simulation.actors import Actor
from tests.simulation.reading import check_all, table_of
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert


def versions(job: work.Job, count: int, seconds: float = 60.0) -> None:
    for number in range(count):
        job.world.effects[f"v{number}"] = work.overwriting(A, {"0": number})
        work.overwrite(job, f"v{number}", A, {"0": number})
        job.world.objects.now += seconds


def cut(job: work.Job, key: str) -> None:
    """What a machine that lost its power leaves of a file."""
    job.world.objects.bodies[key] = (b"", job.world.objects.now)


def data_files(job: work.Job) -> set[str]:
    return {key.split("/")[1] for key in job.world.objects.bodies if key.startswith("data/")}


def test_the_newest_versions_are_kept_whatever_their_age(job: work.Job) -> None:
    versions(job, 6)
    receipt = work.clean(job, "clean", 3, 0.0, 1e9)
    assert receipt.metrics["expired_below"] == 4
    assert data_files(job) == {"v3.1", "v4.1", "v5.1"}
    assert table_of(job.store, job.timeline.at(4)) == {(A, "0"): 3}


def test_a_version_that_was_the_newest_until_lately_is_kept_by_age(job: work.Job) -> None:
    versions(job, 6)
    # v3 (version 4) stopped being the newest two minutes ago, v4 one minute ago.
    assert cleaning.expiry(job.timeline, 1, 90.0) == 5
    assert cleaning.expiry(job.timeline, 1, 150.0) == 4
    assert cleaning.expiry(job.timeline, 1, 1e6) == 0


def test_nothing_to_do_commits_nothing(job: work.Job) -> None:
    receipt = work.clean(job, "clean", 5, 0.0, 1e9)
    assert not receipt.committed
    assert receipt.metrics["files_deleted"] == 0


def test_a_plan_tells_what_a_cleaning_then_does(job: work.Job) -> None:
    versions(job, 4)
    plan = cleaning.plan(job.timeline, retain_versions=2, retain_seconds=0)
    assert (plan.expire_below, len(plan.files), plan.keeps_for) == (3, 2, ())
    receipt = work.clean(job, "clean", 2, 0.0, 1e9)
    assert (receipt.metrics["files_deleted"], receipt.metrics["bytes_deleted"]) == (2, plan.bytes)


def test_what_a_live_attempt_needs_or_has_staged_stays_until_it_is_aborted(job: work.Job) -> None:
    versions(job, 2)
    reader = new_job(job.world)
    transaction = reader.begin("upsert", "reader")
    work.deltas(reader, transaction, "work", A, {"1": 1})
    versions_after = {"v0.1", "v1.1"}
    for number in (7, 8):
        job.world.effects[f"v{number}"] = work.overwriting(A, {"0": number})
        work.overwrite(job, f"v{number}", A, {"0": number})
    job.world.objects.now += 60
    plan = cleaning.plan(job.timeline, retain_versions=1, retain_seconds=0)
    assert plan.keeps_for == ("reader.1",)
    work.clean(job, "clean", 1, 0.0, 1e9)
    assert data_files(job) == versions_after - {"v0.1"} | {"v7.1", "v8.1", "reader.1"}
    assert table_of(reader.store, transaction.base) == {(A, "0"): 1}
    abort(job.timeline, "reader", 1)
    work.clean(job, "again", 1, 0.0, 1e9)
    assert data_files(job) == {"v8.1"}


def test_an_attempt_without_a_sign_of_life_is_aborted_first(job: work.Job, world: work.World) -> None:
    asleep, awake = new_job(world), new_job(world)
    asleep.begin("upsert", "asleep")
    transaction = awake.begin("upsert", "awake")
    world.objects.now += 500
    transaction.heartbeat()
    assert cleaning.plan(job.timeline, presumed_dead_seconds=100).presumed_dead == ("asleep.1",)
    receipt = work.clean(job, "clean", 1, 0.0, 100.0)
    assert receipt.metrics["attempts_aborted"] == 1
    assert job.timeline.head.aborted == {"asleep": [1]}
    assert attempts(job.timeline) == [("awake", 1)]


def test_a_sign_of_life_that_cannot_be_read_counts_as_of_when_it_was_written(job: work.Job) -> None:
    transaction = job.begin("upsert", "cut")
    job.world.objects.now += 500
    cut(job, f"{transaction.folder}/heartbeat.json")
    job.world.objects.now += 90
    assert cleaning.plan(job.timeline, presumed_dead_seconds=100).presumed_dead == ()
    job.world.objects.now += 90
    assert work.clean(job, "clean", 1, 0.0, 100.0).metrics["attempts_aborted"] == 1


def test_an_attempt_whose_request_cannot_be_read_holds_every_version_until_it_is_silent(job: work.Job) -> None:
    versions(job, 3)
    before = data_files(job)
    transaction = job.begin("upsert", "cut")
    cut(job, f"{transaction.folder}/requested.json")
    job.world.objects.now += 60
    assert cleaning.plan(job.timeline, retain_versions=1, retain_seconds=0).keeps_for == ("cut.1",)
    work.clean(job, "clean", 1, 0.0, 100.0)
    assert data_files(job) == before
    window = windows.open_window(job.timeline, "somebody", partitions=(B,))
    with pytest.raises(DrainTimeout, match=r"cut \(attempt 1, unreadable\)"):
        windows.drain(job.timeline, window.epoch, seconds=5)
    job.world.objects.now += 60
    assert windows.drain(job.timeline, window.epoch, seconds=5, silent_seconds=100) == 1
    windows.close(job.timeline, window.epoch)
    work.clean(job, "again", 1, 0.0, 100.0)
    assert len(data_files(job)) < len(before)
    with pytest.raises(AttemptAborted):
        transaction.commit(())


def test_an_attempt_whose_request_cannot_be_read_is_not_resumed(job: work.Job) -> None:
    transaction = job.begin("upsert", "cut")
    cut(job, f"{transaction.folder}/requested.json")
    with pytest.raises(LogDamaged, match=r"requested.json cannot be read.*Begin the transaction again"):
        resume(job.timeline, "cut", 1)
    assert job.begin("upsert", "cut").attempt == 2


def test_manifests_of_ended_transactions_are_tidied_away(job: work.Job) -> None:
    upsert(job, "done", k0=1)
    assert attempts(job.timeline) == [("done", 1)]
    work.clean(job, "clean", 1, 0.0, 1e9)
    assert attempts(job.timeline) == []


def test_a_cleaning_tried_again_finds_its_expiry_and_goes_on_deleting(job: work.Job) -> None:
    versions(job, 4)
    first = work.clean(job, "clean", 1, 0.0, 1e9)
    again = work.clean(new_job(job.world), "clean", 1, 0.0, 1e9)
    assert (again.version, again.metrics["files_deleted"]) == (first.version, 0)


def test_what_a_withdrawn_attempt_staged_for_an_index_goes_and_what_one_at_work_stages_stays(job: work.Job) -> None:
    staged = {}
    for name in ("idle", "busy"):
        transaction = job.begin("create_index", name)
        staged[name] = transaction.index_folder("by_key", "round-1") + "/entries.json"
        job.store.put(staged[name], b"{}")
        if name == "idle":
            work.withdraw(job, transaction)

    assert cleaning.plan(job.timeline).files == (staged["idle"],)
    work.clean(job, "clean", 5, 0.0, 1e9)

    assert staged["idle"] not in job.world.objects.bodies and staged["busy"] in job.world.objects.bodies


def test_a_withdrawn_attempt_leaves_a_mark_for_a_day(job: work.Job, world: work.World) -> None:
    transaction = job.begin("compact", "c")
    work.withdraw(job, transaction)
    transaction.heartbeat()  # a late sign of life
    work.clean(job, "clean", 1, 0.0, 1e9)
    left = {"heartbeat.json", "requested.json", "withdrawn.json"}
    assert transaction_files(world) == {f"c/000001/{name}" for name in left}
    assert attempts(job.timeline) == []
    world.objects.now += 90_000
    work.clean(job, "again", 1, 0.0, 1e9)
    assert transaction_files(world) == set()


def transaction_files(world: work.World) -> set[str]:
    folder = "_index/transactions/"
    return {key.removeprefix(folder) for key in world.objects.bodies if key.startswith(folder)}


def test_what_an_attempt_brought_back_while_the_cleaner_looked_away_stays(job: work.Job, world: work.World) -> None:
    """The restore is live when the cleaner lists the attempts, and has committed and been tidied away when the cleaner
    reads its request: what it brought back was needed by no version that the cleaner knew."""
    versions(job, 3)
    errors: list[object] = []
    restorer, cleaner = (
        Actor(name, world.objects, lambda _actor, _result, error: errors.append(error))
        for name in ("restorer", "cleaner")
    )
    restorer.start("restore", lambda actor: restore(actor.timeline, 1, txn_id="back"))
    restorer.go_on("commit")
    own = work.Job(world, cleaner.store, cleaner.timeline)
    cleaner.start("clean", lambda _: work.clean(own, "clean", 1, 0.0, 1e9))
    while world.checker.head.expired_below < 3:
        cleaner.go_on(1)
    while cleaner.next_call != ("get", "_index/transactions/back/000001/requested.json"):
        cleaner.go_on(1)
    restorer.go_on()
    work.clean(new_job(world), "tidy", 99, 0.0, 1e9)
    cleaner.go_on()
    assert errors == [None, None]
    assert table_of(job.store, job.timeline.refresh()) == {(A, "0"): 0}
    check_all(world.checker)


def test_the_checksum_beside_a_file_stays_as_long_as_the_file(job: work.Job) -> None:
    versions(job, 3)
    for key in [key for key in job.world.objects.bodies if key.startswith("data/")]:
        folder, _, name = key.rpartition("/")
        job.store.put(f"{folder}/.{name}.crc", b"crc")
    work.clean(job, "clean", 1, 0.0, 1e9)
    kept = sorted(key.rpartition("/")[2] for key in job.world.objects.bodies if key.startswith("data/v2.1/"))
    assert data_files(job) == {"v2.1"}
    assert len(kept) == 2 and kept[0] == f".{kept[1]}.crc"


def keep_deletes(job: work.Job, txn: str, rows: int) -> str:
    """Commits a file that keeps the orderings of deletes beside a base, and returns its path."""
    transaction = job.begin("compact", txn)
    path = transaction.data_folder("tombstones") + "/kept.parquet"
    job.store.put(path, b"kept")
    beside = AddFile(
        TOMBSTONES_TREE, A, "0", path, "delta", rows, 4, None, rows, len(txn), {KEPT: job.world.objects.now}
    )
    transaction.commit([beside], writes=[Write(group_scope(A, "0"), "fold")])
    return path


def test_given_orderings_of_deletes_then_a_cleaning_drops_them_when_their_time_is_over_or_when_it_is_asked_to(
    job: work.Job, world: work.World
) -> None:
    upsert(job, "one", k0=1)
    first = keep_deletes(job, "first", 3)
    head = job.timeline.refresh()
    assert (head.reader_features, head.writer_features) == ((ORDERED_DELETES,), (ORDERED_DELETES,))
    world.objects.now += TOMBSTONE_DAYS * 86400 - 1
    second = keep_deletes(job, "second", 2)
    clean_all = {"retain_versions": 1, "retain_seconds": 0.0, "presumed_dead_seconds": 1e12}

    receipt = cleaning.clean(job.timeline, **clean_all)  # type: ignore[arg-type]
    assert receipt.metrics["tombstones_dropped"] == 0 and {first, second} <= world.objects.bodies.keys()
    world.objects.now += 1
    assert cleaning.plan(job.timeline).tombstones == 3
    receipt = cleaning.clean(job.timeline, **clean_all)  # type: ignore[arg-type]
    assert receipt.metrics["tombstones_dropped"] == 3 and first not in world.objects.bodies
    receipt = cleaning.clean(job.timeline, tombstones=True, **clean_all)  # type: ignore[arg-type]
    assert receipt.metrics["tombstones_dropped"] == 2
    assert job.timeline.head.files(TOMBSTONES_TREE) == [] and len(job.timeline.head.files(DATA_TREE)) == 1
    world.objects.now += 1  # here no time passes by itself, and the version before ended just now
    cleaning.clean(job.timeline, **clean_all)  # type: ignore[arg-type]
    assert second not in world.objects.bodies


def test_given_a_window_of_another_then_orderings_of_deletes_stay_and_to_drop_them_all_is_refused(
    job: work.Job,
) -> None:
    upsert(job, "one", k0=1)
    keep_deletes(job, "first", 3)
    windows.open_window(job.timeline, "another", seconds=1e7, at_most=1e7)
    job.world.objects.now += TOMBSTONE_DAYS * 86400

    assert cleaning.clean(job.timeline).metrics["tombstones_dropped"] == 0
    with pytest.raises(StopWriteWindowOpen):
        cleaning.clean(job.timeline, tombstones=True)
