"""Watchers send one event a commit, repeat rather than lose over a restart, and outlive a table that is not there."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from msgspec.structs import replace

from airflow_provider_index.triggers import events
from airflow_provider_index.triggers.events import CommitEventTrigger, SourceEventTrigger
from spark_apps.sources.logs.delta import DeltaLog
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    Field,
    PutTable,
    SourceDefinition,
    TableDefinition,
    Write,
    WriteMode,
    partition_scope,
)
from spark_apps.timeline.transactions import begin

DEFINITION = TableDefinition("t", (Field("id", "bigint"), Field("part", "string")), ("id",), ("part",))


class AssetStore:
    """An asset state store that a test can look into."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self._by_name = {"asset": self}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = json.loads(json.dumps(value))


def commit(
    timeline: Timeline, txn_id: str, operation: str = "upsert", part: str = "part=a", mode: WriteMode = "append"
) -> None:
    begin(timeline, operation=operation, txn_id=txn_id).commit((), writes=[Write(partition_scope(part), mode)])


def watcher(kind: type[BaseEventTrigger], memory: AssetStore | None, **asked: Any) -> Any:
    """A trigger as the triggerer makes it: from what it serialized to, with the asset's store put in."""
    path, arguments = kind(**{"poll_interval": 0.02, **asked}).serialize()
    assert path == f"{kind.__module__}.{kind.__qualname__}"
    trigger = kind(**json.loads(json.dumps(arguments)))
    trigger.asset_state_store = memory  # type: ignore[assignment]
    return trigger


async def sent(stream: AsyncIterator[TriggerEvent], seconds: float = 0.4) -> list[str]:
    """The commits of the events, until nothing more came for so long."""
    commits = []
    try:
        while True:
            event = await asyncio.wait_for(anext(stream), seconds)
            commits.append(event.payload["commit"])
    except TimeoutError:
        return commits


async def restarted(trigger: Any, seconds: float = 0.4) -> list[str]:
    return await sent(trigger.run(), seconds)


def test_each_commit_that_changes_rows_is_told_of_once_and_upkeep_is_not(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    commit(timeline, "before")

    async def scenario() -> list[str]:
        trigger = watcher(CommitEventTrigger, AssetStore(), table=str(tmp_path / "t"))
        waiting = asyncio.create_task(restarted(trigger, 1.0))
        await asyncio.sleep(0.3)
        commit(timeline, "first")
        commit(timeline, "folded", operation="compact", mode="fold")
        commit(timeline, "rescaled", operation="rescale", mode="replace")
        commit(timeline, "second", operation="insert_overwrite", mode="replace")
        return await waiting

    assert asyncio.run(scenario()) == ["2:first", "5:second"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"partition": "part=b"}, ["2:b"]),
        ({"operations": ["compact"]}, ["3:c"]),
        ({"operations": ["*"]}, ["1:a", "2:b", "3:c"]),
        ({"operations": ["upsert"], "partition": "part=a"}, ["1:a"]),
    ],
)
def test_operation_and_partition_say_which_commits_count(
    tmp_path: Path, asked: dict[str, Any], expected: list[str]
) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    commit(timeline, "a")
    commit(timeline, "b", part="part=b")
    commit(timeline, "c", operation="compact", mode="fold")

    trigger = watcher(CommitEventTrigger, AssetStore(), table=str(tmp_path / "t"), after_version=0, **asked)

    assert asyncio.run(restarted(trigger)) == expected


def test_what_landed_while_the_triggerer_was_away_is_told_of_and_an_event_not_yet_settled_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    memory = AssetStore()
    new = lambda: watcher(CommitEventTrigger, memory, table=str(tmp_path / "t"))  # noqa: E731

    assert asyncio.run(restarted(new())) == []
    commit(timeline, "while-away")
    # Ended before the event could be known to be kept: the same commit comes again, under the same id.
    assert asyncio.run(restarted(new())) == ["1:while-away"]
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.05)
    assert asyncio.run(restarted(new())) == ["1:while-away"]
    # By now it has settled.
    assert asyncio.run(restarted(new())) == []
    commit(timeline, "later")
    assert asyncio.run(restarted(new())) == ["2:later"]


