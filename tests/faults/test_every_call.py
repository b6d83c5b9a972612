"""Every call that a scenario makes to the store fails in every way; then a new process recovers, and all is checked.

A fault point is a scenario, one of its calls, what becomes of the call, and, for a request that lands late, when. None
is left out by hand: the calls are counted by running the scenario once. The run prints how many points were tried.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from spark_apps.storage.errors import (
    AlreadyCommitted,
    AttemptAborted,
    CommitRefused,
    ConcurrentWrite,
    LakeIndexError,
    StorageError,
    TableExists,
    WindowNotOpen,
)
from spark_apps.timeline import checkpoints, cleaning, creation, log, publish, sidecars, state
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, resume
from tests.simulation import staged, work
from tests.simulation.checker import Violation
from tests.simulation.reading import check_all
from tests.simulation.store import (
    CHANGING,
    CRASH_AFTER,
    CRASH_BEFORE,
    CRASH_LATE,
    ERROR_AFTER,
    ERROR_BEFORE,
    EXISTS,
    LATE,
    OK,
    Crash,
    SimulatedStore,
)

# `make faults` tries every moment of every late request; a plain test run tries every fifth, and all other points.
ALL = os.environ.get("FAULTS") == "all"
LATE_CUT = 5

A, B = work.PARTITIONS
DOWN = "landed late, and the store is not reached any more"


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs undisturbed; ``run`` is disturbed, then run again by the recovery; ``commits`` stand then."""

    name: str
    prepare: Callable[[work.World], None]
    run: Callable[[work.Job], Any]
    commits: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """``lands``: when a late request arrives: (in the disturbed run, 0, or in the recovery, 1; before which call)."""

    call: int
    fault: str
    lands: tuple[int, int] = (0, 0)


class Process:
    """Counts the calls of one process, applies the fault at its point, and lets late requests land when it is time."""

    def __init__(self, world: work.World, run: int, point: Point | None) -> None:
        self.world, self.run, self.point = world, run, point
        self.calls: list[str] = []
        self.store = SimulatedStore(world.objects, self._gate)
        self.timeline = Timeline(self.store, lambda: world.objects.now)
        self.timeline.sleep = self._sleep

    def job(self) -> work.Job:
        return work.Job(self.world, self.store, self.timeline)

    def _sleep(self, seconds: float) -> None:
        self.world.objects.now += seconds

    def _gate(self, verb: str, key: str) -> str:
        number = len(self.calls)
        self.calls.append(verb)
        self.world.objects.now += 0.01
        if self.point is None:
            return OK
        point = self.point
        if point.fault in (LATE, CRASH_LATE, DOWN) and (self.run, number) == point.lands:
            self.world.objects.land()
        if self.run == 1 or number < point.call or (number > point.call and point.fault != DOWN):
            return OK
        if point.fault == DOWN:
            return LATE if number == point.call else ERROR_BEFORE
        return point.fault


# --- the scenarios ---------------------------------------------------------------------------------------------------


def effect(world: work.World, txn: str, partition: str, changes: work.Changes) -> None:
    world.effects[txn] = work.changing(partition, changes)


def some_rows(world: work.World) -> None:
    """Two partitions, several versions, deltas in each group, an index that lags in one partition."""
    job = Process(world, 0, None).job()
    for txn, partition, changes in (
        ("load-a", A, {"0": 1, "1": 2, "2": 3}),
        ("load-b", B, {"0": 4, "1": 5}),
        ("more-a", A, {"0": 6, "2": None, "3": 7}),
    ):
        effect(world, txn, partition, changes)
        work.upsert(job, txn, partition, changes, maintain=partition == A)
    world.objects.now += 100


def nothing(_world: work.World) -> None:
    pass


def write(job: work.Job, fence: bool = False) -> None:
    effect(job.world, "w", B, {"1": 8, "2": 9})
    work.upsert(job, "w", B, {"1": 8, "2": 9}, fence=fence)


def write_fenced(job: work.Job) -> None:
    write(job, fence=True)


def write_in_stages(job: work.Job) -> None:
    effect(job.world, "s", A, {"1": None, "2": 9})
    work.upsert_in_stages(job, "s", A, {"1": None, "2": 9})


def transaction_of_tasks(job: work.Job) -> None:
    effect(job.world, "t", A, {"1": None, "2": 9, "4": 4})
    staged.transaction_of_tasks(job, "t", A, {"1": None, "2": 9, "4": 4}, twice=True)


def rolled_back_beside_another(job: work.Job) -> None:
    staged.rolled_back(job, "t", A, {"1": 5})
    with pytest.raises(AttemptAborted):
        resume(job.timeline, "t", job.attempt or 1)
    write(job)


def compact_and_refresh(job: work.Job) -> None:
    for operation, txn, *rest in (
        (work.compact, "c", A, "0"),
        (work.refresh_index, "r"),
        (work.compact_index, "ci", "0"),
    ):
        try:
            operation(job, txn, *rest)
        except AlreadyCommitted:
            continue


