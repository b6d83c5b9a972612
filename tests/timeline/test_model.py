"""Random histories: several processes that stop for any time, fail, crash and go on, judged by an independent checker.

``HISTORIES`` says how many (``make model``: 10,000); without it each commit takes others, and some of the bugs planted
at the end, which show that the judge sees.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from msgspec.structs import replace

from spark_apps.storage.errors import (
    AlreadyCommitted,
    CommitRefused,
    CommitStateUnknown,
    CommitUndone,
    IndexNotFound,
    InvalidInput,
    ObjectExists,
    ObjectNotFound,
    SnapshotExpired,
    StorageError,
    StorageUnavailable,
    TableExists,
    TableNotFound,
    WindowError,
)
from spark_apps.timeline import cleaning, commit, files, log, state, windows
from spark_apps.timeline import restore as restoring
from spark_apps.timeline.model import DropTable
from tests.simulation import staged, work
from tests.simulation.actors import Actor
from tests.simulation.checker import Violation
from tests.simulation.reading import check_all
from tests.simulation.store import CRASH_LATE, ERROR_AFTER, ERROR_BEFORE, EXISTS, LATE
from tests.turns import turn

PLANTED_WITHIN = 2000
HISTORIES = int(os.environ.get("HISTORIES", "100"))
OUTCOMES = (AlreadyCommitted, CommitUndone, CommitRefused, CommitStateUnknown, SnapshotExpired, StorageUnavailable,
        WindowError)  # fmt: skip

GONE = (TableNotFound, IndexNotFound, TableExists)

actors = st.integers(0, 2)
keys = st.sampled_from(work.KEYS)
partitions = st.sampled_from(work.PARTITIONS)
changes = st.dictionaries(keys, st.one_of(st.none(), st.integers(0, 99)), min_size=1, max_size=3)
Calls = int | str | None
calls = st.one_of(st.none(), st.just("commit"), st.integers(0, 25))
RESCALES = (work.rescale, work.rescale_in_window, partial(work.rescale, rules=True))
faults = st.sampled_from((ERROR_BEFORE, ERROR_AFTER, EXISTS, LATE))


class Histories(RuleBasedStateMachine):
    """Each rule starts an operation and lets some of its calls happen, or goes on with one that stands still."""

    tried = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).tried += 1
        self.world = work.World()
        self.actors = [Actor(f"actor {n}", self.world.objects, self._finished) for n in range(3)]
        self.intents: list[tuple[str, Any]] = []
        self.epochs: list[int] = []
        self.failed = False

    def _finished(self, actor: Actor, result: Any, error: BaseException | None) -> None:
        job, txn = actor.doing
        ended = (txn, job.attempt) in self.world.checker.head.aborted
        if self.world.checker.drops and isinstance(error, GONE + (InvalidInput,) * ("restore" in txn)):
            return  # the table was dropped, or is another by now
        if ended and isinstance(error, ObjectNotFound):
            return  # it was aborted while it slept, so that a cleaner could take what it was about to read
        if error is not None and not isinstance(error, OUTCOMES):
            self.failed = True
            if isinstance(error, Violation):
                raise error
            raise Violation(f"{txn} ended with {type(error).__name__}: {error}") from error
        self.world.checker.check_outcome(txn, job.attempt, result, error)

    def _start(self, number: int, txn: str, operation: Any, calls: Calls) -> None:
        """On the actor of that number or the next one that is idle; if none is, that one goes on instead."""
        self.world.objects.now += 1.0
        order = self.actors[number:] + self.actors[:number]
        actor = next((actor for actor in order if actor.idle), None)
        if actor is None:
            order[0].go_on(calls)
            return
        job = work.Job(self.world, actor.store, actor.timeline)
        actor.start((job, txn), lambda _: operation(job))
        actor.go_on(calls)

    def _intend(self, number: int, txn: str, operation: Any, calls: Calls) -> None:
        self.intents.append((txn, operation))
        self._start(number, txn, operation, calls)

    # --- rows -------------------------------------------------------------------------------------------------

    @rule(number=actors, partition=partitions, changes=changes, maintain=st.booleans(), calls=calls)
    def upsert(self, number: int, partition: str, changes: work.Changes, maintain: bool, calls: Calls) -> None:
        txn = self.world.name("upsert")
        self.world.effects[txn] = work.changing(partition, changes)
        self._intend(number, txn, lambda job: work.upsert(job, txn, partition, changes, maintain=maintain), calls)

    @rule(number=actors, partition=partitions, changes=changes, calls=calls)
    def upsert_in_stages(self, number: int, partition: str, changes: work.Changes, calls: Calls) -> None:
        txn = self.world.name("stages")
        self.world.effects[txn] = work.changing(partition, changes)
        self._intend(number, txn, lambda job: work.upsert_in_stages(job, txn, partition, changes), calls)

    @rule(number=actors, partition=partitions, changes=changes, twice=st.booleans(), calls=calls)
    def transaction_of_tasks(
        self, number: int, partition: str, changes: work.Changes, twice: bool, calls: Calls
    ) -> None:
        txn = self.world.name("tasks")
        self.world.effects[txn] = work.changing(partition, changes)
        operation = partial(staged.transaction_of_tasks, txn=txn, partition=partition, changes=changes, twice=twice)
        self._intend(number, txn, operation, calls)

    @rule(number=actors, partition=partitions, key=keys, calls=calls)
    def increment(self, number: int, partition: str, key: str, calls: Calls) -> None:
        txn = self.world.name("increment")
        self.world.effects[txn] = work.incrementing(partition, key)
        self._intend(number, txn, lambda job: work.increment(job, txn, partition, key), calls)

    @rule(number=actors, partition=partitions, rows=st.dictionaries(keys, st.integers(0, 99), max_size=4), calls=calls)
    def overwrite(self, number: int, partition: str, rows: dict[str, int], calls: Calls) -> None:
        txn = self.world.name("overwrite")
        self.world.effects[txn] = work.overwriting(partition, rows)
        self._intend(number, txn, lambda job: work.overwrite(job, txn, partition, rows), calls)

    @rule(number=actors, which=st.integers(0, 9), calls=calls)
    def try_again(self, number: int, which: int, calls: Calls) -> None:
        if self.intents:
            txn, operation = self.intents[-1 - which % len(self.intents)]
            self._start(number, txn, operation, calls)

    # --- upkeep -----------------------------------------------------------------------------------------------

    @rule(number=actors, partition=partitions, group=st.sampled_from("01"), calls=calls)
    def compact(self, number: int, partition: str, group: str, calls: Calls) -> None:
        txn = self.world.name("compact")
        self._intend(number, txn, lambda job: work.compact(job, txn, partition, group), calls)

    @rule(number=actors, shard=st.sampled_from("01"), calls=calls)
    def compact_index(self, number: int, shard: str, calls: Calls) -> None:
        txn = self.world.name("compact_index")
        self._intend(number, txn, lambda job: work.compact_index(job, txn, shard), calls)

    @rule(number=actors, calls=calls)
    def refresh_index(self, number: int, calls: Calls) -> None:
        txn = self.world.name("refresh")
        self._intend(number, txn, lambda job: work.refresh_index(job, txn), calls)

    @rule(number=actors, partition=partitions, count=st.integers(1, 4), how=st.sampled_from(RESCALES), calls=calls)
    def rescale(self, number: int, partition: str, count: int, how: Any, calls: Calls) -> None:
        txn = self.world.name("rescale")
        self._intend(number, txn, lambda job: how(job, txn, partition, count), calls)

    @rule(number=actors, back=st.integers(1, 4), calls=calls)
    def restore(self, number: int, back: int, calls: Calls) -> None:
        txn = self.world.name("restore")
        self._intend(number, txn, lambda job: work.restore_back(job, txn, back), calls)

    @rule(number=actors, keep=st.integers(1, 4), silent=st.sampled_from((1.0, 1000.0)), calls=calls)
    def clean(self, number: int, keep: int, silent: float, calls: Calls) -> None:
        txn = self.world.name("clean")
        self._start(number, txn, lambda job: work.clean(job, txn, keep, 0.0, silent), calls)

    @rule(number=actors, partition=partitions, calls=calls)
    def overwrite_and_clean(self, number: int, partition: str, calls: Calls) -> None:
        txn = self.world.name("overwrite")
        self.world.effects[txn] = work.overwriting(partition, {"0": 7})

        def run(job: work.Job) -> Any:
            work.overwrite(job, txn, partition, {"0": 7})
            return work.clean(job, f"{txn}.clean", 1, 0.0, 1000.0)

        self._start(number, f"{txn}.clean", run, calls)

    @rule(number=actors, which=st.integers(0, 9), calls=calls)
    def abort_somebody(self, number: int, which: int, calls: Calls) -> None:
        self._start(number, "abort", lambda job: work.abort_somebody(job, which), calls)

    @rule(number=actors, calls=calls)
    def checkpoint(self, number: int, calls: Calls) -> None:
        self._start(
            number, "checkpoint", lambda job: log.write_checkpoint(job.store, job.timeline.refresh()) and None, calls
        )

    # --- windows ----------------------------------------------------------------------------------------------

    @rule(number=actors, scope=st.sampled_from((None, work.PARTITIONS[:1], work.PARTITIONS)), calls=calls)
    def open_window(self, number: int, scope: tuple[str, ...] | None, calls: Calls) -> None:
        def run(job: work.Job) -> None:
            window = windows.open_window(job.timeline, "somebody", partitions=scope, seconds=50, at_most=80)
            self.epochs.append(window.epoch)

        self._start(number, "window", run, calls)

    @rule(number=actors, which=st.integers(0, 3), renew=st.booleans(), calls=calls)
    def renew_or_close(self, number: int, which: int, renew: bool, calls: Calls) -> None:
        if self.epochs:
            epoch = self.epochs[-1 - which % len(self.epochs)]
            act = windows.renew if renew else windows.close
            self._start(number, "window", lambda job: act(job.timeline, epoch) and None, calls)

    @rule(number=actors, calls=calls)
    def end_expired(self, number: int, calls: Calls) -> None:
        self._start(number, "window", lambda job: windows.end_expired(job.timeline, "anyone") and None, calls)

    @rule(number=actors, which=st.integers(0, 3), partition=partitions, changes=changes, calls=calls)
    def write_in_window(self, number: int, which: int, partition: str, changes: work.Changes, calls: Calls) -> None:
        if self.epochs:
            epoch = self.epochs[-1 - which % len(self.epochs)]
            txn = self.world.name("inside")
            self.world.effects[txn] = work.changing(partition, changes)
            self._intend(number, txn, lambda job: work.upsert(job, txn, partition, changes, window=epoch), calls)

    # --- time and trouble -------------------------------------------------------------------------------------

    @rule(number=actors, calls=calls)
    def go_on(self, number: int, calls: Calls) -> None:
        self.actors[number].go_on(calls)

    @rule(number=actors, fault=faults, calls=calls)
    def fail(self, number: int, fault: str, calls: Calls) -> None:
        self.actors[number].go_on(1, fault)
        self.actors[number].go_on(calls)

    @rule(number=actors, fault=faults, calls=calls)
    def fail_the_commit(self, number: int, fault: str, calls: Calls) -> None:
        self.actors[number].go_on("commit")
        self.actors[number].go_on(1, fault)
        self.actors[number].go_on(calls)

    @rule(number=actors)
    def crash_with_a_commit_under_way(self, number: int) -> None:
        self.actors[number].go_on("commit")
        self.actors[number].go_on(1, CRASH_LATE)

    @rule(number=actors)
    def crash(self, number: int) -> None:
        self.actors[number].crash()

    @rule()
    def land(self) -> None:
        try:
            self.world.objects.land()
        except Violation:
            self.failed = True  # what the others do from here on would hide it
            raise

    @rule(seconds=st.sampled_from((1.0, 60.0, 200.0)))
    def wait(self, seconds: float) -> None:
        self.world.objects.now += seconds

    @rule(number=actors, seconds=st.sampled_from((-500.0, 0.0, 500.0)))
    def clock_jumps(self, number: int, seconds: float) -> None:
        self.actors[number].skew = seconds

    @rule()
    def read_all(self) -> None:
        check_all(self.world.checker)

    def teardown(self) -> None:
        """Whoever stands still goes on, requests that were given up arrive, and all is read once more."""
        if self.failed:
            return
        for actor in self.actors:
            actor.go_on()
        while self.world.objects.on_their_way:
            self.world.objects.land()
        check_all(self.world.checker)


class HistoriesWithDrops(Histories):
    """The table is dropped now and then, and made anew. Apart, since little of what was going on goes on behind it."""

    @rule(number=actors, calls=calls)
    def drop_and_create(self, number: int, calls: Calls) -> None:
        txn = self.world.name("anew")
        self._intend(number, f"{txn}.create", lambda job: work.drop_and_create(job, txn), calls)


def run(
    histories: int, phases: tuple[Phase, ...] = tuple(Phase), repeatable: bool = True, machine: Any = Histories
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            derandomize=repeatable,
            print_blob=True,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def of_this_commit(machine: Any) -> Any:
    """Return the machine with histories that depend on the commit alone; with any at all if ``HISTORIES`` is given."""
    if "HISTORIES" in os.environ:
        return machine
    return seed(turn() or 0)(type(machine.__name__, (machine,), {}))


def test_random_histories_keep_the_guarantees(capsys: pytest.CaptureFixture[str]) -> None:
    run(HISTORIES, repeatable=False, machine=of_this_commit(Histories))
    with capsys.disabled():
        sys.stdout.write(f"\n{Histories.tried} histories kept the guarantees.\n")


def test_random_histories_of_tables_dropped_and_made_anew_keep_the_guarantees() -> None:
    run(HISTORIES // 5, repeatable=False, machine=of_this_commit(HistoriesWithDrops))


# --- bugs planted on purpose: the model must find each ---------------------------------------------------------------


def _read_back_skipped(patch: pytest.MonkeyPatch) -> None:
    """Any error of the create is taken for "it did not land"."""

    def careless(store: Any, key: str, body: bytes, _sleep: Any) -> bytes:
        try:
            store.create(key, body)
        except ObjectExists:
            return body + b" "  # another writer's, says a caller that did not look
        except StorageError:
            raise CommitRefused("The store answered with an error.") from None
        return body

    patch.setattr(log, "write_once", careless)
    patch.setattr(log.Timeline, "decode", _tolerant(log.Timeline.decode))


def _tolerant(decode: Any) -> Any:
    return lambda timeline, body, version: decode(timeline, body.strip(), version)


def _exists_means_mine(patch: pytest.MonkeyPatch) -> None:
    """ "Already exists" is taken for one's own write that landed."""

    def careless(store: Any, key: str, body: bytes, sleep: Any) -> bytes:
        try:
            store.create(key, body)
        except ObjectExists:
            return body
        return body

    patch.setattr(log, "write_once", careless)