def test_a_table_that_is_never_quiet_keeps_the_newest_mark_that_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.3)
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    memory = AssetStore()

    async def busy() -> list[str]:
        stream = watcher(CommitEventTrigger, memory, table=str(tmp_path / "t"), after_version=0).run()
        commits = []
        for number in range(12):  # none of them 0.3 s behind the one before
            commit(timeline, f"c{number}")
            commits.append((await asyncio.wait_for(anext(stream), 10)).payload["commit"])
            await asyncio.sleep(0.1)
        return commits  # before the last had settled

    marks = asyncio.run(busy())
    repeated = asyncio.run(restarted(watcher(CommitEventTrigger, memory, table=str(tmp_path / "t"), after_version=0)))

    assert marks == [f"{number + 1}:c{number}" for number in range(12)]
    assert 0 < len(repeated) < 12 and repeated == marks[-len(repeated) :], "what had settled is not sent again"


def test_a_log_that_was_deleted_and_begun_anew_is_sent_from_its_first_commit_on_however_long_the_old_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.05)
    memory = AssetStore()
    new = lambda: watcher(CommitEventTrigger, memory, table=str(tmp_path / "t"))  # noqa: E731

    def made_anew(*names: str) -> None:
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
        for name in names:
            commit(timeline, name)

    async def while_watched() -> list[str]:
        waiting = asyncio.create_task(restarted(new(), 1.8))
        await asyncio.sleep(0.3)
        made_anew("x1", "x2")
        await asyncio.sleep(0.3)
        made_anew("y1", "y2", "y3", "y4")  # longer than the one before when it is looked at
        return await waiting

    made_anew("a1", "a2", "a3")
    assert asyncio.run(while_watched()) == ["1:x1", "2:x2", "1:y1", "2:y2", "3:y3", "4:y4"]
    made_anew("z1", "z2", "z3", "z4", "z5")  # while nobody watched
    assert asyncio.run(restarted(new())) == ["1:z1", "2:z2", "3:z3", "4:z4", "5:z5"]


def test_a_mark_that_an_earlier_version_kept_is_gone_on_from(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    for name in ("a", "b", "c"):
        commit(timeline, name)
    memory = AssetStore()
    trigger = watcher(CommitEventTrigger, memory, table=str(tmp_path / "t"))
    memory.kept[events._Memory(trigger)._key] = 2

    assert asyncio.run(restarted(trigger)) == ["3:c"]


def test_given_assets_with_one_watcher_when_one_goes_comes_back_or_is_new_then_no_event_is_lost_or_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.05)
    all_assets = {name: AssetStore() for name in "abc"}

    def watched_by(names: str) -> list[str]:
        trigger = watcher(CommitEventTrigger, None, table=str(tmp_path / "t"))
        trigger.asset_state_store = SimpleNamespace(_by_name={name: all_assets[name] for name in names})
        return asyncio.run(restarted(trigger))

    assert watched_by("ab") == []
    commit(timeline, "one")
    assert watched_by("ab") == ["1:one"]
    commit(timeline, "two")
    assert watched_by("b") == ["2:two"]  # "a" is gone
    commit(timeline, "three")
    assert watched_by("bc") == ["3:three"]  # "c" is new
    commit(timeline, "four")
    assert watched_by("abc") == ["4:four"]  # "a" is back
    assert watched_by("ac") == []


def test_a_connection_that_cannot_be_read_for_a_while_does_not_end_a_watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    commit(timeline, "landed")
    tried = []
    whole = CommitEventTrigger.connect

    def connect(self: CommitEventTrigger) -> None:
        tried.append(1)
        if len(tried) < 3:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))
        whole(self)

    monkeypatch.setattr(CommitEventTrigger, "connect", connect)
    assert asyncio.run(
        restarted(watcher(CommitEventTrigger, AssetStore(), table=str(tmp_path / "t"), after_version=0))
    ) == ["1:landed"]


def test_while_airflow_cannot_say_where_a_watcher_had_got_to_it_waits_rather_than_begins_anew(tmp_path: Path) -> None:
    class Away(AssetStore):
        asked = 0

        async def aget(self, key: str, default: Any = None) -> Any:
            self.asked += 1
            if self.asked < 4:
                raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))
            return 0

    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    commit(timeline, "landed")
    memory = Away()

    assert asyncio.run(restarted(watcher(CommitEventTrigger, memory, table=str(tmp_path / "t")))) == ["1:landed"]
    assert memory.asked == 4