def rescale_in_window(job: work.Job) -> None:
    try:
        work.rescale_in_window(job, "rescale", A, 3, seconds=250)
    except WindowNotOpen:
        if not any(commit["txn_id"] == "rescale.close" for commit in job.world.checker.commits):
            raise


def change_rules(job: work.Job) -> None:
    for txn, count in (("rules", 3), ("other-rules", 4)):
        try:
            work.rescale(job, txn, A, count, rules=True)
        except AlreadyCommitted:
            continue


def with_a_writer_at_work(world: work.World) -> None:
    some_rows(world)
    effect(world, "sleeper", A, {"1": 77})
    job = Process(world, 0, None).job()
    transaction = job.begin("upsert", "sleeper", stages=("rows",))
    actions, reads, writes = work.deltas(job, transaction, "rows", A, {"1": 77})
    transaction.stage("rows", actions, reads=reads, writes=writes)
    world.sleeping = transaction


def abort_the_sleeper(job: work.Job) -> None:
    abort(job.timeline, "sleeper", 1, "taken for dead")
    with pytest.raises(AttemptAborted):
        job.world.sleeping.commit()
    with pytest.raises(AttemptAborted):
        resume(job.timeline, "sleeper", 1)


def with_garbage(world: work.World) -> None:
    """An old version that a live attempt needs, files of an aborted attempt, files that compaction left behind."""
    with_a_writer_at_work(world)
    job = Process(world, 0, None).job()
    effect(world, "dead", A, {"5": 1})
    transaction = job.begin("upsert", "dead")
    work.deltas(job, transaction, "work", A, {"5": 1})
    transaction.abort("dead")
    work.compact(job, "c", A, "0")
    world.effects["o"] = work.overwriting(B, {"0": 1})
    work.overwrite(job, "o", B, {"0": 1})
    world.objects.now += 100


def clean(job: work.Job) -> None:
    work.clean(job, "clean", 1, 0.0, 1000.0)


def restore(job: work.Job) -> None:
    work.restore(job.timeline, 2, txn_id="back")


def nearly_due_for_a_checkpoint(world: work.World) -> None:
    job = Process(world, 0, None).job()
    for number in range(3):
        effect(world, f"w{number}", A, {str(number % 6): number})
        work.upsert(job, f"w{number}", A, {str(number % 6): number}, maintain=False)


def checkpoint(job: work.Job) -> None:
    for txn in ("w4", "w5"):
        effect(job.world, txn, B, {"1": 8})
        try:
            work.upsert(job, txn, B, {"1": 8})
        except AlreadyCommitted:
            continue
    checkpoints.write(job.store, job.timeline.refresh())
    Timeline.load(job.store, job.timeline.clock)


def create(job: work.Job) -> None:
    try:
        work.create(job.store, job.timeline, "create")
    except TableExists:
        raise Violation("The retry did not find its own table.") from None


SCENARIOS = (
    Scenario("create", nothing, create, ("create",)),
    Scenario("write", some_rows, write, ("w",)),
    Scenario("write, the retry ends the first attempt", some_rows, write_fenced, ("w",)),
    Scenario("write with a sidecar", some_rows, write, ("w",)),
    Scenario("write and two index stages", some_rows, write_in_stages, ("s",)),
    Scenario("transaction of tasks, each tried twice", some_rows, transaction_of_tasks, ("t",)),
    Scenario("transaction rolled back beside another write", some_rows, rolled_back_beside_another, ("w",)),
    Scenario("compact, refresh and compact the index", some_rows, compact_and_refresh, ("c", "r", "ci")),
    Scenario("window with rescale", with_a_writer_at_work, rescale_in_window,
             ("rescale.open", "rescale", "rescale.close")),
    Scenario("change of rules with archive", some_rows, change_rules, ("rules", "other-rules")),
    Scenario("abort of a sleeping writer", with_a_writer_at_work, abort_the_sleeper, ()),
    Scenario("clean", with_garbage, clean, ()),
    Scenario("restore", some_rows, restore, ("back",)),
    Scenario("checkpoint", nearly_due_for_a_checkpoint, checkpoint, ("w4", "w5")),
)  # fmt: skip


# --- trying one point ------------------------------------------------------------------------------------------------


def new_world(scenario: Scenario) -> work.World:
    world = work.World(created=scenario.name != "create")
    scenario.prepare(world)
    return world


def points_of(scenario: Scenario) -> Iterator[Point]:
    """All points of a scenario; a late request lands before one of the next calls, or before one of the recovery's."""
    world = new_world(scenario)
    process = Process(world, 0, None)
    scenario.run(process.job())
    for call, verb in enumerate(process.calls):
        faults = [CRASH_BEFORE, CRASH_AFTER, ERROR_BEFORE, ERROR_AFTER]
        for fault in faults + [EXISTS] * (verb == "create"):
            yield Point(call, fault)
        if verb in CHANGING:
            yield from (Point(call, LATE, (0, call + later)) for later in (1, 2, 3, 5))
            # A commit may land before any call of the recovery; other writes are tried at some of them.
            in_recovery = range(len(process.calls)) if verb == "create" else (0, 1, 3, 6, 10, 20)
            for fault in (CRASH_LATE, DOWN):
                yield from (Point(call, fault, (1, later)) for later in in_recovery)