def _window_checked_before_the_rebase(patch: pytest.MonkeyPatch) -> None:
    """Windows are looked at once, on the state that the first try would follow."""
    passed: set[tuple[str, int]] = set()
    check = commit.check_windows

    def once(state: Any, intent: Any, now: float) -> Any:
        if (intent.txn_id, intent.attempt) in passed:
            return None
        expired = check(state, intent, now)
        if expired is None:
            passed.add((intent.txn_id, intent.attempt))
        return expired

    patch.setattr(commit, "check_windows", once)


def _cleaner_blind_to_live_attempts(patch: pytest.MonkeyPatch) -> None:
    """The cleaner keeps what the kept versions need, and nothing for those at work."""
    patch.setattr(cleaning, "live_requests", lambda _timeline: [])


def _cleaner_takes_staged_files(patch: pytest.MonkeyPatch) -> None:
    """The cleaner takes files of attempts that may still commit."""
    patch.setattr(cleaning, "is_live", lambda *_: False)


def _abort_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A writer does not look whether it was ended."""
    patch.setattr(commit, "check_not_aborted", lambda *_: None)


def _compaction_ordered_by_its_publishing_version(patch: pytest.MonkeyPatch) -> None:
    """A base file merges at the version that published it, and so hides deltas that landed meanwhile."""
    of = files.DataFile.of.__func__  # type: ignore[attr-defined]
    late = classmethod(lambda cls, add, version: replace(of(cls, add, version), sequence_number=version))
    patch.setattr(files.DataFile, "of", late)


def _index_told_of_staged_rows_that_may_change(patch: pytest.MonkeyPatch) -> None:
    """A stage that was made from staged rows does not hold on to their file groups until the commit."""
    patch.setattr(staged, "index_task", partial(staged.index_task, locks=False))


def _drop_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A receipt of a table that was dropped is given back for the one that was made in its place."""
    patch.setattr(commit, "drop_since", lambda *_: None)
    patch.setattr(state.State, "_drop_table", _forgetting(state.State._drop_table))
    patch.setitem(state._FOLD, DropTable, state.State._drop_table)


