"""The power goes at calls to the disk all along: no acknowledged commit is lost, and the table works on.

The calls are those that the real store makes while a table is made and written; what a cut leaves is put into another
folder, and read by the real code again.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_apps.storage import store
from spark_apps.storage.errors import AlreadyCommitted, CommitStateUnknown, StorageUnavailable, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline import log
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Field,
    HashingConfig,
    PutHashingConfig,
    PutPartition,
    TableDefinition,
    Write,
    group_scope,
)
from spark_apps.timeline.transactions import begin, find_receipt
from tests.simulation.disk import Disk, cuts

TABLE = TableDefinition("t", (Field("p", "string"), Field("k", "string")), ("k",), ("p",))
ALL = os.environ.get("FAULTS") == "all"
EVERY = 1 if ALL else 3
"""Each so many calls the power goes; the ways of losing it take turns in between, or are all tried."""


@cache
def drawn() -> int:
    """``SEED``, or a number of the commit that is tested, so that each commit tries other calls."""
    if os.environ.get("SEED"):
        return int(os.environ["SEED"])
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(done.stdout[:8] or "0", 16)


class Killed(BaseException):
    """The process is gone, and the machine works on."""


class Lost(AssertionError):
    """What was acknowledged is not there any more."""


class Table:
    """A table on the disk, and the commits that callers know of."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.store = Store(disk.root)
        self.acknowledged: dict[str, int] = {}
        self.files: dict[str, bytes] = {}

    def create(self) -> None:
        _, receipt = create_table(self.store, TABLE, (PutHashingConfig(HashingConfig("", 2)),), txn_id="create")
        self.acknowledged["create"] = receipt.version or 0

    def upsert(self, txn: str) -> None:
        """Two files by Spark, in a commit that keeps its actions in a file of their own."""
        timeline = Timeline.load(self.store)
        try:
            transaction = begin(timeline, operation="upsert", txn_id=txn)
            actions: list[Any] = [PutPartition("p=a", 2, ("a",))]
            written = {}
            for group in "01":
                path = f"{transaction.data_folder('work')}/p=a/part-{group}.parquet"
                written[path] = f"{txn} {group}".encode()
                self.disk.left_by_spark(self.disk.root / path, written[path])
                actions.append(AddFile(DATA_TREE, "p=a", group, path, "delta", 1, len(written[path])))
            transaction.heartbeat("commit")
            receipt = transaction.commit(actions, writes=[Write(group_scope("p=a", group)) for group in "01"])
        except AlreadyCommitted as error:
            self.acknowledged[txn] = error.receipt.version
            return
        self.acknowledged[txn] = receipt.version or 0
        self.files |= written

    def check(self, left: Path) -> None:
        """What a cut has left: every acknowledged commit, with all that belongs to it; and it can be written.

        :raises Lost:
        """
        store = Store(left)
        try:
            timeline = Timeline.load(store)
        except TableNotFound:
            if self.acknowledged:
                raise Lost(f"The table is gone with {self.acknowledged}.") from None
            create_table(store, TABLE, txn_id="again")
            return
        for txn, version in self.acknowledged.items():
            receipt = find_receipt(timeline, txn)
            if receipt is None or receipt.version != version:
                raise Lost(f"{txn} was acknowledged as version {version}; there is {receipt}.")
        for file in timeline.head.files(DATA_TREE):
            if len(store.get(file.path)) != file.bytes:
                raise Lost(f"{file.path} of version {timeline.head.version} has lost its bytes.")
        for path, data in self.files.items():
            if store.get(path) != data:
                raise Lost(f"{path} is not what was committed.")
        begin(timeline, operation="upsert", txn_id="afterwards").commit((), writes=[Write(group_scope("p=a", "0"))])


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    monkeypatch.setattr(store, "os", disk)
    monkeypatch.setattr(store, "_settled", {})
    monkeypatch.setattr(store, "_doubtful", set())
    monkeypatch.setattr(store, "_SYNC_THREADS", 1)
    monkeypatch.setattr(log, "INLINE_ACTIONS", 1)
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 3)
    return disk


def work(table: Table) -> None:
    table.create()
    for number in range(4):
        table.upsert(f"w{number}")


