"""What is disturbed: the work whose every call to the store may fail, and what runs undisturbed before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from spark_apps.storage.errors import AlreadyCommitted, AttemptAborted, TableExists, WindowNotOpen
from spark_apps.timeline import log
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.transactions import abort, resume
from tests.simulation import staged, work
from tests.simulation.checker import Violation
from tests.simulation.store import CRASH_LATE, ERROR_BEFORE, LATE, OK, SimulatedStore

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
    log.write_checkpoint(job.store, job.timeline.refresh())
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
