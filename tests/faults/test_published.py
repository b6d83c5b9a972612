"""Each call to the store fails while a published table is written and its Delta log follows, and others come between.

The table's commits stand whatever becomes of the other log; what is published stays readable and is a version that was
committed; the next commit catches up. ``deltalake`` reads, which knows nothing of this package.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps.storage.errors import LakeIndexError, PublishRefused, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.delta.publishing import publish, published
from tests.simulation.store import CHANGING, CRASH_AFTER, CRASH_BEFORE, ERROR_AFTER, ERROR_BEFORE, LATE, Crash
from tests.spark_apps.timeline.delta.test_publishing import theirs
from tests.spark_apps.timeline.plain_rows import PlainRows
from tests.turns import of_this_turn

pytestmark = pytest.mark.by_turn(6)

ALL = os.environ.get("FAULTS") == "all"
CUT = 16
DOWN = "down from here on"

Gate = Callable[[int, str, str], str | None]
"""Asked before each call, with its number, verb and key: what becomes of it."""


class GatedStore(Store):
    """A folder whose calls pass a gate."""

    gate: Gate
    calls: list[tuple[str, str]]
    late: list[Callable[[], Any]]

    @classmethod
    def of(cls, folder: Path, gate: Gate = lambda _number, _verb, _key: None) -> GatedStore:
        made = cls(folder)
        made.gate, made.calls, made.late = gate, [], []
        return made

    def _pass(self, verb: str, key: str, call: Callable[[], Any]) -> Any:
        number = len(self.calls)
        self.calls.append((verb, key))
        answer = self.gate(number, verb, key)
        if answer is None:
            return call()
        if answer == CRASH_BEFORE:
            raise Crash
        if answer == LATE:
            self.late.append(call)
        elif answer in (CRASH_AFTER, ERROR_AFTER):
            call()
        if answer == CRASH_AFTER:
            raise Crash
        raise StorageUnavailable(f"{verb} {key}: {answer}.")

    def get(self, key: str, most: int | None = None) -> bytes:
        return self._pass("get", key, lambda: super(GatedStore, self).get(key, most))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._pass("get_range", key, lambda: super(GatedStore, self).get_range(key, start, end))

    def head(self, key: str) -> Any:
        return self._pass("head", key, lambda: super(GatedStore, self).head(key))

    def put(self, key: str, data: bytes) -> None:
        self._pass("put", key, lambda: super(GatedStore, self).put(key, data))

    def create(self, key: str, data: bytes) -> None:
        self._pass("create", key, lambda: super(GatedStore, self).create(key, data))

    def list(self, prefix: str, after: str | None = None) -> Any:
        return self._pass("list", prefix, lambda: super(GatedStore, self).list(prefix, after))

    def sync(self, keys: Iterable[str]) -> None:
        self._pass("sync", "", lambda: super(GatedStore, self).sync(keys))


@pytest.fixture(scope="module", params=["with positions", "without"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PlainRows:
    """A published table, two commits of which are behind: their processes died before they published."""
    rng = random.Random(1)
    table = PlainRows(
        tmp_path_factory.mktemp("published") / "t", partitioned=False, positions=request.param == "with positions"
    )
    table.write("insert", None, [table.row(n, None, rng) for n in range(8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_apps.timeline.delta.publishing.publish", lambda *_: None)
        table.write("insert", None, [table.row(n, None, rng) for n in range(8, 12)])
        table.fold()
    return table


def work(table: PlainRows) -> None:
    """A commit that publishes three versions; by positions the last one has deletion vectors."""
    rng = random.Random(2)
    if table.table.positions:
        table.write("upsert", None, [table.row(n, None, rng) for n in (3, 20)], [4])
    else:
        table.write("insert", None, [table.row(n, None, rng) for n in (20, 21)])


def is_open(_number: int, _verb: str, _key: str) -> None:
    """Let every call through."""


def copied(
    base: PlainRows, folder: Path, gate: Gate = lambda _number, _verb, _key: None
) -> tuple[PlainRows, GatedStore]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(str(base.store.uri), folder)
    store = GatedStore.of(folder, is_open)
    table = base.reopened(store)
    store.gate, store.calls = gate, []
    return table, store


def points(base: PlainRows, folder: Path) -> Iterator[tuple[int, str]]:
    table, store = copied(base, folder)
    work(table)
    assert published(table.log).behind == 0
    for number, (verb, _) in enumerate(store.calls):
        for fault in (
            ERROR_BEFORE,
            ERROR_AFTER,
            CRASH_BEFORE,
            CRASH_AFTER,
            DOWN,
            *([LATE] if verb in CHANGING else []),
        ):
            yield number, fault


def check(table: PlainRows, folder: Path, committed: set[int]) -> int:
    """What is published is what one of these versions of the table holds, each once and in order."""
    shown = published(table.log)
    assert shown is not None and shown.version in committed, shown
    assert theirs(folder) == table.expected(shown.version)
    files = sorted((folder / delta_log.FOLDER).glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    versions = [
        action["txn"]["version"] for file in files for line in file.read_text().splitlines()
        if "txn" in (action := json.loads(line))
    ]  # fmt: skip
    assert versions == sorted(set(versions)) and set(versions) <= committed
    return shown.behind


def test_given_any_call_that_fails_then_commits_stand_what_is_published_is_read_and_the_next_commit_catches_up(
    base: PlainRows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tried = tmp_path / "t", 0
    every = list(points(base, folder))
    before, rows = base.log.head.version, dict(base.rows)
    for at, fault in every if ALL else of_this_turn(every, CUT, each=6):

        def gate(number: int, _verb: str, _key: str, at: int = at, fault: str = fault) -> str | None:
            if fault == DOWN:
                return ERROR_BEFORE if number >= at else None
            return fault if number == at else None

        table, store = copied(base, folder, gate)
        table.log.sleep = lambda _: None
        try:
            work(table)
            returned = True
        except (Crash, LakeIndexError):
            returned = False
        context = f"{store.calls[at : at + 1]} {fault}"
        seen = base.reopened(Store(folder))
        landed = seen.log.head.version > before
        assert landed or not returned, f"{context}: a commit that was answered for is gone"
        if landed:
            seen.rows = table.rows
            seen.note()
        else:
            assert seen.rows == rows
        try:
            check(seen, folder, set(seen.versions))
            # The next one, before and after which what was on its way arrives.
            for call in store.late[::2]:
                arrive(call)
            rng = random.Random(3)
            seen.write("insert", None, [seen.row(n, None, rng) for n in (30, 31)])
            for call in store.late[1::2]:
                arrive(call)
            assert check(seen, folder, set(seen.versions)) == 0
        except AssertionError as error:
            raise AssertionError(f"{context}: {error}") from error
        tried += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{tried} of {len(every)} fault points of publishing\n")
    assert tried > len(every) // (2 * CUT)


def arrive(call: Callable[[], Any]) -> None:
    """A request that its sender had given up arrives."""
    try:
        call()
    except LakeIndexError:
        return


def test_given_another_that_publishes_between_any_two_calls_then_each_version_is_published_once(
    base: PlainRows, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    table, store = copied(base, folder)
    publish(table.log)
    count = len(store.calls)
    assert published(table.log).behind == 0 and count > 10
    for at in range(count):
        between: list[int] = []

        def gate(number: int, _verb: str, _key: str, at: int = at, between: list[int] = between) -> None:
            if number == at and not between:
                between.append(number)
                other = base.reopened(Store(folder))
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("spark_apps.timeline.delta.publishing._ENGINE", "another release")
                    publish(other.log)

        table, _ = copied(base, folder, gate)
        publish(table.log)
        assert between and check(table, folder, set(table.versions)) == 0


@pytest.mark.by_turn(1)
def test_given_another_writer_that_is_first_at_any_call_then_nothing_of_its_log_is_overwritten(
    base: PlainRows, tmp_path: Path
) -> None:
    folder, foreign = tmp_path / "t", b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n'
    table, store = copied(base, folder)
    publish(table.log)
    creates = [key for verb, key in store.calls if verb == "create"]
    count = next(number for number, (verb, _) in enumerate(store.calls) if verb == "create") + 1
    assert len(creates) >= 2
    for at in range(count):
        path = folder / creates[0]

        def gate(number: int, _verb: str, _key: str, at: int = at, path: Path = path) -> None:
            if number == at:
                path.write_bytes(foreign)

        table, _ = copied(base, folder, gate)
        with pytest.raises(PublishRefused, match="was not written for this table"):
            publish(table.log)
        assert path.read_bytes() == foreign
        assert sorted((folder / delta_log.FOLDER).glob("*.json"))[-1] == path
