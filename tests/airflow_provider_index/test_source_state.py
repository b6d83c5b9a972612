"""What is new of registered sources is found without Spark: each commit once, and states of files the log has not."""

from __future__ import annotations

import datetime as dt
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_index.conditions import index_fresh
from airflow_provider_index.source_state import News, source_state
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    SourceDefinition,
    TableDefinition,
)
from tests.spark_apps.sources.test_watched_logs import TIMELINES

FIELDS = (Field("id", "bigint"), Field("dt", "string"))
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "dt": ["a", "b"]})


def registered(source: SourceDefinition, partition_by: tuple[str, ...] = ()) -> Timeline:
    """The log of a source as registering it leaves it, beside it, without Spark."""
    definition = TableDefinition("t", FIELDS, (), partition_by, bucketed=False, source=source)
    files = PlainFiles.of(definition, None).listing().files if source.format == "parquet" else ()
    timeline, _ = create_table(
        Store(locate(source.location).default_log()), definition, [file.to_add() for file in files]
    )
    return timeline


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS.select(["id"]), path)
    return path


def test_given_plain_files_then_what_came_went_or_was_rewritten_is_a_change_until_the_log_knows_it(
    tmp_path: Path,
) -> None:
    source = SourceDefinition("parquet", str(tmp_path / "trips"))
    first = put(tmp_path / "trips/dt=1/a.parquet")
    timeline = registered(source, ("dt",))
    state, log = timeline.head, timeline.store.uri
    watched = source_state(state, log)
    assert watched.news(state, None) == News([], "none")

    put(tmp_path / "trips/_temporary/0/b.parquet")
    put(tmp_path / "trips/beside.parquet")
    assert watched.news(state, None).events == []  # not read either

    put(tmp_path / "trips/dt=2/b.parquet")
    added = watched.news(state, "none")
    os.utime(first, (1, 1))
    rewritten = watched.news(state, added.mark)

    [one], [other] = added.events, rewritten.events
    assert (one["commit"], one["operation"]) == (f"source:{added.mark}", "source")
    assert one["files_added"] == 1 and one["partitions"] == ["dt=2"]
    assert other["files_removed"] == 1 and other["partitions"] == ["dt=1", "dt=2"]
    assert added.mark != rewritten.mark
    assert watched.news(state, rewritten.mark) == News([], rewritten.mark)
    [in_one] = source_state(state, log, partition="dt=1").news(state, None).events
    assert in_one["files_added"] == 1
    assert source_state(state, log, partition="dt=3").news(state, None).events == []


def seen(state: Any, timeline: Timeline, mark: Any, options: dict[str, Any] | None = None) -> tuple[list[Any], Any]:
    """The events of one look after the other, until there is no more, and the mark behind them."""
    events, more = [], True
    while more:
        news = source_state(state, timeline.store.uri, options).news(state, mark)
        events, mark, more = [*events, *news.events], json.loads(json.dumps(news.mark)), news.more
    return events, mark


def test_given_a_delta_table_then_each_commit_behind_the_version_of_the_log_is_an_event(tmp_path: Path) -> None:
    folder = str(tmp_path / "delta")
    deltalake.write_deltalake(folder, ROWS)
    timeline = registered(SourceDefinition("delta", folder, version="0"))
    state = timeline.head
    events, mark = seen(state, timeline, None)
    assert events == []

    deltalake.write_deltalake(folder, ROWS, mode="append")
    deltalake.DeltaTable(folder).delete("id = 1")

    events, after = seen(state, timeline, mark)
    assert [(one["version"], one["source_operation"], one["files_added"]) for one in events] == [
        ("1", "WRITE", 1),
        ("2", "DELETE", 1),
    ]
    assert {one["operation"] for one in events} == {"source"} and {one["format"] for one in events} == {"delta"}
    moments = [one["timestamp"] for one in reversed(deltalake.DeltaTable(folder).history())][1:]
    assert [dt.datetime.fromisoformat(one["instant"]).timestamp() * 1000 for one in events] == moments
    assert [one["commit"] for one in events] == [f"source:delta:{n}:{ms}" for n, ms in enumerate(moments, 1)]
    assert seen(state, timeline, after) == ([], after)
    assert seen(state, timeline, None)[0] == events, "it begins behind the version that the log knows"
    with pytest.raises(InvalidInput, match="partition"):
        source_state(state, timeline.store.uri, partition="dt=1")


def test_given_a_mark_that_an_earlier_version_kept_then_it_is_gone_on_from(tmp_path: Path) -> None:
    folder = str(tmp_path / "delta")
    for _ in range(4):
        deltalake.write_deltalake(folder, ROWS, mode="append")
    timeline = registered(SourceDefinition("delta", folder, version="0"))

    for mark, versions in (("delta:2", ["3"]), ("delta:3", []), ("none", ["1", "2", "3"])):
        assert [one["version"] for one in seen(timeline.head, timeline, mark)[0]] == versions
    assert [one["version"] for one in seen(timeline.head, timeline, "files:abc")[0]] == ["1", "2", "3"]


