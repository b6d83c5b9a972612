"""The template of actions, tried with actions that write nothing: no Spark is needed for what it promises."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from spark_apps.actions.template import (
    Action,
    Attempt,
    HeartbeatThread,
    StagedChanges,
    TableHandle,
    index_errors,
    run,
)
from spark_apps.indexes.handler import IndexContext
from spark_apps.mergetree.tree import Snapshot
from spark_apps.storage.errors import (
    CommitStateUnknown,
    ConcurrentWrite,
    InvalidInput,
    ObjectNotFound,
    StorageUnavailable,
    UnknownColumn,
)
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import TIMELINE, Timeline
from spark_apps.timeline.model import (
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    TableDefinition,
    Write,
    group_scope,
)
from spark_apps.timeline.operations import Operation
from spark_apps.timeline.transactions import begin, live_requests, read_heartbeat


class Noting(Action):
    """Does what it is told to, and commits a write of one file group without files."""

    operation = Operation("note", "log")

    def __init__(self, during: Any = None, nothing: bool = False, invalid: bool = False) -> None:
        self.during, self.nothing, self.invalid, self.worked = during, nothing, invalid, 0

    def validate(self, snapshot: Any) -> None:
        if self.invalid:
            raise InvalidInput("That cannot be.")

    def work(self, attempt: Attempt) -> StagedChanges | None:
        self.worked += 1
        if self.during is not None:
            self.during(attempt)
        if self.nothing:
            return None
        return StagedChanges(writes=[Write(group_scope("", "0"), "replace")], metrics={"rows": 3})


@pytest.fixture
def handle(tmp_path: Path) -> TableHandle:
    definition = TableDefinition("t", (Field("id", "bigint", False),), ("id",))
    config = PutHashingConfig(HashingConfig("0" * 17, 4))
    timeline, _ = create_table(Store(tmp_path / "table"), definition, [config])
    return TableHandle(None, timeline)  # type: ignore[arg-type]


def test_given_work_then_it_is_one_commit_and_the_receipt_tells_of_it(handle: TableHandle) -> None:
    receipt = run(handle, Noting())

    assert (receipt.version, receipt.operation, receipt.metrics) == (1, "note", {"rows": 3})
    assert handle.timeline.head.version == 1


def test_given_a_committed_transaction_when_retried_then_same_receipt_and_no_work(handle: TableHandle) -> None:
    first, retry = Noting(), Noting()

    receipt = run(handle, first, txn_id="day-1")
    again = run(TableHandle(handle.spark, Timeline.load(handle.timeline.store)), retry, txn_id="day-1")

    assert again == receipt
    assert (first.worked, retry.worked, handle.timeline.refresh().version) == (1, 0, 1)


def test_given_nothing_to_do_then_no_commit_and_nobody_waits_for_the_attempt(handle: TableHandle) -> None:
    action = Noting(during=lambda attempt: handle.timeline.store.put(f"{attempt.folder('rows')}/x", b"1"), nothing=True)

    receipt = run(handle, action, txn_id="empty")

    assert (receipt.version, receipt.committed) == (None, False)
    assert handle.timeline.refresh().version == 0
    assert live_requests(handle.timeline) == []
    assert handle.timeline.store.list("data") == []


def test_given_nothing_to_do_at_first_when_retried_with_work_then_it_commits(handle: TableHandle) -> None:
    run(handle, Noting(nothing=True), txn_id="day-1")

    assert run(handle, Noting(), txn_id="day-1").version == 1


def test_given_invalid_arguments_then_no_attempt_is_claimed(handle: TableHandle) -> None:
    with pytest.raises(InvalidInput):
        run(handle, Noting(invalid=True))

    assert handle.timeline.store.list("_index/transactions") == []


def test_given_work_that_fails_then_its_attempt_is_ended_by_a_commit(handle: TableHandle) -> None:
    def fail(_: Attempt) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        run(handle, Noting(during=fail), txn_id="day-1")

    assert handle.timeline.refresh().is_aborted("day-1", 1)
    assert live_requests(handle.timeline) == []
    assert run(handle, Noting(), txn_id="day-1").attempt == 2


def test_given_a_write_that_another_was_first_with_then_refused_and_the_attempt_ended(handle: TableHandle) -> None:
    other = TableHandle(handle.spark, Timeline.load(handle.timeline.store))

    with pytest.raises(ConcurrentWrite, match="Nothing was changed"):
        run(handle, Noting(during=lambda _: run(other, Noting())), txn_id="late")

    assert handle.timeline.refresh().is_aborted("late", 1)


class Failing:
    """A store whose log cannot be written or read back while ``broken``, though the write may land."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.broken = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, key: str, data: bytes) -> None:
        if self.broken and key.startswith(TIMELINE):
            self.inner.create(key, data)
            raise StorageUnavailable("The store hung up.")
        self.inner.create(key, data)

    def get(self, key: str, most: int | None = None) -> bytes:
        if self.broken and key.startswith(TIMELINE):
            try:
                self.inner.get(key)
            except ObjectNotFound:
                raise
            raise StorageUnavailable("The store hung up.")
        return self.inner.get(key)


def test_given_an_unknown_outcome_then_the_attempt_is_not_aborted_and_a_retry_finds_the_commit(tmp_path: Path) -> None:
    definition = TableDefinition("t", (Field("id", "bigint", False),), ("id",))
    store = Failing(Store(tmp_path / "table"))
    timeline, _ = create_table(store, definition, [PutHashingConfig(HashingConfig("0" * 17, 4))])  # type: ignore[arg-type]
    timeline.sleep = lambda _: None  # type: ignore[method-assign]
    handle = TableHandle(None, timeline)  # type: ignore[arg-type]

    with pytest.raises(CommitStateUnknown, match="all files are kept"):
        run(handle, Noting(during=lambda _: setattr(store, "broken", True)), txn_id="day-1")
    store.broken = False
    retry = Noting()

    assert run(handle, retry, txn_id="day-1").version == 1
    assert retry.worked == 0
    assert [commit.operation for commit in handle.timeline.commits()] == ["create", "note"]


def test_given_long_work_then_signs_of_life_tell_its_phase(handle: TableHandle) -> None:
    transaction = begin(handle.timeline, operation="note", txn_id="long")

    with HeartbeatThread(transaction, seconds=0.02) as heartbeats:
        heartbeats.phase("write the rows", 3, 8)
        end = time.monotonic() + 5
        beat = None
        while beat is None or beat.done != 3:
            assert time.monotonic() < end
            time.sleep(0.02)
            beat = read_heartbeat(handle.timeline, "long", 1)

    assert (beat.phase, beat.done, beat.total) == ("write the rows", 3, 8)


def test_given_an_index_over_a_column_that_is_not_there_then_an_error_over_it_names_both(handle: TableHandle) -> None:
    with pytest.raises(UnknownColumn, match="'by_city' is over the column 'a city'"), index_errors(_over_city(handle)):
        raise KeyError("a city")


@pytest.mark.parametrize(
    "error", [KeyError("id"), KeyError("town"), KeyError("no `a city` today"), ValueError("a city")]
)
def test_given_an_index_over_a_column_that_is_not_there_then_another_error_stays_what_it_is(
    handle: TableHandle, error: Exception
) -> None:
    with pytest.raises(type(error)) as raised, index_errors(_over_city(handle)):
        raise error
    assert raised.value is error


def _over_city(handle: TableHandle) -> IndexContext:
    snapshot = Snapshot(handle.spark, handle.timeline.store, handle.timeline.head)
    return IndexContext(snapshot, IndexDefinition("by_city", "compact", ("a city", "id"), "1"), "")