def cut_at_every_call(table: Table, tmp_path: Path) -> Iterator[int]:
    """Makes each call first look at what a cut right before it would leave; yields nothing."""
    ways = itertools.cycle(cuts(0))
    count = itertools.count()

    def look(call: str, path: Path) -> None:
        number = next(count)
        if (number + drawn()) % EVERY:
            return
        for way in cuts(number) if ALL else [next(ways)]:
            left = tmp_path / f"left-{number}-{way}"
            table.disk.cut(left, *cuts(number)[way])
            with real_disk():
                try:
                    table.check(left)
                except Exception as error:
                    raise Lost(f"Cut before call {number} ({call} {path.name}), {way}: {error}") from error

    table.disk.before = look
    work(table)
    yield next(count)


class real_disk:
    """What is done inside is not noted: it is another machine."""

    def __enter__(self) -> None:
        self.disk, store.os = store.os, os  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        store.os = self.disk  # type: ignore[attr-defined]


@pytest.mark.by_turn(4)
def test_whatever_call_the_power_goes_at_no_commit_that_was_told_of_is_lost(
    disk: Disk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(disk)
    [calls] = cut_at_every_call(table, tmp_path)
    assert disk.unnoted() == [], "the model must have seen every write"
    with capsys.disabled():
        sys.stdout.write(f"\nThe power went before one in {EVERY} of {calls} calls to the disk.\n")


def test_what_a_killed_process_left_is_kept_before_another_tells_of_it(disk: Disk, tmp_path: Path) -> None:
    table = Table(disk)
    table.create()
    for later in range(3):  # at the link of the version, or at one of the calls after it
        calls: list[str] = []

        def kill(call: str, path: Path, calls: list[str] = calls, later: int = later) -> None:
            if calls or (call == "link" and path.parent.name == "timeline"):
                calls.append(call)
            if len(calls) > later:
                raise Killed

        disk.before = kill
        with pytest.raises(Killed):
            table.upsert(f"killed-{later}")
        disk.before = lambda _call, _path: None
        table.upsert(f"killed-{later}")  # a retry makes the commit, or finds it
        for way, (names, contents) in cuts(later).items():
            left = tmp_path / f"left-{later}-{way}"
            disk.cut(left, names, contents)
            with real_disk():
                table.check(left)


@pytest.mark.parametrize("what", ["the draft", "the folder"])
def test_a_disk_that_cannot_sync_is_not_told_as_committed(disk: Disk, what: str) -> None:
    table = Table(disk)
    table.create()
    timeline = Timeline.load(table.store)
    timeline.sleep = lambda _: None
    transaction = begin(timeline, operation="upsert", txn_id="w")
    linked: list[str] = []

    def failing(call: str, path: Path) -> None:
        linked.append(path.name) if call == "link" else None
        if call == "fsync" and (what == "the draft" or any(name.endswith(f"{1:020d}.json") for name in linked)):
            raise OSError(5, "Input/output error")

    disk.before = failing
    with pytest.raises((CommitStateUnknown, StorageUnavailable)):
        transaction.commit((), writes=[Write(group_scope("p=a", "0"))])
    if what == "the folder":  # a system that has reported it once says "done" the next time
        disk.before = lambda _call, _path: None
        with pytest.raises(StorageUnavailable, match="could not be synced"):
            find_receipt(Timeline.load(table.store), "w")


def _link_before_sync(path: Path, data: bytes) -> None:
    """As it was: the name first, then the sync of what it names."""
    synced, store.os.fsync = store.os.fsync, lambda _handle: None  # type: ignore[attr-defined]
    try:
        draft = store._write_draft(path, data)
    finally:
        store.os.fsync = synced  # type: ignore[attr-defined]
    store.os.link(draft, path)
    store.os.unlink(draft)
    store._sync(path)
    store._sync(path.parent)


@pytest.mark.parametrize(
    ("target", "name", "planted"),
    [
        (Store, "sync", lambda *_: None),
        (store, "_sync_folder", lambda _folder: None),
        (store, "create_file", _link_before_sync),
    ],
    ids=["data files left to the system", "folders not synced", "the name before the bytes"],
)
def test_a_planted_bug_is_found_by_a_cut(
    target: Any, name: str, planted: Any, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, name, planted)
    monkeypatch.setattr(sys.modules[__name__], "EVERY", 1)
    with pytest.raises(Lost):
        list(cut_at_every_call(Table(disk), tmp_path))
