"""URIs of tables and indexes, and what an event tells of a commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_index.assets import (
    address_of,
    commit_event,
    commit_of,
    create_asset,
    index_asset,
    new_commits,
    parse_uri,
    remember_commits,
    table_asset,
)
from airflow_provider_index.operators import CompactIndexOperator, IndexSQLOperator, WriteTableOperator
from spark_apps.storage.errors import InvalidInput, InvalidName

RECEIPT = {
    "version": 7,
    "txn_id": "dag.run.load.abc",
    "operation": "upsert",
    "metrics": {"rows": 3, "bytes": 900, "mode": "quick", "groups": [1, 2], "why": "x" * 500},
    "instant": "20261120000000000",
}


@pytest.mark.parametrize(
    ("table", "uri"),
    [
        ("/lake/db/orders/", "lakeindex://file/lake/db/orders"),
        ("file:///lake/a%20b", "lakeindex://file/lake/a%20b"),
        ("s3a://bucket/db/orders", "lakeindex://s3/bucket/db/orders"),
        ("abfss://c@acc.dfs.core.windows.net/t", "lakeindex://abfss/c@acc.dfs.core.windows.net/t"),
        ("gs://bucket/day=1/ü", "lakeindex://gs/bucket/day=1/%C3%BC"),
        ("db.orders", "lakeindex://table/lake/db.orders"),
    ],
)
def test_a_uri_names_the_table_however_it_is_written_and_leads_back_to_it(table: str, uri: str) -> None:
    asset = table_asset(table, table_conn_id="lake")

    assert (asset.uri, asset.name, asset.group) == (uri, uri, "lakeindex")
    assert parse_uri(uri) == address_of(table, None, "lake")


def test_an_index_is_asked_for_in_the_query_and_is_another_asset_than_its_table() -> None:
    asset = index_asset("db.orders", "by_city", table_conn_id="lake", name="cities of orders")

    assert asset.uri == "lakeindex://table/lake/db.orders?index=by_city"
    assert asset.name == "cities of orders"
    assert parse_uri(asset.uri).index == "by_city"


def test_airflow_brings_a_uri_that_somebody_wrote_into_its_one_form() -> None:
    written = Asset("LAKEINDEX://S3A/bucket//db/orders/?index=by_city#here")

    # Airflow asks the provider's handler, which is named in the provider info.
    assert written.uri == "lakeindex://s3/bucket//db/orders?index=by_city"
    assert Asset(written.uri).normalized_uri == written.uri
    assert create_asset(table="s3://bucket/t", index="i", extra={"a": 1}).uri == "lakeindex://s3/bucket/t?index=i"


@pytest.mark.parametrize(
    "uri", ["lakeindex://s3", "lakeindex://table/db.orders", "lakeindex://ftp/host/x", "lakeindex://s3/b/t?version=3"]
)
def test_a_uri_that_names_no_table_is_refused_where_the_dag_is_parsed(uri: str) -> None:
    with pytest.raises(ValueError):
        Asset(uri)


def test_a_template_is_no_asset_and_the_error_says_what_is() -> None:
    with pytest.raises(InvalidName, match="AssetAlias"):
        table_asset("db.{{ params.table }}")


def test_an_event_carries_the_commit_and_small_figures_only() -> None:
    event = commit_event(RECEIPT, "/lake/db/orders")

    assert event["commit"] == "7:dag.run.load.abc"
    assert event["metrics"] == {"rows": 3, "bytes": 900, "mode": "quick"}
    assert commit_event({**RECEIPT, "version": None}, "/lake/db/orders")["commit"] is None


def test_events_of_tasks_and_of_watchers_are_read_alike_and_repeated_ones_count_once() -> None:
    first, second = commit_event(RECEIPT, "/t"), commit_event({**RECEIPT, "version": 8, "instant": "2027"}, "/t")
    watched = {"from_trigger": True, "payload": first}
    nothing = commit_event({**RECEIPT, "version": None}, "/t")
    events = [SimpleNamespace(extra=one) for one in (second, first, watched, nothing, {"other": 1})]

    assert commit_of(events[2]) == first
    assert [one["version"] for one in new_commits({"triggering_asset_events": {"a": events}})] == [7, 8]


class StateStores(dict[str, Any]):
    """As Airflow hands them to a task: by asset. Before Airflow 3.2 one that has an extra is no key of a dictionary."""

    def __getitem__(self, asset: Any) -> Any:
        return super().__getitem__(asset.uri)


def test_what_a_task_was_told_to_remember_is_not_new_any_more() -> None:
    asset = table_asset("/t")
    kept: dict[str, Any] = {}
    memory = SimpleNamespace(get=kept.get, set=kept.__setitem__)
    context = {
        "triggering_asset_events": {"a": [SimpleNamespace(extra=commit_event(RECEIPT, "/t"))]},
        "asset_state_store": StateStores({asset.uri: memory}),
        "ti": SimpleNamespace(dag_id="d", task_id="t"),
    }

    commits = new_commits(context, asset)
    remember_commits(context, asset, commits)

    assert len(commits) == 1
    assert new_commits(context, asset) == []
    with pytest.raises(InvalidInput, match="inlets"):
        new_commits({**context, "asset_state_store": StateStores()}, asset)


# --- what operators put into the events of their outlets ---------------------------------------------------------


def reported(operator: Any, result: Any) -> OutletEventAccessors:
    events = OutletEventAccessors()
    context = {"outlet_events": events, "ti": SimpleNamespace(start_date=None)}
    assert operator.report(context, result) is result
    return events


def test_a_receipt_goes_to_the_outlets_that_name_the_table_or_an_index_that_the_write_kept() -> None:
    table, kept, other = table_asset("/lake/t"), index_asset("/lake/t", "i"), table_asset("/lake/other")
    operator = WriteTableOperator(task_id="w", table="/lake/t/", sql="SELECT 1", outlets=[table, kept, other])

    events = reported(operator, dict(RECEIPT))

    assert events[table].extra["commit"] == events[kept].extra["commit"] == "7:dag.run.load.abc"
    assert events[other].extra == {}


def test_work_on_one_index_is_not_told_of_another() -> None:
    mine, other = index_asset("/lake/t", "mine"), index_asset("/lake/t", "other")
    operator = CompactIndexOperator(task_id="c", table="/lake/t", index="mine", outlets=[mine, other])

    events = reported(operator, dict(RECEIPT))

    assert events[mine].extra["index"] == "mine"
    assert events[other].extra == {}


def test_a_stage_of_a_transaction_is_no_commit_yet_and_nobody_is_told() -> None:
    table = table_asset("/lake/t")
    operator = WriteTableOperator(task_id="w", table="/lake/t", sql="SELECT 1", outlets=[table])

    events = reported(operator, {**RECEIPT, "version": None, "metrics": {"stage": "rows", "staged": "abc"}})

    assert (events[table].extra, operator.reported_commits) == ({}, ())


def test_by_an_alias_the_table_may_be_a_template_and_work_that_did_nothing_sends_no_event() -> None:
    alias = AssetAlias("written")
    operator = WriteTableOperator(task_id="w", table="/lake/t", sql="SELECT 1", outlets=[alias], batches=[{}, {}])
    first, second = dict(RECEIPT), {**RECEIPT, "version": 8}

    events = reported(operator, [first, second, {**RECEIPT, "version": None}])[alias].asset_alias_events

    assert [one.extra["version"] for one in events] == [7, 8]
    assert {one.dest_asset_key.uri for one in events} == {"lakeindex://file/lake/t"}


def test_a_table_whose_name_only_sparks_catalog_knows_is_told_of_by_its_place() -> None:
    alias = AssetAlias("2024_sales")
    operator = IndexSQLOperator(task_id="w", sql="REFRESH INDEX i ON t", outlets=[alias])
    answer = {"statement": "REFRESH", "table": "2024_sales", "location": "/lake/2024_sales", "receipt": dict(RECEIPT)}

    [event] = reported(operator, [answer])[alias].asset_alias_events

    assert event.dest_asset_key.uri == table_asset("/lake/2024_sales").uri


def test_what_cannot_be_told_of_does_not_fail_work_that_is_done() -> None:
    alias = AssetAlias("written")
    operator = IndexSQLOperator(task_id="w", sql="REFRESH INDEX i ON t", outlets=[alias])
    answer = {"statement": "REFRESH", "table": "2024_sales", "location": "hdfs://n/t", "receipt": dict(RECEIPT)}

    assert reported(operator, [answer])[alias].asset_alias_events == []
