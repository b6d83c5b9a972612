"""Attempts, stages, retries, aborts and conflicts."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    AttemptReplaced,
    BucketCountMismatch,
    CommitStateUnknown,
    CommitUndone,
    ConcurrentWrite,
    InvalidInput,
    InvalidName,
    SnapshotExpired,
    StageMismatch,
    TransactionNotFound,
)
from spark_apps.timeline import transactions, windows
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import (
    CONFIG_SCOPE,
    DATA_TREE,
    DEFINITIONS_SCOPE,
    AddFile,
    DropIndex,
    DropTable,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    RemoveFile,
    Write,
    definition_scope,
    group_scope,
    partition_scope,
    shard_scope,
    table_scope,
)
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import abort, begin, find_receipt, resume
from tests.simulation import work
from tests.simulation.reading import table_of
from tests.simulation.store import ERROR_BEFORE, LATE, OK
from tests.spark_apps.timeline.conftest import A, B, new_job, upsert, write_checkpoint


def test_a_retry_finds_its_commit(job: work.Job) -> None:
    version = upsert(job, "w", k0=1)
    with pytest.raises(AlreadyCommitted, match=f"as version {version}") as caught:
        begin(new_job(job.world).timeline, operation="upsert", txn_id="w")
    assert caught.value.receipt == find_receipt(job.timeline, "w")
    assert find_receipt(job.timeline, "never") is None


def test_a_commit_that_was_taken_back_is_not_given_out_as_done(job: work.Job) -> None:
    upsert(job, "w", k0=1)
    restore(job.timeline, 0)
    with pytest.raises(CommitUndone, match="a later restore took its effect back"):
        find_receipt(job.timeline, "w")


@pytest.mark.parametrize("checkpoint", ["none", "of today", "of before drops were told"])
def test_a_receipt_is_not_given_out_once_its_table_was_dropped(job: work.Job, checkpoint: str) -> None:
    upsert(job, "w", k0=1)
    work.drop(job, "drop")
    if checkpoint != "none":
        write_checkpoint(job, tells_of_drops=checkpoint == "of today")
    for made_anew in (False, True):
        if made_anew:
            work.create(job.store, job.timeline, "create-2")
        retry = Timeline(new_job(job.world).store)
        with pytest.raises(CommitUndone, match="the table was dropped in version 2 since") as undone:
            find_receipt(retry, "w")
        assert (undone.value.receipt.version, undone.value.by) == (1, "drop")
        with pytest.raises(CommitUndone):
            find_receipt(retry, "create")
        assert find_receipt(retry, "drop").version == 2
    upsert(job, "w2", k0=1)
    assert [find_receipt(job.timeline, txn).version for txn in ("create-2", "w2")] == [3, 4]
    with pytest.raises(CommitUndone):
        begin(retry, operation="upsert", txn_id="w")


def test_the_receipt_of_an_index_is_not_given_out_once_that_very_index_was_dropped(job: work.Job) -> None:
    def commit(operation: str, txn_id: str, action: PutIndex | DropIndex) -> None:
        writes = (Write(definition_scope("by_v"), "replace"),)
        new_job(job.world).begin(operation, txn_id).commit((action,), writes=writes)

    commit("create_index", "make", PutIndex(IndexDefinition("by_v", "secondary", ("v",), "2")))
    commit("alter_index", "alter", PutIndex(IndexDefinition("by_v", "secondary", ("v",), "2", properties={"a": "b"})))
    assert find_receipt(job.timeline, "make").version == 1
    commit("drop_index", "drop", DropIndex("by_v"))
    for made_anew in (False, True):
        if made_anew:
            commit("create_index", "again", PutIndex(IndexDefinition("by_v", "secondary", ("v",), "3")))
        with pytest.raises(CommitUndone, match="the index 'by_v' was dropped in version 3 since") as undone:
            find_receipt(job.timeline, "make")
        assert (undone.value.receipt.version, undone.value.by) == (1, "drop")
        assert [find_receipt(job.timeline, txn).version for txn in ("alter", "drop")] == [2, 3]
    assert find_receipt(job.timeline, "again").version == 4


def test_the_receipt_of_a_drop_stands_though_a_later_table_was_dropped_too(job: work.Job) -> None:
    for number in (1, 2):
        work.drop_and_create(job, f"anew-{number}")
    assert find_receipt(job.timeline, "anew-1.drop").version == 1
    with pytest.raises(CommitUndone) as undone:
        find_receipt(job.timeline, "anew-1.create")
    assert undone.value.by == "anew-2.drop"


def test_an_opening_is_told_though_the_table_was_dropped_in_its_window(job: work.Job) -> None:
    window = windows.open_window(job.timeline, "somebody", txn_id="open")
    transaction = job.begin("drop_table", "drop", window=window.epoch)
    transaction.commit((DropTable(),), writes=(Write(table_scope(), "replace"),))
    assert find_receipt(job.timeline, "open").version == window.epoch


def test_an_aborted_attempt_cannot_commit_and_a_new_one_can(job: work.Job) -> None:
    asleep = job.begin("upsert", "w")
    abort(new_job(job.world).timeline, "w", 1, "taken for dead")
    with pytest.raises(AttemptAborted, match="was ended by a commit"):
        asleep.commit(())
    with pytest.raises(AttemptAborted):
        resume(job.timeline, "w", 1)
    assert upsert(job, "w", k0=1) == 2
    assert job.attempt == 2


def test_the_number_of_an_aborted_attempt_is_not_used_again_after_tidying(job: work.Job, world: work.World) -> None:
    job.begin("upsert", "w").abort()
    work.clean(job, "clean", 5, 0.0, 1000.0)
    assert transactions.attempts(job.timeline, "w") == []
    assert job.begin("upsert", "w").attempt == 2


def test_the_number_of_a_withdrawn_attempt_is_not_used_again(job: work.Job) -> None:
    work.withdraw(job, job.begin("compact", "c"))
    assert transactions.live_requests(job.timeline) == []
    assert job.begin("compact", "c").attempt == 2


def test_the_number_of_a_withdrawn_attempt_is_not_used_by_who_chose_it_before(job: work.Job, world: work.World) -> None:
    seen: list[str] = []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and key.endswith("requested.json") and not seen:
            seen.append(key)
            other = new_job(world)
            work.withdraw(other, other.begin("compact", "c"))
        return OK

    late = new_job(world)
    late.store.gate = gate
    assert late.begin("compact", "c").attempt == 2


def test_a_committed_attempt_is_not_aborted(job: work.Job) -> None:
    upsert(job, "w", k0=1)
    with pytest.raises(AlreadyCommitted, match=r"it is not aborted\. The commit is in effect"):
        abort(job.timeline, "w", 1)


def test_aborting_twice_is_one_abort(job: work.Job) -> None:
    job.begin("upsert", "w")
    first = abort(job.timeline, "w", 1)
    assert abort(new_job(job.world).timeline, "w", 1) == first


def test_a_fence_ends_the_earlier_attempts_which_hear_that_a_later_try_has_taken_over(job: work.Job) -> None:
    asleep = job.begin("upsert", "w")
    begin(new_job(job.world).timeline, operation="upsert", txn_id="w", fence=True)
    with pytest.raises(AttemptReplaced, match="replaced by a later try"):
        asleep.commit(())


def test_an_attempt_that_was_ended_hears_why(job: work.Job) -> None:
    asleep = job.begin("upsert", "w")
    abort(new_job(job.world).timeline, "w", 1, "drained by the window of epoch 7")
    with pytest.raises(AttemptAborted, match="drained by the window of epoch 7") as caught:
        asleep.commit(())
    assert type(caught.value) is AttemptAborted


def test_stages_are_joined_and_a_missing_or_mixed_one_is_refused(job: work.Job) -> None:
    transaction = job.begin("upsert", "w", stages=("rows", "index"))
    first = transaction.stage("rows", ())
    with pytest.raises(StageMismatch, match=r"Stage 'index' .* was not staged"):
        transaction.commit()
    transaction.stage("index", (), made_from={"rows": first})
    transaction.stage("rows", (), metrics={"rows": 3})
    with pytest.raises(StageMismatch, match="made from another try of stage 'rows'"):
        transaction.commit()
    with pytest.raises(StageMismatch, match="has no stage 'other'"):
        transaction.stage("other", ())
    again = transaction.stage("rows", ())
    transaction.stage("index", (), made_from={"rows": again}, metrics={"entries": 2})
    receipt = resume(new_job(job.world).timeline, "w", 1).commit(metrics={"more": 1})
    assert receipt.metrics == {"entries": 2, "more": 1}


def test_a_damaged_manifest_is_refused(job: work.Job) -> None:
    transaction = job.begin("upsert", "w", stages=("rows",))
    transaction.stage("rows", ())
    job.store.put(f"{transaction.folder}/stage-rows.json", b"{")
    with pytest.raises(StageMismatch, match="is damaged"):
        transaction.commit()


@pytest.mark.parametrize("damage", ["gone", "truncated"])
def test_staged_files_that_are_not_as_staged_are_not_committed(job: work.Job, damage: str) -> None:
    transaction = job.begin("upsert", "w")
    actions, reads, writes = work.deltas(job, transaction, "work", A, {"0": 1})
    path = actions[-1].path  # type: ignore[union-attr]
    if damage == "gone":
        del job.world.objects.bodies[path]
    else:
        job.world.objects.bodies[path] = (b"", 0.0)
    with pytest.raises(StageMismatch, match=f"the first is {path}"):
        transaction.commit(actions, reads=reads, writes=writes)


def test_an_unknown_attempt_and_a_bad_name_are_told(job: work.Job) -> None:
    with pytest.raises(TransactionNotFound, match="knows no attempt 3 of transaction w"):
        resume(job.timeline, "w", 3)
    for name in ("a/b", "..", "a'b", "a\nb", ""):
        with pytest.raises(InvalidName, match="Nothing was changed"):
            begin(job.timeline, operation="upsert", txn_id=name)
        with pytest.raises(InvalidName):
            job.begin("upsert", "w", stages=(name,))


def test_a_commit_that_changes_more_than_it_says_is_refused(job: work.Job) -> None:
    upsert(job, "w", k0=1)
    transaction = job.begin("upsert", "x")
    file = job.timeline.head.files(DATA_TREE)[0]
    with pytest.raises(InvalidInput, match="does not say that it writes there"):
        transaction.commit((AddFile(DATA_TREE, A, "1", "p", "delta", 1, 1),), writes=(Write(group_scope(A, "0")),))
    with pytest.raises(InvalidInput, match="says only that it appends"):
        transaction.commit((RemoveFile(DATA_TREE, file.path),), writes=(Write(group_scope(A, "0")),))


APPEND, FOLD, BACKDATED, REPLACE = "append", "fold", "backdated", "replace"


@pytest.mark.parametrize(
    ("mine", "theirs", "refused"),
    [
        (APPEND, APPEND, False),
        (APPEND, FOLD, False),
        (FOLD, APPEND, False),
        (APPEND, BACKDATED, False),
        (BACKDATED, APPEND, False),
        (FOLD, FOLD, True),
        (FOLD, BACKDATED, True),
        (BACKDATED, FOLD, True),
        (REPLACE, APPEND, True),
        (APPEND, REPLACE, True),
        (REPLACE, FOLD, True),
        (REPLACE, REPLACE, True),
    ],
)
def test_two_commits_on_one_scope_commute_or_the_second_is_refused(
    job: work.Job, mine: str, theirs: str, refused: bool
) -> None:
    first, second = job.begin("one", "first"), job.begin("two", "second")
    first.commit((), writes=(Write(group_scope(A, "0"), theirs),))  # type: ignore[arg-type]
    writes = (Write(group_scope(A, "0"), mine),)  # type: ignore[arg-type]
    if not refused:
        assert second.commit((), writes=writes).version == 2
        return
    with pytest.raises(ConcurrentWrite, match=r"two .*needs bucket p=a/0, and one .* has changed bucket p=a/0"):
        second.commit((), writes=writes)


def test_what_was_read_must_not_have_changed_but_may_have_been_folded(job: work.Job) -> None:
    for txn, mode, refused in (("a", APPEND, True), ("b", FOLD, False), ("c", REPLACE, True)):
        reader = job.begin("reader", f"{txn}.reader")
        job.begin("writer", txn).commit((), writes=(Write(group_scope(A, "0"), mode),))  # type: ignore[arg-type]
        if refused:
            with pytest.raises(ConcurrentWrite):
                reader.commit((), reads=(partition_scope(A),))
        else:
            reader.commit((), reads=(partition_scope(A),))


@pytest.mark.parametrize("made", ["by_v", "By_V"])
def test_who_relies_on_the_indexes_that_there_are_meets_one_that_is_made_and_none_that_is_folded(
    job: work.Job, made: str
) -> None:
    for txn, mode, refused in (("a", REPLACE, True), ("b", FOLD, False)):
        reader, other = job.begin("rename_column", f"{txn}.reader"), job.begin("create_index", f"{txn}.other")
        job.begin("create_index", txn).commit((), writes=(Write(definition_scope(made), mode),))  # type: ignore[arg-type]
        with pytest.raises(ConcurrentWrite, match=f"needs definition by_v, and .* has changed definition {made}"):
            other.commit((), writes=(Write(definition_scope("by_v"), REPLACE),))
        if refused:
            with pytest.raises(ConcurrentWrite, match="needs the definitions of indexes, and"):
                reader.commit((), reads=(DEFINITIONS_SCOPE,))
        else:
            reader.commit((), reads=(DEFINITIONS_SCOPE,))


def test_disjoint_buckets_are_rebased(job: work.Job) -> None:
    one, two = job.begin("one", "first"), job.begin("two", "second")
    one.commit((), writes=(Write(group_scope(A, "0"), REPLACE),))
    assert two.commit((), writes=(Write(group_scope(A, "1"), REPLACE),)).version == 2


def test_shards_of_a_unique_index_conflict_only_where_the_keys_do(job: work.Job) -> None:
    writes = (Write(shard_scope("index/i@1", "0")),)
    one, two, three = (job.begin("w", f"t{n}") for n in range(3))
    one.commit((), writes=writes)
    two.commit((), writes=writes, keys_conflict=lambda _scope, _theirs: False)
    with pytest.raises(ConcurrentWrite):
        three.commit((), writes=writes, keys_conflict=lambda _scope, theirs: theirs.txn_id == "t0")


def test_a_new_partition_meets_a_new_hashing_config(job: work.Job) -> None:
    writer = job.begin("upsert", "w")
    config = PutHashingConfig(HashingConfig("20260101000000000", 8))
    job.begin("configure", "c").commit((config,), writes=(Write(CONFIG_SCOPE, REPLACE),))
    actions, reads, writes = work.deltas(job, writer, "work", B, {"0": 1})
    with pytest.raises(ConcurrentWrite, match="needs config"):
        writer.commit(actions, reads=reads, writes=writes)


def test_two_first_writers_with_different_bucket_counts_cannot_both_get_in(job: work.Job) -> None:
    one, two = job.begin("upsert", "first"), job.begin("upsert", "second")
    one.commit((PutPartition(A, 4),), writes=(Write(group_scope(A, "3")),))
    with pytest.raises(BucketCountMismatch, match=r"has 4 buckets; upsert .* was written with 8"):
        two.commit((PutPartition(A, 8),), writes=(Write(group_scope(A, "5")),))
    three = job.begin("upsert", "third")
    path, size = job.write_file(three.data_folder("work"), "x", {})
    file = AddFile(DATA_TREE, A, "4", path, "delta", 0, size)
    with pytest.raises(BucketCountMismatch, match="wrote a file of bucket 4"):
        three.commit((file,), writes=(Write(group_scope(A, "4")),))


def test_a_commit_of_unknown_outcome_says_so_and_is_found_when_it_landed(job: work.Job, world: work.World) -> None:
    down: list[str] = []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and key == commit_key(1):
            down.append(key)
            return LATE if len(down) == 1 else ERROR_BEFORE
        return ERROR_BEFORE if down else OK

    job.store.gate = gate
    with pytest.raises(CommitStateUnknown, match="It is unknown whether the commit landed; all files are kept"):
        upsert(job, "w", k0=1)
    world.objects.land()
    other = new_job(world)
    with pytest.raises(AlreadyCommitted):
        other.begin("upsert", "w")
    assert table_of(other.store, other.timeline.refresh()) == {(A, "0"): 1}


def test_a_base_that_a_cleaner_expired_before_it_saw_the_request_is_not_relied_on(
    job: work.Job, world: work.World
) -> None:
    for number in range(3):
        upsert(job, f"w{number}", A, k0=number)
    world.objects.now += 60
    cleaner, seen = new_job(world), []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and key.endswith("requested.json") and not seen:
            seen.append(key)
            upsert(cleaner, "meanwhile", B, k0=1)
            world.objects.now += 60
            work.clean(cleaner, "clean", 1, 0.0, 1e9)
        return OK

    late = new_job(world)
    late.timeline.refresh()
    late.store.gate = gate
    transaction = late.begin("upsert", "late")
    assert seen
    assert transaction.base.version >= world.checker.head.expired_below
    assert [request.attempt for request in transactions.live_requests(late.timeline)] == [transaction.attempt] == [2]


def test_a_version_to_be_restored_that_a_cleaner_expired_first_is_refused(job: work.Job, world: work.World) -> None:
    upsert(job, "w", A, k0=1)
    upsert(job, "x", A, k0=2)
    world.objects.now += 60
    cleaner, seen = new_job(world), []

    def gate(verb: str, key: str) -> str:
        if verb == "create" and key.endswith("requested.json") and not seen:
            seen.append(key)
            work.clean(cleaner, "clean", 1, 0.0, 1e9)
        return OK

    late = new_job(world)
    late.store.gate = gate
    with pytest.raises(SnapshotExpired):
        restore(late.timeline, 1, txn_id="back")
    assert transactions.live_requests(late.timeline) == []


def test_a_try_that_claims_late_does_not_displace_its_successor(job: work.Job) -> None:
    transaction = job.begin("transaction", "t", stages=("rows",))
    later = resume(new_job(job.world).timeline, "t", 1)
    token = later.claim("rows", 2)
    later.stage("rows", (), inputs="new", token=token)

    with pytest.raises(StageMismatch, match="Try 1 of stage 'rows' is late: try 2 has claimed"):
        transaction.claim("rows", 1)

    assert transaction.staged("rows")[0].inputs == "new"
    assert later.commit().version == 1


def test_a_try_that_sleeps_in_its_claim_does_not_displace_its_successor(job: work.Job) -> None:
    transaction = job.begin("transaction", "t", stages=("rows",))

    def successor(verb: str, _key: str) -> str:
        if verb == "put":  # the claim is on its way
            job.store.gate = lambda *_: OK
            later = resume(new_job(job.world).timeline, "t", 1)
            later.stage("rows", (), inputs="new", token=later.claim("rows", 2))
        return OK

    job.store.gate = successor
    transaction.stage("rows", (), inputs="old", token=transaction.claim("rows", 1))

    assert transaction.staged("rows")[0].inputs == "new"


def test_a_try_of_the_same_number_and_one_without_a_number_come_behind_those_before(job: work.Job) -> None:
    transaction = job.begin("transaction", "t", stages=("rows", "rows-1"))
    for number, inputs in ((None, "one"), (3, "two"), (3, "driver begun again"), (None, "by hand"), (4, "cleared")):
        transaction.stage("rows", (), inputs=inputs, token=transaction.claim("rows", number))
        assert transaction.staged("rows")[0].inputs == inputs
    with pytest.raises(StageMismatch, match="was not staged"):
        transaction.staged("rows-1")


def test_a_claim_of_before_tries_had_numbers_counts_until_there_is_another(job: work.Job) -> None:
    transaction = job.begin("transaction", "t", stages=("rows",))
    job.store.put(f"{transaction.folder}/claim-rows.json", b'{"token":"old","at":1.0}')
    transaction.stage("rows", (), inputs="old", token="old")
    assert transaction.staged("rows")[0].inputs == "old"
    transaction.stage("rows", (), inputs="new", token=transaction.claim("rows", 1))
    assert transaction.staged("rows")[0].inputs == "new"