def test_given_commits_that_are_gone_then_an_event_says_between_which_versions(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    for _ in range(4):
        deltalake.write_deltalake(str(folder), ROWS, mode="append")
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    for version in (0, 1, 2):
        (folder / f"_delta_log/{version:020d}.json").unlink()
    timeline = registered(SourceDefinition("delta", str(folder), version="0"))

    gap, last = seen(timeline.head, timeline, None)[0]
    assert (gap["commit"], gap["operation"]) == ("source:delta:gap:0:3", "gap")
    assert (gap["from_version"], gap["to_version"], last["version"]) == ("0", "3", "3")


@pytest.mark.parametrize("by", ["hint", "catalog"])
def test_given_an_iceberg_table_then_each_snapshot_behind_that_of_the_log_is_an_event(tmp_path: Path, by: str) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = SqlCatalog("mine", **properties)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    folder = Path(table.location().removeprefix("file://"))
    snapshot: Any = table.current_snapshot()
    named = {"catalog": "mine", "identifier": "db.t", "catalog.type": "sql"}
    options = {**named, **{f"catalog.{key}": value for key, value in properties.items()}} if by == "catalog" else {}
    source = SourceDefinition("iceberg", str(folder), options, str(snapshot.snapshot_id))
    timeline = registered(source)
    options_of_connection = {"source_roots": [properties["uri"]]} if by == "catalog" else None
    hint(table, folder)
    events, mark = seen(timeline.head, timeline, None, options_of_connection)
    assert events == []

    table.append(ROWS)
    table.append(ROWS)
    hint(table, folder)

    events, after = seen(timeline.head, timeline, mark, options_of_connection)
    assert [(one["version"], one["sequence"], one["rows_added"]) for one in events] == [
        (str(one.snapshot_id), one.sequence_number, 2) for one in table.snapshots()[1:]
    ]
    assert seen(timeline.head, timeline, after, options_of_connection)[0] == []
    old = f"iceberg:{table.snapshots()[1].snapshot_id}"
    assert seen(timeline.head, timeline, old, options_of_connection)[0] == events[1:]


def indexed(source: SourceDefinition) -> Timeline:
    """The log of a source with an index that covers what the log lists."""
    definition = TableDefinition("t", FIELDS, (), bucketed=False, source=source)
    index = IndexDefinition("by_id", "secondary", ("id",), "1")
    timeline, _ = create_table(
        Store(locate(source.location).default_log()), definition, [PutIndex(index, covered=True)]
    )
    return timeline


def test_given_commits_of_the_source_that_no_refresh_has_taken_in_then_an_index_is_fresh_within_their_number(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path / "delta")
    for _ in range(3):
        deltalake.write_deltalake(folder, ROWS, mode="append")
    timeline = indexed(SourceDefinition("delta", folder, version="0"))

    assert index_fresh(timeline, "by_id") is not None, "by the log of the indexes alone"
    assert index_fresh(timeline, "by_id", with_source=True, within_commits=1) is None
    fresh = {"index": "by_id", "version": 0, "lag": 2}
    assert index_fresh(timeline, "by_id", with_source=True, within_commits=2) == fresh
    deltalake.DeltaTable(folder).alter.set_table_properties({"delta.appendOnly": "false"})
    assert index_fresh(timeline, "by_id", with_source=True, within_commits=2) == fresh, "no file is another one"
    (tmp_path / "delta/_delta_log" / f"{1:020d}.json").unlink()
    assert index_fresh(timeline, "by_id", with_source=True, within_commits=99) is None, "after a gap nobody knows"


def test_given_plain_files_or_no_source_then_another_list_is_one_commit_and_none_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "trips/a.parquet")
    timeline = indexed(SourceDefinition("parquet", str(tmp_path / "trips")))
    assert index_fresh(timeline, "by_id", with_source=True) is None
    assert index_fresh(timeline, "by_id", with_source=True, within_commits=1) is not None
    (tmp_path / "trips/a.parquet").unlink()
    assert index_fresh(timeline, "by_id", with_source=True) == {"index": "by_id", "version": 0, "lag": 0}
    own, _ = create_table(
        Store(tmp_path / "own"),
        TableDefinition("t", FIELDS, ("id",)),
        [
            PutHashingConfig(HashingConfig("", 1)),
            PutIndex(IndexDefinition("by_id", "secondary", ("dt",), "1"), covered=True),
        ],
    )
    with pytest.raises(InvalidInput, match="no registered source"):
        index_fresh(own, "by_id", with_source=True)


def test_given_a_hudi_table_then_each_instant_behind_that_of_the_log_is_an_event(tmp_path: Path) -> None:
    with tarfile.open(TIMELINES) as archive:
        archive.extractall(tmp_path / "hudi", filter="data")
    folder = tmp_path / "hudi/mor8"
    instants = sorted(path.name.split("_")[0] for path in (folder / ".hoodie/timeline").glob("*_*commit"))
    timeline = registered(SourceDefinition("hudi", str(folder), version=instants[2]))

    events, mark = seen(timeline.head, timeline, None)
    assert [one["version"] for one in events] == instants[3:]
    assert [one["source_operation"] for one in events][:2] == ["delete", "upsert"]
    assert all(one["completion"] > one["version"] for one in events)
    assert seen(timeline.head, timeline, mark)[0] == []


def hint(table: Any, folder: Path) -> None:
    """What Hadoop's catalog leaves beside the metadata."""
    (folder / "metadata/version-hint.text").write_text(table.metadata_location.rpartition("/")[2])


def test_a_table_that_only_this_package_writes_has_no_source_to_watch(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), TableDefinition("t", FIELDS, ("id",)))

    with pytest.raises(InvalidInput, match="CommitEventTrigger"):
        source_state(timeline.head, timeline.store.uri)
