"""The power goes while a table is written in stages, compacted, rescaled in a window, restored, cleaned and dropped.

Each call to the disk is one at which it may go. ``make test`` draws some by the commit that is tested, ``FAULTS=all``
tries each, in each way of losing what was not synced.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest

from spark_apps.storage import store
from spark_apps.storage.errors import CommitUndone, StorageError, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning
from spark_apps.timeline.files import positions_path
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE, AddFile, Write, table_scope
from spark_apps.timeline.transactions import begin, find_receipt
from tests.faults.test_power import ALL, Lost, disk, drawn, real_disk
from tests.simulation import staged, work
from tests.simulation.checker import INDEX_TREE
from tests.simulation.disk import Disk, cuts
from tests.simulation.reading import table_of

__all__ = ["disk"]

EVERY = 1 if ALL else 16
"""Before each so many calls the power goes, from one on that the commit decides on."""

A, B = work.PARTITIONS


class NoChecker:
    """Stands in the place of what checks histories elsewhere: here a cut checks."""

    def __init__(self) -> None:
        self.withdrawn: set[tuple[str, int]] = set()

    def relies(self, *_: Any) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.checker = NoChecker()


class Job(work.Job):
    """A process whose data files are left to the system, as Spark leaves them."""

    def __init__(self, disk: Disk) -> None:
        store: Any = Store(disk.root)
        self.now = 1.7e9
        super().__init__(World(), store, None)  # type: ignore[arg-type]
        self.disk = disk
        self.timeline = Timeline(store, self._clock)
        self.timeline.sleep = lambda _: None

    def _clock(self) -> float:
        self.now += 1.0
        return self.now

    def write_file(self, folder: str, name: str, rows: Mapping[str, object]) -> tuple[str, int]:
        path, size = super().write_file(f"{folder}/drafts", name, rows)
        body = self.store.get(path)
        self.store.delete([path])
        path = f"{folder}/{name}.json"
        self.disk.left_by_spark(self.disk.root / path, body)
        return path, size


def prepared(job: Job) -> None:
    work.create(job.store, job.timeline, "create")
    for number, (partition, changes) in enumerate(
        ((A, {"0": 1, "1": 2, "2": 3}), (B, {"0": 4, "1": 5}), (A, {"0": 6}))
    ):
        work.upsert(job, f"load-{number}", partition, changes, maintain=number != 1)


def dropped(job: Job) -> None:
    work.drop(job, "drop")


def windows_and_rules(job: Job) -> None:
    work.rescale_in_window(job, "rescale", A, 3, seconds=250)


def clean(job: Job) -> None:
    transaction = job.begin("upsert", "gone")
    work.deltas(job, transaction, "work", A, {"5": 5})
    transaction.abort("given up")
    work.compact(job, "compact", A, "0")
    job.now += 10_000
    work.clean(job, "clean", 1, 0.0, 1.0)


def compact(job: Job) -> None:
    work.compact(job, "compact", A, "0")
    work.refresh_index(job, "refresh")
    work.upsert(job, "more", A, {"0": 9})
    work.compact_index(job, "compact-index", "0")


def stages(job: Job) -> None:
    work.upsert_in_stages(job, "stages", A, {"1": None, "2": 9})
    staged.transaction_of_tasks(job, "tasks", B, {"1": None, "4": 4}, twice=True)


def restored(job: Job) -> None:
    work.restore_back(job, "restore", 2)
    work.upsert(job, "after", A, {"0": 7})


def withdrawn(job: Job) -> None:
    work.rescale(job, "nothing", A, work.BUCKETS)
    work.upsert(job, "after", A, {"0": 7})


def overwritten(job: Job) -> None:
    work.overwrite(job, "overwrite", A, {"0": 8, "3": 1})


OPERATIONS: dict[str, Callable[[Job], Any]] = {
    "stages and tasks": stages,
    "compaction and refresh": compact,
    "a rescale in a window": windows_and_rules,
    "restore": restored,
    "cleaning": clean,
    "overwrite": overwritten,
    "an attempt with nothing to do": withdrawn,
    "drop": dropped,
}


class Watched:
    """What callers know of, and what a cut right now leaves of it."""

    def __init__(self, job: Job, into: Path) -> None:
        self.job, self.into = job, into
        self.rows: dict[int, Any] = {}

    def learn(self) -> None:
        """Notes what the table holds as of each version that can be read."""
        timeline = Timeline(self.job.store)
        state = timeline.refresh()
        for version in range(state.expired_below, state.version + 1):
            if version not in self.rows:
                self.rows[version] = table_of(self.job.store, timeline.rebuild(version))

    def check(self, names: Any, contents: Any) -> None:
        """:raises Lost: an acknowledged commit, a file of a version that can be read, or a row."""
        shutil.rmtree(self.into, ignore_errors=True)
        self.job.disk.cut(self.into, names, contents)
        store: Any = Store(self.into)
        timeline = Timeline(store)
        state = timeline.refresh()
        newest = max(self.rows)
        if state.version < newest:
            raise Lost(f"Version {newest} was acknowledged, and the log ends at {state.version}.")
        if state.dropped:
            return
        for version in range(state.expired_below, state.version + 1):
            there = timeline.at(version)
            for file in (*there.files(DATA_TREE), *there.files(INDEX_TREE)):
                if len(store.get(file.path)) != file.bytes:
                    raise Lost(f"{file.path} of version {version} has lost its bytes.")
            if version in self.rows and table_of(store, there) != self.rows[version]:
                raise Lost(f"Version {version} has other rows.")
        for txn in state.committed:
            with suppress(CommitUndone):  # reported as undone, not lost
                find_receipt(timeline, txn)
        begin(timeline, operation="afterwards", txn_id="afterwards").commit((), writes=[Write(table_scope())])
        cleaning.clean(timeline, retain_versions=1, retain_seconds=0.0, presumed_dead_seconds=0.0)


def calls_of(disk: Disk, run: Callable[[], Any], look: Callable[[int, str, Path], None]) -> int:
    """Runs with a look before each call to the disk; returns how many there were."""
    count = 0

    def before(call: str, path: Path) -> None:
        nonlocal count
        number, count = count, count + 1
        look(number, call, path)

    disk.before = before
    try:
        run()
    finally:
        disk.before = lambda _call, _path: None
    return count


@pytest.fixture
def deleting(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk, which also sees what the store's library deletes."""
    delete = obstore.delete

    def noted(store: Any, key: str) -> Any:
        path = Path(store.prefix, key)
        inside = disk.root in path.parents
        return disk.removed(path, lambda: delete(store, key)) if inside else delete(store, key)

    monkeypatch.setattr(obstore, "delete", noted)
    return disk


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_call_of_an_operation_the_power_goes_at_nothing_that_was_told_of_is_lost(
    name: str, deleting: Disk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(deleting)
    prepared(job)
    watched = Watched(job, tmp_path / "left")
    watched.learn()
    tried: Counter[str] = Counter()
    chosen = drawn()

    def look(number: int, call: str, path: Path) -> None:
        ways = cuts(number)
        for place, (way, (names, contents)) in enumerate(ways.items()):
            if ALL or ((number + chosen) % EVERY == 0 and place == (number // EVERY + chosen) % len(ways)):
                with real_disk():
                    try:
                        watched.check(names, contents)
                    except Exception as error:
                        raise Lost(f"Cut before call {number} ({call} {path.name}), {way}: {error}") from error
                tried[way] += 1

    calls = calls_of(deleting, lambda: OPERATIONS[name](job), look)
    assert deleting.unnoted() == [], "the model must have seen every write"
    with real_disk():
        try:
            watched.learn()  # what is kept afterwards is as it was acknowledged
        except TableNotFound:
            assert name == "drop"
        for names, contents in cuts(chosen).values():
            watched.check(names, contents)
    assert sum(tried.values()) >= calls // EVERY
    with capsys.disabled():
        sys.stdout.write(f"\nThe power went {sum(tried.values())} times at the {calls} calls of {name}.\n")


def test_positions_that_are_put_beside_staged_files_are_kept_with_the_commit(deleting: Disk, tmp_path: Path) -> None:
    """They are written by the package's own writer, and synced with all that an attempt has staged, whoever wrote."""
    job = Job(deleting)
    work.create(job.store, job.timeline, "create")
    transaction = job.begin("upsert", "w")
    actions, reads, writes = work.deltas(job, transaction, "work", A, {"0": 1})
    beside = [positions_path(action.path) for action in actions if isinstance(action, AddFile)]
    job.store.put(beside[0], b"by us")
    deleting.left_by_spark(deleting.root / f"{transaction.data_folder('work')}/part-9.positions", b"by another")
    transaction.commit(actions, reads=reads, writes=writes)
    for way, (names, contents) in cuts(0).items():
        left = tmp_path / way
        deleting.cut(left, names, contents)
        assert (left / beside[0]).read_bytes() == b"by us"
        assert (left / transaction.data_folder("work") / "part-9.positions").read_bytes() == b"by another"


@pytest.mark.parametrize(
    ("target", "name", "planted", "operation"),
    [
        (Store, "sync", lambda *_: None, "stages and tasks"),
        (Store, "sync", lambda *_: None, "compaction and refresh"),
        (store, "_sync_folder", lambda _folder: None, "cleaning"),
        (store, "_sync_folder", lambda _folder: None, "drop"),
    ],
    ids=[
        "staged files left to the system",
        "compacted files left to the system",
        "expiry not synced",
        "drop not synced",
    ],
)
def test_a_planted_bug_of_an_operation_is_found_by_a_cut(
    target: Any, name: str, planted: Any, operation: str, deleting: Disk, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    job = Job(deleting)
    prepared(job)
    watched = Watched(job, tmp_path / "left")
    watched.learn()
    monkeypatch.setattr(target, name, planted)
    OPERATIONS[operation](job)
    monkeypatch.undo()
    with real_disk():
        watched.learn()
        with pytest.raises((Lost, StorageError)):
            for names, contents in cuts(0).values():
                watched.check(names, contents)
