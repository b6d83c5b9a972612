"""Tables by URI, by path and by name; connections with mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_index.assets import address_of, parse_uri
from airflow_provider_index.hooks import TableStoreHook
from airflow_provider_index.operators import IncrementalRefreshOperator, RegisterTableOperator
from airflow_provider_index.runners.cluster_mode import for_elsewhere
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.triggers.events import CommitEventTrigger
from spark_apps.jobs.job import Job
from spark_apps.storage.credentials import hadoop_settings
from spark_apps.storage.errors import InvalidInput, InvalidName, TableNotFound
from spark_apps.storage.store import store_options
from spark_apps.timeline.reader_roots import source_roots, warehouse_root
from tests.spark_apps.timeline.test_catalog_names import registered


def connect(monkeypatch: pytest.MonkeyPatch, conn_id: str, conn_type: str = "index_table_store", **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))


def test_a_name_is_a_folder_below_the_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})

    assert TableStoreHook("lake").locate("sales.orders") == f"{tmp_path}/sales/orders"
    assert TableStoreHook("lake").locate("orders") == f"{tmp_path}/orders"


@pytest.mark.parametrize("where", ["s3://bucket/a/b", "/data/a b", "gs://bucket/t"])
def test_a_uri_or_a_path_stands_for_itself_and_needs_no_connection(where: str) -> None:
    assert TableStoreHook().locate(where) == where


@pytest.mark.parametrize(
    "name", ["../other", "a/b", "sales.", ".", "..", "a..b", "it's", 'a"b', "a\nb", "", "  ", "sales./etc/passwd"]
)
def test_no_name_leads_out_of_the_warehouse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})

    with pytest.raises(InvalidName, match="Nothing was changed"):
        TableStoreHook("lake").locate(name)


def test_a_name_without_a_warehouse_says_what_to_fill_in(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake")

    with pytest.raises(InvalidName, match=r"names no warehouse.*Fill in the connection"):
        TableStoreHook("lake").locate("orders")


def test_a_connection_that_was_asked_for_and_is_missing_is_named() -> None:
    with pytest.raises(InvalidInput, match="no Airflow connection 'nowhere'"):
        _ = TableStoreHook("nowhere").storage_options


@pytest.mark.parametrize("given", [{"aws_region": "eu"}, '{"aws_region": "eu"}'])
def test_storage_options_may_be_an_object_or_its_text(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"storage_options": given})

    assert TableStoreHook("lake").storage_options == {"aws_region": "eu"}


def test_source_roots_of_the_connection_go_wherever_its_storage_options_go(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"storage_options": {"aws_region": "eu"}, "source_roots": ["s3://lake/raw"]})
    options = TableStoreHook("lake").storage_options

    assert source_roots(options) == ("s3://lake/raw",)
    assert store_options(options) == {"aws_region": "eu"}
    assert hadoop_settings("s3a://lake/t", options).unsupported_options == []
    elsewhere = SparkSettings("k8s://x", runner_options={"storage_options": {"aws_region": "us"}})
    handed_on = for_elsewhere(Job("refresh_index", "s3://lake/t", storage_options=options), elsewhere).storage_options
    assert source_roots(handed_on) == ("s3://lake/raw",) and store_options(handed_on) == {"aws_region": "us"}


@pytest.mark.parametrize(
    "given",
    [
        ["s3://lake/raw/_indexes/", "/data/t"],
        '["s3://lake/raw/_indexes", "/data/t"]',
        "s3://lake/raw/_indexes\nfile:///data/t",
    ],
)
def test_listed_tables_are_addresses_in_any_form_of_a_list(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"listed_tables": given})

    assert TableStoreHook("lake").listed_tables == ("s3://lake/raw/_indexes", "/data/t")


@pytest.mark.parametrize(
    "given", ["raw.trips", "[1]", '{"a": 1}', ["/data/../etc"], ["s3://lake/t"] * 501, ["nowhere://x"]]
)
def test_listed_tables_that_are_no_addresses_are_refused_by_name(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"listed_tables": given})

    with pytest.raises(InvalidInput, match=r"listed_tables|nowhere"):
        _ = TableStoreHook("lake").listed_tables


@pytest.mark.parametrize("given", ["{secret", "[1, 2]", "aws_region=eu"])
def test_storage_options_that_are_no_object_are_refused_without_showing_them(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", extra={"storage_options": given})

    with pytest.raises(InvalidInput) as caught:
        _ = TableStoreHook("lake").storage_options
    assert given not in str(caught.value)


def test_the_connection_can_be_tried_from_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})
    assert TableStoreHook("lake").test_connection() == (True, f"{tmp_path} can be listed, written and read by obstore.")

    connect(monkeypatch, "lake")
    assert TableStoreHook("lake").test_connection()[0] is False


@pytest.mark.parametrize("warehouse", ["hdfs://names/lake", "viewfs://lake/x"])
def test_a_warehouse_on_a_file_system_of_hadoop_is_refused_with_the_reason(
    warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": warehouse})

    done, said = TableStoreHook("lake").test_connection()

    assert not done and "not in an Airflow task or trigger" in said and "use an object store" in said
    with pytest.raises(InvalidName, match="Hadoop's Java alone reaches"):
        TableStoreHook("lake").locate("sales.orders")


def test_the_name_of_a_catalog_s_table_is_its_log_for_operators_triggers_sensors_and_assets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})
    log, odd = registered(tmp_path, "prod.db.trips"), registered(tmp_path, "prod.`my db`.trips")
    fields: dict[str, Any] = {"table": "prod.db.trips", "table_conn_id": "lake"}

    assert IncrementalRefreshOperator(task_id="a", index="i", **fields).location() == log
    hook = TableStoreHook("lake")
    assert hook.timeline("prod.db.trips").store.uri == hook.log_store("catalog:prod.db.trips").uri == log
    assert warehouse_root(hook.storage_options) == str(tmp_path), "what readers believe the log by"
    assert store_options(hook.storage_options) == {}
    trigger = CommitEventTrigger(**fields)
    trigger.connect()
    assert trigger.timeline().store.uri == log
    for name, where in (("prod.db.trips", log), ("catalog:prod.db.trips", log), ("prod.`my db`.trips", odd)):
        assert parse_uri(address_of(name, None, "lake").uri).location() == where
    assert address_of("prod.db.trips", None, "lake").uri.endswith("/lake/prod.db.trips")


def test_a_name_is_registered_by_its_words_and_found_when_the_app_has_written_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})
    fields: dict[str, Any] = {"task_id": "a", "table_conn_id": "lake", "format": "iceberg"}
    named = RegisterTableOperator(table="prod.db.trips", **fields)
    other = RegisterTableOperator(table="catalog:prod.db.trips", **fields)
    address = RegisterTableOperator(table="s3://lake/trips", **fields)

    def seen() -> list[str]:
        return [one.location() for one in (named, other, address)]

    before = seen()
    assert before == [f"{tmp_path}/prod/db/trips", "catalog:prod.db.trips", "s3://lake/trips"]
    assert named._timeline() is None and other._timeline() is None
    log = registered(tmp_path, "prod.db.trips")
    assert seen() == before, "a second run asks for the same"
    for one in (named, other):
        assert one.arguments()["catalog_name"] == one.table and one.arguments()["warehouse"] == str(tmp_path)
        jobs, timeline = one.jobs_store(), one._timeline()
        assert jobs is not None and jobs.uri == str(tmp_path)
        assert timeline is not None and timeline.store.uri == log
    assert "catalog_name" not in address.arguments()
    with pytest.raises(InvalidInput, match="only one of index_root and name"):
        RegisterTableOperator(table="catalog:prod.db.t", index_root="/x", **fields)._timeline()


def test_an_unknown_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"warehouse": str(tmp_path)})

    with pytest.raises(TableNotFound, match=f"{tmp_path}/orders.*Nothing was changed"):
        TableStoreHook("lake").timeline("orders")


@pytest.mark.parametrize(
    ("fields", "master"),
    [
        ({"host": "local[2]"}, "local[2]"),
        ({"host": "spark://node", "port": 7077}, "spark://node:7077"),
        ({"host": "k8s://https://api", "port": 443}, "k8s://https://api:443"),
        ({"host": "yarn"}, "yarn"),
        ({"host": "node", "port": 7077}, "spark://node:7077"),
    ],
)
def test_the_spark_connection_is_read_as_airflows_own_hook_reads_it(
    fields: dict[str, Any], master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "cluster", "spark", **fields)
    connect(monkeypatch, "lake", extra={"spark_conn_id": "cluster"})

    assert TableStoreHook("lake").spark_settings().master == master


def test_settings_of_the_connection_and_of_the_operator_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"conf": {"spark.a": True, "spark.b": 1}, "driver-memory": "1g", "queue": "night", "unknown": "x"}
    connect(monkeypatch, "spark_default", "spark", host="local[2]", extra=extra)

    settings = TableStoreHook().spark_settings().with_conf({"spark.b": 2, "spark.hadoop.fs.s3a.secret.key": "s"})

    assert settings.open_conf == {"spark.a": "true", "spark.b": "2"}
    assert settings.secret_conf == {"spark.hadoop.fs.s3a.secret.key": "s"}
    assert settings.options == {"driver-memory": "1g", "queue": "night"}


def test_a_missing_spark_connection_is_an_error_and_not_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", extra={"spark_conn_id": "nowhere"})

    with pytest.raises(InvalidInput, match=r"'nowhere', which says where Spark is.*Create it"):
        TableStoreHook("lake").spark_settings()


def test_cluster_mode_is_refused_where_spark_has_none_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_default", "spark", host="spark://h", port=7077, extra={"deploy-mode": "cluster"})

    with pytest.raises(InvalidInput, match=r"'cluster' on spark://h:7077"):
        TableStoreHook().spark_settings()
