"""Drivers at work are killed by -9, at any moment of their run, with their JVM or leaving it behind.

Whatever they were doing, the table shows the state before it or the one after, a retry does it exactly once, and the
cleaner leaves nothing of them. A JVM left behind goes on with the Spark job that nobody waits for any more.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_apps import IndexedTable
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.transactions import abort, find_receipt, live_attempts_of
from tests.simulation.driver import CALLS, WORK, Calls, prepare
from tests.spark_apps.small_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.timeout(1200)]

# `make faults` tries more moments.
ALL = os.environ.get("FAULTS") == "all"
MOMENTS = range(12 if ALL else 2)
OWN_JVM = range(6 if ALL else 2)
ROOT = Path(__file__).parents[2]
TXN = "killed"
COLD_SECONDS = 10.0
"""What an upsert takes in a JVM that has just started, about."""


@dataclass(frozen=True)
class Seen:
    """What a reader sees of a table. ``indexes``: name -> (state, lagging file groups)."""

    rows: tuple[Any, ...]
    buckets: dict[str, int | None]
    indexes: dict[str, tuple[str, int]]
    folded: bool


def look(table: IndexedTable) -> Seen:
    rows = tuple(rows_of(table))
    buckets = {path: info.buckets for path, info in table.partitions.items()}
    indexes = {name: (info.state, info.lagging) for name, info in table.indexes.items()}
    groups = table.snapshot.groups(DATA_TREE).values()
    return Seen(rows, buckets, indexes, all(len(files) == 1 for files in groups))


@dataclass(frozen=True)
class Course:
    """An undisturbed run: what is seen before and after, how long it took, how many calls to the store it made."""

    before: Seen
    after: Seen
    seconds: float
    calls: int


@dataclass(frozen=True)
class Moment:
    """After so many seconds; or at a call to the store, before it or ``after`` it."""

    seconds: float | None
    call: int | None = None
    after: bool = False

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:.1f} s"
        return f"call {self.call}, {'after' if self.after else 'before'} it"

    @classmethod
    def draw(cls, course: Course, seed: str, part: int, parts: int) -> Moment:
        """A moment in one of several parts of the run: of its time, or for every other one of its calls."""
        rng = random.Random(seed)
        place = (part + rng.random()) / parts
        if rng.random() < 0.5:
            return cls(place * course.seconds * 1.1)
        return cls(None, 1 + int(place * course.calls), rng.random() < 0.5)


class Driver:
    """A driver process in a group of its own."""

    def __init__(self, path: Path, work: str, gateway: Any | None = None) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
        if gateway is not None:
            parameters = gateway.gateway_parameters
            env |= {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
        self.said = path.with_suffix(".log")
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.simulation.driver", str(path), work, TXN],
                cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.said.read_text()

    def killed_at(self, moment: Moment, victim: str = "driver") -> None:
        """Sets the driver going, and returns when it is no more: killed, or done before it came to that.

        :param victim: ``driver`` with all that is in its group, or ``jvm`` alone.
        """
        assert self.process.stdin is not None
        command = "" if moment.call is None else f"{moment.call} {'after' if moment.after else 'before'}"
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        try:
            if moment.seconds is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(moment.seconds)
                self._kill(victim)
            self.process.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):  # of its group a JVM may be left
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _kill(self, victim: str) -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if victim == "jvm":
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    child.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def base(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "base"
    prepare(spark, path)
    return path


@pytest.fixture(scope="module")
def courses(spark: Any, base: Path) -> Callable[[str], Course]:
    """The undisturbed course of a kind of work, the second time: a JVM that knows the work is much quicker."""

    @functools.cache
    def course(work: str) -> Course:
        WORK[work](IndexedTable.load(spark, shutil.copytree(base, base.with_name(f"{work}-first"))), TXN)
        table = IndexedTable.load(spark, shutil.copytree(base, base.with_name(f"{work}-whole")))
        before = look(table)
        with pytest.MonkeyPatch.context() as patch:
            for verb in CALLS:
                patch.setattr(Store, verb, getattr(Store, verb))  # and put back at the end
            calls = Calls(None, False)
            calls.count()
            started = time.monotonic()
            WORK[work](table, TXN)
            seconds = time.monotonic() - started
        return Course(before, look(table), seconds, calls.made)

    return course


@pytest.mark.parametrize("number", MOMENTS)
@pytest.mark.parametrize("work", WORK)
def test_given_a_driver_killed_at_any_moment_then_its_work_is_done_wholly_or_not_at_all_and_a_retry_does_it_once(
    spark: Any,
    base: Path,
    courses: Callable[[str], Course],
    work: str,
    number: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = courses(work)
    path = Path(shutil.copytree(base, base.with_name(f"{work}-{number}")))

    moment = Moment.draw(course, f"{work} {number}", number, len(MOMENTS))
    Driver(path, work, spark.sparkContext._gateway).killed_at(moment)

    outcome = check(spark, path, work, course, give_up=number % 2 == 1)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{work} of {course.seconds:.1f} s and {course.calls} calls, killed at {moment}: {outcome}\n"
        )


@pytest.mark.parametrize("number", OWN_JVM)
def test_given_a_jvm_killed_with_its_driver_or_alone_then_nothing_half_done_is_seen_either(
    spark: Any, base: Path, courses: Callable[[str], Course], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(base, base.with_name(f"jvm-{number}")))

    moment = Moment((number + random.Random(number).random()) / len(OWN_JVM) * COLD_SECONDS)
    victim = "jvm" if number % 2 else "driver"
    Driver(path, "upsert").killed_at(moment, victim)

    outcome = check(spark, path, "upsert", courses("upsert"), give_up=number % 2 == 0)
    with capsys.disabled():
        sys.stdout.write(f"\n{victim} killed at {moment}: {outcome}\n")


def check(spark: Any, path: Path, work: str, course: Course, *, give_up: bool) -> str:
    """That the table is as it was or as it was to be; then that a retry and a cleaning bring everything in order.

    :returns: what the killed driver had come to.
    """
    timeline = Timeline.load(Store(path))
    committed, begun = find_receipt(timeline, TXN) is not None, len(live_attempts_of(timeline, TXN))
    assert look(IndexedTable.load(spark, path)) == (course.after if committed else course.before)
    if give_up and not committed:
        for attempt in live_attempts_of(timeline, TXN):
            abort(timeline, TXN, attempt, "taken for dead")
        wait_for_jobs(spark)
        clean(timeline, path)
        assert look(IndexedTable.load(spark, path)) == course.before

    table = IndexedTable.load(spark, path)
    WORK[work](table, TXN)

    assert look(table) == course.after
    assert [commit.txn_id for commit in Timeline.load(Store(path)).commits()].count(TXN) == 1
    assert set(table.indexes) == {"rec", "city", *(["n"] if work == "build" else [])}
    assert all(table.verify(name).ok for name in table.indexes)
    wait_for_jobs(spark)
    clean(timeline, path)
    assert look(IndexedTable.load(spark, path)).rows == course.after.rows
    return "it had committed" if committed else f"{begun} attempts had begun"


def wait_for_jobs(spark: Any) -> None:
    """Waits for the jobs of drivers that are no more: they write on, below folders that nobody lists."""
    deadline = time.monotonic() + 60
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.2)  # a job's output is put in place after its last task


def clean(timeline: Timeline, path: Path) -> None:
    """Cleans, keeping one version; all that is then stored is what this version needs."""
    cleaning.clean(timeline, retain_versions=1, retain_seconds=0, presumed_dead_seconds=0)
    stored = {
        str(file.relative_to(path))
        for folder in ("data", "_index/indexes")
        for file in (path / folder).rglob("*")
        if file.is_file() and not file.name.endswith(".crc")  # the checksums of files that stay
    }
    state = timeline.refresh()
    trees = [DATA_TREE, *(entry.definition.tree for entry in state.indexes.values())]
    assert stored == {file.path for tree in trees for file in state.files(tree)}
