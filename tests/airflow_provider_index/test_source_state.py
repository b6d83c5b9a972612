"""Changes of registered sources are noticed without Spark, and only those that the log does not know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_index.source_state import source_state
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition

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
    assert watched.change(state) is None

    put(tmp_path / "trips/_temporary/0/b.parquet")
    put(tmp_path / "trips/beside.parquet")
    assert watched.change(state) is None  # not read either

    put(tmp_path / "trips/dt=2/b.parquet")
    added = watched.change(state)
    os.utime(first, (1, 1))
    rewritten = watched.change(state)

    assert added is not None and rewritten is not None
    assert added.event["files_added"] == 1 and added.event["partitions"] == ["dt=2"]
    assert rewritten.event["files_removed"] == 1 and rewritten.event["partitions"] == ["dt=1", "dt=2"]
    assert added.mark != rewritten.mark
    again = watched.change(state)
    assert again is not None and again.mark == rewritten.mark
    in_one = source_state(state, log, partition="dt=1").change(state)
    assert in_one is not None and in_one.event["files_added"] == 1
    assert source_state(state, log, partition="dt=3").change(state) is None


def test_given_a_delta_table_then_a_newer_version_than_the_log_knows_is_a_change(tmp_path: Path) -> None:
    folder = str(tmp_path / "delta")
    deltalake.write_deltalake(folder, ROWS)
    timeline = registered(SourceDefinition("delta", folder, version="0"))
    state, log = timeline.head, timeline.store.uri
    assert source_state(state, log).change(state) is None

    deltalake.write_deltalake(folder, ROWS, mode="append")
    deltalake.write_deltalake(folder, ROWS, mode="append")

    change = source_state(state, log).change(state)
    assert change is not None
    assert (change.mark, change.event) == ("delta:2", {"format": "delta", "version": "2", "from_version": "0"})
    with pytest.raises(InvalidInput, match="partition"):
        source_state(state, log, partition="dt=1")


@pytest.mark.parametrize("by", ["hint", "catalog"])
def test_given_an_iceberg_table_then_another_snapshot_than_the_log_knows_is_a_change(tmp_path: Path, by: str) -> None:
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
    state, log = timeline.head, timeline.store.uri
    options_of_connection = {"source_roots": [properties["uri"]]} if by == "catalog" else None
    hint(table, folder)
    assert source_state(state, log, options_of_connection).change(state) is None

    table.append(ROWS)
    hint(table, folder)

    change = source_state(state, log, options_of_connection).change(state)
    newest: Any = table.current_snapshot()
    assert change is not None
    assert change.mark == f"iceberg:{newest.snapshot_id}"
    assert change.event["from_version"] == str(snapshot.snapshot_id)


def hint(table: Any, folder: Path) -> None:
    """What Hadoop's catalog leaves beside the metadata."""
    (folder / "metadata/version-hint.text").write_text(table.metadata_location.rpartition("/")[2])


def test_a_table_that_only_this_package_writes_has_no_source_to_watch(tmp_path: Path) -> None:
    timeline, _ = create_table(Store(tmp_path / "t"), TableDefinition("t", FIELDS, ("id",)))

    with pytest.raises(InvalidInput, match="CommitEventTrigger"):
        source_state(timeline.head, timeline.store.uri)