def test_a_table_that_is_made_after_its_watcher_is_told_of_from_its_first_commit_on(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        trigger = watcher(CommitEventTrigger, AssetStore(), table=str(tmp_path / "later/t"))
        waiting = asyncio.create_task(restarted(trigger, 1.5))
        await asyncio.sleep(0.3)
        timeline, _ = create_table(Store(tmp_path / "later/t"), DEFINITION)
        commit(timeline, "first")
        return await waiting

    assert asyncio.run(scenario()) == ["1:first"]


def test_a_change_of_a_source_is_told_of_once_also_over_a_restart_and_a_refresh_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.05)
    folder = tmp_path / "trips"
    folder.mkdir()
    source = SourceDefinition("parquet", str(folder))
    create_table(Store(tmp_path / "_indexes/trips"), TableDefinition("t", DEFINITION.fields, (), source=source))
    memory = AssetStore()
    new = lambda: watcher(SourceEventTrigger, memory, table=str(folder))  # noqa: E731
    assert asyncio.run(restarted(new())) == []

    pq.write_table(pa.table({"id": [1], "part": ["a"]}), folder / "1.parquet")
    once = asyncio.run(restarted(new()))
    again = asyncio.run(restarted(new()))
    pq.write_table(pa.table({"id": [2], "part": ["a"]}), folder / "2.parquet")
    twice = asyncio.run(restarted(new()))

    assert len(once) == 1 and once[0].startswith("source:files:")
    assert again == []
    assert len(twice) == 1 and twice != once


def test_each_commit_of_a_delta_table_is_told_of_also_over_a_killed_triggerer_and_beside_a_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trips"
    rows = pa.table({"id": [1], "part": ["a"]})
    write = lambda: deltalake.write_deltalake(str(folder), rows, mode="append")  # noqa: E731
    write()
    source = SourceDefinition("delta", str(folder), version="0")
    log, _ = create_table(
        Store(tmp_path / "_indexes/trips"), TableDefinition("t", DEFINITION.fields, (), source=source)
    )
    memory = AssetStore()

    def told() -> list[str]:
        commits = asyncio.run(restarted(watcher(SourceEventTrigger, memory, table=str(folder))))
        return [one.removeprefix("source:delta:").partition(":")[0] for one in commits]

    def refreshed(version: str) -> None:
        """As a refresh notes what it has taken in."""
        followed = replace(log.head.table, source=replace(source, version=version))
        begin(log, operation="refresh_index", txn_id=version).commit((PutTable(followed),), writes=[])
        log.refresh()

    write()
    assert told() == ["1"], "killed before the event was known to be kept"
    write()
    refreshed("2")
    assert told() == ["1", "2"]
    monkeypatch.setattr(events, "_SETTLED_SECONDS", 0.05)
    assert told() == ["1", "2"]
    for _ in range(3):
        write()
    refreshed("5")
    assert told() == ["3", "4", "5"] and told() == []


def test_more_commits_than_one_look_takes_are_told_of_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DeltaLog.after
    monkeypatch.setattr(DeltaLog, "after", lambda self, place: whole(self, place, 2))
    folder = tmp_path / "trips"
    for _ in range(8):
        deltalake.write_deltalake(str(folder), pa.table({"id": [1], "part": ["a"]}), mode="append")
    source = SourceDefinition("delta", str(folder), version="0")
    create_table(Store(tmp_path / "_indexes/trips"), TableDefinition("t", DEFINITION.fields, (), source=source))

    trigger = watcher(SourceEventTrigger, AssetStore(), table=str(folder), poll_interval=60)
    assert len(asyncio.run(restarted(trigger, 2.0))) == 7


def test_without_a_state_store_a_watcher_begins_at_the_newest_commit(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), DEFINITION)
    commit(timeline, "before")

    assert asyncio.run(restarted(watcher(CommitEventTrigger, None, table=str(tmp_path / "t")))) == []


def test_two_watchers_of_one_table_keep_their_places_apart(tmp_path: Path) -> None:
    keys = {
        events._Memory(SimpleNamespace(kind=t.kind, serialize=t.serialize, log=None))._key  # type: ignore[arg-type]
        for t in (CommitEventTrigger(table="/t"), CommitEventTrigger(table="/t", partition="a"))
    }

    assert len(keys) == 2
    with pytest.raises(InvalidInput, match="poll_interval"):
        CommitEventTrigger(table="/t", poll_interval=0)


def test_how_often_a_watcher_looks_is_no_part_of_its_memory_and_what_it_kept_before_counts(tmp_path: Path) -> None:
    memory = AssetStore()
    slow, quick = (watcher(CommitEventTrigger, memory, table=str(tmp_path), poll_interval=one) for one in (60.0, 0.05))

    assert events._Memory(slow)._key == events._Memory(quick)._key

    memory.kept[events._Memory(quick)._old_key] = 2
    assert asyncio.run(events._Memory(quick).load()) == events._Kept(2)
    memory.kept[events._Memory(quick)._key] = 5
    assert asyncio.run(events._Memory(quick).load()) == events._Kept(5)
