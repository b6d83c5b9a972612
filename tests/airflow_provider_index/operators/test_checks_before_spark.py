"""Mistakes that the table's log shows: a task ends with them before a Spark is looked for, and is not tried again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.operators import (
    BuildIndexOperator,
    CompactIndexOperator,
    DropIndexOperator,
    RefreshIndexOperator,
    RegisterTableOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)
from airflow_provider_index.source_files import check_there
from spark_apps.jobs.checks import check_query, check_where
from spark_apps.storage.errors import InvalidInput, SourceNotFound
from spark_apps.timeline.log import Timeline
from tests.airflow_provider_index.operators.plain_table import context, make_table

NEW = {"schema": "p string, k string", "record_key": ["k"], "partition_by": ["p"], "buckets": 1}


@pytest.fixture
def table(tmp_path: Path) -> Timeline:
    (tmp_path / "in").mkdir()
    return make_table(tmp_path / "t")


def ended(operator: type[BaseOperator], table: str, **arguments: Any) -> str:
    """What a task ended with; there is no Spark connection, so one that asks for Spark ends with that."""
    with pytest.raises(AirflowFailException) as error:
        operator(task_id="t", table=table, **arguments).execute(context("t"))
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (BuildIndexOperator, {"index": "i", "kind": "secondry", "columns": ["p"]}, "'secondry'.*secondary"),
        (BuildIndexOperator, {"index": "i", "kind": "secondary", "columns": ["city"]}, "'city'"),
        (BuildIndexOperator, {"index": "i", "kind": "secondary"}, "no columns"),
        (BuildIndexOperator, {"index": "i i", "kind": "record"}, "'i i'"),
        (RefreshIndexOperator, {"index": "i"}, "IndexNotFound: There is no index 'i'"),
        (RefreshIndexOperator, {"index": "i", "plan_only": True}, "IndexNotFound"),
        (CompactIndexOperator, {"index": "i"}, "IndexNotFound"),
        (VerifyIndexOperator, {"index": ["i"]}, "IndexNotFound"),
        (WriteTableOperator, {"sql": "SELEC 1"}, "Line 1, column 1: A query does not begin with 'SELEC'"),
        (WriteTableOperator, {"sql": "SELECT (1 AS k"}, "Line 1, column 8"),
        (WriteTableOperator, {"operation": "delete", "where": "kk = 1"}, "UnknownColumn.*'kk'"),
        (WriteTableOperator, {"operation": "delete", "where": "k = 'a' AND"}, "InvalidPredicate"),
        (
            WriteTableOperator,
            {"operation": "insert_overwrite", "sql": "SELECT 1", "partitions": ["q=1"]},
            "not a partition",
        ),
    ],
)
def test_given_a_mistake_that_the_log_shows_then_the_task_ends_before_spark(
    table: Timeline, kind: type[BaseOperator], arguments: dict[str, Any], said: str
) -> None:
    assert re.search(said, ended(kind, table.store.uri, **arguments), re.DOTALL)


@pytest.mark.parametrize("kind", ["acme.kinds.Geo", "geo"])
def test_given_a_kind_that_only_the_clusters_python_may_have_then_it_is_left_to_the_app(
    table: Timeline, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": "yarn"}))
    build = {"table": table.store.uri, "index": "i", "kind": kind, "columns": ["p"]}
    there = BuildIndexOperator(task_id="t", spark_conn_id="cluster", **build)
    there.read_arguments()

    there.check_before_spark()

    assert kind in ended(BuildIndexOperator, **build), "where Spark is here it is a mistake"


def test_given_a_source_that_is_not_there_then_neither_spark_is_started_nor_a_table_made(
    table: Timeline, tmp_path: Path
) -> None:
    for source in ("nothing", "in/*.parquet", "in/[0-9]*"):
        said = ended(WriteTableOperator, str(tmp_path / "new"), source=str(tmp_path / source), create=NEW)
        assert said.startswith("SourceNotFound: There is nothing to read at") and source in said
    assert ended(RegisterTableOperator, str(tmp_path / "nothing")).startswith("SourceNotFound")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "t"]


def test_given_a_spark_elsewhere_when_a_path_has_no_scheme_then_only_it_can_look_there(
    table: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = {"task_id": "t", "table": table.store.uri, "source": ["/landing/orders", "/landing/*.csv", "file:/landing"]}
    for master, runs_here in (("local[1]", True), ("yarn", False), ("spark://host:7077", False)):
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", "host": master}))
        operator = WriteTableOperator(**write, spark_conn_id="cluster")
        if runs_here:
            with pytest.raises(SourceNotFound):
                operator.check_before_spark()
        else:
            operator.check_before_spark()


def test_given_no_mistake_then_spark_is_asked_for(table: Timeline, tmp_path: Path) -> None:
    uri = table.store.uri
    for kind, arguments in (
        (BuildIndexOperator, {"index": "i", "kind": "secondary", "columns": ["p"]}),
        (DropIndexOperator, {"index": "i", "if_exists": True}),
        (VerifyIndexOperator, {}),
        (WriteTableOperator, {"source": str(tmp_path / "in")}),
        (WriteTableOperator, {"operation": "delete", "where": "k IN (SELECT k FROM gone)"}),
    ):
        assert "which says where Spark is" in ended(kind, uri, **arguments), kind
    assert ended(RefreshIndexOperator, str(tmp_path / "none"), index="i").startswith("TableNotFound")


def test_what_only_spark_can_read_is_left_to_it(table: Timeline, tmp_path: Path) -> None:
    for query in ("FROM source SELECT k", "(SELECT 1)", "SELECT ')' -- (\n", "VALUES (1)", "SELECT 1 |> LIMIT 1;"):
        check_query(query)
    for where in ("true", "k = ')'", "k LIKE ANY ('a%', 'b%')", "exists(split(k, ''), x -> x = 'a')", "K = 'x'"):
        check_where(where, table.head.table)
    for path in ("hdfs://h/x", str(tmp_path / "{a,b}"), str(tmp_path / "[^a]"), str(tmp_path / "in"), "dbfs:/mnt/x"):
        check_there([path])
    with pytest.raises(SourceNotFound):
        check_there([str(tmp_path / "in"), f"file://{tmp_path}/gone"])
    with pytest.raises(InvalidInput, match="2 statements"):
        check_query("SELECT 1; SELECT 2")
