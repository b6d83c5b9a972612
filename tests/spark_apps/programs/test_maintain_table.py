"""The app that does on a table what was planned for it: each piece a commit of its own, failures kept apart."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.jobs.job import Job
from spark_apps.programs import maintain_table
from spark_apps.storage.errors import (
    AttemptAborted,
    AttemptReplaced,
    ConcurrentWrite,
    IndexNotFound,
    InvalidInput,
    TableNotFound,
)
from spark_apps.timeline import maintenance_records
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Receipt
from tests.spark.local import session_with
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import Prepared

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(6)]

DDL = "id bigint, city string"
STEPS = [
    {"kind": "compact", "index": None, "mode": "full", "bytes": 100},
    {"kind": "refresh", "index": "by_city", "mode": "incremental", "bytes": 50},
    {"kind": "verify", "index": None, "options": {"indexes": ["by_city"]}},
    {"kind": "clean", "index": None, "options": {"retain_versions": 1, "retain_seconds": 0}},
]


def build(spark: Any, folder: Path) -> None:
    made = IndexedTable.create(spark, folder, DDL, ["id"], buckets=1)
    made.create_index("by_city", "secondary", ["city"], deferred=True)
    for number in range(2):
        made.upsert(frame(spark, [(n, f"c{n % 3}{number}") for n in range(20)], DDL))


@pytest.fixture
def table(prepared: Prepared) -> IndexedTable:
    return prepared(build)


def job(table: IndexedTable, steps: list[dict[str, Any]], **more: Any) -> Job:
    return Job("maintain_table", table.uri, {"steps": steps, **more}, txn_id="night")


def test_given_steps_when_done_twice_then_each_has_committed_once_and_how_it_went_is_noted(
    spark: Any, table: IndexedTable
) -> None:
    receipts = maintain_table.maintain_table(spark, job(table, STEPS))
    again = maintain_table.maintain_table(spark, job(table, STEPS))

    assert [receipt.txn_id for receipt in receipts] == [f"night.{number}" for number in range(1, 5)]
    assert [receipt.operation for receipt in receipts] == ["compact", "refresh_index", "verify", "clean"]
    assert [receipt.version for receipt in again[:2]] == [receipt.version for receipt in receipts[:2]]
    timeline = Timeline.load(table._handle.timeline.store)
    assert [commit.operation for commit in timeline.commits(after=table.version)] == [
        "compact",
        "refresh_index",
        "expire",
    ]
    done = maintenance_records.read_done(timeline.store)
    assert set(done) == {"compact", "refresh.by_city", "verify", "clean"}
    assert done["verify"].ok and done["compact"].bytes == 100


def test_given_an_index_of_another_session_when_indexes_are_verified_then_it_is_named_and_the_others_are_compared(
    spark: Any, table: IndexedTable
) -> None:
    with session_with(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        table.create_index("by_a_text", "secondary", ["lower(city)"])
    table.refresh_index("by_city")
    steps = [{"kind": "verify", "index": None, "options": {"indexes": ["by_a_text", "by_city"]}}]
    with pytest.raises(InvalidInput, match=r"'by_a_text' of .* cannot be compared.*others agree: 'by_city'"):
        maintain_table.maintain_table(spark, job(table, steps))
    done = maintenance_records.read_done(Timeline.load(table._handle.timeline.store).store)["verify"]
    assert done.ok and done.metrics == {"indexes": ["by_city"], "refused": ["by_a_text"]}


def test_given_a_step_that_fails_when_run_then_the_others_are_done_and_the_error_says_which(
    spark: Any, table: IndexedTable
) -> None:
    steps = [{"kind": "refresh", "index": "by_nothing"}, STEPS[0]]
    with pytest.raises(IndexNotFound, match="1 of 2 pieces of work failed") as failed:
        maintain_table.maintain_table(spark, job(table, steps))
    assert "refresh by_nothing: There is no index" in str(failed.value)
    assert "What the others committed stays" in str(failed.value)
    assert IndexedTable.load(spark, table.uri).history()[-1].operation == "compact"


def test_given_several_tables_when_one_fails_or_is_told_to_stop_then_the_others_are_done_once_and_errors_are_told(
    spark: Any, table: IndexedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, versions = [], [table.version]
    for name in ("second", "third"):
        made = IndexedTable.create(spark, tmp_path / name, DDL, ["id"], buckets=1)
        made.create_index("by_city", "secondary", ["city"], deferred=True)
        made.upsert(frame(spark, [(1, name)], DDL))
        more.append({"table": made.uri, "steps": STEPS[1:2]})
        versions.append(made.version)
    gone = {"table": str(tmp_path / "gone"), "steps": STEPS[1:2]}
    together = job(table, STEPS[:2], more_tables=[more[0], gone, more[1]])

    def new_commits() -> list[int]:
        places = [table.uri, *(one["table"] for one in more)]
        now = [IndexedTable.load(spark, place).version for place in places]
        return [after - before for after, before in zip(now, versions, strict=True)]

    def ended(error: type[Exception]) -> Any:
        def compact(*_: Any, **__: Any) -> Any:
            raise error("It was ended.")

        return compact

    with monkeypatch.context() as patch:
        clock = [0.0]

        def takes_ten_seconds(_spark: Any, _job: Job, step: dict[str, Any], txn_id: str) -> Receipt:
            clock[0] += 10
            return Receipt(1, txn_id, step["kind"])

        patch.setattr(maintain_table, "_persist", takes_ten_seconds)
        patch.setattr(maintain_table, "time", SimpleNamespace(time=lambda: clock[0]))
        receipts = maintain_table.maintain_table(spark, job(table, STEPS[:2], more_tables=more, until=15.0))
        assert ["left" in one.metrics for one in receipts] == [False, False, True, True]
    with monkeypatch.context() as patch:
        patch.setattr(IndexedTable, "compact", ended(AttemptReplaced))
        receipts = maintain_table.maintain_table(spark, together)
        assert [(one.txn_id, "left" in one.metrics) for one in receipts] == [(f"night.{n}", True) for n in range(1, 6)]
        assert new_commits() == [0, 0, 0]
        patch.setattr(IndexedTable, "compact", ended(AttemptAborted))
        with pytest.raises(TableNotFound, match=r"1 of 5 pieces of work failed"):
            maintain_table.maintain_table(spark, together)
        assert new_commits() == [0, 1, 1]
    with pytest.raises(TableNotFound, match=r"1 of 5 pieces of work failed\. .*gone: refresh by_city: ") as failed:
        maintain_table.maintain_table(spark, together)
    assert "What the others committed stays" in str(failed.value)
    assert new_commits() == [2, 1, 1]


def test_given_somebody_commits_in_the_way_when_run_then_it_begins_again_and_gets_in(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact, refused = IndexedTable.compact, []

    def meeting_another(self: IndexedTable, *arguments: Any, **options: Any) -> Any:
        if len(refused) < 2:
            refused.append(1)
            raise ConcurrentWrite("Another commit came first.")
        return compact(self, *arguments, **options)

    monkeypatch.setattr(IndexedTable, "compact", meeting_another)
    [receipt] = maintain_table.maintain_table(spark, job(table, STEPS[:1]))
    assert receipt.version is not None and len(refused) == 2


@pytest.mark.by_turn(1)
def test_given_the_end_of_the_night_or_an_abort_when_run_then_the_rest_is_left(
    spark: Any, table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [("night.1", "compact"), ("night.2", "refresh"), ("night.3", "verify"), ("night.4", "clean")]

    def told(receipts: list[Any], reason: str) -> list[tuple[str, str]]:
        assert all(one.version is None and one.metrics["left"].startswith(reason) for one in receipts)
        return [(one.txn_id, one.operation) for one in receipts]

    late = maintain_table.maintain_table(spark, job(table, STEPS, until=time.time() - 1))
    assert told(late, "the time given") == left
    assert IndexedTable.load(spark, table.uri).version == table.version

    def ended(*_: Any, **__: Any) -> Any:
        raise AttemptAborted("A drain ended it.")

    with monkeypatch.context() as patch:
        patch.setattr(IndexedTable, "compact", ended)
        receipts = maintain_table.maintain_table(spark, job(table, STEPS))
    assert told(receipts, "it was told to stop: A drain ended it.") == left
    assert IndexedTable.load(spark, table.uri).version == table.version

    monkeypatch.setattr(IndexedTable, "refresh_index", ended)
    begun = maintain_table.maintain_table(spark, job(table, STEPS))
    assert (begun[0].operation, begun[0].version) == ("compact", table.version + 1)
    assert told(begun[1:], "it was told to stop") == left[1:]
    assert IndexedTable.load(spark, table.uri).version == table.version + 1
