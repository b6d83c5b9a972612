"""Watchers in a real triggerer: commits and files that land start DAGs, and events carry what they are about."""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_index.triggers.events import CommitEventTrigger
from spark_apps.indexes.registry import find
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import (
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    SourceDefinition,
    TableDefinition,
)
from tests.airflow.lake import Lake

pytestmark = pytest.mark.heavy

EXAMPLES = ("events",)

FIELDS = (Field("id", "bigint", nullable=False), Field("city", "string"))


def by_city(table: TableDefinition) -> IndexDefinition:
    """The index that the DAGs refresh, as building it over an empty table defines it."""
    return find("secondary").validate(table, IndexDefinition("by_city", "secondary", ("city",), "1", deferred=True))


def events(lake: Lake, asset: str) -> list[dict[str, Any]]:
    """What the events of an asset carry, oldest first."""
    assets = lake.client.get("assets", uri_pattern=asset)["assets"]
    matching = [one for one in assets if one["uri"] == asset]
    if not matching:
        return []
    rows = lake.client.get("assets/events", asset_id=matching[0]["id"], order_by="timestamp")["asset_events"]
    return [row["extra"] for row in rows]


def first_run(lake: Lake, dag_id: str, timeout: float = 240) -> str:
    """The id of a DAG's first run, once there is one."""
    deadline = time.monotonic() + timeout
    while not (runs := lake.client.get(f"dags/{dag_id}/dagRuns", order_by="run_after")["dag_runs"]):
        assert time.monotonic() < deadline, f"{dag_id} was never started"
        time.sleep(0.5)
    return str(runs[0]["dag_run_id"])


def test_given_data_that_land_when_a_watcher_sees_the_commit_then_the_index_is_refreshed_and_its_readers_are_told(
    lake: Lake,
) -> None:
    """Nobody who writes here names an outlet: the watcher sees the commit in the table's own log."""
    definition = TableDefinition("orders", FIELDS, ("id",), hash_fields=("id",))
    begun = [PutHashingConfig(HashingConfig("", 2)), PutIndex(by_city(definition), covered=True)]
    create_table(Store(lake.warehouse / "shop/orders"), definition, begun)
    create_source(lake)
    watched = "lakeindex://table/index_table_store_default/shop.orders"

    report = lake.run("land_orders")
    receipt = lake.client.xcom("land_orders", report.run_id, "land")
    write_file(lake, "2.parquet", 50)
    refreshed = lake.client.wait("refresh_orders", first_run(lake, "refresh_orders"), timeout=300)

    assert refreshed.state == "success"
    payload = events(lake, watched)[0]["payload"]
    assert payload["commit"] == f"{receipt['version']}:{receipt['txn_id']}"
    assert (payload["operation"], payload["metrics"]["rows"]) == ("upsert", 40)
    timeline = lake.timeline("shop/orders")
    assert timeline.head.indexes["by_city"].lag == {}
    assert [commit.operation for commit in timeline.commits()][-1] == "refresh_index"

    reader = lake.client.wait("announce_orders", first_run(lake, "announce_orders"), timeout=120)
    (commit,) = lake.client.xcom("announce_orders", reader.run_id, "log_commits")
    assert (commit["operation"], commit["index"], commit["version"]) == ("refresh_index", "by_city", 2)

    # The refresh was a commit too, and started nothing; what the watcher has seen is kept over its restart.
    wait_for_mark(lake, watched, timeline.head.version)
    assert len(events(lake, watched)) == 1

    links = lake.client.get(f"dags/land_orders/dagRuns/{report.run_id}/taskInstances/land/links")["extra_links"]
    assert links["Table"].endswith("shop%2Forders&conn=index_table_store_default")
    assert links["Spark UI"] is None  # switched off here

    source = lake.client.wait("refresh_trips", first_run(lake, "refresh_trips"), timeout=300)
    assert source.state == "success"
    assert lake.timeline("landing/_indexes/trips").head.indexes["by_city"].lag == {}
    seen = [one["payload"] for one in events(lake, watched.replace("shop.orders", "landing.trips"))]
    assert [(one["operation"], one["files_added"], one["format"]) for one in seen] == [("source", 1, "parquet")]


def wait_for_mark(lake: Lake, asset: str, version: int, timeout: float = 60) -> None:
    """Waits until a watcher has noted, with its asset, that it has seen a version."""
    (watched,) = [one for one in lake.client.get("assets", uri_pattern=asset)["assets"] if one["uri"] == asset]
    deadline = time.monotonic() + timeout
    while True:
        kept = lake.client.get(f"assets/{watched['id']}/state-store")["asset_state_store"]
        marks = [row["value"]["mark"] for row in kept]
        if [mark["version"] for mark in marks if mark != CommitEventTrigger.before_all] == [version]:
            return
        assert time.monotonic() < deadline, f"the watcher's mark is {kept}, not {version}"
        time.sleep(0.5)


def create_source(lake: Lake) -> None:
    """A folder of files that was registered and indexed; the log stands beside it."""
    write_file(lake, "1.parquet", 20)
    source = SourceDefinition("parquet", str(lake.warehouse / "landing/trips"))
    definition = TableDefinition("trips", FIELDS, (), bucketed=False, source=source)
    files = [file.to_add() for file in PlainFiles.of(definition, None).listing().files]
    log = Store(lake.warehouse / "landing/_indexes/trips")
    create_table(log, definition, [*files, PutIndex(by_city(definition))])


def write_file(lake: Lake, name: str, rows: int) -> None:
    """Puts a file where the source's owner would, in one step."""
    folder = lake.warehouse / "landing/trips"
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "city": [f"c{n % 7}" for n in range(rows)]})
    pq.write_table(table, folder / f".{name}")
    os.replace(folder / f".{name}", folder / name)