def try_point(scenario: Scenario, point: Point) -> None:
    """Disturb, recover, check.

    :raises Violation: if a guarantee does not hold.
    """
    world = new_world(scenario)
    job = Process(world, 0, point).job()
    try:
        scenario.run(job)
    except Crash:
        pass
    except LakeIndexError as error:
        world.checker.told(scenario.commits[0] if scenario.commits else "", job.attempt, None, error)
    job = Process(world, 1, point).job()
    recover(scenario, job)
    standing = [commit["txn_id"] for commit in world.checker.commits]
    missing = [txn for txn in scenario.commits if txn not in standing]
    if missing:
        raise Violation(f"After the recovery {missing} have not committed.")
    check_all(world.checker)
    while world.objects.on_their_way:
        world.objects.land()
    world.objects.now += 1000
    work.clean(Process(world, 1, None).job(), "last-clean", 1, 0.0, 10.0)
    check_all(world.checker)
    check_no_garbage(world)


def recover(scenario: Scenario, job: work.Job) -> None:
    for _ in range(3):
        try:
            scenario.run(job)
            return
        except AlreadyCommitted as error:
            job.world.checker.told(scenario.commits[0], None, None, error)
            return
        except ConcurrentWrite:
            continue  # with what landed late: a retry starts from it
    raise Violation("The recovery was refused three times.")


def check_no_garbage(world: work.World) -> None:
    """Once every attempt has ended and only one version is kept, nothing else is left."""
    needed = {path for _, path in world.checker.head.files}
    stored = {key for key in world.objects.bodies if key.startswith(("data/", "_index/indexes/"))}
    kept = range(world.checker.head.expired_below, world.checker.head.version + 1)
    needed |= {path for version in kept for _, path in world.checker.versions[version].files}
    folders = ("_index/hashing/config/", "_index/hashing/meta/")
    stored |= {key for key in world.objects.bodies if key.startswith(folders)}
    head = Timeline.load(SimulatedStore(world.objects)).head
    needed |= {*head.config_paths.values(), *head.meta_paths}
    if stored != needed:
        raise Violation(f"Left over: {sorted(stored - needed)}; lost: {sorted(needed - stored)}.")


def late(points: list[Point]) -> list[Point]:
    return [point for point in points if point.fault in (LATE, CRASH_LATE, DOWN)]


def without_late(points: list[Point]) -> list[Point]:
    return [point for point in points if point.fault not in (LATE, CRASH_LATE, DOWN)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_call_may_fail_in_every_way(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "sidecar" in scenario.name:
        monkeypatch.setattr(sidecars, "INLINE_ACTIONS", 1)
    if "archive" in scenario.name:
        monkeypatch.setattr(state, "CONFIGS_KEPT", 1)
        monkeypatch.setattr(state, "METAS_KEPT", 1)
    monkeypatch.setattr(checkpoints, "_EVERY_COMMITS", 5)
    tried = 0
    points = list(points_of(scenario))
    for point in points if ALL else [*without_late(points), *late(points)[::LATE_CUT]]:
        try:
            try_point(scenario, point)
        except Exception as error:
            raise AssertionError(f"{scenario.name}: {point}: {type(error).__name__}: {error}") from error
        tried += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{scenario.name}: {tried} of {len(points)} fault points\n")
    assert tried > 0


def _lost(store: Any, key: str, body: bytes, _sleep: Any) -> bytes:
    """Create without reading back: an error means that nothing landed."""
    try:
        store.create(key, body)
    except StorageError:
        raise CommitRefused("The store answered with an error.") from None
    return body


@pytest.mark.parametrize(
    ("target", "name", "planted", "scenario"),
    [
        (log, "write_once", _lost, "write"),
        (cleaning, "live_requests", lambda _timeline: [], "clean"),
        (publish, "check_not_aborted", lambda *_: None, "abort of a sleeping writer"),
        (publish, "check_not_committed", lambda *_: None, "write"),
        (creation, "check_not_committed", lambda *_: None, "create"),
    ],
    ids=["read-back skipped", "blind cleaner", "abort not seen", "own commit not seen", "own creation not seen"],
)
def test_a_planted_bug_is_found_by_a_fault_point(
    target: Any, name: str, planted: Any, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, name, planted)
    chosen = next(known for known in SCENARIOS if known.name == scenario)
    with pytest.raises((Violation, pytest.fail.Exception, TableExists)):
        for point in points_of(chosen):
            try_point(chosen, point)