def _forgetting(drop_table: Any) -> Any:
    def forget(folded: Any, *arguments: Any) -> None:
        drop_table(folded, *arguments)
        folded.last_drop = state.NEVER

    return forget


def _restore_of_another_table(patch: pytest.MonkeyPatch) -> None:
    """A version of a table that was dropped is restored into the one that was made in its place."""
    patch.setattr(restoring, "_check_same_table", lambda *_: None)


# Each with the words of the violation that it must be found by: any other failure is another bug.
PLANTED = (
    (_read_back_skipped, "was told that nothing was changed, but it is version"),
    (_exists_means_mine, "was told version|was aborted after its commit"),
    (_window_checked_before_the_rebase, "into window"),
    (_cleaner_blind_to_live_attempts, "was deleted and attempt"),
    (_cleaner_takes_staged_files, "was deleted and its attempt may still commit"),
    (_abort_not_seen, "after it was aborted"),
    (_compaction_ordered_by_its_publishing_version, "the log says"),
    (_index_told_of_staged_rows_that_may_change, "and lacks key"),
)
PLANTED_IN_DROPS = (
    (_drop_forgotten, "was told AlreadyCommitted of version"),
    (_restore_of_another_table, "restored a table that was dropped"),
)


@pytest.mark.parametrize(
    ("plant", "words"),
    [*PLANTED, *PLANTED_IN_DROPS],
    ids=[plant.__name__.strip("_") for plant, _ in (*PLANTED, *PLANTED_IN_DROPS)],
)
@pytest.mark.by_turn(24)
def test_a_planted_bug_is_found(
    plant: Any, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch)
    machine = HistoriesWithDrops if (plant, words) in PLANTED_IN_DROPS else Histories
    machine.tried = 0
    with pytest.raises(Violation, match=words) as caught:
        run(PLANTED_WITHIN, phases=(Phase.generate,), machine=machine)
    with capsys.disabled():
        name = plant.__name__.strip("_").replace("_", " ")
        sys.stdout.write(f"\nPlanted: {name}. Found in history {machine.tried}: {str(caught.value)[:120]}\n")
