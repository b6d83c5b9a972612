"""Every call that a scenario makes to the store fails in every way; then a new process recovers, and all is checked.

A fault point is a scenario, one of its calls, what becomes of the call, and, for a request that lands late, when. None
is left out by hand: the calls are counted by running the scenario once. The run prints how many points were tried; many
commits try all of them, and so does ``make faults``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from spark_apps.storage.errors import (
    AlreadyCommitted,
    CommitRefused,
    ConcurrentWrite,
    LakeIndexError,
    StorageError,
    TableExists,
)
from spark_apps.timeline import cleaning, commit, creation, log, state
from spark_apps.timeline.log import Timeline
from tests.faults.scenarios import DOWN, SCENARIOS, Point, Process, Scenario
from tests.simulation import work
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
    Crash,
    SimulatedStore,
)
from tests.turns import of_this_turn

pytestmark = pytest.mark.by_turn(8)

# `make faults` tries every point; a plain test run some that the commit decides, of late requests fewer.
ALL = os.environ.get("FAULTS") == "all"
CUT = 8
LATE_CUT = 24


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
        world.checker.check_outcome(scenario.commits[0] if scenario.commits else "", job.attempt, None, error)
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
            job.world.checker.check_outcome(scenario.commits[0], None, None, error)
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
        monkeypatch.setattr(log, "INLINE_ACTIONS", 1)
    if "archive" in scenario.name:
        monkeypatch.setattr(state, "CONFIGS_KEPT", 1)
        monkeypatch.setattr(state, "METAS_KEPT", 1)
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 5)
    tried = 0
    points = list(points_of(scenario))
    drawn = [*of_this_turn(without_late(points), CUT, each=8), *of_this_turn(late(points), LATE_CUT, each=8)]
    for point in points if ALL else drawn:
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
        (commit, "check_not_aborted", lambda *_: None, "abort of a sleeping writer"),
        (commit, "check_not_committed", lambda *_: None, "write"),
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
