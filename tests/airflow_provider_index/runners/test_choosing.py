"""Which runner a connection or an operator chooses, and what a Spark connection may say."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_index.runners.choosing import make_runner
from airflow_provider_index.runners.cluster_mode import ClusterModeRunner
from airflow_provider_index.runners.connect import ConnectRunner, DetachedConnectRunner
from airflow_provider_index.runners.settings import SparkSettings
from airflow_provider_index.runners.spark_submit import DetachedSparkSubmitRunner, SparkSubmitRunner
from spark_apps.storage.errors import InvalidInput

LOG = logging.getLogger("test")
SECRET = "planted-77aa01"
ASKED = {"port": 15002, "login": "ann", "password": SECRET, "extra_dejson": {"use_ssl": True}}


def connection(conn_type: str = "spark", **fields: Any) -> Any:
    defaults = {"host": None, "port": None, "login": None, "password": None, "extra_dejson": {}, "conn_id": "spark"}
    return SimpleNamespace(conn_type=conn_type, **{**defaults, **fields})


def settings(conn_type: str = "spark", **fields: Any) -> SparkSettings:
    return SparkSettings.from_connection(connection(conn_type, **fields))


@pytest.mark.parametrize(
    ("fields", "attached", "detached"),
    [
        ({"host": "local[2]"}, SparkSubmitRunner, DetachedSparkSubmitRunner),
        ({"host": "spark://h", "port": 7077}, SparkSubmitRunner, DetachedSparkSubmitRunner),
        ({"host": "sc://h", "port": 15002}, ConnectRunner, DetachedConnectRunner),
        ({"host": "yarn", "extra_dejson": {"deploy-mode": "cluster"}}, ClusterModeRunner, ClusterModeRunner),
    ],
)
def test_the_master_chooses_the_runner(fields: dict[str, Any], attached: type, detached: type) -> None:
    spark_settings = settings(**fields)

    assert type(make_runner(spark_settings, LOG)) is attached
    assert type(make_runner(spark_settings, LOG, detached=True)) is detached
    assert make_runner(spark_settings, LOG, detached=True).detached


def test_the_operators_word_is_over_the_connections() -> None:
    spark_settings = settings(host="sc://h", extra_dejson={"runner": "tests.spark.operators.by_shell"})

    assert type(make_runner(spark_settings, LOG, runner="connect")) is ConnectRunner
    assert type(make_runner(spark_settings, LOG)).__name__ == "WrappingRunner"


@pytest.mark.parametrize(
    ("master", "runner", "said"),
    [
        ("local[1]", "livy", "Name one of connect, spark-submit, or"),
        ("local[1]", "no.such.module", "cannot be loaded"),
        ("local[1]", "tests.spark.operators.no_such_name", "cannot be loaded"),
        ("local[1]", "connect", r"master is local\[1\]"),
        ("sc://h:1", "spark-submit", "that of a Spark Connect server"),
    ],
)
def test_a_runner_that_cannot_be_is_refused_by_name(master: str, runner: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make_runner(SparkSettings(master=master), LOG, runner=runner)


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("spark", {"host": "sc://h", **ASKED}),
        ("spark_connect", {"host": "h", **ASKED}),
        ("index_runner", {"host": "sc://h", **ASKED}),
        ("spark", {"host": f"sc://h:15002/;user_id=ann;use_ssl=true;token={SECRET}"}),
    ],
)
def test_an_address_of_spark_connect_keeps_its_token_apart(conn_type: str, fields: dict[str, Any]) -> None:
    spark_settings = settings(conn_type, **fields)

    assert spark_settings.master == "sc://h:15002"
    assert spark_settings.remote == "sc://h:15002/;user_id=ann;use_ssl=true"
    assert spark_settings.token == SECRET
    assert SECRET not in repr(spark_settings)


def test_a_form_gives_objects_as_text() -> None:
    spark_settings = settings(
        "index_runner", host="local[2]", extra_dejson={"conf": '{"spark.x": true}', "environment": ""}
    )

    assert (spark_settings.master, dict(spark_settings.conf), dict(spark_settings.environment)) == (
        "local[2]",
        {"spark.x": "true"},
        {},
    )
    with pytest.raises(InvalidInput, match=r"'conf'.*not an object"):
        settings("index_runner", extra_dejson={"conf": "spark.x=1"})


def test_conf_options_and_environment_pass_through() -> None:
    spark_settings = settings(
        host="k8s://https://h:6443",
        extra_dejson={
            "deploy-mode": "cluster",
            "namespace": "lake",
            "conf": {"spark.x": 1, "spark.y": True, "spark.hadoop.fs.azure.account.key.a": SECRET},
            "environment": {"LANG": "C.UTF-8"},
            "packages": "a:b:1",
            "principal": "ann@EXAMPLE",
            "driver-memory": "2g",
        },
    )

    assert spark_settings.options == {"packages": "a:b:1", "driver-memory": "2g", "principal": "ann@EXAMPLE"}
    assert spark_settings.open_conf == {
        "spark.executorEnv.LANG": "C.UTF-8",
        "spark.kubernetes.namespace": "lake",
        "spark.x": "1",
        "spark.y": "true",
    }
    assert spark_settings.secret_conf == {"spark.hadoop.fs.azure.account.key.a": SECRET}
    assert SECRET not in repr(spark_settings)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"environment": {"DB_PASSWORD": SECRET}}, "DB_PASSWORD"),
        ({"environment": "LANG=C"}, "'environment'.*not an object"),
        ({"conf": ["spark.x=1"]}, "'conf'.*not an object"),
        ({"deploy-mode": "cluster"}, "'cluster' on spark://h"),
        ({"deploy-mode": "both"}, "'both' on"),
    ],
)
def test_what_a_connection_may_not_say_is_named(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        settings(host="spark://h", extra_dejson=extra)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("use_ssl", "meant"), [(True, True), ("true", True), ("false", False), ("", False)])
def test_ssl_is_on_where_the_extra_says_so_also_as_text(use_ssl: Any, meant: bool) -> None:
    spark_settings = settings("spark_connect", **{**ASKED, "host": "h", "extra_dejson": {"use_ssl": use_ssl}})

    assert ("use_ssl" in spark_settings.connect) == meant


def test_ssl_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(InvalidInput, match="use_ssl of the Spark connection"):
        settings("spark_connect", **{**ASKED, "host": "h", "extra_dejson": {"use_ssl": "perhaps"}})


def test_a_setting_that_is_null_is_none_and_takes_the_connections_away() -> None:
    spark_settings = settings(
        host="local", extra_dejson={"conf": {"spark.a": None, "spark.b": 1}, "environment": {"X": None}}
    )

    assert (spark_settings.conf, spark_settings.environment) == ({"spark.b": "1"}, {})
    assert spark_settings.with_conf({"spark.b": None, "spark.c": True}).conf == {"spark.c": "true"}


def test_a_setting_beside_the_others_is_read_as_by_the_provider_s_own_tasks() -> None:
    spark_settings = settings(host="local", extra_dejson={"spark.a": 1, "spark.b": "x", "conf": {"spark.b": "y"}})

    assert spark_settings.conf == {"spark.a": "1", "spark.b": "y"}
